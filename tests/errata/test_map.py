"""What people get wrong about the map: each wrong form fails, the right one holds."""

import re

import pytest
import torch
from torch import nn

from book.chapters import chapters, read
from transformer_parts.map import ReferenceTransformer, trace_shapes


def test_e36_a_transformer_has_two_stacks_and_no_third():
    model = nn.Transformer(16, 4, 2, 3, 32, batch_first=True)
    parts = [name for name, _ in model.named_children()]
    assert not [name for name in parts if "review" in name.lower()]
    assert parts == ["encoder", "decoder"]
    # What looks back at the source is a sub-layer of every decoder layer, and of no encoder layer.
    assert all(hasattr(layer, "multihead_attn") for layer in model.decoder.layers)
    assert not any(hasattr(layer, "multihead_attn") for layer in model.encoder.layers)


def test_e37_an_embedding_starts_without_meaning():
    table = nn.Embedding(1000, 512)
    unit = table.weight / table.weight.norm(dim=1, keepdim=True)
    # Two rows, of related words or not, start as good as orthogonal ...
    cosine = (unit @ unit.T - torch.eye(1000)).abs()
    assert cosine.max() < 0.3
    assert cosine.mean() < 0.05
    # ... and a row changes with training: it is a parameter, and the input is a whole number.
    assert table.weight.requires_grad
    with pytest.raises(RuntimeError, match="Expected tensor for argument #1 'indices'"):
        table(torch.randn(3))
    table(torch.tensor([7])).sum().backward()
    assert table.weight.grad.abs().sum(1).nonzero().tolist() == [[7]]


def test_e88_the_shapes_inside_attention_are_not_those_of_its_input():
    x, y = torch.randn(1, 10, 512), torch.randn(1, 7, 512)
    block = nn.MultiheadAttention(512, 8, batch_first=True)
    out, own = block(x, x, x, average_attn_weights=False)
    crossed, weights = block(y, x, x, average_attn_weights=False)
    queries = (x @ block.in_proj_weight[:512].T).unflatten(-1, (8, 64)).transpose(1, 2)
    inside = [queries, own, own @ queries, weights]
    assert not [t for t in inside if t.shape[-2:] == x.shape[-2:]]
    assert [tuple(t.shape[-2:]) for t in inside] == [(10, 64), (10, 10), (10, 64), (7, 10)]
    # Only the block as a whole keeps the shape of what asks.
    assert (out.shape, crossed.shape) == (x.shape, y.shape)


def test_e98_without_positions_the_order_of_the_source_is_lost():
    stacks = nn.Transformer(16, 4, 2, 2, 32, dropout=0.0, batch_first=True)
    x, y, order = torch.randn(1, 6, 16), torch.randn(1, 5, 16), [5, 2, 0, 4, 1, 3]
    # The data flow as it is often written, embedding to encoder: any order gives the same.
    assert (stacks(x[:, order], y) - stacks(x, y)).abs().max() < 1e-12
    src, tgt = torch.tensor([[3, 1, 4, 1, 5, 9]]), torch.tensor([[2, 7, 1, 8, 2]])
    model = ReferenceTransformer(10, torch.randn(6, 16), 4, 2, 2, 32)
    kinds = [row.kind for row in trace_shapes(model, src, tgt)]
    assert kinds.count("AddPositions") == 2
    # One after each sum with the positions, three in an encoder layer and four in a decoder layer.
    # Those on the attention weights are not modules in torch, and are not counted here.
    assert kinds.count("Dropout") == 2 + 2 * 3 + 2 * 4
    model.eval()
    assert (model(src[:, order], tgt) - model(src, tgt)).abs().max() > 1e-3


def test_e35_every_figure_is_drawn_by_its_notebook():
    linked, shown = [], 0
    for path in chapters():
        for cell in read(path).cells:
            if cell.cell_type == "markdown":
                linked += re.findall(r"!\[\[[^\]]*\]\]|!\[[^\]]*\]\([^)]*\)|<img", cell.source)
            for output in cell.get("outputs", []):
                if "image/png" in output.get("data", {}):
                    assert output.metadata["image/png"]["alt"]
                    shown += 1
    assert linked == []
    assert shown >= len(chapters())
