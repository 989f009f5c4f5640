"""What a page says around its text: its place in the book, what it is, where else it can be."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from dataclasses import dataclass
from html import unescape
from typing import Any
from urllib.parse import quote

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

from book import colab
from book.theme import finish, sections

# Before the first paint, so that no page flashes in the wrong colors.
COLORS = (
    '{const d=document.documentElement.dataset;let m="auto";'
    'try{m=localStorage.getItem("mode")||m}catch{}'
    'd.mode=m;d.theme=m=="light"||m=="dark"?m:'
    'matchMedia("(prefers-color-scheme: dark)").matches?"dark":"light"}'
)
# The fonts are asked for at once. From a folder a browser refuses to fetch ahead.
FONT = (
    "{const d=document.documentElement.dataset;d.at=location.protocol;"
    'for(const f of d.at=="file:"?[]:["text","text-bold","text-italic","math"]){'
    'const l=document.createElement("link");l.rel="preload";l.as="font";l.type="font/woff2";'
    'l.crossOrigin="";l.href=d.content_root+"_static/"+f+".woff2";document.head.append(l)}}'
)


def policy() -> str:
    """The Content-Security-Policy. `file:` stands for the folder from which a page was opened."""
    digests = (hashlib.sha256(script.encode()).digest() for script in (COLORS, FONT))
    allowed = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    ours = "'self' file:"
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {ours} {allowed}",
            f"style-src {ours}",
            f"img-src {ours} data:",
            f"font-src {ours} data:",
            "connect-src 'self'",
            f"form-action {ours}",
            "base-uri 'none'",
        ]
    )


def plain(html: str) -> str:
    """The text of a piece of HTML, on one line; without the sign that links to a heading."""
    html = re.sub(r'<a class="headerlink".*?</a>', "", html, flags=re.S)
    return " ".join(unescape(re.sub(r"<[^>]+>", "", html)).split())


# ---------------------------------------------------------------- where the page stands


@dataclass(frozen=True)
class Leaf:
    """A page in the table of contents."""

    docname: str
    title: str
    number: str


@dataclass(frozen=True)
class Part:
    """A part of the book with its pages."""

    caption: str
    pages: list[Leaf]


def contents(app: Sphinx) -> list[Part]:
    """The parts of the book as `_toc.yml` has them."""
    tree: Any = getattr(app.env, "external_site_map")  # noqa: B009 (of sphinx-external-toc)
    parts = []
    for part in tree.root.subtrees:
        leaves = []
        for item in part.items:
            title = tree[item].title or app.env.titles[item].astext()
            number, dot, name = title.partition(" · ")
            leaves.append(Leaf(str(item), name if dot else title, number if dot else ""))
        parts.append(Part(part.caption or "", leaves))
    return parts


def headings(app: Sphinx, page: str) -> list[tuple[str, str]]:
    """The sections of a page: the address within it, and the heading as HTML."""
    found = []
    for link in app.env.tocs[page].findall(nodes.reference):
        depth, above = 0, link.parent
        while above is not None:
            depth += isinstance(above, nodes.bullet_list)
            above = above.parent
        if link["anchorname"] and depth == 2:
            name = nodes.inline("", "", *(child.deepcopy() for child in link.children))
            builder: Any = app.builder
            html = builder.render_partial(name)["fragment"]
            found.append((link["anchorname"], re.sub(r"^<span>|</span>$", "", html.strip())))
    return found


# ---------------------------------------------------------------- what the page is


def tools(page: str, body: str) -> str:
    """Under a title: how long a chapter takes, its notebook, what to print; what was read."""
    if not page.startswith("notebooks/"):
        is_first = page.endswith("/index")
        return '<p class="tp-progress tp-needs-script" role="status"></p>\n' if is_first else ""
    told = re.search(r"<strong>Time</strong> (\d+) minutes to read", body)
    words = len(plain(re.sub(r"<(script|pre|math|svg)\b.*?</\1>", "", body, flags=re.S)).split())
    minutes = int(told[1]) if told else 5 * max(1, round(words / 150 / 5))
    # On a phone it is one line: what is in `tp-long` stands in the menu, or is understood.
    return (
        f'<p class="tp-tools"><span><span class="tp-long">Reading time </span>{minutes} minutes'
        f'</span> <a href="../_sources/{page}.ipynb" download><span class="tp-long">Download this '
        f'notebook</span><span class="tp-short">Notebook</span></a>{_slides(page)} '
        '<span class="tp-long tp-needs-script"><button type="button" data-do="print">Print</button>'
        ' <label><input type="checkbox" id="tp-with-solutions" checked> with solutions</label>'
        "</span></p>\n"
    )


def _slides(page: str) -> str:
    """A link to the deck of a chapter, on a site beside which publish.yml puts it."""
    address = f"../slides/{page.removeprefix('notebooks/')}.html"
    link = f' <a class="tp-long" href="{address}">Slides</a>'
    return link if os.environ.get("BOOK_TAKE_AWAY") else ""


def described(page: str, title: str, body: str, book: finish.Book) -> dict[str, Any]:
    """Description, Open Graph and address of a page."""
    # Between the title and its promise stand the note on the chapter and its place on the map.
    text = re.sub(r"<(nav|details)\b.*?</\1>", "", body, flags=re.S)
    promise = re.search(r"</h1>(?:\s*<p class=.*?</p>)*\s*<p>(.*?)</p>", text, re.S)
    told = plain(promise[1]) if promise else ""
    summary = f"{title}. {book.summary}" if len(told) < 30 else told
    if len(summary) > 300:
        summary = summary[:297].rsplit(" ", 1)[0] + " …"
    where = book.address or "../" * page.count("/")
    shared = {
        "og:type": "article" if page.startswith("notebooks/") else "website",
        "og:site_name": book.title,
        "og:title": title,
        "og:description": summary,
        "og:image": where + finish.card_name(page),
        "og:image:alt": f"The title {title}, with a figure of the page",
    }
    names = {"description": summary, "twitter:card": "summary_large_image"}
    if page == "search":
        names["robots"] = "noindex"
    canonical = f"{book.address}{page}.html" if book.address else ""
    if canonical:
        shared["og:url"] = canonical
    return {
        "described": list(names.items()),
        "shared": list(shared.items()),
        "canonical": canonical,
    }


# ---------------------------------------------------------------- where else the page can be


def elsewhere(page: str, repository: str | None, branch: str) -> list[dict[str, Any]]:
    """Links of the menu: the page as a notebook, on paper, where it runs, in its repository."""
    links: list[dict[str, Any]] = []
    is_notebook = page.startswith("notebooks/")
    if repository and is_notebook and (address := colab.colab(repository, page)):
        links.append({"icon": "launch", "text": "Run on Colab", "href": address})
    if repository and is_notebook:
        links.append(
            {"icon": "launch", "text": "Run on Binder", "href": binder(repository, branch, page)}
        )
    if is_notebook:
        source = f"../_sources/{page}.ipynb"
        links.append(
            {"icon": "download", "text": "Download this notebook", "href": source, "download": True}
        )
    links.append({"icon": "print", "text": "Print this page", "do": "print"})
    if repository:
        title = quote(f"On the page {page}")
        links += [
            {"icon": "source", "text": "Repository", "href": repository},
            {
                "icon": "report",
                "text": "Report an error",
                "href": f"{repository}/issues/new?title={title}",
            },
        ]
    return links


def binder(repository: str, branch: str, page: str) -> str:
    """The address that opens a notebook on Binder."""
    where = f"v2/git/{quote(repository, safe='')}"
    if match := re.fullmatch(r"https://(github|gitlab)\.com/(.+)", repository):
        known = {"github": f"v2/gh/{match[2]}", "gitlab": f"v2/gl/{quote(match[2], safe='')}"}
        where = known[match[1]]
    return f"https://mybinder.org/{where}/{quote(branch, safe='')}?urlpath=lab/tree/{page}.ipynb"


# ---------------------------------------------------------------- the template's context


def fill(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Give the templates what they show."""
    book, assets = app.config.tp_book, app.config.tp_assets
    parts = contents(app)
    body = str(context.get("body", ""))
    if found := re.search(r'<[a-z][^<>]*\sstyle="[^"]*"', body):
        raise ExtensionError(
            f"{page}: a style within the page, which its policy forbids: {found[0]}"
        )
    opening, end, rest = body.partition("</h1>")
    title = plain(opening) if end else str(context.get("title") or "Search")
    place = next(((p, leaf) for p in parts for leaf in p.pages if leaf.docname == page), None)
    part, leaf = place if place else (None, None)
    number = leaf.number.lstrip("0") if leaf else ""
    eyebrow = f"{part.caption} <b>Chapter {number}</b>" if part and number else ""
    reference = part is not None and not number
    context["tp"] = {
        "title": book.title,
        "policy": policy(),
        "colours": COLORS,
        "font": FONT,
        "parts": parts,
        "sections": headings(app, page) if page in app.env.tocs else [],
        "eyebrow": eyebrow,
        "kind": "tp-reference" if reference else "tp-chapter" if number else "tp-front",
        "beside": bool(re.search(r'class="[^"]*\b(?:tp-margin|tag_keep|tag_wide)\b', body)),
        "opening": opening + end,
        "tools": tools(page, body),
        "rest": sections.marked(rest),
        "links": elsewhere(page, app.config.tp_repository, app.config.tp_branch),
        **assets,
        **described(page, title, body, book),
    }
