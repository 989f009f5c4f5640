"""The exercise that makes an RMSNorm model of one with LayerNorm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.core import Answer, Case, Exercise, WrongAnswer, in_parts
from book.checkers.normalization.common import EXACT, draw_normal, less_mean, mean_of

# --- to_rms_norm ----------------------------------------------------------------------------------

# table, out_weight, out_bias, gamma, beta, in_weight, in_bias
Model = tuple[Tensor, ...]


def _affine_map(f: Callable[[Tensor], Tensor], d_in: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Weight and bias of the affine map `f`: its derivative, and its value at zero."""
    zero = torch.zeros(d_in, dtype=dtype, requires_grad=True)
    value = f(zero)
    rows = [torch.autograd.grad(entry, zero, retain_graph=True)[0] for entry in value]
    return torch.stack(rows), value.detach()


def _to_rms_norm(
    table: Tensor,
    out_weight: Tensor,
    out_bias: Tensor,
    gamma: Tensor,
    beta: Tensor,
    in_weight: Tensor,
    in_bias: Tensor,
) -> tuple[Tensor, ...]:
    rows = F.linear(torch.eye(len(table), dtype=table.dtype), table.T)
    return (
        less_mean(rows),
        *_affine_map(
            lambda h: less_mean(F.linear(h, out_weight, out_bias)), out_weight.shape[1], table.dtype
        ),
        *_affine_map(
            lambda x_hat: F.linear(gamma * x_hat + beta, in_weight, in_bias),
            len(gamma),
            table.dtype,
        ),
    )


def _model(
    n: int,
    d: int,
    inner: int,
    out: int,
    *,
    scale: float = 1.0,
    offset: float = 0.5,
    dtype: torch.dtype = torch.float64,
) -> Model:
    """Tokens of width d, a writer that reads `inner` features, a reader that gives `out`."""

    def draw(*shape: int, seed: int) -> Tensor:
        return draw_normal(*shape, scale=scale, offset=offset, seed=seed, dtype=dtype)

    return (
        *(draw(n, d, seed=0), draw(d, inner, seed=1), draw(d, seed=2)),
        *(draw_normal(d, offset=0.5, seed=s, dtype=dtype) for s in (3, 4)),
        *(draw(out, d, seed=5), draw(out, seed=6)),
    )


def _model_case(
    name: str,
    model: Callable[[], Model],
    change: Callable[[dict[str, Tensor]], dict[str, Tensor]] = lambda parts: {},
    tol: float = EXACT,
) -> Case:
    """A model of which `change` replaces parts."""

    def inputs() -> tuple[Any, ...]:
        parts = dict(zip(PARTS, model(), strict=True))
        return tuple((parts | change(parts)).values())

    return Case(name, inputs, tol)


PARTS = ("table", "out_weight", "out_bias", "gamma", "beta", "in_weight", "in_bias")
TO_RMS_CASES = [
    _model_case("5 tokens of width 4", lambda: _model(5, 4, 6, 3)),
    _model_case("every size 4", lambda: _model(4, 4, 4, 4)),
    _model_case("a wide stream, 7", lambda: _model(2, 7, 3, 5)),
    _model_case("a stream of width 1, of which nothing is left", lambda: _model(3, 1, 2, 2)),
    _model_case("a writer with a single input, a reader with one output",
                lambda: _model(3, 5, 1, 1)),
    _model_case("numbers of size 1e-6", lambda: _model(5, 4, 6, 3, scale=1e-6, offset=0.0),
                tol=1e-15),
    _model_case("numbers around 100", lambda: _model(5, 4, 6, 3, offset=100.0), tol=1e-10),
    _model_case("a gain with zeros in it", lambda: _model(5, 4, 6, 3),
                lambda parts: {"gamma": parts["gamma"].clamp_min(0)}),
    _model_case("a LayerNorm without offset", lambda: _model(5, 4, 6, 3),
                lambda parts: {"beta": parts["beta"] * 0}),
    _model_case("an offset of size 1e4", lambda: _model(5, 4, 6, 3),
                lambda parts: {"beta": parts["beta"] * 1e4}, 1e-9),
    _model_case("a bias with equal entries", lambda: _model(5, 4, 6, 3),
                lambda parts: {"out_bias": torch.full_like(parts["out_bias"], 3.0)}),
    _model_case("a table with rows of mean zero", lambda: _model(5, 4, 6, 3),
                lambda parts: {"table": less_mean(parts["table"])}),
    _model_case("transposed weights, not contiguous", lambda: _model(5, 4, 6, 3),
                lambda parts: {name: parts[name].T.contiguous().T
                               for name in ("table", "out_weight", "in_weight")}),
    _model_case("float32", lambda: _model(5, 4, 6, 3, dtype=torch.float32), tol=1e-5),
]  # fmt: skip

# A part of the answer, from the whole model.
Part = Callable[..., Tensor]


def _new_table(m: dict[str, Tensor]) -> Tensor:
    return less_mean(m["table"])


def _new_out_weight(m: dict[str, Tensor]) -> Tensor:
    return less_mean(m["out_weight"], 0)


def _new_out_bias(m: dict[str, Tensor]) -> Tensor:
    return less_mean(m["out_bias"])


def _new_in_weight(m: dict[str, Tensor]) -> Tensor:
    return m["in_weight"] * m["gamma"]


def _new_in_bias(m: dict[str, Tensor]) -> Tensor:
    return m["in_bias"] + m["in_weight"] @ m["beta"]


@in_parts
def _converted(
    *,
    table: Part = _new_table,
    out_weight: Part = _new_out_weight,
    out_bias: Part = _new_out_bias,
    in_weight: Part = _new_in_weight,
    in_bias: Part = _new_in_bias,
) -> Answer:
    """The model converted, for a mistake to replace one of its parts."""

    def answer(*model: Tensor) -> tuple[Tensor, ...]:
        m = dict(zip(PARTS, model, strict=True))
        return tuple(part(m) for part in (table, out_weight, out_bias, in_weight, in_bias))

    # The names of the parameters, as the text has them.
    return lambda table, out_weight, out_bias, gamma, beta, in_weight, in_bias: answer(
        table, out_weight, out_bias, gamma, beta, in_weight, in_bias
    )


def _converted_by_matrices(
    table: Tensor,
    out_weight: Tensor,
    out_bias: Tensor,
    gamma: Tensor,
    beta: Tensor,
    in_weight: Tensor,
    in_bias: Tensor,
) -> tuple[Tensor, ...]:
    d = len(gamma)
    centring = torch.eye(d, dtype=table.dtype) - 1 / d
    return (
        *(table @ centring, centring @ out_weight, centring @ out_bias),
        *(in_weight @ torch.diag(gamma), F.linear(beta, in_weight, in_bias)),
    )


def _converted_in_place(
    table: Tensor,
    out_weight: Tensor,
    out_bias: Tensor,
    gamma: Tensor,
    beta: Tensor,
    in_weight: Tensor,
    in_bias: Tensor,
) -> tuple[Tensor, ...]:
    in_bias += in_weight @ beta
    in_weight *= gamma
    table -= mean_of(table)
    out_weight -= mean_of(out_weight, 0)
    out_bias -= out_bias.mean()
    return table, out_weight, out_bias, in_weight, in_bias


TO_RMS_NORM = Exercise(
    title="Convert a model with LayerNorm to RMSNorm",
    oracle=_to_rms_norm,
    cases=TO_RMS_CASES,
    variants=(_converted(), _converted_by_matrices),
    wrong=(
        WrongAnswer(
            "the table left as it is",
            "The norm reads the sum of all that was written, and the table writes first. Its rows "
            "have means too, and RMSNorm would not subtract them.",
            _converted(table=lambda m: m["table"].clone()),
        ),
        WrongAnswer(
            "the table centred over the tokens",
            "LayerNorm subtracts the mean of one token over its features. In the table that is "
            "the mean of a row.",
            _converted(table=lambda m: less_mean(m["table"], 0)),
        ),
        WrongAnswer(
            "one mean for the whole table",
            "Every token has a mean of its own, so each row of the table loses its own.",
            _converted(table=lambda m: m["table"] - m["table"].mean()),
        ),
        WrongAnswer(
            "centred over the inputs",
            "LayerNorm subtracts the mean over what the Linear writes, its outputs. In torch's "
            "layout, (d_out, d_in), that is the mean of each column.",
            _converted(out_weight=lambda m: less_mean(m["out_weight"])),
        ),
        WrongAnswer(
            "centred over inputs and outputs",
            "Only the mean of each column has to go. Taking the mean of each row away as well "
            "changes what the layer computes.",
            _converted(out_weight=lambda m: less_mean(less_mean(m["out_weight"], 0), 1)),
        ),
        WrongAnswer(
            "one mean for the whole weight",
            "Each input has its own mean over the outputs, so each column loses its own mean.",
            _converted(out_weight=lambda m: m["out_weight"] - m["out_weight"].mean()),
        ),
        WrongAnswer(
            "the writer's weight not centred",
            "Centring the bias takes a constant away. The part of the mean that depends on the "
            "input comes from the weight.",
            _converted(out_weight=lambda m: m["out_weight"].clone()),
        ),
        WrongAnswer(
            "the writer's bias not centred",
            "The bias is part of what is written, so its mean is part of the mean that LayerNorm "
            "subtracts.",
            _converted(out_bias=lambda m: m["out_bias"].clone()),
        ),
        WrongAnswer(
            "the writer's bias set to zero",
            "Only the mean of the bias goes. The differences between its entries stay.",
            _converted(out_bias=lambda m: m["out_bias"] * 0),
        ),
        WrongAnswer(
            "rows scaled in place of columns",
            "torch stores the weight as (d_out, d_in). The gain belongs to the inputs of the "
            "reader, so gamma[i] multiplies column i.",
            _converted(in_weight=lambda m: m["gamma"][:, None] * m["in_weight"]),
        ),
        WrongAnswer(
            "division by the gain",
            "The reader used to receive gamma * x_hat and now receives x_hat, so its weight has "
            "to multiply by gamma itself.",
            _converted(in_weight=lambda m: m["in_weight"] / m["gamma"]),
        ),
        WrongAnswer(
            "gain of 1 + gamma",
            "Some models, Gemma among them, store the gain minus one. Here gamma is the gain.",
            _converted(in_weight=lambda m: m["in_weight"] * (1 + m["gamma"])),
        ),
        WrongAnswer(
            "gain left out of the reader",
            "The norm has no gain any more, so the gain has to be in the reader's weight.",
            _converted(in_weight=lambda m: m["in_weight"].clone()),
        ),
        WrongAnswer(
            "offset forgotten",
            "The reader also maps the offset, to in_weight @ beta. That is added to its bias.",
            _converted(in_bias=lambda m: m["in_bias"].clone()),
        ),
        WrongAnswer(
            "offset pushed through the new weight",
            "The offset is added after the gain, so it meets the old weight. Through the new "
            "weight it would be multiplied by gamma.",
            _converted(in_bias=lambda m: m["in_bias"] + (m["in_weight"] * m["gamma"]) @ m["beta"]),
        ),
        WrongAnswer(
            "offset subtracted",
            "The reader received gamma * x_hat + beta, so in_weight @ beta is added to the bias.",
            _converted(in_bias=lambda m: m["in_bias"] - m["in_weight"] @ m["beta"]),
        ),
        WrongAnswer(
            "old bias dropped",
            "The reader still adds its own bias, beside in_weight @ beta.",
            _converted(in_bias=lambda m: m["in_weight"] @ m["beta"]),
        ),
        WrongAnswer(
            "the given model changed in place",
            "The result is right, but the tensors that were given are now other ones. Return new "
            "tensors.",
            _converted_in_place,
        ),
    ),
)
