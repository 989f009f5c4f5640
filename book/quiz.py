"""The quiz: statements that are true or false, checked here and rendered for the site.

`quiz.yml` is the single source of the page and of the graded assignment. On the page the statements
stand by chapter, each with a fold-out for the answer, which works without a script; `pages.js` puts
buttons before it, keeps the score and lets a reader choose a chapter. An answer is no opinion:
`tests/house/quiz_truths` computes it, or the misconception that it is drawn from has a source.
"""

from __future__ import annotations

import re
from dataclasses import MISSING, dataclass, fields
from itertools import groupby
from pathlib import Path

from book.chapters import PLACE, headings, title
from book.data import read_yaml

QUIZ = Path(__file__).with_name("quiz.yml")


@dataclass(frozen=True)
class Statement:
    """One entry of `quiz.yml`. Texts are MyST Markdown, with inline mathematics in dollars."""

    id: str
    place: str  # where the book treats it: "08_normalization#the-formulas"
    statement: str
    answer: bool
    why: str  # why it is true, or what is right instead
    erratum: str = ""  # the misconception that it is drawn from, if it is one
    graded: bool = False  # does the graded assignment ask it?

    @property
    def chapter(self) -> str:
        """The stem of the notebook that treats it."""
        return self.place.partition("#")[0]


def load(path: Path = QUIZ) -> list[Statement]:
    """The statements of the file at `path`, in its order.

    Raises:
        ValueError: if an entry is not as `Statement` says, or an id is used twice. The message
            names the entry and the field.
    """
    raw = read_yaml(path)
    if not isinstance(raw, list):
        # ValueError: the file is at fault, not the caller.
        raise ValueError(f"{path.name}: expected a list, got {type(raw).__name__}")  # noqa: TRY004
    statements = [_statement(item, position) for position, item in enumerate(raw, 1)]
    seen: set[str] = set()
    for one in statements:
        if one.id in seen:
            raise ValueError(f"{one.id}: field 'id' is used twice")
        seen.add(one.id)
    return statements


def _statement(item: object, position: int) -> Statement:
    known = {f.name: f for f in fields(Statement)}
    needed = {name for name, f in known.items() if f.default is MISSING}
    if not isinstance(item, dict) or not needed <= set(item) <= set(known):
        raise ValueError(
            f"entry {position}: the fields must be {', '.join(sorted(needed))}, and may be "
            f"{', '.join(sorted(set(known) - needed))}, got {item!r}"
        )
    name = item["id"]
    for field, value in item.items():
        kind = bool if field in ("answer", "graded") else str
        if not isinstance(value, kind) or value == "":
            raise ValueError(f"{name}: field {field!r} must be a {kind.__name__}, got {value!r}")
    if not re.fullmatch(r"[a-z0-9-]+", name):
        raise ValueError(f"{name}: field 'id' must be like glu-tokens")
    if not PLACE.fullmatch(item["place"]):
        raise ValueError(f"{name}: field 'place' must be like 08_normalization#the-formulas")
    if not re.fullmatch(r"(?:[EP]-\d+)?", item.get("erratum", "")):
        raise ValueError(f"{name}: field 'erratum' must be like E-07, got {item['erratum']!r}")
    return Statement(**item)


def as_markdown(path: Path = QUIZ) -> str:
    """The statements as MyST Markdown: a heading per chapter, the answers in fold-outs."""
    parts = []
    number = 0
    for chapter, group in groupby(load(path), lambda one: one.chapter):
        # The classes are what the choice of a chapter and the score go by (static/pages.js).
        parts.append(f"## {title(chapter)}")
        for one in group:
            number += 1
            verdict = "True" if one.answer else "False"
            section = headings(chapter)[one.place.partition("#")[2]]
            see = f"[{section}](../../notebooks/{one.place.replace('#', '.ipynb#')})"
            if one.erratum:
                see += f" and [{one.erratum}](misconceptions.md#{one.erratum.lower()})"
            parts.append(
                f"::::{{container}} tp-quiz tp-{verdict.lower()} tp-ch-{chapter[:2]}\n"
                f"**{number}.** {one.statement}\n\n"
                f":::{{dropdown}} Answer\n"
                f"**{verdict}.** {one.why} See {see}.\n"
                f":::\n::::"
            )
    return "\n\n".join(parts) + "\n"
