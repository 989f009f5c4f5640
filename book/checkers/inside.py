"""Chapter 19: heads that work together, a detector, shares of a logit, what experiments say."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable

import torch
from torch import Tensor, nn

from book.checkers.core import SIXTEEN_BITS, Case, Exercise, WrongAnswer, in_parts
from book.checkers.questions import WrongNumber, choice, number


def draw(*shape: int, seed: int = 0) -> Tensor:
    """Normal numbers in float64, the same each time."""
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=rng, dtype=torch.float64)


PREDICT = number(
    "Two earlier places",
    value=lambda: 2 / 3,
    within=0.02,
    because="Three rows say that A stood before them, and they hold B, D and B. Their scores are "
    "equal, so softmax gives each one third, and B has two of the three.",
    wrong=[
        WrongNumber(
            "each kind of word once",
            "B and D are the two words, but B stands in two rows, and each row has its own weight.",
            lambda: 1 / 2,
        ),
        WrongNumber(
            "only one place",
            "Nothing in the scores prefers the first place, nor the last: all keys that fit have "
            "the same score.",
            lambda: 1.0,
        ),
        WrongNumber(
            "what stood before",
            "C, D and B stood before an A. The head looks for places that an A stood before.",
            lambda: 1 / 3,
        ),
        WrongNumber(
            "all rows alike",
            "That is the share of B among all eight words. Rows whose key does not fit have a "
            "weight of nearly zero.",
            lambda: 1 / 4,
        ),
    ],
)

PAIR = choice(
    "Two heads at once",
    right="A",
    because="Without one of 0.1 and 0.2 hardly a who-question is lost, and without both many "
    "are: as long as one of them writes, the other can go.",
    tempting={
        "B": (
            "the heads that places need",
            "Without both nearly all where-questions fail, and hardly one of the who-questions.",
        ),
        "C": (
            "two heads of layer 1",
            "The questions for what somebody does every day fail, and who stays as it was.",
        ),
        "D": (
            "the heads for abilities and sums",
            "Here what and sum suffer. The who-questions stay as they were.",
        ),
    },
)

CHANCE = number(
    "How large is a cosine by chance?",
    value=lambda: 128**-0.5,
    within=0.1,
    because="The squares of 128 numbers that add up to 1 are 1/128 on average, and the root of "
    "that is {value}.",
    wrong=[
        WrongNumber(
            "the mean square",
            "1/128 is the mean of the square. Its root is asked for.",
            lambda: 1 / 128,
        ),
        WrongNumber(
            "the mean",
            "The mean is zero, because the signs cancel. In the root mean square they do not.",
            lambda: 0.0,
        ),
        WrongNumber(
            "as in a plane",
            "In two dimensions it is the root of one half. Here there are 128.",
            lambda: 0.5**0.5,
        ),
    ],
)

DESIGN = choice(
    "Which experiment?",
    right="C",
    because="Asked for the drum, the head carries the other name. If it is the head that hands "
    "over the name, the answer must become that name, whatever the question of this run was. If "
    "the answer stays, something else hands it over.",
    tempting={
        "A": (
            "what the belief predicts: the head is needed",
            "That agrees with the belief, though a head can be needed for another reason.",
        ),
        "B": (
            "what the belief predicts: where it looks",
            "That is what suggested the belief in the first place.",
        ),
        "D": (
            "what the belief predicts: the other name does not matter",
            "If the name is copied from the kite's place, the one at the drum cannot change it.",
        ),
    },
)

# --- a gradient -----------------------------------------------------------------------------------


@functools.cache
def _foretold() -> dict[str, float]:
    """Leads of the two stories, and what gradients at both ends foretell of the exchange."""
    from book.own import encode, own_model
    from book.own.inside import blocks
    from book.own.tokens import ID

    model = own_model().double()
    told = "one sunny day anna and ben met . there was a red kite for {} . there was a blue drum "
    told += "for {} . who has what ? kite"

    def run(*owners: str) -> tuple[float, Tensor, Tensor]:
        """The lead of the first name; the stream at its word in the story, and the slope there."""
        streams: list[Tensor] = []

        def keep(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
            streams.append(output.detach().clone().requires_grad_())
            return streams[0]

        hook = blocks(model)[0].ffn.register_forward_hook(keep)
        logits = model(torch.tensor([encode(told.format(*owners))]))[0, -1]
        hook.remove()
        lead = logits[ID["anna"]] - logits[ID["ben"]]
        [slope] = torch.autograd.grad(lead, streams)
        return lead.item(), streams[0][0, 15].detach(), slope[0, 15]

    lead, clean, slope = run("anna", "ben")
    other_lead, other, other_slope = run("ben", "anna")
    way = clean - other
    return {
        "span": lead - other_lead,
        "lead": lead,
        "change": (slope @ way).item(),
        "from the other": (other_slope @ way).item(),
    }


def _estimate(change: str = "change", over: str = "span", sign: float = 1) -> Callable[[], float]:
    return lambda: sign * _foretold()[change] / (_foretold()[over] if over else 1)


GRADIENT = number(
    "What the gradient foretells",
    value=_estimate(),
    within=0.01,
    because="The slope at the start foretells {value} of the way, where the exchange goes all of "
    "it: on the way D falls faster than at the start.",
    wrong=[
        WrongNumber(
            "the exchange itself",
            "That is the effect of the exchange. Asked for is what the gradient at the first "
            "story's vector says of it.",
            lambda: 1.0,
        ),
        WrongNumber(
            "the difference the other way round",
            "The effect is positive if D falls. Take the first story's vector less the other one.",
            _estimate(sign=-1),
        ),
        WrongNumber(
            "not divided",
            "That is the change of D. Divide by the difference of D between the two stories.",
            _estimate(over=""),
        ),
        WrongNumber(
            "divided by one lead",
            "Divide by the difference of D between the two stories, not by D of the first.",
            _estimate(over="lead"),
        ),
        WrongNumber(
            "the gradient of the other story",
            "The gradient is that at the first story's vector, in the first story's run.",
            _estimate("from the other"),
        ),
    ],
)

# --- a probe --------------------------------------------------------------------------------------


@functools.cache
def _read() -> tuple[Tensor, list[Tensor], int]:
    """The words of thirty stories, their streams at both ends, the length of the last ten."""
    from book.own import encode, own_model
    from book.own.inside import blocks
    from book.stories import stories

    model = own_model().double()
    streams: list[list[Tensor]] = [[], []]
    words: list[int] = []
    ends = (model.embed, blocks(model)[1].ffn)
    hooks = [
        end.register_forward_hook(lambda _, inputs, output, seen=seen: seen.append(output[0]))
        for end, seen in zip(ends, streams, strict=True)
    ]
    with torch.no_grad():
        for name in range(3):
            before = len(words)
            for story in itertools.islice(stories(f"sinks {name}"), 10):
                words += encode(story.words)
                model(torch.tensor([encode(story.words)]))
    for hook in hooks:
        hook.remove()
    return torch.tensor(words), [torch.cat(seen) for seen in streams], len(words) - before


def _probed(end: int, coins: bool) -> float:
    """What share a linear probe gets right in the last ten of the stories."""
    from book.stories import VOCABULARY
    from book.stories import words as lists

    words, streams, last = _read()
    rng = torch.Generator().manual_seed(0)
    labels = torch.randint(2, (len(VOCABULARY),), generator=rng).bool()
    if not coins:
        labels = torch.tensor([word in lists.THINGS for word in VOCABULARY])
    x = torch.cat([streams[end], torch.ones(len(words), 1, dtype=torch.float64)], 1)
    y = labels[words]
    signs = y.double() * 2 - 1
    way = torch.linalg.lstsq(x[:-last], signs[:-last, None]).solution[:, 0]
    right = (x[-last:] @ way > 0) == y[-last:]
    return float(right.double().mean())


CONTROL = number(
    "A control for a probe",
    value=lambda: _probed(0, coins=True),
    within=0.01,
    because="The ten stories use the same words, and every word keeps its coin, so what the probe "
    "has learned by heart serves it there as well.",
    wrong=[
        WrongNumber(
            "as good as a guess",
            "A guess would get one half. But the probe has met these words, each with its coin, in "
            "the stories it was trained on.",
            lambda: 0.5,
        ),
        WrongNumber(
            "the names of things",
            "That is the share for the names of things. Asked for is that for coins.",
            lambda: _probed(0, coins=False),
        ),
        WrongNumber(
            "after both layers",
            "That is the share after both layers. Asked for is that at the embedding.",
            lambda: _probed(1, coins=True),
        ),
    ],
)

# --- induction ------------------------------------------------------------------------------------


@in_parts
def _score(
    offset: int = 1, last: bool = True, mean: bool = True, keys: bool = False
) -> Callable[[Tensor, int], Tensor]:
    """The mean of the last rows on the diagonal that lies `length - offset` below."""

    def score(weights: Tensor, length: int) -> Tensor:
        if keys:
            weights = weights.mT
        line = weights.diagonal(offset - length, -2, -1)
        line = line[..., -length:] if last else line
        return line.mean(-1) if mean else line.sum(-1)

    return score


def _by_rows(weights: Tensor, length: int) -> Tensor:
    """A right one: row by row."""
    size = weights.shape[-1]
    rows = range(size - length, size)
    return torch.stack([weights[..., t, t - length + 1] for t in rows]).mean(0)


def _weights(*shape: int, seed: int = 0) -> Tensor:
    size = shape[-1]
    future = torch.ones(size, size, dtype=torch.bool).triu(1)
    return draw(*shape, seed=seed).masked_fill(future, -torch.inf).softmax(-1)


def _score_case(name: str, *shape: int, length: int, seed: int = 0) -> Case:
    return Case(name, lambda: (_weights(*shape, seed=seed), length))


INDUCTION = Exercise(
    "A detector",
    oracle=_score(),
    cases=(
        _score_case("one head", 9, 9, length=4),
        _score_case("four heads", 4, 9, 9, length=3, seed=1),
        _score_case("layers and heads", 2, 3, 11, 11, length=5, seed=2),
        _score_case("no token in front", 8, 8, length=4, seed=3),
        _score_case("a long text in front", 3, 20, 20, length=3, seed=4),
        _score_case("two words, twice", 5, 5, length=2, seed=5),
        _score_case("a long sequence", 601, 601, length=300, seed=6),
    ),
    wrong=(
        WrongAnswer(
            "the earlier occurrence itself",
            "L places back stands the same word. What came after it is one place nearer.",
            _score(offset=0),
        ),
        WrongAnswer(
            "one place too near",
            "L - 1 places back stands the word after the earlier one; this looks one further on.",
            _score(offset=2),
        ),
        WrongAnswer(
            "the whole diagonal",
            "In the first half no word has occurred before. Only the last L rows count.",
            _score(last=False),
        ),
        WrongAnswer(
            "a sum",
            "Asked for is the mean of the L rows.",
            _score(mean=False),
        ),
        WrongAnswer(
            "rows and columns exchanged",
            "A row is a query, a column a key. Below the diagonal lies what came before.",
            _score(keys=True),
        ),
    ),
    variants=(_by_rows,),
    leading={"weights": 2},
)

# --- attribution ----------------------------------------------------------------------------------


@in_parts
def _share(
    norm: str = "whole",
    gain: bool = True,
    eps: bool = True,
    root: bool = True,
    squared: bool = True,
) -> Callable[[Tensor, Tensor, float, Tensor], Tensor]:
    """The shares, with some of the steps in another way."""

    def share(parts: Tensor, weight: Tensor, small: float, row: Tensor) -> Tensor:
        of = {"whole": parts.sum(0), "each": parts, "mean": parts.mean(0)}[norm]
        size = of.square().mean(-1) if squared else of.square().sum(-1)
        size = size + small if eps else size
        size = size.sqrt() if root else size
        return parts @ (weight * row if gain else row) / size

    return share


def _by_loops(parts: Tensor, gain: Tensor, eps: float, row: Tensor) -> Tensor:
    """A right one: part by part."""
    whole = torch.zeros_like(parts[0])
    for part in parts:
        whole = whole + part
    rms = ((whole**2).sum() / len(whole) + eps) ** 0.5
    return torch.stack([(part / rms * gain * row).sum() for part in parts])


def _oracle(parts: Tensor, gain: Tensor, eps: float, row: Tensor) -> Tensor:
    answer: Tensor = _share()(parts, gain, eps, row)
    return answer


def _share_case(name: str, count: int, width: int, eps: float = 1e-5, seed: int = 0) -> Case:
    return Case(
        name,
        lambda: (
            draw(count, width, seed=seed).requires_grad_(),
            draw(width, seed=seed + 1).abs() + 0.5,
            eps,
            draw(width, seed=seed + 2),
        ),
        grad=True,
    )


ATTRIBUTION = Exercise(
    "Shares that do not add up",
    oracle=_oracle,
    cases=(
        _share_case("three parts", 3, 5),
        _share_case("one part", 1, 4, seed=10),
        _share_case("many parts", 9, 6, seed=20),
        _share_case("a large eps", 4, 7, eps=2.0, seed=30),
        _share_case("another width", 2, 11, eps=0.1, seed=40),
    ),
    wrong=(
        WrongAnswer(
            "each part normalised by itself",
            "The model divides once, by the root mean square of the sum of all parts.",
            _share(norm="each"),
        ),
        WrongAnswer(
            "the mean of the parts normalised",
            "The stream is the sum of the parts, not their mean.",
            _share(norm="mean"),
        ),
        WrongAnswer("the gain left out", "The norm multiplies by the gain.", _share(gain=False)),
        WrongAnswer("eps left out", "eps is added under the root.", _share(eps=False)),
        WrongAnswer("no root", "The norm divides by the root mean square.", _share(root=False)),
        WrongAnswer(
            "the length instead of the root mean square",
            "Under the root stands the mean of the squares, not their sum.",
            _share(squared=False),
        ),
    ),
    variants=(_by_loops,),
    spared=dict.fromkeys(SIXTEEN_BITS, "a sum of shares is rounded in another order"),
)

EXERCISES = {
    "predict": PREDICT,
    "induction": INDUCTION,
    "pair": PAIR,
    "design": DESIGN,
    "gradient": GRADIENT,
    "attribution": ATTRIBUTION,
    "chance": CHANCE,
    "control": CONTROL,
}
