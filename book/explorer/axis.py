"""Axes: values as fractions of an axis, one byte each, and the ticks that give them a meaning."""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib.ticker import MaxNLocator

MISSING = 255
Scale = Literal["linear", "log"]
Limits = tuple[float, float] | None
Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Axis:
    """Maps values to fractions 0..1 of an axis, and says where its ticks are."""

    low: float
    high: float
    scale: Scale = "linear"

    @staticmethod
    def over(
        values: list[Array], limits: Limits, scale: Scale = "linear", pad: float = 0.04
    ) -> Axis:
        """The axis that holds all finite `values`, or exactly `limits`."""
        if limits is not None:
            return Axis(*limits, scale)
        v = _scaled(np.concatenate([np.ravel(v) for v in values]), scale)
        v = v[np.isfinite(v)]
        low, high = (float(v.min()), float(v.max())) if v.size else (0.0, 1.0)
        if low == high:
            low, high = low - 0.5, high + 0.5
        if pad:
            # Rounded outwards, so that the last bits of a value do not move the axis.
            gap, unit = pad * (high - low), 10.0 ** (math.floor(math.log10(high - low)) - 2)
            low = math.floor((low - gap) / unit + 1e-3) * unit
            high = math.ceil((high + gap) / unit - 1e-3) * unit
        return Axis(10.0**low, 10.0**high, scale) if scale == "log" else Axis(low, high)

    def fraction(self, values: Array) -> Array:
        """Values as fractions of the axis: cut off at its ends, nan where nothing is drawn."""
        low, high = (float(_scaled(np.array(end), self.scale)) for end in (self.low, self.high))
        v = _scaled(values, self.scale)
        fractions = np.clip((v - low) / (high - low), 0, 1)
        return np.where(np.isnan(v) | np.isneginf(v), np.nan, fractions)

    def ticks(self) -> list[list[Any]]:
        """[fraction, label] pairs."""
        marks: list[tuple[float, str]] = []
        if self.scale == "log":
            first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
            step = max(1, math.ceil((last - first) / 6))
            powers = range(first, last + 1, step)
            marks = [(10.0**k, "10" + str(k).translate(_SUPERSCRIPT)) for k in powers]
        if len(marks) < 2:
            found = MaxNLocator(nbins=6).tick_values(self.low, self.high)
            marks = [(v, f"{v:g}".replace("-", "−")) for v in found if self.low <= v <= self.high]
        return [[round(float(self.fraction(np.array([v]))[0]), 4), s] for v, s in marks]


def _scaled(values: Array, scale: Scale) -> Array:
    """The values themselves, or their exponents; what has none is nan."""
    if scale == "linear":
        return values
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(values > 0, np.log10(values), np.nan)


_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def array(values: Any) -> Array:
    """Tensors, lists and arrays alike, as float64."""
    detach = getattr(values, "detach", None)
    return np.asarray(detach() if detach else values, dtype=np.float64)


def to_bytes(values: list[Array], axis: Axis) -> dict[str, str]:
    """The values of all states, one byte each: 0 to 254 along the axis, 255 for nan."""
    fractions = axis.fraction(np.concatenate(values))
    steps = np.where(np.isnan(fractions), MISSING, np.rint(np.nan_to_num(fractions) * 254))
    return {"bytes": base64.b64encode(steps.astype(np.uint8).tobytes()).decode()}
