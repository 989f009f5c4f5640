"""Assignment 4, chapters 8 and 9: norms over parts, derivatives both ways, folding, depth."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.assignments.common import EXACT, draw, gradients
from book.checkers.core import Case, Exercise, WrongAnswer, in_parts

EPS = 1e-5
Pair = tuple[Tensor, Tensor]


def _mean(x: Tensor) -> Tensor:
    return x.mean(-1, keepdim=True)


# --- group_norm -----------------------------------------------------------------------------------


def _group_norm(x: Tensor, groups: int, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    rows = x.reshape(-1, x.shape[-1])
    return F.group_norm(rows, groups, weight, bias, eps).reshape(x.shape)


@in_parts
def _grouped(
    cut: Callable[[Tensor, int], Tensor] = lambda x, g: torch.unflatten(x, -1, (g, -1)),
    back: Callable[[Tensor], Tensor] = lambda y: y.flatten(-2),
    centre: bool = True,
    correction: int = 0,
    outside: bool = False,
    dims: tuple[int, ...] = (-1,),
    affine: bool = True,
) -> Callable[..., Tensor]:
    def answer(x: Tensor, groups: int, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        y = cut(x, groups)
        c = y - y.mean(dims, keepdim=True)
        n = math.prod(y.shape[i] for i in dims)
        var = c.square().sum(dims, keepdim=True) / (n - correction)
        root = var.sqrt() + eps if outside else (var + eps).sqrt()
        y = back((c if centre else y) / root)
        return y * weight + bias if affine else y

    return answer


def _gn_case(name: str, *shape: int, groups: int, scale: float = 1.0, tol: float = EXACT,
             eps: float = EPS, dtype: torch.dtype = torch.float64) -> Case:  # fmt: skip
    def inputs() -> tuple[object, ...]:
        d = shape[-1]
        return (
            draw(*shape, scale=scale, offset=0.5 * scale, dtype=dtype).requires_grad_(), groups,
            draw(d, seed=1, offset=0.5, dtype=dtype).requires_grad_(),
            draw(d, seed=2, dtype=dtype).requires_grad_(), eps,
        )  # fmt: skip

    return Case(name, inputs, tol, grad=dtype == torch.float64)


GROUP_NORM = Exercise(
    title="Group norm over the features of each token",
    oracle=_group_norm,
    cases=[
        _gn_case("values: two groups", 2, 3, 8, groups=2),
        _gn_case("values: four groups", 2, 5, 12, groups=4),
        _gn_case("values: a matrix", 5, 6, groups=3),
        _gn_case("values: a larger eps", 2, 3, 8, groups=2, eps=0.1),
        _gn_case("corners: one group", 2, 3, 6, groups=1),
        _gn_case("corners: as many tokens as features", 2, 6, 6, groups=3),
        _gn_case("corners: tiny features", 2, 3, 8, groups=2, scale=1e-4),
        _gn_case("corners: large features", 2, 3, 8, groups=2, scale=1e4),
        _gn_case("corners: float32", 2, 3, 8, groups=2, tol=1e-5, dtype=torch.float32),
    ],
    variants=(_grouped(),),
    wrong=(
        WrongAnswer(
            "groups ignored",
            "That is LayerNorm: every group has a mean and a variance of its own.",
            lambda x, g, w, b, eps: F.layer_norm(x, x.shape[-1:], w, b, eps),
        ),
        WrongAnswer(
            "groups of every g-th feature",
            "A group holds neighbouring features: (groups, d / groups), in this order.",
            _grouped(
                cut=lambda x, g: torch.unflatten(x, -1, (-1, g)).mT, back=lambda y: y.mT.flatten(-2)
            ),
        ),
        WrongAnswer(
            "statistics shared by the tokens",
            "GroupNorm for images averages over positions too. Here each token stands alone, or "
            "later tokens would leak into earlier ones.",
            _grouped(dims=(-3, -1)),
        ),
        WrongAnswer(
            "eps outside the root",
            "The divisor is sqrt(var + eps). Tiny groups should stay small.",
            _grouped(outside=True),
        ),
        WrongAnswer(
            "division by one less",
            "A norm's variance divides by the number of features, without Bessel's correction.",
            _grouped(correction=1),
        ),
        WrongAnswer(
            "mean not subtracted",
            "GroupNorm centres each group before it divides. Without that it is an RMSNorm "
            "divided by the wrong root.",
            _grouped(centre=False),
        ),
        WrongAnswer(
            "gain and bias forgotten",
            "Each feature has its own gain and bias, applied after the groups are normalised.",
            _grouped(affine=False),
        ),
    ),
)

# --- partial_rms_norm -----------------------------------------------------------------------------


def _partial_rms_norm(x: Tensor, k: int, weight: Tensor, eps: float) -> Tensor:
    # F.rms_norm of the first k features tells the divisor.
    return x * weight * torch.rsqrt(x.narrow(-1, 0, k).square().mean(-1, keepdim=True) + eps)


@in_parts
def _partial(
    chosen: Callable[[Tensor, int], Tensor] = lambda x, k: x[..., :k],
    count: Callable[[Tensor, int], int] = lambda x, k: k,
    outside: bool = False,
    rest: bool = True,
    centre: bool = False,
) -> Callable[..., Tensor]:
    def answer(x: Tensor, k: int, weight: Tensor, eps: float) -> Tensor:
        part = chosen(x, k)
        part = part - _mean(part) if centre else part
        square = part.pow(2).sum(-1, keepdim=True) / count(x, k)
        y = x / (square.sqrt() + eps if outside else (square + eps).sqrt())
        if not rest:
            y = torch.cat([y[..., :k], x[..., k:]], -1)
        return weight * y

    return answer


def _partial_case(name: str, *shape: int, k: int, scale: float = 1.0, eps: float = EPS) -> Case:
    return Case(
        name,
        lambda: (draw(*shape, scale=scale, offset=0.5 * scale).requires_grad_(), k,
                 draw(shape[-1], seed=1, offset=0.5).requires_grad_(), eps),
        EXACT, grad=True,
    )  # fmt: skip


PARTIAL_RMS_NORM = Exercise(
    title="RMSNorm that looks at a part of the features",
    oracle=_partial_rms_norm,
    cases=[
        _partial_case("values: 2 of 8 features", 3, 8, k=2),
        _partial_case("values: sequences, 3 of 6", 2, 4, 6, k=3),
        _partial_case("values: a single vector", 7, k=4),
        _partial_case("corners: all features", 3, 5, k=5),
        _partial_case("corners: one feature", 3, 5, k=1),
        _partial_case("corners: tiny features", 3, 8, k=2, scale=1e-4),
        _partial_case("corners: another eps", 3, 8, k=4, eps=0.5),
    ],
    variants=(_partial(),),
    wrong=(
        WrongAnswer(
            "all features looked at",
            "That is the full RMSNorm. The partial one estimates the size from the first k.",
            _partial(chosen=lambda x, k: x, count=lambda x, k: x.shape[-1]),
        ),
        WrongAnswer(
            "divided by the whole width",
            "The mean square of k features divides their sum by k.",
            _partial(count=lambda x, k: x.shape[-1]),
        ),
        WrongAnswer(
            "last features looked at",
            "The task asks for the first k features.",
            _partial(chosen=lambda x, k: x[..., -k:]),
        ),
        WrongAnswer(
            "only the part normalised",
            "All features are divided. Only the estimate of their size comes from the first k.",
            _partial(rest=False),
        ),
        WrongAnswer(
            "eps outside the root",
            "The divisor is sqrt(mean square + eps). Tiny features should stay small.",
            _partial(outside=True),
        ),
        WrongAnswer(
            "centred first",
            "RMSNorm subtracts no mean, neither in the numerator nor in the mean square.",
            _partial(centre=True),
        ),
    ),
)

# --- fold_batch_norm ------------------------------------------------------------------------------


def _fold_batch_norm(
    weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, gamma: Tensor, beta: Tensor, eps: float
) -> Pair:
    def whole(x: Tensor) -> Tensor:
        return F.batch_norm(F.linear(x, weight, bias), mean, var, gamma, beta, False, 0.0, eps)

    d_in = weight.shape[1]
    at_zero = whole(torch.zeros(1, d_in, dtype=weight.dtype))
    return (whole(torch.eye(d_in, dtype=weight.dtype)) - at_zero).T.contiguous(), at_zero[0]


@in_parts
def _fold_bn(
    scale: Callable[..., Tensor] = lambda gamma, var, eps: gamma / (var + eps).sqrt(),
    new_weight: Callable[[Tensor, Tensor], Tensor] = lambda w, s: w * s[:, None],
    new_bias: Callable[..., Tensor] = lambda b, m, s, beta: (b - m) * s + beta,
) -> Callable[..., Pair]:
    def answer(
        w: Tensor, b: Tensor, m: Tensor, v: Tensor, g: Tensor, beta: Tensor, eps: float
    ) -> Pair:
        s = scale(g, v, eps)
        return new_weight(w, s), new_bias(b, m, s, beta)

    return answer


def _bn_case(name: str, d_out: int, d_in: int, scale: float = 1.0, mean: float = 0.5,
             eps: float = EPS) -> Case:  # fmt: skip
    return Case(
        name,
        lambda: (draw(d_out, d_in), draw(d_out, seed=1), draw(d_out, seed=2, offset=mean),
                 scale * draw(d_out, seed=3).square(), draw(d_out, seed=4, offset=1.0),
                 draw(d_out, seed=5), eps),
        1e-9,
    )  # fmt: skip


FOLD_BATCH_NORM = Exercise(
    title="Fold a BatchNorm into the Linear before it",
    oracle=_fold_batch_norm,
    spared=dict.fromkeys(("tiny",), "what cancels there is rounding"),
    cases=[
        _bn_case("values: 6 to 4", 4, 6),
        _bn_case("values: 3 to 7", 7, 3),
        _bn_case("values: a large eps", 4, 6, eps=0.1),
        _bn_case("corners: a square weight", 5, 5),
        _bn_case("corners: tiny variances", 4, 6, scale=1e-6),
        _bn_case("corners: far from zero", 4, 6, mean=100.0),
        _bn_case("corners: a single output", 1, 4),
    ],
    variants=(
        _fold_bn(),
        _fold_bn(
            new_weight=lambda w, s: torch.diag(s) @ w,
            new_bias=lambda b, m, s, beta: beta + s * b - s * m,
        ),
    ),
    wrong=(
        WrongAnswer(
            "columns scaled",
            "The norm comes after the Linear, so its scale belongs to the outputs, the rows.",
            _fold_bn(new_weight=lambda w, s: w * s),
        ),
        WrongAnswer(
            "variance taken for its root",
            "The running variance is divided by as sqrt(var + eps).",
            _fold_bn(scale=lambda g, v, eps: g / (v + eps)),
        ),
        WrongAnswer(
            "eps outside the root",
            "The divisor is sqrt(var + eps), which matters for features that hardly vary.",
            _fold_bn(scale=lambda g, v, eps: g / (v.sqrt() + eps)),
        ),
        WrongAnswer(
            "old bias not scaled",
            "The old bias goes through the norm as well: (bias - mean) * scale + beta.",
            _fold_bn(new_bias=lambda b, m, s, beta: b - m * s + beta),
        ),
        WrongAnswer(
            "mean not scaled",
            "The mean is subtracted before the division, so it is scaled too.",
            _fold_bn(new_bias=lambda b, m, s, beta: b * s - m + beta),
        ),
        WrongAnswer(
            "old bias dropped",
            "The Linear's own bias stays part of what the norm receives.",
            _fold_bn(new_bias=lambda b, m, s, beta: beta - m * s),
        ),
        WrongAnswer(
            "beta scaled",
            "The norm adds beta last, after the division and the gain.",
            _fold_bn(new_bias=lambda b, m, s, beta: (b - m + beta) * s),
        ),
    ),
)

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
) -> Callable[..., tuple[Tensor, ...]]:  # fmt: skip
    def answer(
        grad_out: Tensor, x: Tensor, mean: Tensor, var: Tensor, weight: Tensor, training: bool,
        eps: float,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        if training or not stats:
            mean, var = x.mean(0), x.var(0, correction=0)
        root = (var + eps).sqrt()
        x_hat = (x - mean) / root
        g = grad_out * weight if gain else grad_out
        inner = train(g, x_hat) if (training and frozen) or always else g
        return inner / root, (grad_out * x_hat).sum(0), grad_out.sum(0)

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
            _bn_back(train=lambda g, xh: g - _mean(g) - xh * _mean(g * xh)),
        ),
        WrongAnswer(
            "gain left out of the gradient of x",
            "x_hat is multiplied by the gain, and so is what comes back.",
            _bn_back(gain=False),
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
) -> Callable[..., tuple[Tensor, ...]]:  # fmt: skip
    def answer(g: Tensor, x: Tensor, gain: Tensor, w: Tensor, eps: float) -> tuple[Tensor, ...]:
        s = (x.square().mean(-1, keepdim=True) + eps).sqrt()
        x_hat = x / s
        back = g @ (w.T if turned else w)
        at_hat = back * gain if gained else back
        through = at_hat - minus * x_hat * _mean(at_hat * x_hat) if project else at_hat
        grad_x = through / s * branch + g * skip
        seen = x_hat * gain if normed else x
        late = (g if gain_late else back) * x_hat
        return (
            grad_x, late.flatten(0, -2).sum(0), seen.flatten(0, -2).T @ g.flatten(0, -2),
        )  # fmt: skip

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
) -> Callable[..., Tensor]:  # fmt: skip
    def answer(x: Tensor, v: Tensor, eps: float) -> Tensor:
        c = x if rms else x - _mean(x)
        s = (c.square().mean(-1, keepdim=True) + eps).sqrt()
        h = c / s
        t = v - _mean(v) if centre and not rms else v
        t = t - h * _mean(h * v) if project else t
        return t / s**divide

    return answer


def _jvp_product(x: Tensor, v: Tensor, eps: float) -> Tensor:
    c, dc = x - _mean(x), v - _mean(v)
    r = torch.rsqrt(_mean(c * c) + eps)
    return dc * r - c * r**3 * _mean(c * dc)


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
    ),
)

# --- fold_layer_norm ------------------------------------------------------------------------------


def _fold_layer_norm(gain: Tensor, offset: Tensor, weight: Tensor, bias: Tensor) -> Pair:
    d = len(gain)
    centring = torch.eye(d, dtype=gain.dtype) - torch.full((d, d), 1 / d, dtype=gain.dtype)
    return centring @ torch.diag(gain) @ weight, offset @ weight + bias


@in_parts
def _fold(
    scale: Callable[[Tensor, Tensor], Tensor] = lambda g, w: g[:, None] * w,
    centre: Callable[[Tensor], Tensor] = lambda w: w - w.mean(0),
    new_bias: Callable[..., Tensor] = lambda o, w, b, new: b + (o[:, None] * w).sum(0),
    before: bool = False,
) -> Callable[..., Pair]:
    def answer(gain: Tensor, offset: Tensor, weight: Tensor, bias: Tensor) -> Pair:
        new = scale(gain, centre(weight)) if before else centre(scale(gain, weight))
        return new, new_bias(offset, weight, bias, new)

    return answer


def _fold_case(name: str, d_in: int, d_out: int, flat: bool = False) -> Case:
    return Case(
        name,
        lambda: (torch.ones(d_in, dtype=torch.float64) if flat else draw(d_in, seed=1, offset=1.0),
                 draw(d_in, seed=2, offset=0.3), draw(d_in, d_out, seed=3, offset=0.2),
                 draw(d_out, seed=4)),
        EXACT,
    )  # fmt: skip


FOLD_LAYER_NORM = Exercise(
    title="Fold gain, offset and the subtraction of the mean into the next matrix",
    oracle=_fold_layer_norm,
    cases=[
        _fold_case("values: 6 to 4", 6, 4),
        _fold_case("values: 3 to 7", 3, 7),
        _fold_case("values: 8 to 2", 8, 2),
        _fold_case("corners: a square weight", 5, 5),
        _fold_case("corners: a gain of ones", 4, 6, flat=True),
        _fold_case("corners: a single output", 5, 1),
    ],
    variants=(_fold(),),
    wrong=(
        WrongAnswer(
            "mean not folded in",
            "The rows that the new matrix receives still have their mean: centre its columns.",
            _fold(centre=lambda w: w),
        ),
        WrongAnswer(
            "centred before the gain",
            "The norm centres first and scales second, so the rows meet centring, gain, matrix. "
            "The gain is folded first, and its result centred.",
            _fold(before=True),
        ),
        WrongAnswer(
            "centred over the outputs",
            "The mean runs over the inputs of the matrix, which are its rows here: (d_in, d_out).",
            _fold(centre=lambda w: w - w.mean(1, keepdim=True)),
        ),
        WrongAnswer(
            "gain on the outputs",
            "In the layout (d_in, d_out) the gain multiplies the rows.",
            _fold(scale=lambda g, w: w * g),
        ),
        WrongAnswer(
            "offset left out",
            "The offset is a constant input of the matrix: offset @ weight joins the bias.",
            _fold(new_bias=lambda o, w, b, new: b.clone()),
        ),
        WrongAnswer(
            "offset through the new matrix",
            "The offset is added after gain and centring, so it meets the old matrix.",
            _fold(new_bias=lambda o, w, b, new: b + o @ new),
        ),
    ),
)

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
) -> Callable[[int, int, int], tuple[float, ...]]:
    def answer(num_layers: int, d_model: int, d_ff: int) -> tuple[float, ...]:
        b = beta(num_layers)
        first = fan(d_model, d_model)
        return (
            alpha(num_layers),
            first * (b if all_scaled else 1),
            b * first,
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
    floor: bool = True,
) -> Callable[[int, int, int, float, float], float]:
    def answer(step: int, warmup: int, total: int, max_lr: float, min_lr: float) -> float:
        if step < warmup:
            return first(step, warmup, max_lr, min_lr)
        share = done(step, warmup, total)
        share = min(share, 1.0) if clamp else share
        low = min_lr if floor else 0.0
        return low + (max_lr - low) * curve(share)

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
            _cosine(floor=False),
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
    after: bool = False,
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
            new = [g * factor for g in grads]
        return new, min(norm, max_norm) if after else norm

    return answer


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
            _clip(after=True),
        ),
    ),
)

EXERCISES: dict[str, Exercise] = {
    "group_norm": GROUP_NORM,
    "partial_rms_norm": PARTIAL_RMS_NORM,
    "fold_batch_norm": FOLD_BATCH_NORM,
    "batch_norm_backward": BATCH_NORM_BACKWARD,
    "block_backward": BLOCK_BACKWARD,
    "layer_norm_jvp": LAYER_NORM_JVP,
    "fold_layer_norm": FOLD_LAYER_NORM,
    "deepnorm_stds": DEEPNORM_STDS,
    "warmup_cosine": WARMUP_COSINE,
    "clip_gradients": CLIP_GRADIENTS,
}
