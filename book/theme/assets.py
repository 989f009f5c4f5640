"""The one style sheet, the one script and the fonts, each named by its content."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable
from functools import cache
from html import unescape
from pathlib import Path

import sphinx
from fontTools import subset
from fontTools.ttLib import TTFont

from book.theme.finish import font_file
from book.theme.sections import rules

HERE = Path(__file__).parent
STATIC = HERE.parent / "static"
STYLES = (
    STATIC / "explorer.css",
    HERE / "style/base.css",
    HERE / "style/frame.css",
    HERE / "style/article.css",
    HERE / "style/cells.css",
    HERE / "style/map.css",
    HERE / "style/xray.css",
    HERE / "style/xray_inside.css",
    HERE / "style/print.css",
)
SCRIPTS = (
    STATIC / "explorer.js",
    STATIC / "tokens.js",
    STATIC / "pages.js",
    STATIC / "symbols.js",
    HERE / "site.js",
)
_SEARCH_REPAIRS = (
    # Parts of a word are found from three letters on; two signs are a whole word in Chinese.
    ("if (word.length > 2) {", "if (word.length > 2 || /[^\\x00-\\x7f]/.test(word)) {"),
    # The lines around a title are no text that an excerpt should begin with.
    (
        '[".headerlink", "script", "style"]',
        '[".headerlink", "script", "style", ".tp-tools", ".tp-eyebrow", ".tp-turn", ".tp-footer"]',
    ),
)


@cache
def style() -> str:
    """The style sheet: ours, and the heights of the sections."""
    return joined_style(STYLES, rules())


def joined_style(files: Iterable[Path], more: str = "") -> str:
    """Style sheets as one, without comments and blanks."""
    css = "\n".join(path.read_text(encoding="utf-8") for path in files) + more
    css = re.sub(r"/\*.*?\*/", "", css, flags=re.S)
    return re.sub(r"\s*([{};])\s*", r"\1", re.sub(r"\s+", " ", css)).replace(";}", "}").strip()


def script() -> str:
    """The script: ours."""
    return joined_script(SCRIPTS)


def joined_script(files: Iterable[Path]) -> str:
    """Scripts as one, without indents and lines of comment; no string runs over several lines."""
    lines: list[str] = []
    for path in files:
        lines += [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    return "\n".join(line for line in lines if line and not line.startswith("//"))


# What the search page needs of Sphinx. doctools and the options are used by searchtools.
_SEARCH = (
    "documentation_options.js",
    "doctools.js",
    "language_data.js",
    "searchtools.js",
    "sphinx_highlight.js",
)


def search_script(static: Path) -> str:
    """What the search page needs of Sphinx, which has written it into this folder."""
    script = "\n".join((static / name).read_text(encoding="utf-8") for name in _SEARCH)
    for theirs, ours in _SEARCH_REPAIRS:
        if theirs not in script:
            raise ValueError(f"Sphinx's searchtools.js has changed: it has no {theirs!r}")
        script = script.replace(theirs, ours)
    return script


def names() -> dict[str, str]:
    """What the style sheet and the scripts are called, by content."""
    # Sphinx writes the parts of its script after the pages, which name it.
    searching = sphinx.__version__ + repr(_SEARCH_REPAIRS)
    return {
        "style": _named("book", ".css", style()),
        "script": _named("book", ".js", script()),
        "search": _named("search", ".js", searching),
    }


def write(static: Path, called: dict[str, str]) -> None:
    """Write them, instead of those that had other contents before."""
    for old in [*static.glob("book-????????.*"), *static.glob("search-????????.js")]:
        old.unlink()
    searching = search_script(static)
    for kind, text in (("style", style()), ("script", script()), ("search", searching)):
        (static / called[kind]).write_text(text, encoding="utf-8")
    (static / "favicon.svg").write_bytes((STATIC / "favicon.svg").read_bytes())


def _named(stem: str, suffix: str, text: str) -> str:
    return f"{stem}-{hashlib.sha256(text.encode()).hexdigest()[:8]}{suffix}"


# ---------------------------------------------------------------- fonts


def write_fonts(out: Path) -> None:
    """STIX Two Math, cut down to what the pages use: for formulas, and its letters for the text."""
    text = set()
    for page in out.rglob("*.html"):
        for math in re.findall(r"<math.*?</math>", page.read_text(encoding="utf-8"), re.S):
            text |= set(unescape(re.sub(r"<[^>]+>", "", math)))
    # A browser sets a lone letter in italics, and takes those from another place of the font.
    italics = {chr(c) for c in [0x210E, *range(0x1D434, 0x1D468), *range(0x1D6E2, 0x1D71C)]}
    text |= {c for c in italics if unicodedata.normalize("NFKC", c) in text}
    # Without its sets of other shapes for the same letters. Those for scripts (ssty), which are a
    # little heavier, would be half of the file.
    options = _options(["dtls", "flac", "kern", "ccmp", "mark"])
    with subset.load_font(font_file(), options) as font:
        cutter = subset.Subsetter(options)
        cutter.populate(text="".join(sorted(text | set("√"))))
        cutter.subset(font)
        _narrow_radicals(font)
        subset.save_font(font, out / "_static/math.woff2", options)
    for name, face in FACES.items():
        write_face(out / f"_static/{name}.woff2", *face)


# The letters of a text; a face takes each from another place of the font.
_TEXT = [chr(c) for c in range(0x20, 0x7F)] + list("–—‘’“”…×·→←≤≥−°éüöäçñ§±≈√²³½")
# Of each face: where the letters begin, and what is added to the width of a letter and of a blank.
# Letters of formulas stand further apart than in a text, and blanks between them are narrower.
FACES: dict[str, tuple[dict[str, int], int, int]] = {
    "text": ({}, 0, 0),
    "text-italic": ({"A": 0x1D434, "a": 0x1D44E}, -8, 40),
    "text-bold": ({"A": 0x1D400, "a": 0x1D41A, "0": 0x1D7CE}, -22, 0),
}


# In a text the ends of these reach over and under their neighbors: added to width and place.
_OVERHANG = {"f": (-200, -110), "j": (-100, -85)}


def _options(features: list[str]) -> subset.Options:
    return subset.Options(flavor="woff2", layout_features=features, hinting=False)


def _place(letter: str, begin: dict[str, int]) -> int:
    """Where the font has this letter for a face."""
    for first, last in (("A", "Z"), ("a", "z"), ("0", "9")):
        if first in begin and first <= letter <= last:
            code = begin[first] + ord(letter) - ord(first)
            return 0x210E if code == 0x1D455 else code  # Unicode had an italic h before the others
    return ord(letter)


def write_face(file: Path, begin: dict[str, int], closer: int, blank: int) -> None:
    """A face for the text, made of letters that the font has for formulas."""
    options = _options(["kern", "ccmp"])
    options.drop_tables += ["MATH"]
    places = {letter: _place(letter, begin) for letter in _TEXT}
    with subset.load_font(font_file(), options) as font:
        font.recalcTimestamp = False
        glyphs = font.getBestCmap()
        chosen = {ord(c): glyphs[code] for c, code in places.items() if code in glyphs}
        for table in font["cmap"].tables:
            if table.isUnicode() and table.format in (4, 12):
                table.cmap = dict(chosen)
        cutter = subset.Subsetter(options)
        cutter.populate(unicodes=chosen)
        cutter.subset(font)
        for letter, code in places.items():
            if letter == " " or code != ord(letter):
                name = chosen[ord(letter)]
                width, bearing = font["hmtx"][name]
                wider, aside = (blank, 0) if letter == " " else (closer, closer // 2)
                if file.stem == "text-italic":
                    wider, aside = _OVERHANG.get(letter, (wider, aside))
                font["hmtx"][name] = (width + wider, bearing + aside)
        subset.save_font(font, file, options)


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
