"""The book's own model as Hugging Face's Llama: the other route to what the explorers show."""

import functools

from hugging_face import transformers

from book.own import FOLDER


@functools.cache
def llama():
    """It with the same weights, in float64, with attention that gives its weights out."""
    made = transformers.AutoModelForCausalLM.from_pretrained(FOLDER, attn_implementation="eager")
    return made.double().eval()
