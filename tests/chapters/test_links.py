"""The text of a link says where it leads: misconceptions, chapters and equations of chapters."""

import re

import pytest

from book import errata
from book.chapters import ROOT, chapters, read
from book.links import LINK, Book, problems
from book.lint import labels

# File -> its pieces of Markdown, by the id of the cell.
TEXTS = {
    path.stem: {c.id: c.source for c in read(path).cells if c.cell_type == "markdown"}
    for path in chapters()
} | {
    path.relative_to(ROOT).as_posix(): {"": path.read_text(encoding="utf-8")}
    for path in (
        *sorted((ROOT / "book").glob("*.yml")),
        *sorted((ROOT / "book/errata").glob("*.yml")),
        *sorted((ROOT / "book/pages").glob("*.md")),
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
    )
}
BOOK = Book(
    titles={path.stem: read(path).cells[0].source.splitlines()[0][2:] for path in chapters()},
    entries={entry.id for entry in errata.load()},
    equations={label: path.stem for path in chapters() for label in labels(read(path))},
)
# Links of the book whose text holds the number of what they lead to.
NUMBERED = [
    match[0]
    for texts in TEXTS.values()
    for text in texts.values()
    for match in LINK.finditer(text)
    if re.fullmatch(r"[EP]-\d+|(?:[Cc]hapter )?\d\d(?: ·.*)?", match["text"])
    and re.search(r"#[ep]-\d+$|\d\d_\w+\.ipynb", match["address"])
]


@pytest.mark.parametrize("place", TEXTS)
def test_every_link_leads_where_it_says(place):
    found = {cell: list(problems(text, BOOK)) for cell, text in TEXTS[place].items()}
    assert {cell: said for cell, said in found.items() if said} == {}


def test_another_number_in_the_text_or_in_the_address_of_any_link_is_found():
    assert len(NUMBERED) > 100
    for link in sorted(set(NUMBERED)):
        for other in with_another_number(link):
            assert list(problems(other, BOOK)), f"nobody noticed {other} in place of {link}"


def with_another_number(link):
    """The link with the number of something else that exists, in its text or in its address."""
    said, address = LINK.fullmatch(link).groups()
    number = re.search(r"\d+", said)[0]
    entry = re.fullmatch(r"[EP]-\d+", said)
    kind = said[0]
    known = [e[2:] for e in BOOK.entries if e[0] == kind] if entry else [s[:2] for s in BOOK.titles]
    for other in sorted({*known} - {number})[:3]:
        yield f"[{said.replace(number, other)}]({address})"
        if entry:
            there = re.sub(r"#([ep])-\d+$", rf"#\g<1>-{other}", address)
        else:
            stem = next(s for s in BOOK.titles if s.startswith(other))
            there = re.sub(r"\d\d_\w+\.ipynb", f"{stem}.ipynb", address)
        yield f"[{said}]({there})"


PAGE = "../book/pages/misconceptions.md"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"see [E-13]({PAGE}#e-31)", "says E-13 and leads to e-31"),
        ("see [E-13](#e-31)", "says E-13 and leads to e-31"),
        (f"see [E-2]({PAGE}#p-2)", "says E-2 and leads to p-2"),
        (f"see [E-13]({PAGE})", "leads to ../book/pages/misconceptions.md"),
        (f"see [this one]({PAGE}#e-13)", "says no id and leads to e-13"),
        (f"see [E-13, E-14]({PAGE}#e-13)", "says E-13 and E-14"),
        ("as E-999 says", "there is no misconception E-999"),
        ("see [05](06_activations.ipynb)", "[05] leads to chapter 06"),
        ("see [chapter 05](06_activations.ipynb#build)", "[chapter 05] leads to chapter 06"),
        ("see [Chapter\n05](06_activations.ipynb)", "[Chapter 05] leads to chapter 06"),
        ("see [5](../../notebooks/06_activations.ipynb)", "[5] leads to chapter 06"),
        ("see [05 · Attention](06_activations.ipynb)", "leads to chapter 06"),
        ("see [06 · Attention](06_activations.ipynb)", "the topic of 05"),
        ("see [Attention](06_activations.ipynb)", "the topic of 05"),
        ("see [rotary embedding](06_activations.ipynb)", "the topic of 04, 11"),
        ("see [06](06_attention.ipynb)", "which is no chapter"),
        ("see chapter 93 for it", "there is no chapter 93"),
        ("{eq}`eq-softmax-jacobian` of chapter 04", "it stands in 03"),
        ("(chapter 12, {eq}`eq-softmax-jacobian`)", "it stands in 03"),
    ],
)
def test_a_planted_fault_is_named(text, said):
    [problem, *_] = problems(text, BOOK)
    assert said in problem


@pytest.mark.parametrize(
    "text",
    [
        f"see [E-13]({PAGE}#e-13) and [P-1](#p-1)",
        f"on the [misconceptions page]({PAGE})",
        "see [05](05_attention.ipynb) and [Chapter 5](05_attention.ipynb#the-corners)",
        "see [the corners](05_attention.ipynb#the-corners) and [below](#the-corners)",
        "see [05 · Attention](../../notebooks/05_attention.ipynb#build)",
        "a paper of [2017](https://example.org/05_attention.html), [CC BY 4.0](LICENSE.md)",
        "{eq}`eq-softmax-jacobian` of chapter 03, (chapter 03, {eq}`eq-softmax-jacobian`)",
    ],
)
def test_what_is_right_passes(text):
    assert list(problems(text, BOOK)) == []
