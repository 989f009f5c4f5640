"""The list of a course: who is in it, and whose a submission is.

A roster is a table with a header, as a platform exports it or a teacher writes it: `id`, `name`,
`e-mail`, `section`, `due`, of which `name` or `id` has to be there.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from book.grading import names, tables
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
# Columns of the school's own numbers: beside them `ID` is the platform's.
SCHOOL = ("sisuserid", "idnumber", "orgdefinedid", "sisloginid")


class RosterError(tables.TableError):
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
    # Those of them that are the platform's own numbers, and not the school's.
    numbers: frozenset[str] = frozenset()
    # Which of the table's lines it is, from 0 after the header.
    line: int = 0
    # A deadline of the person's own, as it is written there.
    due: str = ""
    # The line's number in the file, for messages.
    number: int = 0


@dataclass(frozen=True)
class Fit:
    """Whom a name fits, and what is to be said about that."""

    people: tuple[Person, ...] = ()
    remark: str = ""
    # Who else is meant by the remark: for the teacher alone.
    others: tuple[Person, ...] = ()

    @property
    def person(self) -> Person | None:
        """The only one whom it fits."""
        return self.people[0] if len(self.people) == 1 else None


class Roster:
    """The people of a course."""

    def __init__(self, people: list[Person], path: str = "") -> None:
        self.people, self.path = people, path
        exact: list[Callable[[Person], Iterable[str]]] = [
            lambda p: {p.id}, lambda p: {p.email}, lambda p: {p.name}, lambda p: p.keys,
        ]  # fmt: skip
        self._any = [*(_index(people, one) for one in exact), _index(people, _forms)]
        self._names = [self._any[2], _index(people, _forms_of_name)]
        self._numbers = _index(people, lambda p: p.numbers)

    def whose(self, submission: Submission) -> Person | None:
        """Whom a submission is of, if exactly one person fits."""
        return self.fit(submission.student, submission.sender).person

    def fit(self, name: str, sender: names.Sender | None = None) -> Fit:
        """Whom a name fits, which is that of a folder or file, or what a platform says.

        First the exact id, e-mail, name or login, then all of them without case, accents and the
        order of the words. Of a platform's file the name comes first. The platform's number only
        says which of several is meant, and who it is if the name fits nobody; it is compared with
        the platform's own numbers, and not with the school's, which may be the same by chance.
        """
        if sender is None:
            return Fit(_first(self._any, name))
        if sender.name == sender.key:
            # A login is all that this platform says.
            return Fit(_first(self._any, sender.key))
        named = _first(self._names, sender.name) or _first(self._any, sender.name)
        numbered = tuple(self._numbers.get(sender.key, ()))
        number = f"the platform's number {names.escaped(sender.key)}"
        by_id = tuple(self._any[0].get(sender.key, ()))
        if not named and not numbered and by_id:
            told = f"{number} is somebody's id too, perhaps by chance, and the name fits nobody"
            return Fit((), told, by_id)
        if not named:
            return Fit(numbered)
        if both := tuple(p for p in named if p in numbered):
            return Fit(both)
        if len(named) > 1:
            own = tuple(p for p in named if p in by_id)
            told = f"of several people of this name it is the one whose id is {number}"
            return Fit(own, told) if own else Fit(named)
        told = f"{number} is another one's in the roster; the name decides"
        return Fit(named, told, numbered) if numbered else Fit(named)

    def called(self, person: Person) -> str:
        """The person's name, with the id where another one has the same name."""
        shared = len(self._any[2][person.name]) > 1
        return f"{person.name} ({person.id})" if shared else person.name

    def namesakes(self) -> list[list[Person]]:
        """Those who have one name in common."""
        return [some for some in self._any[2].values() if len(some) > 1]

    def missing(self, seen: Iterable[Person]) -> list[Person]:
        """Those of whom nothing was handed in."""
        there = {p.id for p in seen}
        return [p for p in self.people if p.id not in there]


_Index = dict[str, list[Person]]


def _index(people: list[Person], texts: Callable[[Person], Iterable[str]]) -> _Index:
    found: _Index = {}
    for person in people:
        for text in set(texts(person)) - {""}:
            found.setdefault(text, []).append(person)
    return found


def _first(indexes: list[_Index], name: str) -> tuple[Person, ...]:
    """Whom the first index names that names a single person, or else those whom one names."""
    several: tuple[Person, ...] = ()
    for index in indexes:
        # What is folded may be somebody's exact word: only the last index has folded ones.
        folded = (names.folded(name), _ordered(name)) if index is indexes[-1] else ()
        for text in (name, *folded):
            found = tuple(index.get(text, ()))
            if len(found) == 1:
                return found
            several = several or found
    return several


def _forms_of_name(person: Person) -> set[str]:
    """Ways in which a folder or a platform writes a person's name, folded."""
    last, _, first = person.name.partition(",")
    words = person.name.replace(",", " ").split()
    wanted = {person.name}
    if first.strip():
        wanted.add(f"{first} {last}")
    elif len(words) > 1:
        # Canvas writes the family name first.
        wanted.add(" ".join([words[-1], *words[:-1]]))
    return {names.folded(text) for text in wanted} | {_ordered(person.name)}


def _forms(person: Person) -> set[str]:
    """Ways in which a person's name, id, login or e-mail is written, folded."""
    wanted = {person.id, person.email, person.email.split("@")[0], *person.keys}
    return {names.folded(text) for text in wanted if text} | _forms_of_name(person)


def _ordered(name: str) -> str:
    """The words of a name in alphabetical order."""
    plain = unicodedata.normalize("NFKD", name).casefold()
    plain = "".join(c for c in plain if not unicodedata.combining(c))
    return " ".join(sorted(re.findall(r"\w+", plain.replace("_", " "))))


def read(path: Path) -> Roster:
    """The roster in a file of comma-, semicolon- or tab-separated values.

    Raises:
        RosterError: if a column is missing, a line is incomplete, or an id stands twice.
        tables.TableError: if the file cannot be read, or is no table.
    """
    return of(tables.load(path))


def of(table: tables.Table) -> Roster:
    """The roster in a table.

    Raises:
        RosterError: as for `read`.
    """
    path, head, lines = table.path, table.head, table.lines
    place = _columns(head)
    if "id" not in place and "name" not in place:
        raise RosterError(
            f"{path}: the first line has no column `id` or `name`; it is: {', '.join(head)}"
        )
    called = [tables.plain(cell) for cell in head]
    known_by = [n for n, cell in enumerate(called) if cell in (*COLUMNS["id"], *KEYS)]
    # A column `id` alone is whatever the school calls so.
    of_platform = [n for n, cell in enumerate(called) if cell in KEYS
                   and (cell != "id" or set(SCHOOL) & set(called))]  # fmt: skip
    people: list[Person] = []
    seen: dict[str, int] = {}
    for place_of, (number, line) in enumerate(lines):
        told = {what: names.escaped(line[n].strip()) for what, n in place.items() if n < len(line)}
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
        keys, numbers = _cells(line, known_by), _cells(line, of_platform)
        people.append(Person(id_, name or id_, told.get("email", ""), told.get("section", ""),
                             keys, numbers, place_of, told.get("due", ""), number))  # fmt: skip
    if not people:
        raise RosterError(f"{path}: there is nobody in it")
    return Roster(people, path)


def _cells(line: list[str], places: list[int]) -> frozenset[str]:
    keys = {line[n].strip() for n in places if n < len(line)}
    # `Participant 501` of Moodle, `#501` of Brightspace.
    return frozenset(keys | {re.sub(r"\D", "", k) for k in keys if not k.isalnum()}) - {""}


def _columns(head: list[str]) -> dict[str, int]:
    called = [tables.plain(cell) for cell in head]
    place: dict[str, int] = {}
    for what, known in COLUMNS.items():
        if found := [k for k in known if k in called]:
            place[what] = called.index(found[0])
    for what, known in (("first", FIRST), ("last", LAST)):
        if found := [k for k in known if k in called]:
            place[what] = called.index(found[0])
    school = [k for k in SCHOOL if k in called]
    if found := [k for k in KEYS if k in called]:
        place["key"] = called.index(found[0])
        if school:
            place["id"] = called.index(school[0])
    return place
