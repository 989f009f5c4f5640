"""Protects symbols that answer: their tables, where they are in the MathML, what a page carries."""

import json
import re
from collections import Counter

import pytest
import yaml

from book import lint, lint_symbols, symbol_pages
from book.chapters import ROOT, chapters, read, topic
from book.formulas.reading import FormulaError
from book.formulas.symbols import Meaning, occurrences, rows
from book.lint import displayed

FORMULAS = {topic(path): displayed(read(path)) for path in chapters()}
NUMBER = re.compile(r' data-s="\d+"(?: data-role="[a-z]+")?')


def readable(topic):
    """The formulas of a chapter with their symbols, without those that cannot be read."""
    for label, latex in FORMULAS[topic]:
        try:
            yield label, latex, occurrences(latex, topic, label)
        except FormulaError:
            continue


def plain(latex):
    return str(symbol_pages._latex.convert_with_local_state(latex, displaystyle=True))


def signs(mathml):
    """What a piece of MathML prints, in any order, without marks that only set styles."""
    text = re.sub(r"<[^>]*>|&\w+;|\s|\ufe00", "", mathml)
    return Counter(text)


def element(mathml, at):
    """The text of the element whose attributes begin at this place."""
    start = mathml.rindex("<", 0, at)
    tag = mathml[start + 1 : at]
    depth = 0
    for found in re.finditer(rf"<(/?){tag}\b[^>]*>", mathml[start:]):
        depth += -1 if found[1] else 1
        if depth == 0:
            return mathml[start : start + found.end()]
    raise AssertionError(mathml)


# ---------------------------------------------------------------- the tables


@pytest.mark.parametrize("one", FORMULAS)
def test_every_printed_symbol_has_a_row_and_every_row_is_printed(one):
    assert lint_symbols.problems(one, FORMULAS[one]) == []


def test_what_all_chapters_share_is_printed_and_no_table_is_left_over():
    assert lint_symbols.house() == []


def test_nearly_all_formulas_can_be_read():
    count = sum(map(len, FORMULAS.values()))
    assert count > 300
    assert sum(1 for one in FORMULAS for _ in readable(one)) >= 0.99 * count


GOOD = {
    "y": {"name": "output", "shape": "(d)", "role": "data"},
    "x": [
        {"name": "input", "shape": "(d)", "role": "data"},
        {"name": "a number", "role": "data", "only": ["eq-b"]},
    ],
    r"\gamma": {"name": "gain", "shape": "(d)", "role": "learned"},
    "a": {"name": "slope", "role": "constant"},
}
PAGE = [("eq-a", r"y=\gamma\odot x"), ("eq-b", "y=ax")]


def told(tmp_path, table, formulas=PAGE, text=None):
    """What lint says of a chapter with this table."""
    (tmp_path / "common.yml").write_text("")
    (tmp_path / "answer.yml").write_text(text or yaml.safe_dump(table))
    return lint_symbols.problems("answer", formulas, tmp_path)


def test_a_table_that_fits_is_not_complained_of(tmp_path):
    assert told(tmp_path, GOOD) == []


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"a": None}, "eq-b prints a, which has no row"),
        ({"z": {"name": "nothing", "role": "data"}}, r"z (nothing): no formula prints it"),
        ({"y": {"name": "", "role": "data"}}, "y has no name"),
        ({"y": {"name": "output", "role": "input"}}, "y has the role 'input', not one of data,"),
        ({"y": {"name": "output", "role": "data", "sort": 1}}, "y has an unknown column: sort"),
        ({"y": {"name": "output", "role": "data", "color": "red"}}, "y has the color 'red', not"),
        (
            {"x": [{"name": "input", "role": "data"}, {"name": "a number", "role": "data"}]},
            "x has 2 meanings in one chapter; say with `only` where it has which",
        ),
        (
            {"x": [{"name": n, "role": "data", "only": ["eq-a", "eq-b"]} for n in ("one", "two")]},
            "x has two meanings in eq-a",
        ),
        (
            {"x": {"name": "input", "role": "data", "only": ["eq-a"]}},
            "eq-b prints x, which has no row",
        ),
        (
            {"a": [GOOD["a"], {"name": "other", "role": "data", "only": ["eq-c"]}]},
            "a (other): this chapter has no formula eq-c",
        ),
        (
            {"a": [GOOD["a"], {"name": "other", "role": "data", "only": ["eq-a"]}]},
            "a (other): eq-a does not print it",
        ),
        (
            {key: {"name": "gain again", "role": "learned"} for key in (r"\hat g", r"\hat{g}")},
            "has two entries; a second meaning is one of a list, with `only`",
        ),
        ({"x+1": {"name": "next", "role": "data"}}, "x+1 is not the name of a symbol"),
    ],
)
def test_a_planted_fault_is_found(tmp_path, change, complaint):
    table = {key: row for key, row in (GOOD | change).items() if row is not None}
    found = told(tmp_path, table)
    assert any(complaint in one for one in found), found
    assert all(one.startswith("book/symbols/answer.yml: ") for one in found)


def test_a_letter_that_stands_twice_in_the_file_is_found(tmp_path):
    text = yaml.safe_dump(GOOD) + "'y': {name: also, role: data}\n"
    assert any("y has two entries" in one for one in told(tmp_path, None, text=text))


def test_a_name_cut_at_its_comma_is_found(tmp_path):
    text = yaml.safe_dump({k: GOOD[k] for k in ("y", "x", r"\gamma")})
    text += "a: {name: slope, not a number, role: constant}\n"
    found = told(tmp_path, None, text=text)
    assert any("a has an unknown column: not a number" in one for one in found)


def test_a_file_that_is_no_yaml_is_an_answer_and_no_crash(tmp_path):
    found = told(tmp_path, None, text="'y': {name: output, shape: (n_{v}), role: data}\n")
    assert found
    assert "this is no YAML" in found[0]


def test_a_chapter_without_a_table_and_a_table_without_a_chapter_are_found(tmp_path):
    (tmp_path / "common.yml").write_text(r"\aleph: {name: unused, role: constant}")
    assert "there is no table" in lint_symbols.problems("answer", PAGE, tmp_path)[0]
    (tmp_path / "answer.yml").write_text("")
    found = lint_symbols.house(tmp_path)
    assert "book/symbols/answer.yml: there is no such chapter" in found
    assert r"book/symbols/common.yml: \aleph (unused): no formula prints it" in found


def test_a_chapter_may_give_a_shared_letter_another_meaning(tmp_path):
    shared = {"a": {"name": "shared", "role": "constant"}}
    (tmp_path / "common.yml").write_text(yaml.safe_dump(shared))
    own = {"a": {"name": "own", "role": "data", "only": ["eq-b"]}}
    (tmp_path / "answer.yml").write_text(yaml.safe_dump(own))
    names = [
        [one.meaning.name for one in occurrences("a", "answer", label, tmp_path)]
        for label in ("eq-a", "eq-b")
    ]
    assert names == [["shared"], ["own"]]


def test_lint_of_a_chapter_looks_at_its_symbols(monkeypatch, capsys):
    asked = []

    def planted(name, formulas):
        asked.append((name, formulas))
        return ["a planted problem"]

    monkeypatch.setattr(lint_symbols, "problems", planted)
    path = chapters()[7]
    assert lint.main([str(path)]) == 1
    assert f"{path.name}: a planted problem" in capsys.readouterr().out
    assert asked == [(topic(path), FORMULAS[topic(path)])]


# ---------------------------------------------------------------- the MathML


@pytest.mark.parametrize("one", FORMULAS)
def test_the_formula_is_set_as_without_and_each_symbol_is_found(one):
    symbols = symbol_pages.PageSymbols(one)
    for label, latex, found in readable(one):
        mathml = symbols.formula(label, latex)
        if mathml is None:
            assert all(place.meaning is None for place in found), label
            continue
        assert NUMBER.sub("", mathml) == plain(latex), label
        tree = symbol_pages._tree(plain(latex))
        for place in found:
            printed = latex[place.start : place.end]
            hit = symbol_pages._elements(latex, place.start, place.end, tree)
            assert hit, f"{label}: {printed} has no element"
            # The elements print what the symbol alone prints; of a primed one, at least its letter.
            shown = sum((signs(element(plain(latex), kid.at)) for kid in hit), Counter())
            wanted = signs(plain(printed))
            assert shown == wanted or (printed.endswith("'") and shown < wanted), (label, printed)


def test_a_symbol_with_scripts_is_one_and_its_indices_answer_for_themselves():
    latex = r"dX_{ij}=\operatorname{softmax}(\hat x)^\top\sigma_i^2"
    spans = [
        ("dX", 0), ("i", 1), (r"\operatorname{softmax}", 2), (r"\hat x", 3),
        (r"\sigma_i^2", 4), ("i^2", 1),
    ]  # fmt: skip
    places = []
    for text, number in spans:
        start = latex.index(text)
        places.append((Placed(start, start + len(text.removesuffix("^2"))), number))
    places[4] = Placed(places[4][0].start, len(latex)), 4
    mathml = symbol_pages.marked(latex, places)
    assert NUMBER.sub("", mathml) == plain(latex)
    texts = {n: [] for n in range(5)}
    for found in re.finditer(r' data-s="(\d)"', mathml):
        bare = NUMBER.sub("", mathml[: found.start()])
        text = element(plain(latex), len(bare))
        texts[int(found[1])].append(re.sub(r"<[^>]*>", "", text))
    assert texts == {0: ["d", "X"], 1: ["i", "i"], 2: ["softmax"], 3: ["xˆ"], 4: ["σi2"]}


class Placed:
    """A place in a formula, as `marked` takes it."""

    meaning = None

    def __init__(self, start, end):
        self.start, self.end = start, end


def test_a_formula_that_cannot_be_read_is_left_to_the_page():
    assert symbol_pages.PageSymbols("normalization").formula("eq-x", r"a<<|_b") is None
    assert symbol_pages.PageSymbols("normalization").formula("eq-x", "3=3") is None
    assert symbol_pages.PageSymbols("normalization").island() == ""


# ---------------------------------------------------------------- what a page carries


def island(one):
    symbols = symbol_pages.PageSymbols(one)
    numbers = [
        {int(n) for n in re.findall(r'data-s="(\d+)"', symbols.formula(label, latex) or "")}
        for label, latex, _ in readable(one)
    ]
    block = symbols.island()
    head = '<script type="application/json" class="tp-symbols">'
    assert block.startswith(head)
    text = block.removeprefix(head).removesuffix("</script>")
    assert "<" not in text
    return json.loads(text), numbers


@pytest.mark.parametrize("one", FORMULAS)
def test_every_number_has_an_answer_and_every_answer_a_number(one):
    entries, numbers = island(one)
    assert set().union(*numbers) == set(range(len(entries)))
    for key, name, shape, role, words in entries:
        assert key.count("<") == key.count(">") >= 2
        assert name in words.replace("$", "")
        assert words.endswith(f", {role}")
        assert bool(shape) == (", shape " in words)
        assert not re.search(r"[\\{}$_^]", words), words


def test_the_gain_of_a_norm_says_so():
    entries, _ = island("normalization")
    (gain,) = [entry for entry in entries if entry[1] == "gain"]
    assert gain[0] == "<mi>γ</mi>"
    assert re.sub(r"<[^>]*>", "", gain[2]) == "(d)"
    assert gain[3:] == ["learned", "gamma: gain, shape d, learned"]


@pytest.mark.parametrize(
    ("latex", "words"),
    [
        (r"\gamma", "gamma"),
        (r"\Gamma", "capital gamma"),
        ("W_Q", "capital W sub capital Q"),
        (r"d_\text{head}", "d sub head"),
        (r"\hat x", "x hat"),
        (r"\bar{\alpha}_i", "alpha bar sub i"),
        (r"\sigma^2", "sigma squared"),
        ("f''", "f prime prime"),
        ("c^Q", "c super capital Q"),
        (r"\mathbf 1", "bold 1"),
        (r"\mathcal H", "script capital H"),
        ("dX", "d capital X"),
        (r"\operatorname{softmax}", "softmax"),
        ("d/2+1", "d over 2 plus 1"),
        (r"\varepsilon", "epsilon"),
    ],
)
def test_a_symbol_is_spoken(latex, words):
    assert symbol_pages.say(latex) == words


def test_a_shape_is_spoken_and_one_that_may_be_any_is_not():
    one = Meaning("x", "input", r"(T, d_\text{model})", "data")
    assert symbol_pages.spoken(one) == "x: input, shape capital T by d sub model, data"
    any_shape = Meaning("I", "identity matrix", "*", "constant")
    assert symbol_pages.spoken(any_shape) == "capital I: identity matrix, constant"


# ---------------------------------------------------------------- the page on notation


@pytest.fixture(scope="module")
def tables():
    return symbol_pages.as_markdown()


def test_every_row_of_every_table_is_on_the_page_with_its_formulas(tables):
    parts = re.split(r"^### (.*)$", tables, flags=re.M)[1:]
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    assert len(sections) == 1 + len(FORMULAS)
    (shared,) = [text for title, text in sections.items() if title == "In every chapter"]
    assert shared.count("{eq}") == len(rows("common"))
    for path, (title, text) in zip(chapters(), list(sections.items())[1:], strict=True):
        assert title.startswith(f"{path.stem[:2]} · ")
        assert text.count("{eq}") == len(rows(topic(path))), title


def test_a_row_tells_symbol_meaning_shape_role_and_formulas(tables):
    of_chapter = tables[tables.index("### 08 · ") : tables.index("### 09 · ")]
    labels = [
        label
        for label, latex, found in readable("normalization")
        if any(one.meaning and one.meaning.name == "gain" for one in found)
    ]
    row = rf"| $\gamma$ | gain | $(d)$ | learned | {len(labels)}, first {{eq}}`{labels[0]}` |"
    assert row in of_chapter


def test_queries_keys_values_and_weights_have_the_colors_of_the_pictures():
    seen = Counter()
    for label, latex, found in readable("attention"):
        mathml = symbol_pages.PageSymbols("attention").formula(label, latex) or ""
        for role, key in re.findall(r'data-role="([a-z]+)"[^>]*>(?:<mi>)?([^<]*)', mathml):
            seen[role, key] += 1
        colors = {one.meaning.color for one in found if one.meaning} - {""}
        assert set(re.findall(r'data-role="([a-z]+)"', mathml)) == colors, label
    letters = {"query": set("qQ"), "key": set("kK"), "value": set("vV"), "weight": set("aA")}
    assert {role for role, _ in seen} == {*letters}
    for (role, key), count in seen.items():
        assert not key or key in letters[role], (role, key, count)


def luminance(color):
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4 for v in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_colored_symbols_can_be_read_in_both_schemes():
    style = ROOT / "book/theme/style"
    schemes = re.findall(r"\{([^}]*--tp-query[^}]*)\}", (style / "base.css").read_text("utf-8"))
    assert len(schemes) == 2
    article = (style / "article.css").read_text("utf-8")
    for scheme in schemes:
        value = dict(re.findall(r"--tp-([a-z]+): (#[0-9a-f]{6})", scheme))
        for color in lint_symbols.COLORS:
            assert f'[data-role="{color}"] {{ color: var(--tp-{color}); }}' in article
            dark, light = sorted((luminance(value[color]), luminance(value["ground"])))
            assert (light + 0.05) / (dark + 0.05) >= 4.5, color
