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


# dispatch
def by_loop(x, w_up, w_down, weights, chosen):
    y = torch.zeros_like(x)
    for i in range(len(w_up)):
        token, slot = torch.where(chosen == i)
        out = F.silu(x[token] @ w_up[i]) @ w_down[i]
        y = y.index_add(0, token, weights[token, slot, None] * out)
    return y


def by_slots(x, w_up, w_down, weights, chosen):
    y = 0
    for slot in range(chosen.shape[1]):
        up, down = w_up[chosen[:, slot]], w_down[chosen[:, slot]]
        out = (F.silu(x[:, None] @ up) @ down)[:, 0]
        y = y + weights[:, slot, None] * out
    return y


def first_expert_only(x, w_up, w_down, weights, chosen):
    return by_slots(x, w_up, w_down, weights[:, :1], chosen[:, :1])


def renormalised_again(x, w_up, w_down, weights, chosen):
    return by_slots(x, w_up, w_down, weights.softmax(-1), chosen)


def squared_weights(x, w_up, w_down, weights, chosen):
    return by_slots(x, w_up, w_down, weights**2, chosen)


RIGHT = [
    Right("experts.top_one", "by the cross-entropy of the best", logarithms),
    Right("experts.top_one", "a product with a one-hot row", by_one_hot),
    Right("experts.balance", "counted by bincount", by_bincount),
    Right("experts.balance", "a matrix of zeros and ones", by_a_mask),
    Right("experts.dispatch", "a loop over the experts", by_loop),
    Right("experts.dispatch", "the matrices of every token", by_slots),
]
WRONG = [
    Wrong("experts.top_one", "the logarithm", log_probability),
    Wrong("experts.top_one", "the second best", second_best),
    Wrong("experts.top_one", "a dimension of one is left", kept_dimension),
    Wrong("experts.balance", "the first choices alone", first_choices_only),
    Wrong("experts.balance", "the mean over the chosen", straight_mean_of_chosen),
    Wrong("experts.balance", "a squared difference", squared_difference),
    Wrong("experts.dispatch", "the first expert alone", first_expert_only),
    Wrong("experts.dispatch", "a softmax of the weights", renormalised_again),
    Wrong("experts.dispatch", "squares of the weights", squared_weights),
]
