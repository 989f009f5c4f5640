"""The model's tokenizer: a token is a word of the language."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from book.stories import BEGIN, END, PAD, VOCABULARY

ID = {word: i for i, word in enumerate(VOCABULARY)}
PAD_ID, BEGIN_ID, END_ID = ID[PAD], ID[BEGIN], ID[END]


def encode(text: str | Iterable[str]) -> list[int]:
    """The numbers of the words, BEGIN before them if it is not there.

    Raises:
        ValueError: naming the first word that the language does not have.
    """
    words = text.split() if isinstance(text, str) else list(text)
    for word in words:
        if word not in ID:
            raise ValueError(f"{word!r} is no word of the book's language")
    numbers = [ID[word] for word in words]
    return numbers if numbers[:1] == [BEGIN_ID] else [BEGIN_ID, *numbers]


def decode(numbers: Sequence[int]) -> str:
    """The words of the numbers, without BEGIN, END and padding.

    Raises:
        ValueError: naming a number that no word has.
    """
    for n in numbers:
        if not 0 <= n < len(VOCABULARY):
            raise ValueError(f"{n} is the number of no word: there are {len(VOCABULARY)}")
    return " ".join(VOCABULARY[n] for n in numbers if n not in (PAD_ID, BEGIN_ID, END_ID))


def tokenizer_json() -> dict[str, Any]:
    """The same for Hugging Face's `tokenizers`: words between spaces, BEGIN before them."""
    special = [
        {
            "id": ID[word],
            "content": word,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for word in (PAD, BEGIN, END)
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": BEGIN, "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
            ],
            "pair": [
                {"SpecialToken": {"id": BEGIN, "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
                {"Sequence": {"id": "B", "type_id": 0}},
            ],
            "special_tokens": {BEGIN: {"id": BEGIN, "ids": [BEGIN_ID], "tokens": [BEGIN]}},
        },
        "decoder": None,
        # No word is unknown: one outside the vocabulary is an error there too.
        "model": {"type": "WordLevel", "vocab": ID, "unk_token": "<unk>"},
    }
