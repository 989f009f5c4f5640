"""The X-ray page: what the book's own model does with a text that the reader types.

The script of the page is written into one file of the site together with the model's files, and a
page loads it when the reader asks for it: `run.js` is the forward pass, `floor.js` the grammar,
`arithmetic.js` says where each number comes from; `xray.js` shows the text and what the model makes
of it, `switches.js` takes parts out, `tensors.js` opens every tensor, `writing.js` writes on.
`as_markdown` draws the first frame, which needs no script: the values stand in `first.json`,
computed by torch (`python -m book.xray`), so that building the site needs no torch.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from book.chapters import ROOT
from book.stories import BEGIN, END, VOCABULARY, grammar, words

HERE = Path(__file__).parent
MODEL = ROOT / "model"
FIRST = HERE / "first.json"
SCRIPTS = tuple(
    HERE / f"{name}.js"
    for name in ("run", "floor", "arithmetic", "switches", "tensors", "writing", "xray")
)
EXAMPLES = HERE / "examples.json"

# ---------------------------------------------------------------- the file of the model


def language() -> dict[str, Any]:
    """What `floor.js` has to know of the language's words and numbers."""
    return {
        "begin": BEGIN,
        "end": END,
        "names": words.NAMES,
        "pronoun": words.PRONOUN,
        "things": words.THINGS,
        "colours": words.COLOURS,
        "places": words.PLACES,
        "at": words.AT,
        "forms": words.FORMS,
        "verbs": words.VERBS,
        "numbers": words.NUMBERS,
        "syllables": words.SYLLABLES,
        "weather": words.WEATHER,
        "partOfDay": words.PART_OF_DAY,
        "anything": words.ANYTHING,
        "asking": grammar.ASKING,
        "often": grammar.OFTEN,
        "least": grammar.LEAST,
        "fewest": grammar.FEWEST,
        "most": grammar.MOST,
    }


@cache
def script() -> str:
    """The file that the page loads: the script and the model, its weights as they are stored."""
    lines: list[str] = []
    for path in SCRIPTS:
        lines += [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    ours = "\n".join(line for line in lines if line and not line.startswith("//"))
    given = {
        "config": json.loads((MODEL / "config.json").read_text(encoding="utf-8")),
        "vocabulary": VOCABULARY,
        "language": language(),
        "first": {name: first()[name] for name in ("words", "at")},
        "examples": examples(),
        "file": base64.b64encode((MODEL / "model.safetensors").read_bytes()).decode(),
    }
    return (
        f'(() => {{\n"use strict";\n{ours}\nconst model = unpacked({json.dumps(given)});\n'
        "globalThis.tpXray = { model, run, follow, near, writer, chosen, explain, viewOf,\n"
        "TENSORS, start: (box) => start(box, model) };\n"
        "})();\n"
    )


def name() -> str:
    """What the file is called, by its content."""
    return f"xray-{hashlib.sha256(script().encode()).hexdigest()[:8]}.js"


def write(static: Path) -> None:
    """Write the file, instead of one that had another content before."""
    for old in static.glob("xray-????????.js"):
        old.unlink()
    (static / name()).write_text(script(), encoding="utf-8")


# ---------------------------------------------------------------- the first frame


@cache
def first() -> dict[str, Any]:
    """What torch computed for the text of the first frame, see `book.xray.compute`."""
    content: dict[str, Any] = json.loads(FIRST.read_text(encoding="utf-8"))
    return content


def examples() -> list[dict[str, Any]]:
    """Texts to try: name, text, the word that is chosen, the head whose weights stand under it."""
    content: list[dict[str, Any]] = json.loads(EXAMPLES.read_text(encoding="utf-8"))
    return content


def as_markdown() -> str:
    """The frame as HTML, with the values of `first.json`; the script takes it over."""
    f = first()
    tokens, at = f["words"], f["at"]
    chosen, after = tokens[at], tokens[at + 1]
    p, exact = f["lens"][-1][3], f["exact"]
    chips = "".join(
        f'<span class="tp-xray-word tp-l{_of_surprise(s)}{" tp-on" if i == at else ""}">'
        f"{escape(word)} <small>{f'{s:.2f}' if i else ''}</small></span> "
        for i, (word, s) in enumerate(zip(tokens, [0.0, *f["surprises"]], strict=True))
    )
    rows = "".join(
        f'<tr><th scope="row">{escape(word)}</th><td>{_bar(x)}</td><td>{_said(x)}</td>'
        f"<td>{_said_exactly(language)}</td></tr>"
        for word, x, language in f["next"]
    )
    levels = "".join(
        f'<tr><th scope="row">{level}</th><td>{escape(word)}</td><td>{_said(x)}</td>'
        f"<td>{_said(of_after)}</td></tr>"
        for level, word, x, of_after in f["lens"]
    )
    figures = "".join(
        _figure(f"{layer}.{head}", weights, tokens, at)
        for layer, maps in enumerate(f["maps"])
        for head, weights in enumerate(maps)
    )
    megabytes = math.ceil(len(script()) / 1e5) / 10
    mean, floor = (sum(f[key]) / len(f[key]) for key in ("surprises", "floor"))
    return (
        f'<div class="tp-xray" data-file="../../_static/{name()}">'
        '<p class="tp-xray-ask tp-needs-script">'
        f'<button type="button">Load the model ({megabytes:.1f} MB)</button> '
        '<span role="status">Then type a text of your own.</span></p>'
        f'<p class="tp-xray-sum">{len(tokens) - 1} words. The mean surprise is {mean:.2f} nats per '
        f"word; the floor, below which no model can come on average, is {floor:.2f} for this "
        "text.</p>"
        f'<div class="tp-xray-words">{chips}</div>'
        f'<p class="tp-xray-told">After “{escape(chosen)}” comes “{escape(after)}”: probability '
        f"{_said(p)}, surprise {-math.log(p):.2f} nats; in the language itself "
        f"{_said_exactly(exact)}.</p>"
        '<div class="tp-xray-tables"><table class="tp-xray-next"><caption>What may come next'
        '</caption><thead><tr><th scope="col">word</th><th scope="col" colspan="2">probability'
        f'</th><th scope="col">language</th></tr></thead><tbody>{rows}</tbody></table>'
        '<table class="tp-xray-lens"><caption>What the model would say after each layer</caption>'
        '<thead><tr><th scope="col">after</th><th scope="col" colspan="2">likeliest</th>'
        f'<th scope="col">“{escape(after)}”</th></tr></thead><tbody>{levels}</tbody></table></div>'
        '<p class="tp-title">Who looks at whom</p>'
        '<p class="tp-xray-looks">Under each picture: the word that has most of the head’s weight '
        f"at “{escape(chosen)}”.</p>"
        f'<div class="tp-xray-heads">{figures}</div></div>'
    )


# The colors of the pictures where there is no style sheet, as in a reader for books.
_INK = "#b0487f"


def _of_weight(w: float) -> int:
    return min(9, int(10 * math.sqrt(w)))


def _of_surprise(s: float) -> int:
    return min(9, int(2 * s))


def _said(p: float) -> str:
    """A probability of the model, which is never quite 0 or 1."""
    return "&lt;0.001" if p < 0.0005 else "&gt;0.999" if p >= 0.9995 else f"{p:.3f}"


def _said_exactly(p: float) -> str:
    """A probability of the language, which can be."""
    return f"{p:.0f}" if p in (0, 1) else _said(p)


def _bar(p: float) -> str:
    return (
        '<svg class="tp-xray-bar" width="100" height="8" viewBox="0 0 100 8" '
        f'preserveAspectRatio="none" fill="{_INK}" aria-hidden="true">'
        f'<rect width="{100 * p:.2f}" height="8"/></svg>'
    )


def _figure(head: str, weights: Sequence[Sequence[int]], tokens: Sequence[str], at: int) -> str:
    """A picture of a head's weights, which are stored in thousandths."""
    size, paths = len(tokens), [""] * 10
    for i, row in enumerate(weights):
        for j, thousandths in enumerate(row):
            paths[_of_weight(thousandths / 1000)] += f"M{j} {i}h1"
    cells = "".join(
        f'<path d="{path}" opacity="{level / 9:.2f}"/>'
        for level, path in enumerate(paths)
        if level and path
    )
    most = max(range(at + 1), key=weights[at].__getitem__)
    return (
        f'<figure data-head="{head}"><svg width="150" height="150" viewBox="0 -0.5 {size} {size}" '
        f'fill="none" stroke="{_INK}" role="img" '
        f'aria-label="The weights of head {head}, a row for each word that looks, '
        'a column for each word that is looked at">'
        '<path class="tp-xray-ground" fill="#f4f5f4" stroke="none" '
        f'd="M0 -0.5L{size} {size - 0.5}H0z"/>{cells}'
        f'<rect class="tp-xray-row" fill="#17508c" stroke="none" opacity="0.25" '
        f'x="0" y="{at - 0.5}" width="{size}" height="1"/></svg>'
        f"<figcaption><b>head {head}</b> <span>{escape(tokens[most])} "
        f"{weights[at][most] / 1000:.2f}</span></figcaption></figure>"
    )


def words_as_markdown() -> str:
    """All words of the language, by what they are."""
    groups = {
        "People": words.NAMES,
        "Things": words.THINGS,
        "Colors": words.COLOURS,
        "Places": words.PLACES,
        "Verbs": [form for verb, both in words.FORMS.items() for form in (verb, *both)],
        "Numbers": words.NUMBERS,
        "Syllables": words.SYLLABLES,
        "Weather and time": [*words.WEATHER, *words.PART_OF_DAY],
    }
    grouped = {word for group in groups.values() for word in group}
    left = [w for w in VOCABULARY if w not in grouped and not w.startswith("<")]
    rows = "\n".join(f"**{title}**\n: {' '.join(group)}\n" for title, group in groups.items())
    return f"{rows}\n**All others**\n: {' '.join(left)}\n"
