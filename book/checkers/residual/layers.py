"""From layer to layer: where a network dies, and what Post-Norm leaves of the gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.core import SIXTEEN_BITS, Case, Exercise, WrongAnswer
from book.checkers.questions import WrongNumber, number
from book.checkers.residual.common import Map, draw

# --- dead -----------------------------------------------------------------------------------------

Layers = Sequence[Map]


def _passed(layer: Map, x: Tensor, plain_sum: bool = False) -> Tensor | None:
    """The gradient that the layer passes to its input; None if autograd knows of no way."""
    x = x.detach().requires_grad_()
    y = layer(x)
    if not y.requires_grad:
        return None
    weight = torch.ones_like(y) if plain_sum else draw(*y.shape, seed=9)
    return torch.autograd.grad((y * weight).sum(), x, allow_unused=True)[0]


def _each(
    layers: Layers,
    x: Tensor,
    dead: Callable[[Tensor | None], bool] = lambda g: g is None or not g.any(),
    follow: bool = True,
    plain_sum: bool = False,
) -> list[int]:
    """The numbers of the layers that `dead` says are, each asked alone."""
    found = []
    for place, layer in enumerate(layers):
        if dead(_passed(layer, x, plain_sum)):
            found.append(place)
        x = layer(x.detach()) if follow else x
    return found


def _dead(layers: Layers, x: Tensor) -> list[int]:
    return _each(layers, x)


def _dead_by_jacobian(layers: Layers, x: Tensor) -> list[int]:
    """The same by whole Jacobians, in forward mode column by column."""
    found = []
    for place, layer in enumerate(layers):
        at = x.detach()
        whole = torch.func.jacrev(lambda t, f=layer: f(t) + 0 * t)(at)
        if not whole.any():
            found.append(place)
        x = layer(at).detach()
    return found


def _from_the_top(layers: Layers, x: Tensor) -> list[int]:
    """What the gradient of the whole stack shows: everything below a dead layer is zero."""
    stream = [x.detach().requires_grad_()]
    for layer in layers:
        stream.append(layer(stream[-1]))
    total = (stream[-1] * draw(*stream[-1].shape, seed=9)).sum()
    if not total.requires_grad:
        return list(range(len(layers)))
    grads = torch.autograd.grad(total, [s for s in stream if s.requires_grad], allow_unused=True)
    by_level = iter(grads)
    found = [next(by_level) if s.requires_grad else None for s in stream]
    return [k for k in range(len(layers)) if (g := found[k]) is None or not g.any()]


def _linear(seed: int, scale: float = 1.0) -> Map:
    return lambda x: scale * x @ draw(4, 4, seed=seed)


def _relu(seed: int, offset: float) -> Map:
    return lambda x: torch.relu(x @ draw(4, 4, seed=seed) + offset) @ draw(4, 4, seed=seed + 50)


def _added(layer: Map) -> Map:
    return lambda x: x + layer(x)


def _ignores(x: Tensor) -> Tensor:
    """A row of its own for every input."""
    return torch.ones(4, dtype=x.dtype, requires_grad=True).expand_as(x) * 0.5


def _norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, (4,))


def _case(name: str, *layers: Map, **drawn: Any) -> Case:
    return Case(name, lambda: (list(layers), draw(3, 4, **drawn)))


DEAD = Exercise(
    "Where does the net die?",
    oracle=_dead,
    cases=(
        _case(
            "a plain stack, a ReLU that is off in layer 1", _linear(1), _relu(2, -90), _relu(3, 1)
        ),
        _case(
            "the same layers with the addition",
            *map(_added, (_linear(1), _relu(2, -90), _relu(3, 1))),
        ),
        _case("layer 2 detaches", _linear(1), _relu(2, 2), lambda x: 2 * x.detach(), _linear(3)),
        _case("layer 0 ignores its input", _ignores, _added(_relu(2, 2)), _linear(3)),
        _case(
            "layers 1 and 3 round",
            _linear(1),
            torch.round,
            _linear(2, 5.0),
            torch.round,
            _linear(3),
        ),
        # The sum of the output is always 0, and so is its gradient: no other sum of it is.
        _case("a centred end, alive", _linear(1), lambda x: x - x.mean(-1, keepdim=True)),
        _case("norms, all alive", _linear(1), _norm, _added(_relu(2, 1)), _norm),
        _case("a weak layer, alive", _linear(1, 1e-6), _relu(2, 1)),
        _case("half of the ReLUs off", _relu(1, -1), _linear(2), scale=2.0),
        _case(
            "layer 1 dies at the stream that reaches it",
            lambda x: x - 500,
            lambda x: torch.relu(x + 3),
        ),
        _case(
            "layer 1 lives at the stream that reaches it",
            lambda x: x + 500,
            lambda x: torch.relu(x - 90),
        ),
        _case(
            "the addition, and a stream that is detached in layer 1",
            _added(_linear(1)),
            lambda x: x.detach() + 0.1 * _relu(2, -90)(x),
            _added(_linear(3)),
        ),
        _case("one layer, dead", lambda x: torch.zeros_like(x)),
    ),
    wrong=(
        WrongAnswer(
            "the gradient of the whole stack",
            "Below the highest dead layer every gradient is zero, whether a layer there is dead or "
            "not. Ask each layer alone.",
            _from_the_top,
        ),
        WrongAnswer(
            "a signal of zero for a dead layer",
            "A layer may detach or ignore its input and still give numbers; look at its gradient, "
            "not at its output.",
            lambda layers, x: [k for k in range(len(layers)) if not _run(layers[: k + 1], x).any()],
        ),
        WrongAnswer(
            "a plain sum of the output",
            "The outputs of a norm sum to zero for every input, so their sum has no gradient. "
            "Weight the outputs, with random numbers for instance.",
            lambda layers, x: _each(
                layers, x, lambda g: g is None or g.abs().max().item() < 1e-12, plain_sum=True
            ),
        ),
        WrongAnswer(
            "only what autograd knows of",
            "A gradient of zeros is as dead as none, as with a ReLU that is off, or a rounding.",
            lambda layers, x: _each(layers, x, lambda g: g is None),
        ),
        WrongAnswer(
            "small taken for dead",
            "A small gradient is no dead one. Adam makes a step of full size of it.",
            lambda layers, x: _each(layers, x, lambda g: g is None or g.abs().max().item() < 1e-3),
        ),
        WrongAnswer(
            "every layer asked at the first input",
            "A layer is dead or alive at the stream that reaches it. Pass the output of each layer "
            "to the next one.",
            lambda layers, x: _each(layers, x, follow=False),
        ),
        WrongAnswer(
            "dead if a single number is",
            "If some ReLUs are off, others still pass the gradient on.",
            lambda layers, x: _each(layers, x, lambda g: g is None or not g.all()),
        ),
        WrongAnswer(
            "only the first one",
            "There may be several; the list holds all of them.",
            lambda layers, x: _dead(layers, x)[:1],
        ),
        WrongAnswer(
            "numbers from 1",
            "The layers are numbered as in the list, from 0.",
            lambda layers, x: [k + 1 for k in _dead(layers, x)],
        ),
        WrongAnswer(
            "the living ones",
            "These are the layers that pass a gradient; asked for are the others.",
            lambda layers, x: [k for k in range(len(layers)) if k not in _dead(layers, x)],
        ),
    ),
    variants=(_dead_by_jacobian,),
    spared=dict.fromkeys(("float32", *SIXTEEN_BITS), "the layers under test are in float64"),
)


def _run(layers: Layers, x: Tensor) -> Tensor:
    for layer in layers:
        x = layer(x)
    return x


# --- paradox --------------------------------------------------------------------------------------

_VARIANCE = 1 + 0.5  # of the stream, and of what the branch adds


def _sublayer(addition: float = 1.0, branch: float = 0.5, norm: float = _VARIANCE) -> float:
    """What a sub-layer makes of the square of a gradient: by both ways, and through its norm."""
    return (addition + branch) / norm


PARADOX = number(
    "A paradox",
    value=_sublayer,
    within=0.01,
    because="The norm divides the square by 3/2, and the sum multiplies it by 3/2, because the "
    "branch hands down half as much again as the addition. So feed-forward layers lose nothing on "
    "average, however little of the input is left on the identity path.",
    wrong=[
        WrongNumber(
            "the identity path only",
            "That is what the addition hands down, divided by the norm. The gradient comes through "
            "the branch as well.",
            lambda: _sublayer(branch=0.0),
        ),
        WrongNumber(
            "the branch only",
            "That is what the branch hands down, divided by the norm. The addition hands the "
            "gradient down too.",
            lambda: _sublayer(addition=0.0),
        ),
        WrongNumber(
            "the norm forgotten",
            "That is the factor of the sum. Before it the gradient came through the norm, which "
            "divides it.",
            lambda: _sublayer(norm=1.0),
        ),
        WrongNumber(
            "the norm's factor not squared",
            "The norm divides the gradient by sigma, and so its square by the square of sigma.",
            lambda: _sublayer(norm=_VARIANCE**0.5),
        ),
        WrongNumber(
            "the ReLU forgotten",
            "The ReLU lets half of the square through, down as well as up, so the branch "
            "hands down 1/2.",
            lambda: _sublayer(branch=1.0),
        ),
        WrongNumber(
            "the length of the identity path",
            "The root of 2/3 is what the identity path leaves of the length. Asked for is the "
            "square, by both ways.",
            lambda: _sublayer(branch=0.0) ** 0.5,
        ),
    ],
)
