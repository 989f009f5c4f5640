"""Protects what stands beside the text: notes, pictures that stay in view, and wide ones."""

import base64
import io
import subprocess
import sys

import nbformat
import pytest
from PIL import Image

from book.chapters import ROOT

CONF = """
from book import theme
from book.theme.finish import Book

extensions = ["sphinx_external_toc", "myst_nb", "book.theme", "book.folding"]
nb_execution_mode = "off"
html_theme = "transformer_parts"
tp_book = Book("A book", "About it.", None)


def setup(app):
    app.connect("build-finished", lambda app, e: theme.finished(app, tp_book), priority=900)
"""
TEXT = "Every token asks the others for what it needs. " * 40
NOTE = "```{margin} Why not one?\nBecause it is *short*.\n```"
EXERCISE = f"""```{{raw}} html
<div class="exercise admonition"><section><p>{TEXT}</p></section></div>
```"""
BOX = "(e) => { const r = e.getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom]; }"


def picture(tag, width):
    data = io.BytesIO()
    Image.new("RGB", (width, 200)).save(data, "PNG")
    shown = {"image/png": base64.b64encode(data.getvalue()).decode()}
    cell = nbformat.v4.new_code_cell("1", metadata={"tags": [tag, "hide-input"]})
    cell.outputs = [nbformat.v4.new_output("display_data", data=shown)]
    return cell


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A book of one chapter with all that stands beside a text; its address."""
    folder = tmp_path_factory.mktemp("small")
    say = nbformat.v4.new_markdown_cell
    cells = [say("# A page\n\nA promise."), say(f"## Notes\n\n{TEXT}\n\n{NOTE}\n\n{TEXT}")]
    cells += [say("## Kept"), picture("keep", 340), say("\n\n".join([TEXT] * 4))]
    cells += [say("## Wide"), picture("wide", 1000), say("\n\n".join([TEXT] * 6))]
    cells += [say(f"## An exercise\n\n{EXERCISE}")]
    kernel = {"language_info": {"name": "python", "pygments_lexer": "ipython3"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), folder / "03_x.ipynb")
    (folder / "first.md").write_text("# First\n", encoding="utf-8")
    toc = "format: jb-book\nroot: first\nparts:\n- caption: P\n  chapters:\n  - file: 03_x\n"
    (folder / "_toc.yml").write_text(toc, encoding="utf-8")
    (folder / "conf.py").write_text(CONF, encoding="utf-8")
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", str(folder), str(folder / "out")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return (folder / "out/03_x.html").as_uri()


@pytest.fixture
def page(browser, small):
    tabs = []

    def open_at(width, **options):
        tab = browser.new_page(viewport={"width": width, "height": 800}, **options)
        tab.goto(small)
        tab.wait_for_timeout(200)
        tabs.append(tab)
        return tab

    yield open_at
    for tab in tabs:
        tab.close()


@pytest.mark.parametrize("scripts", [True, False], ids=["with script", "without"])
@pytest.mark.parametrize("width", [1240, 1500, 1920])
def test_on_a_wide_screen_a_note_stands_beside_the_text(page, width, scripts):
    tab = page(width, java_script_enabled=scripts)
    note = tab.locator(".tp-margin")
    text = tab.locator("article section section p").first
    note.scroll_into_view_if_needed()
    assert note.get_by_text("Because it is").is_visible()
    left, _, right, _ = note.evaluate(BOX)
    assert left > text.evaluate(BOX)[2] + 16
    assert right <= width
    assert right - left > 150
    before, after = tab.locator("article section section p:not(details p)").all()[:2]
    assert before.evaluate(BOX)[2] == after.evaluate(BOX)[2], "the note takes no room of the text"


def test_on_a_phone_a_note_is_one_line_that_opens(page):
    tab = page(390)
    note = tab.locator(".tp-margin")
    words = note.get_by_text("Because it is")
    assert not words.is_visible()
    note.locator("summary").press("Enter")
    assert words.is_visible()
    left, _, right, _ = note.evaluate(BOX)
    assert left >= 0
    assert right <= 390


@pytest.mark.parametrize("width", [390, 1240, 1920])
def test_the_text_of_an_exercise_stays_in_its_box_beside_which_notes_stand(page, width):
    tab = page(width)
    box = tab.locator(".exercise")
    box.scroll_into_view_if_needed()
    left, _, right, _ = box.locator("p").evaluate(BOX)
    around = box.evaluate(BOX)
    assert around[0] < left
    assert right < around[2]


def test_a_kept_picture_stays_in_view_while_its_section_is_read(page):
    tab = page(1500)
    kept = tab.locator(".tag_keep")
    section = tab.locator("#kept")
    top = section.evaluate("(e) => e.getBoundingClientRect().top + scrollY")
    tab.evaluate(f"scrollTo(0, {top} + 700)")
    tab.wait_for_timeout(200)
    left, above, right, below = kept.evaluate(BOX)
    assert 40 < above < 120, "it has not stayed"
    assert below < 800
    assert left > section.locator("> p").first.evaluate(BOX)[2]
    assert right <= 1500
    bottom = section.evaluate("(e) => e.getBoundingClientRect().bottom + scrollY")
    tab.evaluate(f"scrollTo(0, {bottom} + 300)")
    tab.wait_for_timeout(200)
    assert kept.evaluate(BOX)[3] < 0, "it has stayed too long"
    tab = page(390)
    assert tab.locator(".tag_keep").evaluate("(e) => getComputedStyle(e).position") == "static"


def test_a_wide_picture_is_wider_than_the_text_and_never_than_the_page(page):
    for width in (390, 1500):
        tab = page(width)
        image = tab.locator(".tag_wide img")
        image.scroll_into_view_if_needed()
        text = tab.locator("#wide > p").first.evaluate(BOX)
        out = tab.locator(".tag_wide .cell_output").evaluate(BOX)
        assert out[2] <= width
        assert (out[2] > text[2] + 100) == (width == 1500)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
