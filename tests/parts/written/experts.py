"""Chapter 20: answers to its exercises that the checkers do not know."""

import torch
import torch.nn.functional as F

from . import Right, Wrong


# top_one
def logarithms(logits):
    chosen = logits.argmax(-1)
    return torch.exp(-F.cross_entropy(logits, chosen, reduction="none")), chosen


def by_one_hot(logits):
    p = torch.softmax(logits, dim=-1)
    chosen = p.argmax(dim=-1)
    return (p * F.one_hot(chosen, logits.shape[-1])).sum(-1), chosen


def log_probability(logits):
    return logits.log_softmax(-1).max(-1)


def kept_dimension(logits):
    return logits.softmax(-1).topk(1)


def second_best(logits):
    value, index = logits.softmax(-1).topk(2)
    return value[:, 1], index[:, 1]


# balance
def by_bincount(logits, chosen):
    n, e = logits.shape
    count = torch.bincount(chosen.flatten(), minlength=e).to(logits)
    return e * torch.dot(count, logits.softmax(dim=1).sum(0)) / (n * chosen.numel())


def by_a_mask(logits, chosen):
    f = torch.zeros_like(logits).scatter(1, chosen, 1.0).sum(0) / chosen.numel()
    return logits.shape[1] * (f @ F.softmax(logits, -1).mean(0))


def first_choices_only(logits, chosen):
    return by_bincount(logits, chosen[:, :1])


def straight_mean_of_chosen(logits, chosen):
    """Each token's own probability of its experts."""
    return logits.shape[-1] * logits.softmax(-1).gather(1, chosen).mean()


def squared_difference(logits, chosen):
    e = logits.shape[-1]
    f = torch.bincount(chosen.flatten(), minlength=e).to(logits) / chosen.numel()
    return e * ((f - logits.softmax(-1).mean(0)) ** 2).sum()


# layer
def by_loop(x, w_router, correction, w_gate, w_up, w_down, k, scale):
    score = (x @ w_router).sigmoid()
    chosen = torch.topk(score + correction, k, dim=-1)[1]
    g = torch.take_along_dim(score, chosen, 1)
    g = g * (scale / g.sum(1, keepdim=True))
    y = (F.silu(x @ w_gate[-1]) * (x @ w_up[-1])) @ w_down[-1]
    for i in range(len(w_gate) - 1):
        token, slot = torch.where(chosen == i)
        out = (F.silu(x[token] @ w_gate[i]) * (x[token] @ w_up[i])) @ w_down[i]
        y = y.index_add(0, token, g[token, slot, None] * out)
    return y


def by_slots(x, w_router, correction, w_gate, w_up, w_down, k, scale, shift=0, power=1):
    """The matrices of every token's experts, one place of the k after the other."""
    score = torch.sigmoid(x @ w_router)
    chosen = (-score - correction).argsort(-1)[:, shift : shift + k]
    g = score.gather(1, chosen) ** power
    y = (F.silu(x @ w_gate[-1]) * (x @ w_up[-1])) @ w_down[-1]
    for slot in range(chosen.shape[1]):
        i = chosen[:, slot]
        h = F.silu(x[:, None] @ w_gate[i]) * (x[:, None] @ w_up[i])
        y = y + scale * (g[:, slot] / g.sum(1))[:, None] * (h @ w_down[i])[:, 0]
    return y


def second_best_too(x, w_router, correction, w_gate, w_up, w_down, k, scale):
    """One expert too few: the best is passed over."""
    return by_slots(x, w_router, correction, w_gate, w_up, w_down, k, scale, shift=1)


def squared_scores(x, w_router, correction, w_gate, w_up, w_down, k, scale):
    return by_slots(x, w_router, correction, w_gate, w_up, w_down, k, scale, power=2)


def shared_twice(x, w_router, correction, w_gate, w_up, w_down, k, scale):
    y = (F.silu(x @ w_gate[-1]) * (x @ w_up[-1])) @ w_down[-1]
    return y + by_slots(x, w_router, correction, w_gate, w_up, w_down, k, scale)


RIGHT = [
    Right("experts.top_one", "by the cross-entropy of the best", logarithms),
    Right("experts.top_one", "a product with a one-hot row", by_one_hot),
    Right("experts.balance", "counted by bincount", by_bincount),
    Right("experts.balance", "a matrix of zeros and ones", by_a_mask),
    Right("experts.layer", "a loop over the experts", by_loop),
    Right("experts.layer", "the matrices of every token", by_slots),
]
WRONG = [
    Wrong("experts.top_one", "the logarithm", log_probability),
    Wrong("experts.top_one", "the second best", second_best),
    Wrong("experts.top_one", "a dimension of one is left", kept_dimension),
    Wrong("experts.balance", "the first choices alone", first_choices_only),
    Wrong("experts.balance", "the mean over the chosen", straight_mean_of_chosen),
    Wrong("experts.balance", "a squared difference", squared_difference),
    Wrong("experts.layer", "the best expert is passed over", second_best_too),
    Wrong("experts.layer", "squares of the scores", squared_scores),
    Wrong("experts.layer", "the shared expert twice", shared_twice),
]
