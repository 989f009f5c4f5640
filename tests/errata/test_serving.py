"""Misconceptions of the chapter on serving."""

import torch

from transformer_parts.serving import Job, Scheduler


def test_e156_drafted_tokens_and_the_residual_add_up():
    for seed in range(20):
        draw = torch.Generator().manual_seed(seed)
        p, q = (2 * torch.randn(2, 9, generator=draw, dtype=torch.float64)).softmax(-1)
        accepted = q * (p / q).clamp(max=1)
        left = (p - q).clamp(min=0)
        written = accepted + (1 - accepted.sum()) * left / left.sum()
        assert (written - p).abs().max() < 1e-12
        assert (q - p).abs().max() > 1e-3  # the draft itself says something else


def test_e157_the_model_after_a_refusal_says_a_too_often():
    p, q = torch.tensor([0.6, 0.4]), torch.tensor([0.8, 0.2])
    accepted = torch.minimum(p, q)
    written = accepted + (1 - accepted.sum()) * p
    assert abs(written[0] - 0.72) < 1e-6
    left = (p - q).clamp(min=0)
    right = accepted + (1 - accepted.sum()) * left / left.sum()
    assert abs(right[0] - 0.6) < 1e-6


def test_e158_chunks_make_passes_short_and_prompts_late():
    longest, passes = {}, {}
    for chunked, budget in ((True, 64), (False, 700)):
        scheduler = Scheduler(8, budget, chunked=chunked)
        scheduler.running = [Job(5, 90, read=5, written=1) for _ in range(4)]
        late = Job(600, 1)
        scheduler.add(late)
        sizes = []
        while not late.done:
            chosen = scheduler.plan()
            sizes.append(sum(n for _, n in chosen))
            scheduler.ran(chosen)
        longest[chunked], passes[chunked] = max(sizes), len(sizes)
    assert longest == {True: 64, False: 604}
    assert passes[False] == 1
    assert passes[True] >= 10


def test_e159_a_check_is_free_for_few_texts_only():
    def bound(tokens, positions=0, weights=8e9, per_position=131072):
        products = max(2 * weights * tokens / 989e12, 2 * weights / 3.35e12)
        return products + positions * per_position / 3.35e12

    assert bound(5) == bound(1)
    assert bound(5 * 512) / bound(512) > 4
    assert bound(5 * 200) / bound(200) > 3
    assert bound(5 * 200, 200 * 2000) / bound(200, 200 * 2000) < 2
