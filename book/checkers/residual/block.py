"""One block: a prediction about it, the block itself, and a test that tells it from others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from book.checkers.core import Case, Exercise, WrongAnswer
from book.checkers.questions import choice
from book.checkers.residual.common import Map, draw

# --- zero -----------------------------------------------------------------------------------------

ZERO = choice(
    "Branches that start at zero",
    right="A",
    because=(
        "Every branch adds zero, so x passes through unchanged. The gradient of the last matrix is "
        "made of its input h, which is not zero, and of what arrives from above, which is not zero "
        "either. To all matrices before it the gradient has to go through that matrix of zeros."
    ),
    tempting={
        "B": (
            "no output, no gradient",
            "A matrix of zeros gives no output, but its own gradient is h times what arrives, and "
            "does not contain the matrix. So it moves at the first step, and then all others can.",
        ),
        "C": (
            "the addition forgotten",
            "The branch gives zero, and x is added to it. Only a stack without the addition would "
            "give zero.",
        ),
        "D": (
            "a gradient for all",
            "The matrices before the last one reach the output only through the last one, and that "
            "is zero at the first step. From the second step on D is right.",
        ),
    },
)


# --- block ----------------------------------------------------------------------------------------


def _block(x: Tensor, sublayer: Map, norm: Map, norm_first: bool) -> Tensor:
    return x + sublayer(norm(x)) if norm_first else norm(x + sublayer(x))


def _block_in_steps(x: Tensor, sublayer: Map, norm: Map, norm_first: bool) -> Tensor:
    """The same by the way of the branch, as torch's own layer has it."""
    read = norm(x) if norm_first else x
    y = torch.add(sublayer(read), x)
    return y if norm_first else norm(y)


def _layer_norm(x: Tensor) -> Tensor:
    gain = torch.linspace(0.5, 2.0, x.shape[-1], dtype=x.dtype)
    return F.layer_norm(x, x.shape[-1:], gain, 1 - gain)


def _feed_forward(x: Tensor) -> Tensor:
    d = x.shape[-1]
    up, down = draw(d, 2 * d, seed=1).to(x.dtype), draw(2 * d, d, seed=2).to(x.dtype)
    return torch.relu(x @ up + 0.3) @ down


def _block_case(name: str, norm_first: bool, *shape: int, **drawn: Any) -> Case:
    def inputs() -> tuple[Any, ...]:
        x = draw(*shape, **drawn).requires_grad_()
        return x, _feed_forward, _layer_norm, norm_first

    return Case(name, inputs, 1e-10, grad=True)


BLOCK = Exercise(
    "A block to repair",
    oracle=_block,
    cases=(
        _block_case("Pre-Norm, two sequences", True, 2, 3, 6),
        _block_case("Post-Norm, two sequences", False, 2, 3, 6),
        _block_case("Pre-Norm, one row with a large mean", True, 1, 5, offset=40.0),
        _block_case("Post-Norm, one row with a large mean", False, 1, 5, offset=40.0),
        _block_case("Pre-Norm, a stream of size 100", True, 4, 7, scale=100.0),
        _block_case("Post-Norm, rows of size 1e-3", False, 4, 7, scale=1e-3),
    ),
    wrong=(
        WrongAnswer(
            "placements exchanged",
            "`norm_first` means Pre-Norm: the norm comes before the sub-layer, and the sum is "
            "not normalised.",
            lambda x, sublayer, norm, norm_first: _block(x, sublayer, norm, not norm_first),
        ),
        WrongAnswer(
            "normalised stream in Pre-Norm",
            "In Pre-Norm only the sub-layer reads the normalised row. What its output is added "
            "to is x itself, or the identity path is lost. This is none of the four pictures: in "
            "a stack it is Post-Norm, cut half a block later, and 64 of them end with variance 2, "
            "that of one sum.",
            lambda x, sublayer, norm, norm_first: (
                norm(x) + sublayer(norm(x)) if norm_first else norm(x + sublayer(x))
            ),
        ),
        WrongAnswer(
            "residual connection forgotten",
            "The sub-layer's output is added to x. Without x it replaces what was there.",
            lambda x, sublayer, norm, norm_first: (
                sublayer(norm(x)) if norm_first else norm(sublayer(x))
            ),
        ),
        WrongAnswer(
            "norm inside the sum in Post-Norm",
            "Post-Norm normalises the sum. This is the third picture, a norm on the output, which "
            "leaves the stream as it is: each branch adds 1, and 64 of them end with variance 65.",
            lambda x, sublayer, norm, norm_first: (
                x + sublayer(norm(x)) if norm_first else x + norm(sublayer(x))
            ),
        ),
        WrongAnswer(
            "always Pre-Norm",
            "With `norm_first=False` the norm is applied to the sum, after the sub-layer.",
            lambda x, sublayer, norm, norm_first: x + sublayer(norm(x)),
        ),
        WrongAnswer(
            "always Post-Norm",
            "With `norm_first=True` the norm is applied to what the sub-layer reads, before it.",
            lambda x, sublayer, norm, norm_first: norm(x + sublayer(x)),
        ),
        WrongAnswer(
            "norm at both ends",
            "That is a sandwich. Pre-Norm has one norm per sub-layer, in front of it.",
            lambda x, sublayer, norm, norm_first: (
                x + norm(sublayer(norm(x))) if norm_first else norm(x + sublayer(x))
            ),
        ),
        WrongAnswer(
            "sum normalised in Pre-Norm too",
            "In Pre-Norm nothing stands on the stream but sums; the one norm of the stream comes "
            "at the very end of the stack, not in the block.",
            lambda x, sublayer, norm, norm_first: (
                norm(x + sublayer(norm(x))) if norm_first else norm(x + sublayer(x))
            ),
        ),
    ),
    variants=(_block_in_steps,),
)


# --- test -----------------------------------------------------------------------------------------

Block = Callable[[Tensor, Map, Map], Tensor]


def _untouched(block: Block, x: Tensor) -> bool:
    """Whether the stream comes back if the sub-layer gives nothing, whatever the norm is."""
    return torch.allclose(block(x, torch.zeros_like, lambda t: 3 * t), x)


def _test(block: Block) -> bool:
    x = draw(2, 4)
    ordered = block(x, lambda t: t.square() + 1, lambda t: 3 * t)
    return _untouched(block, x) and torch.allclose(ordered, x + (3 * x).square() + 1)


def _test_with_real_parts(block: Block) -> bool:
    """The same with a LayerNorm and a feed-forward layer, compared with the definition."""
    x = draw(3, 6, scale=2.0, offset=0.5)
    return torch.allclose(
        block(x, _feed_forward, _layer_norm), x + _feed_forward(_layer_norm(x)), atol=1e-9
    )


def _of(expected: Callable[[Tensor, Map, Map], Tensor], *maps: Map) -> Callable[[Block], bool]:
    """A test that compares with a formula, for one choice of sub-layer and norm."""
    sublayer, norm = maps

    def answer(block: Block) -> bool:
        x = draw(2, 4)
        return torch.allclose(block(x, sublayer, norm), expected(x, sublayer, norm))

    return answer


_SUBJECTS: dict[str, Block] = {
    "a right block": lambda x, f, norm: x + f(norm(x)),
    "a right block, written otherwise": lambda x, f, norm: torch.add(f(norm(x)), x),
    "a block with the norm on the sum": lambda x, f, norm: norm(x + f(x)),
    "a block with the norm on the sum and in the branch": lambda x, f, norm: norm(x + f(norm(x))),
    "a block that adds to the normed row": lambda x, f, norm: norm(x) + f(norm(x)),
    "a block without the addition": lambda x, f, norm: f(norm(x)),
    "a block with the norm on the output of the branch": lambda x, f, norm: x + norm(f(x)),
    "a block with norms at both ends of the branch": lambda x, f, norm: x + norm(f(norm(x))),
    "a block without a norm": lambda x, f, norm: x + f(x),
    "a block that takes the branch away": lambda x, f, norm: x - f(norm(x)),
}


def _test_case(name: str) -> Case:
    return Case(name, lambda: (_SUBJECTS[name],))


TEST = Exercise(
    "A test for Pre-Norm",
    oracle=_test,
    cases=tuple(_test_case(name) for name in _SUBJECTS),
    wrong=(
        WrongAnswer(
            "shapes only",
            "All of these blocks keep the shape, so the shape tells nothing about them.",
            lambda block: block(draw(2, 4), torch.tanh, torch.tanh).shape == (2, 4),
        ),
        WrongAnswer(
            "a sub-layer of zeros only",
            "It shows every norm that stands on the stream. What happens within the branch it "
            "cannot show, because there everything is zero.",
            lambda block: _untouched(block, draw(2, 4)),
        ),
        WrongAnswer(
            "a norm that does nothing",
            "If the norm is the identity, it does not matter where it stands.",
            _of(lambda x, f, norm: x + f(x), lambda t: t.square() + 1, lambda t: t),
        ),
        WrongAnswer(
            "a norm and a sub-layer that commute",
            "Twice three times x is three times twice x. Take two functions whose order matters.",
            _of(lambda x, f, norm: x + f(norm(x)), lambda t: 2 * t, lambda t: 3 * t),
        ),
        WrongAnswer(
            "compared with Post-Norm only",
            "Not to be Post-Norm is not enough, since there are many other wrong blocks.",
            lambda block: (
                not _of(lambda x, f, norm: norm(x + f(x)), torch.sin, lambda t: 3 * t)(block)
            ),
        ),
        WrongAnswer(
            "asked for Post-Norm",
            "This is True for a block that normalises the sum. Pre-Norm normalises what the "
            "sub-layer reads.",
            _of(lambda x, f, norm: norm(x + f(x)), torch.sin, lambda t: 3 * t),
        ),
        WrongAnswer(
            "answer turned round",
            "The test returns True for wrong blocks and False for right ones.",
            lambda block: not _test(block),
        ),
    ),
    variants=(_test_with_real_parts,),
)
