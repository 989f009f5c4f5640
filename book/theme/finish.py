"""What can only be done when all pages are there: cards, the door, addresses, and clearing up."""

from __future__ import annotations

import multiprocessing
import os
import re
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from html import escape
from importlib.metadata import files
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote

from PIL import Image, ImageDraw, ImageFont

T = TypeVar("T")
S = TypeVar("S")


def side_by_side(function: Callable[[T], S], items: Iterable[T]) -> list[S]:
    """What a function of a module gives for each item, by all cores where that is cheap."""
    if "fork" not in multiprocessing.get_all_start_methods():
        return [function(item) for item in items]
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("fork")) as pool:
        return list(pool.map(function, items))


@dataclass(frozen=True)
class Book:
    """What the pages say about the book as a whole."""

    title: str
    summary: str
    address: str | None  # ends in a slash; None where nobody knows it


def address_of(environment: dict[str, str], repository: str | None) -> str | None:
    """Where the book is published: BOOK_URL, else the GitHub pages of its repository."""
    if given := environment.get("BOOK_URL", "").strip():
        if not re.fullmatch(r"https?://[^\s\"'<>?#]+", given):
            raise ValueError(f"BOOK_URL should be the https address of the book, got {given!r}")
        return given.rstrip("/") + "/"
    match = re.fullmatch(r"https://github\.com/([\w.-]+)/([\w.-]+)", repository or "")
    if match is None:
        return None
    owner, name = match[1].lower(), match[2]
    host = f"https://{owner}.github.io/"
    return host if name.lower() == f"{owner}.github.io" else f"{host}{name}/"


# ---------------------------------------------------------------- cards


def card_name(page: str) -> str:
    """Where the card of a page lies in the site."""
    return f"_static/cards/{page.replace('/', '-')}.png"


def write_card(out: Path, page: str, text: str, book: Book) -> None:
    """A picture of 1200 by 630: the page's title, and its first figure where it has one."""
    title = re.findall(r'<meta property="og:title" content="([^"]*)">', text)[0]
    title = title.replace("&amp;", "&").replace("&#39;", "'").replace("&#34;", '"')
    card = Image.new("RGB", (1200, 630), "white")
    draw = ImageDraw.Draw(card)
    draw.rectangle((0, 0, 1200, 12), fill="#0072b2")
    draw.text((48, 40), book.title, font=_letters(30), fill="#5b6470")
    size = next((s for s in (56, 50, 44, 38, 32) if _letters(s).getlength(title) < 1100), 26)
    draw.text((48, 80), title, font=_letters(size), fill="#22272e")
    sources = re.findall(r'<img\b[^>]*src="([^"]+\.(?:png|webp|jpe?g))"', text)
    folder = (out / page).parent
    figure = next((f for s in sources if (f := (folder / unquote(s)).resolve()).exists()), None)
    if figure:
        with Image.open(figure) as opened:
            image = opened.convert("RGBA")
        scale = min(1104 / image.width, 440 / image.height)
        image = image.resize((round(image.width * scale), round(image.height * scale)))
        card.paste(image, ((1200 - image.width) // 2, 165 + (440 - image.height) // 2), image)
    else:
        draw.text((48, 300), book.summary[:95], font=_letters(28), fill="#5b6470")
    file = out / card_name(page)
    file.parent.mkdir(parents=True, exist_ok=True)
    card.quantize(64, Image.Quantize.FASTOCTREE).save(file)


def font_file() -> Path:
    """STIX Two Math: ziamath is here for the font in it; importing it would be slow and warns."""
    (file,) = (f for f in files("ziamath") or [] if f.name == "STIXTwoMath-Regular.ttf")
    return Path(str(file.locate()))


@cache
def _letters(size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(str(font_file()), size)


# ---------------------------------------------------------------- the whole


def finish(out: Path, book: Book, policy: str) -> None:
    """Cards for all pages, the page at the root, sitemap and robots; nothing that nobody loads."""
    names = sorted(p.relative_to(out).as_posix() for p in out.rglob("*.html"))
    names = [n for n in names if not n.startswith("_static/")]
    side_by_side(partial(_finish_page, out, book, policy), names)
    address_book(out, names, book)
    clear(out)


def _finish_page(out: Path, book: Book, policy: str, name: str) -> None:
    path = out / name
    text = path.read_text(encoding="utf-8")
    if '<main id="main-content"' in text:
        write_card(out, name.removesuffix(".html"), text, book)
    elif forward := re.search(r'url=([^"]+)"', text):
        path.write_text(door(forward[1], book, policy), encoding="utf-8")


def door(target: str, book: Book, policy: str) -> str:
    """The page at the root leads on to the first one. It has a title and something to click."""
    target = escape(target)
    canonical = f'<link rel="canonical" href="{escape(book.address or "")}{target}">\n'
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(book.title)}</title>\n"
        f'<meta name="description" content="{escape(book.summary)}">\n'
        f'<meta http-equiv="Refresh" content="0; url={target}">\n'
        f"{canonical if book.address else ''}"
        '<link rel="icon" href="_static/favicon.svg" type="image/svg+xml">\n</head>\n'
        f'<body><main><h1>{escape(book.title)}</h1><p><a href="{target}">Open the book</a></p>'
        "</main></body>\n</html>\n"
    )


def address_book(out: Path, names: list[str], book: Book) -> None:
    """sitemap.xml and robots.txt, where the address of the book is known."""
    for old in ("sitemap.xml", "robots.txt"):
        (out / old).unlink(missing_ok=True)
    if book.address is None:
        return
    listed = [n for n in names if n not in ("search.html", "index.html")]
    rows = "".join(f"<url><loc>{escape(book.address + n)}</loc></url>\n" for n in listed)
    (out / "sitemap.xml").write_text(
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{rows}</urlset>\n',
        encoding="utf-8",
    )
    (out / "robots.txt").write_text(
        f"User-agent: *\nAllow: /\nSitemap: {book.address}sitemap.xml\n", encoding="utf-8"
    )


KEPT = re.compile(
    r"(book|search|xray)-[0-9a-f]{8}\.(css|js)|(math|text(-\w+)?)\.woff2|favicon\.svg|(cards|images)/.*"
)


def clear(out: Path) -> None:
    """Remove what extensions bring and no page loads, so that nobody publishes it."""
    static = out / "_static"
    for path in sorted(static.rglob("*"), reverse=True):
        if path.is_dir():
            if not any(path.iterdir()):
                path.rmdir()
        elif not KEPT.fullmatch(path.relative_to(static).as_posix()):
            path.unlink()
