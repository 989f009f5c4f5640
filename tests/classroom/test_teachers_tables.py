"""Tables that teachers and platforms give: read whatever wrote them, or refused with a line."""

import pytest
from sample import submission, write

from book.grading import roster, tables

LINES = [(2, ["1", "Zoë Weiß"]), (3, ["2", "王小明"])]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("sign", [",", ";", "\t"])
@pytest.mark.parametrize("coding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_encodings_signs_and_line_ends(end, sign, coding):
    text = end.join(["id,name", "1,Zoë Weiß", "2,王小明", ""]).replace(",", sign)
    for before in ("", f"sep={sign}{end}"):
        table = tables.read((before + text).encode(coding), "t.csv")
        assert table.head == ["id", "name"]
        assert [(n - bool(before), line) for n, line in table.lines] == LINES
        again = tables.read(tables.encoded(table.text(), (before + text).encode(coding)), "t.csv")
        assert (again.first, again.lines, again.before) == (table.first, table.lines, before)


def test_a_line_has_the_number_at_which_it_begins():
    text = 'id,answer\n\n1,"a\r\nb"\n2,c\n'
    assert tables.parse(text, "t").lines == [(3, ["1", "a\r\nb"]), (5, ["2", "c"])]


def test_signs_in_quotation_marks_separate_nothing():
    assert tables.parse('"Last, first, middle";id\nx;1\n', "t").separator == ";"
    assert tables.parse('"Last,\nfirst";id\nx;1\n', "t").head == ["Last,\nfirst", "id"]


@pytest.mark.parametrize(
    ("data", "said"),
    [(b'id,name\n1,Ann\n2,"Ben\n3,Cho\n', "line 3: a quotation mark is never closed"),
     (b"PK\x03\x04...", "save the table in it as CSV")],
)  # fmt: skip
@pytest.mark.parametrize("option", ["--roster", "--hand", "--times"])
def test_what_is_no_table_is_told_with_its_place(tmp_path, grade, data, said, option):
    write(tmp_path, "given/ann/parts.ipynb", submission())
    path = write(tmp_path, "t.csv", data)
    write(tmp_path, "o.csv", b"")
    _, errors, _ = grade(option, path, "--due", "2026-03-01", code=2)
    assert errors.startswith(f"error: {path}")
    assert said in errors
    _, errors, _ = grade(option, tmp_path / "none.csv", "--due", "2026-03-01", code=2)
    assert "none.csv: No such file" in errors


def test_what_pythons_own_reader_refuses_is_told_with_its_line(monkeypatch):
    def refuses(lines, **_):
        yield next(iter(lines)).strip().split(",")
        raise tables.csv.Error("no more")

    refuses.line_num = 1
    monkeypatch.setattr(tables.csv, "reader", lambda lines, **more: _Reader(refuses(lines)))
    with pytest.raises(tables.TableError, match=r"t\.csv, line 2: no more"):
        tables.parse("id,name\n1,Ann\n", "t.csv")


class _Reader:
    line_num = 1

    def __init__(self, lines):
        self.lines = lines

    def __iter__(self):
        return self.lines


def test_a_roster_of_an_old_mac_names_everybody(tmp_path):
    path = write(tmp_path, "r.csv", b"id,name\r1,Ann\r2,Ben\r")
    assert [p.name for p in roster.read(path).people] == ["Ann", "Ben"]


def test_a_long_answer_is_a_cell():
    assert len(tables.parse(f"id,answer\n1,{'x' * 300_000}\n", "t").lines[0][1][1]) == 300_000


@pytest.mark.parametrize(
    ("text", "value"),
    [("20,00", 20), ("7.5", 7.5), (" 10 ", 10), ("0,125", 0.125), ("1,000.50", 1000.5),
     ("1.000,50", 1000.5), ("-1", -1), ("1,000", None), ("nan", None), ("1e3", None),
     ("1_0", None), ("", None), ("(read only)", None)],
)  # fmt: skip
def test_numbers_have_a_decimal_point_or_a_comma(text, value):
    assert tables.number(text) == value


def test_what_a_table_says_does_not_steer_the_terminal(tmp_path, grade):
    write(tmp_path, "given/ann/parts.ipynb", submission())
    _, errors, _ = no_rows(grade, tmp_path, write(tmp_path, "t.csv", b"\x1b[2J,x\n1,2\n"))
    assert "it is: ?[2J, x" in errors


def no_rows(grade, top, path):
    write(top, "o.csv", b"")
    return grade("--roster", path, code=2)
