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


# groups
def by_thresholds(scores, num_groups, top_groups, top_k):
    n, e = scores.shape
    blocks = scores.reshape(n, num_groups, e // num_groups)
    value = blocks.sort(-1, descending=True).values[..., :2].sum(-1)
    rank = value.argsort(-1, descending=True).argsort(-1)
    left = torch.where((rank < top_groups)[..., None], blocks, torch.tensor(-torch.inf).to(scores))
    left = left.reshape(n, e)
    return left.argsort(-1, descending=True).argsort(-1) < top_k


def group_means(scores, num_groups, top_groups, top_k):
    blocks = scores.unflatten(-1, (num_groups, -1))
    value = blocks.mean(-1)
    kept = torch.zeros_like(value, dtype=torch.bool)
    kept.scatter_(-1, value.topk(top_groups).indices, True)
    left = blocks.masked_fill(~kept[..., None], -torch.inf).flatten(-2)
    return torch.zeros_like(scores, dtype=torch.bool).scatter(-1, left.topk(top_k).indices, True)


def one_group_for_all(scores, num_groups, top_groups, top_k):
    blocks = scores.unflatten(-1, (num_groups, -1))
    value = blocks.topk(2).values.sum(-1).mean(0)  # over the tokens
    kept = torch.zeros(num_groups, dtype=torch.bool).scatter(
        0, value.topk(top_groups).indices, True
    )
    left = blocks.masked_fill(~kept[:, None], -torch.inf).flatten(-2)
    return torch.zeros_like(scores, dtype=torch.bool).scatter(-1, left.topk(top_k).indices, True)


def whole_groups(scores, num_groups, top_groups, top_k):
    blocks = scores.unflatten(-1, (num_groups, -1))
    value = blocks.topk(2).values.sum(-1)
    kept = torch.zeros_like(value, dtype=torch.bool)
    kept.scatter_(-1, value.topk(top_groups).indices, True)
    return kept.repeat_interleave(blocks.shape[-1], -1)


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
    Right("experts.groups", "by ranks", by_thresholds),
    Right("experts.dispatch", "a loop over the experts", by_loop),
    Right("experts.dispatch", "the matrices of every token", by_slots),
]
WRONG = [
    Wrong("experts.top_one", "the logarithm", log_probability),
    Wrong("experts.top_one", "the second best", second_best),
    Wrong("experts.top_one", "a dimension of one is left", kept_dimension),
    Wrong("experts.groups", "means of groups", group_means, "a group counts as the sum of all"),
    Wrong("experts.groups", "the same groups for all tokens", one_group_for_all),
    Wrong("experts.groups", "whole groups", whole_groups),
    Wrong("experts.dispatch", "the first expert alone", first_expert_only),
    Wrong("experts.dispatch", "a softmax of the weights", renormalised_again),
    Wrong("experts.dispatch", "squares of the weights", squared_weights),
]
