"""Symbols that answer: what the pages carry so that each symbol of a formula can say what it is.

The MathML of a displayed formula is the one that math-core makes, and nothing else: the elements
that print a symbol only get a number, `data-s="7"`. Where these are is found by setting the formula
once more with a private-use character in place of the symbol, and comparing. What the numbers stand
for travels once per page as JSON; `static/symbols.js` shows it, and does nothing without it.

The page on notation is made from the same tables (`book/symbols/*.yml`).
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from math_core import LatexError, LatexToMathML

from book.chapters import chapters, read, title, topic
from book.formulas.reading import FormulaError
from book.formulas.symbols import FOLDER, Meaning, Occurrence, occurrences, rows
from book.lint import displayed
from book.lint_symbols import meanings

SIGN = "\ue000"
_latex = LatexToMathML(fancy_error=False)


# ---------------------------------------------------------------- where a symbol is in the MathML


@dataclass
class _Element:
    """An element of MathML, and where in the text attributes can be added to it."""

    tag: str
    at: int
    text: str = ""
    kids: list[_Element] = field(default_factory=list)


def _tree(mathml: str) -> _Element:
    root = _Element("", 0)
    path = [root]
    end = 0
    for match in re.finditer(r"<(/?)(\w+)[^<>]*?(/?)>", mathml):
        path[-1].text += mathml[end : match.start()].strip()
        end = match.end()
        if match[1]:
            path.pop()
            continue
        found = _Element(match[2], match.end(2))
        path[-1].kids.append(found)
        if not match[3]:
            path.append(found)
    return root


def _same(one: _Element, other: _Element) -> bool:
    return (one.tag, one.text, len(one.kids)) == (other.tag, other.text, len(other.kids)) and all(
        map(_same, one.kids, other.kids)
    )


def _is_sign(found: _Element) -> bool:
    """Whether an element is the sign, alone or as math-core sets the name of a function."""
    match found.kids:
        case []:
            return found.text == SIGN
        case [_Element(tag="mspace"), only]:
            return _is_sign(only)
    return False


def _replaced(plain: _Element, other: _Element) -> list[_Element] | None:
    """The elements in whose place `other` has the sign; None if more than that differs."""
    if _is_sign(other):
        return [plain]
    if (plain.tag, plain.text) != (other.tag, other.text):
        return None
    more = len(plain.kids) - len(other.kids)
    if more == 0:
        differ = [(a, b) for a, b in zip(plain.kids, other.kids, strict=True) if not _same(a, b)]
        return _replaced(*differ[0]) if len(differ) == 1 else None
    place = next((i for i, kid in enumerate(other.kids) if _is_sign(kid)), None)
    if place is None or more < 0:
        return None
    left = [*plain.kids[:place], *plain.kids[place + more + 1 :]]
    right = [*other.kids[:place], *other.kids[place + 1 :]]
    return plain.kids[place : place + more + 1] if all(map(_same, left, right)) else None


def _elements(latex: str, start: int, end: int, plain: _Element) -> list[_Element]:
    """The elements of a formula that print `latex[start:end]`; none if that cannot be told."""
    printed = latex[start:end]
    # The name of a function keeps its distance to its argument.
    stand_in = rf"\operatorname{{{SIGN}}}" if printed.startswith(r"\operatorname") else SIGN
    try:
        other = _latex.convert_with_local_state(
            latex[:start] + stand_in + latex[end:], displaystyle=True
        )
        found = _replaced(plain, _tree(other))
    except LatexError:
        found = None
    if found:
        return found
    # A name of two letters, as dX, of which the second has scripts of its own.
    if two := _PREFIXED.match(printed):
        first = _elements(latex, start, start + two.end(1), plain)
        second = _elements(latex, start + two.end(), end, plain)
        return first + second if first and second else []
    # A name with a prime and a script: its letter stands for it.
    if printed.endswith("'"):
        return _elements(latex, start, start + len(printed.rstrip("'")), plain)
    letter = _LETTER.match(printed)
    if letter and letter.end() < len(printed):
        return _elements(latex, start, start + letter.end(), plain)
    return []


_PREFIXED = re.compile(
    r"(\\mathrm\s*(?:\{d\}|d)|\\(?:nabla|Delta|partial)(?![a-zA-Z])|d)\s*(?=[\\\w{])"
)
_LETTER = re.compile(r"\\(?:operatorname|text|mathrm)\s*\{[^{}]*\}|\\[a-zA-Z]+|\w")


def marked(latex: str, numbers: Iterable[tuple[Occurrence, int]]) -> str:
    """The MathML of a displayed formula, with a number on what prints each of these symbols.

    What has a color, such as the queries, has its name too (`data-role`).
    """
    mathml = str(_latex.convert_with_local_state(latex, displaystyle=True))
    plain = _tree(mathml)
    # Of two symbols that one element prints, the one that comes first is the whole of it.
    places: dict[int, str] = {}
    for one, number in numbers:
        color = one.meaning.color if one.meaning else ""
        role = f' data-role="{color}"' if color else ""
        for found in _elements(latex, one.start, one.end, plain):
            places.setdefault(found.at, f' data-s="{number}"{role}')
    for at in sorted(places, reverse=True):
        mathml = f"{mathml[:at]}{places[at]}{mathml[at:]}"
    return mathml


# ---------------------------------------------------------------- one page


class PageSymbols:
    """The symbols of one chapter's page, numbered as they come."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self._numbers: dict[Meaning, int] = {}

    def formula(self, label: str, latex: str) -> str | None:
        """The MathML of a formula, whose known symbols have numbers; None if it has none."""
        try:
            found = occurrences(latex, self.topic, label)
            known = [
                (one, self._numbers.setdefault(one.meaning, len(self._numbers)))
                for one in found
                if one.meaning is not None
            ]
            return marked(latex, known) if known else None
        except (FormulaError, LatexError):  # what cannot be read is shown as it is
            return None

    def island(self) -> str:
        """The meanings as a block of JSON for the page; empty if there are none.

        By number: the symbol and its shape as MathML, what it is, and all of it as it is spoken.
        """
        entries = [
            [_inner(one.key), one.name, _inner(one.shape) if _told(one.shape) else "",
             one.role, spoken(one)]
            for one in self._numbers
        ]  # fmt: skip
        if not entries:
            return ""
        text = json.dumps(entries, ensure_ascii=False, separators=(",", ":"))
        text = text.replace("<", "\\u003c")
        return f'<script type="application/json" class="tp-symbols">{text}</script>'


def _told(shape: str) -> bool:
    return shape not in ("", "()", "*")


@functools.cache
def _inner(latex: str) -> str:
    mathml = str(_latex.convert_with_local_state(latex, displaystyle=False))
    return re.sub(r"^\s*<math[^>]*>|</math>\s*$", "", mathml)


# ---------------------------------------------------------------- in spoken words

_ACCENTS = {
    "hat": "hat", "widehat": "hat", "bar": "bar", "overline": "bar", "tilde": "tilde",
    "widetilde": "tilde", "underline": "underlined", "dot": "dot", "vec": "arrow",
}  # fmt: skip
_LETTERS = {"varepsilon": "epsilon", "varphi": "phi", "top": "transposed", "ell": "ell"}
_PIECE = re.compile(
    r"\\(?P<word>operatorname\*?|text|mathrm|mathit|mathsf|textsf)\s*"
    r"(?:\{(?P<in>[^{}]*)\}|(?P<one>\w))"
    r"|\\(?P<style>mathcal|mathbb|mathbf|boldsymbol)\s*"
    r"|\\(?P<accent>" + "|".join(_ACCENTS) + r")\s*"
    r"|\\(?P<name>[a-zA-Z]+)|(?P<script>[_^])|(?P<primes>'+)|(?P<open>\{)|(?P<close>\})"
    r"|(?P<number>\d+)|(?P<letter>[A-Za-z])|(?P<rest>\S)"
)


def say(latex: str) -> str:
    r"""A symbol or a shape as one would read it aloud: `\hat x_i` is "x hat sub i"."""
    said: list[str] = []
    late: str | None = None  # an accent is said after its letter
    for found in _PIECE.finditer(latex):
        kind = found.lastgroup
        match kind:
            case "in" | "one" | "word":
                word = (found["in"] or found["one"] or "").replace(r"\_", " ").strip()
                said.append(word if len(word) > 1 else _letter(word))
            case "style":
                said.append({"mathcal": "script", "mathbb": ""}.get(found["style"], "bold"))
                continue
            case "accent":
                late = _ACCENTS[found["accent"]]
                continue
            case "name":
                name = found["name"]
                small = _LETTERS.get(name.lower(), name.lower())
                said.append(small if name[0].islower() else f"capital {small}")
            case "script":
                raised = latex[found.end() :].lstrip("{ ")
                if found[0] == "^" and not raised.startswith(("2", "\\top")):
                    said.append("super")
                elif found[0] == "_":
                    said.append("sub")
                continue
            case "primes":
                said.append(" ".join(["prime"] * len(found[0])))
            case "open" | "close":
                continue
            case "number":
                before = latex[: found.start()].rstrip("{ ")
                said.append("squared" if before.endswith("^") and found[0] == "2" else found[0])
            case "letter":
                said.append(_letter(found[0]))
            case "rest":
                signs = {"+": "plus", "-": "minus", "/": "over", "*": "star", ",": ","}
                said.append(signs.get(found[0], ""))
        if late:
            said.append(late)
            late = None
    return re.sub(r" ,", ",", " ".join(filter(None, said)))


def _letter(letter: str) -> str:
    return f"capital {letter}" if letter.isupper() else letter


def spoken(one: Meaning) -> str:
    """A meaning as one would read it aloud: "gamma: gain, shape d, learned"."""
    shape = ""
    if _told(one.shape):
        sizes = one.shape.strip().removeprefix("(").removesuffix(")").split(",")
        shape = ", shape " + " by ".join(say(size) for size in sizes if size.strip())
    return f"{say(one.key)}: {_plain(one.name)}{shape}, {one.role}"


def _plain(name: str) -> str:
    return re.sub(r"\$([^$]+)\$", lambda m: say(m[1]), name)


# ---------------------------------------------------------------- the page on notation


@dataclass
class Row:
    """A meaning, and the labels of the formulas in which it stands, in their order."""

    meaning: Meaning
    labels: list[str] = field(default_factory=list)


def as_markdown(folder: Path = FOLDER) -> str:
    """The tables of the page on notation: what all chapters share, then chapter by chapter."""
    everywhere: dict[Meaning, list[str]] = {}
    parts = []
    for path in chapters():
        here = meanings(topic(path), displayed(read(path)), folder)
        for one in rows("common", folder):
            if one in here:
                everywhere.setdefault(one, []).extend(here[one])
        own = [Row(one, here[one]) for one in rows(topic(path), folder) if one in here]
        if own:
            parts += [f"### {title(path.stem)}", "\n".join(_table(own))]
    shared = [Row(one, everywhere[one]) for one in rows("common", folder) if one in everywhere]
    places = {label: path.stem[:2] for path in chapters() for label, _ in displayed(read(path))}
    whole = "\n".join(_table(shared, places))
    return "\n\n".join(["### In every chapter", whole, *parts]) + "\n"


def _table(found: list[Row], places: Mapping[str, str] | None = None) -> Iterator[str]:
    """The rows of a table; with `places`, the formulas are named with their chapters."""
    yield "| symbol | meaning | shape | role | formulas |"
    yield "| --- | --- | --- | --- | --- |"
    for one in sorted(found, key=lambda row: (ROLE_ORDER[row.meaning.role], _sorted(row))):
        m = one.meaning
        shape = f"${m.shape}$" if _told(m.shape) else ("any" if m.shape == "*" else "")
        count = len(one.labels)
        label = one.labels[0]
        first = f"chapter {places[label]}, {{eq}}`{label}`" if places else f"{{eq}}`{label}`"
        formulas = first if count == 1 else f"{count}, first {first}"
        yield f"| ${m.key}$ | {m.name} | {shape} | {m.role} | {formulas} |"


ROLE_ORDER = {
    role: place
    for place, role in enumerate(
        ("size", "index", "data", "learned", "gradient", "random", "set", "function", "constant")
    )
}


def _sorted(row: Row) -> tuple[str, str]:
    bare = re.sub(rf"\\({_STYLES})\b", "", row.meaning.key)
    return re.sub(r"[^a-zA-Z]", "", bare).lower(), row.meaning.key


_STYLES = "hat|bar|tilde|underline|mathrm|mathcal|mathbb|mathbf|text|operatorname"
