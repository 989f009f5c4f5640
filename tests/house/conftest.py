"""Figures are drawn without a window, and what pytest collects is collected once."""

import subprocess
import sys

import matplotlib as mpl
import pytest

from book.chapters import ROOT
from book.check import SHARED

mpl.use("agg")


@pytest.fixture(scope="session")
def collected(request):
    """The ids of the cells of all notebooks and of all tests in the shared files, at least.

    A run of the whole book has collected them; any other run lets a second one look.
    """
    config = request.config
    asked = {(ROOT / one).resolve() for one in config.args}
    chosen = config.option.keyword or config.option.markexpr or config.option.deselect
    if asked == {ROOT / one for one in config.getini("testpaths")} and not chosen:
        return [item.nodeid for item in request.session.items]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n0"]
    command += ["-p", "no:cacheprovider", "notebooks", *(f"tests/{file}" for file in SHARED)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    return [line for line in done.stdout.splitlines() if "::" in line]
