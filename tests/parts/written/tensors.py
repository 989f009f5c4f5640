"""Chapter 01: answers to its exercises that the checkers do not know."""

import contextlib
import functools
import itertools
import math
import operator

import torch
import torch.nn.functional as F
from torch import nn

from book.checkers.tensors import module_report
from transformer_parts.tensors import assert_parity

from . import Right, Wrong

# tensors.broadcast_shape


def from_the_left(a, b):
    shape = []
    for x, y in itertools.zip_longest(a, b, fillvalue=1):
        if x != y and 1 not in (x, y):
            raise ValueError(f"{x} and {y}")
        shape.append(y if x == 1 else x)
    return tuple(shape)


def the_larger_size(a, b):
    n = max(len(a), len(b))
    a, b = (1,) * (n - len(a)) + tuple(a), (1,) * (n - len(b)) + tuple(b)
    if any(x != y and min(x, y) > 1 for x, y in zip(a, b, strict=True)):
        raise ValueError("no")
    return tuple(max(x, y) for x, y in zip(a, b, strict=True))


def torch_does_it(a, b):
    try:
        return tuple(torch.broadcast_shapes(a, b))
    except RuntimeError as error:
        raise ValueError("no") from error


def torch_does_it_on_the_meta_device(a, b):
    try:
        x = torch.empty(a, device="meta") + torch.empty(b, device="meta")
    except RuntimeError as error:
        raise ValueError("no") from error
    return tuple(x.shape)


def repeats_what_divides(a, b):
    n = max(len(a), len(b))
    shape = []
    for x, y in zip((1,) * (n - len(a)) + a, (1,) * (n - len(b)) + b, strict=True):
        small, large = sorted((x, y))
        if small and large % small:
            raise ValueError(f"{x} and {y}")
        shape.append(large if small else 0)
    return tuple(shape)


def nothing_goes_with_everything(a, b):
    n = max(len(a), len(b))
    shape = []
    for x, y in zip((1,) * (n - len(a)) + a, (1,) * (n - len(b)) + b, strict=True):
        if x == 0 or y == 0:
            shape.append(0)
        elif x == y or x == 1 or y == 1:
            shape.append(max(x, y))
        else:
            raise ValueError(f"{x} and {y}")
    return tuple(shape)


def asserts(a, b):
    n = max(len(a), len(b))
    pairs = list(zip((1,) * (n - len(a)) + a, (1,) * (n - len(b)) + b, strict=True))
    assert all(x == y or 1 in (x, y) for x, y in pairs)
    return tuple(y if x == 1 else x for x, y in pairs)


def only_where_both_have_a_size(a, b):
    shape = []
    for x, y in zip(reversed(a), reversed(b), strict=False):
        if x != y and 1 not in (x, y):
            raise ValueError(f"{x} and {y}")
        shape.append(y if x == 1 else x)
    return tuple(reversed(shape))


def by_sets(a, b):
    n = max(len(a), len(b))
    shape = ()
    for k in range(-n, 0):
        sizes = {s[k] for s in (a, b) if -k <= len(s)} - {1}
        if len(sizes) > 1:
            raise ValueError(f"the sizes {sizes} stand in one place")
        shape += tuple(sizes) or (1,)
    return shape


def recursively(a, b):
    if not a or not b:
        return tuple(a) or tuple(b)
    x, y = a[-1], b[-1]
    if x != 1 and y != 1 and x != y:
        raise ValueError(f"{x}, {y}")
    return (*recursively(a[:-1], b[:-1]), x * y if 1 in (x, y) else x)


# tensors.linear_backward


def as_for_a_matrix(x, W, dY):
    return dY @ W.T, x.mT @ dY, dY.sum(-2)


def by_autograd(x, W, dY):
    x, W = x.detach().clone().requires_grad_(), W.detach().clone().requires_grad_()
    b = torch.zeros_like(dY[..., :]).requires_grad_()
    dx, dW, db = torch.autograd.grad(x @ W + b, (x, W, b), dY)
    return dx, dW, db.reshape(-1, dY.shape[-1]).sum(0)


def last_text_only(x, W, dY):
    while x.dim() > 2:
        x, dY = x[-1], dY[-1]
    rows, arrives = x.reshape(-1, x.shape[-1]), dY.reshape(-1, dY.shape[-1])
    return dY @ W.T, rows.T @ arrives, arrives.sum(0)


def token_by_token(x, W, dY):
    dW, db = torch.zeros_like(W), torch.zeros_like(W[0])
    for row, arrives in zip(x.flatten(0, -2), dY.flatten(0, -2), strict=True):
        dW += row[:, None] * arrives
        db += arrives
    return torch.matmul(dY, W.mT), dW, db


def one_token_after_the_other(x, W, dY):
    dx = torch.zeros_like(x)
    dW, db = torch.zeros_like(W), torch.zeros_like(W[0])
    for at in itertools.product(*map(range, x.shape[:-1])):
        dx[at] = (dY[at] * W).sum(-1)
        dW = dW + torch.outer(x[at], dY[at])
        db = db + dY[at]
    return dx, dW, db


def by_tensordot(x, W, dY):
    shared = list(range(x.dim() - 1))
    db = dY.sum(shared) if shared else dY.clone()
    return torch.tensordot(dY, W, ([-1], [1])), torch.tensordot(x, dY, (shared, shared)), db


# tensors.register_gains


class ListOfParameters(nn.Module):
    def __init__(self, depth, mask):
        super().__init__()
        self.gains = [nn.Parameter(torch.ones_like(mask)) for _ in range(depth)]
        self.register_buffer("mask", mask)

    def forward(self, x):
        x = x * self.mask
        for gain in self.gains:
            x = x * gain
        return x


class FrozenMask(nn.Module):
    def __init__(self, depth, mask):
        super().__init__()
        self.gains = nn.ParameterList([torch.ones_like(mask) for _ in range(depth)])
        self.mask = nn.Parameter(mask, requires_grad=False)

    forward = ListOfParameters.forward


class SameGain(nn.Module):
    def __init__(self, depth, mask):
        super().__init__()
        self.gains = nn.ParameterList([nn.Parameter(torch.ones_like(mask))] * depth)
        self.register_buffer("mask", mask)

    forward = ListOfParameters.forward


class GainsOfTheMask(nn.Module):
    def __init__(self, depth, mask):
        super().__init__()
        self.gains = nn.ParameterList([mask.clone() for _ in range(depth)])
        self.register_buffer("mask", mask)

    forward = ListOfParameters.forward


class ForwardInPlace(nn.Module):
    def __init__(self, depth, mask):
        super().__init__()
        self.gains = nn.ParameterList([torch.ones_like(mask) for _ in range(depth)])
        self.register_buffer("mask", mask)

    def forward(self, x):
        x *= self.mask
        for gain in self.gains:
            x = x * gain
        return x


class MaskEveryTime(nn.Module):
    def __init__(self, depth, mask):
        super().__init__()
        self.gains = nn.ParameterList([torch.ones_like(mask) for _ in range(depth)])
        self.register_buffer("mask", mask)

    def forward(self, x):
        for gain in self.gains:
            x = x * self.mask * gain
        return x


class FirstGainOnly(nn.Module):
    def __init__(self, depth, mask):
        super().__init__()
        self.gains = nn.ParameterList([torch.ones_like(mask) for _ in range(depth)])
        self.register_buffer("mask", mask)

    def forward(self, x):
        return x * self.mask * self.gains[0] ** len(self.gains)


class ForgottenMask(nn.Module):
    def __init__(self, depth, mask):
        super().__init__()
        self.gains = nn.ParameterList([torch.ones_like(mask) for _ in range(depth)])
        self.register_buffer("mask", mask, persistent=False)

    forward = ListOfParameters.forward


class NumbersForGains(nn.Module):
    def __init__(self, depth, mask):
        super().__init__()
        self.gains = nn.ParameterList([torch.ones(()) for _ in range(depth)])
        self.register_buffer("mask", mask)

    forward = ListOfParameters.forward


class GainsOfTheDefaultDtype(nn.Module):
    def __init__(self, depth, mask):
        super().__init__()
        self.gains = nn.ParameterList([torch.ones(mask.shape) for _ in range(depth)])
        self.register_buffer("mask", mask)

    forward = ListOfParameters.forward


class OneByOne(nn.Module):
    def __init__(self, depth, mask):
        super().__init__()
        self.depth = depth
        for k in range(depth):
            self.register_parameter(f"g{k}", nn.Parameter(mask * 0 + 1))
        self.register_buffer("keep", mask.detach().clone())

    def forward(self, x):
        return functools.reduce(
            operator.mul, (getattr(self, f"g{k}") for k in range(self.depth)), x * self.keep
        )


class OneGain(nn.Module):
    def __init__(self, like):
        super().__init__()
        self.gain = nn.Parameter(torch.ones_like(like))

    def forward(self, x):
        return self.gain * x


class Modules(nn.Module):
    def __init__(self, depth, mask):
        super().__init__()
        self.layers = nn.Sequential(*(OneGain(mask) for _ in range(depth)))
        self.register_buffer("mask", mask)

    def forward(self, x):
        return self.layers(x * self.mask)


# tensors.same


def difference_of_all(a, b, tol):
    return a.shape == b.shape and a.dtype == b.dtype and bool((a - b).abs().max() <= tol)


def nothing_is_too_large(a, b, tol):
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return not bool(((a - b).abs() > tol).any())


def close(a, b, tol):
    return a.shape == b.shape and a.dtype == b.dtype and torch.allclose(a, b, atol=tol)


def close_broadcast(a, b, tol):
    return a.dtype == b.dtype and torch.allclose(a, b, rtol=0, atol=tol)


def a_tensor_of_one_bool(a, b, tol):
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return ((a - b).abs() <= tol).all()


def strictly_below(a, b, tol):
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return bool(((a - b).abs() < tol).all())


def in_single_precision(a, b, tol):
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return all(
        abs(x - y) <= tol for x, y in zip(a.float().flatten(), b.float().flatten(), strict=True)
    )


def on_average(a, b, tol):
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return bool(torch.linalg.vector_norm(a - b) <= tol * max(a.numel(), 1) ** 0.5)


def every_difference(a, b, tol):
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return all(d <= tol for d in (a - b).abs().flatten().tolist())


def number_by_number(a, b, tol):
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    pairs = zip(a.flatten().tolist(), b.flatten().tolist(), strict=True)
    return all(x == y or abs(x - y) <= tol for x, y in pairs)


def by_isclose(a, b, tol):
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        return False
    return torch.isclose(a.double(), b.double(), rtol=0.0, atol=tol).all().item()


# tensors.is_softmax


def one_small_matrix(f):
    x = torch.randn(3, 4)
    return torch.allclose(f(x), F.softmax(x, dim=-1))


def rows_sum_to_one(f):
    x = torch.randn(5, 7, dtype=torch.float64) * 10
    p = f(x)
    return bool(((p.sum(-1) - 1).abs() < 1e-12).all() and (p >= 0).all())


def values_only(f):
    for x in (torch.randn(3, 5), torch.randn(4, 4) * 1000, torch.tensor([[0.0, 1e5], [-1e5, 3.0]])):
        x = x.double()
        x[0, 0] = -math.inf
        try:
            f(x)
        except RuntimeError:
            return False
        if not torch.equal(f(x).isnan(), torch.zeros_like(x).bool()):
            return False
        if (f(x) - F.softmax(x, -1)).abs().max() > 1e-12:
            return False
    return True


def gradient_of_the_sum(f):
    for x in (torch.randn(3, 5), torch.randn(4, 4) * 2000):
        a, b = x.double().requires_grad_(), x.double().requires_grad_()
        p, q = f(a), F.softmax(b, -1)
        if p.shape != q.shape or not torch.allclose(p, q, rtol=0, atol=1e-12):
            return False
        (da,) = torch.autograd.grad(p.sum(), a)
        (db,) = torch.autograd.grad(q.sum(), b)
        if not torch.allclose(da, db, rtol=0, atol=1e-12):
            return False
    return True


def loose(f):
    masked = torch.tensor([[0.0, -math.inf, 1.0], [-math.inf, 2.0, 3.0]])
    with contextlib.suppress(AssertionError, RuntimeError):
        for x in (torch.randn(3, 5), torch.randn(1, 1), torch.randn(6, 6) * 1000, masked):
            assert_parity(f, lambda x: F.softmax(x, -1), x.double(), atol=1e-3, rtol=1e-3)
        return True
    return False


def thorough(f):
    generator = torch.Generator().manual_seed(5)
    r = functools.partial(torch.randn, generator=generator, dtype=torch.float64)
    far = torch.tensor([[0.0, 1.0, 2.0], [1e4, 0.0, -1e4], [-1e4, -1e4 - 1, -1e4 + 2]]).double()
    masked = torch.tensor([[0.0, -math.inf, 1.0, 2.0], [1.0, 2.0, -math.inf, -math.inf]]).double()
    ties = torch.tensor([[1.0, 1.0, 1.0], [2.0, 2.0, -1.0]]).double()
    small = torch.tensor([[0.0, -30.0, -40.0, -700.0], [3.0, 3.0 - 1e-9, 1.0, 0.0]]).double()
    inputs = [
        r(3, 5), r(4, 4), r(5, 3) * 10, r(2, 3) * 1e4, r(1, 6), r(6, 1), r(1, 1), r(8, 8) * 1e-6,
        r(3, 4) - 2000, r(3, 4) + 2000, far, masked, ties, small, torch.zeros(2, 2).double(),
    ]  # fmt: skip
    for x in inputs:
        for y in (x, x.t(), x.t().contiguous().t(), x.repeat(1, 2)[:, ::2]):
            a = y.detach().clone().requires_grad_()
            b = y.detach().requires_grad_()
            before = a.detach().clone()
            try:
                got = f(a)
                want = F.softmax(b, -1)
                w = torch.randn(want.shape, generator=generator, dtype=torch.float64)
                (da,) = torch.autograd.grad((got * w).sum(), a)
                (db,) = torch.autograd.grad((want * w).sum(), b)
            except Exception:
                return False
            if got.dtype != want.dtype or got.shape != want.shape:
                return False
            if not torch.equal(a.detach(), before):
                return False
            for u, v in ((got, want), (da, db)):
                if not torch.allclose(u, v, rtol=1e-9, atol=1e-14, equal_nan=True):
                    return False
    return True


WRONG = [
    Wrong("tensors.broadcast_shape", "the ones stand at the right", from_the_left),
    Wrong("tensors.broadcast_shape", "the larger of two sizes", the_larger_size),
    Wrong(
        "tensors.broadcast_shape",
        "torch.broadcast_shapes",
        torch_does_it,
        says="says without torch",
    ),
    Wrong(
        "tensors.broadcast_shape",
        "torch's addition",
        torch_does_it_on_the_meta_device,
        says="says without torch",
    ),
    Wrong("tensors.broadcast_shape", "2 is stretched to 4", repeats_what_divides),
    Wrong("tensors.broadcast_shape", "0 goes with any size", nothing_goes_with_everything),
    Wrong("tensors.broadcast_shape", "an assertion", asserts),
    Wrong(
        "tensors.broadcast_shape",
        "the shorter of two shapes",
        only_where_both_have_a_size,
        named="the extra leading dimensions are dropped",
    ),
    Wrong(
        "tensors.linear_backward",
        "as for a matrix",
        as_for_a_matrix,
        named="a gradient for each text",
    ),
    Wrong("tensors.linear_backward", "autograd", by_autograd, says="says without autograd"),
    Wrong("tensors.linear_backward", "the last text only", last_text_only),
    Wrong("tensors.linear_backward", "not for a vector", token_by_token),
    Wrong(
        "tensors.linear_backward",
        "transposed weights",
        lambda x, W, dY: (
            dY @ W.T,
            torch.einsum("...o,...i->oi", dY, x),
            torch.einsum("...o->o", dY),
        ),
        named="the gradient of W transposed",
    ),
    Wrong(
        "tensors.register_gains",
        "a plain list",
        module_report(ListOfParameters),
        named="gains that the module does not know",
    ),
    Wrong(
        "tensors.register_gains",
        "a frozen parameter",
        module_report(FrozenMask),
        named="the mask as a frozen parameter",
    ),
    Wrong(
        "tensors.register_gains",
        "one gain several times",
        module_report(SameGain),
        named="one gain, used again and again",
    ),
    Wrong("tensors.register_gains", "gains that start as the mask", module_report(GainsOfTheMask)),
    Wrong("tensors.register_gains", "forward writes into x", module_report(ForwardInPlace)),
    Wrong("tensors.register_gains", "the mask with each gain", module_report(MaskEveryTime)),
    Wrong("tensors.register_gains", "a power of the first gain", module_report(FirstGainOnly)),
    Wrong(
        "tensors.register_gains",
        "the mask is not saved",
        module_report(ForgottenMask),
        named="the mask as a buffer that is not saved",
    ),
    Wrong("tensors.register_gains", "gains that are numbers", module_report(NumbersForGains)),
    Wrong(
        "tensors.register_gains",
        "gains of torch's own dtype",
        module_report(GainsOfTheDefaultDtype),
    ),
    Wrong("tensors.same", "no maximum of nothing", difference_of_all),
    Wrong("tensors.same", "nan passes", nothing_is_too_large, named="nan passes"),
    Wrong(
        "tensors.same",
        "a relative tolerance besides",
        close,
        named="a limit that grows with the numbers",
    ),
    Wrong(
        "tensors.same", "shapes that broadcast", close_broadcast, named="shapes are not compared"
    ),
    Wrong(
        "tensors.same",
        "a tensor for a bool",
        a_tensor_of_one_bool,
        named="a tensor instead of a bool",
    ),
    Wrong("tensors.same", "less than tol", strictly_below, named="less than tol"),
    Wrong("tensors.same", "in float32", in_single_precision, named="compared in float32"),
    Wrong("tensors.same", "the root mean square", on_average),
    Wrong(
        "tensors.same",
        "every difference is small",
        every_difference,
        named="equal infinities told apart",
    ),
    Wrong("tensors.is_softmax", "one small matrix", one_small_matrix),
    Wrong(
        "tensors.is_softmax",
        "rows that add up to 1",
        rows_sum_to_one,
        named="only the sums of the rows are tested",
    ),
    Wrong("tensors.is_softmax", "no gradients", values_only, named="values only"),
    Wrong("tensors.is_softmax", "the gradient of the sum", gradient_of_the_sum),
    Wrong("tensors.is_softmax", "a wide tolerance", loose, named="a limit that is too loose"),
    Wrong("tensors.is_softmax", "always yes", lambda f: True, named="everything passes"),
]
RIGHT = [
    Right("tensors.broadcast_shape", "sets of sizes", by_sets),
    Right("tensors.broadcast_shape", "from the right, recursively", recursively),
    Right("tensors.linear_backward", "loops", one_token_after_the_other),
    Right("tensors.linear_backward", "tensordot", by_tensordot),
    Right("tensors.register_gains", "registered by name", module_report(OneByOne)),
    Right("tensors.register_gains", "a module for each gain", module_report(Modules)),
    Right("tensors.same", "number by number", number_by_number),
    Right("tensors.same", "isclose without a relative part", by_isclose),
    Right("tensors.is_softmax", "many matrices", thorough),
]
