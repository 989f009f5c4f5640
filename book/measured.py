"""What the tests measured, kept for the page that shows how the book is checked.

A measurement is valid for the sources it was made with: it is stored with their digest, and
`measured` gives back only those of the sources as they are now. So a page built without a test run
shows no number, and a change to a notebook takes its old numbers away.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

from book.chapters import ROOT, chapters
from book.lint import labels, witnessed

MEASURED = ROOT / "_build" / "measured"
# What a measurement depends on.
_SOURCES = ("notebooks", "transformer_parts", "book", "tests", "conftest.py", "requirements.lock")


@functools.cache
def digest(root: Path = ROOT) -> str:
    """A digest of everything that is measured and of everything that measures."""
    total = hashlib.sha256()
    for source in _SOURCES:
        start = root / source
        files = sorted(p for p in start.rglob("*") if p.is_file()) if start.is_dir() else [start]
        for path in files:
            inside = path.relative_to(root)
            hidden = any(part.startswith((".", "__pycache__")) for part in inside.parts)
            if not hidden and path.exists():
                total.update(f"{inside.as_posix()}\0".encode())
                total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()[:16]


def fingerprint(path: Path) -> str:
    """A digest of one file, to tell a measurement of it from that of a copy that was changed."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def counted(notebook: Any) -> dict[str, int]:
    """What a notebook holds, for the table of what was checked."""
    code = [c for c in notebook.cells if c.cell_type == "code"]
    data = [o.get("data", {}) for c in code for o in c.outputs]
    html = ["".join(d.get("text/html", "")) for d in data]
    named, held = set(labels(notebook)), set(witnessed(notebook))
    return {
        "cells": len(code),
        "equations": len(named),
        "witnessed": len(named & held),
        "figures": sum("image/png" in d for d in data),
        "explorers": sum('class="tp-spec"' in text for text in html),
    }


def is_chapter(path: Path) -> bool:
    """Whether the file at `path` is a chapter of this book, and not a copy that lies elsewhere."""
    return path.resolve() in {chapter.resolve() for chapter in chapters()}


def record(kind: str, name: str, values: dict[str, Any], folder: Path = MEASURED) -> None:
    """Keep `values`, which a test has just measured, under its kind and name.

    Several processes may record at once: each measurement is a file of its own, put in its place in
    one step.
    """
    place = folder / kind / (re.sub(r"[^\w.=-]+", "_", name)[:120] + ".json")
    place.parent.mkdir(parents=True, exist_ok=True)
    draft = place.with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps({"sources": digest(), "name": name, **values}), encoding="utf-8")
    draft.replace(place)


def measured(kind: str, folder: Path = MEASURED) -> dict[str, dict[str, Any]]:
    """The measurements of a kind that belong to the sources as they are now, by name."""
    found = {}
    for path in sorted((folder / kind).glob("*.json")):
        values = json.loads(path.read_text(encoding="utf-8"))
        if values.pop("sources") == digest():
            found[values.pop("name")] = values
    return found
