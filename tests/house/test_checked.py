"""What was measured is shown, for these sources only; what was not measured is not."""

import json
import os
import re
import shutil
import subprocess
import sys

import nbformat
import pytest
from making import code, curve, printed, saved, shown, text

from book import checked, checked_formulas, measured
from book.chapters import NOTEBOOKS, ROOT, chapters, read
from book.lint import labels


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(measured.measured, "__defaults__", (tmp_path,))
    monkeypatch.setattr(measured.record, "__defaults__", (tmp_path,))
    return tmp_path


RUN = {
    "file": measured.fingerprint(NOTEBOOKS / "01_tensors.ipynb"), "complete": True, "failed": 0,
    "cells": 60, "equations": 16, "witnessed": 16, "figures": 3,
    "explorers": 2, "seconds": 12.3, "peak_mib": 400.4,
}  # fmt: skip


def test_a_measurement_comes_back(folder):
    measured.record("notebook", "01_tensors", RUN)
    assert measured.measured("notebook") == {"01_tensors": RUN}
    assert measured.measured("oracle") == {}


def test_one_of_other_sources_does_not(folder):
    measured.record("notebook", "01_tensors", RUN)
    [path] = (folder / "notebook").glob("*.json")
    old = json.loads(path.read_text()) | {"sources": "of last week"}
    path.write_text(json.dumps(old))
    assert measured.measured("notebook") == {}
    assert checked.tested_with("01_tensors") is None


def test_the_digest_changes_with_any_source_and_with_nothing_else(tmp_path):
    def fresh():
        return measured.digest.__wrapped__(tmp_path)

    for name in ("book/a.py", "notebooks/01_a.ipynb", "tests/b.py", "conftest.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    first = fresh()
    (tmp_path / "book/__pycache__").mkdir()
    (tmp_path / "book/__pycache__/a.pyc").write_text("x")
    (tmp_path / "README.md").write_text("x")
    assert fresh() == first
    (tmp_path / "notebooks/01_a.ipynb").write_text("y")
    changed = fresh()
    assert changed != first
    (tmp_path / "book/a.py").rename(tmp_path / "book/b.py")
    assert fresh() not in (first, changed)


def test_without_measurements_no_number_is_shown(folder):
    text = checked.as_markdown()
    # notebooks, oracles, transformations, checkers, versions
    assert text.count(checked.NOT_RUN) == 5
    # Which formulas are read is counted in the sources; the wrong versions are measured.
    before, formulas, after = re.split(r"^## (?:The printed formulas|The parts)", text, flags=re.M)
    assert "|" not in before + after
    assert "by value" not in formulas


def test_what_was_measured_is_shown(folder):
    measured.record("notebook", "01_tensors", RUN)
    measured.record("versions", "environment", {"Python": "3.11.7", "torch": "2.13.0"})
    text = checked.as_markdown()
    assert (
        "| [01](../../notebooks/01_tensors.ipynb) | 16 | 16 | 60 of 60 | 3 | 2 | 12 | 400 |" in text
    )
    assert checked.tested_with("01_tensors") == (
        "Tested with Python 3.11.7, torch 2.13.0. A run took 12 s, 400 MiB at most."
    )


def test_the_wrong_versions_of_formulas_are_counted_by_chapter_and_kind(folder):
    kinds = {"sign": {"value": 3, "error": 1}, "root": {"value": 1, "equivalent": 2}}
    measured.record("mutants", "eq-row-vector", {"run": "sample", "kinds": kinds, "survived": []})
    text = checked.as_markdown()
    count = len(labels(read(NOTEBOOKS / "01_tensors.ipynb")))
    assert f"| [01](../../notebooks/01_tensors.ipynb) | {count} | {count} | 4 | 1 | 0 |" in text
    assert "a fixed sample for every formula" in text
    assert "| a sign turned | 3 | 1 | 0 | 0 |" in text
    measured.record("mutants", "eq-row-vector", {"run": "all", "kinds": kinds, "survived": []})
    assert "every wrong version of every formula" in checked.as_markdown()


def test_a_formula_that_is_not_read_is_listed_with_its_reason():
    cell = code(
        'witness("eq-a", {"x": 1})\n'
        'witness("eq-b", 1.0, 2.0, unread="a statement on distributions")\n'
        'witness("eq-c", 1.0, 2.0)\n'
        'witness("eq-d", 1.0, 2.0, unread="half of it")\nwitness("eq-d", {"x": 1}, only=[0])'
    )
    cell.metadata["tags"] = ["witness"]
    notebook = nbformat.v4.new_notebook(cells=[cell])
    assert checked_formulas.readings(notebook) == {
        "eq-a": "", "eq-b": "a statement on distributions", "eq-c": "no reason is given",
        "eq-d": "",
    }  # fmt: skip


@pytest.mark.parametrize("change", [{"failed": 1}, {"complete": False}, {"file": "of a copy"}])
def test_a_run_that_failed_was_cut_short_or_was_of_another_file_is_no_test(folder, change):
    measured.record("notebook", "01_tensors", RUN | change)
    measured.record("versions", "environment", {"Python": "3.11.7"})
    assert checked.tested_with("01_tensors") is None


def test_names_that_no_file_could_have_are_kept_apart(folder):
    measured.record("oracle", "rms_norm / torch: float64", {"error": 1.0})
    measured.record("oracle", "rms_norm / torch: float32", {"error": 2.0})
    assert set(measured.measured("oracle")) == {
        "rms_norm / torch: float64",
        "rms_norm / torch: float32",
    }


# ---------------------------------------------------------------- the table and the notebooks


def recounted(path):
    """What a notebook holds, read from its JSON without the book's own readers."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    prose = "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    code = [c for c in cells if c["cell_type"] == "code"]
    witnesses = "\n".join(
        "".join(c["source"]) for c in code if "witness" in c["metadata"].get("tags", [])
    )
    called = set(re.findall(r"\bwitness\(\s*[\"'](eq-[\w-]+)", witnesses))
    named = re.findall(r"\$\$[ \t]*\((eq-[\w-]+)\)", prose)
    shown = [json.dumps(output) for c in code for output in c["outputs"]]
    return {
        "equations": len(named),
        "witnessed": len(called & set(named)),
        "cells": len(code),
        "figures": sum('"image/png": "iVBOR' in output for output in shown),
        "explorers": sum(r"class=\"tp-spec\"" in output for output in shown),
    }


@pytest.mark.parametrize("path", chapters(), ids=lambda path: path.stem)
def test_what_is_counted_is_what_the_notebook_holds(path):
    assert measured.counted(read(path)) == recounted(path)


def rows(page):
    """The rows of the table of notebooks: first cell -> the counts that can be recounted."""
    found = {}
    for line in page.splitlines():
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        if re.fullmatch(r"\[\d\d\]\(.*\)|all", name) and len(cells) == 7:
            equations, witnessed, right, figures, explorers = cells[:5]
            agree, of = right.split(" of ")
            found[name] = {
                "equations": int(equations), "witnessed": int(witnessed), "cells": int(of),
                "figures": int(figures), "explorers": int(explorers), "agree": int(agree),
            }  # fmt: skip
    return found


def check_page_against_the_notebooks():
    """The chapters in the page's table; each row and the sums are those of the notebooks."""
    told = rows(checked.as_markdown())
    expected = {}
    for path in chapters():
        name = f"[{path.stem[:2]}](../../notebooks/{path.name})"
        if name in told:
            expected[name] = recounted(path)
            # How many agree is for the run to say.
            assert told[name].pop("agree") <= expected[name]["cells"]
    if expected:
        told["all"].pop("agree")
        expected["all"] = {
            kind: sum(row[kind] for row in expected.values()) for kind in recounted(path)
        }
    assert told == expected
    return [name for name in expected if name != "all"]


def test_the_table_of_this_build_agrees_with_the_notebooks():
    """Nothing is measured before the notebooks have run; what is, is theirs."""
    check_page_against_the_notebooks()


def test_a_table_of_all_chapters_agrees_with_the_notebooks(folder):
    for path in chapters():
        values = measured.counted(read(path)) | {"file": measured.fingerprint(path)}
        measured.record("notebook", path.stem, RUN | values)
    assert len(check_page_against_the_notebooks()) == len(chapters())


def test_the_counts_of_a_harmed_copy_would_be_noticed_and_its_run_is_not_shown(folder):
    path = NOTEBOOKS / "01_tensors.ipynb"
    harmed = RUN | measured.counted(read(path)) | {"cells": 39, "figures": 0}
    measured.record("notebook", path.stem, harmed)
    with pytest.raises(AssertionError):
        check_page_against_the_notebooks()
    measured.record("notebook", path.stem, harmed | {"file": "of a copy"})
    assert rows(checked.as_markdown()) == {}


@pytest.fixture(scope="module")
def small_book(tmp_path_factory):
    """A book of one small chapter, run with the book's own settings, and a copy run elsewhere."""
    root = tmp_path_factory.mktemp("book")
    for file in ("conftest.py", "pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / file, root)
    (root / "tests").mkdir()
    (root / "transformer_parts").mkdir()
    hidden = shutil.ignore_patterns("__pycache__", "grading", "take_away", "checkers")
    shutil.copytree(ROOT / "book", root / "book", ignore=hidden)
    figure = [shown(curve(), "Not what the cell shows, for it shows none.")]
    chapter = saved(
        root / "notebooks", "01_small.ipynb",
        text("# Small\n\n$$\n1 + 1 = 2\n$$ (eq-two)"),
        code("print(1 + 1)", outputs=[printed("2\n")], name="right"),
        code("print(1 + 1)", outputs=[printed("3\n")], count=2, name="harmed"),
        code("print(1 + 1)", outputs=figure, count=3, name="no-figure"),
    )  # fmt: skip
    record = root / "_build/measured/notebook/01_small.json"

    def run(path):
        folder = path.parent.parent
        env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", path],
            cwd=folder, env=env | {"PYTHONPATH": str(root)}, capture_output=True, text=True,
            timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 1, done.stdout + done.stderr
        assert "2 failed, 1 passed" in done.stdout, done.stdout
        return sorted(p.name for p in (root / "_build").rglob("*.json"))

    elsewhere = tmp_path_factory.mktemp("elsewhere")
    for file in ("conftest.py", "pyproject.toml"):
        shutil.copy(ROOT / file, elsewhere)
    (elsewhere / "notebooks").mkdir()
    copied = elsewhere / "notebooks" / chapter.name
    shutil.copy(chapter, copied)
    after_the_copy = run(copied)
    after_the_chapter = run(chapter)
    return after_the_copy, after_the_chapter, json.loads(record.read_text(encoding="utf-8"))


def test_a_run_of_a_copy_leaves_no_record_and_a_run_of_the_chapter_does(small_book):
    after_the_copy, after_the_chapter, values = small_book
    assert after_the_copy == []
    assert after_the_chapter == ["01_small.json", "environment.json"]
    told = ("cells", "failed", "complete", "equations", "witnessed", "figures", "explorers")
    assert [values[name] for name in told] == [3, 2, True, 1, 0, 1, 0]


def test_the_first_page_counts_what_is_there_and_measures_the_rest(folder):
    short = checked.in_two_sentences()
    numbers = [int(n.replace(",", "")) for n in re.findall(r"\d[\d,]*", short)]
    notebooks = [read(path) for path in chapters()]
    labels = sum(
        len(re.findall(r"^\$\$ \(eq-", c.source, re.M))
        for one in notebooks for c in one.cells if c.cell_type == "markdown"
    )  # fmt: skip
    cells = sum(c.cell_type == "code" and bool(c.source) for one in notebooks for c in one.cells)
    unread = re.findall(r"`eq-[a-z0-9-]+`", checked_formulas.as_markdown())
    assert numbers == [labels, labels - len(unread), cells]
    measured.record("oracle", "a", {"error": 0})
    measured.record("oracle", "b", {"error": 0})
    measured.record("checker", "map.crossover", {"named": 17})
    more = checked.in_two_sentences()
    assert "in 2 comparisons of values and gradients" in more
    assert "17 wrong answers to 1 exercises" in more
