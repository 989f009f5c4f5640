"""The built pages, made lean: what jupyter-book's theme loads is cut down to what a page uses.

This runs once, after the build, on the finished HTML files:

- one style sheet with the rules that some page can use, and one script, both named by their hash;
- the theme's icon font cut down to a few icons within the style sheet, and no icon script;
- no script and no style inside a page but one that a Content-Security-Policy allows by its hash;
- fewer elements (operators and plain names in code need no colour), images with their size,
  sections that the browser lays out when they come near;
- a description, a picture and an address for search engines and messengers.
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from html import escape, unescape
from pathlib import Path
from urllib.parse import unquote

from fontTools import subset
from fontTools.ttLib import TTFont
from PIL import Image, ImageDraw, ImageFont

STATIC = Path(__file__).parent / "static"
SCRIPTS = ("explorer.js", "pages.js", "site.js", "symbols.js")
# What the search page needs of Sphinx. doctools and the options are used by searchtools.
SEARCH = (
    "documentation_options.js",
    "doctools.js",
    "language_data.js",
    "searchtools.js",
    "sphinx_highlight.js",
)
_SEARCH_REPAIRS = (
    # Parts of a word are found from three letters on; two signs are a whole word in Chinese.
    ("if (word.length > 2) {", "if (word.length > 2 || /[^\\x00-\\x7f]/.test(word)) {"),
    # The line of tools under a title is no text that an excerpt should begin with.
    ('[".headerlink", "script", "style"]', '[".headerlink", ".tp-tools", "script", "style"]'),
)
# Before the first paint, so that no page flashes in the wrong colours.
THEME = (
    '{const d=document.documentElement.dataset;let m="auto";'
    'try{m=localStorage.getItem("mode")||m}catch{}'
    'd.mode=m;d.theme=m=="light"||m=="dark"?m:'
    'matchMedia("(prefers-color-scheme: dark)").matches?"dark":"light"}'
)
# The font of the formulas is asked for at once. From a folder a browser refuses to fetch ahead.
FONT = (
    '{const l=document.createElement("link");l.rel="preload";l.as="font";l.type="font/woff";'
    'l.crossOrigin="";l.href=document.documentElement.dataset.content_root+"_static/math.woff";'
    'location.protocol=="file:"||document.head.append(l)}'
)
# Kinds of code that keep the colour of the text: names, punctuation, blanks, operators.
PLAIN = frozenset({"n", "p", "w", "o", "nn", "kn-w", "x", "fm"})


@dataclass(frozen=True)
class Book:
    """What the pages say about the book as a whole."""

    title: str
    summary: str
    address: str | None  # ends in a slash; None where nobody knows it


def address_of(environment: dict[str, str], repository: str | None) -> str | None:
    """Where the book is published: BOOK_URL, else the GitHub pages of its repository."""
    if given := environment.get("BOOK_URL", "").strip():
        if not re.fullmatch(r"https?://[^\s\"'<>?#]+", given):
            raise ValueError(f"BOOK_URL should be the https address of the book, got {given!r}")
        return given.rstrip("/") + "/"
    match = re.fullmatch(r"https://github\.com/([\w.-]+)/([\w.-]+)", repository or "")
    if match is None:
        return None
    owner, name = match[1].lower(), match[2]
    host = f"https://{owner}.github.io/"
    return host if name.lower() == f"{owner}.github.io" else f"{host}{name}/"


# ---------------------------------------------------------------- the whole

_THEME_PAGE = 'class="bd-container"'


def make_lean(out: Path, book: Book) -> None:
    """Rewrite every page of the built site in `out`, and write what the pages share."""
    pages = {p: p.read_text(encoding="utf-8") for p in sorted(out.rglob("*.html"))}
    pages = {p: text for p, text in pages.items() if "_static" not in p.parts}
    whole = [text for text in pages.values() if _THEME_PAGE in text]
    sheets = list(dict.fromkeys(s for p, t in pages.items() for s in _sheets(p, t)))
    if not whole or not sheets:
        raise ValueError(f"{out} holds no page of the theme with its style sheets")
    inline: dict[str, str] = {}
    bodies = {p: _body(t, p, inline) if _THEME_PAGE in t else t for p, t in pages.items()}

    script = "\n".join(_smaller((STATIC / name).read_text(encoding="utf-8")) for name in SCRIPTS)
    used = Used.by([*bodies.values()], script)
    css = "\n".join(s.read_text(encoding="utf-8") for s in sheets)
    css += "".join(f".{name}{{{rule}}}" for rule, name in inline.items())
    tall = {h for text in bodies.values() for h in re.findall(r'<section data-tall="(\d+)"', text)}
    css += "".join(f'[data-tall="{h}"]{{--tp-tall:{h}px}}' for h in sorted(tall, key=int))
    css = purged(css, used) + _icons(out, used.words)
    style_name = _write(out / "_static", "book", ".css", css)
    script_name = _write(out / "_static", "book", ".js", script)
    search = "\n".join((out / "_static" / name).read_text(encoding="utf-8") for name in SEARCH)
    for theirs, ours in _SEARCH_REPAIRS:
        if theirs not in search:
            raise ValueError(f"Sphinx's searchtools.js has changed: it has no {theirs!r}")
        search = search.replace(theirs, ours)
    search_name = _write(out / "_static", "search", ".js", search)

    for path, text in bodies.items():
        name = path.relative_to(out).as_posix()
        up = "../" * name.count("/")
        scripts = [f"_static/{script_name}"]
        if name == "search.html":
            scripts += [f"_static/{search_name}", "searchindex.js"]
        head = [
            f'<link rel="stylesheet" href="{up}_static/{style_name}">',
            *(f'<script defer src="{up}{source}"></script>' for source in scripts),
        ]
        if "<math" in text:
            head.insert(0, f"<script>{FONT}</script>")
        if _THEME_PAGE in text:
            text = _with_head(text, head, _about(text, name, path, out, book))
        else:
            text = _forwarding(text, book)
        path.write_text(text, encoding="utf-8")
    (out / "_static/favicon.svg").write_bytes((STATIC / "favicon.svg").read_bytes())
    _address_book(out, [p.relative_to(out).as_posix() for p in pages], book)
    _clear(out)


def _write(folder: Path, stem: str, suffix: str, text: str) -> str:
    """Write a file that is named by its content, instead of those that had the name before."""
    for old in folder.glob(f"{stem}-????????{suffix}"):
        old.unlink()
    name = f"{stem}-{hashlib.sha256(text.encode()).hexdigest()[:8]}{suffix}"
    (folder / name).write_text(text, encoding="utf-8")
    return name


def _sheets(page: Path, text: str) -> Iterator[Path]:
    for tag in re.findall(r"<link\b[^>]*>", text):
        if 'rel="stylesheet"' in tag:
            (address,) = re.findall(r'href="([^"?]+)', tag)
            sheet = (page.parent / address).resolve()
            for other in re.findall(r'@import "([^"]+)"', sheet.read_text(encoding="utf-8")):
                yield (sheet.parent / other).resolve()
            yield sheet


def _smaller(script: str) -> str:
    """Without indents and lines of comment; our scripts have no strings over several lines."""
    lines = (line.strip() for line in script.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))


def _clear(out: Path) -> None:
    """Remove what no page loads any more, so that nobody publishes it."""
    static = out / "_static"
    kept = re.compile(r"(book|search)-[0-9a-f]{8}\.(css|js)|math\.woff|favicon\.svg")
    for path in sorted(static.rglob("*"), reverse=True):
        name = path.relative_to(static).as_posix()
        if path.is_dir():
            if not any(path.iterdir()):
                path.rmdir()
        elif not kept.fullmatch(name) and not name.startswith(("cards/", "images/")):
            path.unlink()


# ---------------------------------------------------------------- the head


def _policy() -> str:
    """The Content-Security-Policy. `file:` stands for the folder from which a page was opened."""
    digests = (hashlib.sha256(script.encode()).digest() for script in (THEME, FONT))
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


def _with_head(text: str, loaded: list[str], about: list[str]) -> str:
    head, rest = text.split("</head>", 1)
    opening = re.search(r"<html[^>]*>", head)
    title = re.search(r"<title>.*?</title>", head, re.S)
    if opening is None or title is None:
        raise ValueError("a page of the theme has no <html> or no <title>")
    links = re.findall(r'<link rel="(?:index|search|next|prev)"[^>]*>', head)
    # Without scripts the page is light.
    html = re.sub(r'data-theme="\w+"', 'data-theme="light"', opening[0])
    up = (re.findall(r'data-content_root="([^"]*)"', html) or [""])[0].removeprefix("./")
    lines = [
        "<!DOCTYPE html>",
        html,
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_policy()}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        re.sub(r"\s+", " ", title[0]),
        f"<script>{THEME}</script>",
        *loaded,
        *about,
        f'<link rel="icon" href="{up}_static/favicon.svg" type="image/svg+xml">',
        *links,
        "</head>",
    ]
    return "\n".join(lines) + rest


def _about(text: str, name: str, path: Path, out: Path, book: Book) -> list[str]:
    """Description, Open Graph and address of one page."""
    heading = re.search(r"<h1>(.*?)</h1>", text, re.S)
    title = _plain(heading[1]) if heading else book.title
    promise = re.search(r"</h1>(?:\s*<p class=.*?</p>)*\s*<p>(.*?)</p>", text, re.S)
    told = _plain(promise[1]) if promise and "<article" in text[: promise.start()] else ""
    summary = f"{title}. {book.summary}" if len(told) < 30 else told
    if len(summary) > 300:
        summary = summary[:297].rsplit(" ", 1)[0] + " …"
    picture = _card(text, path, out, title, book)
    where = book.address or "../" * name.count("/")
    facts = {
        "og:type": "article" if name.startswith("notebooks/") else "website",
        "og:site_name": book.title,
        "og:title": title,
        "og:description": summary,
        "og:image": where + picture,
        "og:image:alt": f"The title {title}, with a figure of the page",
    }
    lines = [f'<meta name="description" content="{escape(summary)}">']
    if book.address:
        facts["og:url"] = book.address + name
        lines.append(f'<link rel="canonical" href="{escape(book.address + name)}">')
    if name == "search.html":
        lines.append('<meta name="robots" content="noindex">')
    lines += [f'<meta property="{k}" content="{escape(v)}">' for k, v in facts.items()]
    lines.append('<meta name="twitter:card" content="summary_large_image">')
    return lines


def _plain(html: str) -> str:
    """The text of a piece of HTML, on one line; without the sign that links to a heading."""
    html = re.sub(r'<a class="headerlink".*?</a>', "", html, flags=re.S)
    return " ".join(unescape(re.sub(r"<[^>]+>", "", html)).split())


def _card(text: str, path: Path, out: Path, title: str, book: Book) -> str:
    """A picture of 1200 by 630: the page's title, and its first figure where it has one."""
    name = f"_static/cards/{path.relative_to(out).with_suffix('').as_posix().replace('/', '-')}.png"
    card = Image.new("RGB", (1200, 630), "white")
    draw = ImageDraw.Draw(card)
    draw.rectangle((0, 0, 1200, 12), fill="#0072b2")
    draw.text((48, 40), book.title, font=_letters(28), fill="#5b6470")
    size = next((s for s in (52, 46, 40, 34, 28) if _letters(s).getlength(title) < 1100), 24)
    draw.text((48, 80), title, font=_letters(size), fill="#22272e")
    sources = re.findall(r'<img\b[^>]*src="([^"]+\.(?:png|webp|jpe?g))"', text)
    figure = next(
        (f for s in sources if (f := (path.parent / unquote(s)).resolve()).exists()), None
    )
    if figure:
        with Image.open(figure) as opened:
            image = opened.convert("RGBA")
        scale = min(1104 / image.width, 440 / image.height)
        image = image.resize((round(image.width * scale), round(image.height * scale)))
        card.paste(image, ((1200 - image.width) // 2, 165 + (440 - image.height) // 2), image)
    else:
        draw.text((48, 300), book.summary[:95], font=_letters(26), fill="#5b6470")
    (out / name).parent.mkdir(parents=True, exist_ok=True)
    card.quantize(64).save(out / name, optimize=True)
    return name


@cache
def _letters(size: int) -> ImageFont.FreeTypeFont:
    import matplotlib  # for the font in it, which has more than Pillow's own

    return ImageFont.truetype(
        str(Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSans.ttf"), size
    )


def _forwarding(text: str, book: Book) -> str:
    """The page at the root leads on to the first one. It gets a title and something to click."""
    match = re.search(r'url=([^"]+)"', text)
    if match is None:
        return text
    target = escape(match[1])
    canonical = f'<link rel="canonical" href="{escape(book.address or "")}{target}">\n'
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy()}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(book.title)}</title>\n"
        f'<meta name="description" content="{escape(book.summary)}">\n'
        f'<meta http-equiv="Refresh" content="0; url={target}">\n'
        f"{canonical if book.address else ''}"
        '<link rel="icon" href="_static/favicon.svg" type="image/svg+xml">\n</head>\n'
        f'<body><main><h1>{escape(book.title)}</h1><p><a href="{target}">Open the book</a></p>'
        "</main></body>\n</html>\n"
    )


def _address_book(out: Path, names: list[str], book: Book) -> None:
    """sitemap.xml and robots.txt, where the address of the book is known."""
    for old in ("sitemap.xml", "robots.txt"):
        (out / old).unlink(missing_ok=True)
    if book.address is None:
        return
    listed = [n for n in names if n not in ("search.html", "index.html")]
    rows = "".join(f"<url><loc>{escape(book.address + n)}</loc></url>\n" for n in listed)
    (out / "sitemap.xml").write_text(
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{rows}</urlset>\n',
        encoding="utf-8",
    )
    (out / "robots.txt").write_text(
        f"User-agent: *\nAllow: /\nSitemap: {book.address}sitemap.xml\n", encoding="utf-8"
    )


# ---------------------------------------------------------------- the body


def _body(text: str, path: Path, inline: dict[str, str]) -> str:
    """One page, with fewer elements and without scripts and styles in it."""
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    text = re.sub(r'<script\b(?![^>]*type="application/json").*?</script>', "", text, flags=re.S)
    text = re.sub(r"<noscript>\s*<style>.*?</noscript>", "", text, flags=re.S)
    for opening in _NEEDLESS:
        text = _without(text, opening)
    text = text.replace('onclick="window.print()"', 'data-do="print"')
    text = text.replace('onclick="toggleFullScreen()"', 'data-do="fullscreen"')
    text = re.sub(r'\sdata-bs-toggle="tooltip"|\sdata-bs-placement="\w+"', "", text)
    for old, new in _REPAIRS:
        text = re.sub(old, new, text)
    text = _foldable(text)
    text = re.sub(r"<pre>.*?</pre>", lambda m: _fewer_spans(m[0]), text, flags=re.S)
    text = _HELD.sub(_with_its_signs, text)
    text = re.sub(r"<img\b[^>]*>", lambda m: _sized(m[0], path), text)
    text = _styles_to_classes(text, inline)
    text = re.sub(r"<(?:i|span) class=\"(fa[^\"]*)\"([^>]*)>", _hidden_icon, text)
    text = _tools(text, path)
    return _sections(text)


# A formula in a line, with the signs that touch it. Browsers would break the line between them.
_HELD = re.compile(r"([(“]?)(<math\b.*?</math>)([-,.;:?!)’”]*)", re.S)


def _with_its_signs(found: re.Match[str]) -> str:
    return f'<span class="tp-hold">{found[0]}</span>' if found[1] or found[3] else found[0]


def _tools(text: str, path: Path) -> str:
    """Under a chapter's title: how long it takes, its notebook, and what to print."""
    if path.parent.name != "notebooks":
        if path.name == "index.html":
            line = '<p class="tp-progress pst-js-only" role="status"></p>'
            return re.sub(r"</h1>", f"</h1>\n{line}", text, count=1)
        return text
    told = re.search(r"<strong>Time</strong> (\d+) minutes to read", text)
    article = text[text.index("<article") : text.index("</article>")]
    words = len(_plain(re.sub(r"<(script|pre|math)\b.*?</\1>", "", article, flags=re.S)).split())
    minutes = int(told[1]) if told else 5 * max(1, round(words / 150 / 5))
    source = f"../_sources/notebooks/{path.stem}.ipynb"
    line = (
        f'<p class="tp-tools"><span>Reading time {minutes} minutes</span> '
        f'<a href="{source}" download>Download this notebook</a> '
        '<span class="pst-js-only"><button type="button" data-do="print">Print</button> '
        '<label><input type="checkbox" id="tp-with-solutions" checked> with solutions</label>'
        "</span></p>"
    )
    return re.sub(r"</h1>", f"</h1>\n{line}", text, count=1)


# Parts of the theme that show nothing here: a second table of contents for paper, a place for
# advertisements, a warning about versions, an empty header.
_NEEDLESS = (
    r'<div id="jb-print-docs-body"[^>]*>',
    r'<div\s+id="ethical-ad-placement"[^>]*>',
    r'<div class="pst-async-banner-revealer d-none">',
    r'<header id="pst-header"[^>]*>',
    r'<button type="button" class="btn rounded-pill" id="pst-back-to-top">',
    r'<footer class="bd-footer">',
    r'<div class="sidebar-header-items[^>]*>',
    r'<div id="pst-scroll-pixel-helper"[^>]*>',
)


# What the theme gets wrong for those who read with their ears or a keyboard.
_REPAIRS = (
    (r"data-bs-title=", "title="),
    (r"data-bs-toggle=", "data-toggle="),
    # A name that differs from the words that are seen cannot be spoken to.
    (r'(<summary) aria-label="Toggle hidden content"', r"\1"),
    (r'(<button class="btn search-button-field[^>]*?) title="Search" aria-label="Search"', r"\1"),
    (
        r'<span class="search-button__kbd-shortcut">',
        '<span class="search-button__kbd-shortcut" aria-hidden="true">',
    ),
    # The column of chapters is a place of the page that one can jump to.
    (r'(<div id="pst-primary-sidebar")', r'\1 role="complementary" aria-label="The book"'),
    # A role that was given up, in a list that may not hold what stands between such entries.
    (r'(<div) role="list"( class="citation-list")', r"\1\2"),
    (r' role="doc-biblioentry"', ""),
    # The empty corner of a table heads nothing.
    (r'<th class="head[^"]*">\s*(?:<p>\s*</p>)?\s*</th>', "<td></td>"),
)


def _end(text: str, start: int) -> tuple[int, int]:
    """Where the closing tag of the element that opens at `start` begins and ends."""
    tag = re.compile(r"<(\w+)").match(text, start)
    if tag is None:
        raise ValueError(f"no element starts with {text[start : start + 20]!r}")
    depth = 0
    for m in re.compile(rf"<(/?){tag[1]}\b[^>]*>").finditer(text, start):
        depth += -1 if m[1] else 1
        if depth == 0:
            return m.start(), m.end()
    raise ValueError(f"the element {text[start : start + 60]!r} does not end")


def _without(text: str, opening: str) -> str:
    while match := re.search(opening, text):
        text = text[: match.start()] + text[_end(text, match.start())[1] :]
    return text


def _foldable(text: str) -> str:
    """Boxes that a script would fold become `<details>`: they fold by themselves."""
    opening = re.compile(
        r'<div class="((?=[^"]*\badmonition\b)[^"]*\bdropdown\b[^"]*)"([^>]*)>\s*'
        r'<p class="admonition-title">(.*?)</p>',
        re.S,
    )
    while match := opening.search(text):
        begin, end = _end(text, match.start())
        classes = " ".join(c for c in match[1].split() if c not in ("dropdown", "toggle"))
        # A link inside a summary would be a control within a control.
        title = re.sub(r"</?a\b[^>]*>", "", match[3])
        text = (
            f'{text[: match.start()]}<details class="tp-fold {classes}"{match[2]}>'
            f'<summary class="admonition-title">{title}</summary>'
            f"{text[match.end() : begin]}</details>{text[end:]}"
        )
    return text


def _fewer_spans(code: str) -> str:
    code = code.replace("<span></span>", "")
    code = re.sub(
        r'<span class="([\w-]+)">([^<]*)</span>',
        lambda m: m[2] if m[1] in PLAIN or not m[2].strip() else m[0],
        code,
    )
    joined = re.compile(r'<span class="([\w-]+)">([^<]*)</span>(\s*)<span class="\1">')
    while joined.search(code):
        code = joined.sub(r'<span class="\1">\2\3', code)
    return code


def _sized(tag: str, path: Path) -> str:
    """An image with its width and height, so that nothing moves when it comes."""
    style = re.search(r'style="width: ([\d.]+)px; height: ([\d.]+)px;"', tag)
    if style:
        width, height = (round(float(v)) for v in style.groups())
        return tag.replace(style[0], f'width="{width}" height="{height}" decoding="async"')
    source = re.search(r'src="([^"]+)"', tag)
    file = (path.parent / unquote(source[1])) if source else path
    if "width=" in tag or file.suffix not in (".png", ".webp", ".jpg") or not file.exists():
        return tag
    with Image.open(file) as image:
        return tag.replace("<img", f'<img width="{image.width}" height="{image.height}"', 1)


def _styles_to_classes(text: str, inline: dict[str, str]) -> str:
    def moved(match: re.Match[str]) -> str:
        tag, rule = match[0], unescape(match[2])
        name = inline.setdefault(rule, f"tp-s{len(inline)}")
        tag = tag.replace(match[1], "", 1)
        if 'class="' in tag:
            return tag.replace('class="', f'class="{name} ', 1)
        return re.sub(r"^<[\w-]+", rf'\g<0> class="{name}"', tag)

    return re.sub(r'<[a-z][^<>]*?(\sstyle="([^"]*)")[^<>]*>', moved, text)


def _hidden_icon(match: re.Match[str]) -> str:
    """An icon says nothing by itself: the button around it has a name."""
    label = re.sub(r'\s(title|aria-hidden)="[^"]*"', "", match[2])
    return (
        match[0].replace(match[2], label + ' aria-hidden="true"')
        if match[2]
        else (match[0][:-1] + ' aria-hidden="true">')
    )


_LINE, _BOX = 24, 60  # pixels: a line of text, a closed box


def _sections(text: str) -> str:
    """Sections are laid out when they come near; until then they have about their height."""
    starts = list(re.finditer(r"<section\b[^>]*>(?=\s*(?:<span[^>]*></span>)?<h[23]>)", text))
    marks: list[tuple[int, str]] = []
    for match in starts:
        height = _height(text[match.end() : _end(text, match.start())[0]])
        marks.append((match.start() + len("<section"), f' data-tall="{height}"'))
    for place, mark in sorted(marks, reverse=True):
        text = text[:place] + mark + text[place:]
    return text


def _height(html: str) -> int:
    """About the height of a section on a desk, in steps of 200 pixels; folded boxes are closed."""
    boxes = len(re.findall(r'<details\b[^>]*class="[^"]*\b(?:tp-fold|sd-dropdown)\b', html))
    shown = re.sub(r"<details\b.*?</details>", "", html, flags=re.S)
    images = sum(int(h) for h in re.findall(r'<img[^>]*\bheight="(\d+)"', shown))
    code = sum(m.count("\n") for m in re.findall(r"<pre>.*?</pre>", shown, re.S))
    text = re.sub(r"<(pre|math|script)\b.*?</\1>", "", shown, flags=re.S)
    lines = len(re.sub(r"<[^>]+>", "", text).split()) / 13
    blocks = len(re.findall(r"<(?:p|li|h\d|pre|tr|div class=\"math-display)\b", shown))
    explorers = 430 * shown.count("tp-explorer")
    height: float = images + 19 * code + _LINE * lines + 26 * blocks + explorers + _BOX * boxes
    return max(200, 200 * round(height / 200))


# ---------------------------------------------------------------- the style sheet


@dataclass(frozen=True)
class Used:
    """What the pages and scripts name: a rule for anything else applies nowhere."""

    tags: frozenset[str]
    names: frozenset[str]  # classes and ids
    words: frozenset[str]  # of the script

    @classmethod
    def by(cls, pages: list[str], script: str) -> Used:
        """Everything that these pages and this script name."""
        tags: set[str] = {"html", "body", "svg"}
        names: set[str] = set()
        strings = re.findall(r"\"[^\"\n]*\"|'[^'\n]*'|`[^`]*`", script)
        words = {w for s in strings for w in re.findall(r"[A-Za-z][\w-]*", s)}
        for text in pages:
            tags |= set(re.findall(r"<([a-z][a-z0-9]*)", text))
            for value in set(re.findall(r'\b(?:class|id)="([^"]*)"', text)):
                names |= set(value.split())
        return cls(frozenset(tags | words), frozenset(names | words), frozenset(names | words))


# What may hold braces that open nothing.
_QUOTED = re.compile(
    r"/\*.*?\*/|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|url\(\s*[^\"')][^)]*\)", re.S
)


def _blocks(css: str) -> Iterator[tuple[str, str | None]]:
    """The statements of a style sheet: what stands before the braces, and what is in them."""
    head: list[str] = []
    body: list[str] = []
    depth = 0
    for token in re.findall(r"[{};]|[^{};]+", css):
        if token == "}":
            depth -= 1
            if depth == 0:
                yield "".join(head).strip(), "".join(body)
                head, body = [], []
                continue
        if depth:
            body.append(token)
        elif token == ";":
            yield "".join(head).strip(), None
            head = []
        elif token != "{":
            head.append(token)
        if token == "{":
            depth += 1
    if depth or "".join(head).strip():
        raise ValueError(f"a style sheet ends within a rule: {''.join(head)[:60]!r}")


def purged(css: str, used: Used) -> str:
    """The rules of a style sheet that can apply, without the variables that no rule reads."""
    shelf: list[str] = []

    def put_away(match: re.Match[str]) -> str:
        if match[0].startswith("/*"):
            return ""
        if not re.search(r"[{};:,]", match[0]):
            return match[0]
        shelf.append(match[0])
        return f"\0{len(shelf) - 1}\0"

    kept = _purge(_QUOTED.sub(put_away, css), used)
    while True:
        read = "|".join(sorted(set(re.findall(r"var\(\s*(--[\w-]+)", kept)))) or "-"
        # The explorers' colours are read by their script.
        unread = rf"(?<=[{{;])(?!--tp-|(?:{read}):)--[\w-]+:[^;}}]*(?:;|(?=}}))"
        slim = re.sub(unread, "", kept)
        slim = re.sub(r"(?<=[}{])[^{}@]+{\s*}|^[^{}@]+{\s*}", "", slim)
        if slim == kept:
            return re.sub("\0(\\d+)\0", lambda m: shelf[int(m[1])], kept)
        kept = slim


def _purge(css: str, used: Used) -> str:
    made: list[str] = []
    for head, body in _blocks(css):
        if body is None:  # @charset, @import: the sheets are joined already
            continue
        if re.match(r"@(media|supports|layer|container)", head):
            if inner := _purge(body, used):
                made.append(f"{head}{{{inner}}}")
        elif head.startswith("@font-face"):
            if "Book Math" in body:
                made.append(f"{head}{{{_tight(body)}}}")
        elif head.startswith("@"):
            if "keyframes" not in head:  # nothing on a page moves by itself
                made.append(f"{head}{{{_tight(body)}}}")
        else:
            able = [s for s in _selectors(head) if _can_apply(s, used)]
            if able and (rule := _tight(body)):
                made.append(f"{','.join(able)}{{{rule}}}")
    return "".join(made)


def _tight(body: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"\s*([;{}])\s*|:\s+", lambda m: m[1] or ":", body)).strip(
        " ;"
    )


def _selectors(head: str) -> Iterator[str]:
    """The alternatives of a rule, split at the commas that stand outside brackets."""
    depth, begin = 0, 0
    for i, c in enumerate(head):
        depth += (c in "([") - (c in ")]")
        if c == "," and depth == 0:
            yield " ".join(head[begin:i].split())
            begin = i + 1
    yield " ".join(head[begin:].split())


def _can_apply(selector: str, used: Used) -> bool:
    """Whether every class, id and element that a selector asks for occurs."""
    if re.search(r"::?(-moz-|-ms-|-o-)", selector):
        return False
    plain = re.sub(r"\[[^\]]*\]", "", selector)
    while (slim := re.sub(r":[\w-]+\([^()]*\)", "", plain)) != plain:
        plain = slim
    plain = plain.replace("\\", "")
    plain = re.sub(r"::?[\w-]+", "", plain)
    if any(name not in used.names for name in re.findall(r"[.#]([\w-]+)", plain)):
        return False
    tags = re.findall(r"(?:^|[\s>+~])([a-zA-Z][\w-]*)", re.sub(r"[.#][\w-]+", "", plain))
    return all(tag.lower() in used.tags for tag in tags)


# ---------------------------------------------------------------- icons


def _icons(out: Path, words: frozenset[str]) -> str:
    """A rule for each icon that occurs, and the theme's icon fonts cut down to them.

    The fonts are a few kilobytes and stand in the style sheet itself. As pictures each icon would
    be a document of its own to the browser, which took a third of the time to the first paint.
    """
    wanted = {w.removeprefix("fa-") for w in words if w.startswith("fa-")}
    families = {
        "fa-solid-900": ".fa-solid,.fas",
        "fa-regular-400": ".fa-regular,.far",
        "fa-brands-400": ".fa-brands,.fab",
    }
    rules = [
        ":is(.fa-solid,.fas,.fa-regular,.far,.fa-brands,.fab){display:inline-block;width:1.25em;"
        "font-style:normal;font-weight:400;line-height:1;text-align:center;overflow:hidden}"
    ]
    for name, selector in families.items():
        font = TTFont(
            out / f"_static/vendor/fontawesome/webfonts/{name}.ttf", recalcTimestamp=False
        )
        glyphs = {glyph: code for code, glyph in font.getBestCmap().items() if code >= 0xE000}
        here = sorted(wanted & glyphs.keys())
        if not here:
            continue
        options = subset.Options(flavor="woff", hinting=False, layout_features=[])
        cutter = subset.Subsetter(options)
        cutter.populate(unicodes=[glyphs[g] for g in here])
        cutter.subset(font)
        packed = io.BytesIO()
        font.flavor = "woff"
        font.save(packed)
        data = base64.b64encode(packed.getvalue()).decode()
        rules += [
            f'@font-face{{font-family:"{name}";src:url("data:font/woff;base64,{data}")}}',
            f':is({selector}){{font-family:"{name}"}}',
        ]
        # A name that two fonts have stands for the same character in both.
        rules += [f'.fa-{g}::before{{content:"\\{glyphs[g]:x}"}}' for g in here]
    return "".join(rules)
