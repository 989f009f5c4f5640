"""A device whose data sheet is lost, for the exercise that measures one."""

from __future__ import annotations

import random


class Device:
    """One layer on a device with a clock of its own: the same calls take the same time anywhere.

    A call waits for the longer of two, as many microseconds for each row or as long as the weights
    take. The first call with a number of rows is slow, and a neighbour makes some calls slower.
    """

    READING, ROW, FIRST = 4.4e-3, 25e-6, 40e-3  # seconds

    def __init__(self) -> None:
        self._now, self._seen, self._random = 0.0, set[int](), random.Random(0)

    def run(self, rows: int) -> None:
        """Send that many rows through the layer.

        Raises:
            ValueError: if rows is not a positive whole number.
        """
        if not isinstance(rows, int) or rows < 1:
            raise ValueError(f"rows must be a positive whole number, got {rows!r}")
        seconds = max(self.READING, rows * self.ROW) * self._random.uniform(1, 1.02)
        if self._random.random() < 1 / 6:
            seconds *= self._random.uniform(2, 8)
        if rows not in self._seen:
            seconds += self.FIRST
        self._seen.add(rows)
        self._now += seconds

    def clock(self) -> float:
        """Its time in seconds."""
        return self._now
