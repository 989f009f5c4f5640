"""Muon, in float32.

torch's own `torch.optim.Muon` takes the same steps with its products in bfloat16, which a CPU
without such units computes several times more slowly.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


class Muon(torch.optim.Optimizer):
    """Momentum whose step has singular values near 1, whatever those of the gradient are.

    Args:
        params: matrices.
        lr: learning rate; scaled so that the root mean square of a step is about that of Adam's.
        weight_decay: as in AdamW.
        momentum: of the running mean of the gradients, Nesterov's form.

    Raises:
        ValueError: if a parameter is no matrix.

    Source: Jordan et al. 2024; the scale is that of Liu et al. 2025.
    """

    def __init__(
        self,
        params: Iterable[torch.nn.Parameter],
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
    ) -> None:
        matrices = list(params)
        for p in matrices:
            if p.dim() != 2:
                raise ValueError(f"Muon takes matrices, got a parameter of shape {tuple(p.shape)}")
        super().__init__(matrices, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One step. Matrices of one size are orthogonalized as one batch."""
        for group in self.param_groups:
            by_shape: dict[tuple[int, ...], list[Tensor]] = {}
            for p in group["params"]:
                if p.grad is not None:
                    by_shape.setdefault(tuple(sorted(p.shape)), []).append(p)
            for shape, params in by_shape.items():
                steps = [self._direction(p, group["momentum"]) for p in params]
                wide = torch.stack([s if s.shape[0] <= s.shape[1] else s.mT for s in steps])
                size = 0.2 * max(shape) ** 0.5
                for p, s in zip(params, orthogonalized(wide), strict=True):
                    p.mul_(1 - group["lr"] * group["weight_decay"])
                    p.add_(s if p.shape[0] <= p.shape[1] else s.mT, alpha=-group["lr"] * size)

    def _direction(self, p: Tensor, momentum: float) -> Tensor:
        state = self.state[p]
        if not state:
            state["mean"] = torch.zeros_like(p)
        assert p.grad is not None
        state["mean"].lerp_(p.grad, 1 - momentum)
        return p.grad.lerp(state["mean"], momentum)


def orthogonalized(x: Tensor, steps: int = 5) -> Tensor:
    """Matrices with the singular vectors of these and singular values between about 0.7 and 1.2.

    Args:
        x: shape (..., m, n), m <= n.
        steps: of Newton and Schulz's iteration, with Jordan's coefficients.
    """
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        a = x @ x.mT
        x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
    return x
