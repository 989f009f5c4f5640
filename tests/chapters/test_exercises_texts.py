"""What an exercise says against what its checker does: signatures, minutes, names, constants.

A name in backticks exists, the stub has the parameters of the reference, the opening's minutes are
the sum of the exercises' own, and a constant that a text states is the one that the reference uses.
"""

import ast
import builtins
import dataclasses
import functools
import inspect
import math
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import transformer_parts
from book.chapters import ROOT, chapters, read, tags, topic
from book.checkers import exercises
from book.checkers.questions import Question

CHECKERS = exercises()
EVERY_CHAPTER = pytest.mark.parametrize("path", chapters(), ids=lambda path: path.stem)


# ---------------------------------------------------------------- reading the exercises


@dataclasses.dataclass
class Task:
    """One exercise: its text with its hints, and the cells of its stub and of its solution."""

    label: str
    chapter: object
    text: str = ""
    stub: str = ""
    solution: str = ""
    name: str = ""

    @property
    def minutes(self):
        [found] = re.findall(r"^\*(\d+) minutes\b", self.text, re.M)
        return int(found)


def tasks(path):
    found, inside = [], False
    for cell in read(path).cells:
        if cell.cell_type == "code":
            if found and "exercise" in tags(cell):
                found[-1].stub = cell.source
                [found[-1].name] = re.findall(r'^check\("([^"]+)"', cell.source, re.M)
            elif found and "solution" in tags(cell):
                found[-1].solution = cell.source
            continue
        cuts = r"^(?=```\{exercise\}|```\{solution-end\}|## )"
        for piece in re.split(cuts, cell.source, flags=re.M):
            if piece.startswith("```{exercise}"):
                found.append(Task(re.search(r"^:label: (\S+)$", piece, re.M)[1], path))
                inside = True
            elif piece.startswith(("```{solution-end}", "## ")):
                inside = False  # the text of the chapter goes on
            if inside:
                found[-1].text += piece
    return found


TASKS = {task.label: task for path in chapters() for task in tasks(path)}
EVERY_TASK = pytest.mark.parametrize("label", TASKS)


@dataclasses.dataclass
class Value:
    """What a stub or a solution is about where the answer to a question is a letter or a number."""

    name: str


def defined(source):
    """The function or class that a stub or a solution is about, the last one of the cell.

    Where a question is answered with a value it is the name of that value.
    """
    body = ast.parse(source).body
    # A solution may go on after its check.
    [call] = [node.value for node in body if ast.unparse(node).startswith("check(")]
    checked = ast.unparse(call.args[1])
    targets = [t for node in body if isinstance(node, ast.Assign) for t in node.targets]
    if checked in map(ast.unparse, targets):
        return Value(checked)
    return [n for n in body if isinstance(n, ast.FunctionDef | ast.ClassDef)][-1]


def parameters(node):
    """Names and defaults of a function's parameters, or of a class's constructor."""
    if isinstance(node, Value):
        return None
    if isinstance(node, ast.ClassDef):
        node = next(f for f in node.body if getattr(f, "name", "") == "__init__")
    return ast.unparse(node.args)


def test_every_exercise_of_the_book_is_read():
    assert sorted(task.name for task in TASKS.values()) == sorted(CHECKERS)


# ---------------------------------------------------------------- minutes

# "60 minutes to read, and about 75 minutes for the exercises", or "... with the exercises".
TIME = re.compile(
    r"\*\*Time\*\*:? (?:about )?(?P<read>\d+) minutes to read, (?:and )?(?:about )?"
    r"(?P<rest>\d+ minutes|two hours|three hours) (?P<how>for|with) the exercises"
)


def stated(opening):
    """Minutes of reading and of exercises that the opening of a chapter states."""
    match = TIME.search(opening)
    assert match, "the opening does not say how long the exercises take"
    hours = {"two hours": 120, "three hours": 180}
    rest = hours.get(match["rest"]) or int(match["rest"].split()[0])
    to_read = int(match["read"])
    return to_read, rest if match["how"] == "for" else rest - to_read


@EVERY_CHAPTER
def test_the_minutes_of_the_opening_are_those_of_the_exercises(path):
    _, for_exercises = stated(read(path).cells[0].source)
    assert for_exercises == sum(task.minutes for task in tasks(path))


def test_minutes_are_read_and_wrong_ones_found():
    assert stated("**Time** 60 minutes to read, 50 minutes for the exercises.") == (60, 50)
    assert stated("**Time** 80 minutes to read, about two hours with the exercises.") == (80, 40)
    assert stated("**Time** 90 minutes to read, and about 185 minutes with the exercises.") == (
        90, 95,
    )  # fmt: skip
    with pytest.raises(AssertionError):
        stated("**Time** an afternoon.")


# ---------------------------------------------------------------- signatures

# Checkers that look at something else than the answer's own parameters: a module is asked for, and
# the reference is given a view of it.
OTHER_PARAMETERS = {"tensors.register_gains"}


def reference_parameters(name):
    """The parameters of the reference without those that it only has for the wrong answers."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)
    given = inspect.signature(CHECKERS[name].oracle).parameters.values()
    asked = [p for p in given if p.kind in kinds and p.default is p.empty]
    return [p.name for p in asked]


def signature_problems(task):
    """Where stub, solution, reference and text differ in the answer's parameters."""
    stub, solution = defined(task.stub), defined(task.solution)
    if isinstance(CHECKERS[task.name], Question) != isinstance(stub, Value):
        yield "a question asks for a value, every other exercise for a function or class"
        return
    asked = [a.arg for a in stub.args.args] if isinstance(stub, ast.FunctionDef) else None
    if (stub.name, parameters(stub)) != (solution.name, parameters(solution)):
        yield "the solution has another signature than the stub"
    if task.name not in OTHER_PARAMETERS and not isinstance(stub, Value):
        if asked != reference_parameters(task.name):
            yield f"the reference takes {reference_parameters(task.name)}, the stub {asked}"
        if len(CHECKERS[task.name].cases[0].inputs()) != len(asked):
            yield "a case has another number of inputs"
    for span, arguments in calls_of_the_answer(task):
        if arguments != asked:
            yield f"the text says `{span}`, the stub takes {asked}"


def calls_of_the_answer(task):
    """The calls of the reader's own function in the text: its arguments."""
    own = {defined(task.stub).name, defined(task.stub).name.removeprefix("my_")}
    for span in spans(task.text):
        tree = expression(span)
        if isinstance(tree, ast.Call) and getattr(tree.func, "id", "") in own:
            yield span, [ast.unparse(argument) for argument in tree.args]


@EVERY_TASK
def test_stub_solution_reference_and_text_have_the_same_parameters(label):
    assert list(signature_problems(TASKS[label])) == []


@pytest.mark.parametrize(
    ("part", "old", "new", "said"),
    [
        ("text", "same(a, b, tol)", "same(a, tol, b)", "the text says `same(a, tol, b)`"),
        ("text", "same(a, b, tol)", "same(a, b)", "the text says `same(a, b)`"),
        ("stub", "(a, b, tol)", "(a, b, limit)", "the reference takes ['a', 'b', 'tol']"),
        ("stub", "(a, b, tol)", "(a, b, tol=0.0)", "another signature than the stub"),
        ("solution", "def my_same(", "def same(", "another signature than the stub"),
    ],
)
def test_another_signature_is_found(part, old, new, said):
    task = TASKS["ex-same"]
    assert old in getattr(task, part)
    harmed = dataclasses.replace(task, **{part: getattr(task, part).replace(old, new)})
    assert any(said in problem for problem in signature_problems(harmed))


# ---------------------------------------------------------------- names

ROLE = re.compile(r"\{[a-z:]+\}`[^`]*`")
CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
TENSOR = {*dir(torch.Tensor), *dir(str), *dir(dict), *dir(list)}
MODULES = {"F": F, "nn": nn, "torch": torch, "math": math}


def spans(text):
    """What stands in backticks and is no role, such as {eq}`...`."""
    return CODE.findall(ROLE.sub(" ", text))


def expression(span):
    """The syntax tree of a span, which may be an index or an assignment; None if it is neither."""
    for text in (span, f"x{span}", re.sub(r"\s*\+=.*", "", span)):
        try:
            return ast.parse(text, mode="eval").body
        except SyntaxError:
            continue
    return None


def bound_in(source):
    """The names and words that a piece of Python knows."""
    known = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name):
            known.add(node.id)
        elif isinstance(node, ast.arg):
            known.add(node.arg)
        elif isinstance(node, ast.Attribute):
            known.add(node.attr)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            known.add(node.name)
        elif isinstance(node, ast.alias):
            known.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, ast.keyword) and node.arg:
            known.add(node.arg)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            known.update(re.findall(r"[A-Za-z_]\w*", node.value))
    return known


def library():
    return {name for name in dir(transformer_parts) if not name.startswith("_")}


@functools.cache
def known_to(chapter):
    """Every name that an exercise may use: the reader's, the chapter's, the checker's, torch's."""
    notebook = "\n".join(c.source for c in read(chapter).cells if c.cell_type == "code")
    place = ROOT / "book/checkers" / topic(chapter)
    files = sorted(place.glob("*.py")) or [place.with_suffix(".py")]
    checker = "\n".join(file.read_text(encoding="utf-8") for file in files)
    everywhere = {*dir(builtins), *MODULES, *TENSOR, *dir(torch), *dir(F), *library()}
    return bound_in(notebook) | bound_in(checker) | everywhere


def unknown(span, known):
    """What a span names that does not exist, one line each."""
    keyword = re.fullmatch(r"(\w+)=(\w+)", span)
    if keyword:
        return [problem for word in keyword.groups() for problem in unknown(word, known)]
    tree = expression(span)
    if tree is None:
        return [f"`{span}` cannot be read as Python"]
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            root = MODULES.get(getattr(node.value, "id", ""))
            there = hasattr(root, node.attr) if root else node.attr in TENSOR | known
            if not there:
                found.append(f"{ast.unparse(node)} does not exist")
        elif isinstance(node, ast.Name):
            # o1, o2 and m1, m2 are o and m to a text.
            if node.id not in known and not {f"{node.id}1", f"{node.id}2"} <= known:
                found.append(f"{node.id} does not exist")
        elif isinstance(node, ast.Call):
            found += unknown_keywords(node)
    return found


def unknown_keywords(call):
    """Keywords of a call of torch's that torch does not take, where Python can tell."""
    path = ast.unparse(call.func).split(".")
    if path[0] not in MODULES:
        return []
    called = MODULES[path[0]]
    for name in path[1:]:
        called = getattr(called, name, None)
    try:
        takes = inspect.signature(called).parameters
    except (TypeError, ValueError):
        return []  # written in C, without a signature
    if any(p.kind is p.VAR_KEYWORD for p in takes.values()):
        return []
    names = [keyword.arg for keyword in call.keywords]
    return [f"{'.'.join(path)} takes no {name}" for name in names if name not in takes]


@EVERY_TASK
def test_what_stands_in_backticks_exists(label):
    task = TASKS[label]
    known = known_to(task.chapter)
    assert [p for span in spans(task.text) for p in unknown(span, known)] == []


@pytest.mark.parametrize(
    "span",
    [
        "F.layernorm", "nn.Layernorm", "torch.logsumexp2", "weigth", "q.shap[-1]", "math.squrt(2)",
        "F.rms_norm(q, q.shape[-1:], q_gain, epsilon=eps)", "my_layer_nrom(x)", "keep dim",
        "F.cross_entropy(logits, target, smoothing=0.1)",
    ],
)  # fmt: skip
def test_a_name_that_does_not_exist_is_found(span):
    known = known_to(TASKS["ex-layer-norm"].chapter) | {"logits", "target", "q", "q_gain"}
    assert unknown(span, known)


def test_names_that_exist_are_not_complained_of():
    known = known_to(TASKS["ex-layer-norm"].chapter)
    for span in ("F.layer_norm", "nn.LayerNorm", "torch.var", "x.dtype", "x[..., ::2]", "True",
                 "[..., 0::2]", "x.mean(-1, keepdim=True)", "ValueError", "my_layer_norm",
                 "F.layer_norm(x, (8,), eps=1e-5)"):  # fmt: skip
        assert unknown(span, known) == []


# ---------------------------------------------------------------- constants


def oracle(name):
    return CHECKERS[name].oracle


def inputs(name, dtype=None):
    """The sizes of the finite numbers in all cases of an exercise, in tensors of this dtype."""
    found = [
        x.detach().double().abs().flatten()
        for case in CHECKERS[name].cases
        for x in case.inputs()
        if isinstance(x, torch.Tensor) and x.is_floating_point() and dtype in (None, x.dtype)
    ]
    sizes = torch.cat(found)
    return sizes[sizes.isfinite()]


def row(position, width, base):
    angles = [position / base ** (2 * k / width) for k in range(int(width) // 2)]
    return [f(angle) for angle in angles for f in (math.sin, math.cos)]


def close(a, b, tol=1e-9):
    a, b = (torch.as_tensor(x, dtype=torch.float64) for x in (a, b))
    return a.shape == b.shape and bool(((a - b).abs() <= tol * (1 + b.abs())).all())


def moves(limit, judge):
    """Whether the verdict of `judge(size)` changes at `limit`."""
    return judge(0.5 * limit) is True and judge(2 * limit) is False


def equivariance_at(size):
    noise = torch.tensor([[size], [0.0], [0.0]], dtype=torch.float64)
    return oracle("embeddings.equivariance")(lambda rows: rows + noise, 3, 1)


def no_leak_at(size):
    """Whether it is no leak if a later row moves the first output by `size`."""
    first = torch.tensor([[1.0], [0.0], [0.0]], dtype=torch.float64)

    def f(x):
        return x + size * x[1:].sum().sign() * first

    return not oracle("attention.leaks")(f, torch.zeros(3, 1, dtype=torch.float64))


def rope_by_hand(base):
    """Attention with the reference's rotation at this base, on two rows."""
    q, k, v = (
        torch.randn(1, 1, 3, 8, generator=torch.Generator().manual_seed(s), dtype=torch.float64)
        for s in range(3)
    )
    ids = torch.tensor([0, 5, 9])
    turned = [oracle("rope.apply")(t, ids, float(base)) for t in (q, k)]
    want = F.scaled_dot_product_attention(*turned, v, is_causal=True)
    return close(oracle("rope.attention")(q, k, v, ids), want)


def permuted(*rows):
    order = rows[len(rows) // 2 :]
    weight = torch.tensor(rows[: len(rows) // 2], dtype=torch.float64)[:, None]
    bias = weight[:, 0]
    return oracle("decoder.convert")(weight, weight, weight, bias, bias, 1, 1)[0][
        :, 0
    ].tolist() == [*order]


def last_slope(above, below):
    return all(
        close(oracle("long_context.alibi_bias")(heads, 3)[-1, 2, 0], -2 * above / below)
        for heads in (2, 4, 8)
    )


def reaches(name, size, dtype=None):
    return bool(inputs(name, dtype).max() >= size)


NUMBER = r"([\d,]+(?:\.\d+)?)"
POWER = r"10\^\{?(-?\d+)\}?"
# Label, the place in the text, and what the reference must do with the numbers that stand there.
CONSTANTS = [
    ("ex-softmax-stable", rf"Scores of {NUMBER}", lambda n: reaches("softmax.softmax", n)),
    ("ex-embed-row", rf"position {NUMBER} for \$d={NUMBER}\$ and base {NUMBER}",
     lambda p, d, base: close(oracle("embeddings.row")(), row(p, d, base), 1e-4)),
    ("ex-embed-equivariance", r"to within `1e(-?\d+)`", lambda p: moves(10.0**p, equivariance_at)),
    ("ex-attention-leak", rf"A change below \${POWER}\$",
     lambda p: moves(10.0**p, no_leak_at)),
    ("ex-act-tanh", rf"from \${POWER}\$ to \${POWER}\$",
     lambda low, high: reaches("activations.tanh", 10.0**high)
     and inputs("activations.tanh")[inputs("activations.tanh") > 0].min() <= 10.0**low),
    ("ex-act-softplus", rf"from \$-{POWER}\$ to \${POWER}\$",
     lambda low, high: all(reaches("activations.softplus", 10.0**p) for p in (low, high))),
    ("ex-rms-norm", rf"float16 inputs of size {NUMBER}",
     lambda n: reaches("normalization.rms_norm", n, torch.float16)),
    ("ex-rope-attention", rf"base {NUMBER}", rope_by_hand),
    ("ex-alibi", r"The last slope is \$(\d+)/(\d+)\$", last_slope),
    ("ex-dec-convert", r"with rows (\d), (\d), (\d), (\d) of one head: they must come out as "
     r"(\d), (\d), (\d), (\d)", permuted),
]  # fmt: skip


@pytest.mark.parametrize(
    ("label", "pattern", "holds"), CONSTANTS, ids=[f"{c[0]}: {c[1]}" for c in CONSTANTS]
)
def test_a_constant_in_the_text_is_the_one_of_the_reference(label, pattern, holds):
    # A number, or the name beside it, may be a link to the facts page.
    match = re.search(pattern, re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", TASKS[label].text))
    assert match, "the text says it in another way now; say here where the number stands"
    numbers = [float(text.replace(",", "")) for text in match.groups()]
    numbers = [int(n) if n == int(n) else n for n in numbers]
    assert holds(*numbers)
    # Planted: each of the numbers changed.
    for i, number in enumerate(numbers):
        changed = [*numbers[:i], 10 * number + 3 * (number >= 0), *numbers[i + 1 :]]
        assert not holds(*changed), changed
