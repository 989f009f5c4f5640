"""Questions of the assignment: batch_norm_backward, block_backward, layer_norm_jvp."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.assignments.common import draw, gradients
from book.checkers.assignments.normalization_and_residuals.norms import EPS, row_mean
from book.checkers.core import Case, Exercise, WrongAnswer, in_parts

# --- batch_norm_backward --------------------------------------------------------------------------


def _bn_backward(
    grad_out: Tensor,
    x: Tensor,
    mean: Tensor,
    var: Tensor,
    weight: Tensor,
    training: bool,
    eps: float,
) -> tuple[Tensor, ...]:
    return gradients(
        lambda x, w, b: F.batch_norm(x, mean.clone(), var.clone(), w, b, training, 0.1, eps),
        grad_out, x, weight, torch.zeros_like(weight),
    )  # fmt: skip


@in_parts
def _bn_back(
    train: Callable[..., Tensor] = lambda g, xh: g - g.mean(0) - xh * (g * xh).mean(0),
    frozen: bool = True, always: bool = False, gain: bool = True, stats: bool = True,
    spread: Callable[[Tensor], Tensor] = lambda x: x.var(0, correction=0),
    over: Callable[[Tensor], Tensor] = lambda g: g.sum(0),
    seen: Callable[[Tensor, Tensor], Tensor] = lambda x, xh: xh,
) -> Callable[..., tuple[Tensor, ...]]:  # fmt: skip
    def answer(
        grad_out: Tensor, x: Tensor, mean: Tensor, var: Tensor, weight: Tensor, training: bool,
        eps: float,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        if training or not stats:
            mean, var = x.mean(0), spread(x)
        root = (var + eps).sqrt()
        x_hat = (x - mean) / root
        g = grad_out * weight if gain else grad_out
        inner = train(g, x_hat) if (training and frozen) or always else g
        return inner / root, over(grad_out * seen(x, x_hat)), over(grad_out)

    return answer


def _bnb_case(
    name: str, n: int, d: int, training: bool, scale: float = 1.0, eps: float = EPS
) -> Case:
    return Case(
        name,
        lambda: (draw(n, d, seed=1), draw(n, d, seed=2, scale=scale), draw(d, seed=3),
                 draw(d, seed=4).square() + 0.1, draw(d, seed=5, offset=1.0), training, eps),
        1e-9,
    )  # fmt: skip


BATCH_NORM_BACKWARD = Exercise(
    title="BatchNorm backwards, in training and frozen",
    oracle=_bn_backward,
    cases=[
        _bnb_case("training: eight rows", 8, 3, True),
        _bnb_case("training: two rows", 2, 4, True),
        _bnb_case("training: a larger eps", 7, 3, True, eps=0.1),
        _bnb_case("training: a square batch", 5, 5, True),
        _bnb_case("training: tiny features", 6, 3, True, scale=1e-3),
        _bnb_case("frozen: eight rows", 8, 3, False),
        _bnb_case("frozen: a single row", 1, 4, False),
        _bnb_case("frozen: a larger eps", 7, 3, False, eps=0.1),
        _bnb_case("frozen: a square batch", 5, 5, False),
    ],
    variants=(
        _bn_back(),
        _bn_back(train=lambda g, xh: g - (g.sum(0) + xh * (g * xh).sum(0)) / len(g)),
    ),
    wrong=(
        WrongAnswer(
            "statistics taken as constants in training",
            "In training mean and variance depend on every row of x, which adds two terms.",
            _bn_back(frozen=False),
        ),
        WrongAnswer(
            "terms of training in a frozen norm",
            "The running statistics do not depend on this batch, so nothing flows through them.",
            _bn_back(always=True),
        ),
        WrongAnswer(
            "statistics of the batch in a frozen norm",
            "Frozen, the norm uses the mean and the variance that it was given.",
            _bn_back(stats=False),
        ),
        WrongAnswer(
            "term of the variance forgotten",
            "Besides the mean the variance depends on x: - x_hat * mean(g * x_hat).",
            _bn_back(train=lambda g, xh: g - g.mean(0)),
        ),
        WrongAnswer(
            "term of the mean forgotten",
            "Besides the variance the mean depends on x, and takes mean(g) away.",
            _bn_back(train=lambda g, xh: g - xh * (g * xh).mean(0)),
        ),
        WrongAnswer(
            "averaged over the features",
            "BatchNorm averages over the rows of each feature; the last dimension is LayerNorm's.",
            _bn_back(train=lambda g, xh: g - row_mean(g) - xh * row_mean(g * xh)),
        ),
        WrongAnswer(
            "gain left out of the gradient of x",
            "x_hat is multiplied by the gain, and so is what comes back.",
            _bn_back(gain=False),
        ),
        WrongAnswer(
            "sums over the rows, not means",
            "Each row has a share of 1 / N in mean and variance. Here every row counts as if it "
            "were all.",
            _bn_back(train=lambda g, xh: g - g.sum(0) - xh * (g * xh).sum(0)),
        ),
        WrongAnswer(
            "variance with Bessel's correction",
            "torch's `var` divides by N - 1 if it is not told. The norm's variance divides by N.",
            _bn_back(spread=lambda x: x.var(0)),
        ),
        WrongAnswer(
            "gradients of gain and bias averaged",
            "Every row uses the same gain and bias, so that what comes back from them adds up.",
            _bn_back(over=lambda g: g.mean(0)),
        ),
        WrongAnswer(
            "gradient of the gain from x itself",
            "The gain multiplies the normalised features, so that its gradient is made of "
            "those, not of x.",
            _bn_back(seen=lambda x, xh: x),
        ),
    ),
)

# --- block_backward -------------------------------------------------------------------------------


def _block_backward(
    grad_out: Tensor, x: Tensor, gain: Tensor, w: Tensor, eps: float
) -> tuple[Tensor, ...]:
    return gradients(
        lambda x, gain, w: x + F.rms_norm(x, x.shape[-1:], gain, eps) @ w, grad_out, x, gain, w
    )


@in_parts
def _block(
    skip: bool = True, branch: bool = True, project: bool = True, gained: bool = True,
    turned: bool = True, normed: bool = True, minus: float = 1.0, gain_late: bool = False,
    mean: Callable[[Tensor], Tensor] = row_mean,
    laid: Callable[[Tensor], Tensor] = lambda grad_w: grad_w,
) -> Callable[..., tuple[Tensor, ...]]:  # fmt: skip
    def answer(g: Tensor, x: Tensor, gain: Tensor, w: Tensor, eps: float) -> tuple[Tensor, ...]:
        s = (x.square().mean(-1, keepdim=True) + eps).sqrt()
        x_hat = x / s
        back = g @ (w.T if turned else w)
        at_hat = back * gain if gained else back
        through = at_hat - minus * x_hat * mean(at_hat * x_hat) if project else at_hat
        grad_x = through / s * branch + g * skip
        seen = x_hat * gain if normed else x
        late = (g if gain_late else back) * x_hat
        grad_w = seen.flatten(0, -2).T @ g.flatten(0, -2)
        return grad_x, late.flatten(0, -2).sum(0), laid(grad_w)

    return answer


def _block_einsum(g: Tensor, x: Tensor, gain: Tensor, w: Tensor, eps: float) -> tuple[Tensor, ...]:
    r = torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)
    back = torch.einsum("...o,io->...i", g, w)
    t = back * gain
    grad_x = g + r * t - x * r**3 * (t * x).mean(-1, keepdim=True)
    grad_w = torch.einsum("...i,...o->io", x * r * gain, g)
    return grad_x, torch.einsum("...i,...i->i", back, x * r), grad_w


def _block_case(name: str, *lead: int, d: int = 5, scale: float = 1.0, eps: float = EPS) -> Case:
    return Case(
        name,
        lambda: (draw(*lead, d, seed=1), draw(*lead, d, seed=2, scale=scale),
                 draw(d, seed=3, offset=1.0), draw(d, d, seed=4), eps),
        1e-9,
    )  # fmt: skip


BLOCK_BACKWARD = Exercise(
    title="A Pre-Norm residual block backwards",
    oracle=_block_backward,
    cases=[
        _block_case("values: sequences", 2, 3),
        _block_case("values: a batch of rows", 4, d=6),
        _block_case("values: a large eps", 4, eps=0.5),
        _block_case("corners: as many rows as features", 5),
        _block_case("corners: a single row", 1),
        _block_case("corners: a deep, large stream", 2, 3, scale=100.0),
        _block_case("corners: a tiny stream", 2, 3, scale=1e-3),
    ],
    variants=(_block(), _block_einsum),
    wrong=(
        WrongAnswer(
            "skip path forgotten",
            "y = x + branch(x), so what arrives goes back to x unchanged as well.",
            _block(skip=False),
        ),
        WrongAnswer(
            "branch forgotten",
            "The branch depends on x too, so that its gradient is added to the skip path's.",
            _block(branch=False),
        ),
        WrongAnswer(
            "divisor taken as a constant",
            "The root mean square depends on x: take x_hat * mean(g * x_hat) away.",
            _block(project=False),
        ),
        WrongAnswer(
            "projection added",
            "A longer x makes the divisor larger, which takes something away: the sign is minus.",
            _block(minus=-1.0),
        ),
        WrongAnswer(
            "gain left out on the way back",
            "x_hat is multiplied by the gain before the matrix, so what comes back is as well.",
            _block(gained=False),
        ),
        WrongAnswer(
            "matrix not transposed",
            "What comes back through n @ w is multiplied by w transposed.",
            _block(turned=False),
        ),
        WrongAnswer(
            "gradient of w from x itself",
            "The matrix saw the normalised rows with their gain, not the stream.",
            _block(normed=False),
        ),
        WrongAnswer(
            "gradient of the gain without the matrix",
            "The gain stands before the matrix, so its gradient is made of g @ w.T.",
            _block(gain_late=True),
        ),
        WrongAnswer(
            "sum over the features, not their mean",
            "The root *mean* square divides by d, and the term that comes from it does as well.",
            _block(mean=lambda t: t.sum(-1, keepdim=True)),
        ),
        WrongAnswer(
            "gradient of w transposed",
            "w is square, so that the shape fits. Its rows belong to what goes in, its columns "
            "to what comes out.",
            _block(laid=lambda grad_w: grad_w.T),
        ),
    ),
)

# --- layer_norm_jvp -------------------------------------------------------------------------------


def _layer_norm_jvp(x: Tensor, v: Tensor, eps: float) -> Tensor:
    # The double-backward trick: the derivative in u of u -> J^T u, contracted with v.
    x = x.detach().clone().requires_grad_()
    u = torch.zeros_like(x, requires_grad=True)
    y = F.layer_norm(x, x.shape[-1:], eps=eps)
    back = torch.autograd.grad(y, x, u, create_graph=True)[0]
    return torch.autograd.grad(back, u, v)[0]


@in_parts
def _jvp(
    centre: bool = True, project: bool = True, divide: int = 1, rms: bool = False,
    root: Callable[[Tensor, float], Tensor] = lambda var, eps: (var + eps).sqrt(),
    along: Callable[[Tensor, Tensor], Tensor] = lambda h, v: h * row_mean(h * v),
) -> Callable[..., Tensor]:  # fmt: skip
    def answer(x: Tensor, v: Tensor, eps: float) -> Tensor:
        c = x if rms else x - row_mean(x)
        s = root(c.square().mean(-1, keepdim=True), eps)
        h = c / s
        t = v - row_mean(v) if centre and not rms else v
        t = t - along(h, v) if project else t
        return t / s**divide

    return answer


def _jvp_product(x: Tensor, v: Tensor, eps: float) -> Tensor:
    c, dc = x - row_mean(x), v - row_mean(v)
    r = torch.rsqrt(row_mean(c * c) + eps)
    return dc * r - c * r**3 * row_mean(c * dc)


def _jvp_case(
    name: str, *shape: int, scale: float = 1.0, eps: float = EPS, along: bool = False
) -> Case:
    def inputs() -> tuple[Tensor, Tensor, float]:
        x = draw(*shape, seed=1, scale=scale)
        return x, x * 0.5 if along else draw(*shape, seed=2, offset=0.5), eps

    return Case(name, inputs, 1e-9)


LAYER_NORM_JVP = Exercise(
    title="LayerNorm forwards: the derivative in a direction",
    oracle=_layer_norm_jvp,
    cases=[
        _jvp_case("values: rows", 3, 6),
        _jvp_case("values: sequences", 2, 3, 5),
        _jvp_case("values: a single vector", 7),
        _jvp_case("corners: in the direction of x", 3, 6, along=True),
        _jvp_case("corners: a large eps", 3, 6, eps=0.5),
        _jvp_case("corners: large rows", 3, 6, scale=100.0),
        _jvp_case("corners: a square", 5, 5),
    ],
    variants=(_jvp(), _jvp_product),
    wrong=(
        WrongAnswer(
            "direction not centred",
            "The norm subtracts the mean, so the mean of the direction is lost too.",
            _jvp(centre=False),
        ),
        WrongAnswer(
            "divisor taken as a constant",
            "Moving x changes its standard deviation: take x_hat * mean(x_hat * v) away.",
            _jvp(project=False),
        ),
        WrongAnswer(
            "not divided by the standard deviation",
            "The output is scaled by 1 / s, and so is every derivative of it.",
            _jvp(divide=0),
        ),
        WrongAnswer(
            "divided twice",
            "With x_hat in the formula one factor of 1 / s is left.",
            _jvp(divide=2),
        ),
        WrongAnswer(
            "RMSNorm's derivative",
            "LayerNorm centres x as well as the direction; RMSNorm does not.",
            _jvp(rms=True),
        ),
        WrongAnswer(
            "direction normalised",
            "The derivative is linear in v, so v is not sent through the norm.",
            lambda x, v, eps: F.layer_norm(v, v.shape[-1:], eps=eps),
        ),
        WrongAnswer(
            "eps outside the root",
            "eps is added to the variance here only after the root; the norm adds it under the "
            "root.",
            _jvp(root=lambda var, eps: var.sqrt() + eps),
        ),
        WrongAnswer(
            "projection added",
            "A direction along x_hat makes the divisor larger, which takes something away. The "
            "sign is the other one.",
            _jvp(along=lambda h, v: -h * row_mean(h * v)),
        ),
        WrongAnswer(
            "sum over the features, not their mean",
            "The variance is a mean over the features, and what comes from it is one too.",
            _jvp(along=lambda h, v: h * (h * v).sum(-1, keepdim=True)),
        ),
        WrongAnswer(
            "a finite step",
            "norm(x + v) - norm(x) walks the whole way along a curve. The derivative is its "
            "slope at the beginning.",
            lambda x, v, eps: (
                F.layer_norm(x + v, x.shape[-1:], eps=eps) - F.layer_norm(x, x.shape[-1:], eps=eps)
            ),
        ),
    ),
)


EXERCISES = {
    "batch_norm_backward": BATCH_NORM_BACKWARD,
    "block_backward": BLOCK_BACKWARD,
    "layer_norm_jvp": LAYER_NORM_JVP,
}
