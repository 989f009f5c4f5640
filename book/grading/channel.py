"""Messages between the student's process and the trusted one, and how either says that it ended."""

from __future__ import annotations

import itertools
import json
import socket
import struct
import time
from typing import Any

HEAD_LIMIT = 4 << 20
BLOB_LIMIT = 64 << 20
# Of the head, and of all blobs together.
LENGTHS = struct.Struct(">II")


class BorderError(Exception):
    """A value that cannot cross, or a message that is not one."""


class StudentError(Exception):
    """What the student's code did, where no exception of Python's own says it."""


class TimeLimitError(StudentError):
    """The student's code gave no answer in time."""


class GoneError(StudentError):
    """The student's process has ended."""


class Channel:
    """Messages over a stream: two lengths, a JSON head, then the blobs it announces.

    Nothing is read ahead: after a message the stream may belong to somebody else.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection

    def send(self, head: dict[str, Any], blobs: list[bytes] | None = None) -> None:
        """Send one message.

        Raises:
            BorderError: if it is larger than the other side would take.
        """
        blobs = blobs or []
        data = json.dumps({**head, "b": [len(b) for b in blobs]}).encode()
        size = sum(map(len, blobs))
        if len(data) > HEAD_LIMIT or size > BLOB_LIMIT:
            raise BorderError(f"more than {BLOB_LIMIT >> 20} MB of data")
        self.connection.sendall(b"".join([LENGTHS.pack(len(data), size), data, *blobs]))

    def receive(self, limit: float | None = None) -> tuple[dict[str, Any], list[bytes]]:
        """The next message. `limit` is for all of it: a slow drip does not lengthen it.

        Raises:
            TimeoutError: if it is not complete in `limit` seconds.
            EOFError: if the other side is gone.
            BorderError: if what came is not a message.
        """
        end = None if limit is None else time.monotonic() + limit
        try:
            size, more = LENGTHS.unpack(self._exactly(LENGTHS.size, end))
            if size > HEAD_LIMIT or more > BLOB_LIMIT:
                raise BorderError("not a message")
            data = self._exactly(size + more, end)
            head = json.loads(data[:size])
            sizes = head.pop("b")
            if not all(type(n) is int and n >= 0 for n in sizes) or sum(sizes) != more:
                raise BorderError("not a message")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise BorderError("not a message") from error
        ends = itertools.accumulate(sizes, initial=size)
        return head, [data[a:b] for a, b in itertools.pairwise(ends)]

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
        if end is not None:
            self.connection.settimeout(None)
        return bytes(parts)
