"""Runs an answer on a case, and keeps everything that it did."""

from __future__ import annotations

import copy
import inspect
import linecache
import traceback
import types
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from book.checkers.core.exercise import Answer, Case, Exercise
from book.checkers.core.state import TookTooLongError, Watch, fair

BOOK = Path(__file__).parents[2]


class BookFaultError(Exception):
    """The oracle of an exercise raises, or does not raise, what its case says. Not the reader's."""


@dataclass(frozen=True)
class Outcome:
    """What an answer did with a case: results, or the exception that it raised."""

    values: tuple[Any, ...] = ()
    # What each value is, in words; nothing for the result itself.
    places: tuple[str, ...] = ()
    error: BaseException | None = None
    # The line of the answer that raised.
    line: str = ""
    # Names of arguments with which the result shares its memory.
    shares: tuple[str, ...] = ()
    # What it left changed in the session, in words.
    left: tuple[str, ...] = ()


def parameters(exercise: Exercise) -> list[str]:
    """The names of the oracle's parameters, without those that stand for many."""
    return [
        n
        for n, parameter in inspect.signature(exercise.oracle).parameters.items()
        if parameter.kind is not parameter.VAR_POSITIONAL
    ]


def labels(names: Sequence[str], count: int) -> list[str]:
    """A name for each of `count` arguments; an oracle with `*args` has fewer names than those."""
    return [*names, *(f"argument {k}" for k in range(len(names), count))][:count]


def run(
    answer: Answer,
    case: Case,
    names: Sequence[str],
    default_dtype: torch.dtype,
    watch: Watch | None = None,
) -> Outcome:
    """What `answer` does with `case`, under the same conditions for all.

    Raises:
        KeyboardInterrupt: the reader's own.
    """
    with fair(case.default_dtype or default_dtype) as left:
        outcome = _run(answer, case, names, watch)
    if not left:
        return outcome
    return Outcome(**{**outcome.__dict__, "left": tuple(left)})


def _run(answer: Answer, case: Case, names: Sequence[str], watch: Watch | None) -> Outcome:
    inputs = case.inputs()
    named = [(n, i) for n, i in zip(labels(names, len(inputs)), inputs, strict=True)]
    tensors = [(n, i) for n, i in named if isinstance(i, torch.Tensor)]
    # Asked for now, since an answer may change it.
    leaves = [i.requires_grad for _, i in tensors]
    boxes = [(n, i) for n, i in named if isinstance(i, list | dict)]
    try:
        if watch is None:
            output = answer(*inputs)
        else:
            with watch.call():
                output = answer(*inputs)
        values: list[Any] = [output, *(i for _, i in tensors)]
        places = ["", *(f"{n} after the call: " for n, _ in tensors)]
        values += [i.requires_grad for _, i in tensors]
        places += [f"whether {n} after the call: " for n, _ in tensors]
        values += [_plain(i) for _, i in boxes]
        places += [f"{n} after the call: " for n, _ in boxes]
        if case.grad and _is_tensors(output):
            wanted = [(n, i) for (n, i), leaf in zip(tensors, leaves, strict=True) if leaf]
            values += _gradients(output, [i for _, i in wanted])
            places += [f"gradient of {n}: " for n, _ in wanted]
    except (Exception, SystemExit, TookTooLongError) as error:
        # Whatever the reader's code raises is an outcome.
        return Outcome(error=error, line=own_line(error, answer))
    shares = tuple(n for n, i in tensors if any(_same_memory(o, i) for o in _tensors(output)))
    return Outcome(tuple(values), tuple(places), shares=shares)


def _plain(box: Any) -> Any:
    """A list or dictionary as it is now: the answer may keep it and change it later."""
    try:
        return copy.deepcopy(box)
    except Exception:  # tensors of a graph cannot be copied
        return copy.copy(box)


def _is_tensors(output: Any) -> bool:
    outputs = output if isinstance(output, tuple | list) else (output,)
    return all(isinstance(o, torch.Tensor) for o in outputs)


def _tensors(output: Any) -> list[torch.Tensor]:
    outputs = output if isinstance(output, tuple | list) else (output,)
    return [o for o in outputs if isinstance(o, torch.Tensor)]


def _same_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    if type(a) is not torch.Tensor or type(b) is not torch.Tensor:
        return False
    if a.layout is not torch.strided or b.layout is not torch.strided or not a.numel():
        return False
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def _gradients(output: Any, leaves: Sequence[torch.Tensor]) -> tuple[Any, ...]:
    outputs = [o for o in _tensors(output) if o.requires_grad]
    if not outputs:
        return (None,) * len(leaves)
    # Fixed, uneven weights: a plain sum hides every gradient that is constant along a row.
    weights = [
        torch.linspace(-1.0, 2.0, o.numel(), dtype=o.dtype).reshape(o.shape) for o in outputs
    ]
    total = torch.stack([(o * w).sum() for o, w in zip(outputs, weights, strict=True)]).sum()
    return torch.autograd.grad(total, leaves, allow_unused=True)


def own_line(error: BaseException, answer: Answer) -> str:
    """The last line of the reader's own code on the way to the exception, or nothing."""
    own = own_file(answer)
    found = ""
    for frame in traceback.extract_tb(error.__traceback__):
        theirs = frame.filename == own or frame.filename.startswith("<ipython")
        if theirs and not frame.filename.startswith(str(BOOK / "checkers" / "core")):
            found = (frame.line or linecache.getline(frame.filename, frame.lineno or 0)).strip()
    return found


def own_file(answer: Answer) -> str:
    """The file, or the cell, in which an answer is written."""
    code = getattr(inspect.unwrap(answer), "__code__", None)
    if code is None:
        inner = (
            answer.__init__ if inspect.isclass(answer) else getattr(type(answer), "forward", None)
        )
        code = getattr(inner, "__code__", None)
    return code.co_filename if isinstance(code, types.CodeType) else ""
