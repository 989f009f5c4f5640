"""One PDF: the collected pages in one document, printed by Chromium."""

from __future__ import annotations

import re
import shutil
import unicodedata
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pikepdf
from PIL import Image

from book.take_away.pages import (
    HERE,
    MATHML,
    XHTML,
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

# Pictures and fonts that Chromium could not read.
_LOST = """document.fonts.ready.then((fonts) => [
  ...[...document.images].filter((i) => !i.naturalWidth).map((i) => i.getAttribute("src")),
  ...[...fonts].filter((f) => f.status == "error").map((f) => `${f.family} ${f.weight} ${f.style}`),
])"""
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
# What the fonts call themselves. Without one of them Chromium sets its text in another.
_NAMES = ("STIXGeneral", "STIXTwoMath", "DejaVuSans-Bold", "DejaVuSansMono")
# Fonts have one drawing for a Chinese character and for the radical of the same form; Chromium
# writes the radical, for which nobody searches. (NFKC knows the older block, U+2F00.)
_RADICALS = str.maketrans(
    "\u2e81\u2e84\u2e85\u2e8b\u2e9f\u2ea0\u2eac\u2eb3\u2eb7\u2ec1\u2ec4\u2ec5\u2ec6"
    "\u2ec8\u2ec9\u2ecb\u2ed3\u2ed4\u2ed9\u2eda\u2edb\u2edc\u2edd\u2edf\u2ee0\u2ee2"
    "\u2ee5\u2ee6\u2ee7\u2ee8\u2ee9\u2eea\u2eec\u2eee\u2ef0\u2ef3",
    "厂乚亻㔾母民示罒羊虎西见角讠贝车长门韦页风飞食飠饣马鱼鸟卤麦黄黾齐齿龙龟",
)


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
            lost = tab.evaluate(_LOST)
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
        _save(work / "book.pdf", pages, facts, out)
    return [f"wider than the page: {item}" for item in too_wide] + [
        f"Chromium could not read {item}" for item in lost
    ]


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


def _save(printed: Path, pages: Sequence[Page], facts: About, out: Path) -> None:
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
        pdf.Root.PageMode = pikepdf.Name.UseOutlines
        _spell(pdf, headings(pages))
        for one in pdf.objects:
            if isinstance(one, pikepdf.Dictionary) and "/ToUnicode" in one:
                _name_characters(one.ToUnicode)
        pdf.save(out, object_stream_mode=pikepdf.ObjectStreamMode.generate)


def _spell(pdf: pikepdf.Pdf, titles: Sequence[str]) -> None:
    """Give the outline its blanks: Chromium drops them where the title's line breaks."""
    clean = {_squeezed(title): title for title in titles}

    def spell(items: Sequence[pikepdf.OutlineItem]) -> None:
        for item in items:
            item.title = clean.get(_squeezed(item.title), item.title)
            item.is_closed = True
            spell(item.children)

    with pdf.open_outline() as outline:
        spell(outline.root)


def headings(pages: Sequence[Page]) -> list[str]:
    """The headings of the pages, each in one line."""
    return [
        " ".join("".join(element.itertext()).split())
        for page in pages
        for element in ET.fromstring(page.xhtml).iter()
        if element.tag in {f"{{{XHTML}}}h{level}" for level in (1, 2, 3, 4)}
    ]


def _name_characters(table: pikepdf.Object) -> None:
    """Name Chinese characters, and not radicals, in a font's table of what its drawings mean."""
    text = table.read_bytes().decode("latin-1")
    named = re.sub(r"<(2[EF][0-9A-F]{2})>(?=\s*$|\])", _unified, text, flags=re.M)
    if named != text:
        table.write(named.encode("latin-1"))


def _unified(match: re.Match[str]) -> str:
    character = unicodedata.normalize("NFKC", chr(int(match[1], 16)).translate(_RADICALS))
    return f"<{ord(character):04X}>"


# ---------------------------------------------------------------- checking


def problems(file: Path, pages: Sequence[Page], facts: About) -> list[str]:
    """What is wrong with the PDF in `file`, which should hold `pages`."""
    return compared(*read(file), pages, facts)


def read(file: Path) -> tuple[pikepdf.Pdf, list[str]]:
    """An open book, and the text of its pages as a program that did not write it reads them."""
    from pypdfium2 import PdfDocument  # type: ignore[import-untyped]

    book = PdfDocument(file)
    texts = [_squeezed(page.get_textpage().get_text_bounded()) for page in book]
    book.close()
    return pikepdf.open(file), texts


def compared(
    book: pikepdf.Pdf, texts: Sequence[str], pages: Sequence[Page], facts: About
) -> list[str]:
    """What is wrong with an open book, given the text of each of its pages without the spaces."""
    found = []
    if len(book.pages) != len(texts):
        found.append(f"{len(book.pages)} pages are counted, {len(texts)} are read")
    found += [f"page {n} is empty" for n in _empty(texts, pages)]
    if "/StructTreeRoot" not in book.Root or book.Root.get("/Lang") != facts.language:
        found.append("it is not tagged, or does not say its language")
    if str(book.docinfo.get("/Title")) != facts.title:
        found.append(f"it does not say that its title is {facts.title!r}")
    found += _fonts(book)

    # What no font can show is reported once; the rest is looked for without it.
    everything = "".join(texts)
    unshown = "".join({c for page in pages for c in page.chinese} - set(everything))

    def shown(text: str) -> str:
        return re.split(f"[{unshown}]", text)[0] if unshown else text

    begins = {_squeezed(title): number for title, number in _outline(book)}
    last = 0
    for page in pages:
        title = _squeezed(page.full_title)
        number = begins.get(title)
        if number is None:
            found.append(f"{page.name}: not in the outline")
            continue
        if number <= last or shown(title) not in texts[number - 1]:
            found.append(f"{page.name}: the outline says page {number}, where it does not begin")
        last = number
    lines = _squeezed(
        " ".join(texts[: min(begins.get(_squeezed(p.full_title), 1) for p in pages) - 1])
    )
    for page in pages:
        title = _squeezed(page.full_title)
        number = begins.get(title, 1)
        if shown(f"{title}{number}") not in lines:
            found.append(f"{page.name}: the table of contents does not show its page")
        until = min((n for n in begins.values() if n > number), default=len(texts) + 1)
        here = "".join(texts[number - 1 : until - 1])
        for kind, pieces in _pieces(page):
            lost_ones = [piece for piece in pieces if shown(piece) not in here]
            # A piece may run over the foot of a page; most do not.
            if len(lost_ones) > len(pieces) / 10:
                found.append(
                    f"{page.name}: {len(lost_ones)} of {len(pieces)} {kind} are not there,"
                    f" such as {lost_ones[0][:60]!r}"
                )
        if lost := sorted(set(page.chinese) - set(everything)):
            found.append(
                f"{page.name}: no font on this machine holds {''.join(lost[:12])}; install one with"
                " Chinese characters (Debian, Ubuntu: apt-get install fonts-noto-cjk)"
            )
    return found + _pictures(book, pages) + _links(book)


def _empty(texts: Sequence[str], pages: Sequence[Page]) -> list[int]:
    """The numbers of pages that hold nothing but their head and their foot."""
    heads = [_squeezed(page.full_title) for page in pages]
    found = []
    for number, text in enumerate(texts, 1):
        rest = text.removesuffix(str(number)).removeprefix(str(number))
        for head in heads:
            rest = rest.replace(head, "", 1)
        if len(rest) < 5:
            found.append(number)
    return found


def _pieces(page: Page) -> list[tuple[str, list[str]]]:
    """What a reader would search for in a page: kind -> the beginnings of its pieces."""

    def begins(kind: str, tag: str, within: str = "") -> list[str]:
        return [
            _squeezed("".join(element.itertext()).strip().splitlines()[0])[:50]
            for outer in ET.fromstring(page.xhtml).iter()
            if within in f" {outer.get('class', '')} "
            for element in (outer.iter(f"{{{XHTML}}}{tag}") if within else [outer])
            if element.tag == f"{{{XHTML}}}{tag}"
            and kind in f" {element.get('class', '')} "
            and element.find(f".//{{{MATHML}}}math") is None
            and "".join(element.itertext()).strip()
        ]

    return [
        ("headings", begins("", "h2") + begins("", "h3")),
        ("paragraphs", begins("", "p")),
        ("cells and outputs", begins("", "pre")),
        ("sentences of explorers", begins(" tp-sentence ", "p")),
        ("solutions", [_squeezed(s.strip().splitlines()[0])[:50] for s in page.solutions]),
    ]


def _squeezed(text: str) -> str:
    """Text without its spaces: where lines break is not the point. Ligatures are undone."""
    return re.sub(r"\s+|[\u00ad\ufffe\x02]", "", unicodedata.normalize("NFKC", text))


def _outline(book: pikepdf.Pdf) -> list[tuple[str, int]]:
    """The first level of the outline: titles, and the pages to which they lead."""
    numbers: dict[object, int] = {page.objgen: n for n, page in enumerate(book.pages, 1)}
    places = _places(book)
    found = []
    with book.open_outline() as outline:
        for item in outline.root:
            aim: Any = item.destination
            if not isinstance(aim, pikepdf.Array):
                aim = places.get(str(aim).lstrip("/"), [None])
            found.append((item.title, numbers.get(aim[0].objgen, 0) if aim[0] else 0))
    return found


def _places(book: pikepdf.Pdf) -> dict[str, Any]:
    """The anchors of the book: name -> the place on a page."""
    return {name.lstrip("/"): place for name, place in book.Root.get("/Dests", {}).items()}


def _resources(book: pikepdf.Pdf, kind: str) -> list[Any]:
    """Fonts or pictures of all pages, each once."""
    found = {}
    for page in book.pages:
        for entry in page.Resources.get(kind, {}).values():
            found[entry.objgen] = entry
    return list(found.values())


def _fonts(book: pikepdf.Pdf) -> list[str]:
    """Fonts that the book uses and does not hold, and those that it should use and does not."""
    problems, names = [], set()
    for font in _resources(book, "/Font"):
        # A Type 3 font consists of drawings in the file itself.
        if font.Subtype == "/Type3":
            continue
        holder = font.DescendantFonts[0] if "/DescendantFonts" in font else font
        name = str(font.get("/BaseFont")).split("+")[-1]
        names.add(name)
        if not any(k.startswith("/FontFile") for k in holder.get("/FontDescriptor", {})):
            problems.append(f"the font {name} is not in the file")
    return problems + [
        f"nothing is set in the font {name}"
        for name in _NAMES
        if not any(n.startswith(name) for n in names)
    ]


def _pictures(book: pikepdf.Pdf, pages: Sequence[Page]) -> list[str]:
    """Pictures of the pages that are not in the file, told apart by their size in pixels."""
    drawn = [x for x in _resources(book, "/XObject") if x.get("/Subtype") == "/Image"]
    held = Counter((int(x.Width), int(x.Height)) for x in drawn)
    lost = []
    for path, name in {image: page.name for page in pages for image in page.images}.items():
        try:
            with Image.open(path) as picture:
                size = picture.size
        except OSError:
            lost.append(f"{name}: the picture {path.name} cannot be read")
            continue
        held[size] -= 1
        if held[size] < 0:
            lost.append(f"{name}: the picture {path.name} is not in the file")
    return lost


def _links(book: pikepdf.Pdf) -> list[str]:
    """Links within the book that lead nowhere."""
    places, lost, count = _places(book), [], 0
    for number, page in enumerate(book.pages, 1):
        for entry in page.get("/Annots", []):
            target = entry.get("/Dest")
            if isinstance(target, (pikepdf.Name, pikepdf.String)):
                name = str(target).lstrip("/")
                count += 1
                if name not in places:
                    lost.append(f"page {number} links to {name}, which is nowhere")
    return lost if count else ["no link leads from one place of the book to another"]
