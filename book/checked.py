"""The page that shows how the book is checked, and the box on each chapter that says with what.

Every number comes from `book.measured`, that is, from a test run of the sources as they are now, or
is counted in the sources themselves. What was not measured is not shown.
"""

from __future__ import annotations

from typing import Any

from book import checked_formulas, errata
from book.chapters import ROOT, chapters, read
from book.data import read_yaml
from book.lint import uncompared
from book.markdown import table
from book.measured import fingerprint, measured

NOT_RUN = "*Not measured in this build. `make test` measures, and `make book` then shows it.*"


def as_markdown() -> str:
    """The whole page below its title, as MyST Markdown."""
    return "\n\n".join(
        [
            "## Equations, cells, figures, time and memory",
            "Each notebook was run from top to bottom in a fresh kernel, and every output compared "
            f"with the one on the page, but for those of {_timings()} cells, which print timings. "
            "A witness is a cell that checks an equation by another route. Time and memory are "
            "those of this run, two notebooks at a time.",
            _notebooks(),
            "## The printed formulas",
            checked_formulas.as_markdown(),
            "## The parts against their references",
            "The largest difference that was found over all cases of the row, relative to the size "
            "of the reference, *of* the largest that would have passed. *Gradients* says whether "
            "those with respect to every input were compared too.",
            _oracles(),
            "## Under torch's transformations",
            "Each public module and each function that takes tensors, with the same values (and "
            "gradients, where a transformation has them) as without. *compile* is "
            "`torch.compile(fullgraph=True)`; *export* has dynamic batch and length, and is run "
            "with others; *jvp* uses the plain kernel of torch's attention, because the fused one "
            "has no derivative forwards; a part that is made on *meta* gets its memory, or its "
            "weights, afterwards. Empty: it has nothing of the kind.",
            _transformations(),
            "## Wrong answers",
            "Each exercise has named wrong answers. A test hands each of them to the checker, "
            "which must reject it and call it by its name.",
            _checkers(),
            "## Errors that are often made",
            _errata(),
            "## Completeness",
            _coverage(),
            "## Versions",
            _versions(),
        ]
    )


def in_two_sentences() -> str:
    """How the book is checked, for the first page; what was not measured has no number."""
    notebooks = [read(path) for path in chapters()]
    formulas = [reason for one in notebooks for reason in checked_formulas.readings(one).values()]
    printed = sum(1 for reason in formulas if not reason)
    cells = sum(1 for one in notebooks for c in one.cells if c.cell_type == "code" and c.source)
    compared, named = measured("oracle"), measured("checker")
    wrong = sum(one["named"] for one in named.values())
    against = f"{len(compared):,} comparisons of values" if compared else "values"
    answers = f"{wrong:,} wrong answers to {len(named)} exercises" if named else "wrong answers"
    return (
        f"Of the {len(formulas)} numbered formulas, {printed} are evaluated as they are printed, "
        f"with values from another route, and all {cells:,} code cells run again before "
        "publication: but for timings, their outputs must be those on the page. "
        f"The library is held against torch in {against} and gradients, and {answers} must be "
        "called by their names. Every number is on the page about [how it is checked](checked.md)."
    )


def tested_with(chapter: str) -> str | None:
    """One line for the page of a chapter: what it was tested with. None if it was not."""
    run, versions = _runs().get(chapter), measured("versions").get("environment")
    if not run or not versions or run["failed"]:
        return None
    memory = f", {run['peak_mib']:,.0f} MiB at most" if run.get("peak_mib") else ""
    named = ", ".join(f"{name} {version}" for name, version in versions.items())
    return f"Tested with {named}. A run took {run['seconds']:.0f} s{memory}."


def _runs() -> dict[str, dict[str, Any]]:
    """The runs of whole chapters, each of the very file that the book holds now."""
    found = measured("notebook")
    return {
        path.stem: found[path.stem]
        for path in chapters()
        if path.stem in found
        and found[path.stem]["complete"]
        and found[path.stem].get("file") == fingerprint(path)
    }


def _timings() -> int:
    """How many cells' outputs no run is compared with."""
    return sum(len(uncompared(read(path))) for path in chapters())


def _notebooks() -> str:
    found = _runs()
    rows = []
    for path in chapters():
        run = found.get(path.stem)
        if run is None:
            continue
        link = f"[{path.stem[:2]}](../../notebooks/{path.name})"
        right = f"{run['cells'] - run['failed']} of {run['cells']}"
        peak = f"{run['peak_mib']:,.0f}" if run.get("peak_mib") else "not measured"
        counts = (run["equations"], run["witnessed"], right, run["figures"], run["explorers"])
        rows.append((link, *counts, f"{run['seconds']:.0f}", peak))
    if not rows:
        return NOT_RUN
    kinds = ("equations", "witnessed", "cells", "failed", "figures", "explorers")
    total = {kind: sum(run[kind] for run in found.values()) for kind in kinds}
    right = f"{total['cells'] - total['failed']} of {total['cells']}"
    counts = (total["equations"], total["witnessed"], right, total["figures"], total["explorers"])
    rows.append(("all", *counts, "", ""))
    head = "chapter, equations, witnessed, cells that agree, figures, explorers, seconds, MiB"
    return table(head.split(", "), rows)


def _oracles() -> str:
    found = measured("oracle")
    if not found:
        return NOT_RUN
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for one in found.values():
        groups.setdefault((one["chapter"], one["part"], one["reference"]), []).append(one)
    rows = []
    for (chapter, part, reference), ones in sorted(groups.items()):
        cases = sorted({one["case"] for one in ones})
        cells = [_largest([one for one in ones if one["dtype"] == dtype]) for dtype in _DTYPES]
        gradients = "yes" if all(one["gradients"] for one in ones) else "no"
        rows.append((f"{chapter} `{part}`", reference, "; ".join(cases), gradients, *cells))
    head = ("part", "reference", "cases", "gradients", *_DTYPES)
    return f"{len(found)} comparisons.\n\n" + table(head, rows)


def _transformations() -> str:
    found = measured("transformation")
    if not found:
        return NOT_RUN
    kinds = max((list(one) for one in found.values()), key=len)
    rows = [(f"`{name}`", *(one.get(kind, "") for kind in kinds)) for name, one in found.items()]
    tried = [one[kind] for one in found.values() for kind in kinds if one.get(kind)]
    passed = f"{tried.count('yes')} of {len(tried)} pass."
    return f"{passed}\n\n" + table(("part", *kinds), rows)


_DTYPES = ("float64", "float32", "bfloat16", "float16")


def _largest(ones: list[dict[str, Any]]) -> str:
    """The largest error among `ones` and what was allowed; nothing if there are none."""
    if not ones:
        return ""
    return f"{max(o['error'] for o in ones):.0e} of {max(o['tolerance'] for o in ones):.0e}"


def _checkers() -> str:
    found = measured("checker")
    if not found:
        return NOT_RUN
    rows = [
        (f"`{name}`", one["cases"], f"{one['named']} of {one['wrong']}", one["right"])
        for name, one in found.items()
    ]
    total = sum(one["named"] for one in found.values())
    head = ("exercise", "cases", "wrong answers rejected and named", "right answers accepted")
    return f"{len(rows)} exercises, {total} wrong answers named.\n\n" + table(head, rows)


def _errata() -> str:
    entries = errata.load()
    tested = sum(1 for entry in entries if entry.test)
    return (
        f"The [misconceptions](misconceptions.md) are {len(entries)}; {tested} of them have a test "
        "that shows the wrong form failing and the right one holding, and the others name the "
        "passage that settles them."
    )


def _coverage() -> str:
    rows = read_yaml(ROOT / "book/coverage.yml")
    covered, waiting = len(rows["covered"]), len(rows["open"])
    return (
        f"The plan of the book's content has {covered + waiting + len(rows['left_out'])} rows. "
        f"{covered} of them point to a place in a chapter that exists, {waiting} wait, and "
        f"{len(rows['left_out'])} have no content."
    )


def _versions() -> str:
    found = measured("versions").get("environment")
    if not found:
        return NOT_RUN
    return table(("software", "version"), found.items())
