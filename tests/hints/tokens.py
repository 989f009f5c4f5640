"""Chapter 17: what its exercises and questions print, and from where it is known."""

import math

from .texts import Code, Entries, Formula


def model(width, layers, rows):
    """The parameters of two tables and of all layers."""
    return {"V": rows, "d": width, "P": 2 * rows * width + layers * 12 * width**2}


ENTRIES: Entries = {
    ("ex-tokens-merge", "a + b"): Code(
        lambda: ({"a": b"u", "b": b"g"}, b"ug"), ("b + a", "(a, b)", "a")
    ),
    ("ex-tokens-share", "12d^2", "2Vd"): Formula(
        lambda: model(6, 24, 11), claim=r"P=@1+24\cdot @0", says=("24 layers of",)
    ),
    ("ex-tokens-share", r"2Vd+24\cdot12d^2"): Formula(lambda: model(7, 24, 10), claim="P=@0"),
    ("ex-tokens-bpb", "T/N"): Formula(
        lambda: {"T": 10, "N": 42}, claim=r"4.2\cdot @0=1", says=("a token has 4.2 bytes",)
    ),
    ("ex-tokens-bpb", r"\ln2"): Formula(
        lambda: {"b": -math.log(0.5)}, claim="b=@0", says=("One bit is",)
    ),
}
