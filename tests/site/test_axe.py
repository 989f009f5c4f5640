"""Asks axe-core about every page: its structure, its colours in light and dark, its controls."""

import re

import pytest
from axe import complaints
from test_pages import listed
from visiting import Visitor

PAGES = [*(f"{name}.html" for name in listed()), "search.html", "index.html"]


@pytest.fixture(scope="module")
def reader(browser, served, built):
    """A visitor and one context for all pages, which keep what they share."""
    visitor = Visitor(browser, served, built)
    yield visitor, visitor.context(color_scheme="light", viewport={"width": 1280, "height": 6000})
    visitor.close()


@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing(reader, name):
    visitor, context = reader
    page = visitor.open(name, context=context)
    if name == "index.html":
        page.wait_for_url(re.compile(r"book/pages/index\.html"))
    assert complaints(page) == []
    page.emulate_media(color_scheme="dark")
    page.wait_for_selector("html[data-theme=dark]", state="attached")
    page.set_viewport_size({"width": 390, "height": 900})
    assert complaints(page, small=True) == []
    page.close()
    assert visitor.heard() == []


def test_axe_finds_what_is_planted(visitor):
    page = visitor.open("book/pages/quiz.html")
    page.evaluate(
        """() => {
          const image = new Image();
          image.src = "../../_static/favicon.svg";
          const pale = document.createElement("p");
          pale.style.color = "#ccc";
          pale.textContent = "Hardly to be read";
          const line = document.createElement("p");
          const link = document.createElement("a");
          link.href = "#here";
          link.style.cssText = "color: rgb(60, 60, 60); text-decoration: none";
          link.textContent = "hardly seen";
          line.append("A link that ", link, " is a link");
          document.querySelector("article").prepend(
            image, pale, line, document.createElement("button"));
          for (const name of ["one", "two"]) {
            const tiny = document.createElement("button");
            tiny.textContent = name;
            tiny.style.cssText = "font-size: 5px; padding: 0; border: 0; display: block";
            document.querySelector("article").prepend(tiny);
          }
        }"""
    )
    colours = {"color-contrast", "link-in-text-block"}
    found = {complaint.split()[0] for complaint in complaints(page)}
    assert found >= colours | {"image-alt", "button-name"}
    found = {complaint.split()[0] for complaint in complaints(page, small=True)}
    assert found == colours | {"target-size"}
