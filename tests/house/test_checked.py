"""What was measured is shown, for these sources only; what was not measured is not."""

import json

import pytest

from book import checked, measured


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(measured.measured, "__defaults__", (tmp_path,))
    monkeypatch.setattr(measured.record, "__defaults__", (tmp_path,))
    return tmp_path


RUN = {
    "cells": 60, "complete": True, "failed": 0, "equations": 16, "witnessed": 16, "figures": 3,
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
        measured.digest.cache_clear()
        return measured.digest(tmp_path)

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
    measured.digest.cache_clear()


def test_without_measurements_no_number_is_shown(folder):
    text = checked.as_markdown()
    assert text.count(checked.NOT_RUN) == 4  # notebooks, oracles, checkers, versions
    assert "|" not in text


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


@pytest.mark.parametrize("change", [{"failed": 1}, {"complete": False}])
def test_a_run_that_failed_or_was_cut_short_is_no_test(folder, change):
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
