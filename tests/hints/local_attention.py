"""Chapter 21: what its exercises and questions print, and from where it is known."""

from .texts import Code, Entries, draw, oracle


def full_layers():
    """The first two full layers of a stack, by the exercise's own reference."""
    windows = oracle("local_attention.pattern")(9, 2, 300, 3 * 300 + 6 * 2)
    return [n for n, window in enumerate(windows) if window is None]


def bytes_of_tile(queries=256, keys=16):
    """The bytes of a tile and of the four blocks of rows beside it, entry by entry."""
    scores, out = draw(queries, keys).float(), draw(queries, 128).float()
    blocks = [draw(n, 128).half() for n in (queries, keys, keys)]
    return sum(t.nbytes for t in (scores, out, *blocks))


ENTRIES: Entries = {
    ("ex-local-pattern", "every - 1"): Code(
        lambda: ({"every": 3}, full_layers()[0]), ("every", "every + 1")
    ),
    ("ex-local-pattern", "2 * every - 1"): Code(
        lambda: ({"every": 3}, full_layers()[1]), ("2 * every", "2 * (every - 1)")
    ),
    ("ex-local-tile", "768 * bq + 512 * bk + 4 * bq * bk"): Code(
        lambda: ({"bq": 256, "bk": 16}, bytes_of_tile()),
        ("512 * bq + 512 * bk + 4 * bq * bk", "768 * bq + 512 * bk + 2 * bq * bk"),
    ),
    ("ex-local-lost", "length - 1 - n"): Code(
        lambda: ({"length": 9, "n": 2}, list(reversed(range(9))).index(2)),
        ("length - n", "n", "length - 2 - n"),
    ),
}
