"""What the X-ray page is given: its first frame is what torch computes, and its text is true."""

import base64
import json
import re
from functools import cache

import pytest
import torch

from book import xray
from book.own import FOLDER, decode, encode, own_model
from book.own.inside import attention_maps
from book.stories import BEGIN, VOCABULARY, NotOfTheLanguageError, follow
from book.xray.compute import frame, levels, seen, taken_out
from transformer_parts.decoder import generate


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


def surprise_without(words, off):
    tokens = torch.tensor([encode(words)])
    with torch.no_grad(), taken_out(model(), off):
        logp = model()(tokens)[0].log_softmax(-1)
        back = attention_maps(model(), tokens)[0][0, 0].diagonal(-1).mean()
    return -logp[:-1].gather(-1, tokens[0, 1:, None])[:, 0], float(back), logp


def test_without_rope_no_head_finds_the_word_before():
    words, _ = example(1)
    comma = words.index(",")
    second = slice(comma + 1, 2 * comma - words.index("baby") - 2)
    whole, back, _ = surprise_without(words, ())
    without, no_longer, _ = surprise_without(words, ("RoPE",))
    assert back > 0.4
    assert no_longer < 0.12
    assert whole[second].max() < 0.1
    assert without[second].mean() > 3


def test_the_last_norm_changes_how_sure_the_model_is_and_not_of_what():
    for number in (0, 1):
        words, _ = example(number)
        whole, _, logp = surprise_without(words, ())
        without, _, surer = surprise_without(words, ("last norm",))
        assert torch.equal(logp.argmax(-1), surer.argmax(-1))
        assert (surer.max(-1).values > logp.max(-1).values - 1e-6).all()
        assert without.mean() > whole.mean() + 1
        *_, other = surprise_without(words, ("norm of attention 0",))
        assert (other.argmax(-1) != logp.argmax(-1)).float().mean() > 0.2


def test_the_likeliest_text_repeats_itself_and_a_hot_one_leaves_the_language():
    start = torch.tensor([encode([BEGIN])])
    greedy = generate(model(), start, 120, temperature=0)[0]
    dull = "hid the red kite under the table ."
    assert decode(greedy.tolist()).count(dull) > 5
    assert len(follow([VOCABULARY[n] for n in greedy[1:60]])) == 60, "it is in the language"
    told = [
        [VOCABULARY[n] for n in generate(model(), start, 60, generator=seeded(seed))[0]]
        for seed in range(8)
    ]
    assert len({tuple(words) for words in told}) == 8
    hot = [generate(model(), start, 60, 2.0, generator=seeded(seed))[0] for seed in range(8)]
    for tokens in hot:
        with pytest.raises(NotOfTheLanguageError):
            follow([VOCABULARY[n] for n in tokens[1:]])


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def test_a_part_that_the_model_lacks_is_named():
    with pytest.raises(ValueError, match=r"'2\.0' is no part"), taken_out(model(), ["2.0"]):
        pass


def test_the_third_example_holds_one_word_that_the_language_lacks():
    words, _ = example(2)
    assert [w for w in words if w not in VOCABULARY] == ["dragon"]


def test_every_word_of_the_language_is_listed():
    listed = xray.words_as_markdown().replace("**All others**", "")
    missing = {w for w in VOCABULARY if w not in listed.split() and not w.startswith("<")}
    assert missing == set()
