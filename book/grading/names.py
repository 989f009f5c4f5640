"""What names say: in which encoding they are, who handed a file in, and which two look alike."""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
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


# What would steer a terminal, end a line, or turn the direction of what follows.
_STEERING = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def escaped(name: str) -> str:
    """A name as it may be printed, of which no two are alike.

    Bytes that are no text, and characters that a terminal would obey, are written as numbers.
    """
    text = name.encode(errors="surrogateescape").decode(errors="backslashreplace")
    return _STEERING.sub(lambda found: repr(found[0])[1:-1], text)


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
# What the student chose comes last: the first place that fits is the platform's.
_BLACKBOARD = re.compile(
    r"(?P<before>.+?_(?P<key>[^_]+))_attempt_(?P<when>\d{4}(?:-\d\d){5})(?:_(?P<title>.+)|\.txt)",
    re.S,
)
_BRIGHTSPACE = re.compile(r"(?P<key>\d+)-\d+ - (?P<name>.+?) - (?P<when>.+\d{4}.*)", re.S)
_PATTERNS = {
    "Moodle": _MOODLE, "Blackboard": _BLACKBOARD, "Brightspace": _BRIGHTSPACE, "Canvas": _CANVAS,
}  # fmt: skip
# No file system has longer ones, and an archive may, to make whoever looks at them slow.
LONGEST = 255
# A name of this platform's may be one that a student chose: two of them are needed.
VAGUE = "Canvas"


def sender(name: str) -> Sender | None:
    """Who handed in the file or folder of this name, if it is one of a platform's.

    The forms are those of Canvas (`doejane_LATE_123_456_hw.ipynb`), Moodle
    (`Jane Doe_123_assignsubmission_file_`, with or without the file's name), Blackboard
    (`hw_jdoe_attempt_2026-03-01-12-30-00_hw.ipynb`) and Brightspace
    (`123-456 - Jane Doe - Mar 1, 2026 1230 PM`).
    """
    if len(name) > LONGEST:
        return None
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


def logins(
    senders: dict[str, Sender | None], known: Callable[[str], bool], assignment: str
) -> dict[str, Sender | None]:
    """Senders with Blackboard's logins whole, which may have a `_` in them.

    Their files begin with the same words, the assignment's: what is left is the login. Of several
    places where these words may end, the one counts after which most logins are `known`, or before
    which the assignment's own name stands, or else the last.
    """
    before = {name: found["before"] for name, sender in senders.items()
              if sender and (found := _BLACKBOARD.fullmatch(sender.given))}  # fmt: skip
    if not before:
        return senders
    texts = set(before.values())
    first = min(texts, key=len)
    ends = [n + 1 for n, letter in enumerate(first[:-1]) if letter == "_"]
    # A few are enough, and a student's archive may have thousands of such names.
    ends = [n for n in ends[-6:] if all(text.startswith(first[:n]) for text in texts)]

    def fits(end: int) -> tuple[int, bool, int]:
        of_list = sum(known(text[end:]) for text in texts)
        return of_list, _words(first[:end]) == _words(assignment), end

    if ends and (len(texts) > 1 or fits(max(ends, key=fits))[:2] != (0, False)):
        end = max(ends, key=fits)
        login = {text: text[end:] for text in texts}
    else:
        # Of one student, or of several assignments: the last word, if it is no other one's too.
        login = {text: _known_end(text, known) for text in texts}
        count = Counter(login.values())
        login = {text: text if count[key] > 1 else key for text, key in login.items()}
    return {
        name: replace(sender, name=login[before[name]], key=login[before[name]])
        if sender and name in before else sender
        for name, sender in senders.items()
    }  # fmt: skip


def _known_end(text: str, known: Callable[[str], bool]) -> str:
    """What is `known` of the end of a text, or its last word."""
    words = text.split("_")
    ends = ["_".join(words[n:]) for n in range(max(1, len(words) - 6), len(words))]
    return next((end for end in ends if known(end)), words[-1])


# ---- the file that an assignment asks for


_COPIES = re.compile(r"[-_ ]*(?:\(\d+\)|copy ?\d*|\d+|final|v\d+)$", re.I)


def asked_for(file: str, assignment: str) -> bool:
    """Whether a file has the assignment's name, as it is or as the copy of a copy."""
    stem = file.rsplit(".", 1)[0]
    if len(stem) > LONGEST:
        return False
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
