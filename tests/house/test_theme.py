"""Protects the theme: what it writes into a page, and that nothing is lost on the way."""

import html
import re
import subprocess
import sys
from types import SimpleNamespace

import nbformat
import pytest
from docutils import nodes
from fontTools.ttLib import TTFont
from PIL import Image
from pygments import highlight
from pygments.lexers import PythonLexer

from book.chapters import ROOT
from book.theme import assets, finish, page, sections
from book.theme.finish import Book, address_of
from book.theme.translator import CodeFormatter

# ---------------------------------------------------------------- the address of the book


@pytest.mark.parametrize(
    ("environment", "repository", "address"),
    [
        ({}, None, None),
        ({}, "https://github.com/Owner/Name", "https://owner.github.io/Name/"),
        ({}, "https://github.com/owner/owner.github.io", "https://owner.github.io/"),
        ({}, "https://git.example.org/owner/name", None),
        ({"BOOK_URL": "https://book.example.org/a"}, None, "https://book.example.org/a/"),
        ({"BOOK_URL": "https://b.org/"}, "https://github.com/o/n", "https://b.org/"),
        ({"BOOK_URL": " "}, "https://github.com/o/n", "https://o.github.io/n/"),
    ],
)
def test_the_address_is_given_or_that_of_the_pages_of_the_repository(
    environment, repository, address
):
    assert address_of(environment, repository) == address


@pytest.mark.parametrize("wrong", ["book.example.org", 'https://a"b', "https://a b", "/srv/book"])
def test_an_address_that_is_none_is_refused_by_name(wrong):
    with pytest.raises(ValueError, match="BOOK_URL should be"):
        address_of({"BOOK_URL": wrong}, None)


# ---------------------------------------------------------------- style sheet and script


def test_the_style_sheet_is_whole_and_carries_no_comments():
    css = assets.style()
    assert css.count("{") == css.count("}")
    assert "/*" not in css
    for path in assets.STYLES:
        source = re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.S)
        for rule in re.findall(r"([\w-]+): ([^;{}\n]+);", source):
            assert re.sub(r"\s+", " ", ": ".join(rule)) in css, path.name
    for height in sections.HEIGHTS:
        assert f'[data-tall="{height}"]' in css


def test_the_names_follow_the_contents(monkeypatch):
    before = assets.names()
    assert assets.names() == before
    monkeypatch.setattr(assets, "style", lambda: "a{}")
    after = assets.names()
    assert after["style"] != before["style"]
    assert after["script"] == before["script"]


def test_a_search_script_of_another_sphinx_is_refused(tmp_path):
    for name in assets._SEARCH:
        (tmp_path / name).write_text("// nothing of what is repaired", encoding="utf-8")
    with pytest.raises(ValueError, match=r"searchtools\.js has changed"):
        assets.search_script(tmp_path)


def test_each_face_has_the_letters_of_a_text_in_its_own_shapes(tmp_path):
    with TTFont(finish.font_file()) as whole:
        blank, _ = whole["hmtx"]["space"]
    shapes = {}
    for face, parts in assets.FACES.items():
        file = tmp_path / f"{face}.woff2"
        assets.write_face(file, *parts)
        with TTFont(file) as font:
            letters = font.getBestCmap()
            assert {ord(c) for c in "AZazh09.,’—"} <= letters.keys()
            shapes[face] = font["glyf"][letters[ord("a")]].getCoordinates(font["glyf"])[0]
            assert font["hmtx"][letters[ord(" ")]][0] >= blank
        assert file.stat().st_size < 15_000
    assert len({tuple(map(tuple, points)) for points in shapes.values()}) == len(shapes)


# ---------------------------------------------------------------- the text


def test_code_keeps_every_letter_and_loses_only_plain_spans():
    source = 'def f(x):\n    return x < 12, f"a{x:2}"  # a\n'
    code = highlight(source, PythonLexer(), CodeFormatter())
    assert "<span></span>" not in code
    assert '<span class="k">def</span> <span class="nf">f</span>(x):' in code
    assert '<span class="k">return</span> x &lt; 12, f"a{x:2}"  ' in code  # digits and quotes tell
    assert html.unescape(re.sub("<[^>]*>", "", code)) == f"{source}\n"


PAGE = """# A page

It promises something that takes some thirty letters.

## Beside and below

Rows of $W$, and ($W$) as $W$-th; $W$ alone.

```{margin} Why not?
A note.
```

```{dropdown} A question
Its answer.
```

~~~{dropdown} Why does `re` read $W$ so?
It does.
~~~

```{admonition} Solution to [this](#a-page)
:class: dropdown
Deep.
```

|   | b |
| - | - |
| 1 | 2 |

![A dot.](a.png)
"""


CONF = """
from book.theme.finish import Book

extensions = ["sphinx_external_toc", "myst_nb", "book.theme", "book.folding"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 2
nb_execution_mode = "off"
html_theme = "transformer_parts"
tp_book = Book("A book", "About it.", None)
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A page of a small book, as the theme writes it."""
    folder = tmp_path_factory.mktemp("small")
    Image.new("RGB", (30, 20)).save(folder / "a.png")
    (folder / "first.md").write_text(PAGE, encoding="utf-8")
    (folder / "second.md").write_text("# Another\n\nText.\n", encoding="utf-8")
    cell = nbformat.v4.new_code_cell("x = 1\nx", metadata={"tags": ["hide-input"]})
    cell.outputs = [nbformat.v4.new_output("stream", text="one")]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# Third"), cell])
    nbformat.write(book, folder / "third.ipynb")
    parts = "parts:\n- caption: P\n  chapters:\n  - file: second\n    title: 07 · Another\n"
    toc = f"format: jb-book\nroot: first\n{parts}  - file: third\n"
    (folder / "_toc.yml").write_text(toc, encoding="utf-8")
    (folder / "conf.py").write_text(CONF, encoding="utf-8")
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", str(folder), str(folder / "out")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {p.stem: p.read_text(encoding="utf-8") for p in (folder / "out").glob("*.html")}


def test_a_formula_keeps_the_signs_that_touch_it(written):
    text = re.sub(r'<span class="math[^>]*>.*?</span>', "W", written["first"])
    held = '<span class="tp-hold">'
    assert f"Rows of {held}W,</span> and {held}(W)</span> as {held}W-</span>th; W alone." in text


def test_boxes_that_fold_are_details_whose_line_holds_no_link(written):
    text = written["first"]
    for kind, line in (
        ("tp-margin", "Why not?"),
        ("tp-question", "A question"),
        ("admonition", "Solution to this"),
    ):
        folds = re.findall(rf'<details class="tp-fold {kind}[^"]*"[^>]*>\s*(.*?)</summary>', text)
        [found] = [fold for fold in folds if re.sub("<[^>]*>", "", fold) == line]
        assert "<a" not in found
    assert "Deep." in text.partition("Solution to")[2].partition("</details>")[0]
    assert re.search(r'<body class="[^"]*tp-beside', text)


def test_code_in_a_line_that_folds_stays_in_the_run_of_its_words(written):
    [line] = re.findall(r"<summary>(?=<span>Why does)(.*?)</summary>", written["first"], re.S)
    assert re.match(r"<span>Why does <code.*?re.*?</code> read ", line)
    assert len(re.findall(r"<span[ >]", line)) == line.count("</span>")
    depth, ends = 0, []
    for tag in re.finditer(r"<(/?)span\b[^>]*>", line):
        depth += -1 if tag[1] else 1
        ends += [tag.end()] if depth == 0 else []
    assert ends == [len(line.rstrip())], "one element holds the whole line"


def test_hidden_code_comes_after_what_it_shows(written):
    cell = written["third"].partition('<div class="cell')[2]
    assert 0 < cell.index("one") < cell.index('<details class="tp-fold tp-code-fold tp-drawing">')
    assert "x = " in cell.partition("<details")[2].partition("</details>")[0]


def test_an_image_has_its_size_and_a_table_its_box_and_no_empty_heading(written):
    [image] = re.findall(r"<img[^>]*>", written["first"])
    assert 'width="30" height="20"' in image
    assert re.search(r'<div class="tp-table">\s*<table', written["first"])
    assert re.search(r"<tr[^>]*><td></td>\s*<th", written["first"])
    assert "style=" not in written["first"]


def test_the_page_says_where_it_stands(written):
    first, second = written["first"], written["second"]
    assert '<li><a href="#beside-and-below">Beside and below</a></li>' not in second
    assert '<a href="second.html"><span class="tp-number">07</span> Another</a>' in first
    [here] = re.findall(r'<li class="tp-here"><a href="([^"]*)" aria-current="page">', second)
    assert here == "#main-content"
    assert '<p class="tp-eyebrow">P <b>Chapter 7</b></p>' in second
    assert 'name="description" content="It promises something' in first
    assert 'class="tp-next" rel="next" href="second.html"' in first


def test_a_style_within_a_page_is_refused(monkeypatch):
    monkeypatch.setattr(page, "contents", lambda app: [])
    app = SimpleNamespace(config=SimpleNamespace(tp_book=None, tp_assets={}))
    with pytest.raises(page.ExtensionError, match="its policy forbids"):
        page.fill(app, "a", "page.html", {"body": '<p style="color: red">x</p>'}, nodes.document)


def test_a_longer_section_is_taken_to_be_taller():
    short, long = ("<section><h2>a</h2>" + "<p>one two three</p>" * n for n in (3, 60))
    assert 200 <= sections._height(short) < sections._height(long) <= 4000
    assert sections._height("<pre>" + "code\n" * 1000 + "</pre>") >= 15_000
    assert sections._height('<img height="900">') >= 800
    box = '<details class="tp-fold solution">' + "<p>hidden</p>" * 90 + "</details>"
    assert sections._height(box) == 200
    assert sections._height(box * 20) >= 1000


def test_sections_with_headings_are_marked_and_nothing_else_changes():
    inner = '<section id="b"><h3>b</h3></section>'
    text = (
        f'<p>x</p><section id="a"><h2>a</h2>{inner}<section><p>y</p></section></section></section>'
    )
    marked = sections.marked(text)
    assert re.findall(r'<section data-tall="\d+" id="(\w)">', marked) == ["a", "b"]
    assert re.sub(r' data-tall="\d+"', "", marked) == text


# ---------------------------------------------------------------- around the text


@pytest.mark.parametrize(
    ("repository", "address"),
    [
        (
            "https://github.com/o/n",
            "https://mybinder.org/v2/gh/o/n/a%2Fb?urlpath=lab/tree/notebooks/x.ipynb",
        ),
        (
            "https://gitlab.com/o/n",
            "https://mybinder.org/v2/gl/o%2Fn/a%2Fb?urlpath=lab/tree/notebooks/x.ipynb",
        ),
        (
            "https://git.example.org/o/n",
            "https://mybinder.org/v2/git/https%3A%2F%2Fgit.example.org%2Fo%2Fn/a%2Fb"
            "?urlpath=lab/tree/notebooks/x.ipynb",
        ),
    ],
)
def test_a_chapter_opens_on_binder_wherever_its_repository_is(repository, address):
    assert page.binder(repository, "a/b", "notebooks/x") == address
    links = {
        link["text"]: link.get("href") for link in page.elsewhere("notebooks/x", repository, "a/b")
    }
    assert links["Run on Binder"] == address
    assert links["Repository"] == repository


def test_without_a_repository_nothing_leads_outside():
    for name in ("notebooks/x", "book/pages/quiz"):
        hrefs = [link.get("href", "") for link in page.elsewhere(name, None, "main")]
        assert not any("//" in href for href in hrefs)
    assert page.elsewhere("book/pages/quiz", None, "main")


# ---------------------------------------------------------------- the whole


def test_the_address_book_lists_every_page_that_is_read(tmp_path):
    names = ["index.html", "a/b.html", "search.html"]
    finish.address_book(tmp_path, names, Book("A book", "About it.", "https://b.org/x/"))
    sitemap = (tmp_path / "sitemap.xml").read_text(encoding="utf-8")
    assert re.findall("<loc>(.*?)</loc>", sitemap) == ["https://b.org/x/a/b.html"]
    assert "Sitemap: https://b.org/x/sitemap.xml" in (tmp_path / "robots.txt").read_text()
    finish.address_book(tmp_path, names, Book("A book", "About it.", None))
    assert list(tmp_path.iterdir()) == []


def test_what_no_page_loads_is_removed(tmp_path):
    static = tmp_path / "_static"
    kept = ["book-0123abcd.css", "math.woff2", "favicon.svg", "cards/a.png"]
    for name in [*kept, "basic.css", "jquery.js", "vendor/font.woff2"]:
        (static / name).parent.mkdir(parents=True, exist_ok=True)
        (static / name).write_text("x", encoding="utf-8")
    finish.clear(tmp_path)
    left = [p.relative_to(static).as_posix() for p in static.rglob("*") if p.is_file()]
    assert sorted(left) == sorted(kept)
    assert not (static / "vendor").exists()


def test_the_policy_allows_the_two_scripts_in_a_page_and_nothing_unsafe():
    policy = page.policy()
    assert policy.startswith("default-src 'none'")
    assert policy.count("'sha256-") == 2
    assert "unsafe" not in policy
