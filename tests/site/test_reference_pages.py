"""Protects the pages that can be worked with: filter, quiz, cards, links to terms and facts.

Without a kernel, by keyboard, and as far as it goes without the script.
"""

import re
from html import unescape

import pytest

from book import errata, facts, glossary, questions, quiz
from book.chapters import chapters, read, tagged

ENTRIES = errata.load()
PAGE = "book/pages/misconceptions.html"
QUIZ = "book/pages/quiz.html"
CARDS = "book/pages/questions.html"


def shown(page):
    return page.evaluate(
        "() => [...document.querySelectorAll('.tp-erratum')]"
        ".map((e) => e.closest('section')).filter((s) => s.checkVisibility()).map((s) => s.id)"
    )


def ids(wanted):
    return sorted(entry.slug for entry in ENTRIES if wanted(entry))


def test_all_entries_are_shown_at_first_and_counted(visitor):
    page = visitor.open(PAGE)
    assert sorted(shown(page)) == ids(lambda e: True)
    assert page.locator(".tp-count").inner_text() == f"{len(ENTRIES)} of {len(ENTRIES)} shown."


def test_the_entries_are_filtered_by_chapter_and_severity_and_word(visitor):
    page = visitor.open(PAGE)
    page.get_by_label("Chapter").select_option("08")
    of_chapter = ids(lambda e: e.chapter.startswith("08"))
    assert sorted(shown(page)) == of_chapter
    page.get_by_label("Kind").select_option("wrong")
    both = ids(lambda e: e.chapter.startswith("08") and e.severity == "wrong")
    assert sorted(shown(page)) == both
    assert 0 < len(both) < len(of_chapter)
    page.get_by_label("Contains").fill("mean")
    assert 0 < len(shown(page)) < len(both)
    headings = page.locator("h2:visible").all_inner_texts()
    assert len(headings) == 1, "a chapter without entries keeps no heading"
    page.get_by_role("button", name="Show all").press("Enter")
    assert len(shown(page)) == len(ENTRIES)


def test_the_filter_works_by_keyboard_alone(visitor):
    page = visitor.open(PAGE)
    page.get_by_label("Chapter").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "tp-severity"
    assert sorted(shown(page)) == ids(lambda e: e.chapter == min(x.chapter for x in ENTRIES))


def test_a_choice_is_an_address_that_can_be_sent_and_a_link_to_an_entry_wins(visitor):
    page = visitor.open(PAGE + "?chapter=09&kind=wrong")
    wanted = ids(lambda e: e.chapter.startswith("09") and e.severity == "wrong")
    assert sorted(shown(page)) == wanted
    page = visitor.open(PAGE + "?chapter=09#e-01")
    assert len(shown(page)) == len(ENTRIES)
    assert page.locator("#e-01").is_visible()


def test_without_the_script_everything_is_there(visitor):
    page = visitor.open(PAGE, java_script_enabled=False)
    assert page.locator(".tp-erratum").count() == len(ENTRIES)
    assert not page.locator(".tp-filter").is_visible()
    page = visitor.open(QUIZ, java_script_enabled=False)
    answers = page.locator(".tp-quiz details")
    assert answers.count() == len(quiz.load())
    answers.first.locator("summary").click()
    assert answers.first.get_by_text(quiz.load()[0].why[:30]).is_visible()
    page = visitor.open(CARDS, java_script_enabled=False)
    assert page.locator(".tp-flash details:visible").count() == len(questions.load())
    assert not page.locator(".tp-filter").is_visible()


@pytest.mark.parametrize("place", ["", "file:"])
def test_the_quiz_can_be_taken_by_keyboard(visitor, place):
    page = visitor.open(place + QUIZ)
    statements = quiz.load()
    for number, one in enumerate(statements[:4]):
        box = page.locator(".tp-quiz").nth(number)
        # Right the first three times, then wrong.
        choose = one.answer if number < 3 else not one.answer
        assert not box.locator("details").evaluate("(d) => d.open")
        button = box.get_by_role("button", name=str(choose), exact=True)
        button.focus()
        page.keyboard.press("Enter" if number % 2 else "Space")
        assert button.get_attribute("aria-pressed") == "true"
        assert box.locator("details").evaluate("(d) => d.open")
        assert box.locator(".tp-verdict").inner_text() == ("Right." if number < 3 else "Not right.")
    assert (
        page.locator(".tp-score").inner_text()
        == f"3 right of 4 answered, {len(statements)} in all."
    )


def test_only_the_first_answer_counts(visitor):
    page = visitor.open(QUIZ)
    box = page.locator(".tp-quiz").first
    truth = quiz.load()[0].answer
    for choice in (not truth, truth):
        box.get_by_role("button", name=str(choice), exact=True).click()
    assert page.locator(".tp-score").inner_text().startswith("0 right of 1")


def test_the_quiz_of_one_chapter_is_an_address_and_counts_only_its_own(visitor):
    statements = quiz.load()
    of_chapter = [one for one in statements if one.chapter == "13_kv_cache"]
    page = visitor.open(QUIZ + "?chapter=13")
    assert page.locator(".tp-quiz:visible").count() == len(of_chapter)
    assert page.locator("h2:visible").count() == 1
    box = page.locator(".tp-quiz:visible").first
    box.get_by_role("button", name=str(of_chapter[0].answer), exact=True).click()
    said = page.locator(".tp-score")
    assert said.inner_text() == f"1 right of 1 answered, {len(of_chapter)} in all."
    page.get_by_label("Chapter").select_option("")
    assert said.inner_text() == f"1 right of 1 answered, {len(statements)} in all."
    assert page.locator(".tp-quiz:visible").count() == len(statements)
    page.get_by_label("Chapter").select_option("01")
    assert said.inner_text() == "", "nothing of that chapter is answered yet"
    assert page.url.endswith("?chapter=01")


def pile(page):
    """The cards that are seen, and what is said of them."""
    texts = page.locator(".tp-flash:visible summary").all_text_contents()
    return [text.strip() for text in texts], page.locator(".tp-count").inner_text()


@pytest.mark.parametrize("place", ["", "file:"])
def test_questions_are_turned_one_at_a_time_by_keyboard(visitor, place):
    page = visitor.open(place + CARDS)
    everything = questions.load()
    assert pile(page)[1] == f"{len(everything)} questions."
    of_chapter = [one for one in everything if one.chapter == "13_kv_cache"]
    page.get_by_label("Chapter").select_option("13")
    listed, said = pile(page)
    assert len(listed) == len(of_chapter) == int(said.split()[0])
    assert page.locator("h2:visible").count() == 1

    page.get_by_role("button", name="Turn them one at a time").press("Enter")
    first = pile(page)
    assert first == (listed[:1], f"{len(listed)} left of {len(listed)}.")
    fold = page.locator(".tp-flash:visible details")
    assert not fold.evaluate("(d) => d.open")
    assert page.get_by_role("button", name="I knew it").count() == 0, "before it was turned"
    page.keyboard.press("Space")  # the button that turns it has the focus
    assert fold.evaluate("(d) => d.open")
    page.get_by_role("button", name="Again later").press("Enter")
    assert pile(page) == (listed[1:2], first[1])
    for _ in listed[1:]:
        page.keyboard.press("Enter")
        page.get_by_role("button", name="I knew it").press("Enter")
    assert pile(page) == (listed[:1], f"1 left of {len(listed)}."), "it comes back at the end"
    assert not fold.evaluate("(d) => d.open"), "turned back"
    page.keyboard.press("Enter")
    page.get_by_role("button", name="I knew it").press("Enter")
    assert pile(page) == (listed, f"All {len(listed)} known.")


def test_a_link_may_name_the_chapter_and_shuffling_loses_no_card(visitor):
    page = visitor.open(CARDS + "?chapter=05")
    listed, _ = pile(page)
    assert len(listed) == sum(one.chapter == "05_attention" for one in questions.load())
    page.get_by_role("button", name="Turn them one at a time").click()
    page.get_by_role("button", name="Shuffle").click()
    seen = []
    for _ in listed:
        seen += pile(page)[0]
        page.get_by_role("button", name="Turn", exact=True).click()
        page.get_by_role("button", name="I knew it").click()
    assert sorted(seen) == sorted(listed)


def test_chapters_link_their_terms_to_the_glossary(built):
    anchors = {term.anchor for term in glossary.load()}
    for path in chapters():
        html = (built / "notebooks" / f"{path.stem}.html").read_text(encoding="utf-8")
        links = re.findall(r'<a class="[^"]*\btp-term\b[^>]* href="([^"]*)"', html)
        assert len(links) == len(re.findall(r'class="[^"]*\btp-term\b', html)), path.stem
        found = [link.partition("glossary.html#")[2] for link in links]
        assert len(found) >= 2, path.stem
        assert len(found) == len(set(found)), "a term is linked once"
        assert set(found) <= anchors


def test_links_to_facts_lead_to_their_entries_and_say_source_and_place(built):
    titles = facts.titles()
    page = (built / f"{facts.PAGE}.html").read_text(encoding="utf-8")
    assert [anchor for anchor in titles if f'id="{anchor}"' not in page] == []
    found = 0
    for path in sorted(built.rglob("*.html")):
        for link in re.findall(r"<a\b[^>]*facts\.html#[^>]*>", path.read_text(encoding="utf-8")):
            anchor = re.search(r'facts\.html#([^"]+)"', link)[1]
            assert re.search(r'class="[^"]*\btp-fact\b', link), (path.name, link)
            assert re.search(r'title="([^"]*)"', link), (path.name, link)
            assert unescape(re.search(r'title="([^"]*)"', link)[1]) == titles[anchor]
            found += 1
    assert found > 50


def test_a_citation_says_the_title_of_its_work_and_no_more(built):
    works, found = set(facts.works()), 0
    for path in sorted((built / "notebooks").rglob("*.html")):
        links = re.findall(r"<a\b[^>]*/references\.html#[^>]*>", path.read_text(encoding="utf-8"))
        for link in links:
            said = re.search(r'title="([^"]*)"|$', link)[1] or ""
            assert unescape(said) in works, (path.name, link)
            found += 1
    assert found > 200


def test_a_finding_shows_its_sentence_and_unfolds_its_experiment_by_keyboard(visitor):
    page = visitor.open("notebooks/10_transformer.html")
    box = page.locator(".tag_finding").first
    sentence, code = box.locator(".cell_output p").first, box.locator(".cell_input")
    assert sentence.inner_text().startswith("Finding. ")
    assert not code.is_visible()
    box.locator("summary").press("Enter")
    assert code.is_visible()
    assert sentence.bounding_box()["y"] < code.bounding_box()["y"]


def test_every_finding_of_a_chapter_stands_in_its_box(built):
    for path in chapters():
        html = (built / "notebooks" / f"{path.stem}.html").read_text(encoding="utf-8")
        boxes = html.split('<div class="cell tag_finding')[1:]
        assert len(boxes) == len(list(tagged(read(path), "finding"))), path.stem
        for box in boxes:
            sentence = box.index("<strong>Finding.</strong>")
            line = box.index("<summary>The experiment</summary>")
            assert sentence < line, path.stem
            # By how much it holds is said in names of the experiment, so it stands with that.
            assert line < box.index("tp-compared"), path.stem
