"""Protects the book to take away where no browser is needed: its order, its links, its box."""

import io
import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from html import escape
from pathlib import Path

import pytest
from PIL import Image

from book.chapters import ROOT, chapters
from book.take_away import epub, pdf
from book.take_away.pages import (
    XHTML,
    Entry,
    Page,
    about,
    chosen,
    collect,
    dead_links,
    document,
    entries,
    text_fonts,
)

# ---------------------------------------------------------------- what goes in


def test_every_chapter_is_in_the_book_once_and_in_order():
    found = entries()
    assert [e.document for e in found if e.number] == [f"notebooks/{p.stem}" for p in chapters()]
    assert [e.number for e in found if e.number] == list(range(1, len(chapters()) + 1))
    assert found[0].name == "index"
    assert {"glossary", "misconceptions", "references"} <= {e.name for e in found}


def test_two_pages_of_one_name_are_refused(tmp_path):
    toc = tmp_path / "_toc.yml"
    toc.write_text("root: a/same\nparts: [{caption: P, chapters: [{file: b/same}]}]")
    with pytest.raises(ValueError, match="two pages are called same"):
        entries(toc)


def test_a_choice_keeps_the_order_and_knows_its_names():
    found = entries()
    assert [e.name for e in chosen(found, ["mla", "softmax"])] == ["softmax", "mla"]
    assert chosen(found, []) == found
    with pytest.raises(ValueError, match=r"no page is called soft; there are index, .*softmax"):
        chosen(found, ["soft"])


def test_a_page_that_was_not_built_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"08_normalization\.html is not in .*make book"):
        collect(None, tmp_path, chosen(entries(), ["normalization"]))


def test_the_book_says_who_wrote_it():
    facts = about()
    assert facts.title == "Transformer Parts"
    assert facts.subtitle.startswith("Derive")
    assert facts.authors == ["The Transformer Parts authors"]
    assert "CC BY 4.0" in facts.licence


def test_people_have_first_and_last_names(tmp_path):
    file = tmp_path / "CITATION.cff"
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    people = "  - given-names: Ada\n    family-names: L.\n  - family-names: B."
    file.write_text(text.replace("  - name: The Transformer Parts authors", people))
    assert about(file).authors == ["Ada L.", "B."]


def test_the_fonts_for_paper_are_there():
    assert [f for f in text_fonts().values() if not f.is_file()] == []


# ---------------------------------------------------------------- links


def whole(body):
    return document("t", "", body)


def test_links_that_hold_are_not_reported():
    one = whole('<p id="a"><a href="#a">1</a><a href="two.xhtml#b">2</a></p>')
    two = whole('<p id="b"><a href="one.xhtml">3</a><a href="https://example.org/#x">4</a></p>')
    assert dead_links({"one.xhtml": one, "two.xhtml": two}) == []


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("<p>", "one.xhtml: not XML"),
        ("<p>&nbsp;</p>", "one.xhtml: not XML"),
        ('<p id="a"/><p id="a"/>', "one.xhtml: the id a is there twice"),
        ('<a href="#a">1</a>', "one.xhtml: links to #a, but there is no such anchor"),
        ('<a href="one.xhtml#a">1</a>', "one.xhtml: links to one.xhtml#a, but"),
        ('<a href="two.xhtml">1</a>', "one.xhtml: links to two.xhtml, which is not in the book"),
    ],
)
def test_what_is_wrong_with_a_file_is_reported(body, problem):
    (found,) = dead_links({"one.xhtml": whole(body)})
    assert found.startswith(problem)


# ---------------------------------------------------------------- contents


def page(document_, part, title, headings=()):
    entry = Entry(document_, part)
    solution = '<div class="solution admonition"><pre>def f(): pass</pre></div>'
    body = "".join(f'<h2 id="{anchor}">{escape(text)}</h2>' for anchor, text in headings)
    body = f"<h1>{escape(title)}</h1>{body}{solution}"
    text = f'<section xmlns="{XHTML}" id="{entry.name}">{body}</section>'
    return Page(entry, title, text, list(headings), [], ["def f(): pass"], "")


PAGES = [
    page("book/pages/index", None, "Preface"),
    page("notebooks/01_tensors", "First", "Tensors & more", [("tensors--q", "Why <0?")]),
    page("notebooks/02_map", "First", "The map", [("map--q", "Why?")]),
    page("book/pages/glossary", "Last", "Glossary", [("glossary--a", "A")]),
]


def test_the_contents_of_the_paper_book_show_pages_and_sections_of_chapters():
    text = pdf.contents(PAGES, {"tensors": 7, "tensors--q": 8, "map": 31})
    assert dead_links({"c": whole(text + "".join(p.xhtml for p in PAGES))}) == []
    assert [text.count(part) for part in ("First", "Last")] == [1, 1]
    assert "Chapter 1. Tensors &amp; more" in text
    assert "Why &lt;0?" in text
    assert [text.count(f">{n}<") for n in (7, 8, 31)] == [1, 1, 1]
    assert text.count(">000<") == 3
    assert "glossary--a" not in text


def test_the_navigation_of_the_epub_nests_pages_in_parts():
    text = epub.contents(PAGES)
    files = {f"{p.name}.xhtml": whole(p.xhtml) for p in PAGES}
    assert dead_links(files | {"contents.xhtml": whole(text)}) == []
    assert text.count("<li><span>First</span>") == 1
    assert text.index("First") < text.index("tensors.xhtml") < text.index("map.xhtml")


# ---------------------------------------------------------------- the box


def a_picture():
    file = io.BytesIO()
    Image.new("RGB", (2, 2)).save(file, "PNG")
    return file.getvalue()


class Camera:
    """Stands in for the browser, which only takes the picture of the cover."""

    def new_page(self, **options):
        return self

    def goto(self, address):
        pass

    def screenshot(self):
        return a_picture()

    def close(self):
        pass


@pytest.fixture
def made(tmp_path):
    (tmp_path / "_static").mkdir()
    shutil.copy(text_fonts()["mono"], tmp_path / "_static" / "math.woff2")
    picture = tmp_path / "a.png"
    picture.write_bytes(a_picture())
    shown = PAGES[0].xhtml.replace("</h1>", '</h1><img src="images/a.png" alt="a"/>')
    pages = [replace(PAGES[0], images=[picture], xhtml=shown), *PAGES[1:]]
    out = tmp_path / "book.epub"
    assert epub.write(Camera(), tmp_path, pages, about(), out) == []
    return out, pages


def test_the_box_is_in_order_and_the_same_each_time(made, tmp_path):
    out, pages = made
    assert epub.problems(out, pages, about()) == []
    assert out.read_bytes()[30:58] == b"mimetypeapplication/epub+zip"
    before = out.read_bytes()
    epub.write(Camera(), tmp_path, pages, about(), out)
    assert out.read_bytes() == before


def repacked(out, change):
    with zipfile.ZipFile(out) as box:
        inside = {name: box.read(name) for name in box.namelist()}
    change(inside)
    with zipfile.ZipFile(out, "w") as box:
        for name, data in inside.items():
            box.writestr(name, data)


def swap(name, old, new):
    def change(inside):
        before = inside[f"book/{name}"]
        inside[f"book/{name}"] = re.sub(old, new, before)
        assert inside[f"book/{name}"] != before

    return change


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda box: box.pop("book/images/a.png"), "images/a.png is in the manifest but not in"),
        (lambda box: box.update({"book/b.png": b""}), "b.png is in the box but not in the mani"),
        (lambda box: box.update({"mimetype": b"text"}), "the mimetype is not that of an EPUB"),
        (
            lambda box: box.update({"mimetype": box.pop("mimetype")}),
            "the mimetype is not the first",
        ),
        (swap("map.xhtml", b"<pre", b"<script/><pre"), "map.xhtml: holds something that needs"),
        (swap("map.xhtml", b"<pre", b"<details/><pre"), "map.xhtml: holds something that needs"),
        (swap("map.xhtml", b'class="solution', b'class="x'), "map.xhtml: 1 solutions were expec"),
        (swap("map.xhtml", b"Chapter 2", b"Chapter 3"), "map.xhtml: the page 'The map' is missing"),
        (swap("map.xhtml", b"</pre>", b""), "map.xhtml: not XML"),
        (swap("map.xhtml", b"def f", b"def g"), "map.xhtml: its text is not that of the page"),
        (lambda box: box.pop("book/map.xhtml"), "map.xhtml: the page 'The map' is missing"),
        (lambda box: box.update({"book/images/a.png": b"\x89PNG"}), "images/a.png: cannot be read"),
        (lambda box: box.pop("book/fonts/math.woff2"), "style.css: asks for fonts/math.woff2, "),
        (
            lambda box: box.update({"book/fonts/math.woff2": b"wOF2"}),
            "fonts/math.woff2: cannot be",
        ),
        (lambda box: box.pop("META-INF/container.xml"), "META-INF/container.xml does not lead"),
        (lambda box: box.pop("book/book.opf"), "book.opf: not XML"),
        (swap("book.opf", b"</spine>", b""), "book.opf: not XML"),
        (swap("book.opf", b'idref="i2"', b'idref="i99"'), "book.opf: the order names 'i99',"),
        (
            swap("book.opf", b'<itemref idref="i2"/>', b""),
            "book.opf: index.xhtml is not in the",
        ),
        (swap("book.opf", b'id="i3"', b'id="i2"'), "book.opf: the id 'i2' is there twice"),
        (swap("book.opf", b"image/png", b"image/gif"), "book.opf: cover.png is called image/gif"),
        (swap("book.opf", b' properties="nav"', b""), "book.opf: contents.xhtml should say what"),
        (swap("book.opf", b'unique-identifier="uid"', b""), "book.opf: its identifier is missing"),
        (swap("book.opf", b"dcterms:modified", b"x:y"), "book.opf: it does not say when it was"),
        (swap("index.xhtml", b"images/a", b"images/b"), "index.xhtml: shows images/b.png, which"),
        (swap("book.opf", b"CC BY 4.0", b"none"), "the metadata lack 'Text and figures: CC BY 4.0"),
    ],
)
def test_what_is_wrong_with_the_box_is_reported(made, change, problem):
    out, pages = made
    repacked(out, change)
    found = epub.problems(out, pages, about())
    assert any(f.startswith(problem) for f in found), found


# ---------------------------------------------------------------- the command


def command(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "book.take_away", *map(str, arguments)],
        cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_without_chromium_the_command_says_how_to_get_it(tmp_path):
    done = command("epub", tmp_path / "b.epub", CHROMIUM="/no/such/chromium")
    assert done.returncode == 1
    assert "apt-get install chromium-headless-shell" in done.stderr
    assert "Traceback" not in done.stderr
    assert not Path(tmp_path / "b.epub").exists()
