"""What people get wrong about the whole: each wrong form fails, the right one holds."""

import itertools
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from book.chapters import NOTEBOOKS, read
from transformer_parts.transformer import (
    Transformer,
    TransformerDecoderLayer,
    TransformerEncoderLayer,
    beam_search,
    shift_right,
)


def test_e47_greedy_decoding_misses_the_most_probable_output():
    table = torch.tensor(  # rows: bos, end, A, B, C; columns: the next token
        [[0, 0.1, 0.5, 0.4, 0], [0, 1, 0, 0, 0], [0, 0.34, 0.08, 0.3, 0.28], [0, 0.05, 0, 0, 0.95],
         [0, 0.6, 0.2, 0.1, 0.1]]
    )  # fmt: skip

    def step(prefixes):
        return table[prefixes[:, -1]].log()

    greedy, greedy_score = beam_search(step, 0, 1, 4, beam_size=1, length_penalty=0.0)
    found, score = beam_search(step, 0, 1, 4, beam_size=2, length_penalty=0.0)
    assert (greedy, pytest.approx(0.17)) == ([2, 1], torch.tensor(greedy_score).exp().item())
    assert found == [3, 4, 1]
    assert torch.tensor(score).exp() > 0.19
    every = [(*w, 1) for n in range(4) for w in itertools.product((2, 3, 4), repeat=n)]
    probability = {w: table[[0, *w[:-1]], list(w)].prod().item() for w in every}
    assert max(probability, key=probability.get) == (3, 4, 1)


def layers():
    ours, official = (
        TransformerDecoderLayer(8, 2, 16, 0.0),
        nn.TransformerDecoderLayer(8, 2, 16, 0.0, batch_first=True),
    )
    ours.self_attn.load_from_torch(official.self_attn)
    ours.cross_attn.load_from_torch(official.multihead_attn)
    ours.ffn.w_up.load_state_dict(official.linear1.state_dict())
    ours.ffn.w_down.load_state_dict(official.linear2.state_dict())
    for name in ("norm1", "norm2", "norm3"):
        nn.init.normal_(getattr(official, name).weight)
        getattr(ours, name).load_state_dict(getattr(official, name).state_dict())
    return ours, official


def test_e86_the_layers_are_written_out_and_their_joints_matter():
    ours, official = layers()
    x, memory = torch.randn(2, 5, 8), torch.randn(2, 7, 8)
    future = torch.ones(5, 5).triu(1).bool()
    want = official(x, memory, tgt_mask=future)
    torch.testing.assert_close(ours(x, memory), want)
    ours.norm2, ours.norm3 = ours.norm3, ours.norm2
    assert (ours(x, memory) - want).abs().max() > 0.1


def loss_on_noise(shifted):
    torch.manual_seed(0)
    model = Transformer(30, 30, 16, 2, 1, 1, 32, dropout=0.0)
    if not shifted:  # and without the causal mask
        attention = model.decoder[0].self_attn
        forward = attention.forward
        attention.forward = lambda *a, is_causal=False, **k: forward(*a, **k)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2, fused=True)
    src = torch.ones(64, 1, dtype=torch.long)
    for _ in range(120):
        tgt = torch.randint(3, 30, (64, 5))
        logits = model(src, shift_right(tgt, 1) if shifted else tgt)
        loss = F.cross_entropy(logits.flatten(0, 1), tgt.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def test_e95_a_target_that_is_not_shifted_is_copied():
    assert loss_on_noise(shifted=False) < 0.2
    assert loss_on_noise(shifted=True) > 3.0


def test_e96_the_output_layer_belongs_to_no_layer():
    model = Transformer(11, 11, 8, 2, 2, 3, 16)
    shapes = [{n: p.shape for n, p in layer.named_parameters()} for layer in model.decoder]
    assert shapes[0] == shapes[1] == shapes[2]
    assert not any(11 in shape for shape in shapes[0].values())
    outside = [n for n, _ in model.named_parameters() if not n.startswith(("encoder.", "decoder."))]
    assert outside == ["tgt_embed.weight"]
    h = torch.randn(2, 8)
    torch.testing.assert_close(model.tgt_embed.logits(h), h @ model.tgt_embed.weight.T)


def test_e99_a_decoder_layer_has_three_norms():
    layer = TransformerDecoderLayer(512, 8, 2048)
    total = sum(p.numel() for p in layer.parameters())
    official = nn.TransformerDecoderLayer(512, 8, 2048)
    assert total == sum(p.numel() for p in official.parameters())
    norms = [n for n, _ in layer.named_children() if n.startswith("norm")]
    assert norms == ["norm1", "norm2", "norm3"]
    assert total == 4_204_032
    one_norm = total - sum(p.numel() for n in norms[1:] for p in getattr(layer, n).parameters())
    assert total - one_norm == 2048
    assert 6 * (total - one_norm) == 12_288


def test_e100_layers_have_equal_shapes_and_separate_values():
    model = Transformer(11, 11, 8, 2, 2, 2, 16)
    first, second = (dict(layer.named_parameters()) for layer in model.encoder)
    assert {n: p.shape for n, p in first.items()} == {n: p.shape for n, p in second.items()}
    assert all(first[n] is not second[n] for n in first)
    assert not torch.equal(first["ffn.w_up.weight"], second["ffn.w_up.weight"])
    copies = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2, enable_nested_tensor=False
    )
    a, b = (layer.linear1.weight for layer in copies.layers)
    assert a is not b
    assert torch.equal(a, b)


def test_e104_the_whole_model_is_built_from_this_books_parts():
    model = Transformer(11, 11, 8, 2, 1, 1, 16)
    ours = {type(m) for m in model.modules() if type(m).__module__.startswith("transformer_parts")}
    names = {t.__name__ for t in ours}
    assert {"TokenEmbedding", "SinusoidalPositionalEncoding", "MultiHeadAttention"} <= names
    assert {"FeedForward", "LayerNorm", TransformerEncoderLayer.__name__} <= names
    cells = {c.id: c for c in read(NOTEBOOKS / "10_transformer.ipynb").cells}
    said = re.search(r"wrong character: (\d+) of (\d+)", cells["train"].outputs[0].text)
    assert int(said[1]) > 0.99 * int(said[2]) == 495
