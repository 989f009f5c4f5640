"""What a class did with an assignment: for the teacher, and one page to show in the next lecture.

From the record of `grade --json`, of the rows that count. Who handed in nothing, or nothing that
could be read, is counted and is in no mean. Points taken off for being late are in: it is about
what the class can do. No name of a student is in it.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from book.grading import feedback

BINS = 10


@dataclass(frozen=True)
class Test:
    """One test: means and spreads as shares of its points, from 0 to 1."""

    id: str
    points: float
    mean: float
    spread: float
    # The share of the class that has all of its points.
    full: float


@dataclass
class Stats:
    """The numbers of an assignment."""

    assignment: str
    most: float
    scores: list[float]
    counts: dict[str, int]
    tests: list[Test] = field(default_factory=list)
    # Test and named mistake, with how many made it; the most frequent first.
    mistakes: list[tuple[str, str, int]] = field(default_factory=list)

    @property
    def mean(self) -> float:
        """The mean of the points."""
        return statistics.fmean(self.scores)

    @property
    def spread(self) -> float:
        """The standard deviation of the points, of the class as a whole."""
        return statistics.pstdev(self.scores)

    def histogram(self) -> list[int]:
        """How many have less than a tenth of the points, less than two tenths, and so on."""
        bins = [0] * BINS
        for score in self.scores:
            bins[min(BINS - 1, int(BINS * score / self.most)) if self.most else 0] += 1
        return bins


def of(rows: Sequence[dict[str, Any]]) -> Stats:
    """The numbers of these rows.

    Raises:
        ValueError: if none of them was graded, or they are of several assignments.
    """
    rows = [row for row in rows if row.get("counts", True)]
    graded = [row for row in rows if row["status"] == "graded"]
    if not graded:
        raise ValueError("nothing was graded: there is nothing to count")
    if len(names := {row["assignment"] for row in graded}) > 1:
        raise ValueError(f"the record is of several assignments: {', '.join(sorted(names))}")
    counts = Counter(row["status"] for row in rows)
    counts["late"] = sum(bool(row.get("late")) for row in rows)
    result = Stats(graded[0]["assignment"], float(graded[0]["max"]),
                   [float(row["score"] + row.get("deduction", 0)) for row in graded],
                   dict(counts))  # fmt: skip
    shares: dict[str, list[float]] = {}
    points: dict[str, float] = {}
    made: Counter[tuple[str, str]] = Counter()
    for row in graded:
        for test in row["tests"]:
            points[test["id"]] = test["max"]
            shares.setdefault(test["id"], []).append(
                test["score"] / test["max"] if test["max"] else float(test["passed"])
            )
            made.update((test["id"], name) for name in test.get("mistakes", []))
    result.tests = [
        Test(name, points[name], statistics.fmean(some), statistics.pstdev(some),
             sum(share == 1 for share in some) / len(some))
        for name, some in shares.items()
    ]  # fmt: skip
    result.mistakes = [
        (test, name, count)
        for (test, name), count in sorted(made.items(), key=lambda i: (-i[1], i[0]))
    ]
    return result


def hardest(stats: Stats) -> list[Test]:
    """The tests, those with the lowest mean first."""
    return sorted(stats.tests, key=lambda t: (t.mean, t.id))


def text(stats: Stats) -> str:
    """For the terminal."""
    lines = [
        f"{stats.assignment}: {len(stats.scores)} graded, mean {stats.mean:.1f} of {stats.most:g}, "
        f"spread {stats.spread:.1f}, median {statistics.median(stats.scores):g}"
    ]
    others = [f"{stats.counts[k]} {k}" for k in ("unreadable", "missing", "error", "late")
              if stats.counts.get(k)]  # fmt: skip
    if others:
        lines.append(f"besides: {', '.join(others)}")
    lines.append("hardest tests:")
    lines += [f"  {100 * t.mean:5.1f} %  ± {100 * t.spread:4.1f}  {t.id}"
              for t in hardest(stats)[:10]]  # fmt: skip
    if stats.mistakes:
        lines.append("most frequent mistakes:")
        lines += [f"  {count:4d}  {test}: {name}" for test, name, count in stats.mistakes[:10]]
    return "\n".join(lines)


# ---- the page


def page(stats: Stats) -> str:
    """The page: two pictures and a table, in a file that needs nothing else."""
    e = feedback.escaped
    bins = stats.histogram()
    edges = [f"{stats.most * n / BINS:g}" for n in range(BINS + 1)]
    columns = _columns(bins, edges, f"How many of {len(stats.scores)} have how many points: "
                       + ", ".join(f"{edges[n]} to {edges[n + 1]}: {bins[n]}"
                                   for n in range(BINS)))  # fmt: skip
    bars = _bars([(t.id, t.mean) for t in hardest(stats)])
    rows = "".join(
        f"<tr><td class='n'>{count}</td><td>{e(test)}</td><td class='why'>{e(name)}</td></tr>"
        for test, name, count in stats.mistakes
    )
    mistakes = (
        f"<h2>Mistakes with a name</h2><table><tr><th>How many</th><th>Test</th><th>Mistake</th>"
        f"</tr>{rows}</table>"
        if rows else "<p>No mistake with a name was made.</p>"
    )  # fmt: skip
    return "\n".join([
        *feedback.head(f"{stats.assignment}: the class"),
        f"<body><h1>{e(stats.assignment)}: the class</h1>",
        f"<p>{len(stats.scores)} graded. Mean {stats.mean:.1f} of {stats.most:g} points, spread "
        f"{stats.spread:.1f}, median {statistics.median(stats.scores):g}.</p>",
        "<h2>Points</h2>", columns, "<h2>Tests, the hardest first</h2>", bars, mistakes,
        "</body></html>\n",
    ])  # fmt: skip


def _columns(bins: list[int], edges: list[str], said: str) -> str:
    most = max(bins)
    parts = [f'<svg viewBox="0 0 620 220" role="img" aria-label="{feedback.escaped(said)}">']
    for n, count in enumerate(bins):
        height = 160 * count / most if most else 0
        parts.append(f'<rect x="{15 + 59 * n}" y="{180 - height:.1f}" width="55" '
                     f'height="{height:.1f}" fill="#3465a4"/>')  # fmt: skip
        if count:
            parts.append(_words(42 + 59 * n, 174 - height, str(count), "middle"))
    parts += [_words(13 + 59 * n, 200, edge, "middle") for n, edge in enumerate(edges)]
    return "".join([*parts, "</svg>"])


def _bars(tests: list[tuple[str, float]]) -> str:
    said = "Mean share of the points: " + ", ".join(f"{i}: {100 * m:.0f} %" for i, m in tests)
    height = 24 * len(tests) + 8
    parts = [f'<svg viewBox="0 0 620 {height}" role="img" aria-label="{feedback.escaped(said)}">']
    for n, (name, mean) in enumerate(tests):
        y = 24 * n + 4
        parts.append(_words(290, y + 14, name if len(name) < 36 else name[:35] + "…", "end"))
        parts.append(f'<rect x="300" y="{y}" width="{260 * mean:.1f}" height="18" '
                     'fill="#3465a4"/>')  # fmt: skip
        parts.append(_words(306 + 260 * mean, y + 14, f"{100 * mean:.0f} %", "start"))
    return "".join([*parts, "</svg>"])


def _words(x: float, y: float, words: str, anchor: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="14" '
        f'fill="currentColor">{feedback.escaped(words)}</text>'
    )
