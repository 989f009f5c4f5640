"""Encoders from the parts of the decoders: BERT, ViT, Whisper, ModernBERT, T5.

`encoders.toml` says for every family how its stacks of blocks, its front and its head
are made; `read_encoder_plan` makes of that and a published config.json a plan, and
`FamilyEncoder` assembles it. The blocks are those of `FamilyDecoder`.
"""

from transformer_parts.families.encoders.fronts import FrameEmbedding, PatchEmbedding
from transformer_parts.families.encoders.model import (
    FamilyEncoder,
    assemble_encoder,
    greedy,
    load_weights,
    published_weights,
)
from transformer_parts.families.encoders.plan import (
    ENCODERS,
    EncoderPlan,
    Stack,
    encoder_data,
    read_encoder_plan,
)
from transformer_parts.families.encoders.stack import (
    CrossAttention,
    EncoderBlock,
    FamilyStack,
    LayerCache,
    near_mask,
)

__all__ = [
    "ENCODERS",
    "EncoderPlan",
    "Stack",
    "encoder_data",
    "read_encoder_plan",
    "FrameEmbedding",
    "PatchEmbedding",
    "near_mask",
    "CrossAttention",
    "EncoderBlock",
    "FamilyEncoder",
    "FamilyStack",
    "LayerCache",
    "assemble_encoder",
    "greedy",
    "load_weights",
    "published_weights",
]
