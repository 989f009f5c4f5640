"""Protects the page from everything that is not part of it: its Content-Security-Policy holds."""

import re

import pytest
from visiting import CHAPTERS, pages_of

# What a fault or a stranger could put into a page, and what would show that it worked.
PLANTED = {
    "a script in the page": """
        const script = document.createElement("script");
        script.textContent = "window.hit = 1";
        document.body.append(script);""",
    "a handler in an attribute": """
        const button = document.createElement("button");
        button.setAttribute("onclick", "window.hit = 1");
        document.body.append(button);
        button.click();""",
    "a style in the page": """
        const style = document.createElement("style");
        style.textContent = "body { --hit: 1 }";
        document.head.append(style);
        if (getComputedStyle(document.body).getPropertyValue("--hit")) window.hit = 1;""",
    "a style in an attribute": """
        document.body.setAttribute("style", "--hit: 1");
        if (getComputedStyle(document.body).getPropertyValue("--hit")) window.hit = 1;""",
    "another base": """
        const base = document.createElement("base");
        base.href = "https://example.org/";
        document.head.append(base);
        if (document.baseURI.includes("example")) window.hit = 1;""",
    "a frame": """
        const frame = document.createElement("iframe");
        frame.src = location.href;
        document.body.append(frame);""",
}


@pytest.mark.parametrize("what", PLANTED)
@pytest.mark.parametrize("by", ["", "file:"], ids=["served", "file"])
def test_the_policy_stops_what_is_planted(visitor, what, by):
    page = visitor.open(by + "notebooks/08_normalization.html")
    assert visitor.complaints == []
    page.evaluate(f"() => {{ window.hit = 0; {PLANTED[what]} }}")
    page.wait_for_timeout(100)
    assert page.evaluate("window.hit") == 0
    assert len(visitor.complaints) >= 1, "the policy said nothing"
    assert all("Content Security Policy" in c for c in visitor.complaints)
    visitor.complaints.clear()


def test_the_net_finds_what_the_policy_lets_through(visitor):
    page = visitor.open("notebooks/08_normalization.html", bypass_csp=True)
    page.evaluate(f"() => {{ {PLANTED['a script in the page']} }}")
    assert page.evaluate("window.hit") == 1


def test_every_page_has_the_strict_policy_and_nothing_that_it_forbids(built):
    names = pages_of(built)
    assert len(names) > len(CHAPTERS)
    for name in names:
        page = (built / name).read_text(encoding="utf-8")
        [policy] = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
        assert policy.startswith("default-src 'none'; ")
        assert "unsafe" not in policy
        assert "*" not in policy
        assert "http" not in policy
        # It governs what comes after it.
        assert page.index("Content-Security-Policy") < page.index("<title>")
        tags = re.findall(r"<[a-z][^<>]*>", re.sub(r"<script\b.*?</script>", "", page, flags=re.S))
        for tag in tags:
            assert not re.search(r'\s(style|on[a-z]+)="', tag), f"{name}: {tag}"
            assert not tag.startswith("<style"), name


def test_no_page_names_a_script_style_font_or_picture_of_another_host(built):
    for name in pages_of(built):
        page = (built / name).read_text(encoding="utf-8")
        for tag in re.findall(r"<(?!a\b)[a-z][^<>]*>", page):
            address = re.search(
                r'\s(?:src|href|srcset|data|poster|action)="((?:https?:)?//[^"]*)', tag
            )
            assert address is None or 'rel="canonical"' in tag, f"{name}: {tag}"
    for file in (built / "_static").rglob("*.css"):
        assert not re.search(r"url\([\"']?(?:https?:)?//", file.read_text(encoding="utf-8"))


def test_a_chapter_works_without_a_network(visitor):
    page = visitor.open("file:notebooks/08_normalization.html", offline=True)
    page.locator(".tp-explorer").first.scroll_into_view_if_needed()
    page.wait_for_selector(".tp-explorer.tp-live")
    assert page.evaluate(
        "[...document.fonts].some((f) => f.status === 'loaded' && /Book Math/.test(f.family))"
    )
