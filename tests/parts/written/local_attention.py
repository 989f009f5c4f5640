"""Chapter 21: answers to its exercises that the checkers do not know."""

import torch
import torch.nn.functional as F

from . import Right, Wrong

# local_attention.pattern


def by_most_full(num_layers, window, length, room):
    best = None
    for every in range(num_layers + 1, 0, -1):
        kinds = [n % every == every - 1 for n in range(num_layers)]
        kept = sum(length if full else min(window, length) for full in kinds)
        if kept <= room:
            best = [None if full else window for full in kinds]
    if best is None:
        raise ValueError("no room")
    return best


def with_while(num_layers, window, length, room):
    every = 1
    while True:
        full = num_layers // every
        if full * length + (num_layers - full) * min(window, length) <= room:
            return [None if (n + 1) % every == 0 else window for n in range(num_layers)]
        if full == 0:
            raise ValueError("no room")
        every += 1


def never_none_full(num_layers, window, length, room):
    for every in range(1, num_layers + 1):
        full = num_layers // every
        if full * length + (num_layers - full) * min(window, length) <= room:
            return [None if (n + 1) % every == 0 else window for n in range(num_layers)]
    raise ValueError("no room")


def length_for_none(num_layers, window, length, room):
    return [length if w is None else w for w in with_while(num_layers, window, length, room)]


def full_one_too_late(num_layers, window, length, room):
    made = with_while(num_layers, window, length, room)
    return [window, *made[:-1]]


# local_attention.tiled


def with_split(q, k, v, size):
    top = torch.full_like(q[..., :1], -torch.inf)
    z, o = 0.0, 0.0
    for keys, values in zip(k.split(size, -2), v.split(size, -2), strict=True):
        s = torch.einsum("...td,...sd->...ts", q, keys) / q.shape[-1] ** 0.5
        best = torch.maximum(top, s.max(-1, keepdim=True).values)
        z = z * torch.exp(top - best) + torch.exp(s - best).sum(-1, keepdim=True)
        o = o * torch.exp(top - best) + torch.exp(s - best) @ values
        top = best
    return o / z


def two_passes(q, k, v, size):
    scale = q.shape[-1] ** -0.5
    tops = [(scale * q @ part.mT).amax(-1) for part in k.split(size, -2)]
    top = torch.stack(tops).amax(0)[..., None]
    z, o = 0, 0
    for keys, values in zip(k.split(size, -2), v.split(size, -2), strict=True):
        p = torch.exp(scale * q @ keys.mT - top)
        z, o = z + p.sum(-1, keepdim=True), o + p @ values
    return o / z


def all_at_once(q, k, v, size):
    s = q @ k.mT / q.shape[-1] ** 0.5
    p = torch.exp(s - s.amax(-1, keepdim=True))
    return p @ v / p.sum(-1, keepdim=True)


def by_softmax(q, k, v, size):
    return F.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1) @ v


def only_the_sum_repaired(q, k, v, size):
    m = q.new_full((*q.shape[:-1], 1), -torch.inf)
    total, out = torch.zeros_like(m), q.new_zeros((*q.shape[:-1], v.shape[-1]))
    for a in range(0, k.shape[-2], size):
        scores = q @ k[..., a : a + size, :].mT / q.shape[-1] ** 0.5
        new = torch.maximum(m, scores.amax(-1, keepdim=True))
        weights = torch.exp(scores - new)
        total = total * torch.exp(m - new) + weights.sum(-1, keepdim=True)
        out = out + weights @ v[..., a : a + size, :]
        m = new
    return out / total


def rescaled_by_the_wrong_factor(q, k, v, size):
    m = q.new_full((*q.shape[:-1], 1), -torch.inf)
    total, out = torch.zeros_like(m), q.new_zeros((*q.shape[:-1], v.shape[-1]))
    for a in range(0, k.shape[-2], size):
        scores = q @ k[..., a : a + size, :].mT / q.shape[-1] ** 0.5
        new = torch.maximum(m, scores.amax(-1, keepdim=True))
        shrink = torch.exp(m - new) ** 2
        weights = torch.exp(scores - new)
        total = total * shrink + weights.sum(-1, keepdim=True)
        out = out * shrink + weights @ v[..., a : a + size, :]
        m = new
    return out / total


# local_attention.merge


def by_stacked_softmax(o1, l1, o2, l2):
    total = torch.logaddexp(l1, l2)
    lses = torch.stack([l1, l2], -1)
    lses = lses.masked_fill((lses == -torch.inf).all(-1, keepdim=True), 0.0)
    shares = lses.softmax(-1)
    return shares[..., :1] * o1 + shares[..., 1:] * o2, total


def in_float64(o1, l1, o2, l2):
    a, b = l1.double(), l2.double()
    total = torch.logaddexp(a, b)
    base = torch.where(total == -torch.inf, torch.zeros_like(total), total)
    out = torch.exp(a - base)[..., None] * o1 + torch.exp(b - base)[..., None] * o2
    return out.to(o1.dtype), total.to(l1.dtype)


def a_plain_mean(o1, l1, o2, l2):
    return (o1 + o2) / 2, torch.logaddexp(l1, l2)


def overflows(o1, l1, o2, l2):
    a, b = l1.exp()[..., None], l2.exp()[..., None]
    return (a * o1 + b * o2) / (a + b), torch.logaddexp(l1, l2)


def the_better_part(o1, l1, o2, l2):
    out = torch.where((l1 > l2)[..., None], o1, o2)
    return out, torch.logaddexp(l1, l2)


def only_the_output(o1, l1, o2, l2):
    return by_stacked_softmax(o1, l1, o2, l2)[0]


# local_attention.lost


def by_one_hot_values(attend, length):
    q, k = torch.randn(2, length, length, dtype=torch.float64)
    weights = attend(q, k, torch.eye(length, dtype=torch.float64))[-1]
    return [n for n in range(length) if weights[length - 1 - n] == 0]


def by_jacobian(attend, length):
    q, k, v = (torch.randn(length, 3, dtype=torch.float64) for _ in range(3))
    slope = torch.autograd.functional.jacobian(lambda v: attend(q, k, v)[-1], v)
    return [n for n in range(length) if not slope[:, length - 1 - n].any()]


def by_keys(attend, length):
    q, k, v = (torch.randn(length, 3, dtype=torch.float64) for _ in range(3))
    before, lost = attend(q, k, v)[-1], []
    for n in range(length):
        other = k.clone()
        other[length - 1 - n] += 1.0
        if torch.equal(attend(q, other, v)[-1], before):
            lost.append(n)
    return lost


def how_many(attend, length):
    return len(by_one_hot_values(attend, length))


def as_a_window(attend, length):
    lost = by_one_hot_values(attend, length)
    return list(range(min(lost), length)) if lost else []


WRONG = [
    Wrong("local_attention.pattern", "at least one full layer", never_none_full),
    Wrong("local_attention.pattern", "the length in place of None", length_for_none),
    Wrong("local_attention.pattern", "full layers one too late", full_one_too_late),
    Wrong("local_attention.tiled", "all scores at once", all_at_once,
          says="without making all scores at once"),
    Wrong("local_attention.tiled", "the softmax of the whole row", by_softmax, says="no `softmax`"),
    Wrong("local_attention.tiled", "the last tile repaired only", only_the_sum_repaired,
          "the output is not rescaled"),
    Wrong("local_attention.tiled", "the square of the factor", rescaled_by_the_wrong_factor),
    Wrong("local_attention.merge", "half and half", a_plain_mean, "the mean of the two"),
    Wrong("local_attention.merge", "exponentials as they are", overflows, "without a maximum"),
    Wrong("local_attention.merge", "the better part alone", the_better_part),
    Wrong("local_attention.merge", "the output alone", only_the_output),
    Wrong("local_attention.lost", "keys changed, not values", by_keys),
    Wrong("local_attention.lost", "their number", how_many),
    Wrong("local_attention.lost", "everything from the first one lost", as_a_window),
]  # fmt: skip
RIGHT = [
    Right("local_attention.pattern", "from the fewest full layers up", by_most_full),
    Right("local_attention.pattern", "by division", with_while),
    Right("local_attention.tiled", "with split and einsum", with_split),
    Right("local_attention.tiled", "the maximum in a pass of its own", two_passes),
    Right("local_attention.merge", "a softmax of the log-sum-exps", by_stacked_softmax),
    Right("local_attention.merge", "in float64 on the way", in_float64),
    Right("local_attention.lost", "one value for each key", by_one_hot_values),
    Right("local_attention.lost", "by the Jacobian", by_jacobian),
]
