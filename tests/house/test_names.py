"""The index of names: complete, and true about where a name is defined, used and taken from."""

import importlib

import pytest

from book.chapters import chapters, topic
from book.names import as_markdown, names

NAMES = names()
BY_NAME = {(one.defined.chapter, one.name): one for one in NAMES}


@pytest.mark.parametrize("path", chapters(), ids=lambda p: p.stem)
def test_every_public_name_of_a_module_is_there_in_order(path):
    module = importlib.import_module(f"transformer_parts.{topic(path)}")
    assert [one.name for one in NAMES if one.defined.chapter == path.stem] == module.__all__


def test_a_name_says_where_it_is_defined_what_it_implements_and_who_uses_it():
    norm = BY_NAME["08_normalization", "rms_norm"]
    assert norm.signature == "rms_norm(x, normalized_shape, weight=None, eps=None)"
    assert norm.summary.startswith("RMSNorm over the trailing dimensions")
    assert (norm.defined.section, norm.defined.title) == (
        "the-library-version",
        "The library version",
    )
    assert "Zhang and Sennrich 2019" in norm.source
    assert "what-fusing-buys" in [use.section for use in norm.uses]
    attention = BY_NAME["05_attention", "MultiHeadAttention"]
    assert attention.signature == "MultiHeadAttention(d_model, num_heads, bias=True, dropout=0.0)"


def test_a_variable_of_the_same_name_is_no_use():
    """Other chapters call a variable `glu` or `softmax` of their own; only an import counts."""
    for one in NAMES:
        for use in one.uses:
            if use.chapter != one.defined.chapter:
                source = next(p for p in chapters() if p.stem == use.chapter).read_text("utf-8")
                assert f"transformer_parts.{one.defined.chapter[3:]} import" in source


def test_the_page_links_the_equations_of_the_book():
    text = as_markdown()
    assert "{eq}`eq-rms-forward`" in text
    assert "(name-08-rms_norm)=" in text
    assert "notebooks/08_normalization.ipynb#the-library-version" in text
