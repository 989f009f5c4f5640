"""Tables that a teacher or a platform wrote, whatever program it was: read, and written back.

Comma-, semicolon- or tab-separated values, in any of the encodings and with any of the line ends
that spreadsheets write. Nothing of such a table is lost without a word.
"""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import re
from dataclasses import dataclass
from pathlib import Path

from book.grading import names

# A cell may hold a whole answer. (More than a C long on Windows is refused.)
csv.field_size_limit(2**31 - 1)
# How the files begin that a spreadsheet saves for itself.
_WORKBOOKS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# The first line by which Excel is told what stands between the cells.
_SEP = re.compile(r'"?sep=(?P<sign>[^\r\n"])"?(?:\r\n|\r|\n|$)', re.I)
# Follows the last line: it is a line of its own unless a quotation mark is still open there.
_END = "\0end"


class TableError(ValueError):
    """A table that cannot be read; says which file and line, and what is wrong."""


@dataclass
class Table:
    """The cells of a table."""

    # Where it came from, for messages.
    path: str
    # The names of the columns as they stand, and without spaces around them.
    first: list[str]
    head: list[str]
    # The other lines that are not empty, each with its number in the file.
    lines: list[tuple[int, list[str]]]
    separator: str
    # What stands before the names of the columns.
    before: str = ""

    def text(self) -> str:
        """The table as it is to be written."""
        out = io.StringIO()
        writer = csv.writer(out, delimiter=self.separator, lineterminator="\r\n")
        writer.writerows([self.first, *(line for _, line in self.lines)])
        return self.before + out.getvalue()


def load(path: Path) -> Table:
    """The table in a file.

    Raises:
        TableError: if the file cannot be read, or is no table.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TableError(f"{path}: {error.strerror}") from None
    return read(data, str(path))


def read(data: bytes, path: str) -> Table:
    """The table in the content of the file `path`.

    Raises:
        TableError: if it is none.
    """
    if data.startswith(_WORKBOOKS):
        raise TableError(f"{path}: a spreadsheet's own file; save the table in it as CSV")
    return parse(decoded(data), path)


def parse(text: str, path: str) -> Table:
    """The table in a text, which came from `path`.

    Raises:
        TableError: if it is none.
    """
    sep = _SEP.match(text)
    before = sep[0] if sep else ""
    sign = sep["sign"] if sep else _separator(text)
    # Lines end as they do in the file, so that those within a cell stay what they are.
    source = io.StringIO(text[len(before) :], newline="")
    reader = csv.reader(itertools.chain(source, [_END]), delimiter=sign)
    number = skipped = len(re.findall(r"[\r\n]", before.replace("\r\n", "\n")))
    lines: list[tuple[int, list[str]]] = []
    try:
        for line in reader:
            begun, number = number + 1, skipped + reader.line_num
            if line and line[-1].endswith(_END):
                if line != [_END]:
                    raise TableError(f"{path}, line {begun}: a quotation mark is never closed")
            elif any(cell.strip() for cell in line):
                lines.append((begun, line))
    except csv.Error as error:
        raise TableError(f"{path}, line {number + 1}: {error}") from None
    first = lines[0][1] if lines else []
    return Table(path, first, [cell.strip() for cell in first], lines[1:], sign, before)


def _separator(text: str) -> str:
    """What stands between the cells: the most frequent sign of the first line, outside of cells."""
    first = re.match(r'[\r\n]*((?:[^"\r\n]|"[^"]*(?:"|$))*)', text)
    outside = re.sub(r'"[^"]*(?:"|$)', "", first[1]) if first else ""
    return max(",;\t", key=outside.count)


def plain(cell: str) -> str:
    """What a column is called, without case, spaces and signs."""
    return re.sub(r"\W|_", "", cell.casefold())


def number(text: str) -> float | None:
    """The number in a cell, with a decimal point or comma; None if it is none, or could be two.

    `1,000` is a thousand or one.
    """
    text = text.strip()
    if re.fullmatch(r"[+-]?\d{1,3}(?:,\d{3})+\.\d+", text, re.ASCII):
        text = text.replace(",", "")
    elif re.fullmatch(r"[+-]?\d{1,3}(?:\.\d{3})+,\d+", text, re.ASCII):
        text = text.replace(".", "")
    elif re.fullmatch(r"[+-]?[1-9]\d{0,2},\d{3}", text, re.ASCII):
        return None
    if not re.fullmatch(r"[+-]?\d+(?:[.,]\d*)?", text, re.ASCII):
        return None
    return float(text.replace(",", "."))


# ---- encodings


def decoded(data: bytes) -> str:
    """The text of a table, whatever program wrote it."""
    if codec := _codec(data):
        return data.decode(codec, "replace")
    return names.readable(data, "cp1252")


def encoded(text: str, like: bytes) -> bytes:
    """A text in the encoding of `like`, or in UTF-8 where that is only guessed."""
    return text.encode(_codec(like) or "utf-8")


def _codec(data: bytes) -> str:
    """The encoding of which there can be no doubt, or nothing."""
    if data.startswith(_UTF16):
        return "utf-16"
    if data.startswith(codecs.BOM_UTF8):
        return "utf-8-sig"
    # UTF-16 without its mark: there are zeros, and one of its two orders has none, but has what
    # every table has.
    for codec in ("utf-16-le", "utf-16-be") if b"\0" in data else ():
        try:
            text = data.decode(codec)
        except UnicodeDecodeError:
            continue
        if "\0" not in text and re.search(r"[,;\t\r\n]", text):
            return codec
    return ""
