"""The quiz: by chapter, balanced, strict about its file; its answers are computed."""

import pytest
import torch
import yaml
from quiz_truths import TRUTHS

from book import errata, quiz
from book.chapters import chapters, headings

STATEMENTS = {one.id: one for one in quiz.load()}


@pytest.fixture
def _float64():
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.mark.usefixtures("_float64")
@pytest.mark.parametrize("name", TRUTHS)
def test_the_answer_is_what_is_computed(name):
    assert TRUTHS[name]() is STATEMENTS[name].answer


def test_what_is_not_computed_has_a_source():
    entries = {entry.id: entry for entry in errata.load()}
    rest = [STATEMENTS[name] for name in STATEMENTS.keys() - TRUTHS.keys()]
    assert [one.id for one in rest if not one.erratum or not entries[one.erratum].source] == []
    assert len(rest) <= 3


def test_it_has_seventy_three_statements_in_the_order_of_the_chapters_about_half_of_them_true():
    assert len(STATEMENTS) == 73
    assert sum(one.answer for one in STATEMENTS.values()) == 36
    graded = [one for one in STATEMENTS.values() if one.graded]
    assert len(graded) == 20
    assert sum(one.answer for one in graded) == 10
    order = [one.chapter for one in STATEMENTS.values()]
    assert order == sorted(order)
    for path in chapters():
        assert order.count(path.stem) >= 2, f"{path.stem} has fewer than two statements"


def test_the_answers_follow_no_pattern_that_is_longer_than_four():
    answers = "".join("TF"[not one.answer] for one in STATEMENTS.values())
    assert "TTTTT" not in answers
    assert "FFFFF" not in answers


def test_each_leads_to_a_section_that_there_is_and_to_a_misconception_of_its_own():
    for one in STATEMENTS.values():
        assert one.place.partition("#")[2] in headings(one.chapter), one.id
    drawn = [one.erratum for one in STATEMENTS.values() if one.erratum]
    assert len(set(drawn)) == len(drawn)
    assert set(drawn) <= {entry.id for entry in errata.load()}


def test_the_page_shows_each_statement_with_its_answer_in_a_fold_out():
    text = quiz.as_markdown()
    for number, one in enumerate(STATEMENTS.values(), 1):
        assert f"**{number}.** {one.statement}" in text
        assert f"**{one.answer}.** {one.why}" in text
    assert text.count("{dropdown} Answer") == 73
    assert text.count("tp-quiz tp-true") == 36
    assert text.count("\n## ") + 1 == len(chapters())


GOOD = {
    "id": "a-b",
    "place": "08_normalization#the-formulas",
    "statement": "S.",
    "answer": True,
    "why": "W.",
    "erratum": "E-01",
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"answer": "yes"}, "a-b: field 'answer' must be a bool"),
        ({"why": ""}, "a-b: field 'why' must be a str"),
        ({"id": "A b"}, "field 'id' must be like"),
        ({"erratum": "01"}, "field 'erratum' must be like"),
        ({"graded": 1}, "a-b: field 'graded' must be a bool"),
        ({"place": "08_normalization"}, "field 'place' must be like"),
        ({"more": 1}, "entry 1: the fields must be answer, id, place, statement, why, and may be"),
    ],
)
def test_a_bad_entry_is_named(tmp_path, change, message):
    path = tmp_path / "quiz.yml"
    path.write_text(yaml.safe_dump([GOOD | change]), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        quiz.load(path)


def test_an_id_is_used_once(tmp_path):
    path = tmp_path / "quiz.yml"
    path.write_text(yaml.safe_dump([GOOD, GOOD]), encoding="utf-8")
    with pytest.raises(ValueError, match="a-b: field 'id' is used twice"):
        quiz.load(path)
