"""Protects the ways to a page: search, descriptions, pictures, anchors, addresses."""

import re
from pathlib import PurePosixPath
from urllib.parse import urlsplit

import pytest
from PIL import Image
from visiting import CHAPTERS, listed, pages_of

PAGES = [f"{name}.html" for name in listed()]


def meta(page, kind, name):
    found = re.findall(rf'<meta {kind}="{name}" content="([^"]*)">', page)
    assert len(found) == 1, (kind, name, found)
    return found[0]


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("rms_norm", "notebooks/08_normalization.html"),  # a function
        ("RotaryEmbedding", "notebooks/11_rope.html"),  # a class
        ("scaled dot-product attention", "notebooks/05_attention.html"),  # a formula by its name
        ("softmax jacobian", "notebooks/03_softmax.html"),
        ("注意力", "book/pages/glossary.html"),  # a Chinese term, of three signs and of two
        ("掩码", "book/pages/glossary.html"),
        ("批归一化", "book/pages/glossary.html"),
    ],
)
def test_the_search_finds(visitor, words, page):
    found = visitor.open(f"search.html?q={words}")
    found.wait_for_selector("#search-results li a")
    found.wait_for_function(
        "() => document.querySelector('.search-summary').textContent.length > 5"
    )
    found.wait_for_load_state("networkidle")
    links = found.eval_on_selector_all("#search-results li a", "(all) => all.map((a) => a.href)")
    assert any(urlsplit(link).path.endswith(page) for link in links), links


def test_the_words_that_were_searched_for_are_marked_on_the_page(visitor):
    page = visitor.open("search.html?q=variance")
    page.locator("#search-results li a[href*='08_normalization']").first.click()
    page.wait_for_url(re.compile("08_normalization"))
    page.wait_for_function("() => CSS.highlights.get('found')?.size > 3")
    page.keyboard.press("Escape")
    assert page.evaluate("CSS.highlights.has('found')") is False


def test_every_page_says_what_it_is_and_no_two_say_the_same(built):
    told = {}
    for name in PAGES:
        page = (built / name).read_text(encoding="utf-8")
        description = meta(page, "name", "description")
        assert 30 <= len(description) <= 300, (name, description)
        assert meta(page, "property", "og:title")
        assert meta(page, "property", "og:description") == description
        told[description] = name
    assert len(told) == len(PAGES)


def test_every_chapter_has_a_picture_of_its_own(built):
    pictures = set()
    for name in CHAPTERS:
        page = (built / name).read_text(encoding="utf-8")
        file = built / "_static/cards" / PurePosixPath(meta(page, "property", "og:image")).name
        with Image.open(file) as image:
            assert image.size == (1200, 630)
        assert file.stat().st_size < 150_000
        pictures.add(file.read_bytes())
    assert len(pictures) == len(CHAPTERS)


def test_anchors_are_made_of_words_and_stay(built):
    for name in CHAPTERS:
        page = (built / name).read_text(encoding="utf-8")
        sections = re.findall(r'<section\b[^>]*\bid="([^"]+)"[^>]*>\s*<h[1-6]', page)
        assert len(sections) >= 8
        # A title that a chapter has twice would get a number, which changes with the order.
        assert not [s for s in sections if re.fullmatch(r"id\d+", s)], name
        equations = re.findall(r'<div class="math-display" id="([^"]+)"', page)
        assert all(e.startswith("equation-eq-") for e in equations)


def test_every_link_to_the_outside_has_the_form_of_an_address(built, record_property):
    outside = set()
    for name in pages_of(built):
        page = (built / name).read_text(encoding="utf-8")
        outside |= set(re.findall(r'<a\b[^>]*\shref="(\w+:[^"]*)"', page))
    record_property("links to the outside", sorted(outside))
    assert len(outside) >= 10
    for link in outside:
        parts = urlsplit(link.replace("&amp;", "&"))
        assert parts.scheme == "https", link
        assert re.fullmatch(r"[\w-]+(\.[\w-]+)+(:\d+)?", parts.netloc), link
        assert not re.search(r"\s|example\.(org|com)|localhost|//.*//", link), link
