"""Chapter 03: answers to its exercises that the checkers do not know."""

import math

import torch
import torch.nn.functional as F

from . import Right, Wrong

# softmax.softmax


def minimum_as_a_negated_maximum(x, dim):
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    e = torch.exp(wide + (-wide).min(dim, keepdim=True).values)
    return (e / e.sum(dim, keepdim=True)).to(x.dtype)


def one_row_after_the_other(x, dim):
    e = torch.exp(x - x.max())
    return e / e.sum(dim, keepdim=True)


def sums_over_columns(x, dim):
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    e = torch.exp(wide - wide.amax(dim, keepdim=True))
    return (e / e.sum(1 if dim in (1, -1) else dim, keepdim=True)).to(x.dtype)


def always_in_single_precision(x, dim):
    e = torch.exp(x.float() - x.float().amax(dim, keepdim=True))
    return (e / e.sum(dim, keepdim=True)).to(x.dtype)


def stays_in_single_precision(x, dim):
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    e = torch.exp(wide - wide.amax(dim, keepdim=True))
    return e / e.sum(dim, keepdim=True)


def only_float16_is_widened(x, dim):
    wide = x.float() if x.dtype is torch.float16 else x
    e = torch.exp(wide - wide.amax(dim, keepdim=True))
    return (e / e.sum(dim, keepdim=True)).to(x.dtype)


def shifted_before_it_is_widened(x, dim):
    shifted = x - x.amax(dim, keepdim=True)
    wide = shifted.float() if x.dtype in (torch.float16, torch.bfloat16) else shifted
    e = wide.exp()
    return (e / e.sum(dim, keepdim=True)).to(x.dtype)


def clamped(x, dim):
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    e = wide.clamp(-80, 80).exp()
    return (e / e.sum(dim, keepdim=True)).to(x.dtype)


def never_divides_by_zero(x, dim):
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    e = torch.exp(wide - wide.amax(dim, keepdim=True))
    return (e / (e.sum(dim, keepdim=True) + 1e-9)).to(x.dtype)


def shifted_in_place(x, dim):
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x.detach()
    wide -= wide.amax(dim, keepdim=True)
    e = wide.exp()
    return (e / e.sum(dim, keepdim=True)).to(x.dtype)


def last_dimension_turned(x, dim):
    x = x.transpose(dim, -1)
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    e = torch.exp(wide - wide.max(-1).values.unsqueeze(-1))
    return (e / e.sum(-1, keepdim=True)).to(x.dtype)


def torch_on_the_way(x, dim):
    return torch.log_softmax(x.float() if x.itemsize == 2 else x, dim).exp().to(x.dtype)


def by_the_loss(x, dim):
    wide = x.float() if x.itemsize == 2 else x
    return torch.exp(wide - wide.logsumexp(dim, keepdim=True)).to(x.dtype)


def by_torch_in_half_precision(x, dim):
    if x.itemsize == 2:
        return torch.softmax(x, dim)
    e = torch.exp(x - x.amax(dim, keepdim=True))
    return e / e.sum(dim, keepdim=True)


def by_softmin(x, dim):
    return F.softmin(-x.float(), dim).to(x.dtype) if x.itemsize == 2 else F.softmin(-x, dim)


def rows_moved_to_the_end(x, dim):
    rows = x.movedim(dim, -1)
    rows = rows.float() if x.itemsize == 2 else rows
    powers = math.e ** (rows - rows.max(dim=-1, keepdim=True)[0])
    return torch.einsum("...i,...->...i", powers, 1 / powers.sum(-1)).movedim(-1, dim).to(x.dtype)


def entry_by_entry(x, dim):
    scores = x.unbind(dim)
    if x.itemsize == 2:
        scores = [s.float() for s in scores]
    top = scores[0]
    for s in scores[1:]:
        top = torch.maximum(top, s)
    terms = [torch.exp(s - top.detach()) for s in scores]
    total = sum(terms)
    return torch.stack([(t / total).to(x.dtype) for t in terms], dim)


# softmax.softmax_backward


def matrix_of_every_row(grad_out, p, dim):
    g, q = grad_out.movedim(dim, -1), p.movedim(dim, -1)
    J = torch.diag_embed(q) - q.unsqueeze(-1) * q.unsqueeze(-2)
    return (g.unsqueeze(-2) @ J).squeeze(-2).movedim(-1, dim)


def weights_in_place(grad_out, p, dim):
    grad_out -= (grad_out * p).sum(dim, keepdim=True)
    return p * grad_out


def first_dimension_of_two(grad_out, p, dim):
    s = (grad_out * p).sum(dim)
    return p * (grad_out - (s.unsqueeze(-1) if dim == -1 else s))


def weights_not_in_the_sum(grad_out, p, dim):
    return p * (grad_out - grad_out.sum(dim, keepdim=True))


def mean_for_sum(grad_out, p, dim):
    return p * (grad_out - (grad_out * p).mean(dim, keepdim=True))


def torch_goes_back(grad_out, p, dim):
    return torch._softmax_backward_data(grad_out, p, dim, p.dtype)


def autograd_goes_back(grad_out, p, dim):
    z = p.detach().log().requires_grad_()
    return torch.autograd.grad(torch.softmax(z, dim), z, grad_out)[0]


def two_terms(grad_out, p, dim):
    a = grad_out.mul(p)
    return torch.sub(a, p.mul(a.sum(dim=dim, keepdim=True)))


def dots_of_rows(grad_out, p, dim):
    g, q = grad_out.transpose(dim, -1), p.transpose(dim, -1)
    dots = torch.einsum("...i,...i->...", g, q)
    return (q * g - q * dots[..., None]).transpose(dim, -1)


# softmax.cross_entropy


def _loss(logits, q):
    return (logits.logsumexp(-1) - (q * logits).sum(-1)).mean()


def shared_by_the_others(logits, target, label_smoothing):
    d = logits.shape[-1]
    y = F.one_hot(target, d)
    return _loss(logits, (1 - label_smoothing) * y + label_smoothing / (d - 1) * (1 - y))


def targets_in_single_precision(logits, target, label_smoothing):
    y = F.one_hot(target, logits.shape[-1]).float()
    return _loss(logits, (1 - label_smoothing) * y + label_smoothing / logits.shape[-1])


def divergence(logits, target, label_smoothing):
    d = logits.shape[-1]
    q = F.one_hot(target, d) * (1 - label_smoothing) + label_smoothing / d
    return _loss(logits, q) + torch.xlogy(q, q).sum(-1).mean()


def logarithm_of_softmax(logits, target, label_smoothing):
    logs = torch.softmax(logits, -1).log()
    chosen = logs[torch.arange(len(target)), target]
    return -((1 - label_smoothing) * chosen + label_smoothing * logs.mean(-1)).mean()


def logarithm_that_is_never_infinite(logits, target, label_smoothing):
    logs = (torch.softmax(logits, -1) + 1e-9).log()
    chosen = logs.gather(1, target[:, None])[:, 0]
    return -((1 - label_smoothing) * chosen + label_smoothing * logs.mean(-1)).mean()


def every_target_of_every_row(logits, target, label_smoothing):
    right = logits[:, target].mean(-1)
    return (logits.logsumexp(-1) - (1 - label_smoothing) * right
            - label_smoothing * logits.mean(-1)).mean()  # fmt: skip


def torch_takes_the_loss(logits, target, label_smoothing):
    return F.cross_entropy(logits, target, label_smoothing=label_smoothing)


def torch_takes_the_logarithms(logits, target, label_smoothing):
    logs = torch.log_softmax(logits, -1)
    chosen = F.nll_loss(logs, target)
    return (1 - label_smoothing) * chosen - label_smoothing * logs.mean()


def torch_by_a_module(logits, target, label_smoothing):
    return torch.nn.CrossEntropyLoss(label_smoothing=label_smoothing)(logits, target)


def summed(logits, target, label_smoothing):
    right = logits.gather(1, target[:, None])[:, 0]
    q = (1 - label_smoothing) * right + label_smoothing * logits.mean(-1)
    return (logits.logsumexp(-1) - q).sum()


def row_by_row(logits, target, label_smoothing):
    losses = []
    for z, c in zip(logits, target.tolist(), strict=True):
        lead = z - z.max()
        lse = lead.exp().sum().log()
        losses.append(lse - (1 - label_smoothing) * lead[c] - label_smoothing * lead.mean())
    return sum(losses) / len(losses)


def logs_of_weights(logits, target, label_smoothing):
    logs = logits - torch.logsumexp(logits, dim=1, keepdim=True)
    q = torch.full_like(logits, label_smoothing / logits.shape[1])
    q = q.scatter_add(1, target[:, None], torch.full_like(logits[:, :1], 1 - label_smoothing))
    return -(q * logs).sum() / len(target)


# softmax.double_softmax


def the_floor(loss, num_classes):
    sure = torch.zeros(1, num_classes)
    sure[0, 0] = 1e3
    return bool(loss(sure, torch.tensor([0])) > 0.05)


def a_gradient_that_vanishes(loss, num_classes):
    z = torch.zeros(1, num_classes, requires_grad=True)
    with torch.no_grad():
        z[0, 0] = 1e3
    loss(z, torch.tensor([1])).backward()
    return bool(z.grad.abs().max() < 1e-6)


def a_small_lead(loss, num_classes):
    z = torch.zeros(1, num_classes)
    z[0, 0] = 8.0
    return bool(loss(z, torch.tensor([1])) < math.log(math.e + num_classes - 1) + 1e-3)


def a_batch_of_all_classes(loss, num_classes):
    z = 1e3 * torch.eye(num_classes)
    return bool(loss(z, torch.arange(num_classes).roll(1)) < math.log(math.e + num_classes))


def by_a_range(loss, num_classes):
    worst = torch.zeros(1, num_classes)
    worst[0, -1] = 5e3
    return loss(worst, torch.tensor([0])).item() <= math.log(num_classes + math.e - 1) * 1.01


def by_three_leads(loss, num_classes):
    z = torch.zeros(1, num_classes, dtype=torch.float64)
    seen = []
    for lead in (1e3, 1e4, 1e5):
        z[0, 1] = lead
        seen.append(float(loss(z, torch.tensor([0]))))
    return max(seen) - math.log(num_classes - 1 + math.exp(1)) < 0.01


WRONG = [
    Wrong(
        "softmax.softmax",
        "the maximum of the whole tensor, not widened",
        one_row_after_the_other,
        named="one maximum for the whole tensor",
    ),
    Wrong("softmax.softmax", "a sum over dim 1 for the last one", sums_over_columns),
    Wrong("softmax.softmax", "everything in float32", always_in_single_precision),
    Wrong(
        "softmax.softmax",
        "half precision comes back as float32",
        stays_in_single_precision,
        named="float32 result for half precision",
    ),
    Wrong(
        "softmax.softmax",
        "bfloat16 is not widened",
        only_float16_is_widened,
        named="half precision not computed in float32",
    ),
    Wrong("softmax.softmax", "shifted before it is widened", shifted_before_it_is_widened),
    Wrong("softmax.softmax", "scores are clamped", clamped),
    Wrong("softmax.softmax", "1e-9 in the denominator", never_divides_by_zero),
    Wrong("softmax.softmax", "the scores are changed", shifted_in_place),
    Wrong("softmax.softmax", "not turned back", last_dimension_turned),
    Wrong(
        "softmax.softmax",
        "exp of log_softmax",
        torch_on_the_way,
        says="says no `softmax`, no `logsumexp`",
    ),
    Wrong(
        "softmax.softmax",
        "torch's softmax for half precision alone",
        by_torch_in_half_precision,
        says="says no `softmax`, no `logsumexp`",
    ),
    Wrong("softmax.softmax", "logsumexp", by_the_loss, says="says no `softmax`, no `logsumexp`"),
    Wrong("softmax.softmax", "softmin", by_softmin, says="says no `softmax`, no `logsumexp`"),
    Wrong(
        "softmax.softmax",
        "F.softmax",
        lambda x, dim: F.softmax(x, dim),
        says="says no `softmax`, no `logsumexp`",
    ),
    Wrong(
        "softmax.softmax_backward",
        "a Jacobian for each row",
        matrix_of_every_row,
        says="says without building the matrix",
    ),
    Wrong("softmax.softmax_backward", "the gradient is changed", weights_in_place),
    Wrong(
        "softmax.softmax_backward",
        "the sum's place from two dimensions",
        first_dimension_of_two,
        named="keepdim forgotten",
    ),
    Wrong(
        "softmax.softmax_backward",
        "the sum of the gradient alone",
        weights_not_in_the_sum,
        named="plain sum subtracted",
    ),
    Wrong("softmax.softmax_backward", "a mean for the sum", mean_for_sum),
    Wrong(
        "softmax.softmax_backward",
        "the diagonal",
        lambda g, p, dim: g * p * (1 - p),
        named="diagonal only",
    ),
    Wrong(
        "softmax.softmax_backward",
        "the last dimension",
        lambda g, p, dim: p * (g - (g * p).sum(-1, True)),
        named="always along the last dimension",
    ),
    Wrong(
        "softmax.cross_entropy",
        "the share goes to the others",
        shared_by_the_others,
        named="smoothing spread over the wrong classes only",
    ),
    Wrong("softmax.cross_entropy", "the targets in float32", targets_in_single_precision),
    Wrong("softmax.cross_entropy", "the divergence", divergence),
    Wrong(
        "softmax.cross_entropy",
        "the logarithm of softmax",
        logarithm_of_softmax,
        named="logarithm of the softmax",
    ),
    Wrong(
        "softmax.cross_entropy",
        "1e-9 in the logarithm",
        logarithm_that_is_never_infinite,
        named="small constant in the logarithm",
    ),
    Wrong("softmax.cross_entropy", "all targets in all rows", every_target_of_every_row),
    Wrong(
        "softmax.cross_entropy",
        "F.cross_entropy",
        torch_takes_the_loss,
        says="says neither `cross_entropy` nor `log_softmax`",
    ),
    Wrong(
        "softmax.cross_entropy",
        "nll_loss of log_softmax",
        torch_takes_the_logarithms,
        says="says neither `cross_entropy` nor `log_softmax`",
    ),
    Wrong(
        "softmax.cross_entropy",
        "nn.CrossEntropyLoss",
        torch_by_a_module,
        says="says neither `cross_entropy` nor `log_softmax`",
    ),
    Wrong("softmax.cross_entropy", "the sum of the rows", summed, named="sum in place of the mean"),
    Wrong(
        "softmax.double_softmax",
        "the floor",
        the_floor,
        named="sure and right, where there should be no loss",
    ),
    Wrong(
        "softmax.double_softmax",
        "a gradient that vanishes",
        a_gradient_that_vanishes,
        named="any bounded loss",
    ),
    Wrong(
        "softmax.double_softmax",
        "a lead of 8",
        a_small_lead,
        named="a lead that a temperature can hide",
    ),
    Wrong(
        "softmax.double_softmax",
        "a row for every class",
        a_batch_of_all_classes,
        named="several rows",
    ),
    Wrong(
        "softmax.double_softmax",
        "always",
        lambda loss, num_classes: True,
        named="the same verdict for every loss",
    ),
]
RIGHT = [
    Right("softmax.softmax", "the maximum by a minimum", minimum_as_a_negated_maximum),
    Right("softmax.softmax", "rows moved to the end", rows_moved_to_the_end),
    Right("softmax.softmax", "entry by entry", entry_by_entry),
    Right("softmax.softmax_backward", "two terms", two_terms),
    Right("softmax.softmax_backward", "dots of rows", dots_of_rows),
    Right("softmax.cross_entropy", "row by row", row_by_row),
    Right("softmax.cross_entropy", "scattered targets", logs_of_weights),
    Right("softmax.double_softmax", "one hundredth above the bound", by_a_range),
    Right("softmax.double_softmax", "three leads", by_three_leads),
]
