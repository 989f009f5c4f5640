"""The widest feed-forward layer that costs no more than what heads have saved."""

from __future__ import annotations

from collections.abc import Callable

from book.checkers.core import Answer, Case, Exercise, WrongAnswer, in_parts


def _attention(d_model: int, num_heads: int, num_kv_heads: int, head_dim: int) -> int:
    return 2 * d_model * head_dim * (num_heads + num_kv_heads)


def _spend(
    d_model: int, num_heads: int, num_kv_heads: int, head_dim: int, d_ff: int, multiple: int
) -> int:
    """By trying one multiple after the other."""
    if num_heads % num_kv_heads:
        raise ValueError(f"num_kv_heads must divide {num_heads}, got {num_kv_heads}")
    most = _attention(d_model, num_heads, num_heads, head_dim) + 3 * d_model * d_ff
    child, widest = _attention(d_model, num_heads, num_kv_heads, head_dim), 0
    while child + 3 * d_model * (widest + multiple) <= most:
        widest += multiple
    return widest


@in_parts
def _spend_with(
    *,
    matrices: int = 3,
    kinds: int = 2,
    down: Callable[[int, int], int] = lambda width, multiple: width // multiple * multiple,
    base: Callable[[int], int] = lambda d_ff: d_ff,
    width: Callable[[int, int, int], int] = lambda d_model, heads, head_dim: head_dim,
    raises: bool = True,
) -> Answer:
    """What is saved, divided by what a hidden unit costs."""

    def answer(
        d_model: int, num_heads: int, num_kv_heads: int, head_dim: int, d_ff: int, multiple: int
    ) -> int:
        if raises and num_heads % num_kv_heads:
            raise ValueError("num_kv_heads must divide num_heads")
        dim = width(d_model, num_heads, head_dim)
        saved = kinds * dim * (num_heads - num_kv_heads)  # for each feature of the stream
        return down(base(d_ff) + saved // matrices, multiple)

    return answer


def _case(name: str, *sizes: int, raises: type[Exception] | None = None) -> Case:
    return Case(name, lambda: sizes, raises=raises)


SPEND = Exercise(
    title="Spend what the heads saved",
    oracle=_spend,
    cases=(
        _case("32 heads on 8", 4096, 32, 8, 128, 11008, 256),
        _case("32 heads on 1", 4096, 32, 1, 128, 11008, 256),
        _case("no head saved", 4096, 32, 32, 128, 11008, 256),
        _case("a width that is no multiple", 512, 8, 8, 64, 1365, 64),
        _case("a sum that just fits", 96, 6, 3, 8, 100, 4),
        _case("a third left over", 96, 6, 2, 8, 100, 1),
        _case("one below the next multiple", 96, 6, 3, 8, 99, 4),
        _case("heads wider than the width divided", 1024, 16, 8, 128, 3072, 128),
        _case("a multiple of one", 64, 4, 2, 5, 77, 1),
        _case("heads that do not divide", 512, 8, 3, 64, 1024, 64, raises=ValueError),
    ),
    variants=(_spend_with(),),
    wrong=(
        WrongAnswer(
            "two matrices",
            "A hidden unit of a gated layer has three rows of weights: gate, up and down.",
            _spend_with(matrices=2),
        ),
        WrongAnswer(
            "keys without values",
            "Keys and values both have fewer heads.",
            _spend_with(kinds=1),
        ),
        WrongAnswer(
            "rounded up",
            "The child may not have more parameters than the parent, so round down.",
            _spend_with(down=lambda width, multiple: -(-width // multiple) * multiple),
        ),
        WrongAnswer(
            "to the nearest multiple",
            "The child may not have more parameters than the parent, so round down.",
            _spend_with(down=lambda width, multiple: round(width / multiple) * multiple),
        ),
        WrongAnswer(
            "not rounded",
            "The width is to be a multiple.",
            _spend_with(down=lambda width, multiple: width),
        ),
        WrongAnswer(
            "only the additional width",
            "The hidden width of the parent stays, and what was saved comes on top.",
            _spend_with(base=lambda d_ff: 0),
        ),
        WrongAnswer(
            "the width divided by the heads",
            "Heads have the number of features that is given, whatever the width.",
            _spend_with(width=lambda d_model, heads, head_dim: d_model // heads),
        ),
        WrongAnswer(
            "no error",
            "If the key-value heads do not divide the heads, raise a ValueError.",
            _spend_with(raises=False),
        ),
    ),
)
