"""Protects the canonical form: a run without a real change gives the same bytes, no other does."""

import json

import nbformat
import pytest
from making import code, curve, notebook, printed, result, shown, text
from nbclient.exceptions import CellExecutionError
from nbformat.v4 import new_output

from book import refresh
from book.refresh import canonical, execute, write

WIDGET = "application/vnd.jupyter.widget-view+json"
HTML = (
    '<div class="tp-explorer"><p class="tp-sentence">A sentence.</p>'
    '<script type="application/json" class="tp-spec">{"data":{"bytes":"%s"}}</script></div>'
)


def run_of(words="3 numbers\n", jitter=0.0, shift=0.0, values="AAEC", widget="random-1", count=4):
    """What a kernel sends back for one notebook, with all that varies from run to run."""
    cells = [
        text("# A chapter"),
        code(
            "print()", outputs=[printed(words[:2]), printed(words[2:])], count=count, name="prints"
        ),
        code(
            "show()",
            outputs=[shown(curve(jitter=jitter, shift=shift))],
            count=count + 1,
            name="shows",
        ),
        code(
            "Explorer()",
            outputs=[
                result(
                    {
                        "text/html": HTML % values,
                        "text/plain": "A sentence.",
                        WIDGET: json.dumps({"model_id": widget}),
                    },
                    count=count + 2,
                )
            ],
            count=count + 2,
            name="explores",
        ),
    ]
    for at, cell in enumerate(cells):
        cell.metadata["execution"] = {"iopub.status.busy": f"2026-01-01T00:00:{at:02}Z-{widget}"}
    made = notebook(*cells)
    made.cells[0]["id"] = "title"
    made.metadata = nbformat.from_dict(
        {
            "kernelspec": {"name": widget},
            "widgets": {"state": widget},
            "language_info": {"version": "3.9"},
        }
    )
    return made


def refreshed(path, run):
    """One `make refresh` whose kernel sends `run`; the bytes on disk afterwards."""
    write(canonical(run, nbformat.read(path, as_version=4)), path)
    return path.read_bytes()


@pytest.fixture
def path(tmp_path):
    """A notebook that was refreshed once."""
    path = tmp_path / "42_answer.ipynb"
    nbformat.write(run_of(), path)
    refreshed(path, run_of())
    return path


def test_a_second_run_gives_the_same_bytes(path):
    before = path.read_bytes()
    again = refreshed(path, run_of(widget="random-2", jitter=1e-5, values="AAEB"))
    assert again == before


def test_what_changes_from_run_to_run_is_not_stored(path):
    stored = path.read_text(encoding="utf-8")
    assert WIDGET not in stored
    assert "random-1" not in stored
    assert "iopub" not in stored
    assert json.loads(stored)["metadata"] == {
        "kernelspec": refresh.KERNELSPEC,
        "language_info": {"name": "python"},
    }


def test_a_figure_that_agrees_keeps_its_stored_bytes_and_a_changed_one_does_not(path):
    kept = curve()
    assert curve(jitter=1e-3) != kept, "the jitter changes no byte: the test is empty"
    refreshed(path, run_of(jitter=1e-3))
    assert nbformat.read(path, 4).cells[2].outputs[0].data["image/png"] == kept
    refreshed(path, run_of(shift=1.0))
    assert nbformat.read(path, 4).cells[2].outputs[0].data["image/png"] == curve(shift=1.0)


def test_an_explorer_keeps_its_stored_values_within_one_step_only(path):
    refreshed(path, run_of(values="AAED"))
    assert nbformat.read(path, 4).cells[3].outputs[0].data["text/html"] == HTML % "AAEC"
    refreshed(path, run_of(values="AAEE"))
    assert nbformat.read(path, 4).cells[3].outputs[0].data["text/html"] == HTML % "AAEE"


def test_a_changed_number_is_stored(path):
    assert b"5 numbers" in refreshed(path, run_of(words="5 numbers\n"))


def test_a_changed_number_beside_a_figure_that_agrees_is_stored(tmp_path):
    def run(words, jitter):
        made = code("both()", outputs=[printed(words), shown(curve(jitter=jitter))], name="both")
        return notebook(made)

    path = tmp_path / "42_answer.ipynb"
    nbformat.write(run("1\n", 0.0), path)
    assert b'"2\\n"' in refreshed(path, run("2\n", 1e-5))


def test_an_output_that_went_away_is_gone(path):
    run = run_of()
    run.cells[1].outputs = []
    assert b"numbers" not in refreshed(path, run)


def test_a_print_in_two_pieces_is_stored_as_one(path):
    [output] = nbformat.read(path, 4).cells[1].outputs
    assert output.text == "3 numbers\n"


def test_stdout_and_stderr_stay_apart(tmp_path):
    run = notebook(
        code("x", outputs=[printed("a"), printed("b", "stderr"), printed("c")], name="x")
    )
    outputs = canonical(run, notebook()).cells[0].outputs
    assert [(o.name, o.text) for o in outputs] == [
        ("stdout", "a"),
        ("stderr", "b"),
        ("stdout", "c"),
    ]


def test_results_carry_the_number_of_their_cell(path):
    refreshed(path, run_of(count=9))
    cells = nbformat.read(path, 4).cells
    assert [c.execution_count for c in cells[1:]] == [9, 10, 11]
    assert cells[3].outputs[0].execution_count == 11


def test_a_new_cell_above_does_not_change_the_explorers_below(path):
    refreshed(path, run_of(count=9, values="AAED"))
    assert nbformat.read(path, 4).cells[3].outputs[0].data["text/html"] == HTML % "AAEC"


def test_a_timing_keeps_its_stored_output_while_its_cell_stays_the_same(tmp_path):
    def run(seconds, source="timeit()"):
        return notebook(code(source, "timing", outputs=[printed(f"{seconds} s\n")], name="times"))

    path = tmp_path / "42_answer.ipynb"
    nbformat.write(run(1.0), path)
    before = refreshed(path, run(1.1))
    assert b"1.0 s" in before
    assert refreshed(path, run(1.2)) == before
    assert b"1.3 s" in refreshed(path, run(1.3, "timeit(more)"))
    nbformat.write(notebook(code("timeit()", "timing", count=None, name="times")), path)
    assert b"1.4 s" in refreshed(path, run(1.4))


def test_the_file_is_written_with_sorted_keys_and_lines_that_diff_well(path):
    stored = path.read_text(encoding="utf-8")
    assert (
        stored
        == json.dumps(json.loads(stored), indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    )
    source = "print()\nprint()"
    write(notebook(code(source, name="two")), path)
    assert json.loads(path.read_text(encoding="utf-8"))["cells"][0]["source"] == [
        "print()\n",
        "print()",
    ]
    assert nbformat.read(path, 4).cells[0].source == source


def test_an_invalid_notebook_is_not_written(tmp_path):
    broken = notebook(code("x"))
    broken.cells[0].outputs = [{"output_type": "no such type"}]
    with pytest.raises(nbformat.ValidationError):
        write(broken, tmp_path / "42_answer.ipynb")
    assert not (tmp_path / "42_answer.ipynb").exists()


# ---------------------------------------------------------------- a real kernel


def test_a_run_is_top_to_bottom_in_a_fresh_kernel_and_leaves_the_original_alone(tmp_path):
    (tmp_path / "data.txt").write_text("read", encoding="utf-8")
    original = notebook(
        code("x = 1\nprint(x)", count=7, name="a"),
        code("from pathlib import Path\nPath('data.txt').read_text()", count=3, name="b"),
        code("1 / 0", "raises-exception", count=None, name="c"),
    )
    original.cells[2].metadata["tags"] = ["raises-exception"]
    fresh = execute(original, cwd=tmp_path)
    assert [c.execution_count for c in fresh.cells] == [1, 2, 3]
    assert fresh.cells[0].outputs == [new_output("stream", name="stdout", text="1\n")]
    assert fresh.cells[1].outputs[0].data["text/plain"] == "'read'"
    assert fresh.cells[2].outputs[0].ename == "ZeroDivisionError"
    assert original.cells[0].execution_count == 7
    assert original.cells[0].outputs == []


def test_a_cell_that_fails_stops_the_refresh_and_nothing_is_written(tmp_path, capsys):
    path = tmp_path / "42_answer.ipynb"
    nbformat.write(notebook(code("1 / 0", count=None, name="fails")), path)
    before = path.read_bytes()
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        refresh.main([str(path)])
    assert path.read_bytes() == before


def test_a_notebook_that_is_not_there_is_an_error(tmp_path, capsys):
    with pytest.raises(SystemExit):
        refresh.main([str(tmp_path / "none.ipynb")])
    assert "no notebook at" in capsys.readouterr().err
