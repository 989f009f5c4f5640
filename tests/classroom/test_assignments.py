"""The graded assignments: solved they get full marks, released no secret, mistakes are named."""

import ast
import copy
import functools
import json
import re
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from book import quiz
from book.checkers import assignments, core, exercises
from book.checkers.assignments import part_of, questions
from book.grading import WrongAnswerError, hints, leaks, notebooks
from book.grading import __main__ as command
from book.grading.release import released

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {p.stem: p for p in sorted((ROOT / "notebooks/assignments").glob("*/*.ipynb"))}
QUESTIONS = questions()
MEMORY = [n for n in SOURCES if n.startswith("memory-")]
# They ask for no function that an oracle knows; `test_capstone.py` tests the second one.
ODD = ("quiz", "capstone")
OWN = [n for n in SOURCES if n not in MEMORY and n not in ODD]
SANDBOX = [] if shutil.which("bwrap") else ["--unsafe-no-sandbox"]

# Every public part of every chapter, and the question that takes it further.
CHECKS = {"can_read_values", "check_new", "fit_mask"}  # what the parts ask of their arguments
COVERED = {
    "tensors": {
        "broadcast_shape": "sum_to", "hadamard": "scale_shift_backward",
        "ScaleShift": "scale_shift_backward", "set_seed": "seeded_dropout",
        "assert_parity": "numeric_gradient", "gradcheck64": "numeric_gradient",
    },
    "map": {
        "Call": "step_shapes", "trace_shapes": "step_shapes", "name_shape": "step_shapes",
        "parameter_parts": "config_parameters", "parameter_count": "config_parameters",
        "flop_parts": "decode_flops", "transformer_flops": "decode_flops",
        "ScaledEmbedding": "embed_at", "AddPositions": "embed_at",
        "ReferenceTransformer": "config_parameters",
    },
    "softmax": {
        "softmax": "temperature_backward", "logsumexp": "running_logsumexp",
        "log_softmax": "log_softmax", "softmax_backward": "temperature_backward",
        "cross_entropy": "binary_cross_entropy", "online_softmax": "running_logsumexp",
    },
    "embeddings": {
        "sinusoidal_positional_encoding": "embed_at", "shift_matrix": "move_back",
        "SinusoidalPositionalEncoding": "embed_at", "TokenEmbedding": "tied_backward",
    },
    "attention": {
        "causal_mask": "window_mask", "padding_mask": "window_mask",
        "attention_weights": "biased_attention",
        "scaled_dot_product_attention": "biased_attention",
        "attention_backward": "memory_backward", "split_heads": "split_qkv",
        "merge_heads": "cross_attention_step", "MultiHeadAttention": "cross_attention_step",
    },
    "activations": {
        "sigmoid": "quick_gelu", "sigmoid_grad": "quick_gelu", "tanh": "mish_grad",
        "tanh_grad": "mish_grad", "relu": "hard_swish", "relu_grad": "ffn_backward",
        "leaky_relu": "prelu_backward", "leaky_relu_grad": "prelu_backward",
        "softplus": "mish_grad", "softplus_grad": "mish_grad", "gelu": "geglu_backward",
        "gelu_grad": "geglu_backward", "swish": "quick_gelu", "swish_grad": "quick_gelu",
        "silu": "hard_swish", "silu_grad": "hard_swish",
    },
    "feed_forward": {
        "round_up_to_multiple": "widest", "swiglu_hidden_dim": "widest",
        "glu": "merge_for_shards", "GLU": "merge_for_shards", "FeedForward": "ffn_backward",
        "GatedFeedForward": "merge_for_shards",
    },
    "normalization": {
        "layer_norm": "group_norm", "rms_norm": "partial_rms_norm",
        "rms_norm_backward": "block_backward", "batch_norm": "batch_norm_backward",
        "LayerNorm": "fold_layer_norm", "RMSNorm": "partial_rms_norm",
        "BatchNorm1d": "fold_batch_norm", "layer_norm_backward": "group_norm",
        "batch_norm_backward": "batch_norm_backward", "layer_norm_jacobian": "layer_norm_jvp",
        "rms_norm_jacobian": "block_backward",
    },
    "residual": {
        "Residual": "block_backward", "DeepNormResidual": "deepnorm_stds",
        "DeepNormScale": "deepnorm_stds", "deepnorm_constants": "deepnorm_stds",
        "noam_lr": "warmup_cosine", "linear_warmup": "warmup_cosine",
        "grad_norm_profile": "clip_gradients",
    },
    "transformer": {
        "TransformerEncoderLayer": "config_parameters",
        "TransformerDecoderLayer": "cross_attention_step", "Transformer": "cross_attention_step",
        "shift_right": "training_pair", "count_parameters": "config_parameters",
        "greedy_decode": "step_shapes", "beam_search": "beam_step",
    },
    "rope": {
        "rope_frequencies": "base_for_context", "build_rope_cache": "partial_rope",
        "rotation_matrix": "repair_keys", "rotate_half": "rope_backward",
        "apply_rotary_emb": "rope_2d", "RotaryEmbedding": "partial_rope",
        "interleaved_to_half_permutation": "convert_fused_qkv",
        "convert_rope_layout": "convert_fused_qkv",
    },
    "long_context": {
        "ntk_aware_base": "base_for_context", "ntk_by_parts": "llama3_classes",
        "llama3_frequencies": "llama3_classes", "position_interpolation": "packed_angles",
        "dynamic_ntk_base": "repair_dynamic_cache", "yarn_mscale": "fold_yarn",
        "yarn_frequencies": "read_yarn", "alibi_slopes": "alibi_rows", "alibi_bias": "alibi_rows",
    },
    "kv_cache": {
        "repeat_kv": "grouped_backward", "KVCache": "ring_write",
        "GroupedQueryAttention": "window_decode", "causal_padding_mask": "window_decode",
        "kv_cache_bytes_per_token": "longest_context", "mha_to_gqa": "absorb_output",
        "padding_position_ids": "packed_angles", "check_cache_law": "first_broken_token",
        "attention_intensity": "prefix_batch",
    },
    "mla": {
        "LatentCache": "quantise_heads", "MultiHeadLatentAttention": "absorb_output",
        "mla_cache_elements": "low_rank", "mla_attention_flops": "absorb_from",
    },
    "decoder": {
        "ModelConfig": "moe_parameters", "DecoderOnlyTransformer": "moe_parameters",
        "DecoderBlock": "moe_parameters", "next_token_probs": "min_p",
        "generate": "speculative_token", "load_hf_state_dict": "take_weights",
        "RopeScaling": "longrope", "from_pretrained_config": "attention_shape",
    },
    "cost": {
        "arithmetic_intensity": "moe_intensity", "linear_intensity": "moe_intensity",
        "forward_bytes": "moe_intensity", "padded_fraction": "busy_share",
        "linear_flops": "step_flops", "matmul_parameters": "step_flops",
        "model_flops": "step_flops", "attention_flops": "largest_chunk",
        "time_bound": "largest_chunk", "forward_bound": "largest_chunk",
        "Traffic": "fused_bytes", "roofline": "cheaper_from",
    },
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def once():
    """Every answer is judged once: many cells ask for a verdict on the same one."""
    judged, kept, grade = {}, set(), core.grade

    def remembered(name, exercise, answer):
        if name not in kept:
            core.keep(exercise)
            kept.add(name)
        if (name, id(answer)) not in judged:
            # The answer too, so that its identity stays its own.
            judged[name, id(answer)] = answer, grade(name, exercise, answer)
        return judged[name, id(answer)][1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(core, "grade", remembered)
        patch.setattr(quiz, "load", functools.cache(quiz.load))
        yield


@functools.cache
def code(data):
    notebook, _ = notebooks.parse(data)
    return [c for c in notebooks.cells(notebook) if c.type == "code"]


def cells(name, path=None):
    return code((path or SOURCES[name]).read_bytes())


@functools.cache
def essays(name):
    """The cells of an assignment that a person reads."""
    notebook, _ = notebooks.parse(SOURCES[name].read_bytes())
    return [c for c in notebooks.cells(notebook) if c.kind == "manual"]


def full(name):
    """The points that its tests give; a person gives the others."""
    return 100 - sum(c.points for c in essays(name))


@functools.cache
def compiled(source, name):
    return compile(source, name, "exec")


def run(some, space):
    """Run these cells in `space`; what each test raised, by its id, and what other cells raised."""
    found, broken = {}, []
    for cell in some:
        error = None
        try:
            exec(compiled(cell.source, f"<{cell.grade_id}>"), space)
        except Exception as caught:
            error = caught
        if cell.kind == "test":
            found[cell.grade_id] = error
        elif error is not None:
            broken.append((cell.kind, cell.grade_id, error))
    hints.clear()
    return found, broken


def asked(cell):
    """The name of the exercise that a test cell asks for, and the name of the answer."""
    for node in ast.walk(ast.parse(cell.source)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "").startswith("require"):
            return [getattr(a, "id", getattr(a, "value", None)) for a in node.args]
    return None


@functools.cache
def by_question(name):
    """The test cells of an assignment for each exercise and answer that they ask for."""
    found = {}
    for cell in cells(name):
        if cell.kind == "test":
            exercise, answer, *_ = asked(cell)
            found.setdefault((exercise, answer), []).append(cell)
    return found


# ---- the questions: as tests/parts/test_checkers.py has it for the chapters' exercises


def test_there_are_questions_and_the_chapters_do_not_ask_them():
    assert len(SOURCES) >= 15
    assert len(OWN) >= 10
    assert not set(QUESTIONS) & set(exercises())
    assert not any(n.startswith("assignments.") for n in exercises())


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_accepts_every_right_answer(name):
    exercise = QUESTIONS[name]
    assert exercise.variants, "a question needs a right answer that is not the oracle"
    for answer in (exercise.oracle, *exercise.variants):
        report = core.grade(name, exercise, answer)
        assert report.passed, f"{answer}: {report}"


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_rejects_and_names_every_wrong_answer(name):
    said = {}
    for wrong in QUESTIONS[name].wrong:
        report = core.grade(name, QUESTIONS[name], wrong.answer)
        if report.passed or report.looks_like is None or report.looks_like.name != wrong.name:
            said[wrong.name] = str(report)
    assert said == {}


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_names_at_least_ten_mistakes_with_reasons(name):
    wrong = QUESTIONS[name].wrong
    assert len({w.name for w in wrong}) == len(wrong) >= 10
    assert len({w.why for w in wrong}) == len(wrong)
    assert all(len(w.why.split()) >= 6 for w in wrong)
    assert all(":" in case.name for case in QUESTIONS[name].cases)


# ---- the sources


@pytest.mark.parametrize("name", SOURCES)
def test_the_points_are_100_and_the_cells_are_marked(name):
    some = cells(name)
    assert sum(c.points for c in some if c.kind == "test") == full(name) >= 70
    assert all(c.points > 0 for c in some if c.kind == "test")
    ids = [c.grade_id for c in some]
    assert all(ids)
    assert len(set(ids)) == len(ids)
    assert SOURCES[name].parent.name == name
    raw = json.loads(SOURCES[name].read_text(encoding="utf-8"))
    for cell in raw["cells"]:
        if cell["cell_type"] == "code":
            meta = cell["metadata"]["nbgrader"]
            assert meta["schema_version"] == 3
            assert set(meta) - {"points"} == {
                "cell_type", "grade", "grade_id", "locked", "schema_version", "solution", "task",
            }  # fmt: skip
            assert cell["outputs"] == []
    assert f"grading check {name}.ipynb" in "".join(raw["cells"][0]["source"])


@pytest.mark.parametrize("name", [*OWN, *MEMORY])
def test_every_question_has_partial_credit_unless_it_is_small(name):
    for (_, answer), tests in by_question(name).items():
        assert len(tests) >= 2 or tests[0].points <= 10, answer


def test_every_question_is_asked_once_with_all_its_parts():
    parts = {}
    for name in OWN:
        for cell in cells(name):
            if cell.kind == "test":
                exercise, _, part = asked(cell)
                assert exercise.startswith(name.replace("-", "_") + ".")
                parts.setdefault(exercise, []).append(part)
    assert {q: sorted(p) for q, p in parts.items()} == {
        q: sorted({part_of(c.name) for c in e.cases}) for q, e in QUESTIONS.items()
    }


@pytest.mark.parametrize("name", SOURCES)
def test_the_solutions_get_full_marks_and_print_nothing(name, capfd):
    found, broken = run(cells(name), {"__name__": "__main__"})
    assert broken == []
    assert {n: e for n, e in found.items() if e is not None} == {}
    out, err = capfd.readouterr()
    assert out + err == ""


@pytest.mark.parametrize("name", SOURCES)
def test_a_released_assignment_holds_no_secret_and_runs_without_points(name, tmp_path):
    text = released(SOURCES[name].read_bytes())
    path = tmp_path / f"{name}.ipynb"
    path.write_text(text, encoding="utf-8")
    for secret in ("BEGIN", "HIDDEN", "require", "book.checkers"):
        assert secret not in text
    # A library of the book may stand in an answer as it stands in the chapter.
    assert leaks.search([SOURCES[name]], [path])[0] == []
    some = cells(name, path)
    solutions = [c for c in some if c.kind == "solution"]
    assert all("raise NotImplementedError()" in c.source for c in solutions)
    space = {"__name__": "__main__"}
    found, broken = run(some, space)
    assert all(kind == "solution" for kind, *_ in broken)
    assert len(broken) == (name == "quiz")
    assert all(e is not None for e in found.values()), [n for n, e in found.items() if e is None]
    # What grading runs, with the stubs.
    found, _ = run([c for c in cells(name) if c.kind == "test"], space)
    assert all(isinstance(e, WrongAnswerError) for e in found.values())


@functools.cache
def mistakes(name):
    """What the test cells of each question of an assignment make of each known mistake."""
    space = {"__name__": "__main__"}
    run([c for c in cells(name) if c.kind != "test"], space)
    known = {**QUESTIONS, **exercises()}
    return {
        (exercise, answer): [
            (wrong, run(tests, {**space, answer: wrong.answer})[0])
            for wrong in known[exercise].wrong
        ]
        for (exercise, answer), tests in by_question(name).items()
    }


@pytest.mark.parametrize("name", [*OWN, *MEMORY])
def test_every_known_mistake_loses_points_and_is_named(name):
    unnamed = []
    for (exercise, _), results in mistakes(name).items():
        for wrong, found in results:
            said = [e.hint for e in found.values() if isinstance(e, WrongAnswerError)]
            if not said or not all(wrong.name in hint and wrong.why in hint for hint in said):
                unnamed.append((exercise, wrong.name, said))
    assert unnamed == []


@pytest.mark.parametrize("name", [*OWN, *MEMORY])
def test_each_hidden_test_can_fail(name):
    for (exercise, answer), results in mistakes(name).items():
        failed = {
            n for _, found in results for n, e in found.items() if isinstance(e, WrongAnswerError)
        }
        assert failed == {c.grade_id for c in by_question(name)[exercise, answer]}, exercise


@pytest.mark.parametrize("name", [n for n in SOURCES if essays(n)])
def test_a_question_for_a_person_has_a_rubric_that_students_do_not_see(name):
    notebook, _ = notebooks.parse(SOURCES[name].read_bytes())
    text = "\n".join(c.source for c in notebooks.cells(notebook) if c.type == "text")
    assert "read by a person" in text.split("\n## ")[0]
    handed_out = released(SOURCES[name].read_bytes())
    for cell in essays(name):
        lines = notebooks.inside(cell.source, notebooks.BEGIN_SCHEME, notebooks.END_SCHEME)
        parts = [line for _, line in lines if line.strip()]
        told = [int(re.match(r"(\d+) points?: ", line)[1]) for line in parts]
        assert len(told) >= 3
        assert sum(told) == cell.points
        assert f"({cell.points:g} points, read by a person)" in cell.source.split("\n")[0]
        assert all(len(line.split()) >= 12 and line not in handed_out for line in parts)


# ---- new questions


class _Renamed(ast.NodeTransformer):
    """Names in the order in which they appear, so that a renamed copy is still a copy."""

    def __init__(self):
        self.names = {}

    def visit_Name(self, node):
        node.id = self.names.setdefault(node.id, f"n{len(self.names)}")
        return node

    def visit_arg(self, node):
        node.arg = self.names.setdefault(node.arg, f"n{len(self.names)}")
        node.annotation = None
        return node


def normal(function):
    """The body of a function, without names, types, comments and docstrings."""
    function = ast.parse(ast.unparse(function)).body[0]
    function.returns = None
    if ast.get_docstring(function):
        function.body = function.body[1:]
    renamed = _Renamed().visit(function)
    return "\n".join(ast.dump(statement) for statement in renamed.body)


def functions(source):
    return [n for n in ast.walk(ast.parse(notebooks.plain(source)))
            if isinstance(n, ast.FunctionDef)]  # fmt: skip


@pytest.fixture(scope="module")
def printed():
    """Every function that a chapter prints."""
    found = {}
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        for cell in cells(None, path):
            for one in functions(cell.source):
                if one.body and normal(one):
                    found[normal(one)] = f"{path.stem}: {one.name}"
    return found


def test_a_renamed_copy_is_recognised():
    one = functions("def f(x: int, y) -> int:\n    '''Doc.'''\n    return x + y  # why\n")[0]
    assert normal(one) == normal(functions("def g(a, b):\n    return a + b")[0])
    assert normal(one) != normal(functions("def g(a, b):\n    return b + b")[0])


@pytest.mark.parametrize("name", OWN)
def test_no_solution_is_printed_in_a_chapter(name, printed):
    assert len(printed) > 100
    own = [f for c in cells(name) if c.kind == "solution" for f in functions(c.source)]
    assert own
    assert {f.name: printed[normal(f)] for f in own if normal(f) in printed} == {}


@pytest.mark.parametrize("chapter", COVERED)
def test_every_part_of_a_chapter_is_taken_further(chapter):
    source = (ROOT / f"transformer_parts/{chapter}.py").read_text(encoding="utf-8")
    public = {
        node.name
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
    }
    assert set(COVERED[chapter]) == public - CHECKS
    short = {name.split(".")[1] for name in QUESTIONS}
    assert set(COVERED[chapter].values()) <= short


# ---- from memory, and the quiz


@pytest.mark.parametrize("name", MEMORY)
def test_a_question_from_memory_is_a_chapters_exercise_with_a_time(name):
    notebook, _ = notebooks.parse(SOURCES[name].read_bytes())
    text = [c.source for c in notebooks.cells(notebook) if c.type == "text"]
    for (exercise, answer), tests in by_question(name).items():
        assert exercise in exercises()
        heading = next(t for t in text if f"`{answer}` (" in t.split("\n")[0])
        assert " min)" in heading.split("\n")[0]
        assert [asked(c)[2] for c in tests] == [0.6, 1.0]


def test_the_quiz_asks_the_statements_that_are_graded():
    statements = {one.id: one for one in quiz.load() if one.graded}
    tests = [c for c in cells("quiz") if c.kind == "test"]
    assert {c.grade_id for c in tests} == set(statements)
    assert [c.points for c in tests] == [5] * len(statements)
    notebook, _ = notebooks.parse(SOURCES["quiz"].read_bytes())
    text = "\n\n".join(c.source for c in notebooks.cells(notebook) if c.type == "text")
    for number, test in enumerate(tests, 1):
        one = statements[test.grade_id]
        assert f"**{number}.** `{one.id}`: {one.statement.strip()}" in text
    assert text.count("\n\n**") - text.count("\n\n**Time") - text.count("\n\n**Rules") - text.count(
        "\n\n**Check"
    ) == len(statements)


def test_a_wrong_answer_in_the_quiz_is_explained():
    tests = [c for c in cells("quiz") if c.kind == "test"]
    graded = [one for one in quiz.load() if one.graded]
    for one in graded:
        answers = {s.id: s.answer for s in graded} | {one.id: not one.answer}
        found, _ = run(tests, {"answers": answers})
        wrong = {n: e.hint for n, e in found.items() if e is not None}
        assert list(wrong) == [one.id]
        assert one.why.strip() in wrong[one.id]
    with pytest.raises(WrongAnswerError, match="None"):
        assignments.require_statement(graded[0].id, None)
    assert yaml.safe_load(quiz.QUIZ.read_text(encoding="utf-8"))


def test_what_does_not_exist_is_an_error():
    with pytest.raises(ValueError, match=r"no.such"):
        assignments.require("no.such", abs, "values")
    with pytest.raises(ValueError, match="no part 'middle'"):
        assignments.require("tensors_and_softmax.sum_to", abs, "middle")
    with pytest.raises(ValueError, match="no statement"):
        assignments.require_statement("no-such", True)


# ---- through the grader itself: all assignments as one, so that one engine starts

# One mistake in each: the cell, what is written there in place of what, and what the grader says.
MISTAKES = {
    "activations-and-ffn": (
        "ffn-backward", "(sent @ w2) * (hidden > 0)", "sent @ w2",
        "activation's derivative forgotten",
    ),
    "cache-and-mla": ("quantise-heads", "/ 127", "/ 128", "divided by 128"),
    "capstone": (
        "opening", '"previous": (0, 0)', '"previous": (7, 0)',
        "'previous' must be a pair (layer, head) of 2 layers with 4 heads each",
    ),
    "decoder-and-cost": (
        "step-flops", "6 * tokens * weights", "4 * tokens * weights",
        "backwards as cheap as forwards",
    ),
    "embeddings-and-attention": (
        "embed-at", "arange(offset, offset + tokens", "arange(0, tokens", "offset ignored",
    ),
    "experts-and-local-attention": (
        "cache-mask", "distance < window", "distance <= window",
        "the window without the token itself",
    ),
    "families-and-serving": (
        "texts-that-fit", "max(num_kv_heads // devices, 1)", "num_kv_heads",
        "every device holds all heads",
    ),
    "looking-inside": (
        "lens-surprise", "stream / size * gain", "stream * gain", "no norm",
    ),
    "memory-foundations": (
        "softmax-backward", "weighted - p * weighted.sum(dim, keepdim=True)", "weighted",
        "mean under p not subtracted",
    ),
    "memory-modern": (
        "grouped-attention", "x.repeat_interleave(q.shape[1] // x.shape[1], 1)",
        "x.repeat(1, q.shape[1] // x.shape[1], 1, 1)", "repeat for repeat_interleave",
    ),
    "memory-parts": (
        "rms-norm", "keepdim=True) + eps).sqrt()", "keepdim=True).sqrt() + eps)",
        "eps outside the root",
    ),
    "memory-whole": (
        "shift-right", "shifted[:, 0] = bos", "", "rolled: the last token comes to the front",
    ),
    "models-and-machines": (
        "longrope", "if length > old else", "if length >= old else",
        "the long factors one position too early",
    ),
    "normalization-and-residuals": (
        "partial-rms-norm", "keepdim=True) + eps)", "keepdim=True)) + eps",
        "eps outside the root",
    ),
    "positions-and-checkpoints": (
        "repair-dynamic-cache", "frequencies(start + count)", "frequencies(start)",
        "the length before the chunk",
    ),
    "quiz": ("answers", '"softmax-row": False', '"softmax-row": True', "The statement is false."),
    "recurrence": (
        "chats-that-fit", "(rollback + 1) * heads", "heads",
        "one table though tokens may be refused",
    ),
    "rope-and-long-context": ("training-length", "math.ceil(", "math.floor(", "rounded down"),
    "tensors-and-softmax": (
        "running-logsumexp", "return torch.log(total)",
        "return torch.stack([b.exp().sum(-1) for b in blocks]).sum(0).log()\n"
        "    return torch.log(total)",
        "no maximum at all",
    ),
    "tokens-and-training": (
        "noise-scale", "noise / length if", "length / noise if", "upside down",
    ),
    "transformer": (
        "training-pair", "labels[torch.arange(len(tokens)), ends] = eos", "", "no eos at all",
    ),
}  # fmt: skip


def together():
    """All assignments as one notebook; the name of its assignment stands before each id."""
    everything = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": []}
    for name, path in SOURCES.items():
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            cell["id"] = f"{name}--{cell['id']}"
            marks = cell["metadata"].get("nbgrader", {})
            if marks:
                marks["grade_id"] = f"{name}--{marks['grade_id']}"
            everything["cells"].append(cell)
    return everything


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """What the grader says of all solutions, of all stubs, and of a mistake in each assignment."""
    if not sys.platform.startswith("linux"):
        pytest.skip("without forks each of the 600 tests would start torch")
    top = tmp_path_factory.mktemp("graded")
    whole = together()
    wrong = copy.deepcopy(whole)
    for name, (where, right, put, _) in MISTAKES.items():
        (cell,) = [c for c in wrong["cells"] if c["id"] == f"{name}--{where}"]
        text = "".join(cell["source"])
        assert text.count(right) == 1, name
        cell["source"] = text.replace(right, put)
    source = json.dumps(whole)
    given = {"all": source, "none": released(source.encode()), "wrong": json.dumps(wrong)}
    for student, text in {"source": source, **given}.items():
        path = (top if student == "source" else top / "given") / student / "together.ipynb"
        path.parent.mkdir(parents=True)
        path.write_text(text, encoding="utf-8")
    out = top / "out.json"
    words = ["grade", top / "source", top / "given", "--json", out, "--jobs", "1"]
    words += ["--limit-total", "900", "--limit-processes", "1000", *SANDBOX]
    assert command.main(list(map(str, words))) == 0
    return {row["student"]: row for row in json.loads(out.read_text())}


def of(name, row):
    """The tests of one assignment in a row of the grader."""
    found = [t for t in row["tests"] if t["id"].startswith(f"{name}--")]
    assert len(found) == sum(c.kind == "test" for c in cells(name))
    return found


@pytest.mark.parametrize("name", SOURCES)
def test_the_grader_gives_100_to_the_solutions_and_0_to_the_stubs(name, rows):
    assert {r["status"] for r in rows.values()} == {"graded"}
    solved, stubs = of(name, rows["all"]), of(name, rows["none"])
    assert [t for t in solved if not t["passed"]] == []
    assert sum(t["score"] for t in solved) == full(name)
    assert sum(t["score"] for t in stubs) == 0
    assert all(t["reason"] for t in stubs)
    assert sum(t["seconds"] for t in solved) < 60
    assert not [c for c in rows["all"]["cells"] if c["error"]]


@pytest.mark.parametrize("name", SOURCES)
def test_the_graders_feedback_names_the_mistake_and_not_the_test(name, rows):
    where, _, _, mistake = MISTAKES[name]
    lost = [t for t in of(name, rows["wrong"]) if not t["passed"]]
    place = where if name != "quiz" else "softmax-row"
    assert lost
    assert all(t["id"].startswith(f"{name}--{place}") and t["score"] == 0 for t in lost)
    # Nor the cases of a question, nor what stands in them.
    known = {**QUESTIONS, **exercises()}
    asked_for = [e for e, _ in by_question(name)] if name not in ODD else []
    cases = [c.name for exercise in asked_for for c in known[exercise].cases]
    for one in lost:
        assert mistake in one["reason"]
        assert name in ODD or f"It looks like this mistake: {mistake}. " in one["reason"]
        for secret in ("require(", "HIDDEN", "expected ", *cases):
            assert secret not in one["reason"]
    # It costs the points of its own tests, and those of no other question.
    points = sum(t["score"] for t in of(name, rows["wrong"]))
    assert points == full(name) - sum(t["max"] for t in lost) < full(name)


def test_one_assignment_is_graded_by_the_command_as_it_stands(tmp_path):
    given = tmp_path / "given/ann/quiz.ipynb"
    given.parent.mkdir(parents=True)
    given.write_bytes(SOURCES["quiz"].read_bytes())
    out = tmp_path / "out.json"
    words = ["grade", SOURCES["quiz"].parent, tmp_path / "given", "--json", out, *SANDBOX]
    assert command.main(list(map(str, words))) == 0
    assert [(r["student"], r["score"]) for r in json.loads(out.read_text())] == [("ann", 100)]
