"""The website: what jupyter-book does not do by itself.

- LaTeX becomes MathML when the book is built (math-core), set in STIX Two Math, served with the
  pages. No script typesets anything, and a formula that does not parse fails the build.
- Figures take the alt text that `book.figures.show` stored with them.
- Launch buttons point to the repository that the book was built from; without one there are none.
- Nothing on a page comes from another host, and the build fails if something would.
- What a page looks like is the theme's business (`book.theme`).
- A missing page, a traceback, an image without alt text, a dead link: each fails the build.
"""

from __future__ import annotations

import gc
import os
import re
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from docutils import nodes
from math_core import LatexError, LatexToMathML
from myst_nb.core.render import NbElementRenderer
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.errors import ExtensionError
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number
from sphinx.writers.html5 import HTML5Translator
from sphinx_proof.domain import ProofDomain

from book import (
    checked,
    errata,
    facts,
    folding,
    glossary,
    names,
    notation,
    questions,
    quiz,
    swift,
    symbol_pages,
    theme,
    xray,
    you_are_here,
)
from book.chapters import ROOT, chapters, topic
from book.mathml import well_drawn
from book.theme.finish import Book, address_of, side_by_side

logger = logging.getLogger(__name__)
# The whole book as one file (`make pdf`, `make epub`); publish.yml puts them beside the pages.
TAKE_AWAY = ("transformer-parts.pdf", "transformer-parts.epub")
# So it does with the slides, a deck for each chapter.
DECKS = ("slides/index.html", *(f"slides/{path.stem}.html" for path in chapters()))
SUMMARY = (
    "An interactive book: every part of a Transformer derived, checked by machine, built in torch,"
    " compared with the official operators, and explored without a kernel."
)
# Without macros: every chapter uses plain LaTeX, so that Jupyter renders it too.
_latex = LatexToMathML(fancy_error=False)


# ---------------------------------------------------------------- figures


class FigureRenderer(NbElementRenderer):  # type: ignore[misc]
    """myst-nb's renderer, which also passes on an image's alt text and defers its loading."""

    def render_image(self, data: Any) -> list[nodes.Element]:
        """An image node with the alt text from the output's metadata."""
        images: list[nodes.Element] = super().render_image(data)
        alt = data.output_metadata.get(data.mime_type, {}).get("alt")
        for image in images:
            if alt:
                image["alt"] = alt
            image["loading"] = "lazy"
        return images


# ---------------------------------------------------------------- mathematics


def _mathml(self: HTML5Translator, node: nodes.Element, *, display: bool) -> str:
    try:
        mathml = _latex.convert_with_local_state(node.astext(), displaystyle=display)
        return styled(well_drawn(str(mathml)))
    except LatexError as error:
        logger.warning(
            "this formula is not valid LaTeX: %s\n%s", node.astext(), error, location=node
        )
        return f"<code>{self.encode(node.astext())}</code>"


# What math-core says about cells of tables and blanks in attributes that a page may not have.
_STYLES = {
    "text-align:right;justify-items:end;padding-right:0": "tp-m-right",
    "text-align:left;justify-items:start;padding-left:0": "tp-m-left",
    "text-align:left;justify-items:start;padding-right:0": "tp-m-first",
    "text-align:left;justify-items:start;padding-right:0;padding-left:1em": "tp-m-far",
    "padding-right:0.1667em": "tp-m-after",
    "margin-left:-0.16666667em": "tp-m-back",
}


def styled(mathml: str) -> str:
    """MathML with classes (style/article.css) for styles, which the policy of the pages forbids."""

    def named(match: re.Match[str]) -> str:
        return f' class="{_STYLES["".join(match[1].split()).rstrip(";")]}"'

    return re.sub(r' style="([^"]*)"', named, mathml)


def _inline(self: HTML5Translator, node: nodes.math) -> None:
    self.body.append(_mathml(self, node, display=False))
    raise nodes.SkipNode


def _display(self: HTML5Translator, node: nodes.math_block) -> None:
    number = get_node_equation_number(self, node) if node["number"] else ""
    anchor = f' id="{node["ids"][0]}"' if node.get("ids") else ""
    mathml = node.get("tp-mathml")
    mathml = styled(mathml) if mathml else _mathml(self, node, display=True)
    self.body.append(f'<div class="math-display"{anchor}>{mathml}')
    if number:
        self.body.append(f'<span class="eqno">({number})')
        self.add_permalink_ref(node, "Link to this equation")
        self.body.append("</span>")
    self.body.append("</div>\n")
    raise nodes.SkipNode


# ---------------------------------------------------------------- where the book lives


def _place(app: Sphinx, config: Any) -> None:
    """Tell the theme what the book is, where it is published and where it comes from."""
    config.tp_repository = repository_url()
    config.tp_branch = _branch()
    address = address_of(dict(os.environ), config.tp_repository)
    config.tp_book = Book(config.html_title or config.project, SUMMARY, address)


def repository_url(environment: dict[str, str] | None = None) -> str | None:
    """The https address of the repository: GitHub's variables in CI, else the remote `origin`."""
    env = os.environ if environment is None else environment
    if {"GITHUB_SERVER_URL", "GITHUB_REPOSITORY"} <= env.keys():
        return f"{env['GITHUB_SERVER_URL']}/{env['GITHUB_REPOSITORY']}"
    remote = _git("remote", "get-url", "origin")
    return web_address(remote) if remote else None


def _branch() -> str:
    """The branch that the book is built from; `main` where git does not say."""
    name = os.environ.get("GITHUB_REF_NAME") or _git("rev-parse", "--abbrev-ref", "HEAD")
    return name if name and name != "HEAD" else "main"


def _git(*arguments: str) -> str | None:
    """What a git command prints, or `None` where there is no git or no repository."""
    command = ["git", *arguments]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def web_address(remote: str) -> str | None:
    """`git@host:owner/name.git` and `https://user:secret@host/owner/name` as `https://host/owner/name`.

    `None` for a folder on this machine or any other address that no browser could open.
    """
    host = r"(?P<host>[\w.-]+\.[a-z]+)"
    path = r"(?P<path>[^@]+?)(?:\.git)?/?"
    forms = (
        rf"https://(?:[^@/]+@)?{host}(?P<port>:\d+)?/{path}",
        rf"(?:ssh|git)://(?:[^@/]+@)?{host}(?::\d+)?/{path}",  # that port is not the web's
        rf"[\w.-]+@{host}:{path}",
    )
    match = next((m for form in forms if (m := re.fullmatch(form, remote))), None)
    if match is None:
        return None
    return f"https://{match['host']}{match.groupdict().get('port') or ''}/{match['path']}"


# ---------------------------------------------------------------- pages


def _fill_in(app: Sphinx, docname: str, source: list[str]) -> None:
    """Put what is made from data where a page asks for it: `<!-- errata -->` and the others."""
    for marker, made in _MADE.items():
        if f"<!-- {marker} -->" in source[0]:
            source[0] = source[0].replace(f"<!-- {marker} -->", made())


def _take_away() -> str:
    """Links to the book as one file, for a site beside which these files will be put."""
    if not os.environ.get("BOOK_TAKE_AWAY"):
        return ""
    links = (f'<a href="../../{name}">{name.rpartition(".")[2].upper()}</a>' for name in TAKE_AWAY)
    return f" As one file: {', '.join(links)}."


def _slides() -> str:
    """A link to the slides, for a site beside which they will be put."""
    if not os.environ.get("BOOK_TAKE_AWAY"):
        return ""
    return f' They are <a href="../../{DECKS[0]}">published with the book</a>.'


_MADE = {
    "checked": checked.as_markdown,
    "checked-short": checked.in_two_sentences,
    "errata": errata.as_markdown,
    "facts": facts.as_markdown,
    "glossary": glossary.as_markdown,
    "letters": notation.as_markdown,
    "map": you_are_here.picture,
    "names": names.as_markdown,
    "questions": questions.as_markdown,
    "quiz": quiz.as_markdown,
    "slides": _slides,
    "symbols": symbol_pages.as_markdown,
    "take-away": _take_away,
    "xray": xray.as_markdown,
    "xray-words": xray.words_as_markdown,
}


def _terms(app: Sphinx, doctree: Any, page: str) -> None:
    """Link the terms of a chapter to the glossary."""
    if page.startswith("notebooks/") and app.builder.format == "html":
        glossary.link_first_uses(doctree, app.builder.get_relative_uri(page, glossary.PAGE))


def _fold_findings(app: Sphinx, doctree: Any) -> None:
    """A finding's page shows the sentence; its code is folded away like that of `hide-input`."""
    for cell in doctree.findall(nodes.container):
        if "tag_finding" in cell["classes"] and not cell.get("hide_mode"):
            cell["hide_mode"] = "input"
            cell["prompt_show"] = cell["prompt_hide"] = "The experiment"


def _name_facts(app: Sphinx, doctree: Any) -> None:
    """Let Markdown links, `facts.md#llama-2-7b`, find the entries, which have no headings."""
    if app.env.docname == facts.PAGE:
        slugs = app.env.metadata[facts.PAGE].setdefault("myst_slugs", {})
        slugs.update({one.id: (0, one.anchor, one.what) for one in facts.load().values()})


def _facts(app: Sphinx, doctree: Any, page: str) -> None:
    """Links to facts say source and place in their titles."""
    if app.builder.format == "html":
        address = app.builder.get_relative_uri(page, facts.PAGE)
        facts.mark_links(doctree, address, facts.titles())


def _cited(app: Sphinx, doctree: Any, page: str) -> None:
    """A citation, which names authors and year, says the title of the work when pointed at.

    The whole entry, which stands on the page of references, is kilobytes in a chapter.
    """
    if app.builder.format == "html":
        address = app.builder.get_relative_uri(page, "book/pages/references")
        facts.name_works(doctree, address, facts.works())


def _in_this_chapter(app: Sphinx, doctree: Any, page: str) -> None:
    """What a chapter's opening lists becomes a note under the title, so that the picture is near.

    The note ends with what this build was tested with, if it was.
    """
    title = next(doctree.findall(nodes.title), None)
    if title is None or not page.startswith("notebooks/") or app.builder.format != "html":
        return
    top = title.parent
    opening = next((part for part in top if isinstance(part, nodes.bullet_list)), None)
    if opening is None:
        return
    line = folding.FoldLine("", "In this chapter")
    note = folding.Fold("", line, classes=["tp-fold", "tp-margin", "tp-opening"])
    top.remove(opening)
    top.insert(top.index(title) + 1, note)
    note += opening
    if tested := checked.tested_with(page.rpartition("/")[2]):
        box = nodes.paragraph("", tested + " ", classes=["tp-tested"])
        address = app.builder.get_relative_uri(page, "book/pages/checked")
        box += nodes.reference("", "How it is checked", refuri=address, internal=True)
        note += box


def _symbols(app: Sphinx, doctree: Any) -> None:
    """The displayed formulas of a chapter get symbols that answer, and the page what they say.

    It is done where pages are read, side by side: links are resolved one page after the other.
    """
    page = app.env.docname
    if not page.startswith("notebooks/") or app.builder.format != "html":
        return
    symbols = symbol_pages.PageSymbols(topic(Path(f"{page}.ipynb")))
    for node in doctree.findall(nodes.math_block):
        if mathml := symbols.formula(node.get("label") or "", node.astext()):
            node["tp-mathml"] = well_drawn(mathml)
    if island := symbols.island():
        doctree += nodes.raw("", island, format="html")


# ---------------------------------------------------------------- guards


class _Page(HTMLParser):
    """What a built page fetches by itself, links to, and shows as images."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.images: list[dict[str, str | None]] = []
        self._tag = ""
        source = path.read_text(encoding="utf-8")
        # What stands within a script is no element, and most elements fetch and name nothing.
        bare = re.sub(r"(<script\b[^>]*>).*?(?=</script>)", r"\1", source, flags=re.S)
        worth = _WORTH.findall(bare)
        self.feed("".join(f"{e}</script>" if e.startswith("<script") else e for e in worth))
        self.problems = list(_page_problems(self, source))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Sort the attributes of one tag."""
        a = {name: value or "" for name, value in attrs}
        self._tag = tag
        self.ids |= {a["id"]} if "id" in a else set()
        if tag == "a" and a.get("href"):
            self.links.append(a["href"])
        elif tag == "link" and a.get("rel") not in _NOT_FETCHED:
            self.fetched.append(a.get("href", ""))
        elif tag == "img":
            self.images.append(dict(attrs))
        self.fetched += [a[name] for name in ("src", "poster") if name in a]
        self.fetched += [part.split()[0] for part in a.get("srcset", "").split(",") if part.split()]
        self.fetched += [a["data"]] if tag == "object" and "data" in a else []
        self.fetched += _fetched_by_css(a.get("style", ""))

    handle_startendtag = handle_starttag

    def handle_data(self, data: str) -> None:
        """A style sheet in the page can fetch too."""
        if self._tag == "style":
            self.fetched += _fetched_by_css(data)

    def handle_endtag(self, tag: str) -> None:
        """What follows is no longer inside the tag."""
        self._tag = ""


# An element with an attribute that this looks at, and style sheets.
_WORTH = re.compile(
    r"<[a-zA-Z][^<>]*?\s(?:id|href|src|srcset|poster|data|style)\s*=[^<>]*>|<style\b.*?</style>",
    re.S,
)
_NOT_FETCHED = ("canonical", "next", "prev", "search", "index", "author")


def _fetched_by_css(css: str) -> list[str]:
    return re.findall(r"(?:url\(\s*|@import\s+)[\"']?([^\"')\s;]+)", css)


def _foreign(address: str) -> bool:
    return re.match(r"(?:https?:|ftp:|wss?:)?//", address) is not None


def site_problems(out: Path, documents: set[str]) -> list[str]:
    """What is wrong with the site in `out`, which should hold a page for each of `documents`."""
    out = out.resolve()
    missing = sorted(d for d in documents if not (out / f"{d}.html").exists())
    problems = [f"{d}.html: the page is missing" for d in missing]
    paths = [p for p in sorted(out.rglob("*.html")) if "_static" not in p.parts]
    pages = dict(zip(paths, side_by_side(_Page, paths), strict=True))
    for path, page in pages.items():
        name = path.relative_to(out).as_posix()
        problems += [f"{name}: {p}" for p in page.problems]
        problems += [f"{name}: {p}" for p in _link_problems(path, page, pages, out)]
    for sheet in sorted(out.rglob("*.css")):
        addresses = _fetched_by_css(sheet.read_text(encoding="utf-8"))
        name = sheet.relative_to(out).as_posix()
        problems += [f"{name}: fetches {address}" for address in addresses if _foreign(address)]
    return problems


def _page_problems(page: _Page, source: str) -> Iterator[str]:
    yield from (f"fetches {address}" for address in page.fetched if _foreign(address))
    for image in page.images:
        if not (image.get("alt") or "").strip():
            yield f"the image {image.get('src')} has no alt text"
    if "Traceback (most recent call last)" in re.sub(r"<[^>]*>", "", source):
        yield "shows a traceback"
    if re.search(r"cdn\.|unpkg\.com|jsdelivr|cdnjs|googleapis|gstatic", source):
        yield "names a content delivery network"


def _link_problems(path: Path, page: _Page, pages: dict[Path, _Page], out: Path) -> Iterator[str]:
    promised = {out / name for name in (*TAKE_AWAY, *DECKS) if os.environ.get("BOOK_TAKE_AWAY")}
    for link in page.links:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        target = target / "index.html" if target.is_dir() else target
        there = target.exists() or target in promised
        if not there or not target.is_relative_to(out):
            yield f"links to {link}, which does not exist"
        elif (
            parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids
        ):
            yield f"links to {link}, but the page has no such anchor"


def _finish(app: Sphinx, error: Exception | None) -> None:
    if error or app.builder.name != "html":
        return
    theme.finished(app, app.config.tp_book)
    if problems := site_problems(Path(app.outdir), set(app.env.found_docs)):
        raise ExtensionError("the site must not be published:\n  " + "\n  ".join(problems))
    # The program ends now. Taking all documents apart object by object would need 5 seconds more.
    gc.freeze()


# ---------------------------------------------------------------- set-up


def _with_all_cores(app: Sphinx, env: BuildEnvironment, docnames: list[str]) -> None:
    """Read and write pages side by side, for which jupyter-book has no option.

    Sphinx does so if every extension says that it may. Two that may do not say so.
    """
    # Small portions, so that pages are written while links of the next ones are resolved.
    app.parallel = 4 * (os.cpu_count() or 1)
    # It changes how sections are numbered, after all pages are read.
    if numbering := app.extensions.get("sphinx_multitoc_numbering"):
        numbering.parallel_read_safe = True
    # Theorems are put together with the environment, in which they lie; their domain holds none.
    ProofDomain.merge_domaindata = lambda self, docnames, other: None


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect everything to Sphinx."""
    theme.setup(app)
    app.add_html_math_renderer(
        "mathml", inline_renderers=(_inline, None), block_renderers=(_display, None)
    )
    app.connect("config-inited", _place)
    app.connect("env-before-read-docs", _with_all_cores)
    app.connect("source-read", _fill_in)
    app.connect("doctree-read", _fold_findings)
    folding.setup(app)
    swift.setup(app)
    you_are_here.setup(app)
    app.connect("doctree-read", _name_facts)
    app.connect("doctree-read", _symbols)
    app.connect("doctree-resolved", _terms)
    app.connect("doctree-resolved", _facts)
    app.connect("doctree-resolved", _cited)
    app.connect("doctree-resolved", _in_this_chapter)
    # After Sphinx has written what stands beside the pages.
    app.connect("build-finished", _finish, priority=900)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
