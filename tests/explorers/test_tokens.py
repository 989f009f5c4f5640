"""The explorers of the chapter on tokens.

The merges are learned again on text with spaces between tokens, as the first published program did
it, and words are cut by running through the whole list of merges.
"""

import functools
import re
from collections import Counter
from itertools import islice

import numpy as np

from book.explorer import Bars, Box, Scene, Text
from book.stories import stories

from .reading import Seen, check_explorer, explorers, says

# ---------------------------------------------------------------- merges, in another way

PIECE = re.compile(r" ?[^\W\d_]+| ?[^\w\s]+|\d{1,3}|\s")


def hexed(text):
    return " ".join(f"{b:02x}" for b in text.encode())


@functools.cache
def learned(number=400, told=300):
    """The merges as pairs of hexadecimal words."""
    texts = Counter(
        hexed(one) for story in islice(stories("tokens"), told) for one in PIECE.findall(str(story))
    )
    made = {f"{b:02x}": b for b in range(256)}
    merges = []
    while len(merges) < number:
        counts = Counter()
        for text, times in texts.items():
            symbols = text.split()
            for k in range(len(symbols) - 1):
                counts[symbols[k], symbols[k + 1]] += times
        most = max(counts.values())
        a, b = min((p for p in counts if counts[p] == most), key=lambda p: (made[p[0]], made[p[1]]))
        joint = re.compile(rf"(?<!\S){a} {b}(?!\S)")
        texts = {joint.sub(a + b, text): times for text, times in texts.items()}
        made.setdefault(a + b, len(made))
        merges.append((a, b))
    return merges


def tokens(text, merges):
    """The bytes of the tokens of a text."""
    found = []
    for one in PIECE.findall(text):
        symbols = hexed(one)
        for a, b in learned()[:merges]:
            symbols = re.sub(rf"(?<!\S){a} {b}(?!\S)", a + b, symbols)
        found += [bytes.fromhex(s) for s in symbols.split()]
    return found


def printed(token):
    try:
        return token.decode().replace(" ", "␣").replace("\n", "⏎")
    except UnicodeDecodeError:
        return " ".join(f"{b:02X}" for b in token)


def boxes(found, most):
    """Boxes in lines of 34 units, as wide as their text."""
    shapes, x, y = {}, 0.0, 0
    for k in range(most):
        if k >= len(found):
            shapes[f"token {k}"] = Box(0, 0, 1, 1, shown=False)
            continue
        text = printed(found[k])
        width = 0.9 + sum(1.9 if ord(c) > 0x2E80 else 1.15 for c in text)
        if x + width > 34:
            x, y = 0.0, y + 1
        fill = 0.4 if k % 2 else 0.12
        shapes[f"token {k}"] = Box(
            x, -y - 0.9, width - 0.15, 0.8, label=text, role="data", fill=fill
        )
        x += width
    return shapes


@check_explorer("explore-pieces", {"text": "a misspelling", "merges": "200"})
def test_a_misspelling_is_cut_into_more():
    text = "teh parot hid the red kite ."
    found = tokens(text, 200)
    return Seen(
        says(
            "a misspelling, {} merges: {} bytes become {} tokens, {} bytes a token",
            *(200, 28, len(found), 28 / len(found)),
        ),
        Scene("", boxes(found, 30), xlim=(0, 34), ylim=(-2, 0)),
    )


# ---------------------------------------------------------------- bytes


@check_explorer("explore-bytes", {"character": "🙂"})
def test_an_emoji_has_four_bytes():
    code = 0x1F642
    made = [
        0b11110000 | code >> 18,
        *(0b10000000 | code >> shift & 0b111111 for shift in (12, 6, 0)),
    ]
    shapes = {
        f"column {k}": Text(k + 0.45, -0.45, "76543210"[k], role="quiet", small=True)
        for k in range(8)
    }
    for row, byte in enumerate(made):
        y, name = -1 - row, f"byte {row + 1}"
        shapes[f"row {row + 1}"] = Text(-0.4, y - 0.4, name, anchor="end")
        # What is left when the bits of the code point are set to zero is fixed.
        free = 3 if row == 0 else 6
        for column in range(8):
            bit = 7 - column
            is_free = bit < free
            after = "a bit of the code point"
            shapes[f"{name}, bit {bit}"] = Box(
                column,
                y - 0.8,
                0.9,
                0.8,
                label="01"[byte >> bit & 1],
                role="data" if is_free else "weight",
                fill=0.15 if is_free else 0.45,
                detail=f"bit {bit} of {name}: "
                + (after if is_free else "fixed, says which kind of byte this is"),
            )
    # The 21 bits of the code point, the highest three in the first byte.
    bits = f"{code:021b}"
    groups = [bits[:3], bits[3:9], bits[9:15], bits[15:]]
    shapes["joined"] = Text(-0.4, -5.6, "joined", anchor="end")
    shapes["code point"] = Text(0, -5.6, " ".join(groups), anchor="start", role="data")
    sentence = says(
        "🙂 is code point U+{}F{}, which is {}. UTF-8 writes it as four bytes: F{} {}F {} {}. "
        "Fixed at the left: {}, {}, {}, {}.",
        *(1, 642, code, 0, 9, 99, 82, 11110, 10, 10, 10),
    )
    return Seen(sentence, Scene("bits of each byte", shapes, xlim=(-2.4, 8.2), ylim=(-6, 0)))


# ---------------------------------------------------------------- five words

WORDS = {"hug": 10, "pug": 5, "pun": 12, "bun": 4, "hugs": 5}


PLUS = "\u00a0+\u00a0"  # in place of the space on the page


def merged(sentence, split, left):
    """The words cut as in `split`; `left`: a pair -> its one word and how often, in order."""
    shapes = {}
    for row, (word, times) in enumerate(WORDS.items()):
        shapes[f"{word} times"] = Text(0.9, -row - 0.5, f"{times} ×", anchor="end")
        x = 1.2
        for k, token in enumerate([*split[word], "", "", ""][:4]):
            wide = 0.75 * max(len(token), 1)
            shapes[f"{word} {k}"] = Box(
                *(x, -row - 0.85, wide - 0.1, 0.7),
                label=token,
                role="data",
                fill=0.45 if len(token) > 1 else 0.12,
                shown=token != "",
                detail=f"{token}: stands in {word}, {times} times",
            )
            x += wide

    ranked = {}
    for k in range(1, 7):
        seen = k <= len(left)
        pair, (word, times) = [*left.items()][k - 1] if seen else ("", ("", 0))
        name = pair.replace(" ", PLUS) if seen else ""
        middle = 0.5 - k
        ranked[f"name {k}"] = Text(2, middle, name or PLUS, anchor="end", shown=seen)
        ranked[f"bar {k}"] = Box(
            *(2.3, middle - 0.35, times / 4 if seen else 0.25, 0.7),
            role="weight",
            fill=0.6 if seen and times == max(n for _, n in left.values()) else 0.15,
            shown=seen,
            detail=f"{name}: {times} in {word}" if seen else f"{PLUS}: ",
        )
        ranked[f"count {k}"] = Text(2.5 + times / 4, middle, str(times), anchor="start", shown=seen)
    return Seen(
        sentence,
        Scene("the words", shapes, xlim=(-0.4, 4.4), ylim=(-5, 0), width=200),
        Scene("the pairs, most frequent first", ranked, xlim=(-0.4, 8.6), ylim=(-6, 0), width=200),
    )


@check_explorer("explore-merges", {"step": "4"})
def test_three_merges_of_five_words():
    return merged(
        says(
            "{} merges. The last one made hug. The text has {} tokens. The most frequent pair is "
            f"p{PLUS}un, {{}} times",
            *(3, 10 + 10 + 24 + 8 + 10, 12),
        ),
        {
            "hug": ["hug"],
            "pug": ["p", "ug"],
            "pun": ["p", "un"],
            "bun": ["b", "un"],
            "hugs": ["hug", "s"],
        },
        {"p un": ("pun", 12), "p ug": ("pug", 5), "hug s": ("hugs", 5), "b un": ("bun", 4)},
    )


@check_explorer("explore-merges", {"step": "5"})
def test_after_four_merges_two_pairs_are_equally_frequent():
    return merged(
        says(
            "{} merges. The last one made pun. The text has {} tokens. The most frequent pairs "
            f"are p{PLUS}ug and hug{PLUS}s, {{}} times each",
            *(4, 10 + 10 + 12 + 8 + 10, 5),
        ),
        {
            "hug": ["hug"],
            "pug": ["p", "ug"],
            "pun": ["pun"],
            "bun": ["b", "un"],
            "hugs": ["hug", "s"],
        },
        {"p ug": ("pug", 5), "hug s": ("hugs", 5), "b un": ("bun", 4)},
    )


# ---------------------------------------------------------------- merges in their order


@check_explorer("explore-encode", {"word": "parrots", "merges made": "3"})
def test_parrots_after_three_merges():
    merges = learned()
    lines = [([f"{b:02x}" for b in b" parrots"], None)]
    for number, (a, b) in enumerate(merges, 1):
        before = " ".join(lines[-1][0])
        after = re.sub(rf"(?<!\S){a} {b}(?!\S)", a + b, before)
        if after != before:
            lines.append((after.split(), number))
    shown = lines[:4]
    shapes = {}
    for row in range(7):
        there = row < len(shown)
        symbols, number = shown[row] if there else ([], 0)
        said = "bytes" if row == 0 else f"merge {number}"
        shapes[f"row {row}"] = Text(
            2.6, -row - 0.55, said, anchor="end", role="quiet", small=True, shown=there
        )
        x = 3.0
        for k in range(10):
            seen = k < len(symbols)
            text = printed(bytes.fromhex(symbols[k])) if seen else "?"
            width = 0.18 + 0.72 * len(text)
            shapes[f"row {row} token {k}"] = Box(
                x,
                -row - 0.9,
                width - 0.12,
                0.72,
                label=text if seen else "",
                role="data",
                fill=0.42 if len(text) > 1 else 0.12,
                shown=seen,
            )
            x += width
    last = [printed(bytes.fromhex(s)) for s in shown[-1][0]]
    return Seen(
        says(
            "␣parrots, {} merges made, the last is number {}: " + " | ".join(last),
            *(3, shown[-1][1]),
        ),
        Scene("", shapes, xlim=(0, 12), ylim=(-7, 0), width=330),
    )


# ---------------------------------------------------------------- pre-tokens


@check_explorer("explore-cuts", {"text": "code"})
def test_three_patterns_cut_code():
    cuts = {
        "GPT-2": "f|(|x|):|⏎␣␣␣|␣return|␣10",
        "Llama 3": "f|(x|):⏎|␣␣␣|␣return|␣|10",
        "Qwen2": "f|(x|):⏎|␣␣␣|␣return|␣|1|0",
    }
    shapes = {}
    for (name, line), middle in zip(cuts.items(), (-0.5, -2.6, -4.7), strict=True):
        shapes[name] = Text(0, middle, name, anchor="start", role="quiet")
        found = [one.replace("␣", " ").replace("⏎", "\n").encode() for one in line.split("|")]
        for k, box in enumerate(boxes(found, 13).values()):
            shapes[f"{name}, {k}"] = Box(
                *(box.x, middle - 1.4, box.w, box.h),
                label=box.label,
                role="data",
                fill=box.fill,
                shown=box.shown,
            )
    said = says(
        "code: {} pre-tokens by the pattern of GPT-{}, {} by that of Llama {}, {} by that "
        "of Qwen{}.",
        *(7, 2, 7, 3, 8, 2),
    )
    return Seen(said, Scene("", shapes, xlim=(0, 34), ylim=(-6.3, 0)))


# ---------------------------------------------------------------- an answer that arrives


@check_explorer("explore-stream", {"tokens": "4"})
def test_half_an_emoji_is_held_back():
    arriving = tokens("good 🙂 早上", 100)
    shapes = {}
    for k, box in enumerate(boxes(arriving, len(arriving)).values()):
        fill = 0.35 if k < 4 else 0.05
        shapes[f"token {k}"] = Box(
            box.x, box.y, box.w, box.h, label=box.label, role="data", fill=fill
        )
    whole = b"".join(arriving[:4])
    cut_off = len(whole)
    while True:
        try:
            held = whole[:cut_off].decode()
            break
        except UnicodeDecodeError:
            cut_off -= 1
    alone = "".join(t.decode(errors="replace") for t in arriving[:4])
    together = whole.decode(errors="replace")
    lines = {"each alone": alone, "all joined": together, "held back": held}
    for k, (how, text) in enumerate(lines.items()):
        shapes[how] = Text(0, -3.6 - k, f"{how}:", anchor="start", role="quiet")
        shapes[f"{how} text"] = Text(11, -3.6 - k, text.replace(" ", "␣"), anchor="start")
    alone, together, held = (t.replace(" ", "␣") for t in (alone, together, held))
    return Seen(
        says(
            f"{{}} of {{}} tokens. Read alone they give {alone}; joined first, {together}; with "
            f"what is incomplete held back, {held}.",
            *(4, len(arriving)),
        ),
        Scene("", shapes, xlim=(0, 34), ylim=(-6.2, 0)),
    )


# ---------------------------------------------------------------- languages


@check_explorer("explore-languages", {"merges": "100"})
def test_other_languages_stay_in_bytes():
    [spec] = [explorers("tokens")["explore-languages"]]
    names = spec["panels"][0]["labels"]
    # The sentence of each: [English, ...]; bytes and code points counted by hand from the source.
    from nbformat import read

    from book.chapters import NOTEBOOKS

    notebook = read(NOTEBOOKS / "17_tokens.ipynb", as_version=4)
    [source] = [c.source for c in notebook.cells if c.id == "article"]
    place = {}
    exec(source, place)
    article = place["ARTICLE"]
    count = np.array([float(len(tokens(article[name], 100))) for name in names])
    points = np.array([len(article[name]) for name in names])
    words, numbers = [], [100]
    for name, n, each in zip(names, count, count / points, strict=True):
        words.append(f"{name} {{}}, {{}} a character")
        numbers += [int(n), each]
    template = "Article {} in tokens, after {} merges: " + "; ".join(words)
    return Seen(
        says(template, 1, *numbers),
        Bars("the article", names, {"tokens": count}, "language", "tokens"),
        Bars(
            "one character",
            names,
            {"tokens a character": count / points},
            "language",
            "tokens a character",
        ),
    )
