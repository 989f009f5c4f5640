"""Chapter 23: answers to its exercises that the checkers do not know."""

import torch

from . import Right, Wrong

# serving.append


def with_divmod(memory, users, table, length, row):
    memory, users, table = memory.clone(), users[:], table[:]
    block, offset = divmod(length, memory.shape[1])
    if block == len(table):
        new = next(n for n, count in enumerate(users) if count == 0)
        table, users[new] = [*table, new], 1
    elif users[table[block]] > 1:
        new = next(n for n, count in enumerate(users) if count == 0)
        users[table[block]] -= 1
        users[new] = 1
        memory[new, :offset] = memory[table[block], :offset]
        memory[new, offset:] = memory[table[block], offset:]
        table[block] = new
    memory[table[block], offset] = row
    return memory, users, table


def in_place(memory, users, table, length, row):
    size = memory.shape[1]
    if length % size == 0:
        table.append(users.index(0))
        users[table[-1]] = 1
    elif users[table[-1]] > 1:
        old, table[-1] = table[-1], users.index(0)
        memory[table[-1]] = memory[old]
        users[old] -= 1
        users[table[-1]] = 1
    memory[table[-1], length % size] = row
    return memory, users, table


def copied_whenever_shared(memory, users, table, length, row):
    memory, users, table = memory.clone(), list(users), list(table)
    size = memory.shape[1]
    if length % size == 0:
        table.append(users.index(0))
        users[table[-1]] += 1
    elif users[table[-1]] > 2:
        old = table[-1]
        table[-1] = users.index(0)
        memory[table[-1]] = memory[old]
        users[old] -= 1
        users[table[-1]] += 1
    memory[table[-1], length % size] = row
    return memory, users, table


def counted_but_not_copied(memory, users, table, length, row):
    memory, users, table = memory.clone(), list(users), list(table)
    size = memory.shape[1]
    if length % size == 0:
        table.append(users.index(0))
        users[table[-1]] = 1
    elif users[table[-1]] > 1:
        users[table[-1]] -= 1
        table[-1] = users.index(0)
        users[table[-1]] = 1
    memory[table[-1], length % size] = row
    return memory, users, table


# serving.plan


def in_two_loops(running, waiting, slots, budget):
    texts = [*running, *waiting][: max(slots, len(running))]
    plan = {}
    for writes in (True, False):
        for at, (known, read) in enumerate(texts):
            if (known - read == 1) == writes:
                plan[at] = min(known - read, budget)
                budget -= plan[at]
    return [plan[at] for at in range(len(texts))]


def by_indices(running, waiting, slots, budget):
    queue, texts = list(waiting), list(running)
    while queue and len(texts) < slots:
        texts.append(queue.pop(0))
    todo = [k - r for k, r in texts]
    order = [n for n, t in enumerate(todo) if t == 1] + [n for n, t in enumerate(todo) if t != 1]
    plan = [0 for _ in texts]
    for n in order:
        plan[n] = todo[n] if todo[n] < budget else budget
        budget = budget - plan[n]
    return plan


def takes_from_the_queue(running, waiting, slots, budget):
    while waiting and len(running) < slots:
        running.append(waiting.pop(0))
    return in_two_loops(running, [], slots, budget)


def only_who_reads(running, waiting, slots, budget):
    return [n for n in in_two_loops(running, waiting, slots, budget) if n]


def in_the_order_of_service(running, waiting, slots, budget):
    texts = sorted((running + waiting)[:slots], key=lambda text: text[0] - text[1] > 1)
    return in_two_loops(texts, [], slots, budget)


def shared_out_evenly(running, waiting, slots, budget):
    texts = (running + waiting)[:slots]
    return [min(known - read, budget // len(texts)) for known, read in texts]


# serving.residual


def by_minimum(p, q):
    rest = p - torch.minimum(p, q)
    total = rest.sum(dim=-1, keepdim=True)
    safe = torch.where(total == 0, torch.ones_like(total), total)
    return torch.where(total == 0, p, rest / safe)


def by_masking(p, q):
    rest = torch.where(p > q, p - q, torch.zeros_like(p))
    total = rest.sum(-1, keepdim=True)
    return torch.where(total.expand_as(p) > 0, rest / total.clamp(min=torch.finfo(p.dtype).tiny), p)


def only_what_is_larger(p, q):
    kept = torch.where(p > q, p, torch.zeros_like(p))
    total = kept.sum(-1, keepdim=True)
    return torch.where(total > 0, kept / torch.where(total > 0, total, 1.0), p)


def over_everything(p, q):
    rest = (p - q).clamp(min=0)
    return torch.where(rest.sum() > 0, rest / rest.sum(), p)


def with_an_epsilon(p, q):
    rest = (p - q).clamp(min=0)
    return rest / (rest.sum(-1, keepdim=True) + 1e-6)


# serving.groups


def by_reshape(x, bits, group):
    flat = x.reshape(-1, group)
    step = flat.abs().max(dim=1, keepdim=True)[0] / (2 ** (bits - 1) - 1)
    step[step == 0] = 1
    return (torch.round(flat / step) * step).reshape(x.shape)


def by_split(x, bits, group):
    parts = []
    for part in x.split(group, -1):
        step = part.abs().amax(-1, keepdim=True) / (2 ** (bits - 1) - 1)
        step = torch.where(step > 0, step, torch.ones_like(step))
        parts.append((part / step).round() * step)
    return torch.cat(parts, -1)


def one_fault_left(x, bits, group):
    parts = x.unflatten(-1, (-1, group))
    scale = parts.abs().amax(-1, keepdim=True) / 2 ** (bits - 1)
    scale = torch.where(scale == 0, 1.0, scale)
    return ((parts / scale).round() * scale).flatten(-2)


def asymmetric(x, bits, group):
    parts = x.unflatten(-1, (-1, group))
    low, high = parts.amin(-1, keepdim=True), parts.amax(-1, keepdim=True)
    scale = (high - low) / (2**bits - 1)
    scale = torch.where(scale == 0, 1.0, scale)
    return (((parts - low) / scale).round() * scale + low).flatten(-2)


def rows_not_groups(x, bits, group):
    scale = x.abs().amax(-1, keepdim=True) / (2 ** (bits - 1) - 1)
    scale = torch.where(scale == 0, 1.0, scale)
    return (x / scale).round() * scale


WRONG = [
    Wrong("serving.append", "what was given is changed", in_place),
    Wrong("serving.append", "copied from three users on", copied_whenever_shared,
          "no copy on write"),
    Wrong("serving.append", "a new block without the old rows", counted_but_not_copied,
          "an empty copy"),
    Wrong("serving.plan", "what was given is changed", takes_from_the_queue),
    Wrong("serving.plan", "texts without a token left out", only_who_reads),
    Wrong("serving.plan", "in the order of service", in_the_order_of_service),
    Wrong("serving.plan", "the same for each", shared_out_evenly),
    Wrong("serving.residual", "p where it is larger", only_what_is_larger),
    Wrong("serving.residual", "divided by the sum of all rows", over_everything),
    Wrong("serving.residual", "an epsilon in the sum", with_an_epsilon),
    Wrong("serving.groups", "the codes still go to 8", one_fault_left, "one code too many"),
    Wrong("serving.groups", "from the least to the largest entry", asymmetric),
    Wrong("serving.groups", "a scale for each row", rows_not_groups),
]  # fmt: skip
RIGHT = [
    Right("serving.append", "by quotient and remainder", with_divmod),
    Right("serving.plan", "in two loops", in_two_loops),
    Right("serving.plan", "by a list of places", by_indices),
    Right("serving.residual", "p less the smaller of the two", by_minimum),
    Right("serving.residual", "by a mask", by_masking),
    Right("serving.groups", "groups as rows", by_reshape),
    Right("serving.groups", "group by group", by_split),
]
