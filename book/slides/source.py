"""What the page of a chapter has for slides: its sections, and in each what can be shown."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from html import unescape
from math import ceil
from pathlib import Path
from urllib.parse import urlsplit

from bs4 import BeautifulSoup, Tag

from book.slides.sentences import sentences

# Code and printed tables with more lines than these stay on the page.
CODE, PRINTED = 10, 14
ROWS = 12
# A paragraph with no more letters than this is shown whole.
SHORT = 230
# A sentence with fewer letters says little by itself: "Each of the two gets a task."
LITTLE = 45
# Sections of a chapter that no slide shows.
LEFT_OUT = ("Further", "References")
QUESTIONS, WRONG = "Questions you may be asked", "What is often written and wrong"
# About the letters in a line of a slide, and how tall a line is.
LETTERS, LINE = 104, 34


@dataclass
class Piece:
    """Something that a slide shows, with the sentences that stand beside it."""

    kind: str  # figure, formula, finding, table, code, list, exercise, question, text
    html: str
    height: int  # about how tall it is, in the pixels of a slide that is 1280 wide
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    title: str = ""  # of an exercise
    notes: list[str] = field(default_factory=list)


@dataclass
class Part:
    """A section of the chapter, without the sections within it."""

    heading: str
    anchor: str
    above: str  # the heading of the section that it is in; its own if it is in none
    pieces: list[Piece]
    rest: list[str]  # prose after the last piece


@dataclass
class Chapter:
    """All of a chapter that can be on a slide."""

    name: str  # 05_attention
    title: str
    eyebrow: str
    promise: str
    goals: str
    symbols: str  # what the symbols of its formulas mean, as the page's script has it
    kept: list[str]  # pictures, formulas and scripts, for which signs stand in the texts
    parts: list[Part]
    images: set[str]  # the addresses in the site of the pictures


# What is taken as it is: to look into it would take most of the time.
_KEPT = re.compile(r"<(svg|script|math|pre)\b.*?</\1>", re.S)
_SIGN = re.compile(r'<(svg|script|math|pre)\b[^>]*\bdata-kept="(\d+)"[^>]*>.*?</\1>', re.S)


def whole(html: str, kept: list[str]) -> str:
    """A text of a chapter with what it keeps in its place."""
    return _SIGN.sub(lambda sign: kept[int(sign[2])], html)


def read(page: Path, pages: str, pictures: str) -> Chapter:
    """The chapter whose built page this is.

    Args:
        page: such as `_build/html/notebooks/05_attention.html`.
        pages: the way from the decks to the site, "" or ending in a slash.
        pictures: the way from the decks to the copies of the pictures of the site.

    Raises:
        ValueError: if it is not the page of a chapter.
    """
    kept: list[str] = []

    def keep(match: re.Match[str]) -> str:
        kept.append(match[0])
        text = re.sub(r"<[^>]+>", " ", match[0]) if match[1] == "math" else ""
        lines = re.sub(r"<[^>]+>", "", match[0]).strip("\n").count("\n") + 1
        rows = lines if match[1] == "pre" else max(1, match[0].count("<mtr>"))
        high = "high" if re.search(r"<(?:mfrac|munder|munderover)\b", match[0]) else ""
        return (
            f'<{match[1]} data-kept="{len(kept) - 1}" data-rows="{rows}" data-high="{high}">'
            f"{text}</{match[1]}>"
        )

    soup = BeautifulSoup(_KEPT.sub(keep, page.read_text(encoding="utf-8")), "html.parser")
    article = soup.find("article")
    top = article and article.find("section", recursive=False)
    title = top and top.find("h1", recursive=False)
    if article is None or top is None or title is None:
        raise ValueError(f"{page.name}: not the page of a chapter: no article with a title")
    images = _clean(article, page.stem, pages, pictures)
    paragraphs = [p for p in top.find_all("p", recursive=False) if not p.get("class")]
    eyebrow = article.find(class_="tp-eyebrow")
    opening = top.find(class_="tp-opening")
    goals = opening.find("ul") if isinstance(opening, Tag) else None
    symbols = next((one for one in kept if 'class="tp-symbols"' in one), "")
    promise = paragraphs[0] if paragraphs else None
    if promise is not None:
        promise.extract()
    return Chapter(
        page.stem,
        title.decode_contents().strip(),
        eyebrow.get_text(" ", strip=True) if eyebrow else "",
        promise.decode_contents() if promise else "",
        str(goals or ""),
        symbols,
        kept,
        list(_parts(top, title.decode_contents().strip(), f"{pages}notebooks/{page.name}", kept)),
        images,
    )


_GONE = frozenset(
    {
        *("headerlink", "tp-tools", "tp-here", "solution", "tag_solution", "tp-witness"),
        *("tp-checked", "tp-setup", "tp-library", "tp-code-fold", "tp-hint"),
    }
)


def _clean(article: Tag, name: str, pages: str, pictures: str) -> set[str]:
    """Without what belongs to the page only; links lead from a deck. Returns the pictures."""
    images = set()
    for element in article.find_all(True):
        classes = element.get("class") or ()
        if not _GONE.isdisjoint(classes):
            element.extract()
            continue
        if "image-reference" in classes:
            element.unwrap()
            continue
        if element.get("id") and element.name != "section":
            del element["id"]
        for key, way in (("href", pages), ("src", pictures)):
            address = element.get(key)
            if isinstance(address, str) and not urlsplit(address).scheme:
                if address.startswith("#"):
                    address = f"{name}.html{address}"
                place = posixpath.normpath(posixpath.join("notebooks", address))
                if element.name == "a" or key == "src":
                    element[key] = way + place
                if key == "src":
                    images.add(place)
    return images


def _parts(
    section: Tag, heading: str, page: str, kept: list[str], above: str = ""
) -> Iterator[Part]:
    """This section, and those within it; `above` is the heading of the second level over them."""
    if heading in LEFT_OUT:
        return
    reader = _Reader(heading, f"{page}#{section.get('id')}", kept)
    inner: list[Tag] = []
    for child in section.find_all(True, recursive=False):
        if child.name == "section":
            inner.append(child)
        else:
            reader.take(child)
    yield Part(heading, str(section.get("id") or ""), above or heading, *reader.done())
    for one in inner:
        head = one.find(["h2", "h3", "h4"], recursive=False)
        name = head.decode_contents().strip() if isinstance(head, Tag) else ""
        yield from _parts(
            one, name, page, kept, name if section.find("h1", recursive=False) else above
        )


class _Reader:
    """Goes through the elements of a section and collects its pieces."""

    def __init__(self, heading: str, address: str, kept: list[str]) -> None:
        self.heading = heading
        self.kept = kept
        self.address = address  # of the section on the page
        self.pieces: list[Piece] = []
        self.prose: list[Tag] = []  # since the last piece
        self.spoken: list[str] = []  # prose that is in the notes only
        self.opening: Tag | None = None  # the first paragraph of the section

    def take(self, element: Tag) -> None:
        """The next element of the section."""
        for applies, make in _KINDS:
            if applies(element):
                piece = make(self, element) if make else None
                if piece is not None:
                    self._add(piece)
                elif _has("cell", "tp-table")(element):
                    self._drop()
                return
        if element.name == "p" and not element.get("class"):
            self.prose.append(element)
            if self.opening is None and not self.pieces:
                self.opening = element
        elif element.name in ("ul", "ol"):
            self._add(_list(element, whole=self.heading == WRONG))

    def done(self) -> tuple[list[Piece], list[str]]:
        """The pieces, and the prose after the last one."""
        self._close(None)
        if not self.pieces and self.opening is not None:
            first = sentences(self.opening)[:2]
            text = "".join(f"<p>{one}</p>" for one in first)
            self.pieces.append(Piece("text", text, sum(map(tall, first))))
        return self.pieces, [*self.spoken, *(str(p) for p in self.prose)]

    def _add(self, piece: Piece) -> None:
        self._close(piece.kind)
        if self.prose:
            follows = bool(self.pieces) and self.pieces[-1].kind == "formula"
            goes_on = follows and len(self.prose) == 1 and _begins_small(self.prose[0])
            piece.before = _leading(piece.kind, self.prose[-1], int(goes_on))
            alone = self.prose[-1] is self.opening
            if not self.pieces and self.opening is not None and not alone:
                piece.before = [_first(sentences(self.opening)), *piece.before]
        if self.pieces and set(self.pieces[-1].after) & set(piece.before):
            self.pieces[-1].after = []  # said once
        piece.notes = [*self.spoken, *(str(p) for p in self.prose), *piece.notes]
        self.prose, self.spoken = [], []
        self.pieces.append(piece)

    def _drop(self) -> None:
        """What led to something that no slide shows is in the notes only."""
        self._close("dropped")
        self.spoken += [str(p) for p in self.prose]
        self.prose = []

    def _close(self, following: str | None) -> None:
        """What stands after the last piece, now that the piece that follows is known."""
        if not (self.pieces and self.prose):
            return
        last, told = self.pieces[-1], sentences(self.prose[0])
        if not told or last.kind in ("exercise", "question"):
            return
        goes_on = last.kind == "formula" and _begins_small(self.prose[0])
        # A sentence that leads on to the next piece is said there.
        leads = following is not None and len(self.prose) == 1 and len(told) == 1
        is_picture = last.kind in ("figure", "table") and not leads
        is_picture = is_picture and len(plain(told[0])) >= LITTLE
        if (goes_on or is_picture) and len(plain(told[0])) <= SHORT:
            last.after = told[:1]


def _begins_small(paragraph: Tag) -> bool:
    """Whether it goes on with a sentence that began before a formula."""
    return re.match(r"[a-z]", paragraph.get_text().strip()) is not None


def _leading(kind: str, paragraph: Tag, begin: int) -> list[str]:
    """What of the paragraph directly before a piece stands on its slide, from a sentence on."""
    told = sentences(paragraph)[begin:]
    if kind in ("exercise", "question", "finding") or not told:
        return []
    if len(plain(" ".join(told))) <= SHORT and kind != "formula":
        return [" ".join(told)]
    if kind != "formula":
        return [_first(told)]
    # What is in brackets leads to nothing.
    return [one for one in told if not one.startswith("(")][-1:]


def _first(told: list[str]) -> str:
    """The first sentence; if it says little, the second too."""
    return " ".join(told[:2] if len(plain(told[0])) < LITTLE else told[:1])


def plain(html: str) -> str:
    """About the letters that a piece of HTML shows."""
    return " ".join(re.sub(r"<[^>]+>", "", html).split())


def tall(html: str, letters: int = LETTERS) -> int:
    """About how tall a paragraph is."""
    return LINE * max(1, ceil(len(plain(html)) / letters)) + 14


# ---------------------------------------------------------------- the kinds of pieces


def _formula(reader: _Reader, element: Tag) -> Piece:
    math = element.find("math")
    rows = int(str(math["data-rows"])) if isinstance(math, Tag) else 1
    high = 80 if element.find(True, {"data-high": "high"}) else 54
    return Piece("formula", str(element), high * rows + 24)


def _finding(reader: _Reader, element: Tag) -> Piece:
    for code in element.find_all(class_=["cell_input", "tp-compared"]):
        code.extract()
    told = element.find("p")
    rows = len(element.find_all("tr"))
    text = told.get_text() if isinstance(told, Tag) and rows else element.get_text()
    return Piece("finding", str(element), tall(text, 100) + 40 + (28 * rows + 12 if rows else 0))


def _cell(reader: _Reader, element: Tag) -> Piece | None:
    """What a cell shows, and its code if it is seen on the page and short."""
    source = element.find("div", class_="cell_input", recursive=False)
    output = element.find("div", class_="cell_output", recursive=False)
    if isinstance(output, Tag) and _is_drawn(output):
        if isinstance(source, Tag):
            source.extract()
        return Piece("figure", str(element), 560)
    height, kept = 0, 0
    if isinstance(source, Tag):
        count = _lines(source)
        if count > CODE:
            return _long_code(source, count, reader)
        height, kept = 26 * count + 30, kept + 1
    if isinstance(output, Tag):
        rows = len(output.find_all("tr")) or _lines(output)
        if rows > (ROWS if output.find("tr") else PRINTED):
            output.extract()
        else:
            height, kept = height + (34 if output.find("tr") else 26) * rows + 30, kept + 1
    kind = "code" if isinstance(source, Tag) else "table"
    return Piece(kind, str(element), height) if kept else None


def _is_drawn(output: Tag) -> bool:
    return bool(output.find(class_=["tp-explorer", "tp-typed"]) or output.find("img"))


def _long_code(source: Tag, count: int, reader: _Reader) -> Piece | None:
    """Of long code the first definition, if it is short, and a link to the rest."""
    pres = source.find_all("pre")
    code = reader.kept[int(str(pres[0]["data-kept"]))].removeprefix("<pre>").removesuffix("</pre>")
    begun = _DEFINITION.match(unescape(re.sub(r"<[^>]+>", "", code)))
    if len(pres) > 1 or begun is None:
        return None
    lines = len(begun[0].rstrip().splitlines())
    html = "\n".join(code.splitlines()[:lines])
    if lines > CODE or html.count("<span") != html.count("</span>"):
        return None
    pres[0]["data-kept"] = str(len(reader.kept))
    reader.kept.append(f"<pre>{html}</pre>")
    return Piece("code", f'<div class="cell">{source}</div>{_link(reader, count)}', 26 * lines + 66)


def _link(reader: _Reader, count: int) -> str:
    return f'<p><a href="{reader.address}">The code, {count} lines, on the page</a></p>'


# The first definition of a cell, up to the next line that begins at the margin.
_DEFINITION = re.compile(r"(?:def|class) .*\n(?:(?:[ \t)].*)?\n)*")


def _lines(box: Tag) -> int:
    return sum(int(str(pre["data-rows"])) for pre in box.find_all("pre"))


def _table(reader: _Reader, element: Tag) -> Piece | None:
    rows = len(element.find_all("tr"))
    return Piece("table", str(element), 34 * rows + 30) if rows <= ROWS else None


def _list(element: Tag, whole: bool) -> Piece:
    """A list, of each entry the first sentence or all; and all of it in the notes."""
    notes = str(element)
    height = 0
    for entry in element.find_all("li", recursive=False):
        p = entry.find("p", recursive=False)
        if isinstance(p, Tag) and not whole:
            said = (sentences(p) or [""])[0]
            p.clear()
            p.append(BeautifulSoup(said, "html.parser"))
            for more in entry.find_all(True, recursive=False)[1:]:
                more.extract()
        height += tall(entry.get_text(), LETTERS - 4)
    return Piece("list", str(element), height, notes=[notes])


def _exercise(reader: _Reader, element: Tag) -> Piece:
    title = element.find(class_="admonition-title")
    caption = ""
    if title is not None:
        number = title.find(class_="caption-number")
        count = number.extract().get_text(strip=True) if number else ""
        name = re.sub(r"^\s*\((.*)\)\s*$", r"\1", title.decode_contents(), flags=re.S)
        caption = f"{count} · {name.strip()}"
        title.extract()
    text = element.find("section") or element
    code = sum(26 * _lines(box) + 30 for box in text.find_all(class_="highlight"))
    said = sum(tall(p.get_text()) for p in text.find_all(["p", "li"]))
    return Piece("exercise", text.decode_contents(), said + code, title=caption)


def _stub(reader: _Reader, element: Tag) -> None:
    """The code with which an answer begins, if it is short."""
    source = element.find("div", class_="cell_input", recursive=False)
    if not (reader.pieces and reader.pieces[-1].kind == "exercise" and isinstance(source, Tag)):
        return
    piece, count = reader.pieces[-1], _lines(source)
    if count <= CODE:
        piece.html += str(source)
        piece.height += 26 * count + 40
    else:
        piece.html += _link(reader, count)
        piece.height += 40


def _question(reader: _Reader, element: Tag) -> Piece | None:
    """A question with its answer; or a hint, which stays with its exercise."""
    if reader.heading == QUESTIONS:
        element["class"] = "sl-step"
        summary = element.find("summary")
        asked = summary.get_text() if isinstance(summary, Tag) else ""
        return Piece("question", str(element), tall(asked, 80) + tall(element.get_text()) + 40)
    if reader.pieces and reader.pieces[-1].kind == "exercise":
        element["class"] = "tp-fold sl-hint"
        reader.pieces[-1].html += str(element)
        reader.pieces[-1].height += 42
    return None


def _note(reader: _Reader, element: Tag) -> None:
    """A note beside the text is for the notes."""
    reader.spoken += map(str, element.find_all("p", recursive=False))


def _has(*classes: str) -> Callable[[Tag], bool]:
    return lambda element: not set(classes).isdisjoint(element.get("class") or ())


# What to do with an element, in the order in which this is asked.
_KINDS: tuple[tuple[Callable[[Tag], bool], Callable[[_Reader, Tag], Piece | None] | None], ...] = (
    (_has("tp-equation", "math-display"), _formula),
    (_has("tag_finding"), _finding),
    (_has("exercise"), _exercise),
    (_has("tag_exercise"), _stub),
    (_has("tag_solution", "tag_witness", "tp-opening"), None),
    (_has("tp-question"), _question),
    (_has("tp-margin"), _note),
    (_has("cell"), _cell),
    (_has("tp-table"), _table),
)
