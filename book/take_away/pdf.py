"""One PDF: the collected pages in one document, printed by Chromium."""

from __future__ import annotations

import re
import shutil
import unicodedata
from collections.abc import Sequence
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

import pikepdf

from book.take_away.pages import (
    HERE,
    About,
    Page,
    document,
    highlighting,
    math_font,
    text_fonts,
    title_page,
)

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from pypdf import PdfReader

WIDTH = 643  # pixels of 1/96 inch in the 170 mm of paper.css
_FACES = {
    "text": ("Book Text", "normal", "normal"),
    "text-bold": ("Book Text", "bold", "normal"),
    "text-italic": ("Book Text", "normal", "italic"),
    "text-bold-italic": ("Book Text", "bold", "italic"),
    "sans": ("Book Sans", "normal", "normal"),
    "sans-bold": ("Book Sans", "bold", "normal"),
    "mono": ("Book Mono", "normal", "normal"),
    "mono-bold": ("Book Mono", "bold", "normal"),
    "mono-italic": ("Book Mono", "normal", "italic"),
    "math": ("Book Math", "normal", "normal"),
}


def write(
    browser: Browser, site: Path, pages: Sequence[Page], facts: About, out: Path
) -> list[str]:
    """Print `pages` into the file `out`. Returns what does not fit onto the paper.

    The table of contents needs the numbers of the pages, which are known once the book has been
    printed; so it is printed until the numbers in it are those of the pages.
    """
    with TemporaryDirectory() as folder:
        work = Path(folder)
        _lay_out(work, site, pages)
        numbers: dict[str, int] = {}
        tab = browser.new_page(viewport={"width": WIDTH, "height": 900}, color_scheme="light")
        tab.emulate_media(media="print")
        tab.set_default_timeout(600_000)
        for _ in range(4):
            text = document(facts.title, _head(pages, facts), _body(pages, facts, numbers))
            (work / "book.xhtml").write_text(text, encoding="utf-8")
            tab.goto((work / "book.xhtml").as_uri())
            tab.evaluate("document.fonts.ready.then(() => null)")
            too_wide = tab.evaluate((HERE / "fit.js").read_text(encoding="utf-8"))
            tab.pdf(path=work / "book.pdf", prefer_css_page_size=True, tagged=True, outline=True)
            printed = page_numbers(work / "book.pdf")
            found = {name: printed[name] for name in _targets(pages)}
            if found == numbers:
                break
            numbers = found
        else:
            raise RuntimeError("the numbers in the table of contents do not come to rest")
        tab.close()
        out.parent.mkdir(parents=True, exist_ok=True)
        _save(work / "book.pdf", facts, out)
    return [f"wider than the page: {item}" for item in too_wide]


def page_numbers(file: Path) -> dict[str, int]:
    """Anchor -> the number of the page that it is on, in a PDF by Chromium."""
    with pikepdf.open(file) as pdf:
        index: dict[object, int] = {page.objgen: number for number, page in enumerate(pdf.pages, 1)}
        places = pdf.Root.get("/Dests", pikepdf.Dictionary())
        return {name.lstrip("/"): index[place[0].objgen] for name, place in places.items()}


def _lay_out(work: Path, site: Path, pages: Sequence[Page]) -> None:
    """Put fonts and pictures beside the document."""
    for name in ("fonts", "images"):
        (work / name).mkdir()
    for role, font in ({"math": math_font(site)} | text_fonts()).items():
        shutil.copy(font, work / "fonts" / role)
    for image in {i for page in pages for i in page.images}:
        shutil.copy(image, work / "images" / image.name)


def _head(pages: Sequence[Page], facts: About) -> str:
    faces = "".join(
        f'@font-face {{ font-family: "{family}"; font-weight: {weight}; font-style: {style};'
        f' src: url("fonts/{role}"); }}\n'
        for role, (family, weight, style) in _FACES.items()
    )
    # The name of the chapter at the head of its pages.
    heads = "".join(
        f"@page {p.name} {{ @top-right {{ content: {_css(p.full_title)};"
        f' font: italic 9pt "Book Text"; color: #444; }} }}\n#{p.name} {{ page: {p.name}; }}\n'
        for p in pages
    )
    sheets = [(HERE / name).read_text(encoding="utf-8") for name in ("common.css", "paper.css")]
    style = "\n".join([faces, highlighting(), *sheets, heads])
    return (
        f'<meta name="author" content="{escape(", ".join(facts.authors))}"/>'
        f"<style>{escape(style, quote=False)}</style>"
    )


def _css(text: str) -> str:
    return '"' + re.sub(r'["\\]', lambda m: "\\" + m[0], text) + '"'


def _body(pages: Sequence[Page], facts: About, numbers: dict[str, int]) -> str:
    text = "".join(p.xhtml for p in pages)
    text = re.sub(r'href="[\w-]+\.xhtml#', 'href="#', text)
    return title_page(facts) + contents(pages, numbers) + text


def _targets(pages: Sequence[Page]) -> list[str]:
    """The anchors in the table of contents: pages, and the sections of chapters."""
    return [t for p in pages for t in (p.name, *(anchor for anchor, _ in _sections(p)))]


def _sections(page: Page) -> list[tuple[str, str]]:
    return page.headings if page.entry.number else []


def contents(pages: Sequence[Page], numbers: dict[str, int]) -> str:
    """The table of contents, as XHTML. An unknown page number is shown as 000."""

    def number(anchor: str) -> str:
        return f'<span class="tp-pageno">{numbers.get(anchor, "000")}</span>'

    lines = []
    part = None
    for page in pages:
        if page.entry.part != part:
            part = page.entry.part
            lines.append(f'<li class="tp-part">{escape(part or "")}</li>')
        sections = " · ".join(
            f'<a href="#{anchor}">{escape(text)}</a> {number(anchor)}'
            for anchor, text in _sections(page)
        )
        lines.append(
            f'<li><a class="tp-line" href="#{page.name}"><span>{escape(page.full_title)}</span>'
            f"<span></span>{number(page.name)}</a>"
            + (f'<p class="tp-sections">{sections}</p>' if sections else "")
            + "</li>"
        )
    return f'<nav class="tp-contents"><h1>Contents</h1><ol>{"".join(lines)}</ol></nav>'


def _save(printed: Path, facts: About, out: Path) -> None:
    """Say in the file who wrote it and under which licence, and pack it.

    Chromium stores the title only, and its marks for screen readers, one for each piece of text,
    in plain: they are half of its file.
    """
    with pikepdf.open(printed) as pdf:
        with pdf.open_metadata(set_pikepdf_as_editor=False) as meta:
            meta["dc:title"] = facts.title
            meta["dc:creator"] = facts.authors
            meta["dc:description"] = f"{facts.subtitle}. {facts.licence}"
            meta["dc:language"] = {facts.language}
            meta["dc:rights"] = facts.licence
        pdf.Root.ViewerPreferences = pikepdf.Dictionary(DisplayDocTitle=True)
        pdf.save(out, object_stream_mode=pikepdf.ObjectStreamMode.generate)


# ---------------------------------------------------------------- checking


def problems(file: Path, pages: Sequence[Page], facts: About) -> list[str]:
    """What is wrong with the PDF in `file`, which should hold `pages`."""
    return compared(*read(file), pages, facts)


def read(file: Path) -> tuple[PdfReader, list[str]]:
    """An open book and the text of its pages, by another program than the one that wrote it."""
    from pypdf import PdfReader

    book = PdfReader(file)
    return book, [_squeezed(page.extract_text()) for page in book.pages]


def compared(
    book: PdfReader, texts: Sequence[str], pages: Sequence[Page], facts: About
) -> list[str]:
    """What is wrong with an open book, given the text of each of its pages without the spaces."""
    root: Any = book.trailer["/Root"]
    found = [f"page {n} is empty" for n, text in enumerate(texts, 1) if len(text) < 10]
    if not root.get("/StructTreeRoot") or root.get("/Lang") != facts.language:
        found.append("it is not tagged, or does not say its language")
    if not book.metadata or book.metadata.title != facts.title:
        found.append(f"it does not say that its title is {facts.title!r}")
    found += [f"the font {name} is not in the file" for name in _missing_fonts(book)]

    begins = {_squeezed(title): number for title, number in _outline(book)}
    last = 0
    for page in pages:
        title = _squeezed(page.full_title)
        number = begins.get(title)
        if number is None:
            found.append(f"{page.name}: not in the outline")
            continue
        if number <= last or title not in texts[number - 1]:
            found.append(f"{page.name}: the outline says page {number}, where it does not begin")
        last = number
    everything = "".join(texts)
    lines = _squeezed(
        " ".join(texts[: min(begins.get(_squeezed(p.full_title), 1) for p in pages) - 1])
    )
    for page in pages:
        line = _squeezed(page.full_title) + str(begins.get(_squeezed(page.full_title)))
        if line not in lines:
            found.append(f"{page.name}: the table of contents does not show its page")
        for solution in page.solutions:
            first = _squeezed(solution.strip().splitlines()[0])
            if first not in everything:
                found.append(f"{page.name}: the solution {first!r} is not there")
        if lost := sorted(set(page.chinese) - set(everything)):
            found.append(
                f"{page.name}: no font on this machine holds {''.join(lost[:12])}; install one with"
                " Chinese characters (Debian, Ubuntu: apt-get install fonts-noto-cjk)"
            )
    pictures = {i for page in pages for i in page.images}
    if (shown := _pictures(book)) < len(pictures):
        found.append(f"{len(pictures)} pictures were to be shown, {shown} are in the file")
    return found + _links(book)


def _squeezed(text: str) -> str:
    """Text without its spaces: where lines break is not the point. Ligatures are undone."""
    return re.sub(r"\s+|\u00ad", "", unicodedata.normalize("NFKC", text))


def _outline(book: PdfReader) -> list[tuple[str, int]]:
    """The first level of the outline: titles, and the pages to which they lead."""
    return [
        (str(item.title), (book.get_destination_page_number(item) or 0) + 1)
        for item in book.outline
        if not isinstance(item, list)
    ]


def _resources(book: PdfReader, kind: str) -> dict[int, Any]:
    """Fonts or pictures of all pages, each once."""
    found = {}
    for page in book.pages:
        for entry in cast(Any, page["/Resources"]).get(kind, {}).values():
            found[entry.idnum] = entry.get_object()
    return found


def _missing_fonts(book: PdfReader) -> list[str]:
    missing = []
    for font in _resources(book, "/Font").values():
        holder = font["/DescendantFonts"][0].get_object() if "/DescendantFonts" in font else font
        held = holder.get("/FontDescriptor", {}).get_object()
        # A Type 3 font consists of drawings in the file itself.
        if font["/Subtype"] != "/Type3" and not any(k.startswith("/FontFile") for k in held):
            missing.append(str(font.get("/BaseFont")))
    return missing


def _pictures(book: PdfReader) -> int:
    drawn = _resources(book, "/XObject").values()
    return sum(x.get("/Subtype") == "/Image" for x in drawn)


def _links(book: PdfReader) -> list[str]:
    """Links within the book that lead nowhere."""
    places = book.named_destinations
    lost = []
    for number, page in enumerate(book.pages, 1):
        for entry in page.get("/Annots", []):
            target = entry.get_object().get("/Dest")
            name = str(target).lstrip("/")
            if isinstance(target, str) and name not in places and f"/{name}" not in places:
                lost.append(f"page {number} links to {name}, which is nowhere")
    return lost
