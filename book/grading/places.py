"""What lies in the folders and archives that were handed in: notebooks, and what is none."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from book.grading import archives, names

# What programs leave behind. The second line are things of the platforms and of nbgrader.
_IGNORED = {
    "__macosx", "__pycache__", ".ipynb_checkpoints", ".git", ".ds_store", "thumbs.db",
    "desktop.ini", ".vscode", ".idea", ".venv", ".jupyter", ".cache", ".config", ".local",
    "index.html", "timestamp.txt",
}  # fmt: skip


@dataclass(frozen=True)
class Found:
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

    def part(self, depth: int) -> str:
        """The readable name at `depth`, or the last one."""
        return self.parts[min(depth, len(self.parts) - 1)]


def in_folder(root: Path, parts: tuple[str, ...] = (), raw: tuple[str, ...] = ()) -> Iterator[
    Found
]:  # fmt: skip
    """What lies in a folder, and in what lies there."""
    try:
        entries = sorted(root.iterdir(), key=lambda p: os.fsencode(p.name))
    except OSError as error:
        why = f"cannot be read: {error.strerror}"
        yield Found(parts or (root.name,), frozenset(), raw, root, kind="problem", problem=why)
        return
    some = False
    for path in entries:
        for one in _entry(path, parts, raw):
            some = True
            yield one
    if not some and parts:
        why = _only([p.name for p in entries], "folder")
        yield Found(parts, frozenset(), raw, root, kind="empty", problem=why)


def _entry(path: Path, parts: tuple[str, ...], raw: tuple[str, ...]) -> Iterator[Found]:
    hidden = path.name.startswith(".")
    if _ignored(path.name):
        return
    if path.is_dir() and not path.is_symlink():
        # A student may be called so; a folder within a student's is a program's.
        if hidden and parts:
            return
        here, exact = (*parts, names.of_file(path.name)), (*raw, path.name)
        if path.suffix.lower() == ".ipynb":
            yield Found(here, frozenset(), exact, path, problem="a folder")
        yield from in_folder(path, here, exact)
    elif parts or not hidden or (path.suffix.lower() == ".ipynb" and path.name[1:2] != "~"):
        yield from at(path, parts, raw)


def at(path: Path, parts: tuple[str, ...] = (), raw: tuple[str, ...] = ()) -> Iterator[Found]:
    """The file at `path`, or what is in it."""
    parts, raw = (*parts, names.of_file(path.name)), (*raw, path.name)
    one = Found(parts, frozenset(), raw, path)
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


def _in_archive(box: Found) -> Iterator[Found]:
    """What is in the archive `box`, which may itself be in one."""
    boxes = box.boxes | {len(box.parts) - 1}
    kind = "zip file" if box.parts[-1].lower().endswith(".zip") else "archive"
    try:
        found = archives.members(box.path, box.inside)
    except archives.ArchiveError as error:
        yield replace(box, kind="problem", problem=f"not a readable {kind}: {error}")
        return
    passed: list[str] = []
    some = False
    for member in found:
        own = tuple(p for p in member.shown.split("/") if p not in ("", "."))
        if any(_ignored(p) or p.startswith(".") for p in own) and not member.problem:
            passed.append(member.shown)
            continue
        some = True
        one = Found(
            (*box.parts, *(own or (member.shown,))), boxes, (*box.raw, member.name), box.path,
            (*box.inside, member.name), time=member.time,
        )  # fmt: skip
        if member.problem:
            yield replace(
                one, parts=(*box.parts, "?"), kind="problem",
                problem=f"a file in the {kind}: {member.problem}",
            )  # fmt: skip
        elif not archives.is_archive(member.shown):
            yield _sorted(one)
        elif len(one.inside) < archives.DEPTH:
            yield from _in_archive(one)
        else:
            yield replace(
                one, kind="problem",
                problem=f"nested too deep: more than {archives.DEPTH} archives in one another; "
                f"hand in {one.parts[-1]} itself",
            )  # fmt: skip
    if not some:
        yield replace(box, problem=_only(passed, kind))


def _only(passed: list[str], kind: str) -> str:
    """What is wrong with a folder or an archive in which nothing may be a submission."""
    if not passed:
        return "the folder is empty" if kind == "folder" else f"an empty {kind}"
    told = ", ".join(passed[:5]) + (f" and {len(passed) - 5} more" if len(passed) > 5 else "")
    return f"the {kind} holds only {told}"


def _sorted(one: Found) -> Found:
    name = one.parts[-1]
    notebook = name.lower().endswith(".ipynb") and not name.startswith(".")
    return replace(one, kind="notebook" if notebook else "other")


def _ignored(name: str) -> bool:
    return name.lower() in _IGNORED or name.startswith("._")
