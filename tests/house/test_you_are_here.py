"""The strip at the top of every chapter: each has its place, and what is lit is its topic."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
import yaml

from book.chapters import ROOT, chapters, topic
from book.diagram.models import original, today
from book.diagram.parts import PARTS, chapter_of
from book.diagram.strip import Strip
from book.you_are_here import PLACES, STREAM, described, here, lit, picture, strips, with_links

TOPICS = [topic(path) for path in chapters()]
# Chapters that look at a part of another chapter, or at no single box.
ELSEWHERE = {
    "tensors": "its topic is what flows: the arrows",
    "map": "the whole",
    "activations": "they work inside the feed-forward part",
    "long_context": "the rotation of chapter 11, on longer texts",
    "mla": "another attention in the same place",
    "cost": "the whole",
    "tokens": "what comes before the first box",
    "training": "the whole, and how its weights are found",
    "inside": "the whole",
    "experts": "many feed-forward layers in the place of one",
    "local_attention": "another attention in the same place",
    "families": "the whole",
    "serving": "the whole, run for many at once",
    "recurrence": "a memory in the place of attention",
}


def page(stem: str) -> str:
    return f"{stem}.html"


def marked(html: str) -> set[str]:
    """The parts that are lit."""
    return set(re.findall(r'class="tp-(?:part|layer)[^"]* tp-lit" data-part="([^"]+)"', html))


def test_every_chapter_has_a_place_and_no_other_has() -> None:
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    files = [chapter["file"] for part in toc["parts"] for chapter in part["chapters"]]
    wanted = [file.rpartition("/")[2][3:] for file in files if file.startswith("notebooks/")]
    assert sorted(PLACES) == sorted(wanted) == sorted(TOPICS)


def test_a_chapter_without_a_place_is_an_error() -> None:
    with pytest.raises(KeyError, match="add it to PLACES"):
        here("nothing", page)
    with pytest.raises(ValueError, match="no part"):
        lit(strips()["2017"], ("rope",))


@pytest.mark.parametrize("name", TOPICS)
def test_what_is_lit_is_the_topic_of_the_chapter(name: str) -> None:
    html, place = here(name, page), PLACES[name]
    found = marked(html)
    if "all" in place.parts:
        assert len(found) > 7
    else:
        assert found == {*place.parts} - {STREAM}
    assert ("tp-lit-stream" in html) == (STREAM in place.parts)
    topics = {PARTS[key].topic for key in found}
    assert name in topics or name in ELSEWHERE
    assert place.words in html
    assert described(name) in html.replace("&#x27;", "'")


def test_every_topic_of_a_part_leads_to_its_chapter() -> None:
    for name, svg in strips().items():
        links = re.findall(r'<a class="tp-part[^"]*" data-part="([^"]+)" href="([^"]+)"', svg)
        assert len(links) > 10, name
        for key, href in links:
            assert href == f"{chapter_of(PARTS[key].topic)}.ipynb"
        shown = with_links(svg, page)
        assert ".ipynb" not in shown
        assert all(f'href="{href[:-6]}.html"' in shown for _, href in links)


def test_each_part_is_one_stop_for_the_keyboard() -> None:
    html = here("attention", page)
    links = re.findall(r"<a [^>]*>", html)
    stops = [link for link in links if 'tabindex="-1"' not in link]
    keys = {re.search('data-part="([^"]+)"', link)[1] for link in links}  # type: ignore[index]
    assert len(stops) == len(keys) < len(links)


def test_the_stored_strips_are_those_of_the_models() -> None:
    assert strips() == {
        "2017": Strip(original(), "2017").svg(),
        "today": Strip(today(), "today").svg(),
    }


@pytest.mark.parametrize("name", ["2017", "today"])
def test_a_strip_is_small_and_its_boxes_lie_apart(name: str) -> None:
    svg = strips()[name]
    width, height = map(float, re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg).groups())  # type: ignore[union-attr]
    assert width <= 345
    assert height / width <= 100 / 350  # on a phone, a hundred units at most
    number = r'="([\d.]+)"'
    rects = [
        tuple(map(float, found))
        for found in re.findall(
            rf"<a [^>]*><rect x{number} y{number} width{number} height{number}", svg
        )
    ]
    assert len(rects) > 10
    for i, (x, y, w, h) in enumerate(rects):
        assert min(w, h) >= 20
        assert 0 <= x <= x + w <= width
        assert 0 <= y <= y + h <= height
        for u, v, a, b in rects[i + 1 :]:
            assert x + w <= u or u + a <= x or y + h <= v or v + b <= y
            # Where a target is smaller than 24 units, circles of that size do not meet.
            far = abs(x + w / 2 - u - a / 2) ** 2 + abs(y + h / 2 - v - b / 2) ** 2
            assert far >= 24**2


def test_the_first_page_shows_the_map_itself() -> None:
    assert 'class="tp-explorer"' in picture()
    assert "\n\n" not in picture()


def test_the_strips_need_no_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None; import book.you_are_here as y; "
        "print(len(y.here('attention', str)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 3000
