"""The model's files in Hugging Face's hands: a Llama with the same logits, and the same tokens.

Without `transformers` the file is skipped, see `tests/hugging_face.py`.
"""

import pytest
import torch
from hugging_face import WITHOUT_THEIR_WARNINGS, transformers

from book.own import FOLDER, encode, own_model
from book.own.measure import held_out
from book.own.recipe import padded
from transformer_parts.decoder import generate

pytestmark = WITHOUT_THEIR_WARNINGS


@pytest.fixture(scope="module")
def theirs():
    return transformers.AutoModelForCausalLM.from_pretrained(FOLDER).eval()


@pytest.fixture(scope="module")
def tokenizer():
    return transformers.AutoTokenizer.from_pretrained(FOLDER)


@torch.no_grad()
def test_llama_gives_the_same_logits(theirs):
    assert type(theirs).__name__ == "LlamaForCausalLM"
    rows = padded([encode(t.words) for t in held_out(50)])
    torch.testing.assert_close(theirs(rows).logits, own_model()(rows), atol=1e-4, rtol=1e-5)


def test_words_have_the_same_numbers(tokenizer):
    for told in held_out(50):
        assert tokenizer(str(told))["input_ids"] == encode(str(told))
    assert tokenizer.pad_token_id == 0
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (1, 2)


def test_a_word_outside_the_language_is_refused(tokenizer):
    with pytest.raises(Exception, match="UNK"):
        tokenizer("one sunny morning a dog")


def test_both_write_the_same(theirs):
    start = torch.tensor([encode(" ".join(held_out(1)[0].words[1:40]))])
    ours = generate(own_model(), start, 20, temperature=0)
    assert torch.equal(ours, theirs.generate(start, max_new_tokens=20, do_sample=False))
