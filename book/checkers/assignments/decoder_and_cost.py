"""The questions of the assignment on chapters 15 and 16: choosing tokens, loading, and counting.

The oracles are loops over tokens, names and tiles, never the book's library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from book.checkers.assignments.common import EXACT, draw
from book.checkers.core import Answer, Case, Exercise, WrongAnswer, in_parts

INF = math.inf


def _numbers(name: str, *args: Any, tol: float = 1e-9) -> Case:
    return Case(name, lambda: args, tol)


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
) -> Answer:
    def answer(logits: Tensor, tokens: Tensor, penalty: float) -> Tensor:
        seen = torch.zeros_like(logits, dtype=torch.bool).scatter(1, tokens, True)
        if not own:
            seen = seen.any(0, keepdim=True).expand_as(seen)
        return torch.where(seen, change(logits, penalty), logits)

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
) -> Answer:
    def answer(p: Tensor, q: Tensor, drafted: int, u: float, r: float) -> tuple[bool, int]:
        if u < ratio(p[drafted].item(), q[drafted].item()):
            return True, drafted
        rest = residual(p, q)
        rest = rest / rest.sum() if normalise else rest
        return False, min(int((rest.cumsum(0) <= r).sum()), len(p) - 1)

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
    ),
    variants=(_expected_with(),),
)


# --- moe_parameters -------------------------------------------------------------------------------


def _moe(
    vocab_size: int, d_model: int, num_layers: int, num_heads: int, num_kv_heads: int,
    head_dim: int, d_expert: int, experts: int, top_k: int,
) -> tuple[int, int]:  # fmt: skip
    wide, narrow = num_heads * head_dim, num_kv_heads * head_dim
    shapes = {
        "q": (wide, d_model), "k": (narrow, d_model), "v": (narrow, d_model), "o": (d_model, wide),
        "q_norm": (head_dim,), "k_norm": (head_dim,), "norm1": (d_model,), "norm2": (d_model,),
        "router": (experts, d_model),
    }  # fmt: skip
    expert = 2 * math.prod((d_expert, d_model)) + math.prod((d_model, d_expert))
    rest = vocab_size * d_model + d_model
    rest += sum(math.prod(s) for _ in range(num_layers) for s in shapes.values())
    return rest + num_layers * experts * expert, rest + num_layers * top_k * expert


@in_parts
def _moe_with(
    table: int = 1,
    matrices: int = 3,
    router: Callable[[int, int, int], int] = lambda d, e, k: d * e,
    qk: Callable[[int, int, int], int] = lambda h, g, dh: 2 * dh,
    active_table: bool = True,
    kv: bool = True,
) -> Answer:
    def answer(
        vocab_size: int, d_model: int, num_layers: int, num_heads: int, num_kv_heads: int,
        head_dim: int, d_expert: int, experts: int, top_k: int,
    ) -> tuple[int, int]:  # fmt: skip
        attention = 2 * d_model * head_dim * (num_heads + (num_kv_heads if kv else num_heads))
        attention += qk(num_heads, num_kv_heads, head_dim) + 2 * d_model
        expert = matrices * d_model * d_expert
        tables = table * vocab_size * d_model

        def total(used: int, shown: int, tables: int) -> int:
            block = attention + router(d_model, shown, top_k) + used * expert
            return tables + num_layers * block + d_model

        active = tables if active_table else 0
        return total(experts, experts, tables), total(top_k, experts, active)

    return answer


_MOE = Exercise(
    title="All parameters, and those that one token meets",
    oracle=_moe,
    cases=(
        _numbers("values: small", 100, 16, 2, 4, 2, 8, 12, 8, 2),
        _numbers("values: like Qwen3-30B-A3B, but tied", 151936, 2048, 48, 32, 4, 128, 768, 128, 8),
        _numbers("values: heads wider than the model", 1000, 64, 3, 8, 2, 32, 48, 16, 4),
        _numbers("corners: every expert is used", 500, 32, 2, 4, 4, 8, 24, 4, 4),
        _numbers("corners: one layer, one expert of many", 300, 24, 1, 3, 1, 8, 10, 64, 1),
    ),
    wrong=(
        WrongAnswer(
            "two tables",
            "The head is tied: it is the embedding's matrix, counted once.",
            _moe_with(table=2),
        ),
        WrongAnswer(
            "experts of two matrices",
            "Each expert is a SwiGLU layer: gate, up and down.",
            _moe_with(matrices=2),
        ),
        WrongAnswer(
            "the router forgotten",
            "A matrix from d_model to the number of experts decides who is used, in every layer.",
            _moe_with(router=lambda d, e, k: 0),
        ),
        WrongAnswer(
            "a router of top_k columns",
            "The router scores all experts, for a single token too; the best are chosen after it.",
            _moe_with(router=lambda d, e, k: d * k),
        ),
        WrongAnswer(
            "a gain for each head in QK-norm",
            "The gains of QK-norm have head_dim entries and are shared by the heads.",
            _moe_with(qk=lambda h, g, dh: (h + g) * dh),
        ),
        WrongAnswer(
            "keys and values of all heads",
            "The matrices of keys and values have num_kv_heads times head_dim outputs.",
            _moe_with(kv=False),
        ),
        WrongAnswer(
            "the table left out of what a token meets",
            "The table is tied, and as the head every token meets all of it.",
            _moe_with(active_table=False),
        ),
    ),
    variants=(_moe_with(),),
)


# --- take_weights ---------------------------------------------------------------------------------

Shapes = dict[str, tuple[int, ...]]


def _take(shapes: Shapes, state: dict[str, Tensor], prefix: str) -> tuple[list[Tensor], list[str]]:
    tensors, bad = [], []
    for name, shape in shapes.items():
        if prefix + name in state and state[prefix + name].shape == shape:
            tensors.append(state[prefix + name])
        else:
            bad.append(name)
    return tensors, bad


@in_parts
def _take_with(
    key: Callable[[str, str], str] = lambda name, prefix: name.removeprefix(prefix),
    own: Callable[[str, str], bool] = lambda name, prefix: name.startswith(prefix),
    check_shape: bool = True,
    report: Callable[[list[str]], list[str]] = lambda bad: bad,
    everything: bool = False,
) -> Answer:
    def answer(
        shapes: Shapes, state: dict[str, Tensor], prefix: str
    ) -> tuple[list[Tensor], list[str]]:
        renamed = {key(n, prefix): t for n, t in state.items() if own(n, prefix)}
        bad = [
            n
            for n, shape in shapes.items()
            if n not in renamed or (check_shape and renamed[n].shape != shape)
        ]
        names = renamed if everything else [n for n in shapes if n not in bad]
        return [renamed[n] for n in names], report(bad)

    return answer


def _state(*names: str) -> dict[str, Tensor]:
    return {n: draw(2, 3, seed=i) for i, n in enumerate(names)}


def _take_case(
    name: str, wanted: tuple[str, ...], state: tuple[str, ...], prefix: str, misshapen: str = ""
) -> Case:
    def inputs() -> tuple[Any, ...]:
        tensors = _state(*state)
        if misshapen:
            tensors[misshapen] = draw(3, 2)
        return dict.fromkeys(wanted, (2, 3)), tensors, prefix

    return Case(name, inputs)


_TAKE = Exercise(
    title="A checkpoint under other names",
    oracle=_take,
    cases=(
        _take_case("values: all there", ("embed", "norm"), ("model.embed", "model.norm"), "model."),
        _take_case("values: others' tensors beside them", ("embed", "norm"),
                   ("model.embed", "vision.embed", "model.norm", "vision.norm"), "model."),
        _take_case("values: more than wanted", ("norm",), ("model.norm", "model.bias"), "model."),
        _take_case("values: a name that begins with letters of the prefix", ("model.norm", "eel"),
                   ("model.model.norm", "model.eel"), "model."),
        _take_case("missing: one", ("embed", "norm"), ("model.embed",), "model."),
        _take_case("missing: two of three", ("up", "gate", "down"), ("m.gate",), "m."),
        _take_case("missing: three of five", ("a", "b", "c", "d", "e"), ("m.b", "m.d"), "m."),
        _take_case("missing: layer 1 but not layer 11", ("layers.1.w", "layers.11.w", "w"),
                   ("net.layers.11.w", "net.w"), "net."),
        _take_case("missing: there, but without the prefix", ("embed", "norm"),
                   ("embed", "model.norm"), "model."),
        _take_case("shapes: one is transposed", ("embed", "norm"), ("x.embed", "x.norm"), "x.",
                   "x.norm"),
        _take_case("shapes: one missing, one transposed", ("a", "b", "c"), ("x.b", "x.c"), "x.",
                   "x.c"),
    ),
    wrong=(
        WrongAnswer(
            "stripped letter by letter",
            "str.lstrip removes any of these letters, as often as they come. Use removeprefix.",
            _take_with(key=lambda n, p: n.lstrip(p)),
        ),
        WrongAnswer(
            "replaced everywhere",
            "The prefix may occur again inside a name. Only the one in front is to go.",
            _take_with(key=lambda n, p: n.replace(p, "")),
        ),
        WrongAnswer(
            "stopped at the first missing tensor",
            "Whoever repairs the file wants to know all of them, at once.",
            _take_with(report=lambda bad: bad[:1]),
        ),
        WrongAnswer(
            "missing tensors passed over",
            "A model of which some weights stayed random talks nonsense without an error.",
            _take_with(report=lambda bad: []),
        ),
        WrongAnswer(
            "shapes not compared",
            "A tensor of the wrong shape is as bad as none, and is to be named too.",
            _take_with(check_shape=False),
        ),
        WrongAnswer(
            "tensors without the prefix taken",
            "They belong to another part of the file, whatever they are called.",
            _take_with(own=lambda n, p: True),
        ),
        WrongAnswer(
            "everything returned",
            "Only the tensors that were asked for are returned, those named in `shapes`.",
            _take_with(everything=True),
        ),
    ),
    variants=(_take_with(),),
)  # fmt: skip


# --- moe_intensity --------------------------------------------------------------------------------


def _moe_intensity(
    tokens: int, experts: int, top_k: int, d_in: int, d_out: int,
    weight_bytes: float, activation_bytes: float,
) -> float:  # fmt: skip
    rows = [0] * experts
    for i in range(tokens * top_k):
        rows[i % experts] += 1
    flops = moved = 0.0
    for n in rows:
        flops += 2 * n * d_in * d_out
        moved += weight_bytes * d_in * d_out * (n > 0) + activation_bytes * n * (d_in + d_out)
    return flops / moved


@in_parts
def _moe_intensity_with(
    read: Callable[[int, int, int], int] = lambda t, e, k: min(e, t * k),
    rows: Callable[[int, int], int] = lambda t, k: t * k,
    per: int = 2,
    wide: Callable[[int, int], int] = lambda a, b: a + b,
    same_bytes: bool = False,
) -> Answer:
    def answer(
        tokens: int, experts: int, top_k: int, d_in: int, d_out: int,
        weight_bytes: float, activation_bytes: float,
    ) -> float:  # fmt: skip
        if same_bytes:
            activation_bytes = weight_bytes
        n = rows(tokens, top_k)
        moved = weight_bytes * read(tokens, experts, top_k) * d_in * d_out
        return per * n * d_in * d_out / (moved + activation_bytes * n * wide(d_in, d_out))

    return answer


_MOE_INTENSITY = Exercise(
    title="The intensity of a layer of experts",
    oracle=_moe_intensity,
    cases=(
        _numbers("values: 64 tokens, 8 of 128 experts", 64, 128, 8, 2048, 768, 2, 2),
        _numbers("values: weights of one byte", 256, 64, 6, 2048, 1408, 1, 2),
        _numbers("values: weights of half a byte", 16, 8, 2, 4096, 14336, 0.5, 2),
        _numbers("values: few tokens, most experts idle", 3, 128, 8, 2048, 768, 2, 4),
        _numbers("corners: one token", 1, 256, 8, 7168, 2048, 1, 2),
        _numbers("corners: one expert, an ordinary layer", 32, 1, 1, 4096, 4096, 2, 2),
        _numbers("corners: exactly one row each", 32, 64, 2, 512, 256, 2, 2),
    ),
    wrong=(
        WrongAnswer(
            "all experts read, even idle ones",
            "An expert that no token goes to is not read: min(experts, tokens times top_k).",
            _moe_intensity_with(read=lambda t, e, k: e),
        ),
        WrongAnswer(
            "one row for each token",
            "Every token goes to top_k experts and makes a row in each of them.",
            _moe_intensity_with(rows=lambda t, k: t),
        ),
        WrongAnswer(
            "top_k experts read",
            "The tokens do not all choose the same ones. By assumption they spread evenly.",
            _moe_intensity_with(read=lambda t, e, k: min(e, k)),
        ),
        WrongAnswer(
            "one operation per multiply-add",
            "A multiplication and an addition are two operations.",
            _moe_intensity_with(per=1),
        ),
        WrongAnswer(
            "outputs forgotten",
            "The outputs are written: d_out numbers for each row.",
            _moe_intensity_with(wide=lambda a, b: a),
        ),
        WrongAnswer(
            "activations as small as the weights",
            "Weights and activations have different widths; each takes its own bytes.",
            _moe_intensity_with(same_bytes=True),
        ),
    ),
    variants=(_moe_intensity_with(),),
)


# --- step_flops -----------------------------------------------------------------------------------


def _step(
    tokens: int, block_weights: int, num_layers: int, head_weights: int, recomputed: int
) -> int:
    total = 0
    for layer in range(num_layers):
        forward = 2 * tokens * block_weights
        total += forward + 2 * forward + (forward if layer < recomputed else 0)
    return total + 6 * tokens * head_weights


@in_parts
def _step_with(
    again: Callable[..., int] = lambda t, b, n, h, r: 2 * t * b * r,
    plain: Callable[..., int] = lambda t, b, n, h: 6 * t * (n * b + h),
) -> Answer:
    def answer(
        tokens: int, block_weights: int, num_layers: int, head_weights: int, recomputed: int
    ) -> int:
        sizes = tokens, block_weights, num_layers, head_weights
        return plain(*sizes) + again(*sizes, recomputed)

    return answer


_STEP = Exercise(
    title="A training step that computes some layers twice",
    oracle=_step,
    cases=(
        _numbers("values: half of the layers", 4096, 200_000_000, 32, 500_000_000, 16),
        _numbers("values: all layers", 8192, 200_000_000, 32, 130_000_000, 32),
        _numbers("values: a large head", 100, 1000, 4, 50_000, 3),
        _numbers("corners: nothing twice", 512, 7_000_000, 12, 38_000_000, 0),
        _numbers("corners: one layer", 3, 5, 1, 7, 1),
        _numbers("corners: no head", 10, 11, 6, 0, 5),
    ),
    wrong=(
        WrongAnswer(
            "the head computed again too",
            "Only blocks are recomputed; the head's backward pass begins with what is there.",
            _step_with(again=lambda t, b, n, h, r: 2 * t * (b * r + h) if r else 0),
        ),
        WrongAnswer(
            "all layers computed again",
            "Only `recomputed` of the layers forget what they computed.",
            _step_with(again=lambda t, b, n, h, r: 2 * t * b * n if r else 0),
        ),
        WrongAnswer(
            "a whole step again",
            "Recomputing is a forward pass, 2 per weight and token. Backwards goes only once.",
            _step_with(again=lambda t, b, n, h, r: 6 * t * b * r),
        ),
        WrongAnswer(
            "recomputing is free",
            "The second forward pass of those layers is work like the first.",
            _step_with(again=lambda t, b, n, h, r: 0),
        ),
        WrongAnswer(
            "backwards as cheap as forwards",
            "Backwards there are two products, for the inputs and for the weights: 4, not 2.",
            _step_with(plain=lambda t, b, n, h: 4 * t * (n * b + h)),
        ),
        WrongAnswer(
            "one operation per multiply-add",
            "A multiplication and an addition are two operations.",
            _step_with(again=lambda t, b, n, h, r: t * b * r,
                       plain=lambda t, b, n, h: 3 * t * (n * b + h)),
        ),
    ),
    variants=(_step_with(),),
)  # fmt: skip


# --- busy_share -----------------------------------------------------------------------------------


def _busy(rows: int, columns: int, tile_rows: int, tile_columns: int, processors: int) -> float:
    tiles = len(range(0, rows, tile_rows)) * len(range(0, columns, tile_columns))
    waves = len(range(0, tiles, processors))
    return rows * columns / (waves * processors * tile_rows * tile_columns)


@in_parts
def _busy_with(
    cut: Callable[[float], int] = math.ceil,
    waves: Callable[[float], float] = math.ceil,
    together: bool = False,
    waste: bool = False,
) -> Answer:
    def answer(
        rows: int, columns: int, tile_rows: int, tile_columns: int, processors: int
    ) -> float:
        tiles = cut(rows / tile_rows) * cut(columns / tile_columns)
        if together:
            tiles = cut(rows * columns / (tile_rows * tile_columns))
        time = waves(tiles / processors) * processors * tile_rows * tile_columns
        share = rows * columns / time
        return 1 - share if waste else share

    return answer


_BUSY = Exercise(
    title="Tiles that come in waves",
    oracle=_busy,
    cases=(
        _numbers("values: 4096 by 4096 on 132 processors", 4096, 4096, 128, 128, 132),
        _numbers("values: one row too many", 2049, 2048, 128, 128, 108),
        _numbers("values: wide tiles", 1000, 3000, 64, 256, 60),
        _numbers("values: a vocabulary", 512, 50257, 128, 256, 132),
        _numbers("values: edges on both sides", 130, 130, 64, 64, 4),
        _numbers("values: more edge than inside", 300, 70, 256, 64, 3),
        _numbers("corners: fewer tiles than processors", 100, 100, 64, 64, 132),
        _numbers("corners: nothing wasted", 256, 512, 64, 64, 16),
        _numbers("corners: one row", 1, 4096, 128, 128, 32),
    ),
    wrong=(
        WrongAnswer(
            "tiles only",
            "The last wave takes as long as a full one, even if most processors are idle.",
            _busy_with(waves=lambda x: x),
        ),
        WrongAnswer(
            "a single wave",
            "With more tiles than processors some of them wait for a second wave, or a third.",
            _busy_with(waves=lambda x: 1),
        ),
        WrongAnswer(
            "rounded up once for both dimensions",
            "Rows and columns are cut separately; each has an edge of its own.",
            _busy_with(together=True),
        ),
        WrongAnswer(
            "the share that is wasted",
            "The share of useful work was asked for: 1 minus this.",
            _busy_with(waste=True),
        ),
        WrongAnswer(
            "rounded down",
            "What is left over needs a tile, or a wave, of its own.",
            _busy_with(cut=lambda x: max(1, math.floor(x)), waves=lambda x: max(1, math.floor(x))),
        ),
    ),
    variants=(_busy_with(),),
)


EXERCISES = {
    "min_p": _MIN_P,
    "repetition_penalty": _PENALTY,
    "speculative_token": _SPECULATIVE,
    "expected_tokens": _EXPECTED,
    "moe_parameters": _MOE,
    "take_weights": _TAKE,
    "moe_intensity": _MOE_INTENSITY,
    "step_flops": _STEP,
    "busy_share": _BUSY,
}
