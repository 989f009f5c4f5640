"""The words of the book's language: who is in its stories, what they own, where, and how often.

Every list is ordered by how often its words are used: the word of rank r has weight 1 / (r + 3), a
flattened version of the law of Zipf that real texts follow.
"""

from __future__ import annotations

from collections.abc import Iterable

from book.stories.voices import Weights


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def ranked(words: Iterable[str]) -> Weights:
    """Words with weights that fall with their rank."""
    return {word: 1 / (rank + 3) for rank, word in enumerate(words, 1)}


SHE = ("anna", "mia", "rosa", "zoe", "june", "lily", "nora", "ida")
HE = ("ben", "tom", "leo", "karl", "paul", "max", "otto", "finn")
# The lists take turns, so that neither is the more frequent one.
NAMES = ranked(name for pair in zip(SHE, HE, strict=True) for name in pair)
PRONOUN = dict.fromkeys(SHE, "she") | dict.fromkeys(HE, "he")

THINGS = ranked(
    _words(
        "kite lamp apple drum hat ball knife pear flute coat doll rope plum bell scarf puzzle "
        "broom lemon violin glove robot spoon melon harp shirt marble ladder cherry trumpet sock"
    )
)
COLOURS = ranked(_words("red blue green white black brown pink grey golden purple silver yellow"))

# A place has a preposition of its own, which must be known to speak of it.
AT = {
    "garden": "in",
    "bridge": "at",
    "table": "under",
    "forest": "in",
    "station": "at",
    "tree": "under",
    "kitchen": "in",
    "market": "at",
    "bench": "under",
    "cellar": "in",
    "harbour": "at",
    "stairs": "under",
    "school": "in",
    "river": "at",
    "bed": "under",
    "castle": "in",
    "lake": "at",
    "stone": "under",
    "library": "in",
    "well": "at",
    "carpet": "under",
}
PLACES = ranked(AT)

# What one can do, does every day, and did yesterday.
FORMS = {
    "sing": ("sings", "sang"),
    "swim": ("swims", "swam"),
    "dance": ("dances", "danced"),
    "write": ("writes", "wrote"),
    "draw": ("draws", "drew"),
    "run": ("runs", "ran"),
    "cook": ("cooks", "cooked"),
    "fly": ("flies", "flew"),
    "ride": ("rides", "rode"),
    "sew": ("sews", "sewed"),
    "teach": ("teaches", "taught"),
    "climb": ("climbs", "climbed"),
    "drive": ("drives", "drove"),
    "fish": ("fishes", "fished"),
    "paint": ("paints", "painted"),
    "speak": ("speaks", "spoke"),
    "build": ("builds", "built"),
}
VERBS = ranked(FORMS)

NUMBERS = _words("one two three four five six seven eight nine ten eleven twelve")
SYLLABLES = _words("la mi do ra lu fa so ti be no ku ha")
WEATHER = ranked(_words("sunny cold bright windy rainy quiet"))
PART_OF_DAY = ranked(_words("morning day evening night"))

# What can be told back without sense.
ANYTHING: Weights = dict.fromkeys([*NAMES, *THINGS, *COLOURS, *PLACES, *VERBS, *NUMBERS], 1.0)

PAD, BEGIN, END = "<pad>", "<s>", "</s>"
_LITTLE = _words(
    "a and at baby can day every for gave good has he hid how in is many met night now one "
    "parrot sang saw she stars the there they thing to together under was what where which "
    "who yesterday . , : ?"
)
# Padding first, so that its number is 0.
VOCABULARY: tuple[str, ...] = tuple(
    dict.fromkeys(
        [PAD, BEGIN, END, *_LITTLE, *NAMES, *THINGS, *COLOURS, *PLACES, *NUMBERS, *FORMS]
        + [form for both in FORMS.values() for form in both]
        + [*SYLLABLES, *WEATHER, *PART_OF_DAY]
    )
)
