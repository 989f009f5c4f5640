"""Questions of the assignment: log_softmax, running_logsumexp, temperature_backward."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.assignments.common import EXACT, draw, gradients
from book.checkers.core import Case, Exercise, WrongAnswer, in_parts

Pair = tuple[Tensor, Tensor]


# --- log_softmax ----------------------------------------------------------------------------------


def _log_softmax(x: Tensor, dim: int) -> Tensor:
    return F.log_softmax(x, dim)


def _log_softmax_shifted(x: Tensor, dim: int) -> Tensor:
    shifted = x - x.amax(dim, keepdim=True)
    return shifted - shifted.exp().sum(dim, keepdim=True).log()


def _log_softmax_lse(x: Tensor, dim: int) -> Tensor:
    return x - torch.logsumexp(x, dim, keepdim=True)


LOG_SOFTMAX = Exercise(
    title="Repair a log_softmax",
    oracle=_log_softmax,
    cases=[
        Case("values: rows", lambda: (draw(3, 5).requires_grad_(), -1), EXACT, grad=True),
        Case("values: columns", lambda: (draw(3, 5).requires_grad_(), 0), EXACT, grad=True),
        Case(
            "values: a square, columns", lambda: (draw(4, 4).requires_grad_(), 0), EXACT, grad=True
        ),
        Case(
            "values: the middle of three",
            lambda: (draw(2, 3, 4).requires_grad_(), 1),
            EXACT,
            grad=True,
        ),
        Case("corners: entries of 1000", lambda: (draw(3, 4, offset=1000.0), -1), EXACT),
        Case("corners: entries of -1000", lambda: (draw(3, 4, offset=-1000.0), -1), EXACT),
        Case("corners: differences of 2000", lambda: (draw(3, 4, scale=1000.0), -1), EXACT),
        Case(
            "corners: rows of different size",
            lambda: (draw(3, 4) + torch.tensor([[0.0], [900.0], [-900.0]]).double(), -1),
            EXACT,
        ),
        Case("corners: a single entry", lambda: (draw(3, 1), -1), EXACT),
    ],
    variants=(_log_softmax_shifted, _log_softmax_lse),
    wrong=(
        WrongAnswer(
            "logarithm of a softmax",
            "A probability below 1e-308 is rounded to 0, and its logarithm is -inf. Subtract "
            "log(sum(exp)) from the shifted entries.",
            lambda x, dim: x.softmax(dim).log(),
        ),
        WrongAnswer(
            "no maximum subtracted",
            "exp overflows beyond 709 in float64. Subtract the maximum of the row first.",
            lambda x, dim: x - x.exp().sum(dim, keepdim=True).log(),
        ),
        WrongAnswer(
            "maximum of the whole tensor",
            "A row that lies 800 below the tensor's maximum underflows. Each row needs its own.",
            lambda x, dim: (x - x.amax()) - (x - x.amax()).exp().sum(dim, keepdim=True).log(),
        ),
        WrongAnswer(
            "dim ignored",
            "The sum runs over the dimension that is asked for, which is not always the last.",
            lambda x, dim: F.log_softmax(x, -1),
        ),
        WrongAnswer(
            "maximum subtracted once only",
            "The maximum that was taken out of the exponentials has to be taken off x as well.",
            lambda x, dim: x - (x - x.amax(dim, keepdim=True)).exp().sum(dim, keepdim=True).log(),
        ),
        WrongAnswer(
            "keepdim forgotten",
            "Without `keepdim=True` the row sums line up with the columns, or fit nothing.",
            lambda x, dim: x - torch.logsumexp(x, dim),
        ),
        WrongAnswer(
            "sum over entries that were not shifted",
            "The maximum is taken off twice if it is taken off x and comes in the sum once more. "
            "Both parts need the same entries.",
            lambda x, dim: x - x.amax(dim, keepdim=True) - x.exp().sum(dim, keepdim=True).log(),
        ),
        WrongAnswer(
            "sum of the logarithms",
            "The logarithm stands outside the sum. Inside it undoes the exponential, and the "
            "entries themselves are added up.",
            lambda x, dim: x - x.sum(dim, keepdim=True),
        ),
        WrongAnswer(
            "a small number inside the logarithm",
            "1e-9 hides the infinity and puts a wrong value there: no result can lie below -20.7 "
            "then, and all others are a little off.",
            lambda x, dim: (x.softmax(dim) + 1e-9).log(),
        ),
        WrongAnswer(
            "one sum for the whole tensor",
            "The exponentials of each row sum to 1 by themselves. Sum along dim, not over all.",
            lambda x, dim: x - torch.logsumexp(x.flatten(), 0),
        ),
    ),
)


# --- running_logsumexp ----------------------------------------------------------------------------


def _running_logsumexp(blocks: Sequence[Tensor]) -> Tensor:
    return torch.logsumexp(torch.cat(list(blocks), -1), -1)


def _one_pass(blocks: Sequence[Tensor]) -> Tensor:
    total = torch.full(blocks[0].shape[:-1], -math.inf, dtype=blocks[0].dtype)
    for block in blocks:
        if block.shape[-1]:
            total = torch.logaddexp(total, torch.logsumexp(block, -1))
    return total


def _larger(m: Tensor, block: Tensor) -> Tensor:
    return torch.maximum(m, block.amax(-1))


@in_parts
def _running(
    rescale: bool = True,
    start: float = -math.inf,
    guard: bool = True,
    skip: bool = True,
    peak: Callable[[Tensor, Tensor], Tensor] = _larger,
    result: Callable[[Tensor, Tensor], Tensor] = lambda s, m: s.log() + m,
) -> Callable[[Sequence[Tensor]], Tensor]:
    def answer(blocks: Sequence[Tensor]) -> Tensor:
        m = torch.full(blocks[0].shape[:-1], start, dtype=blocks[0].dtype)
        s = torch.zeros_like(m)
        for block in blocks:
            if skip and not block.shape[-1]:
                continue
            new = peak(m, block)
            safe = torch.where(new.isinf(), 0.0, new) if guard else new
            old = s * (m - safe).exp() if rescale else s
            s = old + (block - safe[..., None]).exp().sum(-1)
            m = new
        return result(s, torch.where(m.isinf(), 0.0, m) if guard else m)

    return answer


def _blocks(*sizes: int, offsets: Sequence[float] = (), lead: int = 3) -> tuple[list[Tensor]]:
    offsets = offsets or [0.0] * len(sizes)
    return (
        [
            draw(lead, n, offset=o, seed=i)
            for i, (n, o) in enumerate(zip(sizes, offsets, strict=True))
        ],
    )


_APART = torch.tensor([[0.0], [900.0], [-900.0]], dtype=torch.float64)

RUNNING_LOGSUMEXP = Exercise(
    title="logsumexp in one pass over blocks",
    oracle=_running_logsumexp,
    cases=[
        Case("values: two blocks", lambda: _blocks(4, 4), EXACT),
        Case("values: blocks of different length", lambda: _blocks(5, 1, 3), EXACT),
        Case("values: a single block", lambda: _blocks(6), EXACT),
        Case("values: one row", lambda: _blocks(3, 3, 3, lead=1), EXACT),
        Case(
            "values: a maximum that grows",
            lambda: _blocks(3, 3, 3, offsets=(0.0, 5.0, 10.0)),
            EXACT,
        ),
        Case(
            "corners: around 2000, then 1000",
            lambda: _blocks(3, 3, offsets=(2000.0, 1000.0)),
            EXACT,
        ),
        Case("corners: around -2000", lambda: _blocks(3, 3, offsets=(-2000.0, -2001.0)), EXACT),
        Case(
            "corners: a first block of -inf",
            lambda: ([torch.full((3, 2), -math.inf).double(), draw(3, 4)],),
            EXACT,
        ),
        Case(
            "corners: nothing but -inf",
            lambda: ([torch.full((2, 2), -math.inf).double()] * 2,),
            EXACT,
        ),
        Case("corners: an empty block", lambda: ([draw(3, 4), draw(3, 0)],), EXACT),
        Case(
            "corners: rows far from each other",
            lambda: ([draw(3, 2, seed=i) + _APART for i in range(2)],),
            EXACT,
        ),
    ],
    variants=(_one_pass, _running()),
    wrong=(
        WrongAnswer(
            "old sum not rescaled",
            "When the maximum grows from m to m', the sum so far is multiplied by exp(m - m').",
            _running(rescale=False),
        ),
        WrongAnswer(
            "maximum that starts at zero",
            "For rows far below zero every exponential underflows. The maximum starts at -inf.",
            _running(start=0.0),
        ),
        WrongAnswer(
            "-inf minus -inf",
            "A block of -inf leaves the maximum at -inf, and -inf - (-inf) is nan. Subtract a "
            "finite number there.",
            _running(guard=False),
        ),
        WrongAnswer(
            "no maximum at all",
            "exp overflows beyond 709 and underflows below -745 in float64. Keep a maximum.",
            lambda blocks: torch.stack([b.exp().sum(-1) for b in blocks]).sum(0).log(),
        ),
        WrongAnswer(
            "results of the blocks added",
            "logsumexp is the logarithm of a sum. Two of them are merged by exponentials.",
            lambda blocks: torch.stack([torch.logsumexp(b, -1) for b in blocks]).sum(0),
        ),
        WrongAnswer(
            "largest block taken",
            "The largest of the blocks' results is a lower bound only; the others add to it.",
            lambda blocks: torch.stack([torch.logsumexp(b, -1) for b in blocks]).amax(0),
        ),
        WrongAnswer(
            "maximum not put back",
            "The exponentials were taken of what is left without the maximum; the logarithm of "
            "their sum still lacks it.",
            _running(result=lambda s, m: s.log()),
        ),
        WrongAnswer(
            "maximum of an empty block",
            "A block without columns has no maximum, and torch raises. It adds nothing either.",
            _running(skip=False),
        ),
        WrongAnswer(
            "maximum that may fall",
            "After a block around 2000, one around 1000 takes the old sum times exp(1000), which "
            "is infinite. A maximum over all so far never falls.",
            _running(peak=lambda m, block: block.amax(-1)),
        ),
        WrongAnswer(
            "one maximum for all rows",
            "A row that lies 900 below the largest one underflows. Each row has its own maximum.",
            _running(peak=lambda m, block: _larger(m, block).amax().expand_as(m)),
        ),
    ),
)


# --- temperature_backward -------------------------------------------------------------------------


def _temperature_backward(grad_out: Tensor, x: Tensor, t: Tensor) -> tuple[Tensor, ...]:
    return gradients(lambda x, t: (x / t).softmax(-1), grad_out, x, t)


def _sent_back(p: Tensor, g: Tensor) -> Tensor:
    """Through a softmax that gave `p`."""
    return p * (g - (g * p).sum(-1, keepdim=True))


@in_parts
def _tempered(
    scale: Callable[[Tensor, Tensor], Tensor] = lambda g, t: g / t,
    of_t: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda g, x, t: -(g * x).sum() / t**2,
    sent: Callable[[Tensor, Tensor], Tensor] = _sent_back,
    inside: Callable[[Tensor, Tensor], Tensor] = lambda x, t: x / t,
) -> Callable[[Tensor, Tensor, Tensor], Pair]:
    def answer(grad_out: Tensor, x: Tensor, t: Tensor) -> Pair:
        g = sent(inside(x, t).softmax(-1), grad_out)
        return scale(g, t), of_t(g, x, t)

    return answer


def _tempered_by_matrix(grad_out: Tensor, x: Tensor, t: Tensor) -> Pair:
    p = (x / t).softmax(-1)
    jacobian = torch.diag_embed(p) - p[..., :, None] * p[..., None, :]
    grad_x = (jacobian @ grad_out[..., None])[..., 0] / t
    return grad_x, -(grad_x * x).sum() / t


def _temperature(name: str, x: Callable[[], Tensor], t: float) -> Case:
    def inputs() -> tuple[Tensor, Tensor, Tensor]:
        y = x()
        return draw(*y.shape, seed=3), y, torch.tensor(t, dtype=torch.float64)

    return Case(name, inputs, EXACT)


TEMPERATURE_BACKWARD = Exercise(
    title="Softmax with a temperature, backwards",
    oracle=_temperature_backward,
    cases=[
        _temperature("values: warm", lambda: draw(3, 5), 2.0),
        _temperature("values: cold", lambda: draw(3, 5), 0.5),
        _temperature("values: one row", lambda: draw(5), 1.5),
        _temperature("values: three dimensions", lambda: draw(2, 3, 4), 0.8),
        _temperature("corners: temperature 1", lambda: draw(4, 4), 1.0),
        _temperature("corners: entries around 1000", lambda: draw(3, 4, offset=1000.0), 1.3),
        _temperature("corners: a single class", lambda: draw(3, 1), 2.0),
    ],
    variants=(_tempered(), _tempered_by_matrix),
    wrong=(
        WrongAnswer(
            "temperature left out of the gradient of x",
            "The softmax sees x / t, so what it sends back is divided by t once more.",
            _tempered(scale=lambda g, t: g.clone()),
        ),
        WrongAnswer(
            "gradient multiplied by the temperature",
            "The inner derivative of x / t is 1 / t.",
            _tempered(scale=lambda g, t: g * t),
        ),
        WrongAnswer(
            "sign of the temperature's gradient",
            "A higher temperature makes x / t smaller: its derivative is -x / t**2.",
            _tempered(of_t=lambda g, x, t: (g * x).sum() / t**2),
        ),
        WrongAnswer(
            "temperature's square forgotten",
            "The derivative of 1 / t is -1 / t**2, not -1 / t.",
            _tempered(of_t=lambda g, x, t: -(g * x).sum() / t),
        ),
        WrongAnswer(
            "row mean of the gradient not removed",
            "The entries of a row share their denominator, so that p * (g - sum(g p)) comes back.",
            _tempered(sent=lambda p, g: p * g),
        ),
        WrongAnswer(
            "multiplied by the temperature forward",
            "Softmax with temperature t is softmax(x / t). Times t is an inverse temperature.",
            _tempered(inside=lambda x, t: x * t),
        ),
        WrongAnswer(
            "softmax of x without the temperature",
            "The probabilities that come back into the gradient are those of x / t, as forward.",
            _tempered(inside=lambda x, t: x),
        ),
        WrongAnswer(
            "plain mean of the gradient removed",
            "What is taken off is the mean under p, in which likely entries weigh more.",
            _tempered(sent=lambda p, g: p * (g - g.mean(-1, keepdim=True))),
        ),
        WrongAnswer(
            "temperature's gradient not summed over rows",
            "One temperature acts on all entries of all rows, so its gradient is a single number.",
            _tempered(of_t=lambda g, x, t: -(g * x).sum(-1) / t**2),
        ),
        WrongAnswer(
            "temperature's gradient averaged",
            "Every entry has its own effect on the result, and the effects of a common "
            "temperature add up.",
            _tempered(of_t=lambda g, x, t: -(g * x).mean() / t**2),
        ),
    ),
)


EXERCISES = {
    "log_softmax": LOG_SOFTMAX,
    "running_logsumexp": RUNNING_LOGSUMEXP,
    "temperature_backward": TEMPERATURE_BACKWARD,
}
