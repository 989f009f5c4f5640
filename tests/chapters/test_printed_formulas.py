"""Protects the claim that printed formulas are evaluated: how many are, and why others are not."""

import ast

import pytest

from book.chapters import chapters, read, topic
from book.checked_formulas import readings
from book.data import read_yaml
from book.formulas.mutants import SURVIVORS
from book.formulas.printed import formula
from book.formulas.reading import read as parse
from book.formulas.relations import statements
from book.lint import displayed, labels, witness_calls

EVERY_CHAPTER = pytest.mark.parametrize("path", chapters(), ids=lambda path: path.stem)


@EVERY_CHAPTER
def test_every_displayed_formula_can_be_read_or_says_why_not(path):
    notebook = read(path)
    said = readings(notebook)
    for label, latex in displayed(notebook):
        assert label in said, f"{label} has no witness"
        if not said[label]:
            parse(latex)
            continue
        assert said[label] != "no reason is given", f"{label}: say in unread= why it is not read"
        assert len(said[label].split()) >= 4, f"{label}: {said[label]!r} is no reason"


def test_nine_of_ten_formulas_are_evaluated_as_printed():
    said = {label: why for path in chapters() for label, why in readings(read(path)).items()}
    assert set(said) == {label for path in chapters() for label in labels(read(path))}
    kept = [label for label, why in said.items() if not why]
    assert len(said) >= 349
    assert len(kept) >= 0.9 * len(said)


@EVERY_CHAPTER
def test_the_statements_of_a_formula_are_checked_all_of_them(path):
    """A call with `only` leaves statements to another call of the same label."""
    notebook = read(path)
    parts: dict[str, set[int]] = {}
    whole = set()
    for label, node in witness_calls(notebook):
        only = [k.value for k in node.keywords if k.arg == "only"]
        if only:
            parts.setdefault(label, set()).update(ast.literal_eval(only[0]))
        else:
            whole.add(label)
    for label, numbers in parts.items():
        if label not in whole:
            latex, _ = formula(label)
            assert numbers == {c.number for c in statements(parse(latex))}, label


def test_the_listed_survivors_belong_to_formulas_and_say_why():
    known = {label for path in chapters() for label in labels(read(path))}
    rows = read_yaml(SURVIVORS)
    assert len({(row["label"], row["mutant"]) for row in rows}) == len(rows)
    for row in rows:
        assert row["label"] in known, row["label"]
        assert len(row["reason"].split()) >= 4, row
        assert parse(row["mutant"])


def test_a_formula_belongs_to_its_chapter():
    for path in chapters():
        for label in labels(read(path)):
            assert formula(label)[1] == topic(path)
