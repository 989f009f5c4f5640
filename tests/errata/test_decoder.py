"""What people get wrong about modern decoders: each wrong form fails, the right one holds."""

from html.parser import HTMLParser

import torch

from transformer_parts.decoder import DecoderOnlyTransformer, from_pretrained_config
from transformer_parts.rope import apply_rotary_emb, build_rope_cache


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.started, self.ended = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.started.append(tag)

    def handle_endtag(self, tag):
        self.ended.append(tag)


def test_e103_a_paragraph_is_closed_by_an_end_tag():
    opening = '<p align="center">\n    <img src="block.png" width="400"/>\n'
    wrong, right = Tags(opening + "<p>"), Tags(opening + "</p>")
    assert wrong.started.count("p") == 2
    assert "p" not in wrong.ended
    assert right.started.count("p") == right.ended.count("p") == 1


QWEN25 = {
    "model_type": "qwen2", "vocab_size": 152064, "hidden_size": 3584, "num_hidden_layers": 28,
    "num_attention_heads": 28, "num_key_value_heads": 4, "intermediate_size": 18944,
}  # fmt: skip
QWEN3 = {
    "model_type": "qwen3", "vocab_size": 151936, "hidden_size": 4096, "num_hidden_layers": 36,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
    "intermediate_size": 12288,
}  # fmt: skip


def published(config):
    with torch.device("meta"):
        return DecoderOnlyTransformer(from_pretrained_config(config))


def weights(q, k, rope):
    """Causal attention weights of one head, with or without rotation."""
    if rope:
        tables = build_rope_cache(q.shape[-1], q.shape[0], dtype=q.dtype)
        q, k = (apply_rotary_emb(x, *tables) for x in (q, k))
    scores = q @ k.T / q.shape[-1] ** 0.5
    return scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf).softmax(-1)


def test_e105_qwen2_biases_three_projections_and_qwen3_none():
    qwen2, qwen3 = published(QWEN25), published(QWEN3)
    names = [name for name, _ in qwen2.layers[0].named_parameters()]
    biased = sorted(n.split(".")[-2] for n in names if n.endswith("bias"))
    assert biased == ["k_proj", "q_proj", "v_proj"]
    assert not any("q_norm" in n or "k_norm" in n for n in names)
    parts = dict(qwen3.layers[0].named_parameters())
    assert not any(n.endswith("bias") for n in parts)
    gains = [p for n, p in parts.items() if "q_norm" in n or "k_norm" in n]
    assert [tuple(p.shape) for p in gains] == [(128,), (128,)]
    assert sum(p.numel() for p in qwen2.parameters()) == 7_615_616_512
    assert sum(p.numel() for p in qwen3.parameters()) == 8_190_735_360

    q, k, bias = torch.randn(6, 8), torch.randn(6, 8), torch.randn(8)
    change = [(weights(q, k + bias, rope) - weights(q, k, rope)).abs().max() for rope in (0, 1)]
    assert change[0] < 1e-12 < 0.01 < change[1]
