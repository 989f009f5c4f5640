"""Run notebooks in a fresh kernel and store them in canonical form.

`python -m book.refresh notebooks/08_normalization.ipynb` runs every cell, top to bottom, and writes
the outputs back. What depends on the machine or the moment (timings, widget ids, paths) is left
out, and an output that agrees with the stored one, by the rules of `book.outputs`, keeps the stored
bytes: a run without a real change gives an empty diff.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from book.chapters import NOTEBOOKS, chapters, read, tags
from book.outputs import PICTURES, RANDOM, picture_differences

KERNELSPEC = {"display_name": "Python 3", "language": "python", "name": "python3"}


def execute(notebook: Any, *, cwd: Path = NOTEBOOKS, timeout: int = 300) -> Any:
    """A copy of `notebook` with the outputs of a run in a fresh kernel.

    Raises:
        nbclient.exceptions.CellExecutionError: if a cell fails.
    """
    fresh = nbformat.from_dict(json.loads(json.dumps(notebook)))
    fresh.metadata["kernelspec"] = KERNELSPEC
    client = NotebookClient(
        fresh, timeout=timeout, store_widget_state=False, record_timing=False,
        resources={"metadata": {"path": str(cwd)}},
    )  # fmt: skip
    client.execute()
    return fresh


def canonical(new: Any, stored: Any) -> Any:
    """`new` without what changes from run to run, and with `stored`'s outputs where they agree."""
    before = {c.get("id"): c for c in stored.cells if c.cell_type == "code"}
    new.metadata = {"kernelspec": KERNELSPEC, "language_info": {"name": "python"}}
    new.nbformat, new.nbformat_minor = 4, 5
    for cell in new.cells:
        cell.metadata = {
            k: v for k, v in cell.metadata.items() if k not in ("execution", "collapsed")
        }
        if cell.cell_type != "code":
            continue
        for output in cell.outputs:
            output.get("data", {}).pop(RANDOM, None)
        cell.outputs = _merged_streams(cell.outputs)
        old = before.get(cell.get("id"))
        if old is not None and _agree(old, cell):
            cell.outputs = [*old.outputs]
            for output in cell.outputs:
                if output.output_type == "execute_result":
                    output["execution_count"] = cell.execution_count
    return new


def _agree(old: Any, new: Any) -> bool:
    """Whether the stored outputs of a cell still stand. A timing stands while its code does."""
    if "timing" in tags(new) and old.source == new.source:
        return bool(old.outputs)
    pictures = picture_differences(old.outputs, new.outputs)
    return _text(old.outputs) == _text(new.outputs) and not pictures


def _merged_streams(outputs: list[Any]) -> list[Any]:
    """The kernel may send one print in two pieces; store neighbours of one stream as one."""
    merged: list[Any] = []
    for output in outputs:
        last = merged[-1] if merged else None
        if last and output.output_type == "stream" == last.output_type and last.name == output.name:
            last["text"] += output.text
        else:
            merged.append(output)
    return merged


def _text(outputs: list[Any]) -> Any:
    """What has to agree exactly: everything but the pictures and the running number."""
    plain = json.loads(json.dumps(outputs))
    for output in plain:
        output.pop("execution_count", None)
        for kind in PICTURES:
            if kind in output.get("data", {}):
                output["data"][kind] = None
    return plain


def write(notebook: Any, path: Path) -> None:
    """Write `notebook` with sorted keys and one space of indent, as Jupyter does."""
    nbformat.validate(notebook)
    text = json.dumps(_split(notebook), indent=1, sort_keys=True, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def _split(notebook: Any) -> Any:
    """Multi-line text as lists of lines, so that a diff shows lines."""
    plain = json.loads(json.dumps(notebook))
    for cell in plain["cells"]:
        cell["source"] = cell["source"].splitlines(keepends=True)
        for output in cell.get("outputs", []):
            if isinstance(output.get("text"), str):
                output["text"] = output["text"].splitlines(keepends=True)
            for kind, value in output.get("data", {}).items():
                if kind.startswith("text/") and isinstance(value, str):
                    output["data"][kind] = value.splitlines(keepends=True)
    return plain


def main(argv: list[str] | None = None) -> int:
    """Refresh the notebooks named on the command line, or all chapters. Returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: every chapter")
    for path in parser.parse_args(argv).notebooks or chapters():
        if not path.exists():
            parser.error(f"no notebook at {path}")
        began = time.monotonic()
        print(f"{path.name}: running ...", flush=True)
        stored = read(path)
        write(canonical(execute(stored, cwd=path.resolve().parent), stored), path)
        print(f"{path.name}: {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
