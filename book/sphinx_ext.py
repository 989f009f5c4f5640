"""The website: what jupyter-book does not do by itself.

- LaTeX becomes MathML when the book is built (math-core), set in STIX Two Math, served with the
  pages. No script typesets anything, and a formula that does not parse fails the build.
- Figures take the alt text that `book.figures.show` stored with them.
- Launch buttons point to the repository that the book was built from; without one there are none.
- Nothing on a page comes from another host, and the build fails if something would.
- What the pages load is cut down to what they use (`book.lean`).
- A missing page, a traceback, an image without alt text, a dead link: each fails the build.
"""

from __future__ import annotations

import os
import re
import subprocess
import unicodedata
from collections.abc import Iterator
from html import unescape
from html.parser import HTMLParser
from importlib.metadata import files
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from docutils import nodes
from fontTools import subset
from fontTools.ttLib import TTFont
from math_core import LatexError, LatexToMathML
from myst_nb.core.render import NbElementRenderer
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number
from sphinx.writers.html5 import HTML5Translator

from book import checked, errata, facts, folding, glossary, lean, names, quiz, symbol_pages
from book.chapters import ROOT, topic
from book.mathml import well_drawn

logger = logging.getLogger(__name__)
STATIC = Path(__file__).parent / "static"
# The whole book as one file (`make pdf`, `make epub`); publish.yml puts them beside the pages.
TAKE_AWAY = ("transformer-parts.pdf", "transformer-parts.epub")
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
        return well_drawn(str(mathml))
    except LatexError as error:
        logger.warning(
            "this formula is not valid LaTeX: %s\n%s", node.astext(), error, location=node
        )
        return f"<code>{self.encode(node.astext())}</code>"


def _inline(self: HTML5Translator, node: nodes.math) -> None:
    self.body.append(_mathml(self, node, display=False))
    raise nodes.SkipNode


def _display(self: HTML5Translator, node: nodes.math_block) -> None:
    number = get_node_equation_number(self, node) if node["number"] else ""
    anchor = f' id="{node["ids"][0]}"' if node.get("ids") else ""
    mathml = node.get("tp-mathml") or _mathml(self, node, display=True)
    self.body.append(f'<div class="math-display"{anchor}>{mathml}')
    if number:
        self.body.append(f'<span class="eqno">({number})')
        self.add_permalink_ref(node, "Link to this equation")
        self.body.append("</span>")
    self.body.append("</div>\n")
    raise nodes.SkipNode


def _math_font(out: Path) -> None:
    """STIX Two Math, cut down to the characters that the built pages use."""
    text = set()
    for page in out.rglob("*.html"):
        for math in re.findall(r"<math.*?</math>", page.read_text(encoding="utf-8"), re.S):
            text |= set(unescape(re.sub(r"<[^>]+>", "", math)))
    options = subset.Options(flavor="woff", layout_features=["*"], hinting=False)
    # ziamath is here for the font in it; importing it would be slow and warns.
    (file,) = (f for f in files("ziamath") or [] if f.name == "STIXTwoMath-Regular.ttf")
    font = subset.load_font(file.locate(), options)
    cutter = subset.Subsetter(options)
    # A browser sets a lone letter in italics, and takes those from another place of the font.
    italics = {chr(c) for c in [0x210E, *range(0x1D434, 0x1D468), *range(0x1D6E2, 0x1D71C)]}
    text |= {c for c in italics if unicodedata.normalize("NFKC", c) in text}
    cutter.populate(text="".join(sorted(text | set("√"))))
    cutter.subset(font)
    _narrow_radicals(font)
    subset.save_font(font, out / "_static/math.woff", options)


def _narrow_radicals(font: TTFont) -> None:
    """Give every size of the root sign the width of the smallest.

    Chromium reserves the width of the largest one in a line of text, which leaves a gap after
    each root.
    """
    sizes = font["MATH"].table.MathVariants
    sign = font.getBestCmap()[ord("√")]
    shapes = sizes.VertGlyphConstruction[sizes.VertGlyphCoverage.glyphs.index(sign)]
    width, _ = font["hmtx"][sign]
    names = {v.VariantGlyph for v in shapes.MathGlyphVariantRecord}
    names |= {part.glyph for part in shapes.GlyphAssembly.PartRecords}
    for name in names:
        old, bearing = font["hmtx"][name]
        glyph = font["glyf"][name]
        glyph.coordinates.scale((width / old, 1))
        glyph.recalcBounds(font["glyf"])
        font["hmtx"][name] = (width, round(bearing * width / old))


# ---------------------------------------------------------------- where the book lives


def _repository(app: Sphinx, config: Any) -> None:
    """Add the launch and repository buttons, pointing to the remote that this copy came from."""
    url = repository_url()
    if url is not None:
        config.html_theme_options = {
            **config.html_theme_options,
            "repository_url": url,
            "repository_branch": _branch(),
            "use_repository_button": True,
            "use_issues_button": True,
            "launch_buttons": {
                "binderhub_url": "https://mybinder.org",
                "notebook_interface": "jupyterlab",
            },
        }


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


_MADE = {
    "checked": checked.as_markdown,
    "errata": errata.as_markdown,
    "facts": facts.as_markdown,
    "glossary": glossary.as_markdown,
    "names": names.as_markdown,
    "quiz": quiz.as_markdown,
    "symbols": symbol_pages.as_markdown,
    "take-away": _take_away,
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
            cell["prompt_show"] = app.config.nb_code_prompt_show
            cell["prompt_hide"] = app.config.nb_code_prompt_hide


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


def _tested_with(app: Sphinx, doctree: Any, page: str) -> None:
    """Under a chapter's opening, what this build was tested with; nothing if it was not."""
    line = checked.tested_with(page.rpartition("/")[2]) if page.startswith("notebooks/") else None
    opening = next(doctree.findall(nodes.bullet_list), None)
    if line and opening is not None:
        box = nodes.paragraph("", line + " ", classes=["tp-tested"])
        address = app.builder.get_relative_uri(page, "book/pages/checked")
        box += nodes.reference("", "How it is checked", refuri=address, internal=True)
        opening.parent.insert(opening.parent.index(opening) + 1, box)


def _symbols(app: Sphinx, doctree: Any, page: str) -> None:
    """The displayed formulas of a chapter get symbols that answer, and the page what they say."""
    if not page.startswith("notebooks/") or app.builder.format != "html":
        return
    symbols = symbol_pages.PageSymbols(topic(Path(f"{page}.ipynb")))
    for node in doctree.findall(nodes.math_block):
        if mathml := symbols.formula(node.get("label") or "", node.astext()):
            node["tp-mathml"] = well_drawn(mathml)
    if island := symbols.island():
        doctree += nodes.raw("", island, format="html")


def _only_ours(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    """Drop Thebe's style sheets, of which no page uses anything; `lean` drops its scripts."""
    sheets = context.get("css_files", [])
    context["css_files"] = [
        s for s in sheets if "thebe" not in str(getattr(s, "filename", s) or "")
    ]


# ---------------------------------------------------------------- guards


class _Page(HTMLParser):
    """What a built page fetches by itself, links to, and shows as images."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.images: list[dict[str, str | None]] = []
        self.source = path.read_text(encoding="utf-8")
        self._tag = ""
        self.feed(self.source)

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
    pages = {p: _Page(p) for p in sorted(out.rglob("*.html")) if "_static" not in p.parts}
    for path, page in pages.items():
        name = path.relative_to(out).as_posix()
        problems += [f"{name}: {p}" for p in _page_problems(page)]
        problems += [f"{name}: {p}" for p in _link_problems(path, page, pages, out)]
    for sheet in sorted(out.rglob("*.css")):
        addresses = _fetched_by_css(sheet.read_text(encoding="utf-8"))
        name = sheet.relative_to(out).as_posix()
        problems += [f"{name}: fetches {address}" for address in addresses if _foreign(address)]
    return problems


def _page_problems(page: _Page) -> Iterator[str]:
    yield from (f"fetches {address}" for address in page.fetched if _foreign(address))
    for image in page.images:
        if not (image.get("alt") or "").strip():
            yield f"the image {image.get('src')} has no alt text"
    if "Traceback (most recent call last)" in re.sub(r"<[^>]*>", "", page.source):
        yield "shows a traceback"
    if re.search(r"cdn\.|unpkg\.com|jsdelivr|cdnjs|googleapis|gstatic", page.source):
        yield "names a content delivery network"


def _link_problems(path: Path, page: _Page, pages: dict[Path, _Page], out: Path) -> Iterator[str]:
    promised = {out / name for name in TAKE_AWAY if os.environ.get("BOOK_TAKE_AWAY")}
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
    out = Path(app.outdir)
    _math_font(out)
    address = lean.address_of(dict(os.environ), repository_url())
    lean.make_lean(out, lean.Book(app.config.html_title or app.config.project, SUMMARY, address))
    if problems := site_problems(out, set(app.env.found_docs)):
        raise ExtensionError("the site must not be published:\n  " + "\n  ".join(problems))


# ---------------------------------------------------------------- set-up


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect everything to Sphinx."""
    app.add_html_math_renderer(
        "mathml", inline_renderers=(_inline, None), block_renderers=(_display, None)
    )
    app.connect("config-inited", _repository, priority=900)
    app.connect("config-inited", lambda app, config: config.html_static_path.append(str(STATIC)))
    app.add_css_file("explorer.css")
    app.add_css_file("book.css")
    app.connect("source-read", _fill_in)
    # Every page is made lean after it was written, so every page has to be written.
    app.connect("env-updated", lambda app, env: sorted(env.found_docs))
    app.connect("doctree-read", _fold_findings)
    folding.setup(app)
    app.connect("doctree-read", _name_facts)
    app.connect("doctree-resolved", _terms)
    app.connect("doctree-resolved", _facts)
    app.connect("doctree-resolved", _symbols)
    app.connect("doctree-resolved", _tested_with)
    app.connect("html-page-context", _only_ours, priority=900)
    # After the theme, which writes its colours for code at that moment.
    app.connect("build-finished", _finish, priority=900)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
