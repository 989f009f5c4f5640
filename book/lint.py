"""What a notebook must hold before it may be published. Static: nothing is run here.

`python -m book.lint` looks at every chapter, at the file of facts and at the pages that are no
notebooks, `python -m book.lint notebooks/08_...ipynb` at one chapter.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from book import lint_facts, lint_symbols
from book.chapters import (
    calls_of_witness,
    chapters,
    library_adds,
    read,
    tagged,
    tags,
    topic,
    without_code,
)
from book.facts import LINK
from book.finding import SEEDS_AT_LEAST, fields

# A displayed equation, with the label that myst-parser takes: $$ ... $$ (eq-name)
EQUATION = re.compile(r"\$\$(?P<body>.+?)\$\$(?:[ \t]*\((?P<label>[^)\s]+)\))?", re.S)
# Other ways to display one, which carry no label that a witness could name.
UNLABELLED = re.compile(r"^[`:]{3,}\{math\}|\\begin\{(?:equation|align|gather|multline)\*?\}", re.M)
# A number with three or more digits that count: it should come out of a cell, not be typed.
TYPED_NUMBER = re.compile(r"(?<![\w.])\d*\.\d{3,}(?!\.?\w)")
# A shape such as (*, d) in prose; Markdown takes its star for the start of emphasis.
BARE_STAR = re.compile(r"\(\*[,)].{0,11}")
KNOWN_TAGS = {
    "export",
    "witness",
    "exercise",
    "solution",
    "hide-input",
    "timing",
    "cited",
    "finding",
    "setup",
    "library",
    "wide",
    "keep",
}
# A sentence with more numbers is not read: what is compared belongs into rows.
NUMBERS_IN_A_FINDING = 4
# Calls that choose how the rest of a notebook runs, and nothing else.
SETTINGS = re.compile(r"(?:torch\.(?:set|get)_\w+|\w+\.manual_seed|set_seed|warnings\.\w+)\Z")
SILENCERS = {"nbval-ignore-output", "nbval-skip", "skip-execution", "raises-exception"}
SILENCING_COMMENT = re.compile(
    r"^\s*#+\s*(NBVAL_IGNORE_OUTPUT|NBVAL_SKIP|PYTEST_VALIDATE_IGNORE_OUTPUT)", re.M
)


def problems(notebook: Any) -> list[str]:
    """Everything that is wrong with a notebook as it is stored, one line each."""
    return [
        *_equations(notebook),
        *_prose(notebook),
        *_cells(notebook),
        *_folded(notebook),
        *_findings(notebook),
        *(p for i, c in enumerate(notebook.cells) for p in _outputs(i, c)),
        *lint_facts.problems(notebook),
    ]


def labels(notebook: Any) -> list[str]:
    """The labels of the displayed equations, in order."""
    return [m["label"] for m in _displayed(notebook) if m["label"]]


def displayed(notebook: Any) -> list[tuple[str, str]]:
    """The displayed equations in order: label (empty if there is none) and LaTeX."""
    return [(m["label"] or "", m["body"].strip()) for m in _displayed(notebook)]


def witness_calls(notebook: Any) -> Iterator[tuple[str, ast.Call]]:
    """Each call of `witness(...)` in a cell tagged so, with the label that it names."""
    for cell in tagged(notebook, "witness"):
        yield from calls_of_witness(cell.source)


def witnessed(notebook: Any) -> list[str]:
    """The labels that a cell tagged `witness` calls `witness(...)` for."""
    return [label for label, _ in witness_calls(notebook)]


def uncompared(notebook: Any) -> list[str]:
    """Ids of the cells whose output no run is compared with: those tagged `timing`."""
    return [c.id for c in tagged(notebook, "timing")]


def _displayed(notebook: Any) -> Iterator[re.Match[str]]:
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            yield from EQUATION.finditer(without_code(cell.source))


def _equations(notebook: Any) -> Iterator[str]:
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            for match in UNLABELLED.finditer(EQUATION.sub("", without_code(cell.source))):
                yield f"write $$ ... $$ (eq-name) in place of {match[0]}"
    for match in _displayed(notebook):
        label = match["label"]
        if label is None:
            yield f"a displayed equation has no label: {match['body'].strip()[:60]}"
        elif not label.startswith("eq-"):
            yield f"the label of an equation starts with 'eq-', this one is {label!r}"
    named, checked = labels(notebook), witnessed(notebook)
    for label in sorted({n for n in named if named.count(n) > 1}):
        yield f"equation {label} is labelled twice"
    for label in named:
        if label not in checked:
            yield f"equation {label} has no witness"
    for label in checked:
        if label not in named:
            yield f"a witness speaks of {label}, but no equation has that label"


def _prose(notebook: Any) -> Iterator[str]:
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and "cited" not in tags(cell):
            text = LINK.sub("", EQUATION.sub("", without_code(cell.source)))
            text = re.sub(
                r"\$[^$]+\$|`[^`]+`|\{[^}]*\}|\([^)]*\.(?:md|ipynb|html)[^)]*\)", "", text
            )
            for number in TYPED_NUMBER.findall(text):
                yield f"the number {number} is typed into prose; let a cell print it"
            plain = re.sub(
                r"^[`:]{3,}.*$|`[^`\n]+`|\$[^$]+\$", "", without_code(cell.source), flags=re.M
            )
            for shape in BARE_STAR.findall(plain):
                yield f"the star of {shape!r} is read as emphasis; write the shape as code"


def _cells(notebook: Any) -> Iterator[str]:
    for i, cell in enumerate(notebook.cells):
        if not cell.get("id"):
            yield f"cell {i} has no id"
        if unknown := set(tags(cell)) - KNOWN_TAGS - SILENCERS:
            yield f"cell {i} has an unknown tag: {', '.join(sorted(unknown))}"
        if cell.cell_type != "code":
            continue
        if set(tags(cell)) & SILENCERS or SILENCING_COMMENT.search(cell.source):
            yield f"cell {i} opts out of the comparison of outputs"
        if cell.execution_count is None and cell.source.strip():
            yield f"cell {i} was not run"
        if "timing" in tags(cell) and not re.search(
            r"\b(timeit|perf_counter|Timer)\b", cell.source
        ):
            yield f"cell {i} is tagged 'timing' but times nothing"


def _folded(notebook: Any) -> Iterator[str]:
    """What the page folds says on its line what it is, and hides nothing else."""
    first = next((c for c in notebook.cells if c.cell_type == "code"), None)
    if first is not None and "setup" not in tags(first) and only_sets_up(first.source):
        yield "the first code cell only imports and seeds: tag it 'setup'"
    for i, cell in enumerate(notebook.cells):
        if cell.cell_type != "code":
            for tag in sorted({"setup", "library", "wide", "keep"} & {*tags(cell)}):
                yield f"cell {i} is tagged '{tag}' but holds no code"
            continue
        if "setup" in tags(cell) and (not only_sets_up(cell.source) or cell.get("outputs")):
            yield f"cell {i} is tagged 'setup' but does more than import and seed"
        if "library" in tags(cell):
            if "export" not in tags(cell):
                yield f"cell {i} is tagged 'library' but not 'export'"
            if library_adds(cell.source) is None:
                yield f"cell {i}: a library version begins with '# Library version: adds ...'"
            if cell.get("outputs"):
                yield f"cell {i}: the page folds a library version, and its output with it"


def only_sets_up(source: str) -> bool:
    """Whether a cell imports something, and otherwise seeds and sets defaults at most."""
    try:
        statements = ast.parse(source).body
    except SyntaxError:  # a line of IPython's own
        return False
    imports = [s for s in statements if isinstance(s, ast.Import | ast.ImportFrom)]
    others = [s for s in statements if s not in imports]
    calls = [s.value if isinstance(s, ast.Expr | ast.Assign) else None for s in others]
    return bool(imports) and all(
        isinstance(call, ast.Call) and SETTINGS.match(ast.unparse(call.func)) for call in calls
    )


def _findings(notebook: Any) -> Iterator[str]:
    for i, cell in enumerate(notebook.cells):
        if cell.cell_type != "code":
            if "finding" in tags(cell):
                yield f"cell {i} is tagged 'finding' but holds no code"
            continue
        calls = findings(cell)
        if ("finding" in tags(cell)) != bool(calls):
            yield (
                f"cell {i} calls finding(...) and lacks the tag 'finding'"
                if calls
                else f"cell {i} is tagged 'finding' but calls no finding(...)"
            )
        for call in calls:
            sentence = call.args[0] if call.args else None
            if not (isinstance(sentence, ast.Constant) and isinstance(sentence.value, str)):
                yield f"cell {i}: the sentence of a finding must be one plain string"
            elif (stated := len(fields(sentence.value))) > NUMBERS_IN_A_FINDING:
                yield (
                    f"cell {i}: the sentence of a finding states {stated} numbers, at most "
                    f"{NUMBERS_IN_A_FINDING} are read; compare the others in rows"
                )
            seeds = call.args[3] if call.args[3:] else None
            seeds = next((k.value for k in call.keywords if k.arg == "seeds"), seeds)
            if (count := _count(seeds)) is not None and count < SEEDS_AT_LEAST:
                yield f"cell {i}: a finding needs at least three seeds, this one has {count}"


def findings(cell: Any) -> list[ast.Call]:
    """The calls of `finding(...)` in a cell of code, in order."""
    if "finding" not in cell.source:
        return []
    source = re.sub(r"^\s*[%!].*$", "", cell.source, flags=re.M)  # IPython's own lines
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    found = [call for call in calls if getattr(call.func, "id", "") == "finding"]
    return sorted(found, key=lambda call: (call.lineno, call.col_offset))


def _count(seeds: ast.expr | None) -> int | None:
    """How many seeds an expression stands for, where that can be seen."""
    match seeds:
        case ast.List() | ast.Tuple():
            return len(seeds.elts)
        case ast.Call(func=ast.Name(id="range"), args=[ast.Constant(value=int(count))]):
            return count
        case ast.Call(
            func=ast.Name(id="range"),
            args=[ast.Constant(value=int(start)), ast.Constant(value=int(stop))],
        ):
            return stop - start
    return None


def _outputs(i: int, cell: Any) -> Iterator[str]:
    for output in cell.get("outputs", []):
        if output.output_type == "error":
            yield f"cell {i} holds a traceback: {output.ename}: {output.evalue}"
        if output.output_type == "stream" and output.name == "stderr":
            yield f"cell {i} writes to stderr: {output.text.strip()[:80]}"
        text = "".join(output.get("text", "")) + "".join(
            output.get("data", {}).get("text/plain", "")
        )
        if "Traceback (most recent call last)" in text:
            yield f"cell {i} prints a traceback"
        if re.search(r"(?<![\w.])/(home|root|Users|tmp|work|usr)/|0x[0-9a-f]{6,}", text):
            yield f"cell {i} prints a path or an address of this machine"
        pictures = [kind for kind in output.get("data", {}) if kind.startswith("image/")]
        for kind in pictures:
            if not output.metadata.get(kind, {}).get("alt", "").strip():
                yield f"cell {i} shows a figure without alt text"


def symbol_problems(path: Path) -> list[str]:
    """A chapter of the book has a table of its symbols; a notebook from elsewhere has none."""
    if path.resolve() not in [p.resolve() for p in chapters()]:
        return []
    return lint_symbols.problems(topic(path), displayed(read(path)))


def main(argv: list[str] | None = None) -> int:
    """Print the problems of the notebooks named, or of the whole book. Returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: every chapter")
    named = parser.parse_args(argv).notebooks
    found = [
        f"{path.name}: {problem}"
        for path in named or chapters()
        for problem in [*problems(read(path)), *symbol_problems(path)]
    ]
    found += [] if named else [*lint_facts.house(), *lint_symbols.house()]
    print("\n".join(found) or "nothing to complain of")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
