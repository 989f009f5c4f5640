"""Positions that the chapters on attention do not have: split sinusoids, and T5's."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

__all__ = ["RelativePositionBias", "relative_position_buckets", "split_sinusoids"]


# From notebooks/22_families.ipynb#encoders-from-the-same-parts
def split_sinusoids(
    positions: Tensor, d_model: int, steps: int, base: float = 10000.0
) -> Tensor:
    """Sinusoidal encodings with all sines first and all cosines after them.

    Frequency k is base ** (-k / steps). With d_model / 2 steps these are the features
    of `sinusoidal_positional_encoding` in another order, as CTRL has them; with
    d_model / 2 - 1 the slowest frequency is 1 / base itself, as in XGLM and Whisper.

    Args:
        positions: integers, any shape (*).
        d_model: the width, even.
        steps: how many steps there are from frequency 1 to 1 / base.
        base: the reciprocal of the slowest frequency.

    Returns:
        Shape (*, d_model), float64.

    Raises:
        ValueError: if d_model is odd or below 2, or steps is below 1.

    Source: Vaswani et al. 2017, section 3.5, in the layout of tensor2tensor.
    """
    if d_model < 2 or d_model % 2:
        raise ValueError(f"d_model must be even and at least 2, got {d_model}")
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    k = torch.arange(d_model // 2, dtype=torch.float64, device=positions.device)
    angle = positions[..., None] * base ** (-k / steps)
    return torch.cat([angle.sin(), angle.cos()], -1)


def relative_position_buckets(
    distance: Tensor,
    num_buckets: int = 32,
    max_distance: int = 128,
    bidirectional: bool = True,
) -> Tensor:
    """T5's bucket for each distance: one for each near one, wider ones far away.

    Of the buckets for one direction, the first half hold one distance each; the widths
    of the others grow by a constant factor up to `max_distance`, and the last one holds
    all that is farther. The logarithm is taken in float32, as in the published code.

    Args:
        distance: position of the key less that of the query; integers, any shape (*).
        num_buckets: in all; with `bidirectional`, the second half are for later keys.
        max_distance: from here on all distances share a bucket.
        bidirectional: whether later keys have buckets of their own. Without it, they
            count as distance 0; a causal mask hides them.

    Returns:
        Integers from 0 to num_buckets - 1, shape (*).

    Raises:
        ValueError: if `distance` is not of integers, there are fewer than 2 buckets for
            a direction, or max_distance is not beyond the exact ones.

    Source: Raffel et al. 2020, section 2.1, in the code of Mesh TensorFlow.
    """
    if distance.is_floating_point() or distance.dtype == torch.bool:
        raise ValueError(f"distance must be of integers, got {distance.dtype}")
    each = num_buckets // 2 if bidirectional else num_buckets
    exact = each // 2
    if exact < 1:
        raise ValueError(f"num_buckets must be at least 2 a direction, got {each}")
    if max_distance <= exact:
        raise ValueError(
            f"max_distance must be more than {exact}, which have a bucket each, "
            f"got {max_distance}"
        )
    far = distance.abs() if bidirectional else (-distance).clamp(min=0)
    ratio = torch.log(far.clamp(min=1).float() / exact) / math.log(max_distance / exact)
    wide = (exact + (ratio * (each - exact)).long()).clamp(max=each - 1)
    bucket = torch.where(far < exact, far, wide)
    return bucket + each * (distance > 0).long() if bidirectional else bucket


class RelativePositionBias(nn.Module):
    """A learned number for each head and bucket of distances, added to the scores.

    Args:
        num_heads: heads, H.
        num_buckets, max_distance, bidirectional: as `relative_position_buckets`.

    `weight` has shape (num_buckets, num_heads) and starts normal with variance 1.

    Raises:
        ValueError: as `relative_position_buckets`; in `forward`, if there are more
            queries than keys.

    Source: Raffel et al. 2020, section 2.1.
    """

    def __init__(
        self,
        num_heads: int,
        num_buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = True,
    ) -> None:
        super().__init__()
        options = num_buckets, max_distance, bidirectional
        relative_position_buckets(torch.zeros(1, dtype=torch.long), *options)
        self.options = options
        self.weight = nn.Parameter(torch.randn(num_buckets, num_heads))

    def forward(self, query_len: int, key_len: int) -> Tensor:
        """What is added to the scores, (1, H, T, S).

        Args:
            query_len: queries, T; they stand at the end of the keys, as with a cache.
            key_len: keys, S.
        """
        if query_len > key_len:
            raise ValueError(
                f"query_len must be at most key_len={key_len}, got {query_len}"
            )
        device = self.weight.device
        query = torch.arange(key_len - query_len, key_len, device=device)
        distance = torch.arange(key_len, device=device) - query[:, None]
        rows = self.weight[relative_position_buckets(distance, *self.options)]
        return rows.permute(2, 0, 1)[None]
