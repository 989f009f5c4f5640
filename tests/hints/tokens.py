"""Chapter 17: what its exercises and questions print, and from where it is known."""

from torch import nn

from .texts import Entries, Formula, LeftOut

CALLS = "a call of a function of the page; the solution makes it, and a test runs that"


def multiplied():
    """Multiplications of one token, counted in the matrices: of a block, and of the output."""
    width, size = 6, 11
    attention = [nn.Linear(width, width, bias=False) for _ in range(4)]
    feed_forward = [
        nn.Linear(width, 4 * width, bias=False),
        nn.Linear(4 * width, width, bias=False),
    ]
    in_a_block = sum(one.weight.numel() for one in attention + feed_forward)
    output = nn.Linear(width, size, bias=False)
    return {"M": in_a_block, "W": output.weight.numel(), "d": width, "V": size}


ENTRIES: Entries = {
    ("ex-tokens-pays", "12d^2", "Vd"): Formula(
        multiplied, claim=r"M=@0,\qquad W=@1", says=("for each token in each block",)
    ),
    ("ex-tokens-dead", "told(300)", "tokenizer(400).tokens(text)"): LeftOut(CALLS),
    ("ex-tokens-bpb", "bigram(0)", "bigram(400)"): LeftOut(CALLS),
}
