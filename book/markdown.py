"""Markdown for the pages that are made from data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], left: int = 1) -> str:
    """A table: the first columns left, all others right."""
    lines = [" | ".join(head), " | ".join("---" if k < left else "---:" for k in range(len(head)))]
    lines += [" | ".join(map(str, row)) for row in rows]
    return "\n".join(f"| {line} |" for line in lines)
