"""What names say: in which encoding they are, who handed a file in, and which two look alike."""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime


def readable(raw: bytes, otherwise: str = "cp437") -> str:
    """A name as a person reads it, whatever it was written in.

    UTF-8; then the two-byte characters of Chinese systems, which come in pairs; then Latin-1, whose
    letters stand alone, or what `otherwise` names.
    """
    try:
        return raw.decode()
    except UnicodeDecodeError:
        pass
    if re.fullmatch(rb"(?:[\x00-\x7f]|[\xa1-\xf7][\xa1-\xfe])+", raw):
        return raw.decode("gb18030", "replace")
    if otherwise == "latin-1" and any(0x7F < byte < 0xA0 for byte in raw):
        otherwise = "cp437"  # a letter of DOS, where Latin-1 has none
    return raw.decode(otherwise, "replace")


def of_file(name: str) -> str:
    """The name of a file of this system, as a person reads it."""
    return name if name.isascii() else readable(os.fsencode(name), "latin-1")


def escaped(name: str) -> str:
    """A name of which no two are alike: bytes that are no text are written as numbers."""
    return name.encode(errors="surrogateescape").decode(errors="backslashreplace")


# ---- names that a learning platform gives to what it lets a teacher download


@dataclass(frozen=True)
class Sender:
    """Who handed a file in, as the platform's name of the file says."""

    platform: str
    name: str
    # The platform's own number or login of the student.
    key: str
    # What the student called the file, if the name says it.
    title: str = ""
    late: bool = False
    # When it was handed in, as YYYY-MM-DD HH:MM:SS, if the name says it.
    when: str = ""
    # The whole name.
    given: str = ""


_CANVAS = re.compile(
    r"(?P<name>[^_]+)(?P<late>_late)?_(?P<key>\d+)_(?:\d+_(?P<title>.+)|text\.html)", re.I | re.S
)
_MOODLE = re.compile(
    r"(?P<name>.+?)_(?P<key>\d+)_assignsubmission_(?:file|onlinetext)(?:_(?P<title>.*))?", re.S
)
_BLACKBOARD = re.compile(
    r"(?P<assignment>.+)_(?P<key>[^_]+)_attempt_(?P<when>\d{4}(?:-\d\d){5})(?:_(?P<title>.+)|\.txt)",
    re.S,
)
_BRIGHTSPACE = re.compile(r"(?P<key>\d+)-\d+ - (?P<name>.+?) - (?P<when>.+\d{4}.*)", re.S)
_PATTERNS = {
    "Moodle": _MOODLE, "Blackboard": _BLACKBOARD, "Brightspace": _BRIGHTSPACE, "Canvas": _CANVAS,
}  # fmt: skip
# A name of this platform's may be one that a student chose: two of them are needed.
VAGUE = "Canvas"


def sender(name: str) -> Sender | None:
    """Who handed in the file or folder of this name, if it is one of a platform's.

    The forms are those of Canvas (`doejane_LATE_123_456_hw.ipynb`), Moodle
    (`Jane Doe_123_assignsubmission_file_`, with or without the file's name), Blackboard
    (`hw_jdoe_attempt_2026-03-01-12-30-00_hw.ipynb`) and Brightspace
    (`123-456 - Jane Doe - Mar 1, 2026 1230 PM`).
    """
    for platform, pattern in _PATTERNS.items():
        if (found := pattern.fullmatch(name)) is None:
            continue
        parts = {k: v or "" for k, v in found.groupdict().items()}
        who = parts.get("name") or parts["key"]
        return Sender(
            platform, who.strip(), parts.get("key", ""), parts.get("title", ""),
            bool(parts.get("late")), _when(parts.get("when", "")), name,
        )  # fmt: skip
    return None


def _when(text: str) -> str:
    for form in ("%Y-%m-%d-%H-%M-%S", "%b %d, %Y %I%M %p", "%b %d, %Y %I-%M %p",
                 "%b %d, %Y %I:%M %p"):  # fmt: skip
        try:
            # Of one clock, the platform's; it is only compared with others of it.
            return datetime.strptime(text.strip(), form).isoformat(" ")
        except ValueError:
            continue
    return ""


# ---- the file that an assignment asks for


_COPIES = re.compile(r"[-_ ]*(?:\(\d+\)|copy ?\d*|\d+|final|v\d+)$", re.I)


def asked_for(file: str, assignment: str) -> bool:
    """Whether a file has the assignment's name, as it is or as the copy of a copy."""
    stem = file.rsplit(".", 1)[0]
    for _ in range(4):
        if _words(stem) == _words(assignment):
            return True
        stem = _COPIES.sub("", stem)
    return False


def _words(text: str) -> str:
    return re.sub(r"[-_ ]+", "-", unicodedata.normalize("NFC", text).casefold()).strip("-")


# ---- names that a person would take for one another


def folded(name: str) -> str:
    """What is left of a name when case, accents, width, spaces and signs are not looked at."""
    plain = unicodedata.normalize("NFKD", name).casefold()
    return "".join(c for c in plain if c.isalnum()) or name


def alike(names: Iterable[str]) -> list[list[str]]:
    """Groups of different names that look alike."""
    groups: dict[str, set[str]] = {}
    for name in names:
        groups.setdefault(folded(name), set()).add(name)
    return [sorted(group) for _, group in sorted(groups.items()) if len(group) > 1]


def page_names(students: Iterable[str]) -> dict[str, str]:
    """A file name for each student's page, which every file system takes.

    A name that is its own file name keeps it. Any other, and any that another student's would
    replace where case or composition is not looked at, ends in a digest of the exact name: so it is
    the same in every run, whoever else is there.
    """
    wanted = {student: _safe(student) for student in dict.fromkeys(students)}
    count: dict[str, int] = {}
    for safe in wanted.values():
        place = unicodedata.normalize("NFKC", safe).casefold()
        count[place] = count.get(place, 0) + 1
    found = {}
    for student, safe in wanted.items():
        exact = safe == student and unicodedata.is_normalized("NFC", student)
        if not exact or count[unicodedata.normalize("NFKC", safe).casefold()] > 1:
            mark = hashlib.sha256(student.encode(errors="surrogatepass")).hexdigest()[:8]
            safe = f"{safe}-{mark}"
        found[student] = safe
    return found


# Names that Windows gives to devices.
_DEVICES = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?", re.I)


def _safe(name: str) -> str:
    text = re.sub(r"[^\w\-. ]", "_", name).strip(". ")
    while len(text.encode()) > 120:
        text = text[:-1]
    return "unnamed" if not text or _DEVICES.fullmatch(text) else text
