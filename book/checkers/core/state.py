"""The same conditions for every answer, whatever a session has switched on or an answer leaves."""

from __future__ import annotations

import contextlib
import ctypes
import random
import threading
import time
from collections.abc import Iterator

import torch

# How long one call of an answer may take.
SECONDS = 10.0


class TookTooLongError(BaseException):
    """An answer did not end. No `Exception`, so that an answer does not catch it by accident."""


@contextlib.contextmanager
def fair(default_dtype: torch.dtype) -> Iterator[list[str]]:
    """Gradients on, the given default dtype, seeds of 0; afterwards all is as it was.

    Yields:
        what was changed globally within, in words; filled at the end.
    """
    changed: list[str] = []
    grad, dtype = torch.is_grad_enabled(), torch.get_default_dtype()
    numbers, pythons = torch.get_rng_state(), random.getstate()
    threads, exact = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    anomaly = torch.is_anomaly_enabled()
    torch.set_grad_enabled(True)
    torch.set_default_dtype(default_dtype)
    # Not `torch.manual_seed`, which notes a stack trace for every kind of device: 2 ms a call.
    torch.default_generator.manual_seed(0)
    random.seed(0)
    try:
        yield changed
    finally:
        if not torch.is_grad_enabled():
            changed.append("it switches gradients off and leaves them off")
        if torch.get_default_dtype() is not default_dtype:
            changed.append(f"it sets the default dtype to {torch.get_default_dtype()}")
        if torch.initial_seed() != 0:
            changed.append("it sets the seed of torch")
        if torch.get_num_threads() != threads:
            changed.append(f"it sets torch to {torch.get_num_threads()} threads")
            torch.set_num_threads(threads)
        if torch.are_deterministic_algorithms_enabled() != exact:
            changed.append("it switches deterministic algorithms")
            torch.use_deterministic_algorithms(exact)
        if torch.is_anomaly_enabled() != anomaly:
            changed.append("it switches the detection of anomalies")
            torch.autograd.set_detect_anomaly(anomaly)
        torch.set_grad_enabled(grad)
        torch.set_default_dtype(dtype)
        torch.set_rng_state(numbers)
        random.setstate(pythons)


class Watch:
    """Ends a call that takes longer than `seconds`, in whichever thread and system it runs.

    One thread waits for all calls. A loop in Python ends at its next step; a call into C that
    never comes back cannot be ended from here.
    """

    def __init__(self, seconds: float = SECONDS) -> None:
        self.seconds = seconds
        self._lock = threading.Condition()
        self._until: float | None = None
        self._closed = False
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Watch:
        self._target = threading.get_ident()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._closed = True
            self._lock.notify()

    @contextlib.contextmanager
    def call(self) -> Iterator[None]:
        """Within this the time runs.

        Raises:
            TookTooLongError: when it is over.
        """
        with self._lock:
            self._until = time.monotonic() + self.seconds
            if self._thread is None:
                self._thread = threading.Thread(target=self._wait, daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                fired = self._until is None
                self._until = None
            # It has been asked for and comes at one of the next steps: here, not in the caller.
            if fired:
                time.sleep(0)

    def _wait(self) -> None:
        with self._lock:
            while not self._closed:
                rest = None if self._until is None else self._until - time.monotonic()
                if rest is not None and rest <= 0:
                    self._until = None
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(
                        ctypes.c_ulong(self._target), ctypes.py_object(TookTooLongError)
                    )
                else:
                    # A call that begins later ends later, so that nobody has to be woken for it.
                    self._lock.wait(self.seconds if rest is None else rest)
