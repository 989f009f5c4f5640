"""The misconceptions: every entry is well formed, tested or cited, and links to what exists."""

import ast
import re
from pathlib import Path

import pytest
import yaml

from book.chapters import NOTEBOOKS, ROOT, read, slug
from book.errata import ERRATA, as_markdown, load

ENTRIES = {e.id: e for e in load()}
BIBLIOGRAPHY = ROOT / "book/pages/references.bib"
PAGE = ROOT / "book/pages/misconceptions.md"
# The test functions of this folder that speak of one entry, by name.
FUNCTIONS = {
    node.name: node
    for path in sorted(Path(__file__).parent.glob("*.py"))
    for node in ast.parse(path.read_text(encoding="utf-8")).body
    if isinstance(node, ast.FunctionDef) and re.match(r"test_[ep]\d+_", node.name)
}


def assertions(function):
    """How many things a test function asserts."""
    checks = 0
    for node in ast.walk(function):
        called = node.func if isinstance(node, ast.Call) else None
        checks += isinstance(node, ast.Assert)
        checks += isinstance(called, ast.Attribute) and called.attr in ("raises", "assert_close")
    return checks


def headings(chapter):
    """The anchors of the second-level headings of a chapter."""
    found = re.findall(r"^## +(.+?) *$", markdown(chapter), re.M)
    return {slug(heading) for heading in found}


def markdown(chapter):
    notebook = read(NOTEBOOKS / f"{chapter}.ipynb")
    return "\n\n".join(c.source for c in notebook.cells if c.cell_type == "markdown")


def test_ids_are_unique_and_sorted():
    ids = [item["id"] for item in yaml.safe_load(ERRATA.read_text(encoding="utf-8"))]
    assert len(ids) > 30
    assert ids == sorted(set(ids), key=lambda i: (i[0], int(i[2:])))


def test_every_named_test_exists_and_every_test_has_its_entry():
    named = [e.test for e in ENTRIES.values() if e.test]
    assert sorted(named) == sorted(FUNCTIONS)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_test_asserts_the_wrong_form_and_the_right_one(name):
    assert assertions(FUNCTIONS[name]) >= 2


@pytest.mark.parametrize(
    ("chapter", "section"), sorted({(e.chapter, e.section) for e in ENTRIES.values()})
)
def test_the_section_is_in_the_chapter(chapter, section):
    assert (NOTEBOOKS / f"{chapter}.ipynb").is_file()
    assert section in headings(chapter)


@pytest.mark.parametrize(
    ("chapter", "exercise"),
    sorted({(e.chapter, e.exercise) for e in ENTRIES.values() if e.exercise}),
)
def test_the_exercise_is_in_the_chapter(chapter, exercise):
    assert re.search(rf"^:label: {exercise}$", markdown(chapter), re.M)


def test_every_source_is_in_the_bibliography():
    keys = re.findall(r"^@\w+\{([^,\s]+),", BIBLIOGRAPHY.read_text(encoding="utf-8"), re.M)
    cited = {key for e in ENTRIES.values() for key in e.citations}
    assert cited
    assert cited <= set(keys)
    assert len(keys) == len(set(keys))


def test_what_cannot_be_run_is_cited():
    assert all(e.source for e in ENTRIES.values() if not e.test)


def test_the_page_has_a_place_for_the_entries_and_a_heading_for_each():
    assert PAGE.read_text(encoding="utf-8").count("<!-- errata -->") == 1
    page = as_markdown().splitlines()
    chapters = sorted({e.chapter for e in ENTRIES.values()})
    assert [line[:5] for line in page if line.startswith("## ")] == [
        f"## {c[:2]}" for c in chapters
    ]
    assert sorted(line[4:] for line in page if line.startswith("### ")) == sorted(ENTRIES)
    assert "### E-58" in page
    assert "[08 · Normalization: Build](../../notebooks/08_normalization.ipynb#build)" in "".join(
        page
    )


GOOD = {
    "id": "E-07",
    "severity": "wrong",
    "chapter": "08_normalization",
    "section": "build",
    "title": "t",
    "claim": "c",
    "tempting": "m",
    "right": "r, see {cite:t}`b2020`",
    "evidence": "e",
    "test": "test_e07_it",
    "source": ["a2019, section 2"],
    "exercise": None,
}


def written(path, *entries):
    path.write_text(yaml.safe_dump(list(entries)), encoding="utf-8")
    return path


def test_a_good_entry_is_read_and_rendered(tmp_path):
    path = written(tmp_path / "good.yml", GOOD, {**GOOD, "id": "P-1", "test": None})
    first, second = load(path)
    assert (first.slug, second.slug) == ("e-07", "p-1")
    assert first.citations == ("a2019", "b2020")
    assert second.test is None
    opening = "::::{container} tp-erratum tp-ch-08 tp-sev-wrong"
    expected = f"## 08 · Normalization\n\n### E-07\n\n{opening}\n\n**t** (wrong)\n\n"
    assert as_markdown(path).startswith(expected)
    assert "*Source:* {cite:t}`a2019`, section 2." in as_markdown(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", "E7"),
        ("severity", "grave"),
        ("chapter", "normalization"),
        ("section", "conclusion"),
        ("title", ""),
        ("claim", None),
        ("right", 3),
        ("test", "test_it"),
        ("test", "test_e08_of_another_entry"),
        ("source", "a2019"),
        ("exercise", "layer-norm"),
        ("colour", "red"),
    ],
)
def test_a_bad_field_is_named(tmp_path, field, value):
    path = written(tmp_path / "bad.yml", {**GOOD, field: value})
    with pytest.raises(ValueError, match=rf"^E-?0?7: field '{field}'"):
        load(path)


@pytest.mark.parametrize("field", GOOD)
def test_a_missing_field_is_named(tmp_path, field):
    path = written(tmp_path / "bad.yml", {k: v for k, v in GOOD.items() if k != field})
    with pytest.raises(ValueError, match=f"field '{field}' is missing"):
        load(path)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([GOOD, GOOD], "E-07: field 'id' is used twice"),
        ([{**GOOD, "id": "E-12", "test": None}, GOOD], "E-07: field 'id' must come before E-12"),
        ([{**GOOD, "test": None, "source": None}], "E-07: field 'test' or field 'source'"),
        (["text"], "entry 1: expected a mapping"),
    ],
)
def test_a_bad_list_is_refused(tmp_path, entries, message):
    with pytest.raises(ValueError, match=message):
        load(written(tmp_path / "bad.yml", *entries))


def test_a_file_that_is_no_list_is_refused(tmp_path):
    path = tmp_path / "bad.yml"
    path.write_text("id: E-07\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"bad.yml: expected a list"):
        load(path)
