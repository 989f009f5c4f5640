"""The sentences of a paragraph, each with the elements in it."""

from __future__ import annotations

import re

from bs4.element import NavigableString, Tag

# Where a sentence ends within a text, and where one may end before an element.
_WITHIN = re.compile(r"(?<=[.!?])[”’)]*\s+(?=[A-Z0-9“(])")
_LAST = re.compile(r"[.!?][”’)]*\s+$")
_SHORT = re.compile(r"\b(?:al|e\.g|i\.e|cf|vs|eq|fig|no|ca|St)\.[”’)]*\s*$", re.I)
_NEXT = re.compile(r"\s+[A-Z0-9“(]|\s+$")


def sentences(paragraph: Tag) -> list[str]:
    """The sentences of a paragraph as HTML, without the blanks between them.

    A sentence ends at a full stop, a question mark or an exclamation mark before a blank and a
    capital letter, a digit or an element (a formula, say); not after `et al.` and its like.
    """
    found: list[str] = []
    current = ""

    def end() -> None:
        nonlocal current
        if current.strip():
            found.append(current.strip())
        current = ""

    children = list(paragraph.children)
    for at, child in enumerate(children):
        after = children[at + 1] if at + 1 < len(children) else None
        if isinstance(child, NavigableString):
            begin = 0
            for gap in _WITHIN.finditer(str(child)):
                if not _SHORT.search(child[begin : gap.end()]):
                    current += NavigableString(child[begin : gap.end()]).output_ready("minimal")
                    end()
                    begin = gap.end()
            rest = child[begin:]
            current += NavigableString(rest).output_ready("minimal")
            if isinstance(after, Tag) and _LAST.search(rest) and not _SHORT.search(rest):
                end()
        elif isinstance(child, Tag):
            current += child.decode(formatter="minimal")
            ended = re.search(r"[.!?][”’)]*$", child.get_text())
            goes_on = isinstance(after, NavigableString) and _NEXT.match(after)
            if ended and goes_on and not _SHORT.search(child.get_text()):
                end()
    end()
    return found
