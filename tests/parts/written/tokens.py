"""Chapter 17: answers to its exercises that the checkers do not know."""

import codecs
import re
from collections import defaultdict
from itertools import pairwise

from . import Right, Wrong


def by_while(tokens, pair):
    out, rest = [], list(tokens)
    while rest:
        if rest[:2] == list(pair):
            out.append(rest[0] + rest[1])
            del rest[:2]
        else:
            out.append(rest.pop(0))
    return out


# train
def by_replacing_in_strings(words, num_merges):
    # The published program: tokens with blanks between them, in one string for each word.
    texts = {" ".join(f"{b:02x}" for b in word): n for word, n in words.items()}
    merges = []
    for _ in range(num_merges):
        counts = defaultdict(int)
        for text, n in texts.items():
            symbols = text.split()
            for a, b in pairwise(symbols):
                counts[a, b] += n
        if not counts:
            break
        most = max(counts.values())
        a, b = min(
            (p for p in counts if counts[p] == most), key=lambda p: [bytes.fromhex(x) for x in p]
        )
        new = {}
        for text, n in texts.items():
            symbols, out = text.split(), []
            while symbols:
                if symbols[:2] == [a, b]:
                    out.append(a + b)
                    symbols = symbols[2:]
                else:
                    out.append(symbols.pop(0))
            new[" ".join(out)] = n
        texts = new
        merges.append((bytes.fromhex(a), bytes.fromhex(b)))
    return merges


def with_corrected_counts(words, num_merges):
    split = {word: [word[k : k + 1] for k in range(len(word))] for word in words}
    counts, where = defaultdict(int), defaultdict(set)

    def note(word, sign):
        for pair in pairwise(split[word]):
            counts[pair] += sign * words[word]
            where[pair].add(word)

    for word in words:
        note(word, 1)
    merges = []
    for _ in range(num_merges):
        found = sorted((-n, pair) for pair, n in counts.items() if n)
        if not found:
            break
        best = found[0][1]
        merges.append(best)
        for word in list(where[best]):
            note(word, -1)
            split[word] = by_while(split[word], best)
            note(word, 1)
    return merges


def over_the_borders(words, num_merges):
    # One long text, with the words side by side.
    tokens = [bytes([b]) for word, n in words.items() for _ in range(n) for b in word]
    merges = []
    for _ in range(num_merges):
        counts = defaultdict(int)
        for pair in pairwise(tokens):
            counts[pair] += 1
        if not counts:
            break
        merges.append(min(counts, key=lambda p: (-counts[p], p)))
        tokens = by_while(tokens, merges[-1])
    return merges


def only_what_stands_twice(words, num_merges):
    merges = with_corrected_counts(words, num_merges)
    split = {word: [bytes([b]) for b in word] for word in words}
    for k, pair in enumerate(merges):
        count = sum(n * list(pairwise(split[w])).count(pair) for w, n in words.items())
        if count < 2:
            return merges[:k]
        split = {word: by_while(tokens, pair) for word, tokens in split.items()}
    return merges


def ties_by_the_new_token(words, num_merges):
    split = {word: [bytes([b]) for b in word] for word in words}
    merges = []
    while len(merges) < num_merges:
        counts = defaultdict(int)
        for word, n in words.items():
            for pair in pairwise(split[word]):
                counts[pair] += n
        if not counts:
            return merges
        merges.append(min(counts, key=lambda p: (-counts[p], -len(p[0] + p[1]), p)))
        split = {word: by_while(tokens, merges[-1]) for word, tokens in split.items()}
    return merges


# rank
def recursive(piece, rank):
    def join(tokens):
        known = sorted((rank[p], p) for p in pairwise(tokens) if p in rank)
        return join(by_while(tokens, known[0][1])) if known else tokens

    return join([piece[i : i + 1] for i in range(len(piece))])


def by_scan(piece, rank):
    tokens = [bytes([b]) for b in piece]
    for a, b in sorted(rank, key=rank.get):
        k = 0
        while k < len(tokens) - 1:
            if tokens[k] == a and tokens[k + 1] == b:
                tokens[k : k + 2] = [a + b]
            k += 1
    return tokens


def one_place_after_the_other(piece, rank):
    # The best pair at its first place only, then a new look: the same, place by place.
    tokens = [bytes([b]) for b in piece]
    while True:
        places = [(rank[pair], k) for k, pair in enumerate(pairwise(tokens)) if pair in rank]
        if not places:
            return tokens
        _, k = min(places)
        tokens[k : k + 2] = [tokens[k] + tokens[k + 1]]


def one_at_a_time_from_the_right(piece, rank):
    tokens = [bytes([b]) for b in piece]
    for a, b in sorted(rank, key=rank.get):
        for k in range(len(tokens) - 2, -1, -1):
            if tokens[k : k + 2] == [a, b]:
                tokens[k : k + 2] = [a + b]
    return tokens


def integers(piece, rank):
    tokens = list(piece)
    for a, b in sorted(rank, key=rank.get):
        tokens = by_while(tokens, (a, b))
    return tokens


# digits
def with_commas(text):
    cut = re.sub(r"(?<=\d)(?=(?:\d{3})+(?!\d))", ",", text)
    return re.findall(r"\d+|[^\d,]+", cut)


def threes_behind_a_point_from_the_left(text):
    found = []
    for one in re.findall(r"\.?\d+|\D+", text):
        if one[0] == ".":
            found += [".", *re.findall(r"\d{1,3}", one[1:])]
        else:
            found += re.findall(r"\d{1,3}(?=(?:\d{3})*$)|\D+", one)
    return found


def turned_round(text):
    return [one[::-1] for one in reversed(re.findall(r"\d{1,3}|\D+", text[::-1]))]


# stream
def with_a_buffer(tokens):
    out, held = [], b""
    for token in tokens:
        held += token
        for keep in range(min(4, len(held) + 1)):
            head = held[: len(held) - keep]
            try:
                text = head.decode()
            except UnicodeDecodeError:
                continue
            out.append(text)
            held = held[len(head) :]
            break
        else:
            out.append("")
    return out


def joined_differences(tokens):
    shown, out = "", []
    for k in range(len(tokens)):
        text = b"".join(tokens[: k + 1]).decode(errors="replace")
        out.append(text[len(shown) :])
        shown = text
    return out


def by_decoder(tokens):
    decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
    return [decode(token, k + 1 == len(tokens)) for k, token in enumerate(tokens)]


WRONG = [
    Wrong("tokens.train", "over the borders of words", over_the_borders),
    Wrong("tokens.train", "what stands once is left", only_what_stands_twice),
    Wrong("tokens.train", "of equals the longest token", ties_by_the_new_token),
    Wrong("tokens.rank", "from the right", one_at_a_time_from_the_right),
    Wrong("tokens.rank", "numbers for bytes", integers),
    Wrong(
        "tokens.digits", "what follows a point from the left", threes_behind_a_point_from_the_left
    ),
    Wrong("tokens.stream", "a buffer that is never given up", with_a_buffer),
    Wrong("tokens.stream", "what was shown is not taken back", joined_differences),
]

RIGHT = [
    Right("tokens.train", "strings, as the published program has them", by_replacing_in_strings),
    Right("tokens.train", "counts that are corrected", with_corrected_counts),
    Right("tokens.rank", "recursion", recursive),
    Right("tokens.rank", "one place after the other", one_place_after_the_other),
    Right("tokens.rank", "in place, merge by merge", by_scan),
    Right("tokens.digits", "the text turned round, and back", turned_round),
    Right("tokens.digits", "a comma at each place of a cut", with_commas),
    Right("tokens.stream", "the decoder of the standard library", by_decoder),
]
