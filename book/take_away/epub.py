"""One EPUB 3: the collected pages as XHTML in a box, readable without a script."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import Sequence
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from urllib.parse import unquote
from uuid import NAMESPACE_URL, uuid5

from fontTools.ttLib import TTFont, TTLibError
from PIL import Image

from book.take_away.pages import (
    HERE,
    About,
    Page,
    dead_links,
    document,
    highlighting,
    math_font,
    title_page,
)

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_TYPES = {
    ".xhtml": "application/xhtml+xml",
    ".css": "text/css",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".svg": "image/svg+xml",
    ".webp": "image/webp",
    ".woff": "font/woff",
    ".woff2": "font/woff2",
}
_CONTAINER = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    '<container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
    '<rootfile full-path="book/book.opf" media-type="application/oebps-package+xml"/>'
    "</rootfiles></container>\n"
)
_OPF = "{http://www.idpf.org/2007/opf}"
_DC = "{http://purl.org/dc/elements/1.1/}"
_HEAD = '<link rel="stylesheet" type="text/css" href="style.css"/>'


def write(
    browser: Browser, site: Path, pages: Sequence[Page], facts: About, out: Path
) -> list[str]:
    """Put `pages` into the EPUB `out`. Returns what stands in the way, which is nothing."""
    font = math_font(site)
    texts = {"title.xhtml": document(facts.title, _HEAD, title_page(facts))}
    texts["contents.xhtml"] = document("Contents", _HEAD, contents(pages))
    for page in pages:
        texts[f"{page.name}.xhtml"] = document(page.full_title, _HEAD, page.xhtml)
    inside: dict[str, bytes] = {name: text.encode() for name, text in texts.items()}
    inside["style.css"] = _style(font).encode()
    inside["cover.png"] = _cover(browser, facts)
    inside[f"fonts/{font.name}"] = font.read_bytes()
    for image in {i for page in pages for i in page.images}:
        inside[f"images/{image.name}"] = image.read_bytes()
    inside["book.opf"] = _package(pages, facts, inside).encode()
    out.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as box:
        # The type comes first and as it is, so that the first bytes of the file say what it is.
        _put(box, "mimetype", b"application/epub+zip", zipfile.ZIP_STORED)
        _put(box, "META-INF/container.xml", _CONTAINER.encode())
        for name, data in inside.items():
            _put(box, f"book/{name}", data)
    return []


def _put(box: zipfile.ZipFile, name: str, data: bytes, how: int = zipfile.ZIP_DEFLATED) -> None:
    # A fixed time: the same site gives the same file.
    box.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data, how)


def contents(pages: Sequence[Page]) -> str:
    """The navigation document: parts, pages, and the sections of chapters."""
    lines, part, opened = [], None, False
    for page in pages:
        if page.entry.part != part:
            lines.append("</ol></li>" if opened else "")
            part, opened = page.entry.part, True
            lines.append(f"<li><span>{escape(part or '')}</span><ol>")
        sections = "".join(
            f'<li><a href="{page.name}.xhtml#{anchor}">{escape(text)}</a></li>'
            for anchor, text in page.headings
        )
        lines.append(
            f'<li><a href="{page.name}.xhtml">{escape(page.full_title)}</a>'
            + (f"<ol>{sections}</ol>" if sections and page.entry.number else "")
            + "</li>"
        )
    lines.append("</ol></li>" if opened else "")
    first = f"{pages[0].name}.xhtml"
    return (
        f'<nav epub:type="toc" role="doc-toc"><h1>Contents</h1><ol>{"".join(lines)}</ol></nav>'
        '<nav epub:type="landmarks" hidden="hidden"><h2>Landmarks</h2><ol>'
        '<li><a epub:type="toc" href="contents.xhtml">Contents</a></li>'
        f'<li><a epub:type="bodymatter" href="{first}">Begin</a></li></ol></nav>'
    )


def _style(font: Path) -> str:
    face = f'@font-face {{ font-family: "Book Math"; src: url("fonts/{font.name}"); }}'
    sheets = [(HERE / name).read_text(encoding="utf-8") for name in ("common.css", "reader.css")]
    return "\n".join([face, highlighting(), *sheets])


def _cover(browser: Browser, facts: About) -> bytes:
    """The title page as a picture, for the shelf of the e-reader."""
    with TemporaryDirectory() as folder:
        style = (
            "body { margin: 0; height: 100vh; display: grid; place-content: center; padding: 0 2em;"
            " font-family: serif; background: #00476f; color: #fff; text-align: center; }"
            " h1 { font: bold 3em sans-serif; margin: 0 0 0.4em; } "
            " .tp-subtitle { font-size: 1.4em; } .tp-imprint { display: none; }"
        )
        file = Path(folder) / "cover.xhtml"
        file.write_text(
            document(facts.title, f"<style>{style}</style>", title_page(facts)), encoding="utf-8"
        )
        tab = browser.new_page(viewport={"width": 600, "height": 800}, device_scale_factor=2)
        tab.goto(file.as_uri())
        picture = tab.screenshot()
        tab.close()
    return picture


def _package(pages: Sequence[Page], facts: About, inside: dict[str, bytes]) -> str:
    """The package document: what the book is, what is in it, in which order it is read."""
    spine = ["title.xhtml", "contents.xhtml", *(f"{p.name}.xhtml" for p in pages)]
    ids = {name: f"i{number}" for number, name in enumerate(inside)}
    items = "\n".join(
        f'<item id="{ids[name]}" href="{name}" media-type="{_TYPES[Path(name).suffix]}"'
        f"{_properties(name, data)}/>"
        for name, data in inside.items()
    )
    uuid = uuid5(NAMESPACE_URL, f"{facts.title} {facts.version}")
    authors = "".join(f"<dc:creator>{escape(a)}</dc:creator>" for a in facts.authors)
    subjects = "".join(f"<dc:subject>{escape(k)}</dc:subject>" for k in facts.keywords)
    access = "".join(
        f'<meta property="schema:{name}">{value}</meta>'
        for name, value in [
            ("accessMode", "textual"),
            ("accessMode", "visual"),
            ("accessModeSufficient", "textual"),
            ("accessibilityFeature", "alternativeText"),
            ("accessibilityFeature", "MathML"),
            ("accessibilityFeature", "structuralNavigation"),
            ("accessibilityFeature", "tableOfContents"),
            ("accessibilityHazard", "none"),
        ]
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<package xmlns="http://www.idpf.org/2007/opf" version="3.0" unique-identifier="uid"'
        f' xml:lang="{facts.language}"><metadata xmlns:dc="http://purl.org/dc/elements/1.1/">'
        f'<dc:identifier id="uid">urn:uuid:{uuid}</dc:identifier>'
        f"<dc:title>{escape(facts.title)}</dc:title>{authors}{subjects}"
        f"<dc:language>{facts.language}</dc:language><dc:date>{facts.date}</dc:date>"
        f"<dc:description>{escape(facts.abstract)}</dc:description>"
        f"<dc:rights>{escape(facts.licence)}</dc:rights>"
        f'<meta property="dcterms:modified">{facts.date}T00:00:00Z</meta>{access}</metadata>\n'
        f"<manifest>{items}</manifest>\n<spine>"
        + "".join(f'<itemref idref="{ids[name]}"/>' for name in spine)
        + "</spine></package>\n"
    )


def _properties(name: str, data: bytes) -> str:
    found = {"contents.xhtml": ["nav"], "cover.png": ["cover-image"]}.get(name, [])
    if name.endswith(".xhtml"):
        found += [kind for kind, mark in (("mathml", b"<math"), ("svg", b"<svg")) if mark in data]
    return f' properties="{" ".join(found)}"' if found else ""


# ---------------------------------------------------------------- checking


def problems(file: Path, pages: Sequence[Page], facts: About) -> list[str]:
    """What is wrong with the EPUB in `file`, which should hold `pages`."""
    with zipfile.ZipFile(file) as box:
        first = box.infolist()[0]
        inside = {name: box.read(name) for name in box.namelist()}
    found = []
    if first.filename != "mimetype" or first.compress_type != zipfile.ZIP_STORED:
        found.append("the mimetype is not the first entry, or is packed")
    if inside.get("mimetype") != b"application/epub+zip":
        found.append("the mimetype is not that of an EPUB")
    if inside.get("META-INF/container.xml") != _CONTAINER.encode():
        found.append("META-INF/container.xml does not lead to the package document")
    there = {n.removeprefix("book/"): d for n, d in inside.items() if n.startswith("book/")}
    found += _package_problems(there, facts) + _file_problems(there)
    texts = {n: d.decode(errors="replace") for n, d in there.items() if n.endswith(".xhtml")}
    found += dead_links(texts)
    for name, text in texts.items():
        if re.search(r"<script|<details|<button|<input| on\w+=\"", text):
            found.append(f"{name}: holds something that needs a reader with scripts")
    for page in pages:
        name = f"{page.name}.xhtml"
        text = texts.get(name, "")
        if f"<title>{escape(page.full_title)}</title>" not in text:
            found.append(f"{name}: the page {page.title!r} is missing")
        elif page.xhtml not in text:
            found.append(f"{name}: its text is not that of the page of the site")
        if len(re.findall(r'class="(?:admonition )?solution\b', text)) != len(page.solutions):
            found.append(f"{name}: {len(page.solutions)} solutions were expected")
    return found


def _package_problems(there: dict[str, bytes], facts: About) -> list[str]:
    """What is wrong with the package document: its metadata, its list of files, its order."""
    try:
        package = ET.fromstring(there.get("book.opf", b""))
    except ET.ParseError as error:
        return [f"book.opf: not XML: {error}"]
    items = list(package.iter(f"{_OPF}item"))
    listed = {item.get("href", ""): item for item in items}
    held = there.keys() - {"book.opf"}
    found = [f"{name} is in the box but not in the manifest" for name in sorted(held - set(listed))]
    lost = sorted(set(listed) - held)
    found += [f"{name} is in the manifest but not in the box" for name in lost]
    ids = [item.get("id", "") for item in items]
    twice = sorted({i for i in ids if ids.count(i) > 1})
    found += [f"book.opf: the id {i!r} is there twice" for i in twice]
    for name, item in listed.items():
        kind = _TYPES.get(Path(name).suffix)
        if item.get("media-type") != kind:
            found.append(f"book.opf: {name} is called {item.get('media-type')}, and is {kind}")
        wanted = _properties(name, there.get(name, b""))
        if (f' properties="{item.get("properties")}"' if item.get("properties") else "") != wanted:
            found.append(f"book.opf: {name} should say what it holds:{wanted or ' nothing'}")
    order = [ref.get("idref", "") for ref in package.iter(f"{_OPF}itemref")]
    found += [f"book.opf: the order names {i!r}, which is no file" for i in order if i not in ids]
    found += [
        f"book.opf: {name} is not in the order of reading"
        for name, item in listed.items()
        if name.endswith(".xhtml") and item.get("id") not in order
    ]
    key = package.get("unique-identifier")
    if not any(e.get("id") == key and e.text for e in package.iter(f"{_DC}identifier")):
        found.append("book.opf: its identifier is missing")
    if not any(e.get("property") == "dcterms:modified" for e in package.iter(f"{_OPF}meta")):
        found.append("book.opf: it does not say when it was changed")
    said = [e.text for e in package.iter() if e.tag.startswith(_DC)]
    return found + [
        f"the metadata lack {what!r}"
        for what in (facts.title, *facts.authors, facts.licence, facts.language)
        if what not in said
    ]


def _file_problems(there: dict[str, bytes]) -> list[str]:
    """Pictures and fonts that cannot be read, or are asked for and not there."""
    found = []
    for name, data in there.items():
        suffix = Path(name).suffix
        try:
            if suffix in (".png", ".jpg", ".webp"):
                with Image.open(io.BytesIO(data)) as picture:
                    picture.load()
            elif suffix in (".woff", ".woff2"):
                TTFont(io.BytesIO(data)).close()
            elif suffix == ".svg":
                ET.fromstring(data)
        except (OSError, SyntaxError, TTLibError) as error:  # ParseError is a SyntaxError
            found.append(f"{name}: cannot be read: {error}")
        if suffix == ".xhtml":
            text = data.decode(errors="replace")
            sources = re.findall(r'<(?:img|image) [^>]*?(?:src|href)="([^"]*)"', text)
            asked = [unquote(source) for source in sources]
            found += [f"{name}: shows {s}, which is not there" for s in asked if s not in there]
        if suffix == ".css":
            asked = re.findall(r"url\(\"?([^\")]*)", data.decode(errors="replace"))
            found += [f"{name}: asks for {s}, which is not there" for s in asked if s not in there]
    return found
