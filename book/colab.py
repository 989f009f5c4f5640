"""Notebooks that run where the book is not installed: on Colab, on a school's hub, anywhere.

    python -m book.colab OUT --repository https://github.com/owner/name --commit 0123abc

writes the chapters into OUT, each with a first cell that fetches the book at that commit where it
is missing, and the packages that are missing too. It leaves torch, numpy and matplotlib as they are
there. The publishing workflow puts OUT on the branch `colab`, to which the site's button leads. It
needs nothing but Python.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

ROOT = Path(__file__).resolve().parent.parent
BRANCH = "colab"
# What the chapters import beside torch, numpy, matplotlib and a kernel: module, and package.
NEEDED = {
    "anywidget": "anywidget", "ipywidgets": "ipywidgets", "yaml": "PyYAML", "lark": "lark",
    "nbformat": "nbformat", "safetensors": "safetensors", "sympy": "sympy", "PIL": "pillow",
}  # fmt: skip

_CELL = """\
# Where the book is not installed, this cell fetches it, once: about a minute. Elsewhere it does nothing.
import importlib.util
import subprocess
import sys
from pathlib import Path

if importlib.util.find_spec("transformer_parts") is None:
    print("Fetching the book: about a minute.", flush=True)
    folder = Path("{name}").resolve()
    if not (folder / "transformer_parts").is_dir():
        for words in (
            ["init", "-q", str(folder)],
            ["-C", str(folder), "fetch", "-q", "--depth", "1", "{repository}", "{commit}"],
            ["-C", str(folder), "checkout", "-q", "FETCH_HEAD"],
        ):
            subprocess.run(["git", *words], check=True)
    needed = {needed}
    missing = [package for module, package in needed.items() if importlib.util.find_spec(module) is None]
    if missing:
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", *missing], check=True)
        importlib.invalidate_caches()
    sys.path.insert(0, str(folder))
    if "google.colab" in sys.modules:
        # Colab shows the explorers only when it is asked to.
        from google.colab import output

        output.enable_custom_widget_manager()
    print("The book is there.")
"""  # noqa: E501


class ColabError(ValueError):
    """A repository or a commit that cannot stand in a cell."""


def first_cell(repository: str, commit: str) -> str:
    """The source of the cell that fetches the book.

    Raises:
        ColabError: if the one is no address or the other no commit.
    """
    if not re.fullmatch(r"(?:https|file)://[\w.~/:@%+-]+", repository):
        raise ColabError(f"{repository!r} is no address of a repository")
    if not re.fullmatch(r"[0-9a-f]{7,64}", commit):
        raise ColabError(f"{commit!r} is no commit")
    plain = repository.rstrip("/").rsplit("/", 1)[1].removesuffix(".git")
    name = re.sub(r"[^\w-]", "-", plain)
    versions = _versions()
    needed = {module: versions.get(package, package) for module, package in NEEDED.items()}
    return _CELL.format(
        repository=repository, commit=commit, name=f"{name}-{commit[:7]}", needed=json.dumps(needed)
    ).rstrip()


def _versions() -> dict[str, str]:
    """The packages as `requirements.lock` fixes them, by their names there and by ours."""
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    fixed = {m[1]: m[0] for line in lines if (m := re.match(r"([\w.-]+)==[\w.+-]+", line))}
    return {name: fixed[name.lower()] for name in NEEDED.values() if name.lower() in fixed}


def with_first_cell(notebook: dict[str, Any], source: str) -> dict[str, Any]:
    """The notebook with that cell before all others, shut where a program can shut it."""
    cell = {
        "cell_type": "code", "id": "fetch-the-book", "execution_count": None, "outputs": [],
        "metadata": {"cellView": "form", "jupyter": {"source_hidden": True}},
        "source": source.splitlines(keepends=True),
    }  # fmt: skip
    return {**notebook, "cells": [cell, *notebook["cells"]]}


def write(out: Path, repository: str, commit: str) -> list[Path]:
    """Write all chapters, and the licences under which they are, into the folder `out`."""
    source = first_cell(repository, commit)
    written = []
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        notebook = json.loads(path.read_text(encoding="utf-8"))
        place = out / "notebooks" / path.name
        place.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(with_first_cell(notebook, source), indent=1, ensure_ascii=False)
        place.write_text(text + "\n", encoding="utf-8")
        written.append(place)
    for name in ("LICENSE", "LICENSE-TEXT.md"):
        (out / name).write_bytes((ROOT / name).read_bytes())
    about = (
        f"The chapters of {repository} at {commit}, each with a first cell that fetches the book "
        "where it is missing. Made by its publishing workflow; do not edit them here.\n"
    )
    (out / "README.md").write_text(about, encoding="utf-8")
    return written


def colab(repository: str, page: str) -> str:
    """The address that opens a page's notebook on Colab; none if it is not on GitHub."""
    found = re.fullmatch(r"https://github\.com/([^/]+/[^/]+)", repository)
    if not found:
        return ""
    return f"https://colab.research.google.com/github/{found[1]}/blob/{BRANCH}/{page}.ipynb"


def hub(address: str, repository: str, page: str) -> str:
    """The address that brings the notebooks to a hub with nbgitpuller and opens one of them."""
    name = repository.rstrip("/").rsplit("/", 1)[1].removesuffix(".git")
    asked = {"repo": repository, "branch": BRANCH, "urlpath": f"lab/tree/{name}/{page}.ipynb"}
    return f"{address.rstrip('/')}/hub/user-redirect/git-pull?{urlencode(asked)}"


def main(words: list[str] | None = None) -> int:
    """Write the notebooks, or say the links for a hub."""
    parser = argparse.ArgumentParser(prog="python -m book.colab", description=__doc__)
    parser.add_argument("out", type=Path, nargs="?", help="the folder to write to")
    parser.add_argument("--repository", required=True, help="where the book is fetched from")
    parser.add_argument("--commit", help="at which commit")
    parser.add_argument("--hub", metavar="ADDRESS", help="print the links for this hub instead")
    options = parser.parse_args(words)
    if options.hub:
        for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
            print(hub(options.hub, options.repository, f"notebooks/{path.stem}"))
        return 0
    if not (options.out and options.commit):
        parser.error("give a folder and --commit, or --hub")
    try:
        written = write(options.out, options.repository, options.commit)
    except ColabError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{len(written)} notebooks; wrote {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
