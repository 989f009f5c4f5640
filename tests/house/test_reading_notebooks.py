"""Protects `book.chapters`: which notebooks are chapters, and the anchors that links rely on."""

from pathlib import Path

import pytest
from making import code, notebook, text

from book.chapters import CHAPTER, chapters, slug, tagged, topic


def test_there_are_chapters_in_reading_order():
    names = [p.name for p in chapters()]
    assert len(names) >= 2, "zero chapters must never pass for a tested book"
    assert names == sorted(names)
    assert all(CHAPTER.fullmatch(name) for name in names)


def test_a_topic_is_the_one_name_of_a_chapter():
    assert topic(Path("notebooks/08_normalization.ipynb")) == "normalization"
    topics = [topic(p) for p in chapters()]
    assert len(topics) == len(set(topics))


@pytest.mark.parametrize(
    "name", ["normalization.ipynb", "8_norm.ipynb", "08-norm.ipynb", "08_Norm.ipynb"]
)
def test_another_name_is_refused_and_the_message_says_what_is_expected(name):
    with pytest.raises(ValueError, match=r"NN_topic\.ipynb"):
        topic(Path(name))


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        (" The question", "the-question"),
        (" Why `eps` goes *inside*?", "why-eps-goes-inside"),
        (" Half precision: fp16, bf16", "half-precision-fp16-bf16"),
        (" Pre-norm and post-norm", "pre-norm-and-post-norm"),
    ],
)
def test_a_heading_has_the_anchor_that_the_site_gives_it(heading, anchor):
    assert slug(heading) == anchor


def test_only_code_cells_are_found_by_tag_in_order():
    cells = code("a", "export"), text("b", "export"), code("c"), code("d", "export", "witness")
    assert [c.source for c in tagged(notebook(*cells), "export")] == ["a", "d"]
