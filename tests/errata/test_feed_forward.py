"""What people get wrong about feed-forward layers: each wrong form fails, the right one holds."""

import math
from fractions import Fraction

import torch
import torch.nn.functional as F
from torch import nn

from book.facts import fact
from transformer_parts.feed_forward import FeedForward, GatedFeedForward


def gap(a, b):
    return (a - b).abs().max().item()


def count(module):
    return sum(p.numel() for p in module.parameters())


def up(x, m):
    return (x + m - 1) // m * m


def test_e18_glu_halves_one_projection_and_multiplies_entry_by_entry():
    x, linear = torch.randn(3, 4), nn.Linear(4, 10)
    a, b = linear(x).chunk(2, -1)
    official = F.glu(linear(x))
    # Read as the tensor product of two rows, the formula has another shape.
    assert torch.kron(a[0], b[0].sigmoid()).shape == (25,)
    assert official[0].shape == (5,)
    assert gap(a * b.sigmoid(), official) < 1e-15


def test_e22_the_branches_of_a_gated_layer_cannot_be_exchanged():
    x, layer = torch.randn(8, 6), GatedFeedForward(6, 16)
    state = layer.state_dict()
    renamed = {"w_gate.weight": "w_up.weight", "w_up.weight": "w_gate.weight"}
    swapped = GatedFeedForward(6, 16)
    swapped.load_state_dict({renamed.get(name, name): value for name, value in state.items()})
    assert (swapped(x) - layer(x)).norm() > 0.5 * layer(x).norm()
    gate, up_, down = (state[f"w_{name}.weight"] for name in ("gate", "up", "down"))
    assert gap((F.silu(x @ gate.T) * (x @ up_.T)) @ down.T, layer(x)) < 1e-15
    # Without a function on the gate the two are equal.
    bilinear = [GatedFeedForward(6, 16, "identity") for _ in range(2)]
    bilinear[0].load_state_dict(state)
    bilinear[1].load_state_dict({renamed.get(n, n): v for n, v in state.items()})
    assert gap(bilinear[0](x), bilinear[1](x)) < 1e-15


def test_e23_columns_and_rows_are_the_same_layer_transposed():
    x, layer = torch.randn(1, 5), FeedForward(5, 5)
    w1, w2 = layer.w_up.weight, layer.w_down.weight  # as torch stores them: (out, in)
    b1, b2 = layer.w_up.bias, layer.w_down.bias
    # For columns the stored matrices stand on the left; for rows they must be transposed.
    columns = w2 @ F.relu(w1 @ x.T + b1[:, None]) + b2[:, None]
    assert gap(F.relu(x @ w1 + b1) @ w2 + b2, layer(x)) > 0.01
    assert gap(columns.T, layer(x)) < 1e-15
    assert gap(F.relu(x @ w1.T + b1) @ w2.T + b2, layer(x)) < 1e-15


def test_e25_gates_are_compared_at_equal_parameters():
    # At the same width a gated layer is half as large again; at 8d/3 it is equal, not smaller.
    plain = count(FeedForward(768, 3072, bias=False))
    assert count(GatedFeedForward(768, 3072)) == 1.5 * plain
    assert count(GatedFeedForward(768, 2048)) == plain
    # Shazeer 2020, table 1: no function on the gate beats the sigmoid, and every gate helps.
    table = {name: fact("shazeer-table-1", name) for name in ("ReLU", "GLU", "Bilinear", "SwiGLU")}
    assert sorted(table, key=table.get) == ["SwiGLU", "Bilinear", "GLU", "ReLU"]
    assert table["ReLU"] - table["SwiGLU"] < 0.05


def test_e76_torch_gates_with_the_second_half():
    x = torch.randn(4, 10)
    first, second = x.chunk(2, -1)
    assert gap(first.sigmoid() * second, F.glu(x)) > 0.1
    assert gap(first * second.sigmoid(), F.glu(x)) < 1e-15
    # The same family: exchange the halves, and the other convention is F.glu.
    assert gap(first.sigmoid() * second, F.glu(torch.cat([second, first], -1))) < 1e-15


def test_e77_swiglu_is_not_glu():
    value, gate = torch.randn(2, 6, 5)
    glu = F.glu(torch.cat([value, gate], -1))
    swiglu = F.silu(gate) * value
    assert gap(swiglu, glu) > 0.1
    assert gap(swiglu, gate * glu) < 1e-15


def test_e78_swiglu_is_a_product_and_the_layer_has_a_third_matrix():
    x, layer = torch.randn(5, 6), GatedFeedForward(6, 16)
    product = F.silu(layer.w_gate(x)) * layer.w_up(x)
    assert product.shape == (5, 16)
    assert layer(x).shape == (5, 6)
    assert gap(layer.w_down(product), layer(x)) < 1e-15
    assert sum(p.dim() == 2 for p in layer.parameters()) == 3


def test_e79_biases_are_parameters_too():
    d, h = 24, 64
    plain, gated = FeedForward(d, 4 * d), GatedFeedForward(d, h, bias=True)
    assert count(plain) != 8 * d**2
    assert count(gated) != 3 * d * h
    assert count(plain) == 8 * d**2 + 5 * d == 4_728
    assert count(gated) == 3 * d * h + 2 * h + d == 4_760
    equal = Fraction(4 * d * (2 * d + 1), 3 * d + 2)
    assert 3 * d * equal + 2 * equal + d == 8 * d**2 + 5 * d
    assert 0 < Fraction(8 * d, 3) - equal < Fraction(4, 9)


def test_e80_rounding_up_spoils_the_two_thirds_for_small_models():
    excess = {}
    for d, m in ((8, 64), (64, 64), (512, 64), (4096, 256)):
        excess[d] = Fraction(3 * up(8 * d // 3, m), 8 * d) - 1
        assert excess[d] < Fraction(3 * m, 8 * d)
    assert excess[8] == 2
    assert excess[64] == Fraction(1, 8)
    assert round(float(excess[512]), 3) == 0.031
    assert round(float(excess[4096]), 3) == 0.008
    assert count(GatedFeedForward(8, multiple_of=64)) == 3 * count(FeedForward(8, 32, bias=False))


def test_e82_the_code_gives_the_smallest_multiple_above_and_not_the_nearest(evidence):
    d, m = 128, 64
    exact = 8 * d / 3
    evidence(exact)
    nearest = m * round(exact / m)
    width = up(int(exact), m)
    assert nearest == 320
    assert width == 384
    assert width - exact > abs(nearest - exact)
    # The ceiling alone is the number of multiples.
    assert math.ceil(exact / m) == 6


def test_e83_the_proof_needs_both_bounds_and_integers():
    for m in range(1, 60):
        assert 0 <= 0 + m - 1 < m  # r = 0
        for r in range(1, m):
            assert m <= r + m - 1 <= 2 * m - 2 < 2 * m
        assert all((x + m - 1) // m == math.ceil(Fraction(x, m)) for x in range(300))
    # For fractions the code is wrong.
    assert [(x + 64 - 1) // 64 for x in (0.5, 64.5)] == [0, 1]
    assert [math.ceil(x / 64) for x in (0.5, 64.5)] == [1, 2]


def test_e84_cutting_before_rounding_up_is_harmless_exactly_if_4_divides(evidence):
    def bites(d, m):
        return up(8 * d // 3, m) != m * math.ceil(Fraction(8 * d, 3 * m))

    first = {m: next((d for d in range(1, 3 * m + 1) if bites(d, m)), None) for m in range(1, 61)}
    evidence(max(first))
    assert (first[1], first[2], first[3]) == (1, 1, 7)
    assert all((first[m] is None) == (m % 4 == 0) for m in first)
    assert not any(bites(d, m) for m in (64, 256) for d in range(1, 3 * m + 1))


def test_e85_zero_is_rounded_to_zero():
    for m in (1, 7, 64, 256):
        assert up(0, m) == 0 == m * math.ceil(Fraction(0, m))
        assert [up(x, m) for x in (1, m, m + 1)] == [m, m, 2 * m]
    # Adding m instead of m - 1 is what would break it.
    assert (0 + 64) // 64 * 64 == 64


def test_e102_the_layer_cannot_tell_positions_apart():
    x, order = torch.randn(7, 6), torch.randperm(7)
    for layer in (FeedForward(6, 24), GatedFeedForward(6, 16)):
        assert gap(layer(x[order]), layer(x)[order]) < 1e-15
    layer = FeedForward(6, 24)
    hidden = F.relu(F.conv1d(x.T[None], layer.w_up.weight[:, :, None], layer.w_up.bias))
    conv = F.conv1d(hidden, layer.w_down.weight[:, :, None], layer.w_down.bias)[0].T
    assert gap(conv, layer(x)) < 1e-14
    # What does treat positions differently: a bias for each of them.
    specific = torch.randn(7, 6)
    assert gap((layer(x) + specific)[order], layer(x[order]) + specific) > 0.1


def test_e112_glu_does_not_look_at_other_tokens():
    x, project = torch.randn(8, 6), nn.Linear(6, 12)
    changed = x.clone()
    changed[3] += 1

    def moved(f):
        return (f(changed) != f(x)).any(-1).nonzero().flatten().tolist()

    assert moved(lambda x: F.glu(project(x))) == [3]
    # Attention is what mixes tokens.
    mixed = moved(lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None])[0])
    assert mixed == list(range(8))


def test_e113_the_gradient_argument_is_about_the_squashed_value():
    slopes = {}
    for t in (3.0, 6.0, 10.0):
        z = torch.tensor(t, requires_grad=True)
        slopes[t] = [
            torch.autograd.grad(y, z)[0].item() for y in (z * z.sigmoid(), z.tanh() * z.sigmoid())
        ]
    assert [round(glu, 4) for glu, _ in slopes.values()] == [1.0881, 1.0123, 1.0004]
    assert [f"{gtu:.1e}" for _, gtu in slopes.values()] == ["5.4e-02", "2.5e-03", "4.5e-05"]
    # A closed gate passes no gradient to the value, in GLU as in GTU.
    value = torch.tensor(1.0, requires_grad=True)
    closed = value * torch.sigmoid(torch.tensor(-20.0))
    assert torch.autograd.grad(closed, value)[0] < 1e-8
