"""The sizes of a layer that has to fit a memory and a device.

The oracle tries one size after the other; a wrong answer has one part replaced.
"""

from __future__ import annotations

from collections.abc import Callable

from book.checkers.core import Answer, Case, Exercise, WrongAnswer, in_parts


def _one_after_the_other(
    budget: int, tokens: int, layers: int, shared: int, new: int, ridge: int
) -> tuple[int, int]:
    d_c = heads = 0
    while 2 * tokens * layers * (d_c + 64 + shared) <= budget:
        d_c += 64
    read = 2 * (d_c + shared)
    while new * 2 * (heads + 16) * (2 * d_c + shared) <= ridge * read:
        heads += 16
    return d_c, heads


@in_parts
def _sized(
    numbers: Callable[[int, int, int], int] = lambda budget, tokens, layers: (
        budget // (2 * tokens * layers)
    ),
    latent: Callable[[int, int], int] = lambda numbers, shared: numbers - shared,
    whole: Callable[[int], int] = lambda d_c: d_c // 64 * 64,
    per_head: Callable[[int, int], int] = lambda d_c, shared: 2 * d_c + shared,
    queries: Callable[[int], int] = lambda new: new,
    whole_heads: Callable[[int], int] = lambda heads: heads // 16 * 16,
) -> Answer:
    def answer(
        budget: int, tokens: int, layers: int, shared: int, new: int, ridge: int
    ) -> tuple[int, int]:
        d_c = whole(latent(numbers(budget, tokens, layers), shared))
        heads = ridge * (d_c + shared) // (queries(new) * per_head(d_c, shared))
        return d_c, whole_heads(heads)

    return answer


BUDGET = Exercise(
    title="A latent for a budget",
    oracle=_one_after_the_other,
    cases=(
        Case.of("61 layers, two new tokens", 20_000_000_000, 200_000, 61, 64, 2, 295),
        Case.of("one new token", 12_000_000_000, 100_000, 60, 64, 1, 295),
        Case.of("a latent that fits exactly", 5_120_000, 1_000, 10, 64, 1, 300),
        Case.of("one byte too few for it", 5_119_999, 1_000, 10, 64, 1, 300),
        Case.of("heads that meet the ridge exactly", 5_200_000, 1_000, 10, 64, 1, 280),
        Case.of("a wide shared key, four new tokens", 9_000_000_000, 50_000, 40, 192, 4, 590),
    ),
    wrong=(
        WrongAnswer(
            "the shared key left out of the cache",
            "The shared key lies in the cache too, so what is left for the latent is less.",
            _sized(latent=lambda numbers, shared: numbers),
        ),
        WrongAnswer(
            "a latent for keys and one for values",
            "One latent serves for keys and values, so it is cached once.",
            _sized(latent=lambda numbers, shared: (numbers - shared) // 2),
        ),
        WrongAnswer(
            "one byte a number",
            "A number of 16 bits takes two bytes.",
            _sized(numbers=lambda budget, tokens, layers: budget // (tokens * layers)),
        ),
        WrongAnswer(
            "one layer",
            "Every layer has a cache, and the budget is for all of them.",
            _sized(numbers=lambda budget, tokens, layers: budget // (2 * tokens)),
        ),
        WrongAnswer(
            "not rounded",
            "The width of the latent is to be a multiple of 64, the largest that fits.",
            _sized(whole=lambda d_c: d_c),
        ),
        WrongAnswer(
            "rounded up",
            "A latent rounded up to a multiple of 64 no longer fits.",
            _sized(whole=lambda d_c: -(-d_c // 64) * 64),
        ),
        WrongAnswer(
            "one new token",
            "The cache is read once for all new tokens of a step, and each of them does its own "
            "arithmetic: with `new` tokens there are `new` times as many FLOPs for each byte.",
            _sized(queries=lambda new: 1),
        ),
        WrongAnswer(
            "the latent used once",
            "Each latent is used as a key and again as a value, so a head does 2 d_c + d_R "
            "multiplications for each position.",
            _sized(per_head=lambda d_c, shared: d_c + shared),
        ),
        WrongAnswer(
            "two FLOPs a byte for each head",
            "That is the approximation. The shared key is used as a key only, so a head does "
            "somewhat less, and more heads may fit.",
            _sized(per_head=lambda d_c, shared: 2 * (d_c + shared)),
        ),
        WrongAnswer(
            "heads not rounded",
            "The number of heads is to be a multiple of 16, the largest that is allowed.",
            _sized(whole_heads=lambda heads: heads),
        ),
    ),
    variants=(_sized(),),
)
