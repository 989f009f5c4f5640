"""The exercise on BatchNorm, in training and in evaluation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.core import Answer, Case, Exercise, Rule, WrongAnswer, in_parts
from book.checkers.normalization.common import (
    EPS,
    EXACT,
    LARGE_MEAN,
    NORMS,
    Axes,
    Dims,
    Divisor,
    Statistic,
    bias_mistakes,
    divided,
    divisor_mistakes,
    draw_normal,
    every_dim,
    large_mean,
    mean_of,
    root,
    var_by_difference,
    var_of,
    with_gain,
    with_row,
)

# --- batch_norm -----------------------------------------------------------------------------------


def _batch_norm(
    x: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    weight: Tensor,
    bias: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> Tensor:
    return F.batch_norm(x, running_mean, running_var, weight, bias, training, momentum, eps)


def _batch_case(
    name: str,
    make: Callable[[], Tensor],
    running_scale: float = 1.0,
    tol: float = EXACT,
    momentum: float = 0.3,
    eps: float = EPS,
) -> Case:
    """An `x` of shape (N, C) or (N, C, L), and running statistics that are not those of `x`.

    The name says whether this is training or evaluation.
    """
    mode, _, _ = name.partition(":")

    def inputs() -> tuple[Any, ...]:
        x = make().requires_grad_()
        c, dtype = x.shape[1], x.dtype
        running_mean = draw_normal(c, offset=2.0, scale=running_scale, seed=1, dtype=dtype)
        running_var = running_scale**2 * (0.5 + draw_normal(c, seed=2, dtype=dtype).square())
        weight = draw_normal(c, offset=0.5, seed=3, dtype=dtype).requires_grad_()
        bias = draw_normal(c, offset=0.5, seed=4, dtype=dtype).requires_grad_()
        return x, running_mean, running_var, weight, bias, mode == "training", momentum, eps

    return Case(name, inputs, tol, grad=True)


BATCH_NORM_CASES = [
    _batch_case("training: six samples of four channels", lambda: draw_normal(6, 4, offset=0.5)),
    _batch_case("training: a square matrix", lambda: draw_normal(5, 5, offset=0.5)),
    _batch_case(
        "training: three channels at five positions", lambda: draw_normal(4, 3, 5, offset=0.5)
    ),
    _batch_case(
        "training: as many positions as channels",
        lambda: draw_normal(2, 4, 4),
        momentum=0.05,
        eps=0.2,
    ),
    _batch_case("training: one sample of six positions", lambda: draw_normal(1, 3, 6)),
    _batch_case("training: channels of size 1e-4", lambda: draw_normal(6, 4, scale=1e-4)),
    _batch_case("training: channels of size 1e4", lambda: draw_normal(6, 4, scale=1e4)),
    _batch_case("training: a constant channel", lambda: with_row(draw_normal(4, 6), 1, 3.0).T),
    _batch_case(
        "training: channels last in memory, not contiguous",
        lambda: draw_normal(4, 5, 3).transpose(1, 2),
    ),
    _batch_case(
        "training: float32 of mean 8192 and spread 1", lambda: large_mean().T, tol=LARGE_MEAN
    ),
    replace(
        _batch_case("training: one value per channel", lambda: draw_normal(1, 4)), raises=ValueError
    ),
    replace(
        _batch_case(
            "training: one value per channel, at one position", lambda: draw_normal(1, 4, 1)
        ),
        raises=ValueError,
    ),
    _batch_case("evaluation: six samples of four channels", lambda: draw_normal(6, 4, offset=0.5)),
    _batch_case("evaluation: as many positions as channels", lambda: draw_normal(2, 4, 4), eps=0.2),
    _batch_case("evaluation: one value per channel", lambda: draw_normal(1, 4)),
    _batch_case(
        "evaluation: running variances of size 1e-6",
        lambda: draw_normal(6, 4, scale=1e-3),
        running_scale=1e-3,
    ),
]


def _all_but_channels(x: Tensor) -> Dims:
    return (0, *range(2, x.dim()))


def _only_positions(x: Tensor) -> Dims:
    """The axes of InstanceNorm; where there are no positions, those of BatchNorm."""
    return tuple(range(2, x.dim())) or 0


def _by_channel(v: Tensor, x: Tensor) -> Tensor:
    """One number per channel, shaped to meet the channels of `x`."""
    return v.reshape(-1, *[1] * (x.dim() - 2))


def _bessel(var: Tensor, n: int) -> Tensor:
    return divided(var * n, n - 1)


@in_parts
def _batch(
    *,
    axes: Axes = _all_but_channels,
    square: Statistic = var_of,
    used_from: Callable[[Tensor], Tensor] = lambda x: x,
    stored_from: Callable[[Tensor], Tensor] = lambda x: x.detach(),
    used: Callable[[Tensor, int], Tensor] = lambda var, n: var,
    stored: Callable[[Tensor, int], Tensor] = _bessel,
    moved: Callable[[Tensor, Tensor, float], Tensor] = torch.lerp,
    divisor: Divisor = root,
    affine: Callable[..., Tensor] = with_gain,
    shaped: Callable[[Tensor, Tensor], Tensor] = _by_channel,
    uses_batch: Callable[[bool], bool] = lambda training: training,
    updates: Callable[[bool], bool] = lambda training: training,
    refuses: bool = True,
) -> Answer:
    """BatchNorm in parts.

    Args:
        axes: what the statistics that normalise run over.
        square: the variance, biased.
        used_from: `x` for the statistics that normalise, in the graph.
        stored_from: `x` for the statistics that move the running ones, out of the graph.
        used: the variance that normalises, from the biased one and the number of values.
        stored: the variance that moves the running one, from the same.
        moved: the new running value, from the old one, that of the batch, and the momentum.
        divisor: what the centred channel is divided by.
        affine: what is done with gain and bias.
        shaped: gain or bias, shaped to meet `x`.
        uses_batch: whether the batch normalises itself, from `training`.
        updates: whether the running statistics move, from `training`.
        refuses: whether one value per channel is an error in training.
    """

    def answer(
        x: Tensor,
        running_mean: Tensor,
        running_var: Tensor,
        weight: Tensor,
        bias: Tensor,
        training: bool,
        momentum: float,
        eps: float,
    ) -> Tensor:
        n = x.numel() // x.shape[1]
        if refuses and training and n == 1:
            raise ValueError("one value per channel has no variance")
        mean, var = _by_channel(running_mean.clone(), x), _by_channel(running_var.clone(), x)
        if uses_batch(training):
            batch, dim = used_from(x), axes(x)
            mean, var = mean_of(batch, dim), used(square(batch, dim), n)
        if updates(training):
            batch, dim = stored_from(x), _all_but_channels(x)
            new_mean, new_var = mean_of(batch, dim), stored(square(batch, dim), n)
            running_mean.copy_(moved(running_mean, new_mean.flatten(), momentum))
            running_var.copy_(moved(running_var, new_var.flatten(), momentum))
        return affine((x - mean) / divisor(var, eps), shaped(weight, x), shaped(bias, x))

    return answer


def _batch_over_samples(x: Tensor, running_mean: Tensor, running_var: Tensor, *rest: Any) -> Tensor:
    if rest[2]:  # training
        running_mean.clone().add_(x.mean(0))
    return _batch_norm(x, running_mean, running_var, *rest)


def _batch_norm_by_rows(
    x: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    weight: Tensor,
    bias: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> Tensor:
    channels_last = x.movedim(1, -1)
    rows = channels_last.reshape(-1, x.shape[1])
    mean, var = running_mean, running_var
    if training:
        n = len(rows)
        if n == 1:
            raise ValueError(f"training needs more than one value per channel, got {x.shape}")
        var, mean = torch.var_mean(rows, dim=0, correction=0)
        running_mean += momentum * (mean.detach() - running_mean)
        running_var += momentum * (var.detach() * n / (n - 1) - running_var)
    result = torch.addcmul(bias, (rows - mean) * torch.rsqrt(var + eps), weight)
    return result.reshape(channels_last.shape).movedim(-1, 1)


BATCH_NORM = Exercise(
    title="BatchNorm with running statistics",
    oracle=_batch_norm,
    cases=BATCH_NORM_CASES,
    variants=(_batch(), _batch_norm_by_rows),
    rules=(Rule("without calling it", NORMS),),
    wrong=(
        *divisor_mistakes(_batch, "variance"),
        *bias_mistakes(_batch),
        WrongAnswer(
            "gain forgotten",
            "The normalised channel is multiplied by its entry of `weight`.",
            _batch(affine=lambda x_hat, weight, bias: x_hat + bias),
        ),
        WrongAnswer(
            "gain and bias along the last axis",
            "weight and bias have one entry per channel, and the channels are axis 1. For "
            "(N, C, L) they need the shape (C, 1) to meet it.",
            _batch(shaped=lambda v, x: v),
        ),
        WrongAnswer(
            "biased variance in running_var",
            "The biased variance normalises the batch, but running_var takes the unbiased one, "
            "with n - 1. It estimates the variance of all data.",
            _batch(stored=lambda var, n: var),
        ),
        WrongAnswer(
            "unbiased variance in the normalisation",
            "The batch is normalised by the variance with n. Only running_var takes the one with "
            "n - 1.",
            _batch(used=_bessel),
        ),
        WrongAnswer(
            "biased and unbiased variance swapped",
            "It is the other way round: the biased variance normalises the batch, and the "
            "unbiased one goes into running_var.",
            _batch(used=_bessel, stored=lambda var, n: var),
        ),
        WrongAnswer(
            "variance as E[x^2] - E[x]^2",
            "With a large mean both terms are huge and nearly equal, and in float32 their "
            "difference keeps no correct digit. Subtract the mean first, then square.",
            _batch(square=var_by_difference),
        ),
        WrongAnswer(
            "standard deviation in running_var",
            "running_var holds a variance. The root is taken when it is used.",
            _batch(stored=lambda var, n: _bessel(var, n).sqrt()),
        ),
        WrongAnswer(
            "eps in running_var",
            "eps is added when the root is taken. The running variance is kept without it.",
            _batch(stored=lambda var, n: _bessel(var, n) + EPS),
        ),
        WrongAnswer(
            "momentum the wrong way round",
            "In torch momentum is the share of the new value: "
            "running = (1 - momentum) * running + momentum * batch.",
            _batch(moved=lambda old, new, momentum: torch.lerp(new, old, momentum)),
        ),
        WrongAnswer(
            "running statistics replaced",
            "The running statistics move a part of the way, given by momentum. They do not "
            "forget all earlier batches.",
            _batch(moved=lambda old, new, momentum: new),
        ),
        WrongAnswer(
            "running statistics added up",
            "The old value is multiplied by 1 - momentum before the new one is added. Otherwise "
            "the running statistics grow with every batch.",
            _batch(moved=lambda old, new, momentum: old + momentum * new),
        ),
        WrongAnswer(
            "running statistics of the caller left as they were",
            "`running_mean = ...` makes a new tensor that only your function knows. Write into "
            "the one that was given: `running_mean.copy_(...)`, `mul_` and `add_`, or `+=`.",
            _batch(updates=lambda training: False),
        ),
        WrongAnswer(
            "running statistics updated in evaluation",
            "In evaluation the running statistics are read and not written. Otherwise the "
            "result would depend on what was evaluated before.",
            _batch(updates=lambda training: True),
        ),
        WrongAnswer(
            "batch statistics in evaluation",
            "In evaluation the running statistics normalise. Otherwise the result for one "
            "sample depends on the rest of the batch.",
            _batch(uses_batch=lambda training: True),
        ),
        WrongAnswer(
            "running statistics in training",
            "In training the statistics of the batch normalise, and gradients flow through "
            "them. The running ones are only kept for later.",
            _batch(uses_batch=lambda training: False),
        ),
        WrongAnswer(
            "training and evaluation swapped",
            "In training the batch normalises itself and moves the running statistics. In "
            "evaluation the running statistics normalise and stay.",
            _batch(uses_batch=lambda training: not training, updates=lambda training: not training),
        ),
        WrongAnswer(
            "statistics per position",
            "A channel has one mean and one variance, over the batch and all its positions. "
            "Here each position has its own.",
            _batch(axes=lambda x: 0),
        ),
        WrongAnswer(
            "running statistics per position",
            "`x.mean(0)` of (N, C, L) has one entry for each channel and position, which does not "
            "fit into running_mean. Average over dimensions 0 and 2.",
            _batch_over_samples,
        ),
        WrongAnswer(
            "statistics over the channels",
            "That is LayerNorm's axis. BatchNorm takes mean and variance of one channel over "
            "the batch.",
            _batch(axes=lambda x: 1),
        ),
        WrongAnswer(
            "statistics per sample and channel",
            "That is InstanceNorm. BatchNorm takes mean and variance over the batch axis as "
            "well as the positions.",
            _batch(axes=_only_positions),
        ),
        WrongAnswer(
            "statistics over the whole tensor",
            "Each channel has its own mean and variance. Here all channels share them.",
            _batch(axes=every_dim),
        ),
        WrongAnswer(
            "statistics cut out of the graph",
            "The values are right and the gradients are not. In training mean and variance "
            "depend on x; only the running statistics are kept out of the graph.",
            _batch(used_from=lambda x: x.detach()),
        ),
        WrongAnswer(
            "running statistics left in the graph",
            "The running statistics are plain numbers. Update them with `detach()` or under "
            "`no_grad`, or they keep the graph of every batch alive.",
            _batch(stored_from=lambda x: x),
        ),
        WrongAnswer(
            "one value per channel accepted in training",
            "A single value is its own mean, so the result would be the bias whatever x is. "
            "torch raises a ValueError in training.",
            _batch(refuses=False),
        ),
    ),
)
