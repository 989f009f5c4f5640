"""Protects the facts: the file is in order, links fit it, and a fact typed into prose is found."""

import re
import time
from collections import Counter

import pytest
from docutils import nodes
from making import code, notebook, result, text

from book import facts, lint_facts
from book.facts import Fact, fact, fits, load, problems
from book.lint_facts import links, prose, taken, typed

LLAMA = Fact(
    "llama-2-7b",
    "Llama 2 7B, its configuration",
    "touvron2023llama2",
    "config.json",
    '"intermediate_size": 11008',
    {"d_ff": 11008, "loss": 1.96, "name": "7B"},
    ("eleven thousand", "93.3 %"),
)
LINK = "(../book/pages/facts.md#llama-2-7b)"


@pytest.fixture
def one_fact(monkeypatch):
    """A book with one fact."""
    monkeypatch.setattr(facts, "load", lambda: {LLAMA.id: LLAMA})


# ---------------------------------------------------------------- the file


def test_the_file_is_in_order():
    bibliography = facts.BIBLIOGRAPHY.read_text(encoding="utf-8")
    assert list(problems(load().values(), bibliography, lint_facts.used())) == []
    assert len(load()) >= 20


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"id": "Llama"}, "an id has small letters and digits"),
        ({"id": "llama_2"}, "an id has small letters and digits"),
        ({"id": "2-llamas"}, "an id has small letters and digits"),
        ({"id": "llama-"}, "an id has small letters and digits"),
        ({"source": "touvron"}, "the source touvron is no key of references.bib and no address"),
        ({"source": "http://example.org"}, "is no key of references.bib and no address"),
        ({"quote": "x" * 181}, "the quote is longer than a line (181 characters)"),
        ({"quote": "one\ntwo"}, "the quote is longer than a line"),
        ({"values": {}, "texts": ()}, "has neither values nor texts"),
        ({"values": {"d_ff": [1, 2]}}, "the values d_ff are neither numbers nor words"),
        ({"values": {"d_ff": None}}, "the values d_ff are neither numbers nor words"),
    ],
)
def test_an_entry_that_is_not_in_order_is_named(change, said):
    one = Fact(**{**vars(LLAMA), **change})
    [problem] = problems([one], "@misc{touvron2023llama2,\n}", {one.id})
    assert problem.startswith(f"{one.id}: ")
    assert said in problem


def test_an_entry_that_no_page_uses_is_named():
    bibliography = "@misc{touvron2023llama2,\n}"
    assert list(problems([LLAMA], bibliography, {LLAMA.id})) == []
    assert list(problems([LLAMA], bibliography, set())) == ["llama-2-7b: no page uses it"]


GOOD = "{id: a, what: b, source: c, place: d, quote: e, values: {x: 1}}"


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([GOOD, GOOD], "a stands there twice"),
        ([GOOD.replace("place: d, ", "")], "a has no place"),
        ([GOOD.replace("quote: e", "quote: ''")], "a has no quote"),
        ([GOOD.replace("id: a, ", "")], "has no id"),
        ([GOOD.replace("values", "vaules")], "a has unknown fields: vaules"),
    ],
)
def test_a_file_that_cannot_be_read_says_which_entry_is_wrong(tmp_path, entries, said):
    file = tmp_path / "facts.yml"
    file.write_text("".join(f"- {entry}\n" for entry in entries), encoding="utf-8")
    with pytest.raises(ValueError, match=re.escape(said)):
        load(file)


# ---------------------------------------------------------------- code takes a fact


def test_code_takes_a_value_by_name(one_fact):
    assert fact("llama-2-7b", "d_ff") == 11008
    with pytest.raises(KeyError, match=r"no fact 'llama-3' in facts\.yml; there are llama-2-7b"):
        fact("llama-3", "d_ff")
    with pytest.raises(KeyError, match="has no 'd_model'; it has d_ff, loss, name"):
        fact("llama-2-7b", "d_model")


def test_what_code_takes_is_read_without_running_it():
    source = 'fact("a", "x") + fact("b", name)\nfor n in names:\n    fact(n, "y")\nfact()'
    assert taken(source) == [(None, None), ("a", "x"), ("b", None), (None, "y")]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ('fact("llama-2-7b", "d_ff")', None),
        ('fact("llama-2-7b", name)', None),
        ('fact(name, "d_ff")', None),
        ('%time\nfact("llama-3", "d_ff")', "takes the fact llama-3, which is not in facts.yml"),
        ('fact("llama-2-7b", "heads")', "takes 'heads' of the fact llama-2-7b"),
        (f'finding("[1]{LINK}")'.replace("-7b", "-8b"), "names the fact llama-2-8b"),
    ],
)
def test_a_cell_that_takes_what_is_not_there_is_found(one_fact, source, said):
    found = list(lint_facts.problems(notebook(code(source, name="cell"))))
    assert (found == []) if said is None else (said in found[0])


def test_the_link_in_a_finding_is_compared_as_it_is_shown(one_fact):
    source = f'finding("It has [{{n:,}}]{LINK}.", m, "n > 0", seeds=None)'
    for number, good in (("11,008", True), ("11,009", False)):
        shown_as = result({"text/plain": "x", "text/markdown": f"It has [{number}]{LINK}."})
        found = list(lint_facts.problems(notebook(code(source, outputs=[shown_as]))))
        assert (found == []) == good


# ---------------------------------------------------------------- links


@pytest.mark.parametrize("form", ["11008", "11,008", "1.96", "1.960", "7B", "eleven\nthousand"])
def test_a_link_shows_one_of_the_forms_of_its_fact(one_fact, form):
    assert fits(form, LLAMA)
    for address in (LINK, "(facts.md#llama-2-7b)", "(book/pages/facts.md#llama-2-7b)"):
        assert list(links(f"It has [{form}]{address}.")) == []


@pytest.mark.parametrize(
    ("link", "said"),
    [
        (f"[11009]{LINK}", "shown as '11009'; its forms are 1.96, 11,008, 11008, 7B, 93.3 %"),
        (f"[1.9600]{LINK}", None),
        (f"[1.961]{LINK}", "shown as '1.961'"),
        (f"[1.9]{LINK}", "shown as '1.9'"),
        (f"[110080]{LINK}", "shown as '110080'"),
        (f"[]{LINK}", "cannot be read"),
        ("[11008](../book/pages/facts.md#llama-2-7c)", "llama-2-7c, which is not in facts.yml"),
        ("[11008](../pages/facts.md#llama-2-7b)", "1 links to facts cannot be read"),
        ("[11008](<../book/pages/facts.md#llama-2-7b>)", "1 links to facts cannot be read"),
    ],
)
def test_a_link_that_does_not_fit_is_found(one_fact, link, said):
    found = list(links(f"It has {link}."))
    assert (found == []) if said is None else (said in found[0])


def test_on_the_site_a_link_says_source_and_place():
    page = nodes.paragraph()
    page += nodes.reference("", "11,008", refuri="../book/pages/facts.html#fact-llama-2-7b")
    page += nodes.reference("", "facts", refuri="../book/pages/facts.html")
    page += nodes.reference("", "else", refuri="https://example.org/#fact-llama-2-7b")
    titles = {LLAMA.anchor: "Touvron et al. 2023, config.json"}
    facts.mark_links(page, "../book/pages/facts.html", titles)
    assert page[0]["classes"] == ["tp-fact"]
    assert page[0]["reftitle"] == "Touvron et al. 2023, config.json"
    assert not page[1]["classes"]
    assert not page[2]["classes"]


def test_every_fact_has_a_title_without_keys_and_an_anchor_of_its_own():
    titles = facts.titles()
    assert len(titles) == len(load())
    bibliography = facts.BIBLIOGRAPHY.read_text(encoding="utf-8")
    keys = re.findall(r"^@\w+\{([^,\s]+),", bibliography, re.M)
    assert [t for t in titles.values() if t.split(",")[0] in keys] == []


def test_the_page_shows_every_fact_with_its_source_place_and_quote():
    page = facts.as_markdown()
    for one in load().values():
        start = page.index(f"({one.anchor})=\n")
        entry = page[start : page.find(")=\n", start + len(one.anchor) + 4)]
        source = f"<{one.source}>" if one.source.startswith("https") else f"`{one.source}`"
        assert source in entry
        plain = entry.replace("\\", "")
        assert one.place.replace("\\", "") in plain
        if one.quote == facts.NOT_SEEN:
            assert "not read again" in plain
        else:
            assert one.quote.strip().replace("\\", "") in plain
        for form in one.texts:
            assert form.replace("\\", "") in plain


# ---------------------------------------------------------------- typed facts


@pytest.mark.parametrize(
    ("planted", "said"),
    [
        ("The Transformer of 2017 has six layers.", "the year 2017 is typed"),
        ("It was removed in November 2023.", "the year 2023 is typed"),
        ("Since 1986, errors go backwards.", "the year 1986 is typed"),
        ("| model | 2019 |", "the year 2019 is typed"),
        ("- **Since 2020** it is the rule.", "the year 2020 is typed"),
        ("Between 2017–2019 it grew.", "the year 2017 is typed"),
        ("The cache is 93.3 % smaller.", "the percentage 93.3 % is typed"),
        ("The cache is 93.3% smaller.", "the percentage 93.3% is typed"),
        ("It saves 12 percent.", "the percentage 12 percent is typed"),
        ("About 1,000 % more.", "the percentage 1,000 % is typed"),
        ("Llama 2 7B has 11008 hidden features.", "11008 beside Llama 2 7B is typed"),
        ("Its width, 4096, is that of LLaMA-7B.", "4096 beside LLaMA-7B is typed"),
        ("GPT-3 has 96 layers.", "96 beside GPT-3 is typed"),
        ("Of GPT-2's layers there are 48.", "48 beside GPT-2 is typed"),
        ("In Qwen2.5-7B there are 28 heads.", "28 beside Qwen2.5-7B is typed"),
        ("Qwen2, with 4 groups, does so.", "4 beside Qwen2 is typed"),
        ("Mistral 7B slides a window of 4,096.", "4,096 beside Mistral 7B is typed"),
        ("DeepSeek-V2 keeps 512 and 64.", "512, 64 beside DeepSeek-V2 is typed"),
        ("Mixtral 8x7B has 8 experts", "8 beside Mixtral 8x7B is typed"),
        ("Gemma 2 caps at 50.", "50 beside Gemma 2 is typed"),
        ("| LLaMA-65B | 80 | `8192` |", "80 beside LLaMA-65B is typed"),
        ("| Llama 3.1 8B | $4096$ | 32 |", "32 beside Llama 3.1 8B is typed"),
        ("DeepSeek 67B has 95 layers", "95 beside DeepSeek 67B is typed"),
        ("A T5-11B model has 65,536 features.", "65,536 beside T5-11B is typed"),
        # A link beside it does not excuse a number.
        (f"Llama 2 7B has [11,008]{LINK} features in 32 layers.", "32 beside Llama 2 7B is typed"),
        # In every kind of text.
        ("```{dropdown} Why?\nIn 2017.\n```", "the year 2017 is typed"),
        ("> In 2017.", "the year 2017 is typed"),
        ("```{exercise} Count\n:label: ex-x\n*5 minutes, easy.* GPT-3 has 96 layers.\n```", "96"),
    ],
)
def test_a_typed_fact_is_found(planted, said):
    found = list(typed(planted))
    assert len(found) >= 1
    assert said in found[0]


@pytest.mark.parametrize(
    "innocent",
    [
        "It runs 2000 steps, for 5 seeds, over 2048 positions.",
        "In 2000 steps, with 1990 samples of 2048 features, 1,987 rows are left.",
        "See chapter 05, section 3.2, equations (3) and (4), table 2, and E-31.",
        "Chapters 11 and 12 build Llama 3's scaling; chapter 15, Qwen3's norms.",
        "*20 minutes, medium.* Return the scores of Qwen3's attention.",
        "- **Time** 90 minutes to read; 2 hours with the exercises",
        "`GPT-3 has 96 layers in 2020`, $2017 + 93\\%$, and {cite:p}`brown2020gpt3`.",
        "```python\n# GPT-3 has 96 layers since 2020, 93 %\n```",
        "$$\n2017 = 96 \\text{ GPT-3}\n$$ (eq-year)",
        f"Llama 2 7B has [11,008]{LINK} hidden features.",
        "The paper {cite:p}`vaswani2017attention` has it; [of 2017](https://example.org/2017).",
        "https://example.org/2017/GPT-3/96",
        "GPT-2 and GPT-3, Llama 2 7B, LLaMA-65B, Qwen2.5-7B, Qwen2, Mistral 7B, DeepSeek-V3.",
        "Llama 2 70B. It has 80 layers, which another sentence says of no model.",
        "Llama has two layers; BERT has twelve.",
        "Python 3.11, torch 2.13.0, 0.5 and 1.96, A4, 12·d², 7B.",
        "<!-- in 2017, 93 % -->",
        '<a href="2017.html">x</a>',
        "A percentage point, percent, %.",
        "1. Llama 2 first.\n2. Qwen2 second.",
        "(fact-2017)=\n",
        "About 2,017 rows, 2017.5 and 12017, x2017.",
    ],
)
def test_what_is_no_fact_is_left_alone(innocent):
    found = list(typed(innocent))
    assert found == []


def test_prose_keeps_what_is_read():
    assert prose("The *word* and `code` of [a link](x.md) $x$.").split() == [
        "The", "*word*", "and", "of", ".",
    ]  # fmt: skip


def test_a_cell_may_hold_numbers_if_it_is_tagged_and_cites(one_fact):
    words = "They report 93.3 % in 2024 for DeepSeek-V2, 6 bits"
    cited = text(f"{words} {{cite:p}}`deepseek2024v2`.", "cited")
    assert list(lint_facts.problems(notebook(cited))) == []
    assert len(list(lint_facts.problems(notebook(text(words))))) == 3
    [problem] = lint_facts.problems(notebook(text(words, "cited")))
    assert "is tagged 'cited' but cites nothing" in problem


def test_a_fact_planted_in_a_chapter_or_on_a_page_is_found(one_fact, monkeypatch):
    cells = text("Words."), text("GPT-3 has 96 layers."), text(f"[12,000]{LINK}")
    found = list(lint_facts.problems(notebook(*cells)))
    assert len(found) == 2
    monkeypatch.setattr(lint_facts, "pages", lambda: {"book/pages/x.md": "It began in 1986."})
    monkeypatch.setattr(lint_facts, "used", lambda: {LLAMA.id})
    assert [p for p in lint_facts.house() if "x.md" in p] == [
        "x.md: the year 1986 is typed, not cited or taken from facts.yml, in: It began in 1986."
    ]


# ---------------------------------------------------------------- the book


def test_the_pages_type_no_fact():
    assert list(lint_facts.house()) == []


def test_all_this_takes_less_than_two_seconds():
    start = time.process_time()
    list(lint_facts.house())
    assert time.process_time() - start < 2


def test_no_two_sources_are_called_the_same():
    """What a page prints of a source, "Yang et al. 2024", leads to one entry."""
    called = Counter(facts._sources(facts.BIBLIOGRAPHY.read_text(encoding="utf-8")).values())
    assert [name for name, count in called.items() if count > 1] == []
