"""The index of the library: every public name, where it is defined and used, its source.

Nothing is typed: names and docstrings come from the modules, uses from the notebooks.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from book.chapters import chapters, read, slug, tags, topic, without_code
from book.weave import PACKAGE

_FROM = re.compile(r"# From notebooks/(?P<file>\S+)#(?P<section>\S+)")


@dataclass(frozen=True)
class Use:
    """A section of a chapter, as a place to link to."""

    chapter: str  # the stem of the notebook
    section: str  # its anchor
    title: str


@dataclass(frozen=True)
class Name:
    """A public name of the library."""

    name: str
    signature: str  # with its parameters, if it can be called
    summary: str  # the first sentence of the docstring
    source: str  # what the docstring says after "Source:"
    defined: Use
    uses: tuple[Use, ...]


def names() -> list[Name]:
    """Every public name, by chapter and in the order of the chapter."""
    sections = {path.stem: list(_sections(path)) for path in chapters()}
    found = []
    for path in chapters():
        for text in _modules(topic(path)):
            places = _places(text)
            for node in ast.parse(text).body:
                name = _public(node)
                if name is None:
                    continue
                above = max((line for line in places if line < node.lineno), default=None)
                anchor = places[above] if above is not None else "build"
                doc = _docstring(node)
                found.append(
                    Name(
                        name,
                        _signature(node, name),
                        " ".join(doc.split("\n\n")[0].split()),
                        _source(doc),
                        Use(path.stem, anchor, _title_of(sections[path.stem], anchor)),
                        tuple(_uses(name, path.stem, sections)),
                    )
                )
    return found


def _modules(topic: str) -> Iterator[str]:
    """What a chapter's module says; of a package its modules, in the order of its imports."""
    module, package = PACKAGE / f"{topic}.py", PACKAGE / topic
    if module.exists():
        yield module.read_text(encoding="utf-8")
    elif package.is_dir():
        first = (package / "__init__.py").read_text(encoding="utf-8")
        for name in re.findall(rf"^from transformer_parts\.{topic}\.(\w+) import", first, re.M):
            yield (package / f"{name}.py").read_text(encoding="utf-8")


def _places(text: str) -> dict[int, str]:
    """Line number of each link back to the notebook -> the section that it names."""
    lines = enumerate(text.splitlines(), 1)
    return {n: m["section"] for n, line in lines if (m := _FROM.fullmatch(line))}


def _public(node: ast.stmt) -> str | None:
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return None if name.startswith("_") else name
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return None if name.startswith("_") else name
    return None


def _docstring(node: ast.stmt) -> str:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return ast.get_docstring(node) or ""
    return ""


def _signature(node: ast.stmt, name: str) -> str:
    if isinstance(node, ast.ClassDef):
        init = [f for f in node.body if isinstance(f, ast.FunctionDef) and f.name == "__init__"]
        fields = [f for f in node.body if isinstance(f, ast.AnnAssign)]
        if init:
            return f"{name}({_arguments(init[0].args, skip=1)})"
        inner = (
            ast.unparse(f.target) + (f"={ast.unparse(f.value)}" if f.value else "") for f in fields
        )
        return f"{name}({', '.join(inner)})"
    if isinstance(node, ast.FunctionDef):
        return f"{name}({_arguments(node.args)})"
    return name


def _arguments(arguments: ast.arguments, skip: int = 0) -> str:
    """The parameters with their defaults, without their types."""
    for group in (arguments.posonlyargs, arguments.args, arguments.kwonlyargs):
        for argument in group:
            argument.annotation = None
    for star in (arguments.vararg, arguments.kwarg):
        if star is not None:
            star.annotation = None
    text = ast.unparse(arguments)
    return ", ".join(text.split(", ")[skip:])


def _source(doc: str) -> str:
    match = re.search(r"Source:\s*(.+?)(?:\n\s*\n|\Z)", doc, re.S)
    return " ".join(match[1].split()).rstrip(".") if match else ""


def _sections(path: Path) -> Iterator[tuple[Use, str]]:
    """The sections of a chapter with the code that uses names there, definitions left out."""
    use, code = Use(path.stem, "", ""), ""
    for cell in read(path).cells:
        if cell.cell_type == "code":
            code += "" if "export" in tags(cell) else cell.source + "\n"
            continue
        for line in without_code(cell.source).splitlines():
            if re.match(r"#{2,3} ", line):
                yield use, code
                title = line.lstrip("# ").strip()
                use, code = Use(path.stem, slug(title), re.sub(r"[`*]", "", title)), ""
    yield use, code


def _title_of(sections: list[tuple[Use, str]], anchor: str) -> str:
    return next((use.title for use, _ in sections if use.section == anchor), "Build")


def _uses(name: str, home: str, sections: dict[str, list[tuple[Use, str]]]) -> Iterator[Use]:
    """In its own chapter every section that names it; elsewhere the first one of each chapter."""
    word = re.compile(rf"(?<![\w.]){re.escape(name)}\b(?!\s*=[^=])")
    for chapter, parts in sections.items():
        # Most sections do not hold the name at all, which is seen much faster without a pattern.
        hits = [u for u, code in parts if u.section and name in code and word.search(code)]
        if chapter == home:
            yield from (use for use in hits if use.section != "build")
        elif hits and _imported(name, home, parts):
            yield hits[0]


def _imported(name: str, home: str, parts: list[tuple[Use, str]]) -> bool:
    """Whether a chapter's code imports the name: another one may be a variable of its own."""
    module = home.partition("_")[2]
    whole = "\n".join(code for _, code in parts)
    imports = re.findall(rf"from transformer_parts\.{module} import (\([^)]*\)|[^\n]*)", whole)
    return any(re.search(rf"\b{re.escape(name)}\b", line) for line in imports)


def as_markdown() -> str:
    """The index as MyST Markdown: a heading per module, and under it a definition list."""
    parts, module = [], ""
    for one in names():
        if one.defined.chapter != module:
            module = one.defined.chapter
            number, _, name = module.partition("_")
            parts.append(f"## {number} · {name.replace('_', ' ').capitalize()}")
            parts.append(f"`from transformer_parts.{name} import ...`")
        parts.append(f"({_anchor(one)})=\n\n`{one.signature}`\n: {_about(one)}")
    return "\n\n".join(parts) + "\n"


def _anchor(one: Name) -> str:
    # Anchors do not tell capitals from small letters, and there are `glu` and `GLU`.
    kind = "class-" if one.name[0].isupper() else ""
    return f"name-{one.defined.chapter[:2]}-{kind}{one.name}"


def _about(one: Name) -> str:
    said = [one.summary or "A constant.", f"Defined in {_link(one.defined)}."]
    if one.source:
        # The chapter's own equations become links, with their numbers.
        said.append("Source: " + re.sub(r"\beq-[\w-]*\w", r"{eq}`\g<0>`", one.source) + ".")
    if one.uses:
        said.append(f"Used in {', '.join(map(_link, one.uses))}.")
    return " ".join(said)


def _link(use: Use) -> str:
    return f"[{use.chapter[:2]} · {use.title}](../../notebooks/{use.chapter}.ipynb#{use.section})"
