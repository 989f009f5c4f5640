"""Protects the tests themselves: each asserts something, and none is left out by its name."""

import ast

import pytest

from book.chapters import ROOT

FILES = sorted((ROOT / "tests").rglob("*.py"))
# Calls that assert: pytest's own, torch's, and helpers whose names say so.
ASSERTING = ("assert", "check_", "raises", "fail", "gradcheck", "witness", "holds")


def asserts(node):
    """Whether something under `node` can make a test fail."""
    for child in ast.walk(node):
        if isinstance(child, ast.Assert):
            return True
        if isinstance(child, ast.Call):
            name = getattr(child.func, "attr", getattr(child.func, "id", ""))
            if name.startswith(ASSERTING):
                return True
    return False


def functions(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]


def found_in(path):
    return [f for f in functions(path) if f.name.startswith("test_")]


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_every_test_asserts_something(path):
    assert [f.name for f in found_in(path) if not asserts(f)] == []


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_no_test_hides_behind_another_of_its_name_or_a_file_that_is_not_collected(path):
    names = [f.name for f in found_in(path)]
    assert sorted(names) == sorted(set(names))
    assert path.name.startswith("test_") == bool(names)


def test_an_empty_test_would_be_found():
    source = "def test_a():\n    x = 1\n\n\ndef test_b():\n    assert True\n"
    a, b = ast.parse(source).body
    assert not asserts(a)
    assert asserts(b)


def test_every_folder_of_tests_is_looked_at():
    folders = {path.parent.name for path in FILES if found_in(path)}
    assert {"parts", "chapters", "site", "house", "errata"} <= folders
