"""What a reader sets: sliders, lists, numbered steps, guesses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from book.explorer.columns import pack_numbers


@dataclass(frozen=True)
class Slider:
    """A range input over `values`; `show` turns a value into the text beside the slider.

    A `hidden` slider is seen only while it has the focus: for what is dragged in the picture.
    """

    label: str
    values: Sequence[Any]
    start: int = 0
    show: Callable[[Any], str] = "{:g}".format
    hidden: bool = False
    kind = "slider"

    def states(self) -> list[Any]:
        """What the frame function gets, one for each place of the control."""
        return list(self.values)

    def texts(self) -> list[str]:
        """What the page shows for each place of the control."""
        return [self.show(value) for value in self.values]


@dataclass(frozen=True)
class Choice:
    """A drop-down list of names."""

    label: str
    values: Sequence[Any]
    start: int = 0
    show: Callable[[Any], str] = str
    hidden: bool = False
    kind = "choice"

    def states(self) -> list[Any]:
        """What the frame function gets, one for each place of the control."""
        return list(self.values)

    def texts(self) -> list[str]:
        """What the page shows for each place of the control."""
        return [self.show(value) for value in self.values]


@dataclass(frozen=True)
class Steps:
    """Numbered steps with Back and Next; the frame function gets the number, from 0.

    `steps` is how many there are, or a caption for each.
    """

    label: str
    steps: int | Sequence[str]
    start: int = 0
    hidden: bool = False
    kind = "steps"

    def states(self) -> list[Any]:
        """What the frame function gets, one for each place of the control."""
        return list(range(self.steps if isinstance(self.steps, int) else len(self.steps)))

    def texts(self) -> list[str]:
        """What the page shows for each place of the control."""
        if isinstance(self.steps, int):
            return [str(number + 1) for number in range(self.steps)]
        return list(self.steps)


@dataclass(frozen=True)
class Guess:
    """Predict, then reveal: a button for each option; the frame function first gets `None`."""

    label: str
    options: Sequence[str]
    start: int = 0
    hidden: bool = False
    kind = "guess"

    def states(self) -> list[Any]:
        """What the frame function gets, one for each place of the control."""
        return [None, *self.options]

    def texts(self) -> list[str]:
        """What the page shows for each place of the control."""
        return ["no guess yet", *self.options]


Control = Slider | Choice | Steps | Guess


def chosen(wanted: Sequence[Mapping[str, Any]], states: Mapping[str, list[Any]]) -> dict[str, Any]:
    """What touching a shape chooses in each state: number of the control -> column of places.

    −1 stands for a state in which it does not touch that control.
    """
    found: dict[str, Any] = {}
    for name in dict.fromkeys(name for one in wanted for name in one):
        for value in (one[name] for one in wanted if name in one):
            if name not in states or value not in states[name]:
                raise ValueError(f"no control {name!r} has the value {value!r} to choose")
        places = [states[name].index(one[name]) if name in one else -1 for one in wanted]
        sizes = [len(values) for values in states.values()]
        found[str([*states].index(name))] = pack_numbers(np.array(places), sizes, 1)
    return found
