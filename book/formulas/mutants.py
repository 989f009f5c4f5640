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
import itertools
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import yaml

from book.chapters import NOTEBOOKS, chapters, tags
from book.chapters import read as chapter
from book.formulas import algebra
from book.formulas.names import PREFIXES, entries, raised, symbol
from book.formulas.reading import FormulaError, Node, closed, read, spell
from book.formulas.relations import Call, RelationError, _assignments, _scope, holds, statements
from book.formulas.values import Expectation, Over, Scope, evaluate, is_index, letters
from book.measured import record

SWITCH = "BOOK_MUTANTS"
SAMPLE = 5
SURVIVORS = Path(__file__).with_name("survivors.yml")


@dataclass(frozen=True)
class Mutant:
    """A changed formula: what kind of change, and the LaTeX with it."""

    kind: str
    latex: str


def mutants(latex: str, call: Call) -> list[Mutant]:
    """All mutants of a formula whose symbols are bound as in `call`."""
    tree = read(latex)
    claims = statements(tree)
    scope, _ = _scope(claims, call.symbols, call)
    nodes = [
        n
        for claim in claims
        if call.only is None or claim.number in call.only
        for root in (claim.node, *claim.conditions)
        for n in root.walk()
    ]
    found: dict[str, Mutant] = {}
    for kind, start, end, text in _edits(latex, _products(nodes, scope), scope):
        changed = latex[:start] + text + latex[end:]
        if changed != latex:
            found.setdefault(changed, Mutant(kind, changed))
    return list(found.values())


Edit = tuple[str, int, int, str]


def _products(nodes: list[Node], scope: Scope) -> list[Node]:
    """The nodes that can be changed on their own.

    Left out are the letter of a symbol with scripts, the indices `ij` side by side (no product),
    and the parts of a name such as dX, for which one node stands that spans both.
    """
    left_out: set[int] = set()
    made: list[Node] = []
    for node in nodes:
        if node.kind == "item":
            left_out.add(id(node.kids[0]))
            for script in node.kids[1:]:
                if script.kind == "sub":
                    left_out |= {
                        id(part) for part in entries(script.kids[0]) if is_index(part, scope)
                    }
                    inner = script.kids[0]
                    if inner.kind == "term" and len(entries(inner)) > 1:
                        left_out.add(id(inner))
                elif script.kind == "sup" and len(raised(script.kids[0])) > 1:
                    left_out.add(id(script.kids[0]))
        if node.kind == "term":
            for first, second in itertools.pairwise(node.kids):
                one, after = symbol(first), symbol(second)
                if one and after and one.base in PREFIXES and scope.names.find(after, one.base):
                    left_out |= {id(first), id(second)}
                    made.append(Node("joined", [first, second], "", first.start, second.end))
    return [n for n in nodes if id(n) not in left_out] + made


def _edits(latex: str, nodes: list[Node], scope: Scope) -> Iterator[Edit]:
    free = sorted({name for node in nodes if node.kind == "chain" for name in letters(node, scope)})
    for node in nodes:
        if node.kind == "sum":
            yield from _signs(node)
        elif node.kind == "number":
            yield "constant", node.start, node.end, f"{{{_next(str(node.text))}}}"
        elif node.kind == "sqrt" and len(node.kids) == 1:
            begin, end = node.start, _close(latex, node.marks[-1][0])
            inner = latex[node.marks[-2][0] : node.marks[-1][0]]
            yield "root", begin, end, f"\\left({inner}\\right)"
        elif node.kind == "frac":
            yield from _upside_down(latex, node)
        elif node.kind == "chain":
            yield from _relations(node)
        elif node.kind == "term":
            yield from _factors(latex, node, scope)
        elif node.kind in ("func", "big"):
            yield from _functions(latex, node)
        elif node.kind in ("floor", "ceil"):
            other = "ceil" if node.kind == "floor" else "floor"
            (a, b), (c, d) = node.marks[0], node.marks[-1]
            inside = latex[b:c]
            yield "function", a, d, f"\\l{other}{inside.removesuffix(chr(92) + 'right')}\\r{other}"
        elif node.kind == "joined":
            yield from _joined(latex, node, scope)
        yield from _symbols(latex, node, scope, free)


def _joined(latex: str, node: Node, scope: Scope) -> Iterator[Edit]:
    first, second = node.kids
    one, after = symbol(first), symbol(second)
    found = scope.names.find(after, one.base) if one and after else None
    if found and after:
        for other in _alike(found[0], scope)[:2]:
            yield "symbol", first.start, after.stop, f"{other} "


def _close(latex: str, at: int) -> int:
    """Behind the brace that ends an argument, if it has one."""
    return at + 1 if latex[at : at + 1] == "}" else at


def _next(number: str) -> str:
    return str(int(number) + 1) if number.isdigit() else str(round(float(number) * 1.5, 6))


def _signs(node: Node) -> Iterator[Edit]:
    signed = [(s, k) for s, k in zip(node.text, node.kids, strict=True) if s]
    for (sign, kid), (start, end) in zip(signed, node.marks, strict=True):
        if sign in "+-" and not spell(kid).startswith("O paren"):
            yield "sign", start, end, "-" if sign == "+" else "+"


def _upside_down(latex: str, node: Node) -> Iterator[Edit]:
    if "partial" in spell(node) or "\\mathrm{d}" in spell(node):
        return
    top, bottom = node.kids
    (a, _), (b, _), (c, _), (d, _) = node.marks[1:5]
    if spell(top) != spell(bottom):
        end = _close(latex, d)
        yield "fraction", node.start, end, f"\\frac{{{latex[c:d]}}}{{{latex[a:b]}}}"


_TURNED = {
    "\\le": "\\ge", "\\leq": "\\ge", "\\ge": "\\le", "\\geq": "\\le", "<": ">", ">": "<",
    "\\ne": "=", "\\neq": "=",
}  # fmt: skip


def _relations(node: Node) -> Iterator[Edit]:
    for how, (start, end) in zip(node.text, node.marks, strict=True):
        turned = {"<=": "\\ge ", ">=": "\\le ", "<": ">", ">": "<", "!=": "="}.get(how)
        if turned and node.over.get(node.text.index(how)) is None:
            yield "relation", start, end, turned


def _factors(latex: str, node: Node, scope: Scope) -> Iterator[Edit]:
    kids = node.kids
    for position, kid in enumerate(kids):
        if kid.kind == "operator":
            if kid.text == "odot":
                yield "odot", kid.start, kid.end, ""
            elif kid.text == "/":
                yield "fraction", kid.start, kid.end, "\\cdot "
            continue
        atom = kid.kids[0] if kid.kind == "item" else kid
        one = symbol(kid)
        if atom.kind in ("big", "func", "dots") or (one and _is_function(one, scope)):
            continue
        if one and one.base in PREFIXES and after_is_joined(kids, position, scope):
            continue
        before = kids[position - 1] if position else None
        after = kids[position + 1] if position + 1 < len(kids) else None
        previous = symbol(before) if before is not None and before.kind != "operator" else None
        if previous and (_is_function(previous, scope) or previous.base in PREFIXES):
            continue  # that is an argument, or the rest of a name
        leading = before.kids[0] if before is not None and before.kind == "item" else before
        if leading is not None and leading.kind == "func":
            continue
        start, end = kid.start, closed(latex, kid)
        if leading is not None and leading.kind == "big":
            if kid.kind != "paren" or leading is not before:
                yield "factor", start, end, " 1"
            continue
        if before is not None and before.kind == "operator":
            start = before.start
        elif after is not None and after.kind == "operator":
            if after.text == "/":
                yield "factor", start, end, "1"
                continue
            end = after.end
        yield "factor", start, end, " "


def after_is_joined(kids: list[Node], position: int, scope: Scope) -> bool:
    """Whether the next item makes one name with this one, or is what it differentiates."""
    one = symbol(kids[position])
    after = symbol(kids[position + 1]) if position + 1 < len(kids) else None
    if one is None or one.base in ("\\partial", "\\mathrm{d}"):
        return True
    return after is not None and scope.names.find(after, one.base) is not None


def _is_function(one: Any, scope: Scope) -> bool:
    found = scope.names.find(one)
    value = scope.values.get(found[0]) if found else None
    return (
        callable(value)
        or isinstance(value, Over | Expectation)
        or (found is None and one.base.startswith("\\operatorname"))
    )


_OTHER = {
    "sin": "\\cos ", "cos": "\\sin ", "tanh": "\\sin ", "exp": "\\cos ", "ln": "\\exp ",
    "log": "\\exp ", "max": "\\min", "min": "\\max", "sum": "\\max", "prod": "\\sum",
}  # fmt: skip


def _functions(latex: str, node: Node) -> Iterator[Edit]:
    # A name such as x_\min is no function; it has no argument and is left alone by its error.
    if (other := _OTHER.get(str(node.text))) and latex[node.start : node.start + 1] == "\\":
        yield "function", node.start, node.end, other


def _symbols(latex: str, node: Node, scope: Scope, free: list[str]) -> Iterator[Edit]:
    one = symbol(node)
    if one is None:
        return
    found = scope.names.find(one)
    scripts = node.kids[1:] if node.kind == "item" else []
    for script in scripts:
        if script.kind == "sub":
            yield from _indices(latex, script, one, found, scope, free)
        elif script.kind == "sup":
            yield from _raised(latex, script, one, found)
    if found and not _is_function(one, scope) and found[0] not in scope.defined:
        key, n, m = found
        if n == len(one.subs) and m == len(one.sups):
            span = (node.start, closed(latex, node))
        elif n == 0 and m == 0:
            span = (node.start, one.stop)
        else:
            return
        for other in _alike(key, scope)[:2]:
            yield "symbol", *span, f"{{{other}}}" if not n + m else other
    elif found is None and not one.subs and one.letter in free:
        for other in [f for f in free if f != one.letter][:1]:
            yield "symbol", node.start, one.stop, f"{{{other}}}"


def _alike(key: str, scope: Scope) -> list[str]:
    """Other symbols of the same shape that stand for something else."""
    value = scope.values[key]
    found = []
    for other, candidate in scope.values.items():
        kindred = type(candidate) is type(value) or _numbers(value, candidate)
        if other == key or callable(candidate) or not kindred:
            continue
        if algebra.is_array(value) or algebra.is_array(candidate):
            if algebra.shape(value) != algebra.shape(candidate):
                continue
            if algebra.exact(value) != algebra.exact(candidate):
                continue
            if not algebra.exact(value) and torch.equal(value, candidate):
                continue
        elif isinstance(value, list | tuple | dict | Expectation | Over) or value == candidate:
            continue
        found.append(other)
    return found


def _numbers(a: Any, b: Any) -> bool:
    plain = int | float
    return isinstance(a, plain) and isinstance(b, plain)


def _indices(
    latex: str, script: Node, one: Any, found: Any, scope: Scope, free: list[str]
) -> Iterator[Edit]:
    parts = entries(script.kids[0])
    n = found[1] if found else 0
    (_, _), (begin, _), (end, _) = script.marks
    braces = latex[begin - 1] == "{"
    texts = [latex[p.start : closed(latex, p)] for p in parts]
    for position, part in enumerate(parts):
        if position < n:
            continue
        changes = []
        name = is_index(part, scope)
        if name is not None:
            changes += [other for other in free if other != name][:1]
        if part.kind not in ("all", "slice"):
            changes.append(f"{texts[position]}+1")
        for change in changes:
            inside = ",".join([*texts[:position], change, *texts[position + 1 :]])
            yield "index", begin, end, inside if braces else f"{{{inside}}}"


def _raised(latex: str, script: Node, one: Any, found: Any) -> Iterator[Edit]:
    inner = script.kids[0]
    (start, _), (begin, _), (end, _) = script.marks
    stop = _close(latex, end) if latex[begin - 1] == "{" else end
    text = spell(inner)
    if found and found[2]:
        return
    if text == "\\top":
        yield "transpose", start, stop, ""
    elif inner.kind == "number":
        yield "square", start, stop, ""
    elif inner.kind not in ("paren", "name", "term"):
        yield "power", start, stop, ""


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
    scope, _ = _scope(claims, call.symbols, call)
    found: list[tuple[str, Any]] = []
    for claim in claims:
        if call.only is not None and claim.number not in call.only:
            continue
        for inner in _assignments(claim.node, claim.conditions, scope):
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
    rows = yaml.safe_load(SURVIVORS.read_text(encoding="utf-8")) or []
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
