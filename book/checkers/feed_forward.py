"""The exercises of chapter 07: units, gates, their gradients, and the widths of the layers.

The oracles are torch's own operators, autograd, and exact fractions, never the book's library. A
wrong answer is the right one with one thing changed, so that its line shows the mistake.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.core import Answer, Case, Exercise, WrongAnswer, autograd, in_parts
from book.checkers.questions import WrongNumber, choice, number
from book.facts import fact

EXACT = 1e-11


def _draw(
    *shape: int, seed: int = 0, scale: float = 1.0, dtype: torch.dtype = torch.float64
) -> Tensor:
    """The same normal numbers on every call, rounded to `dtype` at the end."""
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (scale * numbers).to(dtype)


# --- swiglu(x, gate, up, down) --------------------------------------------------------------------


def _swiglu(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    return F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)


def _swiglu_by_units(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    g, u = torch.einsum("...d,fd->...f", x, gate), torch.einsum("...d,fd->...f", x, up)
    return torch.einsum("...f,df->...d", g / (1 + torch.exp(-g)) * u, down)


def _swiglu_packed(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    g, u = (x @ torch.cat([gate, up]).T).chunk(2, -1)
    return (u * torch.sigmoid(g) * g) @ down.T


def _layer(hidden: Callable[[Tensor, Tensor], Tensor]) -> Answer:
    """The gated layer with another function of the two projections."""

    def answer(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
        return hidden(x @ gate.T, x @ up.T) @ down.T

    return answer


def _not_transposed(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    return (F.silu(x @ gate) * (x @ up)) @ down


def _activation_last(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    return F.silu(((x @ gate.T) * (x @ up.T)) @ down.T)


def _layer_case(name: str, *shape: int, d_ff: int, scale: float = 1.0) -> Case:
    def inputs() -> tuple[Tensor, ...]:
        d = shape[-1]
        tensors = (
            _draw(*shape, scale=scale),
            _draw(d_ff, d, seed=1),
            _draw(d_ff, d, seed=2),
            _draw(d, d_ff, seed=3),
        )
        return tuple(t.requires_grad_() for t in tensors)

    return Case(name, inputs, EXACT, grad=True)


SWIGLU = Exercise(
    title="The gated feed-forward layer with SiLU",
    oracle=_swiglu,
    leading={"x": 1},
    cases=[
        _layer_case("a batch of tokens", 5, 4, d_ff=7),
        _layer_case("two sequences", 2, 3, 6, d_ff=16),
        _layer_case("one token", 3, d_ff=5),
        _layer_case("square matrices", 4, 6, d_ff=6),
        _layer_case("one feature", 3, 1, d_ff=2),
        _layer_case("one hidden unit", 3, 4, d_ff=1),
        _layer_case("large inputs", 4, 5, d_ff=9, scale=8.0),
        _layer_case("small inputs", 4, 5, d_ff=9, scale=1e-2),
    ],
    variants=(_swiglu_by_units, _swiglu_packed),
    wrong=(
        WrongAnswer(
            "gate and up exchanged",
            "The activation belongs to the gate (w1 in Llama's code), not to up (w3). The shapes "
            "are equal, so nothing complains.",
            _layer(lambda g, u: g * F.silu(u)),
        ),
        WrongAnswer(
            "sigmoid in place of SiLU",
            "That is the layer with GLU. SiLU is the gate times its sigmoid.",
            _layer(lambda g, u: g.sigmoid() * u),
        ),
        WrongAnswer(
            "sigmoid, and on the wrong branch",
            "In the table the gate goes through SiLU, and the value through nothing. Here the "
            "value goes through a function, and it is the sigmoid.",
            _layer(lambda g, u: g * u.sigmoid()),
        ),
        WrongAnswer(
            "GELU in place of SiLU",
            "That is the layer with GEGLU. The two functions are close, but not equal.",
            _layer(lambda g, u: F.gelu(g) * u),
        ),
        WrongAnswer(
            "no activation",
            "That is the bilinear layer. The gate goes through SiLU before the product.",
            _layer(lambda g, u: g * u),
        ),
        WrongAnswer(
            "activation on the product",
            "SiLU acts on the gate alone, before the product. Applied after it, it acts on "
            "the value as well.",
            _layer(lambda g, u: F.silu(g * u)),
        ),
        WrongAnswer(
            "activation on both branches",
            "Only the gate goes through SiLU. The up branch stays linear.",
            _layer(lambda g, u: F.silu(g) * F.silu(u)),
        ),
        WrongAnswer(
            "activation on the output",
            "SiLU acts on the gate. What leaves the layer is linear in the hidden units.",
            _activation_last,
        ),
        WrongAnswer(
            "sum in place of the product",
            "A gate multiplies the other branch. With a sum it is a plain layer plus a linear map.",
            _layer(lambda g, u: F.silu(g) + u),
        ),
        WrongAnswer(
            "up branch forgotten",
            "Without the product with `x @ up.T` this is a plain layer with two matrices.",
            _layer(lambda g, u: F.silu(g) + 0 * u),
        ),
        WrongAnswer(
            "matrices not transposed",
            "`nn.Linear` stores its matrix transposed, with shape (out, in): the product is "
            "`x @ weight.T`.",
            _not_transposed,
        ),
    ),
)


# --- product(layer) -------------------------------------------------------------------------------

_UNITS = 2


def _hidden_layer(tokens: Tensor) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """The gated layer with SiLU on `tokens`, which whoever calls it does not see."""

    def layer(gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
        shapes = {"gate": (2, _UNITS), "up": (2, _UNITS), "down": (_UNITS, 1)}
        made = {"gate": gate, "up": up, "down": down}
        for name, shape in shapes.items():
            if tuple(made[name].shape) != shape:
                raise ValueError(f"{name} must have shape {shape}, got {tuple(made[name].shape)}")
        gate, up, down = (matrix.to(tokens) for matrix in (gate, up, down))
        return (F.silu(tokens @ gate) * (tokens @ up)) @ down

    return layer


def _of_two_units(
    gate: list[list[float]], up: list[list[float]], down: tuple[float, float] = (1.0, 1.0)
) -> Answer:
    """The answer with these matrices, a column of `gate` and `up` for each unit."""
    return lambda layer: layer(torch.tensor(gate), torch.tensor(up), torch.tensor(down)[:, None])


def _product_case(name: str, tokens: Callable[[], Tensor]) -> Case:
    return Case(name, lambda: (_hidden_layer(tokens()),), tol=1e-10)


_BOTH_SIGNS = [[1.0, -1.0], [0.0, 0.0]]

PRODUCT = Exercise(
    title="The product of two features by two gated units",
    # The tokens are hidden from it too; tests/parts/test_feed_forward.py compares with a·b itself.
    oracle=_of_two_units([[0.0, 0.0], [1.0, -1.0]], [[1.0, -1.0], [0.0, 0.0]]),
    cases=[
        _product_case("ordinary tokens", lambda: _draw(20, 2)),
        _product_case("a positive", lambda: _draw(20, 2, seed=2) + torch.tensor([5.0, 0.0])),
        _product_case("a negative", lambda: _draw(20, 2, seed=1) - torch.tensor([5.0, 0.0])),
        _product_case("small tokens", lambda: _draw(20, 2, scale=1e-3)),
        _product_case("large tokens", lambda: _draw(20, 2, scale=20.0)),
        _product_case("a feature of zero", lambda: _draw(6, 2) * torch.tensor([1.0, 0.0])),
    ],
    variants=(
        _of_two_units(_BOTH_SIGNS, [[0.0, 0.0], [1.0, -1.0]]),
        _of_two_units([[0.0, 0.0], [-1.0, 1.0]], [[2.0, 2.0], [0.0, 0.0]], (-0.5, 0.5)),
    ),
    wrong=(
        WrongAnswer(
            "one unit",
            "SiLU(a)·b is a·b only for large positive a. Where a is negative, the gate is nearly "
            "closed, so a second unit has to open there.",
            _of_two_units([[1.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [1.0, 0.0]]),
        ),
        WrongAnswer(
            "the signs of the values alike",
            "SiLU(a)·b + SiLU(−a)·b has the sign of b: it is near |a|·b. Where the gate is turned "
            "round, the value has to be, too.",
            _of_two_units(_BOTH_SIGNS, [[0.0, 0.0], [1.0, 1.0]]),
        ),
        WrongAnswer(
            "the same feature twice",
            "The gates see a and the values see a as well, which gives a². The values have to see "
            "b.",
            _of_two_units(_BOTH_SIGNS, [[1.0, -1.0], [0.0, 0.0]]),
        ),
        WrongAnswer(
            "squares of sum and difference",
            "(a + b)² − (a − b)² = 4ab is right, but SiLU(t)·t is a square only for large t. "
            "Without a function on the gate it would do.",
            _of_two_units([[1.0, 1.0], [1.0, -1.0]], [[1.0, 1.0], [1.0, -1.0]], (0.25, -0.25)),
        ),
        WrongAnswer(
            "matrices transposed",
            "`layer` multiplies the token from the left: each unit is a column of `gate` and of "
            "`up`.",
            _of_two_units([[1.0, 0.0], [-1.0, 0.0]], [[0.0, 1.0], [0.0, -1.0]]),
        ),
        WrongAnswer(
            "half of it",
            "SiLU(a) − SiLU(−a) is a itself, not 2a: the two outputs are added in full.",
            _of_two_units(_BOTH_SIGNS, [[0.0, 0.0], [0.5, -0.5]]),
        ),
    ),
)


# --- swiglu_backward(dh, g, u) --------------------------------------------------------------------


def _backward_oracle(dh: Tensor, g: Tensor, u: Tensor) -> tuple[Tensor, ...]:
    leaves = [t.detach().clone().requires_grad_() for t in (g, u)]
    return torch.autograd.grad(F.silu(leaves[0]) * leaves[1], leaves, dh)


def _silu_slope(g: Tensor) -> Tensor:
    s = torch.sigmoid(g)
    return s * (1 + g * (1 - s))


def _gradients(
    slope: Callable[[Tensor], Tensor] = _silu_slope, value: Callable[[Tensor], Tensor] = F.silu
) -> Answer:
    """The backward pass with another slope of the gate, or another value of it."""
    return lambda dh, g, u: (slope(g) * u * dh, value(g) * dh)


def _backward_by_parts(dh: Tensor, g: Tensor, u: Tensor) -> list[Tensor]:
    h = F.silu(g)
    return [(h + torch.sigmoid(g) * (1 - h)) * u * dh, h * dh]


def _backward_case(name: str, *shape: int, scale: float = 1.0) -> Case:
    return Case(
        name,
        lambda: (_draw(*shape), _draw(*shape, seed=1, scale=scale), _draw(*shape, seed=2)),
        EXACT,
    )


SWIGLU_BACKWARD = Exercise(
    title="The gradients of SiLU(g) * u",
    oracle=_backward_oracle,
    leading={"dh": 0, "g": 0, "u": 0},
    cases=[
        _backward_case("a matrix", 4, 6),
        _backward_case("three dimensions", 2, 3, 5),
        _backward_case("a vector", 7),
        _backward_case("one number", 1, 1),
        _backward_case("gates of size 10", 4, 6, scale=10.0),
        _backward_case("gates of size 0.1", 4, 6, scale=0.1),
        Case("gates of zero", lambda: (_draw(5), 0 * _draw(5), _draw(5, seed=2)), EXACT),
        Case("values of zero", lambda: (_draw(5), _draw(5, seed=1), 0 * _draw(5)), EXACT),
    ],
    variants=(_gradients(), _backward_by_parts),
    rules=(autograd("silu_backward", "sigmoid_backward"),),
    wrong=(
        WrongAnswer(
            "order exchanged",
            "The gradient of the gate comes first and that of the value second.",
            lambda dh, g, u: _backward_oracle(dh, g, u)[::-1],
        ),
        WrongAnswer(
            "value missing from the gate's gradient",
            "The gate multiplies `u`, so its gradient has `u` as a factor.",
            lambda dh, g, u: (_silu_slope(g) * dh, F.silu(g) * dh),
        ),
        WrongAnswer(
            "slope of the sigmoid",
            "SiLU is g times its sigmoid, so its derivative has two terms: sigmoid(g) and "
            "g sigmoid'(g).",
            _gradients(slope=lambda g: g.sigmoid() * (1 - g.sigmoid())),
        ),
        WrongAnswer(
            "first term of the slope only",
            "The derivative of g sigmoid(g) is sigmoid(g) + g sigmoid'(g). The second term is "
            "missing.",
            _gradients(slope=torch.sigmoid),
        ),
        WrongAnswer(
            "second term of the slope only",
            "The derivative of g sigmoid(g) is sigmoid(g) + g sigmoid'(g). The first term is "
            "missing.",
            _gradients(slope=lambda g: g * g.sigmoid() * (1 - g.sigmoid())),
        ),
        WrongAnswer(
            "gate's gradient with SiLU in place of its slope",
            "The gradient of the gate has the derivative of SiLU as a factor, not SiLU itself.",
            _gradients(slope=F.silu),
        ),
        WrongAnswer(
            "sigmoid in place of SiLU for the value",
            "The gradient of `u` is the other factor of the product, and that is SiLU(g).",
            _gradients(value=torch.sigmoid),
        ),
        WrongAnswer(
            "slope in the value's gradient",
            "The value is multiplied by SiLU(g), so that is its gradient's factor. The "
            "derivative belongs to the gate.",
            _gradients(value=_silu_slope),
        ),
        WrongAnswer(
            "incoming gradient forgotten",
            "Both gradients are multiplied by `dh`, entry by entry.",
            lambda dh, g, u: (_silu_slope(g) * u, F.silu(g)),
        ),
    ),
)


# --- hidden_width(d_model, multiple_of, factor) ---------------------------------------------------


def _width_oracle(d_model: int, multiple_of: int, factor: float | None) -> int:
    hidden = math.floor(Fraction(8 * d_model, 3))
    if factor is not None:
        hidden = int(factor * hidden)
    return multiple_of * math.ceil(Fraction(hidden, multiple_of))


@in_parts
def _width(
    hidden: Callable[[int], float] = lambda d: 8 * d // 3,
    scaled: Callable[[float, float], float] = lambda h, factor: int(factor * h),
    rounded: Callable[[int, int], int] = lambda h, m: m * ((h + m - 1) // m),
) -> Answer:
    """The width in its three steps, one of which may be replaced."""

    def answer(d_model: int, multiple_of: int, factor: float | None) -> int:
        width = hidden(d_model)
        return rounded(int(width if factor is None else scaled(width, factor)), multiple_of)

    return answer


def _width_by_negative(d_model: int, multiple_of: int, factor: float | None) -> int:
    hidden = int(2 * 4 * d_model / 3)
    hidden = hidden if factor is None else int(hidden * factor)
    return -(-hidden // multiple_of) * multiple_of


def _up_exactly(d_model: int, multiple_of: int, factor: float | None) -> int:
    exact = Fraction(8 * d_model, 3) * Fraction(1 if factor is None else factor)
    return multiple_of * math.ceil(exact / multiple_of)


def _kept_until_the_factor(d_model: int, multiple_of: int, factor: float | None) -> int:
    width = 8 * d_model / 3 if factor is None else int(factor * 8 * d_model / 3)
    return multiple_of * math.ceil(width / multiple_of)


def _factor_last(d_model: int, multiple_of: int, factor: float | None) -> int:
    width = _width_oracle(d_model, multiple_of, None)
    return width if factor is None else int(factor * width)


_WIDTHS: list[tuple[int, int, float | None]] = [
    *((d, m, None) for d, m in ((4096, 256), (5120, 256), (24, 64), (48, 64), (96, 256))),
    *((d, m, None) for d, m in ((128, 64), (1, 2), (7, 3), (3, 8), (512, 48))),
    *((8192, 4096, 1.3), (4096, 1024, 1.3), (2048, 256, 1.5), (10, 1, 1.3), (11, 2, 0.5)),
    *((100, 1, 1.125), (100, 772, 2.9), (1, 1, 1.15)),
]

HIDDEN_WIDTH = Exercise(
    title="The hidden width of a gated layer, as the Llama models compute it",
    oracle=_width_oracle,
    cases=[
        Case(f"d_model {d}, multiple of {m}, factor {f}", lambda d=d, m=m, f=f: (d, m, f))  # type: ignore[misc]
        for d, m, f in _WIDTHS
    ],
    variants=(_width(), _width_by_negative),
    wrong=(
        WrongAnswer(
            "rounded down",
            "`h // m * m` is the largest multiple that is not above h. Add m - 1 before dividing.",
            _width(rounded=lambda h, m: h // m * m),
        ),
        WrongAnswer(
            "rounded to the nearest multiple",
            "The width is rounded up, even if a smaller multiple is nearer.",
            _width(rounded=lambda h, m: (2 * h + m) // (2 * m) * m),
        ),
        WrongAnswer(
            "one multiple too many",
            "With `h + m` in place of `h + m - 1` a width that is a multiple already grows by "
            "another one.",
            _width(rounded=lambda h, m: (h + m) // m * m),
        ),
        WrongAnswer(
            "number of multiples",
            "The quotient counts the multiples. It still has to be multiplied by `multiple_of`.",
            _width(rounded=lambda h, m: (h + m - 1) // m),
        ),
        WrongAnswer(
            "bit trick for every multiple",
            "`(h + m - 1) & ~(m - 1)` is right only if m is a power of two.",
            _width(rounded=lambda h, m: (h + m - 1) & ~(m - 1)),
        ),
        WrongAnswer(
            "two thirds forgotten",
            "Four times d_model is the width of a plain layer. A gated one has three matrices and "
            "gets two thirds of it.",
            _width(hidden=lambda d: 4 * d),
        ),
        WrongAnswer(
            "factor ignored",
            "If there is a factor, the width is multiplied by it before it is rounded up.",
            _width(scaled=lambda h, factor: h),
        ),
        WrongAnswer(
            "factor after rounding",
            "The factor comes before rounding up. Afterwards the width need not be a multiple.",
            _factor_last,
        ),
        WrongAnswer(
            "factor before truncating",
            "The two thirds are truncated to an integer first. The factor multiplies that.",
            _width(hidden=lambda d: 8 * d / 3),
        ),
        WrongAnswer(
            "not truncated after the two thirds",
            "The two thirds are truncated to an integer before anything is rounded up.",
            _kept_until_the_factor,
        ),
        WrongAnswer(
            "factor before the two thirds",
            "The two thirds come first, and are truncated. The factor multiplies what is left.",
            lambda d, m, factor: m * -(-(2 * int((factor or 1) * 4 * d) // 3) // m),
        ),
        WrongAnswer(
            "rounded after the factor",
            "After the factor the fraction is cut off, as it is after the two thirds.",
            _width(scaled=lambda h, factor: round(factor * h)),
        ),
        WrongAnswer(
            "rounded after the two thirds",
            "After the two thirds the fraction is cut off, as it is after the factor.",
            _width(hidden=lambda d: round(8 * d / 3)),
        ),
        WrongAnswer(
            "exact fractions",
            "The Llama models truncate to an integer after the two thirds, and after the factor. "
            "Without that, widths just above a multiple go one multiple higher.",
            _up_exactly,
        ),
    ),
)


# --- first_truncation(m) --------------------------------------------------------------------------


def _differs(d: int, m: int) -> bool:
    exact = Fraction(8 * d, 3)
    return math.ceil(exact / m) != math.ceil(Fraction(math.floor(exact), m))


def _first(
    condition: Callable[[int, int], bool] = _differs,
    last: Callable[[int], int] = lambda m: 3 * m,
) -> Answer:
    """The first d up to `last(m)` that fulfils `condition(d, m)`, or None."""
    return lambda m: next((d for d in range(1, last(m) + 1) if condition(d, m)), None)


def _first_by_congruence(m: int) -> int | None:
    if m % 4 == 0:
        return None
    modulus = 3 * m
    if m % 2:  # 8 has an inverse
        inverse = pow(8, -1, modulus)
        return min(inverse % modulus, 2 * inverse % modulus) or modulus
    half = modulus // 2  # 8d = 2 mod 3m, so 4d = 1 mod 3m/2
    return pow(4, -1, half) or half


FIRST_TRUNCATION = Exercise(
    title="The first width at which truncating before rounding up matters",
    oracle=_first(),
    cases=[
        Case(f"m = {m}", lambda m=m: (m,))  # type: ignore[misc]
        for m in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 15, 22, 30, 49, 64, 66, 100, 1361)
    ],
    variants=(
        _first(lambda d, m: 8 * d % (3 * m) in (1, 2)),
        _first_by_congruence,
    ),
    wrong=(
        WrongAnswer(
            "never",
            "For m = 1 already, 8/3 is truncated to 2, while rounding up gives 3.",
            lambda m: None,
        ),
        WrongAnswer(
            "never for even m",
            "It is 4 that has to divide m. For m = 2 and d = 1, 8/3 is truncated to 2, which is a "
            "multiple of 2, while rounding 8/3 up gives 4.",
            lambda m: None if m % 2 == 0 else _first()(m),
        ),
        WrongAnswer(
            "search ends at m",
            "The condition repeats in d with period 3m, not m, so a search must go that far.",
            _first(last=lambda m: m),
        ),
        WrongAnswer(
            "search ends at a fixed number",
            "The first d may be as large as m itself, and larger. The remainders repeat after at "
            "most 3m steps, so a search must go that far.",
            _first(last=lambda m: 100),
        ),
        WrongAnswer(
            "0 in place of None",
            "Where there is no such d, the answer is None. 0 would be a width.",
            lambda m: _first()(m) or 0,
        ),
        WrongAnswer(
            "starts at zero",
            "A width of 0 is no width: start at 1. And 0 is not truncated at all.",
            lambda m: 0,
        ),
        WrongAnswer(
            "remainder 1 only",
            "8d = 3mk + r is truncated onto a multiple of m for r = 1 and for r = 2.",
            _first(lambda d, m: 8 * d % (3 * m) == 1),
        ),
        WrongAnswer(
            "remainder 2 only",
            "8d = 3mk + r is truncated onto a multiple of m for r = 2 and for r = 1.",
            _first(lambda d, m: 8 * d % (3 * m) == 2),
        ),
        WrongAnswer(
            "anything that is truncated",
            "That 8d/3 is not an integer is not enough. Truncating matters only if it lands on a "
            "multiple of m.",
            _first(lambda d, m: 8 * d % 3 != 0),
        ),
    ),
)


# --- kept -----------------------------------------------------------------------------------------


def _kept(*, thirds: int = 8) -> float:
    """What torch keeps of a layer with SwiGLU for the way back, per token and per feature."""
    d, d_ff = 48, 16 * thirds
    gate, up, down = (
        torch.nn.Linear(*shape, bias=False) for shape in ((d, d_ff), (d, d_ff), (d_ff, d))
    )
    weights = {layer.weight.untyped_storage().data_ptr() for layer in (gate, up, down)}
    saved: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage().data_ptr()
        if storage not in weights:
            saved[storage] = tensor
        return tensor

    x = torch.ones(1, d, dtype=gate.weight.dtype, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        y = down(F.silu(gate(x)) * up(x))
    assert y.requires_grad
    return sum(tensor.numel() for tensor in saved.values()) / d


KEPT = number(
    "What the backward pass of SwiGLU keeps",
    value=_kept,
    within=5e-3,
    because="About {value} numbers for each feature of a token: the token itself, and four tensors "
    "as wide as the layer: the gate, SiLU of the gate, the value and the product.",
    wrong=[
        WrongNumber(
            "three of the hidden width",
            "The gate, SiLU of the gate and the value are needed, and so is their product: it "
            "enters the last matrix, and the gradient of that matrix needs it.",
            lambda: 1 + 3 * 8 / 3,
        ),
        WrongNumber(
            "gate and value only",
            "That is what a fused kernel keeps, which computes SiLU and the product again.",
            lambda: 1 + 2 * 8 / 3,
        ),
        WrongNumber(
            "the token forgotten",
            "The gradients of gate and up need the token that entered them.",
            lambda: 4 * 8 / 3,
        ),
        WrongNumber(
            "the token twice",
            "Gate and up read the same token, and it is kept once.",
            lambda: 2 + 4 * 8 / 3,
        ),
        WrongNumber(
            "as wide as the plain layer",
            "The hidden width of this layer is two thirds of 4d.",
            lambda: _kept(thirds=12),
        ),
        WrongNumber(
            "as the plain layer with ReLU",
            "ReLU keeps its result alone. SiLU needs what went in, and the product both factors.",
            lambda: 5,
        ),
    ],
)


# --- off ------------------------------------------------------------------------------------------

OFF = choice(
    "A unit switched off",
    right="C",
    because="The six colors lose next to nothing. The unit pushes the other six nearly as much, so "
    "the twelve stand to each other as before; and they stay far above all other words, because "
    "more than half of what they have comes from other parts of the sum.",
    tempting={
        "A": (
            "the unit taken for the only one",
            "Its arrow points to the colors, so they seem to come from it. But the sum has "
            "hundreds of other parts, and some of them point to the colors as well.",
        ),
        "B": (
            "the push taken for the effect",
            "Nearly a half is what the scores lose before the division. But a probability depends "
            "on how the scores differ, and the other six colors lose nearly as much.",
        ),
        "D": (
            "the sign turned round",
            "The unit pushes towards the colors, so without it they should not gain much.",
        ),
    },
)


# --- share ----------------------------------------------------------------------------------------


def _share(
    *,
    matrices: int = 3,
    heads: int = 8,
    tables: int = 2,
    whole: Callable[[int, int], float] | None = None,
) -> float:
    """The feed-forward layers' part of a Llama of the asked size, its layers made by torch."""
    d, d_ff, layers = (fact("llama-3-8b", name) for name in ("d_model", "d_ff", "num_layers"))
    vocabulary, all_heads = (fact("llama-3-8b", name) for name in ("vocab_size", "num_heads"))

    def size(*shapes: tuple[int, int]) -> int:
        made = (torch.nn.Linear(*shape, bias=False, device="meta") for shape in shapes)
        return sum(layer.weight.numel() for layer in made)

    feed_forward = layers * size(*[(d, d_ff)] * matrices)
    narrow = d * heads // all_heads
    attention = layers * size((d, d), (d, narrow), (d, narrow), (d, d))
    part: float = feed_forward / (feed_forward + attention + size(*[(d, vocabulary)] * tables))
    return part


SHARE = number(
    "The share of the feed-forward layers in a whole model",
    value=_share,
    within=2e-3,
    because="A part of {value}, more than two thirds: the embeddings take away from it, but the "
    "layer is wider than two thirds of 4d, and attention is smaller.",
    wrong=[
        WrongNumber(
            "two thirds",
            "That is one layer with a hidden width of 8d/3, as many key heads as query heads, and "
            "no embeddings. None of the three holds here.",
            lambda: 2 / 3,
        ),
        WrongNumber(
            "embeddings forgotten",
            "That is the share within the layers. The two tables count as well.",
            lambda: _share(tables=0),
        ),
        WrongNumber(
            "one table",
            "The output has a table of its own here: there are two.",
            lambda: _share(tables=1),
        ),
        WrongNumber(
            "two matrices",
            "The layer is gated: gate, up and down are three matrices.",
            lambda: _share(matrices=2),
        ),
        WrongNumber(
            "as many key heads as query heads",
            "With 8 of 32 heads the matrices of keys and values have a quarter of the columns.",
            lambda: _share(heads=32),
        ),
        WrongNumber(
            "per cent",
            "The answer is a number between 0 and 1.",
            lambda: 100 * _share(),
        ),
    ],
)


EXERCISES: dict[str, Exercise] = {
    "off": OFF,
    "share": SHARE,
    "swiglu": SWIGLU,
    "product": PRODUCT,
    "swiglu_backward": SWIGLU_BACKWARD,
    "hidden_width": HIDDEN_WIDTH,
    "kept": KEPT,
    "first_truncation": FIRST_TRUNCATION,
}
