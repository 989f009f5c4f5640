"""Chapter 24: answers to its exercises that the checkers do not know."""

import math

import torch

from . import Right, Wrong

# recurrence.half_life


def from_random_tables(write, d):
    table = torch.randn(d, d, dtype=torch.float64)
    zero = torch.zeros(d, dtype=torch.float64)
    later = write(write(table, zero, zero), zero, zero)
    share = (later.sum() / table.sum()).item() ** 0.5
    return math.inf if abs(share - 1) < 1e-9 else -math.log(2) / math.log(share)


def by_counting(write, d):
    one, zero = torch.ones(d, dtype=torch.float64), torch.zeros(d, dtype=torch.float64)
    table = write(torch.zeros(d, d, dtype=torch.float64), one, one)
    goal, tokens = table.norm() / 2, 0
    while table.norm() > goal and tokens < 5000:
        table, tokens = write(table, zero, zero), tokens + 1
    return math.inf if tokens == 5000 else tokens


def with_a_random_second_token(write, d):
    one = torch.zeros(d, dtype=torch.float64)
    one[0] = 1.0
    table = write(torch.zeros(d, d, dtype=torch.float64), one, one)
    later = write(table, torch.ones(d, dtype=torch.float64), one)
    share = (later.norm() / table.norm()).item()
    return math.inf if share >= 1 else math.log(0.5) / math.log(share)


def to_base_two_of_nothing(write, d):
    one, zero = torch.ones(d, dtype=torch.float64), torch.zeros(d, dtype=torch.float64)
    table = write(torch.zeros(d, d, dtype=torch.float64), one, one)
    share = (write(table, zero, zero).norm() / table.norm()).item()
    return math.inf if share == 1 else 0.5 / (1 - share)


# recurrence.chunked


def by_scaled_rows(q, k, v, g, size):
    outs, memory = [], torch.zeros(k.shape[1], v.shape[1], dtype=v.dtype)
    for start in range(0, len(q), size):
        stop = min(start + size, len(q))
        rows = []
        for i in range(start, stop):
            rows.append(q[i] @ memory * g[start : i + 1].sum().exp())
            for j in range(start, i + 1):
                rows[-1] = rows[-1] + g[j + 1 : i + 1].sum().exp() * (q[i] @ k[j]) * v[j]
        outs.extend(rows)
        memory = memory * g[start:stop].sum().exp()
        for j in range(start, stop):
            memory = memory + g[j + 1 : stop].sum().exp() * torch.outer(k[j], v[j])
    return torch.stack(outs)


def the_whole_table(q, k, v, g, size):
    since = g.cumsum(0)
    left = (since[:, None] - since).tril().exp().tril()
    return (q @ k.T * left) @ v


def only_the_reading_repaired(q, k, v, g, size):
    memory, outs = q.new_zeros(q.shape[1], v.shape[1]), []
    for qc, kc, vc, gc in zip(*(x.split(size) for x in (q, k, v, g)), strict=True):
        since = gc.cumsum(0)[:, None]
        fade = (since - since.T).tril().exp().tril()
        outs.append((qc @ kc.T * fade) @ vc + (qc * since.exp()) @ memory)
        memory = memory + (kc * (since[-1] - since).exp()).T @ vc
    return torch.cat(outs)


def handed_on_with_the_first_decay(q, k, v, g, size):
    memory, outs = q.new_zeros(q.shape[1], v.shape[1]), []
    for qc, kc, vc, gc in zip(*(x.split(size) for x in (q, k, v, g)), strict=True):
        since = gc.cumsum(0)[:, None]
        fade = (since - since.T).tril().exp().tril()
        outs.append((qc @ kc.T * fade) @ vc + (qc * since.exp()) @ memory)
        memory = since[0].exp() * memory + (kc * (since[-1] - since).exp()).T @ vc
    return torch.cat(outs)


# recurrence.delta


def with_einsum(S, q, k, v, alpha, beta):
    faded = torch.einsum("...,...de->...de", alpha, S)
    read = torch.einsum("...d,...de->...e", k, faded)
    new = faded + torch.einsum("...,...d,...e->...de", beta, k, v - read)
    return torch.einsum("...d,...de->...e", q, new), new


def erase_then_write(S, q, k, v, alpha, beta):
    kept = S * alpha[..., None, None]
    erased = kept - beta[..., None, None] * k.unsqueeze(-1) @ (k.unsqueeze(-2) @ kept)
    new = erased + beta[..., None, None] * k.unsqueeze(-1) @ v.unsqueeze(-2)
    return (q.unsqueeze(-2) @ new).squeeze(-2), new


def in_place(S, q, k, v, alpha, beta):
    with torch.no_grad():
        S *= alpha[..., None, None]
    missing = v - (k[..., None, :] @ S).squeeze(-2)
    new = S + k[..., None] * (beta[..., None] * missing)[..., None, :]
    return (q[..., None, :] @ new).squeeze(-2), new


def beta_on_the_value_only(S, q, k, v, alpha, beta):
    S = alpha[..., None, None] * S
    missing = beta[..., None] * v - (k[..., None, :] @ S).squeeze(-2)
    new = S + k[..., None] * missing[..., None, :]
    return (q[..., None, :] @ new).squeeze(-2), new


def output_alone(S, q, k, v, alpha, beta):
    return with_einsum(S, q, k, v, alpha, beta)[0]


# recurrence.join


def by_blocks(A1, B1, A2, B2):
    both = A2 @ torch.cat([A1, B1], -1)
    d = A1.shape[-1]
    return both[..., :d], both[..., d:] + B2


def by_einsum(A1, B1, A2, B2):
    return (
        torch.einsum("...ij,...jk->...ik", A2, A1),
        B2 + torch.einsum("...ij,...jk->...ik", A2, B1),
    )


def transposed(A1, B1, A2, B2):
    return A1 @ A2, A2 @ B1 + B2


def all_added(A1, B1, A2, B2):
    return A2 @ A1, B1 + B2


def earlier_last(A1, B1, A2, B2):
    return A2 @ A1, A1 @ B2 + B1


WRONG = [
    Wrong("recurrence.half_life", "whole tokens", by_counting, "rounded up"),
    Wrong("recurrence.half_life", "another token in between", with_a_random_second_token),
    Wrong("recurrence.half_life", "as if it fell along a line", to_base_two_of_nothing),
    Wrong("recurrence.chunked", "the whole table", the_whole_table,
          says="without making a table of all T by T products"),
    Wrong("recurrence.chunked", "one fault of two", only_the_reading_repaired,
          "the memory is handed on as it was"),
    Wrong("recurrence.chunked", "the first decay of the chunk", handed_on_with_the_first_decay),
    Wrong("recurrence.delta", "the old table overwritten", in_place),
    Wrong("recurrence.delta", "the step on the value alone", beta_on_the_value_only),
    Wrong("recurrence.delta", "the output alone", output_alone),
    Wrong("recurrence.join", "the first matrix on the left", transposed,
          "the matrices the wrong way round"),
    Wrong("recurrence.join", "what was written, added", all_added,
          "what was written first is not changed by the second stretch"),
    Wrong("recurrence.join", "the later one through the earlier one", earlier_last),
]  # fmt: skip
RIGHT = [
    Right("recurrence.half_life", "from random tables", from_random_tables),
    Right("recurrence.chunked", "pair by pair", by_scaled_rows),
    Right("recurrence.delta", "with einsum", with_einsum),
    Right("recurrence.delta", "erase, then write", erase_then_write),
    Right("recurrence.join", "side by side", by_blocks),
    Right("recurrence.join", "with einsum", by_einsum),
]
