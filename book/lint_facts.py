"""Facts that are typed into prose instead of taken from `facts.yml`, and links that do not fit it.

Looked at is what a reader reads as text: cells of Markdown and the pages of the reference part,
without code, mathematics, citations, roles and links. There a year, a percentage, or a number in a
sentence or in a row of a table that names a model must not be typed. A cell tagged `cited` may hold
them if it cites.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from book import facts
from book.chapters import ROOT, chapters, tags, without_code
from book.data import read_yaml

# Families of models, with what may stand in a name: a version, a size, a kind.
_FAMILY = (
    r"GPT|Llama|LLaMA|Code ?Llama|Qwen|QwQ|Mistral|Mixtral|DeepSeek|PaLM|Gemma|Gemini|OPT|BLOOM|"
    r"Falcon|Phi|Pythia|GPT-Neo|GPT-J|MPT|StarCoder|OLMo|Chinchilla|Gopher|Kimi|Yi|GLM|ChatGLM|"
    r"m?T5|(?:Ro)?BERT"
)
MODEL = re.compile(
    rf"(?<![\w-])(?:{_FAMILY})(?![a-z])"
    r"(?:-?[vVRK]?\d+(?:\.\d+)*(?:x\d+)?[BMbm]?(?![\d%]|,\d)"  # 2.5, -V3, -8x7B
    r"|\s(?:\d(?:\.\d)?|v\d+|\d+(?:x\d+|\.\d+)?[BM])(?![\d%\w]|[.,]\d)"  # Llama 2, 70B
    r"|[- ](?:NeoX|Neo|J|Coder|Math|MoE|[Bb]ase|[Ll]arge|[Ss]mall|medium|XL|Lite|Nemo|Instruct))*"
)
# What comes before these is no fact of a paper: 2000 steps are steps.
_UNITS = (
    r"steps?|tokens?|positions?|samples?|parameters?|words?|characters?|bytes?|pairs?|rows?|lines?|runs?|"
    r"entries|numbers?|dimensions?|features?|keys?|queries|seconds?|ms|epochs?|examples?|times|draws?|cases?"
)
YEAR = re.compile(rf"(?<![\w.,/=+^·–-])(?:19[5-9]\d|20[0-3]\d)(?![\w%]|[.,]\d|\s+(?:{_UNITS})\b)")
PERCENT = re.compile(r"(?<![\w.])\d[\d.,]*(?:\s|&nbsp;| )?(?:%|percent\b|per cent\b)")
# Numbers that are no facts about a model: where something stands, an item of a list.
_PLACES = re.compile(
    r"\b(?:chapters?|sections?|equations?|tables?|figures?|appendix|algorithm|exercises?|steps?|parts?|"
    r"weeks?|lines?|pages?|notebooks?|questions?|points?|layers?)\s+[A-Z]?\(?\d+(?:\.\d+)*\)?"
    r"(?:(?:\s*[,–-]\s*|\s+(?:and|to|or)\s+)\(?\d+(?:\.\d+)*\)?)*"
    r"|\b[EP]-\d+\b|^\s*\d+\.\s|\b(?:8|16|32|64)[ -]bits?\b",
    re.I | re.M,
)
NUMBER = re.compile(r"(?<![\w./])\d+(?:,\d{3})*(?:\.\d+)?")
_CITATION = re.compile(r"\{cite(?::\w+)?\}`[^`]+`")
# Texts of the book that are no notebooks: file -> their paragraphs.
_DATA = ("errata/*.yml", "glossary.yml", "quiz.yml")


def prose(markdown: str) -> str:
    """What is read as text: without code, mathematics, roles, links, options and comments."""
    text = without_code(markdown)
    text = re.sub(r"<!--.*?-->|\$\$.*?\$\$(?:[ \t]*\([^)\s]+\))?", " ", text, flags=re.S)
    text = re.sub(r"^[`:]{3,}.*$|^\([\w.-]+\)=$|^:[\w-]+:.*$", " ", text, flags=re.M)
    text = re.sub(r"\{[\w:-]+\}`[^`]+`", " ", text)  # a role, such as a citation
    text = re.sub(r"``.*?``|`[^`\n]+`", " ", text)
    text = re.sub(r"\$[^$]+\$", " ", text)
    text = re.sub(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\([^)\s]*\)", " ", text)  # a link, with its text
    text = re.sub(r"^\*\d+ minutes, (?:easy|medium|hard)\b[^*]*\*", " ", text, flags=re.M)
    return re.sub(r"<[^>\n]+>|https?://\S+", " ", text)


def typed(markdown: str) -> Iterator[str]:
    """The facts that are typed into a text, one line each."""
    text = prose(markdown)
    for unit in _units(text):
        quoted = " ".join(unit.split())
        told = f"in: {quoted[:90]}"
        for year in YEAR.findall(unit):
            yield f"the year {year} is typed, not cited or taken from facts.yml, {told}"
        for share in PERCENT.findall(unit):
            yield f"the percentage {share} is typed, not printed or taken from facts.yml, {told}"
        models = [name for name in MODEL.findall(unit) if re.search(r"\d", name)]
        if models:
            rest = PERCENT.sub(" ", YEAR.sub(" ", _PLACES.sub(" ", MODEL.sub(" ", unit))))
            if numbers := NUMBER.findall(rest):
                yield (
                    f"{', '.join(numbers)} beside {models[0]} is typed, not taken from facts.yml, "
                    f"{told}"
                )


def _units(text: str) -> Iterator[str]:
    """Sentences, rows of tables, items of lists."""
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*+|:#]|\d+\.)\s?)", text):
        if block.lstrip().startswith("|"):
            yield block
        else:
            yield from re.split(r"(?<=[.!?:;])\s+(?=[A-Z*_(\"“])", block)


def links(markdown: str) -> Iterator[str]:
    """What is wrong with the links to facts in a text, one line each."""
    known = facts.load()
    for match in facts.LINK.finditer(markdown):
        entry = known.get(match["id"])
        if entry is None:
            yield f"a link names the fact {match['id']}, which is not in facts.yml"
        elif not facts.fits(match["text"], entry):
            forms = ", ".join(sorted(facts.shown(entry)))
            yield f"the fact {match['id']} is shown as {match['text']!r}; its forms are {forms}"
    found = len(facts.LINK.findall(markdown))
    if (all_of_them := len(re.findall(r"facts\.md#", markdown))) != found:
        yield f"{all_of_them - found} links to facts cannot be read: write [text](…facts.md#id)"


def taken(code: str) -> list[tuple[str | None, str | None]]:
    """What a piece of code takes with `fact("id", "name")`; None for what is no plain string."""
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "fact":
            given = [str(a.value) if isinstance(a, ast.Constant) else None for a in node.args]
            found.append((given[0] if given else None, given[1] if given[1:] else None))
    return found


def problems(notebook: Any) -> Iterator[str]:
    """Typed facts and links that do not fit, in a notebook as it is stored."""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            if "cited" not in tags(cell):
                yield from typed(cell.source)
            elif not _CITATION.search(cell.source):
                yield f"cell {cell.id} is tagged 'cited' but cites nothing"
            yield from links(cell.source)
        elif "fact" in cell.source:
            yield from _code(cell)


def _code(cell: Any) -> Iterator[str]:
    known = facts.load()
    source = re.sub(r"^\s*[%!].*$", "", cell.source, flags=re.M)
    if "facts.md#" in source:
        # The text of a link may come from a number; what it became stands in the output.
        for name in re.findall(r"facts\.md#([\w.-]*\w)", source):
            if name not in known:
                yield f"a link names the fact {name}, which is not in facts.yml"
        for output in cell.get("outputs", []):
            yield from links("".join(output.get("data", {}).get("text/markdown", "")))
    if re.search(r"\bfact\(", source):
        for name, value in taken(source):
            if name is not None and name not in known:
                yield f"cell {cell.id} takes the fact {name}, which is not in facts.yml"
            elif name and value is not None and value not in known[name].values:
                yield f"cell {cell.id} takes {value!r} of the fact {name}, which has no such value"


def pages() -> dict[str, str]:
    """The texts of the book that are no notebooks, by name."""
    found = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in [*sorted((ROOT / "book/pages").glob("*.md")), ROOT / "README.md"]
    }
    for path in _data():
        found[str(path.relative_to(ROOT))] = "\n\n".join(_strings(read_yaml(path)))
    return found


def _data(*patterns: str) -> list[Path]:
    return sorted(p for pattern in patterns or _DATA for p in (ROOT / "book").glob(pattern))


def _strings(data: Any) -> Iterator[str]:
    match data:
        case str():
            yield data
        case dict():
            # What an entry of the misconceptions has as evidence, its test computes.
            asserted = {"evidence"} if data.get("test") else set()
            yield from (s for k in data if k not in asserted for s in _strings(data[k]))
        case list():
            yield from (s for value in data for s in _strings(value))


def used() -> set[str]:
    """The facts that some page or some code of the book takes."""
    entries = [entry for path in _data("errata/*.yml") for entry in read_yaml(path)]
    texts = [*pages().values(), *(str(entry.get("evidence")) for entry in entries)]
    notebooks = [*chapters(), *sorted((ROOT / "notebooks/assignments").glob("*/*.ipynb"))]
    code = [p.read_text(encoding="utf-8") for p in sorted((ROOT / "book").rglob("*.py"))]
    for path in notebooks:  # as JSON: nbformat would validate what `problems` has read before
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            (code if cell["cell_type"] == "code" else texts).append("".join(cell["source"]))
    found = set(re.findall(r"facts\.md#([\w.-]*\w)", "\n".join([*texts, *code])))
    # An id may be handed to `fact` by a loop, there perhaps in capitals: fact(name.lower(), ...).
    words = (name for text in code for name in re.findall(r"[\"']([A-Za-z][\w.-]+)[\"']", text))
    return found | {word.lower() for word in words}


def house() -> Iterator[str]:
    """The problems of everything but the chapters: the file of facts, and the other pages."""
    bibliography = facts.BIBLIOGRAPHY.read_text(encoding="utf-8")
    for problem in facts.problems(facts.load().values(), bibliography, used()):
        yield f"facts.yml: {problem}"
    for name, text in pages().items():
        for problem in (*typed(text), *links(text)):
            yield f"{Path(name).name}: {problem}"
