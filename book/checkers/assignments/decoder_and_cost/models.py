"""Questions of the assignment: moe_parameters, take_weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor

from book.checkers.assignments.common import draw
from book.checkers.core import Answer, Case, Exercise, WrongAnswer, in_parts


def _numbers(name: str, *args: Any, tol: float = 1e-9) -> Case:
    return Case(name, lambda: args, tol)


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
    wide: Callable[[int, int, int], int] = lambda h, dh, d: h * dh,
) -> Answer:
    def answer(
        vocab_size: int, d_model: int, num_layers: int, num_heads: int, num_kv_heads: int,
        head_dim: int, d_expert: int, experts: int, top_k: int,
    ) -> tuple[int, int]:  # fmt: skip
        rows = wide(num_heads, head_dim, d_model)
        attention = 2 * d_model * (rows + head_dim * (num_kv_heads if kv else num_heads))
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
        WrongAnswer(
            "QK-norm forgotten",
            "Queries and keys are normalised too, with a gain of their own in every layer.",
            _moe_with(qk=lambda h, g, dh: 0),
        ),
        WrongAnswer(
            "a router with a bias",
            "Nothing has a bias here, and the router is a linear map like the others.",
            _moe_with(router=lambda d, e, k: d * e + e),
        ),
        WrongAnswer(
            "queries as wide as the model",
            "The heads together may be wider than the model: num_heads times head_dim.",
            _moe_with(wide=lambda h, dh, d: d),
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
    report: Callable[[list[str], set[str]], list[str]] = lambda bad, there: bad,
    everything: bool = False,
    order: Callable[[list[str], list[str]], list[str]] = lambda names, there: names,
    call: Callable[[str, str], str] = lambda name, prefix: name,
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
        names = order(list(names), list(renamed))
        return [renamed[n] for n in names], [call(n, prefix) for n in report(bad, set(renamed))]

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
        _take_case("values: another order in the file", ("embed", "norm", "head"),
                   ("model.head", "model.norm", "model.embed"), "model."),
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
            _take_with(report=lambda bad, there: bad[:1]),
        ),
        WrongAnswer(
            "missing tensors passed over",
            "A model of which some weights stayed random talks nonsense without an error.",
            _take_with(report=lambda bad, there: []),
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
        WrongAnswer(
            "in the order of the file",
            "Whoever asks knows only the order of `shapes`; that of a file is an accident.",
            _take_with(order=lambda names, there: [n for n in there if n in names]),
        ),
        WrongAnswer(
            "named with the prefix",
            "The model at hand knows its tensors by the names in `shapes`, without a prefix.",
            _take_with(call=lambda name, prefix: prefix + name),
        ),
        WrongAnswer(
            "misshapen tensors left out in silence",
            "A tensor of the wrong shape is not returned, and so it has to be named.",
            _take_with(report=lambda bad, there: [n for n in bad if n not in there]),
        ),
    ),
    variants=(_take_with(),),
)  # fmt: skip

EXERCISES: dict[str, Exercise] = {
    "moe_parameters": _MOE,
    "take_weights": _TAKE,
}
