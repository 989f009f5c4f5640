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

from book.grading import feedback, notebooks

BINS = 10
# Of a bar of all points.
WIDTH = 240


@dataclass(frozen=True)
class Test:
    """A test, or a question with all its tests: means and spreads as shares of its points."""

    id: str
    points: float
    mean: float
    spread: float
    # The share of the class that has all of its points.
    full: float
    # Of how many, if it is a cell for which not everybody has points by hand yet.
    count: int


@dataclass
class Stats:
    """The numbers of an assignment."""

    assignment: str
    most: float
    scores: list[float]
    counts: dict[str, int]
    tests: list[Test] = field(default_factory=list)
    questions: list[Test] = field(default_factory=list)
    # Cells without points by hand yet, with of how many; they are in no sum of anybody's.
    waiting: dict[str, int] = field(default_factory=dict)
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


def questions(work: notebooks.Assignment) -> dict[str, str]:
    """Of which question each test is.

    The tests of a question follow its solution and begin with its name: `softmax-values` and
    `softmax-corners` are of `softmax`. Any other test, and what a person reads, is a question of
    its own.
    """
    found: dict[str, str] = {}
    asked = ""
    for cell in work.cells:
        if cell.kind == "solution":
            asked = cell.grade_id
        elif cell.kind in ("test", "manual"):
            # What a person reads may be without points yet when the tests have theirs.
            one = cell.kind == "test" and asked and cell.grade_id.startswith(f"{asked}-")
            found[cell.grade_id] = asked if one else cell.grade_id
    return found


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
    waiting = Counter(cell for row in graded for cell in row["by_hand"])
    # Of all the same cells are counted, or the sums could not be compared.
    sums = [_sums([t for t in row["tests"] if t["id"] in waiting], row) for row in graded]
    most = Counter(whole for _, whole in sums).most_common(1)[0][0]
    # Who was graded with a source of another maximum has the same share of this one.
    result = Stats(graded[0]["assignment"], most,
                   [points * most / whole if whole not in (0, most) else points
                    for points, whole in sums], dict(counts), waiting=dict(waiting))  # fmt: skip
    by_test: dict[str, list[list[dict[str, Any]]]] = {}
    by_question: dict[str, list[list[dict[str, Any]]]] = {}
    made: Counter[tuple[str, str]] = Counter()
    for row in graded:
        asked: dict[str, list[dict[str, Any]]] = {}
        for test in row["tests"]:
            by_test.setdefault(test["id"], []).append([test])
            asked.setdefault(test.get("question", test["id"]), []).append(test)
            made.update((test["id"], name) for name in test.get("mistakes", []))
        for name, some in asked.items():
            by_question.setdefault(name, []).append(some)
    result.tests = [_of(name, some) for name, some in by_test.items()]
    result.questions = [_of(name, some) for name, some in by_question.items()]
    result.mistakes = [
        (test, name, count)
        for (test, name), count in sorted(made.items(), key=lambda i: (-i[1], i[0]))
    ]
    return result


def _sums(left: list[dict[str, Any]], row: dict[str, Any]) -> tuple[float, float]:
    """The points of a row and their maximum, without the tests `left`."""
    points = row["score"] + row.get("deduction", 0) - sum(t["score"] for t in left)
    return round(float(points), 4), float(row["max"] - sum(t["max"] for t in left))


def _of(name: str, given: list[list[dict[str, Any]]]) -> Test:
    """The numbers of a question from its tests in each row, or of a single test."""
    shares = []
    for tests in given:
        most = sum(t["max"] for t in tests)
        points = sum(t["score"] for t in tests)
        shares.append(points / most if most else float(all(t["passed"] for t in tests)))
    return Test(
        name, sum(t["max"] for t in given[-1]), statistics.fmean(shares),
        statistics.pstdev(shares), sum(share == 1 for share in shares) / len(shares), len(shares),
    )  # fmt: skip


def hardest(some: Sequence[Test]) -> list[Test]:
    """Tests or questions, those with the lowest mean first."""
    return sorted(some, key=lambda t: (t.mean, t.id))


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
    if stats.waiting:
        lines.append(f"without what waits for points by hand: {_waiting(stats)}")
    for what, some in (("questions", stats.questions), ("tests", stats.tests)):
        lines.append(f"{what}, the hardest first:")
        lines += [f"  {100 * t.mean:5.1f} %  ± {100 * t.spread:4.1f}  {_called(t, stats)}"
                  for t in hardest(some)]  # fmt: skip
    if stats.mistakes:
        lines.append("most frequent mistakes:")
        lines += [f"  {count:4d}  {test}: {name}" for test, name, count in stats.mistakes[:10]]
    return "\n".join(lines)


def _waiting(stats: Stats) -> str:
    return ", ".join(f"{cell} of {count}" for cell, count in sorted(stats.waiting.items()))


def _called(test: Test, stats: Stats) -> str:
    """The name of a test or question, with of how many it is known if not of all."""
    few = test.count < len(stats.scores)
    return f"{test.id} (of {test.count})" if few else test.id


# ---- the page


def page(stats: Stats) -> str:
    """The page: three pictures and a table, in a file that needs nothing else."""
    e = feedback.escaped
    bins = stats.histogram()
    edges = [f"{stats.most * n / BINS:g}" for n in range(BINS + 1)]
    columns = _columns(bins, edges, f"How many of {len(stats.scores)} have how many points: "
                       + ", ".join(f"{edges[n]} to {edges[n + 1]}: {bins[n]}"
                                   for n in range(BINS)))  # fmt: skip
    by_question, by_test = (_bars(hardest(some), stats) for some in (stats.questions, stats.tests))
    left = (f"<p>Without what waits for points by hand: {e(_waiting(stats))}.</p>"
            if stats.waiting else "")  # fmt: skip
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
        left, "<h2>Points</h2>", columns,
        "<p>Below, a bar is the mean share of the points; the line over it reaches from one spread "
        "(standard deviation) less to one more.</p>",
        "<h2>Questions, the hardest first</h2>", by_question,
        "<h2>Tests, the hardest first</h2>", by_test, mistakes,
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


def _bars(tests: list[Test], stats: Stats) -> str:
    percent = [f"{100 * t.mean:.0f} ± {100 * t.spread:.0f} %" for t in tests]
    said = "Mean share of the points, and its spread: " + ", ".join(
        f"{_called(t, stats)}: {told}" for t, told in zip(tests, percent, strict=True)
    )
    height = 24 * len(tests) + 8
    parts = [f'<svg viewBox="0 0 620 {height}" role="img" aria-label="{feedback.escaped(said)}">']
    for n, (test, told) in enumerate(zip(tests, percent, strict=True)):
        y, name = 24 * n + 4, _called(test, stats)
        parts.append(_words(270, y + 14, name if len(name) < 34 else name[:33] + "…", "end"))
        parts.append(f'<rect x="280" y="{y}" width="{WIDTH * test.mean:.1f}" height="18" '
                     'fill="#3465a4" fill-opacity="0.6"/>')  # fmt: skip
        # The bar is transparent, so that the line is seen on it and beside it.
        low, high = max(0.0, test.mean - test.spread), min(1.0, test.mean + test.spread)
        parts.append(f'<path d="M{280 + WIDTH * low:.1f} {y + 9}H{280 + WIDTH * high:.1f}" '
                     'stroke="currentColor" stroke-width="2"/>')  # fmt: skip
        parts.append(_words(530, y + 14, told, "start"))
    return "".join([*parts, "</svg>"])


def _words(x: float, y: float, words: str, anchor: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="14" '
        f'fill="currentColor">{feedback.escaped(words)}</text>'
    )
