"""The grammar of the book's language: one function that tells stories, and judges them.

`story(voice)` asks its voice for each word. Every choice is made at the word that shows it, so that
a text has one derivation: the distribution of each next word is known, and so is the surprise that
no model can go below.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from book.stories.facts import Question, Thing, Told, answers, short_cuts
from book.stories.voices import Voice, Weights
from book.stories.words import (
    ANYTHING,
    AT,
    BEGIN,
    COLOURS,
    END,
    FORMS,
    NAMES,
    NUMBERS,
    PART_OF_DAY,
    PLACES,
    PRONOUN,
    SYLLABLES,
    THINGS,
    VERBS,
    WEATHER,
)

# How many sentences stand between opening and questions: at least, and at most.
FEWEST, MOST = 5, 9
# How each kind of list of answers begins, and how often it is the next one.
ASKING = {
    "who": ("has", "what", "?"),
    "which": ("thing", "is", "what", "?"),
    "where": ("is", "what", "?"),
    "what": ("can", "they", "?"),
    "how": ("many", "stars", "?"),
}
OFTEN = {"who": 0.25, "which": 0.15, "where": 0.25, "what": 0.2, "how": 0.15}
# A list has at least this many answers, so that what it asks has to be looked up.
LEAST = 2


def story(voice: Voice) -> list[Question]:
    """A story, told or followed.

    Args:
        voice: who tells or listens.

    Returns:
        What the text leaves no choice about, as it had told it before: its questions.
    """
    voice.say(BEGIN)
    told = _opening(voice)
    asked: list[Question] = []
    for n in range(MOST + 1):
        asking = _scaled(_kinds(told), 0.0 if n < FEWEST else 1.0 if n == MOST else 0.3)
        weights = dict(asking)
        if n < MOST:
            _add(weights, _scaled(_first_words(told), 1 - sum(asking.values())))
        start = len(voice.words)
        first = voice.choose(weights)
        if first in asking:
            _list(voice, told, asked, first)
            break
        _sentence(voice, told, asked, first)
        told.sentences.append(voice.words[start:])
    while True:
        weights = _scaled(_kinds(told), 0.8)
        weights["good"] = 0.2
        first = voice.choose(weights)
        if first == "good":
            voice.say("night", ".", END)
            return asked
        _list(voice, told, asked, first)


def _scaled(weights: Weights, to: float) -> dict[str, float]:
    """The weights with another sum."""
    total = sum(weights.values())
    return {w: weight * to / total for w, weight in weights.items()} if total and to else {}


def _add(weights: dict[str, float], more: Weights) -> None:
    for word, weight in more.items():
        weights[word] = weights.get(word, 0.0) + weight


def _without(weights: Weights, words: Iterable[str]) -> dict[str, float]:
    gone = set(words)
    return {w: weight for w, weight in weights.items() if w not in gone}


# ---- the opening


def _opening(voice: Voice) -> Told:
    voice.say("one")
    voice.choose(WEATHER)
    voice.choose(PART_OF_DAY)
    people = [voice.choose(NAMES)]
    if voice.choose({"and": 0.25, ",": 0.75}) == ",":
        people.append(voice.choose(_without(NAMES, people)))
        voice.say("and")
    people.append(voice.choose(_without(NAMES, people)))
    voice.say("met", ".")
    told = Told(people)
    for person in people:
        start = len(voice.words)
        voice.say("there")
        _new_thing(voice, told, person)
        told.sentences.append(voice.words[start:])
        told.last = person
    return told


def _new_thing(voice: Voice, told: Told, owner: str | None) -> None:
    voice.say("was", "a")
    colour = voice.choose(_without(COLOURS, (t.colour for t in told.things.values())))
    name = voice.choose(_without(THINGS, told.things))
    voice.say("for")
    if owner is None:
        owner = voice.choose(dict.fromkeys(told.people, 1.0))
    else:
        voice.say(owner)
    voice.say(".")
    told.things[name] = Thing(name, colour, owner)
    told.last_owner = owner


# ---- sentences


def _first_words(told: Told) -> dict[str, float]:
    weights = dict.fromkeys(told.people, 1.0)
    # The pronoun of whom the last sentence spoke; if another has it too, it is still theirs.
    weights[told.last] = 0.3
    weights[PRONOUN[told.last]] = 0.7
    weights = _scaled(weights, 0.7)
    if len(told.can) > 1:
        _add(weights, {"every": 0.12, "yesterday": 0.12})
    if len(told.count) > 1 and not told.counted:
        weights["together"] = 0.25
    weights["parrot"] = 0.08
    if not told.babbled:
        weights["baby"] = 0.12
    if len(told.things) < 5:
        weights["now"] = 0.06
    return weights


def _sentence(voice: Voice, told: Told, asked: list[Question], first: str) -> None:
    if first in ("every", "yesterday"):
        _habit(voice, told, asked, first)
    elif first == "together":
        told.counted = True
        voice.say("they", "saw", NUMBERS[sum(told.count.values()) - 1])
        asked.append(Question.of("together", told, voice.words))
        voice.say("stars", ".")
    elif first == "parrot":
        _parrot(voice, told)
    elif first == "baby":
        told.babbled = True
        _babble(voice)
    elif first == "now":
        voice.say("there")
        _new_thing(voice, told, None)
    else:
        told.last = told.last if first == PRONOUN[told.last] else first
        _deed(voice, told, told.last)


def _mention(
    voice: Voice, things: Iterable[Thing], weight: Callable[[Thing], float] = lambda _: 1.0
) -> Thing:
    """As in "the red kite": which thing it is shows at the colour."""
    voice.say("the")
    of = {t.colour: t for t in things}
    thing = of[voice.choose({t.colour: weight(t) for t in of.values()})]
    voice.say(thing.name)
    return thing


def _habit(voice: Voice, told: Told, asked: list[Question], first: str) -> None:
    if first == "every":
        voice.say("day")
    told.last = voice.choose(dict.fromkeys(told.can, 1.0))
    voice.say(FORMS[told.can[told.last]][first == "yesterday"])
    asked.append(Question.of(first, told, voice.words))
    voice.say(".")


def _parrot(voice: Voice, told: Told) -> None:
    """An earlier sentence, word for word. Which one it is shows as its words come."""
    voice.say(":")
    candidates, at = told.sentences, 0
    while at < max(map(len, candidates)):
        word = voice.choose(Counter(c[at] for c in candidates if at < len(c)))
        candidates = [c for c in candidates if at < len(c) and c[at] == word]
        at += 1


def _babble(voice: Voice) -> None:
    """Words without sense, four to sixteen of them, and the same once more."""
    voice.say(":")
    words: list[str] = []
    while not words or words[-1] != ",":
        n = len(words)
        comma = 0.0 if n < 4 else 1.0 if n == 16 else 0.12
        weights = _scaled(_without(ANYTHING, words), 1 - comma)
        if comma:
            weights[","] = comma
        words.append(voice.choose(weights))
    voice.say(*words[:-1], ".")


def _deed(voice: Voice, told: Told, who: str) -> None:
    mine = [t for t in told.things.values() if t.owner == who]
    verb = voice.choose(
        {
            "gave": 0.7 * bool(mine),
            "hid": 0.9,
            "can": 0.7 * (who not in told.can),
            "saw": 0.5 * (who not in told.count),
            "sang": 0.15,
        }
    )
    if verb == "gave":
        thing = _mention(voice, mine)
        voice.say("to")
        thing.owner = told.last_owner = voice.choose({p: 1.0 for p in told.people if p != who})
    elif verb == "hid":
        # What was hidden before is hidden again more often, so that the last place counts.
        thing = _mention(voice, told.things.values(), lambda t: 2.5 if t.place else 1.0)
        at = voice.choose({"in": 1.0, "at": 1.0, "under": 1.0})
        voice.say("the")
        thing.put(voice.choose({p: w for p, w in PLACES.items() if AT[p] == at}))
        told.last_place = thing.place
    elif verb == "can":
        told.can[who] = voice.choose(_without(VERBS, told.can.values()))
    elif verb == "saw":
        seen = [NUMBERS[n - 1] for n in told.count.values()]
        number = voice.choose(_without(dict.fromkeys(NUMBERS[: told.most_stars], 1.0), seen))
        told.count[who] = NUMBERS.index(number) + 1
        voice.say("stars")
    else:
        voice.say(":")
        _sing(voice, told, who)
    voice.say(".")


def _sing(voice: Voice, told: Told, who: str) -> None:
    """A song; whoever sang before sings the same again."""
    if who in told.song:
        voice.say(*told.song[who])
    else:
        told.song[who] = [voice.choose(dict.fromkeys(SYLLABLES, 1.0)) for _ in range(4)]


# ---- lists of answers


def _kinds(told: Told) -> dict[str, float]:
    return {
        kind: often
        for kind, often in OFTEN.items()
        if kind not in told.listed and len(answers(told, kind)) >= LEAST
    }


def _list(voice: Voice, told: Told, asked: list[Question], kind: str) -> None:
    """Answers of one kind, in any order, as in "who has what ? kite ben , drum mia ."."""
    voice.say(*ASKING[kind])
    told.listed.add(kind)
    answer = answers(told, kind)
    left = dict.fromkeys(answer, 1.0)
    while True:
        about = voice.choose(left)
        guesses = short_cuts(told, kind, about, left)
        voice.say(answer[about])
        asked.append(Question(kind, about, answer[about], len(voice.words) - 1, guesses))
        del left[about]
        if not left:
            voice.say(".")
            return
        if voice.choose({",": 0.75, ".": 0.25}) == ".":
            return
