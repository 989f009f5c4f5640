"""The files of the decks: one page for each chapter, a list of them, and what they load."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path

from book.slides.compose import Slide
from book.slides.source import Chapter, plain, whole
from book.theme import assets
from book.theme.page import COLORS, FONT, policy

HERE = Path(__file__).parent
# What the pictures need of the site's script; turning the slides comes last.
SCRIPTS = (
    assets.STATIC / "explorer.js",
    assets.STATIC / "tokens.js",
    assets.STATIC / "symbols.js",
    HERE / "slides.js",
)
FONTS = ("math.woff2", "text.woff2", "text-italic.woff2", "text-bold.woff2")
KEYS = (
    ("→, space, page down", "on, and first to the answers of a slide with questions"),
    ("←, page up", "back"),
    ("H", "the next hint"),
    ("N", "notes"),
    ("O", "all slides"),
    ("F", "full screen"),
    ("D", "dark and light"),
)


@dataclass(frozen=True)
class Deck:
    """What the list says of a deck."""

    name: str
    title: str
    eyebrow: str
    count: int


def deck(chapter: Chapter, slides: list[Slide], names: dict[str, str], pages: str) -> str:
    """The page of one deck."""
    page = f"{pages}notebooks/{chapter.name}.html"
    sheets = "\n".join(
        _slide(one, number, len(slides), chapter, page) for number, one in enumerate(slides, 1)
    )
    main = (
        f'<main id="main-content" class="tp-chapter sl-stage"><article class="tp-article">\n'
        f'<h1 class="tp-said">{chapter.title}</h1>\n{sheets}\n'
        f"</article>{chapter.symbols}</main>\n{_bar(len(slides), page)}"
    )
    return whole(_document(f"{plain(chapter.title)} — slides", names, main), chapter.kept)


def _slide(one: Slide, number: int, count: int, chapter: Chapter, page: str) -> str:
    where = f"{page}#{one.anchor}" if one.anchor else page
    over = chapter.eyebrow if one.kind == "title" else f"{chapter.name[:2]} · {chapter.title}"
    if one.kind != "title" and one.above not in ("", one.heading, chapter.title):
        over += f" · {one.above}"
    text = "".join(
        f'<div class="sl-{name}">{html}</div>'
        for name, html in (("before", one.before), ("after", one.after))
        if html
    )
    body = f'<div class="sl-show"><div class="sl-fit">{one.body}</div></div>' if one.body else ""
    if text and body:
        text = text.replace('<div class="sl-after">', f'{body}<div class="sl-after">')
        body = "" if body in text else body
    notes = "".join(one.notes) or "<p>The slide says it all.</p>"
    return (
        f'<div class="sl sl-is-{one.kind}" data-kind="{one.kind}" id="slide-{number}" role="group"'
        f' aria-roledescription="slide" aria-labelledby="head-{number}">'
        f'<div class="sl-page"><div class="sl-head"><p class="sl-over">{over}</p>'
        f'<h2 id="head-{number}">{one.heading}</h2>'
        f'<a class="sl-link" href="{escape(where)}">on the page</a></div>'
        f'<div class="sl-body">{text}{body}</div>'
        f'<p class="sl-foot">{number} of {count}</p></div>'
        f'<a class="sl-go" href="#{number}" hidden>{number}'
        f'<span class="tp-said"> {plain(one.heading)}</span></a>'
        f'<div class="sl-notes" hidden>{notes}</div></div>'
    )


# The icons of the bar, in the manner of those of the site (book/theme/icons.html).
_ICONS = {
    "back": "M15 5l-7 7 7 7",
    "on": "M9 5l7 7-7 7",
    "all": "M4 4h6v6H4zM14 4h6v6h-6zM4 14h6v6H4zM14 14h6v6h-6z",
    "notes": "M5 4h14v16H5zM8 9h8M8 13h8M8 17h5",
    "full": "M4 9V4h5M15 4h5v5M20 15v5h-5M9 20H4v-5",
    "colors": "M12 3a9 9 0 1 0 0 18zM12 3a9 9 0 0 1 0 18",
}


def _bar(count: int, page: str) -> str:
    def button(name: str, says: str, pressed: bool = False) -> str:
        state = ' aria-pressed="false"' if pressed else ""
        return (
            f'<button type="button" class="tp-button" data-sl="{name}" aria-label="{says}"'
            f' title="{says}"{state}><svg class="tp-icon" viewBox="0 0 24 24" aria-hidden="true">'
            f'<path d="{_ICONS[name]}"/></svg></button>'
        )

    return (
        '<aside class="sl-told" id="sl-told" aria-label="Notes" tabindex="0" hidden></aside>\n'
        '<nav class="sl-bar tp-needs-script" aria-label="Slides">'
        f'<a class="sl-home" href="index.html">All decks</a>'
        f'<a class="sl-home" href="{page}">Page</a>'
        f'<progress max="{count}" value="1" aria-label="Slides shown"></progress>'
        f"{button('back', 'Back')}"
        f'<span class="sl-count" role="status">1 of {count}</span>{button("on", "On")}'
        f"{button('all', 'All slides', True)}{button('notes', 'Notes', True)}"
        f"{button('colors', 'Dark and light')}{button('full', 'Full screen')}</nav>"
    )


def index(decks: Iterable[Deck], names: dict[str, str], pages: str, title: str) -> str:
    """The list of all decks."""
    rows, part = "", None
    for one in decks:
        caption = re.sub(r"\s*Chapter \d+$", "", one.eyebrow)
        if caption != part:
            rows += f"{'</ul>' if part else ''}<h2>{caption}</h2><ul>"
            part = caption
        rows += (
            f'<li><a href="{one.name}.html">{one.name[:2]} · {one.title}</a>'
            f" <small>{one.count} slides</small></li>"
        )
    keys = "".join(f"<dt>{key}</dt><dd>{what}</dd>" for key, what in KEYS)
    main = (
        '<main id="main-content" class="sl-index"><article class="tp-article">'
        f"<h1>Slides</h1><p>A deck for each chapter of <a href='{pages}book/pages/index.html'>"
        f"{escape(title)}</a>, made from its page: pictures that can be moved, formulas whose "
        "symbols answer, findings, exercises and questions.</p>"
        f"{rows}</ul><h2>Keys</h2><dl>{keys}</dl><p>A finger turns the slides by a swipe. To print "
        "a deck, or to save it as PDF, print its page: a slide is a sheet.</p></article></main>"
    )
    return _document("Slides", names, main)


def _document(title: str, names: dict[str, str], body: str) -> str:
    return (
        '<!DOCTYPE html>\n<html lang="en" data-content_root="" data-theme="light">\n<head>\n'
        '<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy()}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<script>{COLORS}</script>\n<script>{FONT}</script>\n"
        f'<link rel="stylesheet" href="_static/{names["style"]}">\n'
        f'<script defer src="_static/{names["script"]}"></script>\n'
        '<link rel="icon" href="_static/favicon.svg" type="image/svg+xml">\n'
        f"</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


# ---------------------------------------------------------------- what the decks load


def load(out: Path, site: Path) -> dict[str, str]:
    """Write style sheet and script, copy fonts; how the first two are called."""
    static = out / "_static"
    static.mkdir(parents=True, exist_ok=True)
    for old in static.glob("slides-????????.*"):
        old.unlink()
    style = assets.joined_style([*assets.STYLES, HERE / "slides.css"])
    script = assets.joined_script(SCRIPTS)
    names = {}
    for kind, suffix, text in (("style", "css", style), ("script", "js", script)):
        names[kind] = f"slides-{hashlib.sha256(text.encode()).hexdigest()[:8]}.{suffix}"
        (static / names[kind]).write_text(text, encoding="utf-8")
    for font in FONTS:
        shutil.copyfile(site / "_static" / font, static / font)
    shutil.copyfile(site / "_static/favicon.svg", static / "favicon.svg")
    return names


def pictures(out: Path, site: Path, images: Iterable[str]) -> None:
    """Copy these pictures of the site."""
    for image in images:
        (out / image).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(site / image, out / image)


def way(out: Path, site: Path) -> str:
    """The way from the decks to the site, which ends in a slash."""
    return Path(os.path.relpath(site.resolve(), out.resolve())).as_posix() + "/"
