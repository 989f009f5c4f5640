"""Sections are laid out when they come near; until then they have about their height."""

from __future__ import annotations

import re

_LINE, _BOX = 24, 60  # pixels: a line of text, a closed box
# The heights that the style sheet knows, each a quarter more than the one before.
HEIGHTS = [round(200 * 1.25**k / 100) * 100 for k in range(24)]
_MARK = re.compile(r"<(/?)section\b[^>]*>")
_HEADED = re.compile(r"\s*(?:<span[^>]*></span>)?<h[23]>")


def marked(text: str) -> str:
    """The body of a page, in which each section with a heading of level 2 or 3 says its height."""
    open_at: list[int | None] = []
    starts: list[int] = []
    marks: list[tuple[int, str]] = []
    for tag in _MARK.finditer(text):
        if not tag[1]:
            open_at.append(tag.start() if _HEADED.match(text, tag.end()) else None)
            starts.append(tag.end())
            continue
        if not starts:
            continue  # the section of the whole page, which begins before its title
        begin, inside = open_at.pop(), starts.pop()
        if begin is not None:
            height = _height(text[inside : tag.start()])
            marks.append((begin + len("<section"), f' data-tall="{height}"'))
    pieces: list[str] = []
    last = 0
    for place, mark in sorted(marks):
        pieces += [text[last:place], mark]
        last = place
    return "".join([*pieces, text[last:]])


def rules() -> str:
    """The rules of the style sheet for these heights."""
    return "".join(f'[data-tall="{h}"]{{--tp-tall:{h}px}}' for h in HEIGHTS)


def _height(html: str) -> int:
    """About the height of a section on a desk; folded boxes are closed."""
    boxes = html.count("<details")
    shown = re.sub(r"<details\b.*?</details>", "", html, flags=re.S)
    images = sum(int(h) for h in re.findall(r'<img[^>]*\bheight="(\d+)"', shown))
    code = sum(m.count("\n") for m in re.findall(r"<pre>.*?</pre>", shown, re.S))
    text = re.sub(r"<(pre|math|script|svg)\b.*?</\1>", "", shown, flags=re.S)
    lines = len(re.sub(r"<[^>]+>", "", text).split()) / 13
    blocks = len(re.findall(r"<(?:p|li|h\d|pre|tr|div class=\"math-display)\b", shown))
    explorers = 430 * len(re.findall(r'class="tp-(?:explorer|typed)\b', shown))
    height: float = images + 19 * code + _LINE * lines + 26 * blocks + explorers + _BOX * boxes
    return min(HEIGHTS, key=lambda known: abs(known - height))
