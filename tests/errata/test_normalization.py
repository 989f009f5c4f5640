"""What people get wrong about normalization: each wrong form fails, the right one holds."""

import math

import matplotlib.pyplot as plt
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from book.figures import show

EPS = 1e-5


def mean_square(x, dim=-1):
    return x.pow(2).mean(dim, keepdim=True)


def centred(x, dim=-1):
    return x - x.mean(dim, keepdim=True)


def standardised(x, dim):
    return centred(x, dim) / (mean_square(centred(x, dim), dim) + EPS).sqrt()


def gap(a, b):
    return (a - b).abs().max().item()


def ks_distance(a, b):
    """The largest difference between the two empirical distribution functions."""
    a, b = a.flatten().sort().values, b.flatten().sort().values
    both = torch.cat([a, b])
    below = [torch.searchsorted(values, both, right=True) / len(values) for values in (a, b)]
    return gap(*below)


class Traffic(TorchDispatchMode):
    """Counts the operators that run, and the numbers that they read and write."""

    def __init__(self):
        super().__init__()
        self.operators, self.numbers = [], 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        outputs = result if isinstance(result, (tuple, list)) else (result,)
        tensors = [t for t in (*args, *outputs) if isinstance(t, torch.Tensor)]
        self.operators.append(str(func))
        self.numbers += sum(t.numel() for t in tensors)
        return result


def traffic(compute):
    with Traffic() as counted:
        compute()
    return counted


def test_e01_the_statistics_of_layer_norm_belong_to_a_row():
    x = 5 + 2 * torch.randn(64, 128)
    n, d = x.shape
    # The sum over the features, divided by the number of rows, is not a mean.
    wrong = x.sum(-1) / n
    assert (wrong - 10).abs().max() < 2
    assert wrong.shape == (n,)
    right = x.sum(-1) / d
    assert (right - 5).abs().max() < 1
    # A statistic that belongs to a feature is BatchNorm's.
    assert gap(standardised(x, dim=0), F.layer_norm(x, (d,))) > 0.5
    assert gap(standardised(x, dim=-1), F.layer_norm(x, (d,))) < 1e-14


def test_e02_the_statistics_of_batch_norm_belong_to_a_feature():
    x = 5 + 2 * torch.randn(64, 128)
    official = nn.BatchNorm1d(128)(x)
    assert gap(standardised(x, dim=-1), official) > 0.5
    assert gap(standardised(x, dim=0), official) < 1e-14
    assert x.mean(0).shape == (128,)


def test_e03_the_gain_is_a_vector():
    d = 512
    count = {
        type(m): sum(p.numel() for p in m.parameters()) for m in (nn.LayerNorm(d), nn.Linear(d, d))
    }
    assert count == {nn.LayerNorm: 1_024, nn.Linear: 262_656}
    x, gain = torch.randn(8, d), torch.randn(d)
    official, plain = F.layer_norm(x, (d,), gain), F.layer_norm(x, (d,))
    dense = torch.randn(d, d) / math.sqrt(d)
    assert gap(plain @ dense, official) > 1
    assert gap(gain * plain, official) < 1e-14
    # As a matrix the gain is diagonal, which is why it can be folded into the next layer.
    weight = torch.randn(d, 16) / math.sqrt(d)
    assert gap((gain * plain) @ weight, plain @ (gain[:, None] * weight)) < 1e-14


def test_e04_batch_norm_in_evaluation_uses_running_statistics():
    batch_norm, x = nn.BatchNorm1d(8), 3 + 2 * torch.randn(16, 8)
    in_training = batch_norm(x)
    expected = 0.9 + 0.1 * x.var(0, unbiased=True)
    assert gap(batch_norm.running_var, 0.9 + 0.1 * x.var(0, unbiased=False)) > 0.01
    assert gap(batch_norm.running_var, expected) < 1e-15
    in_evaluation = batch_norm.eval()(x)
    assert gap(in_evaluation, in_training) > 1
    stored = (x - batch_norm.running_mean) / (batch_norm.running_var + EPS).sqrt()
    assert gap(in_evaluation, stored) < 1e-14
    with pytest.raises(ValueError, match="more than 1 value"):
        batch_norm.train()(x[:1])
    # Over a sequence the training statistics of a token hold the tokens after it.
    tokens = torch.randn(1, 8, 6)
    changed = tokens.clone()
    changed[:, :, 5] += 10
    batch_norm = nn.BatchNorm1d(8)
    assert gap(batch_norm(tokens)[..., 0], batch_norm(changed)[..., 0]) > 0.5
    layer_norm = nn.LayerNorm(8)
    assert gap(layer_norm(tokens.mT)[:, 0], layer_norm(changed.mT)[:, 0]) == 0


def test_e05_a_histogram_does_not_see_the_wrong_axis():
    x = 5 + 2 * torch.randn(64, 128)
    by_row, by_feature = standardised(x, -1), standardised(x, 0)
    assert gap(by_row, by_feature) > 0.5
    # The values differ by half a standard deviation and more; their histograms do not.
    assert ks_distance(by_row, by_feature) < 0.02
    # With features of unequal scale a table of standard deviations shows which axis it was.
    x = 5 + 2 * torch.logspace(-1, 1, 128) * torch.randn(64, 128)
    spread = standardised(x, -1).std(0, unbiased=False)
    assert spread.max() / spread.min() > 10
    spread = standardised(x, 0).std(0, unbiased=False)
    assert (spread - 1).abs().max() < 1e-3


def test_e06_rms_norm_has_no_bias_to_reset():
    layer = nn.RMSNorm(4)
    with pytest.raises(AttributeError, match="no attribute 'bias'"):
        layer.bias.fill_(0.0)
    assert [name for name, _ in layer.named_parameters()] == ["weight"]
    # The reset of the others changes nothing: one and zero are the initial values.
    assert (layer.weight == 1).all()
    assert (nn.LayerNorm(4).weight == 1).all()
    assert (nn.LayerNorm(4).bias == 0).all()


def test_e07_a_bias_cannot_restore_the_mean_that_layer_norm_removes():
    x = torch.randn(256, 32) + 3 * torch.randn(256, 1)
    # BatchNorm: with its gain and bias at the removed statistics the input comes back.
    mean, var = x.mean(0), x.var(0, unbiased=False)
    restored = F.batch_norm(x, None, None, (var + EPS).sqrt(), mean, training=True)
    assert gap(restored, x) < 1e-13
    # LayerNorm: the best gain and bias per feature (least squares) leave nine tenths unexplained.
    y, target = centred(F.layer_norm(x, (32,)), 0), centred(x, 0)
    gain = (y * target).sum(0) / y.pow(2).sum(0)
    unexplained = (target - gain * y).pow(2).sum() / target.pow(2).sum()
    assert 0.88 < unexplained < 0.95
    # So a LayerNorm without a bias is a choice that torch offers.
    layer = nn.LayerNorm(32, bias=False)
    assert layer.bias is None
    assert gap(layer(x), standardised(x, -1)) < 1e-14


def test_e08_only_without_its_gain_does_rms_norm_keep_the_direction():
    x = 2 + torch.randn(64, 128)
    gain = torch.randn(128).exp()

    def cosine(y):
        return F.cosine_similarity(x, y, dim=-1)

    assert cosine(F.rms_norm(x, (128,), gain)).max() < 0.8
    assert cosine(F.layer_norm(x, (128,))).max() < 0.6
    assert (cosine(F.rms_norm(x, (128,))) - 1).abs().max() < 1e-14


def test_e46_in_a_transformer_layer_norm_sees_one_token():
    x = torch.randn(2, 5, 16)
    changed = x.clone()
    changed[:, 4] *= 10

    def per_sample(x):
        return F.layer_norm(x, (5, 16))

    def per_token(x):
        return F.layer_norm(x, (16,))

    assert gap(per_sample(x), per_token(x)) > 0.3
    # Normalised per sample, a token depends on the others; normalised per token, it does not.
    assert gap(per_sample(x)[:, 0], per_sample(changed)[:, 0]) > 0.5
    assert gap(per_token(x)[:, 0], per_token(changed)[:, 0]) == 0


def test_e57_the_gain_and_the_bias_carry_the_index_of_the_feature():
    x, layer = torch.randn(64, 8), nn.LayerNorm(8).requires_grad_(False)
    layer.weight.copy_(torch.linspace(-1, 2, 8))
    layer.bias.copy_(torch.linspace(3, -3, 8))
    plain, official = F.layer_norm(x, (8,)), layer(x)
    assert layer.weight.shape == layer.bias.shape == (8,)
    # The best single gain and single bias, by least squares.
    design = torch.stack([plain.flatten(), torch.ones(plain.numel())], 1)
    fit = torch.linalg.lstsq(design, official.reshape(-1, 1)).solution
    assert gap(design @ fit, official.reshape(-1, 1)) > 3
    by_feature = [layer.weight[j] * plain[:, j] + layer.bias[j] for j in range(8)]
    assert gap(torch.stack(by_feature, 1), official) < 1e-14


def test_e58_rms_plus_eps_is_not_what_torch_computes(evidence):
    direction = torch.tensor([[1.0, -1.0, 1.0, -1.0]])
    outputs = {}
    for scale in (1e-2, 1e-3, 1e-4):
        x = scale * direction
        official = F.rms_norm(x, (4,), eps=EPS)
        outside, inside = x / (mean_square(x).sqrt() + EPS), x / (mean_square(x) + EPS).sqrt()
        assert gap(inside, official) < 1e-15
        outputs[scale] = [round(y.abs().max().item(), 3) for y in (outside, inside)]
    assert outputs == {1e-2: [0.999, 0.953], 1e-3: [0.990, 0.302], 1e-4: [0.909, 0.032]}
    # At zero the gradient of the first is 1 / eps, which autograd finds only if the root is written
    # as a norm; that of the second is 1 / sqrt(eps).
    x = torch.zeros(1, 4, requires_grad=True)
    by_norm = x / (x.norm(2, dim=-1, keepdim=True) * 4**-0.5 + EPS)
    (slope,) = torch.autograd.grad(by_norm.sum(), x)
    assert gap(slope, torch.full((1, 4), 1 / EPS)) < 1e-9
    evidence(slope[0, 0])
    (slope,) = torch.autograd.grad((x / (mean_square(x).sqrt() + EPS)).sum(), x)
    assert slope.isnan().all()
    (slope,) = torch.autograd.grad(F.rms_norm(x, (4,), eps=EPS).sum(), x)
    assert gap(slope, torch.full((1, 4), EPS**-0.5)) < 1e-12
    assert round(EPS**-0.5) == 316


def test_e59_rms_norm_neither_computes_nor_fixes_the_variance():
    x = 2 + torch.randn(64, 128)
    y = F.rms_norm(x, (128,), eps=0.0)
    assert y.var(-1, unbiased=False).max() < 0.35
    assert (mean_square(y) - 1).abs().max() < 1e-14
    variance, mean = x.var(-1, unbiased=False), x.mean(-1)
    assert gap(mean_square(x).squeeze(), variance) > 2
    assert gap(mean_square(x).squeeze(), variance + mean**2) < 1e-13
    # LayerNorm is the RMSNorm of the centred row.
    assert gap(F.layer_norm(x, (128,), eps=EPS), F.rms_norm(centred(x), (128,), eps=EPS)) < 1e-14


def test_e60_a_gain_without_a_bias_is_linear():
    gain, u, v = torch.randn(3, 8)
    bias = torch.linspace(-2, 2, 8)

    def affine(x):
        return gain * x + bias

    def linear(x):
        return gain * x

    assert gap(affine(u + v), affine(u) + affine(v)) > 1
    assert gap(linear(u + v), linear(u) + linear(v)) < 1e-15
    # torch's switch has the name for both layers, and d parameters against 2 d.
    size = {
        m: sum(p.numel() for p in m(8, elementwise_affine=True).parameters())
        for m in (nn.RMSNorm, nn.LayerNorm)
    }
    assert size == {nn.RMSNorm: 8, nn.LayerNorm: 16}


def test_e61_a_formula_without_eps_fails_on_a_constant_row():
    constant = torch.full((1, 4), 3.0)
    std = mean_square(centred(constant)).sqrt()
    assert (centred(constant) / std).isnan().all()
    assert gap(F.layer_norm(constant, (4,)), torch.zeros(1, 4)) == 0
    # On a row of small spread the output has the standard deviation sqrt(var / (var + eps)).
    x = 1e-3 * torch.tensor([[1.0, -1.0, 1.0, -1.0]])
    std = F.layer_norm(x, (4,), eps=EPS).std(-1, unbiased=False).item()
    assert abs(std - 1) > 0.6
    assert abs(std - math.sqrt(1e-6 / (1e-6 + EPS))) < 1e-14
    assert round(std, 2) == 0.30


def test_e63_which_norm_moves_less_depends_on_the_kernel():
    n, d = 64, 128
    x, gain, bias = torch.randn(n, d), torch.ones(d), torch.zeros(d)

    def layer_norm_by_hand():
        u = centred(x)
        return u / (mean_square(u) + EPS).sqrt() * gain + bias

    fused_layer = traffic(lambda: F.layer_norm(x, (d,), gain, bias))
    by_hand_layer = traffic(layer_norm_by_hand)
    by_hand_rms = traffic(lambda: x / (mean_square(x) + EPS).sqrt() * gain)
    passes = {
        "fused LayerNorm": fused_layer.numbers / x.numel(),
        "RMSNorm by hand": by_hand_rms.numbers / x.numel(),
        "LayerNorm by hand": by_hand_layer.numbers / x.numel(),
    }
    # By hand RMSNorm wins; against one fused kernel for LayerNorm it loses.
    assert 1.6 < passes["LayerNorm by hand"] / passes["RMSNorm by hand"] < 1.8
    assert 3 < passes["RMSNorm by hand"] / passes["fused LayerNorm"] < 4
    assert len(fused_layer.operators) == 1
    assert [round(p) for p in passes.values()] == [2, 7, 12]
    # Arithmetic: two norms of 7 operations a feature (two sums, subtract, square, divide, gain,
    # bias) beside 12 d^2 multiply-adds a token.
    width = 1024
    assert 2 * 7 * width / (2 * 12 * width**2) < 0.001


def test_e64_the_bias_of_the_norms_is_a_tiny_share_of_a_model():
    vocabulary, width, layers, hidden = 32_000, 4_096, 32, 11_008
    with torch.device("meta"):
        embeddings = [nn.Linear(width, vocabulary, bias=False) for _ in range(2)]
        layer = nn.ModuleList([nn.Linear(width, width, bias=False) for _ in range(4)])
        layer.extend(nn.Linear(width, hidden, bias=False) for _ in range(3))
        layer.extend(nn.RMSNorm(width) for _ in range(2))

    def size(module):
        return sum(p.numel() for p in module.parameters())

    total = sum(map(size, embeddings)) + layers * size(layer) + width
    assert total == 6_738_415_616
    gains = (2 * layers + 1) * width
    assert gains == 266_240
    # LayerNorm would add as many biases: a twenty-five thousandth, not a saving one can feel.
    assert not gains / total > 1e-3
    assert round(100 * gains / total, 3) == 0.004


def test_e66_layer_norm_divides_gradients_by_the_standard_deviation():
    x = centred(torch.randn(8))
    x = x / x.pow(2).mean().sqrt()
    norms = {}
    for sigma in (0.1, 1.0, 10.0):
        jacobian = torch.autograd.functional.jacobian(
            lambda u: F.layer_norm(u, (8,), eps=0.0), sigma * x
        )
        norms[sigma] = torch.linalg.matrix_norm(jacobian, 2).item()
    # Not held near one: ten times smaller rows, ten times larger gradients.
    assert norms[0.1] / norms[10.0] > 99
    for sigma, norm in norms.items():
        assert abs(norm * sigma - 1) < 1e-12
    # What holds: the loss ignores the scale of the weight before the norm, and so ...
    rows, weight, target = torch.randn(16, 4), torch.randn(4, 8), torch.randn(16, 8)

    def slope(weight):
        weight = weight.clone().requires_grad_()
        loss = (F.layer_norm(rows @ weight, (8,), eps=0.0) - target).pow(2).sum()
        return torch.autograd.grad(loss, weight)[0]

    assert gap(slope(5 * weight), slope(weight) / 5) < 1e-12
    assert abs((slope(weight) * weight).sum()) < 1e-12

    def slope_of_rows(weight):
        leaf = rows.clone().requires_grad_()
        loss = (F.layer_norm(leaf @ weight, (8,), eps=0.0) - target).pow(2).sum()
        return torch.autograd.grad(loss, leaf)[0]

    assert gap(slope_of_rows(5 * weight), slope_of_rows(weight)) < 1e-12


def test_e67_the_rms_norm_of_positive_numbers_is_positive():
    x = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    shown = F.layer_norm(x, (4,))
    assert (shown < 0).any()
    right = F.rms_norm(x, (4,), eps=EPS)
    assert (right > 0).all()
    assert [round(v, 4) for v in right[0].tolist()] == [0.3651, 0.7303, 1.0954, 1.4606]
    assert gap(shown, right) > 1


def test_e69_a_picture_needs_a_text_that_says_what_it_shows():
    fig, ax = plt.subplots()
    ax.set(xlabel="feature", ylabel="token")
    with pytest.raises(ValueError, match="alt must say"):
        show(fig, alt="LN")
    show(fig, alt="RMSNorm: one row of the table, all features of one token, divided by its RMS.")
    assert not plt.fignum_exists(fig.number)


def test_e70_dividing_by_the_standard_deviation_is_not_rms_norm():
    x = 2 + torch.randn(64, 128)
    std = x.std(-1, unbiased=False, keepdim=True)
    official = F.rms_norm(x, (128,), eps=0.0)
    ratio = (x / std) / official
    # RMS / std = sqrt(1 + (mean / std)^2), about sqrt(5) here.
    assert 1.7 < ratio.min() < ratio.max() < 3
    assert gap(x / mean_square(x).sqrt(), official) < 1e-14
    # The two agree exactly where the mean is zero.
    x = centred(x)
    assert gap(x / x.std(-1, unbiased=False, keepdim=True), F.rms_norm(x, (128,), eps=0.0)) < 1e-13


def test_e71_the_square_overflows_in_half_precision():
    def in_its_own_dtype(x):
        return x / (mean_square(x) + EPS).sqrt()

    half = torch.full((1, 4), 300.0, dtype=torch.float16)
    assert (in_its_own_dtype(half) == 0).all()
    assert (F.rms_norm(half, (4,), eps=EPS) == 1).all()
    edge = torch.tensor([255.875, 256.0], dtype=torch.float16)
    assert edge.pow(2).isinf().tolist() == [False, True]
    # bfloat16 has the range; there the order of the casts decides the error.
    x, gain = (3 * torch.randn(512, 256)).bfloat16(), (0.5 + torch.rand(256)).bfloat16()
    exact = F.rms_norm(x.double(), (256,), gain.double(), EPS)
    official = F.rms_norm(x, (256,), gain, EPS)
    late = (in_its_own_dtype(x.float()) * gain.float()).bfloat16()

    def error(y):
        return (y.double() - exact).abs().mean()

    assert error(in_its_own_dtype(x) * gain) > 1.5 * error(official)
    assert error(in_its_own_dtype(x.float()).bfloat16() * gain) > 1.2 * error(official)
    assert error(late) < 1.01 * error(official)


def test_e72_normalized_shape_and_eps_as_torch_has_them():
    # A layer that always reduces the last axis is another layer than torch's for two axes.
    x = 1 + torch.randn(2, 5, 8)
    official = nn.RMSNorm((5, 8))(x)
    assert gap(F.rms_norm(x, (8,)), official) > 0.1
    assert gap(F.rms_norm(x.flatten(1), (40,)).view_as(x), official) < 1e-14
    # LayerNorm's default eps is 1e-5, RMSNorm's is None: the machine epsilon of the computation.
    assert (nn.LayerNorm(4).eps, nn.RMSNorm(4).eps) == (1e-5, None)
    small = torch.full((1, 4), 1e-3, dtype=torch.float32)
    default = nn.RMSNorm(4).float()(small)
    assert gap(default, F.rms_norm(small, (4,), eps=1e-5)) > 0.6
    assert gap(default, F.rms_norm(small, (4,), eps=torch.finfo(torch.float32).eps)) == 0
    # In half precision that is float32's, because the sum is taken in float32.
    half = small.half()
    assert (
        gap(F.rms_norm(half, (4,)), F.rms_norm(half, (4,), eps=torch.finfo(torch.float16).eps))
        > 0.6
    )
    assert (
        gap(F.rms_norm(half, (4,)), F.rms_norm(half, (4,), eps=torch.finfo(torch.float32).eps)) == 0
    )


def test_e89_a_column_times_a_column_is_not_defined():
    x = torch.randn(5, 3)
    mean, ones = x.mean(-1, keepdim=True), torch.ones(1, 3)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        x - mean @ ones.T
    assert gap(x - mean @ ones, x - mean) == 0
    assert gap((x - mean @ ones).mean(-1), torch.zeros(5)) < 1e-15


def test_e90_sigma_plus_eps_is_not_what_torch_computes():
    x = 1e-3 * torch.tensor([[1.0, -1.0, 1.0, -1.0]])
    official = F.layer_norm(x, (4,), eps=EPS)
    sigma = mean_square(centred(x)).sqrt()
    outside = centred(x) / (sigma + EPS)
    assert [round(y.abs().max().item(), 2) for y in (outside, official)] == [0.99, 0.30]
    assert gap(standardised(x, -1), official) < 1e-15
    # A row of equal numbers, such as padding: the gradient through sigma is not a number.
    row, upstream = (
        torch.full((1, 4), 3.0, requires_grad=True),
        torch.tensor([[1.0, 2.0, 3.0, 5.0]]),
    )

    def slope(norm):
        return torch.autograd.grad((norm(row) * upstream).sum(), row)[0]

    assert slope(lambda u: centred(u) / (mean_square(centred(u)).sqrt() + EPS)).isnan().all()
    right = slope(lambda u: F.layer_norm(u, (4,), eps=EPS))
    assert gap(right, centred(upstream) / math.sqrt(EPS)) < 1e-9
    # torch masks that for `x.std()`, which is however Bessel-corrected by default.
    counted = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    annotated = centred(counted) / (counted.std(-1, keepdim=True) + 1e-6)
    assert slope(lambda u: centred(u) / (u.std(-1, keepdim=True) + 1e-6)).isfinite().all()
    assert round(annotated[0, 0].item(), 3) == -1.162
    assert round(F.layer_norm(counted, (4,))[0, 0].item(), 3) == -1.342


def test_e114_rms_norm_leaves_out_the_bias_and_never_held_a_residual():
    x = torch.randn(4, 8)
    y = F.rms_norm(x, (8,), eps=0.0)
    assert set(nn.LayerNorm(8).state_dict()) == {"weight", "bias"}
    assert set(nn.RMSNorm(8).state_dict()) == {"weight"}
    # A layer that added its input would grow with it. Neither norm does.
    assert gap(1000 * x + F.rms_norm(1000 * x, (8,), eps=0.0), x + y) > 100
    assert gap(F.rms_norm(1000 * x, (8,), eps=0.0), y) < 1e-14
    assert gap(F.layer_norm(1000 * x, (8,), eps=0.0), F.layer_norm(x, (8,), eps=0.0)) < 1e-13


def test_e115_a_fused_rms_norm_would_save_one_part_in_a_hundred():
    n, d = 64, 128
    x, gain, bias = torch.randn(n, d), torch.ones(d), torch.zeros(d)
    layer = traffic(lambda: F.layer_norm(x, (d,), gain, bias))
    # One kernel: reads x, gain and bias, writes y and two statistics of every row.
    assert len(layer.operators) == 1
    assert layer.numbers == 2 * n * d + 2 * d + 2 * n
    fused_rms = 2 * n * d + d + n
    assert not fused_rms < 0.98 * layer.numbers
    assert 0.01 < 1 - fused_rms / layer.numbers < 0.012
    # As torch runs it on a CPU, RMSNorm is several kernels and moves more, not less.
    rms = traffic(lambda: F.rms_norm(x, (d,), gain, EPS))
    assert len(rms.operators) > 1
    assert rms.numbers > 3 * layer.numbers
