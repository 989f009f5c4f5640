"""Chapter 21: what its exercises and questions print, and from where it is known."""

from .texts import Code, Entries, draw, oracle


def full_layers():
    """The first two full layers of a stack, by the exercise's own reference."""
    windows = oracle("local_attention.pattern")(9, 2, 300, 3 * 300 + 6 * 2)
    return [n for n, window in enumerate(windows) if window is None]


def numbers_of_tile(b=128):
    """Scores of a tile, and the bytes with the four blocks of rows, entry by entry."""
    scores, out = draw(b, b).float(), draw(b, 128).float()
    blocks = [draw(b, 128).half() for _ in range(3)]
    return scores.numel(), sum(t.nbytes for t in (scores, out, *blocks))


ENTRIES: Entries = {
    ("ex-local-pattern", "every - 1"): Code(
        lambda: ({"every": 3}, full_layers()[0]), ("every", "every + 1")
    ),
    ("ex-local-pattern", "2 * every - 1"): Code(
        lambda: ({"every": 3}, full_layers()[1]), ("2 * every", "2 * (every - 1)")
    ),
    ("ex-local-tile", "b * b"): Code(
        lambda: ({"b": 128}, numbers_of_tile()[0]), ("2 * b * b", "b * (b + 1) / 2")
    ),
    ("ex-local-tile", "4 * b * b + 1280 * b"): Code(
        lambda: ({"b": 128}, numbers_of_tile()[1]),
        ("2 * b * b + 1024 * b", "4 * b * b + 1024 * b"),
    ),
    ("ex-local-lost", "length - 1 - n"): Code(
        lambda: ({"length": 9, "n": 2}, list(reversed(range(9))).index(2)),
        ("length - n", "n", "length - 2 - n"),
    ),
}
