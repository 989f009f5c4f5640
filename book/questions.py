"""The questions that are asked in interviews: collected from the chapters, as a page and as cards.

Each chapter ends with "Questions you may be asked", one fold-out each. They are written there and
nowhere else: the page `book/pages/questions.md` and the file that Anki imports (`make cards`) are
made from them. On the page `pages.js` adds the choice of a chapter and a pile of cards to turn.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from mdit_py_plugins.dollarmath import dollarmath_plugin

from book.chapters import CHAPTER, NOTEBOOKS, chapters, read

HEADING = "## Questions you may be asked"
_SECTION = re.compile(rf"^{HEADING}\n(.*?)(?=^#{{1,2}} |\Z)", re.M | re.S)
_FOLD = re.compile(r"^(`{3,}|:{3,})\{dropdown\} (.+?) *\n(.*?)^\1 *$\n?", re.M | re.S)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_ROLE = re.compile(r"(?P<before> ?)\{(?P<role>[a-z:]+)\}`(?P<what>[^`]+)`")
# What Anki reads from the file: https://docs.ankiweb.net/importing/text-files.html
_FOR_ANKI = (
    "#separator:tab",
    "#html:true",
    "#notetype:Basic",
    "#deck:Transformer Parts",
    "#guid column:1",
    "#tags column:4",
)


@dataclass(frozen=True)
class Question:
    """One question of a chapter, with its answer. Texts are MyST Markdown."""

    chapter: str  # the stem of the notebook, such as 05_attention
    title: str  # of the chapter
    question: str
    answer: str

    @property
    def guid(self) -> str:
        """What tells Anki that a card is the one it has, though its answer was rewritten."""
        return hashlib.sha256(f"{self.chapter[3:]}: {self.question}".encode()).hexdigest()[:16]


def load(folder: Path = NOTEBOOKS) -> list[Question]:
    """The questions of all chapters of `folder`, in reading order.

    Raises:
        ValueError: if a chapter has no such section, the section holds something that is no
            question, or a question has no answer. The message names the chapter.
    """
    return [one for path in chapters(folder) for one in _of_chapter(path)]


def _of_chapter(path: Path) -> Iterator[Question]:
    text = "\n\n".join(c.source for c in read(path).cells if c.cell_type == "markdown")
    title = re.search(r"^# +(.+?) *$", text, re.M)
    section = _SECTION.search(text + "\n")
    if not (title and section):
        raise ValueError(f"{path.name}: a chapter has a title and a section {HEADING!r}")
    if rest := _FOLD.sub("", section[1]).strip():
        raise ValueError(f"{path.name}: not a question with its answer: {rest[:80]!r}")
    for _, question, answer in _FOLD.findall(section[1]):
        if not answer.strip():
            raise ValueError(f"{path.name}: {question!r} has no answer")
        yield Question(path.stem, title[1], question, answer.strip())


# ---------------------------------------------------------------- the page


def as_markdown(folder: Path = NOTEBOOKS) -> str:
    """The questions as MyST Markdown: a heading per chapter, a fold-out per question."""
    parts = []
    for chapter, group in groupby(load(folder), lambda one: one.chapter):
        asked = list(group)
        place = f"../../notebooks/{chapter}.ipynb"
        # The class is what the choice of a chapter goes by (static/pages.js).
        parts.append(f"## {chapter[:2]} · {asked[0].title}")
        parts.append(f"From [the chapter]({place}).")
        for one in asked:
            parts.append(
                f"::::{{container}} tp-flash tp-ch-{chapter[:2]}\n"
                f":::{{dropdown}} {one.question}\n{_from_here(one.answer, place)}\n:::\n::::"
            )
    return "\n\n".join(parts) + "\n"


def _from_here(answer: str, chapter: str) -> str:
    """An answer of the notebook at `chapter`, linked as a page of `book/pages/` is."""

    def link(match: re.Match[str]) -> str:
        to = match[1]
        if to.startswith("#"):
            return f"]({chapter}{to})"
        if CHAPTER.fullmatch(to.partition("#")[0]):
            return f"](../../notebooks/{to})"
        return f"]({to.removeprefix('../book/pages/')})"

    return _LINK.sub(link, answer)


# ---------------------------------------------------------------- the cards


def as_cards(folder: Path = NOTEBOOKS) -> str:
    r"""The questions as a text file for Anki: per line an id, front, back and tags, by tabs.

    Formulas stand in `\(...\)` and `\[...\]`, which Anki typesets. Links and citations, which lead
    nowhere from a card, are left as their text and left out.
    """
    lines = list(_FOR_ANKI)
    for one in load(folder):
        number, _, topic = one.chapter.partition("_")
        sides = [_html(one.question), _html(one.answer)]
        lines.append("\t".join([one.guid, *sides, f"transformer-parts {number}-{topic}"]))
    return "\n".join(lines) + "\n"


def _html(text: str) -> str:
    """Markdown as one line of HTML."""
    parser = MarkdownIt("commonmark").enable("table")
    dollarmath_plugin(parser, renderer=_formula, allow_labels=False)
    html = parser.render(_LINK.sub("](#)", _ROLE.sub(_without_role, text)))
    html = re.sub(r'<a href="#">(.*?)</a>', r"\1", html, flags=re.S)
    # Lines and indents within code are kept; between tags and words a line's end is a space.
    html = re.sub(r"(?<=<pre>).*?(?=</pre>)", _lines_of_code, html, flags=re.S)
    return " ".join(html.split())


def _lines_of_code(match: re.Match[str]) -> str:
    return match[0].rstrip("\n").replace("  ", "&nbsp;&nbsp;").replace("\n", "<br>")


def _formula(latex: str, options: dict[str, bool]) -> str:
    left, right = (r"\[", r"\]") if options["display_mode"] else (r"\(", r"\)")
    return f"{left}{escapeHtml(latex)}{right}"


def _without_role(match: re.Match[str]) -> str:
    if match["role"] != "cite:p":
        raise ValueError(f"a card cannot show {match[0].strip()}: only {{cite:p}} can be left out")
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file for Anki; 0 if it was written."""
    parser = argparse.ArgumentParser(prog="python -m book.questions", description=main.__doc__)
    parser.add_argument("file", type=Path, help="the file to write, such as cards.txt")
    out = parser.parse_args(arguments).file
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(as_cards(), encoding="utf-8")
    print(f"{len(load())} cards: {out}. In Anki: File, Import.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
