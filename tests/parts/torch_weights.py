"""Torch's weights in this book's layers of chapter 10, for the tests that compare them."""

from torch import nn


def copied(ours, official):
    """Our layer with the weights of torch's, whose norms are made uneven first."""
    for name in ("norm1", "norm2", "norm3"):
        if hasattr(official, name):
            nn.init.normal_(getattr(official, name).weight)
            getattr(ours, name).load_state_dict(getattr(official, name).state_dict())
    ours.self_attn.load_from_torch(official.self_attn)
    if hasattr(ours, "cross_attn"):
        ours.cross_attn.load_from_torch(official.multihead_attn)
    ours.ffn.w_up.load_state_dict(official.linear1.state_dict())
    ours.ffn.w_down.load_state_dict(official.linear2.state_dict())
    return ours
