"""Chapter 18: answers to its exercises that the checkers do not know."""

import torch
import torch.nn.functional as F

from . import Right, Wrong


# adamw
def adamw_in_torchs_order(theta, g, m, v, t, lr, betas, eps, weight_decay):
    theta = theta * (1 - lr * weight_decay)
    m = m + (1 - betas[0]) * (g - m)
    v = betas[1] * v + (1 - betas[1]) * g * g
    m_hat = m / (1 - betas[0] ** t)
    v_hat = v / (1 - betas[1] ** t)
    return theta - lr * m_hat / (torch.sqrt(v_hat) + eps), m, v


def decay_after_the_step(theta, g, m, v, t, lr, betas, eps, weight_decay):
    m = betas[0] * m + (1 - betas[0]) * g
    v = betas[1] * v + (1 - betas[1]) * g**2
    step = (m / (1 - betas[0] ** t)) / ((v / (1 - betas[1] ** t)).sqrt() + eps)
    theta = theta - lr * step
    return theta - lr * weight_decay * theta, m, v


def betas_exchanged(theta, g, m, v, t, lr, betas, eps, weight_decay):
    return adamw_in_torchs_order(theta, g, m, v, t, lr, betas[::-1], eps, weight_decay)


def no_root(theta, g, m, v, t, lr, betas, eps, weight_decay):
    m = betas[0] * m + (1 - betas[0]) * g
    v = betas[1] * v + (1 - betas[1]) * g**2
    step = (m / (1 - betas[0] ** t)) / (v / (1 - betas[1] ** t) + eps)
    return theta - lr * weight_decay * theta - lr * step, m, v


# accumulate
def in_one_piece(weight, parts):
    w = weight.detach().clone().requires_grad_()
    x = torch.cat([x for x, _ in parts])
    target = torch.cat([t for _, t in parts])
    F.cross_entropy(x @ w, target).backward()
    return w.grad


def by_hand(weight, parts):
    total, n = torch.zeros_like(weight), 0
    for x, target in parts:
        keep = target >= 0
        p = torch.softmax(x[keep] @ weight, -1)
        p[torch.arange(len(p)), target[keep]] -= 1
        total = total + x[keep].T @ p
        n += len(p)
    return total / n


def weighted_by_rows(weight, parts):
    total, rows = torch.zeros_like(weight), sum(len(t) for _, t in parts)
    for x, target in parts:
        if (target >= 0).any():
            w = weight.detach().requires_grad_()
            loss = F.cross_entropy(x @ w, target) * len(target) / rows
            total += torch.autograd.grad(loss, w)[0]
    return total


WRONG = [
    Wrong("training.adamw", "decay after the step", decay_after_the_step),
    Wrong("training.adamw", "the betas exchanged", betas_exchanged),
    Wrong("training.adamw", "no root", no_root),
    Wrong("training.accumulate", "means weighted by rows", weighted_by_rows),
]

RIGHT = [
    Right("training.adamw", "the decay first", adamw_in_torchs_order),
    Right("training.accumulate", "all pieces joined", in_one_piece),
    Right("training.accumulate", "the softmax by hand", by_hand),
]
