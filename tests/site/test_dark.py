"""Protects the contrast of every page in dark mode, and its controls on a phone."""

import pytest
from axe import complaints
from test_everyone import PAGES


@pytest.mark.parametrize("name", [name for name in PAGES if name != "index.html"])
def test_axe_finds_nothing_in_the_dark_and_on_a_phone(visitor, name):
    page = visitor.open(name, color_scheme="dark", viewport={"width": 390, "height": 900})
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert complaints(page, "size") == []
    page.set_viewport_size({"width": 1280, "height": 900})
    assert complaints(page, "contrast") == []
