"""The capstone: weights that are safe to read, measured shelves, and what is not enough."""

import base64
import functools
import io
import itertools
import json
import pickle
from pathlib import Path

import pytest
import torch

from book.checkers.assignments import capstone
from book.grading import WrongAnswerError, hints
from book.own import encode, handed
from book.own.measure import held_out
from book.own.recipe import Recipe, training_stories
from book.stories import VOCABULARY
from book.stories.shelves import NGram

SOURCE = Path(__file__).resolve().parents[2] / "notebooks/assignments/capstone/capstone.ipynb"


@pytest.fixture(scope="module")
def space():
    """The solved notebook's names."""
    found = {"__name__": "__main__"}
    for cell in json.loads(SOURCE.read_text(encoding="utf-8"))["cells"]:
        marks = cell["metadata"]["nbgrader"]
        if cell["cell_type"] == "code" and not marks["grade"]:
            exec("".join(cell["source"]), found)
    return found


@pytest.fixture(autouse=True)
def no_hints_left():
    yield
    hints.clear()


def refused(call, *args):
    with pytest.raises(WrongAnswerError) as caught:
        call(*args)
    return caught.value.hint


# ---- the weights


SHAPES = {"a": (3, 4), "b": (5,)}
TENSORS = {"a": torch.linspace(-1, 2, 12).reshape(3, 4), "b": torch.arange(5.0)}


def raw(entries, data=b"", head=None):
    head = json.dumps(entries).encode() if head is None else head
    return base64.b64encode(len(head).to_bytes(8, "little") + head + data).decode()


def saved():
    there = io.BytesIO()
    torch.save(TENSORS, there)
    return base64.b64encode(there.getvalue()).decode()


def test_weights_come_back_and_are_a_safetensors_file(space):
    text = space["pack"](TENSORS)
    assert "\n" not in text
    back = space["unpack"](f"\n{text}\n", SHAPES)
    assert torch.equal(back["b"], TENSORS["b"])
    assert (back["a"] - TENSORS["a"]).abs().max() <= 2 / 127 / 2 + 1e-6
    from safetensors.torch import load

    stored = load(base64.b64decode(text))
    assert torch.allclose(stored["a"] * stored["a.scale"], back["a"])


def entry(dtype="F32", shape=(5,), at=(0, 20)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(at)}


NAN = TENSORS | {"b": torch.tensor([0, 1, float("nan"), 0, 0])}
HOSTILE = {
    "pickle": (lambda pack: base64.b64encode(pickle.dumps(TENSORS)).decode(), "a pickle, which"),
    "torch.save": (lambda pack: saved(), "a pickle, which is never loaded"),
    "another shape": (
        lambda pack: pack(TENSORS | {"a": torch.ones(4, 3)}),
        r"a has shape \(4, 3\), the model needs \(3, 4\)",
    ),
    "nan": (lambda pack: pack(NAN), "b holds nan or infinity"),
    "a tensor less": (lambda pack: pack({"a": TENSORS["a"]}), "lack b"),
    "a tensor more": (lambda pack: pack(TENSORS | {"c": torch.ones(1)}), "hold c, which"),
    "no base64": (lambda pack: "weights!", "no text in base64"),
    "nothing": (lambda pack: "", "no safetensors file"),
    "too long": (lambda pack: "A" * 2_500_001, "2500001 characters, at most 2500000"),
    "another format": (lambda pack: base64.b64encode(b"weights" * 9).decode(), "no safetensors"),
    "beyond the data": (lambda pack: raw({"b": entry()}, b"0000"), "outside of the data"),
    "too few bytes": (lambda pack: raw({"b": entry(at=(0, 4))}, b"0000"), "has 4 bytes"),
    "another type": (lambda pack: raw({"b": entry("BF16")}, b"0" * 20), "no safetensors"),
    "a list": (lambda pack: raw([1, 2]), "no safetensors file"),
    "negative sizes": (
        lambda pack: raw({"b": entry(shape=(-1, -5))}, b"0" * 20), "an entry of shape",
    ),
    "nested deep": (
        lambda pack: raw(None, head=b"[" * 3000 + b"]" * 3000), "no safetensors file",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_weights_get_a_clear_message(kind, space):
    make, says = HOSTILE[kind]
    with pytest.raises(ValueError, match=says):
        space["unpack"](make(space["pack"]), SHAPES)


def test_the_message_reaches_the_student(space):
    there = {**space, "loaded": lambda: space["unpack"](HOSTILE["pickle"][0](None), SHAPES)}
    told = refused(capstone.require_loss, lambda ids: there["loaded"]()["a"])
    assert "raised ValueError: the weights are a pickle, which is never loaded" in told


# ---- what is measured


def test_the_notebook_has_the_books_words_and_stories(space):
    assert list(VOCABULARY) == space["WORDS"]
    told = {tuple(encode(s.words)) for s in held_out(60)}
    assert {tuple(s) for s in space["STORIES"]} <= told
    assert min(map(len, space["STORIES"])) > 60


def test_the_books_own_model_gets_all_points(space):
    assert capstone.require_loss(space["next_word"]) == 34
    assert capstone.require_questions(space["next_word"]) == 16
    opening = [space[n] for n in ("next_word", "attention", "opened", "mean_loss", "STORIES")]
    assert capstone.require_opening(*opening) == 20
    assert hints == []


def test_shorter_beginnings_come_first_and_nothing_that_is_to_come():
    lengths = []

    def watched(ids):
        lengths.append(ids.shape[1])
        return torch.zeros(len(ids), len(VOCABULARY))

    for _ in handed.answers(watched, handed.places()):
        pass
    assert lengths == sorted(lengths)
    assert all(len(p.before) >= 1 for p in (*handed.places(), *handed.asked()))
    seen = [p.before for p, _ in handed.answers(watched, handed.places())]
    for before in seen:
        told = [other for other in seen if len(other) < len(before)]
        assert all(seen.index(other) < seen.index(before) for other in told)


@functools.cache
def counted(order, number=300):
    return NGram(order, [s.words for s in itertools.islice(training_stories(Recipe()), number)])


def counting(order):
    def next_word(ids):
        rows = [[VOCABULARY[i] for i in row[-(order - 1) :]] if order > 1 else []
                for row in ids.tolist()]  # fmt: skip
        known = {tuple(r): [counted(order).probability(r, w) for w in VOCABULARY] for r in rows}
        return torch.tensor([known[tuple(r)] for r in rows]).log()

    return next_word


def test_counting_pairs_is_worth_a_few_points_and_says_what_is_next():
    assert capstone.require_loss(counting(2)) == 4
    assert "The next shelf is counting pairs (2.39)." in hints[-1]


def test_guessing_is_worth_nothing():
    told = refused(capstone.require_loss, lambda ids: torch.zeros(len(ids), len(VOCABULARY)))
    assert "The loss on held-out stories is 5." in told
    assert "counting words (4.46)" in told
    told = refused(capstone.require_questions, lambda ids: torch.zeros(len(ids), len(VOCABULARY)))
    assert "yesterday: 0% (a short cut: " in told


def test_the_shelves_go_down():
    losses = list(handed.shelves().values())
    assert losses == sorted(losses, reverse=True)
    assert len(losses) == len(capstone.SHELF_POINTS)
    assert sum(capstone.SHELF_POINTS) == 34


WIDE = len(VOCABULARY)
BROKEN = {
    "another width": (lambda ids: torch.zeros(len(ids), WIDE - 1), "206) was asked for"),
    "all positions": (lambda ids: torch.zeros(*ids.shape, WIDE), "206) was asked for"),
    "nan": (lambda ids: torch.full((len(ids), WIDE), float("nan")), "gave nan or infinity in"),
    "infinity": (lambda ids: torch.full((len(ids), WIDE), float("inf")), "nan or infinity"),
    "integers": (lambda ids: torch.zeros(len(ids), WIDE, dtype=torch.int64), "torch.int64"),
    "a list": (lambda ids: [0.0], "gave no tensor but list"),
    "an error": (lambda ids: 1 / 0, "raised ZeroDivisionError: division by zero"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_what_is_no_answer_is_told(kind):
    next_word, says = BROKEN[kind]
    assert says in refused(capstone.require_loss, next_word)


def test_a_stub_gets_nothing():
    def stub(*args, **how):
        raise NotImplementedError

    for call in (
        lambda: capstone.require_loss(stub),
        lambda: capstone.require_questions(stub),
        lambda: capstone.require_opening(stub, stub, stub, stub, [[1, 2, 3, 4]]),
    ):
        assert "nothing to measure yet" in refused(call)


# ---- the opening


def maps(change=lambda w: w):
    """Weights of two layers with two heads: the second of the first layer looks one back."""

    def attention(ids):
        b, t = ids.shape
        even = torch.ones(t, t).tril()
        back = torch.eye(t).roll(-1, 1).tril() + 0.2 * even
        every = torch.stack([even, back, even + torch.eye(t), even]).reshape(2, 1, 2, t, t)
        weights = every / every.sum(-1, keepdim=True)
        return change(weights.expand(2, b, 2, t, t).clone())

    return attention


def opened(**change):
    said = {"previous": (0, 1), "control": (1, 0), "previous_loss": 2.0, "control_loss": 1.1}
    return lambda: said | change


def mean_loss(next_word, without=None):
    return {None: 1.0, (0, 1): 2.0, (1, 0): 1.1}.get(without, 1.5)


STORIES = [[1, 2, 3, 4, 5, 6], [1, 6, 5, 4, 3, 2, 1]]


def opening(said=None, attention=None, loss=mean_loss):
    return capstone.require_opening(
        lambda ids, without=None: None, attention or maps(), said or opened(), loss, STORIES
    )


def test_a_right_opening_gets_all_points():
    assert opening() == 20
    assert hints == []


@pytest.mark.parametrize(
    ("change", "points", "says"),
    [
        ({"previous": (1, 1), "previous_loss": 1.5}, 14, "Head (0, 1) has a mean weight of"),
        ({"control": (0, 1), "control_loss": 2.0}, 14, "The control is the head itself"),
        ({"previous_loss": 1.9}, 16, "`previous_loss` is 1.900; measured here it is 2.000."),
        ({"previous_loss": 9.0, "control_loss": 9.0}, 12, "`control_loss` is 9.000"),
    ],
)
def test_a_part_of_the_opening_has_a_part_of_the_points(change, points, says):
    assert opening(opened(**change)) == points
    assert says in hints[-1]


def test_a_switch_that_does_nothing_is_seen():
    assert opening(loss=lambda next_word, without=None: 1.0) == 12
    assert "`without` has no effect" in hints[-1]


NO_MAPS = {
    "the future": (maps(lambda w: torch.full_like(w, 1 / w.shape[-1])), "to come"),
    "no sum of 1": (maps(lambda w: w / 2), "do not sum to 1"),
    "negative": (maps(lambda w: w * 3 - 2 * torch.eye(w.shape[-1])), "is negative"),
    "other weights in a longer text": (
        maps(lambda w: w if w.shape[-1] % 2 else torch.eye(w.shape[-1]).expand(w.shape)),
        "change when the text goes on",
    ),
    "one layer": (lambda ids: torch.ones(2, 6, 6), r"was asked for"),
    "nan": (maps(lambda w: w * float("nan")), "not finite"),
    "a list": (lambda ids: [1.0], "gave no tensor"),
    "an error": (lambda ids: {}["key"], "raised KeyError"),
}


@pytest.mark.parametrize("kind", NO_MAPS)
def test_what_are_no_weights_is_told(kind):
    attention, says = NO_MAPS[kind]
    assert says in refused(opening, None, attention)


@pytest.mark.parametrize(
    ("said", "says"),
    [
        (lambda: None, "must give a dictionary"),
        (lambda: {"previous": (0, 0)}, "must give a dictionary with previous, control"),
        (opened(previous=3), "must be a pair (layer, head) of 2 layers with 2 heads each, got 3"),
        (opened(control=(0, 2)), "got (0, 2)"),
        (opened(control=(True, 0)), "must be a pair"),
        (opened(control_loss="1.1"), "'control_loss' must be a number, got str"),
        (lambda: 1 / 0, "`opened` raised ZeroDivisionError"),
    ],
)
def test_what_is_no_finding_is_told(said, says):
    assert says.lower() in refused(opening, said).lower()


def test_a_loss_that_cannot_be_measured_is_told():
    def broken(next_word, without=None):
        raise TypeError("next_word() got an unexpected keyword argument 'without'")

    assert "without a head raised TypeError" in refused(opening, None, None, broken)
