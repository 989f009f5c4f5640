"""The explorers of chapter 23: texts parked by hand, passes counted, bits read by torch."""

import math

import numpy as np
import torch

from book.explorer import Bars, Grid, Lines
from book.own import encode, own_model
from book.own.draft import ngram_draft
from book.stories import VOCABULARY, stories
from transformer_parts.decoder import generate

from .reading import Seen, check_explorer, says


@check_explorer("car-park", {"each text gets": "blocks of 4", "requests so far": "6"})
def test_six_texts_in_blocks():
    """A block of each text in turn, as long as it has tokens left."""
    left = dict(enumerate([7, 20, 5, 11, 18, 14], 1))
    cells, used = [], sum(left.values())
    while left:
        for number, tokens in list(left.items()):
            cells += ([number] * tokens + [0, 0, 0])[:4]
            left[number] = tokens - 4
            if tokens <= 4:
                del left[number]
    picture = np.full(96, math.nan)
    picture[: len(cells)] = cells
    return Seen(
        says(
            "{} requests, blocks of {}: {} texts are in, with {} of {} positions filled and {} "
            "held but empty. Turned away: nobody",
            *(6, 4, 6, used, 96, len(cells) - used),
        ),
        parked(picture),
    )


@check_explorer("car-park", {"each text gets": "a place of 24 for each", "requests so far": "5"})
def test_places_for_four():
    picture = np.zeros(96)
    for number, tokens in enumerate([7, 20, 5, 11], 1):
        start = 24 * (number - 1)
        picture[start : start + tokens] = number
    used = int((picture > 0).sum())
    return Seen(
        says(
            "{} requests, a place of {} for each: {} texts are in, with {} of {} positions filled "
            "and {} held but empty. Turned away: {}",
            *(5, 24, 4, used, 96, 96 - used, 5),
        ),
        parked(picture),
    )


def parked(picture):
    return Grid(
        "96 positions: number of the text, – held but empty",
        picture.reshape(8, 12),
        [str(n) for n in range(0, 96, 12)],
        [str(n) for n in range(12)],
        text=lambda x: f"{x:g}" if x else "–",
        xlabel="plus",
        ylabel="position",
        limits=(0, 6),
        empty="",
    )


@check_explorer("copy-on-write", {"step": "B goes on"})
def test_two_tables_after_both_have_written():
    """A has 7 tokens in blocks 0 and 1; B has 10: the shared 0, its copy 2, and 3."""
    tables = {"A": [0, 1], "B": [0, 2, 3]}
    cells = np.full((2, 3), math.nan)
    users = np.zeros(6)
    for row, table in enumerate(tables.values()):
        cells[row, : len(table)] = table
        for block in table:
            users[block] += 1
    return Seen(
        says(
            "B writes three more: its block becomes full, and it takes a new one. {} blocks are "
            "held; without sharing it would be {}",
            *(int((users > 0).sum()), 5),
        ),
        Grid(
            "block tables",
            cells,
            ["A", "B"],
            ["first", "second", "third"],
            text=lambda x: f"{x:g}",
            limits=(0, 5),
            empty="·",
        ),
        Grid(
            "users of each block: tables that hold it",
            [users],
            [""],
            [str(n) for n in range(6)],
            text="{:.0f}",
            xlabel="block",
            limits=(0, 2),
        ),
    )


def passes(cells, shown):
    picture = np.full((4, 16), math.nan)
    for place, row in enumerate(cells):
        for n, name in enumerate(row[:shown]):
            picture[place, n] = name
    return Grid(
        "number of the text in each place, – where nobody works",
        picture,
        [f"place {n}" for n in range(1, 5)],
        [str(n) for n in range(1, 17)],
        text=lambda x: f"{x:.0f}" if x else "–",
        xlabel="pass",
        limits=(0, 8),
        empty="",
    )


def lane(*runs):
    """A place's passes: (text, passes), one after the other, and then nobody."""
    cells = [name for name, length in runs for _ in range(length)]
    return cells + [0] * (16 - len(cells))


@check_explorer("timeline", {"the server works in": "continuous batching", "passes": "12"})
def test_free_places_are_taken_at_once():
    """Texts of 3, 9, 2, 6, 4, 7, 2, 5 passes in four places."""
    cells = [lane((1, 3), (6, 7)), lane((2, 9)), lane((3, 2), (5, 4), (7, 2)), lane((4, 6), (8, 5))]
    ends = {1: 3, 2: 9, 3: 2, 4: 6, 5: 6, 6: 10, 7: 8, 8: 11}
    idle = sum(row[:11].count(0) for row in cells)
    return Seen(
        says(
            "Continuous batching, {} passes: {} of {} texts are written, and {} places were empty. "
            "All are done after {} passes, and a text comes back after {} on average",
            *(12, 8, 8, idle, 11, sum(ends.values()) / 8),
        ),
        passes(cells, 11),
    )


@check_explorer("timeline", {"the server works in": "fixed batches", "passes": "12"})
def test_a_fixed_batch_waits_for_its_longest_text():
    cells = [
        [*lane((1, 3))[:9], *lane((5, 4))[:7]],
        [*lane((2, 9))[:9], *lane((6, 7))[:7]],
        [*lane((3, 2))[:9], *lane((7, 2))[:7]],
        [*lane((4, 6))[:9], *lane((8, 5))[:7]],
    ]
    idle = sum(row[:12].count(0) for row in cells)
    return Seen(
        says(
            "Fixed batches, {} passes: {} of {} texts are written, and {} places were empty. All "
            "are done after {} passes, and a text comes back after {} on average",
            *(12, 5, 8, idle, 16, (4 * 9 + 4 * 16) / 8),
        ),
        passes(cells, 12),
    )


@check_explorer("chunk-explorer", {"tokens of a pass": "2,048"})
def test_a_prompt_in_four_and_a_bit():
    """32 texts write; from the sixth pass on the prompt takes what they leave of 2,048 tokens."""
    weights, positions = 8030261248, 2 * 32 * 8 * 128 * 2
    left, read, times = 8192, 0, []
    for step in range(45):
        tokens, kept = 32, 32 * (501 + step)
        if step >= 5:
            part = min(left, 2048 - 32) if left else 1
            left, read = max(0, left - part), read + part
            tokens, kept = tokens + part, kept + read
        # After 20 tokens of its own the new text is done.
        if step >= 5 and read - 8192 >= 20:
            tokens, kept = 32, 32 * (501 + step)
        pass_time = max(2 * weights * tokens / 989e12, 2 * weights / 3.35e12)
        times.append(1e3 * (pass_time + kept * positions / 3.35e12))
    reading = math.ceil(8192 / (2048 - 32))
    return Seen(
        says(
            "Budget {} tokens: while a prompt of {} tokens is read, the others wait up to {} ms "
            "for a token, {} ms before. The new text has its first token after {} ms",
            *(2048, 8192, max(times), times[0], sum(times[5 : 5 + reading])),
        ),
        Lines(
            "time between two tokens of the others",
            np.arange(1, 46),
            {"milliseconds": times},
            "pass",
            "ms",
            yscale="log",
            ylim=(3, 300),
        ),
    )


@check_explorer("two-tokens", {"the draft's probability of A": "0.3"})
def test_a_draft_that_says_b_too_often():
    p, q = (0.6, 0.4), (0.3, 0.7)
    stands = [qx * min(1, px / qx) for px, qx in zip(p, q, strict=True)]
    refused = 1 - sum(stands)
    after = [refused, 0.0]
    return Seen(
        says(
            "The draft says A with {} and B with {}. Accepted: A with {}, B with {}, {} in all. "
            "The refused {} goes to A, and A is written with {}, B with {}",
            *(0.3, 0.7, 1.0, 0.4 / 0.7, sum(stands), refused, 0.6, 0.4),
        ),
        Bars(
            "how often each token is written",
            ["A", "B"],
            {"drafted and accepted": stands, "after a refusal": after, "the model": p},
            "token",
            "probability",
            (0, 1),
        ),
        Bars("how often it is drafted", ["A", "B"], {"draft": q}, "token", "probability", (0, 1)),
    )


@check_explorer("rounds-explorer", {"round": "2"})
def test_two_rounds_follow_the_text_that_the_model_writes_alone():
    model = own_model().double()
    text = encode(next(stories("serving")).words)[:14]
    alone = generate(model, torch.tensor([text]), 20, temperature=0)[0].tolist()
    draft = ngram_draft(order=4, counted=1000)
    words, marks = np.full((2, 6, 5), math.nan)
    at, made = 14, []
    for row in range(2):
        proposal = alone[:at]
        for _ in range(4):
            proposal.append(int(draft(torch.tensor(proposal)).argmax()))
        stands = 0
        while stands < 4 and proposal[at + stands] == alone[at + stands]:
            stands += 1
        words[row] = [*proposal[at:], alone[at + stands]]
        marks[row] = [*[1] * stands, *[0] * (4 - stands), 2]
        at += stands + 1
        made.append(stands)
    return Seen(
        says(
            "Round {}: {} of {} drafted words are accepted, and the model writes “"
            + VOCABULARY[alone[at - 1]]
            + "”. So far {} words in {} passes",
            *(2, made[-1], 4, at - 14, 2),
        ),
        Grid(
            "drafted words, ✗ refused, and the model's own",
            marks + words * np.where(marks > 1, -1e-4, 1e-4),
            [f"round {n}" for n in range(1, 7)],
            ["first", "second", "third", "fourth", "model"],
            text=lambda x: VOCABULARY[round(1e4 * abs(x - round(x)))] + " ✗" * (round(x) == 0),
            limits=(0, 2),
            role="weight",
            empty="",
        ),
    )


def drafted(accepted, texts, length):
    """Speed for 1 to 12 drafted tokens, and how long each check takes, by Llama 3 8B's sizes."""
    flops, bandwidth, weights = 989e12, 3.35e12, 8030261248
    caches = texts * length * 2 * 32 * 8 * 128 * 2 / bandwidth
    gains, checks = [], []
    for k in range(1, 13):
        yields = sum(accepted**j for j in range(k + 1))
        one, check = (
            max(2 * weights * n / flops, 2 * weights / bandwidth) + caches
            for n in (texts, texts * (k + 1))
        )
        small = weights / 16
        of_a_draft = max(2 * small * texts / flops, 2 * small / bandwidth) + caches / 16
        gains.append(yields * one / (check + k * of_a_draft))
        checks.append(check / one)
    return gains, checks


def speeds(gains):
    return Lines(
        "speed with a draft, without is 1",
        np.arange(1, 13),
        {"speed": gains, "without": [1.0] * 12},
        "drafted tokens",
        "times",
        ylim=(0, 5),
    )


@check_explorer(
    "speed-explorer",
    {"accepted": "90%", "texts in the batch": "256", "positions of each": "1,500"},
)
def test_many_long_texts_and_a_good_draft():
    gains, checks = drafted(0.9, 256, 1500)
    best = int(np.argmax(gains))
    assert gains[best] > 1.5
    return Seen(
        says(
            "{} texts with {} positions each, {} accepted: drafting pays. The best number is {}, "
            "with {} times the speed; its check takes {} times as long as a pass without a draft. "
            "With {} the speed is {} times",
            *(256, 1500, 0.9, 1 + best, gains[best], checks[best], 12, gains[-1]),
        ),
        speeds(gains),
    )


@check_explorer(
    "speed-explorer",
    {"accepted": "60%", "texts in the batch": "256", "positions of each": "100"},
)
def test_many_texts_and_a_draft_that_is_refused():
    gains, checks = drafted(0.6, 256, 100)
    best = int(np.argmax(gains))
    assert gains[best] < 0.995
    return Seen(
        says(
            "{} texts with {} positions each, {} accepted: drafting costs time. The best number is "
            "{}, with {} times the speed; its check takes {} times as long as a pass without a "
            "draft. With {} the speed is {} times",
            *(256, 100, 0.6, 1 + best, gains[best], checks[best], 12, gains[-1]),
        ),
        speeds(gains),
    )


@check_explorer(
    "speed-explorer",
    {"accepted": "60%", "texts in the batch": "1", "positions of each": "500"},
)
def test_one_text_and_a_poor_draft():
    gains, checks = drafted(0.6, 1, 500)
    best = int(np.argmax(gains))
    return Seen(
        says(
            "{} text with {} positions each, {} accepted: drafting pays. The best number is {}, "
            "with {} times the speed; its check takes {} times as long as a pass without a draft. "
            "With {} the speed is {} times",
            *(1, 500, 0.6, 1 + best, gains[best], checks[best], 12, gains[-1]),
        ),
        speeds(gains),
    )


@check_explorer("four-bits", {"format": "e2m1", "code": "6"})
def test_four_bits_with_an_exponent():
    """The same numbers as e4m3 spells them, with the exponent moved by its bias."""
    values = []
    for code in range(8):
        exponent, mantissa = divmod(code, 2)
        byte = (exponent + 6) << 3 | mantissa << 2 if exponent else 0
        number = torch.tensor([byte], dtype=torch.uint8).view(torch.float8_e4m3fn).double().item()
        values.append(number if exponent else 0.5 * mantissa)
    return Seen(
        says(
            "e{}m{}, sign {}, exponent {}, mantissa {}: {}^({} − {}) · ({} + {}/{}) = {}. The step "
            "to the next number is {}, the largest number {}",
            *(2, 1, 0, 11, 0, 2, 3, 1, 1, 0, 2, int(values[6])),
            *(int(values[7] - values[6]), int(values[7])),
        ),
        Grid(
            "the bits",
            [[0, 1, 1, 0]],
            [""],
            ["sign", "bit 2", "bit 1", "bit 0"],
            text=lambda x: f"{x:g}",
            limits=(0, 1),
        ),
        Bars(
            "what the codes mean",
            [str(n) for n in range(8)],
            {
                "this code": [v * (n == 6) for n, v in enumerate(values)],
                "the others": [v * (n != 6) for n, v in enumerate(values)],
            },
            "code",
            "value",
            (0, 8),
        ),
    )


@check_explorer("parts-explorer", {"devices": "4"})
def test_one_hidden_unit_for_each_device():
    x, up = (1, -1), [(2, 0), (0, -1), (1, 1), (-1, -3)]
    down = [(1, 0), (2, -1), (5, 5), (0, 1)]
    hidden, sums = np.full((4, 4), math.nan), np.full((5, 2), math.nan)
    for unit in range(4):
        value = max(0, x[0] * up[unit][0] + x[1] * up[unit][1])
        hidden[unit, unit] = value
        sums[unit] = [value * w for w in down[unit]]
    sums[4] = sums[:4].sum(0)
    shares = [int(v) for row in range(4) for v in (row + 1, *sums[row])]
    return Seen(
        says(
            "{} devices: " + "; ".join(["device {} has ({}, {})"] * 4) + ". The sum is ({}, {})",
            *(4, *shares, *(int(v) for v in sums[4])),
        ),
        Grid(
            "hidden units that it computes",
            hidden,
            [f"device {n}" for n in range(1, 5)],
            ["1", "2", "3", "4"],
            text="{:g}",
            limits=(0, 4),
            empty="",
        ),
        Grid(
            "its share of the output",
            sums,
            [*(f"device {n}" for n in range(1, 5)), "all-reduce"],
            ["y₁", "y₂"],
            text="{:g}",
            limits=(-4, 8),
            empty="",
        ),
    )


@check_explorer("shared-scale", {"one scale for": "a group of 4", "third column times": "10"})
def test_a_loud_column_in_groups_of_four():
    noise = torch.randn(4, 8, generator=torch.Generator().manual_seed(6))
    x = np.round(noise.numpy(), 1)
    x[:, 2] *= 10
    codes = np.zeros((4, 8))
    for row in range(4):
        for start in (0, 4):
            part = [float(v) for v in x[row, start : start + 4]]
            step = max(abs(v) for v in part) / 7
            codes[row, start : start + 4] = [round(v / step) for v in part]
    gone = sum(codes[r, c] == 0 for r in range(4) for c in range(8) if c != 2)
    lines = [f"row {n}" for n in range(1, 5)], [str(n) for n in range(1, 9)]
    return Seen(
        says(
            "One scale for a group of {}, third column times {}: {} of the {} entries of the other "
            "columns have the code {}. The largest is {}",
            *(4, 10, int(gone), 28, 0, float(np.abs(x).max())),
        ),
        Grid(
            "the numbers",
            x,
            *lines,
            text=lambda x: (f"{x:.0f}" if abs(x) >= 10 else f"{x + 0:.1f}").replace("-", "−"),
            xlabel="column",
            limits=(-300, 300),
            diverging=True,
        ),
        Grid(
            "their codes of four bits",
            codes,
            *lines,
            text="{:.0f}",
            xlabel="column",
            limits=(-7, 7),
            diverging=True,
        ),
    )
