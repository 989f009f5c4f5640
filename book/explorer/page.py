"""The page of an explorer: title, controls, sentence, drawings, and the description."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from typing import Any

from book.explorer.columns import every_text, text_at
from book.explorer.draw import drawing, key_mark


def page(spec: Mapping[str, Any]) -> str:
    """What a page shows of a description: all of it before, and without, a script."""
    sizes = [len(control["values"]) for control in spec["controls"]]
    state = [control["start"] for control in spec["controls"]]
    says = text_at(spec["sentences"], state, sizes)
    longest = max([says, *every_text(spec["sentences"], sizes)], key=len)
    island = json.dumps(spec, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    panels = (_panel(panel, drawing(panel, sizes, state, says), sizes) for panel in spec["panels"])
    return (
        '<div class="tp-explorer">'
        f'<p class="tp-title">{escape(spec["title"])}</p>'
        f'<div class="tp-controls" role="group" aria-label="{escape(spec["title"])}">'
        f"{''.join(map(control_html, spec['controls']))}</div>"
        f'<div class="tp-says" data-longest="{escape(longest)}">'
        f'<p class="tp-sentence" role="status" aria-live="polite">{escape(says)}</p></div>'
        f'<div class="tp-panels">{"".join(panels)}</div>'
        '<p class="tp-hint">Run the cell above to move the controls.</p>'
        '<script type="application/json" class="tp-spec">'
        f"{island.replace('<', chr(92) + 'u003c')}</script></div>"
    )


def control_html(control: Mapping[str, Any]) -> str:
    """A control that waits for its script."""
    kind, name = control["kind"], escape(control["label"])
    now = escape(control["values"][control["start"]])
    hidden = " tp-hidden" if control.get("hidden") else ""
    longest = escape(max(control["values"], key=len))
    off = 'disabled autocomplete="off"'
    if kind == "choice":
        options = "".join(
            f'<option value="{k}"{" selected" if k == control["start"] else ""}>{escape(value)}'
            "</option>"
            for k, value in enumerate(control["values"])
        )
        inside = f"<label><span>{name}</span> <select {off}>{options}</select></label>"
    elif kind == "slider":
        inside = (
            f'<label><span>{name}</span> <input type="range" min="0" '
            f'max="{len(control["values"]) - 1}" step="1" value="{control["start"]}" '
            f'aria-valuetext="{now}" {off}></label>'
            f'<output data-longest="{longest}"><span>{now}</span></output>'
            f'<button type="button" class="tp-play" aria-label="Play: {name}" {off}>▶</button>'
        )
    elif kind == "steps":
        inside = (
            f'<span>{name}</span> <button type="button" class="tp-back" {off}>‹ Back</button>'
            f'<span class="tp-count">{control["start"] + 1} of {len(control["values"])}</span>'
            f'<button type="button" class="tp-next" {off}>Next ›</button>'
        )
        if control["values"] != [str(k + 1) for k in range(len(control["values"]))]:
            inside += (
                f'<output class="tp-caption" data-longest="{longest}"><span>{now}</span></output>'
            )
    else:
        buttons = "".join(
            f'<button type="button" aria-pressed="{str(k == control["start"]).lower()}" {off}>'
            f"{escape(value)}</button>"
            for k, value in enumerate(control["values"])
            if k
        )
        inside = (
            f"<span>{name}</span> {buttons}"
            f'<button type="button" class="tp-again" {off}>Guess again</button>'
        )
    role = f' role="group" aria-label="{name}"' if kind in ("steps", "guess") else ""
    return f'<div class="tp-control tp-{kind}{hidden}"{role}>{inside}</div>'


def _panel(panel: Mapping[str, Any], svg: str, sizes: list[int]) -> str:
    breadth = panel.get("breadth", "")
    if not breadth and panel["kind"] == "scene" and panel["plane"]["width"] <= 200:
        breadth = "small"
    title = f'<p class="tp-paneltitle">{escape(panel["title"])}</p>' if panel["title"] else ""
    answers = ""
    if longest := _longest_detail(panel, sizes):
        answers = f'<p class="tp-detail" data-longest="{escape(longest)}"></p>'
    return (
        f'<div class="tp-panel{f" tp-{breadth}" if breadth else ""}">'
        f"{title}{svg}{answers}{_key(panel)}</div>"
    )


def _longest_detail(panel: Mapping[str, Any], sizes: list[int]) -> str:
    columns = panel.get("details", [])
    columns = columns or [one["detail"] for one in panel.get("shapes", []) if "detail" in one]
    return max((text for c in columns for text in every_text(c, sizes)), key=len, default="")


def _key(panel: Mapping[str, Any]) -> str:
    series = panel.get("series", [])
    if len(series) < 2:
        return ""
    entries = "".join(
        f"<li>{key_mark(panel, s)}{escape(one['label'])}</li>" for s, one in enumerate(series)
    )
    return f'<ul class="tp-key">{entries}</ul>'
