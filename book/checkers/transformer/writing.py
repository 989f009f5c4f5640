"""Writing token by token."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from book.checkers.core import Answer, Case, Exercise, WrongAnswer, in_parts


def _draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _mistake(name: str, why: str, answer: Answer) -> WrongAnswer:
    return WrongAnswer(name, why, answer)


# --- greedy ---------------------------------------------------------------------------------------

Step = Callable[[Tensor], Tensor]


def _scripted(script: Sequence[Sequence[int]], vocab: int = 9, end: int = 2) -> Step:
    """A model that wants to write `script[row]`, and then its first word again and again.

    Once every row has ended it may not be asked any more.
    """

    def step(prefixes: Tensor) -> Tensor:
        rows, t = prefixes.shape
        if (prefixes[:, 1:] == end).any(1).all():
            raise RuntimeError("asked for another token, though every row has ended")
        logits = _draw(rows, vocab, seed=t).abs().neg()
        for row in range(rows):
            words = script[row]
            logits[row, words[t - 1] if t - 1 < len(words) else words[0]] = 5.0
        return logits

    return step


def _greedy(step: Step, batch_size: int, bos: int, eos: int, pad: int, max_len: int) -> Tensor:
    out = torch.full((batch_size, 1), bos)
    done = torch.zeros(batch_size, dtype=torch.bool)
    while out.shape[1] <= max_len and not done.all():
        token = step(out).argmax(-1).masked_fill(done, pad)
        done = done | (token == eos)
        out = torch.cat([out, token[:, None]], 1)
    return out[:, 1:]


def _greedy_in_lists(
    step: Step, batch_size: int, bos: int, eos: int, pad: int, max_len: int
) -> Tensor:
    rows: list[list[int]] = [[] for _ in range(batch_size)]
    for _ in range(max_len):
        if all(eos in row for row in rows):
            break
        best = step(torch.tensor([[bos, *row] for row in rows])).max(-1).indices.tolist()
        for row, token in zip(rows, best, strict=True):
            row.append(pad if eos in row else token)
    return torch.tensor(rows)


@in_parts
def _greedy_with(
    *,
    keep_start: bool = False,
    stop: str = "all",
    extra: int = 0,
    fill: str = "pad",
    early: bool = False,
) -> Answer:
    """Greedy decoding with one of its parts replaced."""

    def answer(step: Step, batch_size: int, bos: int, eos: int, pad: int, max_len: int) -> Tensor:
        out = torch.full((batch_size, 1), bos)
        done = torch.zeros(batch_size, dtype=torch.bool)
        while out.shape[1] <= max_len + extra:
            if (stop == "all" and done.all()) or (stop == "any" and done.any()):
                break
            best = step(out).argmax(-1)
            if early:
                done = done | (best == eos)
            if fill != "nothing":
                best = best.masked_fill(done, eos if fill == "eos" else pad)
            if not early:
                done = done | (best == eos)
            out = torch.cat([out, best[:, None]], 1)
        return out if keep_start else out[:, 1:]

    return answer


GREEDY = Exercise(
    title="Greedy decoding",
    oracle=_greedy,
    cases=[
        Case(
            "rows of different length",
            lambda: (_scripted([[3, 4, 2], [5, 2], [6, 7, 8, 2]]), 3, 1, 2, 0, 8),
        ),
        Case("one row that ends at once", lambda: (_scripted([[2]]), 1, 1, 2, 0, 5)),
        Case("a row that never ends", lambda: (_scripted([[3, 4, 5], [2]]), 2, 1, 2, 0, 4)),
        Case(
            "the limit cuts all rows",
            lambda: (_scripted([[3, 4, 5, 6, 2], [7, 7, 7, 7, 2]]), 2, 1, 2, 0, 3),
        ),
        Case("all rows end at the limit", lambda: (_scripted([[3, 2], [4, 2]]), 2, 1, 2, 0, 2)),
        Case("padding is not zero", lambda: (_scripted([[3, 2], [4, 5, 6, 2]]), 2, 0, 2, 8, 6)),
        Case("a limit of one token", lambda: (_scripted([[3, 2], [2]]), 2, 1, 2, 0, 1)),
        Case(
            "another end token, and words 0 and 2 before it",
            lambda: (_scripted([[0, 2, 5], [2, 0, 0, 5]], end=5), 2, 1, 5, 0, 7),
        ),
        Case("260 tokens", lambda: (_scripted([[3, 4]]), 1, 1, 2, 0, 260)),
    ],
    variants=(_greedy_in_lists,),
    wrong=[
        _mistake(
            "goes on after the end token",
            "A row that has ended is filled with padding, whatever the model would write next.",
            _greedy_with(fill="nothing"),
        ),
        _mistake(
            "filled with the end token",
            "After the end token comes `pad`, so that the end can be told from the filling.",
            _greedy_with(fill="eos"),
        ),
        _mistake(
            "stops when the first row ends",
            "The other rows are not finished. Stop when all rows have ended.",
            _greedy_with(stop="any"),
        ),
        _mistake(
            "never stops early",
            "When all rows have ended there is nothing left to write, so stop.",
            _greedy_with(stop="never"),
        ),
        _mistake(
            "start token returned",
            "The start token is given, not produced, and does not belong to the output.",
            _greedy_with(keep_start=True),
        ),
        _mistake(
            "one token too many",
            "`max_len` counts the produced tokens, without the start token.",
            _greedy_with(extra=1),
        ),
        _mistake(
            "one token too few",
            "`max_len` counts the produced tokens; the start token does not use one up.",
            _greedy_with(extra=-1),
        ),
        _mistake(
            "end token replaced by padding",
            "The end token itself belongs to the output. The row counts as ended only after it.",
            _greedy_with(early=True),
        ),
    ],
)
