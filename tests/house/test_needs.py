"""Protects that the site is built with what requirements-book.txt installs, and nothing else."""

import re
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, packages_distributions, requires

import pytest
from making import code, equation, printed, saved, text
from packaging.requirements import Requirement

from book.chapters import ROOT

FILES = sorted(ROOT.glob("requirements*.txt"))
PIN = re.compile(r"^([A-Za-z][\w.-]*)==(\S+)", re.M)


def pins(file):
    found = PIN.findall((ROOT / file).read_text(encoding="utf-8"))
    return {name.lower().replace("_", "-"): version for name, version in found}


def brought_along(names):
    """The distributions that these need, themselves included, as far as they are installed here."""
    found, waiting = set(), [*names]
    while waiting:
        name = waiting.pop().lower().replace("_", "-")
        if name in found:
            continue
        try:
            needed = [Requirement(line) for line in requires(name) or []]
        except PackageNotFoundError:
            continue
        found.add(name)
        waiting += [r.name for r in needed if not r.marker or r.marker.evaluate({"extra": ""})]
    return found


def withheld():
    """The modules that are installed here and would not be where only the site is built."""
    there = brought_along(pins("requirements-book.txt")) | {"transformer-parts"}
    return sorted(
        module
        for module, owners in packages_distributions().items()
        if not {owner.lower().replace("_", "-") for owner in owners} & there
    )


WITHOUT = """
import sys

class Withheld:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {modules}:
            raise ModuleNotFoundError(f"{{name}} is not in requirements-book.txt", name=name)

sys.meta_path.insert(0, Withheld())
{script}
"""


def without_the_rest(script, *arguments):
    """Run a script where only what builds the site can be imported."""
    source = WITHOUT.format(modules=withheld(), script=script)
    command = [sys.executable, "-c", source, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_net_withholds_what_only_notebooks_and_tests_need():
    assert {"torch", "sympy", "numpy", "matplotlib", "pytest", "nbval"} <= {*withheld()}
    assert not {"sphinx", "myst_nb", "yaml", "lark", "PIL", "fontTools", "book"} & {*withheld()}
    done = without_the_rest("import torch")
    assert done.returncode == 1
    assert "torch is not in requirements-book.txt" in done.stderr


def test_everything_that_the_pages_are_made_of_comes_without_torch():
    done = without_the_rest(
        "from book import sphinx_ext, symbol_pages\n"
        "from book.chapters import chapters, topic\n"
        "for made in sphinx_ext._MADE.values():\n"
        "    made()\n"
        "for path in chapters():\n"
        "    symbol_pages.PageSymbols(topic(path)).island()\n"
        "print('made', *sphinx_ext._MADE)"
    )
    assert done.returncode == 0, done.stderr
    assert {"checked", "symbols", "errata"} <= set(done.stdout.split())


def test_a_book_is_built_without_torch(tmp_path):
    witness = code(
        'witness("eq-a", {})', "witness", outputs=[printed("eq-a holds: read as printed\n")]
    )
    saved(tmp_path, "index.ipynb", text("# Title\n\nWords of promise."), equation("eq-a"), witness)
    for file in ("_config.yml", "book/pages/references.bib"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    pages = ["glossary", "names"]  # the page of the search leads to them
    for page in pages:
        (tmp_path / f"book/pages/{page}.md").write_text(f"# The {page}\n\nWords.\n")
    chapters = "".join(f"  - file: book/pages/{page}\n" for page in pages)
    (tmp_path / "_toc.yml").write_text(f"format: jb-book\nroot: index\nchapters:\n{chapters}")
    done = without_the_rest(
        "from jupyter_book.cli.main import main\nmain(['build', sys.argv[1]])", tmp_path
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    page = (tmp_path / "_build/html/index.html").read_text(encoding="utf-8")
    assert "<math" in page
    assert "checked: equation 1" in page
    assert (tmp_path / "_build/html/_static/cards/index.png").exists()


@pytest.mark.parametrize("file", [path.name for path in FILES])
def test_a_requirement_has_the_version_of_the_lock(file):
    locked = pins("requirements.lock")
    assert pins(file)
    assert pins(file).items() <= locked.items()
