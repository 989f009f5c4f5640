"""The misconceptions: every entry is well formed, tested or cited, and links to what exists."""

import ast
import json
import re
from pathlib import Path

import pytest
import yaml

from book.chapters import NOTEBOOKS, ROOT, chapters, read, slug, title
from book.errata import as_markdown, for_chapter, listed, load, write
from book.facts import LINK, shown
from book.facts import load as load_facts

from .evidence import Number, Report, literals, numbers, unsupported

ENTRIES = {e.id: e for e in load()}
BIBLIOGRAPHY = ROOT / "book/pages/references.bib"
PAGE = ROOT / "book/pages/misconceptions.md"
MODULES = [
    ast.parse(path.read_text(encoding="utf-8"))
    for path in sorted(Path(__file__).parent.glob("*.py"))
]
# The test functions of this folder that speak of one entry, by name.
FUNCTIONS = {
    node.name: node
    for module in MODULES
    for node in module.body
    if isinstance(node, ast.FunctionDef) and re.match(r"test_[ep]\d+_", node.name)
}
# The numbers that stand in each of them.
LITERALS = {
    name: literals(node, next(module for module in MODULES if node in module.body))
    for name, node in FUNCTIONS.items()
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
    found = re.findall(r"^#{2,3} +(.+?) *$", markdown(chapter), re.M)
    return {slug(heading) for heading in found}


def markdown(chapter):
    notebook = read(NOTEBOOKS / f"{chapter}.ipynb")
    return "\n\n".join(c.source for c in notebook.cells if c.cell_type == "markdown")


def test_ids_are_unique_and_sorted():
    ids = [entry.id for entry in load()]
    assert len(ids) > 30
    assert ids == sorted(set(ids), key=lambda i: (i[0], int(i[2:])))


@pytest.mark.parametrize("path", chapters(), ids=lambda path: path.stem)
def test_a_chapter_lists_what_a_reader_may_believe(path):
    assert listed(path) == for_chapter(path.stem), "run: python -m book.errata"
    assert for_chapter(path.stem).count("\n- ") >= 2


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


# ---------------------------------------------------------------- the numbers of the evidence


def takes_evidence(entry):
    """Whether its test computes printed numbers; then the fixture `evidence` compares them."""
    return any(argument.arg == "evidence" for argument in FUNCTIONS[entry.test].args.args)


@pytest.mark.parametrize("name", ENTRIES)
def test_a_number_of_the_evidence_is_in_the_test_or_is_a_fact(name):
    entry = ENTRIES[name]
    left = unsupported(entry.evidence, LITERALS[entry.test] if entry.test else [])
    if not entry.test:
        assert left == [], "link to the facts page; there is no test that could compute it"
    elif not takes_evidence(entry):
        assert left == [], f"neither a literal of {entry.test} nor computed for `evidence` there"
    else:
        assert left, f"{entry.test} has all numbers as literals and needs no `evidence`"


def test_a_fact_in_an_entry_is_one_of_the_facts():
    facts = load_facts()
    for entry in ENTRIES.values():
        for field in (entry.claim, entry.tempting, entry.right, entry.evidence):
            for link in LINK.finditer(" ".join(field.split())):
                assert link["text"] in shown(facts[link["id"]]), f"{entry.id}: {link[0]}"


def test_a_digit_changed_in_the_evidence_is_noticed():
    """Planted one by one. Only what turns into another number of the same test can pass."""
    passed, planted = [], 0
    for entry in ENTRIES.values():
        if not entry.test or takes_evidence(entry):
            continue
        for number in numbers(entry.evidence):
            # The last digit that is not part of an exponent.
            digits = re.match(r"[\d.,]*\d", number.text)[0]
            other = digits[:-1] + str((int(digits[-1]) + 1) % 10)
            harmed = number.text.replace(digits, other, 1)
            planted += 1
            if not unsupported(harmed, LITERALS[entry.test]):
                passed.append((entry.id, number.text, harmed))
    assert planted > 300
    assert len(passed) < 0.06 * planted, passed


@pytest.mark.parametrize(
    ("text", "known", "left"),
    [
        ("It is 0.8415; with the other, −0.8415.", [0.8415], []),
        ("It is 0.8415.", [0.8416], ["0.8415"]),
        ("It is 0.842.", [0.8415, 0.8416], []),
        ("It is 0.842.", [0.84], ["0.842"]),
        ("It is 262,656.", [262_656], []),
        ("It is 262,656.", [262_655], ["262,656"]),
        ("6,738,415,617 parameters", [6_738_415_616], ["6,738,415,617"]),
        ("4.7e-4 at 2.7 and $10^{-14}$", [4.71e-4, 2.7, 1e-14], []),
        ("4.7e-4 at 2.7 and $10^{-14}$", [4.6e-4, 2.8, 1e-13], ["4.7e-4", "2.7", "10^{-14}"]),
        ("12.5 % and 73%, within 15% of it", [0.125, 73, 1.15], []),
        ("12.5 % and 73%, within 15% of it", [0.13, 72, 1.14], ["12.5 %", "73%", "15%"]),
        ("below 0.7", [0.66], ["0.7"]),
        ("(0.2689, 0.7311), 16 times, 5 of 8", [0.2689, 0.7311, 16], []),
        ("a pair (1,0) of 4096 at $2\\pi\\cdot9647$", [4096], ["9647"]),
        # No number of the evidence: code, links, citations, versions, names, places.
        ("`softmax(1000)` [1.997](facts.md#a) torch 2.13, section 4.2, LLaMA-70B, E-13", [], []),
        ("float16 and Qwen2.5-7B and DeepSeek 67B, $x_{12}$", [], []),
    ],
)
def test_numbers_are_read_as_they_are_printed(text, known, left):
    assert unsupported(text, known) == left


def test_what_a_test_computes_has_to_be_printed_and_what_is_printed_computed():
    test = ast.parse("LIMIT = 64\ndef test_e07_it(evidence):\n    assert x == 0.75 < LIMIT")
    function = test.body[1]
    report = Report("E-07", "It is 0.75 of 64, that is, 341.3, about 2e-5.")
    report(341.333, 1.6e-5)
    report.finish(function, test)
    with pytest.raises(AssertionError, match=r"341.4 was computed; printed are \['0.75', '64'"):
        report(341.4)
    with pytest.raises(AssertionError, match=r"neither computed nor in the test: \['64'\]"):
        report.finish(function)
    fresh = Report("E-07", report.text)
    with pytest.raises(AssertionError, match="nothing was handed to `evidence`"):
        fresh.finish(function, test)
    fresh(341.333)
    with pytest.raises(AssertionError, match=r"\['2e-5'\]"):
        fresh.finish(function, test)


def test_one_digit_is_a_rounding_of_what_was_computed_only():
    number = Number("0.7", 0.7, 0.1)
    assert not number.says(0.66)
    assert number.says(0.66, computed=True)
    assert not number.says(0.64, computed=True)


def test_the_page_has_a_place_for_the_entries_and_a_heading_for_each():
    assert PAGE.read_text(encoding="utf-8").count("<!-- errata -->") == 1
    page = as_markdown()
    for entry in ENTRIES.values():
        assert f"\n\n**{entry.title}** ({entry.severity})\n\n" in page
    page = page.splitlines()
    chapters = sorted({e.chapter for e in ENTRIES.values()})
    assert [line[:5] for line in page if line.startswith("## ")] == [
        f"## {c[:2]}" for c in chapters
    ]
    assert sorted(line[4:] for line in page if line.startswith("### ")) == sorted(ENTRIES)
    assert "### E-58" in page
    place = ": Where ε goes](../../notebooks/08_normalization.ipynb#where-ε-goes)"
    assert place in "".join(page)


GOOD = {
    "id": "E-07",
    "severity": "wrong",
    "section": "what-it-costs",
    "title": "t",
    "belief": "b.",
    "claim": "c",
    "tempting": "m",
    "right": "r, see {cite:t}`b2020`",
    "evidence": "e",
    "test": "test_e07_it",
    "source": ["a2019, section 2"],
    "exercise": None,
}


def written(folder, *entries):
    path = folder / "08_normalization.yml"
    path.write_text(yaml.safe_dump(list(entries)), encoding="utf-8")
    return folder


def test_a_good_entry_is_read_and_rendered(tmp_path):
    slip = {**GOOD, "id": "P-1", "test": None, "belief": None}
    folder = written(tmp_path, GOOD, slip)
    first, second = load(folder)
    assert (first.slug, second.slug) == ("e-07", "p-1")
    assert first.citations == ("a2019", "b2020")
    assert second.test is None
    opening = "::::{container} tp-erratum tp-ch-08 tp-sev-wrong"
    expected = f"## {title('08_normalization')}\n\n### E-07\n\n{opening}\n\n**t** (wrong)\n\n"
    assert as_markdown(folder).startswith(expected)
    assert "*Source:* {cite:t}`a2019`, section 2." in as_markdown(folder)
    # A chapter lists what may be believed, not the slip of a paper; others may list it too.
    [line] = for_chapter("08_normalization", folder).splitlines()[2:]
    assert line == "- *b.* t: [E-07](../book/pages/misconceptions.md#e-07)."
    assert line not in for_chapter("09_residual", folder)
    written(tmp_path, {**GOOD, "also": ["09_residual"]})
    assert line in for_chapter("09_residual", folder)


def test_what_readers_may_believe_comes_before_slips(tmp_path):
    slip = {**GOOD, "id": "E-06", "test": "test_e06_it", "belief": None}
    page = as_markdown(written(tmp_path, slip, GOOD))
    assert page.index("### E-07") < page.index("### E-06")


def test_the_list_of_a_chapter_is_written_and_nothing_else_changes(tmp_path):
    path = tmp_path / "08_normalization.ipynb"
    path.write_bytes((NOTEBOOKS / path.name).read_bytes())
    assert not write(path)
    before = path.read_text(encoding="utf-8")
    line = for_chapter(path.stem).splitlines()[2]
    path.write_text(before.replace(json.dumps(line)[1:-1], "- Another line."), encoding="utf-8")
    assert listed(path) != for_chapter(path.stem)
    assert write(path)
    assert path.read_text(encoding="utf-8") == before


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", "E7"),
        ("severity", "grave"),
        ("chapter", "08_normalization"),
        ("belief", ""),
        ("title", "It ends."),
        ("section", "conclusion"),
        ("title", ""),
        ("claim", None),
        ("right", 3),
        ("test", "test_it"),
        ("test", "test_e08_of_another_entry"),
        ("source", "a2019"),
        ("exercise", "layer-norm"),
        ("also", ["88_residual"]),
        ("colour", "red"),
    ],
)
def test_a_bad_field_is_named(tmp_path, field, value):
    folder = written(tmp_path, {**GOOD, field: value})
    with pytest.raises(ValueError, match=rf"^E-?0?7: field '{field}'"):
        load(folder)


@pytest.mark.parametrize("field", GOOD)
def test_a_missing_field_is_named(tmp_path, field):
    folder = written(tmp_path, {k: v for k, v in GOOD.items() if k != field})
    with pytest.raises(ValueError, match=f"field '{field}' is missing"):
        load(folder)


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
        load(written(tmp_path, *entries))


def test_a_file_that_is_no_list_is_refused(tmp_path):
    (tmp_path / "08_normalization.yml").write_text("id: E-07\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"08_normalization.yml: expected a list"):
        load(tmp_path)


def test_a_file_of_no_chapter_is_refused(tmp_path):
    (tmp_path / "normalization.yml").write_text("[]\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"normalization.yml: the file must have the name of a"):
        load(tmp_path)
