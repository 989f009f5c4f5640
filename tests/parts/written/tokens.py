"""Chapter 17: answers to its exercises that the checkers do not know."""

import codecs
import re

from . import Right, Wrong


# merge
def by_while(tokens, pair):
    out, rest = [], list(tokens)
    while rest:
        if rest[:2] == list(pair):
            out.append(rest[0] + rest[1])
            del rest[:2]
        else:
            out.append(rest.pop(0))
    return out


def in_place(tokens, pair):
    k = 0
    while k < len(tokens) - 1:
        if (tokens[k], tokens[k + 1]) == tuple(pair):
            tokens[k : k + 2] = [tokens[k] + tokens[k + 1]]
        k += 1
    return tokens


def by_replacing(tokens, pair):
    marked = b"|".join(tokens)
    return marked.replace(b"|".join(pair), b"".join(pair)).split(b"|")


def stops_early(tokens, pair):
    out, k = [], 0
    while k < len(tokens) - 1:
        if (tokens[k], tokens[k + 1]) == tuple(pair):
            out.append(tokens[k] + tokens[k + 1])
            k += 2
        else:
            out.append(tokens[k])
            k += 1
    return out


# rank
def recursive(piece, merges):
    def join(tokens, k):
        if k == len(merges):
            return tokens
        return join(by_while(tokens, merges[k]), k + 1)

    return join([piece[i : i + 1] for i in range(len(piece))], 0)


def by_scan(piece, merges):
    tokens = [bytes([b]) for b in piece]
    for a, b in merges:
        k = 0
        while k < len(tokens) - 1:
            if tokens[k] == a and tokens[k + 1] == b:
                tokens[k : k + 2] = [a + b]
            k += 1
    return tokens


def one_at_a_time_from_the_right(piece, merges):
    tokens = [bytes([b]) for b in piece]
    for a, b in merges:
        for k in range(len(tokens) - 2, -1, -1):
            if tokens[k : k + 2] == [a, b]:
                tokens[k : k + 2] = [a + b]
    return tokens


def integers(piece, merges):
    tokens = list(piece)
    for a, b in merges:
        tokens = by_while(tokens, (a, b))
    return tokens


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


# digits
def by_regex(number):
    return re.findall(r"\d{1,3}(?=(?:\d{3})*$)", number)


def by_padding(number):
    padded = "0" * (-len(number) % 3) + number
    return [padded[k : k + 3] for k in range(0, len(padded), 3)]


def commas(number):
    return f"{int(number):,}".split(",")


def reversed_groups(number):
    back = number[::-1]
    return [back[k : k + 3] for k in range(0, len(back), 3)][::-1]


WRONG = [
    Wrong("tokens.merge", "the list itself is changed", in_place),
    Wrong(
        "tokens.merge", "replaced in the text, where a token may end like the pair", by_replacing
    ),
    Wrong("tokens.merge", "the last token lost", stops_early),
    Wrong("tokens.rank", "from the right", one_at_a_time_from_the_right),
    Wrong("tokens.rank", "numbers for bytes", integers),
    Wrong("tokens.stream", "a buffer that is never given up", with_a_buffer),
    Wrong("tokens.stream", "what was shown is not taken back", joined_differences),
    Wrong("tokens.digits", "padded with zeros", by_padding),
    Wrong("tokens.digits", "commas", commas),
    Wrong("tokens.digits", "each group turned round", reversed_groups),
]

RIGHT = [
    Right("tokens.merge", "a list that is eaten up", by_while),
    Right("tokens.rank", "recursion", recursive),
    Right("tokens.rank", "in place, merge by merge", by_scan),
    Right("tokens.stream", "the decoder of the standard library", by_decoder),
    Right("tokens.digits", "a regular expression", by_regex),
]
