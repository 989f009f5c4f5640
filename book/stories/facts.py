"""What a story has told so far, what it asks, and how far one gets without looking it up."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from book.stories.words import NUMBERS


@dataclass
class Thing:
    """A thing of a story: who had it first and has it now, where it was hidden first and is now."""

    name: str
    colour: str
    first_owner: str
    owner: str = ""
    first_place: str | None = None
    place: str | None = None

    def __post_init__(self) -> None:
        self.owner = self.first_owner

    def put(self, place: str) -> None:
        """It is there now."""
        self.first_place = self.first_place or place
        self.place = place


@dataclass
class Told:
    """What a story has told so far.

    Attributes:
        people: who is in it.
        things: name -> what is known of the thing.
        can: person -> what they can do.
        song: person -> what they sang.
        count: person -> how many stars they saw.
        counted: the stars were added up.
        babbled: a baby has spoken.
        sentences: those that a parrot can repeat.
        listed: kinds of lists that it has asked for.
        last: whom the last sentence spoke of.
        last_owner, last_place: the last that were told.
    """

    people: list[str]
    things: dict[str, Thing] = field(default_factory=dict)
    can: dict[str, str] = field(default_factory=dict)
    song: dict[str, list[str]] = field(default_factory=dict)
    count: dict[str, int] = field(default_factory=dict)
    counted: bool = False
    babbled: bool = False
    sentences: list[list[str]] = field(default_factory=list)
    listed: set[str] = field(default_factory=set)
    last: str = ""
    last_owner: str = ""
    last_place: str | None = None

    @property
    def most_stars(self) -> int:
        """How many one person can see: together it is a number that the language has."""
        return min(5, len(NUMBERS) // len(self.people))


@dataclass(frozen=True)
class Question:
    """A word that a story leaves no choice about, because it has told it before.

    Attributes:
        kind: who, which, where, what, how (lists); every, yesterday, together (sentences).
        about: the thing, colour or person that is asked about.
        answer: the word that answers.
        at: the index of that word in the text.
        short_cuts: how often an answer that does not look it up is right here, by its name: "guess"
            takes one of those that the story told, "first" what was told of it first, "last" what
            was told last.
    """

    kind: str
    about: str
    answer: str
    at: int
    short_cuts: Mapping[str, float]

    @staticmethod
    def of(kind: str, told: Told, words: Sequence[str]) -> Question:
        """The question that the last word answers: how many together, or what they do."""
        answer, at = words[-1], len(words) - 1
        if kind == "together":
            middle = NUMBERS[len(told.count) * (told.most_stars + 1) // 2 - 1]
            return Question(kind, "they", answer, at, {"middle": float(answer == middle)})
        return Question(kind, words[-2], answer, at, {"guess": 1 / len(told.can)})


def answers(told: Told, kind: str) -> dict[str, str]:
    """What a list of this kind can hold: about what -> the answer."""
    things = told.things.values()
    if kind == "who":
        return {t.name: t.owner for t in things}
    if kind == "which":
        return {t.colour: t.name for t in things}
    if kind == "where":
        return {t.name: t.place for t in things if t.place}
    if kind == "what":
        return dict(told.can)
    return {person: NUMBERS[n - 1] for person, n in told.count.items()}


def short_cuts(told: Told, kind: str, about: str, left: Collection[str]) -> dict[str, float]:
    """How often an answer is right that does not look up what is asked about."""
    right = answers(told, kind)
    answer = right[about]
    if kind == "who":
        thing = told.things[about]
        return {
            "guess": 1 / len(told.people),
            "first": float(thing.first_owner == answer),
            "last": float(told.last_owner == answer),
        }
    if kind == "where":
        thing = told.things[about]
        return {
            "guess": 1 / len({right[name] for name in left}),
            "first": float(thing.first_place == answer),
            "last": float(told.last_place == answer),
        }
    # These are told once and asked once: what was answered already is out.
    open_ = [right[name] for name in left]
    return {"guess": open_.count(answer) / len(open_), "last": float(open_[-1] == answer)}
