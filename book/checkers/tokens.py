"""Chapter 17: bytes, merges, the order of merges, streams, digits, and what a vocabulary costs."""

from __future__ import annotations

import codecs
import itertools
import math
from collections.abc import Callable, Sequence

from book.checkers.core import SIXTEEN_BITS, Case, Exercise, WrongAnswer
from book.checkers.questions import WrongNumber, choice, number

Pair = tuple[bytes, bytes]

BYTES = choice(
    "How many bytes?",
    right="D",
    because="Without a merge each byte is a token. There are two code points, and both lie above "
    "65,535, where UTF-8 takes four bytes.",
    tempting={
        "A": (
            "one sign on the screen",
            "The screen shows one sign, made of two code points. A tokenizer sees their bytes.",
        ),
        "B": (
            "code points counted",
            "There are two code points, and Python's `len` says 2. A token without merges is a "
            "byte.",
        ),
        "C": (
            "one of the two code points",
            "A code point above 65,535 has four bytes, and there are two of them.",
        ),
    },
)

NEXT = choice(
    "A word that was never seen",
    right="C",
    because="The first merge joins u g; the second joins u n at the beginning; the third joins "
    "h ug. Nothing joins to the s, nor un to hug, so three tokens are left.",
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
            "u n was merged in *pun* and *bun*, and it is merged in every word where it stands.",
        ),
    },
)

# --- merge ----------------------------------------------------------------------------------------


def _split(text: str) -> list[bytes]:
    return [t.encode() for t in text.split("|")]


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
    joined: list[bytes] = []
    for token in tokens:
        joined.append(token)
        while len(joined) > 1 and (joined[-2], joined[-1]) == tuple(pair):
            joined[-2:] = [pair[0] + pair[1]]
    return joined


def _merge_overlapping(tokens: Sequence[bytes], pair: Pair) -> list[bytes]:
    pairs = zip(tokens, [*tokens[1:], b""], strict=True)
    return [a + b if (a, b) == tuple(pair) and b else a for a, b in pairs]


def _merge_in_text(tokens: Sequence[bytes], pair: Pair) -> list[bytes]:
    """By what the two tokens are together, whichever they are."""
    joined = pair[0] + pair[1]
    found, rest = [], list(tokens)
    while rest:
        if len(rest) > 1 and rest[0] + rest[1] == joined:
            found.append(joined)
            rest = rest[2:]
        else:
            found.append(rest.pop(0))
    return found


def _merge_case(name: str, tokens: str, pair: str) -> Case:
    one, other = _split(pair)
    return Case(name, lambda: (_split(tokens), (one, other)))


_NO_TENSORS = dict.fromkeys(
    ("float32", *SIXTEEN_BITS), "its arguments are texts and bytes, no tensors"
)

MERGE = Exercise(
    "One merge",
    oracle=_merge,
    cases=(
        _merge_case("hug, with u g", "h|u|g", "u|g"),
        _merge_case("at the beginning and at the end", "u|g|s|u|g", "u|g"),
        _merge_case("nothing to merge", "p|u|n", "u|g"),
        _merge_case("the pair turned round", "g|u|g", "u|g"),
        _merge_case("a a a", "a|a|a", "a|a"),
        _merge_case("a a a a", "a|a|a|a", "a|a"),
        _merge_case("longer tokens", "ab|c|ab|c|d", "ab|c"),
        _merge_case("other tokens with the same letters", "a|bc|ab|c", "ab|c"),
        _merge_case("a token that ends like the pair", "xab|c|ab|cx", "ab|c"),
        _merge_case("the new token is half of the pair", "a|b|ab|ab|ab", "ab|ab"),
        _merge_case("made, and then beside its like", "aa|a|a|aa", "a|a"),
        _merge_case("a result that would pair again", "a|aa|a|a|aa", "a|a"),
        Case("no tokens", lambda: ([], (b"a", b"b"))),
        _merge_case("one token", "a", "a|a"),
        Case(
            "bytes that are no text",
            lambda: ([b"\xe4", b"\xb8", b"\xad", b"\xb8"], (b"\xe4", b"\xb8")),
        ),
    ),
    wrong=(
        WrongAnswer(
            "only the first occurrence",
            "The pair may stand several times; each occurrence is replaced.",
            _merge_once,
        ),
        WrongAnswer(
            "from right to left",
            "In a row of three equal tokens the first two are the pair, as in the training.",
            _merge_backwards,
        ),
        WrongAnswer(
            "a token used twice",
            "After a match the next token is used up: move on by two.",
            _merge_overlapping,
        ),
        WrongAnswer(
            "letters compared instead of tokens",
            "Two other tokens can have the same letters together. The pair is these two tokens.",
            _merge_in_text,
        ),
        WrongAnswer(
            "the pair removed",
            "The two tokens become one new token, which stands in their place.",
            lambda tokens, pair: [t for t in _merge(tokens, pair) if t != pair[0] + pair[1]],
        ),
        WrongAnswer(
            "either order",
            "The pair has an order: g u is another pair than u g.",
            lambda tokens, pair: _merge(_merge(tokens, pair), (pair[1], pair[0])),
        ),
    ),
    variants=(_merge_by_counting,),
    spared=_NO_TENSORS,
)

# --- rank -----------------------------------------------------------------------------------------


def _encode(piece: bytes, merges: Sequence[Pair]) -> list[bytes]:
    tokens = [bytes([b]) for b in piece]
    for pair in merges:
        tokens = _merge(tokens, pair)
    return tokens


def _by_lookup(piece: bytes, merges: Sequence[Pair]) -> list[bytes]:
    """A right one: the earliest merge of those that are possible."""
    rank = {tuple(pair): k for k, pair in reversed(list(enumerate(merges)))}
    tokens = [bytes([b]) for b in piece]
    while True:
        there = [p for p in itertools.pairwise(tokens) if p in rank]
        if not there:
            return tokens
        tokens = _merge(tokens, min(there, key=rank.__getitem__))


def _leftmost(piece: bytes, merges: Sequence[Pair]) -> list[bytes]:
    """The encoder of the text."""
    tokens, k = [bytes([b]) for b in piece], 0
    while k < len(tokens) - 1:
        if (tokens[k], tokens[k + 1]) in merges:
            tokens[k : k + 2] = [tokens[k] + tokens[k + 1]]
            k = 0
        else:
            k += 1
    return tokens


def _longest(piece: bytes, merges: Sequence[Pair]) -> list[bytes]:
    known = {a + b for a, b in merges}
    tokens = []
    while piece:
        size = next(n for n in range(len(piece), 0, -1) if n == 1 or piece[:n] in known)
        tokens.append(piece[:size])
        piece = piece[size:]
    return tokens


def _latest(piece: bytes, merges: Sequence[Pair]) -> list[bytes]:
    tokens = [bytes([b]) for b in piece]
    while True:
        there = [p for p in itertools.pairwise(tokens) if p in merges]
        if not there:
            return tokens
        tokens = _merge(tokens, max(there, key=list(merges).index))


def _first_place_only(piece: bytes, merges: Sequence[Pair]) -> list[bytes]:
    tokens = [bytes([b]) for b in piece]
    for pair in merges:
        tokens = _merge_once(tokens, pair)
    return tokens


def _fewest(piece: bytes, merges: Sequence[Pair]) -> list[bytes]:
    known = {a + b for a, b in merges}
    best: list[list[bytes]] = [[]]
    for end in range(1, len(piece) + 1):
        ways = [
            [*best[start], piece[start:end]]
            for start in range(end)
            if end - start == 1 or piece[start:end] in known
        ]
        best.append(min(ways, key=len))
    return best[-1]


def _pairs(text: str) -> list[Pair]:
    return [(a.encode(), b.encode()) for a, b in (pair.split("+") for pair in text.split())]


_HUG = "u+g u+n h+ug p+un hug+s"


def _rank_case(name: str, piece: str, merges: str) -> Case:
    return Case(name, lambda: (piece.encode(), _pairs(merges)))


RANK = Exercise(
    "An encoder that reads from left to right",
    oracle=_encode,
    cases=(
        _rank_case("unhugs", "unhugs", _HUG),
        _rank_case("b c before a b", "abc", "b+c a+b"),
        _rank_case("a b before b c", "abc", "a+b b+c"),
        _rank_case("b c before a b, at two places", "abcxabc", "b+c a+b"),
        _rank_case("the longest is not made", "abcd", "a+b c+d b+c a+bc ab+c"),
        _rank_case("a later merge needs an earlier one", "ththe", "t+h th+e"),
        _rank_case("the longest happens to be right", "abc", "b+c a+bc a+b"),
        _rank_case("three equal letters", "aaa", "a+a"),
        _rank_case("five equal letters", "aaaaa", "a+a aa+a"),
        _rank_case("the fewest tokens are not made", "abcde", "b+c a+b c+d cd+e"),
        _rank_case("no merge fits", "xyz", _HUG),
        _rank_case("no merges", "abc", "u+g"),
        Case("nothing to encode", lambda: (b"", _pairs(_HUG))),
        Case("no list", lambda: (b"hug", [])),
        Case("bytes", lambda: ("中中".encode(), [(b"\xb8", b"\xad"), (b"\xe4", b"\xb8\xad")])),
    ),
    wrong=(
        WrongAnswer(
            "the first pair from the left",
            "It takes the pair that stands first in the piece. The training took the pair that is "
            "first in the list.",
            _leftmost,
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
            "A merge is made wherever its pair stands in the piece.",
            _first_place_only,
        ),
        WrongAnswer(
            "the fewest tokens",
            "Training is greedy, so the result need not be the shortest that is possible.",
            _fewest,
        ),
    ),
    variants=(_by_lookup,),
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

# --- digits ---------------------------------------------------------------------------------------


def _digits(number: str) -> list[str]:
    return [number[max(0, end - 3) : end] for end in range(len(number), 0, -3)][::-1]


def _digits_by_first(text: str) -> list[str]:
    head = len(text) % 3
    rest = [text[k : k + 3] for k in range(head, len(text), 3)]
    return ([text[:head]] if head else []) + rest


def _number_case(name: str, text: str) -> Case:
    return Case(name, lambda: (text,))


DIGITS = Exercise(
    "Digits from the right",
    oracle=_digits,
    cases=(
        *(_number_case(f"{n} digits", "9876543210123"[:n]) for n in (7, 4, 3, 6, 1, 2, 5, 9, 13)),
        _number_case("no digits", ""),
        _number_case("zeros in front", "0001"),
        _number_case("zeros at the end", "1000"),
    ),
    wrong=(
        WrongAnswer(
            "from the left",
            "Then thousands and units share a piece, in a way that depends on the length.",
            lambda text: [text[k : k + 3] for k in range(0, len(text), 3)],
        ),
        WrongAnswer(
            "an empty piece in front",
            "If the length is a multiple of three there is no shorter piece.",
            lambda text: [text[: len(text) % 3], *_digits(text[len(text) % 3 :])],
        ),
        WrongAnswer(
            "the pieces in reverse",
            "The pieces joined are the number: the first one stands in front.",
            lambda text: _digits(text)[::-1],
        ),
        WrongAnswer(
            "the value instead of the digits",
            "Zeros in front are text too, and must come back when the pieces are joined.",
            lambda text: f"{int(text):,}".split(",") if text else [],
        ),
        WrongAnswer(
            "each digit alone",
            "Up to three digits go together here.",
            lambda text: list(text),
        ),
    ),
    variants=(_digits_by_first,),
    spared=_NO_TENSORS,
)

# --- share, bpb -----------------------------------------------------------------------------------


def _share(tables: float = 2, layers: float = 24, factor: float = 12) -> float:
    rows, width = 128_000, 1024
    return tables * rows / (tables * rows + layers * factor * width)


SHARE = number(
    "The share of the tables",
    value=_share,
    within=0.01,
    because="2Vd are 262 million parameters, the layers 302 million: nearly half of the model is "
    "in the two tables.",
    wrong=[
        WrongNumber(
            "one table only",
            "Input and output each have a table, since they are not tied.",
            lambda: _share(tables=1),
        ),
        WrongNumber(
            "tables against layers",
            "That is the tables divided by the layers. Asked for is their part of all parameters.",
            lambda: 2 * 128_000 / (24 * 12 * 1024),
        ),
        WrongNumber(
            "the part of the layers",
            "That is what is left for the layers.",
            lambda: 1 - _share(),
        ),
        WrongNumber(
            "one layer only",
            "The model has 24 layers, each with as many parameters.",
            lambda: _share(layers=1),
        ),
        WrongNumber(
            "attention without the feed-forward layer",
            "A layer has 12d² parameters: 4d² in attention and 8d² in the feed-forward part.",
            lambda: _share(factor=4),
        ),
    ],
)


def _bits(loss: float, size: float) -> float:
    return loss / size / math.log(2)


BPB = number(
    "Which model is better?",
    value=lambda: _bits(2.10, 4.2),
    within=0.01,
    because="Model A has 0.72 bits per byte and model B 0.80. A is better, although its loss a "
    "token is larger, because its tokens are so much longer.",
    wrong=[
        WrongNumber(
            "the smaller loss a token",
            "That is model B. Its tokens are shorter, so that it has to guess more often for the "
            "same text: compare per byte.",
            lambda: _bits(1.60, 2.9),
        ),
        WrongNumber(
            "nats instead of bits",
            "That is model A in nats per byte. A bit is ln 2 nats.",
            lambda: 2.10 / 4.2,
        ),
        WrongNumber(
            "bits a token",
            "That is model A's loss a token in bits. Divide by the bytes of a token.",
            lambda: 2.10 / math.log(2),
        ),
        WrongNumber(
            "times ln 2 instead of divided by it",
            "A text has more bits than nats, since a bit is the smaller unit.",
            lambda: 2.10 / 4.2 * math.log(2),
        ),
        WrongNumber(
            "multiplied by the bytes of a token",
            "T tokens have N bytes, so a byte has T/N tokens: one divided by 4.2.",
            lambda: _bits(2.10, 1 / 4.2),
        ),
    ],
)

EXERCISES = {
    "bytes": BYTES,
    "next": NEXT,
    "merge": MERGE,
    "rank": RANK,
    "stream": STREAM,
    "digits": DIGITS,
    "share": SHARE,
    "bpb": BPB,
}
