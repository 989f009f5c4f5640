"""Chapter 13: what its exercises print, and from where it is known."""

import torch

from book.formulas.relations import Call

from .texts import Entries, Formula, LeftOut, draw, oracle

EXAMPLE = "sets an example, whose answer is asked"


def all_keys():
    """The reference returns the keys that were cached and those of the chunk."""
    made = []
    for a, t in ((3, 2), (0, 4)):
        new = [draw(1, 2, t, 4, seed=s) for s in range(3)]
        old = [draw(1, 2, a, 4, seed=s) for s in (3, 4)]
        _, keys, _ = oracle("kv_cache.cached_step")(*new, *old, lambda x, positions: x)
        made.append({"a": a, "T": t, "n": keys.shape[2]})
    return Call(made[0], draws=made[1:])


def copies():
    groups, r = 3, 2
    heads = torch.arange(groups).repeat_interleave(r)
    return {"g": heads.double(), "r": r}


def cache_bytes():
    """One token's keys and values in all layers, as tensors."""
    token = [torch.empty(8, 128, dtype=torch.bfloat16) for _ in range(2 * 32)]
    return {"n": sum(t.numel() * t.element_size() for t in token)}


def long_cache():
    """One query and a cache so long that the query's bytes are nothing: FLOPs over bytes."""
    keys = 10**7
    made = [{"I": 4 * h * keys / (b * (2 * g * keys + 2 * h)), "r": h // g, "b": b}
            for h, g, b in ((12, 4, 2), (10, 2, 4))]  # fmt: skip
    return Call(made[0], draws=made[1:], approx=1e-5)


ENTRIES: Entries = {
    ("ex-grouped-attention", "(H, G)=(6, 2)"): LeftOut(EXAMPLE),
    ("ex-cached-step", "a+T"): Formula(all_keys, claim="n=@0", says=("keys. How is",)),
    ("ex-cached-step", "a=0"): LeftOut("a case in which a wrong mask may show nothing"),
    ("ex-cached-step", "T=1"): LeftOut("a case in which a wrong mask may show nothing"),
    ("repeat or repeat_interleave?", r"\lfloor h/r\rfloor"): Formula(
        copies, claim="g_h=@0", says=("uses key–value head",)
    ),
    (
        "What is the size of the cache of a model with 32 layers, 8 key–value heads of 128 "
        "features, in 16 bit?",
        r"2\cdot32\cdot8\cdot128\cdot2",
    ): Formula(
        cache_bytes, claim=r"n=@0=128\cdot1024", says=("bytes, 128 KiB per token",)
    ),
    ("Does a larger batch make decoding arithmetic-bound?", "2r/b"): Formula(
        long_cache, claim=r"I\approx@0", says=("the intensity stays",)
    ),
}  # fmt: skip
