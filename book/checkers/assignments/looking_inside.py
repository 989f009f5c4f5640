"""The questions of the assignment on looking inside a model.

The oracles go from place to place and from head to head, never through the book's library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from book.checkers.assignments.common import draw
from book.checkers.core import SIXTEEN_BITS, Answer, Case, Exercise, WrongAnswer, in_parts

# --- mean_ablated ---------------------------------------------------------------------------------


def _mean_ablated(outputs: Tensor, words: Tensor) -> Tensor:
    """Place by place, over the places of all other stories."""
    n, t = words.shape
    result = torch.zeros_like(outputs)
    for i in range(n):
        others = [(a, b) for a in range(n) for b in range(t) if a != i]
        for j in range(t):
            same = [place for place in others if words[place] == words[i, j]]
            result[i, j] = torch.stack([outputs[place] for place in same or others]).mean(0)
    return result


@in_parts
def _ablated_with(
    alike: Callable[[Tensor, Tensor], Tensor] = lambda a, b: a == b,
    away: Callable[[Tensor, int], Tensor] = lambda story, i: story != story[i],
    rest: Callable[[Tensor, Tensor, Tensor], Tensor] = (
        lambda flat, others, story: flat[others].mean(0)
    ),
    pool: Callable[[Tensor], Tensor] = lambda rows: rows.mean(0),
    key: Callable[[Tensor], Tensor] = lambda words: words,
) -> Answer:
    def answer(outputs: Tensor, words: Tensor) -> Tensor:
        n, t, d = outputs.shape
        flat, named = outputs.reshape(-1, d), key(words).flatten()
        story = torch.arange(n).repeat_interleave(t)
        rows = []
        for i in range(n * t):
            others = away(story, i)
            chosen = others & alike(named, named[i])
            rows.append(pool(flat[chosen]) if chosen.any() else rest(flat, others, story))
        return torch.stack(rows).reshape(outputs.shape)

    return answer


def _ablated_case(name: str, words: Sequence[Sequence[int]], d: int = 3) -> Case:
    def inputs() -> tuple[Any, ...]:
        told = torch.tensor(words)
        return draw(*told.shape, d, seed=told.numel(), offset=0.7), told

    return Case(name, inputs)


_ABLATED = Exercise(
    title="A head taken out by the mean of its word",
    oracle=_mean_ablated,
    cases=(
        _ablated_case("values: three stories", [[1, 2, 3, 2], [2, 1, 4, 3], [3, 3, 1, 2]]),
        _ablated_case("values: a word twice in a story", [[1, 1, 2], [1, 2, 2], [2, 1, 1]]),
        _ablated_case("values: four stories, a wide head",
                      [[5, 1, 2], [1, 5, 3], [2, 3, 5], [3, 2, 1]], 6),
        _ablated_case("values: two stories", [[1, 2, 3, 4, 5], [5, 4, 3, 2, 1]], 2),
        _ablated_case("alone: a word of one story only", [[1, 2, 9], [2, 1, 1], [1, 2, 2]]),
        _ablated_case("alone: a word that comes back in its own story",
                      [[7, 7, 1], [1, 2, 2], [2, 1, 3]]),
        _ablated_case("alone: no word is in two stories", [[1, 2], [3, 4], [5, 6]]),
    ),
    wrong=(
        WrongAnswer(
            "zero in place of the mean",
            "A zero is an output that the model never saw: what follows may break for that alone.",
            _ablated_with(pool=lambda rows: 0 * rows.mean(0),
                          rest=lambda flat, others, story: 0 * flat[0]),
        ),
        WrongAnswer(
            "the mean over all words",
            "What the head adds for a word whatever the story is to stay: average by word.",
            _ablated_with(alike=lambda a, b: a == a),
        ),
        WrongAnswer(
            "the own story in the mean",
            "The mean over the own story tells of what is to be taken out. Use other stories.",
            _ablated_with(away=lambda story, i: story == story),
        ),
        WrongAnswer(
            "only the place itself left out",
            "Other places of the same story saw the same beginning: leave out the whole story.",
            _ablated_with(away=lambda story, i: torch.arange(len(story)) != i),
        ),
        WrongAnswer(
            "the next word",
            "The mean is over places with the same word, the one that is read there.",
            _ablated_with(key=lambda words: words.roll(-1, 1)),
        ),
        WrongAnswer(
            "the word before",
            "The mean is over places with the same word, not with the same one before them.",
            _ablated_with(key=lambda words: words.roll(1, 1)),
        ),
        WrongAnswer(
            "the same place in place of the same word",
            "Places are compared by their word, wherever in a story it stands.",
            _ablated_with(key=lambda words: torch.arange(words.shape[1]).expand(words.shape)),
        ),
        WrongAnswer(
            "the sum",
            "A sum grows with the number of places; the mean has the size of one output.",
            _ablated_with(pool=lambda rows: rows.sum(0)),
        ),
        WrongAnswer(
            "one place in place of the mean",
            "One other place brings what its own story added: the mean over all of them was asked.",
            _ablated_with(pool=lambda rows: rows[0]),
        ),
        WrongAnswer(
            "zero for a word of one story",
            "Without another story that has the word, the mean over all their places is taken.",
            _ablated_with(rest=lambda flat, others, story: 0 * flat[0]),
        ),
        WrongAnswer(
            "for a word of one story the mean over all stories",
            "The mean that takes its place leaves out the own story as well.",
            _ablated_with(rest=lambda flat, others, story: flat.mean(0)),
        ),
        WrongAnswer(
            "nothing divided by nothing",
            "A mean over no place is nan. Take the mean over all places of the other stories.",
            _ablated_with(rest=lambda flat, others, story: flat[:0].mean(0)),
        ),
    ),
    variants=(_ablated_with(),),
    spared=dict.fromkeys(SIXTEEN_BITS, "the text leaves the dtype open"),
)  # fmt: skip


# --- induction_excess -----------------------------------------------------------------------------


def _induction_excess(weights: Tensor, tokens: Tensor) -> Tensor:
    """Head by head and query by query."""
    found = tokens.tolist()
    rows = []
    for head in weights:
        excess = []
        for t, token in enumerate(found):
            keys = [s + 1 for s in range(t - 1) if found[s] == token]
            if keys:
                seen = math.fsum(float(head[t, key]) for key in keys)
                excess.append(seen - len(keys) / (t + 1))
        rows.append(math.fsum(excess) / len(excess) if excess else 0.0)
    return torch.tensor(rows, dtype=weights.dtype)


@in_parts
def _excess_with(
    shift: int = 1,
    allowed: Callable[[Tensor, Tensor], Tensor] = lambda t, key: key < t,
    choose: Callable[[Tensor], Tensor] = lambda mask: mask,
    gather: Callable[[Tensor, Tensor], Tensor] = lambda w, mask: (w * mask).sum(-1),
    chance: Callable[[Tensor, Tensor], Tensor] = lambda count, t: count / (t + 1),
    count_of: Callable[[Tensor], Tensor] = lambda asked: asked,
    turned: Callable[[Tensor], Tensor] = lambda w: w,
    combine: Callable[[Tensor, Tensor], Tensor] = lambda seen, even: seen - even,
) -> Answer:
    def answer(weights: Tensor, tokens: Tensor) -> Tensor:
        n = len(tokens)
        t = torch.arange(n)
        same = (tokens[:, None] == tokens).tril(-1)
        mask = torch.zeros(n, n, dtype=torch.bool)
        mask[:, shift:] = same[:, : n - shift]
        mask = choose(mask & allowed(t[:, None], t[None]))
        count = mask.sum(1)
        asked = count_of(count > 0)
        if not asked.any():
            return weights.new_zeros(len(weights))
        seen = gather(turned(weights), mask.to(weights.dtype))
        even = chance(count.to(weights.dtype), t.to(weights.dtype))
        return combine(seen, even)[:, asked].mean(1)

    return answer


def _last_key(mask: Tensor) -> Tensor:
    n = mask.shape[1]
    place = torch.arange(n)
    last = (mask * (place + 1)).amax(1, keepdim=True) - 1
    return mask & (place == last)


def _first_key(mask: Tensor) -> Tensor:
    return mask & (mask.cumsum(1) == 1)


def _excess_case(name: str, text: str, heads: int = 3) -> Case:
    def inputs() -> tuple[Any, ...]:
        tokens = torch.tensor([ord(c) for c in text], dtype=torch.int64)
        n = len(tokens)
        scores = draw(heads, n, n, seed=n)
        future = torch.ones(n, n, dtype=torch.bool).triu(1)
        return scores.masked_fill(future, -math.inf).softmax(-1), tokens

    return Case(name, inputs)


_EXCESS = Exercise(
    title="A detector of induction with its control",
    oracle=_induction_excess,
    cases=(
        _excess_case("values: a part said twice", "abcdabcd"),
        _excess_case("values: a word that comes three times", "abacadab"),
        _excess_case("values: a story", "thecatandthehatandthebat", 4),
        _excess_case("values: hardly any repeats", "abcdefgahi"),
        _excess_case("values: one head", "xyxzxyxz", 1),
        _excess_case("corners: a token right after itself", "aabbaab"),
        _excess_case("corners: the same one all along", "aaaaaa"),
        _excess_case("corners: nothing comes back", "abcdef"),
        _excess_case("corners: only neighbours are equal", "aabbcc"),
        _excess_case("corners: a single token", "a"),
    ),
    wrong=(
        WrongAnswer(
            "without the control",
            "Even weights score too, the more the shorter the text: take that off.",
            _excess_with(combine=lambda seen, even: seen + 0 * even),
        ),
        WrongAnswer(
            "the earlier token itself",
            "Induction looks at what came after the earlier occurrence, one place further on.",
            _excess_with(shift=0),
        ),
        WrongAnswer(
            "only the last occurrence",
            "All earlier occurrences count: what follows any of them is looked at.",
            _excess_with(choose=_last_key),
        ),
        WrongAnswer(
            "only the first occurrence",
            "All earlier occurrences count, not the first one alone.",
            _excess_with(choose=_first_key),
        ),
        WrongAnswer(
            "the query itself among the keys",
            "After a token that repeats itself at once, the next place is the query: leave it out.",
            _excess_with(allowed=lambda t, key: key <= t),
        ),
        WrongAnswer(
            "queries without an earlier occurrence counted",
            "Where the token is new there is nothing to look back to: such queries do not count.",
            _excess_with(count_of=lambda asked: torch.ones_like(asked)),
        ),
        WrongAnswer(
            "even weights over all tokens of the text",
            "A causal query t has t + 1 keys, counted from 0: its even weight is 1 / (t + 1).",
            _excess_with(chance=lambda count, t: count / len(t)),
        ),
        WrongAnswer(
            "even weights without the query's own key",
            "The query may look at itself too: t + 1 keys share the even weights.",
            _excess_with(chance=lambda count, t: count / t.clamp(min=1)),
        ),
        WrongAnswer(
            "one key's even weight for several keys",
            "Several keys get several even weights: count times 1 / (t + 1).",
            _excess_with(chance=lambda count, t: 1 / (t + 1)),
        ),
        WrongAnswer(
            "the largest in place of the sum",
            "The weights on all such keys are added up.",
            _excess_with(gather=lambda w, mask: (w * mask).amax(-1)),
        ),
        WrongAnswer(
            "keys and queries exchanged",
            "Rows are queries, columns are keys.",
            _excess_with(turned=lambda w: w.mT),
        ),
        WrongAnswer(
            "a quotient in place of the difference",
            "What is above even weights was asked for: the difference.",
            _excess_with(combine=lambda seen, even: seen / even),
        ),
    ),
    variants=(_excess_with(),),
    spared={
        **dict.fromkeys(SIXTEEN_BITS, "the text leaves the dtype open"),
        **dict.fromkeys(("tiny", "huge"), "weights of a query sum to one"),
    },
)  # fmt: skip


# --- lens_surprise --------------------------------------------------------------------------------


def _lens_surprise(
    stream: Tensor, gain: Tensor, unembedding: Tensor, targets: Tensor, eps: float
) -> Tensor:
    """Word by word, in Python's numbers."""
    table, g = unembedding.tolist(), gain.tolist()
    layers = []
    for layer in stream.tolist():
        row = []
        for x, target in zip(layer, targets.tolist(), strict=True):
            size = math.sqrt(math.fsum(v * v for v in x) / len(x) + eps)
            y = [v / size * a for v, a in zip(x, g, strict=True)]
            logits = [math.fsum(a * b for a, b in zip(y, u, strict=True)) for u in table]
            most = max(logits)
            total = most + math.log(math.fsum(math.exp(z - most) for z in logits))
            row.append(total - logits[target])
        layers.append(row)
    return torch.tensor(layers, dtype=stream.dtype)


@in_parts
def _lens_with(
    norm: Callable[[Tensor, float], Tensor] = (
        lambda x, eps: x * (x.square().mean(-1, keepdim=True) + eps).rsqrt()
    ),
    scaled: Callable[[Tensor, Tensor], Tensor] = lambda x, gain: x * gain,
    surprise: Callable[[Tensor], Tensor] = lambda logits: -logits.log_softmax(-1),
    wanted: Callable[[Tensor], Tensor] = lambda targets: targets,
    source: Callable[[Tensor], Tensor] = lambda stream: stream,
) -> Answer:
    def answer(
        stream: Tensor, gain: Tensor, unembedding: Tensor, targets: Tensor, eps: float
    ) -> Tensor:
        x = scaled(norm(source(stream), eps), gain)
        all_words = surprise(x @ unembedding.mT)
        at = wanted(targets).expand(all_words.shape[:-1])
        return all_words.gather(-1, at[..., None])[..., 0]

    return answer


def _lens_case(
    name: str, layers: int, t: int, d: int, vocab: int, eps: float, *, grow: float = 2.0,
    zero: bool = False,
) -> Case:  # fmt: skip
    def inputs() -> tuple[Any, ...]:
        stream = draw(layers, t, d, seed=d + t, offset=0.3).cumsum(0)
        stream = stream * grow ** torch.arange(layers, dtype=torch.float64)[:, None, None]
        if zero:
            stream[0] = 0.0
        targets = torch.arange(t) * 3 % vocab
        gain = draw(d, seed=1, offset=1.0, scale=0.5)
        return stream, gain, draw(vocab, d, seed=vocab), targets, eps

    return Case(name, inputs)


_LENS = Exercise(
    title="The surprise of a model that stops early",
    oracle=_lens_surprise,
    cases=(
        _lens_case("values: three layers", 3, 4, 5, 7, 1e-6),
        _lens_case("values: six layers that grow", 6, 3, 4, 9, 1e-5, grow=3.0),
        _lens_case("values: one layer", 1, 5, 6, 4, 1e-6),
        _lens_case("values: a large eps", 3, 4, 4, 6, 0.5),
        _lens_case("values: many words", 2, 6, 8, 40, 1e-6),
        _lens_case("corners: nothing in the stream yet", 3, 4, 5, 7, 1e-6, zero=True),
        _lens_case("corners: streams of hundreds", 3, 2, 16, 5, 1e-6, grow=40.0),
        _lens_case("corners: two words", 2, 3, 3, 2, 1e-6),
        _lens_case("corners: one token", 4, 1, 3, 5, 1e-6),
    ),
    wrong=(
        WrongAnswer(
            "no norm",
            "The output matrix was trained behind the last norm: streams of any size need it.",
            _lens_with(norm=lambda x, eps: x),
        ),
        WrongAnswer(
            "the gain forgotten",
            "The last norm has a gain for each feature, and it changes which word is ahead.",
            _lens_with(scaled=lambda x, gain: x),
        ),
        WrongAnswer(
            "the size of the last layer for all",
            "Each layer's stream is normalised by its own size.",
            _lens_with(norm=lambda x, eps: (
                x * (x[-1:].square().mean(-1, keepdim=True) + eps).rsqrt())),
        ),
        WrongAnswer(
            "one size for all tokens",
            "Every token is normalised for itself, over its features.",
            _lens_with(norm=lambda x, eps: (
                x * (x.square().mean((-2, -1), keepdim=True) + eps).rsqrt())),
        ),
        WrongAnswer(
            "the mean taken off",
            "This model's last norm is RMSNorm, which takes no mean off.",
            _lens_with(norm=lambda x, eps: (
                (x - x.mean(-1, keepdim=True))
                * ((x - x.mean(-1, keepdim=True)).square().mean(-1, keepdim=True) + eps).rsqrt())),
        ),
        WrongAnswer(
            "eps outside the root",
            "Epsilon is added to the mean square, under the root.",
            _lens_with(norm=lambda x, eps: x / (x.square().mean(-1, keepdim=True).sqrt() + eps)),
        ),
        WrongAnswer(
            "eps forgotten",
            "A stream of zeros has no direction: epsilon keeps it from becoming nan.",
            _lens_with(norm=lambda x, eps: x * x.square().mean(-1, keepdim=True).rsqrt()),
        ),
        WrongAnswer(
            "the sum of squares for their mean",
            "RMSNorm divides by the root of the mean square, over d features.",
            _lens_with(norm=lambda x, eps: (
                x * (x.square().sum(-1, keepdim=True) + eps).rsqrt())),
        ),
        WrongAnswer(
            "the logit in place of the surprise",
            "A logit means nothing without those of the other words: -log of the probability.",
            _lens_with(surprise=lambda logits: -logits),
        ),
        WrongAnswer(
            "the probability",
            "The surprise is minus the logarithm of the probability.",
            _lens_with(surprise=lambda logits: logits.softmax(-1)),
        ),
        WrongAnswer(
            "in bits",
            "Nats were asked for: the natural logarithm.",
            _lens_with(surprise=lambda logits: -logits.log_softmax(-1) / math.log(2)),
        ),
        WrongAnswer(
            "targets moved once more",
            "targets[t] is the word after token t already.",
            _lens_with(wanted=lambda targets: targets.roll(-1)),
        ),
        WrongAnswer(
            "what a layer adds, in place of the stream",
            "The model would stop at the stream, the sum of all that was added so far.",
            _lens_with(source=lambda x: torch.cat([x[:1], x[1:] - x[:-1]])),
        ),
    ),
    variants=(_lens_with(),),
    spared={
        **dict.fromkeys(SIXTEEN_BITS, "the text leaves the dtype open"),
        **dict.fromkeys(("tiny", "huge"), "a stream of such size meets eps, or an overflow"),
    },
)  # fmt: skip


EXERCISES = {
    "mean_ablated": _ABLATED,
    "induction_excess": _EXCESS,
    "lens_surprise": _LENS,
}
