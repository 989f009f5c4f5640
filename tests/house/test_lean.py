"""Protects what makes the built pages lean: nothing that is used may be lost on the way."""

import re

import pytest
from PIL import Image

from book import lean
from book.lean import Book, Used, address_of, make_lean, purged

# ---------------------------------------------------------------- the address of the book


@pytest.mark.parametrize(
    ("environment", "repository", "address"),
    [
        ({}, None, None),
        ({}, "https://github.com/Owner/Name", "https://owner.github.io/Name/"),
        ({}, "https://github.com/owner/owner.github.io", "https://owner.github.io/"),
        ({}, "https://git.example.org/owner/name", None),
        ({"BOOK_URL": "https://book.example.org/a"}, None, "https://book.example.org/a/"),
        ({"BOOK_URL": "https://b.org/"}, "https://github.com/o/n", "https://b.org/"),
        ({"BOOK_URL": " "}, "https://github.com/o/n", "https://o.github.io/n/"),
    ],
)
def test_the_address_is_given_or_that_of_the_pages_of_the_repository(
    environment, repository, address
):
    assert address_of(environment, repository) == address


@pytest.mark.parametrize("wrong", ["book.example.org", 'https://a"b', "https://a b", "/srv/book"])
def test_an_address_that_is_none_is_refused_by_name(wrong):
    with pytest.raises(ValueError, match="BOOK_URL should be"):
        address_of({"BOOK_URL": wrong}, None)


# ---------------------------------------------------------------- the style sheet

USED = Used.by(
    ['<div class="kept other" id="here"><p>x</p><details class="a:b"></details></div>'],
    'x.className = "made"; x.append("now")',
)


@pytest.mark.parametrize(
    "rule",
    [
        ".kept{color:red}",
        "#here{color:red}",
        'div.kept>p::before{content:"a}b;c"}',
        ".made:hover{color:red}",
        "p:not(.never){color:red}",
        "div:is(.never,.kept) p{color:red}",
        "html[data-theme=dark] .kept{color:red}",
        "@media print{.kept{color:red}}",
        "@media print{@supports (gap:1px){.kept{color:red}}}",
        "*,::after{box-sizing:border-box}",
        ".kept{background:url(data:image/svg+xml;a,b)}",
        '.kept{background:url("data:image/svg+xml;utf8,<svg>{}</svg>")}',
        '@font-face{font-family:"Book Math";src:url("math.woff")}',
    ],
)
def test_a_rule_that_can_apply_is_kept_as_it_is(rule):
    assert purged(rule, USED) == rule


@pytest.mark.parametrize(
    "rule",
    [
        ".never{color:red}",
        ".kept .never{color:red}",
        "#nowhere{color:red}",
        "table p{color:red}",
        "@media print{.never{color:red}}",
        "@keyframes turn{to{rotate:1turn}}",
        '@font-face{font-family:"Icons";src:url("icons.woff")}',
        '@import "other.css";',
        "/* .kept{color:red} */",
        ".kept{}",
        ".kept:-moz-focusring{color:red}",
        ".kept{--unread:1px}",
    ],
)
def test_a_rule_that_cannot_apply_goes(rule):
    assert purged(rule, USED) == ""


def test_of_several_selectors_those_stay_that_can_apply():
    assert purged(".never, .kept , p > .never{ color : red; }", USED) == ".kept{color :red}"


def test_a_variable_stays_if_a_rule_that_stays_reads_it_even_through_another():
    css = ":root{--a:var(--b);--b:1px;--c:2px;--tp-c0:red}.kept{width:var(--a)}"
    assert purged(css, USED) == ":root{--a:var(--b);--b:1px;--tp-c0:red}.kept{width:var(--a)}"


def test_a_style_sheet_that_ends_within_a_rule_is_refused():
    with pytest.raises(ValueError, match="ends within a rule"):
        purged(".kept{color:red", USED)


# ---------------------------------------------------------------- the body


def test_a_folding_box_becomes_details_and_keeps_its_place_and_content():
    box = (
        '<div class="solution dropdown admonition" id="s"><p class="admonition-title">Solution to '
        '<a href="#e">Exercise 1</a></p><div><div>deep</div></div></div><p>after</p>'
    )
    assert lean._foldable(box) == (
        '<details class="tp-fold solution admonition" id="s"><summary class="admonition-title">'
        "Solution to Exercise 1</summary><div><div>deep</div></div></details><p>after</p>"
    )


def test_code_keeps_every_letter_and_loses_only_plain_spans():
    code = (
        '<pre><span></span><span class="k">def</span> <span class="nf">f</span>'
        '<span class="p">(</span><span class="n">x</span><span class="o">&lt;</span>'
        '<span class="mi">1</span><span class="mi">2</span><span class="p">)</span></pre>'
    )
    slim = lean._fewer_spans(code)
    coloured = '<span class="k">def</span> <span class="nf">f</span>(x&lt;'
    assert slim == f'<pre>{coloured}<span class="mi">12</span>)</pre>'
    assert re.sub("<[^>]*>", "", slim) == re.sub("<[^>]*>", "", code)


def test_an_image_gets_the_size_that_its_style_or_its_file_says(tmp_path):
    Image.new("RGB", (30, 20)).save(tmp_path / "a.png")
    page = tmp_path / "page.html"
    assert 'width="30" height="20"' in lean._sized('<img alt="a" src="a.png" />', page)
    styled = lean._sized('<img src="a.png" style="width: 576.0px; height: 432.0px;" />', page)
    assert 'width="576" height="432"' in styled
    assert "style" not in styled
    assert lean._sized('<img src="b.svg" />', page) == '<img src="b.svg" />'


def test_a_style_in_an_attribute_becomes_a_class_and_equal_ones_the_same():
    inline = {}
    text = '<td style="a: b"><td class="x" style="a: b"><td style="c: d">style="no tag"'
    assert lean._styles_to_classes(text, inline) == (
        '<td class="tp-s0"><td class="tp-s0 x"><td class="tp-s1">style="no tag"'
    )
    assert inline == {"a: b": "tp-s0", "c: d": "tp-s1"}


def test_a_formula_keeps_the_signs_that_touch_it():
    math = "<math><mi>W</mi></math>"
    page = f"<p>rows of {math}, and ({math}) as {math}-th; {math} alone</p>{math}<p>, far</p>"
    held = '<span class="tp-hold">'
    assert lean._HELD.sub(lean._with_its_signs, page) == (
        f"<p>rows of {held}{math},</span> and {held}({math})</span> as {held}{math}-</span>th; "
        f"{math} alone</p>{math}<p>, far</p>"
    )


def test_an_element_is_removed_with_what_is_in_it_and_nothing_else():
    text = '<p>a</p><div class="x"><div>b</div></div><div>c</div>'
    assert lean._without(text, r'<div class="x">') == "<p>a</p><div>c</div>"
    with pytest.raises(ValueError, match="does not end"):
        lean._without('<div class="x"><div>b</div>', r'<div class="x">')


def test_a_longer_section_is_taken_to_be_taller():
    short, long = ("<section><h2>a</h2>" + "<p>one two three</p>" * n for n in (3, 60))
    assert 200 <= lean._height(short) < lean._height(long) <= 4000
    assert lean._height("<pre>" + "code\n" * 1000 + "</pre>") >= 15_000
    assert lean._height('<img height="900">') >= 800
    box = '<details class="tp-fold solution">' + "<p>hidden</p>" * 90 + "</details>"
    assert lean._height(box) == 200
    assert lean._height(box * 20) >= 1000


# ---------------------------------------------------------------- the whole


@pytest.mark.parametrize("address", [None, "https://book.example.org/"])
def test_a_site_without_pages_of_the_theme_is_refused(tmp_path, address):
    (tmp_path / "index.html").write_text("<p>no theme</p>", encoding="utf-8")
    with pytest.raises(ValueError, match="holds no page of the theme"):
        make_lean(tmp_path, Book("A book", "About it.", address))


def test_the_address_book_lists_every_page_that_is_read(tmp_path):
    names = ["index.html", "a/b.html", "search.html"]
    lean._address_book(tmp_path, names, Book("A book", "About it.", "https://b.org/x/"))
    sitemap = (tmp_path / "sitemap.xml").read_text(encoding="utf-8")
    assert re.findall("<loc>(.*?)</loc>", sitemap) == ["https://b.org/x/a/b.html"]
    assert "Sitemap: https://b.org/x/sitemap.xml" in (tmp_path / "robots.txt").read_text()
    lean._address_book(tmp_path, names, Book("A book", "About it.", None))
    assert list(tmp_path.iterdir()) == []


def test_the_policy_allows_the_two_scripts_in_a_page_and_nothing_unsafe():
    policy = lean._policy()
    assert policy.startswith("default-src 'none'")
    assert policy.count("'sha256-") == 2
    assert "unsafe" not in policy
