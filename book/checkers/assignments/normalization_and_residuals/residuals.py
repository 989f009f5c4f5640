"""Questions of the assignment: deepnorm_stds, warmup_cosine, clip_gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from book.checkers.assignments.common import draw
from book.checkers.core import Case, Exercise, WrongAnswer, in_parts

# --- deepnorm_stds --------------------------------------------------------------------------------


def _deepnorm_stds(num_layers: int, d_model: int, d_ff: int) -> tuple[float, ...]:
    beta = (8 * num_layers) ** -0.25
    square = math.sqrt(2 / (d_model + d_model))
    wide = math.sqrt(2 / (d_model + d_ff))
    return (2 * num_layers) ** 0.25, square, beta * square, beta * wide


@in_parts
def _deepnorm(
    alpha: Callable[[int], float] = lambda n: (2.0 * n) ** (1 / 4),
    beta: Callable[[int], float] = lambda n: (1 / (8.0 * n)) ** (1 / 4),
    fan: Callable[[int, int], float] = lambda a, b: (2 / (a + b)) ** 0.5,
    all_scaled: bool = False,
    of_values: Callable[[float, float], float] = lambda b, first: b * first,
) -> Callable[[int, int, int], tuple[float, ...]]:
    def answer(num_layers: int, d_model: int, d_ff: int) -> tuple[float, ...]:
        b = beta(num_layers)
        first = fan(d_model, d_model)
        return (
            alpha(num_layers),
            first * (b if all_scaled else 1),
            of_values(b, first),
            b * fan(d_model, d_ff),
        )

    return answer


DEEPNORM_STDS = Exercise(
    title="DeepNorm's constants as standard deviations",
    oracle=_deepnorm_stds,
    cases=[
        Case("values: 24 layers", lambda: (24, 1024, 4096)),
        Case("values: 100 layers", lambda: (100, 512, 2048)),
        Case("values: a narrow layer", lambda: (12, 768, 512)),
        Case("values: one layer", lambda: (1, 64, 256)),
        Case("values: 1000 layers", lambda: (1000, 1024, 4096)),
    ],
    variants=(_deepnorm(),),
    wrong=(
        WrongAnswer(
            "constants exchanged",
            "alpha = (2 N)**(1/4) scales the stream and grows; beta = (8 N)**(-1/4) shrinks.",
            _deepnorm(alpha=lambda n: (8 * n) ** 0.25, beta=lambda n: (2 * n) ** -0.25),
        ),
        WrongAnswer(
            "square root in place of the fourth root",
            "Both constants are fourth roots for a decoder-only model.",
            _deepnorm(alpha=lambda n: (2 * n) ** 0.5, beta=lambda n: (8 * n) ** -0.5),
        ),
        WrongAnswer(
            "encoder-decoder constants",
            "The factors 3 and 12 belong to a decoder beside an encoder.",
            _deepnorm(alpha=lambda n: (3 * n) ** 0.25, beta=lambda n: (12 * n) ** -0.25),
        ),
        WrongAnswer(
            "queries and keys scaled down too",
            "beta applies to values, output and feed-forward; queries and keys keep gain 1.",
            _deepnorm(all_scaled=True),
        ),
        WrongAnswer(
            "only the fan-in counted",
            "Xavier's standard deviation is gain * sqrt(2 / (fan_in + fan_out)).",
            _deepnorm(fan=lambda a, b: (1 / a) ** 0.5),
        ),
        WrongAnswer(
            "bound of the uniform distribution",
            "sqrt(6 / (fan_in + fan_out)) bounds a uniform draw. The deviation has a 2.",
            _deepnorm(fan=lambda a, b: (6 / (a + b)) ** 0.5),
        ),
        WrongAnswer(
            "variance, not its root",
            "2 / (fan_in + fan_out) is the variance that Xavier wants. A standard deviation is "
            "asked for.",
            _deepnorm(fan=lambda a, b: 2 / (a + b)),
        ),
        WrongAnswer(
            "values without the gain",
            "Only queries and keys keep the gain 1. How large the values are goes into the stream.",
            _deepnorm(of_values=lambda b, first: first),
        ),
        WrongAnswer(
            "gain under the root",
            "The gain stands before the root in Xavier's rule. Under it only its root would be "
            "left.",
            _deepnorm(beta=lambda n: (8 * n) ** -0.125),
        ),
        WrongAnswer(
            "beta grows with the depth",
            "The exponent of beta is negative. The deeper the model, the smaller its branches "
            "begin.",
            _deepnorm(beta=lambda n: (8 * n) ** 0.25),
        ),
    ),
)

# --- warmup_cosine --------------------------------------------------------------------------------


def _warmup_cosine(step: int, warmup: int, total: int, max_lr: float, min_lr: float) -> float:
    if step < warmup:
        return max_lr * step / warmup
    done = min((step - warmup) / (total - warmup), 1.0)
    return min_lr + (max_lr - min_lr) * (1 + math.cos(math.pi * done)) / 2


@in_parts
def _cosine(
    first: Callable[..., float] = lambda s, w, hi, lo: hi * s / w,
    done: Callable[[int, int, int], float] = lambda s, w, t: (s - w) / (t - w),
    curve: Callable[[float], float] = lambda d: math.cos(math.pi * d / 2) ** 2,
    clamp: bool = True,
    fall: Callable[[float, float, float], float] = lambda c, hi, lo: lo + (hi - lo) * c,
) -> Callable[[int, int, int, float, float], float]:
    def answer(step: int, warmup: int, total: int, max_lr: float, min_lr: float) -> float:
        if step < warmup:
            return first(step, warmup, max_lr, min_lr)
        share = done(step, warmup, total)
        share = min(share, 1.0) if clamp else share
        return fall(curve(share), max_lr, min_lr)

    return answer


WARMUP_COSINE = Exercise(
    title="Linear warmup, then half a cosine",
    oracle=_warmup_cosine,
    cases=[
        Case("values: in the warmup", lambda: (30, 100, 1000, 3e-4, 3e-5)),
        Case("values: a quarter of the way down", lambda: (325, 100, 1000, 3e-4, 3e-5)),
        Case("values: half of the way down", lambda: (550, 100, 1000, 1.0, 0.1)),
        Case("values: another length", lambda: (550, 100, 1500, 1.0, 0.1)),
        Case("values: most of the way down", lambda: (900, 100, 1000, 1.0, 0.1)),
        Case("corners: step 0", lambda: (0, 100, 1000, 1.0, 0.1)),
        Case("corners: the top", lambda: (100, 100, 1000, 1.0, 0.1)),
        Case("corners: the end", lambda: (1000, 100, 1000, 1.0, 0.1)),
        Case("corners: after the end", lambda: (1400, 100, 1000, 1.0, 0.1)),
        Case("corners: no warmup", lambda: (250, 0, 1000, 1.0, 0.0)),
    ],
    variants=(_cosine(),),
    wrong=(
        WrongAnswer(
            "rising again after the end",
            "Beyond the last step the rate stays at min_lr; a cosine would rise again.",
            _cosine(clamp=False),
        ),
        WrongAnswer(
            "warmup counted in the cosine",
            "The cosine starts where the warmup ends: its share is of total - warmup steps.",
            _cosine(done=lambda s, w, t: s / t),
        ),
        WrongAnswer(
            "falling to zero",
            "The cosine ends at min_lr, not at 0.",
            _cosine(fall=lambda c, hi, lo: hi * c),
        ),
        WrongAnswer(
            "straight line down",
            "A cosine is flat at both ends: (1 + cos(pi share)) / 2.",
            _cosine(curve=lambda d: 1 - d),
        ),
        WrongAnswer(
            "warmup from min_lr",
            "The warmup starts at 0 and is linear in the step.",
            _cosine(first=lambda s, w, hi, lo: lo + (hi - lo) * s / w),
        ),
        WrongAnswer(
            "full period of the cosine",
            "Half a period leads from the top to the bottom; a full one returns to the top.",
            _cosine(curve=lambda d: (1 + math.cos(2 * math.pi * d)) / 2),
        ),
        WrongAnswer(
            "warmup one step ahead",
            "The rate is 0 at step 0 and at its top at step `warmup`. This counts the steps "
            "from 1.",
            _cosine(first=lambda s, w, hi, lo: hi * (s + 1) / w),
        ),
        WrongAnswer(
            "steps after the warmup over all steps",
            "The cosine has only the steps after the warmup to come down. Over `total` it does "
            "not arrive.",
            _cosine(done=lambda s, w, t: (s - w) / t),
        ),
        WrongAnswer(
            "min_lr on top of the cosine",
            "The cosine falls from max_lr to min_lr. Here it begins at their sum.",
            _cosine(fall=lambda c, hi, lo: lo + hi * c),
        ),
        WrongAnswer(
            "cut off at min_lr",
            "A cosine down to 0 that stops at min_lr arrives too early, and with a kink. It "
            "should be flat where it arrives.",
            _cosine(fall=lambda c, hi, lo: max(lo, hi * c)),
        ),
    ),
)

# --- clip_gradients -------------------------------------------------------------------------------


def _clip_gradients(grads: Sequence[Tensor], max_norm: float) -> tuple[list[Tensor], float]:
    norm = torch.cat([g.flatten() for g in grads]).norm()
    return [g * min(1.0, max_norm / max(norm.item(), 1e-300)) for g in grads], norm.item()


def _total(grads: Sequence[Tensor]) -> float:
    return math.sqrt(sum(g.square().sum().item() for g in grads))


@in_parts
def _clip(
    total: Callable[[Sequence[Tensor]], float] = _total,
    always: bool = False,
    apart: bool = False,
    entries: bool = False,
    times: Callable[[Tensor, float], Tensor] = lambda g, factor: g * factor,
    told: Callable[[float, float], Any] = lambda norm, limit: norm,
) -> Callable[..., tuple[list[Tensor], float]]:
    def answer(grads: Sequence[Tensor], max_norm: float) -> tuple[list[Tensor], float]:
        norm = total(grads)
        factor = max_norm / norm if norm else 1.0
        factor = factor if always else min(1.0, factor)
        if apart:
            new = [g * min(1.0, max_norm / max(g.norm().item(), 1e-300)) for g in grads]
        elif entries:
            new = [g.clamp(-max_norm, max_norm) for g in grads]
        else:
            new = [times(g, factor) for g in grads]
        return new, told(norm, max_norm)

    return answer


def _clip_zeros_too(grads: Sequence[Tensor], max_norm: float) -> tuple[list[Tensor], float]:
    norm = _total(grads)
    factor = min(1.0, max_norm / norm)
    return [g * factor for g in grads], norm


def _grads(*shapes: tuple[int, ...], scale: float = 1.0) -> list[Tensor]:
    return [draw(*s, seed=i, scale=scale) for i, s in enumerate(shapes)]


CLIP_GRADIENTS = Exercise(
    title="Clip the norm of all gradients together",
    oracle=_clip_gradients,
    cases=[
        Case("values: two gradients, too long", lambda: (_grads((3, 4), (4,)), 1.0), 1e-10),
        Case("values: three gradients, too long", lambda: (_grads((2, 2), (5,), (1,)), 0.5), 1e-10),
        Case("values: short enough", lambda: (_grads((3, 4), (4,), scale=0.01), 1.0), 1e-10),
        Case("values: a single one", lambda: (_grads((6,)), 1.0), 1e-10),
        Case("values: zeros", lambda: ([torch.zeros(3, dtype=torch.float64)], 1.0), 1e-10),
        Case(
            "values: one long, one short",
            lambda: ([draw(4, scale=10.0), draw(4, seed=1, scale=0.01)], 1.0),
            1e-10,
        ),
    ],
    variants=(_clip(),),
    wrong=(
        WrongAnswer(
            "short gradients stretched",
            "Clipping only shortens: the factor is at most 1.",
            _clip(always=True),
        ),
        WrongAnswer(
            "each gradient clipped by itself",
            "The norm is that of all gradients together, or their direction changes.",
            _clip(apart=True),
        ),
        WrongAnswer(
            "entries clipped",
            "Limiting entries changes the direction. Multiply everything by one factor.",
            _clip(entries=True),
        ),
        WrongAnswer(
            "norms added",
            "The norm of all entries together is the root of the sum of squares.",
            _clip(total=lambda gs: sum(g.norm().item() for g in gs)),
        ),
        WrongAnswer(
            "norm after the clipping returned",
            "The norm before clipping is asked for: it is what one watches in training.",
            _clip(told=min),
        ),
        WrongAnswer(
            "squares added, root forgotten",
            "The sum of the squares is the norm squared. Long gradients are shortened far too "
            "much by it.",
            _clip(total=lambda gs: sum(g.square().sum().item() for g in gs)),
        ),
        WrongAnswer(
            "mean of the squares",
            "The root of the mean square does not grow with the number of entries. A norm adds "
            "them up.",
            _clip(
                total=lambda gs: torch.cat([g.flatten() for g in gs]).square().mean().sqrt().item()
            ),
        ),
        WrongAnswer(
            "largest entry as the norm",
            "The largest entry is another norm. All entries count here, with their squares.",
            _clip(total=lambda gs: max(g.abs().max().item() for g in gs)),
        ),
        WrongAnswer(
            "the gradients changed in place",
            "New tensors were asked for; the gradients that were passed in must stay as they were.",
            _clip(times=lambda g, factor: g.mul_(factor)),
        ),
        WrongAnswer(
            "division by a norm of zero",
            "Gradients that are all zero have the norm 0, and max_norm / norm divides by it.",
            _clip_zeros_too,
        ),
        WrongAnswer(
            "the norm as a tensor",
            "The norm is a float for whoever watches the training, not a tensor that holds one.",
            _clip(told=lambda norm, limit: torch.tensor(norm)),
        ),
    ),
)


EXERCISES = {
    "deepnorm_stds": DEEPNORM_STDS,
    "warmup_cosine": WARMUP_COSINE,
    "clip_gradients": CLIP_GRADIENTS,
}
