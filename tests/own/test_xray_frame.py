"""What the X-ray page is given: its first frame is what torch computes, and its text is true."""

import base64
import json
import re
from functools import cache

import pytest
import torch

from book import xray
from book.own import FOLDER, own_model
from book.stories import BEGIN, VOCABULARY, follow
from book.xray.compute import frame, levels, seen


@cache
def model():
    return own_model()


@cache
def example(number):
    told = xray.examples()[number]
    return [BEGIN, *told["text"].split()], told


def test_the_stored_frame_is_what_torch_computes():
    stored = xray.first()
    told = xray.examples()[0]
    computed = json.loads(json.dumps(frame(told["text"].split(), told["at"])))
    assert stored.keys() == computed.keys()
    for key in ("weights", "words", "at", "floor", "exact"):
        assert stored[key] == computed[key], f"{key}: run python -m book.xray"
    assert stored["surprises"] == pytest.approx(computed["surprises"], abs=2e-4)
    for key in ("next", "lens"):
        for one, other in zip(stored[key], computed[key], strict=True):
            for a, b in zip(one, other, strict=True):
                assert a == (b if isinstance(b, str) else pytest.approx(b, abs=2e-5))
    for one, other in zip(stored["maps"], computed["maps"], strict=True):
        for a, b in zip(one, other, strict=True):
            for row, again in zip(a, b, strict=True):
                assert row == pytest.approx(again, abs=1)


def test_the_file_holds_the_models_files_as_they_are():
    given = json.loads(re.search(r"unpacked\((\{.*\})\);\n", xray.script())[1])
    assert base64.b64decode(given["file"]) == (FOLDER / "model.safetensors").read_bytes()
    assert given["config"] == json.loads((FOLDER / "config.json").read_text())
    assert tuple(given["vocabulary"]) == VOCABULARY
    assert len(xray.script()) < 3_000_000
    assert re.fullmatch(r"xray-[0-9a-f]{8}\.js", xray.name())


def test_the_levels_begin_with_the_embedding_and_end_with_the_model():
    words, _ = example(0)
    of = seen(model(), words)
    last = list(of["levels"].values())[-1]
    torch.testing.assert_close(last, of["logits"].softmax(-1))
    rows = model().embed(of["tokens"][None])
    first = model().logits(model().norm(rows)).softmax(-1)[0]
    torch.testing.assert_close(of["levels"]["embedding"], first)
    assert list(levels(model(), of["tokens"][None])) == list(of["levels"])


# ---- what the page says of its examples


def test_head_1_0_looks_the_answer_up_and_needs_head_0_0():
    words, told = example(0)
    at = told["at"]
    assert (words[at], words[at + 1]) == ("pear", "lily")
    assert words[at - 4 : at] == ["who", "has", "what", "?"]
    gift = next(i for i in range(len(words)) if words[i - 5 : i + 1] == GIFT)
    whole = seen(model(), words)
    assert whole["maps"][1, 0, at].argmax() == gift
    assert whole["maps"][1, 0, at, gift] > 0.85
    lily = VOCABULARY.index("lily")
    chances = {
        (layer, head): seen(model(), words, [(layer, head)])["logits"].softmax(-1)[at, lily]
        for layer in range(2)
        for head in range(4)
    }
    assert whole["logits"].softmax(-1)[at, lily] > 0.99
    assert chances[1, 0] < 0.05
    assert chances[0, 0] < 0.6
    assert min(chances[0, head] for head in (1, 2, 3)) > 0.9


GIFT = ["gave", "the", "red", "pear", "to", "lily"]


def test_head_1_0_finds_what_came_after_the_earlier_word():
    words, _ = example(1)
    comma = words.index(",")
    n = len(words) - 2 - comma
    assert words[comma - n : comma] == words[comma + 1 : -1]
    whole, without = seen(model(), words), seen(model(), words, [(1, 0)])
    for at in range(comma, comma + n):
        assert whole["maps"][1, 0, at].argmax() == at - n, at

    def surprises(of):
        logp = of["logits"].log_softmax(-1)[:-1]
        return -logp.gather(-1, of["tokens"][1:, None])[:, 0]

    second = slice(comma + 1, comma + n)
    assert surprises(whole)[second].max() < 0.1
    assert surprises(without)[second].mean() > 3
    back = whole["maps"][0, 0].diagonal(-1)[comma - n + 1 : comma + n]
    assert back.mean() > 0.5
    assert len(follow(words)) == len(words), "it is the beginning of a story"


def test_the_third_example_holds_one_word_that_the_language_lacks():
    words, _ = example(2)
    assert [w for w in words if w not in VOCABULARY] == ["dragon"]


def test_every_word_of_the_language_is_listed():
    listed = xray.words_as_markdown().replace("**All others**", "")
    missing = {w for w in VOCABULARY if w not in listed.split() and not w.startswith("<")}
    assert missing == set()
