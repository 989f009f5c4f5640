"""The statements of the quiz: chapters 17 to 24."""

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn

from book import kinship
from book.own import own_model
from transformer_parts import families
from transformer_parts.experts import Router
from transformer_parts.kv_cache import KVCache
from transformer_parts.local_attention import tiled_attention, window_mask
from transformer_parts.recurrence import delta_rule, linear_attention
from transformer_parts.serving import BlockPool, quantize
from transformer_parts.softmax import softmax
from transformer_parts.tokens import BPETokenizer, train_bpe
from transformer_parts.training import AdamW, clip_grad_norm

from .register import close, decoder, parameters, statement

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
