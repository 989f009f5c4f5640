"""What crosses the border: the checkers give the verdict that they give without one."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from book.checkers import core, exercises
from book.grading.border import Peer
from book.grading.channel import (
    LENGTHS,
    BorderError,
    Channel,
    GoneError,
    StudentError,
    TimeLimitError,
)
from book.grading.remote import Remote

ROOT = Path(__file__).resolve().parents[2]
EXERCISES = exercises()
# The student's side: every answer that the checkers know, and what the other tests call.
SERVE = """
import socket, sys, time, torch
from torch import nn
from book.checkers import exercises
from book.grading import border, channel

class Gain(nn.Module):
    def __init__(self, size, factor=1.0):
        super().__init__()
        self.weight = nn.Parameter(torch.full((size,), factor, dtype=torch.float64))
        self.register_buffer("seen", torch.zeros(()))
    def forward(self, x):
        self.seen += 1
        return x * self.weight

class Loose(torch.Tensor):
    pass

def in_place(x):
    x.mul_(2)
    return x

def train(layer, x):
    layer(x).pow(2).sum().backward()
    with torch.no_grad():
        for p in layer.parameters():
            p -= 0.1 * p.grad

space = dict(
    Gain=Gain, in_place=in_place, train=train, number=7, nothing=None,
    same=lambda x: x, twice=lambda f, x: f(f(x)), dropped=lambda x: torch.dropout(x, 0.5, True),
    loose=lambda x: x.as_subclass(Loose),
    **{"loose parameter": lambda x: torch.nn.Parameter(x).as_subclass(Loose),
       "loose buffer": lambda x: torch.nn.Buffer(x).as_subclass(Loose),
       "loose in a list": lambda x: [x.as_subclass(Loose)]},
     late=lambda: time.sleep(60), strides=lambda x: x.stride(),
    fail=lambda: {}[3], strange=lambda: object(), many=lambda n: [0] * n, numpy=lambda x: x.numpy(),
    mode=torch.is_grad_enabled, needs=lambda x: x.requires_grad_(), shape=lambda x: x.t(),
    pair=lambda x: (x * 2, x.detach() * 3, [x.sum()], {"k": x}), size=lambda x: x.shape,
    held=[], keep=lambda x: space["held"].append(x.data_ptr()), cube=lambda x: x ** 3,
)
for name, one in exercises().items():
    space[f"{name}/oracle"] = one.oracle
    space.update({f"{name}/variant {i}": v for i, v in enumerate(one.variants)})
    space.update({f"{name}/wrong {i}": w.answer for i, w in enumerate(one.wrong)})
connection = socket.socket(fileno=int(sys.argv[1]))
peer = border.Peer(channel.Channel(connection), trusted=False, namespace=space)
connection.sendall(b"!")
try:
    while True:
        peer.answer(*peer.channel.receive())
except EOFError:
    pass
"""


@pytest.fixture(scope="module")
def peer():
    near, far = socket.socketpair()
    with (
        near,
        subprocess.Popen(
            [sys.executable, "-c", SERVE, str(far.fileno())], pass_fds=[far.fileno()], cwd=ROOT
        ) as process,
    ):
        far.close()
        # The limit is for what it is asked, not for its imports, which wait for a busy machine.
        assert near.recv(1) == b"!"
        try:
            yield Peer(Channel(near), trusted=True, limit=30.0)
        finally:
            process.kill()


def get(peer, name):
    return peer.ask({"op": "get", "name": name})


# Exercises that hand over a model to be looked into. Across the border a test's functions can be
# called and nothing else, so that nobody looks into a test; so these are for the page alone.
LOOKED_INTO = {"map.fault"}


@pytest.mark.parametrize("name", sorted(LOOKED_INTO))
def test_a_model_of_a_test_cannot_be_looked_into_and_no_assignment_asks_for_that(peer, name):
    across = core.grade(name, EXERCISES[name], get(peer, f"{name}/oracle"))
    assert not across.passed
    assert "only functions of a test can be called, not looked into" in str(across)
    for path in (ROOT / "notebooks/assignments").glob("*/*.ipynb"):
        assert f'"{name}"' not in path.read_text(encoding="utf-8").replace('\\"', '"')


@pytest.mark.parametrize("name", [name for name in EXERCISES if name not in LOOKED_INTO])
def test_a_checker_says_across_the_border_what_it_says_without_one(peer, name, monkeypatch):
    one = EXERCISES[name]
    # What the book's own answers give is asked for on both sides, and computed once.
    computed, known = {}, core._known

    def kept(answer, case, *rest):
        key = id(answer), id(case)
        if key not in computed:
            computed[key] = answer, case, known(answer, case, *rest)
        return computed[key][2]

    monkeypatch.setattr(core, "_known", kept)
    answers = {"oracle": one.oracle}
    answers |= {f"wrong {i}": w.answer for i, w in enumerate(one.wrong[:1])}
    for which, answer in answers.items():
        across = core.grade(name, one, get(peer, f"{name}/{which}"))
        # The line of the answer that raised is known on its own side only.
        here = [
            s for s in str(core.grade(name, one, answer)).splitlines() if "in your line" not in s
        ]
        assert str(across).splitlines() == here, which
        assert across.passed == (not which.startswith("wrong"))


def test_gradients_reach_arguments_and_parameters(peer):
    layer = get(peer, "Gain")(3)
    assert isinstance(layer, nn.Module)
    x = torch.tensor([[1.0, 2.0, 4.0]], dtype=torch.float64, requires_grad=True)
    (layer(x) * torch.tensor([1.0, 10.0, 100.0])).sum().backward()
    assert x.grad.tolist() == [[1.0, 10.0, 100.0]]
    assert layer.weight.grad.tolist() == [1.0, 20.0, 400.0]
    assert layer.weight is layer.weight
    assert int(layer.seen) == 1


def test_gradcheck_passes_across_the_border(peer):
    x = torch.linspace(-1, 1, 6, dtype=torch.float64).reshape(2, 3).requires_grad_()
    assert torch.autograd.gradcheck(get(peer, "cube"), (x,))


def test_a_second_derivative_is_refused_with_a_reason(peer):
    x = torch.ones(2, requires_grad=True)
    (first,) = torch.autograd.grad(get(peer, "same")(x * 1).sum(), x, create_graph=True)
    assert first.tolist() == [1, 1]  # the same tensor came back: there is no graph over there
    with pytest.raises(NotImplementedError, match="second derivative"):
        torch.autograd.grad(get(peer, "cube")(x).sum(), x, create_graph=True)


def test_an_optimiser_here_moves_the_parameters_there(peer):
    layer = get(peer, "Gain")(2)
    step = torch.optim.SGD(list(layer.parameters()), lr=0.5)
    x = torch.ones(1, 2, dtype=torch.float64)
    layer(x).sum().backward()
    step.step()
    assert layer(x).tolist() == [[0.5, 0.5]]
    layer.weight.data.fill_(3.0)
    assert layer(x).tolist() == [[3.0, 3.0]]


def test_training_there_moves_the_parameters_here(peer):
    layer = get(peer, "Gain")(2)
    before = layer.weight
    get(peer, "train")(layer, torch.ones(1, 2, dtype=torch.float64))
    torch.testing.assert_close(before.detach(), torch.full((2,), 0.8, dtype=torch.float64))


def test_a_state_dict_is_loaded_and_read(peer):
    layer = get(peer, "Gain")(2, factor=2.0)
    layer.load_state_dict({"weight": torch.tensor([5.0, 6.0]), "seen": torch.tensor(4.0)})
    assert layer.state_dict()["weight"].tolist() == [5.0, 6.0]
    assert [n for n, _ in layer.named_parameters()] == ["weight"]
    assert sum(p.numel() for p in layer.parameters()) == 2


def test_functions_of_a_test_are_called_back_with_gradients(peer):
    here = nn.Linear(2, 2, dtype=torch.float64)
    x = torch.ones(1, 2, dtype=torch.float64, requires_grad=True)
    y = get(peer, "twice")(here, x)
    torch.testing.assert_close(y, here(here(x)))
    got = torch.autograd.grad(y.sum(), [x, here.weight])
    want = torch.autograd.grad(here(here(x)).sum(), [x, here.weight])
    torch.testing.assert_close(got, want)


def test_arguments_changed_in_place_are_changed_here(peer):
    x = torch.ones(3)
    y = get(peer, "in_place")(x)
    assert y is x
    assert x.tolist() == [2, 2, 2]
    with pytest.raises(RuntimeError, match="leaf Variable"):
        get(peer, "in_place")(torch.ones(3, requires_grad=True))
    get(peer, "needs")(x)
    assert x.requires_grad


def test_layouts_cross_and_what_lies_between_the_entries_does_not(peer):
    whole = torch.arange(12.0).reshape(3, 4)
    for x in (whole.t(), whole[:, ::2], whole[:1].expand(5, 4), whole[:0], torch.tensor(1.5)):
        assert get(peer, "strides")(x) == x.stride()
        assert torch.equal(get(peer, "same")(x), x)
    from book.grading.packing import packed

    assert packed(whole[:, ::2])[2] == torch.tensor(
        [0.0, 0, 2, 0, 4, 0, 6, 0, 8, 0, 10.0]
    ).numpy().tobytes()  # fmt: skip


def test_the_seed_and_the_gradient_mode_are_the_tests(peer):
    drop = get(peer, "dropped")
    torch.manual_seed(3)
    first, second = drop(torch.ones(50)), drop(torch.ones(50))
    torch.manual_seed(3)
    assert torch.equal(drop(torch.ones(50)), first)
    assert not torch.equal(first, second)
    with torch.no_grad():
        assert get(peer, "mode")() is False


def test_values_of_other_types_are_never_taken_for_plain_ones(peer):
    for way in ("loose", "loose parameter", "loose buffer", "loose in a list"):
        got = get(peer, way)(torch.ones(2))
        got = got[0] if isinstance(got, list) else got
        assert type(got) is not torch.Tensor, way
        assert not isinstance(got, torch.Tensor), way
        assert isinstance(got, Remote), way
    strange = get(peer, "strange")()
    assert strange != 3
    with pytest.raises(StudentError, match="plain value"):
        bool(strange)
    with pytest.raises(StudentError, match="too long"):
        get(peer, "many")(10**6)
    assert type(get(peer, "numpy")(torch.ones(2))).__module__ == "numpy"
    assert type(get(peer, "size")(torch.ones(2, 3))) is torch.Size


def test_errors_keep_their_type(peer):
    with pytest.raises(KeyError) as caught:
        get(peer, "fail")()
    assert caught.value.by_student == "KeyError"


def _tensor(**other):
    return {"t": "T", "s": [2], "st": None, "d": "float32", "b": 0, "p": False, **other}


JUNK = {
    "no dictionary": 3,
    "no type": {},
    "unknown type": {"t": "pickle", "v": "x"},
    "an int of text": {"t": "i", "v": "os"},
    "a long int": {"t": "i", "v": "0x" + "f" * 30_000},
    "a list of letters": {"t": "l", "v": "abc"},
    "shape too large": _tensor(s=[1 << 39, 1 << 39]),
    "shape negative": _tensor(s=[-2]),
    "shape of booleans": _tensor(s=[True, 2]),
    "shape of text": _tensor(s=["2"]),
    "bytes too few": _tensor(s=[3]),
    "strides beyond the bytes": _tensor(st=[5]),
    "strides negative": _tensor(st=[-1]),
    "dtype unknown": _tensor(d="quint8"),
    "dtype a list": _tensor(d=[]),
    "blob unknown": _tensor(b=7),
    "blob negative": _tensor(b=-1),
    "argument unknown": {"t": "A", "i": 9},
    "argument negative": {"t": "A", "i": -1},
    "leaf unknown": {"t": "L", "i": 0},
    "handle of ours unknown": {"t": "own", "h": 0},
    "handle of ours negative": {"t": "own", "h": -1},
    "an integer with a graph": _tensor(d="int32", o=0),
    "dictionary with an unhashable key": {
        "t": "d",
        "v": [[{"t": "l", "v": []}, {"t": "p", "v": 1.0}]],
    },
    "deep": json.loads('{"t":"l","v":[' * 60 + '{"t":"."}' + "]}" * 60),
}


@pytest.mark.parametrize("name", JUNK)
def test_a_malformed_answer_ends_the_conversation_and_nothing_else(name):
    near, far = socket.socketpair()
    with near, far:
        one = Peer(Channel(near), trusted=True, limit=5)
        Channel(far).send({"op": "value", "v": JUNK[name], "u": []}, [bytes(8)])
        with pytest.raises(GoneError):
            one.ask({"op": "get", "name": "x"})
        assert one.dead


def framed(head, more=0):
    return LENGTHS.pack(len(head), more) + head


@pytest.mark.parametrize(
    "data",
    [b"\xff" * 9, framed(b"abc"), framed(b"[]"), framed(b'{"b":-1}'), framed(b'{"b":[-100]}'),
     framed(b'{"b":[999999999999999]}', 1 << 20), framed(b'{"b":[2]}', 3) + b"abc",
     framed(b'{"b":[-1,3]}', 2) + b"ab", framed(b"{}", 1) + b"a", framed(b"[" * 40_000)],
)  # fmt: skip
def test_bytes_that_are_no_message_are_refused(data):
    near, far = socket.socketpair()
    with near, far:
        far.sendall(data)
        far.shutdown(socket.SHUT_WR)
        with pytest.raises((BorderError, EOFError)):
            Channel(near).receive(5)


def test_the_student_may_ask_for_nothing_but_the_functions_it_was_given():
    near, far = socket.socketpair()
    with near, far:
        one = Peer(Channel(near), trusted=True, limit=5)
        one.objects.append(len)
        asked = {"a": [], "k": {}, "u": [], "drop": [], "grad": True}
        for request in (
            {"op": "attr", "h": 0, "name": "__self__"}, {"op": "get", "name": "x"},
            {"op": "item", "h": 0}, {"op": "call", "h": 1}, {"op": "backward", "graph": 0},
        ):  # fmt: skip
            one.answer({**asked, **request}, [])
            assert Channel(far).receive(5)[0]["op"] == "error"
        one.leaves[0] = None
        one.answer({**asked, "op": "call", "h": 0, "u": [["r", 0, None]]}, [])
        assert "of the tests" in Channel(far).receive(5)[0]["m"]


def test_a_test_cannot_send_an_object_by_mistake(peer):
    with pytest.raises(BorderError, match=r"cannot pass an object of type \w*Path"):
        get(peer, "same")(Path("x"))


def test_a_lost_process_is_told():
    near, far = socket.socketpair()
    far.close()
    with near, pytest.raises(GoneError):
        Peer(Channel(near), trusted=True, limit=1).ask({"op": "names", "name": []})


def test_a_late_answer_is_told_and_ends_the_conversation(peer):
    # The last test that speaks with this process.
    late = get(peer, "late")
    peer.limit = 0.5
    with pytest.raises(TimeLimitError, match=r"0\.5 s"):
        late()
    with pytest.raises(StudentError):
        get(peer, "number")
