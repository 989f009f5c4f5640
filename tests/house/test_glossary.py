"""The glossary: sorted, without double forms, and linked from the first use of each term."""

import pytest
import yaml
from docutils import nodes

from book import glossary
from book.chapters import chapters, read, slug, without_code

TERMS = glossary.load()


def linked(doctree):
    return [(r.astext(), r["refuri"], r["reftitle"]) for r in doctree.findall(nodes.reference)]


def page(*parts):
    doctree = nodes.section()
    doctree += nodes.paragraph("", "", *parts)
    return doctree


def test_there_are_terms_and_each_has_chinese_and_a_sentence():
    assert len(TERMS) > 60
    assert all(any("\u4e00" <= c <= "\u9fff" for c in t.zh) or t.zh.isascii() for t in TERMS)
    assert all(t.text.endswith(".") for t in TERMS)
    assert len({t.anchor for t in TERMS}) == len(TERMS)


@pytest.mark.parametrize("term", TERMS, ids=lambda t: t.anchor)
def test_a_term_points_to_a_section_that_speaks_of_it(term):
    stem, _, section = term.place.partition("#")
    [path] = [p for p in chapters() if p.stem == stem]
    prose = "\n".join(without_code(c.source) for c in read(path).cells if c.cell_type == "markdown")
    headings = {slug(line.lstrip("#")) for line in prose.splitlines() if line.startswith("#")}
    assert section in headings
    forms = [form.lower() for form in (term.term, *term.also)]
    whole = "\n".join(c.source for c in read(path).cells).lower()
    assert any(form in whole for form in forms), f"chapter {stem} never says {forms}"


def test_the_first_use_of_a_term_is_linked_and_no_other():
    doctree = page(nodes.Text("A causal mask. Another Causal Mask, and beam search."))
    glossary.link_first_uses(doctree, "../g.html")
    found = linked(doctree)
    assert [text for text, _, _ in found] == ["causal mask", "beam search"]
    assert found[0][1] == "../g.html#term-causal-mask"
    assert found[0][2].startswith("因果掩码: ")
    assert doctree.astext() == "A causal mask. Another Causal Mask, and beam search."


def test_the_longest_form_wins_and_parts_of_words_do_not_count():
    doctree = page(
        nodes.Text("Multi-head latent attention in an encoderless net, cross-attentions")
    )
    glossary.link_first_uses(doctree, "g")
    assert [text for text, _, _ in linked(doctree)] == ["Multi-head latent attention"]


def test_code_links_and_headings_stay_as_they_are():
    doctree = nodes.section("", nodes.title("", "Dropout"))
    link = nodes.reference("", "dropout", refuri="x", reftitle="")
    doctree += nodes.paragraph("", "", nodes.literal("", "dropout"), link)
    glossary.link_first_uses(doctree, "g")
    assert [uri for _, uri, _ in linked(doctree)] == ["x"]


GOOD = {"term": "b", "zh": "乙", "place": "08_normalization#derivation", "text": "T."}


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([GOOD | {"zh": ""}], "b: the fields must be"),
        ([GOOD | {"place": "somewhere"}], "b: place must be like"),
        ([GOOD, GOOD | {"term": "a"}], "not sorted"),
        ([GOOD, GOOD | {"term": "c", "also": ["B"]}], "in two entries: b"),
    ],
)
def test_a_bad_entry_is_named(tmp_path, items, message):
    path = tmp_path / "glossary.yml"
    path.write_text(yaml.safe_dump(items), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        glossary.load(path)
