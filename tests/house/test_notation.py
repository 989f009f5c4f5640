"""Protects the letters of the page on notation: it claims no more than the chapters keep."""

import re

import pytest
import yaml

from book import notation
from book.chapters import ROOT

TABLES = notation.load()
LETTERS = {letter.symbol: letter for table in TABLES for letter in table.rows}


@pytest.fixture(scope="module")
def found():
    return notation.printed()


def test_the_page_has_a_place_for_the_letters():
    page = (ROOT / "book/pages/notation.md").read_text(encoding="utf-8")
    assert page.count("<!-- letters -->") == page.count("<!-- symbols -->") == 1
    made = notation.as_markdown()
    assert made.count("\n| $") == len(LETTERS) > 35
    for table in TABLES:
        assert f"## {table.title}\n" in made
        assert table.after in made


@pytest.mark.parametrize("symbol", [s for s, letter in LETTERS.items() if letter.says])
def test_most_chapters_that_print_a_letter_mean_what_the_table_says(found, symbol):
    """A letter that means something else more often is said to belong to single chapters."""
    letter = LETTERS[symbol]
    everywhere = found[symbol]
    chapters = {chapter for chapter, _ in everywhere}
    other = {c for places in notation.elsewhere(letter, everywhere).values() for c in places}
    kept = {chapter for chapter, name in everywhere if re.search(letter.says, name)}
    assert kept
    few = len(kept) < len(other - kept)
    assert few == ("in the chapter" in letter.meaning), (sorted(kept), sorted(other))
    assert kept | other == chapters


def test_what_a_letter_stands_for_elsewhere_is_listed_by_chapters(found):
    assert notation.elsewhere(LETTERS["I"], found["I"]).keys() >= {
        "arithmetic intensity in operations per byte"
    }
    letter = notation.Letter("x", "input", "输入", says="input")
    pairs = [("01", "an input"), ("02", "loss"), ("03", "loss"), ("03", "loss"), ("04", "input")]
    assert notation.elsewhere(letter, pairs) == {"loss": ["02", "03"]}
    assert notation.elsewhere(notation.Letter("xW", "product", "乘积"), pairs) == {}


def test_another_meaning_in_a_chapter_would_show_on_the_page(found, monkeypatch):
    harmed = found | {"L": [*found["L"], ("03", "length of a lake")]}
    monkeypatch.setattr(notation, "printed", lambda: harmed)
    assert re.search(r"^\| \$L\$ .*length of a lake \(03\)", notation.as_markdown(), re.M)


GOOD = {"symbol": "x", "meaning": "input", "zh": "输入"}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([GOOD | {"shape": "(d)"}], "x: the fields must be"),
        ([{"symbol": "x", "zh": "输入"}], "x: the fields must be"),
        ([GOOD, GOOD], "stands in two rows: x"),
    ],
)
def test_a_bad_row_is_named(tmp_path, rows, message):
    path = tmp_path / "letters.yml"
    path.write_text(yaml.safe_dump([{"title": "t", "rows": rows}]), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        notation.load(path)
