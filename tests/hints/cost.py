"""Chapter 16: what its exercises and questions print, and from where it is known."""

from .texts import Code, Entries, Formula, draw, oracle

BLOCK = {"batch": 1, "length": 1, "d_model": 6, "num_heads": 4, "num_kv_heads": 2, "head_dim": 5,
         "d_ff": 7}  # fmt: skip


def features():
    """The features of keys and values: what one more key head costs, times their number."""
    flops = oracle("cost.block_flops")
    more = flops(**{**BLOCK, "num_kv_heads": 3}) - flops(**BLOCK)
    per_feature = 2 * 2 * BLOCK["d_model"]  # a multiplication and an addition, in two matrices
    return BLOCK, more // per_feature * BLOCK["num_kv_heads"]


def intensity():
    """FLOPs over bytes of a product, from the tensors themselves."""
    n, d_in, d_out = 5, 3, 4
    x, w = draw(n, d_in), draw(d_in, d_out)
    tensors = (x, w, x @ w)
    flops = 2 * sum(1 for _ in range(n) for _ in range(d_in) for _ in range(d_out))
    nbytes = sum(t.numel() * t.element_size() for t in tensors)
    return {"I": flops / nbytes, "b": 8, "n": n, r"d_\text{in}": d_in, r"d_\text{out}": d_out}


def as_much_again():
    """The number of keys at which one token's scores cost what its matrices do."""
    flops, layers = oracle("cost.block_flops"), 3
    matrices = layers * flops(**BLOCK, products=0)
    one_key = layers * (flops(**BLOCK, keys=1) - flops(**BLOCK, products=0))
    return {"S": matrices / one_key, r"N_\text{mat}": matrices // 2, "L": layers, "H": 4,
            r"d_\text{head}": 5}  # fmt: skip


def trained():
    """One token's training step without attention's products: forwards, and twice that back."""
    matrices = oracle("cost.block_flops")(**BLOCK, products=0)
    return {"N": matrices // 2, "c": matrices + 2 * matrices}


ENTRIES: Entries = {
    ("ex-cost-block", "num_kv_heads * head_dim"): Code(
        features, ("num_heads * head_dim", "num_kv_heads + head_dim", "2 * num_kv_heads * head_dim")
    ),
    ("ex-cost-critical", "1/I"): Formula(
        intensity,
        claim=r"@0=\frac b2\left(\frac1n+\frac1{d_\text{in}}+\frac1{d_\text{out}}\right)",
        says=("is a sum of three terms. Two of them do not depend on the rows",),
    ),
    ("ex-cost-utilization", "6N"): Formula(trained, claim="c=@0", says=("By the rule",)),
    (
        "Where does 6N come from, and when is it wrong?", r"S=N_\text{mat}/(2LHd_\text{head})",
    ): Formula(as_much_again, says=("as much again at",)),
}  # fmt: skip
