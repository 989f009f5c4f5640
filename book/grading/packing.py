"""Tensors as bytes, decoded strictly, and those that both sides of the border have.

Only the entries of a tensor cross, never the memory between them. What comes from the other side is
believed in nothing: shape, strides, type and number of bytes have to agree.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from book.grading.channel import BLOB_LIMIT, BorderError

DTYPES = {
    str(d).removeprefix("torch."): d
    for d in (
        torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64,
        torch.complex128, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
        torch.bool,
    )
}  # fmt: skip


def packed(tensor: torch.Tensor) -> tuple[list[int], list[int] | None, bytes]:
    """Shape, strides (None if contiguous) and bytes. Only the entries of the tensor itself go.

    The memory between the entries of a strided view may hold what the other side must not see, so
    it is sent as zeros.
    """
    x = tensor.detach()
    if x.layout is not torch.strided or x.device.type != "cpu":
        raise BorderError(f"a tensor on {x.device} with layout {x.layout} cannot be checked")
    if str(x.dtype).removeprefix("torch.") not in DTYPES:
        raise BorderError(f"a tensor of dtype {x.dtype} cannot be checked")
    x = x.resolve_conj().resolve_neg()
    shape = list(x.shape)
    if x.numel() * x.element_size() > BLOB_LIMIT:
        raise BorderError(f"a tensor of shape {tuple(shape)} is too large to check")
    strides: list[int] | None = None
    if x.numel() == 0:
        return shape, None, b""
    if not x.is_contiguous():
        extent = 1 + sum((s - 1) * t for s, t in zip(shape, x.stride(), strict=True))
        if extent <= 8 * x.numel() + 64:
            strides = list(x.stride())
            buffer = torch.zeros(extent, dtype=x.dtype)
            # Expanded dimensions repeat one entry, which can be written only once.
            once = x[tuple(slice(0, 1) if t == 0 else slice(None) for t in strides)]
            try:
                buffer.as_strided(once.shape, strides).copy_(once)
            except RuntimeError:  # windows that overlap: torch does not write into them
                return shape, None, as_bytes(x.contiguous())
            return shape, strides, as_bytes(buffer)
    return shape, None, as_bytes(x.contiguous())


def as_bytes(x: torch.Tensor) -> bytes:
    """The entries of a tensor, one after the other."""
    flat = x.reshape(-1)
    # Of a single number torch takes any stride for contiguous, and bytes need 1.
    if flat.stride(0) != 1:
        flat = torch.empty(x.numel(), dtype=x.dtype).copy_(flat)
    return flat.view(torch.uint8).numpy().tobytes()


def unpacked(shape: Any, strides: Any, dtype: Any, data: bytes) -> torch.Tensor:
    """The tensor that `packed` took apart.

    Raises:
        BorderError: if these four are not one.
    """
    kind = DTYPES.get(dtype) if isinstance(dtype, str) else None
    if kind is None or not naturals(shape):
        raise BorderError("a malformed tensor")
    count, size = math.prod(shape), kind.itemsize
    if count * size > BLOB_LIMIT:
        raise BorderError("a tensor that is too large")
    extent = count
    if strides is not None:
        if not naturals(strides) or len(strides) != len(shape) or not count:
            raise BorderError("a malformed tensor")
        extent = 1 + sum((s - 1) * t for s, t in zip(shape, strides, strict=True))
    if extent * size != len(data):
        raise BorderError("a malformed tensor")
    flat = torch.frombuffer(bytearray(data), dtype=kind) if data else torch.empty(0, dtype=kind)
    if kind is torch.bool:
        # A byte other than 0 and 1 is no truth value; torch would compute with it.
        flat = flat.view(torch.uint8) != 0
    return flat.reshape(shape) if strides is None else flat.as_strided(shape, strides)


def bytes_of(shape: Any, dtype: Any) -> int:
    """What a tensor takes when every entry of it is written out."""
    kind = DTYPES.get(dtype) if isinstance(dtype, str) else None
    return math.prod(shape) * kind.itemsize if kind and naturals(shape) else 0


def naturals(value: Any) -> bool:
    """Whether it is a short list of natural numbers, such as a shape."""
    return (
        type(value) is list
        and len(value) <= 64
        and all(type(n) is int and 0 <= n < 1 << 40 for n in value)
    )


# By the size of an entry, the integers that have the same bytes.
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors hold the same bytes: nan equals nan, 0 is not -0."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.numel() == 0:
        return True
    a, b = a.detach(), b.detach()
    if (bits := _BITS.get(a.element_size())) and not (a.is_complex() or a.is_neg() or b.is_neg()):
        return torch.equal(a.view(bits), b.view(bits))
    return as_bytes(a.contiguous()) == as_bytes(b.contiguous())


class Leaf:
    """A leaf tensor that both sides have, and what it held when they last agreed."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self.known = tensor.detach().clone()

    def changed(self) -> bool:
        """Whether it holds something else by now."""
        return not same(self.tensor, self.known)

    def agree(self) -> None:
        """Remember what it holds now."""
        self.known = self.tensor.detach().clone()
