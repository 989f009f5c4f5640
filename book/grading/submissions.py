"""Finds what students handed in, and reads it without trusting it.

Whatever lies in the folders and archives that are given, it belongs to somebody, and everybody of
whom there is anything gets at least one row: with a notebook, or with what is there in its place.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from book.grading import archives, names

# A notebook with that much output is still graded; only its code matters.
SIZE_LIMIT = 300 << 20
# Of a student with more notebooks, none of which has the assignment's name, so many are graded.
MOST = 5
# What programs leave behind. The second line are things of the platforms and of nbgrader.
_IGNORED = {
    "__macosx", "__pycache__", ".ipynb_checkpoints", ".git", ".ds_store", "thumbs.db",
    "desktop.ini", ".vscode", ".idea", ".venv", ".jupyter", ".cache", ".config", ".local",
    "index.html", "timestamp.txt",
}  # fmt: skip


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

    @property
    def label(self) -> str:
        """The file, for a person; no two are alike."""
        return "!".join(names.escaped(part) for part in (str(self.path), *self.inside))

    @property
    def file(self) -> str:
        """The name that the student gave to it."""
        if self.sender and self.sender.title:
            return self.sender.title
        last = self.inside[-1] if self.inside else self.path.name
        return names.of_file(last.replace("\\", "/").rsplit("/", 1)[-1])


@dataclass(frozen=True)
class _Found:
    """Something that lies somewhere: a notebook, or what is no notebook."""

    # Readable names, from below the root to the file.
    parts: tuple[str, ...]
    # How many of them are archives, by their places.
    boxes: frozenset[int]
    # What tells two of the same readable name apart.
    raw: tuple[str, ...]
    path: Path
    inside: tuple[str, ...] = ()
    kind: str = "other"  # "notebook", "problem", "empty" or "other"
    problem: str = ""
    time: float = 0.0


def find(roots: Sequence[Path], assignment: str = "", which: str = "name") -> list[Submission]:
    """All submissions to `assignment` in these files, folders and archives.

    In a folder, each folder in it belongs to the student of its name, and so does each file. An
    archive counts as a folder. Names that a learning platform made are read (`names.sender`), and
    what is in them belongs to the student whom they name. Of several folders, one with a single
    student in it is that student's (`submitted/*`), and so is one in which the assignment itself
    lies.

    `which` says which of a student's notebooks are taken: "name", the one with the assignment's
    name, or all, up to `MOST`, if none has it; "latest", the one that came last; "best", all.

    Raises:
        FileNotFoundError: if one of `roots` does not exist.
    """
    taken: list[tuple[tuple[str, ...], str, names.Sender | None, _Found]] = []
    for root in roots:
        if not (root.exists() or root.is_symlink()):
            raise FileNotFoundError(f"{root}: there is no such file or folder")
        whole = root.is_dir() and not root.is_symlink()
        found = list(_in_folder(root) if whole else _at(root, (), (), frozenset()))
        given = list(_given(found, alone=len(roots) == 1))
        with_notebook = {key for key, _, _, f in given if f.kind == "notebook"}
        of_platform = any(sender for _, _, sender, _ in given)
        only = with_notebook == {(assignment,)} or (len(roots) > 1 and len(with_notebook) <= 1)
        if whole and only and not of_platform:
            name = names.of_file(root.resolve().name)
            given = [((str(root.resolve()),), name, None, f) for *_, f in given]
            if not given:
                nothing = _Found((name,), frozenset(), (name,), root, kind="empty")
                given = [((str(root.resolve()),), name, None, nothing)]
        taken += given
    return _chosen(taken, assignment, which)


def of_one(folder: Path, student: str, assignment: str = "") -> Submission:
    """The submission of a student, to whom all that lies in `folder` belongs."""
    found = list(_in_folder(folder)) or [
        _Found((student,), frozenset(), (student,), folder, kind="empty")
    ]
    given: list[_Given] = [((student,), student, None, f) for f in found]
    return max(_of_student(student, given, assignment, "name"), key=lambda s: (s.time, s.label))


# ---- what lies where


def _in_folder(root: Path, parts: tuple[str, ...] = (), raw: tuple[str, ...] = ()) -> Iterator[
    _Found
]:  # fmt: skip
    try:
        entries = sorted(root.iterdir(), key=lambda p: os.fsencode(p.name))
    except OSError as error:
        why = f"cannot be read: {error.strerror}"
        yield _Found(parts or (root.name,), frozenset(), raw, root, kind="problem", problem=why)
        return
    entries = [p for p in entries if not _ignored(p.name)]
    if not entries and parts:
        yield _Found(parts, frozenset(), raw, root, kind="empty")
    for path in entries:
        hidden = path.name.startswith(".")
        if path.is_dir() and not path.is_symlink():
            # A student may be called so; a folder within a student's is a program's.
            if hidden and parts:
                continue
            here, exact = (*parts, names.of_file(path.name)), (*raw, path.name)
            if path.suffix.lower() == ".ipynb":
                yield _Found(here, frozenset(), exact, path, problem="a folder")
            yield from _in_folder(path, here, exact)
        elif not (hidden and not parts):
            yield from _at(path, parts, raw, frozenset())


def _at(
    path: Path, parts: tuple[str, ...], raw: tuple[str, ...], boxes: frozenset[int]
) -> Iterator[_Found]:
    """The file at `path`, or what is in it."""
    parts, raw = (*parts, names.of_file(path.name)), (*raw, path.name)
    one = _Found(parts, boxes, raw, path)
    try:
        status = path.lstat()
    except OSError as error:
        yield replace(one, kind="problem", problem=f"cannot be read: {error.strerror}")
        return
    one = replace(one, time=status.st_mtime)
    if stat.S_ISLNK(status.st_mode):
        what = "a link to a folder" if path.is_dir() else "a link, not a file"
        yield replace(one, kind="problem", problem=f"{what}; not followed")
    elif not stat.S_ISREG(status.st_mode):
        yield replace(one, kind="problem", problem="not a file")
    elif archives.is_archive(path.name):
        yield from _in_archive(one)
    else:
        yield _sorted(one)


def _in_archive(box: _Found) -> Iterator[_Found]:
    """What is in the archive `box`, which may itself be in one."""
    boxes = box.boxes | {len(box.parts) - 1}
    kind = "zip file" if box.parts[-1].lower().endswith(".zip") else "archive"
    try:
        found = archives.members(box.path, box.inside)
    except archives.ArchiveError as error:
        yield replace(box, kind="problem", problem=f"not a readable {kind}: {error}")
        return
    some = False
    for member in found:
        own = tuple(p for p in member.shown.split("/") if p not in ("", "."))
        if any(_ignored(p) or p.startswith(".") for p in own) and not member.problem:
            continue
        some = True
        one = _Found(
            (*box.parts, *(own or (member.shown,))), boxes, (*box.raw, member.name), box.path,
            (*box.inside, member.name), time=member.time,
        )  # fmt: skip
        if member.problem:
            yield replace(
                one, parts=(*box.parts, "?"), kind="problem",
                problem=f"a file in the {kind}: {member.problem}",
            )  # fmt: skip
        elif archives.is_archive(member.shown) and len(one.inside) < archives.DEPTH:
            yield from _in_archive(one)
        else:
            yield _sorted(one)
    if not some:
        yield replace(box, problem=f"an empty {kind}")


def _sorted(one: _Found) -> _Found:
    name = one.parts[-1]
    notebook = name.lower().endswith(".ipynb") and not name.startswith(".")
    return replace(one, kind="notebook" if notebook else "other")


def _ignored(name: str) -> bool:
    return name.lower() in _IGNORED or name.startswith("._")


# ---- whose it is


_Given = tuple[tuple[str, ...], str, names.Sender | None, _Found]


def _given(found: list[_Found], depth: int = 0, *, alone: bool) -> Iterator[_Given]:
    """Each thing with what identifies its student, the student's name, and the platform's word.

    `alone`: nothing else was given, so that a single archive is that of the class.
    """
    groups: dict[str, list[_Found]] = {}
    for one in found:
        groups.setdefault(one.raw[depth] if depth < len(one.raw) else one.parts[-1], []).append(one)
    if depth:
        # In an archive the raw names are whole paths: there the readable ones tell.
        groups = {}
        for one in found:
            groups.setdefault(one.parts[min(depth, len(one.parts) - 1)], []).append(one)
    senders = {name: _sent(one, depth) for name, one in groups.items()}
    if _of_platform(senders, len(groups), alone=alone):
        for name, some in groups.items():
            if who := senders[name]:
                yield from (((who.platform, who.name, who.key), who.name, who, f) for f in some)
            else:
                yield from _plain(some, depth)
        return
    if len(groups) == 1 and alone and _is_box(found, depth):
        below = {one.parts[depth + 1] for one in found if len(one.parts) > depth + 1}
        single = len(below) < 2 and all(
            len(f.parts) == depth + 2 and f.kind == "notebook" for f in found
        )
        if below and not single:
            yield from _given(found, depth + 1, alone=True)
            return
    if len(groups) == 1 and alone and depth:
        # The folder in which the class lies, if there are several folders in it.
        inner = {one.parts[depth + 1] for one in found if len(one.parts) > depth + 2}
        if len(inner) > 1:
            yield from _given(found, depth + 1, alone=False)
            return
    for some in groups.values():
        within = {f.parts[depth + 1] for f in some if len(f.parts) > depth + 1}
        sent = {name: names.sender(archives.without_suffix(name)) or names.sender(name)
                for name in within}  # fmt: skip
        if within and _of_platform(sent, len(within), alone=False):
            yield from _given(some, depth + 1, alone=False)
        else:
            yield from _plain(some, depth)


def _plain(some: list[_Found], depth: int) -> Iterator[_Given]:
    """Things that belong to one student, or to the students of their own names."""
    for one in some:
        part = one.parts[min(depth, len(one.parts) - 1)]
        if depth == len(one.parts) - 1 and one.kind != "empty":
            # A file: the students' names are without what says which kind of file.
            name = archives.without_suffix(part)
            if name == part and "." in part.strip(".") and one.problem != "a folder":
                name = part.rsplit(".", 1)[0]
                if name.lower().endswith(".ipynb"):
                    name = name[: -len(".ipynb")]
        else:
            name = archives.without_suffix(part) if depth in one.boxes else part
        exact = one.raw[depth] if depth < len(one.raw) and not one.inside else part
        key = name if exact == part else exact
        yield (key,), name, None, one


def _sent(some: list[_Found], depth: int) -> names.Sender | None:
    part = some[0].parts[min(depth, len(some[0].parts) - 1)]
    if some[0].parts[-1] == part:
        return names.sender(part)
    return names.sender(part) or names.sender(archives.without_suffix(part))


def _of_platform(senders: dict[str, names.Sender | None], count: int, *, alone: bool) -> bool:
    """Whether these are a platform's names, and not such as a student may have thought of."""
    known = [s for s in senders.values() if s]
    if any(s.platform != names.VAGUE for s in known):
        return True
    enough = 1 if alone else 2
    return len({s.key for s in known}) >= enough and 2 * len(known) >= count


def _is_box(found: list[_Found], depth: int) -> bool:
    return all(depth in one.boxes for one in found)


# ---- which of a student's count


def _chosen(taken: list[_Given], assignment: str, which: str) -> list[Submission]:
    whose: dict[tuple[str, ...], list[_Given]] = {}
    for given in taken:
        whose.setdefault(given[0], []).append(given)
    called = _called({key: some[0][1] for key, some in whose.items()})
    found: list[Submission] = []
    for key, some in whose.items():
        found += _of_student(called[key], some, assignment, which)
    return sorted(dict.fromkeys(found), key=lambda s: (s.student, s.label))


def _called(given: dict[tuple[str, ...], str]) -> dict[tuple[str, ...], str]:
    """A name for each student; two of the same name are told apart by what identifies them."""
    count: dict[str, int] = {}
    for name in given.values():
        count[name] = count.get(name, 0) + 1
    return {
        key: name if count[name] == 1 or key == (name,) else f"{name} ({names.escaped(key[-1])})"
        for key, name in given.items()
    }


def _of_student(student: str, some: list[_Given], assignment: str, which: str) -> list[Submission]:
    things = [f for *_, f in some]
    candidates = [(sender, f) for _, _, sender, f in some if f.kind == "notebook"]
    broken = [f for f in things if f.kind == "problem"]
    if not candidates:
        sender = some[0][2]
        at = (broken or things)[0]
        return [Submission(student, at.path, at.inside, _nothing(things), (), at.time, sender)]
    all_ = [
        Submission(student, f.path, f.inside, time=_time(sender, f), sender=sender)
        for sender, f in candidates
    ]
    all_ = list(dict.fromkeys(all_))
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
        left = [s.file for s in all_ if s not in kept]
        told = ", ".join(left[:5]) + (f" and {len(left) - 5} more" if len(left) > 5 else "")
        if len(kept) == 1:
            taken = f"of {len(all_)} notebooks {kept[0].file} counts, since {why}"
        else:
            taken = f"{len(all_)} notebooks: {why}"
        remarks.append(f"{taken}; not {told}")
    if any(s.sender and s.sender.late for s in kept):
        remarks.append("handed in late, says the platform")
    return [replace(s, remarks=tuple(remarks)) for s in kept]


def _time(sender: names.Sender | None, found: _Found) -> float:
    if sender and sender.when:
        return datetime.fromisoformat(sender.when).timestamp()
    return found.time


def _nothing(things: list[_Found]) -> str:
    """Why there is nothing to grade, from what there is in its place."""
    if broken := [f.problem for f in things if f.kind == "problem"]:
        return "; ".join(dict.fromkeys(broken))
    others = [f for f in things if f.kind == "other"]
    if not others:
        return "no notebook found (the folder is empty)"
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
