"""Protects the form of every chapter as it is stored: its parts, equations, exercises, references.

Nothing is run here; that the stored outputs are true is what the run of the notebooks checks.
"""

import ast
import re
import sys

import pytest
import yaml

from book.chapters import NOTEBOOKS, ROOT, chapters, read, tagged, tags, topic
from book.checkers import exercises
from book.checkers.questions import Question
from book.lint import labels, problems, uncompared, witnessed
from book.weave import PACKAGE, stale, weave

PARTS = [
    "The question",
    "Derivation",
    "Build",
    "Parity",
    "See it",
    "Explore it",
    "What it costs",
    "Misconceptions corrected here",
    "Questions you may be asked",
    "Exercises",
    "References",
]
# Chapters in the form of the second edition: a picture first, the exercises where they belong in
# the text, and the parts at the end that every reader looks for.
SECOND_EDITION = {
    "01_tensors",
    "02_map",
    "03_softmax",
    "04_embeddings",
    "05_attention",
    "06_activations",
    "07_feed_forward",
    "08_normalization",
    "09_residual",
    "10_transformer",
    "11_rope",
    "12_long_context",
    "13_kv_cache",
    "14_mla",
    "15_decoder",
    "16_cost",
    "17_tokens",
    "18_training",
    "19_inside",
    "20_experts",
    "21_local_attention",
    "22_families",
    "23_serving",
    "24_recurrence",
}
# Chapters whose part of the library is a package, written by hand: more data than a page holds.
PACKAGES = {"22_families"}
LAST_PARTS = [
    "In real models",
    "What it costs",
    "Questions you may be asked",
    "What is often written and wrong",
    "References",
]
FURTHER = "Further"  # folded: what only a specialist wants; before the questions or at the end
# Every cell of the book whose output no run is compared with. Each prints timings.
NOT_COMPARED = {
    ("03_softmax", "timing"),
    ("04_embeddings", "timing"),
    ("06_activations", "timing"),
    ("07_feed_forward", "timing"),
    ("08_normalization", "timing"),
    ("11_rope", "timing"),
    ("12_long_context", "timing"),
    ("13_kv_cache", "timing"),
    ("14_mla", "timing"),
    ("15_decoder", "timing"),
    ("16_cost", "timing-question"),
    ("16_cost", "timing"),
    ("16_cost", "timing-compiled"),
    ("16_cost", "timing-claims"),
    ("16_cost", "timing-roofline"),
    ("16_cost", "timing-knee"),
    ("18_training", "timing"),
    ("20_experts", "timing"),
    ("23_serving", "timing"),
    ("24_recurrence", "timing"),
}
EXPLORERS_AT_LEAST = {
    "08_normalization": 3,
    **{path.stem: 2 for path in chapters() if path.name >= "11"},
}

EVERY_CHAPTER = pytest.mark.parametrize("path", chapters(), ids=lambda path: path.stem)
FIRST_FORM = pytest.mark.parametrize(
    "path", [p for p in chapters() if p.stem not in SECOND_EDITION], ids=lambda path: path.stem
)
SECOND_FORM = pytest.mark.parametrize(
    "path", [p for p in chapters() if p.stem in SECOND_EDITION], ids=lambda path: path.stem
)


def by_part(notebook):
    """Part -> its (cell, text) pairs in order; a text cell is cut where a part begins."""
    parts, current = {"": []}, ""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            parts[current].append((cell, cell.source))
            continue
        for piece in re.split(r"^(?=## )", cell.source, flags=re.M):
            if piece.startswith("## "):
                current = piece.splitlines()[0][3:].strip()
                parts.setdefault(current, [])
            parts[current].append((cell, piece))
    return parts


def text_of(part):
    return "\n".join(text for cell, text in part if cell.cell_type == "markdown")


def code_of(part, tag=None):
    return [c for c, _ in part if c.cell_type == "code" and (tag is None or tag in tags(c))]


def printed(cell):
    return "".join(o.get("text", "") for o in cell.outputs if o.output_type == "stream")


def holds(cell, kind):
    return any(kind in o.get("data", {}) for o in cell.outputs)


def is_explorer(cell):
    html = ("".join(o.get("data", {}).get("text/html", "")) for o in cell.outputs)
    return any('class="tp-spec"' in text for text in html)


# ---------------------------------------------------------------- the notebook as a whole


def test_there_are_chapters_and_each_is_in_the_table_of_contents():
    assert len(chapters()) >= 2, "zero chapters must never pass for a checked book"
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    files = [chapter["file"] for part in toc["parts"] for chapter in part["chapters"]]
    in_order = [file for file in files if file.startswith("notebooks/")]
    assert in_order == [f"notebooks/{path.stem}" for path in chapters()]
    strays = {p.name for p in NOTEBOOKS.glob("*.ipynb")} - {p.name for p in chapters()}
    assert strays == set(), "neither read nor checked"


@EVERY_CHAPTER
def test_a_chapter_has_no_problem(path):
    assert problems(read(path)) == []


@EVERY_CHAPTER
def test_the_cells_were_run_from_top_to_bottom_in_a_fresh_kernel(path):
    code = [c for c in read(path).cells if c.cell_type == "code"]
    assert len(code) >= 20
    assert [c.execution_count for c in code] == list(range(1, len(code) + 1))


@EVERY_CHAPTER
def test_the_cells_have_ids_that_say_something(path):
    ids = [c.id for c in read(path).cells]
    assert len(set(ids)) == len(ids)
    random = [i for i in ids if re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f-]+)?", i)]
    assert random == [], "ids as Jupyter makes them; give them a name"


def test_only_timings_are_not_compared_and_these_are_all():
    found = {(path.stem, cell) for path in chapters() for cell in uncompared(read(path))}
    assert found == NOT_COMPARED


# ---------------------------------------------------------------- the parts


@EVERY_CHAPTER
def test_a_chapter_opens_with_a_title_a_promise_and_what_it_takes(path):
    first = read(path).cells[0]
    assert first.cell_type == "markdown"
    title, *rest = [line for line in first.source.splitlines() if line.strip()]
    assert re.fullmatch(r"# \S.*", title)
    promise = rest[0]
    assert not promise.startswith(("#", "-", "*")), "one sentence of promise comes first"
    assert 5 <= len(promise.split()) <= 40
    told = "\n".join(rest[1:])
    for what in ("You will be able to", "Time", "Builds on"):
        assert f"**{what}**" in told, f"{what!r} is not said"
    assert re.search(r"\*\*Time\*\*.*\d+ minutes", told)


@FIRST_FORM
def test_a_chapter_has_its_parts_in_order_and_no_other(path):
    parts = list(by_part(read(path)))
    assert parts[0] == ""
    assert parts[1:] == PARTS


@FIRST_FORM
def test_every_part_holds_what_it_is_for(path):
    parts = by_part(read(path))
    assert any(printed(c) or holds(c, "image/png") for c in code_of(parts["The question"])), (
        "the question is shown by running something"
    )
    assert len(code_of(parts["Derivation"], "witness")) >= 3
    assert code_of(parts["Build"], "export")
    assert any(printed(c) for c in code_of(parts["Parity"]))
    assert any(holds(c, "image/png") for c in code_of(parts["See it"]))
    explorers = [c for c in code_of(parts["Explore it"]) if is_explorer(c)]
    assert len(explorers) >= EXPLORERS_AT_LEAST.get(path.stem, 1)
    assert any(printed(c) for c in code_of(parts["What it costs"]))
    misconceptions = text_of(parts["Misconceptions corrected here"])
    assert re.search(r"\(\.\./book/pages/misconceptions\.md#[ep]-\d+\)", misconceptions)
    questions = re.findall(
        r"^```\{dropdown\} (.+)$", text_of(parts["Questions you may be asked"]), re.M
    )
    assert len(questions) >= 3
    assert re.search(r"\{cite(:\w+)?\}`", text_of(parts["References"]))


@FIRST_FORM
def test_witnesses_stand_in_the_derivation_and_library_code_in_build(path):
    for part, cells in by_part(read(path)).items():
        if part != "Derivation":
            assert [c.id for c in code_of(cells, "witness")] == [], part
        if part != "Build":
            assert [c.id for c in code_of(cells, "export")] == [], part


@FIRST_FORM
def test_an_explorer_stands_only_where_it_is_looked_for(path):
    # At the very top stands the picture of the chapter; beside a formula, what moves it.
    for part, cells in by_part(read(path)).items():
        if part not in ("", "Derivation", "Explore it"):
            assert [c.id for c in code_of(cells) if is_explorer(c)] == [], part


@SECOND_FORM
def test_a_chapter_of_the_second_edition_ends_with_what_every_reader_looks_for(path):
    parts = [part for part in by_part(read(path)) if part != FURTHER]
    assert parts[-len(LAST_PARTS) :] == LAST_PARTS


@SECOND_FORM
def test_a_chapter_of_the_second_edition_begins_with_a_picture_that_can_be_touched(path):
    code = [c for c in read(path).cells if c.cell_type == "code" and "setup" not in tags(c)]
    assert is_explorer(code[0]), "after the setup comes the picture"
    explorers = [c for c in code if is_explorer(c)]
    assert len(explorers) >= EXPLORERS_AT_LEAST.get(path.stem, 1)


@SECOND_FORM
def test_what_is_in_every_chapter_is_in_a_chapter_of_the_second_edition(path):
    notebook = read(path)
    parts = by_part(notebook)
    assert len([*tagged(notebook, "witness")]) >= 3
    assert [*tagged(notebook, "export")] or path.stem in PACKAGES
    assert any(printed(c) for c in code_of(parts["What it costs"]))
    wrong = text_of(parts["What is often written and wrong"])
    assert re.search(r"\(\.\./book/pages/misconceptions\.md#[ep]-\d+\)", wrong)
    asked = re.findall(
        r"^```\{dropdown\} (.+)$", text_of(parts["Questions you may be asked"]), re.M
    )
    assert len(asked) >= 3
    assert re.search(r"\{cite(:\w+)?\}`", text_of(parts["References"]))


# ---------------------------------------------------------------- equations


@EVERY_CHAPTER
def test_every_labelled_equation_has_a_witness_that_was_seen_to_hold(path):
    notebook = read(path)
    named = labels(notebook)
    assert len(named) >= 3
    assert set(named) == set(witnessed(notebook))
    said = "".join(printed(cell) for cell in tagged(notebook, "witness"))
    assert [label for label in named if f"{label} holds: " not in said] == []


@EVERY_CHAPTER
def test_a_witness_follows_its_equation_before_the_next_one(path):
    waiting = []
    for cell in read(path).cells:
        if cell.cell_type == "markdown":
            found = _labels_of(cell)
            assert not (found and waiting), f"{waiting} come without a witness before {found}"
            waiting += found
        elif "witness" in tags(cell):
            for label in waiting:
                assert f'"{label}"' in cell.source, f"{cell.id} does not check {label}"
            waiting = []
    assert waiting == []


def _labels_of(cell):
    return re.findall(r"\$\$[ \t]*\((eq-[^)\s]+)\)", cell.source)


def test_a_label_is_used_once_in_the_whole_book():
    everywhere = [label for path in chapters() for label in labels(read(path))]
    assert sorted(everywhere) == sorted(set(everywhere))


@EVERY_CHAPTER
def test_a_chapter_speaks_of_no_equation_that_there_is_not(path):
    known = {label for chapter in chapters() for label in labels(read(chapter))}
    source = "\n".join(c.source for c in read(path).cells if c.cell_type == "markdown")
    spoken_of = set(re.findall(r"\{eq\}`([^`]+)`", source))
    assert spoken_of <= known


# ---------------------------------------------------------------- the library


def test_the_library_is_what_the_notebooks_say():
    assert stale() == []


@EVERY_CHAPTER
def test_a_chapter_brings_a_module(path):
    if path.stem in PACKAGES:
        assert weave(path) is None
        assert (PACKAGE / topic(path) / "__init__.py").exists()
    else:
        assert weave(path) is not None
        assert (PACKAGE / f"{topic(path)}.py").exists()


def test_the_library_needs_torch_and_itself_and_nothing_else():
    allowed = {"torch", "transformer_parts", *sys.stdlib_module_names}
    modules = sorted(PACKAGE.glob("*.py"))
    assert len(modules) >= 3
    for module in modules:
        tree = ast.parse(module.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{module.name}: a relative import"
                names = [node.module]
            # Reading published weights, inside a function: who does not, does not need it.
            optional = {"safetensors"} if node not in tree.body else set()
            assert {name.split(".")[0] for name in names} <= allowed | optional, module.name


# ---------------------------------------------------------------- exercises

STEPS = ["exercise", "stub", "hints", "solution-start", "solution", "solution-end"]


def told(part):
    """The steps of the exercises in order: (step, label or cell)."""
    for cell, text in part:
        if cell.cell_type == "code":
            if "exercise" in tags(cell):
                yield "stub", cell
            if "solution" in tags(cell):
                yield "solution", cell
            continue
        kinds = r"^```\{(exercise|dropdown|solution-start|solution-end)\} ?(.*)$"
        for match in re.finditer(kinds, text, re.M):
            kind, argument = match.groups()
            if kind == "exercise":
                label = re.match(r"\n:label: (ex-[\w-]+)\n", text[match.end() :])
                assert label is not None, f"the exercise {argument!r} has no label"
                yield "exercise", label[1]
            elif kind == "dropdown" and argument.startswith("Hint"):
                yield "hint", argument
            elif kind.startswith("solution"):
                yield kind, argument


def exercises_of(path):
    """Each exercise as a list of its steps."""
    groups = []
    parts = by_part(read(path))
    whole = [pair for part in parts.values() for pair in part]
    for step in told(whole if path.stem in SECOND_EDITION else parts["Exercises"]):
        if step[0] == "exercise":
            groups.append([])
        groups[-1].append(step)
    return groups


def names_checked(cell):
    """The exercises that a cell calls `check` for."""
    return [
        node.args[0].value
        for node in ast.walk(ast.parse(cell.source))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "check"
    ]


@EVERY_CHAPTER
def test_a_chapter_sets_exercises_with_difficulty_and_minutes(path):
    found = exercises_of(path)
    assert len(found) in (range(6, 9) if path.stem in SECOND_EDITION else range(3, 8))
    text = "\n".join(c.source for c in read(path).cells if c.cell_type == "markdown")
    effort = re.findall(r"^\*\d+ minutes, (?:easy|medium|hard)\b[^*]*\*", text, re.M)
    assert len(effort) == len(found)
    named = [group[0][1] for group in found]
    assert len(set(named)) == len(named)


def test_a_label_of_an_exercise_is_used_once_in_the_whole_book():
    named = [group[0][1] for path in chapters() for group in exercises_of(path)]
    assert sorted(named) == sorted(set(named))


@EVERY_CHAPTER
def test_an_exercise_goes_from_stub_to_check_to_hints_to_solution(path):
    for group in exercises_of(path):
        label, hints = group[0][1], [what for step, what in group if step == "hint"]
        order = []
        for step, _ in group:
            step = "hints" if step == "hint" else step
            if order[-1:] != [step]:
                order.append(step)
        assert order == STEPS, label
        assert hints == [f"Hint {i + 1}" for i in range(len(hints))], label
        assert len(hints) >= 2, f"{label}: hints come in stages"
        steps = dict(group)
        assert steps["solution-start"] == label
        [name] = names_checked(steps["stub"])
        empty = r" = None\b" if isinstance(exercises()[name], Question) else "NotImplementedError"
        assert re.search(empty, steps["stub"].source), label
        assert not re.search(empty, steps["solution"].source), label


@EVERY_CHAPTER
def test_the_stub_is_not_called_wrong_and_the_solution_is_right(path):
    for group in exercises_of(path):
        steps = dict(group)
        [name] = names_checked(steps["stub"])
        assert names_checked(steps["solution"]) == [name]
        nothing = rf"{re.escape(name)}: (?:nothing to check|no answer) yet\b"
        assert re.search(nothing, printed(steps["stub"]).splitlines()[-1])
        right = r"right\." if isinstance(exercises()[name], Question) else r"right in all \d+ cases"
        assert re.search(rf"^{re.escape(name)}: {right}", printed(steps["solution"]), re.M)


@EVERY_CHAPTER
def test_a_chapter_asks_the_exercises_of_its_topic_all_of_them_and_once(path):
    asked = [name for cell in _stubs(path) for name in names_checked(cell)]
    known = [name for name in exercises() if name.split(".")[0] == topic(path)]
    assert sorted(asked) == sorted(known)


def _stubs(path):
    return tagged(read(path), "exercise")


def test_every_exercise_that_is_asked_can_be_checked_and_the_other_way_round():
    asked = {
        name
        for path in chapters()
        for cell in read(path).cells
        if cell.cell_type == "code" and re.search(r"^check\(", cell.source, re.M)
        for name in names_checked(cell)
    }
    assert asked == set(exercises())


# ---------------------------------------------------------------- references


@EVERY_CHAPTER
def test_every_source_that_is_cited_is_in_the_bibliography(path):
    bibliography = (ROOT / "book/pages/references.bib").read_text(encoding="utf-8")
    keys = re.findall(r"^@\w+\{([^,\s]+),", bibliography, re.M)
    assert len(keys) == len(set(keys))
    source = "\n".join(c.source for c in read(path).cells if c.cell_type == "markdown")
    cited = {
        key.strip()
        for group in re.findall(r"\{cite(?::\w+)?\}`([^`]+)`", source)
        for key in group.split(",")
    }
    assert len(cited) >= 2
    assert cited <= set(keys), cited - set(keys)


@EVERY_CHAPTER
def test_a_source_is_cited_with_the_place_in_it(path):
    """In the references a reader learns where to look: a section, equation, table, algorithm."""
    references = text_of(by_part(read(path))["References"])
    places = r"section|equation|table|algorithm|figure|appendix|chapter|page|definition|theorem"
    assert len(re.findall(places, references, re.I)) >= 2
