"""What lies in somebody's folder is that student's, and whatever the names leave open is told."""

import json
import time

import pytest
from corpus import zipped
from sample import submission, write

from book.grading import names, platforms, roster, tables
from book.grading.submissions import find

RIGHT = json.dumps(submission())
ROSTER = "id,name\nann,Ann\nben,Ben\ncho,Cho\n"
CANVAS = {"leeann_501_9001_parts.ipynb": RIGHT, "poebob_502_9002_parts.ipynb": RIGHT}
OTHERS = {"ben_502_9002_parts.ipynb": RIGHT, "cho_503_9003_parts.ipynb": RIGHT}


def people(text):
    return roster.of(tables.read(text.encode(), "roster.csv"))


def put(top, files):
    for name, data in files.items():
        write(top, name, data if isinstance(data, bytes) else data.encode())
    return top


def whose(top, *roots, text="", which="name"):
    """Each file below the folder, with its student and what was decided."""
    given = find([top / r for r in roots] or [top], "parts", which, people(text) if text else None)
    return {s.label.removeprefix(f"{top}/"): (s.student, s.decided + s.note) for s in given}


# ---------------------------------------------------------------- names of others inside an entry

TAKEN = {
    "a folder with Moodle's name of another": {
        "ann/ben_502_assignsubmission_file_parts.ipynb": RIGHT,
        "ben/parts.ipynb": RIGHT,
        "cho/parts.ipynb": RIGHT,
    },
    "a zip file with Canvas's names of two others": {
        "ann.zip": zipped(OTHERS), "ben.ipynb": RIGHT, "cho.ipynb": RIGHT,
    },
    "a folder with Moodle's name of another who handed in nothing": {
        "ann/dee_502_assignsubmission_file_parts.ipynb": RIGHT, "ben.ipynb": RIGHT,
    },
}  # fmt: skip


@pytest.mark.parametrize("text", [ROSTER, ""], ids=["roster", "no roster"])
@pytest.mark.parametrize("way", ["folder", "each"])
@pytest.mark.parametrize("case", TAKEN)
def test_nobody_hands_in_for_another_by_a_file_name(tmp_path, case, way, text):
    put(tmp_path / "in", TAKEN[case])
    roots = [f"in/{p.name}" for p in sorted((tmp_path / "in").iterdir())]
    told = whose(tmp_path, *(roots if way == "each" else ["in"]), text=text)
    for file, (student, decided) in told.items():
        first = file.split("/")[1].split("!")[0].split(".")[0]
        if text or "nothing" not in case:
            assert student == first
            assert ("those of others" in decided) == (first == "ann"), decided
        elif first == "ann":
            # Nobody but the teacher can know: the row is there, and says where it comes from.
            assert student == "dee"
            assert "it lies in ann, under a name that gives it to this student" in decided


def test_points_of_a_forged_file_go_to_nobody_else(tmp_path, grade):
    put(tmp_path / "given", TAKEN["a zip file with Canvas's names of two others"])
    path = write(tmp_path, "roster.csv", ROSTER.encode())
    _, errors, rows = grade("--roster", path)
    assert {r["id"]: r["status"] for r in rows} == dict.fromkeys(("ann", "ben", "cho"), "graded")
    for row in rows:
        assert ("ann.zip" in row["file"]) == (row["id"] == "ann")
    assert "warning: names in it are those of others (ben, cho); it is taken as ann's" in errors


def test_a_download_beside_somebodys_own_entry_is_not_merged_with_it(tmp_path, grade):
    write(tmp_path, "given/canvas.zip", zipped(CANVAS))
    write(tmp_path, "given/leeann/zz.ipynb", RIGHT.encode())
    for text in ("", "id,name\ns1,Ann Lee\ns2,Bob Poe\n"):
        path = write(tmp_path, "roster.csv", text.encode())
        _, _, rows = grade(*(["--roster", path] if text else []))
        told = {r["file"].split("given/")[1]: (r["counts"], r["remarks"]) for r in rows}
        assert len(rows) == 3
        # Even though it came first and has no right name.
        assert told["leeann/zz.ipynb"] == ("yes", "the engine's")
        counts, said = told["canvas.zip!leeann_501_9001_parts.ipynb"]
        assert counts == "no"
        assert "it lies in canvas.zip, and leeann has an entry beside that" in said
        counts, said = told["canvas.zip!poebob_502_9002_parts.ipynb"]
        assert counts == "yes"
        assert "it lies in canvas.zip, under a name that gives it to this student" in said


def test_somebodys_own_folder_may_hold_what_the_platform_gave(tmp_path):
    put(tmp_path, {"Ann Lee/Ann Lee_1_assignsubmission_file_parts.ipynb": RIGHT,
                   "ben/Ben Poe_2_assignsubmission_file_parts.ipynb": RIGHT})  # fmt: skip
    told = whose(tmp_path, text="id,name\ns1,Ann Lee\nben,Ben Poe\n")
    assert list(told.values()) == [("Ann Lee", ""), ("Ben Poe", "")]


def test_two_downloads_of_a_class_are_one_and_say_so(tmp_path):
    put(tmp_path, {"a.zip": zipped(CANVAS), "b.zip": zipped(CANVAS)})
    told = whose(tmp_path)
    assert {student for student, _ in told.values()} == {"leeann", "poebob"}
    assert all("it lies in a.zip and b.zip" in said for _, said in told.values())


def test_the_folders_of_a_platform_may_be_given_one_by_one(tmp_path):
    names_ = [f"{who}_{n}_assignsubmission_file_" for n, who in enumerate(("Ann Lee", "Ben Poe"))]
    put(tmp_path, {f"{name}/parts.ipynb": RIGHT for name in names_})
    given = find([tmp_path / name for name in names_], "parts")
    assert [(s.student, s.sender.key) for s in given] == [("Ann Lee", "0"), ("Ben Poe", "1")]


# ---------------------------------------------------------------- where the class lies

WRAPPED = {
    "folders in a folder": {"hw/ann/parts.ipynb": RIGHT, "hw/ben/parts.ipynb": RIGHT},
    "folders in two folders": {"a/hw/ann/parts.ipynb": RIGHT, "a/hw/ben/x.py": "x"},
    "files in a folder": {"hw/ann.ipynb": RIGHT, "hw/ben.ipynb": RIGHT},
    "zip files in a folder": {
        f"hw/{name}.zip": zipped({"parts.ipynb": RIGHT}) for name in ("ann", "ben")},
    "one folder in a folder": {"hw/ann/parts.ipynb": RIGHT},
    "sections": {"a/ann/parts.ipynb": RIGHT, "b/ben/parts.ipynb": RIGHT, "b/cho/x.ipynb": RIGHT},
}  # fmt: skip


@pytest.mark.parametrize("case", WRAPPED)
def test_the_roster_says_which_folder_is_that_of_the_class(tmp_path, case):
    put(tmp_path, WRAPPED[case])
    told = whose(tmp_path, text=ROSTER)
    assert len(told) == len(WRAPPED[case])
    for file, (student, _) in told.items():
        assert f"/{student}" in file


def test_without_a_roster_several_folders_are_a_class_and_a_warning_says_so(tmp_path, grade):
    put(tmp_path / "given", WRAPPED["folders in a folder"])
    _, errors, rows = grade()
    assert [r["id"] for r in rows] == ["ann", "ben"]
    assert "warning: hw holds several folders: each is taken as a student's" in errors
    assert "hw holds" not in "".join(r["remarks"] for r in rows)


def test_a_single_student_stays_one(tmp_path):
    cases = {
        "parts beside data": {"ann/parts.ipynb": RIGHT, "ann/data/a.csv": "x", "ann/img/b": "x"},
        "work beside data": {"ann/work.ipynb": RIGHT, "ann/data/a.csv": "x", "ann/img/b": "x"},
        "as nbgrader has it": {"ann/parts/parts.ipynb": RIGHT, "ann/old/parts.ipynb": RIGHT},
        "files": {"ann/a.ipynb": RIGHT, "ann/b.ipynb": RIGHT},
    }
    for case, files in cases.items():
        top = put(tmp_path / case, files)
        assert {student for student, _ in whose(top).values()} == {"ann"}, case
    # What is a class to the eye is a student's folder if the roster has the name.
    top = put(tmp_path / "r", {"ann/x/a.ipynb": RIGHT, "ann/y/a.ipynb": RIGHT})
    assert {student for student, _ in whose(top, text=ROSTER).values()} == {"ann"}


@pytest.mark.parametrize("place", ["week1/submissions.zip", "week1/x.zip/submissions.zip"])
def test_a_platforms_zip_in_a_folder_is_read(tmp_path, place):
    first, _, inner = place.partition(".zip/")
    data = zipped({inner: zipped(CANVAS)}) if inner else zipped(CANVAS)
    write(tmp_path, f"{first}.zip" if inner else first, data)
    told = whose(tmp_path)
    assert [student for student, _ in told.values()] == ["leeann", "poebob"]
    assert all("the names in submissions.zip are a platform's" in said for _, said in told.values())


def test_a_platforms_zip_with_one_file_names_its_student(tmp_path):
    path = write(tmp_path, "c.zip", zipped({"leeann_501_9001_parts.ipynb": RIGHT}))
    assert [s.student for s in find([path], "parts")] == ["leeann"]


def test_an_archive_too_deep_says_so_under_the_students_name(tmp_path):
    deep = zipped({"a.zip": zipped({"b.zip": zipped({"parts.ipynb": RIGHT})})})
    (one,) = find([write(tmp_path, "deep.zip", zipped({"ann.zip": deep}))], "parts")
    assert one.student == "ann"
    assert one.problem.startswith("nested too deep: more than 3 archives")
    assert "b.zip" in one.problem


def test_long_names_and_deep_paths_in_an_archive_stop_nobody(tmp_path):
    when = "_attempt_2026-03-01-12-30-00_p.ipynb"
    odd = {"a/" * 20_000 + "parts.ipynb": RIGHT, "-" * 60_000 + ".ipynb": "x",
           "1-1 - " + "a - " * 15_000 + "x": "x",
           **{"_" * 30_000 + f"{n}{when}": "x" for n in range(20)}}  # fmt: skip
    for one in ({next(iter(odd)): RIGHT}, odd):
        path = write(tmp_path, "ann.zip", zipped(one))
        began = time.monotonic()
        assert find([path], "parts")
        write(tmp_path, "in/ben.ipynb", RIGHT.encode())
        write(tmp_path, "in/ann.zip", zipped(one))
        ann, ben = find([tmp_path / "in"], "parts")
        assert (ann.student, ann.file, ben.student) == ("ann", "parts.ipynb", "ben")
        assert time.monotonic() - began < 20


# ---------------------------------------------------------------- Blackboard's logins


@pytest.mark.parametrize(
    ("begin", "logins", "text"),
    [("HW 1", ["a_n", "b_n"], ""), ("HW_1", ["a_n", "b"], ""), ("HW 1", ["a_n"], "id\na_n\n"),
     ("HW 1", ["a_n", "a_m"], "id\na_n\na_m\n"), ("parts", ["a_n", "a_m"], ""),
     ("parts", ["a_n"], "")],
)  # fmt: skip
def test_a_login_with_an_underscore_is_whole(tmp_path, begin, logins, text):
    for login in logins:
        name = f"{begin}_{login}_attempt_2026-03-01-12-30-00_parts.ipynb"
        write(tmp_path, name, RIGHT.encode())
    given = find([tmp_path], "parts", people=people(text) if text else None)
    assert sorted((s.student, s.sender.key) for s in given) == sorted((x, x) for x in logins)


def test_no_two_logins_become_one_and_a_file_name_forges_none(tmp_path):
    when = "attempt_2026-03-01-12-30-00"
    for name in ("HW 1_a_n", "Quiz_b_n", "Quiz_c"):
        write(tmp_path, f"{name}_{when}_parts.ipynb", RIGHT.encode())
    assert len({s.student for s in find([tmp_path], "parts")}) == 3
    assert names.sender(f"HW_ann_{when}_x_ben_{when}_parts.ipynb").key == "ann"


# ---------------------------------------------------------------- whom of the roster a name is


def fit(text, name):
    sender = names.sender(name)
    found = people(text).fit(sender.name if sender else name, sender)
    return [p.id for p in found.people], found.remark


def test_a_platforms_number_is_not_the_schools(tmp_path):
    school = "id,name\n501,Bob Poe\n777,Ann Lee\n"
    assert fit(school, "leeann_501_9001_parts.ipynb") == (["777"], "")
    ids, said = fit(school, "unknown_501_9001_parts.ipynb")
    assert ids == []
    assert "somebody's id too, perhaps by chance" in said
    # Even where the platform's own number is another one's, the name decides.
    canvas = "Student,ID,SIS User ID\nBob Poe,501,s1\nAnn Lee,502,s2\n"
    ids, said = fit(canvas, "leeann_501_9001_parts.ipynb")
    assert ids == ["s2"]
    assert "the platform's number 501 is another one's in the roster; the name decides" in said
    assert fit(canvas, "unknown_501_9001_parts.ipynb") == (["s1"], "")
    # Of several of one name the number tells which, and a school's only with a remark.
    wei = "_1004_assignsubmission_file_"
    ids, said = fit("id,name\n1003,Wei Wang\n1004,Wei Wang\n", f"Wei Wang{wei}")
    assert ids == ["1004"]
    assert "the one whose id is the platform's number 1004" in said
    assert fit("id,name\n1,Wei Wang\n2,Wei Wang\n", f"Wei Wang{wei}") == (["1", "2"], "")


def test_a_schools_id_is_no_platforms_number_in_a_gradebook():
    export = (
        "Student,ID,SIS User ID,Parts (7)\n    Points Possible,,,10\nAnn Lee,501,,\nBob Poe,502,,\n"
    )
    row = {"student": "Bob Poe", "id": "501", "assignment": "parts", "status": "graded",
           "score": 9.0, "max": 10.0, "tests": [], "by_hand": [], "sender": None}  # fmt: skip
    filled = platforms.fill([row], export.encode())
    assert (filled.count, filled.left) == (0, ["Bob Poe: fits several lines of the gradebook"])


def test_two_of_one_name_are_told_apart_everywhere(tmp_path, grade):
    text = "id,name\n1,Ann Lee\n2,Ann Lee\n3,Ben Poe\n"
    path = write(tmp_path, "roster.csv", text.encode())
    for name in ("1", "2", "Ann Lee"):
        write(tmp_path, f"given/{name}/parts.ipynb", submission())
    _, errors, rows = grade("--roster", path)
    told = {r["id"]: r for r in rows}
    assert [told[x]["student"] for x in "12"] == ["Ann Lee (1)", "Ann Lee (2)"]
    assert [told[x]["page"] for x in "12"] == ["Ann Lee - 1.html", "Ann Lee - 2.html"]
    assert "Ann Lee (2): " in (tmp_path / "pages/Ann Lee - 2.html").read_text()
    assert "warning: several people are called Ann Lee: only their ids (1, 2)" in errors
    assert "taken for none of them (Ann Lee (1), Ann Lee (2)): Ann Lee" in errors
    fits = told["Ann Lee"]
    assert "fits several in the roster, and is taken for none of them" in fits["remarks"]
    # Others' numbers are nothing for a student's page.
    assert "Ann Lee (1)" not in (tmp_path / "pages" / fits["page"]).read_text()
    # The page of one stays that of the one when the other's submission is gone.
    (tmp_path / "given/1/parts.ipynb").unlink()
    (tmp_path / "given/1").rmdir()
    _, _, rows = grade("--roster", path)
    told = {r["id"]: r for r in rows}
    assert told["2"]["page"] == "Ann Lee - 2.html"
    assert (told["1"]["status"], told["1"]["student"]) == ("missing", "Ann Lee (1)")
    assert "something may be this one's: Ann Lee" in told["1"]["remarks"]
    assert sorted(p.name for p in (tmp_path / "pages").glob("*.html")) == [
        "Ann Lee - 2.html", "Ann Lee.html"]  # fmt: skip


# ---------------------------------------------------------------- names of files, and of nobody


def test_the_assignments_name_is_looked_for_in_what_was_sent(tmp_path):
    sent = {"foxdee_504_9004_hw.zip": zipped({"parts.ipynb": RIGHT}),
            "foxdee_504_9005_notes.ipynb": RIGHT, **CANVAS}  # fmt: skip
    given = find([write(tmp_path, "c.zip", zipped(sent))], "parts")
    assert [s.file for s in given] == ["parts.ipynb"] * 3
    assert given[0].inside == ("foxdee_504_9004_hw.zip", "parts.ipynb")
    assert (
        "parts.ipynb counts, since it has the assignment's name; not notes.ipynb"
        in (given[0].remarks[0])
    )


def test_files_of_one_name_are_told_apart_by_their_paths(tmp_path):
    put(tmp_path, {"ann/hw/parts.ipynb": RIGHT, "ann/x.zip": zipped({"old/parts.ipynb": RIGHT}),
                   "ben/parts.ipynb": RIGHT})  # fmt: skip
    one, _ = find([tmp_path], "parts")
    counts, left = one.remarks[0].split("; not ")
    assert {counts.split()[3], left} == {"hw/parts.ipynb", "x.zip/old/parts.ipynb"}


def test_a_folder_with_what_programs_leave_is_not_called_empty(tmp_path):
    put(tmp_path, {"ann/index.html": "x", "ben/parts.ipynb": RIGHT, "cho/.odd/parts.ipynb": RIGHT,
                   "dee/x.zip": zipped({"__MACOSX/._a": "x"}), ".eve.ipynb": RIGHT})  # fmt: skip
    (tmp_path / "fay").mkdir()
    told = {s.student: s.problem for s in find([tmp_path], "parts")}
    assert told["ann"] == "no notebook found (the folder holds only index.html)"
    assert told["cho"] == "no notebook found (the folder holds only .odd)"
    assert "the zip file holds only __MACOSX/._a" in told["dee"]
    assert told["fay"] == "no notebook found (the folder is empty)"
    assert told[".eve"] == "no notebook found (saw: .eve.ipynb)"


def test_a_name_cannot_steer_a_terminal_and_is_one_id_everywhere(tmp_path, grade):
    odd = {"ann\x1b[31m": r"ann\x1b[31m", "be\u202en": r"be\u202en", "ann[31m": "ann[31m"}
    for name in odd:
        write(tmp_path, f"given/{name}/parts.ipynb", submission())
    path = write(tmp_path, "roster.csv", b"id\nzoe\n")
    said, errors, rows = grade("--roster", path)
    assert sorted(r["id"] for r in rows) == sorted([*odd.values(), "zoe"])
    record = json.loads((tmp_path / "o.json").read_text())
    assert sorted(r["id"] for r in record) == sorted([*odd.values(), "zoe"])
    for text in (said, errors, (tmp_path / "o.csv").read_text()):
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert r"ann\x1b[31m" in errors
