"""Whatever lies in the folder, everybody of whom there is anything gets a row, rightly named."""

import io
import json
import os
import sys
import tarfile
import time
import zipfile

import pytest
from corpus import zipped
from sample import submission, write

from book.grading import archives, names, roster, submissions, tables
from book.grading.submissions import UnreadableError, find, read

RIGHT = json.dumps(submission())


def tarred(members, mode="w:gz"):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            if content is None:
                info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
                archive.addfile(info)
                continue
            data = content.encode() if isinstance(content, str) else content
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def unmarked(members):
    """A zip file whose names are bytes without the mark that says UTF-8, as old programs write."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for letter, (name, content) in zip("xyz", members.items(), strict=True):
            archive.writestr(letter * len(name), content)
    data = buffer.getvalue()
    for letter, name in zip(b"xyz", members, strict=True):
        data = data.replace(bytes([letter]) * len(name), name)
    return data


def found(top, *roots, **more):
    """Student and file, or the problem, of everything found."""
    some = find([top / r for r in roots] or [top], "parts", **more)
    return {s.student: s.problem or s.file for s in some}


# ---------------------------------------------------------------- folders


OTHERS = {
    "a/x.ipynb.txt": "rename the file",
    "b/x.ipynb.json": "rename the file",
    "c/x.py": "not an export",
    "d/x.7z": "hand in a zip file",
    "f/x.ipynb/inner.txt": "x.ipynb, a folder",
    ".g/parts.pdf": "not an export",
    "h/.hidden.ipynb": ".hidden.ipynb",
}


def test_what_is_no_notebook_has_a_row_that_says_what_is_there(tmp_path):
    for name in OTHERS:
        write(tmp_path, name, RIGHT.encode())
    (tmp_path / "e").mkdir()
    (tmp_path / "i" / "deep").mkdir(parents=True)
    told = found(tmp_path)
    assert sorted(told) == sorted([*(n.split("/")[0] for n in OTHERS), "e", "i"])
    for name, said in OTHERS.items():
        assert told[name.split("/")[0]].startswith("no notebook found (saw: ")
        assert said in told[name.split("/")[0]], name
    assert told["e"] == told["i"] == "no notebook found (the folder is empty)"


def test_files_without_a_folder_have_their_rows_and_programs_leavings_have_none(tmp_path):
    leavings = (".DS_Store", "index.html", "._ann.ipynb", "__MACOSX/ann.ipynb", ".o.json.journal",
                ".ipynb_checkpoints/ann.ipynb")  # fmt: skip
    for name in ("ann.ipynb", "ben.ipynb.txt", "cho.py", *leavings):
        write(tmp_path, name, RIGHT.encode())
    told = found(tmp_path)
    assert told["ann"] == "ann.ipynb"
    assert sorted(told) == ["ann", "ben", "cho"]


def test_a_name_in_another_encoding_is_read_and_stays_one_students(tmp_path):
    if sys.platform == "darwin":
        pytest.skip("the file system takes UTF-8 only")
    top = os.fsencode(tmp_path)
    wanted = {"王小明".encode("gb18030"): "王小明", "Müller".encode("latin-1"): "Müller",
              "José".encode("cp850"): "José", "王小明".encode(): "王小明"}  # fmt: skip
    for raw in wanted:
        os.mkdir(os.path.join(top, raw))  # noqa: PTH102, PTH118
        with open(os.path.join(top, raw, b"parts.ipynb"), "w") as file:  # noqa: PTH118, PTH123
            file.write(RIGHT)
    given = find([tmp_path], "parts")
    assert len({s.student for s in given}) == len({s.label for s in given}) == 4
    assert {"Müller", "José", "王小明"} < {s.student for s in given}
    # Two folders of one readable name: the one in UTF-8 has it, the other says what it is.
    assert [s.student for s in given if s.student.startswith("王小明 (")] == [
        f"王小明 ({names.escaped(os.fsdecode('王小明'.encode('gb18030')))})"
    ]
    for one in given:
        assert read(one) == RIGHT.encode()
        assert one.label.encode()
        assert submissions.digest(one)


def test_the_name_of_a_member_is_read_in_its_own_encoding(tmp_path):
    members = {"王小明/parts.ipynb".encode("gb18030"): RIGHT,
               "Müller/parts.ipynb".encode("cp437"): RIGHT,
               "李雷/parts.ipynb".encode(): RIGHT}  # fmt: skip
    write(tmp_path, "all.zip", unmarked(members))
    given = find([tmp_path / "all.zip"], "parts")
    assert [s.student for s in given] == ["Müller", "李雷", "王小明"]
    assert all(read(s) == RIGHT.encode() for s in given)


# ---------------------------------------------------------------- archives


ARCHIVES = {
    "tar.gz": ("x.tar.gz", tarred({"hw/parts.ipynb": RIGHT})),
    "tar": ("x.tar", tarred({"parts.ipynb": RIGHT}, "w")),
    "tar.xz": ("x.tar.xz", tarred({"parts.ipynb": RIGHT}, "w:xz")),
    "zip in zip": ("x.zip", zipped({"y.zip": zipped({"parts.ipynb": RIGHT})})),
    "tar in zip": ("x.zip", zipped({"y.tgz": tarred({"parts.ipynb": RIGHT})})),
    "backslashes": ("x.zip", zipped({"hw\\parts.ipynb": RIGHT})),
}


@pytest.mark.parametrize("kind", ARCHIVES)
def test_an_archive_of_a_students_is_opened(tmp_path, kind):
    name, data = ARCHIVES[kind]
    write(tmp_path, f"ann/{name}", data)
    write(tmp_path, "ben/parts.ipynb", RIGHT.encode())
    ann, _ = find([tmp_path], "parts")
    assert (ann.student, ann.file) == ("ann", "parts.ipynb")
    assert read(ann) == RIGHT.encode()


BROKEN = {
    "leaves": ("x.zip", zipped({"../parts.ipynb": RIGHT}), "leads out of the archive"),
    "leaves a tar": ("x.tar", tarred({"/tmp/parts.ipynb": RIGHT}, "w"), "leads out"),
    "a link in a tar": ("x.tar", tarred({"parts.ipynb": None}, "w"), "a link or a device"),
    "no zip": ("x.zip", b"PK\x03\x04 no", "not a readable zip file"),
    "no tar": ("x.tar.gz", b"\x1f\x8b no", "not a readable archive"),
    "no zip in a zip": ("x.zip", zipped({"y.zip": b"no"}), "not a readable zip file"),
    "empty": ("x.zip", zipped({}), "an empty zip file"),
    "four deep": (
        "x.zip", zipped({"a.zip": zipped({"b.zip": zipped({"c.zip": zipped({"p.ipynb": ""})})})}),
        "nested too deep: more than 3 archives",
    ),
    "tar bomb": ("x.tar.gz", tarred({"parts.ipynb": b"\0" * (101 << 20)}), "more than 100 MB"),
    "zip bomb in a zip": (
        "x.zip", zipped({"y.zip": zipped({"z.tar": b"\0" * (101 << 20)})}), "more than 100 MB"),
    "locked": ("x.zip", zipped({"parts.ipynb": RIGHT}).replace(
        b"PK\x01\x02\x14\x03\x14\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x01"), "password"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BROKEN)
def test_an_archive_that_cannot_be_read_says_why(tmp_path, kind):
    name, data, said = BROKEN[kind]
    write(tmp_path, f"ann/{name}", data)
    write(tmp_path, "ben/parts.ipynb", RIGHT.encode())
    ann, _ = find([tmp_path], "parts")
    with pytest.raises(UnreadableError, match=r".*") as caught:
        read(ann)
    assert said in str(caught.value)


def test_an_archive_of_too_many_files_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MEMBERS", 3)
    write(tmp_path, "ann/x.zip", zipped({f"{n}.ipynb": RIGHT for n in range(4)}))
    write(tmp_path, "ben/x.tar", tarred({f"{n}.ipynb": RIGHT for n in range(5)}))
    told = found(tmp_path)
    assert "more than 3 files" in told["ann"]
    assert "more than 3 files" in told["ben"]


# ---------------------------------------------------------------- platforms


# As each platform gives a class to its teacher: path, and whose it is.
MOODLE_FOLDERS = {
    "Ann Lee_1001_assignsubmission_file_/parts.ipynb": "Ann Lee",
    "Ben Poe_1002_assignsubmission_file/hw.zip": "Ben Poe",
    "Wei Wang_1003_assignsubmission_file_/parts.ipynb": "Wei Wang (1003)",
    "Wei Wang_1004_assignsubmission_file_/parts.ipynb": "Wei Wang (1004)",
    "Dee Fox_1005_assignsubmission_onlinetext_/onlinetext.html": "Dee Fox",
}
MOODLE_FLAT = {
    "Ann Lee_1001_assignsubmission_file_parts.ipynb": "Ann Lee",
    "Ben Poe_1002_assignsubmission_file_my_work.ipynb": "Ben Poe",
}
CANVAS = {
    "leeann_501_9001_parts.ipynb": "leeann",
    "poeben_LATE_502_9002_parts-1.ipynb": "poeben",
    "foxdee_503_9003_hw.zip": "foxdee",
    "wangwei_504_text.html": "wangwei",
}
BLACKBOARD = {
    "parts_alee_attempt_2026-03-01-10-00-00_parts.ipynb": "alee",
    "parts_alee_attempt_2026-03-02-10-00-00_parts.ipynb": "alee",
    "parts_alee_attempt_2026-03-02-10-00-00.txt": "alee",
    "parts_bpoe_attempt_2026-03-01-11-00-00.txt": "bpoe",
}
BRIGHTSPACE = {
    "7001-555 - Ann Lee - Mar 1, 2026 1000 AM/parts.ipynb": "Ann Lee",
    "7001-555 - Ann Lee - Mar 2, 2026 0115 PM/parts.ipynb": "Ann Lee",
    "7002-555 - Mary-Jane Poe - Mar 1, 2026 1100 AM/parts.ipynb": "Mary-Jane Poe",
    "index.html": None,
}
PLATFORMS = {"Moodle": MOODLE_FOLDERS, "Moodle, flat": MOODLE_FLAT, "Canvas": CANVAS,
             "Blackboard": BLACKBOARD, "Brightspace": BRIGHTSPACE}  # fmt: skip
WAYS = ["zip", "zip in the folder", "unpacked", "unpacked in a folder", "under a folder in the zip"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("platform", PLATFORMS)
def test_what_a_platform_gives_has_a_row_for_each_student(tmp_path, platform, way):
    wanted = PLATFORMS[platform]
    members = {name: zipped({"hw/parts.ipynb": RIGHT}) if name.endswith(".zip") else RIGHT
               for name in wanted}  # fmt: skip
    root = tmp_path / "given"
    if way == "zip":
        root = write(tmp_path, "class.zip", zipped(members))
    elif way == "zip in the folder":
        write(root, "canvas.zip", zipped(members))
        write(root, "zoe/parts.ipynb", RIGHT.encode())
    elif way == "under a folder in the zip":
        root = write(tmp_path, "c.zip", zipped({f"top/{n}": data for n, data in members.items()}))
    else:
        for name, data in members.items():
            place = f"moodle/{name}" if way == "unpacked in a folder" else name
            write(root, place, data.encode() if isinstance(data, str) else data)
    given = [s for s in find([root], "parts") if s.student != "zoe"]
    assert [s.student for s in given] == sorted({name for name in wanted.values() if name})
    assert {s.sender.platform for s in given} == {platform.split(",")[0]}
    for one in given:
        if one.problem:
            assert one.student in ("Dee Fox", "wangwei", "bpoe")
            assert one.problem.startswith("no notebook found (saw: ")
        else:
            assert read(one) == RIGHT.encode()


def test_a_late_file_and_the_last_attempt_are_known_by_their_names(tmp_path):
    given = find([write(tmp_path, "c.zip", zipped(dict.fromkeys(CANVAS, RIGHT)))], "parts")
    assert [s.student for s in given if s.sender.late] == ["poeben"]
    assert "handed in late, says the platform" in {s.student: s for s in given}["poeben"].remarks
    assert {s.student: s.sender.key for s in given}["leeann"] == "501"
    for some in (BLACKBOARD, BRIGHTSPACE):
        given = find([write(tmp_path, "b.zip", zipped(dict.fromkeys(some, RIGHT)))], "parts")
        assert "2026-03-02" in given[0].sender.when
        # Both are called parts.ipynb: the path says which one counts.
        counts, left = given[0].remarks[0].split("; not ")
        assert counts.startswith("of 2 notebooks ")
        assert "03-02" in counts or "Mar 2" in counts
        assert "03-01" in left or "Mar 1" in left


def test_a_zip_per_student_within_a_zip_is_each_students(tmp_path):
    one = zipped({"parts.ipynb": RIGHT})
    path = write(tmp_path, "moodle.zip", zipped({"ann.zip": one, "ben.zip": one}))
    for roots in ([path], [tmp_path]):
        given = find(roots, "parts")
        assert [s.student for s in given] == ["ann", "ben"]
        assert all(read(s) == RIGHT.encode() for s in given)


def test_a_students_own_file_name_makes_no_platform_of_it(tmp_path):
    write(tmp_path, "ann/hw_1_2_x.ipynb", RIGHT.encode())
    write(tmp_path, "ben.zip", zipped({"hw_1_2_x.ipynb": RIGHT}))
    write(tmp_path, "cho.ipynb", RIGHT.encode())
    assert sorted(found(tmp_path)) == ["ann", "ben", "cho"]


# ---------------------------------------------------------------- which counts


def test_the_assignments_name_comes_first_and_is_known_as_a_copy(tmp_path):
    for name in ("zz.ipynb", "Parts (1).ipynb", "a.ipynb"):
        write(tmp_path, f"ann/{name}", RIGHT.encode())
    write(tmp_path, "ben/parts.ipynb", RIGHT.encode())
    one, _ = find([tmp_path], "parts")
    assert one.file == "Parts (1).ipynb"
    assert "since it has the assignment's name; not" in one.remarks[0]
    for name in ("parts-1", "parts_copy2", "Parts v2", "parts", "parts-copy (3)"):
        assert names.asked_for(f"{name}.ipynb", "parts"), name
    for name in ("party", "parts-of", "my-parts"):
        assert not names.asked_for(f"{name}.ipynb", "parts"), name
    assert not names.asked_for("week-2.ipynb", "week-3")


def test_the_last_or_all_or_the_last_five_are_taken(tmp_path):
    for n in range(7):
        path = write(tmp_path, f"ann/{n}.ipynb", RIGHT.encode())
        os.utime(path, (n, time.time() - 100 * n))
    write(tmp_path, "ann/parts.ipynb", RIGHT.encode())
    os.utime(tmp_path / "ann/parts.ipynb", (0, 0))
    write(tmp_path, "ben/parts.ipynb", RIGHT.encode())

    def files(which):
        return [s.file for s in find([tmp_path], "parts", which) if s.student == "ann"]

    assert files("name") == ["parts.ipynb"]
    assert files("latest") == ["0.ipynb"]
    assert files("best") == [f"{n}.ipynb" for n in range(5)]
    (tmp_path / "ann/parts.ipynb").unlink()
    some = [s for s in find([tmp_path], "parts") if s.student == "ann"]
    assert [s.file for s in some] == [f"{n}.ipynb" for n in range(5)]
    assert "7 notebooks: only the last 5 are graded; not 5.ipynb, 6.ipynb" in some[0].remarks


# ---------------------------------------------------------------- names


def test_names_that_look_alike_are_known():
    assert names.alike(["ann", "Ann", "bob", "a b", "a:b", "José", "Jose\u0301"]) == [
        ["a b", "a:b"], ["Ann", "ann"], ["Jose\u0301", "José"]]  # fmt: skip
    assert names.alike(["ann", "ann", "bob"]) == []


def test_no_two_pages_share_a_name_in_any_file_system():
    students = ["a:b", "a_b", "ann", "Ann", "José", "Jose\u0301", "con", "../x", "…", "", "王 小明",
                "x" * 300, "x" * 301]  # fmt: skip
    pages = names.page_names(students)
    assert len({names.unicodedata.normalize("NFKC", p).casefold() for p in pages.values()}) == 13
    assert pages["a_b"] == "a_b" if pages["a_b"] == "a_b" else pages["a_b"].startswith("a_b-")
    assert pages["王 小明"] == "王 小明"
    assert all("/" not in p and len(p.encode()) < 150 and p.strip(". ") for p in pages.values())
    # A changed name is the same whoever else is there, and never the exact name of another.
    assert names.page_names(["a:b"])["a:b"] == pages["a:b"] != "a_b"
    assert names.page_names(["a_b"])["a_b"] == "a_b"


# ---------------------------------------------------------------- the roster


def people(tmp_path, text, coding="utf-8"):
    path = tmp_path / "roster.csv"
    path.write_bytes(text.encode(coding))
    return roster.read(path)


def who(some, name, sender=None):
    person = some.whose(submissions.Submission(name, None, sender=sender))
    return person and person.id


def test_a_submission_is_of_the_person_who_fits(tmp_path):
    some = people(
        tmp_path,
        'ID,Name,E-mail,Section\ns1,Ann Lee,ann@x.org,A\ns2,"Poe, Ben",b@x,B\n'
        "s3,José Díaz,,A\ns4,王小明,,A\ns5,Wei Wang,w1@x,A\ns6,Wei Wang,w2@x,A\n",
    )
    for name in ("s1", "S1", "Ann Lee", "ann-lee", "Lee, Ann", "lee_ann", "ann@x.org", "leeann"):
        assert who(some, name) == "s1", name
    assert who(some, "poeben") == who(some, "Ben Poe") == "s2"
    assert who(some, "jose diaz") == "s3"
    assert who(some, "王小明") == "s4"
    # Not one, not the other.
    assert who(some, "Wei Wang") is None
    assert who(some, "w1@x") == "s5"
    assert who(some, "nobody") is None
    assert some.people[0].section == "A"
    assert [p.id for p in some.missing([some.people[0], some.people[2]])] == [
        "s2",
        "s4",
        "s5",
        "s6",
    ]


def test_the_exports_of_platforms_are_rosters(tmp_path):
    canvas = people(tmp_path, "Student,ID,SIS User ID,SIS Login ID,Section,Parts (77)\n"
                    "    Points Possible,,,,,10\n\"Lee, Ann\",501,s1,ann,A,\n")  # fmt: skip
    sender = names.sender("leeann_501_9001_parts.ipynb")
    assert who(canvas, "leeann", sender) == "s1"
    assert len(canvas.people) == 1
    moodle = people(
        tmp_path,
        "Identifier,Full name,Email address,Status,Grade\n"
        "Participant 1003,Wei Wang,w1@x,,\nParticipant 1004,Wei Wang,w2@x,,\n",
    )
    sender = names.sender("Wei Wang_1004_assignsubmission_file_")
    assert who(moodle, "Wei Wang (1004)", sender) == "Participant 1004"
    assert people(tmp_path, "\ufeff学号;姓名\n7;王小明\n").people[0].name == "王小明"
    assert people(tmp_path, "学号;姓名\n7;王小明\n", "gb18030").people[0].name == "王小明"
    assert (
        people(tmp_path, "First name\tLast name\tUsername\nAnn\tLee\tann\n").people[0].id == "ann"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [("a,b\n1,2\n", "no column `id` or `name`; it is: a, b"), ("", "no column"),
     ("id,name\n", "nobody"), ("id,name\n1,Ann\n1,Ben\n", "line 3: the id '1' stands in line 2")],
)  # fmt: skip
def test_a_roster_that_cannot_be_used_says_why(tmp_path, text, said):
    with pytest.raises(roster.RosterError) as caught:
        people(tmp_path, text)
    assert said in str(caught.value)
    with pytest.raises(tables.TableError, match="No such file"):
        roster.read(tmp_path / "none.csv")
