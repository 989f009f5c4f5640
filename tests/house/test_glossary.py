"""The glossary: sorted, without double forms, and linked from the first use of each term."""

import itertools
import re
from dataclasses import replace

import pytest
import yaml
from docutils import nodes
from making import notebook as notebook_of
from making import text

from book import glossary, notation
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


def section_of(notebook, anchor):
    """The prose below the heading with this anchor, up to the next of its level; None if none."""
    prose = "\n".join(without_code(c.source) for c in notebook.cells if c.cell_type == "markdown")
    level, kept = None, []
    for piece in re.split(r"^(?=#{1,6} )", prose, flags=re.M):
        heading = re.match(r"(#{1,6}) +(.+?) *$", piece, re.M)
        if heading and level is not None and len(heading[1]) <= level:
            break
        if heading and level is None and slug(heading[2]) == anchor:
            level = len(heading[1])
        if level is not None:
            kept.append(piece)
    return "".join(kept) or None


def speaks_of(term, prose):
    """Whether the term, or one of its forms, is said there in words."""
    words = re.sub(r"\$[^$]*\$|`[^`]*`|[*_]", " ", prose)
    forms = "|".join(re.escape(form) for form in (term.term, *term.also))
    return bool(re.search(rf"(?<![\w-])({forms})(?![\w-])", " ".join(words.split()), re.I))


@pytest.mark.parametrize("term", TERMS, ids=lambda t: t.anchor)
def test_a_term_points_to_a_section_that_speaks_of_it(term):
    stem, _, anchor = term.place.partition("#")
    [path] = [p for p in chapters() if p.stem == stem]
    prose = section_of(read(path), anchor)
    assert prose is not None, f"chapter {stem} has no section {anchor}"
    assert speaks_of(term, prose), f"{term.place} never says {term.term}, in no form"


def test_most_terms_that_point_to_another_chapter_are_found():
    """Planted: the place of every term moved to the same part of another chapter."""
    notebooks = {path.stem: read(path) for path in chapters()}
    prose = {
        stem: section_of(notebook, "why-anyone-wanted-it") for stem, notebook in notebooks.items()
    }
    prose = {stem: text for stem, text in prose.items() if text}  # parts may have other names
    moved = [(term, stem) for term in TERMS for stem in prose if stem != term.place[: len(stem)]]
    found = [pair for pair in moved if not speaks_of(pair[0], prose[pair[1]])]
    # Words such as token or gradient stand everywhere.
    assert len(found) > 0.8 * len(moved)


def test_only_words_count_and_only_in_the_section():
    term = glossary.Term("causal mask", "因果掩码", "05_attention#masks", "T.", ("causal masks",))
    assert speaks_of(term, "A *causal*\nmask hides them. Causal masks do.")
    assert not speaks_of(term, "Call `causal mask`, $causal mask$, or noncausal masking.")
    cells = ["# Title\n\n## Masks\n\none", "### Inside\n\ntwo", "## After\n\nthree"]
    notebook = notebook_of(*map(text, cells))
    assert section_of(notebook, "masks").split() == ["##", "Masks", "one", "###", "Inside", "two"]
    assert section_of(notebook, "nowhere") is None


def test_the_first_use_of_a_term_is_linked_and_no_other():
    doctree = page(nodes.Text("A causal mask. Another Causal Mask, and beam search."))
    glossary.link_first_uses(doctree, "../g.html")
    found = linked(doctree)
    assert [text for text, _, _ in found] == ["causal mask", "beam search"]
    assert found[0][1] == "../g.html#term-causal-mask"
    assert found[0][2] == "因果掩码"
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


# ---------------------------------------------------------------- the Chinese terms

# What is said in English -> the characters that say it, for words that are often exchanged. Both
# ways: a term with the word has the characters, and a term with the characters has the word.
PAIRS = {
    r"normali[sz]|[Nn]orm\b": "归一化",  # not 正则化, which is regularization, nor 标准化
    r"encod(er|ing)|UTF-8": "编码",
    r"decod": "解码",
    r"embedding": "嵌入",
    r"token(?!iz)": "词元",
    r"tokenizer": "分词",
    r"activation": "激活",
    r"(activation|distribution) function|sigmoid": "函数",
    r"patching": "修补",
    r"weights?\b": "权重",
    r"attention|ALiBi": "注意力",
    r"[Pp]ost-": "^后",
    r"[Pp]re-|prefill|warm-up|feed-forward": "预|前",
    r"head": "头",
    r"mask": "掩码",
    r"bias|ALiBi": "偏",
    r"linear|LU\b|ALiBi": "线性",
    r"connection": "连接",
    r"stream": "流",
    r"\bposition": "位置",
    r"speculative": "推测",
    r"sink": "汇",
    r"dead": "死亡",
    r"AdamW": "AdamW",
    r"Muon": "Muon",
    r"divergence": "散度",
    r"self-": "自",
    r"cross-": "交叉",
    r"multi-head": "多头",
    r"multi-query": "多查询",
    r"grouped": "分组",
    r"quer(y|ies)|QK": "查询",
    r"\bkeys?\b|\bKV\b|QK": "键",
    r"overflow": "上溢",
    r"underflow": "下溢",
    r"causal": "因果",
    r"padding": "填充掩码",
    r"interpolation": "插值",
    r"extrapolation": "外推",
    r"gate": "门控",
    r"feed-forward": "前馈",
    r"residual": "残差",
    r"batch normalization": "批归一化",
    r"layer normalization": "层归一化",
    r"decay": "衰减",
    r"warm-up": "预热",
    r"clipping": "裁剪",
    r"accumulation": "累积",
    r"gradient": "梯度",
    r"entropy": "熵",
    r"likelihood": "似然",
    r"perplexity": "困惑度",
    r"sampling|top-p": "采样",
    r"greedy": "贪心",
    r"beam": "束",
    r"latent": "潜在",
    r"mean": "均值",
    r"variance": "方差",
    r"standard deviation": "标准差",
    r"gain": "缩放",
    r"offset": "平移",
    r"up-projection": "升维",
    r"down-projection": "降维",
    r"loss": "损失",
    r"learning rate": "学习率",
}
# What has the characters for another reason.
OTHERWISE = {
    ("learning rate", "warm-up"),  # 学习率预热: the warm-up of the learning rate
    ("token(?!iz)", "vocabulary"),
    ("gate", "SwiGLU"),
    ("stream", "pipeline parallel"),  # 流水线: an assembly line
    # The field calls it an encoding in Chinese.
    ("encod(er|ing)|UTF-8", "rotary position embedding"),
    ("embedding", "rotary position embedding"),
    ("encod(er|ing)|UTF-8", "byte-pair encoding"),
}


def exchanged(terms):
    """Pairs of a word and a term whose English and Chinese do not agree on it."""
    for word, characters in PAIRS.items():
        for one in terms:
            english = any(re.search(word, form) for form in (one.term, *one.also))
            if english != bool(re.search(characters, one.zh)) and (word, one.term) not in OTHERWISE:
                yield word, one.term


def test_chinese_terms_that_are_often_exchanged_are_the_right_ones():
    assert list(exchanged(TERMS)) == []
    for letter in (row for table in notation.load() for row in table.rows):
        for word, characters in PAIRS.items():
            told = f"{letter.symbol} {letter.meaning}"
            if re.search(characters, letter.zh) and "softmax" not in letter.symbol:
                assert re.search(word, told), (letter.symbol, letter.zh)


def test_terms_with_each_others_chinese_are_noticed():
    planted = 0
    for a, b in itertools.combinations([t for t in TERMS if _in_a_pair(t)], 2):
        if abs(len(a.zh) - len(b.zh)) > 1 or {a.zh, b.zh} <= {"潜在向量"}:
            continue
        swapped = [replace(a, zh=b.zh), replace(b, zh=a.zh)]
        planted += 1
        assert list(exchanged(swapped)), f"{a.term} is called {b.zh}, {b.term} {a.zh}"
    assert planted > 200


def _in_a_pair(term):
    return any(re.search(characters, term.zh) for characters in PAIRS.values())
