"""The list of a course: who is in it, and whose a submission is.

A roster is a table with a header, as a platform exports it or a teacher writes it: `id`, `name`,
`e-mail`, `section`, `due`, of which `name` or `id` has to be there.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from book.grading import names
from book.grading.submissions import Submission

# What the columns are called, without case, spaces and signs.
COLUMNS = {
    "id": ("id", "studentid", "sisuserid", "orgdefinedid", "username", "login", "sisloginid",
           "idnumber", "sid", "number", "matriculation", "学号"),
    "name": ("name", "fullname", "student", "studentname", "displayname", "姓名"),
    "email": ("email", "emailaddress", "mail", "邮箱"),
    "section": ("section", "group", "class", "tutorial", "班级"),
    # A deadline of the student's own.
    "due": ("due", "deadline", "extension", "截止"),
}  # fmt: skip
FIRST = ("firstname", "givenname", "forename")
LAST = ("lastname", "surname", "familyname")
# In an export of this platform its own number stands beside the school's.
KEYS = ("id", "canvasid", "participant", "identifier", "userid")


class RosterError(ValueError):
    """A roster that cannot be used; says what is wrong in which line."""


@dataclass(frozen=True)
class Person:
    """A line of the roster."""

    id: str
    name: str
    email: str = ""
    section: str = ""
    # Other numbers and logins by which a platform may name the person.
    keys: frozenset[str] = frozenset()
    # Which of the table's lines it is, from 0 after the header.
    line: int = 0
    # A deadline of the person's own, as it is written there.
    due: str = ""


class Roster:
    """The people of a course."""

    def __init__(self, people: list[Person]) -> None:
        self.people = people
        self._exact: dict[str, list[Person]] = {}
        self._loose: dict[str, list[Person]] = {}
        for person in people:
            for text in {person.id, person.name, person.email, *person.keys} - {""}:
                self._exact.setdefault(text, []).append(person)
            for text in _forms(person):
                self._loose.setdefault(text, []).append(person)

    def whose(self, submission: Submission) -> Person | None:
        """Whom a submission is of, if exactly one person fits.

        First the exact id, name or e-mail, then the platform's own key, then the name without case,
        accents and the order of its words.
        """
        sender = submission.sender
        asked = [self._exact.get(submission.student)]
        if sender:
            asked += [self._exact.get(sender.key), self._exact.get(sender.name)]
        asked += [self._loose.get(names.folded(submission.student)),
                  self._loose.get(_ordered(submission.student))]  # fmt: skip
        if sender:
            asked += [self._loose.get(names.folded(sender.name)),
                      self._loose.get(_ordered(sender.name))]  # fmt: skip
        for found in asked:
            if found and len({p.id for p in found}) == 1:
                return found[0]
        return None

    def missing(self, seen: Iterable[Person]) -> list[Person]:
        """Those of whom nothing was handed in."""
        there = {p.id for p in seen}
        return [p for p in self.people if p.id not in there]


def _forms(person: Person) -> set[str]:
    """Ways in which a folder or a platform writes a person, folded."""
    last, _, first = person.name.partition(",")
    words = person.name.replace(",", " ").split()
    wanted = {person.id, person.name, person.email, person.email.split("@")[0], *person.keys}
    if first.strip():
        wanted.add(f"{first} {last}")
    elif len(words) > 1:
        # Canvas writes the family name first.
        wanted.add(" ".join([words[-1], *words[:-1]]))
    return {names.folded(text) for text in wanted if text} | {_ordered(person.name)}


def _ordered(name: str) -> str:
    """The words of a name in alphabetical order."""
    plain = unicodedata.normalize("NFKD", name).casefold()
    plain = "".join(c for c in plain if not unicodedata.combining(c))
    return " ".join(sorted(re.findall(r"\w+", plain.replace("_", " "))))


def read(path: Path) -> Roster:
    """The roster in a file of comma-, semicolon- or tab-separated values.

    Raises:
        RosterError: if a column is missing, a line is incomplete, or an id stands twice.
    """
    try:
        text = decoded(path.read_bytes())
    except OSError as error:
        raise RosterError(f"{path}: {error.strerror}") from None
    return parse(text, str(path))


def parse(text: str, path: str) -> Roster:
    """The roster in a text, which came from `path`.

    Raises:
        RosterError: as for `read`.
    """
    head, lines = table(text)
    place = _columns(head)
    if "id" not in place and "name" not in place:
        raise RosterError(
            f"{path}: the first line has no column `id` or `name`; it is: {', '.join(head)}"
        )
    called = [plain(cell) for cell in head]
    known_by = [n for n, cell in enumerate(called) if cell in (*COLUMNS["id"], *KEYS)]
    people: list[Person] = []
    seen: dict[str, int] = {}
    for place_of, (number, line) in enumerate(lines):
        told = {what: line[n].strip() for what, n in place.items() if n < len(line)}
        name = told.get("name") or " ".join(x for x in (told.get("first"), told.get("last")) if x)
        if told.get("name", "").lower().replace(" ", "") in ("pointspossible", "student,test"):
            continue  # lines of a platform's own
        if not any(told.values()):
            continue
        id_ = told.get("id") or told.get("key") or told.get("email") or name
        if not id_:
            raise RosterError(f"{path}, line {number}: there is neither an id nor a name")
        if id_ in seen:
            raise RosterError(f"{path}, line {number}: the id {id_!r} stands in line {seen[id_]}")
        seen[id_] = number
        keys = {line[n].strip() for n in known_by if n < len(line)}
        # `Participant 501` of Moodle, `#501` of Brightspace.
        keys |= {re.sub(r"\D", "", key) for key in keys if not key.isalnum()}
        people.append(Person(id_, name or id_, told.get("email", ""), told.get("section", ""),
                             frozenset(keys - {""}), place_of, told.get("due", "")))  # fmt: skip
    if not people:
        raise RosterError(f"{path}: there is nobody in it")
    return Roster(people)


def decoded(data: bytes) -> str:
    """The text of a table, whatever program wrote it."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace")
    return names.readable(data.removeprefix(codecs.BOM_UTF8), "cp1252")


def separator(text: str) -> str:
    """What stands between the cells of a table."""
    return max(",;\t", key=text.split("\n", 1)[0].count)


def first_line(text: str) -> list[str]:
    """The header, exactly as it stands."""
    return next(csv.reader(io.StringIO(text), delimiter=separator(text)), [])


def table(text: str) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The header, and the other lines with their numbers."""
    reader = csv.reader(io.StringIO(text), delimiter=separator(text))
    lines: list[tuple[int, list[str]]] = []
    for line in reader:
        if any(cell.strip() for cell in line):
            lines.append((reader.line_num, line))
    return ([cell.strip() for cell in lines[0][1]], lines[1:]) if lines else ([], [])


def plain(cell: str) -> str:
    """What a column is called, without case, spaces and signs."""
    return re.sub(r"\W|_", "", cell.casefold())


def _columns(head: list[str]) -> dict[str, int]:
    called = [plain(cell) for cell in head]
    place: dict[str, int] = {}
    for what, known in COLUMNS.items():
        if found := [k for k in known if k in called]:
            place[what] = called.index(found[0])
    for what, known in (("first", FIRST), ("last", LAST)):
        if found := [k for k in known if k in called]:
            place[what] = called.index(found[0])
    # Where the school's number is there, `ID` is the platform's.
    school = [k for k in ("sisuserid", "idnumber", "orgdefinedid", "sisloginid") if k in called]
    if found := [k for k in KEYS if k in called]:
        place["key"] = called.index(found[0])
        if school:
            place["id"] = called.index(school[0])
    return place
