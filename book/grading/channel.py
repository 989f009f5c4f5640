"""Messages between the student's process and the trusted one, and how either says that it ended."""

from __future__ import annotations

import json
import socket
import struct
import time
from typing import Any

HEAD_LIMIT = 4 << 20
BLOB_LIMIT = 64 << 20


class BorderError(Exception):
    """A value that cannot cross, or a message that is not one."""


class StudentError(Exception):
    """What the student's code did, where no exception of Python's own says it."""


class TimeLimitError(StudentError):
    """The student's code gave no answer in time."""


class GoneError(StudentError):
    """The student's process has ended."""


class Channel:
    """Messages over a stream: four bytes of length, a JSON head, then the blobs it announces."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection

    def send(self, head: dict[str, Any], blobs: list[bytes] | None = None) -> None:
        """Send one message.

        Raises:
            BorderError: if it is larger than the other side would take.
        """
        blobs = blobs or []
        data = json.dumps({**head, "b": [len(b) for b in blobs]}).encode()
        if len(data) > HEAD_LIMIT or sum(map(len, blobs)) > BLOB_LIMIT:
            raise BorderError(f"more than {BLOB_LIMIT >> 20} MB of data")
        self.connection.sendall(b"".join([struct.pack(">I", len(data)), data, *blobs]))

    def receive(self, limit: float | None = None) -> tuple[dict[str, Any], list[bytes]]:
        """The next message. `limit` is for all of it: a slow drip does not lengthen it.

        Raises:
            TimeoutError: if it is not complete in `limit` seconds.
            EOFError: if the other side is gone.
            BorderError: if what came is not a message.
        """
        end = None if limit is None else time.monotonic() + limit
        try:
            (size,) = struct.unpack(">I", self._exactly(4, end))
            if size > HEAD_LIMIT:
                raise BorderError("not a message")
            head = json.loads(self._exactly(size, end))
            sizes = head.pop("b")
            if not all(type(n) is int and n >= 0 for n in sizes) or sum(sizes) > BLOB_LIMIT:
                raise BorderError("not a message")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise BorderError("not a message") from error
        return head, [self._exactly(n, end) for n in sizes]

    def _exactly(self, count: int, end: float | None) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            if end is not None:
                left = end - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                self.connection.settimeout(left)
            got = self.connection.recv(min(count - len(parts), 1 << 20))
            if not got:
                raise EOFError
            parts += got
        self.connection.settimeout(None)
        return bytes(parts)
