"""Back to the platforms: their own gradebooks filled in, and pages under names that they know.

The examples have the documented form of each platform's export, with invented people.
"""

import io
import json
import zipfile

import pytest
from sample import submission, write, write_source
from test_runs import ROW
from test_tables import Quick

from book.grading import __main__ as command
from book.grading import names, platforms, running, tables

CANVAS = (
    "Student,ID,SIS User ID,SIS Login ID,Section,Parts (77),Other (78),Current Score\r\n"
    "    Points Possible,,,,,10,5,(read only)\r\n"
    '"Lee, Ann",501,s1,ann,A,,4,80\r\n"Poe, Ben",502,s2,ben,A,3,,60\r\n'
    '"Kim, Cho",503,s3,cho,A,,,\r\n"Student, Test",599,,x,A,,,\r\n'
)
MOODLE = (
    "\ufeffIdentifier,Full name,Email address,Status,Grade,Maximum Grade,Grade can be changed,"
    "Last modified (grade),Feedback comments\n"
    "Participant 501,Ann Lee,a@x,Submitted,,10.00,Yes,-,\n"
    "Participant 502,Ben Poe,b@x,Submitted,3.00,10.00,Yes,-,well done\n"
    "Participant 503,Cho Kim,c@x,No submission,,10.00,Yes,-,\n"
)
BLACKBOARD = (
    '"Last Name"\t"First Name"\t"Username"\t"Student ID"\t"Parts [Total Pts: 10 Score] |4711"\n'
    '"Lee"\t"Ann"\t"501"\t"s1"\t""\n"Poe"\t"Ben"\t"502"\t"s2"\t"3"\n"Kim"\t"Cho"\t"503"\t"s3"\t""\n'
)
BRIGHTSPACE = (
    "OrgDefinedId,Username,Last Name,First Name,Parts Points Grade <Numeric MaxPoints:10>,"
    "End-of-Line Indicator\n#s1,ann,Lee,Ann,,#\n#s2,ben,Poe,Ben,3,#\n#s3,cho,Kim,Cho,,#\n"
)
# The export, where the points stand, and the names of the files of ann and ben there.
PLATFORMS = {
    "Canvas": (CANVAS.encode(), 5, "leeann_501_9001_parts.ipynb",
               "poeben_LATE_502_9002_parts.ipynb"),
    "Moodle": (MOODLE.encode(), 4, "Ann Lee_501_assignsubmission_file_/parts.ipynb",
               "Ben Poe_502_assignsubmission_file_/parts.ipynb"),
    "Blackboard": (BLACKBOARD.encode("utf-16"), 4,
                   "parts_501_attempt_2026-03-01-10-00-00_parts.ipynb",
                   "parts_502_attempt_2026-03-01-10-00-00_parts.ipynb"),
    "Brightspace": (BRIGHTSPACE.encode(), 4, "501-9 - Ann Lee - Mar 1, 2026 1000 AM/parts.ipynb",
                    "502-9 - Ben Poe - Mar 1, 2026 1000 AM/parts.ipynb"),
}  # fmt: skip


def rows(platform):
    """What `grade` says of ann, who has 7.5 points, and of ben, whose file could not be read."""
    _, _, ann, ben = PLATFORMS[platform]
    test = {"id": "t1", "score": 2.5, "max": 5.0, "reason": "half of it\nis wrong"}
    found = []
    for name, more in ((ann, {"score": 7.5, "tests": [test]}), (ben, {"status": "unreadable"})):
        sender = names.sender(name.split("/")[0])
        found.append({**ROW, "student": sender.name, "id": sender.name, "assignment": "parts",
                      "max": 10.0, "sender": sender.__dict__, "page": f"{sender.name}.html",
                      "counts": True, **more})  # fmt: skip
    return found


def cells(data):
    table = tables.read(data, "table")
    return [table.first, *(line for _, line in table.lines)]


@pytest.mark.parametrize("platform", PLATFORMS)
def test_one_column_is_filled_in_and_the_rest_stays_as_it_was(platform):
    export, place, *_ = PLATFORMS[platform]
    filled = platforms.fill(rows(platform), export)
    assert filled.count == 1
    assert [text.split(": ")[1] for text in filled.left] == ["unreadable"]
    before, after = cells(export), cells(filled.data)
    changed = {(n, m): after[n][m] for n, line in enumerate(before) for m, cell in enumerate(line)
               if after[n][m] != cell}  # fmt: skip
    ann = 2 if platform == "Canvas" else 1
    wanted = {(ann, place): "7.5"}
    if platform == "Moodle":
        wanted[ann, 8] = "7.5 of 10 points.\nt1: half of it\nis wrong"
    assert changed == wanted
    assert [len(line) for line in before] == [len(line) for line in after]
    assert filled.data[:2] == export[:2]


def test_another_maximum_is_refused_or_scaled():
    for platform in PLATFORMS:
        export, place, *_ = PLATFORMS[platform]
        text = tables.decoded(export)
        for ten in (",10,", "10.00", "Pts: 10 ", "MaxPoints:10>"):
            text = text.replace(ten, ten.replace("10", "20"))
        mark = b"\xef\xbb\xbf" if platform == "Moodle" else b""
        other = text.encode("utf-16") if platform == "Blackboard" else mark + text.encode()
        with pytest.raises(platforms.PlatformError, match="has 20 points, the assignment 10"):
            platforms.fill(rows(platform), other)
        filled = platforms.fill(rows(platform), other, scale=True)
        assert cells(filled.data)[2 if platform == "Canvas" else 1][place] == "15"


def marked(row, points):
    """A row whose essay has points, or waits for them."""
    if points is None:
        return {**row, "by_hand": ["essay"], "whole": 15.0}
    essay = {"id": "essay", "score": points, "max": 5.0, "reason": "", "by_hand": True}
    return {**row, "by_hand": [], "whole": 15.0, "max": 15.0, "score": row["score"] + points,
            "tests": [*row["tests"], essay]}  # fmt: skip


def test_points_are_entered_when_those_by_hand_are_there():
    ann, _ = rows("Canvas")
    ben = {**ann, "student": "poeben", "id": "s2", "sender": None}
    fifteen = CANVAS.replace("10,5,", "15,5,").encode()
    # Whoever comes first; an answer without points is no final result.
    for some in ([marked(ann, None), marked(ben, 4.0)], [marked(ben, 4.0), marked(ann, None)]):
        filled = platforms.fill(some, fifteen)
        assert [line[5] for line in cells(filled.data)[1:]] == ["15", "", "11.5", "", ""]
        assert (filled.count, filled.left) == (1, ["leeann: waits for points by hand: essay"])
    both = [marked(ann, 1.0), marked(ben, 4.0)]
    assert platforms.fill(both, fifteen).count == 2
    with pytest.raises(platforms.PlatformError, match="has 10 points, the assignment 15"):
        platforms.fill(both, CANVAS.encode())
    filled = platforms.fill(both, CANVAS.replace("10,5,", "30,5,").encode(), scale=True)
    assert [line[5] for line in cells(filled.data)[2:4]] == ["17", "23"]


def test_each_row_is_scaled_from_its_own_maximum():
    ann, _ = rows("Canvas")
    # Graded with a source that had five points more.
    ben = {**ann, "student": "poeben", "id": "s2", "sender": None, "max": 15.0, "whole": 15.0}
    with pytest.raises(platforms.PlatformError, match="has 10 points, the assignment 15"):
        platforms.fill([ann, ben], CANVAS.encode())
    filled = platforms.fill([ann, ben], CANVAS.encode(), scale=True)
    assert [line[5] for line in cells(filled.data)[2:4]] == ["7.5", "5"]


def test_a_line_that_two_rows_are_of_stays_as_it_is():
    ann, _ = rows("Canvas")
    other = {**ann, "student": "Ann Lee", "id": "Ann Lee", "sender": None, "score": 2.0}
    filled = platforms.fill([ann, other], CANVAS.encode())
    assert cells(filled.data) == cells(CANVAS.encode())
    assert (filled.count, filled.left) == (
        0, ["leeann, Ann Lee: of one line of the gradebook, line 3; none is entered"])  # fmt: skip
    # What has no points is no rival.
    filled = platforms.fill([ann, {**other, "status": "missing", "tests": []}], CANVAS.encode())
    assert (filled.count, filled.left) == (1, ["Ann Lee: missing"])


def test_a_maximum_with_a_decimal_comma_is_one():
    export = MOODLE.replace("10.00", '"20,00"').replace("3.00", '"3,00"').encode()
    with pytest.raises(platforms.PlatformError, match="has 20 points, the assignment 10"):
        platforms.fill(rows("Moodle"), export)
    filled = platforms.fill(rows("Moodle"), export, scale=True)
    assert [line[4] for line in cells(filled.data)[1:]] == ["15", "3,00", ""]
    half = [{**row, "score": 7.25} for row in rows("Moodle")]
    assert cells(platforms.fill(half, export, scale=True).data)[1][4] == "14,5"
    # A maximum that cannot be read, or is not there, is not taken for the same one.
    for text, said in (("(read only)", "says '.read only.'"), ("", "does not say")):
        with pytest.raises(platforms.PlatformError, match=said):
            platforms.fill(rows("Moodle"), MOODLE.replace("10.00", text).encode(), scale=True)
    assert platforms.fill(rows("Moodle"), MOODLE.replace("10.00", "").encode()).count == 1


def test_a_gradebook_goes_back_as_it_came():
    for platform, text in (("Moodle", MOODLE.lstrip("\ufeff")), ("Blackboard", BLACKBOARD)):
        for export in (text.encode("utf-16-le"), text.encode("utf-16")):
            filled = platforms.fill(rows(platform), export)
            assert tables._codec(filled.data) == tables._codec(export)
            assert cells(filled.data)[0] == cells(export)[0]
    with_sep = b"sep=;\r\n" + BRIGHTSPACE.replace(",", ";").encode()
    assert platforms.fill(rows("Brightspace"), with_sep).data.startswith(b"sep=;\r\nOrgDefinedId;")


def test_a_column_that_is_not_there_or_twice_is_asked_for():
    some = [{**row, "assignment": "week-3"} for row in rows("Canvas")]
    with pytest.raises(platforms.PlatformError, match=r"no column of the assignment 'week-3'"):
        platforms.fill(some, CANVAS.encode())
    filled = platforms.fill(some, CANVAS.encode(), column="Parts")
    assert cells(filled.data)[2][5] == "7.5"
    twice = CANVAS.replace("Other (78)", "Parts (79)")
    with pytest.raises(platforms.PlatformError, match=r"more than one \(2\)"):
        platforms.fill(rows("Canvas"), twice.encode())
    assert cells(platforms.fill(rows("Canvas"), twice.encode(), column="Parts (77)").data)
    with pytest.raises(platforms.PlatformError, match="no row"):
        platforms.fill([], CANVAS.encode())


def test_who_is_not_in_the_gradebook_is_said():
    some = rows("Canvas")
    some[0] |= {"student": "zoe", "id": "zoe", "sender": None}
    filled = platforms.fill(some, CANVAS.encode())
    assert filled.count == 0
    assert filled.left[0] == "zoe: not in the gradebook"


# ---------------------------------------------------------------- pages


def canvas_takes(name):
    """What Canvas reads in a name: its numbers of the student and of the file."""
    numbers = [part for part in name.split("_") if part.isdigit()][:2]
    return tuple(numbers) if len(numbers) == 2 else None


def moodle_takes(name):
    """What Moodle reads in a name: participant, kind and name of the plugin, the file."""
    parts = name.split("_", 4)
    return (parts[1], parts[2], parts[3]) if len(parts) == 5 and parts[1].isdigit() else None


def test_pages_go_back_under_names_that_the_platform_reads(tmp_path):
    takes = {"Canvas": (canvas_takes, {("501", "9001"), ("502", "9002")}),
             "Moodle": (moodle_takes, {("501", "assignfeedback", "file"),
                                       ("502", "assignfeedback", "file")})}  # fmt: skip
    for platform, (take, wanted) in takes.items():
        some = rows(platform)
        for row in some:
            write(tmp_path, row["page"], f"page of {row['student']}".encode())
        out = tmp_path / "new" / "out.zip"
        assert platforms.archive(some, tmp_path, out) == (2, [])
        with zipfile.ZipFile(out) as archive:
            assert {take(name) for name in archive.namelist()} == wanted
            for name in archive.namelist():
                assert name.endswith("parts.html")
                # The page is of the one whose number the name has.
                key = name.split("_502_")[0] if "_502_" in name else name.split("_501_")[0]
                student = names.sender(f"{key}_1_1_x").name.removesuffix("_LATE")
                assert archive.read(name) == f"page of {student}".encode()


def test_who_came_from_elsewhere_is_left_out_and_said(tmp_path):
    some = rows("Canvas")
    some[1] |= {"sender": None}
    for row in some:
        write(tmp_path, row["page"], b"x")
    assert platforms.archive(some, tmp_path, tmp_path / "o.zip") == (1, ["poeben"])
    with pytest.raises(platforms.PlatformError, match="came from Canvas or Moodle"):
        platforms.archive(rows("Brightspace"), tmp_path, tmp_path / "o.zip")
    with pytest.raises(platforms.PlatformError, match=r"leeann\.html: No such file"):
        platforms.archive(rows("Canvas"), tmp_path / "none", tmp_path / "o.zip")


# ---------------------------------------------------------------- the commands, from zip to zip


def test_from_what_canvas_gives_to_what_it_takes(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(running, "Engine", Quick)
    Quick.asked, Quick.stop_after = [], 10**6
    teacher = write_source(tmp_path / "source")
    text = json.dumps(submission())
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in PLATFORMS["Canvas"][2:]:
            archive.writestr(name, text)
    given = write(tmp_path, "submissions.zip", packed.getvalue())
    export = write(tmp_path, "canvas.csv", CANVAS.encode())
    record, pages = tmp_path / "o.json", tmp_path / "pages"
    for asked in (
        ["grade", teacher, given, "--roster", export, "--json", record, "--feedback", pages],
        ["gradebook", record, export, tmp_path / "in.csv"],
        ["feedback", record, pages, tmp_path / "back.zip"],
    ):
        assert command.main(list(map(str, asked))) == 0
    said = capsys.readouterr().out
    assert "2 entered; wrote" in said
    assert "2 pages; wrote" in said
    # Who handed in nothing is the roster's, and no points are entered.
    assert "left out: Kim, Cho: missing" in said
    assert [line[5] for line in cells((tmp_path / "in.csv").read_bytes())] == [
        "Parts (77)", "10", "11", "11", "", ""]  # fmt: skip
    for asked in (["gradebook", export, export, tmp_path / "x"],
                  ["gradebook", record, teacher, tmp_path / "x"],
                  ["feedback", tmp_path / "none", pages, tmp_path / "x"]):  # fmt: skip
        assert command.main(list(map(str, asked))) == 2
        assert "error: " in capsys.readouterr().err
