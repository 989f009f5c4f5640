"""What a witness binds, and what comes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


class RelationError(AssertionError):
    """A printed relation does not hold."""


@dataclass
class Call:
    """What a witness binds: see `book.witness.witness` for each of these."""

    symbols: Mapping[str, Any]
    ranges: Mapping[str, Sequence[int]] = field(default_factory=dict)
    draws: Sequence[Mapping[str, Any]] = ()
    tight: Sequence[Mapping[str, Any]] = ()
    define: Sequence[str] = ()
    approx: float | None = None
    limit: Mapping[str, Sequence[float]] = field(default_factory=dict)
    halving: str | None = None
    only: Sequence[int] | None = None
    tol: float = 1e-9


@dataclass
class Report:
    """What was checked: relations read, numbers compared, the symbols that were used."""

    relations: int = 0
    numbers: int = 0
    exact: bool = False
    used: set[str] = field(default_factory=set)
