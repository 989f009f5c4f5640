"""What people get wrong about embeddings and positions: wrong forms fail, the right ones hold."""

import json
import math
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from markdown_it import MarkdownIt

CHAPTER = Path(__file__).parents[2] / "notebooks" / "04_embeddings.ipynb"


def gap(a, b):
    return (a - b).abs().max().item()


def table(length, d, base=10000.0, exponent=lambda j, d: 2 * (j // 2) / d):
    """Row n, feature j: sin or cos of n / base^exponent(j)."""
    j = torch.arange(d)
    angle = torch.arange(length)[:, None] / base ** exponent(j, d)
    return torch.where(j % 2 == 0, angle.sin(), angle.cos())


def shift(offset, d, base=10000.0):
    turns = [offset * base ** (-2 * k / d) for k in range(d // 2)]
    blocks = [[[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]] for a in turns]
    return torch.block_diag(*map(torch.tensor, blocks))


def best_linear_map(p):
    """The largest error of the least-squares map from every row to the next."""
    m = torch.linalg.lstsq(p[:-1], p[1:], driver="gelsd").solution
    return gap(p[:-1] @ m, p[1:])


def rms(x):
    return x.pow(2).mean().sqrt().item()


def test_e38_without_the_factor_the_token_is_drowned_by_its_position():
    d = 512
    embedding = (torch.randn(3000, d) / math.sqrt(d)).requires_grad_()
    assert abs(rms(embedding) - 0.0442) < 2e-4
    assert abs(rms(table(100, d)) - math.sqrt(0.5)) < 1e-12
    assert not rms(embedding) > rms(table(100, d)) / 15
    assert abs(rms(math.sqrt(d) * embedding) - 1) < 0.01
    # The tied head: scores of unit size, and a gradient for rows that were not looked up.
    h = F.layer_norm(torch.randn(20, d), (d,))
    scores = h @ embedding.T
    assert gap(scores, F.linear(h, embedding)) < 1e-13
    assert abs(rms(scores) - 1) < 0.02
    used = torch.arange(20)
    loss = F.cross_entropy(scores + 0 * F.embedding(used, embedding).sum(), used)
    (gradient,) = torch.autograd.grad(loss, embedding)
    assert (gradient[20:].norm(dim=1) > 0).all()


def test_e39_any_mark_of_the_place_breaks_the_symmetry():
    x, order = torch.randn(6, 8), torch.tensor([3, 0, 5, 1, 4, 2])

    def attention(x):
        return F.scaled_dot_product_attention(x[None], x[None], x[None])[0]

    assert gap(attention(x[order]), attention(x)[order]) < 1e-14
    for positions in (table(6, 8), torch.randn(6, 8)):
        assert gap(attention(x[order] + positions), attention(x + positions)[order]) > 0.1


def test_e40_the_exponent_counts_pairs():
    j = torch.arange(4)
    assert (2 * (j // 2) / 4).tolist() == [0, 0, 0.5, 0.5]
    assert (2 * j / 4).tolist() == [0, 0.5, 1, 1.5]
    wrong = table(60, 4, base=10.0, exponent=lambda j, d: 2 * j / d)
    assert best_linear_map(wrong) > 0.1
    assert best_linear_map(table(60, 4, base=10.0)) < 1e-10


def test_e41_the_cosine_of_a_hundredth_rounds_to_one():
    assert f"{math.cos(0.01):.3f}" == "1.000"
    assert f"{math.cos(0.01):.4f}" == "1.0000"
    assert [f"{v:.3f}" for v in table(2, 4)[1].tolist()] == ["0.841", "0.540", "0.010", "1.000"]
    assert abs(math.cos(0.01) - (1 - 5e-5)) < 1e-9
    assert (math.cos(0.01) - 0.999) / (1 - math.cos(0.01)) == pytest.approx(19, abs=0.1)


def test_e42_the_table_of_the_chapter_is_what_the_formula_gives():
    line = "*position 0**: (0, 1, 0, 1) * **position 1**: (0.841, 0.540, 0.010, 0.999)"
    shown = re.sub(r"<[^>]+>", "", MarkdownIt().render(line))
    assert shown.count("*") == 2
    cells = {c["id"]: c for c in json.loads(CHAPTER.read_text(encoding="utf-8"))["cells"]}
    printed = "".join(cells["table-by-hand"]["outputs"][0]["text"]).splitlines()[1:5]
    rows = torch.tensor([[float(word) for word in line.split()] for line in printed])
    assert rows[:, 0].tolist() == [0, 1, 2, 3]
    assert gap(rows[:, 1:], table(4, 4)) < 5.1e-5


def test_e43_the_shift_is_a_rotation_of_pairs_and_the_dot_product_is_even():
    p, m = table(60, 16), shift(7, 16)
    assert gap(p[:-7] @ m, p[7:]) < 1e-13
    assert gap(m @ m.T, torch.eye(16)) < 1e-14
    # Only the sines of one pair: the next sine is no linear function of this one.
    assert best_linear_map(p[:, :1]) > 0.1
    assert best_linear_map(p[:, :2]) < 1e-12
    dots = p @ p.T
    assert gap(dots[30, 30:60], dots[30, 1:31].flip(0)) < 1e-13
    # A matrix in between tells before from after.
    directed = p @ shift(-3, 16) @ p.T
    assert directed[30].argmax() == 27
    assert directed[30, 27] - directed[30, 33] > 1


def test_e44_what_was_learned_at_length_64_fails_beyond():
    p = table(256, 32)

    def scores(a, length):
        later = torch.arange(length) > torch.arange(1, length)[:, None]
        return (p[1:length] @ a @ p[:length].T).masked_fill(later, -torch.inf)

    a = torch.zeros(32, 32, requires_grad=True)
    for _ in range(600):
        loss = F.cross_entropy(scores(a, 64), torch.arange(63))
        (gradient,) = torch.autograd.grad(loss, a)
        a = (a - gradient).detach().requires_grad_()
    right = scores(a, 256).argmax(1) == torch.arange(255)
    assert right[:63].all()
    assert not right[63:].double().mean() > 0.5
    assert (scores(shift(-1, 32), 256).argmax(1) == torch.arange(255)).all()


def test_p6_the_longest_wave_is_shorter_than_the_base():
    def longest(d):
        return max(10000 ** (2 * k / d) for k in range(d // 2))

    assert round(longest(512)) == 9647
    assert round(longest(4)) == 100
    assert longest(512) < 10000
    # The authors' library: exponents k / (d/2 - 1), and there the last one is 1.
    assert max(10000 ** (k / (512 // 2 - 1)) for k in range(256)) == 10000
