"""The exercises of chapter 09: the block, the growth of the stream, DeepNorm, and the schedule.

The oracles are torch's own layers and the formulas written out, never the book's library. Every
section has the same order: the oracle, the cases, the wrong answers, the exercise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.core import Answer, Case, Exercise, WrongAnswer

Map = Callable[[Tensor], Tensor]


def _draw(*shape: int, seed: int = 0, scale: float = 1.0, offset: float = 0.0) -> Tensor:
    """The same normal numbers on every call."""
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return offset + scale * numbers


# --- block ----------------------------------------------------------------------------------------


def _block(x: Tensor, sublayer: Map, norm: Map, norm_first: bool) -> Tensor:
    return x + sublayer(norm(x)) if norm_first else norm(x + sublayer(x))


def _block_in_steps(x: Tensor, sublayer: Map, norm: Map, norm_first: bool) -> Tensor:
    """The same by the way of the branch, as torch's own layer has it."""
    read = norm(x) if norm_first else x
    y = torch.add(sublayer(read), x)
    return y if norm_first else norm(y)


def _layer_norm(x: Tensor) -> Tensor:
    gain = torch.linspace(0.5, 2.0, x.shape[-1], dtype=x.dtype)
    return F.layer_norm(x, x.shape[-1:], gain, 1 - gain)


def _feed_forward(x: Tensor) -> Tensor:
    d = x.shape[-1]
    up, down = _draw(d, 2 * d, seed=1).to(x.dtype), _draw(2 * d, d, seed=2).to(x.dtype)
    return torch.relu(x @ up + 0.3) @ down


def _block_case(name: str, norm_first: bool, *shape: int, **draw: Any) -> Case:
    def inputs() -> tuple[Any, ...]:
        x = _draw(*shape, **draw).requires_grad_()
        return x, _feed_forward, _layer_norm, norm_first

    return Case(name, inputs, 1e-10, grad=True)


_BLOCK = Exercise(
    "The block, both ways",
    oracle=_block,
    cases=(
        _block_case("Pre-Norm, two sequences", True, 2, 3, 6),
        _block_case("Post-Norm, two sequences", False, 2, 3, 6),
        _block_case("Pre-Norm, one row with a large mean", True, 1, 5, offset=40.0),
        _block_case("Post-Norm, one row with a large mean", False, 1, 5, offset=40.0),
        _block_case("Pre-Norm, a stream of size 100", True, 4, 7, scale=100.0),
        _block_case("Post-Norm, rows of size 1e-3", False, 4, 7, scale=1e-3),
    ),
    wrong=(
        WrongAnswer(
            "placements exchanged",
            "`norm_first` means Pre-Norm: the norm comes before the sub-layer, and the sum is "
            "not normalised.",
            lambda x, sublayer, norm, norm_first: _block(x, sublayer, norm, not norm_first),
        ),
        WrongAnswer(
            "normalised stream in Pre-Norm",
            "In Pre-Norm only the sub-layer reads the normalised row. What its output is added "
            "to is x itself, or the identity path is lost.",
            lambda x, sublayer, norm, norm_first: (
                norm(x) + sublayer(norm(x)) if norm_first else norm(x + sublayer(x))
            ),
        ),
        WrongAnswer(
            "residual connection forgotten",
            "The sub-layer's output is added to x. Without x it replaces what was there.",
            lambda x, sublayer, norm, norm_first: (
                sublayer(norm(x)) if norm_first else norm(sublayer(x))
            ),
        ),
        WrongAnswer(
            "norm inside the sum in Post-Norm",
            "Post-Norm normalises the sum. A norm on the branch alone is another placement, "
            "which leaves the stream as it is.",
            lambda x, sublayer, norm, norm_first: (
                x + sublayer(norm(x)) if norm_first else x + norm(sublayer(x))
            ),
        ),
        WrongAnswer(
            "always Pre-Norm",
            "With `norm_first=False` the norm is applied to the sum, after the sub-layer.",
            lambda x, sublayer, norm, norm_first: x + sublayer(norm(x)),
        ),
        WrongAnswer(
            "always Post-Norm",
            "With `norm_first=True` the norm is applied to what the sub-layer reads, before it.",
            lambda x, sublayer, norm, norm_first: norm(x + sublayer(x)),
        ),
        WrongAnswer(
            "norm at both ends",
            "That is a sandwich. Pre-Norm has one norm per sub-layer, in front of it.",
            lambda x, sublayer, norm, norm_first: (
                x + norm(sublayer(norm(x))) if norm_first else norm(x + sublayer(x))
            ),
        ),
        WrongAnswer(
            "sum normalised in Pre-Norm too",
            "In Pre-Norm nothing stands on the stream but sums; the one norm of the stream comes "
            "at the very end of the stack, not in the block.",
            lambda x, sublayer, norm, norm_first: (
                norm(x + sublayer(norm(x))) if norm_first else norm(x + sublayer(x))
            ),
        ),
    ),
    variants=(_block_in_steps,),
)


# --- bounds ---------------------------------------------------------------------------------------


def _bounds(num_layers: int, d: int, kept: float) -> tuple[float, float]:
    return float(d * (1 + kept * num_layers)), float(d * (1 + (1 + kept) * num_layers))


def _bounds_by_recursion(num_layers: int, d: int, kept: float) -> tuple[float, float]:
    low = high = float(d)
    for _ in range(num_layers):
        low, high = low + kept * d, high + d + kept * d
    return low, high


def _bounds_case(name: str, *arguments: float) -> Case:
    return Case(name, lambda: arguments, 1e-9)


_BOUNDS = Exercise(
    "Lemma 2",
    oracle=_bounds,
    cases=(
        _bounds_case("ReLU, 6 layers of width 512", 6, 512, 0.5),
        _bounds_case("before the first layer", 0, 64, 0.5),
        _bounds_case("one layer", 1, 7, 0.5),
        _bounds_case("64 layers of width 128", 64, 128, 0.5),
        _bounds_case("an activation that keeps everything", 12, 32, 1.0),
        _bounds_case("an activation that keeps a quarter", 12, 32, 0.25),
    ),
    wrong=(
        WrongAnswer(
            "Post-Norm's constant",
            "(1 + kept) d is what Post-Norm's second norm reads, in every layer. A Pre-Norm "
            "stream is not normalised, so what is added stays.",
            lambda num_layers, d, kept: ((1 + kept) * d, (1 + kept) * d),
        ),
        WrongAnswer(
            "the start forgotten",
            "The stream starts at d, before the first layer adds anything.",
            lambda num_layers, d, kept: (kept * num_layers * d, (1 + kept) * num_layers * d),
        ),
        WrongAnswer(
            "growth compounded",
            "The branch reads a normalised row, so it adds the same amount in each layer, "
            "however large the stream is. Growth is linear, not exponential.",
            lambda num_layers, d, kept: (
                float(d * (1 + kept) ** num_layers),
                float(d * (2 + kept) ** num_layers),
            ),
        ),
        WrongAnswer(
            "lengths in place of squares",
            "Independent contributions add up in their squares. Asked for is the squared length, "
            "not its root.",
            lambda num_layers, d, kept: tuple(map(math.sqrt, _bounds(num_layers, d, kept))),
        ),
        WrongAnswer(
            "the width forgotten",
            "These are the numbers per feature. The squared length of a row of d features is d "
            "times as large.",
            lambda num_layers, d, kept: _bounds(num_layers, 1, kept),
        ),
        WrongAnswer(
            "attention always at its most",
            "Attention averages rows. If they point in many directions their mean is almost "
            "zero, so at least it adds nothing.",
            lambda num_layers, d, kept: (_bounds(num_layers, d, kept)[1],) * 2,
        ),
        WrongAnswer(
            "activation ignored",
            "The feed-forward layer keeps only a share of the squared length, `kept`: one half "
            "for ReLU. That is not 1.",
            lambda num_layers, d, kept: _bounds(num_layers, d, 1.0),
        ),
        WrongAnswer(
            "ReLU taken for granted",
            "`kept` is an argument. One half is its value for ReLU only.",
            lambda num_layers, d, kept: _bounds(num_layers, d, 0.5),
        ),
        WrongAnswer(
            "attention halved as well",
            "There is no activation behind attention's value matrix, so at most it adds all of d.",
            lambda num_layers, d, kept: (
                _bounds(num_layers, d, kept)[0],
                float(d * (1 + 2 * kept * num_layers)),
            ),
        ),
        WrongAnswer(
            "bounds exchanged",
            "The smaller number comes first: attention adds nothing there.",
            lambda num_layers, d, kept: _bounds(num_layers, d, kept)[::-1],
        ),
    ),
    variants=(_bounds_by_recursion,),
)


# --- path -----------------------------------------------------------------------------------------


def _path(sums: Tensor, eps: float) -> Tensor:
    return (sums.var(-1, correction=0) + eps).rsqrt().prod(0)


def _path_by_jacobian(sums: Tensor, eps: float) -> Tensor:
    """One factor after the other: how much LayerNorm changes the spread of each row."""
    coefficient = torch.ones(sums.shape[1], dtype=sums.dtype)
    for rows in sums:
        centred = rows - rows.mean(-1, keepdim=True)
        coefficient = coefficient / torch.sqrt(centred.square().sum(-1) / rows.shape[-1] + eps)
    return coefficient


def _path_case(name: str, *shape: int, eps: float = 1e-5, **draw: Any) -> Case:
    return Case(name, lambda: (_draw(*shape, **draw), eps), 1e-9)


_PATH = Exercise(
    "What is left of the input",
    oracle=_path,
    cases=(
        _path_case("six norms, four tokens", 6, 4, 5, scale=1.3),
        _path_case("one norm", 1, 3, 8),
        _path_case("one token", 4, 1, 6, scale=1.2),
        _path_case("as many norms as tokens and features", 3, 3, 3, offset=0.5),
        _path_case("sums with a mean", 4, 3, 6, offset=2.0),
        _path_case("small sums, where eps counts", 2, 3, 6, scale=1e-2, eps=1e-3),
        _path_case("two features", 3, 4, 2, scale=2.0),
    ),
    wrong=(
        WrongAnswer(
            "division by d - 1",
            "LayerNorm divides by the biased standard deviation. `Tensor.var` and `Tensor.std` "
            "divide by d - 1 unless they are told `correction=0`.",
            lambda sums, eps: (sums.var(-1) + eps).rsqrt().prod(0),
        ),
        WrongAnswer(
            "root forgotten",
            "A norm divides by sigma, not by its square.",
            lambda sums, eps: (sums.var(-1, correction=0) + eps).reciprocal().prod(0),
        ),
        WrongAnswer(
            "reciprocal forgotten",
            "A norm divides by sigma, so the coefficient is the product of the reciprocals.",
            lambda sums, eps: (sums.var(-1, correction=0) + eps).sqrt().prod(0),
        ),
        WrongAnswer(
            "mean square in place of the variance",
            "LayerNorm centres first. The root mean square, which holds the mean as well, is what "
            "RMSNorm divides by.",
            lambda sums, eps: (sums.square().mean(-1) + eps).rsqrt().prod(0),
        ),
        WrongAnswer(
            "sum in place of the product",
            "The first norm divides the input, the second divides the result, and so on: the "
            "factors multiply.",
            lambda sums, eps: (sums.var(-1, correction=0) + eps).rsqrt().sum(0),
        ),
        WrongAnswer(
            "only the last norm",
            "Every norm divides the old part of the stream, not only the last one.",
            lambda sums, eps: (sums[-1].var(-1, correction=0) + eps).rsqrt(),
        ),
        WrongAnswer(
            "one number for all tokens",
            "Each token has its own sigma at each norm, so there is one coefficient per token.",
            lambda sums, eps: (sums.var(-1, correction=0) + eps).rsqrt().prod(0).mean(),
        ),
        WrongAnswer(
            "eps outside the root",
            "LayerNorm adds eps to the variance, under the root.",
            lambda sums, eps: (1 / (sums.std(-1, correction=0) + eps)).prod(0),
        ),
        WrongAnswer(
            "coefficient after every norm",
            "This is the coefficient after each norm; asked for is the one after the last.",
            lambda sums, eps: (sums.var(-1, correction=0) + eps).rsqrt().cumprod(0),
        ),
    ),
    variants=(_path_by_jacobian,),
)


# --- deepnorm -------------------------------------------------------------------------------------


def _deepnorm(num_encoder_layers: int, num_decoder_layers: int | None) -> tuple[float, ...]:
    n, m = num_encoder_layers, num_decoder_layers
    if m is None:
        return (2 * n) ** 0.25, (8 * n) ** -0.25
    size = (n**4 * m) ** 0.0625
    return 0.81 * size, 0.87 / size, (3 * m) ** 0.25, (12 * m) ** -0.25


def _deepnorm_by_logarithms(
    num_encoder_layers: int, num_decoder_layers: int | None
) -> tuple[float, ...]:
    n, m = num_encoder_layers, num_decoder_layers
    alpha = math.exp(math.log(2 * n if m is None else 3 * m) / 4)
    single = (alpha, 1 / (math.sqrt(2) * alpha))  # as alpha * beta is 1 / sqrt(2)
    if m is None:
        return single
    size = math.exp(math.log(n) / 4 + math.log(m) / 16)
    return (0.81 * size, 0.87 / size, *single)


def _decoder(alpha: Callable[[int], float], beta: Callable[[int], float]) -> Answer:
    """The right answer with another decoder."""

    def answer(num_encoder_layers: int, num_decoder_layers: int | None) -> tuple[float, ...]:
        m = num_decoder_layers
        right = _deepnorm(num_encoder_layers, m)
        return right if m is None else (*right[:2], alpha(m), beta(m))

    return answer


def _encoder(change: Callable[[int, int, float, float], tuple[float, float]]) -> Answer:
    """The right answer with another encoder of an encoder-decoder model."""

    def answer(num_encoder_layers: int, num_decoder_layers: int | None) -> tuple[float, ...]:
        n, m = num_encoder_layers, num_decoder_layers
        right = _deepnorm(n, m)
        return right if m is None else (*change(n, m, *right[:2]), *right[2:])

    return answer


def _deepnorm_case(name: str, *arguments: int | None) -> Case:
    return Case(name, lambda: arguments, 1e-9)


_DEEPNORM = Exercise(
    "DeepNorm's constants",
    oracle=_deepnorm,
    cases=(
        _deepnorm_case("a single stack of 6 layers", 6, None),
        _deepnorm_case("a single stack of one layer", 1, None),
        _deepnorm_case("a single stack of 500 layers", 500, None),
        _deepnorm_case("6 layers and 6 layers", 6, 6),
        _deepnorm_case("18 layers and 2 layers", 18, 2),
        _deepnorm_case("one layer and 100 layers", 1, 100),
    ),
    wrong=(
        WrongAnswer(
            "beta grows with depth",
            "alpha grows with the depth and beta falls: its exponent is -1/4.",
            lambda n, m: tuple(1 / v if i % 2 else v for i, v in enumerate(_deepnorm(n, m))),
        ),
        WrongAnswer(
            "square roots",
            "The exponents are fourths. It is the ratio beta squared over alpha squared that goes "
            "with a power of 1.",
            lambda n, m: tuple(v**2 for v in _deepnorm(n, m)),
        ),
        WrongAnswer(
            "layers in place of sub-layers",
            "What counts is the number of sub-layers: two per encoder layer, and three per "
            "decoder layer with cross-attention.",
            lambda n, m: (
                (n**0.25, (4 * n) ** -0.25)
                if m is None
                else (*_deepnorm(n, m)[:2], m**0.25, (4 * m) ** -0.25)
            ),
        ),
        WrongAnswer(
            "beta without its 4",
            "beta is (4 S) ** (-1/4), so that alpha times beta is 1 / sqrt(2), and not 1.",
            lambda n, m: (
                ((2 * n) ** 0.25, (2 * n) ** -0.25)
                if m is None
                else (*_deepnorm(n, m)[:3], (3 * m) ** -0.25)
            ),
        ),
        WrongAnswer(
            "a decoder of two sub-layers",
            "A decoder with cross-attention has three sub-layers per layer: 3 M and 12 M. With "
            "2 M and 8 M it would be a decoder-only model.",
            _decoder(lambda m: (2 * m) ** 0.25, lambda m: (8 * m) ** -0.25),
        ),
        WrongAnswer(
            "1.15 in place of 0.87",
            "This is the constant of the library torchscale: it multiplies by 1.15 where the paper "
            "multiplies by 0.87.",
            _encoder(lambda n, m, alpha, beta: (alpha, 1.15 * beta / 0.87)),
        ),
        WrongAnswer(
            "N and M exchanged in the encoder",
            "It is N to the fourth times M: the encoder's own depth counts more than the "
            "decoder's.",
            _encoder(lambda n, m, alpha, beta: _deepnorm(m, n)[:2]),  # type: ignore[arg-type, return-value]
        ),
        WrongAnswer(
            "the encoder as if it were alone",
            "The encoder of an encoder-decoder model is felt through the cross-attention of the "
            "decoder only. Its constants depend on both depths.",
            _encoder(lambda n, m, alpha, beta: _deepnorm(n, None)),  # type: ignore[arg-type, return-value]
        ),
        WrongAnswer(
            "0.81 and 0.87 exchanged",
            "0.81 belongs to alpha of the encoder, 0.87 to its beta.",
            _encoder(lambda n, m, alpha, beta: (alpha / 0.81 * 0.87, beta / 0.87 * 0.81)),
        ),
    ),
    variants=(_deepnorm_by_logarithms,),
)


# --- noam -----------------------------------------------------------------------------------------


def _noam(step: int, d_model: int, warmup_steps: int) -> float:
    return float(d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5))


def _noam_by_cases(step: int, d_model: int, warmup_steps: int) -> float:
    peak = 1 / math.sqrt(d_model * warmup_steps)
    ratio = step / warmup_steps
    return peak * ratio if step < warmup_steps else peak / math.sqrt(ratio)


def _noam_case(name: str, *arguments: int) -> Case:
    # Rates are small, and the comparison is absolute below 1: hence so tight.
    return Case(name, lambda: arguments, 1e-12)


_NOAM = Exercise(
    "The original schedule",
    oracle=_noam,
    cases=(
        _noam_case("the first step", 1, 512, 4000),
        _noam_case("in the middle of the warm-up", 2000, 512, 4000),
        _noam_case("the peak", 4000, 512, 4000),
        _noam_case("long after it", 100_000, 512, 4000),
        _noam_case("another width and warm-up", 700, 100, 300),
        _noam_case("no warm-up to speak of", 1, 64, 1),
        _noam_case("a width of 1", 10, 1, 7),
    ),
    wrong=(
        WrongAnswer(
            "maximum in place of the minimum",
            "The schedule is the smaller of the two terms. The larger one starts at 1 and grows "
            "without end.",
            lambda s, d, w: d**-0.5 * max(s**-0.5, s * w**-1.5),
        ),
        WrongAnswer(
            "width in the wrong direction",
            "A wider model gets a smaller rate: the exponent of d_model is -1/2.",
            lambda s, d, w: d**0.5 * min(s**-0.5, s * w**-1.5),
        ),
        WrongAnswer(
            "width forgotten",
            "The schedule has a factor d_model ** -0.5, and no base rate besides.",
            lambda s, d, w: float(min(s**-0.5, s * w**-1.5)),
        ),
        WrongAnswer(
            "steps counted from 0",
            "`step` is counted from 1 already. One less makes the first rate zero.",
            lambda s, d, w: d**-0.5 * (min((s - 1) ** -0.5, (s - 1) * w**-1.5) if s > 1 else 0.0),
        ),
        WrongAnswer(
            "warm-up to the power -1/2",
            "Both terms must agree at step w, which makes it w ** -1.5: a line that reaches "
            "w ** -0.5 after w steps.",
            lambda s, d, w: d**-0.5 * min(s**-0.5, s * w**-0.5),
        ),
        WrongAnswer(
            "no warm-up",
            "This is the falling part only. Up to step w the rate rises in proportion to the step.",
            lambda s, d, w: d**-0.5 * s**-0.5,
        ),
        WrongAnswer(
            "no decay",
            "After the warm-up the rate falls with the root of the step; it does not stay.",
            lambda s, d, w: (d * w) ** -0.5 * min(1.0, s / w),
        ),
        WrongAnswer(
            "decay with 1 / step",
            "After the warm-up the rate falls with the root of the step, not with the step.",
            lambda s, d, w: (d * w) ** -0.5 * min(s / w, w / s),
        ),
    ),
    variants=(_noam_by_cases,),
)


# --- exponent -------------------------------------------------------------------------------------


def _fit(a: Tensor, b: Tensor) -> float:
    a = a - a.mean()
    return float(a @ b / (a @ a))


def _exponent(depths: Tensor, values: Tensor) -> float:
    return _fit(depths.log(), values.log())


def _exponent_by_lstsq(depths: Tensor, values: Tensor) -> float:
    design = torch.stack([torch.ones_like(depths), depths.log2()], 1)
    return float(torch.linalg.lstsq(design, values.log2()[:, None]).solution[1])


def _exponent_case(name: str, power: float, noise: float, *depths: float) -> Case:
    def inputs() -> tuple[Any, ...]:
        at = torch.tensor(depths, dtype=torch.float64)
        return at, 3.7 * at**power * (noise * _draw(len(depths))).exp()

    return Case(name, inputs, 1e-9)


_EXPONENT = Exercise(
    "Fit the exponent",
    oracle=_exponent,
    cases=(
        _exponent_case("an exact root, falling", -0.5, 0.0, 1, 2, 4, 8, 16),
        _exponent_case("an exact square", 2.0, 0.0, 3, 5, 7),
        _exponent_case("a falling root with noise", -0.5, 0.2, 1, 2, 4, 8, 16, 32, 64),
        _exponent_case("no dependence, with noise", 0.0, 0.2, 2, 6, 12, 24),
        _exponent_case("depths out of order", -0.5, 0.3, 16, 2, 64, 8),
        _exponent_case("two points", 1.5, 0.1, 6, 12),
    ),
    wrong=(
        WrongAnswer(
            "no logarithms",
            "A power law is a straight line in the logarithms of both, not in the numbers.",
            _fit,
        ),
        WrongAnswer(
            "logarithm of the values only",
            "That fits an exponential. A power law needs the logarithm of the depth as well.",
            lambda depths, values: _fit(depths, values.log()),
        ),
        WrongAnswer(
            "logarithm of the depths only",
            "The values need a logarithm too, since c L^p is a product.",
            lambda depths, values: _fit(depths.log(), values),
        ),
        WrongAnswer(
            "no intercept",
            "The constant c is log c in the line. Forced through the origin, the line has "
            "another slope.",
            lambda depths, values: (
                (depths.log() @ values.log()) / (depths.log() @ depths.log())
            ).item(),
        ),
        WrongAnswer(
            "first and last point only",
            "Two points ignore what was measured in between. Least squares uses all of them.",
            lambda depths, values: (
                (values[-1] / values[0]).log() / (depths[-1] / depths[0]).log()
            ).item(),
        ),
        WrongAnswer(
            "coordinates exchanged",
            "This is the slope of log L over log value. The depth is given, and the value is "
            "what is fitted.",
            lambda depths, values: _fit(values.log(), depths.log()),
        ),
        WrongAnswer(
            "sign turned round",
            "Values that fall with depth have a negative exponent.",
            lambda depths, values: -_exponent(depths, values),
        ),
        WrongAnswer(
            "divided by the number of points",
            "Least squares divides the covariance by the variance of log L, so that the number "
            "of points drops out.",
            lambda depths, values: _exponent(depths, values) / len(depths),
        ),
    ),
    variants=(_exponent_by_lstsq,),
)


EXERCISES = {
    "block": _BLOCK,
    "bounds": _BOUNDS,
    "path": _PATH,
    "deepnorm": _DEEPNORM,
    "noam": _NOAM,
    "exponent": _EXPONENT,
}
