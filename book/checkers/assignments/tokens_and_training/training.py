"""Questions of the assignment: scaled_step, device_bytes, noise_scale."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from book.checkers.assignments.common import draw
from book.checkers.core import SIXTEEN_BITS, Answer, Case, Exercise, WrongAnswer, in_parts

# --- scaled_step ----------------------------------------------------------------------------------

State = tuple[Tensor, Tensor, Tensor, int, float, int]
_BETA1, _BETA2, _EPS, _DECAY, _PATIENCE = 0.9, 0.95, 1e-8, 0.1, 4


def _scaled_step(
    theta: Tensor, grad: Tensor, m: Tensor, v: Tensor, t: int, scale: float, good: int,
    rate: float, max_norm: float,
) -> State:  # fmt: skip
    """Entry by entry, in Python's numbers."""
    numbers = [g / scale for g in grad.flatten().tolist()]
    if not all(math.isfinite(g) for g in numbers):
        return theta.clone(), m.clone(), v.clone(), t, scale / 2, 0
    length = math.sqrt(math.fsum(g * g for g in numbers))
    shrink = max_norm / length if length > max_norm else 1.0
    rows = zip(*(x.flatten().tolist() for x in (theta, m, v)), numbers, strict=True)
    new: list[tuple[float, float, float]] = []
    for w, first, second, g in rows:
        g *= shrink
        first = _BETA1 * first + (1 - _BETA1) * g
        second = _BETA2 * second + (1 - _BETA2) * g * g
        step = first / (1 - _BETA1 ** (t + 1))
        root = math.sqrt(second / (1 - _BETA2 ** (t + 1)))
        new.append((w - rate * _DECAY * w - rate * step / (root + _EPS), first, second))
    made = torch.tensor(new, dtype=theta.dtype).reshape(-1, 3)
    parts = [made[:, i].reshape(theta.shape).clone() for i in range(3)]
    doubled = good + 1 == _PATIENCE
    after = (scale * 2, 0) if doubled else (scale, good + 1)
    return parts[0], parts[1], parts[2], t + 1, *after


@in_parts
def _step_with(
    broken: Callable[[Tensor], bool] = lambda g: not bool(g.isfinite().all()),
    unscaled: Callable[[Tensor, float, Callable[[Tensor], Tensor]], Tensor] = (
        lambda g, scale, clip: clip(g / scale)
    ),
    clip: Callable[[Tensor, float], Tensor] = (
        lambda g, most: g * min(1.0, most / g.norm().item())
    ),
    counted: Callable[[int], int] = lambda t: t + 1,
    skipped_t: Callable[[int], int] = lambda t: t,
    skipped_theta: Callable[[Tensor, float], Tensor] = lambda theta, rate: theta,
    skipped_good: Callable[[int], int] = lambda good: 0,
    decay: Callable[[Tensor, float], Tensor] = lambda theta, rate: theta * (1 - rate * _DECAY),
    root: Callable[[Tensor], Tensor] = lambda v: v.sqrt() + _EPS,
    doubles: Callable[[int], bool] = lambda good: good == _PATIENCE,
    doubled_good: Callable[[int], int] = lambda good: 0,
) -> Answer:
    def answer(
        theta: Tensor, grad: Tensor, m: Tensor, v: Tensor, t: int, scale: float, good: int,
        rate: float, max_norm: float,
    ) -> State:  # fmt: skip
        if broken(grad):
            theta = skipped_theta(theta, rate)
            return theta, m, v, skipped_t(t), scale / 2, skipped_good(good)
        g = unscaled(grad, scale, lambda x: clip(x, max_norm))
        m = _BETA1 * m + (1 - _BETA1) * g
        v = _BETA2 * v + (1 - _BETA2) * g.square()
        n = counted(t)
        step = (m / (1 - _BETA1**n)) / root(v / (1 - _BETA2**n))
        theta = decay(theta, rate) - rate * step
        good += 1
        if doubles(good):
            scale, good = scale * 2, doubled_good(good)
        return theta, m, v, t + 1, scale, good

    return answer


def _step_case(
    name: str, t: int, scale: float, good: int, rate: float, max_norm: float,
    *, shape: tuple[int, ...] = (3, 2), size: float = 1.0, put: float | None = None,
) -> Case:  # fmt: skip
    def inputs() -> tuple[Any, ...]:
        theta = draw(*shape, seed=t + 1)
        grad = draw(*shape, seed=t + 2, scale=size * scale)
        if put is not None:
            grad.view(-1)[-1] = put
        m = draw(*shape, seed=t + 3, scale=0.3 * size * (t > 0))
        v = draw(*shape, seed=t + 4, scale=0.5 * size * (t > 0)).square()
        return theta, grad, m, v, t, scale, good, rate, max_norm

    return Case(name, inputs)


_STEP = Exercise(
    title="A step of mixed precision",
    oracle=_scaled_step,
    cases=(
        _step_case("step: in the middle of a run", 20, 1024.0, 1, 0.1, 10.0),
        _step_case("step: the first one", 0, 4096.0, 0, 0.01, 50.0),
        _step_case("step: a gradient that is too long", 7, 256.0, 2, 0.1, 0.5),
        _step_case("step: a row, too long", 3, 2.0, 0, 0.3, 1.0, shape=(5,)),
        _step_case("step: a small scale", 9, 0.5, 1, 0.05, 2.0, size=3.0),
        _step_case("step: a short gradient, a scale near 1", 12, 2.0, 1, 0.1, 10.0, size=0.1),
        _step_case("skip: infinite", 5, 1024.0, 2, 0.1, 1.0, put=math.inf),
        _step_case("skip: minus infinity", 6, 64.0, 0, 0.1, 1.0, put=-math.inf),
        _step_case("skip: not a number", 11, 65536.0, 3, 0.2, 1.0, put=math.nan),
        _step_case("skip: before the first step", 0, 8.0, 0, 0.1, 1.0, put=math.inf),
        _step_case("scale: the fourth good step", 30, 512.0, 3, 0.1, 5.0),
        _step_case("scale: the third good step", 31, 512.0, 2, 0.1, 5.0),
        _step_case("scale: the fourth, too long", 32, 128.0, 3, 0.1, 0.25),
    ),
    wrong=(
        WrongAnswer(
            "clipped before the scale is taken out",
            "The bound is for the true gradient. The scaled one is longer by the scale.",
            _step_with(unscaled=lambda g, scale, clip: clip(g) / scale),
        ),
        WrongAnswer(
            "the scale is not taken out",
            "The gradient is that of scale times the loss: divide it before it is used.",
            _step_with(unscaled=lambda g, scale, clip: clip(g)),
        ),
        WrongAnswer(
            "not clipped",
            "A gradient whose norm is above the bound is shortened to it.",
            _step_with(clip=lambda g, most: g),
        ),
        WrongAnswer(
            "every entry clipped for itself",
            "The norm of the whole gradient is bounded, and its direction stays.",
            _step_with(clip=lambda g, most: g.clamp(-most, most)),
        ),
        WrongAnswer(
            "short gradients made longer",
            "A gradient whose norm is below the bound stays as it is.",
            _step_with(clip=lambda g, most: g * most / g.norm()),
        ),
        WrongAnswer(
            "only nan is looked for",
            "An infinite entry spoils the step as well as one that is no number.",
            _step_with(broken=lambda g: bool(g.isnan().any())),
        ),
        WrongAnswer(
            "a skipped step counted",
            "The averages have not moved, so t, which corrects them, may not move either.",
            _step_with(skipped_t=lambda t: t + 1),
        ),
        WrongAnswer(
            "a skipped step shrinks the weights",
            "A skipped step changes nothing but the scale and the count: no decay either.",
            _step_with(skipped_theta=lambda theta, rate: theta * (1 - rate * _DECAY)),
        ),
        WrongAnswer(
            "the count of good steps goes on after a skip",
            "Four good steps in a row are asked for: a skipped one starts the count anew.",
            _step_with(skipped_good=lambda good: good),
        ),
        WrongAnswer(
            "corrected with the step before",
            "At the first step t is 1 when the averages are corrected, not 0.",
            _step_with(counted=lambda t: max(t, 1)),
        ),
        WrongAnswer(
            "eps inside the root",
            "Epsilon is added to the root, not to what is under it.",
            _step_with(root=lambda v: (v + _EPS).sqrt()),
        ),
        WrongAnswer(
            "weight decay forgotten",
            "The weights shrink by rate times decay, beside Adam's step.",
            _step_with(decay=lambda theta, rate: theta),
        ),
        WrongAnswer(
            "decay without the rate",
            "Decay is multiplied by the rate: the weights shrink by rate times decay.",
            _step_with(decay=lambda theta, rate: theta * (1 - _DECAY)),
        ),
        WrongAnswer(
            "doubled one step too late",
            "The fourth good step in a row doubles the scale, not the one after it.",
            _step_with(doubles=lambda good: good > _PATIENCE),
        ),
        WrongAnswer(
            "the count not set back after doubling",
            "After doubling, four more good steps are needed: the count starts at 0.",
            _step_with(doubled_good=lambda good: good),
        ),
    ),
    variants=(_step_with(),),
    spared={
        **dict.fromkeys(SIXTEEN_BITS, "squares of small numbers have no digits left there"),
        "tiny": "epsilon is far above such numbers, and what is left is rounding",
    },
)  # fmt: skip


# --- device_bytes ---------------------------------------------------------------------------------


def _device_bytes(sizes: Sequence[int], devices: int, stage: int) -> int:
    total = 0
    for numel in sizes:
        share = -(-numel // devices)
        total += 2 * (share if stage >= 3 else numel)
        total += 2 * (share if stage >= 2 else numel)
        total += 12 * (share if stage >= 1 else numel)
    if stage >= 2 and devices > 1:
        total += 2 * max(sizes)
    if stage >= 3 and devices > 1:
        total += 2 * max(sizes)
    return total


@in_parts
def _bytes_with(
    share: Callable[[int, int], int] = lambda n, devices: math.ceil(n / devices),
    each: bool = True,
    state: int = 12,
    numbers: int = 2,
    shift: int = 0,
    whole: Callable[[Sequence[int]], int] = max,
    whole_gradient: bool = True,
    whole_weight: bool = True,
    alone: bool = False,
) -> Answer:
    def answer(sizes: Sequence[int], devices: int, stage: int) -> int:
        cut = sum(share(n, devices) for n in sizes) if each else share(sum(sizes), devices)
        everything, level = sum(sizes), stage + shift
        found = numbers * (cut if level >= 3 else everything)
        found += numbers * (cut if level >= 2 else everything)
        found += state * (cut if level >= 1 else everything)
        if devices > 1 or alone:
            count = (stage >= 2 and whole_gradient) + (stage >= 3 and whole_weight)
            found += numbers * count * whole(sizes)
        return found

    return answer


_LAYERS = (32000 * 64, 64 * 64, 64 * 172, 172 * 64, 64, 64)
_ODD = (1001, 13, 7, 999, 1)
_BYTES = Exercise(
    title="The bytes of one device",
    oracle=_device_bytes,
    cases=(
        Case.of("values: nothing is cut", _LAYERS, 4, 0),
        Case.of("values: the optimizer's state is cut", _LAYERS, 4, 1),
        Case.of("values: the gradients too", _LAYERS, 4, 2),
        Case.of("values: everything is cut", _LAYERS, 4, 3),
        Case.of("values: eight devices, gradients", (4096, 11008, 4096 * 3), 8, 2),
        Case.of("values: sixteen devices, everything", (4096, 11008, 4096 * 3), 16, 3),
        Case.of("corners: sizes that no number divides", _ODD, 4, 1),
        Case.of("corners: odd sizes, gradients cut", _ODD, 3, 2),
        Case.of("corners: odd sizes, everything cut", _ODD, 6, 3),
        Case.of("corners: more devices than numbers", (5, 3, 2), 8, 3),
        Case.of("corners: one device, everything", _ODD, 1, 3),
        Case.of("corners: one tensor", (101,), 2, 2),
    ),
    wrong=(
        WrongAnswer(
            "the sum cut in place of each tensor",
            "Each tensor is filled up to a multiple of the devices for itself.",
            _bytes_with(each=False),
        ),
        WrongAnswer(
            "shares rounded down",
            "What does not divide evenly is filled up: a share is rounded up.",
            _bytes_with(share=lambda n, devices: n // devices),
        ),
        WrongAnswer(
            "the copy of the weights forgotten",
            "The optimizer keeps the weights in 32 bits, besides two averages: 12 bytes.",
            _bytes_with(state=8),
        ),
        WrongAnswer(
            "averages in 16 bits",
            "Copy and averages are in 32 bits, four bytes each.",
            _bytes_with(state=6),
        ),
        WrongAnswer(
            "weights and gradients in 32 bits",
            "The pass computes in 16 bits: two bytes for a weight and two for its gradient.",
            _bytes_with(numbers=4),
        ),
        WrongAnswer(
            "a stage too far",
            "Stage 1 cuts the optimizer's state only, stage 2 the gradients, stage 3 the weights.",
            _bytes_with(shift=1),
        ),
        WrongAnswer(
            "a stage too few",
            "Stage 1 cuts the optimizer's state already, and stage 2 the gradients.",
            _bytes_with(shift=-1),
        ),
        WrongAnswer(
            "no weight is ever whole",
            "A tensor is put together before it computes: the largest one needs room.",
            _bytes_with(whole_weight=False),
        ),
        WrongAnswer(
            "no gradient is ever whole",
            "A gradient is computed whole before it is cut: the largest one needs room.",
            _bytes_with(whole_gradient=False),
        ),
        WrongAnswer(
            "all tensors whole at once",
            "Only one tensor at a time is put together; the largest one decides.",
            _bytes_with(whole=sum),
        ),
        WrongAnswer(
            "a second copy on a single device",
            "With one device each tensor is whole already, and nothing has to be put together.",
            _bytes_with(alone=True),
        ),
    ),
    variants=(_bytes_with(),),
)  # fmt: skip


# --- noise_scale ----------------------------------------------------------------------------------


def _noise_scale(
    small: Sequence[float], large: Sequence[float], b_small: int, b_large: int
) -> float | None:
    """In fractions: two equations, |g|^2 + S / B for two batches B."""
    n = len(small)
    s, g = (sum(map(Fraction, x), Fraction(0)) / n for x in (small, large))
    inverse = Fraction(1, b_small) - Fraction(1, b_large)
    trace = (s - g) / inverse
    length = s - trace / b_small
    if length <= 0 or trace <= 0:
        return None
    return float(trace / length)


@in_parts
def _noise_with(
    over: Callable[..., Any] = lambda f, small, large: f(
        math.fsum(small) / len(small), math.fsum(large) / len(large)
    ),
    square: Callable[[float], float] = lambda x: x,
    length: Callable[..., float] = lambda s, g, b, c: (c * g - b * s) / (c - b),
    trace: Callable[..., float] = lambda s, g, b, c: (s - g) * b * c / (c - b),
    result: Callable[[float, float], float] = lambda trace, length: trace / length,
    refuse: Callable[[float, float], bool] = lambda trace, length: trace <= 0 or length <= 0,
) -> Answer:
    def answer(
        small: Sequence[float], large: Sequence[float], b_small: int, b_large: int
    ) -> float | None:
        def one(s: float, g: float) -> float | None:
            s, g = square(s), square(g)
            t = trace(s, g, b_small, b_large)
            n = length(s, g, b_small, b_large)
            if refuse(t, n):
                return None
            return result(t, n) if n else math.inf

        found: float | None = over(one, small, large)
        return found

    return answer


def _mean_of_ratios(
    f: Callable[[float, float], float | None], small: Sequence[float], large: Sequence[float]
) -> float | None:
    each = [f(s, g) for s, g in zip(small, large, strict=True)]
    kept = [x for x in each if x is not None]
    return sum(kept) / len(kept) if kept else None


def _last_one(
    f: Callable[[float, float], float | None], small: Sequence[float], large: Sequence[float]
) -> float | None:
    return f(small[-1], large[-1])


def _noise_case(
    name: str, true: float, noise: float, b: int, c: int, spread: float = 0.1, n: int = 6
) -> Case:
    def inputs() -> tuple[Any, ...]:
        e = draw(2, n, seed=b + c, scale=spread).exp().tolist()
        small = [(true + noise / b) * x for x in e[0]]
        large = [(true + noise / c) * x for x in e[1]]
        return small, large, b, c

    return Case(name, inputs, 1e-9, relative=True)


_NOISE = Exercise(
    title="The noise scale of a run",
    oracle=_noise_scale,
    cases=(
        _noise_case("values: early in a run", 4.0, 8.0, 4, 32),
        _noise_case("values: late in a run", 0.05, 6.0, 8, 128),
        _noise_case("values: batches close to each other", 1.0, 50.0, 8, 24),
        _noise_case("values: one story against many", 0.4, 9.0, 1, 64, 0.3, 9),
        _noise_case("values: hardly any noise", 2.0, 3.0, 2, 16, 0.05),
        Case.of("values: one pair", [3.0], [1.5], 2, 8),
        Case.of("values: short gradients", [0.03, 0.05], [0.02, 0.03], 4, 16),
        Case.of("corners: no noise is seen", [1.0, 1.2], [1.1, 1.3], 4, 16),
        Case.of("corners: the same length in both", [1.5, 0.5], [0.5, 1.5], 4, 16),
        Case.of("corners: noise and nothing else", [8.0, 6.0], [1.0, 1.5], 4, 16),
        Case.of("corners: exactly as much as noise alone", [8.0], [2.0], 4, 16),
        Case.of("corners: one step without a signal", [8.0, 4.0], [1.0, 3.5], 4, 16),
    ),
    wrong=(
        WrongAnswer(
            "the mean of the steps' ratios",
            "A quotient of noisy numbers is biased: average numerator and denominator first.",
            _noise_with(over=_mean_of_ratios),
        ),
        WrongAnswer(
            "only the last step",
            "One step says little: all of them are averaged.",
            _noise_with(over=_last_one),
        ),
        WrongAnswer(
            "lengths squared once more",
            "The lists hold squared lengths already.",
            _noise_with(square=lambda x: x * x),
        ),
        WrongAnswer(
            "the root taken first",
            "The formula is for squared lengths, which the lists hold.",
            _noise_with(square=math.sqrt),
        ),
        WrongAnswer(
            "the large batch's length taken for the true one",
            "The large batch has noise too, a part in B of it, which has to be taken off.",
            _noise_with(length=lambda s, g, b, c: g),
        ),
        WrongAnswer(
            "the difference taken for the noise",
            "The difference is the noise times 1/b - 1/B, not the noise itself.",
            _noise_with(trace=lambda s, g, b, c: s - g),
        ),
        WrongAnswer(
            "the large batch taken for noiseless",
            "The difference of the lengths is the noise times 1/b - 1/B, not times 1/b.",
            _noise_with(trace=lambda s, g, b, c: (s - g) * b),
        ),
        WrongAnswer(
            "upside down",
            "The noise scale is noise over squared length: a batch, not its inverse.",
            _noise_with(result=lambda trace, length: length / trace),
        ),
        WrongAnswer(
            "a negative estimate returned",
            "Where an estimate is not positive the data do not tell: None.",
            _noise_with(refuse=lambda trace, length: False),
        ),
        WrongAnswer(
            "only the length is looked at",
            "The noise too may come out as 0 or less, and then there is no answer.",
            _noise_with(refuse=lambda trace, length: length <= 0),
        ),
    ),
    variants=(_noise_with(),),
)  # fmt: skip


EXERCISES = {
    "scaled_step": _STEP,
    "device_bytes": _BYTES,
    "noise_scale": _NOISE,
}
