"""What several of these files use."""

import pytest
from quick import Quick, table
from sample import write_source

from book.grading import __main__ as command
from book.grading import running


@pytest.fixture
def grade(tmp_path, monkeypatch, capsys):
    """Run the command on `given`; what it said, and the rows of its table by student."""
    monkeypatch.setattr(running, "Engine", Quick)
    Quick.asked, Quick.stop_after = [], 10**6
    teacher = write_source(tmp_path / "source")

    def run(*words, code=0):
        out = ["--csv", tmp_path / "o.csv", "--json", tmp_path / "o.json", "--feedback",
               tmp_path / "pages"]  # fmt: skip
        asked = ["grade", teacher, tmp_path / "given", *out, *words]
        assert command.main(list(map(str, asked))) == code
        said = capsys.readouterr()
        return said.out, said.err, table(tmp_path)

    return run
