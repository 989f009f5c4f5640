"""Questions of the assignment: count_changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from book.checkers.core import Answer, Case, Exercise, WrongAnswer, in_parts

# --- count_changes --------------------------------------------------------------------------------

Pair = tuple[str, str]
Change = tuple[str, str, int]


def _count_changes(tokens: Sequence[str], pair: Pair) -> list[Change]:
    """Counted before and after, with the merge made on a marked text."""
    joined: list[str] = []
    rest = list(tokens)
    while rest:
        if tuple(rest[:2]) == tuple(pair):
            joined.append(pair[0] + pair[1])
            rest = rest[2:]
        else:
            joined.append(rest.pop(0))
    changes: dict[Pair, int] = {}
    for row, sign in ((list(tokens), -1), (joined, 1)):
        for i in range(len(row) - 1):
            key = row[i], row[i + 1]
            changes[key] = changes.get(key, 0) + sign
    return sorted((a, b, n) for (a, b), n in changes.items() if n)


def _from_left(tokens: Sequence[str], pair: Pair) -> list[str]:
    out: list[str] = []
    for token in tokens:
        if out and (out[-1], token) == tuple(pair) and out[-1] != "":
            out[-1:] = [pair[0] + pair[1], ""]
        else:
            out.append(token)
    return [token for token in out if token]


def _from_right(tokens: Sequence[str], pair: Pair) -> list[str]:
    turned = _from_left(tokens[::-1], (pair[1], pair[0]))
    other, right = pair[1] + pair[0], pair[0] + pair[1]
    return [right if token == other else token for token in turned[::-1]]


def _first_only(tokens: Sequence[str], pair: Pair) -> list[str]:
    for i, two in enumerate(pairwise(tokens)):
        if two == tuple(pair):
            return [*tokens[:i], pair[0] + pair[1], *tokens[i + 2 :]]
    return list(tokens)


def _apart(tokens: Sequence[str]) -> Counter[Pair]:
    """Pairs, those that overlap with an equal one before them left out."""
    found: Counter[Pair] = Counter()
    last: tuple[int, Pair] | None = None
    for i, two in enumerate(pairwise(tokens)):
        if last == (i - 1, two):
            last = None
            continue
        found[two] += 1
        last = i, two
    return found


@in_parts
def _changes_with(
    join: Callable[[Sequence[str], Pair], list[str]] = _from_left,
    count: Callable[[Sequence[str]], Counter[Pair]] = lambda row: Counter(pairwise(row)),
    keep: Callable[[int], bool] = lambda n: n != 0,
    named: Callable[[Pair, Pair, str], bool] = lambda key, pair, joined: True,
    sign: int = 1,
    order: Callable[[Change], Any] = lambda change: change,
) -> Answer:
    def answer(tokens: Sequence[str], pair: Pair) -> list[Change]:
        before, after = count(tokens), count(join(tokens, pair))
        found = [
            (*key, sign * (after[key] - before[key]))
            for key in {**before, **after}
            if keep(after[key] - before[key]) and named(key, (pair[0], pair[1]), pair[0] + pair[1])
        ]
        return sorted(found, key=order)

    return answer


def _as_given(tokens: Sequence[str], pair: Pair) -> list[Change]:
    """The program that the text asks to repair."""
    a, b = pair
    changes: dict[Pair, int] = {}

    def add(left: str, right: str, n: int) -> None:
        changes[left, right] = changes.get((left, right), 0) + n

    for k in range(len(tokens) - 1):
        if (tokens[k], tokens[k + 1]) == (a, b):
            add(a, b, -1)
            if k > 0:
                add(tokens[k - 1], a, -1)
                add(tokens[k - 1], a + b, 1)
            if k + 2 < len(tokens):
                add(b, tokens[k + 2], -1)
                add(a + b, tokens[k + 2], 1)
    return sorted((left, right, n) for (left, right), n in changes.items())


def _row(name: str, text: str, pair: Pair) -> Case:
    return Case(name, lambda: (list(text) if " " not in text else text.split(), pair))


_CHANGES = Exercise(
    title="What a merge changes in the counts",
    oracle=_count_changes,
    cases=(
        _row("values: one place", "unhugs", ("u", "g")),
        _row("values: two places far apart", "hugandhugs", ("u", "g")),
        _row("values: at both ends", "abcdab", ("a", "b")),
        _row("values: longer tokens", "hug s un hug hug s", ("hug", "s")),
        _row("values: a pair that stays elsewhere", "abxabyaxb", ("x", "a")),
        _row("values: neighbours that also stand alone", "xabyxaxby", ("a", "b")),
        _row("values: six places", "cabcabdabeabab", ("a", "b")),
        _row("corners: one right after the other", "ababab", ("a", "b")),
        _row("corners: three equal ones", "aaa", ("a", "a")),
        _row("corners: five equal ones among others", "baaaaac", ("a", "a")),
        _row("corners: the pair is not there", "abc", ("c", "a")),
        _row("corners: a single token", "a", ("a", "a")),
        _row("corners: no token", "", ("a", "b")),
        _row("corners: what is lost comes back", "aab ab b aab", ("a", "ab")),
        _row("corners: gone on one side, new on the other", "ab a b ab", ("a", "b")),
    ),
    wrong=(
        WrongAnswer(
            "the program as it was",
            "Where two places touch, the neighbour is a joined token already, and in three equal "
            "tokens the pair is merged once.",
            _as_given,
        ),
        WrongAnswer(
            "merged from the right",
            "A merge goes from left to right: of three equal tokens the first two are joined.",
            _changes_with(join=_from_right),
        ),
        WrongAnswer(
            "only the first place merged",
            "The pair is merged wherever it stands, not at its first place alone.",
            _changes_with(join=_first_only),
        ),
        WrongAnswer(
            "pairs that overlap counted once",
            "The counts are of neighbours: in three equal tokens the pair stands twice.",
            _changes_with(count=_apart),
        ),
        WrongAnswer(
            "counts that do not change listed",
            "Only pairs whose count is another one afterwards were asked for.",
            _changes_with(keep=lambda n: True),
        ),
        WrongAnswer(
            "before minus after",
            "A change is the count afterwards minus the count before, so the pair's is negative.",
            _changes_with(sign=-1),
        ),
        WrongAnswer(
            "only the merged pair",
            "The neighbours lose a pair each and get another one, with the joined token.",
            _changes_with(named=lambda key, pair, joined: key == pair),
        ),
        WrongAnswer(
            "new pairs forgotten",
            "The joined token has neighbours too: these pairs are new and have to be counted.",
            _changes_with(named=lambda key, pair, joined: joined not in key),
        ),
        WrongAnswer(
            "pairs that are gone forgotten",
            "What the two tokens formed with their neighbours is gone, and its count falls.",
            _changes_with(keep=lambda n: n > 0),
        ),
        WrongAnswer(
            "the neighbour on the left forgotten",
            "The token before the pair loses its neighbour as well as the one after it.",
            _changes_with(
                named=lambda key, pair, joined: key == pair or key[0] in (joined, pair[1])
            ),
        ),
        WrongAnswer(
            "sorted by the change",
            "The list is in the order of the pairs, as Python sorts them.",
            _changes_with(order=lambda change: (change[2], change)),
        ),
    ),
    variants=(_changes_with(),),
)  # fmt: skip


EXERCISES = {
    "count_changes": _CHANGES,
}
