"""The quiz: balanced, tied to the misconceptions, and strict about its file."""

import pytest
import yaml

from book import errata, quiz


def test_it_has_twenty_statements_half_of_them_true():
    statements = quiz.load()
    assert len(statements) == 20
    assert sum(one.answer for one in statements) == 10


def test_the_answers_follow_no_pattern_that_is_longer_than_four():
    answers = "".join("TF"[not one.answer] for one in quiz.load())
    assert "TTTTT" not in answers
    assert "FFFFF" not in answers


def test_each_is_drawn_from_a_misconception_of_its_own_that_there_is():
    drawn = [one.erratum for one in quiz.load()]
    assert len(set(drawn)) == len(drawn)
    assert set(drawn) <= {entry.id for entry in errata.load()}


def test_the_page_shows_each_statement_with_its_answer_in_a_fold_out():
    text = quiz.as_markdown()
    for number, one in enumerate(quiz.load(), 1):
        assert f"**{number}.** {one.statement}" in text
        assert f"**{one.answer}.** {one.why}" in text
    assert text.count("{dropdown} Answer") == 20
    assert text.count("tp-quiz tp-true") == 10


GOOD = {"id": "a-b", "statement": "S.", "answer": True, "why": "W.", "erratum": "E-01"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"answer": "yes"}, "a-b: field 'answer' must be a bool"),
        ({"why": ""}, "a-b: field 'why' must be a str"),
        ({"id": "A b"}, "field 'id' must be like"),
        ({"erratum": "01"}, "field 'erratum' must be like"),
        ({"more": 1}, "entry 1: the fields must be id, statement, answer, why, erratum"),
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
