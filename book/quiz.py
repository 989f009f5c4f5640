"""The quiz: statements that are true or false, checked here and rendered for the site.

`quiz.yml` is the single source of the page and of the graded assignment. On the page each
statement is followed by a fold-out with the answer, which works without a script; `pages.js` puts
buttons before it and keeps the score.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from pathlib import Path

import yaml

QUIZ = Path(__file__).with_name("quiz.yml")


@dataclass(frozen=True)
class Statement:
    """One entry of `quiz.yml`. Texts are MyST Markdown, with inline mathematics in dollars."""

    id: str
    statement: str
    answer: bool
    why: str  # why it is true, or what is right instead
    erratum: str  # the misconception that it is drawn from


def load(path: Path = QUIZ) -> list[Statement]:
    """The statements of the file at `path`, in its order.

    Raises:
        ValueError: if an entry is not as `Statement` says, or an id is used twice. The message
            names the entry and the field.
    """
    raw = yaml.safe_load(path.read_text(encoding="utf-8"))
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
    known = {f.name: f.type for f in fields(Statement)}
    if not isinstance(item, dict) or set(item) != set(known):
        raise ValueError(f"entry {position}: the fields must be {', '.join(known)}, got {item!r}")
    name = item["id"]
    for field, value in item.items():
        kind = bool if field == "answer" else str
        if not isinstance(value, kind) or value == "":
            raise ValueError(f"{name}: field {field!r} must be a {kind.__name__}, got {value!r}")
    if not re.fullmatch(r"[a-z0-9-]+", name):
        raise ValueError(f"{name}: field 'id' must be like glu-tokens")
    if not re.fullmatch(r"[EP]-\d+", item["erratum"]):
        raise ValueError(f"{name}: field 'erratum' must be like E-07, got {item['erratum']!r}")
    return Statement(**item)


def as_markdown(path: Path = QUIZ) -> str:
    """The statements as MyST Markdown; the answer stands in a fold-out under each."""
    parts = []
    for number, one in enumerate(load(path), 1):
        verdict = "True" if one.answer else "False"
        see = f"See [{one.erratum}](misconceptions.md#{one.erratum.lower()})."
        parts.append(
            f"::::{{container}} tp-quiz tp-{verdict.lower()}\n"
            f"**{number}.** {one.statement}\n\n"
            f":::{{dropdown}} Answer\n"
            f"**{verdict}.** {one.why} {see}\n"
            f":::\n::::"
        )
    return "\n\n".join(parts) + "\n"
