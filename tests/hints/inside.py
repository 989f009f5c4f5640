"""Chapter 19: what its exercises and questions print, and from where it is known."""

from .texts import Code, Entries, draw

ENTRIES: Entries = {
    ("ex-inside-score", "weights.diagonal(offset, -2, -1)"): Code(
        lambda: (
            {"weights": draw(9, 9), "offset": -3},
            draw(9, 9).flatten()[27::10][:6],
        ),
        (
            "weights.diagonal(-offset, -2, -1)",
            "weights.diagonal(offset + 1, -2, -1)",
            "weights.diagonal(offset, -1, -2)",
        ),
    ),
}
