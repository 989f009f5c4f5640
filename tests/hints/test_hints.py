r"""Protects the hints: a formula in an exercise's text or in an answer is evaluated as it stands.

Each is compared with the exercise's reference, with torch, or with a loop; each small edit of it
must be refused. A formula that nobody has an entry for fails, so no new hint slips in.
"""

import importlib

import pytest

from book.chapters import chapters, topic
from book.formulas.mutants import mutants, verdict
from book.formulas.reading import FormulaError
from book.formulas.relations import RelationError, holds

from .texts import Code, Formula, LeftOut, more_than_a_symbol, stands, texts, wanted

CHAPTERS = {topic(path): path for path in chapters()}
ENTRIES = {name: importlib.import_module(f".{name}", __package__).ENTRIES for name in CHAPTERS}
EVERY_CHAPTER = pytest.mark.parametrize("name", CHAPTERS)


def of_kind(kind):
    """The entries of one kind, as parameters of a test."""
    return [
        pytest.param(key, entry, id=f"{name}: {key[0]}: {key[1]}")
        for name, entries in ENTRIES.items()
        for key, entry in entries.items()
        if isinstance(entry, kind)
    ]


# ---------------------------------------------------------------- none is left out


def missing(found, entries):
    """The formulas of texts, label -> text, that have no entry."""
    covered = {(key[0], latex) for key in entries for latex in key[1:]}
    return [
        f"{label}: {latex}"
        for label, text in found.items()
        for latex in sorted(wanted(label, text))
        if (label, latex) not in covered
    ]


def gone(found, entries):
    """The formulas and words of entries that do not stand in their texts any more."""
    return [
        f"{key[0]}: {said}"
        for key, entry in entries.items()
        for text in [found.get(key[0], "")]
        for said in (
            *(set(key[1:]) - set().union(*stands(text))),
            *(words for words in getattr(entry, "says", ()) if words not in text),
        )
    ]


@EVERY_CHAPTER
def test_every_formula_of_an_exercise_or_an_answer_is_evaluated(name):
    assert missing(texts(CHAPTERS[name]), ENTRIES[name]) == []


@EVERY_CHAPTER
def test_every_formula_that_is_evaluated_is_printed(name):
    assert gone(texts(CHAPTERS[name]), ENTRIES[name]) == []


# ---------------------------------------------------------------- they hold


@pytest.mark.parametrize(("key", "entry"), of_kind(Formula))
def test_the_formula_holds_as_it_is_printed(key, entry):
    assert holds(entry.latex(key), entry.bound()).numbers >= 1


@pytest.mark.parametrize(("key", "entry"), of_kind(Formula))
def test_every_small_edit_of_the_formula_is_refused(key, entry):
    latex, call = entry.latex(key), entry.bound()
    made = {m.latex: m for m in mutants(latex, call)}
    survived = [m for m in made.values() if verdict(latex, m, call) == "survived"]
    assert {m.latex for m in survived} == set(entry.true)


@pytest.mark.parametrize(("key", "entry"), [one for one in of_kind(Formula) if one.values[1].swap])
def test_what_is_replaced_in_a_formula_is_wrong_or_cannot_be_read(key, entry):
    with pytest.raises((RelationError, FormulaError)):
        holds(entry.latex(key, swapped=False), entry.bound())


@pytest.mark.parametrize(("key", "entry"), of_kind(Code))
def test_the_expression_has_the_value_that_the_reference_gives(key, entry):
    [source] = key[1:]
    assert entry.holds(source)


@pytest.mark.parametrize(("key", "entry"), of_kind(Code))
def test_another_expression_has_another_value(key, entry):
    assert entry.wrong
    assert [source for source in entry.wrong if entry.holds(source)] == []


@pytest.mark.parametrize(("key", "entry"), of_kind(LeftOut))
def test_what_is_left_out_says_why(key, entry):
    assert len(entry.reason.split()) >= 4


# ---------------------------------------------------------------- planted

HINT = r"""```{dropdown} Hint 1
The sum of $p$ is 1, so $\sum_jp_j=1$. See {eq}`eq-softmax`, and `x.sum(-1)`; $p_j$ is a weight.
```"""


def test_a_formula_without_an_entry_is_found():
    assert missing({"ex-new": HINT}, {}) == [r"ex-new: \sum_jp_j=1", "ex-new: x.sum(-1)"]
    assert missing({"What is it?": HINT}, {}) == [r"What is it?: \sum_jp_j=1"]
    entries = {("ex-new", r"\sum_jp_j=1"): LeftOut("a test"), ("ex-new", "x.sum(-1)"): LeftOut("")}
    assert missing({"ex-new": HINT}, entries) == []
    assert missing({"ex-other": HINT}, entries) != []


def test_a_formula_that_was_changed_in_the_text_is_found():
    entries = {("ex-new", r"\sum_jp_j=2"): Formula(dict, says=("is 1, so", "is 2, so"))}
    assert gone({"ex-new": HINT}, entries) == [r"ex-new: \sum_jp_j=2", "ex-new: is 2, so"]
    # Of the chapters: every text without its dollar signs has lost what is evaluated.
    for name, path in CHAPTERS.items():
        bare = {label: text.replace("$", "") for label, text in texts(path).items()}
        printed = [key for key, entry in ENTRIES[name].items() if isinstance(entry, Formula)]
        assert len({found.split(": ")[0] for found in gone(bare, ENTRIES[name])}) >= len(
            {key[0] for key in printed}
        )


@pytest.mark.parametrize(
    ("latex", "more"),
    [
        ("x", False), (r"\hat x_{ij}", False), (r"W_Q^{(h)}", False), (r"d_\text{head}", False),
        ("k_j^R", False), ("x^2", True), ("2k", True), ("dA", True), (r"-\infty", True),
        (r"k\ne c", True), ("p_{c+1}(1-p)", True), (r"h\,//\,G", True),
    ],
)  # fmt: skip
def test_a_name_with_indices_states_nothing_and_all_else_wants_an_entry(latex, more):
    assert more_than_a_symbol(latex) is more


def test_few_formulas_are_left_out():
    entries = [entry for of_topic in ENTRIES.values() for entry in of_topic.values()]
    assert sum(isinstance(entry, LeftOut) for entry in entries) < len(entries) / 6
