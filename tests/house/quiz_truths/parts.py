"""The statements of the quiz: chapters 01 to 09."""

import torch
import torch.nn.functional as F
from torch import nn

from transformer_parts.attention import (
    MultiHeadAttention,
    causal_mask,
    scaled_dot_product_attention,
)
from transformer_parts.embeddings import sinusoidal_positional_encoding
from transformer_parts.feed_forward import FeedForward, GatedFeedForward
from transformer_parts.normalization import layer_norm, rms_norm
from transformer_parts.residual import Residual
from transformer_parts.softmax import softmax
from transformer_parts.transformer import TransformerEncoderLayer

from .register import close, decoder, parameters, statement

# ---- 01 tensors


@statement("transposed-shares")
def _() -> bool:
    x = torch.rand(3, 4)
    return x.T.reshape(-1).untyped_storage().data_ptr() == x.untyped_storage().data_ptr()


@statement("column-minus-row")
def _() -> bool:
    return (torch.rand(4, 1) - torch.rand(4)).numel() == 16


@statement("overlay")
def _() -> bool:
    # Half a pixel of a curve that is 500 pixels high hides this difference.
    exact, other = torch.linspace(0, 1, 100), torch.linspace(0, 1, 100) + 1e-3
    return not ((exact - other).abs() < 1 / 500).all() or close(exact, other)


# ---- 02 map


@statement("ffn-weights")
def _() -> bool:
    attention = MultiHeadAttention(32, 4, bias=False)
    return parameters(FeedForward(32, 128, bias=False)) == 2 * parameters(attention)


@statement("longer-needs-more")
def _() -> bool:
    attention = MultiHeadAttention(32, 4)
    before = parameters(attention)
    for length in (10, 20):
        x = torch.rand(1, length, 32)
        assert attention(x, x, x).shape == x.shape
    return parameters(attention) > before


@statement("predictions-at-once")
def _() -> bool:
    logits = decoder()(torch.randint(50, (1, 9)))
    return logits.shape == (1, 9, 50)


# ---- 03 softmax


@statement("softmax-row")
def _() -> bool:
    x = torch.rand(5)
    moved = x + F.one_hot(torch.tensor(3), 5)
    return close(softmax(x, -1)[:3], softmax(moved, -1)[:3])


@statement("softmax-shift")
def _() -> bool:
    x = torch.rand(4, 5)
    return close(softmax(x, -1), softmax(x + 100, -1))


@statement("temperature-order")
def _() -> bool:
    x = torch.randn(1000, 20)
    hot = [softmax(x / t, -1).argmax(-1) for t in (0.5, 1.0, 3.0, 10.0)]
    return any(not torch.equal(one, hot[0]) for one in hot)


@statement("kl-symmetric")
def _() -> bool:
    p, q = softmax(torch.randn(2, 6), -1)
    return close((p * (p / q).log()).sum(), (q * (q / p).log()).sum(), 1e-6)


# ---- 04 embeddings


@statement("order-blind")
def _() -> bool:
    layer = TransformerEncoderLayer(16, 2, 32).eval()
    x, order = torch.rand(1, 5, 16), torch.tensor([3, 1, 2, 0, 4])
    return close(layer(x)[:, order], layer(x[:, order]))


@statement("one-hot")
def _() -> bool:
    table = torch.rand(7, 4, requires_grad=True)
    ids, weight = torch.tensor([3, 0, 3]), torch.rand(3, 4)
    rows, product = F.embedding(ids, table), F.one_hot(ids, 7).to(table.dtype) @ table
    a, b = (torch.autograd.grad((r * weight).sum(), table)[0] for r in (rows, product))
    return close(rows, product) and close(a, b)


@statement("positions-exponent")
def _() -> bool:
    # At position 1 the features are sin and cos of 10000^(-exponent).
    one, two = 10000.0 ** -torch.tensor([0.0, 0.5])
    expected = torch.stack([one.sin(), one.cos(), two.sin(), two.cos()])
    return close(sinusoidal_positional_encoding(2, 4)[1].double(), expected, 1e-6)


# ---- 05 attention


@statement("causal-first")
def _() -> bool:
    q, k, v = torch.randn(3, 6, 8)
    return close(scaled_dot_product_attention(10 * q, k, v, attn_mask=causal_mask(6, 6))[0], v[0])


@statement("twice-the-queries")
def _() -> bool:
    q, k, v = torch.randn(3, 6, 8)
    return close(
        scaled_dot_product_attention(q, k, v), scaled_dot_product_attention(2 * q, k, v), 1e-4
    )


@statement("more-heads")
def _() -> bool:
    sixteen, eight = (parameters(MultiHeadAttention(64, heads)) for heads in (16, 8))
    return sixteen == 2 * eight


@statement("top-left")
def _() -> bool:
    q, k, v = torch.randn(1, 1, 1, 4), torch.randn(1, 1, 10, 4), torch.randn(1, 1, 10, 4)
    return close(F.scaled_dot_product_attention(q, k, v, is_causal=True), v[:, :, :1])


# ---- 06 activations


@statement("linear-stack")
def _() -> bool:
    stack = nn.Sequential(*(nn.Linear(8, 8) for _ in range(10)))
    bias = stack(torch.zeros(8))
    matrix = stack(torch.eye(8)) - bias
    x = torch.randn(20, 8)
    return close(stack(x), x @ matrix + bias)


@statement("gelu-exact")
def _() -> bool:
    x = torch.linspace(-5, 5, 101)
    return close(F.gelu(x), x * torch.special.ndtr(x), 1e-12)


@statement("constant-float32")
def _() -> bool:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        return 1e-10 < abs(torch.tensor(0.1).item() - 0.1) < 1e-8
    finally:
        torch.set_default_dtype(before)


# ---- 07 feed-forward


@statement("glu-tokens")
def _() -> bool:
    layer = GatedFeedForward(8, 16)
    x = torch.rand(1, 5, 8)
    moved = x.clone()
    moved[:, 4] += 1
    return not close(layer(x)[:, :4], layer(moved)[:, :4])


@statement("glu-second-half")
def _() -> bool:
    x = torch.randn(3, 10)
    return close(F.glu(x), x[:, :5] * x[:, 5:].sigmoid())


# ---- 08 normalization


@statement("layernorm-sequence")
def _() -> bool:
    x = torch.randn(5, 8)
    moved = x.clone()
    moved[4] += torch.randn(8)
    return not close(layer_norm(x, (8,))[:4], layer_norm(moved, (8,))[:4])


@statement("eps-inside")
def _() -> bool:
    x, eps = torch.full((1, 8), 1e-3), 1e-5
    inside, outside = rms_norm(x, (8,), eps=eps), x / (x.square().mean().sqrt() + eps)
    return bool(0.28 < (inside / outside).mean() < 0.36)


@statement("ten-times")
def _() -> bool:
    x = torch.randn(4, 8)
    return close(layer_norm(10 * x, (8,)), 10 * layer_norm(x, (8,)), 1e-2)


@statement("plus-a-constant")
def _() -> bool:
    x = torch.randn(4, 8)
    same_layer_norm = close(layer_norm(x + 3, (8,)), layer_norm(x, (8,)))
    return same_layer_norm and not close(rms_norm(x + 3, (8,)), rms_norm(x, (8,)), 1e-2)


# ---- 09 residual


def streams(norm_first: bool) -> list[torch.Tensor]:
    """The stream after each of twelve layers of random weights, and its input first."""
    x = torch.randn(4, 16, 32)
    found = [x]
    for _ in range(12):
        branch = FeedForward(32, 128)
        block = Residual(branch, nn.LayerNorm(32), norm_first=norm_first)
        found.append(block(found[-1]).detach())
    return found


@statement("prenorm-variance")
def _() -> bool:
    return all(0.5 < x.var() < 1.5 for x in streams(norm_first=True))


@statement("postnorm-input")
def _() -> bool:
    # How much of the input is in the stream: the slope of the best line through (input, stream).
    def share(found: list[torch.Tensor]) -> list[float]:
        x = found[0].flatten()
        return [float((x @ y.flatten()) / (x @ x)) for y in found]

    post, pre = share(streams(norm_first=False)), share(streams(norm_first=True))
    return post[12] < post[6] < post[3] < post[0] and all(abs(s - 1) < 0.2 for s in pre)


@statement("dead-branch")
def _() -> bool:
    branch = FeedForward(8, 16)
    for p in branch.parameters():
        nn.init.zeros_(p)
    x = torch.randn(3, 8, requires_grad=True)
    Residual(branch, nn.LayerNorm(8))(x).sum().backward()
    return bool((x.grad == 0).all())
