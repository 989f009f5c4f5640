"""Finds what students handed in, and reads it without trusting it."""

from __future__ import annotations

import hashlib
import os
import stat
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

# A notebook with that much output is still graded; only its code matters.
SIZE_LIMIT = 300 << 20
_IGNORED = ("__MACOSX", "__pycache__")


class UnreadableError(ValueError):
    """A file that was handed in and cannot be read; says why."""


@dataclass(frozen=True)
class Submission:
    """A notebook that was handed in: a file, or a member of a zip file."""

    student: str
    path: Path
    member: str = ""
    # Why it will not be read, where that is clear from its place.
    problem: str = ""

    @property
    def label(self) -> str:
        """The file, for a person."""
        return f"{self.path}!{self.member}" if self.member else str(self.path)


def find(roots: list[Path], assignment: str = "") -> list[Submission]:
    """All submissions to `assignment` in these files and folders.

    In a folder, each folder in it belongs to the student of its name, and so does each file. A zip
    file counts as a folder. Of several folders, one with a single student in it is that student's
    (`submitted/*`), and so is one in which the assignment itself lies.

    Raises:
        FileNotFoundError: if one of `roots` does not exist.
    """
    found: list[Submission] = []
    for root in roots:
        if root.is_dir():
            inside = list(_in_folder(root))
            students = {s.student for s in inside}
            if len(students) == 1 and (students == {assignment} or len(roots) > 1):
                inside = [replace(s, student=root.resolve().name) for s in inside]
            found += inside
        elif root.suffix.lower() == ".zip" and root.is_file():
            found += _in_zip(root, None)
        elif root.exists() or root.is_symlink():
            found.append(_one(root.stem, root))
        else:
            raise FileNotFoundError(f"{root}: there is no such file or folder")
    return sorted(set(found), key=lambda s: (s.student, str(s.path), s.member))


def _in_folder(root: Path) -> Iterator[Submission]:
    for folder, folders, files in os.walk(root, followlinks=False):
        here = Path(folder)
        inner = here.relative_to(root).parts
        for name in list(folders):
            if name.startswith(".") or name in _IGNORED:
                folders.remove(name)
            elif (here / name).is_symlink():
                student = inner[0] if inner else name
                yield Submission(student, here / name, problem="a link to a folder; not followed")
        for name in files:
            path = here / name
            if name.startswith(".") or path.suffix.lower() not in (".ipynb", ".zip"):
                continue
            student = inner[0] if inner else path.stem
            if path.suffix.lower() == ".zip" and not path.is_symlink():
                yield from _in_zip(path, student)
            else:
                yield _one(student, path)


def _one(student: str, path: Path) -> Submission:
    try:
        mode = path.lstat().st_mode
    except OSError as error:
        return Submission(student, path, problem=f"cannot be read: {error.strerror}")
    if stat.S_ISLNK(mode):
        return Submission(student, path, problem="a link, not a file; not followed")
    if not stat.S_ISREG(mode):
        return Submission(student, path, problem="not a file")
    return Submission(student, path)


def _in_zip(path: Path, student: str | None) -> Iterator[Submission]:
    try:
        with zipfile.ZipFile(path) as archive:
            members = [
                i.filename
                for i in archive.infolist()
                if i.filename.lower().endswith(".ipynb")
                and not any(p.startswith(".") or p in _IGNORED for p in i.filename.split("/"))
            ]
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        yield Submission(student or path.stem, path, problem=f"not a readable zip file: {error}")
        return
    if not members:
        yield Submission(student or path.stem, path, problem="there is no notebook in the zip file")
    for member in members:
        parts = member.split("/")
        own = parts[0] if len(parts) > 1 else Path(member).stem
        yield Submission(student or (own if len(members) > 1 else path.stem), path, member)


def read(submission: Submission) -> bytes:
    """The bytes of a submission.

    Raises:
        UnreadableError: if it cannot be read, is no file, or is too large.
    """
    if submission.problem:
        raise UnreadableError(submission.problem)
    try:
        if submission.member:
            with (
                zipfile.ZipFile(submission.path) as archive,
                archive.open(submission.member) as file,
            ):
                data = file.read(SIZE_LIMIT + 1)
        else:
            # A link or a pipe may have taken the file's place.
            flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
            flags |= getattr(os, "O_BINARY", 0)
            with os.fdopen(os.open(submission.path, flags), "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise UnreadableError("not a file")
                data = file.read(SIZE_LIMIT + 1)
    except UnreadableError:
        raise
    except (OSError, zipfile.BadZipFile, ValueError, RuntimeError, KeyError, EOFError,
            NotImplementedError) as error:  # fmt: skip
        raise UnreadableError(f"cannot be read: {error}") from None
    except Exception as error:  # zlib and lzma raise their own
        raise UnreadableError(f"cannot be unpacked: {error}") from None
    if len(data) > SIZE_LIMIT:
        raise UnreadableError(f"larger than {SIZE_LIMIT >> 20} MB; clear its outputs")
    return data


def digest(submission: Submission) -> str:
    """What identifies the content of a submission."""
    hashed = hashlib.sha256(submission.problem.encode())
    try:
        hashed.update(read(submission))
    except UnreadableError as error:
        hashed.update(f"unreadable: {error}".encode())
    return hashed.hexdigest()
