"""Protects against silence: a notebook that nobody runs."""

import re
from collections import Counter

from book.chapters import ROOT, chapters, read


def test_plain_pytest_runs_every_code_cell_of_every_chapter(collected):
    found = Counter(re.findall(r"^notebooks/(\S+\.ipynb)::Cell \d+$", "\n".join(collected), re.M))
    for path in chapters():
        cells = [c for c in read(path).cells if c.cell_type == "code"]
        assert found[path.name] == len(cells) > 0, path.name


def test_the_settings_of_pytest_run_the_notebooks_strictly():
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert re.search(r'^testpaths = \["notebooks", "tests"\]$', settings, re.M)
    assert re.search(r'^addopts = ".*--nbval --nbval-current-env', settings, re.M)
    assert "nbval-lax" not in settings
