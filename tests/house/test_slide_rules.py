"""What goes onto the slides: chosen by where it stands on the page, and never written anew."""

import re
from html import unescape

import pytest
from bs4 import BeautifulSoup

from book.slides import compose, source, write
from book.slides.__main__ import main
from book.slides.sentences import sentences

ARTICLE = """<html><body><main><article class="tp-article">
<p class="tp-eyebrow">The parts <b>Chapter 5</b></p>
<section id="top"><h1>Weights<a class="headerlink" href="#top">#</a></h1>
<details class="tp-opening"><summary>Goals</summary><ul><li>Goal.</li></ul></details>
<p>The promise of <a href="03_softmax.html#x">it</a>.</p>
<p>Drag it.</p>
<div class="cell tag_hide-input"><div class="cell_output"><div class="tp-explorer"><p>E</p>
<svg id="a" viewBox="0 0 1 1"></svg><script type="application/json">{"a": "<"}</script></div></div>
<details class="tp-code-fold"><summary>The code</summary><pre>secret drawing</pre></details></div>
{sections}
</section></article></main>
<script type="application/json" class="tp-symbols">[]</script></body></html>
"""
CODE = '<div class="cell"><div class="cell_input"><pre>{}</pre></div></div>'


def chapter(tmp_path, *sections, article=ARTICLE):
    page = tmp_path / "05_weights.html"
    page.write_text(article.replace("{sections}", "\n".join(sections)), encoding="utf-8")
    return source.read(page, "../html/", "")


def section(heading, *parts):
    return f'<section id="{heading.lower()}"><h2>{heading}</h2>{"".join(parts)}</section>'


def made(tmp_path, *sections):
    return compose.slides(chapter(tmp_path, *sections))


def words(html):
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())


@pytest.mark.parametrize(
    ("paragraph", "expected"),
    [
        ("One. Two is it! Three?", ["One.", "Two is it!", "Three?"]),
        ("It is 0.5 in all. Then 3 more.", ["It is 0.5 in all.", "Then 3 more."]),
        ("As Hu et al. Say. So <b>do. We</b> now.", ["As Hu et al. Say.", "So <b>do. We</b> now."]),
        ("See e.g. <i>x</i> there.", ["See e.g. <i>x</i> there."]),
        ("First. <code>q</code> is it.", ["First.", "<code>q</code> is it."]),
        ("So <span><math>x</math>.</span> Then", ["So <span><math>x</math>.</span>", "Then"]),
        ("a &lt; b. C &amp; d", ["a &lt; b.", "C &amp; d"]),
        ("“Why?” Because. no", ["“Why?”", "Because. no"]),
    ],
)
def test_a_paragraph_falls_into_its_sentences(paragraph, expected):
    p = BeautifulSoup(f"<p>{paragraph}</p>", "html.parser").p
    assert sentences(p) == expected


def test_the_title_has_the_promise_and_the_first_picture(tmp_path):
    title, *rest = made(tmp_path, section("Why", "<p>Because of it.</p>"))
    assert title.kind == "title"
    assert "The promise of" in title.before
    assert "Drag it." in title.before
    assert "tp-explorer" in title.body
    assert "Goal." in title.notes[0]
    assert [one.heading for one in rest] == ["Why"]


def test_the_sentences_beside_a_formula_and_a_picture(tmp_path):
    long = "A sentence that is long enough to say something of its own, " * 4
    formula = '<div class="tp-equation"><div class="math-display"><math>x</math></div></div>'
    image = '<div class="cell"><div class="cell_output"><img src="../_images/a.png"></div></div>'
    _, slide, figure = made(
        tmp_path,
        section(
            "Sums",
            f"<p>The section opens with this sentence, and goes on. {long}</p>",
            "<p>Not this one. (Nor this one.) With the sum one has. (In brackets.)</p>",
            formula,
            "<p>which goes on in lower case. This is for the notes.</p>",
            f"<p>The picture has a first sentence that is long. {long}</p>",
            image,
            f"<p>What the picture shows is said after it, at once. {long}</p>",
        ),
    )
    assert re.findall(r'<p class="sl-said">(.*?)</p>', slide.body) == [
        "The section opens with this sentence, and goes on.",
        "With the sum one has.",
        "which goes on in lower case.",
    ]
    assert "sentence that is long" in figure.before
    assert "first sentence" in words(figure.before)
    assert words(figure.after) == "What the picture shows is said after it, at once."
    assert "Not this one." in "".join(slide.notes)
    assert "This is for the notes." in "".join(figure.notes)


def test_no_code_is_longer_than_ten_lines_and_what_is_cut_leads_to_the_page(tmp_path):
    short = CODE.format("\n".join(f"line{i} = 1" for i in range(10)))
    long = CODE.format("\n".join(f"row{i} = 1" for i in range(11)))
    plain = CODE.format("def f(x):\n    y = x\n\n    return y\n\n\n" + "print(f(1))\n" * 9)
    _, slide = made(tmp_path, section("Code", short, "<p>Out it goes:</p>", long, plain))
    kept = chapter(tmp_path, section("Code", short, long, plain))
    body = source.whole("".join(s.body for s in compose.slides(kept)), kept.kept)
    assert "line9" in body
    assert "row0" not in body
    assert "    return y" in body
    assert "print(f(1))" not in body
    assert "The code, 15 lines, on the page" in body
    assert 'href="../html/notebooks/05_weights.html#code"' in body
    assert "Out it goes" not in slide.body
    assert "Out it goes" in "".join(slide.notes)


def test_an_exercise_has_its_hints_and_never_its_solution(tmp_path):
    exercise = (
        '<div class="exercise admonition"><p class="admonition-title">'
        '<span class="caption-number">Exercise 3 </span> (Count them)</p>'
        "<section><p>How many?</p></section></div>"
        '<div class="cell tag_exercise"><div class="cell_input"><pre>mine = None</pre></div></div>'
        '<details class="tp-fold tp-question"><summary>Hint 1</summary><p>Try it.</p></details>'
        '<details class="tp-fold admonition solution dropdown"><summary>Solution</summary>'
        '<div class="cell tag_solution"><pre>mine = 42</pre></div></details>'
    )
    kept = chapter(tmp_path, section("Now you", exercise))
    _, slide = compose.slides(kept)
    text = write.deck(kept, [slide], {"style": "s.css", "script": "s.js"}, "../html/")
    assert "The code, 11 lines, on the page" not in text
    long = exercise.replace("mine = None", "mine = None\n" * 11)
    _, slide = compose.slides(chapter(tmp_path, section("Now you", long)))
    assert "The code, 11 lines, on the page" in slide.body
    assert slide.heading == "Exercise 3 · Count them"
    assert "mine = None" in text
    assert "Try it." in text
    assert "42" not in text
    assert "Solution" not in text


def test_questions_come_before_their_answers_and_lists_are_split(tmp_path):
    asked = "".join(
        f'<details class="tp-fold tp-question"><summary>Why {i}?</summary><p>So {i}.</p></details>'
        for i in range(9)
    )
    wrong = "".join(f"<li><p><em>Claim {i}.</em> {'Truth ' * 60}</p></li>" for i in range(6))
    slides = made(
        tmp_path,
        section("Questions you may be asked", asked),
        section("What is often written and wrong", f"<ul>{wrong}</ul>"),
        section("Further", "<p>For specialists.</p>"),
    )
    cards = [one for one in slides if one.kind == "question"]
    assert len(cards) > 1
    assert [f"Why {i}?" for i in range(9)] == re.findall(
        r"Why \d\?", "".join(c.body for c in cards)
    )
    assert all(c.body.count("sl-step") == c.body.count("So ") for c in cards)
    claims = [re.findall(r"Claim \d", one.body) for one in slides if "Claim" in one.body]
    assert len(claims) > 1
    assert [one for some in claims for one in some] == [f"Claim {i}" for i in range(6)]
    assert not any("specialists" in one.body for one in slides)


def test_a_deck_says_nothing_that_the_page_does_not_say(tmp_path):
    kept = chapter(
        tmp_path,
        section(
            "Why", "<p>One reason is <em>this</em>. Another is that.</p>", CODE.format("a = 1")
        ),
    )
    page = words((tmp_path / "05_weights.html").read_text(encoding="utf-8"))
    for slide in compose.slides(kept):
        for html in (slide.heading, slide.before, slide.body, slide.after, *slide.notes):
            for piece in re.findall(r">([^<>]+)<", f">{source.whole(html, kept.kept)}<"):
                assert " ".join(unescape(piece).split()) in page


def test_what_is_kept_comes_back_as_it_was_and_links_lead_to_the_site(tmp_path):
    kept = chapter(tmp_path, section("Why", "<p>Because.</p>"))
    text = write.deck(kept, compose.slides(kept), {"style": "s.css", "script": "s.js"}, "../html/")
    assert '<svg id="a" viewBox="0 0 1 1"></svg>' in text
    assert '{"a": "<"}' in text
    assert "data-kept" not in text
    assert 'href="../html/notebooks/03_softmax.html#x"' in text
    assert "headerlink" not in text
    assert "secret drawing" not in text


def test_what_is_no_chapter_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"05_weights\.html: not the page of a chapter"):
        chapter(tmp_path, article="<p>nothing</p>")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--site", "nowhere"], "run `make book` first"),
        (["--only", "05_atention"], "no chapter is called 05_atention"),
    ],
)
def test_the_command_says_what_is_missing(tmp_path, capsys, arguments, said):
    assert main([str(tmp_path / "out"), *arguments]) == 1
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
