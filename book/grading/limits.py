"""What one submission may use, and what its judge has to know of the process that started it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Limits:
    """What one submission may use. Times in seconds, sizes in MB."""

    cell: float = 30.0
    call: float = 10.0
    test: float = 60.0
    total: float = 180.0
    cpu: float = 120.0
    memory_mb: int = 4096
    disk_mb: int = 64
    file_mb: int = 32
    processes: int = 64
    output: int = 2000

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Outside:
    """What a judge has to know of the process that started it."""

    # When the submission's time is over, on the clock of `time.monotonic`.
    until: float
    # Takes the number of the process above the student's.
    keeper: Callable[[int], None] = lambda pid: None
    # How often the student's processes were ended for their memory.
    ended: Callable[[], int] = lambda: 0
