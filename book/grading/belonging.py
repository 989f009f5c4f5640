"""Whose each submission is by the roster, and what a teacher is told about that."""

from __future__ import annotations

from collections.abc import Sequence

from book.grading import names, roster
from book.grading.submissions import Submission

# So many students are named in a warning.
MOST = 10


class Belonging:
    """The people of a roster, if there is one, and what was handed in."""

    def __init__(self, everything: Sequence[Submission], people: roster.Roster | None) -> None:
        self.people = people
        self.fits = {s: people.fit(s.student, s.sender) if people else roster.Fit()
                     for s in everything}  # fmt: skip
        self.whose = {s: fit.person for s, fit in self.fits.items()}
        self.names = {s: self.called(p) if (p := self.whose[s]) else s.student for s in everything}
        self._shared = {p.id for some in self._namesakes() for p in some}
        self._alike = self._look_alikes()

    def called(self, person: roster.Person) -> str:
        """The person's name, with the id where another one has the same name."""
        return self.people.called(person) if self.people else person.name

    def page(self, one: Submission) -> str:
        """What a page is named after: it is the same whoever else hands something in."""
        person = self.whose[one]
        if person and person.id in self._shared:
            return f"{person.name} - {person.id}"
        return self.names[one]

    def remarks(self, one: Submission) -> list[str]:
        """What is told with a submission's row about whose it is."""
        told = [text for text in (one.decided, self._doubt(one)[0]) if text]
        if others := self._alike.get(one):
            listed = ", ".join(map(names.escaped, others))
            told.append(f"the name looks like another one's: {listed}")
        return told

    def perhaps(self, person: roster.Person) -> list[str]:
        """What is told with the row of somebody of whom nothing is there for certain."""
        some = [s.student for s, fit in self.fits.items()
                if len(fit.people) > 1 and person in fit.people]  # fmt: skip
        return [f"something may be this one's: {who}" for who in dict.fromkeys(some)]

    def warnings(self) -> list[str]:
        """What a teacher should know before the first row."""
        told = []
        for same in self._namesakes():
            ids = ", ".join(names.escaped(p.id) for p in same)
            told.append(f"several people are called {names.escaped(same[0].name)}: only their ids "
                        f"({ids}) tell them apart, so name folders by these")  # fmt: skip
        together = {tuple(sorted({self.names[s], *some})) for s, some in self._alike.items()}
        for group in sorted(together):
            told.append(f"names that look alike: {', '.join(map(names.escaped, group))}")
        about: dict[str, set[str]] = {}
        for one in self.fits:
            for text in (one.note, one.decided, "".join(self._doubt(one))):
                about.setdefault(text, set()).add(one.student)
        for text in filter(None, about):
            some = sorted(about[text])
            more = f" and {len(some) - MOST} more" if len(some) > MOST else ""
            told.append(f"{text}: {', '.join(map(names.escaped, some[:MOST]))}{more}")
        return told

    def _doubt(self, one: Submission) -> tuple[str, str]:
        """What is to be said of whom it is, and the others' names, which are the teacher's."""
        if not self.people:
            return "", ""
        fit, told = self.fits[one], []
        if not fit.people:
            told.append("not in the roster")
        if len(fit.people) > 1:
            told.append("fits several in the roster, and is taken for none of them")
        others = fit.people if len(fit.people) > 1 else fit.others
        listed = ", ".join(f"{names.escaped(p.name)} ({names.escaped(p.id)})" for p in others)
        told += [fit.remark] if fit.remark else []
        return "; ".join(told), f" ({listed})" if listed else ""

    def _namesakes(self) -> list[list[roster.Person]]:
        return self.people.namesakes() if self.people else []

    def _look_alikes(self) -> dict[Submission, list[str]]:
        """Of each submission whose student could be taken for another one, the others' names."""
        # People of the roster have ids, which tell them apart.
        loose = {one: name for one, name in self.names.items() if self.whose[one] is None}
        found: dict[Submission, list[str]] = {}
        for group in names.alike(self.names.values()):
            for one, name in loose.items():
                if name in group:
                    found[one] = [n for n in group if n != name]
        return found
