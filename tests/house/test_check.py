"""Protects `make check`: every test file has an owner, and a chapter runs its own cases."""

from types import SimpleNamespace

import pytest

from book import check, errata
from book.chapters import NOTEBOOKS, chapters, topic
from book.check import HOUSE, SHARED, WHOLE, Case, Only, files_of, files_of_tests, main, owner

TOPICS = [topic(path) for path in chapters()]
# Topics of which something wrong is often written.
MISTAKEN = {one.chapter.partition("_")[2] for one in errata.load()}
# Shared files that need not have a case of every chapter.
PARTIAL = (
    "chapters/test_teaching.py",
    "parts/test_edited_answers.py",
    "parts/test_oracles.py",
    "parts/test_questions.py",
    "parts/test_two_mistakes.py",
)
NORMALIZATION = NOTEBOOKS / "08_normalization.ipynb"


def test_every_test_file_belongs_to_a_topic_or_to_the_house():
    files = files_of_tests()
    assert [file for file in files if owner(file, TOPICS) is None] == []
    assert {*SHARED, *WHOLE} <= set(files)
    assert {file.partition("/")[0] for file in files} >= set(HOUSE)


def test_a_file_that_is_called_after_nothing_is_found():
    assert owner("parts/test_softmaxes.py", TOPICS) is None
    assert owner("elsewhere/test_softmax.py", TOPICS) is None
    assert owner("parts/test_softmax.py", TOPICS) == "softmax"
    assert owner("parts/test_decoder_hugging_face.py", TOPICS) == "decoder"
    assert owner("parts/test_long_context_more.py", ["long", *TOPICS]) == "long_context"
    assert owner("house/test_softmax.py", TOPICS) == "house"


@pytest.mark.parametrize("name", TOPICS)
def test_every_topic_has_tests_of_its_parts_its_explorers_and_its_misconceptions(name):
    folders = {file.split("/")[1] for file in files_of(name) if file.endswith(f"test_{name}.py")}
    assert folders >= {"parts", "explorers"}
    assert "errata" in folders or name not in MISTAKEN


@pytest.fixture(scope="module")
def shared(collected):
    """The ids of all tests in the shared files."""
    return [one for one in collected if one.startswith(tuple(f"tests/{file}::" for file in SHARED))]


def test_each_case_of_the_shared_files_belongs_to_one_chapter(shared):
    cases = [Case(path) for path in chapters()]
    owners = {test: [one.topic for one in cases if one.concerns(test)] for test in shared}
    for file in SHARED:
        found = {one for test, all_ in owners.items() if f"tests/{file}" in test for one in all_}
        if file in PARTIAL:
            assert found <= set(TOPICS)
        else:
            assert found == {*TOPICS}, file
    whole = ("test_checkers.py", "test_findings.py", "test_oracles.py", "test_hints.py")
    named = [test for test in shared if "[" in test and test.split("::")[0].endswith(whole)]
    assert len(named) > 1000
    alone = [test for test in named if len(owners[test]) == 1]
    assert len(alone) > 0.9 * len(named)
    assert [test for test in named if len(owners[test]) > 1] == []


def test_only_the_cases_of_the_chapter_run():
    tests = {
        "tests/parts/test_normalization.py::test_a": True,
        "tests/parts/test_softmax.py::test_a": False,
        "tests/parts/test_checkers.py::test_b[normalization.rms_norm-eps outside]": True,
        "tests/parts/test_checkers.py::test_b[softmax.jacobian]": False,
        "tests/parts/test_oracles.py::test_c[08 layer_norm - torch - float64]": True,
        "tests/parts/test_oracles.py::test_c[09 residual - 08 - float64]": False,
        "tests/chapters/test_findings.py::test_d[08_normalization-finding-x]": True,
        "tests/hints/test_hints.py::test_e[normalization: ex-rms-norm: x]": True,
        "tests/hints/test_hints.py::test_e[normalizations: x]": False,
        "tests/chapters/test_exercises_texts.py::test_f[ex-rms-norm]": True,
        "tests/errata/test_errata.py::test_g[E-58]": True,
        "tests/errata/test_errata.py::test_g[E-12]": False,
        "tests/chapters/test_chapters.py::test_the_whole": False,
    }
    items = [SimpleNamespace(nodeid=nodeid) for nodeid in tests]
    dropped = []
    hook = SimpleNamespace(pytest_deselected=lambda items: dropped.extend(items))
    Only(Case(NORMALIZATION)).pytest_collection_modifyitems(SimpleNamespace(hook=hook), items)
    assert [item.nodeid for item in items] == [nodeid for nodeid, mine in tests.items() if mine]
    assert len(items) + len(dropped) == len(tests)


def test_the_command_says_which_step_is_off(monkeypatch, capsys):
    steps = {"one": lambda path: (True, "3 passed"), "two": lambda path: (False, "this is wrong")}
    monkeypatch.setattr(check, "STEPS", steps)
    assert main([str(NORMALIZATION)]) == 1
    told = capsys.readouterr().out
    assert "ok   one" in told
    assert "OFF  two" in told
    assert "this is wrong" in told
    monkeypatch.setattr(check, "STEPS", {"one": steps["one"]})
    assert main([str(NORMALIZATION)]) == 0
    with pytest.raises(SystemExit):
        main(["notebooks/no_chapter.ipynb"])


def test_what_is_off_in_a_chapter_is_found(monkeypatch):
    good, told = check._static(NORMALIZATION)
    assert good, told
    monkeypatch.setattr(check.weave, "stale", lambda: ["normalization.py"])
    assert check._static(NORMALIZATION) == (
        False, "transformer_parts/normalization.py differs from its notebook"
    )  # fmt: skip
