"""How an image and a sound become a sequence: patches, and two convolutions."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["FrameEmbedding", "PatchEmbedding"]


# From notebooks/22_families.ipynb#encoders-from-the-same-parts
class PatchEmbedding(nn.Module):
    """An image, cut into patches, each patch a row of the sequence: ViT's.

    The convolution steps by its own width, so it is one linear layer that is applied to
    the flattened pixels of every patch. Patches come row by row.

    Args:
        channels: of a pixel, C.
        image_size: height and width in pixels.
        patch_size: height and width of a patch; what remains at the right and at the
            bottom edge belongs to none.
        d_model: features of a row.

    Shapes: images (B, C, height, width) -> (B, `num_patches`, d_model).

    Raises:
        ValueError: if no patch fits the image; in `forward`, on another shape.

    Source: Dosovitskiy et al. 2021, eq. 1.
    """

    def __init__(
        self,
        channels: int,
        image_size: tuple[int, int],
        patch_size: tuple[int, int],
        d_model: int,
    ) -> None:
        super().__init__()
        rows, columns = (a // b for a, b in zip(image_size, patch_size, strict=True))
        if rows < 1 or columns < 1:
            raise ValueError(
                f"patch_size {tuple(patch_size)} does not fit image_size "
                f"{tuple(image_size)}"
            )
        self.shape, self.num_patches = (channels, *image_size), rows * columns
        self.project = nn.Conv2d(channels, d_model, patch_size, stride=patch_size)

    def forward(self, images: Tensor) -> Tensor:
        """Embed the patches of `images`."""
        if images.dim() != 4 or tuple(images.shape[1:]) != self.shape:
            raise ValueError(
                f"images must have shape (B, {', '.join(map(str, self.shape))}), "
                f"got {tuple(images.shape)}"
            )
        patches: Tensor = self.project(images)
        return patches.flatten(2).transpose(1, 2)


class FrameEmbedding(nn.Module):
    """Frames of a spectrogram to half as many rows, by two convolutions: Whisper's.

    Each convolution sees three frames and is followed by an activation. The second one
    takes steps of two frames, so a row stands for two of them.

    Args:
        bins: frequencies of a frame.
        frames: how many of them, even.
        d_model: features of a row.
        activation: after each convolution.

    Shapes: frames (B, bins, frames) -> (B, frames / 2, d_model).

    Raises:
        ValueError: if `frames` is odd; in `forward`, on another shape.

    Source: Radford et al. 2023, section 2.2.
    """

    def __init__(
        self,
        bins: int,
        frames: int,
        d_model: int,
        activation: Callable[[Tensor], Tensor] = F.gelu,
    ) -> None:
        super().__init__()
        if frames % 2:
            raise ValueError(f"frames must be even, got {frames}")
        self.shape, self.activation = (bins, frames), activation
        self.conv1 = nn.Conv1d(bins, d_model, 3, padding=1)
        self.conv2 = nn.Conv1d(d_model, d_model, 3, stride=2, padding=1)

    def forward(self, frames: Tensor) -> Tensor:
        """Embed `frames`."""
        if frames.dim() != 3 or tuple(frames.shape[1:]) != self.shape:
            raise ValueError(
                f"frames must have shape (B, {self.shape[0]}, {self.shape[1]}), "
                f"got {tuple(frames.shape)}"
            )
        rows = self.activation(self.conv2(self.activation(self.conv1(frames))))
        return rows.transpose(1, 2)
