"""Finds what students handed in, and reads it without trusting it.

Whatever lies in the folders and archives that are given, it belongs to somebody, and everybody of
whom there is anything gets at least one row: with a notebook, or with what is there in its place.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from book.grading import archives, names, owners, places
from book.grading.owners import Class, Entry, Given
from book.grading.places import Found

if TYPE_CHECKING:
    from book.grading.roster import Roster

# A notebook with that much output is still graded; only its code matters.
SIZE_LIMIT = 300 << 20
# Of a student with more notebooks, none of which has the assignment's name, so many are graded.
MOST = 5
# What is said of a folder in which nothing lies.
EMPTY = "the folder is empty"


class UnreadableError(ValueError):
    """A file that was handed in and cannot be read; says why."""


@dataclass(frozen=True)
class Submission:
    """A notebook that was handed in: a file, or a member of an archive."""

    student: str
    path: Path
    # Its name in the archive, after those of the archives in which that one lies.
    inside: tuple[str, ...] = ()
    # Why it will not be read, where that is clear from its place.
    problem: str = ""
    # What should be told about how it was found.
    remarks: tuple[str, ...] = ()
    # Seconds since 1970, or of the platform's clock: which of a student's is the last.
    time: float = 0.0
    # Where the files of a platform came from.
    sender: names.Sender | None = None
    # Whose it is and why, where the names leave a doubt: a remark, and a warning before the run.
    decided: str = ""
    # The like where there is hardly one: for the teacher alone.
    note: str = ""
    # It does not count beside what lies in an entry of the student's own name.
    apart: bool = False
    # What the student called the file, if the path does not say it.
    called: str = ""

    @property
    def label(self) -> str:
        """The file, for a person; no two are alike."""
        return "!".join(names.escaped(part) for part in (str(self.path), *self.inside))

    @property
    def file(self) -> str:
        """The name that the student gave to it."""
        if self.called:
            return self.called
        last = self.inside[-1] if self.inside else self.path.name
        return names.of_file(last.replace("\\", "/").rsplit("/", 1)[-1])


def find(
    roots: Sequence[Path], assignment: str = "", which: str = "name", people: Roster | None = None
) -> list[Submission]:
    """All submissions to `assignment` in these files, folders and archives.

    In a folder, each folder in it belongs to the student of its name, and so does each file. An
    archive counts as a folder. Names that a learning platform made are read (`names.sender`), and
    what is in them belongs to the student whom they name. Of several folders, one with a single
    student in it is that student's (`submitted/*`), and so is one in which the assignment itself
    lies. A single folder or archive may hold that of the class. `people` say which names are those
    of students; `owners` says what is done without, and in doubt.

    `which` says which of a student's notebooks are taken: "name", the one with the assignment's
    name, or all, up to `MOST`, if none has it; "latest", the one that came last; "best", all.

    Raises:
        FileNotFoundError: if one of `roots` does not exist.
    """
    of = Class(people, assignment)
    alone = len(roots) == 1
    taken: list[Given] = []
    loose: list[Found] = []
    for root in roots:
        if not (root.exists() or root.is_symlink()):
            raise FileNotFoundError(f"{root}: there is no such file or folder")
        if root.is_dir() and not root.is_symlink():
            taken += _of_folder(root, of, alone=alone)
        else:
            loose += places.at(root)
    if loose:
        taken += owners.given(loose, of, alone=alone)
    return _chosen(owners.settled(taken, of), assignment, which)


def _of_folder(root: Path, of: Class, *, alone: bool) -> list[Given]:
    """What lies in a folder: the class's, or a student's."""
    given = list(owners.given(list(places.in_folder(root)), of, alone=alone))
    name = names.of_file(root.resolve().name)
    entry = Entry((str(root.resolve()),), names.escaped(name), place=names.escaped(name))
    if (sender := names.sender(name)) and sender.platform != names.VAGUE and not alone:
        who = Entry((sender.platform, sender.name, sender.key), names.escaped(sender.name), sender)
        return owners.own(given or [_nothing_in(root, who)], who)
    with_notebook = {g.owner.key for g in given if g.found.kind == "notebook"}
    of_platform = any(g.owner.sender for g in given)
    one = with_notebook == {(of.assignment,)} or (not alone and len(with_notebook) <= 1)
    if not given and not alone:
        return [_nothing_in(root, entry)]
    if (one and not of_platform) or (not alone and of.knows(name)):
        return owners.own(given, entry)
    # Of several folders this one may be a student's, whatever names are in it.
    return given if alone else [g if g.box else replace(g, box=entry) for g in given]


def _nothing_in(folder: Path, entry: Entry) -> Given:
    name = (entry.name,)
    return Given(entry, Found(name, frozenset(), name, folder, kind="empty", problem=EMPTY))


def of_one(folder: Path, student: str, assignment: str = "") -> Submission:
    """The submission of a student, to whom all that lies in `folder` belongs."""
    entry = Entry((student,), student)
    given = [Given(entry, f) for f in places.in_folder(folder)] or [_nothing_in(folder, entry)]
    return max(_of_student(student, given, assignment, "name"), key=lambda s: (s.time, s.label))


# ---- which of a student's count


def _chosen(taken: list[Given], assignment: str, which: str) -> list[Submission]:
    whose: dict[tuple[str, ...], list[Given]] = {}
    for given in taken:
        whose.setdefault(given.owner.key, []).append(given)
    called = _called({key: some[0] for key, some in whose.items()})
    found: list[Submission] = []
    for key, some in whose.items():
        found += _of_student(called[key], some, assignment, which)
    return sorted(dict.fromkeys(found), key=lambda s: (s.student, s.label))


def _called(given: dict[tuple[str, ...], Given]) -> dict[tuple[str, ...], str]:
    """A name for each student; two of the same name are told apart by what identifies them."""
    count: dict[str, int] = {}
    for one in given.values():
        # What is kept apart is the same student's all the same.
        count[one.owner.name] = count.get(one.owner.name, 0) + (not one.apart)
    called = {}
    for key, one in given.items():
        name = called[key] = one.owner.name
        if count[name] > 1 and not one.apart and key != (name,):
            called[key] = f"{name} ({names.escaped(key[-1])})"
    return called


def _of_student(student: str, some: list[Given], assignment: str, which: str) -> list[Submission]:
    decided = "; ".join(dict.fromkeys(g.decided for g in some if g.decided))
    note = "; ".join(dict.fromkeys(g.note for g in some if g.note))
    broken = [g.found for g in some if g.found.kind == "problem"]
    all_: dict[Submission, Found] = {}
    for given in some:
        if given.found.kind == "notebook":
            all_.setdefault(_submission(student, given, decided, note), given.found)
    if not all_:
        at = next((g for g in some if g.found.kind == "problem"), some[0])
        one = _submission(student, at, decided, note)
        return [replace(one, problem=_nothing([g.found for g in some]), time=at.found.time)]
    remarks = [f"{f.parts[-1]}: {f.problem}" for f in broken]
    named = [s for s in all_ if names.asked_for(s.file, assignment)]
    last = sorted(all_, key=lambda s: (s.time, s.label))
    if which == "latest":
        kept, why = last[-1:], "it came last"
    elif which == "name" and named:
        kept = sorted(named, key=lambda s: (s.time, s.label))[-1:]
        why = "it has the assignment's name"
    else:
        kept, why = last[-MOST:], f"only the last {MOST} are graded"
    if len(kept) < len(all_):
        shown = _told_apart(all_)
        left = [shown[s] for s in all_ if s not in kept]
        told = ", ".join(left[:5]) + (f" and {len(left) - 5} more" if len(left) > 5 else "")
        if len(kept) == 1:
            taken = f"of {len(all_)} notebooks {shown[kept[0]]} counts, since {why}"
        else:
            taken = f"{len(all_)} notebooks: {why}"
        remarks.append(f"{taken}; not {told}")
    if any(s.sender and s.sender.late for s in kept):
        remarks.append("handed in late, says the platform")
    return [replace(s, remarks=tuple(remarks)) for s in kept]


def _submission(student: str, given: Given, decided: str, note: str) -> Submission:
    sender, found = given.owner.sender, given.found
    # In an archive that was sent the files have names of their own.
    sent = sender and sender.title and sender.given == found.parts[-1]
    called = sender.title if sender and sent else found.parts[-1]
    return Submission(
        student, found.path, found.inside, time=_time(sender, found), sender=sender,
        decided=decided, note=note, apart=given.apart, called=called,
    )  # fmt: skip


def _told_apart(all_: dict[Submission, Found]) -> dict[Submission, str]:
    """How each of a student's files is named so that no two are alike: the path, where needed."""
    plain = {s: s.file for s in all_}
    if len(set(plain.values())) == len(plain):
        return plain
    parts = [found.parts for found in all_.values()]
    same = 0
    while all(len(p) > same + 1 and p[same] == parts[0][same] for p in parts):
        same += 1
    return {s: "/".join(found.parts[same:]) for s, found in all_.items()}


def _time(sender: names.Sender | None, found: Found) -> float:
    if sender and sender.when:
        return datetime.fromisoformat(sender.when).timestamp()
    return found.time


def _nothing(things: list[Found]) -> str:
    """Why there is nothing to grade, from what there is in its place."""
    if broken := [f.problem for f in things if f.kind == "problem"]:
        return "; ".join(dict.fromkeys(broken))
    others = [f for f in things if f.kind == "other"]
    if not others:
        return f"no notebook found ({'; '.join(dict.fromkeys(f.problem for f in things))})"
    seen = [f"{f.parts[-1]}{f', {f.problem}' if f.problem else ''}" for f in others]
    told = ", ".join(seen[:5]) + (f" and {len(seen) - 5} more" if len(seen) > 5 else "")
    hint = ""
    lower = [f.parts[-1].lower() for f in others]
    if any(".ipynb." in name or name.endswith(".json") for name in lower):
        hint = "; a notebook's name ends in .ipynb: rename the file and hand it in again"
    elif any(name.endswith(archives.FOREIGN) for name in lower):
        hint = "; unpack it, or hand in a zip file"
    elif any(name.endswith((".py", ".html", ".pdf")) for name in lower):
        hint = "; hand in the notebook itself, not an export of it"
    return f"no notebook found (saw: {told}){hint}"


# ---- reading


def read(submission: Submission) -> bytes:
    """The bytes of a submission.

    Raises:
        UnreadableError: if it cannot be read, is no file, or is too large.
    """
    if submission.problem:
        raise UnreadableError(submission.problem)
    try:
        if submission.inside:
            data = archives.read(submission.path, submission.inside, SIZE_LIMIT)
        else:
            # A link or a pipe may have taken the file's place.
            flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
            flags |= getattr(os, "O_BINARY", 0)
            with os.fdopen(os.open(submission.path, flags), "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise UnreadableError("not a file")
                data = file.read(SIZE_LIMIT + 1)
    except (OSError, archives.ArchiveError) as error:
        raise UnreadableError(f"cannot be read: {error}") from None
    if len(data) > SIZE_LIMIT:
        raise UnreadableError(f"larger than {SIZE_LIMIT >> 20} MB; clear its outputs")
    return data


def digest(submission: Submission) -> str:
    """What identifies the content of a submission."""
    told = repr((submission.problem, submission.remarks))
    hashed = hashlib.sha256(told.encode(errors="backslashreplace"))
    try:
        hashed.update(read(submission))
    except UnreadableError as error:
        hashed.update(f"unreadable: {error}".encode(errors="backslashreplace"))
    return hashed.hexdigest()
