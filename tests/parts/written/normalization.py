"""Chapter 08: answers to its exercises that the checkers do not know."""

import torch
import torch.nn.functional as F
from torch import nn

from . import Right, Wrong


# LayerNorm
def layer_norm_with(mean=None, var=None, root=None, end=None):
    def answer(x, weight, bias, eps):
        m = (mean or (lambda x: x.mean(-1, keepdim=True)))(x)
        v = (var or (lambda x, m: (x - m).square().mean(-1, keepdim=True)))(x, m)
        y = (x - m) / (root or (lambda v, eps: torch.sqrt(v + eps)))(v, eps)
        return (end or (lambda y, w, b: y * w + b))(y, weight, bias)

    return answer


def sums_of_squares(x, weight, bias, eps):
    m = x.mean(-1, keepdim=True)
    v = (x**2).mean(-1, keepdim=True) - m**2
    return (x - m) * torch.rsqrt(v + eps) * weight + bias


def centred_in_place(x, weight, bias, eps):
    with torch.no_grad():
        x -= x.mean(-1, keepdim=True)
    v = x.square().mean(-1, keepdim=True)
    return x / (v + eps).sqrt() * weight + bias


def by_the_operator(x, weight, bias, eps):
    return torch.native_layer_norm(x, x.shape[-1:], weight, bias, eps)[0]


def by_group_norm(x, weight, bias, eps):
    flat = x.reshape(-1, x.shape[-1])
    return F.group_norm(flat, 1, weight, bias, eps).view_as(x)


def by_the_module(x, weight, bias, eps):
    norm = nn.LayerNorm(x.shape[-1], eps, elementwise_affine=False, dtype=x.dtype)
    return norm(x) * weight + bias


def by_instance_norm(x, weight, bias, eps):
    rows = x.reshape(1, -1, x.shape[-1])
    return F.instance_norm(rows, eps=eps).view_as(x) * weight + bias


# RMSNorm
def rms_in_its_dtype(x, weight, eps):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def rms_always_in_float32(x, weight, eps):
    h = x.float()
    return (weight * (h * torch.rsqrt(h.square().mean(-1, keepdim=True) + eps))).to(x.dtype)


def rms_left_wide(x, weight, eps):
    h = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    return weight * (h / (h.square().mean(-1, keepdim=True) + eps).sqrt())


def rms_of_the_first(x, weight, eps):
    h = x.to(torch.promote_types(x.dtype, torch.float32))
    h = h / torch.sqrt((h * h).sum(-1, keepdim=True) / (h.shape[-1] - 1) + eps)
    return (h * weight).to(x.dtype)


def rms_by_the_norm(x, weight, eps):
    h = x.to(torch.promote_types(x.dtype, torch.float32))
    return (F.normalize(h, dim=-1, eps=eps) * h.shape[-1] ** 0.5 * weight).to(x.dtype)


def rms_of_torch(x, weight, eps):
    return F.rms_norm(x, x.shape[-1:], weight, eps)


def rms_scaled_by_the_largest(x, weight, eps):
    h = x.to(torch.promote_types(x.dtype, torch.float32))
    h = h / h.abs().amax(-1, keepdim=True)
    return (h * torch.rsqrt(h.square().mean(-1, keepdim=True) + eps) * weight).to(x.dtype)


def rms_cast_between(x, weight, eps):
    h = x.to(torch.promote_types(x.dtype, torch.float32))
    return (h * torch.rsqrt(h.square().mean(-1, keepdim=True) + eps)).to(x.dtype) * weight


def rms_over_a_detached_size(x, weight, eps):
    h = x.to(torch.promote_types(x.dtype, torch.float32))
    size = (h.detach().square().mean(-1, keepdim=True) + eps).sqrt()
    return (h / size * weight).to(x.dtype)


# LayerNorm backwards
def normalized(x, eps, correction=0):
    s = torch.sqrt(x.var(-1, keepdim=True, correction=correction) + eps)
    return (x - x.mean(-1, keepdim=True)) / s, s


def layer_backward_with(lead=None, dx=None, eps_is=None, hat=None, correction=0, total=torch.sum):
    def answer(grad_out, x, weight, eps):
        xhat, s = normalized(x, eps if eps_is is None else eps_is, correction)
        g = grad_out * weight
        if dx is None:
            m1 = g.mean(-1, keepdim=True)
            m2 = (g * xhat).mean(-1, keepdim=True)
            to_x = (g - m1 - xhat * m2) / s
        else:
            to_x = dx(g, xhat, s, grad_out, weight)
        dims = tuple(range(x.dim() - 1)) if lead is None else lead
        seen = xhat if hat is None else hat(x, xhat)
        return to_x, total(grad_out * seen, dims), total(grad_out, dims)

    return answer


def layer_backward_by_autograd(grad_out, x, weight, eps):
    x, w = x.detach().requires_grad_(), weight.detach().requires_grad_()
    b = torch.zeros_like(w).requires_grad_()
    F.layer_norm(x, x.shape[-1:], w, b, eps).backward(grad_out)
    return x.grad, w.grad, b.grad


def layer_backward_by_operator(grad_out, x, weight, eps):
    shape = x.shape[-1:]
    bias = torch.zeros_like(weight)
    _, mean, rstd = torch.native_layer_norm(x, shape, weight, bias, eps)
    return torch.ops.aten.native_layer_norm_backward(
        grad_out, x, shape, mean, rstd, weight, bias, [True, True, True]
    )


def layer_backward_by_vjp(grad_out, x, weight, eps):
    def norm(x, w, b):
        return normalized(x, eps)[0] * w + b

    return torch.func.vjp(norm, x, weight, torch.zeros_like(weight))[1](grad_out)


# RMSNorm backwards
# BatchNorm
def batch_norm_with(
    dims=None,
    correction=0,
    remembered=1,
    keep=None,
    one=None,
    in_place=True,
    uses=None,
    detached=True,
    update_always=False,
    eps_is=None,
):
    def answer(x, running_mean, running_var, weight, bias, training, momentum, eps):
        over = (0, 2) if x.dim() == 3 else (0,)
        if dims is not None:
            over = dims(x)
        shape = (1, -1) + (1,) * (x.dim() - 2)
        n = x.numel() // x.shape[1]
        if one is None:
            if training and n <= 1:
                raise ValueError("one value per feature")
        else:
            one(x, training)
        if training or update_always:
            m, v = x.mean(over), x.var(over, correction=correction)
            kept = x.var(over, correction=remembered)
            a, b = (m.detach(), kept.detach()) if detached else (m, kept)
            if in_place:
                share = momentum if keep is None else keep(momentum)
                running_mean.mul_(1 - share).add_(share * a)
                running_var.mul_(1 - share).add_(share * b)
            else:
                running_mean = (1 - momentum) * running_mean + momentum * a
                running_var = (1 - momentum) * running_var + momentum * b
        if not training or uses == "running":
            m, v = running_mean, running_var
        y = (x - m.reshape(shape)) / torch.sqrt(v.reshape(shape) + (eps_is or eps))
        return y * weight.reshape(shape) + bias.reshape(shape)

    return answer


def no_rows_of_one(x, training):
    if training and x.shape[0] == 1:
        raise ValueError("one value per feature")


def one_also_in_evaluation(x, training):
    if x.numel() == x.shape[1]:
        raise ValueError("one value per feature")


def nothing_refused(x, training):
    return None


def features_last(x, running_mean, running_var, weight, bias, training, momentum, eps):
    dims = tuple(d for d in range(x.dim()) if d != 1)
    if training:
        if x.numel() // x.shape[1] == 1:
            raise ValueError
        v, m = torch.var_mean(x, dims, correction=0)
        n = x.numel() / x.shape[1]
        with torch.no_grad():
            running_mean.lerp_(m, momentum)
            running_var.lerp_(v * n / (n - 1), momentum)
    else:
        m, v = running_mean, running_var
    # Right only where N = C or for two dimensions.
    return (x.transpose(1, -1) - m).div(torch.sqrt(v + eps)).mul(weight).add(bias)


def torchs_own(x, running_mean, running_var, weight, bias, training, momentum, eps):
    return F.batch_norm(x, running_mean, running_var, weight, bias, training, momentum, eps)


def torchs_own_in_evaluation(x, mean, var, weight, bias, training, momentum, eps):
    if training:
        return batch_norm_with()(x, mean, var, weight, bias, training, momentum, eps)
    return F.batch_norm(x, mean, var, weight, bias, training, momentum, eps)


def torchs_operator(x, running_mean, running_var, weight, bias, training, momentum, eps):
    if training and x.numel() == x.shape[1]:
        raise ValueError
    return torch.native_batch_norm(
        x, weight, bias, running_mean, running_var, training, momentum, eps
    )[0]


# converted
def converted_with(**parts):
    def answer(table, out_weight, out_bias, gamma, beta, in_weight, in_bias):
        result = {
            "table": table - table.mean(-1, keepdim=True),
            "out_weight": out_weight - out_weight.mean(0),
            "out_bias": out_bias - out_bias.mean(),
            "in_weight": in_weight * gamma,
            "in_bias": in_weight @ beta + in_bias,
        }
        given = {"table": table, "w": out_weight, "b": out_bias, "g": gamma, "beta": beta}
        given |= {"read": in_weight, "bias": in_bias}
        return tuple((result | {name: f(**given) for name, f in parts.items()}).values())

    return answer


def converted_in_place(table, out_weight, out_bias, gamma, beta, in_weight, in_bias):
    with torch.no_grad():
        for v, dim in ((table, -1), (out_weight, 0), (out_bias, 0)):
            v -= v.mean(dim, keepdim=True)
        in_bias += in_weight @ beta
        in_weight *= gamma
    return table, out_weight, out_bias, in_weight, in_bias


def projected_from_the_right(table, w, **_):
    n = w.shape[1]
    return w @ (torch.eye(n, dtype=w.dtype) - 1 / n)


def centred_and_scaled(w, **_):
    w = w - w.mean(0)
    return w / w.std(0)


WRONG = [
    Wrong(
        "normalization.layer_norm",
        "E[x²] − E[x]²",
        sums_of_squares,
        named="variance as E[x^2] - E[x]^2",
    ),
    Wrong("normalization.layer_norm", "centers its argument", centred_in_place),
    Wrong(
        "normalization.layer_norm",
        "native_layer_norm",
        by_the_operator,
        says="no norm of torch's own",
    ),
    Wrong(
        "normalization.layer_norm",
        "F.group_norm with one group",
        by_group_norm,
        says="no norm of torch's own",
    ),
    Wrong(
        "normalization.layer_norm",
        "nn.LayerNorm without its gain",
        by_the_module,
        says="no norm of torch's own",
    ),
    Wrong("normalization.layer_norm", "F.instance_norm of the rows", by_instance_norm),
    Wrong(
        "normalization.layer_norm",
        "n − 1",
        layer_norm_with(var=lambda x, m: x.var(-1, keepdim=True)),
        named="division by d - 1",
    ),
    Wrong(
        "normalization.layer_norm",
        "eps on the standard deviation",
        layer_norm_with(root=lambda v, eps: v.sqrt() + eps),
        named="eps outside the root",
    ),
    Wrong(
        "normalization.layer_norm",
        "eps = 1e-5 whatever is given",
        layer_norm_with(root=lambda v, eps: (v + 1e-5).sqrt()),
    ),
    Wrong(
        "normalization.layer_norm",
        "eps only where the variance is 0",
        layer_norm_with(root=lambda v, eps: v.clamp(min=eps).sqrt()),
        named="eps as a lower limit",
    ),
    Wrong(
        "normalization.layer_norm",
        "one mean for all rows",
        layer_norm_with(mean=lambda x: x.mean()),
    ),
    Wrong(
        "normalization.layer_norm",
        "the gain on the offset too",
        layer_norm_with(end=lambda y, w, b: (y + b) * w),
        named="bias added before the gain",
    ),
    Wrong(
        "normalization.layer_norm",
        "no gradient through the variance",
        layer_norm_with(var=lambda x, m: (x - m).square().mean(-1, keepdim=True).detach()),
    ),
    Wrong(
        "normalization.layer_norm",
        "the mean absolute deviation",
        layer_norm_with(var=lambda x, m: (x - m).abs().mean(-1, keepdim=True).square()),
    ),
    Wrong(
        "normalization.rms_norm",
        "squares in the dtype of x",
        rms_in_its_dtype,
        named="squares in half precision",
    ),
    Wrong("normalization.rms_norm", "float32 for float64 too", rms_always_in_float32),
    Wrong(
        "normalization.rms_norm",
        "the result left in float32",
        rms_left_wide,
        named="float32 result for half-precision input",
    ),
    Wrong("normalization.rms_norm", "d − 1", rms_of_the_first, named="division by d - 1"),
    Wrong("normalization.rms_norm", "F.normalize", rms_by_the_norm, named="eps forgotten"),
    Wrong("normalization.rms_norm", "F.rms_norm", rms_of_torch, says="without `F.rms_norm`"),
    Wrong("normalization.rms_norm", "scaled by the largest entry first", rms_scaled_by_the_largest),
    Wrong(
        "normalization.rms_norm",
        "no gradient through the size",
        rms_over_a_detached_size,
        named="mean square cut out of the graph",
    ),
    Wrong(
        "normalization.layer_norm_backward",
        "sums over the first",
        layer_backward_with(lead=(0,)),
        named="both sums over the first dimension only",
    ),
    Wrong(
        "normalization.layer_norm_backward",
        "sums over the first two",
        layer_backward_with(lead=(0, 1)),
    ),
    Wrong(
        "normalization.layer_norm_backward",
        "means over rows",
        layer_backward_with(total=torch.mean),
    ),
    Wrong(
        "normalization.layer_norm_backward",
        "a sum over no dimension is one over all",
        layer_backward_with(),
        named="a sum over no dimension",
    ),
    Wrong("normalization.layer_norm_backward", "eps = 1e-5", layer_backward_with(eps_is=1e-5)),
    Wrong(
        "normalization.layer_norm_backward",
        "the gain's with x",
        layer_backward_with(hat=lambda x, xhat: x),
        named="grad_weight with x in place of x_hat",
    ),
    Wrong(
        "normalization.layer_norm_backward",
        "n − 1",
        layer_backward_with(correction=1),
        named="Bessel-corrected variance",
    ),
    Wrong(
        "normalization.layer_norm_backward",
        "g − its mean, no more",
        layer_backward_with(dx=lambda g, h, s, o, w: (g - g.mean(-1, keepdim=True)) / s),
        named="x_hat term missing",
    ),
    Wrong(
        "normalization.layer_norm_backward",
        "the gain last",
        layer_backward_with(
            dx=lambda g, h, s, o, w: (
                w * (o - o.mean(-1, keepdim=True) - h * (o * h).mean(-1, keepdim=True)) / s
            )
        ),
        named="gain multiplied in last",
    ),
    Wrong(
        "normalization.layer_norm_backward",
        "sums for means",
        layer_backward_with(
            dx=lambda g, h, s, o, w: (
                (g - g.sum(-1, keepdim=True) - h * (g * h).sum(-1, keepdim=True)) / s
            )
        ),
        named="sum in place of the mean in grad_x",
    ),
    Wrong(
        "normalization.layer_norm_backward",
        "backward()",
        layer_backward_by_autograd,
        says="without autograd",
    ),
    Wrong(
        "normalization.layer_norm_backward",
        "the operator",
        layer_backward_by_operator,
        says="without autograd",
    ),
    Wrong(
        "normalization.layer_norm_backward",
        "torch.func.vjp",
        layer_backward_by_vjp,
        says="without autograd",
    ),
    Wrong(
        "normalization.batch_norm",
        "remembers the biased variance",
        batch_norm_with(remembered=0),
        named="biased variance in running_var",
    ),
    Wrong(
        "normalization.batch_norm",
        "normalizes with n − 1",
        batch_norm_with(correction=1),
        named="unbiased variance in the normalisation",
    ),
    Wrong(
        "normalization.batch_norm",
        "momentum is what is kept",
        batch_norm_with(keep=lambda momentum: 1 - momentum),
        named="momentum the wrong way round",
    ),
    Wrong("normalization.batch_norm", "momentum 0.1", batch_norm_with(keep=lambda momentum: 0.1)),
    Wrong(
        "normalization.batch_norm",
        "new running statistics",
        batch_norm_with(in_place=False),
        named="running statistics of the caller left as they were",
    ),
    Wrong("normalization.batch_norm", "running statistics always", batch_norm_with(uses="running")),
    Wrong(
        "normalization.batch_norm",
        "a memory with a graph",
        batch_norm_with(detached=False),
        named="running statistics left in the graph",
    ),
    Wrong("normalization.batch_norm", "updates always", batch_norm_with(update_always=True)),
    Wrong(
        "normalization.batch_norm",
        "over N alone",
        batch_norm_with(dims=lambda x: (0,)),
        named="running statistics per position",
    ),
    Wrong("normalization.batch_norm", "refuses N = 1", batch_norm_with(one=no_rows_of_one)),
    Wrong(
        "normalization.batch_norm",
        "refuses in evaluation too",
        batch_norm_with(one=one_also_in_evaluation),
    ),
    Wrong(
        "normalization.batch_norm",
        "refuses nothing",
        batch_norm_with(one=nothing_refused),
        named="one value per channel accepted in training",
    ),
    Wrong("normalization.batch_norm", "the features last", features_last),
    Wrong("normalization.batch_norm", "eps = 1e-5 whatever is given", batch_norm_with(eps_is=1e-5)),
    Wrong("normalization.batch_norm", "F.batch_norm", torchs_own, says="without calling it"),
    Wrong(
        "normalization.batch_norm",
        "F.batch_norm in evaluation",
        torchs_own_in_evaluation,
        says="without calling it",
    ),
    Wrong(
        "normalization.batch_norm", "native_batch_norm", torchs_operator, says="without calling it"
    ),
    Wrong(
        "normalization.to_rms_norm",
        "γ over the outputs",
        converted_with(in_weight=lambda read, g, **_: read * g[:, None]),
        named="rows scaled in place of columns",
    ),
    Wrong(
        "normalization.to_rms_norm",
        "γ twice on β",
        converted_with(in_bias=lambda read, g, beta, bias, **_: (read * g) @ beta + bias),
        named="offset pushed through the new weight",
    ),
    Wrong(
        "normalization.to_rms_norm",
        "the reader's bias left as it is",
        converted_with(in_bias=lambda bias, **_: bias),
        named="offset forgotten",
    ),
    Wrong(
        "normalization.to_rms_norm",
        "the old bias lost",
        converted_with(in_bias=lambda read, beta, **_: read @ beta),
        named="old bias dropped",
    ),
    Wrong(
        "normalization.to_rms_norm",
        "the transpose",
        converted_with(in_weight=lambda read, g, **_: (read * g).T),
    ),
    Wrong(
        "normalization.to_rms_norm",
        "in place",
        converted_in_place,
        named="the given model changed in place",
    ),
    Wrong(
        "normalization.to_rms_norm",
        "the writer alone",
        converted_with(table=lambda table, **_: table),
        named="the table left as it is",
    ),
    Wrong(
        "normalization.to_rms_norm",
        "each row of the weight",
        converted_with(out_weight=lambda w, **_: w - w.mean(1, keepdim=True)),
        named="centred over the inputs",
    ),
    Wrong(
        "normalization.to_rms_norm",
        "projected from the right",
        converted_with(out_weight=projected_from_the_right),
        named="centred over the inputs",
    ),
    Wrong(
        "normalization.to_rms_norm",
        "scaled too",
        converted_with(out_weight=centred_and_scaled),
    ),
    Wrong(
        "normalization.to_rms_norm",
        "the writer's bias as it is",
        converted_with(out_bias=lambda b, **_: b),
        named="the writer's bias not centred",
    ),
    Wrong(
        "normalization.to_rms_norm",
        "one mean for all",
        converted_with(out_weight=lambda w, **_: w - w.mean()),
        named="one mean for the whole weight",
    ),
]


def layer_norm_by_var_mean(x, weight, bias, eps):
    v, m = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
    return torch.addcmul(bias, (x - m) * torch.rsqrt(v + eps), weight)


def layer_norm_by_projection(x, weight, bias, eps):
    n = x.shape[-1]
    y = x @ (torch.eye(n, dtype=x.dtype) - torch.full((n, n), 1 / n, dtype=x.dtype))
    size = torch.linalg.vector_norm(y, dim=-1, keepdim=True).square() / n
    return y * (size + eps) ** -0.5 * weight + bias


def layer_norm_row_by_row(x, weight, bias, eps):
    rows = []
    for row in x.reshape(-1, x.shape[-1]):
        y = row - sum(row) / len(row)
        rows.append(y / (torch.dot(y, y) / len(y) + eps) ** 0.5)
    return torch.stack(rows).reshape(x.shape) * weight + bias


def rms_norm_cast_at_the_end(x, weight, eps):
    wide = x.double()
    size = torch.sqrt(torch.einsum("...d,...d->...", wide, wide) / x.size(-1) + eps)
    return torch.einsum("...d,...,d->...d", wide, 1 / size, weight.double()).to(x.dtype)


def backward_by_flattening(grad_out, x, weight, eps):
    d = x.shape[-1]
    go, rows = grad_out.reshape(-1, d), x.reshape(-1, d)
    y = rows - rows.mean(1, keepdim=True)
    r = (y.square().sum(1, keepdim=True) / d + eps).rsqrt()
    h, g = y * r, go * weight
    dx = r / d * (d * g - g.sum(1, keepdim=True) - h * (g * h).sum(1, keepdim=True))
    ones = torch.ones(1, len(rows), dtype=x.dtype)
    return dx.view(x.shape), (ones @ (go * h)).squeeze(0), (ones @ go).squeeze(0)


def backward_by_jacobians(grad_out, x, weight, eps):
    d = x.shape[-1]
    dx, dw, db = torch.empty_like(x).reshape(-1, d), weight * 0, weight * 0
    eye = torch.eye(d, dtype=x.dtype)
    for i, (g, row) in enumerate(zip(grad_out.reshape(-1, d), x.reshape(-1, d), strict=True)):
        y = row - row.mean()
        s = (y @ y / d + eps).sqrt()
        h = y / s
        dx[i] = (g * weight) @ (eye - 1 / d - torch.outer(h, h) / d) / s
        dw, db = dw + g * h, db + g
    return dx.reshape(x.shape), dw, db


def batch_norm_with_lerp(x, running_mean, running_var, weight, bias, training, momentum, eps):
    columns = x.transpose(0, 1).flatten(1)
    if training:
        n = columns.shape[1]
        if n < 2:
            raise ValueError("more than one value per feature is needed")
        mean = columns.mean(1)
        var = (columns - mean[:, None]).square().mean(1)
        with torch.no_grad():
            running_mean.lerp_(mean, momentum)
            running_var.lerp_(var * (n / (n - 1)), momentum)
    else:
        mean, var = running_mean.clone(), running_var.clone()
    scale = weight * torch.rsqrt(var + eps)
    y = columns * scale[:, None] + (bias - mean * scale)[:, None]
    return y.unflatten(1, (x.shape[0], -1)).transpose(0, 1).reshape(x.shape)


def batch_norm_with_copy(x, running_mean, running_var, weight, bias, training, momentum, eps):
    dims = [d for d in range(x.dim()) if d != 1]
    shape = [1, x.shape[1]] + [1] * (x.dim() - 2)
    mean, var = running_mean, running_var
    if training:
        if x[:, 0].numel() == 1:
            raise ValueError
        mean, var = x.mean(dims), x.var(dims, unbiased=False)
        running_mean.copy_((1 - momentum) * running_mean + momentum * mean.detach())
        new = x.detach().var(dims, unbiased=True)
        running_var.copy_((1 - momentum) * running_var + momentum * new)
    y = (x - mean.view(shape)) * (var.view(shape) + eps).rsqrt()
    return weight.view(shape) * y + bias.view(shape)


def converted_by_a_projection(table, out_weight, out_bias, gamma, beta, in_weight, in_bias):
    n = len(gamma)
    p = torch.eye(n, dtype=table.dtype) - torch.ones(n, n, dtype=table.dtype) / n
    reader = in_weight @ torch.diag(gamma), F.linear(beta, in_weight, in_bias)
    return table @ p, p @ out_weight, p @ out_bias, *reader


def converted_column_by_column(table, out_weight, out_bias, gamma, beta, in_weight, in_bias):
    def level(v):
        return v - sum(v) / len(v)

    columns = [level(out_weight[:, k]) for k in range(out_weight.shape[1])]
    moved = in_bias.clone()
    for k in range(len(beta)):
        moved = moved + in_weight[:, k] * beta[k]
    return (
        torch.stack([level(row) for row in table]),
        torch.stack(columns, 1),
        level(out_bias),
        torch.einsum("oi,i->oi", in_weight, gamma),
        moved,
    )


def converted_as_modules(table, out_weight, out_bias, gamma, beta, in_weight, in_bias):
    writer, reader = nn.Linear(*out_weight.T.shape), nn.Linear(*in_weight.T.shape)
    writer.weight.data = out_weight - out_weight.mean(0, keepdim=True)
    writer.bias.data = out_bias - out_bias.mean()
    reader.weight.data = gamma * in_weight
    reader.bias.data = in_weight.mv(beta) + in_bias
    book = nn.Embedding.from_pretrained(table - table.mean(1)[:, None])
    return book.weight, writer.weight, writer.bias, reader.weight, reader.bias


RIGHT = [
    Right("normalization.layer_norm", "var_mean and addcmul", layer_norm_by_var_mean),
    Right("normalization.layer_norm", "a projection and a norm", layer_norm_by_projection),
    Right("normalization.layer_norm", "row by row", layer_norm_row_by_row),
    Right("normalization.rms_norm", "all in float64", rms_norm_cast_at_the_end),
    Right("normalization.rms_norm", "cast before the gain", rms_cast_between),
    Right("normalization.layer_norm_backward", "flat, sums by a product", backward_by_flattening),
    Right("normalization.layer_norm_backward", "row by row", backward_by_jacobians),
    Right("normalization.batch_norm", "one line per feature, lerp_", batch_norm_with_lerp),
    Right("normalization.batch_norm", "copy_", batch_norm_with_copy),
    Right("normalization.to_rms_norm", "a projection", converted_by_a_projection),
    Right("normalization.to_rms_norm", "column by column", converted_column_by_column),
    Right("normalization.to_rms_norm", "modules", converted_as_modules),
]
