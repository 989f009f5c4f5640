"""Protects the checks: faults are planted in copies of a real chapter, and each is found.

The faults that only a run can show are planted together, each in a cell of its own, and one real
run of the notebook with the book's own settings must fail in exactly these cells.
"""

import ast
import base64
import copy
import io
import json
import os
import re
import shutil
import subprocess
import sys
from xml.etree import ElementTree

import nbformat
import numpy as np
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output
from PIL import Image, ImageDraw

import book.finding
from book.chapters import NOTEBOOKS, ROOT, read, tags
from book.formulas.mutants import SWITCH
from book.lint import EQUATION, findings, problems
from book.measured import MEASURED, fingerprint
from book.refresh import write
from book.weave import PACKAGE, stale

NAME = "08_normalization.ipynb"
MODULE = "normalization.py"

# Defined in the harmed copy, in which every printed formula is wrong. `broken` stands in for
# `witness` and turns up whoever says yes to a wrong formula, or, where two sides are compared, to a
# right-hand side of which one entry is off by a thousandth; `unlabelled` stands in for `show`.
TOOLS = """
import sympy as _sympy
import torch as _torch
from book.figures import show as _show
from book.formulas.reading import FormulaError
from book.witness import WitnessError, witness as _witness

said_yes, said_no, said_why = [], [], []

def off(side):
    if isinstance(side, _sympy.MatrixBase):
        side = side.as_mutable()
        side[0] += _sympy.Rational(1, 1000)
        return side
    if isinstance(side, _sympy.Basic):
        return side + _sympy.Rational(1, 1000)
    side = _torch.as_tensor(side).detach().to(_torch.float64).clone()
    side.view(-1)[0] += 1e-3 * (side.abs().max().item() or 1.0)
    return side

def broken(label, symbols, *right, **options):
    try:
        _witness(label, symbols, *map(off, right), **options)
    except WitnessError:
        said_no.append(label)
    except FormulaError:  # a row of zeros that is doubled has no value any more
        said_why.append(label)
    else:
        said_yes.append(label)

def unlabelled(figure, **options):
    figure.axes[0].set_xlabel("")
    _show(figure, **options)
"""


@pytest.fixture
def chapter():
    """A copy of the chapter, to be harmed."""
    return copy.deepcopy(read(NOTEBOOKS / NAME))


def code(notebook, *, having=None, tag=None):
    """The code cells with this kind of output and this tag."""
    return [
        cell
        for cell in notebook.cells
        if cell.cell_type == "code"
        and (tag is None or tag in tags(cell))
        and (having is None or any(having in o.get("data", {}) for o in cell.outputs))
    ]


def printing(notebook):
    """The cells without a part of their own in the book that print numbers."""
    plain = [cell for cell in code(notebook) if set(tags(cell)) <= {"hide-input"}]
    cells = [cell for cell in plain if len(cell.outputs) == 1]
    return [c for c in cells if re.search(r"\d", c.outputs[0].get("text", ""))]


def run(notebook, folder, name=NAME):
    """Run it with the book's settings: cell id -> what was said of the cell, None if it passed."""
    folder.mkdir()
    for file in ("conftest.py", "pyproject.toml"):
        shutil.copy(ROOT / file, folder)
    (folder / "notebooks").mkdir()
    path = folder / "notebooks" / name
    write(notebook, path)
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    # What a witness says of wrong versions of its formula is another test's matter: none are tried.
    env |= {"PYTHONPATH": str(ROOT), SWITCH: ""}
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-n0",
            "-p",
            "no:cacheprovider",
            "--junitxml=report.xml",
            path,
        ],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    # The run of a harmed copy is no measurement of the chapter. (Another process may just be
    # measuring the chapter itself.)
    kept = MEASURED / "notebook" / f"{path.stem}.json"
    if kept.exists():
        assert json.loads(kept.read_text(encoding="utf-8")).get("file") != fingerprint(path)
    cases = list(ElementTree.parse(folder / "report.xml").iter("testcase"))
    cells = code(notebook)
    assert [case.get("name") for case in cases] == [f"Cell {i}" for i in range(len(cells))]
    return {
        cell.id: None if len(case) == 0 else "\n".join([*(part.text or "" for part in case)])
        for cell, case in zip(cells, cases, strict=True)
    }


# ---------------------------------------------------------------- ways to do harm


def change_a_number(cell):
    [output] = cell.outputs
    at = [match.start() for match in re.finditer(r"\d", output.text)][-1]
    other = str((int(output.text[at]) + 1) % 10)
    output.text = output.text[:at] + other + output.text[at + 1 :]


def draw_over_the_figure(cell):
    data = next(o.data for o in cell.outputs if "image/png" in o.get("data", {}))
    image = Image.open(io.BytesIO(base64.b64decode(data["image/png"]))).convert("RGBA")
    width, height = image.size
    line = (0.3 * width, 0.5 * height, 0.5 * width, 0.4 * height)
    ImageDraw.Draw(image).line(line, fill="#0072B2", width=3)
    png = io.BytesIO()
    image.save(png, "PNG")
    data["image/png"] = base64.b64encode(png.getvalue()).decode()


def about_the_figure(cell):
    """What the metadata of the output says of the figure."""
    return next(o.metadata["image/png"] for o in cell.outputs if "image/png" in o.get("data", {}))


def change_the_alt_text(cell):
    """Only what the site shows; the line of text that the cell prints stays as it is."""
    about_the_figure(cell)["alt"] += " It falls throughout."


def change_the_size(cell):
    about_the_figure(cell)["width"] *= 2


ISLAND = re.compile(r'(<script type="application/json" class="tp-spec">)(.*?)(</script>)', re.S)


def panel_of(cell):
    """The first panel of an explorer, as it is stored."""
    data = next(o.data for o in cell.outputs if "text/html" in o.get("data", {}))
    return json.loads(ISLAND.search(data["text/html"])[2])["panels"][0]


def change_the_explorer(cell, change):
    data = next(o.data for o in cell.outputs if "text/html" in o.get("data", {}))
    before, text, after = ISLAND.search(data["text/html"]).groups()
    spec = json.loads(text)
    change(spec)
    harmed = json.dumps(spec, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    assert harmed != text
    data["text/html"] = data["text/html"].replace(before + text + after, before + harmed + after)


def move_a_value(spec):
    data = next(panel["data"] for panel in spec["panels"] if "data" in panel)
    values = bytearray(base64.b64decode(data["bytes"]))
    values[0] += 2 if values[0] <= 252 else -2
    data["bytes"] = base64.b64encode(bytes(values)).decode()


def move_a_shape(spec):
    """One shape of a drawing stands three units too far to the right or to the left."""
    shapes = spec["panels"][0]["shapes"]
    column = next(s["x"] for s in shapes if isinstance(s["x"], dict) and s["x"]["width"] == 2)
    places = np.frombuffer(base64.b64decode(column["bytes"]), "<u2").copy()
    places[0] += round(3 / column["step"])
    column["bytes"] = base64.b64encode(places.tobytes()).decode()


def change_a_later_sentence(spec):
    words = spec["sentences"]["words"]  # of every state, or of each kind of state
    if isinstance(words, str):
        spec["sentences"]["words"] = words + " So it is."
    else:
        words["texts"][-1] += " So it is."


def replace_calls(cell, name, other):
    """Let the cell call `other` instead of `name`."""
    cell.source, count = re.subn(rf"(?<![\w.]){name}\(", f"{other}(", cell.source)
    assert count >= 1, f"{cell.id} does not call {name}"


def double(latex):
    """The formula with a factor of two behind the first sign of equality of each statement."""
    parts = re.split(r"(\\qquad)", latex)
    for i, part in enumerate(parts):
        depth = 0
        for at, sign in enumerate(part):
            depth += {"{": 1, "}": -1}.get(sign, 0)
            if sign == "=" and depth == 0:
                parts[i] = f"{part[: at + 1]}2{part[at + 1 :]}"
                break
        else:
            assert part == r"\qquad", f"nothing to double in {part}"
    return "".join(parts)


def double_every_formula(notebook):
    """Print every formula wrong; nothing else is changed. Says how many there are."""
    count = 0
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            for match in reversed(list(EQUATION.finditer(cell.source))):
                body = double(match["body"])
                cell.source = (
                    cell.source[: match.start("body")] + body + (cell.source[match.end("body") :])
                )
                count += 1
    return count


def a_finding_of_our_own():
    """A cell with a finding that holds, and its output."""
    source = (
        'finding("The square of {a:.2f} is {b:.2f}.", lambda s: {"a": 2 + s / 10, "b": '
        '(2 + s / 10) ** 2}, "a < b")'
    )
    boxes = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(book.finding, "display", boxes.append)
        exec(source, {"finding": book.finding.finding})
    output = new_output("display_data", boxes[0]._repr_mimebundle_())
    cell = new_code_cell(f"from book.finding import finding\n\n{source}", outputs=[output])
    cell.metadata["tags"], cell["id"], cell.execution_count = ["finding"], "finding-of-the-test", 1
    return cell


def reverse_the_comparison(cell):
    """Turn round the first comparison of the cell's first finding."""
    call = findings(cell)[0]
    holds = (
        call.args[2] if call.args[2:] else next(k.value for k in call.keywords if k.arg == "holds")
    )
    claim = next(n for n in ast.walk(holds) if isinstance(n, ast.Constant))
    told = ast.get_source_segment(cell.source, claim)
    turned = told.translate(str.maketrans("<>", "><"))
    assert turned != told
    assert cell.source.count(told) == 1
    cell.source = cell.source.replace(told, turned)


def change_the_sentence_that_is_shown(cell):
    data = next(o.data for o in cell.outputs if "text/markdown" in o.get("data", {}))
    data["text/markdown"] = data["text/markdown"].replace("**Finding.** ", "**Finding.** Not so: ")


def flip_a_sign(notebook):
    """Turn the first minus between two numbers in the library into a plus; says in which cell."""
    for cell in code(notebook, tag="export"):
        for function in ast.walk(ast.parse(cell.source)):
            if not isinstance(function, ast.FunctionDef):
                continue
            for node in ast.walk(function):
                if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
                    line = cell.source.splitlines()[node.lineno - 1]
                    if line.count(" - ") == 1 and "raise" not in line and 'f"' not in line:
                        cell.source = cell.source.replace(line, line.replace(" - ", " + "))
                        return cell.id
    raise AssertionError("there is no sign to flip")


# ---------------------------------------------------------------- what a run shows


@pytest.fixture(scope="module")
def harm(tmp_path_factory):
    """Fault -> ids of the cells that it was planted in, and what the run said of every cell."""
    notebook = copy.deepcopy(read(NOTEBOOKS / NAME))
    assert len(code(notebook, tag="finding")) >= 2
    concluded = iter(code(notebook, tag="finding"))
    pictures = code(notebook, having="text/html")
    numbers, figures, scenes, charts, witnesses = (
        iter(cells)
        for cells in (
            printing(notebook),
            # Figures whose plane axes have labels come first.
            sorted(
                code(notebook, having="image/png"),
                key=lambda c: "xlabel" not in c.source or "3d" in c.source,
            ),
            [cell for cell in pictures if panel_of(cell)["kind"] == "scene"],
            [cell for cell in pictures if "data" in panel_of(cell)],
            reversed(code(notebook, tag="witness")),
        )
    )
    planted = {}

    def plant(fault, cells, do, *more):
        cell = next(cells)
        do(cell, *more)
        planted.setdefault(fault, []).append(cell.id)

    plant("number", numbers, change_a_number)
    plant("output", numbers, lambda cell: cell.update(outputs=[]))
    plant("never run", numbers, lambda cell: cell.update(outputs=[], execution_count=None))
    extra = new_output("stream", name="stdout", text="one more\n")
    plant("extra output", numbers, lambda cell: cell.outputs.append(extra))
    plant("figure", figures, draw_over_the_figure)
    plant("no label", figures, replace_calls, "show", "unlabelled")
    plant("alt text", figures, change_the_alt_text)
    plant("size", figures, change_the_size)
    plant("place", scenes, change_the_explorer, move_a_shape)
    plant("value", charts, change_the_explorer, move_a_value)
    plant("sentence", charts, change_the_explorer, change_a_later_sentence)
    plant("finding", concluded, reverse_the_comparison)
    plant("shown finding", concluded, change_the_sentence_that_is_shown)
    # What is printed is wrong everywhere, and the last witness says so in its own words.
    formulas = double_every_formula(notebook)
    plant("formula", witnesses, lambda cell: None)
    for cell in witnesses:
        replace_calls(cell, "witness", "broken")
        planted.setdefault("other witnesses", []).append(cell.id)

    tools = new_code_cell(TOOLS)
    told = "{*said_no, *said_why}"
    spoken = "assert not said_yes and len(said_why) <= 1, (said_yes, said_why)\n"
    spoken += f"assert len({told}) == {formulas - 1}, {told}"
    census = new_code_cell(spoken)
    tools["id"], census["id"] = "tools-of-the-test", "census-of-the-test"
    notebook.cells = [tools, *notebook.cells, census]
    return planted, run(notebook, tmp_path_factory.mktemp("fish") / "copy")


def test_exactly_the_harmed_cells_fail_and_all_others_pass(harm):
    planted, said = harm
    failed = {cell for cell, words in said.items() if words is not None}
    assert failed == {cell for cells in planted.values() for cell in cells}
    assert len(said) > 2 * len(failed), "too few cells pass to say that the harm is why others fail"


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("number", "mismatch 'stdout'"),
        ("output", "Unexpected output fields"),
        ("never run", "Unexpected output fields"),
        ("extra output", "mismatch 'stdout'"),
        ("figure", "pixels differ"),
        ("no label", "lack the label of an axis"),
        ("alt text", "metadata.image/png.alt"),
        ("size", "metadata.image/png.width"),
        ("place", ".x: a value moved by 30"),
        ("value", "a value moved by 2"),
        ("sentence", ".sentences.words"),
        ("finding", "FindingError"),
        ("shown finding", "mismatch 'text/markdown'"),
        ("formula", "WitnessError"),
    ],
)
def test_a_planted_fault_is_found_and_the_run_says_what_it_is(harm, fault, words):
    planted, said = harm
    [cell] = planted[fault]
    assert said[cell] is not None, f"nobody noticed the fault {fault!r} in {cell}"
    assert words in said[cell]


def test_every_witness_of_the_chapter_says_no_to_a_wrong_formula(harm):
    planted, said = harm
    assert len(planted["other witnesses"]) >= 10
    # The census asserts that nobody said yes, and that there was a no for every formula but the
    # last, whose witness fails by itself.
    assert said["census-of-the-test"] is None, said["census-of-the-test"]


def test_a_flipped_sign_in_the_library_code_is_noticed_by_its_chapter(tmp_path):
    # A chapter that trains little, because it runs up to its last part.
    name = "14_mla.ipynb"
    chapter = copy.deepcopy(read(NOTEBOOKS / name))
    place = flip_a_sign(chapter)
    parts = [c.source for c in chapter.cells]
    end = next(i for i, text in enumerate(parts) if re.search(r"^## In real models", text, re.M))
    chapter.cells = chapter.cells[:end]
    said = run(chapter, tmp_path / "copy", name)
    cells = [cell.id for cell in code(chapter)]
    failed = [cell for cell, words in said.items() if words is not None]
    assert failed, f"nobody noticed the flipped sign in {place}"
    assert cells.index(failed[0]) > cells.index(place), "what comes before cannot fail by it"
    assert any("Error" in said[cell] for cell in failed)


# ---------------------------------------------------------------- what a look shows


def first(notebook, **what):
    return code(notebook, **what)[0]


def add_a_traceback(notebook):
    error = new_output("error", ename="ValueError", evalue="bad", traceback=["Traceback"])
    printing(notebook)[0].outputs.append(error)


def print_a_traceback(notebook):
    printing(notebook)[0].outputs[0].text += "Traceback (most recent call last)\n"


def take_the_alt_text(notebook):
    for output in first(notebook, having="image/png").outputs:
        output.get("metadata", {}).get("image/png", {}).pop("alt", None)


def add_an_equation(notebook):
    notebook.cells.insert(5, new_markdown_cell("$$\n1 = 2\n$$ (eq-unheard-of)"))


def add_an_equation_without_a_label(notebook):
    notebook.cells.insert(5, new_markdown_cell("$$\n1 = 2\n$$"))


def take_a_witness(notebook):
    cell = first(notebook, tag="witness")
    cell.source = cell.source.replace("witness(", "print(")


def untag_a_witness(notebook):
    first(notebook, tag="witness").metadata.tags.remove("witness")


def silence_by_tag(notebook):
    printing(notebook)[0].metadata["tags"] = ["nbval-ignore-output"]


def silence_by_comment(notebook):
    cell = printing(notebook)[0]
    cell.source = f"# NBVAL_IGNORE_OUTPUT\n{cell.source}"


def silence_as_a_timing(notebook):
    printing(notebook)[0].metadata["tags"] = ["timing"]


def let_it_fail(notebook):
    printing(notebook)[0].metadata["tags"] = ["raises-exception"]


def never_run(notebook):
    for cell in code(notebook):
        cell.execution_count, cell.outputs = None, []


def type_a_number(notebook):
    notebook.cells.insert(5, new_markdown_cell("The error is 0.0123."))


def take_the_tag_of_a_finding(notebook):
    cell = a_finding_of_our_own()
    cell.metadata["tags"] = []
    notebook.cells.append(cell)


def tag_what_is_no_finding(notebook):
    printing(notebook)[0].metadata["tags"] = ["finding"]


def find_something_for_two_seeds(notebook):
    cell = a_finding_of_our_own()
    cell.source = cell.source.replace('"a < b")', '"a < b", seeds=[0, 1])')
    notebook.cells.append(cell)


def state_five_numbers_in_a_finding(notebook):
    cell = a_finding_of_our_own()
    cell.source = cell.source.replace("The square", "{a} {b} {a.low}: the square")
    notebook.cells.append(cell)


def type_a_year(notebook):
    notebook.cells.insert(5, new_markdown_cell("It is so since 2016."))


def type_the_size_of_a_model(notebook):
    notebook.cells.insert(5, new_markdown_cell("GPT-3 has 96 layers."))


def change_a_fact(notebook):
    link = re.compile(r"\[([\d,]+)\](?=\([^)]*facts\.md#)")
    address = "(../book/pages/facts.md#llama-2-7b)"
    notebook.cells.insert(5, new_markdown_cell(f"Llama has [11,008]{address} features."))
    cell = next(c for c in notebook.cells if link.search(c.source))
    cell.source = link.sub(lambda m: f"[{int(m[1].replace(',', '')) + 1:,}]", cell.source)


def test_the_copy_that_nobody_harmed_has_no_problem(chapter):
    assert problems(chapter) == []


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (add_a_traceback, "holds a traceback"),
        (print_a_traceback, "prints a traceback"),
        (take_the_alt_text, "shows a figure without alt text"),
        (add_an_equation, "equation eq-unheard-of has no witness"),
        (add_an_equation_without_a_label, "a displayed equation has no label"),
        (take_a_witness, "has no witness"),
        (untag_a_witness, "has no witness"),
        (silence_by_tag, "opts out of the comparison"),
        (silence_by_comment, "opts out of the comparison"),
        (silence_as_a_timing, "is tagged 'timing' but times nothing"),
        (let_it_fail, "opts out of the comparison"),
        (never_run, "was not run"),
        (type_a_number, "is typed into prose"),
        (type_a_year, "the year 2016 is typed"),
        (type_the_size_of_a_model, "96 beside GPT-3 is typed"),
        (change_a_fact, "its forms are"),
        (take_the_tag_of_a_finding, "lacks the tag 'finding'"),
        (tag_what_is_no_finding, "is tagged 'finding' but calls no finding"),
        (find_something_for_two_seeds, "at least three seeds, this one has 2"),
        (state_five_numbers_in_a_finding, "states 5 numbers, at most 4 are read"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_planted_fault_is_found_without_a_run(chapter, fault, said):
    fault(chapter)
    found = problems(chapter)
    assert found, f"nobody noticed {fault.__name__}"
    assert all(said in problem for problem in found), found


# ---------------------------------------------------------------- what the weave shows


@pytest.fixture
def library(tmp_path):
    """Copies of all notebooks and of the library, which agree."""
    shutil.copytree(NOTEBOOKS, tmp_path / "notebooks", ignore=shutil.ignore_patterns(".*"))
    shutil.copytree(PACKAGE, tmp_path / "library", ignore=shutil.ignore_patterns("__pycache__"))
    assert stale(tmp_path / "notebooks", tmp_path / "library") == []
    return tmp_path / "notebooks", tmp_path / "library"


def test_a_module_edited_by_hand_is_found(library):
    module = library[1] / MODULE
    module.write_text(module.read_text(encoding="utf-8") + "\n# by hand\n", encoding="utf-8")
    assert stale(*library) == [MODULE]


def test_a_chapter_that_was_changed_and_not_woven_is_found(library):
    path = library[0] / NAME
    notebook = nbformat.read(path, as_version=4)
    flip_a_sign(notebook)
    write(notebook, path)
    assert stale(*library) == [MODULE]


def test_a_chapter_that_lost_its_export_tag_is_found(library):
    path = library[0] / NAME
    notebook = nbformat.read(path, as_version=4)
    code(notebook, tag="export")[-1].metadata.tags.remove("export")
    write(notebook, path)
    assert stale(*library) == [MODULE]


def test_a_module_of_no_chapter_is_found(library):
    (library[1] / "by_hand.py").write_text("x = 1\n", encoding="utf-8")
    assert stale(*library) == ["by_hand.py"]
