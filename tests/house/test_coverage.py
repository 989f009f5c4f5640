"""Protects completeness: every row of the inventory and every erratum has its place in the book."""

import re
from functools import cache

import pytest
import yaml

from book import errata
from book.chapters import ROOT, chapters, read, slug, without_code

COVERAGE = yaml.safe_load((ROOT / "book" / "coverage.yml").read_text(encoding="utf-8"))
ROWS = {"S0": 70, "S1": 52, "S2": 35, "S3": 54, "S4": 31}
INVENTORY = {f"{s}-{k}" for s, n in ROWS.items() for k in range(1, n + 1)}
ERRATA = {f"E-{k:02d}" for k in range(1, 122)} | {f"P-{k}" for k in range(1, 9)}
ERRATA |= {f"E-{k}" for k in range(122, 133)}  # of chapters 17 to 19
ERRATA |= {f"E-{k}" for k in range(140, 148)}  # of chapters 20 and 21
ERRATA |= {f"E-{k}" for k in range(148, 152)}  # of chapter 22
ERRATA |= {f"E-{k}" for k in range(156, 160)}  # of chapter 23
ERRATA |= {f"E-{k}" for k in range(164, 168)}  # of chapter 24
WRITTEN = {int(path.name[:2]) for path in chapters()}


@cache
def anchors(stem):
    """The headings, equations and exercises of a chapter."""
    [path] = [p for p in chapters() if p.stem == stem]
    prose = [without_code(c.source) for c in read(path).cells if c.cell_type == "markdown"]
    text = "\n".join(prose)
    headings = {slug(h) for h in re.findall(r"^#+ (.+)$", text, re.M)}
    equations = set(re.findall(r"\$\$ \((eq-[\w-]+)\)", text))
    return headings | equations | set(re.findall(r"^:label: (ex-[\w-]+)$", text, re.M))


def test_every_row_of_the_inventory_is_covered_or_waits_for_its_chapter():
    groups = [set(COVERAGE["covered"]), set(COVERAGE["open"]), set(COVERAGE["left_out"])]
    assert set.union(*groups) == INVENTORY
    assert sum(map(len, groups)) == len(INVENTORY), "a row stands in two places"


@pytest.mark.parametrize("row", COVERAGE["covered"])
def test_a_row_points_to_a_place_that_exists(row):
    chapter, anchor = COVERAGE["covered"][row].split("#")
    assert anchor in anchors(chapter)


def test_a_wrong_anchor_would_be_noticed():
    assert "no-such-heading" not in anchors("08_normalization")
    assert {"by-hand", "eq-ln-forward", "ex-layer-norm"} <= anchors("08_normalization")


def test_nothing_waits_for_a_chapter_that_is_there():
    waiting = COVERAGE["open"] | COVERAGE["errata_open"]
    assert not {row for row, number in waiting.items() if number in WRITTEN}


def test_every_erratum_has_its_entry_or_waits_for_its_chapter():
    have, waiting = {entry.id for entry in errata.load()}, set(COVERAGE["errata_open"])
    assert have | waiting == ERRATA
    assert not have & waiting
