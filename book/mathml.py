"""MathML as browsers draw it well: what math-core writes, with brackets and bars put right."""

from __future__ import annotations

import re

# A bracket of a given size (\bigr and its kin) that bears an exponent or an index.
_SCRIPTED = re.compile(r"(<msu(?:p|b|bsup)\b[^>]*>)(<mo\b[^>]*\bminsize=[^>]*>[^<]*</mo>)")
# A bar over or under one letter.
_BARRED = re.compile(
    r"(?P<open><m(?P<side>over|under)\b[^>]*>)(?P<letter><mi\b[^>]*>(?P<name>[^<])</mi>)"
    r"<mo\b[^>]*>[¯\u0332]</mo>"
)
_HIGH = re.compile(r"[A-Zbdfhklßβδθλζξ]")
_DEEP = re.compile(r"[gjpqyβγημξρφχψ]")


def well_drawn(mathml: str) -> str:
    """The same formula; every bracket is as large as its partner, every bar keeps its distance.

    A browser stretches a bracket only among the children of a row: as the base of an exponent it
    would stay small and drop below its partner, so it gets a row of its own. A bar would touch its
    letter, and one below it run under the neighbours: the letter gets a strut, and the bar is a
    short one.
    """
    mathml = _SCRIPTED.sub(r"\1<mrow>\2</mrow>", mathml)
    return _BARRED.sub(_with_strut, mathml)


def _with_strut(found: re.Match[str]) -> str:
    if found["side"] == "over":
        strut = f'height="{"0.8" if _HIGH.match(found["name"]) else "0.6"}em"'
    else:
        strut = f'depth="{"0.34" if _DEEP.match(found["name"]) else "0.12"}em"'
    base = f"<mrow>{found['letter']}<mspace {strut}/></mrow>"
    return f'{found["open"]}{base}<mo stretchy="false">¯</mo>'
