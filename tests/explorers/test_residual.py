"""The explorers of chapter 9: stacks written anew and differentiated by torch, rates by phases."""

import math

import numpy as np
import torch
import torch.nn.functional as F

from book.explorer import Lines

from .reading import Seen, check_explorer, says


def drawn(seed, layers, gain):
    """The chapter's random numbers: tokens, four matrices per layer, a head and its targets."""
    torch.manual_seed(seed)
    x = F.layer_norm(torch.randn(8, 32), (32,))
    matrices = [[gain * torch.randn(32, 32) / 32**0.5 for _ in range(4)] for _ in range(layers)]
    torch.manual_seed(1000 + seed)
    return x, matrices, torch.randn(32, 32) / 32**0.5, torch.randint(0, 32, (8,))


@check_explorer("explore-placement", {"number of layers": "4", "placement": "DeepNorm"})
def test_four_layers_of_deep_norm():
    n = 4
    alpha, gain = (2 * n) ** 0.25, (8 * n) ** -0.25
    streams, gradients, paths = (np.zeros((16, n)) for _ in range(3))
    for seed in range(16):
        x, matrices, head, targets = drawn(seed, n, gain)
        for group in matrices:
            for matrix in group:
                matrix.requires_grad_()
        kept = np.ones(8)
        for layer, (value, out, up, down) in enumerate(matrices):
            for block in ("attention", "feed-forward"):
                if block == "attention":
                    update = torch.full((8, 8), 1 / 8) @ x @ value @ out
                else:
                    update = (x @ up).clamp(min=0) @ down
                total = alpha * x + update
                kept *= alpha / np.std(total.detach().numpy(), axis=1)
                mean, variance = total.mean(1, keepdim=True), total.var(1, correction=0)
                x = (total - mean) / (variance[:, None] + 1e-5).sqrt()
            streams[seed, layer] = (x**2).mean().item()
            paths[seed, layer] = kept.mean()
        logits = x @ head
        loss = (logits.logsumexp(1) - logits[range(8), targets]).mean()
        loss.backward()
        gradients[seed] = [
            math.sqrt(sum((matrix.grad**2).sum().item() for matrix in group)) for group in matrices
        ]
    stream, gradient, path = (each.mean(0) for each in (streams, gradients, paths))
    beyond = [math.nan] * (64 - n)

    def over_layers(title, name, values, unit):
        y = {name: [*values, *beyond]}
        return Lines(title, range(1, 65), y, "layer", unit, yscale="log")

    return Seen(
        says(
            "DeepNorm, depth {}: the stream ends at a mean square of {}, the last layer's gradient "
            "is {} and {} times the first layer's, and the input is kept with coefficient {}",
            *(n, stream[-1], gradient[-1], gradient[-1] / gradient[0], path[-1]),
        ),
        over_layers("size of the stream", "mean square", stream, "mean square"),
        over_layers("gradient of each layer", "gradient", gradient, "norm"),
        over_layers("coefficient of the input", "coefficient", path, "coefficient"),
    )


@check_explorer("explore-schedule", {"warm-up steps": "2000", "width of the model": "256"})
def test_both_schedules_climb_to_the_same_rate():
    steps = np.arange(1, 20_002, 100)
    peak = 1000 / math.sqrt(256 * 2000)
    noam = [peak * (t / 2000 if t < 2000 else math.sqrt(2000 / t)) for t in steps]
    linear = np.interp(steps, [0, 2000], [0, peak])
    return Seen(
        says(
            "Width {}, warm-up {} steps: both climb to {} at step {}. At step {} Noam's schedule "
            "is down to {}, which does not depend on the warm-up",
            # In thousandths: "1.40e-3" is a rate of 0.0014.
            *(256, 2000, peak / 1000, 2000, 20_000, peak / 1000 * math.sqrt(2000 / 20_000)),
        ),
        Lines(
            "learning rate, in thousandths",
            steps,
            {"Noam": noam, "linear": linear},
            "step",
            "rate × 1000",
        ),
    )


@check_explorer("explore-scalar", {"slope of a branch": "0.1"})
def test_small_slopes_multiply_up_with_residual_connections():
    residual, plain = [1.0], [1.0]
    for _ in range(64):
        residual.append(residual[-1] + 0.1 * residual[-1])
        plain.append(0.1 * plain[-1])
    shown = [factor if factor > 1e-12 else math.nan for factor in plain]
    return Seen(
        says(
            "Slope {} of every branch: after {} layers the gradient is multiplied by {} with "
            "residual connections, and by {} without",
            *(0.1, 64, residual[-1], plain[-1]),
        ),
        Lines(
            "factor of the gradient",
            range(65),
            {"with": residual, "without": shown},
            "layers",
            "factor",
            yscale="log",
        ),
    )
