"""Whether a statement of the quiz is true, computed: a function for each, under the statement's id.

A statement without one is drawn from a misconception that cites a source instead.
"""

from collections.abc import Callable
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from book import kinship
from book.own import own_model
from transformer_parts import families
from transformer_parts.attention import (
    MultiHeadAttention,
    causal_mask,
    scaled_dot_product_attention,
)
from transformer_parts.cost import forward_bound
from transformer_parts.decoder import DecoderOnlyTransformer, ModelConfig, next_token_probs
from transformer_parts.embeddings import sinusoidal_positional_encoding
from transformer_parts.experts import Router
from transformer_parts.feed_forward import FeedForward, GatedFeedForward
from transformer_parts.kv_cache import GroupedQueryAttention, KVCache
from transformer_parts.local_attention import tiled_attention, window_mask
from transformer_parts.long_context import alibi_slopes, position_interpolation
from transformer_parts.mla import LatentCache, MultiHeadLatentAttention
from transformer_parts.normalization import LayerNorm, layer_norm, rms_norm
from transformer_parts.recurrence import delta_rule, linear_attention
from transformer_parts.residual import Residual
from transformer_parts.rope import RotaryEmbedding, apply_rotary_emb, rope_frequencies
from transformer_parts.serving import BlockPool, quantize
from transformer_parts.softmax import softmax
from transformer_parts.tokens import BPETokenizer, train_bpe
from transformer_parts.training import AdamW, clip_grad_norm
from transformer_parts.transformer import Transformer, TransformerEncoderLayer

TRUTHS: dict[str, Callable[[], bool]] = {}


def statement(name: str) -> Callable[[Callable[[], bool]], Callable[[], bool]]:
    """Registers the function that computes whether the statement `name` is true."""

    def register(function: Callable[[], bool]) -> Callable[[], bool]:
        assert name not in TRUTHS
        TRUTHS[name] = function
        return function

    return register


def parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def close(a: torch.Tensor, b: torch.Tensor, tolerance: float = 1e-9) -> bool:
    return a.shape == b.shape and bool((a - b).abs().max() < tolerance)


def decoder(**changes: object) -> DecoderOnlyTransformer:
    sizes = {
        "vocab_size": 50,
        "d_model": 32,
        "num_layers": 2,
        "num_heads": 4,
        "d_ff": 64,
        "max_seq_len": 64,
    }
    return DecoderOnlyTransformer(ModelConfig(**(sizes | changes))).eval()


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


# ---- 17 tokens


@statement("one-byte")
def _() -> bool:
    chinese, latin = (len(letter.encode()) for letter in ("注", "a"))
    return chinese == latin


@statement("never-seen")
def _() -> bool:
    tokenizer = BPETokenizer(train_bpe(["hug pug pun bun hugs"], 5))
    return tokenizer.decode(tokenizer.encode("🦜")) == "🦜"


@statement("one-more-merge")
def _() -> bool:
    texts = ["the cat and the hat", "a hen that sat", "pugs hug", "xyz 注意力"]
    merges = train_bpe(texts[:3], 30)
    lengths = [
        [len(BPETokenizer(merges[:n]).encode(text)) for text in texts]
        for n in range(len(merges) + 1)
    ]
    return all(b <= a for one, two in pairwise(lengths) for a, b in zip(one, two, strict=True))


# ---- 18 training


@statement("adam-first-step")
def _() -> bool:
    steps = []
    for gradient in (1e-3, 1e3):
        p = nn.Parameter(torch.zeros(3))
        p.grad = torch.full((3,), gradient)
        AdamW([p], lr=0.1, eps=1e-30, weight_decay=0.0).step()
        steps.append(p.detach())
    return close(*steps)


@statement("first-loss")
def _() -> bool:
    logits = decoder(vocab_size=1000)(torch.randint(1000, (4, 16)))
    loss = F.cross_entropy(0.02 * logits.flatten(0, 1), torch.randint(1000, (64,)))
    return abs(loss.item() - 6.9) < 0.1


@statement("clip-direction")
def _() -> bool:
    p = nn.Parameter(torch.zeros(5))
    p.grad = 10 * torch.randn(5)
    before = p.grad.clone()
    clip_grad_norm([p], 1.0)
    return not close(F.normalize(p.grad, dim=0), F.normalize(before, dim=0))


# ---- 19 looking inside


@statement("nothing-to-look-for")
def _() -> bool:
    # A query and keys at right angles: all scores are 0.
    weights = softmax(torch.zeros(6), -1)
    return bool((weights < 0.01).all())


@statement("stream-sum")
def _() -> bool:
    model = own_model()
    written, entered = [], []
    for block in model.layers:
        for part in (block.attn, block.ffn):
            part.sublayer.register_forward_hook(lambda _m, _i, out: written.append(out))
    model.embed.register_forward_hook(lambda _m, _i, out: written.append(out))
    model.norm.register_forward_pre_hook(lambda _m, given: entered.append(given[0]))
    with torch.no_grad():
        model(torch.randint(0, 100, (1, 12)))
    return close(sum(written), entered[0], 1e-4)


# ---- 20 mixture of experts


@statement("softmax-of-the-chosen")
def _() -> bool:
    weights, chosen, _, logits = Router(6, 8, 3)(torch.randn(20, 6))
    return close(weights, logits.gather(-1, chosen).softmax(-1))


@statement("experts-read")
def _() -> bool:
    used = torch.rand(500, 32, 8).topk(2).indices.flatten(1)
    read = torch.zeros(500, 8).scatter(1, used, 1.0).mean().item()
    return abs(read - 0.25) < 0.1


# ---- 21 local attention


@statement("tiles-exact")
def _() -> bool:
    q, k, v = torch.randn(3, 50, 8)
    want = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return close(tiled_attention(q, k, v, is_causal=True, block_size=(7, 9)), want, 1e-12)


@statement("window-mask-cache")
def _() -> bool:
    cache, window = KVCache(1, 1, 20, 4), 6
    for _ in range(20):
        keys, values = cache.update(torch.randn(1, 1, 1, 4), torch.randn(1, 1, 1, 4))
        seen = window_mask(1, keys.shape[2], window)
        F.scaled_dot_product_attention(torch.randn(1, 1, 1, 4), keys, values, seen)
    return cache.length <= window


# ---- 22 families


FAMILY = {"vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
          "intermediate_size": 24, "max_position_embeddings": 32}  # fmt: skip


def of_family(family: str, **changes: object) -> families.FamilyDecoder:
    return families.assemble({"model_type": family, **FAMILY, **changes})


@statement("same-names-same-model")
def _() -> bool:
    one, other = of_family("llama", tie_word_embeddings=True), of_family("gemma")
    families.load_weights(other, families.published_weights(one))
    tokens = torch.randint(0, 20, (1, 7))
    return close(one(tokens), other(tokens), 1e-3)


@statement("child-by-difference")
def _() -> bool:
    parent, child = of_family("llama"), of_family("llama", num_key_value_heads=1)
    narrower = 2 * 2 * 16 * (4 - 1) * 4  # layers, keys and values, width, heads, features
    return parameters(child) == parameters(parent) - narrower


@statement("cache-by-size")
def _() -> bool:
    plans = [kinship.plan_of(family) for family in ("llama", "mistral")]
    with torch.device("meta"):
        sizes = [parameters(families.FamilyDecoder(plan)) for plan in plans]
    kept = [families.cache_numbers(plan, 8192) for plan in plans]
    return abs(sizes[0] / sizes[1] - 1) < 0.1 and kept[0] == 8 * kept[1]


# ---- 23 serving


@statement("blocks-empty")
def _() -> bool:
    worst = 0
    for length in range(1, 200):
        pool = BlockPool(16, 16, 1, 1, 2)
        sequence = pool.open()
        pool.reserve([sequence], length)
        worst = max(worst, len(pool.tables[sequence]) * 16 - length)
    return worst <= 15


@statement("speculation-quality")
def _() -> bool:
    p = torch.rand(7).softmax(0)
    off = []
    for draft in (p + 0.01 * torch.rand(7), torch.rand(7) ** 8):
        q = draft / draft.sum()
        accepted = torch.minimum(p, q)
        left = (p - q).clamp(min=0)
        off.append((accepted + (1 - accepted.sum()) * left / left.sum() - p).abs().max().item())
    return off[1] > 1e-9 and off[0] < off[1]


@statement("scale-of-rows")
def _() -> bool:
    matrix = torch.randn(20, 64)
    matrix[:, 5] = 100.0
    kept = quantize(matrix, 4, dim=0).dequantize() != 0
    kept[:, 5] = False
    return kept.double().mean().item() > 0.5


# ---- 24 recurrence


@statement("linear-same-sum")
def _() -> bool:
    q, k, v = torch.randn(3, 40, 6)
    products = (q @ k.T).tril() @ v
    memory, outs = torch.zeros(6, 6), []
    for one in range(40):
        memory = memory + torch.outer(k[one], v[one])
        outs.append(q[one] @ memory)
    return close(torch.stack(outs), products) and close(linear_attention(q, k, v)[0], products)


@statement("delta-keeps-others")
def _() -> bool:
    before, other = torch.randn(3, 4), torch.tensor([0.8, -0.6, 0.0])
    key = torch.tensor([[0.6, 0.8, 0.0]])  # perpendicular to the other one
    _, after = delta_rule(key, key, torch.randn(1, 4), torch.tensor([0.7]), state=before)
    return not close(other @ after, other @ before)


@statement("hybrid-constant")
def _() -> bool:
    def kept(tokens: int) -> int:
        memories = [torch.zeros(8, 8, device="meta")] * 36
        caches = [torch.zeros(2, tokens, 8, device="meta")] * 12
        return sum(t.numel() for t in [*memories, *caches])

    return kept(100_000) == kept(200_000)
