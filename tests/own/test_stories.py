"""The book's language: what is told is what is judged, and what is asked has been told before."""

import functools
import itertools
import math
import random
import re

import pytest

from book.stories import (
    BEGIN,
    END,
    PAD,
    VOCABULARY,
    NotOfTheLanguageError,
    follow,
    stories,
    surprise,
)
from book.stories.grammar import story
from book.stories.shelves import NGram
from book.stories.voices import Teller
from book.stories.words import FORMS, NAMES, NUMBERS, PLACES, THINGS


@functools.cache
def many():
    """Stories, told when the first test asks for them, and not while the tests are collected."""
    return list(itertools.islice(stories("tests"), 3000))


class Noting(Teller):
    """A teller that notes how likely each of its words was."""

    def __init__(self, rng):
        super().__init__(rng)
        self.noted = []

    def choose(self, weights):
        word = super().choose(weights)
        self.noted.append(weights[word] / sum(weights.values()))
        return word

    def say(self, *words):
        super().say(*words)
        self.noted += [1.0] * len(words)


def test_a_story_is_as_likely_as_it_was_when_it_was_told():
    rng = random.Random(1)
    for _ in range(300):
        voice = Noting(rng)
        story(voice)
        assert surprise(voice.words) == pytest.approx([-math.log(p) for p in voice.noted[1:]])


def test_each_next_word_has_a_distribution():
    for told in many()[:300]:
        for chances in follow(told.words):
            assert math.fsum(chances.values()) == pytest.approx(1)
            assert min(chances.values()) > 0


def test_words_come_as_often_as_their_distributions_say():
    # The surprise of what was told and the entropy of what could have been have the same mean.
    differences = []
    for told in many()[:1500]:
        all_chances = follow(told.words)
        entropy = -math.fsum(p * math.log(p) for c in all_chances for p in c.values())
        differences.append(math.fsum(surprise(told.words)) - entropy)
    mean = sum(differences) / len(differences)
    spread = math.sqrt(sum((d - mean) ** 2 for d in differences) / len(differences) ** 2)
    assert abs(mean) < 4 * spread


def test_the_vocabulary_is_what_is_told():
    assert {word for told in many() for word in told.words} == set(VOCABULARY) - {PAD}
    assert len(set(VOCABULARY)) == len(VOCABULARY)
    assert VOCABULARY[0] == PAD


def test_a_seed_tells_the_same_stories():
    assert next(stories(3)).words == next(stories(3)).words != next(stories(4)).words


def test_a_story_begins_and_ends():
    for told in many()[:300]:
        assert told.words[0] == BEGIN
        assert told.words[-1] == END
        assert str(told) == " ".join(told.words[1:-1])


def test_questions_leave_no_choice():
    for told in many()[:300]:
        chances = follow(told.words)
        for q in told.questions:
            assert chances[q.at - 1] == {q.answer: 1.0}
            assert told.words[q.at] == q.answer


def reread(text):
    """What a story tells, read from its text alone: kind -> about -> answer."""
    facts = {kind: {} for kind in ("who", "which", "where", "what", "how")}
    for sentence in text.split(" ?")[0].split(" . "):
        if re.match("(now )?there was a", sentence):
            colour, thing, _, owner = sentence.split()[-4:]
            facts["who"][thing], facts["which"][colour] = owner, thing
        elif given := re.match(r"\w+ gave the \w+ (\w+) to (\w+)", sentence):
            facts["who"][given[1]] = given[2]
        elif hidden := re.match(r"\w+ hid the \w+ (\w+) \w+ the (\w+)", sentence):
            facts["where"][hidden[1]] = hidden[2]
    subject = ""
    for sentence in text.split(" ?")[0].split(" . "):
        words = sentence.split()
        if words[0] in NAMES:
            subject = words[0]
        elif "there" in words[:2]:
            # The opening ends with the last person's thing; a later thing changes no subject.
            subject = words[-1] if words[0] == "there" else subject
        elif words[0] in ("every", "yesterday"):
            subject = words[-2]
        if words[0] in {*NAMES, "she", "he"} and words[1] == "can":
            facts["what"][subject] = words[2]
        if words[0] in {*NAMES, "she", "he"} and words[1] == "saw":
            facts["how"][subject] = words[2]
    return facts


def test_answers_are_those_of_a_second_reading():
    seen = set()
    for told in many():
        facts = reread(str(told))
        for q in told.questions:
            seen.add(q.kind)
            if q.kind == "together":
                so_far = reread(" ".join(told.words[1 : q.at]))["how"].values()
                assert q.answer == NUMBERS[sum(NUMBERS.index(n) + 1 for n in so_far) - 1]
            elif q.kind in ("every", "yesterday"):
                assert q.answer == FORMS[facts["what"][q.about]][q.kind == "yesterday"]
            else:
                assert facts[q.kind][q.about] == q.answer, (q, str(told))
    assert seen == {"who", "which", "where", "what", "how", "together", "every", "yesterday"}


def test_no_short_cut_answers_four_of_five():
    for kind in {q.kind for told in many() for q in told.questions}:
        asked = [q for told in many() for q in told.questions if q.kind == kind]
        assert len(asked) > 100
        for name in asked[0].short_cuts:
            assert sum(q.short_cuts[name] for q in asked) / len(asked) < 0.78, (kind, name)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("one sunny morning anna and anna", "word 6, 'anna'"),
        ("one sunny morning dog", "word 4, 'dog'"),
        ("two", "word 1, 'two': a story could go on with one"),
        (f"{next(stories('tests'))} {END} one", "the story has ended before"),
    ],
)
def test_what_is_no_story_is_refused_by_its_word(text, named):
    with pytest.raises(NotOfTheLanguageError, match=re.escape(named)):
        follow(text.split())


def test_the_beginning_of_a_story_has_a_next_word():
    assert len(follow(many()[0].words[:20])) == 20
    assert set(follow(["one", "sunny", "morning", "anna"])[-1]) == {"and", ","}
    assert follow([]) == [{"one": 1.0}]


def test_frequent_words_are_the_first_of_their_lists():
    for words in (THINGS, PLACES):
        counts = [sum(told.words.count(w) for told in many()) for w in words]
        assert sum(counts[:5]) > 1.5 * sum(counts[-5:])


def test_an_ngram_predicts_with_all_its_probability():
    model = NGram(3, [told.words for told in many()[:200]])
    for before in ((BEGIN,), (BEGIN, "one"), ("the", "red"), ("never", "seen")):
        total = math.fsum(model.probability(before, word) for word in VOCABULARY)
        assert total == pytest.approx(1)


def test_an_ngram_counts():
    model = NGram(2, [(BEGIN, "a", "b"), (BEGIN, "a", "c")])
    # After "a" stood b once and c once: (1 + 2 p) / 4 with p = (1 + 3 / V) / 7 from single words.
    p = (1 + 3 / len(VOCABULARY)) / 7
    assert model.probability(("a",), "b") == pytest.approx((1 + 2 * p) / 4)
    with pytest.raises(ValueError, match="order must be at least 1, got 0"):
        NGram(0, [])


def test_shelves_lie_above_the_floor_and_fall():
    counted, on = [told.words for told in many()[:2000]], many()[2000:2300]
    losses = [NGram(n, counted).loss([told.words for told in on]) for n in (1, 2, 3)]
    floor = sum(sum(surprise(told.words)) for told in on) / sum(len(told.words) - 1 for told in on)
    assert math.log(len(VOCABULARY)) > losses[0] > losses[1] > losses[2] > floor + 0.3
