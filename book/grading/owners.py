"""Whose it is: what lies in folders and archives, by the names that stand there.

Everything belongs to the entry of the class's folder in which it lies, and the entry to the student
of its name. Two things lead away from that, and both are told: names that a platform made, which
say whose a file is, and folders and archives in which there are several students.

What stands inside an entry may have been chosen by the student who handed it in. So a name in it
gives nothing to somebody else where the entry is one of a student's: it is not when the roster has
its name, nor when all who are named in it have entries of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from book.grading import archives, names
from book.grading.places import Found

if TYPE_CHECKING:
    from book.grading.roster import Roster


# So many folders may lie around those of the class.
DEEPEST = 8


@dataclass(frozen=True)
class Entry:
    """What identifies a student as the names say it, and what the student is called."""

    key: tuple[str, ...]
    # As it may be printed.
    name: str
    sender: names.Sender | None = None
    # The folder or archive, for a person.
    place: str = field(default="", compare=False)


@dataclass(frozen=True)
class Given:
    """A thing, and whose it is."""

    owner: Entry
    found: Found
    # The entry in which it lies, where that has another name.
    box: Entry | None = None
    # It does not count where the student has something in an entry of the own name.
    apart: bool = False
    # What was decided about whose it is: for the student's row, and for the teacher alone.
    decided: str = ""
    note: str = ""


@dataclass(frozen=True)
class Class:
    """What is known of the class when names are read."""

    people: Roster | None
    assignment: str

    def knows(self, name: str) -> bool:
        """Whether the roster has somebody, or more than one, of this name."""
        return bool(self.people and self.people.fit(name).people)

    def signs(self, entry: Entry) -> set[tuple[str, ...]]:
        """By what two entries are seen to be of one student."""
        found: set[tuple[str, ...]] = {entry.key, ("name", names.folded(entry.name))}
        if self.people:
            found |= {("id", p.id) for p in self.people.fit(entry.name, entry.sender).people}
        return found


def given(found: list[Found], of: Class, *, alone: bool) -> Iterator[Given]:
    """Each thing with whose it is.

    `alone`: nothing else was given, so that a single folder or archive may be that of the class.
    """
    depth, note = (_class_at(found, 0, of) or (_root_box(found), "")) if alone else (0, "")
    for one in _entries(found, depth, of, alone=alone):
        yield replace(one, note=note) if note else one


def settled(all_given: list[Given], of: Class) -> list[Given]:
    """What is given, where names inside an entry meet others' entries: never merged, and told."""
    direct: set[tuple[str, ...]] = set()
    boxed: dict[Entry, list[Given]] = {}
    # Who is named in several of them, as in two downloads of one class.
    within: dict[tuple[str, ...], set[str]] = {}
    for one in all_given:
        if one.box:
            boxed.setdefault(one.box, []).append(one)
            within.setdefault(one.owner.key, set()).add(one.box.place)
        else:
            direct |= of.signs(one.owner)
    done = [one for one in all_given if not one.box]
    for box, some in boxed.items():
        named = list(dict.fromkeys(one.owner for one in some))
        taken = {entry for entry in named if of.signs(entry) & direct}
        for one in some:
            entry, places = one.owner, sorted(within[one.owner.key])
            if len(taken) == len(named):
                done.append(replace(one, owner=box, decided=_kept(box, named)))
            elif entry in taken:
                apart = replace(entry, key=(*entry.key, *box.key))
                why = (f"it lies in {box.place}, and {entry.name} has an entry beside that: the "
                       "two are not merged, and of one student's the latter counts")  # fmt: skip
                done.append(replace(one, owner=apart, apart=True, decided=why))
            elif direct or len(places) > 1:
                why = (f"it lies in {' and '.join(places)}, under a name that gives it to this "
                       "student")  # fmt: skip
                done.append(replace(one, decided=why))
            else:
                done.append(one)
    return done


def own(some: Iterable[Given], entry: Entry) -> list[Given]:
    """All of it as that entry's own, whatever names stand in it."""
    some = list(some)
    others = [g.owner for g in some if g.owner.sender and g.owner.name != entry.name]
    why = _kept(entry, others) if others else ""
    return [replace(g, owner=entry, box=None, decided=why, note="") for g in some]


def _kept(entry: Entry, named: list[Entry]) -> str:
    told = sorted({e.name for e in named if e.name != entry.name})
    more = f" and {len(told) - 5} more" if len(told) > 5 else ""
    return (f"names in it are those of others ({', '.join(told[:5])}{more}); it is taken as "
            f"{entry.name}'s, in whose folder or archive it lies")  # fmt: skip


# ---- where the class lies


def _groups(found: Iterable[Found], depth: int) -> dict[str, list[Found]]:
    groups: dict[str, list[Found]] = {}
    for one in found:
        # In an archive the raw names are whole paths: there the readable ones tell.
        exact = not depth and one.raw
        groups.setdefault(one.raw[0] if exact else one.part(depth), []).append(one)
    return groups


def _class_at(found: list[Found], depth: int, of: Class) -> tuple[int, str] | None:
    """How deep the students' entries lie below what is the only thing there, and what to say."""
    groups = _groups(found, depth)
    if depth and (why := _like_a_class(groups, depth, of)) is not None:
        return depth, why
    some = next(iter(groups.values()), [])
    if len(groups) != 1:
        return None if depth else (0, "")
    if depth == DEEPEST:
        return None
    if _sent(some, depth) or of.knows(_entry(some[0], depth).name):
        return depth, ""
    if any(len(one.parts) <= depth + 1 for one in some):
        return None
    return _class_at(some, depth + 1, of)


def _like_a_class(groups: dict[str, list[Found]], depth: int, of: Class) -> str | None:
    """Whether entries in a folder or an archive are several students': what to say, or None."""
    flat = [one for some in groups.values() for one in some]
    if not flat or any(len(one.parts) <= depth for one in flat):
        return None
    in_box = all(depth - 1 in one.boxes for one in flat)
    outer = names.escaped(flat[0].parts[depth - 1])
    senders = _senders(groups, depth, of)
    if _of_platform(senders, len(groups), alone=in_box):
        known = [s for s in senders.values() if s and of.knows(s.name)]
        if known or (in_box and depth == 1):
            return ""
        return (f"the names in {outer} are a platform's: its files are given to those whom they "
                f"name; if {outer} is a student, give a --roster that has the name")  # fmt: skip
    called = [_entry(some[0], depth).name for some in groups.values()]
    if any(map(of.knows, called)):
        return ""
    if len(groups) < 2:
        return None
    if in_box and depth == 1:
        return ""
    if any(names.asked_for(name, of.assignment) for some in groups.values()
           for name in {one.part(depth) for one in some}):  # fmt: skip
        return None
    inner = [some for some in groups.values() if any(len(o.parts) > depth + 1 for o in some)]
    loose = any(one.kind == "notebook" and len(one.parts) == depth + 1 for one in flat)
    if loose:
        inner = [some for some in inner if any(one.kind == "notebook" for one in some)]
    if len(inner) < 2:
        return None
    return (f"{outer} holds several folders: each is taken as a student's; if {outer} is a student "
            "itself, give a --roster that has the name")  # fmt: skip


def _root_box(found: list[Found]) -> int:
    """1 if there is one archive, with more in it than a single notebook: it is no student's."""
    if len(_groups(found, 0)) != 1 or not all(0 in one.boxes for one in found):
        return 0
    if any(len(one.parts) < 2 for one in found):
        return 0
    single = len(_groups(found, 1)) < 2 and all(
        len(one.parts) == 2 and one.kind == "notebook" for one in found
    )
    return 0 if single else 1


# ---- entries


def _entries(found: list[Found], depth: int, of: Class, *, alone: bool) -> Iterator[Given]:
    groups = _groups(found, depth)
    senders = _senders(groups, depth, of)
    platform = _of_platform(senders, len(groups), alone=alone)
    for name, some in groups.items():
        if platform and (who := senders[name]):
            owner = Entry((who.platform, who.name, who.key), names.escaped(who.name), who)
            yield from (Given(owner, one) for one in some)
        else:
            yield from _within(some, depth, of)


def _within(some: list[Found], depth: int, of: Class) -> Iterator[Given]:
    """An entry that no platform named: its own, or of the students who are named in it."""
    plain = [Given(_entry(one, depth), one) for one in some]
    box = plain[0].owner
    inner = _inside(some, depth, of)
    if not inner:
        yield from plain
    elif all(of.signs(g.owner) & of.signs(box) for g in inner):
        # Somebody's own folder or archive, with the platform's names in it.
        yield from inner
    elif of.knows(box.name):
        yield from own(inner, box)
    else:
        yield from (replace(one, box=box) for one in inner)


def _inside(some: list[Found], depth: int, of: Class) -> list[Given]:
    """What lies in an entry, with whose it is, if names there are a platform's or a roster's."""
    if any(len(one.parts) <= depth + 1 for one in some):
        return []
    groups = _groups(some, depth + 1)
    if _of_platform(_senders(groups, depth + 1, of), len(groups), alone=False):
        return list(_entries(some, depth + 1, of, alone=False))
    plain = [Given(_entry(one, depth + 1), one) for one in some]
    if of.people and not of.knows(_entry(some[0], depth).name):
        known = {one.owner for one in plain if of.knows(one.owner.name)}
        if len(known) > 1 or known == {one.owner for one in plain}:
            return plain
    return []


def _entry(one: Found, depth: int) -> Entry:
    """The student whose name stands at `depth`."""
    part = one.part(depth)
    if depth >= len(one.parts) - 1 and one.kind != "empty":
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
    return Entry((key,), names.escaped(name), place=names.escaped(part))


def _senders(
    groups: dict[str, list[Found]], depth: int, of: Class
) -> dict[str, names.Sender | None]:
    sent = {name: _sent(some, depth) for name, some in groups.items()}
    return names.logins(sent, of.knows, of.assignment)


def _sent(some: list[Found], depth: int) -> names.Sender | None:
    part = some[0].part(depth)
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
