"""What a token leaves on each of the devices among which the heads are split.

The oracle goes from head to head; a wrong answer has one part replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from book.checkers.core import Answer, Case, Exercise, WrongAnswer, in_parts


def _head_by_head(
    heads: int, groups: int, features: int, latent: int, rotated: int, devices: int
) -> tuple[int, int]:
    kept: list[set[int]] = [set() for _ in range(devices)]
    for head in range(heads):
        kept[head * devices // heads].add(head * groups // heads)
    return max(2 * features * len(groups_here) for groups_here in kept), latent + rotated


def _of_each(heads: int, groups: int, devices: int) -> list[int]:
    """How many groups the heads of each device lie in."""
    own, sharing = heads // devices, heads // groups
    firsts = range(0, heads, own)
    return [(first + own - 1) // sharing - first // sharing + 1 for first in firsts]


@in_parts
def _shared(
    of_each: Callable[[int, int, int], Sequence[float]] = _of_each,
    which: Callable[[Sequence[float]], float] = max,
    pair: Callable[[float, int], float] = lambda kept, features: 2 * features * kept,
    copied: Callable[[int, int, int], float] = lambda latent, rotated, devices: latent + rotated,
) -> Answer:
    def answer(
        heads: int, groups: int, features: int, latent: int, rotated: int, devices: int
    ) -> tuple[float, float]:
        kept = which(of_each(heads, groups, devices))
        return pair(kept, features), copied(latent, rotated, devices)

    return answer


DEVICES = Exercise(
    title="A latent on many devices",
    oracle=_head_by_head,
    # The latents are divided evenly by the devices, so that a wrong split is told by its name.
    cases=(
        Case.of("eight groups on four devices", 128, 8, 128, 512, 64, 4),
        Case.of("one device", 16, 4, 8, 24, 4, 1),
        Case.of("more devices than groups", 32, 2, 16, 48, 8, 8),
        Case.of("heads of a device in two groups", 12, 3, 10, 40, 8, 4),
        Case.of("two devices share the group in the middle", 30, 5, 7, 21, 3, 3),
        Case.of("as many groups as heads", 12, 12, 8, 30, 6, 3),
        Case.of("one group", 12, 1, 64, 96, 24, 6),
    ),
    wrong=(
        WrongAnswer(
            "the latent split",
            "A head reads every number of the latent, so each device needs all of it.",
            _shared(copied=lambda latent, rotated, devices: (latent + rotated) / devices),
        ),
        WrongAnswer(
            "the latent split, the shared key copied",
            "A head reads every number of the latent, so each device needs all of it.",
            _shared(copied=lambda latent, rotated, devices: latent / devices + rotated),
        ),
        WrongAnswer(
            "no shared key",
            "The shared key lies in the cache beside the latent, and all heads read it.",
            _shared(copied=lambda latent, rotated, devices: latent),
        ),
        WrongAnswer(
            "the groups divided by the devices",
            "A device cannot keep a part of a group: a head reads the whole key of its group.",
            _shared(of_each=lambda heads, groups, devices: [groups / devices]),
        ),
        WrongAnswer(
            "one group at the least",
            "Not less than one group is right, but the heads of a device may also lie in more "
            "groups than groups / devices, if they begin in the middle of one.",
            _shared(of_each=lambda heads, groups, devices: [max(groups // devices, 1)]),
        ),
        WrongAnswer(
            "rounded up",
            "That is what the first device keeps, whose heads begin with a group, and it is the "
            "least. The heads of another may begin in the middle of a group and end in that of "
            "another one, and then lie in one group more.",
            _shared(of_each=lambda heads, groups, devices: [-(-groups // devices)]),
        ),
        WrongAnswer(
            "the mean of the devices",
            "Asked for is the device that keeps most, not the mean.",
            _shared(which=lambda kept: sum(kept) / len(kept)),
        ),
        WrongAnswer(
            "keys without values",
            "A group has a key and a value, each of `features` numbers.",
            _shared(pair=lambda kept, features: features * kept),
        ),
        WrongAnswer(
            "a key for each head",
            "Neighbouring heads of one group share its key and value; a device keeps them once.",
            _shared(of_each=lambda heads, groups, devices: [heads // devices]),
        ),
        WrongAnswer(
            "all groups everywhere",
            "A device needs the groups of its own heads only.",
            _shared(of_each=lambda heads, groups, devices: [groups]),
        ),
    ),
    variants=(_shared(),),
)
