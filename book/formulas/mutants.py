"""Wrong versions of a printed formula, each of which its witness must refuse.

Every mutant is one small edit of the LaTeX, found in the tree: a sign, an index, a square, a
transpose, a root, a constant, a symbol for another of the same shape, a factor that is dropped, a
relation that is turned round. A mutant that passes is held against the original at other random
points: if every side has the same value there, it says the same. What is left has survived:
either the witness is weak, or the mutant is true too and stands in `survivors.yml` with the
reason.

`BOOK_MUTANTS=sample` in the environment makes each witness try a fixed sample, `all` every
mutant.
"""

from __future__ import annotations

import argparse
import ast
import functools
import hashlib
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from book.chapters import NOTEBOOKS, chapters, tags
from book.chapters import read as chapter
from book.data import read_yaml
from book.formulas import algebra
from book.formulas.call import Call, RelationError
from book.formulas.edits import Mutant, mutants
from book.formulas.reading import FormulaError, read, spell
from book.formulas.relations import assignments, holds, scope_of, statements
from book.formulas.values import evaluate
from book.measured import record

SWITCH = "BOOK_MUTANTS"
SAMPLE = 5
SURVIVORS = Path(__file__).with_name("survivors.yml")


# ---------------------------------------------------------------- verdicts


def verdict(latex: str, mutant: Mutant, call: Call) -> str:
    """What becomes of a mutant: `value`, `error`, `equivalent` or `survived`."""
    try:
        holds(mutant.latex, call)
    except RelationError:
        return "value"
    except FormulaError:
        return "error"
    except Exception:  # a bound function that fails on what the mutant hands it
        return "error"
    return "equivalent" if _same_elsewhere(latex, mutant.latex, call) else "survived"


def _same_elsewhere(latex: str, changed: str, call: Call) -> bool:
    """Whether both formulas have the same value on every side, at two other random points."""
    for seed in (1, 2):
        generator = torch.Generator().manual_seed(seed)
        moved = {k: _moved(v, generator) for k, v in call.symbols.items()}
        elsewhere = replace(call, symbols=moved, draws=())
        try:
            here, there = _sides(latex, elsewhere), _sides(changed, elsewhere)
        except Exception:
            return False
        if [s for s, _ in here] != [s for s, _ in there]:
            return False
        for (_, a), (_, b) in zip(here, there, strict=True):
            try:
                if algebra.difference(a, b, 0)[0] > 1e-9:
                    return False
            except FormulaError:
                return False
    return True


def _moved(value: Any, generator: torch.Generator) -> Any:
    """A bound value elsewhere: every number that is no count moved by up to 40 percent."""
    if isinstance(value, torch.Tensor) and not value.is_complex():
        if value.dtype not in (torch.float32, torch.float64):
            return value
        plain = value.detach().to(torch.float64)
        if not plain.any():  # a product would leave it where it is
            return torch.rand(plain.shape, generator=generator, dtype=plain.dtype)
        return plain * (0.8 + 0.4 * torch.rand(plain.shape, generator=generator, dtype=plain.dtype))
    if isinstance(value, float):
        return (value or 0.37) * (0.8 + 0.4 * torch.rand(1, generator=generator).item())
    if isinstance(value, list | tuple):
        return [_moved(v, generator) for v in value]
    return value


def _sides(latex: str, call: Call) -> list[tuple[str, Any]]:
    """Every side of every relation, for all values of the free indices, with its relation."""
    claims = statements(read(latex))
    scope, _ = scope_of(claims, call.symbols, call)
    found: list[tuple[str, Any]] = []
    for claim in claims:
        if call.only is not None and claim.number not in call.only:
            continue
        for inner in assignments(claim.node, claim.conditions, scope):
            chains = claim.node.kids if claim.node.kind == "implication" else [claim.node]
            for chain in chains:
                for side, how in zip(chain.kids, [*chain.text, ""], strict=True):
                    if side.kind == "item" and "mathbb" in spell(side):
                        continue
                    found.append((how, evaluate(side, inner)))
    return found


# ---------------------------------------------------------------- a run


@functools.cache
def accepted() -> dict[tuple[str, str], str]:
    """The mutants that are known to be true too: (label, LaTeX without spaces) -> reason."""
    if not SURVIVORS.exists():
        return {}
    rows = read_yaml(SURVIVORS) or []
    return {(row["label"], _tight(row["mutant"])): row["reason"] for row in rows}


def _tight(latex: str) -> str:
    return re.sub(r"\s+", "", latex)


def sample(label: str, every: list[Mutant]) -> list[Mutant]:
    """A fixed sample of the mutants of a formula: the same as long as the formula is."""
    key: Callable[[Mutant], str] = lambda m: hashlib.sha256(  # noqa: E731
        f"{label} {_tight(m.latex)}".encode()
    ).hexdigest()
    return sorted(every, key=key)[:SAMPLE]


def run(label: str, latex: str, call: Call, wanted: str) -> None:
    """Try the mutants of a formula whose witness has just held, and record what became of them.

    Raises:
        AssertionError: with `sample`, if one survives.
        ValueError: if `wanted` is neither `sample` nor `all`.
    """
    if wanted not in ("sample", "all"):
        raise ValueError(f"{SWITCH} is 'sample' or 'all', got {wanted!r}")
    every = mutants(latex, call)
    kinds: dict[str, Counter[str]] = {}
    survivors = []
    for mutant in every if wanted == "all" else sample(label, every):
        said = verdict(latex, mutant, call)
        if said == "survived" and (label, _tight(mutant.latex)) in accepted():
            said = "accepted"
        kinds.setdefault(mutant.kind, Counter())[said] += 1
        if said == "survived":
            survivors.append(mutant)
    if Path.cwd().resolve() == NOTEBOOKS:  # not of a copy that a test has harmed
        part = "" if call.only is None else "." + "-".join(map(str, call.only))
        values = {"run": wanted, "kinds": {k: dict(v) for k, v in kinds.items()}}
        record("mutants", f"{label}{part}", {**values, "survived": [m.latex for m in survivors]})
    if wanted == "all":
        for mutant in survivors:
            print(f"  {label}: SURVIVED ({mutant.kind}): {' '.join(mutant.latex.split())}")
        print(f"  {label}: mutants {dict(sum(kinds.values(), Counter()))}")
    elif survivors:
        raise AssertionError(
            f"{label}: a wrong formula passes too: " + "; ".join(m.latex for m in survivors)
        )


# ---------------------------------------------------------------- all of them


def main(argv: list[str] | None = None) -> int:
    """Try every mutant of every formula of the notebooks named, or of all. Returns the status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: every chapter")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args(argv)
    os.environ[SWITCH] = "all"
    totals: Counter[str] = Counter()
    with ThreadPoolExecutor(given.workers) as pool:
        for path, lines in pool.map(_derivation, given.notebooks or chapters()):
            counts: Counter[str] = Counter()
            for line in lines:
                if found := re.search(r": mutants (\{.*\})$", line):
                    counts.update(ast.literal_eval(found[1]))
                elif "SURVIVED" in line:
                    print(line)
            print(f"{path.name}: {told(counts)}", flush=True)
            totals += counts
    print(f"all: {told(totals)}")
    return 1 if totals["survived"] or not totals else 0


def told(counts: Mapping[str, int]) -> str:
    """What became of mutants, in words."""
    caught = counts.get("value", 0) + counts.get("error", 0)
    wrong = caught + counts.get("survived", 0) + counts.get("accepted", 0)
    return (
        f"{wrong + counts.get('equivalent', 0)} mutants, {counts.get('equivalent', 0)} of them say "
        f"the same; {counts.get('value', 0)} caught by value, {counts.get('error', 0)} by error, "
        f"{counts.get('accepted', 0)} true and listed, {counts.get('survived', 0)} survived"
        + (f" ({caught / wrong:.2%} caught)" if wrong else "")
    )


def _derivation(path: Path) -> tuple[Path, list[str]]:
    """Run a notebook up to its last witness; the lines that its witnesses print."""
    from book.refresh import execute

    notebook = chapter(path)
    last = max((i for i, c in enumerate(notebook.cells) if "witness" in tags(c)), default=-1)
    notebook.cells = notebook.cells[: last + 1]
    ran = execute(notebook, cwd=path.resolve().parent, timeout=900)
    text = [o.get("text", "") for c in ran.cells for o in c.get("outputs", [])]
    return path, [line for part in text for line in part.splitlines()]


if __name__ == "__main__":
    sys.exit(main())
