"""The pages of the book in reading order, taken from the built site."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from matplotlib import get_data_path
from pygments.formatters import HtmlFormatter  # type: ignore[import-untyped]

from book.chapters import CHAPTER, ROOT
from book.data import read_yaml

if TYPE_CHECKING:
    from playwright.sync_api import Browser

HERE = Path(__file__).parent
SITE = ROOT / "_build" / "html"
XHTML = "http://www.w3.org/1999/xhtml"
MATHML = "http://www.w3.org/1998/Math/MathML"
# XML has no place for these, not even escaped; an output could hold them.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


@dataclass(frozen=True)
class Entry:
    """One line of `_toc.yml`."""

    document: str
    part: str | None = None

    @property
    def number(self) -> int | None:
        """The number of a chapter; other pages have none."""
        match = CHAPTER.fullmatch(Path(self.document).name + ".ipynb")
        return int(match["number"]) if match else None

    @property
    def name(self) -> str:
        """What the page is called in the book: `attention`, `glossary`."""
        match = CHAPTER.fullmatch(Path(self.document).name + ".ipynb")
        return match["topic"] if match else Path(self.document).name


@dataclass(frozen=True)
class Page:
    """One page as it goes into the book."""

    entry: Entry
    title: str
    xhtml: str
    headings: list[tuple[str, str]]
    images: list[Path]
    solutions: list[str]
    chinese: str

    @property
    def name(self) -> str:
        """The name of the file, and of the anchor, at which the page begins."""
        return self.entry.name

    @property
    def full_title(self) -> str:
        """The title with the chapter's number."""
        number = self.entry.number
        return f"Chapter {number}. {self.title}" if number else self.title


def entries(toc: Path = ROOT / "_toc.yml") -> list[Entry]:
    """Every page of the book in the order in which it is read.

    Raises:
        ValueError: if two pages would have the same name in the book.
    """
    tree = read_yaml(toc)
    found = [Entry(tree["root"])]
    for part in tree["parts"]:
        found += [Entry(c["file"], part.get("caption")) for c in part["chapters"]]
    names = [e.name for e in found]
    if twice := sorted({n for n in names if names.count(n) > 1}):
        raise ValueError(f"{toc.name}: two pages are called {', '.join(twice)}")
    return found


def chosen(every: Sequence[Entry], only: Collection[str]) -> list[Entry]:
    """The entries named in `only`, or all where it is empty.

    Raises:
        ValueError: if a name belongs to no page.
    """
    if unknown := sorted(set(only) - {e.name for e in every}):
        names = ", ".join(e.name for e in every)
        raise ValueError(f"no page is called {', '.join(unknown)}; there are {names}")
    return [e for e in every if not only or e.name in only]


def collect(browser: Browser, site: Path, wanted: Sequence[Entry]) -> list[Page]:
    """Open the pages of the site and take from each what goes into the book.

    Raises:
        FileNotFoundError: if a page was not built.
    """
    site = site.resolve()
    for entry in wanted:
        if not (site / f"{entry.document}.html").exists():
            raise FileNotFoundError(
                f"{entry.document}.html is not in {site}: run `make book` first"
            )
    # A path that the browser knows under another name would be a link out of the book.
    addresses = {(site / f"{e.document}.html").as_uri(): e.name for e in wanted}
    script = (HERE / "collect.js").read_text(encoding="utf-8")
    pages = []
    tab = browser.new_page(viewport={"width": 1200, "height": 900}, color_scheme="light")
    for entry in wanted:
        tab.goto((site / f"{entry.document}.html").as_uri())
        # The first page is headed by the title of the book, which the book has a page for.
        title = None if entry.part else "Preface"
        asked = {"pages": addresses, "number": entry.number, "title": title}
        got = tab.evaluate(script, asked)
        pages.append(_page(entry, got))
    tab.close()
    return pages


def _page(entry: Entry, got: dict[str, Any]) -> Page:
    return Page(
        entry,
        got["title"],
        _CONTROL.sub("", got["xhtml"]),
        [(anchor, text) for anchor, text in got["headings"]],
        [Path(unquote(urlsplit(url).path)) for url in got["images"]],
        got["solutions"],
        got["chinese"],
    )


# ---------------------------------------------------------------- what both books need


@dataclass(frozen=True)
class About:
    """What CITATION.cff says about the book."""

    title: str
    subtitle: str
    authors: list[str]
    abstract: str
    version: str
    date: str
    keywords: list[str]
    licence = "Text and figures: CC BY 4.0. Code: MIT."
    language = "en"


def about(file: Path = ROOT / "CITATION.cff") -> About:
    """The title, the authors and the rest, from CITATION.cff."""
    cff = read_yaml(file)
    title, _, subtitle = cff["title"].partition(": ")
    authors = [
        a.get("name") or f"{a.get('given-names', '')} {a['family-names']}".strip()
        for a in cff["authors"]
    ]
    return About(
        title,
        subtitle[:1].upper() + subtitle[1:],
        authors,
        cff["abstract"].strip(),
        str(cff["version"]),
        str(cff["date-released"]),
        list(cff["keywords"]),
    )


def title_page(facts: About) -> str:
    """The first page, as XHTML."""
    return (
        f'<section class="tp-title-page" xmlns="{XHTML}"><h1>{escape(facts.title)}</h1>'
        f'<p class="tp-subtitle">{escape(facts.subtitle)}</p>'
        f'<p class="tp-authors">{escape(", ".join(facts.authors))}</p>'
        f'<p class="tp-imprint">Version {escape(facts.version)}, {escape(facts.date)}.<br/>'
        f"{escape(facts.licence)}</p>"
        '<p class="tp-imprint">Made from the sources of the website, with the outputs that its '
        "tests recompute. Explorers are shown in their first state; hints, answers and solutions "
        "are unfolded.</p></section>"
    )


def highlighting() -> str:
    """The colours of code, those of the site."""
    return str(HtmlFormatter(style="a11y-high-contrast-light").get_style_defs(".highlight"))


def math_font(site: Path) -> Path:
    """The font of the formulas, which the site was built with."""
    fonts = sorted(site.glob("_static/math*.woff*"))
    if not fonts:
        raise FileNotFoundError(f"there is no math font in {site / '_static'}: run `make book`")
    return fonts[0]


def text_fonts() -> dict[str, Path]:
    """Fonts for paper, from packages: the book looks the same wherever it is printed."""
    folder = Path(get_data_path()) / "fonts" / "ttf"
    names = {
        "text": "STIXGeneral.ttf",
        "text-bold": "STIXGeneralBol.ttf",
        "text-italic": "STIXGeneralItalic.ttf",
        "text-bold-italic": "STIXGeneralBolIta.ttf",
        "sans": "DejaVuSans.ttf",
        "sans-bold": "DejaVuSans-Bold.ttf",
        "mono": "DejaVuSansMono.ttf",
        "mono-bold": "DejaVuSansMono-Bold.ttf",
        "mono-italic": "DejaVuSansMono-Oblique.ttf",
    }
    return {role: folder / name for role, name in names.items()}


def document(title: str, head: str, body: str) -> str:
    """A whole XHTML file."""
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE html>\n'
        f'<html xmlns="{XHTML}" xmlns:epub="http://www.idpf.org/2007/ops" lang="en" xml:lang="en">'
        f'<head><meta charset="utf-8"/><title>{escape(title)}</title>{head}</head>'
        f"<body>{body}</body></html>\n"
    )


def dead_links(files_: dict[str, str]) -> list[str]:
    """What is wrong with XHTML files that link to one another: bad XML, ids and links.

    Args:
        files_: name of the file -> its text.
    """
    problems = []
    trees: dict[str, ET.Element] = {}
    for name, text in files_.items():
        try:
            trees[name] = ET.fromstring(text)
        except ET.ParseError as error:
            problems.append(f"{name}: not XML: {error}")
    ids = {name: [e.get("id") for e in t.iter() if e.get("id")] for name, t in trees.items()}
    for name, tree in trees.items():
        problems += [
            f"{name}: the id {i} is there twice" for i in set(ids[name]) if ids[name].count(i) > 1
        ]
        for element in tree.iter():
            link = element.get("href") or ""
            if not link or urlsplit(link).scheme:
                continue
            file, _, anchor = link.partition("#")
            if (file or name) in files_:
                if anchor and anchor not in ids.get(file or name, [anchor]):
                    problems.append(f"{name}: links to {link}, but there is no such anchor")
            elif file.endswith(".xhtml"):
                problems.append(f"{name}: links to {link}, which is not in the book")
    return problems
