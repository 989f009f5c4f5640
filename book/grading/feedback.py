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
import unicodedata
from pathlib import Path
from typing import Any

from book.grading import names

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


# The pages of a folder, by assignment: those of students who are gone are known by it.
MANIFEST = ".pages.json"


def write_all(
    rows: list[dict[str, Any]], *, table: Path | None, record: Path | None, pages: Path | None
) -> None:
    """Write what is asked for; each file is complete or not there.

    Each row gets the name of its page. Pages that an earlier run wrote, and that nobody has any
    more, are removed.
    """
    rows = sorted(rows, key=_order)
    if pages:
        write_pages(rows, pages)
    if record:
        write_record(rows, record)
    if table:
        write(table, csv_of(rows))


def write_record(rows: list[dict[str, Any]], record: Path) -> None:
    """Write everything that is known, for the teacher."""
    write(record, json.dumps(sorted(rows, key=_order), indent=1) + "\n")


def write_pages(rows: list[dict[str, Any]], folder: Path) -> None:
    """Write all pages, and remove those of students who are gone."""
    if not all("page" in row for row in rows):
        name_pages(rows, folder)
    for row in rows:
        write_page(row, folder)
    known = _manifest(folder)
    for assignment in {row["assignment"] for row in rows}:
        now = sorted(r["page"] for r in rows if r["assignment"] == assignment and r["page"])
        for gone in set(known.get(assignment, [])) - set(now):
            # A name of the manifest's that leads elsewhere is not of this module's.
            if Path(gone).name == gone:
                (folder / gone).unlink(missing_ok=True)
        known[assignment] = now
    write(folder / MANIFEST, json.dumps(known, indent=1) + "\n")


def write_page(row: dict[str, Any], folder: Path) -> None:
    """Write a student's page, if the row has one."""
    if row.get("page"):
        write(folder / row["page"], page(row))


def name_pages(rows: list[dict[str, Any]], folder: Path) -> None:
    """Give each row the name of its page, which is the same in every run.

    `rows` are those of all students, or what is known of them before: student, file and assignment.
    What was never handed in has no page. Pages of two assignments may lie in one folder.
    """
    named = names.page_names(r["student"] for r in rows)
    known = _manifest(folder)
    count: dict[str, int] = {}
    for row in sorted(rows, key=_order):
        row["page"] = ""
        if row.get("status") == "missing":
            continue
        taken = {n.casefold() for other, some in known.items() if other != row["assignment"]
                 for n in some}  # fmt: skip
        base = named[row["student"]]
        if f"{base}.html".casefold() in taken:
            base = f"{base} - {row['assignment']}"
        count[base] = count.get(base, 0) + 1
        row["page"] = f"{base}.html" if count[base] == 1 else f"{base} ({count[base]}).html"


def _manifest(folder: Path) -> dict[str, list[str]]:
    try:
        known = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return {str(k): [str(n) for n in some] for k, some in known.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def _order(row: dict[str, Any]) -> tuple[str, str]:
    return row["student"], row["file"]


def csv_of(rows: list[dict[str, Any]]) -> str:
    """One line per submission. A spreadsheet takes no cell of it for a formula.

    `id` is what a table is joined by: the roster's, or the name as it was handed in, unchanged
    unless a spreadsheet would run it.
    """
    tests = list(dict.fromkeys(t["id"] for r in rows for t in r["tests"]))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["id", "student", "email", "section", "assignment", "score", "max", *tests, "status",
         "counts", "late", "days_late", "late_days", "deduction", "reason", "remarks",
         "alike", "seconds", "cut", "by_hand", "page", "file"]
    )  # fmt: skip
    for row in sorted(rows, key=_order):
        points = {t["id"]: t["score"] for t in row["tests"]}
        writer.writerow(
            [
                _key(row.get("id", row["student"])), _plain(row["student"]),
                _plain(row.get("email", "")), _plain(row.get("section", "")), row["assignment"],
                _number(row["score"]), _number(row["max"]),
                *(_number(points.get(t, 0)) for t in tests), row["status"],
                "yes" if row.get("counts", True) else "no", "yes" if row.get("late") else "no",
                *(f"{row[k]:g}" if row.get(k) is not None else ""
                  for k in ("days_late", "late_days", "deduction")),
                _plain(row["reason"]), _plain("; ".join(row["remarks"])),
                _plain("; ".join(row.get("alike", []))), row["seconds"],
                row["cut"], " ".join(row["by_hand"]), _plain(row.get("page", "")),
                _plain(row["file"]),
            ]
        )  # fmt: skip
    # A byte order mark, or a spreadsheet on Windows takes Chinese names for something else.
    return "\ufeff" + out.getvalue()


def _plain(text: str) -> str:
    text = re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", "?", text).replace("\n", " ")
    # The wide forms of these signs too.
    first = unicodedata.normalize("NFKC", text.lstrip()[:1])
    return "'" + text if first in ("=", "+", "-", "@", "\t") and first else text


def _key(text: str) -> str:
    """An id as it is: `+49` and `@ann` are harmless, and what they are joined with has them so."""
    first = unicodedata.normalize("NFKC", text.lstrip()[:1])
    runs = first == "=" or re.search(r"""[(){}!|'"\[\],;\x00-\x1f]""", text)
    return _plain(text) if runs else text


def _number(value: float) -> str:
    return f"{value:g}"


def head(title: str) -> list[str]:
    """The lines of a page up to its body. Nothing runs in it, and nothing is fetched."""
    return [
        "<!doctype html>", '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">',
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'\">",
        f"<title>{escaped(title)}</title><style>{_STYLE}</style></head>",
    ]  # fmt: skip


def page(row: dict[str, Any]) -> str:
    """The student's page."""
    e = escaped
    parts = [
        *head(f"{row['assignment']}: {row['student']}"),
        f"<body><h1>{e(row['assignment'])}</h1>",
        f"<p>{e(row['student'])}: <strong>{_number(row['score'])} of {_number(row['max'])} points"
        "</strong></p>",
    ]  # fmt: skip
    if row["status"] != "graded":
        parts.append(f"<p class='why'>It could not be graded: {e(public(row['reason']))}</p>")
    if row["by_hand"]:
        parts.append(f"<p>Not in this sum, graded by hand: {e(', '.join(row['by_hand']))}</p>")
    parts.append("<table><tr><th>Test</th><th>Points</th><th>What was found</th></tr>")
    for test in row["tests"]:
        why = public(test["reason"]) or "right"
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


def public(reason: str) -> str:
    """A reason without the grader's own traceback, which may quote a test."""
    return "a fault of the grader" if reason.startswith("a fault of the grader") else reason


def escaped(text: str) -> str:
    """Text for a page, whatever it contains."""
    # Control characters could turn a page's text around; lone surrogates are no text at all.
    text = re.sub(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", "\ufffd", text)
    return html.escape(text.encode(errors="replace").decode())


def _lines(text: str) -> str:
    return "<br>".join(escaped(line) for line in text.split("\n"))


def write(path: Path, text: str) -> None:
    """Write a file that is complete or not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:40]}.")
    with os.fdopen(
        descriptor, "w", encoding="utf-8", errors="backslashreplace", newline=""
    ) as file:
        file.write(text)
    temporary = Path(name)
    temporary.chmod(0o644)
    temporary.replace(path)
