"""Assignment 3, chapters 6 and 7: derivatives of activations, gated layers, widths and merging."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.assignments.common import EXACT, draw, each, gradients
from book.checkers.core import Case, Exercise, WrongAnswer, in_parts

Pair = tuple[Tensor, Tensor]
Map = Callable[[Tensor], Tensor]


def _points(*values: float, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.tensor(values, dtype=dtype)


# --- hard_swish -----------------------------------------------------------------------------------


def _hard_swish(x: Tensor) -> Pair:
    return F.hardswish(x), each(F.hardswish, x)


@in_parts
def _pieces(
    value: Map = lambda x: x * (x + 3) / 6,
    slope: Map = lambda x: (2 * x + 3) / 6,
    low: float = -3.0,
    high: float = 3.0,
    right: float = 1.0,
    value_right: Map = lambda x: x,
) -> Callable[[Tensor], Pair]:
    def answer(x: Tensor) -> Pair:
        y = torch.where(x < high, value(x), value_right(x)).masked_fill(x <= low, 0.0)
        d = torch.where(x < high, slope(x), right * torch.ones_like(x)).masked_fill(x <= low, 0.0)
        return y, d

    return answer


def _by_relu6(x: Tensor) -> Pair:
    gate = F.relu6(x + 3) / 6
    return x * gate, gate + x / 6 * ((x > -3) & (x < 3))


HARD_SWISH = Exercise(
    title="Hard swish and its derivative",
    oracle=_hard_swish,
    cases=[
        Case("values: the middle", lambda: (draw(3, 4),), EXACT),
        Case("values: all three pieces", lambda: (draw(4, 6, scale=4.0),), EXACT),
        Case("values: a vector", lambda: (_points(-2.5, -1.5, -0.5, 0.5, 1.5, 2.5),), EXACT),
        Case("corners: zero and both signs of it", lambda: (_points(0.0, -0.0),), EXACT),
        Case("corners: beside the kinks", lambda: (_points(-3.001, -2.999, 2.999, 3.001),), EXACT),
        Case("corners: far out", lambda: (_points(-1e6, -50.0, 50.0, 1e6),), EXACT),
        Case("corners: float32", lambda: (draw(5, scale=3.0, dtype=torch.float32),), 1e-6),
        Case("corners: not contiguous", lambda: (draw(4, 3, scale=3.0).T,), EXACT),
    ],
    variants=(_pieces(), _by_relu6),
    wrong=(
        WrongAnswer(
            "gate taken for the derivative",
            "The product rule has a second term: x times the gate's slope of 1 / 6.",
            _pieces(slope=lambda x: (x + 3) / 6),
        ),
        WrongAnswer(
            "gate's slope forgotten to be halved",
            "The derivative of (x**2 + 3 x) / 6 is (2 x + 3) / 6.",
            _pieces(slope=lambda x: (x + 3) / 3),
        ),
        WrongAnswer(
            "right side not cut off",
            "From 3 on the gate is 1, so the value is x itself and the derivative is 1.",
            _pieces(high=math.inf),
        ),
        WrongAnswer(
            "left side not cut off",
            "Below -3 the gate is 0, so that value and derivative are 0.",
            _pieces(low=-math.inf),
        ),
        WrongAnswer(
            "hard sigmoid with slope 1 / 5",
            "Other libraries use 0.2 x + 0.5. torch and the MobileNetV3 paper use (x + 3) / 6.",
            _pieces(
                value=lambda x: x * (0.2 * x + 0.5),
                slope=lambda x: 0.4 * x + 0.5,
                low=-2.5,
                high=2.5,
            ),
        ),
        WrongAnswer(
            "gate without its factor x",
            "Hard sigmoid is the gate alone. Hard swish multiplies x by it.",
            _pieces(
                value=lambda x: (x + 3) / 6,
                slope=lambda x: torch.ones_like(x) / 6,
                right=0.0,
                value_right=torch.ones_like,
            ),
        ),
    ),
)

# --- geglu_backward -------------------------------------------------------------------------------


def _geglu_backward(grad_out: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, ...]:
    return gradients(lambda g, u: F.gelu(g) * u, grad_out, gate, up)


def _phi(x: Tensor) -> Tensor:
    return torch.exp(-x * x / 2) / math.sqrt(2 * math.pi)


@in_parts
def _geglu(
    slope: Map = lambda g: torch.special.ndtr(g) + g * _phi(g),
    value: Map = F.gelu,
    with_up: bool = True,
    exchange: bool = False,
) -> Callable[..., Pair]:
    def answer(grad_out: Tensor, gate: Tensor, up: Tensor) -> Pair:
        if exchange:
            return tuple(_geglu()(grad_out, up, gate)[::-1])  # type: ignore[return-value]
        return grad_out * slope(gate) * (up if with_up else 1.0), grad_out * value(gate)

    return answer


def _geglu_erf(grad_out: Tensor, gate: Tensor, up: Tensor) -> Pair:
    cdf = 0.5 * (1 + torch.erf(gate / math.sqrt(2.0)))
    return grad_out * up * (cdf + gate * _phi(gate)), grad_out * gate * cdf


def _geglu_case(name: str, *shape: int, scale: float = 1.0, dtype: torch.dtype = torch.float64,
                tol: float = EXACT) -> Case:  # fmt: skip
    return Case(
        name,
        lambda: (draw(*shape, seed=1, dtype=dtype), draw(*shape, seed=2, scale=scale, dtype=dtype),
                 draw(*shape, seed=3, dtype=dtype)),
        tol,
    )  # fmt: skip


GEGLU_BACKWARD = Exercise(
    title="GeGLU backwards",
    oracle=_geglu_backward,
    cases=[
        _geglu_case("values: a matrix", 3, 5),
        _geglu_case("values: three dimensions", 2, 3, 4),
        _geglu_case("values: a vector", 6),
        _geglu_case("corners: gates far out", 4, 5, scale=30.0),
        _geglu_case("corners: tiny gates", 4, 5, scale=1e-6),
        _geglu_case("corners: float32", 4, 5, dtype=torch.float32, tol=2e-6),
    ],
    variants=(_geglu(), _geglu_erf),
    wrong=(
        WrongAnswer(
            "derivative of SiLU",
            "The gate of GeGLU is a GELU, with the normal distribution in place of the sigmoid.",
            _geglu(slope=lambda g: torch.sigmoid(g) * (1 + g * torch.sigmoid(-g)), value=F.silu),
        ),
        WrongAnswer(
            "tanh form",
            "The task asks for the exact GELU. Its approximation is off by up to 5e-4.",
            _geglu(
                slope=lambda g: each(lambda t: F.gelu(t, approximate="tanh"), g),
                value=lambda g: F.gelu(g, approximate="tanh"),
            ),
        ),
        WrongAnswer(
            "density term forgotten",
            "The derivative of g Phi(g) is Phi(g) + g phi(g): the product rule has two terms.",
            _geglu(slope=torch.special.ndtr),
        ),
        WrongAnswer(
            "density without its factor",
            "The term of the product rule is g phi(g), with the factor g.",
            _geglu(slope=lambda g: torch.special.ndtr(g) + _phi(g)),
        ),
        WrongAnswer(
            "up left out of the gate's gradient",
            "The gate multiplies `up`, so what arrives at the gate is grad_out * up.",
            _geglu(with_up=False),
        ),
        WrongAnswer(
            "gate not activated for up",
            "`up` was multiplied by gelu(gate), not by the gate itself.",
            _geglu(value=lambda g: g),
        ),
        WrongAnswer(
            "gate and up exchanged",
            "The activation is on the gate; `up` stays linear.",
            _geglu(exchange=True),
        ),
    ),
)

# --- mish_grad ------------------------------------------------------------------------------------


def _mish_grad(x: Tensor) -> Tensor:
    return each(F.mish, x)


@in_parts
def _mish(
    softplus: Map = F.softplus,
    inner: Map = torch.sigmoid,
    outer: Map = lambda t: 1 - t * t,
    factor: bool = True,
    first: bool = True,
) -> Map:
    def answer(x: Tensor) -> Tensor:
        t = torch.tanh(softplus(x))
        return (t if first else 0 * t) + (x if factor else 1.0) * outer(t) * inner(x)

    return answer


def _mish_rational(x: Tensor) -> Tensor:
    # tanh(log(1 + e)) = (e^2 + 2 e) / (e^2 + 2 e + 2), with e = exp(x), kept from overflowing.
    e = x.clamp(max=20.0).exp()
    n = e * (e + 2)
    return n / (n + 2) + x * 4 * e * (1 + e) / (n + 2) ** 2


MISH_GRAD = Exercise(
    title="The derivative of Mish",
    oracle=_mish_grad,
    cases=[
        Case("values: around zero", lambda: (draw(3, 4),), EXACT),
        Case("values: a wider range", lambda: (draw(4, 5, scale=4.0),), EXACT),
        Case("values: integers", lambda: (_points(-2.0, -1.0, 0.0, 1.0, 2.0),), EXACT),
        Case("corners: far right", lambda: (_points(30.0, 100.0, 800.0, 1e4),), EXACT),
        Case("corners: far left", lambda: (_points(-30.0, -100.0, -800.0, -1e4),), EXACT),
        Case("corners: float32", lambda: (draw(6, scale=3.0, dtype=torch.float32),), 5e-6),
        Case("corners: an empty tensor", lambda: (draw(0, 3),), EXACT),
    ],
    variants=(_mish(), _mish_rational),
    wrong=(
        WrongAnswer(
            "softplus that overflows",
            "log(1 + exp(x)) is infinite beyond 709 in float64 and inf - inf or inf / inf "
            "follow. Take the sigmoid and the softplus in their stable forms.",
            _mish(
                softplus=lambda x: torch.log(1 + x.exp()), inner=lambda x: x.exp() / (1 + x.exp())
            ),
        ),
        WrongAnswer(
            "inner derivative forgotten",
            "The chain rule goes on into the softplus, whose derivative is the sigmoid.",
            _mish(inner=torch.ones_like),
        ),
        WrongAnswer(
            "product rule's second term forgotten",
            "x tanh(softplus(x)) has two factors, and the second one changes with x too.",
            lambda x: torch.tanh(F.softplus(x)),
        ),
        WrongAnswer(
            "factor x forgotten",
            "In the second term of the product rule the factor x stays.",
            _mish(factor=False),
        ),
        WrongAnswer(
            "derivative of tanh without the square",
            "The derivative of tanh is 1 - tanh squared.",
            _mish(outer=lambda t: 1 - t),
        ),
        WrongAnswer(
            "derivative of the softplus's sigmoid",
            "The derivative of softplus is the sigmoid itself, not the sigmoid's derivative.",
            _mish(inner=lambda x: torch.sigmoid(x) * torch.sigmoid(-x)),
        ),
    ),
)

# --- prelu_backward -------------------------------------------------------------------------------


def _prelu_backward(grad_out: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    return gradients(F.prelu, grad_out, x, weight)


def _along(weight: Tensor, x: Tensor, dim: int = 1) -> Tensor:
    return weight.reshape([-1 if i == dim else 1 for i in range(x.dim())])


@in_parts
def _prelu(
    positive: Callable[[Tensor], Tensor] = lambda x: x > 0,
    of_w: Callable[[Tensor, Tensor], Tensor] = lambda g, x: g * x.clamp(max=0),
    how: str = "sum",
    dim: int = 1,
    swapped: bool = False,
) -> Callable[..., Pair]:
    def answer(grad_out: Tensor, x: Tensor, weight: Tensor) -> Pair:
        w = _along(weight, x, dim % x.dim())
        slope = torch.where(positive(x), torch.ones_like(x), w)
        if swapped:
            slope = torch.where(positive(x), w, torch.ones_like(x))
        others = [i for i in range(x.dim()) if i != dim % x.dim()]
        return grad_out * slope, getattr(of_w(grad_out, x), how)(others)

    return answer


def _prelu_case(name: str, *shape: int, zero: bool = False) -> Case:
    def inputs() -> tuple[Tensor, ...]:
        x = draw(*shape, seed=2)
        if zero:
            x[0] = 0.0
        return draw(*shape, seed=1), x, draw(shape[1], seed=3, offset=0.25, scale=0.1)

    return Case(name, inputs, EXACT)


PRELU_BACKWARD = Exercise(
    title="A leaky ReLU whose slopes are learned, backwards",
    oracle=_prelu_backward,
    cases=[
        _prelu_case("values: a batch of features", 4, 3),
        _prelu_case("values: channels and positions", 2, 3, 5),
        _prelu_case("values: two more dimensions", 2, 3, 4, 2),
        _prelu_case("corners: entries of zero", 3, 4, zero=True),
        _prelu_case("corners: as many positions as channels", 2, 4, 4),
        _prelu_case("corners: a single channel", 5, 1),
    ],
    variants=(_prelu(), _prelu(of_w=lambda g, x: torch.where(x > 0, 0.0, g * x))),
    wrong=(
        WrongAnswer(
            "slopes along the last dimension",
            "The channels are dimension 1; the last dimension holds positions.",
            _prelu(dim=-1),
        ),
        WrongAnswer(
            "slope 1 at zero",
            "torch takes the learned slope at exactly 0: only x > 0 has slope 1.",
            _prelu(positive=lambda x: x >= 0),
        ),
        WrongAnswer(
            "slope's gradient from all entries",
            "The slope acts on negative entries only, so that positive ones send it nothing.",
            _prelu(of_w=lambda g, x: g * x),
        ),
        WrongAnswer(
            "x left out of the slope's gradient",
            "A negative entry gives weight * x, whose derivative in weight is x.",
            _prelu(of_w=lambda g, x: g * (x <= 0)),
        ),
        WrongAnswer(
            "slope's gradient averaged",
            "One slope serves every entry of its channel, so their gradients are summed.",
            _prelu(how="mean"),
        ),
        WrongAnswer(
            "sides exchanged",
            "Positive entries pass with slope 1, negative ones with the learned slope.",
            _prelu(swapped=True),
        ),
    ),
)

# --- quick_gelu -----------------------------------------------------------------------------------


def _quick(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


def _quick_gelu(x: Tensor) -> Pair:
    return _quick(x), each(_quick, x)


@in_parts
def _quick_with(
    k: float = 1.702,
    sigmoid: Map = torch.sigmoid,
    slope: Callable[[Tensor, Tensor], Tensor] = lambda x, s: s + 1.702 * x * s * (1 - s),
) -> Callable[[Tensor], Pair]:
    def answer(x: Tensor) -> Pair:
        s = sigmoid(k * x)
        return x * s, slope(x, s)

    return answer


def _quick_by_tanh(x: Tensor) -> Pair:
    s = 0.5 * (1 + torch.tanh(0.851 * x))
    return x * s, s * (1 + 1.702 * x * (1 - s))


QUICK_GELU = Exercise(
    title="QuickGELU and its derivative",
    oracle=_quick_gelu,
    cases=[
        Case("values: around zero", lambda: (draw(3, 4),), EXACT),
        Case("values: a wider range", lambda: (draw(4, 5, scale=3.0),), EXACT),
        Case("values: integers", lambda: (_points(-2.0, -1.0, 0.0, 1.0, 2.0),), EXACT),
        Case("corners: far right", lambda: (_points(50.0, 500.0, 1e4),), EXACT),
        Case("corners: far left", lambda: (_points(-50.0, -500.0, -1e4),), EXACT),
        Case("corners: float32", lambda: (draw(6, dtype=torch.float32),), 1e-6),
    ],
    variants=(_quick_with(), _quick_by_tanh),
    wrong=(
        WrongAnswer(
            "SiLU in its place",
            "QuickGELU is x sigmoid(1.702 x). SiLU is the same with factor 1.",
            _quick_with(k=1.0, slope=lambda x, s: s + x * s * (1 - s)),
        ),
        WrongAnswer(
            "inner derivative forgotten",
            "The sigmoid sees 1.702 x, so its derivative carries a factor of 1.702.",
            _quick_with(slope=lambda x, s: s + x * s * (1 - s)),
        ),
        WrongAnswer(
            "only the gate",
            "The product rule has a second term: x times the derivative of the gate.",
            _quick_with(slope=lambda x, s: s),
        ),
        WrongAnswer(
            "sigmoid that overflows",
            "exp(z) / (1 + exp(z)) is inf / inf for large z. torch.sigmoid has no such corner.",
            _quick_with(sigmoid=lambda z: z.exp() / (1 + z.exp())),
        ),
        WrongAnswer(
            "factor x forgotten in the derivative",
            "In the second term of the product rule the factor x stays.",
            _quick_with(slope=lambda x, s: s + 1.702 * s * (1 - s)),
        ),
        WrongAnswer(
            "exact GELU",
            "The task asks for the approximation with a sigmoid, which differs by up to 0.02.",
            lambda x: (F.gelu(x), each(F.gelu, x)),
        ),
    ),
)

# --- widest ---------------------------------------------------------------------------------------


def _widest(d_model: int, budget: int, multiple: int) -> int:
    best = 0
    while 3 * d_model * (best + multiple) <= budget:
        best += multiple
    if not best:
        raise ValueError(f"budget {budget} is too small for d_model {d_model}")
    return best


@in_parts
def _width(
    matrices: int = 3, up: bool = False, refuse: bool = True, real: bool = False
) -> Callable[[int, int, int], int]:
    def answer(d_model: int, budget: int, multiple: int) -> int:
        widest = budget // (matrices * d_model)
        if real:
            return widest
        steps = -(-widest // multiple) if up else widest // multiple
        if refuse and not steps:
            raise ValueError("the budget is too small")
        return steps * multiple

    return answer


WIDEST = Exercise(
    title="The widest gated layer within a budget",
    oracle=_widest,
    cases=[
        Case("values: a Llama-sized layer", lambda: (4096, 140_000_000, 256)),
        Case("values: a small layer", lambda: (64, 50_000, 32)),
        Case("values: multiple of 8", lambda: (100, 40_000, 8)),
        Case("values: multiple of 1", lambda: (7, 1000, 1)),
        Case("corners: a budget that fits exactly", lambda: (64, 3 * 64 * 96, 32)),
        Case("corners: one parameter short", lambda: (64, 3 * 64 * 96 - 1, 32)),
        replace(Case("corners: nothing fits", lambda: (64, 3 * 64 * 31, 32)), raises=ValueError),
    ],
    variants=(_width(),),
    wrong=(
        WrongAnswer(
            "two matrices counted",
            "A gated layer has three matrices: gate, up and down.",
            _width(matrices=2),
        ),
        WrongAnswer(
            "rounded up",
            "The budget is an upper limit, so the width is rounded down to the multiple.",
            _width(up=True),
        ),
        WrongAnswer(
            "multiple ignored",
            "The width has to be divisible by `multiple`.",
            _width(real=True),
        ),
        WrongAnswer(
            "width 0 returned",
            "A layer of width 0 is no layer. The task asks for a ValueError there.",
            _width(refuse=False),
        ),
        WrongAnswer(
            "8 / 3 of the model",
            "8 d / 3 matches a plain layer of width 4 d. Here the budget is given instead.",
            lambda d, budget, m: m * -(-(8 * d // 3) // m),
        ),
    ),
)

# --- merge_for_shards -----------------------------------------------------------------------------


def _merge_for_shards(w_gate: Tensor, w_up: Tensor, shards: int) -> Tensor:
    if len(w_gate) % shards:
        raise ValueError(f"w_gate: {len(w_gate)} rows cannot be cut into {shards} equal parts")
    size = len(w_gate) // shards
    blocks = []
    for s in range(shards):
        blocks += [w_gate[s * size : (s + 1) * size], w_up[s * size : (s + 1) * size]]
    return torch.cat(blocks)


def _merge_by_stack(w_gate: Tensor, w_up: Tensor, shards: int) -> Tensor:
    if len(w_gate) % shards:
        raise ValueError("the rows cannot be cut into equal parts")
    both = torch.stack([torch.unflatten(w, 0, (shards, -1)) for w in (w_gate, w_up)], 1)
    return both.flatten(0, 2)


def _merge_uneven(w_gate: Tensor, w_up: Tensor, shards: int) -> Tensor:
    pairs = zip(w_gate.chunk(shards), w_up.chunk(shards), strict=True)
    return torch.cat([w for pair in pairs for w in pair])


def _checked(f: Callable[[Tensor, Tensor, int], Tensor]) -> Callable[[Tensor, Tensor, int], Tensor]:
    def answer(w_gate: Tensor, w_up: Tensor, shards: int) -> Tensor:
        if len(w_gate) % shards:
            raise ValueError("the rows cannot be cut into equal parts")
        return f(w_gate, w_up, shards)

    return answer


def _merge_case(name: str, rows: int, d: int, shards: int) -> Case:
    return Case(name, lambda: (draw(rows, d, seed=1), draw(rows, d, seed=2), shards), EXACT)


MERGE_FOR_SHARDS = Exercise(
    title="Gate and up in one matrix, for several devices",
    oracle=_merge_for_shards,
    cases=[
        _merge_case("values: two devices", 8, 3, 2),
        _merge_case("values: four devices", 8, 5, 4),
        _merge_case("values: one device", 6, 4, 1),
        _merge_case("corners: a row for each device", 4, 3, 4),
        _merge_case("corners: a square, two devices", 6, 6, 2),
        replace(_merge_case("corners: rows that cannot be shared out", 7, 3, 2), raises=ValueError),
    ],
    variants=(_merge_by_stack,),
    wrong=(
        WrongAnswer(
            "all of the gate first",
            "The first device then holds gate rows only, and its halves are no gate and up. "
            "Each device needs its own gate rows and its own up rows.",
            _checked(lambda g, u, s: torch.cat([g, u])),
        ),
        WrongAnswer(
            "row by row",
            "Neighbouring rows in turn suit a split into even and odd features. Here each "
            "device cuts its own rows into two halves.",
            _checked(lambda g, u, s: torch.stack([g, u], 1).flatten(0, 1)),
        ),
        WrongAnswer(
            "up before gate",
            "The first half of each device's rows is the gate, the second half is up.",
            _checked(lambda g, u, s: _merge_for_shards(u, g, s)),
        ),
        WrongAnswer(
            "columns cut in place of rows",
            "torch stores the weight as (d_ff, d_model): the hidden features are the rows.",
            _checked(lambda g, u, s: torch.cat([g, u], 1)),
        ),
        WrongAnswer(
            "uneven shares accepted",
            "If the rows cannot be shared out equally, the task asks for a ValueError.",
            _merge_uneven,
        ),
    ),
)

# --- ffn_backward ---------------------------------------------------------------------------------


def _ffn_backward(
    grad_out: Tensor, x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor
) -> tuple[Tensor, ...]:
    b2 = torch.zeros(w2.shape[0], dtype=x.dtype)
    return gradients(
        lambda x, w1, b1, w2, b2: F.linear(F.relu(F.linear(x, w1, b1)), w2, b2),
        grad_out, x, w1, b1, w2, b2,
    )  # fmt: skip


@in_parts
def _ffn(
    gate: Callable[[Tensor, Tensor], Tensor] = lambda d, h: d * (h > 0),
    hidden: Map = F.relu,
    rows: Callable[[Tensor], Tensor] = lambda t: t.flatten(0, -2).sum(0),
    bias: bool = True,
    layout: bool = True,
) -> Callable[..., tuple[Tensor, ...]]:
    def answer(g: Tensor, x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor) -> tuple[Tensor, ...]:
        h = x @ w1.T + (b1 if bias else 0)
        dh = gate(g @ w2, h)
        grad_w1 = torch.einsum("...h,...d->hd", dh, x)
        grad_w2 = torch.einsum("...d,...h->dh", g, hidden(h))
        if not layout:
            grad_w1, grad_w2 = grad_w1.T, grad_w2.T
        return dh @ w1, grad_w1, rows(dh), grad_w2, rows(g)

    return answer


def _ffn_case(name: str, *lead: int, d: int = 4, d_ff: int = 6, dead: bool = False) -> Case:
    return Case(
        name,
        lambda: (draw(*lead, d, seed=1), draw(*lead, d, seed=2), draw(d_ff, d, seed=3),
                 draw(d_ff, seed=4, offset=-50.0 if dead else 0.0), draw(d, d_ff, seed=5)),
        EXACT,
    )  # fmt: skip


FFN_BACKWARD = Exercise(
    title="The feed-forward layer backwards",
    oracle=_ffn_backward,
    cases=[
        _ffn_case("values: a batch of rows", 5),
        _ffn_case("values: sequences", 2, 3),
        _ffn_case("values: a narrow layer", 4, d=5, d_ff=3),
        _ffn_case("corners: everything of one size", 4, d=4, d_ff=4),
        _ffn_case("corners: a batch of one", 1),
        _ffn_case("corners: every unit off", 3, dead=True),
    ],
    variants=(_ffn(), _ffn(gate=lambda d, h: torch.where(h > 0, d, 0.0))),
    wrong=(
        WrongAnswer(
            "activation's derivative forgotten",
            "Units that are off pass nothing back: multiply by h > 0 before going on.",
            _ffn(gate=lambda d, h: d),
        ),
        WrongAnswer(
            "activation multiplied in for its derivative",
            "The derivative of ReLU is 0 or 1. Its value is what multiplies in the forward pass.",
            _ffn(gate=lambda d, h: d * F.relu(h)),
        ),
        WrongAnswer(
            "sign of what arrives",
            "The derivative of ReLU looks at its input h, not at the gradient that arrives.",
            _ffn(gate=lambda d, h: d * (d > 0)),
        ),
        WrongAnswer(
            "hidden layer taken before the activation",
            "The second matrix saw relu(h), so its gradient is made with relu(h).",
            _ffn(hidden=lambda h: h),
        ),
        WrongAnswer(
            "bias left out of the hidden layer",
            "Whether a unit is on depends on its bias: h = x @ w1.T + b1.",
            _ffn(bias=False),
        ),
        WrongAnswer(
            "gradients of the matrices transposed",
            "A gradient has the shape of its matrix: (d_ff, d_model) and (d_model, d_ff).",
            _ffn(layout=False),
        ),
        WrongAnswer(
            "gradients of the biases averaged",
            "The bias acts on every row, so its gradient is the sum over all rows.",
            _ffn(rows=lambda t: t.flatten(0, -2).mean(0)),
        ),
    ),
)

EXERCISES: dict[str, Exercise] = {
    "hard_swish": HARD_SWISH,
    "geglu_backward": GEGLU_BACKWARD,
    "mish_grad": MISH_GRAD,
    "prelu_backward": PRELU_BACKWARD,
    "quick_gelu": QUICK_GELU,
    "widest": WIDEST,
    "merge_for_shards": MERGE_FOR_SHARDS,
    "ffn_backward": FFN_BACKWARD,
}
