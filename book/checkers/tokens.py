"""Chapter 17: merges and their order, digits, streams, dead tokens, blocks, bits per byte."""

from __future__ import annotations

import codecs
import functools
import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from book.checkers.core import SIXTEEN_BITS, Case, Exercise, WrongAnswer, in_parts
from book.checkers.questions import WrongNumber, choice, number
from book.stories import stories

Pair = tuple[bytes, bytes]

NEXT = choice(
    "A word that was never seen",
    right="C",
    because="The first merge joins u + g; the second joins u + n at the beginning; the third joins "
    "h + ug. Nothing joins to the s, nor un to hug, so three tokens are left.",
    tempting={
        "A": (
            "the whole word",
            "Only merges make tokens, and none of the three makes anything so long. The word was "
            "never seen.",
        ),
        "B": (
            "a word of the text taken whole",
            "*hugs* stands in the text, but no merge has made one token of hug and s.",
        ),
        "D": (
            "the second merge left out",
            "u + n was merged in *pun* and *bun*, and it is merged in every word where it stands.",
        ),
    },
)

# --- merge ----------------------------------------------------------------------------------------


def _merge(tokens: Sequence[bytes], pair: Pair) -> list[bytes]:
    joined, k = [], 0
    while k < len(tokens):
        two = tuple(tokens[k : k + 2]) == tuple(pair)
        joined.append(pair[0] + pair[1] if two else tokens[k])
        k += 2 if two else 1
    return joined


def _merge_backwards(tokens: Sequence[bytes], pair: Pair) -> list[bytes]:
    """From right to left."""
    mirrored = _merge([t[::-1] for t in reversed(tokens)], (pair[1][::-1], pair[0][::-1]))
    return [t[::-1] for t in reversed(mirrored)]


def _merge_by_counting(tokens: Sequence[bytes], pair: Pair) -> list[bytes]:
    """A right one: the places first, then the tokens."""
    starts, k = set(), 0
    while k + 1 < len(tokens):
        if (tokens[k], tokens[k + 1]) == tuple(pair):
            starts.add(k)
            k += 1
        k += 1
    return [
        tokens[k] + tokens[k + 1] if k in starts else tokens[k]
        for k in range(len(tokens))
        if k - 1 not in starts
    ]


def _merge_once(tokens: Sequence[bytes], pair: Pair) -> list[bytes]:
    for k in range(len(tokens) - 1):
        if (tokens[k], tokens[k + 1]) == tuple(pair):
            return [*tokens[:k], pair[0] + pair[1], *tokens[k + 2 :]]
    return list(tokens)


def _merge_again(tokens: Sequence[bytes], pair: Pair) -> list[bytes]:
    """A right one: what was joined is longer than both halves, so it is never joined again."""
    joined: list[bytes] = []
    for token in tokens:
        joined.append(token)
        while len(joined) > 1 and (joined[-2], joined[-1]) == tuple(pair):
            joined[-2:] = [pair[0] + pair[1]]
    return joined


def _merge_overlapping(tokens: Sequence[bytes], pair: Pair) -> list[bytes]:
    pairs = zip(tokens, [*tokens[1:], b""], strict=True)
    return [a + b if (a, b) == tuple(pair) and b else a for a, b in pairs]


_NO_TENSORS = dict.fromkeys(
    ("float32", *SIXTEEN_BITS), "its arguments are texts and bytes, no tensors"
)

# --- train ----------------------------------------------------------------------------------------

Words = Mapping[bytes, int]
Best = Callable[[Mapping[Pair, int]], Pair]


def _count(split: Mapping[bytes, Sequence[bytes]], words: Words) -> Counter[Pair]:
    counts: Counter[Pair] = Counter()
    for word, tokens in split.items():
        for pair in itertools.pairwise(tokens):
            counts[pair] += words[word]
    return counts


def _count_once(split: Mapping[bytes, Sequence[bytes]], words: Words) -> Counter[Pair]:
    """Each pair once for each word."""
    counts: Counter[Pair] = Counter()
    for word, tokens in split.items():
        for pair in set(itertools.pairwise(tokens)):
            counts[pair] += words[word]
    return counts


def _count_places(split: Mapping[bytes, Sequence[bytes]], words: Words) -> Counter[Pair]:
    """The places at which a pair could be merged."""
    counts: Counter[Pair] = Counter()
    for word, tokens in split.items():
        for pair in set(itertools.pairwise(tokens)):
            counts[pair] += words[word] * (len(tokens) - len(_merge(tokens, pair)))
    return counts


def _first(counts: Mapping[Pair, int]) -> Pair:
    return min(counts, key=lambda pair: (-counts[pair], pair))


def _last(counts: Mapping[Pair, int]) -> Pair:
    return max(counts, key=lambda pair: (counts[pair], pair))


def _as_met(counts: Mapping[Pair, int]) -> Pair:
    return max(counts, key=lambda pair: counts[pair])


def _rarest(counts: Mapping[Pair, int]) -> Pair:
    return min(counts, key=lambda pair: (counts[pair], pair))


@in_parts
def _train_with(
    count: Callable[[Mapping[bytes, Sequence[bytes]], Words], Counter[Pair]] = _count,
    best: Best = _first,
    merge: Callable[[Sequence[bytes], Pair], list[bytes]] = _merge,
    weigh: bool = True,
    as_tokens: bool = False,
) -> Callable[[Words, int], list[Pair]]:
    """Training made of parts, each of which can be another one."""

    def train(words: Words, num_merges: int) -> list[Pair]:
        times = words if weigh else dict.fromkeys(words, 1)
        split = {word: [bytes([b]) for b in word] for word in words}
        merges: list[Pair] = []
        while len(merges) < num_merges and (counts := count(split, times)):
            merges.append(best(counts))
            split = {word: merge(tokens, merges[-1]) for word, tokens in split.items()}
        return [a + b for a, b in merges] if as_tokens else merges  # type: ignore[misc]

    return train


_train = _train_with()


def _train_in_a_row(words: Words, num_merges: int) -> list[Pair]:
    """A right one: the tokens of all words in one list, with the times beside them."""
    rows = [([bytes([b]) for b in word], times) for word, times in words.items()]
    found: list[Pair] = []
    for _ in range(num_merges):
        pairs = sorted(
            (pair, times) for tokens, times in rows for pair in itertools.pairwise(tokens)
        )
        most, best = 0, None
        for pair, group in itertools.groupby(pairs, key=lambda item: item[0]):
            number = sum(times for _, times in group)
            if number > most:
                most, best = number, pair
        if best is None:
            break
        found.append(best)
        rows = [(_merge(tokens, best), times) for tokens, times in rows]
    return found


def _train_at_once(words: Words, num_merges: int) -> list[Pair]:
    """The pairs of letters, counted once."""
    counts = _count({word: [bytes([b]) for b in word] for word in words}, words)
    return sorted(counts, key=lambda pair: (-counts[pair], pair))[:num_merges]


def _train_case(name: str, words: str, num_merges: int) -> Case:
    """The words as "hug*10 pug*5"."""
    said = (one.split("*") for one in words.split())
    made = {word.encode(): int(times) for word, times in said}
    return Case(name, lambda: (dict(made), num_merges))


_FIVE = "hug*10 pug*5 pun*12 bun*4 hugs*5"

TRAIN = Exercise(
    "Learn the merges",
    oracle=_train,
    cases=(
        _train_case("the five words, four merges", _FIVE, 4),
        _train_case("the five words, one merge", _FIVE, 1),
        _train_case("the five words until nothing is left", _FIVE, 30),
        _train_case("no merge asked for", _FIVE, 0),
        _train_case("a rare long word and a frequent short one", "abcabcabc*1 xy*5", 3),
        _train_case("a pair twice in a word", "anan*3 bo*5", 2),
        _train_case("a a a", "aaa*2 bc*3", 2),
        _train_case("a row of equal letters", "aaaaaaa*1", 4),
        _train_case("all equally frequent", "dc*2 ba*2 ef*2", 3),
        _train_case("equally frequent, in the order of the words", "ab*2 cd*2", 2),
        _train_case("equally frequent, a longer token", "abz*4 aby*4", 3),
        _train_case("one letter", "a*9", 3),
        Case("no words", lambda: ({}, 3)),
        Case("bytes", lambda: ({"中中".encode(): 2, "早上".encode(): 3}, 7)),
    ),
    wrong=(
        WrongAnswer(
            "counted once, at the beginning",
            "Each merge changes the counts and makes new pairs, so all is counted again after it.",
            _train_at_once,
        ),
        WrongAnswer(
            "words counted once each",
            "A word that stands ten times has each of its pairs ten times.",
            _train_with(weigh=False),
        ),
        WrongAnswer(
            "a pair counted once in a word",
            "A pair can stand several times in one word, and counts each time.",
            _train_with(count=_count_once),
        ),
        WrongAnswer(
            "places of a merge counted",
            "In *aaa* the pair a + a stands twice, although it can be merged only once; the text "
            "counts neighbours.",
            _train_with(count=_count_places),
        ),
        WrongAnswer(
            "the last of equally frequent pairs",
            "Of pairs that are equally frequent the one that sorts first is taken.",
            _train_with(best=_last),
        ),
        WrongAnswer(
            "of equally frequent pairs the one that is met first",
            "Then the result depends on the order of the words. Take the pair that sorts first.",
            _train_with(best=_as_met),
        ),
        WrongAnswer(
            "the rarest pair",
            "The most frequent pair is merged. The rarest saves the fewest tokens.",
            _train_with(best=_rarest),
        ),
        WrongAnswer(
            "merged at one place of a word",
            "A merge is made wherever its pair stands, also twice in one word.",
            _train_with(merge=_merge_once),
        ),
        WrongAnswer(
            "merged from right to left",
            "In a row of three equal tokens the first two are joined, from left to right.",
            _train_with(merge=_merge_backwards),
        ),
        WrongAnswer(
            "a token used twice in a merge",
            "After a match the next token is used up: move on by two.",
            _train_with(merge=_merge_overlapping),
        ),
        WrongAnswer(
            "tokens instead of merges",
            "Asked for are the pairs. From the token alone nobody knows which two were joined.",
            _train_with(as_tokens=True),
        ),
    ),
    variants=(
        _train_in_a_row,
        _train_with(merge=_merge_by_counting),
        _train_with(merge=_merge_again),
    ),
    spared=_NO_TENSORS,
)

# --- rank -----------------------------------------------------------------------------------------


Rank = Mapping[Pair, int]


def _in_order(rank: Rank) -> list[Pair]:
    return sorted(rank, key=rank.__getitem__)


def _encode(pre_token: bytes, rank: Rank) -> list[bytes]:
    tokens = [bytes([b]) for b in pre_token]
    while there := [p for p in itertools.pairwise(tokens) if p in rank]:
        tokens = _merge(tokens, min(there, key=rank.__getitem__))
    return tokens


def _by_the_list(pre_token: bytes, rank: Rank) -> list[bytes]:
    """A right one, though it reads the whole list."""
    tokens = [bytes([b]) for b in pre_token]
    for pair in _in_order(rank):
        tokens = _merge(tokens, pair)
    return tokens


def _as_it_comes(pre_token: bytes, rank: Rank) -> list[bytes]:
    """In the order of the dictionary."""
    tokens = [bytes([b]) for b in pre_token]
    for pair in rank:
        tokens = _merge(tokens, pair)
    return tokens


def _leftmost(pre_token: bytes, rank: Rank) -> list[bytes]:
    """The encoder of the text."""
    tokens, k = [bytes([b]) for b in pre_token], 0
    while k < len(tokens) - 1:
        if (tokens[k], tokens[k + 1]) in rank:
            tokens[k : k + 2] = [tokens[k] + tokens[k + 1]]
            k = 0
        else:
            k += 1
    return tokens


def _longest(pre_token: bytes, rank: Rank) -> list[bytes]:
    known = {a + b for a, b in rank}
    tokens = []
    while pre_token:
        size = next(n for n in range(len(pre_token), 0, -1) if n == 1 or pre_token[:n] in known)
        tokens.append(pre_token[:size])
        pre_token = pre_token[size:]
    return tokens


def _latest(pre_token: bytes, rank: Rank) -> list[bytes]:
    tokens = [bytes([b]) for b in pre_token]
    while there := [p for p in itertools.pairwise(tokens) if p in rank]:
        tokens = _merge(tokens, max(there, key=rank.__getitem__))
    return tokens


def _first_place_only(pre_token: bytes, rank: Rank) -> list[bytes]:
    tokens = [bytes([b]) for b in pre_token]
    for pair in _in_order(rank):
        tokens = _merge_once(tokens, pair)
    return tokens


def _fewest(pre_token: bytes, rank: Rank) -> list[bytes]:
    known = {a + b for a, b in rank}
    best: list[list[bytes]] = [[]]
    for end in range(1, len(pre_token) + 1):
        ways = [
            [*best[start], pre_token[start:end]]
            for start in range(end)
            if end - start == 1 or pre_token[start:end] in known
        ]
        best.append(min(ways, key=len))
    return best[-1]


def _ranks(text: str, *, turned: bool = False) -> dict[Pair, int]:
    """Merges as "u+g u+n" with their places; turned round, the last comes first."""
    pairs = [tuple(part.encode() for part in pair.split("+")) for pair in text.split()]
    places = list(enumerate(pairs))
    return {(a, b): k for k, (a, b) in (reversed(places) if turned else places)}


_HUG = "u+g u+n h+ug p+un hug+s"


def _rank_case(name: str, pre_token: str, merges: str, *, turned: bool = False) -> Case:
    return Case(name, lambda: (pre_token.encode(), _ranks(merges, turned=turned)))


RANK = Exercise(
    "An encoder that reads from left to right",
    oracle=_encode,
    cases=(
        _rank_case("unhugs", "unhugs", _HUG),
        _rank_case("b + c before a + b", "abc", "b+c a+b"),
        _rank_case("a + b before b + c", "abc", "a+b b+c"),
        _rank_case("b + c before a + b, at two places", "abcxabc", "b+c a+b"),
        _rank_case("the longest is not made", "abcd", "a+b c+d b+c a+bc ab+c"),
        _rank_case("a later merge needs an earlier one", "ththe", "t+h th+e"),
        _rank_case("the longest happens to be right", "abc", "b+c a+bc a+b"),
        _rank_case("three equal letters", "aaa", "a+a"),
        _rank_case("five equal letters", "aaaaa", "a+a aa+a"),
        _rank_case("the fewest tokens are not made", "abcde", "b+c a+b c+d cd+e"),
        _rank_case("no merge fits", "xyz", _HUG),
        _rank_case("no merges", "abc", "u+g"),
        _rank_case("a dictionary in another order", "unhugs", _HUG, turned=True),
        _rank_case("in another order, a + b before b + c", "abc", "a+b b+c", turned=True),
        Case("nothing to encode", lambda: (b"", _ranks(_HUG))),
        Case("no list", lambda: (b"hug", {})),
        Case(
            "bytes",
            lambda: ("中中".encode(), {(b"\xb8", b"\xad"): 0, (b"\xe4", b"\xb8\xad"): 1}),
        ),
    ),
    wrong=(
        WrongAnswer(
            "the first pair from the left",
            "It takes the pair that stands first in the text. The training took the pair that is "
            "first in the list.",
            _leftmost,
        ),
        WrongAnswer(
            "the order of the dictionary",
            "A dictionary has an order of its own. What counts is the place that it gives.",
            _as_it_comes,
        ),
        WrongAnswer(
            "the longest token that fits",
            "That reads the list of tokens as a dictionary. The merges are made in their order, "
            "whether or not a longer token would fit.",
            _longest,
        ),
        WrongAnswer(
            "the merge that was learned last",
            "The first merges of the list are the most frequent ones, and are made first.",
            _latest,
        ),
        WrongAnswer(
            "each merge at one place only",
            "A merge is made wherever its pair stands.",
            _first_place_only,
        ),
        WrongAnswer(
            "the fewest tokens",
            "Training is greedy, so the result need not be the shortest that is possible.",
            _fewest,
        ),
    ),
    variants=(_by_the_list,),
    spared=_NO_TENSORS,
)

# --- digits ---------------------------------------------------------------------------------------


def _cut_digits(text: str) -> list[str]:
    return re.findall(r"\d{1,3}(?=(?:\d{3})*(?!\d))|\D+", text)


def _digits_by_slices(text: str) -> list[str]:
    """A right one: runs first, and each number from its end."""
    found: list[str] = []
    for digits, run in itertools.groupby(text, str.isdecimal):
        one = "".join(run)
        if digits:
            first = len(one) % 3
            found += [one[:first]] if first else []
            found += [one[k : k + 3] for k in range(first, len(one), 3)]
        else:
            found.append(one)
    return found


def _pattern(pattern: str) -> Callable[[str], list[str]]:
    return lambda text: re.findall(pattern, text)


def _as_numbers(text: str) -> list[str]:
    """Each number read and printed with commas."""
    found: list[str] = []
    for one in re.findall(r"\d+|\D+", text):
        found += f"{int(one):,}".split(",") if one.isdecimal() else [one]
    return found


def _digits_backwards(text: str) -> list[str]:
    """From the end of the text, and the pre-tokens left in that order."""
    return [one[::-1] for one in re.findall(r"\d{1,3}|\D+", text[::-1])]


def _digits_case(name: str, text: str) -> Case:
    return Case(name, lambda: (text,))


DIGITS = Exercise(
    "Thousands with thousands",
    oracle=_cut_digits,
    cases=(
        _digits_case("seven digits", "1234567"),
        _digits_case("six digits", "123456"),
        _digits_case("five digits", "12345"),
        _digits_case("three digits", "123"),
        _digits_case("one digit", "7"),
        _digits_case("two numbers in a sentence", "pay 12345 or 1234567!"),
        _digits_case("a decimal point", "1234.56789"),
        _digits_case("zeros in front", "0012345"),
        _digits_case("letters beside digits", "a1b22c4444"),
        _digits_case("a line break", "12\n3456\n\n7890123"),
        _digits_case("digits of Hindi", "१२३४५"),
        _digits_case("no digits", "if x: pass"),
        _digits_case("no text", ""),
    ),
    wrong=(
        WrongAnswer(
            "threes from the left",
            "The short group stands first, so that every group behind it is full.",
            _pattern(r"\d{1,3}|\D+"),
        ),
        WrongAnswer(
            "each digit alone",
            "Groups of three are asked for. Each digit alone is the pattern of Qwen2.",
            _pattern(r"\d|\D+"),
        ),
        WrongAnswer(
            "each number whole",
            "That is the pattern of GPT-2. A number of more than three digits is cut.",
            _pattern(r"\d+|\D+"),
        ),
        WrongAnswer(
            "the end of the text in place of the end of the number",
            "A number may be followed by a word. Its end is where no digit follows.",
            _pattern(r"\d{1,3}(?=(?:\d{3})*$)|\D+"),
        ),
        WrongAnswer(
            "full groups only",
            "A number whose length is no multiple of three begins with a shorter group.",
            _pattern(r"\d{3}(?=(?:\d{3})*(?!\d))|\D+"),
        ),
        WrongAnswer(
            "a group that findall returns",
            "With brackets in the pattern `findall` returns what they took. Write (?:…).",
            _pattern(r"\d{1,3}(?=(\d{3})*(?!\d))|\D+"),
        ),
        WrongAnswer(
            "the digits without the rest",
            "Joined, the pre-tokens are the text. What is no digit has to stay too.",
            _pattern(r"\d{1,3}(?=(?:\d{3})*(?!\d))"),
        ),
        WrongAnswer(
            "the rest cut into characters",
            "What is between two numbers stays whole: one pre-token, not one for each character.",
            _pattern(r"\d{1,3}(?=(?:\d{3})*(?!\d))|\D"),
        ),
        WrongAnswer(
            "read as a number",
            "A number printed anew loses the zeros in front of it, and its script. Cut the text.",
            _as_numbers,
        ),
        WrongAnswer(
            "the last pre-token first",
            "Read from the end, the pre-tokens have to be turned round as well.",
            _digits_backwards,
        ),
    ),
    variants=(_digits_by_slices,),
    spared=_NO_TENSORS,
)

# --- stream ---------------------------------------------------------------------------------------


def _stream(tokens: Sequence[bytes]) -> list[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    last = len(tokens) - 1
    return [decoder.decode(token, k == last) for k, token in enumerate(tokens)]


def _by_hand(tokens: Sequence[bytes]) -> list[str]:
    """A right one: hold back what decoding calls unexpected end of data."""
    shown, held = [], b""
    for k, token in enumerate(tokens):
        held += token
        text = ""
        while held:
            try:
                text, held = text + held.decode(), b""
            except UnicodeDecodeError as error:
                text += held[: error.start].decode()
                if error.reason == "unexpected end of data" and k < len(tokens) - 1:
                    held = held[error.start :]
                    break
                text, held = text + "\ufffd", held[error.end :]
        shown.append(text)
    return shown


def _each_alone(errors: str) -> Callable[[Sequence[bytes]], list[str]]:
    return lambda tokens: [token.decode(errors=errors) for token in tokens]


def _until_readable(tokens: Sequence[bytes]) -> list[str]:
    """Hold everything back until all of it can be read."""
    shown, held = [], b""
    for k, token in enumerate(tokens):
        held += token
        try:
            text, held = held.decode(), b""
        except UnicodeDecodeError:
            text = held.decode(errors="replace") if k == len(tokens) - 1 else ""
        shown.append(text)
    return shown


def _never_finished(tokens: Sequence[bytes]) -> list[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return [decoder.decode(token) for token in tokens]


def _all_so_far(tokens: Sequence[bytes]) -> list[str]:
    new, shown = _stream(tokens), []
    for k in range(len(new)):
        shown.append("".join(new[: k + 1]))
    return shown


def _ignoring(tokens: Sequence[bytes]) -> list[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("ignore")
    last = len(tokens) - 1
    return [decoder.decode(token, k == last) for k, token in enumerate(tokens)]


def _stream_case(name: str, *tokens: bytes) -> Case:
    return Case(name, lambda: (list(tokens),))


_ZH = "早上".encode()

STREAM = Exercise(
    "Show only what is complete",
    oracle=_stream,
    cases=(
        _stream_case("whole words", b"good", b" day"),
        _stream_case("a character byte by byte", *(_ZH[k : k + 1] for k in range(6))),
        _stream_case("a word and half a character", b"ok " + _ZH[:2], _ZH[2:4], _ZH[4:], b"!"),
        _stream_case("an emoji in two tokens", b"\xf0\x9f", b"\x99\x82 yes"),
        _stream_case("a byte that never is text", b"a\xff", b"b", b"c"),
        _stream_case("begun, and then something else", _ZH[:2], b"x", b"y"),
        _stream_case("cut off at the end", b"hi ", _ZH[:2]),
        _stream_case("a follower without a beginning", b"\xad", b"z"),
        _stream_case("nothing"),
        _stream_case("an empty token", b"a", b"", b"b"),
    ),
    wrong=(
        WrongAnswer(
            "each token read alone",
            "A character whose bytes come in two tokens is lost. Join first, then read.",
            _each_alone("replace"),
        ),
        WrongAnswer(
            "each token alone, and what cannot be read left out",
            "Then a character in two tokens disappears without a trace.",
            _each_alone("ignore"),
        ),
        WrongAnswer(
            "nothing shown until all of it can be read",
            "The part that is complete can be shown, and a byte that never is text would hold "
            "back all that follows.",
            _until_readable,
        ),
        WrongAnswer(
            "the end forgotten",
            "What is still held back after the last token has to be shown as �.",
            _never_finished,
        ),
        WrongAnswer(
            "all of the text each time",
            "Asked for is what is *new* after each token.",
            _all_so_far,
        ),
        WrongAnswer(
            "unreadable bytes left out",
            "Bytes that never become a character are shown as �, so that somebody sees them.",
            _ignoring,
        ),
    ),
    variants=(_by_hand,),
    spared=_NO_TENSORS,
)

# --- dead, bpb ------------------------------------------------------------------------------------

MERGES = 400


def _told(number: int, seed: str) -> list[str]:
    return [str(story) for story in itertools.islice(stories(seed), number)]


@functools.cache
def _learned() -> tuple[Pair, ...]:
    """The merges of the chapter: of equal pairs the one whose tokens were made first."""
    words = Counter(one.encode() for text in _told(300, "tokens") for one in _cut(text))
    made = {bytes([byte]): byte for byte in range(256)}

    def best(counts: Mapping[Pair, int]) -> Pair:
        pair = min(counts, key=lambda p: (-counts[p], made[p[0]], made[p[1]]))
        made.setdefault(pair[0] + pair[1], len(made))
        return pair

    return tuple(_train_with(best=best)(words, MERGES))


def _cut(text: str) -> list[str]:
    """The stories have words, punctuation, spaces and line breaks."""
    return re.findall(r" ?[^\s]+|\s", text)


@functools.cache
def _tokens_of(pre_token: str, merges: int) -> tuple[bytes, ...]:
    rank = {pair: k for k, pair in enumerate(_learned()[:merges])}
    return tuple(_encode(pre_token.encode(), rank))


def _tokens(text: str, merges: int) -> list[bytes]:
    return [token for one in _cut(text) for token in _tokens_of(one, merges)]


def _unused(seed: str = "tokens", number: int = 300) -> set[bytes]:
    """Tokens of the vocabulary that the stories lack."""
    used = {token for text in _told(number, seed) for token in _tokens(text, MERGES)}
    singles = {bytes([byte]) for byte in range(256)}
    return singles.union(a + b for a, b in _learned()) - used


def _dead(seed: str = "tokens", number: int = 300) -> int:
    return sum(len(token) > 1 for token in _unused(seed, number))


DEAD = number(
    "Tokens that never occur",
    value=_dead,
    within=0,
    because="Of the 400 tokens {value} were only steps to longer ones: later merges have taken up "
    "every place where they stood.",
    wrong=[
        WrongNumber(
            "none",
            "Each stood in the text when it was made. Later merges can take up all its places.",
            lambda: 0,
        ),
        WrongNumber(
            "those that occur",
            "That is how many of the 400 do occur.",
            lambda: MERGES - _dead(),
        ),
        WrongNumber(
            "single bytes counted too",
            "Most of the 256 bytes do not occur either. Asked for are the tokens of the merges.",
            lambda: len(_unused()),
        ),
        WrongNumber(
            "one story only",
            "A token may stand in another story. Collect the tokens of all 300.",
            lambda: _dead(number=1),
        ),
        WrongNumber(
            "other stories",
            "Asked for are the stories from which the merges were learned.",
            lambda: _dead("held out"),
        ),
        WrongNumber(
            "half of a later token",
            "That is how many are half of a token that was made later. Some of these occur by "
            "themselves as well.",
            lambda: len({a + b for a, b in _learned()} & {h for p in _learned() for h in p}),
        ),
    ],
)


@functools.cache
def _bigram(merges: int) -> tuple[float, int, int]:
    """A bigram model on held-out stories: nats a token, tokens, bytes."""
    seen = _tokens("\n".join(_told(300, "tokens")), merges)
    text = "\n".join(_told(20, "held out"))
    read = _tokens("\n" + text, merges)
    pairs, firsts = Counter(itertools.pairwise(seen)), Counter(seen[:-1])
    size, more = 256 + merges, 0.1
    nats = [
        math.log(firsts[a] + more * size) - math.log(pairs[a, b] + more)
        for a, b in itertools.pairwise(read)
    ]
    return sum(nats) / len(nats), len(nats), len(text.encode())


def _bits(merges: int) -> float:
    loss, count, size = _bigram(merges)
    return count / size * loss / math.log(2)


def _of(turn: Callable[[float, int, int], float]) -> Callable[[], float]:
    """What the loss of the better model is turned into."""
    return lambda: turn(*_bigram(MERGES))


BPB = number(
    "Two tokenizers for one model",
    value=lambda: min(_bits(0), _bits(MERGES)),
    within=0.01,
    because="The model on merged tokens has {value} bits per byte and the one on bytes more than "
    "three times as many, although its loss a token is smaller.",
    wrong=[
        WrongNumber(
            "the smaller loss a token",
            "That is the model on single bytes. It has to guess more than four times as often for "
            "the same text: compare per byte.",
            lambda: _bits(0),
        ),
        WrongNumber(
            "nats instead of bits",
            "That is in nats per byte. A bit is ln 2 nats.",
            _of(lambda loss, count, size: loss * count / size),
        ),
        WrongNumber(
            "bits a token",
            "That is the loss a token in bits. Multiply by the tokens of a byte.",
            _of(lambda loss, count, size: loss / math.log(2)),
        ),
        WrongNumber(
            "nats a token",
            "That is the loss as it is returned. It counts per token, and in nats.",
            _of(lambda loss, count, size: loss),
        ),
        WrongNumber(
            "times ln 2 instead of divided by it",
            "A text has more bits than nats, since a bit is the smaller unit.",
            _of(lambda loss, count, size: loss * count / size * math.log(2)),
        ),
        WrongNumber(
            "bytes a token instead of tokens a byte",
            "T tokens have N bytes, so a byte has T/N tokens.",
            _of(lambda loss, count, size: loss * size / count / math.log(2)),
        ),
    ],
)

# --- blocks ---------------------------------------------------------------------------------------


def _blocks(small: float = 32_000, large: float = 0.85 * 128_000, saved: float = 0.15) -> float:
    """Blocks of width 1,024 whose saved multiplications pay for the larger output matrix."""
    return (large - small) / (saved * 12 * 1024)


PAYS = number(
    "When does a larger vocabulary pay?",
    value=lambda: math.ceil(_blocks()),
    within=0,
    because="For a token of the small vocabulary the output matrix costs 76,800 d more, and each "
    "block costs 1,843 d less: from {value} blocks on the larger vocabulary needs less.",
    wrong=[
        WrongNumber(
            "rounded down",
            "With 41 blocks the larger vocabulary still needs a little more.",
            lambda: float(math.floor(_blocks())),
        ),
        WrongNumber(
            "the output matrix used as often as before",
            "With fewer tokens the output matrix is used less often too: 0.85 times 128,000.",
            lambda: float(math.ceil(_blocks(large=128_000))),
        ),
        WrongNumber(
            "the embedding table multiplied",
            "A row of the embedding table is looked up, which multiplies nothing.",
            lambda: float(math.ceil(2 * _blocks())),
        ),
        WrongNumber(
            "the longer text taken for 1.15 of the shorter",
            "It is 100/85 of the shorter one, and that is more than 1.15.",
            lambda: float(math.ceil(_blocks(small=1.15 * 32_000, large=128_000))),
        ),
        WrongNumber(
            "the blocks of the large one without what the small one needs",
            "A block saves 0.15 of its work. The other 0.85 are done with either vocabulary.",
            lambda: float(math.ceil(_blocks(saved=0.85))),
        ),
        WrongNumber(
            "one matrix in a block",
            "A block has 12 d² numbers, of which d² are one matrix only.",
            lambda: float(math.ceil(12 * _blocks())),
        ),
    ],
)

EXERCISES = {
    "next": NEXT,
    "train": TRAIN,
    "rank": RANK,
    "digits": DIGITS,
    "stream": STREAM,
    "dead": DEAD,
    "pays": PAYS,
    "bpb": BPB,
}
