"""Protects the lint of notebooks: every kind of problem is found, and a sound notebook has none."""

import pytest
from making import code, flat, notebook, printed, result, saved, shown, text
from nbformat.v4 import new_output

from book.chapters import library_adds
from book.lint import labels, main, problems, uncompared, witnessed

EQUATION = text("Words.\n\n$$\ny = xW\n$$ (eq-linear)\n\nMore words.")
WITNESS = code('witness("eq-linear", x @ W, y)', "witness")
ERROR = new_output("error", ename="ValueError", evalue="bad shape", traceback=[])
TRACEBACK = "Traceback (most recent call last)\n  ..."
PICTURE = flat("white")
SETUP = "import torch\nfrom torch import nn\n\nthreads = torch.get_num_threads()\nset_seed(0)"


def found(*cells):
    return problems(notebook(*cells))


def no_id():
    cell = code("x = 1")
    del cell["id"]
    return cell


def no_alt(alt):
    output = shown(PICTURE)
    output.metadata["image/png"].alt = alt
    return code("plot()", outputs=[output])


def svg():
    return new_output("display_data", {"image/svg+xml": "<svg/>", "text/plain": "a drawing"})


def test_a_sound_notebook_has_no_problem():
    cells = [
        text(
            "# Title\n\n[1.677](../book/pages/facts.md#shazeer-table-1) in a link.\n\n"
            "Inline: $x^2 = 0.1234$, and `0.12345`, and version 2.13 or 0.25, and 1000."
        ),
        EQUATION,
        WITNESS,
        code("def f(x):\n    return x", "export"),
        code(
            "%timeit f(1)\nfrom timeit import timeit", "timing", outputs=[printed("3 times faster")]
        ),
        code('%time\nfinding("x " "y", m, "a > 0")\nfinding("x", m, h, seeds=None)', "finding"),
        code('finding("x", m, "a > 0", range(3))\nfinding("x", m, h, seeds=some)', "finding"),
        code("show()", "hide-input", outputs=[shown(PICTURE), result({"text/html": "<p>x</p>"})]),
        text("```{exercise} Write it\n:label: ex-x\nGive $0.12345$.\n```"),
        text("```python\nx = 0.12345\n```"),
        text("They report 0.12345 in 2017 (Table 3 of {cite:t}`vaswani2017attention`).", "cited"),
        code(SETUP, "setup"),
        code("# Library version: adds masks.\ndef g(x):\n    return x", "export", "library"),
        code("show()", "wide", "keep", outputs=[shown(PICTURE)]),
        code("", count=None),
    ]
    assert found(*cells) == []


@pytest.mark.parametrize(
    ("said", "cells"),
    [
        # equations
        ("a displayed equation has no label: y = xW", [text("$$\ny = xW\n$$")]),
        ("a displayed equation has no label", [text("$$y = xW$$")]),
        ("a displayed equation has no label", [text("* point\n\n  $$\n  y = xW\n  $$")]),
        ("a displayed equation has no label", [text("> $$\n> y = xW\n> $$")]),
        ("a displayed equation has no label", [text("Words $$y = xW$$ in a line.")]),
        ("a displayed equation has no label", [text("```{exercise} It\n$$\ny = xW\n$$\n```")]),
        ("{math}", [text("```{math}\n:label: eq-linear\ny = xW\n```"), WITNESS]),
        ("{math}", [text(":::{math}\ny = xW\n:::")]),
        ("\\begin{align}", [text("\\begin{align}\ny &= xW\n\\end{align}")]),
        ("starts with 'eq-', this one is 'linear'", [text("$$\ny = xW\n$$ (linear)")]),
        ("equation eq-linear is labelled twice", [EQUATION, text(EQUATION.source), WITNESS]),
        ("equation eq-linear has no witness", [EQUATION]),
        ("equation eq-linear has no witness", [EQUATION, code('witness("eq-linear", a, b)')]),
        (
            "equation eq-linear has no witness",
            [EQUATION, code('# witness("eq-linear", a, b)', "witness")],
        ),
        ("equation eq-linear has no witness", [EQUATION, code('print("eq-linear")', "witness")]),
        ("a witness speaks of eq-linear, but no equation", [WITNESS]),
        # prose
        ("the number 0.123 is typed into prose", [text("It is 0.123 here.")]),
        ("the number .1234 is typed into prose", [text("It is .1234 here.")]),
        ("the number 12.345 is typed into prose", [text("- It is 12.345.")]),
        # facts
        ("the year 2017 is typed", [text("The order of 2017.")]),
        ("96 beside GPT-3 is typed", [text("| GPT-3 | 96 |")]),
        ("is tagged 'cited' but cites nothing", [text("They report 0.12345.", "cited")]),
        ("names the fact no-such-fact", [text("[1](../book/pages/facts.md#no-such-fact)")]),
        ("takes the fact no-such-fact", [code('fact("no-such-fact", "d_ff")')]),
        # cells
        ("cell 0 has no id", [no_id()]),
        ("cell 0 has an unknown tag: exprot", [code("x = 1", "exprot")]),
        ("cell 0 has an unknown tag", [text("Words.", "remove-cell")]),
        ("cell 0 has an unknown tag", [code("x = 1", "nbval-raises-exception")]),
        ("cell 0 has an unknown tag", [code("x = 1", "hide-output")]),
        ("cell 1 was not run", [text("Words."), code("x = 1", count=None)]),
        ("cell 0 is tagged 'timing' but times nothing", [code("print(x)", "timing")]),
        *(
            ("cell 0 opts out of the comparison of outputs", [code("x = 1", tag)])
            for tag in ("nbval-ignore-output", "nbval-skip", "skip-execution", "raises-exception")
        ),
        *(
            ("cell 0 opts out of the comparison of outputs", [code(f"x = 1\n{comment}\ny = 2")])
            for comment in (
                "# NBVAL_IGNORE_OUTPUT",
                "#NBVAL_SKIP",
                "   # PYTEST_VALIDATE_IGNORE_OUTPUT",
                "## NBVAL_SKIP",
            )
        ),
        # folds
        ("the first code cell only imports and seeds", [text("Words."), code(SETUP)]),
        ("the first code cell only imports and seeds", [code(SETUP, "export"), code("x = 1")]),
        ("'setup' but does more than", [code("import torch\n\nx = torch.ones(2)", "setup")]),
        ("'setup' but does more than", [code("import torch\n\ntorch.ones(2)", "setup")]),
        ("'setup' but does more than", [code("set_seed(0)", "setup")]),
        ("'setup' but does more than", [code("import torch\n%time", "setup")]),
        ("'setup' but does more than", [code(SETUP, "setup", outputs=[printed("a")])]),
        ("'library' but not 'export'", [code("# Library version: adds masks.\n", "library")]),
        ("a library version begins with", [code("x = 1", "export", "library")]),
        ("a library version begins with", [code("x = 1\n# Library version: x", "library")]),
        (
            "folds a library version, and its output",
            [code("# Library version: adds x.", "export", "library", outputs=[printed("a")])],
        ),
        *(
            (f"cell 0 is tagged '{tag}' but holds no code", [text("Words.", tag)])
            for tag in ("setup", "library", "wide", "keep")
        ),
        # findings
        ("cell 0 is tagged 'finding' but holds no code", [text("Words.", "finding")]),
        ("cell 0 is tagged 'finding' but calls no", [code("x = 1", "finding")]),
        ("cell 0 is tagged 'finding' but calls no", [code('print("finding(x)")', "finding")]),
        ("lacks the tag 'finding'", [code('finding("x", m, "a > 0")')]),
        ("lacks the tag 'finding'", [code('if x:\n    finding("x", m, "a > 0")')]),
        ("must be one plain string", [code('finding(f"{x}", m, "a > 0")', "finding")]),
        ("must be one plain string", [code('finding("x" + y, m, "a > 0")', "finding")]),
        ("must be one plain string", [code("finding(sentence, m, holds)", "finding")]),
        *(
            ("three seeds, this one has 2", [code(f'finding("x", m, "a > 0", {seeds})', "finding")])
            for seeds in ("[1, 2]", "seeds=(3, 4)", "range(2)", "seeds=range(5, 7)")
        ),
        # outputs
        ("cell 0 holds a traceback: ValueError: bad shape", [code("f()", outputs=[ERROR])]),
        ("cell 0 holds a traceback", [code("f()", "raises-exception", outputs=[ERROR])]),
        ("cell 0 prints a traceback", [code("f()", outputs=[printed(TRACEBACK)])]),
        ("cell 0 prints a traceback", [code("f()", outputs=[result({"text/plain": TRACEBACK})])]),
        (
            "cell 0 writes to stderr: a warning",
            [code("f()", outputs=[printed("a warning", "stderr")])],
        ),
        ("cell 0 prints a path", [code("f()", outputs=[printed("in /home/me/book/x.py")])]),
        ("cell 0 prints a path", [code("f()", outputs=[printed("/tmp/x")])]),
        (
            "an address of this machine",
            [code("f", outputs=[result({"text/plain": "<f at 0x7f8b5e36f410>"})])],
        ),
        ("cell 0 shows a figure without alt text", [no_alt("")]),
        ("cell 0 shows a figure without alt text", [no_alt("  ")]),
        ("cell 0 shows a figure without alt text", [code("plot()", outputs=[svg()])]),
    ],
)
def test_every_kind_of_problem_is_found_and_named(said, cells):
    messages = found(*cells)
    assert any(said in message for message in messages), messages


def test_a_shape_with_a_star_is_code_or_mathematics():
    said = found(text("The rows of `x`, shape (*, d), and of `y`, shape `(*, d)`, $(*, d)$."))
    assert said == ["the star of '(*, d), and of' is read as emphasis; write the shape as code"]


def test_a_problem_is_reported_once():
    assert len(found(text("$$\ny = xW\n$$"))) == 1
    assert len(found(code("f()", outputs=[ERROR]))) == 1


def test_labels_and_witnesses_are_read_in_order():
    book = notebook(
        text("$$a$$ (eq-a)\n\nWords.\n\n$$\nb\n$$ (eq-b)"),
        text("```text\n$$\nnot an equation\n$$ (eq-z)\n```"),
        code('witness("eq-b", 1, 2)\nif True:\n    witness("eq-a", 1, 2, tol=1e-6)', "witness"),
        code('witness("eq-c", 1, 2)'),
    )
    assert labels(book) == ["eq-a", "eq-b"]
    assert sorted(witnessed(book)) == ["eq-a", "eq-b"]


def test_what_a_library_version_adds_is_read_over_lines():
    assert library_adds("# Library version: adds masks\n# and dropout.\nx = 1  # one") == (
        "adds masks and dropout."
    )
    assert library_adds("\n# Library version: adds masks.") is None


def test_only_timings_are_not_compared():
    cells = code("timeit()", "timing", name="times"), code("x = 1", "hide-input", name="other")
    assert uncompared(notebook(*cells)) == ["times"]


def test_the_command_fails_and_names_the_notebook_when_there_is_a_problem(tmp_path, capsys):
    bad = saved(tmp_path, "42_answer.ipynb", EQUATION)
    good = saved(tmp_path, "43_question.ipynb", EQUATION, WITNESS)
    assert main([str(good)]) == 0
    assert "nothing to complain of" in capsys.readouterr().out
    assert main([str(good), str(bad)]) == 1
    assert capsys.readouterr().out == "42_answer.ipynb: equation eq-linear has no witness\n"
