"""Protects the measures of a page: what a reader meets is counted, what is folded is not."""

import pytest
from making import code, flat, notebook, printed, result, saved, shown, text

from book.teaching import main, measures

PICTURE = code("draw()", "hide-input", outputs=[shown(flat("white"))])
EXPLORER = code("explore()", "hide-input", outputs=[result({"text/html": "<svg/>"})])
SENTENCE = "One two three four five six seven eight nine ten. "
TABLE = text("| a | b |\n|---|---|\n| 1 | 2 |")
CODE = code("x = 1")
FOLDED = [
    code("import torch", "setup"),
    code("# Library version: adds x.\ndef f(x):\n    return x", "export", "library"),
    code('witness("eq-a", {})', "witness", outputs=[printed("eq-a holds: 1 2\n" * 4)]),
    code("x = 1", "hide-input"),
    code('finding("x")', "finding"),
]


def words(times):
    return text(SENTENCE * times)


def exercise(number, kind="predict", name="half"):
    task = f"*5 minutes, easy, {kind}.* Do." if kind else "*5 minutes, easy.* Do."
    told = text(f"```{{exercise}} Number {number}\n:label: ex-{number}\n\n{task}\n```")
    stub = code(
        f'def my_{name}(x):\n    raise NotImplementedError\n\n\ncheck("a.{name}", my_{name})'
    )
    stub.metadata["tags"] = ["exercise"]
    return [told, stub]


def test_words_are_counted_to_the_first_picture_and_between_pictures():
    found = measures(
        notebook(words(3), PICTURE, text("## Next\n\n" + SENTENCE), EXPLORER, words(2))
    )
    assert (found.before, found.gap) == (30, 30)
    assert measures(notebook(PICTURE, words(2), TABLE, words(1))).gap == 20
    numbers = code("f()", outputs=[printed("1 2\n3 4.5\n6 7\n")])
    assert measures(notebook(words(2), numbers, words(1))).gap == 20
    few = code("f()", outputs=[printed("1 2\n3 4.5\n")])
    assert measures(notebook(words(2), few, words(1))).gap == 30
    assert measures(notebook(words(2))).before is None


def test_only_what_is_read_is_counted():
    prose = (
        "Five words and [a link](../book/pages/facts.md#some-fact) {cite:t}`some2017paper` here. "
        "$x + y$ `some code`\n\n$$\n\\text{no words}\n$$ (eq-words)\n\n"
        "```python\nno = words\n```\n\n```{dropdown} Hint 1\nNo words\n```\n\n"
        "```{exercise} It\n:label: ex-it\n\nTwo words.\n```"
    )
    assert measures(notebook(text(prose), PICTURE)).before == 9
    solution = [
        text("```{solution-start} ex-it\n:class: dropdown\n```"),
        words(5),
        code("x = 1", "solution"),
        text("```{solution-end}\n```\n\nSeen again."),
    ]
    assert measures(notebook(*solution, PICTURE)).before == 2
    lists = text("## Further\n\n" + SENTENCE + "\n\n### Deeper\n\n" + SENTENCE)
    after = text("## In real models\n\nThree words more.")
    assert measures(notebook(PICTURE, lists, after)).gap == 3


def test_visible_cells_are_counted_between_pictures():
    assert measures(notebook(CODE, PICTURE, CODE, CODE, *FOLDED, TABLE, CODE)).cells == 2
    assert measures(notebook(PICTURE, CODE, CODE, CODE, PICTURE, CODE)).cells == 3
    numbers = code("f()", outputs=[printed("1 2\n3 4\n5 6\n")])
    assert measures(notebook(CODE, numbers, CODE)).cells == 3


def test_an_exercise_says_its_kind_and_what_stands_above_it():
    hidden = code("def hidden(x):\n    return x", "export", "library")
    seen = code("%time\nclass Seen:\n    pass\n\n\ndef seen(x):\n    return x", "export")
    found = measures(notebook(hidden, seen, *exercise(1, "repair"), *exercise(2, "")))
    first, second = found.exercises
    assert (first.title, first.kind, first.checks) == ("Number 1", "repair", "a.half")
    assert first.above == second.above == ["Seen", "seen"]
    assert second.kind == ""


GOOD = [PICTURE, *(cell for n in range(6) for cell in exercise(n))]


@pytest.mark.parametrize(
    ("said", "cells"),
    [
        ("there is no picture", GOOD[1:]),
        ("160 words stand before", [words(16), *GOOD]),
        (
            "310 words without a picture or a table, up to 'Here'",
            [*GOOD, PICTURE, text("## Here"), words(31)],
        ),
        ("4 code cells without a picture", [*GOOD, CODE, CODE, CODE, CODE]),
        ("six to eight exercises, this one 5", GOOD[:-2]),
        ("six to eight exercises, this one 9", [*GOOD, *GOOD[1:7]]),
        ("'Number 6' does not say its kind", [*GOOD, *exercise(6, "")]),
        ("'Number 6' does not say its kind", [*GOOD, *exercise(6, "after the previous one")]),
        ("4 of 6 exercises are to build", [*GOOD[:5], *4 * exercise(6, "build")]),
    ],
)
def test_what_is_off_is_said(said, cells):
    problems = measures(notebook(*cells)).problems()
    assert any(said in problem for problem in problems), problems


def test_a_good_page_has_no_problem_and_the_command_says_so(tmp_path, capsys):
    assert measures(notebook(*GOOD)).problems() == []
    assert main([str(saved(tmp_path, "42_answer.ipynb", *GOOD))]) == 0
    assert main([str(saved(tmp_path, "43_question.ipynb", *GOOD[1:]))]) == 1
    assert "there is no picture" in capsys.readouterr().out
