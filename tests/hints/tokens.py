"""Chapter 17: what its exercises and questions print, and from where it is known."""

from .texts import Code, Entries, LeftOut

CALLS = "a call of a function of the page; the solution makes it, and a test runs that"

ENTRIES: Entries = {
    ("ex-tokens-merge", "a + b"): Code(
        lambda: ({"a": b"u", "b": b"g"}, b"ug"), ("b + a", "(a, b)", "a")
    ),
    ("ex-tokens-dead", "told(300)", "tokenizer(400).tokens(text)"): LeftOut(CALLS),
    ("ex-tokens-bpb", "bigram(0)", "bigram(400)"): LeftOut(CALLS),
}
