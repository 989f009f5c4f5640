"""Protects what the X-ray page opens: its tensors, their arithmetic, its switches, its writing."""

import json
import math
import random
import re
from itertools import islice

import pytest
import torch
from xraying import AGREED, PACKED, plainly, texts, unpacked, with_faults

from book.own import own_model
from book.own.inside import blocks
from book.stories import BEGIN, VOCABULARY
from book.xray.compute import taken_out, tensors
from transformer_parts.decoder import generate, next_token_probs

NUMBER = {word: n for n, word in enumerate(VOCABULARY)}
SWITCHES = (
    "RoPE", "last norm", "norm of attention 0", "norm of feed-forward 0", "norm of attention 1",
    "norm of feed-forward 1", "attention 0", "attention 1", "feed-forward 0", "feed-forward 1",
    "0.0", "0.3", "1.0", "1.2",
)  # fmt: skip
TOGETHER = (("RoPE", "attention 0", "1.1"), ("RoPE", "norm of attention 1", "feed-forward 0"))


@pytest.fixture(scope="module")
def model():
    """In double precision, as the page computes: without norms the logits go into the hundreds."""
    return own_model().double()


def some(number, longest=40):
    """Texts that are not too long, each with BEGIN and as numbers."""
    for words, _ in islice(texts(2 * number), 0, 2 * number, 2):
        yield [NUMBER[w] for w in [BEGIN, *words[:longest]]]


# ---- every tensor, with every switch

ALL = (
    f"([tokens, off, temperature]) => {{ {PACKED}"
    + """
  const { model, run, viewOf, TENSORS } = globalThis.tpXray;
  const seen = run(model, tokens, new Set(off), temperature), out = [];
  const { num_hidden_layers: layers, num_attention_heads: heads } = model.config;
  for (const { id, group, mine } of TENSORS) {
    const once = group === "in" || group === "out";
    for (let layer = 0; layer < (once ? 1 : layers); layer++) {
      for (let head = 0; head < (mine ? heads : 1); head++) {
        const of = viewOf(model, seen, id, { layer, head }), data = [];
        for (let i = 0; i < of.rows; i++) {
          for (let j = 0; j < of.columns; j++) data.push(of.at(i, j));
        }
        out.push([id, layer, head, of.rows, of.columns, packed(data)]);
      }
    }
  }
  return out;
}"""
)
IDS = {
    "tokens", "embedding", "before", "seen", "q", "k", "v", "turnedQ", "turnedK", "scores",
    "weights", "mixed", "attention", "middle", "between", "gate", "up", "hidden", "down", "after",
    "last", "logits", "probabilities",
}  # fmt: skip


def apart(page, model, tokens, off=(), temperature=1.0):
    """How far the page's tensors are from torch's: name -> the largest difference."""
    got = page.evaluate(ALL, [tokens, list(off), temperature])
    with taken_out(model, off):
        want = tensors(model, torch.tensor([tokens]))
    want["tokens"] = torch.tensor(tokens, dtype=torch.double)[:, None]
    want["probabilities"] = next_token_probs(want["logits"], temperature)
    causal = torch.ones(len(tokens), len(tokens), dtype=torch.bool).tril()
    furthest = dict.fromkeys(IDS, 0.0)
    for name, layer, head, rows, columns, data in got:
        value = want[name] if name in want else want["layers"][layer][name]
        value = value[head] if value.dim() == 3 else value
        assert value.shape == (rows, columns), name
        seen = unpacked(data, rows, columns)
        if name == "scores":
            assert (seen[~causal] == -math.inf).all()
            value, seen = value[causal], seen[causal]
        # They travel in single precision, in which numbers in the hundreds are 1e-5 apart.
        furthest[name] = max(furthest[name], float((seen - value).abs().max()))
    assert {name for name, *_ in got} == IDS
    return furthest


def test_every_tensor_is_that_of_torch_with_every_switch(loaded, model, record_property):
    worst = {}
    for tokens in some(2, longest=24):
        plain = None
        for off in ((), *((name,) for name in SWITCHES), *TOGETHER):
            found = apart(loaded, model, tokens, off, 1.0 if off else 0.7)
            assert max(found.values()) < AGREED, (off, found)
            worst = {k: max(v, worst.get(k, 0.0)) for k, v in found.items()}
            with torch.no_grad(), taken_out(model, off):
                logits = model(torch.tensor([tokens]))
            plain = logits if plain is None else plain
            assert not off or (logits - plain).abs().max() > 0.1, f"{off} takes nothing out"
    record_property("furthest from torch", worst)


def test_longer_texts_too(loaded, model):
    for tokens in some(3, longest=250):
        assert max(apart(loaded, model, tokens).values()) < AGREED


# ---- the arithmetic of a number

EXPLAIN = """([tokens, off, temperature, places]) => {
  const { model, run, viewOf, explain, TENSORS } = globalThis.tpXray;
  const seen = run(model, tokens, new Set(off), temperature);
  return JSON.stringify(places.map(([id, layer, head, x, y, look]) => {
    const of = viewOf(model, seen, id, { layer, head });
    const row = Math.floor(x * of.rows), column = Math.floor(y * (look ? row + 1 : of.columns));
    const told = explain(model, seen, id, { layer, head, row, column });
    return { ...told, row, column, value: of.at(row, column), result: String(told.result) };
  }));
}"""
QUOTIENTS = {"seen", "weights", "between", "hidden", "last", "probabilities"}


def worked_out(expression, table):
    """What the arithmetic gives in a calculator; E is the table of embeddings."""
    text = re.sub(r" \[\d+ more\]", "", plainly(expression)).replace("·", "*")
    text = re.sub(r"√(\d+)", r"√(\1)", text).replace("√", "sqrt")
    assert re.fullmatch(r"[-+*/()\d.e ,E\[\]]*", re.sub("exp|sqrt", "", text)), expression
    return eval(text, {"__builtins__": {}, "exp": math.exp, "sqrt": math.sqrt, "E": table})


def misread(page, model, rng, *, rounds=14, off=None):
    """What is wrong with the arithmetic of some numbers of each tensor: the first, or None."""
    table = model.embed.weight.detach()
    for tokens in some(rounds):
        out = rng.sample(SWITCHES, rng.choice((0, 0, 1, 2))) if off is None else off
        temperature = rng.choice((0.5, 1.0, 1.7))
        places = [
            [
                name,
                rng.randrange(2),
                rng.randrange(4),
                rng.random(),
                rng.random(),
                rng.random() < 0.9,
            ]
            for name in sorted(IDS)
            for _ in range(4)
        ]
        for p in places:
            p[5] = p[5] and p[0] in ("scores", "weights")
        asked = [tokens, list(out), temperature, places]
        for (name, layer, head, *_), told in zip(
            places, json.loads(page.evaluate(EXPLAIN, asked)), strict=True
        ):
            where = (name, layer, head, told, out)
            result, value = float(told["result"].replace("Infinity", "inf")), told["value"]
            value = -math.inf if value is None or value == "-Infinity" else value
            if result != pytest.approx(value, rel=1e-9, abs=1e-9):
                return where
            if told["expression"] is None:
                continue
            # Three digits of each number are written: of a difference fewer are left.
            sizes = sum(abs(a) + abs(b) for _, a, b, _ in told["terms"])
            room = 1e-12 if name in QUOTIENTS else 0.002 + 0.001 * sizes
            if worked_out(told["expression"], table) != pytest.approx(value, rel=0.02, abs=room):
                return where
    return None


def test_the_arithmetic_of_a_number_gives_the_number(loaded, model):
    assert misread(loaded, model, random.Random("arithmetic")) is None


def test_the_chapters_that_derive_it_have_the_place(loaded, built):
    places = [[name, 1, 2, 0.6, y, 0] for name in sorted(IDS) for y in (0.0, 0.99)]
    asked = [next(some(1)), [], 1.0, places]
    found = {tuple(told["chapter"]) for told in json.loads(loaded.evaluate(EXPLAIN, asked))}
    assert len(found) > 13
    for address, title in found:
        page, place = address.split("#")
        text = (built / "notebooks" / page).read_text("utf-8")
        assert f'id="{place}"' in text, address
        assert re.match(rf"Chapter {int(page[:2])}\b", title), title


# ---- writing on

WRITE = (
    f"([start, off, count, how, whole]) => {{ {PACKED}"
    + """
  const { model, run, writer } = globalThis.tpXray, set = new Set(off);
  const pen = writer(model, start, set, whole ? run(model, whole, set) : null), logits = [];
  const began = performance.now();
  for (let n = 0; n < count; n++) { logits.push(...pen.logits()); pen.next(how); }
  const took = (performance.now() - began) / count;
  const held = pen.cache.map(({ k, v }) => [packed(k.data), packed(v.data)]);
  return { tokens: pen.tokens, logits: packed(logits), took, held };
}"""
)
GREEDY = {"greedy": True, "temperature": 1, "seed": 0}


def miswritten(page, model, starts, count, off=()):
    """How far writing with the cache is from torch without; infinite if words differ. And ms."""
    furthest, times = 0.0, []
    for n, start in enumerate(starts):
        # Every other text is one of which the page has read more: the cache comes from there.
        whole = [*start, 7, 8, 9] if n % 2 else None
        got = page.evaluate(WRITE, [start, list(off), count, GREEDY, whole])
        with taken_out(model, off):
            prompt = torch.tensor([start])
            want = generate(model, prompt, count, temperature=0, use_cache=False)[0]
            if got["tokens"] != want.tolist():
                return math.inf, times
            with torch.no_grad():
                logits = model(want[None])[0]
                held = tensors(model, want[None])["layers"]
        size = len(start)
        seen = unpacked(got["logits"], count, len(VOCABULARY))
        furthest = max(furthest, float((seen - logits[size - 1 : -1]).abs().max()))
        for of, pair in zip(held, got["held"], strict=True):
            for name, data in zip(("turnedK", "v"), pair, strict=True):
                rows = of[name].transpose(0, 1).reshape(len(want), -1)
                furthest = max(furthest, float((unpacked(data, *rows.shape) - rows).abs().max()))
        times.append(got["took"])
    return furthest, times


def starts(number):
    for n, tokens in enumerate(some(number)):
        yield tokens[: 1 + 9 * n]


def test_written_with_the_cache_stand_the_words_of_torch(loaded, model, record_property):
    furthest, times = miswritten(loaded, model, starts(5), 24)
    assert furthest < AGREED
    record_property("ms a word with the cache", sorted(times)[len(times) // 2])
    for off in (("RoPE",), ("1.0", "norm of feed-forward 0"), ("attention 0",)):
        assert miswritten(loaded, model, starts(2), 12, off)[0] < AGREED, off


DRAW = """([logits, how, seeds]) => {
  const { chosen } = globalThis.tpXray;
  return seeds.map((seed) => [0, 1].map((n) => chosen(logits, { ...how, seed }, 40 + n).word));
}"""


def misdrawn(page, model):
    """How far drawn words are from their probabilities, in total variation, at two temperatures.

    What 2000 draws of 206 words are away by chance is subtracted.
    """
    with torch.no_grad():
        logits = model(torch.tensor([[1, NUMBER["one"]]]))[0, -1] + torch.linspace(0, 2, 206)
    furthest = 0.0
    for temperature in (0.6, 1.6):
        how = {"greedy": False, "temperature": temperature}
        drawn = page.evaluate(DRAW, [logits.tolist(), how, list(range(1000))])
        p = next_token_probs(logits, temperature)
        for words in (
            [w for pair in drawn for w in pair],
            [b for a, b in drawn if a == p.argmax()],
        ):
            counts = torch.bincount(torch.tensor(words), minlength=206) / len(words)
            excess = float((counts - p).abs().sum() / 2) - 0.4 * float(
                (p * (1 - p) / len(words)).sqrt().sum()
            )
            furthest = max(furthest, excess)
    return furthest


def test_words_are_drawn_with_their_probabilities(loaded, model):
    assert misdrawn(loaded, model) < 0.03


def test_a_seed_gives_the_same_text_again_and_another_one_another(loaded):
    start = [1, NUMBER["one"]]
    texts = [
        loaded.evaluate(
            WRITE, [start, [], 20, {"greedy": False, "temperature": 1, "seed": seed}, None]
        )["tokens"]
        for seed in (3, 3, 4)
    ]
    assert texts[0] == texts[1] != texts[2]
    cold = {"greedy": False, "temperature": 0.01, "seed": 3}
    greedy = [
        loaded.evaluate(WRITE, [start, [], 20, how, None])["tokens"] for how in (cold, GREEDY)
    ]
    assert greedy[0] == greedy[1]


# ---- faults that have to be found


def _tensors(page, model):
    cases = (
        (),
        ("RoPE",),
        ("norm of attention 1",),
        ("attention 1",),
        ("feed-forward 0",),
        ("1.0",),
    )
    tokens = next(some(1, longest=25))
    return any(max(apart(page, model, tokens, off, 0.5).values()) > AGREED for off in cases)


def _arithmetic(page, model):
    rng = random.Random("faults")
    return any(misread(page, model, rng, rounds=3, off=off) for off in ([], ["RoPE", "last norm"]))


def _writing(page, model):
    return miswritten(page, model, starts(3), 8)[0] > AGREED


def _drawing(page, model):
    return misdrawn(page, model) > 0.03


FAULTS = {
    "RoPE off leaves the keys rotated": (
        _tensors,
        "turnedK = turn(k, c.num_key_value_heads)",
        "turnedK = rotated(k, c.num_key_value_heads, c.rope_theta, from)",
    ),
    "a norm that is off loses its gain": (_tensors, "plain ? 1 :", "plain ? 1 / gain.data[0] :"),
    "a norm that is off still divides": (_tensors, "plain ? 1 :", ""),
    "attention that is off is that of the other layer": (
        _tensors,
        "off.has(`attention ${l}`) ?",
        "off.has(`attention ${1 - l}`) ?",
    ),
    "feed-forward that is off adds itself": (
        _tensors,
        "const down = off.has(`feed-forward ${l}`) ? matrix(x.rows, n)",
        "const down = off.has(`feed-forward ${l}`) ? middle",
    ),
    "a head that is off still gives": (_tensors, "off.has(`${l}.${h}`) ? null : mixed", "mixed"),
    "probabilities forget the temperature": (_tensors, "(z) => z / temperature)", "(z) => z)"),
    "a head shows its neighbour's columns": (
        _tensors,
        "const from = Math.floor(head * count / heads)",
        "const from = Math.floor((head ^ 1) * count / heads)",
    ),
    "scores are shown before the division": (
        _tensors,
        "scores.data.set(row, i * all);",
        "scores.data.set(row.map((z) => z * root), i * all);",
    ),
    "the rest of a sum is left out": (_arithmetic, " + ${factor(rest)} [", " + ${factor(0)} ["),
    "the root is not written": (_arithmetic, "(text) => `(${text}) / √${q.columns}`", "(t) => t"),
    "a row of the matrix beside the right one": (
        _arithmetic,
        "weight.data[r * weight.columns + i]",
        "weight.data[(r ^ 1) * weight.columns + i]",
    ),
    "a sine with the wrong sign is written": (
        _arithmetic,
        "${factor(value)}·${factor(cos)} − ${factor(other)}",
        "${factor(value)}·${factor(cos)} + ${factor(other)}",
    ),
    "the arithmetic forgets that RoPE is off": (_arithmetic, 'if (off.has("RoPE")) return', ""),
    "the temperature is not written": (_arithmetic, "temperature === null ?", "true ?"),
    "the cache is off by one position": (
        _writing,
        "from = cache[0].k.rows,",
        "from = Math.max(0, cache[0].k.rows - 1),",
    ),
    "the new word does not see itself": (_writing, "past + i + 1)", "Math.max(1, past + i))"),
    "the cache keeps keys that are not rotated": (
        _writing,
        "joined(kept.k, turnedK)",
        "joined(kept.k, kept.k.rows ? k : turnedK)",
    ),
    "the cache forgets the oldest word": (
        _writing,
        "layer.turnedK), v: top(layer.v) }",
        "layer.k), v: top(layer.v) }",
    ),
    "the temperature is applied twice": (
        _drawing,
        "(greedy ? 1 : temperature))",
        "(greedy ? 1 : temperature ** 2))",
    ),
    "every place draws the same number": (_drawing, "Math.imul(place, 0x85ebca77)", "0"),
    "drawn numbers crowd at zero": (
        _drawing,
        "u = chance(seed, place);",
        "u = chance(seed, place) ** 1.2;",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(bench, model, fault):
    found, before, after = FAULTS[fault]
    with_faults(bench, (before, after))
    assert found(bench, model)


def test_the_same_checks_find_nothing_where_nothing_is_wrong(bench, model):
    with_faults(bench)
    assert not any(check(bench, model) for check in (_tensors, _arithmetic, _writing, _drawing))
    assert len(list(blocks(model))) == 2, "the checks above name layers 0 and 1"
