"""Protects against silence: a test that asserts nothing, a notebook that nobody runs."""

import ast
import re
import subprocess
import sys

import pytest

from book.chapters import ROOT, chapters, read

# What counts as an assertion: the statement, and calls that raise when something is wrong.
RAISING = {"raises", "warns", "fail", "assert_close", "assert_parity", "gradcheck", "gradcheck64"}
RAISING |= {"witness", "assert_array_equal", "expect"}


def functions_in(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node


def asserts(node, helpers=frozenset()):
    for child in ast.walk(node):
        if isinstance(child, ast.Assert):
            return True
        if isinstance(child, ast.Call):
            name = getattr(child.func, "attr", getattr(child.func, "id", ""))
            if name in RAISING or name in helpers:
                return True
    return False


def helpers_of(path):
    """The functions of a test file that assert by themselves."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {n.name for n in nodes if isinstance(n, ast.FunctionDef) and asserts(n)}


FILES = sorted((ROOT / "tests").rglob("test_*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT / "tests")))
def test_every_test_asserts_something(path):
    helpers = helpers_of(path)
    silent = [test.name for test in functions_in(path) if not asserts(test, helpers)]
    assert list(functions_in(path)), "a file of tests without a test"
    assert silent == []


def test_a_silent_test_would_be_found():
    silent = ast.parse("def test_x():\n    print('fine')").body[0]
    assert not asserts(silent)


def test_plain_pytest_runs_every_code_cell_of_every_chapter():
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:xdist"]
    command += ["--override-ini=addopts=--nbval --nbval-current-env", "notebooks"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    collected = re.findall(r"^notebooks/(\S+\.ipynb)::Cell \d+$", done.stdout, re.M)
    for path in chapters():
        cells = [c for c in read(path).cells if c.cell_type == "code"]
        assert collected.count(path.name) == len(cells) > 0, done.stdout[-2000:]


def test_the_settings_of_pytest_run_the_notebooks_strictly():
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert re.search(r'^testpaths = \["notebooks", "tests"\]$', settings, re.M)
    assert re.search(r'^addopts = ".*--nbval --nbval-current-env', settings, re.M)
    assert "nbval-lax" not in settings
