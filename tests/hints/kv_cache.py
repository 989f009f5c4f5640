"""Chapter 13: what its exercises print, and from where it is known."""

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


def width_cancels():
    """FLOPs per byte of two products, of which each feature is as many times in both."""
    sizes = {"H": 6, "G": 2, "T": 3, "S": 5, "b": 4}
    value = oracle("kv_cache.intensity")(6, 2, 3, 5, 4)
    return Call({**sizes, r"d_\text{head}": 1, "I": value, "J": value},
                draws=[{r"d_\text{head}": 7}, {r"d_\text{head}": 64}])  # fmt: skip


ENTRIES: Entries = {
    ("ex-grouped-attention", "H=6"): LeftOut(EXAMPLE),
    ("ex-grouped-attention", "G=2"): LeftOut(EXAMPLE),
    ("ex-cached-step", "a+T"): Formula(all_keys, claim="n=@0", says=("keys. How is",)),
    ("ex-cached-step", "a=0"): LeftOut("a case in which a wrong mask may show nothing"),
    ("ex-cached-step", "T=1"): LeftOut("a case in which a wrong mask may show nothing"),
    ("ex-intensity", r"d_\text{head}=1"): Formula(
        width_cancels,
        claim=r"I=\frac{4HTS}{b(2HT+2GS)}\text{ for }@0,\qquad"
              r" J=\frac{4HTSd_\text{head}}{b(2HTd_\text{head}+2GSd_\text{head})}",
        says=("Two products", "A multiplication and an addition are two operations", "it cancels"),
    ),
}  # fmt: skip
