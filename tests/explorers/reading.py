"""One frame of a stored explorer, compared with what a test has computed by another route.

    @check_explorer("explore-beta", {"β": "1.702"})
    def test_swish_between_a_line_and_relu():
        x = np.arange(-60, 61) / 10
        swish = x / (1 + np.exp(-1.702 * x))
        said = says("β = {} its smallest value is {} ...", 1.702, swish.min(), ...)
        return Seen(said, Lines("value", x, {"Swish": swish}, ...))

What is read is the page: the bytes of the frame that these settings of the controls show, the ticks
that give them a meaning, the labels, and the sentence.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import importlib
import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from book.chapters import chapters, read
from book.chapters import topic as topic_of
from book.explorer import MISSING, Axis, Bars, Grid, Heat, Lines, Points, Scene, unpacked

from .reading_scenes import cell_differences, cell_faults, scene_differences, scene_faults

STEPS = 254
# A place on the page is rounded to four digits (book.explorer), and a byte to half a step.
PLACE = 1e-4
HALF = 0.5 + 0.05
_ISLAND = re.compile(r'<script type="application/json" class="tp-spec">(.*?)</script>', re.S)
_NUMBER = re.compile(
    r"(?P<sign>(?<![\w.)\]])[+\-−])?(?P<digits>\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?P<rest>\.\d+)?"
    r"(?:e(?P<power>[+-]?\d+(?:\.\d+)?))?(?P<percent>%)?"
)


@dataclass
class Seen:
    """What a test has computed: the sentence, in pieces, and the panels."""

    says: list[Any]
    panels: tuple[Any, ...] = field(default=())

    def __init__(self, says: list[Any], *panels: Any) -> None:
        self.says, self.panels = says, panels


def says(template: str, *numbers: Any) -> list[Any]:
    """The pieces of a sentence: words that must stand there in this order, and numbers at `{}`.

    Between two pieces, and at "...", there may be any words but no digit, so that every number of
    the sentence is computed. An int must stand there exactly, a float as its rounding, and what
    stands before "%" is a fraction.
    """
    pieces = template.split("{}")
    if len(pieces) != len(numbers) + 1:
        raise ValueError(f"{len(numbers)} numbers for {len(pieces) - 1} places in {template!r}")
    words = [[word.strip() for word in piece.split("...")] for piece in pieces]
    mixed: list[Any] = [word for word in words[0] if word]
    for number, after in zip(numbers, words[1:], strict=True):
        mixed += [number, *(word for word in after if word)]
    return mixed


# ---------------------------------------------------------------- what is stored


@functools.cache
def explorers(topic: str) -> dict[str, dict[str, Any]]:
    """The explorers that a chapter's notebook stores: id of the cell -> description."""
    [path] = [p for p in chapters() if topic_of(p) == topic]
    found = {}
    for cell in read(path).cells:
        for output in cell.get("outputs", []):
            text = "".join(output.get("data", {}).get("text/html", ""))
            for island in _ISLAND.findall(text):
                if cell.id in found:
                    raise ValueError(f"{path.name}, {cell.id}: two explorers in one cell")
                found[cell.id] = unpacked(json.loads(island))
    return found


def frame_at(spec: dict[str, Any], at: dict[str, str]) -> int:
    """The number of the frame that these settings show; the last control runs fastest."""
    labels = [control["label"] for control in spec["controls"]]
    if sorted(labels) != sorted(at):
        raise ValueError(f"the controls are {labels}, not {list(at)}")
    number = 0
    for control in spec["controls"]:
        if control["values"].count(at[control["label"]]) != 1:
            raise ValueError(f"{control['label']!r} has no single {at[control['label']]!r}")
        number = number * len(control["values"]) + control["values"].index(at[control["label"]])
    return number


def first_frame(spec: dict[str, Any]) -> int:
    """The number of the frame that a reader sees first."""
    return frame_at(spec, {c["label"]: c["values"][c["start"]] for c in spec["controls"]})


def steps_of(spec: dict[str, Any], panel: dict[str, Any], number: int) -> Any:
    """The bytes of a panel in one frame, as they lie: one series after the other."""
    every = np.frombuffer(base64.b64decode(panel["data"]["bytes"]), np.uint8)
    return every.reshape(len(spec["sentences"]), -1)[number].astype(int)


# ---------------------------------------------------------------- the page against the test


def differences(
    spec: dict[str, Any], at: dict[str, str], seen: Seen, sound: dict[str, Any] | None = None
) -> list[str]:
    """What this frame shows otherwise than was computed, one line each.

    `sound` is the explorer of which `spec` is a copy with a fault, if it was found to show what was
    computed: the shapes that both share are then not compared again.
    """
    try:
        number = frame_at(spec, at)
    except ValueError as error:
        return [str(error)]
    found = list(_misspoken(spec["sentences"][number], seen.says))
    titles = [p.title for p in seen.panels]
    if [p["title"] for p in spec["panels"]] != titles:
        return [*found, f"the panels are {[p['title'] for p in spec['panels']]}, not {titles}"]
    at_home = sound is not None and sound["controls"] is spec["controls"]
    good = sound["panels"] if sound and at_home else [None] * len(titles)
    for panel, ours, other in zip(spec["panels"], seen.panels, good, strict=True):
        wrong = _panel_differences(spec, panel, ours, number, other)
        found += [f"{ours.title!r}: {d}" for d in wrong]
    return found


def numbers_in(sentence: str) -> list[re.Match[str]]:
    """Every number of a sentence."""
    return list(_NUMBER.finditer(sentence))


def _misspoken(sentence: str, says: list[Any]) -> Iterator[str]:
    """Follow the pieces through the sentence: no digit of it may be passed over."""
    place = 0
    for piece in says:
        if isinstance(piece, str):
            at = sentence.find(piece, place)
            if at < 0 or re.search(r"\d", sentence[place:at]):
                yield f"{sentence!r} does not say {piece!r} next after {sentence[:place]!r}"
                return
            place = at + len(piece)
            continue
        number = _NUMBER.search(sentence, place)
        if number is None or not _is_said(number, piece):
            printed = number[0] if number else None
            yield f"{sentence!r} says {printed!r} where {piece!r} was computed"
            return
        place = number.end()
    if re.search(r"\d", sentence[place:]):
        yield f"{sentence!r} says more than was computed: {sentence[place:]!r}"


def _is_said(number: re.Match[str], value: Any) -> bool:
    """Whether a number is printed like this: exactly if it is whole, else as its rounding."""
    digits = (number["digits"].replace(",", "")) + (number["rest"] or "")
    power = float(number["power"] or 0)
    printed = float(digits) * 10**power * (-1 if number["sign"] in ("-", "−") else 1)
    if isinstance(value, int):
        return printed == value and not number["percent"]
    step = 10 ** (power - len((number["rest"] or ".")[1:]))
    value = float(value) * (100 if number["percent"] else 1)
    return abs(value - printed) <= 0.5 * step * (1 + 1e-6)


def _panel_differences(
    spec: dict[str, Any],
    panel: dict[str, Any],
    ours: Any,
    number: int,
    sound: dict[str, Any] | None = None,
) -> Iterator[str]:
    for name in ("kind", "xlabel", "ylabel"):
        if panel[name] != getattr(ours, name):
            yield f"{name} is {panel[name]!r}, not {getattr(ours, name)!r}"
            return
    if isinstance(ours, Scene):
        yield from scene_differences(spec, panel, ours, number, sound)
        return
    values, steps = ours.values(), steps_of(spec, panel, number)
    if isinstance(ours, Heat | Grid):
        limits = ours.limits or tuple(_tick(end) for end in panel["ends"])
        if "ends" in panel and panel["ends"] != [f"{v:.3g}".replace("-", "−") for v in limits]:
            yield f"the colors span {panel['ends']}, not {limits}"
        yield from cell_differences(spec, panel, ours, number)
        if panel["diverging"] != ours.diverging:
            yield f"diverging is {panel['diverging']}"
        if (panel["rows"], panel["columns"]) != values[0].shape:
            yield f"{panel['rows']} × {panel['columns']} cells, not {values[0].shape}"
            return
        wanted = [Axis(*limits).fraction(values[0])]
        names, parts = ["cells"], [steps]
        # Limits that are read from the page have three digits.
        slack = 0.0 if ours.limits else 0.01
    else:
        names = [s["label"] for s in panel["series"]]
        if names != list(ours.series):
            yield f"the series are {names}, not {list(ours.series)}"
            return
        y, slack = _axis(panel["yticks"], getattr(ours, "yscale", "linear"))
        if isinstance(ours, Points):
            x, more = _axis(panel["xticks"], "linear")
            slack = max(slack, more)
            wanted = [np.stack([x(v[:, 0]), y(v[:, 1])], -1) for v in values]
            if [s["count"] for s in panel["series"]] != [len(v) for v in values]:
                yield "not as many dots"
                return
        else:
            wanted = [y(v) for v in values]
        parts = np.split(steps, np.cumsum([w.size for w in wanted])[:-1])
    yield from _places(panel, ours)
    for name, part, fractions in zip(names, parts, wanted, strict=True):
        fractions = fractions.ravel()
        if part.shape != fractions.shape:
            yield f"{name!r} has {part.size} values, not {fractions.size}"
        elif ((part == MISSING) != np.isnan(fractions)).any():
            yield f"{name!r} is drawn at {(part != MISSING).sum()} places, not those computed"
        else:
            off = np.abs(part - STEPS * fractions)[part != MISSING]
            if off.size and off.max() > HALF + STEPS * slack:
                yield f"{name!r} is off by up to {off.max():.1f} of {STEPS} steps"


def _places(panel: dict[str, Any], ours: Any) -> Iterator[str]:
    """Whether the places along x, and the zero of bars, are the computed ones."""
    if isinstance(ours, Lines):
        x, slack = _axis(panel["xticks"], ours.xscale)
        fractions = x(np.asarray(ours.x, dtype=float))
        if fractions.shape != (len(panel["x"]),):
            yield f"{len(panel['x'])} places on x, not {fractions.size}"
        elif np.abs(fractions - panel["x"]).max() > PLACE + slack:
            yield "the places on x are not those of the values computed"
    if isinstance(ours, Bars):
        if panel["labels"] != list(ours.labels) or [s for _, s in panel["xticks"]] != list(
            ours.labels
        ):
            yield f"the bars are {panel['labels']}, not {list(ours.labels)}"
        y, slack = _axis(panel["yticks"], "linear")
        if abs(float(y(np.zeros(1))[0]) - panel["zero"]) > PLACE + slack:
            yield "the bars do not stand on zero"


def _axis(ticks: list[list[Any]], scale: str) -> tuple[Any, float]:
    """Value -> place on the axis, as its first and last tick say, and how sure that is."""
    places = np.array([place for place, _ in ticks])
    marks = np.array([_tick(label) for _, label in ticks])
    to_scale = np.log10 if scale == "log" else np.asarray
    marks = to_scale(marks)
    slope = (places[-1] - places[0]) / (marks[-1] - marks[0])
    slack = PLACE / (places[-1] - places[0])
    if np.abs(places[0] + slope * (marks - marks[0]) - places).max() > 2 * PLACE:
        raise AssertionError(f"the ticks {[label for _, label in ticks]} lie on no {scale} axis")

    def place_of(values: Any) -> Any:
        values = np.asarray(values, dtype=float)
        if scale == "log":
            values = np.where(values > 0, values, np.nan)
        with np.errstate(invalid="ignore"):
            fractions = np.clip(places[0] + slope * (to_scale(values) - marks[0]), 0, 1)
        return np.where(np.isneginf(values), np.nan, fractions)

    return place_of, slack


_SUPERSCRIPT = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


def _tick(label: str) -> float:
    if re.fullmatch("10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+", label):
        return 10.0 ** int(label[2:].translate(_SUPERSCRIPT))
    return float(label.replace("−", "-"))


# ---------------------------------------------------------------- the tests


@dataclass(frozen=True)
class Check:
    """Which explorer a test looks at, and at which setting of its controls."""

    topic: str
    cell: str
    at: dict[str, str]

    @property
    def spec(self) -> dict[str, Any]:
        """What the notebook stores."""
        return explorers(self.topic)[self.cell]


CHECKS: list[Check] = []


@contextlib.contextmanager
def _exact() -> Iterator[None]:
    """The chapters compute in float64; their random numbers come from it too.

    One thread: the models are tiny, and more would only wait for each other.
    """
    dtype, threads = torch.get_default_dtype(), torch.get_num_threads()
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_default_dtype(dtype)
        torch.set_num_threads(threads)


def check_explorer(cell: str, at: dict[str, str]) -> Any:
    """Make a test of a function that computes anew what this explorer shows at this setting.

    The page must agree with it, and every planted fault must not: both at once, because what the
    trained models show takes seconds to compute.
    """

    def decorate(recompute: Any) -> Any:
        check = Check(recompute.__module__.rpartition("test_")[2], cell, at)
        CHECKS.append(check)

        @functools.wraps(recompute)
        def test() -> None:
            spec = check.spec
            number = frame_at(spec, at)
            assert number != first_frame(spec), "any frame but the one that is seen first"
            with _exact():
                seen = recompute()
            assert differences(spec, at, seen) == []
            planted = list(faults(spec, number))
            missed = [name for name, wrong in planted if not differences(wrong, at, seen, spec)]
            assert len(planted) > len(spec["panels"]) + len(numbers_in(spec["sentences"][number]))
            assert missed == []

        return test

    return decorate


def every_check() -> list[Check]:
    """The tests of all explorers of the book."""
    for path in chapters():
        importlib.import_module(f".test_{topic_of(path)}", __package__)
    return sorted(CHECKS, key=lambda check: (check.topic, check.cell))


# ---------------------------------------------------------------- faults


def faults(spec: dict[str, Any], number: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Copies of an explorer with one fault each that is seen in this frame."""
    sentence = spec["sentences"][number]
    for match in numbers_in(sentence):
        last = max(k for k in range(match.start(), match.end()) if sentence[k].isdigit())
        wrong = str((int(sentence[last]) + 5) % 10)
        said = [*spec["sentences"]]
        said[number] = sentence[:last] + wrong + sentence[last + 1 :]
        yield f"{match[0]} in the sentence", spec | {"sentences": said}
    for k, control in enumerate(spec["controls"]):
        rolled = control | {"values": control["values"][1:] + control["values"][:1]}
        if _moves(spec, k, number):
            controls = [*spec["controls"][:k], rolled, *spec["controls"][k + 1 :]]
            yield f"the values of {control['label']!r} moved by one", spec | {"controls": controls}
    for k, panel in enumerate(spec["panels"]):
        for name, changed in _panel_faults(spec, panel, number):
            panels = [*spec["panels"][:k], changed, *spec["panels"][k + 1 :]]
            yield f"{panel['title']!r}, {name}", spec | {"panels": panels}


def _moves(spec: dict[str, Any], control: int, number: int) -> bool:
    """Whether the frame before in this control shows anything else."""
    sizes = [len(c["values"]) for c in spec["controls"]]
    place = [*np.unravel_index(number, sizes)]
    place[control] = (place[control] - 1) % sizes[control]
    other = int(np.ravel_multi_index(place, sizes))
    return spec["sentences"][number] != spec["sentences"][other] or any(
        np.abs(steps_of(spec, p, number) - steps_of(spec, p, other)).max() > 2
        for p in spec["panels"]
        if "data" in p
    )


def _panel_faults(
    spec: dict[str, Any], panel: dict[str, Any], number: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "another unit on y", panel | {"ylabel": panel["ylabel"] + ", squared"}
    if panel["kind"] == "scene":
        yield from scene_faults(spec, panel, number)
        return
    if panel["kind"] in ("heat", "grid"):
        yield from cell_faults(spec, panel, number)
    if panel["xlabel"] != panel["ylabel"]:
        names = {"xlabel": panel["ylabel"], "ylabel": panel["xlabel"]}
        yield "the names of the axes exchanged", panel | names
    steps = steps_of(spec, panel, number)
    series = panel.get("series", [])
    counts = [2 * s["count"] if "count" in s else steps.size // len(series) for s in series]
    parts = np.split(steps, np.cumsum(counts)[:-1]) if series else [steps]
    for k, part in enumerate(parts):
        seen = part != MISSING
        if not seen.any():
            continue
        # Away from the edge, where every value beyond the limits lies.
        scaled = np.where(part > STEPS // 2, np.rint(part * 0.95), np.rint(part * 1.05) + 6)
        moved = [*parts[:k], np.where(seen, scaled, part), *parts[k + 1 :]]
        name = series[k]["label"] if series else "cells"
        yield f"{name!r} scaled", _with(spec, panel, number, np.concatenate(moved))
    for a, b in itertools.combinations(range(len(series)), 2):
        if len(parts[a]) == len(parts[b]) and np.abs(parts[a] - parts[b]).max() > 2:
            labels = [s["label"] for s in series]
            labels[a], labels[b] = labels[b], labels[a]
            renamed = [s | {"label": name} for s, name in zip(series, labels, strict=True)]
            yield f"{labels[a]!r} called {labels[b]!r}", panel | {"series": renamed}
    turned = np.concatenate([part.reshape(-1, _width(panel))[::-1].ravel() for part in parts])
    if np.abs(turned - steps).max() > 2:
        yield "the other way round", _with(spec, panel, number, turned)


def _width(panel: dict[str, Any]) -> int:
    """How many bytes lie side by side: the columns of a matrix, x and y of a dot."""
    kind = panel["kind"]
    return panel["columns"] if kind in ("heat", "grid") else 2 if kind == "points" else 1


def _with(spec: dict[str, Any], panel: dict[str, Any], number: int, steps: Any) -> dict[str, Any]:
    every = np.frombuffer(base64.b64decode(panel["data"]["bytes"]), np.uint8)
    every = every.reshape(len(spec["sentences"]), -1).copy()
    every[number] = steps
    return panel | {"data": {"bytes": base64.b64encode(every.tobytes()).decode()}}
