"""Tokens: equal to the library `tokenizers`, merge by merge and id by id; and the corners."""

import json
import random
import unicodedata
from collections import Counter
from itertools import islice, pairwise

import pytest
import regex
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from book.stories import stories
from transformer_parts.tokens import (
    PATTERNS,
    BPETokenizer,
    apply_merges,
    cut,
    merge,
    train_bpe,
)

# GPT-2's order of the bytes, which `tokenizers` has too: the printable ones first.
_PRINTED = [*range(33, 127), *range(161, 173), *range(174, 256)]
ORDER = [*_PRINTED, *(b for b in range(256) if b not in _PRINTED)]
AS_CHARACTER = {b: chr(b) for b in _PRINTED} | {
    b: chr(256 + n) for n, b in enumerate(b for b in range(256) if b not in _PRINTED)
}

TOLD = [str(story) for story in islice(stories("tokens"), 300)]
OTHER = [
    "人人生而自由，在尊严和权利上一律平等。",
    "早上好 🙂👍🏽👩‍🚀",
    "def f(x):\n    return x ** 2  # 10%\n\n\tpass\n",
    "Würde, naïve café; I'LL pay $1234567.50\u00a0now…",
    "   leading and trailing   ",
    "\x00\x1f\u2028\ufffd",
    "सभी मनुष्यों को",
    "",
]
CORPORA = {
    "the stories": TOLD,
    "Chinese": OTHER[:2] * 3,
    "code": [OTHER[2], "for i in range(10):\n    print(i)\n" * 3],
    "all": TOLD[:50] + OTHER,
}


def theirs(texts, merges, pattern):
    """The library's byte-level BPE, trained on the same texts."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERNS[pattern]), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=256 + merges,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def in_characters(token):
    return "".join(AS_CHARACTER[byte] for byte in token)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("corpus", CORPORA)
def test_merges_and_ids_are_those_of_the_library(corpus, pattern):
    texts = CORPORA[corpus]
    library = theirs(texts, 300, pattern)
    model = json.loads(library.to_str())["model"]
    merges = train_bpe(texts, 300, lambda text: cut(text, pattern), ORDER)
    made = {a + b for a, b in merges}
    # The library counts tokens, this book counts merges; two merges can make one token.
    assert [[in_characters(a), in_characters(b)] for a, b in merges][: len(model["merges"])] == [
        list(pair) for pair in model["merges"]
    ]
    ours = BPETokenizer(merges[: len(model["merges"])], pattern=pattern, first=ORDER)
    assert len(made) > 50 or corpus != "the stories"
    assert {in_characters(t): k for k, t in enumerate(ours.vocabulary)} == model["vocab"]
    assert model["vocab"]["Ġ"] == ours.encode(" ")[0]  # how a space is printed
    for text in [*TOLD[:5], *(str(s) for s in islice(stories("held out"), 5)), *OTHER]:
        ids = ours.encode(text)
        assert ids == library.encode(text).ids
        assert ours.decode(ids) == text


@pytest.mark.parametrize("corpus", CORPORA)
def test_no_pair_is_more_frequent_than_the_one_that_was_merged_before_it(corpus):
    texts = CORPORA[corpus]
    times = Counter(one for text in texts for one in cut(text))
    split = {one: [bytes([b]) for b in one.encode()] for one in times}
    found = []
    for pair in train_bpe(texts, 300):
        found.append(sum(n * list(pairwise(split[one])).count(pair) for one, n in times.items()))
        split = {one: merge(tokens, pair) for one, tokens in split.items()}
    assert found == sorted(found, reverse=True)
    assert found[0] > found[-1]


def test_learned_merges_by_their_places_are_the_list_from_its_beginning_to_its_end():
    """What the exercise on encoding says: the smallest place is the next merge that does any."""
    rng = random.Random(2)
    for _ in range(60):
        texts = ["".join(rng.choices("abc", k=rng.randint(3, 12))) for _ in range(6)]
        merges = train_bpe(texts, 30, split=lambda text: [text])
        rank = {pair: place for place, pair in enumerate(merges)}
        for _ in range(10):
            word = bytes(rng.choices(b"abc", k=10))
            tokens = [bytes([b]) for b in word]
            for pair in merges:
                tokens = merge(tokens, pair)
            assert apply_merges(word, rank) == tokens


@pytest.mark.parametrize("name", PATTERNS)
def test_no_pre_token_holds_a_letter_and_a_mark_behind_it(name):
    for text in ["e\u0301", "सभी", "मनुष्य", "Cafe\u0301s, उन्हें"]:
        pre_tokens = cut(text, name)
        assert "".join(pre_tokens) == text
        assert len(pre_tokens) > 1
        for one in pre_tokens:
            kinds = "".join(unicodedata.category(sign)[0] for sign in one)
            assert "LM" not in kinds


@pytest.mark.parametrize("name", PATTERNS)
def test_pre_tokens_are_those_of_the_published_pattern(name):
    """On random texts, of characters on which both tables of Unicode agree."""
    rng = random.Random(0)
    kinds = "aZéßя中क١²½Ⅷ_-'’ \t\n\r\u00a0\u2003.,!?$🙂\u0301\x1c\u200d09sStTlLmMdDvVreRE"
    published = regex.compile(PATTERNS[name])
    for _ in range(2000):
        text = "".join(rng.choices(kinds, k=rng.randint(0, 30)))
        assert cut(text, name) == published.findall(text), repr(text)
        assert "".join(cut(text, name)) == text


def test_every_character_is_in_the_class_that_unicode_gives_it():
    for code in range(0, 0x30000, 7):
        sign = chr(code)
        if 0xD800 <= code < 0xE000:
            continue
        letter = unicodedata.category(sign)[0] == "L"
        pre_tokens = cut("a" + sign, "qwen2")
        assert (len(pre_tokens) == 1) == letter, hex(code)


def test_merge_goes_from_left_to_right_and_uses_a_token_once():
    assert merge(["a", "a", "a"], ("a", "a")) == ["aa", "a"]
    assert merge([b"a", b"b", b"ab", b"ab"], (b"ab", b"ab")) == [b"a", b"b", b"abab"]
    assert merge([], ("a", "b")) == []


def test_training_counts_what_can_be_counted_by_hand():
    words = ["hug"] * 10 + ["pug"] * 5 + ["pun"] * 12 + ["bun"] * 4 + ["hugs"] * 5
    merges = train_bpe(words, 4, lambda text: [text])
    assert merges == [(b"u", b"g"), (b"u", b"n"), (b"h", b"ug"), (b"p", b"un")]
    # Of equal pairs the one whose tokens are earlier in the order.
    assert train_bpe(["ab", "cd"], 1, lambda text: [text]) == [(b"a", b"b")]
    turned = list(range(255, -1, -1))
    assert train_bpe(["ab", "cd"], 1, lambda text: [text], turned) == [(b"c", b"d")]


def test_training_ends_when_nothing_is_left():
    assert train_bpe(["abc", "abc"], 100, lambda text: [text]) == [(b"a", b"b"), (b"ab", b"c")]
    assert train_bpe([], 5) == []
    assert train_bpe(TOLD[:2], 0) == []


def test_nothing_is_merged_across_pre_tokens():
    for a, b in train_bpe(TOLD, 200):
        assert b" " not in (a + b)[1:]


def test_merges_are_applied_as_the_training_made_them():
    merges = train_bpe(TOLD, 300)
    rank = {pair: k for k, pair in enumerate(merges)}
    for one in {p for text in TOLD[:40] for p in cut(text)} | {" starfish", "aaaa", "早上"}:
        tokens = [bytes([b]) for b in one.encode()]
        for pair in merges:
            tokens = merge(tokens, pair)
        assert apply_merges(one.encode(), rank) == tokens


def test_special_tokens_are_seen_only_when_they_may_be():
    tokenizer = BPETokenizer(train_bpe(TOLD, 50), special=["<|end|>", "<|end|>!"])
    text = "the end <|end|> the<|end|>!"
    plain, allowed = tokenizer.encode(text), tokenizer.encode(text, allow_special=True)
    assert max(plain) < 306
    assert [i for i in allowed if i >= 306] == [306, 307]
    assert tokenizer.decode(plain) == tokenizer.decode(allowed) == text
    assert len(tokenizer) == 308


def test_bytes_that_are_no_text_can_be_decoded():
    tokenizer = BPETokenizer([])
    half = list("早".encode()[:2])
    assert tokenizer.decode(half) == "\ufffd"
    with pytest.raises(UnicodeDecodeError):
        tokenizer.decode(half, errors="strict")


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: train_bpe(["a"], -1), "num_merges must not be negative, got -1"),
        (lambda: train_bpe(["a"], 1, first=range(255)), "each of the 256 bytes"),
        (lambda: cut("a", "gpt5"), "got 'gpt5'"),
        (lambda: BPETokenizer([], pattern="gpt5"), "got 'gpt5'"),
        (lambda: BPETokenizer([(b"ab", b"c")]), "nothing has made b'ab'"),
        (lambda: BPETokenizer([], special=["x", "x"]), "must differ"),
        (lambda: BPETokenizer([], special=[""]), "not be empty"),
        (lambda: BPETokenizer([], first=[0] * 256), "each of the 256 bytes"),
        (lambda: BPETokenizer([]).decode([256]), "256 is no token: there are 256"),
        (lambda: BPETokenizer([]).decode([-1]), "-1 is no token"),
    ],
)
def test_bad_input_is_named(call, named):
    with pytest.raises(ValueError, match=named):
        call()
