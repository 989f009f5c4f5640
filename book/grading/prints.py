"""Answers that are alike beyond chance: a hint for the teacher, never a verdict.

Each answer has a fingerprint: winnowed hashes of runs of its syntax tree, in which local names,
comments, docstrings and layout do not count (Schleimer, Wilkerson and Aiken, "Winnowing", 2003,
section 3). What the task gives, what the teacher's solution has, and what many have is no sign of
anything; of the rest two students have to share nearly all.
"""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Mapping

from book.grading import notebooks

# Nodes in one run, and runs of which one is kept.
RUN, WINDOW = 8, 4
# Fingerprints of an answer: more than a long function has.
MOST = 400
# How many rare ones two students have to share, and which part of the smaller one's.
SHARED, PART = 15, 0.8
# What more than this part of the class has, and more than three, is common.
COMMON = 0.2


def prints(source: str) -> list[int]:
    """The fingerprint of a cell; nothing for one that cannot be read."""
    if len(source) > notebooks.PARSED_LIMIT:
        return []
    try:
        words = _words(ast.parse(notebooks.plain(source)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    runs = [_hash("\0".join(words[n : n + RUN])) for n in range(len(words) - RUN + 1)]
    kept: dict[int, None] = {}
    for n in range(max(1, len(runs) - WINDOW + 1)):
        if window := runs[n : n + WINDOW]:
            kept[min(window)] = None
    return list(kept)[:MOST]


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(errors="replace"), digest_size=6).digest())


# What says nothing of an answer's structure.
_SILENT = (ast.Load, ast.Store, ast.Del, ast.arg, ast.alias)


def _words(tree: ast.Module) -> list[str]:
    """The nodes of a tree in the order of its text, without what a copy changes."""
    bound: set[str] = set()
    nodes: list[ast.AST] = []
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        kind = type(node)
        if kind is ast.arg:
            bound.add(node.arg)  # type: ignore[attr-defined]
        if kind in _SILENT or (kind is ast.Expr and isinstance(node.value, ast.Constant)):  # type: ignore[attr-defined]
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
        nodes.append(node)
        left += reversed(list(ast.iter_child_nodes(node)))
    found = []
    for node in nodes:
        word = type(node).__name__
        if isinstance(node, ast.Name):
            word = "name" if node.id in bound else node.id
        elif isinstance(node, ast.Attribute):
            word = f".{node.attr}"
        elif isinstance(node, ast.Constant):
            word = repr(node.value)[:40]
        found.append(word)
    return found


def alike(
    answers: Mapping[str, Mapping[str, list[int]]], given: Mapping[str, list[int]]
) -> dict[str, dict[str, list[str]]]:
    """For each student whose answers are like another's: the others, and the cells.

    `answers` are the fingerprints by student and cell, `given` those of the teacher's cells.
    """
    known = {cell: set(some) for cell, some in given.items()}
    count: Counter[tuple[str, int]] = Counter()
    for cells in answers.values():
        count.update((cell, one) for cell, some in cells.items() for one in set(some))
    most = max(3, COMMON * len(answers))
    rare = {
        who: {(cell, one) for cell, some in cells.items() for one in some
              if count[cell, one] <= most and one not in known.get(cell, ())}
        for who, cells in answers.items()
    }  # fmt: skip
    holders: dict[tuple[str, int], list[str]] = {}
    for who, mine in rare.items():
        for mark in mine:
            holders.setdefault(mark, []).append(who)
    # Only those who share something rare are looked at.
    shared: Counter[tuple[str, str]] = Counter()
    for group in holders.values():
        for n, first in enumerate(group):
            shared.update((first, other) for other in group[n + 1 :])
    found: dict[str, dict[str, list[str]]] = {}
    for (a, b), number in shared.items():
        if number >= SHARED and number >= PART * min(len(rare[a]), len(rare[b])):
            both = sorted({cell for cell, _ in rare[a] & rare[b]})
            found.setdefault(a, {})[b] = both
            found.setdefault(b, {})[a] = both
    return found
