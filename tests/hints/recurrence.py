"""Chapter 24: what its exercises and questions print, and from where it is known."""

from .texts import Code, Entries, draw


def what_a_key_reads():
    """With a loop over the features, in the shape that the hint speaks of."""
    memory, key = draw(2, 3, 4), draw(2, 3, seed=1)
    read = draw(2, 1, 4)
    for n in range(2):
        for column in range(4):
            read[n, 0, column] = sum(key[n, i] * memory[n, i, column] for i in range(3))
    return {"S": memory, "k": key}, read


ENTRIES: Entries = {
    ("ex-rec-delta", "k[..., None, :] @ S"): Code(
        what_a_key_reads, ("k @ S", "S @ k[..., :, None]")
    ),
}
