"""The questions of the chapters: all are found, as a page and as cards that Anki can import."""

import re
import shutil

import nbformat
import pytest

from book import questions
from book.chapters import NOTEBOOKS, chapters

ALL = questions.load()


def test_every_fold_out_of_every_chapter_is_a_question():
    for path in chapters():
        notebook = nbformat.read(path, as_version=4)
        text = "\n\n".join(c.source for c in notebook.cells if c.cell_type == "markdown")
        section = re.split(r"^## ", text.partition(questions.HEADING + "\n")[2], flags=re.M)[0]
        asked = [one for one in ALL if one.chapter == path.stem]
        assert len(asked) == section.count("{dropdown}") >= 5, path.stem
        for one in asked:
            assert one.question in section
            assert one.answer in section


def test_no_question_is_asked_twice_and_none_loses_its_id_when_its_answer_changes():
    assert len({one.guid for one in ALL}) == len(ALL)
    one = ALL[0]
    rewritten = questions.Question(one.chapter, one.title, one.question, "Another answer.")
    assert rewritten.guid == one.guid


def test_the_page_holds_each_question_and_its_links_start_from_there():
    text = questions.as_markdown()
    for one in ALL:
        assert f":::{{dropdown}} {one.question}\n" in text
    assert text.count(":::{container} tp-flash") == len(ALL)
    assert "](../book/pages/" not in text
    assert "](#" not in text
    assert re.findall(r"\]\(\d\d_", text) == []


def test_a_card_is_a_line_of_four_fields_without_markdown():
    lines = questions.as_cards().splitlines()
    head = [line for line in lines if line.startswith("#")]
    assert head[0] == "#separator:tab"
    cards = [line.split("\t") for line in lines[len(head) :]]
    assert [len(card) for card in cards] == [4] * len(ALL)
    for (guid, front, back, tags), one in zip(cards, ALL, strict=True):
        assert guid == one.guid
        assert front.startswith("<p>")
        assert tags.split() == ["transformer-parts", one.chapter.replace("_", "-", 1)]
        words = re.sub(r"\\\(.*?\\\)|\\\[.*?\\\]|<pre>.*?</pre>|<code>.*?</code>", "", front + back)
        assert re.findall(r"\$|\]\(|\{[a-z:]+\}|\*\*|<a ", words) == [], one.question


def test_formulas_and_code_keep_what_they_say():
    html = questions._html("Is $a<b$?\n\n```python\nif x:\n    y()\n```\n\n[here](#x) {cite:p}`k`.")
    assert r"\(a&lt;b\)" in html
    assert "if x:<br>&nbsp;&nbsp;&nbsp;&nbsp;y()" in html
    assert html.endswith("<p>here.</p>")


def test_what_a_card_cannot_show_is_an_error():
    with pytest.raises(ValueError, match=r"cannot show \{cite:t\}`k`"):
        questions._html("{cite:t}`k` says so.")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (questions.HEADING, "## Other", "a chapter has a title and a section"),
        ("```{dropdown}", "Loose.\n\n```{dropdown}", "not a question with its answer: 'Loose.'"),
    ],
)
def test_a_chapter_that_is_written_otherwise_is_named(tmp_path, old, new, message):
    path = tmp_path / "06_activations.ipynb"
    shutil.copy(NOTEBOOKS / path.name, path)
    notebook = nbformat.read(path, as_version=4)
    (cell,) = (c for c in notebook.cells if c.source.startswith(questions.HEADING))
    cell.source = cell.source.replace(old, new, 1)
    nbformat.write(notebook, path)
    with pytest.raises(ValueError, match=rf"06_activations\.ipynb: {message}"):
        questions.load(tmp_path)


def test_an_answer_that_is_missing_is_named(tmp_path):
    path = tmp_path / "06_activations.ipynb"
    shutil.copy(NOTEBOOKS / path.name, path)
    notebook = nbformat.read(path, as_version=4)
    (cell,) = (c for c in notebook.cells if c.source.startswith(questions.HEADING))
    cell.source = f"{questions.HEADING}\n\n```{{dropdown}} Why?\n```\n"
    nbformat.write(notebook, path)
    with pytest.raises(ValueError, match=r"06_activations\.ipynb: 'Why\?' has no answer"):
        questions.load(tmp_path)


def test_the_command_writes_the_file_and_counts(tmp_path, capsys):
    out = tmp_path / "new" / "cards.txt"
    assert questions.main([str(out)]) == 0
    assert out.read_text(encoding="utf-8") == questions.as_cards()
    assert f"{len(ALL)} cards" in capsys.readouterr().out
