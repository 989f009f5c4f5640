"""Questions of the assignment: smoothed_loss, beam_step, training_pair."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.assignments.common import EXACT, draw
from book.checkers.core import Case, Exercise, WrongAnswer, in_parts


def _tokens(*shape: int, low: int = 0, high: int = 9, seed: int = 0) -> Tensor:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed))


# --- smoothed_loss --------------------------------------------------------------------------------


def _smoothed_loss(logits: Tensor, target: Tensor, pad: int, smoothing: float) -> Tensor:
    return F.cross_entropy(
        logits.flatten(0, 1), target.flatten(), ignore_index=pad, label_smoothing=smoothing
    )


@in_parts
def _smoothed(
    uniform: Callable[[Tensor, int, Tensor], Tensor] = lambda logp, pad, right: logp.mean(-1),
    count: Callable[[Tensor], Tensor | int] = lambda real: real.sum(),
    real: Callable[[Tensor, int], Tensor] = lambda t, pad: t != pad,
    weight: Callable[[float], float] = lambda s: 1 - s,
    per_row: bool = False,
    log_p: Callable[[Tensor], Tensor] = lambda logits: logits.log_softmax(-1),
) -> Callable[..., Tensor]:
    def answer(logits: Tensor, target: Tensor, pad: int, smoothing: float) -> Tensor:
        logp = log_p(logits)
        right = logp.gather(-1, target[..., None])[..., 0]
        loss = -weight(smoothing) * right - smoothing * uniform(logp, pad, right)
        kept = real(target, pad)
        loss = loss.masked_fill(~kept, 0.0)
        if per_row:
            return (loss.sum(-1) / kept.sum(-1)).mean()
        return loss.sum() / count(kept)

    return answer


def _others(logp: Tensor, pad: int, right: Tensor) -> Tensor:
    return (logp.sum(-1) - right) / (logp.shape[-1] - 1)


def _without_pad(logp: Tensor, pad: int, right: Tensor) -> Tensor:
    return (logp.sum(-1) - logp[..., pad]) / (logp.shape[-1] - 1)


def _loss_case(name: str, b: int, t: int, v: int, pad: int, smoothing: float,
               lengths: list[int], scale: float = 1.0) -> Case:  # fmt: skip
    def inputs() -> tuple[object, ...]:
        target = _tokens(b, t, high=v, seed=4)
        target = torch.where(target == pad, (pad + 1) % v, target)
        for row, n in enumerate(lengths):
            target[row, n:] = pad
        return draw(b, t, v, seed=3, scale=scale).requires_grad_(), target, pad, smoothing

    return Case(name, inputs, EXACT, grad=True)


SMOOTHED_LOSS = Exercise(
    title="Label smoothing with padding",
    oracle=_smoothed_loss,
    cases=[
        _loss_case("values: a tenth, no padding", 2, 4, 6, 0, 0.1, [4, 4]),
        _loss_case("values: padding", 3, 5, 7, 0, 0.1, [5, 2, 3]),
        _loss_case("values: much smoothing", 2, 4, 5, 0, 0.6, [4, 1]),
        _loss_case("corners: no smoothing", 2, 4, 6, 0, 0.0, [4, 2]),
        _loss_case("corners: the last token is the padding", 2, 4, 6, 5, 0.1, [3, 2]),
        _loss_case("corners: large logits", 2, 4, 6, 0, 0.2, [3, 4], scale=1000.0),
        _loss_case("corners: a sequence of padding only", 2, 3, 5, 0, 0.1, [3, 0]),
    ],
    variants=(
        _smoothed(),
        lambda logits, target, pad, s: (
            torch.logsumexp(logits, -1)
            - (1 - s) * logits.gather(-1, target[..., None])[..., 0]
            - s * logits.mean(-1)
        )[target != pad].mean(),
    ),
    wrong=(
        WrongAnswer(
            "padding counted in the mean",
            "Padding adds nothing to the sum, so it may not count in the denominator.",
            _smoothed(count=lambda real: real.numel()),
        ),
        WrongAnswer(
            "padding scored",
            "Positions whose target is padding have no loss.",
            _smoothed(real=lambda t, pad: torch.ones_like(t, dtype=torch.bool)),
        ),
        WrongAnswer(
            "smoothing over the other classes",
            "torch spreads the smoothing evenly over all classes, the right one included.",
            _smoothed(uniform=_others),
        ),
        WrongAnswer(
            "padding left out of the uniform part",
            "Tensor2tensor leaves the padding class out. torch, and the task, do not.",
            _smoothed(uniform=_without_pad),
        ),
        WrongAnswer(
            "mean of the sequences' means",
            "Every token weighs the same: one mean over all real tokens.",
            _smoothed(per_row=True),
        ),
        WrongAnswer(
            "right class not reduced",
            "The smoothing is taken from the right class, which keeps 1 - smoothing.",
            _smoothed(weight=lambda s: 1.0),
        ),
        WrongAnswer(
            "padding taken to be token 0",
            "The index of the padding is an argument.",
            _smoothed(real=lambda t, pad: t != 0),
        ),
        WrongAnswer(
            "logarithm of the softmax",
            "A probability that underflows to 0 has the logarithm minus infinity. The "
            "log-softmax has no such corner.",
            _smoothed(log_p=lambda logits: logits.softmax(-1).log()),
        ),
        WrongAnswer(
            "smoothing given to every class in full",
            "The smoothing is spread: each class gets its share of it, not all of it.",
            _smoothed(uniform=lambda logp, pad, right: logp.sum(-1)),
        ),
        WrongAnswer(
            "softmax over the positions",
            "The classes are the last dimension, and the probabilities of one position add up to "
            "1.",
            _smoothed(log_p=lambda logits: logits.log_softmax(1)),
        ),
    ),
)

# --- beam_step ------------------------------------------------------------------------------------


Beams = tuple[Tensor, Tensor]


def _beam_step(beams: Tensor, scores: Tensor, log_probs: Tensor, eos: int, pad: int) -> Beams:
    candidates: list[tuple[float, list[int]]] = []
    for row, score, nexts in zip(beams.tolist(), scores.tolist(), log_probs.tolist(), strict=True):
        if eos in row:
            candidates.append((score, [*row, pad]))
            continue
        candidates += [(score + p, [*row, token]) for token, p in enumerate(nexts)]
    best = sorted(candidates, key=lambda c: -c[0])[: len(beams)]
    return (
        torch.tensor([row for _, row in best]),
        torch.tensor([score for score, _ in best], dtype=scores.dtype),
    )


@in_parts
def _beamed(
    freeze: str = "pad", joint: bool = True, add: bool = True, order: str = "beam",
    mean: bool = False, where: Callable[[Tensor], Tensor] = lambda beams: beams,
) -> Callable[..., Beams]:  # fmt: skip
    def answer(beams: Tensor, scores: Tensor, log_probs: Tensor, eos: int, pad: int) -> Beams:
        k, v = log_probs.shape
        done = (where(beams) == eos).any(-1)
        steps = log_probs.clone()
        if freeze == "pad":
            steps[done] = -math.inf
            steps[done, pad] = 0.0
        elif freeze == "dropped":
            steps[done] = -math.inf
        elif freeze == "copies":
            steps[done] = 0.0
        elif freeze == "charged":
            kept = steps[done, pad]
            steps[done] = -math.inf
            steps[done, pad] = kept
        totals = (scores[:, None] if add else 0.0) + steps
        if mean:
            totals = totals / (beams.shape[1] + 1)
        if joint:
            best, flat = totals.flatten().topk(k)
            rows, tokens = flat // v, flat % v
            if order == "token":
                rows, tokens = flat % k, flat // k
        else:
            best, tokens = totals.max(-1)
            rows = torch.arange(k)
        kept_rows = beams if order == "stay" else beams[rows]
        return torch.cat([kept_rows, tokens[:, None]], 1), best

    return answer


def _beam_case(name: str, rows: list[list[int]], scores: list[float], v: int = 6, seed: int = 0,
               even: bool = False, eos: int = 2, pad: int = 0) -> Case:  # fmt: skip
    def inputs() -> tuple[object, ...]:
        logits = draw(len(rows), v, seed=seed, scale=0.2 if even else 1.5)
        return (
            torch.tensor(rows), torch.tensor(scores, dtype=torch.float64), logits.log_softmax(-1),
            eos, pad,
        )  # fmt: skip

    return Case(name, inputs, EXACT)


BEAM_STEP = Exercise(
    title="One step of a beam search",
    oracle=_beam_step,
    cases=[
        _beam_case("values: two beams", [[1, 3], [1, 4]], [-0.5, -0.9]),
        _beam_case("values: both from one beam", [[1, 3], [1, 4]], [-0.1, -6.0], even=True),
        _beam_case(
            "values: three beams", [[1, 3, 3], [1, 4, 5], [1, 5, 5]], [-1.0, -1.2, -1.5], seed=1
        ),
        _beam_case("values: another draw", [[1, 5], [1, 3]], [-0.7, -0.8], seed=3),
        _beam_case("finished: the better beam has ended", [[1, 2], [1, 4]], [-0.5, -0.9]),
        _beam_case("finished: other special tokens", [[0, 5], [0, 4]], [-0.5, -0.9], eos=5, pad=1),
        _beam_case("finished: the worse beam has ended", [[1, 3], [1, 2]], [-0.5, -1.0], even=True),
        _beam_case("finished: both have ended", [[1, 3, 2], [1, 2, 0]], [-1.1, -1.4]),
        _beam_case(
            "finished: one of three, far behind",
            [[1, 3], [1, 2], [1, 4]],
            [-0.5, -90.0, -0.6],
            seed=2,
        ),
    ],
    variants=(_beamed(),),
    wrong=(
        WrongAnswer(
            "finished beams go on",
            "A beam with eos is complete: it stays in the race with its score, and gets padding.",
            _beamed(freeze="no"),
        ),
        WrongAnswer(
            "finished beams thrown away",
            "A complete sequence may still be the best. It keeps its place by its score.",
            _beamed(freeze="dropped"),
        ),
        WrongAnswer(
            "finished beams copied for every token",
            "A complete beam is one candidate. With a score for each token it fills all places.",
            _beamed(freeze="copies"),
        ),
        WrongAnswer(
            "padding charged to a finished beam",
            "Its sequence has ended, so no further log-probability is added.",
            _beamed(freeze="charged"),
        ),
        WrongAnswer(
            "best token of each beam",
            "The beams compete: both survivors may come from the same one. Take the best of all.",
            _beamed(joint=False),
        ),
        WrongAnswer(
            "old scores forgotten",
            "The score of a longer sequence is the old score plus the new log-probability.",
            _beamed(add=False),
        ),
        WrongAnswer(
            "beam and token exchanged",
            "In (beams, vocabulary) the flat index is beam * vocabulary + token.",
            _beamed(order="token"),
        ),
        WrongAnswer(
            "rows not reordered",
            "The survivor continues its own beam: take the rows that the best scores came from.",
            _beamed(order="stay"),
        ),
        WrongAnswer(
            "eos looked for in the last place only",
            "A beam that ended a step ago ends with padding by now, and is finished all the same.",
            _beamed(where=lambda beams: beams[:, -1:]),
        ),
        WrongAnswer(
            "divided by the length",
            "The task has no length penalty: a score is the log-probability of the whole sequence.",
            _beamed(mean=True),
        ),
    ),
)


# --- training_pair --------------------------------------------------------------------------------


def _training_pair(tokens: Tensor, bos: int, eos: int, pad: int) -> Beams:
    width = tokens.shape[1] + 1
    inputs, labels = [], []
    for row in tokens.tolist():
        real = [t for t in row if t != pad]
        inputs.append([bos, *real] + [pad] * (width - len(real) - 1))
        labels.append([*real, eos] + [pad] * (width - len(real) - 1))
    return torch.tensor(inputs), torch.tensor(labels)


@in_parts
def _pair(
    place: str = "end of text", start: bool = True, end_in_input: bool = False, cut: bool = False,
    blank: Callable[[int], int] = lambda pad: pad, begun: bool = False,
    rest: Callable[[int, int], int] | None = None,
) -> Callable[..., Beams]:  # fmt: skip
    def answer(tokens: Tensor, bos: int, eos: int, pad: int) -> Beams:
        b = len(tokens)
        lengths = (tokens != blank(pad)).sum(1)
        more = F.pad(tokens, (0, 1), value=pad)
        if place == "end of text":
            labels = more.scatter(1, lengths[:, None], eos)
        elif place == "last column":
            labels = more.clone()
            labels[:, -1] = eos
        elif place == "last token":
            labels = more.clone()
            labels[torch.arange(b), lengths - 1] = eos
        else:
            labels = more
        first = torch.full((b, 1), bos)
        source = labels[:, :-1] if end_in_input else tokens
        inputs = torch.cat([first, source], 1) if start else more
        if cut:
            return inputs[:, :-1], labels[:, :-1]
        if begun:
            labels = inputs.clone()
        if rest:
            behind = torch.arange(tokens.shape[1] + 1) > lengths[:, None]
            labels = labels.masked_fill(behind, rest(eos, pad))
        return inputs, labels

    return answer


def _padded(*rows: list[int], pad: int = 0) -> Tensor:
    width = max(len(r) for r in rows)
    return torch.tensor([r + [pad] * (width - len(r)) for r in rows])


TRAINING_PAIR = Exercise(
    title="Decoder input and labels from padded sequences",
    oracle=_training_pair,
    cases=[
        Case("values: one full sequence", lambda: (_padded([5, 6, 7]), 1, 2, 0)),
        Case(
            "values: sequences of different length",
            lambda: (_padded([5, 6, 7, 8], [4, 3], [9]), 1, 2, 0),
        ),
        Case("values: other special tokens", lambda: (_padded([5, 6, 0], [7], pad=13), 11, 12, 13)),
        Case("corners: an empty sequence", lambda: (_padded([5, 6], []), 1, 2, 0)),
        Case("corners: one token", lambda: (_padded([5]), 1, 2, 0)),
        Case("corners: tokens equal to each other", lambda: (_padded([5, 5, 5], [5, 5]), 1, 2, 0)),
    ],
    variants=(_pair(),),
    wrong=(
        WrongAnswer(
            "eos in the last column",
            "eos follows the last real token, before the padding, or short sequences learn to "
            "go on with padding.",
            _pair(place="last column"),
        ),
        WrongAnswer(
            "no eos at all",
            "Without eos among the labels the model never learns to stop.",
            _pair(place="nowhere"),
        ),
        WrongAnswer(
            "input not shifted",
            "At each position the decoder may see earlier tokens only: start with bos.",
            _pair(start=False),
        ),
        WrongAnswer(
            "eos fed into the decoder",
            "Nothing is predicted after eos, so a short sequence's input is padding there.",
            _pair(end_in_input=True),
        ),
        WrongAnswer(
            "last column cut off",
            "n tokens give n + 1 predictions, the last one being eos.",
            _pair(cut=True),
        ),
        WrongAnswer(
            "padding looked for as token 0",
            "The padding is an argument, and 0 may be a token like any other.",
            _pair(blank=lambda pad: 0),
        ),
        WrongAnswer(
            "eos written over the last token",
            "The last real token is to be predicted too: eos comes behind it, not in its place.",
            _pair(place="last token"),
        ),
        WrongAnswer(
            "labels that begin with bos",
            "A label is the token that comes next. Labels like the input ask the decoder to copy.",
            _pair(begun=True),
        ),
        WrongAnswer(
            "-100 behind the end",
            "Other libraries mark labels that do not count by -100. Here they are padding.",
            _pair(rest=lambda eos, pad: -100),
        ),
        WrongAnswer(
            "eos to the end of the row",
            "There is one eos in each row. What comes after it is padding.",
            _pair(rest=lambda eos, pad: eos),
        ),
    ),
)

EXERCISES: dict[str, Exercise] = {
    "smoothed_loss": SMOOTHED_LOSS,
    "beam_step": BEAM_STEP,
    "training_pair": TRAINING_PAIR,
}
