"""Protects the weave: the library holds the cells tagged `export`, all and nothing else."""

import runpy

import pytest
from making import code, saved, text

from book import weave
from book.chapters import NOTEBOOKS
from book.weave import PACKAGE, stale

NAME = "42_answer.ipynb"


def chapter(folder, *more, name=NAME):
    return saved(
        folder,
        name,
        text("# What is the answer?\n\nIntroduction."),
        code("import math\nfrom pathlib import Path\n\nLIMIT = 3", "export"),
        text("## Build\n\n### Half of it"),
        code("not_in_the_library = 1"),
        code(
            'def half(x):\n    """Half."""\n    return x / 2\n\n\ndef _helper():\n    return 0',
            "export",
        ),
        text("## Parity"),
        code("assert half(2) == 1"),
        code('witness("eq-half", half(2), 1)', "witness", "hide-input"),
        code("class Answer:\n    value = 42", "export"),
        *more,
    )


def test_the_module_holds_the_export_cells_in_order_and_nothing_else(tmp_path):
    module = weave.weave(chapter(tmp_path))
    order = ["import math", "LIMIT = 3", "def half(x)", "def _helper()", "class Answer"]
    places = [module.index(piece) for piece in order]
    assert places == sorted(places)
    assert all(module.count(piece) == 1 for piece in order)
    assert "not_in_the_library" not in module
    assert "assert half" not in module
    assert "witness" not in module


def test_the_module_runs_and_exports_its_public_names_in_the_order_of_the_chapter(tmp_path):
    (tmp_path / "answer.py").write_text(weave.weave(chapter(tmp_path)), encoding="utf-8")
    module = runpy.run_path(str(tmp_path / "answer.py"))
    assert module["__all__"] == ["LIMIT", "half", "Answer"]
    assert module["half"](3) == 1.5


def test_a_constant_with_a_type_is_public_too(tmp_path):
    module = weave.weave(chapter(tmp_path, code("EPS: float = 1e-5", "export")))
    assert '"EPS"' in module


def test_the_header_says_what_it_is_and_where_to_edit(tmp_path):
    module = weave.weave(chapter(tmp_path))
    assert module.startswith('"""What is the answer?')
    assert f"notebooks/{NAME}" in module
    assert "Do not edit" in module


def test_each_definition_links_back_to_its_section(tmp_path):
    lines = weave.weave(chapter(tmp_path)).splitlines()
    assert lines[lines.index("def half(x):") - 1] == f"# From notebooks/{NAME}#half-of-it"
    assert lines[lines.index("class Answer:") - 1] == f"# From notebooks/{NAME}#parity"


def test_a_comment_in_a_code_block_is_not_a_section(tmp_path):
    more = text("```python\n# not a heading\n```"), code("def late():\n    return 1", "export")
    lines = weave.weave(chapter(tmp_path, *more)).splitlines()
    assert lines[lines.index("def late():") - 1] == f"# From notebooks/{NAME}#parity"


def test_a_chapter_without_export_cells_gives_no_module(tmp_path):
    path = saved(tmp_path, NAME, text("# Only talk"), code("x = 1"))
    assert weave.weave(path) is None


def test_the_package_lists_its_modules_by_title(tmp_path):
    listing = weave.package({"answer": weave.weave(chapter(tmp_path))})
    assert "`answer`: What is the answer?" in listing


@pytest.fixture
def woven(tmp_path):
    """A notebook folder and a library folder that agree."""
    chapter(tmp_path / "notebooks")
    target = tmp_path / "library"
    target.mkdir()
    assert stale(tmp_path / "notebooks", target, write=True) == ["__init__.py", "answer.py"]
    return tmp_path / "notebooks", target


def test_what_was_just_woven_is_not_stale(woven):
    assert stale(*woven) == []


def test_an_edited_module_is_stale_and_the_check_writes_nothing(woven):
    module = woven[1] / "answer.py"
    edited = module.read_text(encoding="utf-8").replace("x / 2", "x * 2")
    module.write_text(edited, encoding="utf-8")
    assert stale(*woven) == ["answer.py"]
    assert module.read_text(encoding="utf-8") == edited


def test_an_edited_notebook_makes_its_module_stale_until_it_is_woven_again(woven):
    chapter(woven[0], code("def more():\n    return 1", "export"))
    assert stale(*woven) == ["answer.py"]
    stale(*woven, write=True)
    assert stale(*woven) == []
    assert "def more():" in (woven[1] / "answer.py").read_text(encoding="utf-8")


def test_a_missing_module_is_stale(woven):
    (woven[1] / "answer.py").unlink()
    assert stale(*woven) == ["answer.py"]


def test_a_new_chapter_makes_the_package_stale(woven):
    chapter(woven[0], name="43_question.ipynb")
    assert stale(*woven) == ["__init__.py", "question.py"]


def test_a_module_without_a_notebook_is_an_orphan_and_weaving_removes_it(woven):
    orphan = woven[1] / "left_over.py"
    orphan.write_text("x = 1\n", encoding="utf-8")
    assert stale(*woven) == ["left_over.py"]
    stale(*woven, write=True)
    assert not orphan.exists()
    assert (woven[1] / "answer.py").exists()


@pytest.mark.parametrize(
    ("arguments", "found", "status"),
    [(["--check"], ["a.py"], 1), (["--check"], [], 0), ([], ["a.py"], 0)],
)
def test_the_command_fails_only_when_a_check_finds_something(
    monkeypatch, capsys, arguments, found, status
):
    calls = []

    def spy(**options):
        calls.append(options)
        return found

    monkeypatch.setattr(weave, "stale", spy)
    assert weave.main(arguments) == status
    assert calls == [{"write": not arguments}]
    out = capsys.readouterr().out
    assert all(name in out for name in found)
    assert ("differs" in out) == (status == 1)


def test_by_default_the_book_itself_is_compared():
    assert stale.__defaults__ == (NOTEBOOKS, PACKAGE)
    assert (PACKAGE / "__init__.py").exists()
