"""Looks into archives that were handed in, and reads their members, without trusting them.

Zip and tar, plain or compressed, in one another up to three deep. Nothing is written to a disk. The
sizes that an archive claims are not believed: what is unpacked is counted.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from book.grading import names

SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
# Archives of which Python's library knows nothing.
FOREIGN = (".rar", ".7z")
DEPTH = 3
MEMBERS = 50_000
# An archive within another, and a tar, are unpacked in memory.
UNPACKED = 100 << 20


class ArchiveError(ValueError):
    """An archive that cannot be read, or that will not be; says why."""


@dataclass(frozen=True)
class Member:
    """A file in an archive."""

    # As the archive has it, by which it is found again, and as a person reads it.
    name: str
    shown: str
    # Seconds since 1970, as the archive says.
    time: float
    # Why it will not be read.
    problem: str = ""


def is_archive(name: str) -> bool:
    """Whether a file of this name is an archive that can be looked into."""
    return name.lower().endswith(SUFFIXES)


def without_suffix(name: str) -> str:
    """The name of an archive without what says that it is one."""
    for suffix in sorted(SUFFIXES, key=len, reverse=True):
        if name.lower().endswith(suffix):
            return name[: -len(suffix)]
    return name


def members(path: Path, inside: tuple[str, ...] = ()) -> list[Member]:
    """The files in the archive at `path`, or in the archive that lies in it at `inside`.

    Raises:
        ArchiveError: if it cannot be read.
    """
    with _opened(path, inside) as archive:
        if isinstance(archive, zipfile.ZipFile):
            zipped = archive.infolist()
            if len(zipped) > MEMBERS:
                raise ArchiveError(f"it holds more than {MEMBERS} files")
            return [_zipped(info) for info in zipped if not info.is_dir()]
        found = []
        for number, entry in enumerate(archive):
            if number > MEMBERS:
                raise ArchiveError(f"it holds more than {MEMBERS} files")
            if not entry.isdir():
                shown = names.of_file(entry.name)
                problem = _leaves(shown) if entry.isfile() else "a link or a device in an archive"
                found.append(Member(entry.name, shown, float(entry.mtime), problem))
        return found


def read(path: Path, inside: tuple[str, ...], limit: int) -> bytes:
    """The bytes of a member, at most `limit` and one more.

    Raises:
        ArchiveError: if it cannot be read.
    """
    with _opened(path, inside[:-1]) as archive, _reading(archive, inside[-1]) as file:
        return file.read(limit + 1)


def _zipped(info: zipfile.ZipInfo) -> Member:
    shown = info.filename
    # Without the mark for UTF-8 the name was read as that of a DOS file.
    if not info.flag_bits & 0x800 and not shown.isascii():
        shown = names.readable(shown.encode("cp437", "replace"))
    shown = shown.replace("\\", "/")
    when = 0.0
    with suppress(ValueError, OverflowError):  # a date that there is not
        when = time.mktime((*info.date_time, 0, 0, -1))
    return Member(info.filename, shown, when, _leaves(shown))


def _leaves(name: str) -> str:
    if name.startswith("/") or ".." in name.split("/") or name[1:2] == ":":
        return f"its path leads out of the archive ({name}); it was not read"
    return ""


@contextmanager
def _opened(path: Path, inside: tuple[str, ...]) -> Iterator[zipfile.ZipFile | tarfile.TarFile]:
    with _told():
        if not inside:
            with path.open("rb") as file, _archive(file, path.name) as archive:
                yield archive
            return
        with _opened(path, inside[:-1]) as outer, _reading(outer, inside[-1]) as inner:
            data = inner.read(UNPACKED + 1)
        if len(data) > UNPACKED:
            raise ArchiveError(f"an archive of more than {UNPACKED >> 20} MB in an archive")
        with _archive(io.BytesIO(data), inside[-1]) as archive:
            yield archive


@contextmanager
def _archive(file: IO[bytes], name: str) -> Iterator[zipfile.ZipFile | tarfile.TarFile]:
    if name.lower().endswith(".zip"):
        with zipfile.ZipFile(file) as zipped:
            yield zipped
        return
    # The size of a tar shows only when it is unpacked.
    start = file.read(6)
    file.seek(0)
    unpack: Callable[..., Any] | None = None
    for mark, opener in ((b"\x1f\x8b", gzip.open), (b"BZh", bz2.open), (b"\xfd7zXZ", lzma.open)):
        if start.startswith(mark):
            unpack = cast(Callable[..., Any], opener)
    if unpack is None:
        plain: IO[bytes] = file
    else:
        with unpack(file) as packed:
            data = packed.read(UNPACKED + 1)
        if len(data) > UNPACKED:
            raise ArchiveError(f"it holds more than {UNPACKED >> 20} MB")
        plain = io.BytesIO(data)
    with tarfile.open(fileobj=plain, mode="r:", errors="surrogateescape") as tar:
        yield tar


@contextmanager
def _reading(archive: zipfile.ZipFile | tarfile.TarFile, name: str) -> Iterator[IO[bytes]]:
    if isinstance(archive, zipfile.ZipFile):
        with archive.open(name) as file:
            yield file
        return
    member = archive.getmember(name)
    found = archive.extractfile(member) if member.isfile() else None
    if found is None:
        raise ArchiveError(f"{name} is not a file")
    with found:
        yield found


@contextmanager
def _told() -> Iterator[None]:
    """Whatever a broken archive makes the library raise becomes one error with words."""
    try:
        yield
    except (ArchiveError, MemoryError):
        raise
    except RuntimeError as error:
        why = "it is locked with a password" if "encrypted" in str(error) else str(error)
        raise ArchiveError(why) from None
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, OSError, ValueError,
            KeyError, EOFError, NotImplementedError, OverflowError) as error:  # fmt: skip
        raise ArchiveError(str(error) or type(error).__name__) from None
