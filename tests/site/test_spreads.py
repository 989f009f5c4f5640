"""Protects the rows of findings: on the page each number is drawn, all of a table to one scale."""

import json
import re
from html import unescape

import pytest

from book.chapters import chapters, read, tagged
from book.finding import read_stored
from book.theme.spreads import numbers, spread

RECT = re.compile(r'<rect x="([\d.]+)" width="([\d.]+)"')


def drawn(svg):
    return [(float(x), float(x) + float(width)) for x, width in RECT.findall(svg)]


def test_numbers_are_read_as_findings_print_them():
    assert numbers("1,024 to 2e-05") == [1024, 2e-5]
    assert numbers("-5.1% to −3.9%") == [-5.1, -3.9]
    assert numbers("none") == []


@pytest.mark.parametrize(
    ("low", "mean", "high", "scale", "bar", "line"),
    [
        (1, 2, 3, (0, 4), (0, 50), (25, 75)),
        (-3, -2, -1, (-4, 4), (25, 50), (12.5, 37.5)),
        (2, 2, 2, (0, 4), (0, 50), None),  # nothing lies between
        (4, 4, 4.001, (0, 4), (0, 100), (99.2, 100)),  # a short line stays within the picture
        (0.2, 0.28, 0.28, (0, 0.28), (0, 100), (71.4, 100)),
    ],
)
def test_a_bar_ends_at_the_mean_and_a_line_at_the_ends(low, mean, high, scale, bar, line):
    found = drawn(spread(low, mean, high, scale))
    assert found == [pytest.approx(part, abs=0.11) for part in (bar, line) if part]


def with_rows():
    """(page, what its cells' outputs say) of each finding that compares rows."""
    for path in chapters():
        for cell in tagged(read(path), "finding"):
            shown = [o["data"] for o in cell.outputs if "text/markdown" in o.get("data", {})]
            for data in shown:
                text = read_stored("".join(data["text/plain"])).text
                if rows := [r.split("|")[1:4] for r in text.split("\n") if r[:1] == "|"]:
                    yield path.stem, rows


def test_every_row_of_every_finding_is_drawn_on_its_page(built):
    told = list(with_rows())
    assert len(told) > 20
    for stem in sorted({stem for stem, _ in told}):
        html = (built / "notebooks" / f"{stem}.html").read_text(encoding="utf-8")
        tables = re.findall(r"<table[^>]*tp-rows.*?</table>", html, re.S)
        compared = [rows[2:] for page, rows in told if page == stem]
        assert len(tables) == len(compared), stem
        for table, rows in zip(tables, compared, strict=True):
            lines = re.findall(r"<tr\b.*?</tr>", table, re.S)[1:]
            assert len(lines) == len(rows)
            ends = [numbers(row[2]) or numbers(row[1]) for row in rows]
            every = [0.0, *(n for pair in ends for n in pair), *(numbers(r[1])[0] for r in rows)]
            left, right = min(every), max(every)
            for line, row in zip(lines, rows, strict=True):
                said = unescape(re.sub(r"<[^>]+>", "", line))
                assert row[1].strip() in said, (stem, json.dumps(row))
                assert row[2].strip() in said, (stem, json.dumps(row))
                (begin, end), *_ = drawn(line)
                mean, zero = (100 * (v - left) / (right - left) for v in (numbers(row[1])[0], 0))
                assert (begin, end) == pytest.approx(sorted((mean, zero)), abs=0.6), (stem, row)
