"""What people get wrong about the residual stream: each wrong form fails, the right one holds."""

import math

import torch
import torch.nn.functional as F
from torch import nn

WIDTH = 32


def ln(x):
    return F.layer_norm(x, x.shape[-1:])


def gap(a, b):
    return (a - b).abs().max().item()


class Stack:
    """A Transformer at initialisation, with uniform attention and one random sequence."""

    def __init__(self, depth, place, seed=0, alpha=1.0, gain=1.0, final_norm=True):
        g = torch.Generator().manual_seed(seed)

        def draw(*shape):
            return torch.randn(shape, generator=g)

        self.place, self.alpha, self.final_norm = place, alpha, final_norm
        self.x, self.head = ln(draw(8, WIDTH)), draw(WIDTH, 32) / WIDTH**0.5
        self.target = torch.randint(0, 32, (8,), generator=g)
        scale = gain / WIDTH**0.5
        self.layers = [
            [(scale * draw(WIDTH, WIDTH)).requires_grad_() for _ in range(4)] for _ in range(depth)
        ]

    @property
    def weights(self):
        return [w for layer in self.layers for w in layer]

    def run(self):
        """The output; also what sub-layers read, what norms after sums read, and branches."""
        x, self.reads, self.sums, self.branches, self.stream = self.x, [], [], [], [self.x]
        for value, out, up, down in self.layers:
            for kind in ("attention", "ffn"):
                u = ln(x) if self.place == "Pre" else x
                if kind == "attention":
                    y = (u.mean(0, keepdim=True) @ value @ out).expand_as(u)
                else:
                    y = torch.relu(u @ up) @ down
                self.reads.append(u)
                self.branches.append(y)
                self.sums.append(self.alpha * x + y)
                x = self.sums[-1] if self.place == "Pre" else ln(self.sums[-1])
            self.stream.append(x)
        return ln(x) if self.place == "Pre" and self.final_norm else x

    def loss(self):
        return F.cross_entropy(self.run() @ self.head, self.target)

    def grads(self):
        return torch.autograd.grad(self.loss(), self.weights)


def mean_square(x):
    return x.pow(2).mean().item()


def average(measure, seeds=12):
    return sum(measure(seed) for seed in range(seeds)) / seeds


def last_gradient(depth, place, **options):
    return average(lambda seed: Stack(depth, place, seed, **options).grads()[-1].norm().item())


def test_e09_a_pre_norm_stream_grows_linearly():
    sizes = {}
    for depth in (8, 32):
        ran = []
        for seed in range(12):
            stack = Stack(depth, "Pre", seed)
            stack.run()
            ran.append(mean_square(stack.stream[-1]))
            assert all(abs(mean_square(u) - 1) < 1e-4 for u in stack.reads)
        sizes[depth] = sum(ran) / len(ran)
        assert 1 + depth / 2 < sizes[depth] < 1 + 1.5 * depth
    assert sizes[32] > 3 * sizes[8]


def test_e11_a_pre_norm_stack_needs_a_final_norm():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True)
    assert nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).norm is None
    model = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
    assert isinstance(model.encoder.norm, nn.LayerNorm)
    assert isinstance(model.decoder.norm, nn.LayerNorm)
    guess = math.log(32)
    without = average(lambda s: Stack(32, "Pre", s, final_norm=False).loss().item())
    assert without > 2 * guess
    assert average(lambda s: Stack(32, "Pre", s).loss().item()) < 1.5 * guess


def test_e48_the_identity_in_the_jacobian_is_no_guarantee():
    factors = {}
    for slope in (0.1, -0.1, -1.0):
        x = torch.ones((), requires_grad=True)
        y = x
        for _ in range(64):
            y = y + slope * y
        factors[slope] = round(torch.autograd.grad(y, x)[0].item(), 3)
    assert round(factors.pop(0.1)) == 446
    assert factors == {-0.1: 0.001, -1.0: 0.0}
    weights = torch.randn(5, 6, 6) / 6**0.5

    def through(x):
        total = torch.zeros_like(x)
        for w in weights:
            total, x = total + torch.tanh(x @ w), x + torch.tanh(x @ w)
        return x, total

    whole, branches = torch.func.jacrev(through)(torch.randn(6))
    assert gap(whole, torch.eye(6)) > 0.5
    assert gap(whole - torch.eye(6), branches) < 1e-12


def test_e49_post_norm_rescales_the_identity_path():
    def coefficient(depth, seed):
        stack = Stack(depth, "Post", seed)
        stack.run()
        sigmas = [s.std(-1, correction=0) for s in stack.sums]
        return torch.stack(sigmas).reciprocal().prod(0).mean().item()

    assert average(lambda s: coefficient(6, s)) > 0.01
    assert average(lambda s: coefficient(24, s)) < 1e-3
    stack = Stack(24, "Pre")
    stack.run()
    assert gap(stack.stream[-1] - sum(stack.branches), stack.x) < 1e-12


def test_e51_post_norm_neither_accumulates_nor_explodes():
    sums, profile = {1: [], 32: []}, torch.zeros(32)
    for seed in range(24):
        stack = Stack(32, "Post", seed)
        profile += torch.stack([g.norm() for g in stack.grads()]).view(32, 4).norm(dim=1)
        for layer, found in sums.items():
            found.append(mean_square(stack.sums[2 * layer - 1]))
    for found in sums.values():
        assert abs(sum(found) / len(found) / 1.5 - 1) < 0.15
    assert profile.max() < 10 * profile.min()
    assert abs(last_gradient(64, "Post") / last_gradient(4, "Post") - 1) < 0.3


def test_e52_the_final_norm_divides_the_gradients():
    def exponent(**options):
        few, many = (last_gradient(depth, "Pre", **options) for depth in (4, 64))
        return math.log(many / few) / math.log(16)

    assert -0.6 < exponent() < -0.4
    assert exponent(final_norm=False) > 0

    # That is the last layer. The first layer's gradient is not divided by the root of the depth.
    def profile(depth):
        layers = [
            torch.stack([g.norm() for g in Stack(depth, "Pre", seed).grads()]).view(depth, 4)
            for seed in range(12)
        ]
        return torch.stack(layers).norm(dim=2).mean(0)

    few, many = profile(4), profile(64)
    assert many[0] > 2 * many[-1]
    assert many[0] > few[0] / 2
    assert many[-1] < few[-1] / 2


def test_e53_adams_first_step_is_the_full_learning_rate():
    slopes = torch.tensor([1e-4, -1e-2, 1.0, -1e2, 1e4])
    theta = nn.Parameter(torch.zeros(5))
    adam = torch.optim.Adam([theta], lr=1e-3)
    (slopes * theta).sum().backward()
    adam.step()
    assert gap(theta.detach(), -1e-3 * slopes.sign()) < 1e-6

    def change(rate):
        stack = Stack(16, "Pre")
        adam = torch.optim.Adam(stack.weights, lr=rate, fused=True)
        before = stack.run().detach()
        stack.loss().backward()
        adam.step()
        return (stack.run().detach() - before).pow(2).mean().sqrt().item()

    assert change(1e-3) > 0.33
    assert change(1e-3 / 100) < 0.1


def test_e54_deepnorm_bounds_the_update_at_every_depth():
    def change(depth, place, **options):
        def one(seed):
            stack = Stack(depth, place, seed, **options)
            before, grads = stack.run().detach(), stack.grads()
            with torch.no_grad():
                for w, g in zip(stack.weights, grads, strict=True):
                    w -= 0.02 * g
            return (stack.run().detach() - before).pow(2).mean().sqrt().item()

        return average(one)

    deep = [change(n, "Post", alpha=(2 * n) ** 0.25, gain=(8 * n) ** -0.25) for n in (4, 32)]
    assert abs(deep[1] / deep[0] - 1) < 0.2
    assert min(change(n, "Post") for n in (4, 32)) > 10 * max(deep)


def test_e56_the_default_layer_is_post_norm():
    x = 3 * torch.randn(2, 5, 16)
    for first in (False, True):
        layer = nn.TransformerEncoderLayer(
            16, 2, 32, dropout=0.0, batch_first=True, norm_first=first
        )
        size = mean_square(layer(x).detach())
        assert (abs(size - 1) < 1e-4) is not first
    assert not nn.TransformerEncoderLayer(16, 2).norm_first


def test_e101_add_and_norm_does_not_do_what_other_parts_do():
    layer = nn.TransformerEncoderLayer(12, 3, 24, dropout=0.0, batch_first=True)
    causal = torch.ones(6, 6, dtype=torch.bool).triu(1)  # True = blocked
    x = torch.randn(1, 6, 12)
    later = x.clone()
    later[0, 5] += 1

    def bare(x, mask):
        attended = layer.self_attn(x, x, x, attn_mask=mask)[0]
        return layer.linear2(torch.relu(layer.linear1(attended)))

    for f in (layer, bare):
        assert gap(f(x, None)[0, 0], f(later, None)[0, 0]) > 1e-4
        assert gap(f(x, causal)[0, 0], f(later, causal)[0, 0]) < 1e-12
    linear = nn.Linear(12, 12, bias=False)

    def block(x):
        return x + linear(x)

    assert gap(block(x + later), block(x) + block(later)) < 1e-12


def test_e106_norms_on_the_branch_differ_from_pre_norm():
    x, w = torch.randn(64, WIDTH), torch.randn(WIDTH, WIDTH) / WIDTH**0.5
    assert gap(x + ln(x @ w), x + ln(x) @ w) > 0.1
    for scale in (1.0, 10.0):
        assert abs(mean_square(ln(x @ (scale * w))) - 1) < 1e-3
    ratio = mean_square(ln(x) @ (10 * w)) / mean_square(ln(x) @ w)
    assert abs(ratio - 100) < 1e-9


def test_p7_the_encoders_gain_is_the_reciprocal():
    alpha, beta = 3 ** (-3 / 16), 3 ** (3 / 16) / math.sqrt(2)
    assert (round(alpha, 2), round(beta, 2)) == (0.81, 0.87)
    assert abs(alpha * beta - 1 / math.sqrt(2)) < 1e-15
    n, m = 18, 6
    size = (n**4 * m) ** (1 / 16)
    felt = m * (12 * m) ** -0.5 / (3 * m) ** 0.25

    def condition(gain):
        return felt * 4 * n * (gain / size) ** 2 / (0.81 * size) ** 2

    assert abs(condition(0.87) - 1) < 0.02
    assert condition(1.15) > 1.3
    assert round(1 / 1.15, 2) == 0.87
