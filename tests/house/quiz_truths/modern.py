"""The statements of the quiz: chapters 10 to 16."""

import torch
from torch.utils.flop_counter import FlopCounterMode

from transformer_parts.cost import forward_bound
from transformer_parts.decoder import ModelConfig, next_token_probs
from transformer_parts.kv_cache import GroupedQueryAttention, KVCache
from transformer_parts.long_context import alibi_slopes, position_interpolation
from transformer_parts.mla import LatentCache, MultiHeadLatentAttention
from transformer_parts.normalization import LayerNorm
from transformer_parts.rope import RotaryEmbedding, apply_rotary_emb, rope_frequencies
from transformer_parts.transformer import Transformer, TransformerEncoderLayer

from .register import close, decoder, parameters, statement

# ---- 10 transformer


def translator() -> Transformer:
    return Transformer(20, 20, 16, 2, num_encoder_layers=2, num_decoder_layers=2, d_ff=32).eval()


@statement("own-predictions")
def _() -> bool:
    model, source, target = translator(), torch.randint(1, 20, (1, 6)), torch.randint(1, 20, (1, 5))
    given = model(source, target)
    predicted = given.argmax(-1)
    own = torch.cat([target[:, :1], predicted[:, :-1]], 1)
    assert not torch.equal(own, target)
    return close(given, model(source, own), 1e-6)


@statement("three-norms")
def _() -> bool:
    return sum(isinstance(m, LayerNorm) for m in translator().decoder[0].modules()) == 3


@statement("shared-layers")
def _() -> bool:
    first, second = translator().encoder
    return all(a is b for a, b in zip(first.parameters(), second.parameters(), strict=True))


@statement("greedy")
def _() -> bool:
    # Two steps: a token of 0.6 followed by three equal ones, or one of 0.4 that decides the rest.
    first, then = torch.tensor([0.6, 0.4]), torch.tensor([[0.34, 0.33, 0.33], [0.9, 0.05, 0.05]])
    best = (first[:, None] * then).max()
    return bool(first.max() * then[first.argmax()].max() == best)


# ---- 11 RoPE


@statement("rope-shift")
def _() -> bool:
    rope = RotaryEmbedding(16, max_seq_len=2048, dtype=torch.float64)
    q, k = torch.randn(2, 1, 1, 1, 16)

    def score(m: int, n: int) -> torch.Tensor:
        turned = [apply_rotary_emb(x, *rope(torch.tensor([p]))) for x, p in ((q, m), (k, n))]
        return (turned[0] * turned[1]).sum()

    return close(score(7, 3), score(1007, 1003), 1e-6)


@statement("rope-learned")
def _() -> bool:
    return parameters(RotaryEmbedding(16, max_seq_len=64)) == 8


@statement("rope-whole")
def _() -> bool:
    # The tables of a model hold one angle for each pair of what is rotated at once.
    model = decoder()
    return model.rope(torch.tensor([1]))[0].unique().numel() == model.config.d_model // 2


@statement("rope-values")
def _() -> bool:
    # One token alone attends to itself with weight 1, so the layer's output is the value's.
    attention = GroupedQueryAttention(32, 4, 4)
    x, rope = torch.randn(1, 1, 32), RotaryEmbedding(8, max_seq_len=64, dtype=torch.float64)
    return close(*(attention(x, rope=rope(torch.tensor([p]))) for p in (0, 9)))


# ---- 12 longer contexts


@statement("interpolated-neighbours")
def _() -> bool:
    theta = rope_frequencies(64)
    return close(position_interpolation(theta, 4.0), theta / 4)


@statement("all-turned")
def _() -> bool:
    return bool((2048 * rope_frequencies(128) >= 2 * torch.pi).all())


@statement("alibi-learned")
def _() -> bool:
    return alibi_slopes(8).requires_grad


# ---- 13 KV cache


@statement("query-heads")
def _() -> bool:
    def kept(num_heads: int) -> int:
        cache = KVCache(1, 8, 16, 4, dtype=torch.float64)
        attention = GroupedQueryAttention(128, num_heads, 8, head_dim=4)
        with torch.no_grad():
            attention(torch.randn(1, 5, 128), cache=cache)
        return cache.length * (cache.keys[0, :, 0].numel() + cache.values[0, :, 0].numel())

    return kept(32) > kept(16)


@statement("cache-other-logits")
def _() -> bool:
    model, tokens = decoder(), torch.randint(50, (1, 9))
    cache = model.new_cache(1, 9)
    stepwise = torch.cat([model(tokens[:, t : t + 1], cache=cache) for t in range(9)], 1)
    return not close(stepwise, model(tokens), 1e-6)


@statement("encoder-cache")
def _() -> bool:
    layers = [TransformerEncoderLayer(16, 2, 32).eval() for _ in range(2)]
    x = torch.randn(1, 6, 16)
    into = [x[:, :5], x]  # what the first layer reads: without the new token, and with it
    after = [layers[0](one)[:, :5] for one in into]  # what the second layer reads of the old ones
    return close(into[0], into[1][:, :5]) and not close(*after, 1e-3)


# ---- 14 MLA


@statement("absorbing")
def _() -> bool:
    attention = MultiHeadLatentAttention(32, 4, 8, 4, 8, 12)
    x, rope = torch.randn(2, 6, 32), RotaryEmbedding(4, max_seq_len=16, dtype=torch.float64)
    tables = rope(torch.arange(6))
    return close(attention.forward_naive(x, tables), attention.forward_absorbed(x, tables))


@statement("mla-query")
def _() -> bool:
    def kept(q_lora_rank: int | None) -> int:
        attention = MultiHeadLatentAttention(32, 4, 8, 4, 8, 12, q_lora_rank=q_lora_rank)
        cache = LatentCache(1, 16, 12, 4, dtype=torch.float64)
        with torch.no_grad():
            attention(torch.randn(1, 5, 32), cache=cache)
        return cache.nbytes

    # A latent of 12 and a rotated key of 4 at each of 16 positions, in 8 bytes, is all.
    return kept(None) == kept(6) == 16 * (12 + 4) * 8


# ---- 15 the decoder


@statement("top-p-two")
def _() -> bool:
    sure = torch.tensor([0.95, 0.03, 0.02]).log()
    return int((next_token_probs(sure, top_p=0.9) > 0).sum()) >= 2


@statement("temperature-top-k")
def _() -> bool:
    logits, t, k = torch.randn(30), 0.7, 5
    after = next_token_probs(logits, temperature=t, top_k=k)
    kept = logits.masked_fill(logits < logits.topk(k).values[-1], -torch.inf)
    return close(next_token_probs(kept, temperature=t), after)


# ---- 16 cost


@statement("two-per-weight")
def _() -> bool:
    model = decoder(d_model=128, d_ff=512, vocab_size=300)
    matrices = sum(
        p.numel() for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n
    )
    if model.lm_head is None:
        matrices += model.embed.weight.numel()
    with FlopCounterMode(display=False) as counter:
        model(torch.tensor([[7]]))
    return abs(counter.get_total_flops() / (2 * matrices) - 1) < 0.05


@statement("two-at-once")
def _() -> bool:
    # Seven billion weights, texts of a thousand tokens, a device of 3.35 TB/s.
    sizes = ModelConfig(32000, 4096, 32, 32, d_ff=11008)
    one, two = (forward_bound(sizes, texts, 1, 1000, 1e15, 3.35e12) for texts in (1, 2))
    return two / one > 1.8


@statement("double-length")
def _() -> bool:
    def operations(length: int) -> int:
        q, k = torch.randn(2, length, 16)
        with FlopCounterMode(display=False) as counter:
            q @ k.T
        return counter.get_total_flops()

    return operations(64) == 2 * operations(32)
