"""Questions of the assignment: min_p, repetition_penalty, speculative_token, expected_tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from book.checkers.assignments.common import EXACT, draw
from book.checkers.core import Answer, Case, Exercise, WrongAnswer, in_parts

INF = math.inf


# --- min_p ----------------------------------------------------------------------------------------


def _min_p(logits: Tensor, min_p: float) -> Tensor:
    rows = logits.detach().clone().reshape(-1, logits.shape[-1])
    for row in rows:
        best = max(row.tolist())
        for i, z in enumerate(row.tolist()):
            if math.exp(z - best) < min_p:
                row[i] = -INF
    return rows.reshape(logits.shape)


@in_parts
def _min_p_with(
    keep: Callable[[Tensor, float], Tensor],
    fill: float = -INF,
    result: Callable[[Tensor], Tensor] = lambda z: z,
) -> Answer:
    def answer(logits: Tensor, min_p: float) -> Tensor:
        return result(logits.masked_fill(~keep(logits.softmax(-1), min_p), fill))

    return answer


def _min_p_in_logits(logits: Tensor, min_p: float) -> Tensor:
    floor = math.log(min_p) if min_p else -INF
    return torch.where(logits >= logits.amax(-1, keepdim=True) + floor, logits, -INF)


def _relative(p: Tensor, min_p: float) -> Tensor:
    return p >= min_p * p.amax(-1, keepdim=True)


def _min_p_in_place(logits: Tensor, min_p: float) -> Tensor:
    return logits.masked_fill_(~_relative(logits.softmax(-1), min_p), -INF)


def _min_p_from_exp(logits: Tensor, min_p: float) -> Tensor:
    p = logits.exp() / logits.exp().sum(-1, keepdim=True)
    # Asked the other way round: nan is below nothing, so that nothing is filtered.
    return logits.masked_fill(p < min_p * p.amax(-1, keepdim=True), -INF)


def _min_p_case(name: str, make: Callable[[], Tensor], min_p: float) -> Case:
    return Case(name, lambda: (make(), min_p), EXACT)


_MIN_P = Exercise(
    title="The min-p filter",
    oracle=_min_p,
    cases=(
        _min_p_case("values: one row", lambda: 2 * draw(12), 0.1),
        _min_p_case("values: rows of very different sharpness", lambda: (
            draw(4, 9, seed=1) * torch.tensor([[0.1], [1.0], [3.0], [9.0]]).double()
        ), 0.2),
        _min_p_case("values: two leading dimensions", lambda: 2 * draw(2, 3, 7), 0.05),
        _min_p_case("values: negative logits", lambda: draw(2, 8) - 50, 0.3),
        _min_p_case("corners: huge logits", lambda: 1000 + draw(2, 6), 0.5),
        _min_p_case("corners: only the best", lambda: torch.tensor([[1.0, 3.0, 3.0, 2.0]]).double(),
                    1.0),
        _min_p_case("corners: everything stays", lambda: 30 * draw(2, 5), 0.0),
        _min_p_case("corners: filtered before", lambda: torch.tensor(
            [[0.5, -INF, 0.4, -3.0]]).double(), 0.2),
    ),
    wrong=(
        WrongAnswer(
            "the probability itself compared",
            "The limit is min_p times the largest probability of the row, which makes it adapt.",
            _min_p_with(lambda p, m: p >= m),
        ),
        WrongAnswer(
            "the largest of the whole batch",
            "Every row is a distribution of its own, with a largest probability of its own.",
            _min_p_with(lambda p, m: p >= m * p.max()),
        ),
        WrongAnswer(
            "kept what is to go",
            "Tokens below the limit are filtered out, the others stay.",
            _min_p_with(lambda p, m: ~_relative(p, m)),
        ),
        WrongAnswer(
            "zero instead of minus infinity",
            "A logit of zero is not a probability of zero: exp(0) is 1.",
            _min_p_with(_relative, fill=0.0),
        ),
        WrongAnswer(
            "probabilities returned",
            "Logits were asked for, so that a temperature or another filter may follow.",
            _min_p_with(_relative, result=lambda z: z.softmax(-1)),
        ),
        WrongAnswer(
            "logits compared as if they were probabilities",
            "A ratio of probabilities is a difference of logits, not a ratio of logits.",
            lambda logits, min_p: logits.masked_fill(
                logits < min_p * logits.amax(-1, keepdim=True), -INF
            ),
        ),
        WrongAnswer(
            "the limit itself filtered out",
            "A probability of exactly the limit stays, so that min_p = 1 keeps the best.",
            _min_p_with(lambda p, m: p > m * p.amax(-1, keepdim=True)),
        ),
        WrongAnswer(
            "the largest of each column",
            "The vocabulary is the last dimension. Probabilities of one token in several rows do "
            "not compete.",
            _min_p_with(lambda p, m: p >= m * p.amax(0, keepdim=True)),
        ),
        WrongAnswer(
            "exponentials that overflow",
            "exp of a large logit is infinite, and inf / inf is no number. A softmax subtracts "
            "the largest logit first.",
            _min_p_from_exp,
        ),
        WrongAnswer(
            "the given logits overwritten",
            "masked_fill_ changes the caller's tensor. A function must return a new one.",
            _min_p_in_place,
        ),
    ),
    variants=(_min_p_with(_relative), _min_p_in_logits),
)  # fmt: skip


# --- repetition_penalty ---------------------------------------------------------------------------


def _penalty(logits: Tensor, tokens: Tensor, penalty: float) -> Tensor:
    out = logits.detach().clone()
    for b, row in enumerate(tokens.tolist()):
        for i in set(row):
            z = out[b, i].item()
            out[b, i] = z / penalty if z > 0 else z * penalty
    return out


@in_parts
def _penalty_with(
    change: Callable[[Tensor, float], Tensor] = lambda z, p: torch.where(z > 0, z / p, z * p),
    own: bool = True,
    concerned: Callable[[Tensor], Tensor] = lambda seen: seen,
) -> Answer:
    def answer(logits: Tensor, tokens: Tensor, penalty: float) -> Tensor:
        seen = torch.zeros_like(logits, dtype=torch.bool).scatter(1, tokens, True)
        if not own:
            seen = seen.any(0, keepdim=True).expand_as(seen)
        return torch.where(concerned(seen), change(logits, penalty), logits)

    return answer


def _penalty_by_scatter(logits: Tensor, tokens: Tensor, penalty: float) -> Tensor:
    z = logits.gather(1, tokens)
    return logits.scatter(1, tokens, torch.where(z < 0, z * penalty, z / penalty))


def _per_occurrence(logits: Tensor, tokens: Tensor, penalty: float) -> Tensor:
    out = logits.clone()
    for b, row in enumerate(tokens.tolist()):
        for i in row:
            out[b, i] = out[b, i] / penalty if out[b, i] > 0 else out[b, i] * penalty
    return out


def _last_only(logits: Tensor, tokens: Tensor, penalty: float) -> Tensor:
    return _penalty(logits, tokens[:, -1:], penalty)


def _penalty_in_place(logits: Tensor, tokens: Tensor, penalty: float) -> Tensor:
    z = logits.gather(1, tokens)
    return logits.scatter_(1, tokens, torch.where(z > 0, z / penalty, z * penalty))


def _penalty_case(name: str, vocab: int, rows: list[list[int]], penalty: float) -> Case:
    def inputs() -> tuple[Any, ...]:
        return 3 * draw(len(rows), vocab), torch.tensor(rows), penalty

    return Case(name, inputs, EXACT)


_PENALTY = Exercise(
    title="The repetition penalty",
    oracle=_penalty,
    cases=(
        _penalty_case("values: two rows", 8, [[0, 1, 2, 3], [4, 5, 6, 7]], 1.3),
        _penalty_case(
            "values: a token that came three times", 6, [[2, 0, 2, 2], [1, 1, 3, 5]], 1.2
        ),
        _penalty_case("values: every token was used", 5, [[0, 1, 2, 3, 4], [4, 3, 2, 0, 1]], 2.0),
        _penalty_case("values: three rows", 10, [[9, 8, 7], [0, 9, 1], [5, 5, 6]], 1.5),
        _penalty_case("corners: one token", 4, [[1], [2]], 1.1),
        _penalty_case("corners: a reward for repetition", 6, [[0, 1, 2], [3, 4, 5]], 0.8),
    ),
    wrong=(
        WrongAnswer(
            "divided whatever the sign",
            "Dividing a negative logit makes it larger, a reward. Negative ones are multiplied.",
            _penalty_with(lambda z, p: z / p),
        ),
        WrongAnswer(
            "multiplied and divided the wrong way round",
            "A positive logit becomes smaller by division, a negative one by multiplication.",
            _penalty_with(lambda z, p: torch.where(z > 0, z * p, z / p)),
        ),
        WrongAnswer(
            "once for each occurrence",
            "A token is penalised once, however often it came.",
            _per_occurrence,
        ),
        WrongAnswer(
            "subtracted",
            "That is another method, the presence penalty. Here the logit is scaled.",
            _penalty_with(lambda z, p: z - p),
        ),
        WrongAnswer(
            "the tokens of all rows",
            "Every sequence has used tokens of its own; the others' are none of its business.",
            _penalty_with(own=False),
        ),
        WrongAnswer(
            "the last token only",
            "All tokens of the sequence so far are penalised, not just the newest.",
            _last_only,
        ),
        WrongAnswer(
            "multiplied whatever the sign",
            "Multiplying a positive logit makes it larger, a reward. Positive ones are divided.",
            _penalty_with(lambda z, p: z * p),
        ),
        WrongAnswer(
            "the tokens that did not come",
            "What the sequence holds already is made less likely, the rest stays as it is.",
            _penalty_with(concerned=lambda seen: ~seen),
        ),
        WrongAnswer(
            "added to the old logit",
            "The changed logit takes the place of the old one. scatter_add keeps both.",
            _penalty_with(lambda z, p: z + torch.where(z > 0, z / p, z * p)),
        ),
        WrongAnswer(
            "the given logits overwritten",
            "scatter_ changes the caller's tensor. A function must return a new one.",
            _penalty_in_place,
        ),
    ),
    variants=(_penalty_with(), _penalty_by_scatter),
)


# --- speculative_token ----------------------------------------------------------------------------


def _inverse(weights: Iterable[float], r: float) -> int:
    """The first token at which the sum of the weights exceeds the share `r` of all of it."""
    values = list(weights)
    limit, total = r * sum(values), 0.0
    for i, w in enumerate(values):
        total += w
        if total > limit:
            return i
    return max(i for i, w in enumerate(values) if w > 0)


def _speculative(p: Tensor, q: Tensor, drafted: int, u: float, r: float) -> tuple[bool, int]:
    a, b = p.tolist(), q.tolist()
    if u * b[drafted] < a[drafted]:
        return True, drafted
    return False, _inverse([max(x - y, 0.0) for x, y in zip(a, b, strict=True)], r)


@in_parts
def _speculative_with(
    ratio: Callable[[float, float], float] = lambda p, q: p / q,
    residual: Callable[[Tensor, Tensor], Tensor] = lambda p, q: (p - q).clamp(min=0),
    normalise: bool = True,
    chance: Callable[[float, float], float] = lambda u, r: r,
    drawn: Callable[[int, int, Tensor], int] = lambda found, drafted, rest: found,
) -> Answer:
    def answer(p: Tensor, q: Tensor, drafted: int, u: float, r: float) -> tuple[bool, int]:
        if u < ratio(p[drafted].item(), q[drafted].item()):
            return True, drafted
        rest = residual(p, q)
        rest = rest / rest.sum() if normalise else rest
        r = chance(u, r)
        return False, drawn(min(int((rest.cumsum(0) <= r).sum()), len(p) - 1), drafted, rest)

    return answer


_P, _Q = (0.4, 0.1, 0.2, 0.05, 0.25), (0.1, 0.5, 0.1, 0.2, 0.1)


def _token_case(name: str, drafted: int, u: float, r: float, p: Any = _P, q: Any = _Q) -> Case:
    def inputs() -> tuple[Any, ...]:
        return (*(torch.tensor(x, dtype=torch.float64) for x in (p, q)), drafted, u, r)

    return Case(name, inputs)


_SPECULATIVE = Exercise(
    title="Keep a drafted token, or draw another",
    oracle=_speculative,
    cases=(
        _token_case("accept: the model likes it better", 0, 0.99, 0.5),
        _token_case("accept: just below the ratio", 1, 0.19, 0.5),
        _token_case("accept: just above the ratio", 1, 0.21, 0.3),
        _token_case("accept: a quarter of the drafts", 3, 0.24, 0.9),
        _token_case("accept: three quarters are refused", 3, 0.26, 0.45),
        _token_case("resample: the first part", 1, 0.9, 0.3),
        _token_case("resample: the second token of the residual", 1, 0.9, 0.6),
        _token_case("resample: the end", 1, 0.9, 0.95),
        _token_case("resample: just inside the first", 3, 0.9, 0.53),
        _token_case("resample: just past the first", 3, 0.9, 0.56),
        _token_case("corners: never by the model", 2, 1e-9, 0.7, (0.6, 0.4, 0.0), (0.3, 0.2, 0.5)),
        _token_case("corners: equal distributions", 1, 0.999, 0.1, _P, _P),
        _token_case("corners: one token is left", 0, 0.95, 0.999, (0.5, 0.5), (0.9, 0.1)),
    ),
    wrong=(
        WrongAnswer(
            "the ratio upside down",
            "A token is kept with probability min(1, p / q): p is the model's, q the draft's.",
            _speculative_with(ratio=lambda p, q: q / p if p else INF),
        ),
        WrongAnswer(
            "kept with the model's probability",
            "The token was drawn from q already, so that it is kept with p over q, not with p.",
            _speculative_with(ratio=lambda p, q: p),
        ),
        WrongAnswer(
            "kept only if the model likes it better",
            "With p below q it is still kept in a share p / q of the cases.",
            _speculative_with(ratio=lambda p, q: 1.0 if p >= q else 0.0),
        ),
        WrongAnswer(
            "drawn anew from the model's distribution",
            "What was kept already counts towards p. Only the part of p above q is left to draw.",
            _speculative_with(residual=lambda p, q: p),
        ),
        WrongAnswer(
            "the residual with its sign lost",
            "Where the draft has too much, nothing is left to draw: max(p - q, 0), not |p - q|.",
            _speculative_with(residual=lambda p, q: (p - q).abs()),
        ),
        WrongAnswer(
            "the residual not normalised",
            "max(p - q, 0) sums to less than 1. Divide by its sum before you draw.",
            _speculative_with(normalise=False),
        ),
        WrongAnswer(
            "the residual the other way round",
            "Tokens are missing where the model's p exceeds the draft's q: p - q.",
            _speculative_with(residual=lambda p, q: (q - p).clamp(min=0)),
        ),
        WrongAnswer(
            "the residual's largest taken",
            "A token is drawn by `r` here. Always taking the likeliest changes the distribution.",
            _speculative_with(drawn=lambda found, drafted, rest: int(rest.argmax())),
        ),
        WrongAnswer(
            "the refused token returned",
            "A refused draft is replaced by a token that is drawn from the residual.",
            _speculative_with(drawn=lambda found, drafted, rest: drafted),
        ),
        WrongAnswer(
            "one number for both decisions",
            "Given a refusal `u` is large already, so that a draw by it prefers late tokens: use "
            "`r`.",
            _speculative_with(chance=lambda u, r: u),
        ),
    ),
    variants=(_speculative_with(),),
)


# --- expected_tokens ------------------------------------------------------------------------------


def _expected(p: Tensor, q: Tensor, drafts: int) -> float:
    a = sum(min(x, y) for x, y in zip(p.tolist(), q.tolist(), strict=True))
    return float(sum(a**i for i in range(drafts + 1)))


@in_parts
def _expected_with(
    rate: Callable[[Tensor, Tensor], float] = lambda p, q: 1 - (p - q).abs().sum().item() / 2,
    tokens: Callable[[float, int], float] = lambda a, n: (
        n + 1 if a == 1 else (1 - a ** (n + 1)) / (1 - a)
    ),
) -> Answer:
    def answer(p: Tensor, q: Tensor, drafts: int) -> float:
        return float(tokens(rate(p, q), drafts))

    return answer


def _expected_case(name: str, p: Any, q: Any, drafts: int) -> Case:
    def inputs() -> tuple[Any, ...]:
        return (*(torch.tensor(x, dtype=torch.float64) for x in (p, q)), drafts)

    return Case(name, inputs, 1e-9)


_EXPECTED = Exercise(
    title="What speculation brings",
    oracle=_expected,
    spared=dict.fromkeys(("tiny", "huge"), "probabilities add up to one"),
    cases=(
        _expected_case("values: four drafts", _P, _Q, 4),
        _expected_case("values: a better draft", _P, (0.35, 0.1, 0.25, 0.1, 0.2), 3),
        _expected_case("values: eight drafts", (0.7, 0.2, 0.1), (0.5, 0.25, 0.25), 8),
        _expected_case("corners: no draft", _P, _Q, 0),
        _expected_case("corners: the same model", (0.5, 0.25, 0.25), (0.5, 0.25, 0.25), 5),
        _expected_case("corners: nothing in common", (1.0, 0.0), (0.0, 1.0), 4),
    ),
    wrong=(
        WrongAnswer(
            "the model's own token forgotten",
            "Even if every draft is refused, the check yields one token of the model's.",
            _expected_with(tokens=lambda a, n: sum(a**i for i in range(1, n + 1))),
        ),
        WrongAnswer(
            "all drafts checked independently",
            "A refused draft ends the step: draft i counts only if all before it were kept.",
            _expected_with(tokens=lambda a, n: 1 + n * a),
        ),
        WrongAnswer(
            "the chance that two draws agree",
            "A draft is kept with min(1, p / q). Averaged over q this is the sum of min(p, q).",
            _expected_with(rate=lambda p, q: (p * q).sum().item()),
        ),
        WrongAnswer(
            "the whole distance",
            "The sum of |p - q| counts every shift of probability twice. Take half of it.",
            _expected_with(rate=lambda p, q: max(0.0, 1 - (p - q).abs().sum().item())),
        ),
        WrongAnswer(
            "one draft too many",
            "With n drafts there are n + 1 terms, the powers 0 to n.",
            _expected_with(tokens=lambda a, n: sum(a**i for i in range(n + 2))),
        ),
        WrongAnswer(
            "an average over the vocabulary",
            "Drafts are drawn from q: likely tokens count more than unlikely ones.",
            _expected_with(rate=lambda p, q: (p / q).clamp(max=1).mean().item()),
        ),
        WrongAnswer(
            "an average under the model",
            "Drafts come from the small model, so that min(1, p / q) is averaged under q, not "
            "under p.",
            _expected_with(rate=lambda p, q: (p * (p / q).clamp(max=1)).sum().item()),
        ),
        WrongAnswer(
            "the ratio not capped",
            "A probability is at most 1. Without the minimum q cancels, and every draft would be "
            "kept.",
            _expected_with(rate=lambda p, q: (q * (p / q)).sum().item()),
        ),
        WrongAnswer(
            "all drafts or none",
            "Drafts before the first refusal count, even if a later one is refused.",
            _expected_with(tokens=lambda a, n: 1 + n * a**n),
        ),
        WrongAnswer(
            "division by zero for equal models",
            "The closed form of the geometric series divides by 1 - a, which is 0 if every draft "
            "is kept.",
            _expected_with(tokens=lambda a, n: (1 - a ** (n + 1)) / (1 - a)),
        ),
    ),
    variants=(_expected_with(),),
)

EXERCISES: dict[str, Exercise] = {
    "min_p": _MIN_P,
    "repetition_penalty": _PENALTY,
    "speculative_token": _SPECULATIVE,
    "expected_tokens": _EXPECTED,
}
