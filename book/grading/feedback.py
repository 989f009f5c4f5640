"""Writes the results: a table and a record for the teacher, a page for each student.

A student's page holds the reasons that `judge` made for students, and what the student's own cells
raised before any test ran. Everything in it is text to the browser, whatever it contains.
"""

from __future__ import annotations

import csv
import html
import io
import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

_STYLE = """
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem;
  color: #1b1b1b; background: #fff; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .4rem .6rem;
  border-bottom: 1px solid #bbb; }
td.n { text-align: right; white-space: nowrap; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #f2f2f2; padding: .6rem; }
.why { overflow-wrap: anywhere; }
@media (prefers-color-scheme: dark) { body { color: #e8e8e8; background: #161616; }
  pre { background: #262626; } th, td { border-color: #555; } }
"""


def write_all(
    rows: list[dict[str, Any]], *, table: Path | None, record: Path | None, pages: Path | None
) -> None:
    """Write what is asked for; each file is complete or not there."""
    rows = sorted(rows, key=lambda r: (r["student"], r["file"]))
    if record:
        _write(record, json.dumps(rows, indent=1) + "\n")
    if table:
        _write(table, csv_of(rows))
    if pages:
        names: set[str] = set()
        for row in rows:
            _write(pages / f"{_file_name(row, names)}.html", page(row))


def csv_of(rows: list[dict[str, Any]]) -> str:
    """One line per submission. A spreadsheet takes no cell of it for a formula."""
    tests = list(dict.fromkeys(t["id"] for r in rows for t in r["tests"]))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["student", "assignment", "score", "max", *tests, "status", "reason", "remarks",
         "seconds", "cut", "by_hand", "file"]
    )  # fmt: skip
    for row in rows:
        points = {t["id"]: t["score"] for t in row["tests"]}
        writer.writerow(
            [
                _plain(row["student"]), row["assignment"], _number(row["score"]),
                _number(row["max"]), *(_number(points.get(t, 0)) for t in tests), row["status"],
                _plain(row["reason"]), _plain("; ".join(row["remarks"])), row["seconds"],
                row["cut"], " ".join(row["by_hand"]), _plain(row["file"]),
            ]
        )  # fmt: skip
    # A byte order mark, or a spreadsheet on Windows takes Chinese names for something else.
    return "\ufeff" + out.getvalue()


def _plain(text: str) -> str:
    text = re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", "?", text).replace("\n", " ")
    return "'" + text if text.lstrip()[:1] in ("=", "+", "-", "@", "\t") else text


def _number(value: float) -> str:
    return f"{value:g}"


def page(row: dict[str, Any]) -> str:
    """The student's page."""
    e = _escaped
    parts = [
        "<!doctype html>", '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">',
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'\">",
        f"<title>{e(row['assignment'])}: {e(row['student'])}</title><style>{_STYLE}</style></head>",
        f"<body><h1>{e(row['assignment'])}</h1>",
        f"<p>{e(row['student'])}: <strong>{_number(row['score'])} of {_number(row['max'])} points"
        "</strong></p>",
    ]  # fmt: skip
    if row["status"] != "graded":
        parts.append(f"<p class='why'>It could not be graded: {e(_public(row['reason']))}</p>")
    if row["by_hand"]:
        parts.append(f"<p>Not in this sum, graded by hand: {e(', '.join(row['by_hand']))}</p>")
    parts.append("<table><tr><th>Test</th><th>Points</th><th>What was found</th></tr>")
    for test in row["tests"]:
        why = _public(test["reason"]) or "right"
        parts.append(
            f"<tr><td>{e(test['id'])}</td><td class='n'>{_number(test['score'])} of "
            f"{_number(test['max'])}</td><td class='why'>{_lines(why)}</td></tr>"
        )
    parts.append("</table>")
    wrong = [c for c in row["cells"] if c["error"]]
    if wrong:
        parts.append("<h2>Cells that did not run</h2>")
        for cell in wrong:
            error = cell["error"]
            said = "\n".join([f"{error['name']}: {error['text']}", *error["lines"]])
            parts.append(f"<h3>{e(cell['name'])}</h3><pre>{e(said)}</pre>")
    if row["remarks"]:
        parts.append("<h2>Remarks</h2><ul>")
        parts += [f"<li>{e(r)}</li>" for r in row["remarks"]]
        parts.append("</ul>")
    if row["cut"]:
        parts.append(f"<p>{row['cut']} characters of output were cut.</p>")
    parts.append("</body></html>\n")
    return "\n".join(parts)


def _public(reason: str) -> str:
    """A reason without the grader's own traceback, which may quote a test."""
    return "a fault of the grader" if reason.startswith("a fault of the grader") else reason


def _escaped(text: str) -> str:
    # Control characters could turn a page's text around; lone surrogates are no text at all.
    text = re.sub(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", "\ufffd", text)
    return html.escape(text.encode(errors="replace").decode())


def _lines(text: str) -> str:
    return "<br>".join(_escaped(line) for line in text.split("\n"))


def _file_name(row: dict[str, Any], taken: set[str]) -> str:
    """A name for the page that every file system takes; a student's second file gets a number."""
    base = re.sub(r"[^\w\-. ]", "_", row["student"], flags=re.UNICODE).strip(". ")[:80] or "unnamed"
    name, n = base, 1
    while name.casefold() in taken:
        n += 1
        name = f"{base} ({n})"
    taken.add(name.casefold())
    return name


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:40]}.")
    with os.fdopen(
        descriptor, "w", encoding="utf-8", errors="backslashreplace", newline=""
    ) as file:
        file.write(text)
    temporary = Path(name)
    temporary.chmod(0o644)
    temporary.replace(path)
