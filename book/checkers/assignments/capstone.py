"""What the capstone is graded by: a loss against shelves, answers to questions, and an opening.

It asks for no function that an oracle knows, so it has no exercises: `book.own.handed` measures
what was handed in, and this turns it into points, with a sentence on what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from book.checkers import core
from book.own.handed import HandedInError, loss_of, previous_of, questions_of, shelves

__all__ = ["require_loss", "require_opening", "require_questions"]

EXERCISES: dict[str, core.Exercise] = {}

# Of the loss, for each shelf that it is below.
SHELF_POINTS = (4, 6, 6, 6, 6, 6)
KIND_POINTS = 2


def _given(points: float, most: float, told: str) -> float:
    from book.grading import WrongAnswerError, hints

    if points < most:
        hints.append(told)
    if not points:
        raise WrongAnswerError(told, told)
    return points


def _measured(what: Callable[[], Any]) -> Any:
    """What was measured, or a clear reason why nothing could be.

    Raises:
        book.grading.WrongAnswerError: if what was handed in does not answer.
    """
    from book.grading import WrongAnswerError, hints

    try:
        return what()
    except NotImplementedError:
        told = "There is nothing to measure yet: the function raises NotImplementedError."
    except HandedInError as error:
        told = f"{str(error)[0].upper()}{str(error)[1:]}."
    hints.append(told)
    raise WrongAnswerError(told, told)


def require_loss(next_word: Callable[..., Any]) -> float:
    """The points for the loss on held-out stories, up to 34.

    Raises:
        book.grading.WrongAnswerError: if it is below no shelf, or nothing can be measured.
    """
    loss = _measured(lambda: loss_of(next_word))
    below = [name for name, shelf in shelves().items() if loss < shelf]
    points = sum(SHELF_POINTS[: len(below)])
    left = [f"{name} ({shelf:.2f})" for name, shelf in shelves().items() if loss >= shelf]
    told = f"The loss on held-out stories is {loss:.2f} nats per word."
    return _given(
        points, sum(SHELF_POINTS), f"{told} The next shelf is {left[0]}." if left else told
    )


def require_questions(next_word: Callable[..., Any]) -> float:
    """The points for the kinds of questions that are answered better than by a short cut, up to 16.

    Raises:
        book.grading.WrongAnswerError: if there is no such kind, or nothing can be measured.
    """
    found = _measured(lambda: questions_of(next_word))
    left = [
        f"{kind}: {one.right:.0%} (a short cut: {one.short_cut:.0%})"
        for kind, one in found.items()
        if not one.known
    ]
    told = f"Not answered better than by a short cut, half-way to all: {'; '.join(left)}."
    return _given(KIND_POINTS * (len(found) - len(left)), KIND_POINTS * len(found), told)


def require_opening(
    next_word: Callable[..., Any],
    attention: Callable[..., Any],
    opened: Callable[[], Any],
    mean_loss: Callable[..., float],
    stories: list[list[int]],
) -> float:
    """The points for a head that was found and a control, up to 20.

    Six for weights that are weights, six for the head that looks most at the token before, eight
    for the two losses as they are measured here too, through the same `mean_loss`.

    Raises:
        book.grading.WrongAnswerError: if there is no point to be had.
    """
    shortest = min(map(len, stories))
    ids = torch.tensor([story[:shortest] for story in stories])
    scores = _measured(lambda: previous_of(attention, ids))
    said = _measured(lambda: _opened(opened, tuple(scores.shape)))
    points, lacks = 6.0, []
    previous, control = said["previous"], said["control"]
    best = scores.amax().item()
    if scores[previous].item() >= best - 1e-4 and control != previous:
        points += 6
    elif control == previous:
        lacks.append("The control is the head itself; it has to be another one.")
    else:
        where = divmod(int(scores.argmax()), scores.shape[1])
        lacks.append(
            f"Head {where} has a mean weight of {best:.2f} on the token before, "
            f"yours {scores[previous].item():.2f}."
        )

    def losses() -> list[float]:
        try:
            return [mean_loss(next_word, without=one) for one in (previous, control)] + [
                mean_loss(next_word)
            ]
        except NotImplementedError:
            raise
        except Exception as error:
            raise HandedInError(
                f"`next_word` without a head raised {type(error).__name__}: {str(error)[:300]}"
            ) from error

    *found, plain = _measured(losses)
    for name, loss in zip(("previous_loss", "control_loss"), found, strict=True):
        if abs(loss - plain) < 1e-6:
            lacks.append(f"Taking the head out changes nothing ({name}): `without` has no effect.")
        elif abs(said[name] - loss) > 0.01 + 0.01 * loss:
            lacks.append(f"`{name}` is {said[name]:.3f}; measured here it is {loss:.3f}.")
        else:
            points += 4
    return _given(points, 20.0, " ".join(lacks))


def _opened(opened: Callable[[], Any], heads: tuple[int, ...]) -> Mapping[str, Any]:
    try:
        said = opened()
    except NotImplementedError:
        raise
    except Exception as error:
        raise HandedInError(
            f"`opened` raised {type(error).__name__}: {str(error)[:300]}"
        ) from error
    wanted = ("previous", "control", "previous_loss", "control_loss")
    if not isinstance(said, dict) or any(name not in said for name in wanted):
        raise HandedInError(f"`opened` must give a dictionary with {', '.join(wanted)}")
    found: dict[str, Any] = {}
    for name in ("previous", "control"):
        one = said[name]
        pair = isinstance(one, tuple | list) and [type(n) for n in one] == [int, int]
        if not pair or not all(0 <= n < size for n, size in zip(one, heads, strict=True)):
            raise HandedInError(
                f"{name!r} must be a pair (layer, head) of {heads[0]} layers with {heads[1]} "
                f"heads each, got {str(one)[:60]}"
            )
        found[name] = tuple(one)
    for name in ("previous_loss", "control_loss"):
        if type(said[name]) not in (int, float):
            raise HandedInError(f"{name!r} must be a number, got {type(said[name]).__name__}")
        found[name] = float(said[name])
    return found
