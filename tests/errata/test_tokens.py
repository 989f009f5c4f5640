"""Misconceptions of the chapter on tokens."""

import math
from itertools import islice

import pytest

from book.stories import VOCABULARY, stories
from transformer_parts.tokens import apply_merges, cut, train_bpe


def ranked(text):
    """Merges of letters, such as "b+c a+b", with their places."""
    pairs = (pair.encode().split(b"+") for pair in text.split())
    return {(a, b): place for place, (a, b) in enumerate(pairs)}


def test_e122_a_new_word_is_cut_by_frequency():
    merges = train_bpe((str(s) for s in islice(stories("tokens"), 300)), 400)
    rank = {pair: place for place, pair in enumerate(merges)}
    assert {"fish", "stars"} <= set(VOCABULARY)
    [piece] = cut(" starfish")
    tokens = apply_merges(piece.encode(), rank)
    assert len(tokens) == 5
    assert tokens == [b" st", b"ar", b"f", b"is", b"h"]
    assert apply_merges(b" fish", rank) == [b" fish"]


def test_e123_merges_are_made_in_their_order():
    rank = ranked("b+c a+b")
    assert apply_merges(b"abc", rank) == [b"a", b"bc"]
    # The longest token first would begin with ab, which is one of the tokens.
    assert b"ab" in {a + b for a, b in rank}
    rank = ranked("b+c a+b c+d cd+e")
    assert len(apply_merges(b"abcde", rank)) == 4
    shortest = [b"ab", b"cde"]
    assert len(shortest) == 2
    assert set(shortest) <= {a + b for a, b in rank}


def test_e124_a_loss_per_token_depends_on_the_tokens():
    first, second = 2.10 / 4.2 / math.log(2), 1.60 / 2.9 / math.log(2)
    assert first == pytest.approx(0.72, abs=0.005)
    assert second == pytest.approx(0.80, abs=0.005)
    assert second > first
