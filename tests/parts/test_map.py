"""The tracer, the two counters and the reference model, against torch's own layers and counters."""

import math
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from book.chapters import NOTEBOOKS, read
from book.glossary import load as glossary
from transformer_parts import map as ours
from transformer_parts.tensors import assert_parity

F64 = torch.float64
LAYERS = st.integers(1, 3)
LENGTHS = st.integers(1, 9)


def count(module):
    return sum(p.numel() for p in module.parameters())


def reference(vocab=11, d_model=8, **sizes):
    sizes = {"num_heads": 2, "num_encoder_layers": 2, "num_decoder_layers": 3, "d_ff": 20} | sizes
    torch.manual_seed(0)
    return ours.ReferenceTransformer(vocab, torch.randn(12, d_model), dropout=0.0, **sizes)


def tokens(batch, length, vocab=11, seed=0):
    return torch.randint(vocab, (batch, length), generator=torch.Generator().manual_seed(seed))


# --- the counters ---------------------------------------------------------------------------------


@settings(max_examples=25)
@given(
    heads=st.sampled_from([2, 4]), head_dim=st.integers(1, 4), d_ff=st.integers(1, 30),
    n=LAYERS, m=LAYERS, s=LENGTHS, t=LENGTHS, b=st.integers(1, 3), tied=st.booleans(),
    bias=st.booleans(),
)  # fmt: skip
def test_parameters_and_flops_are_what_torch_counts(
    heads, head_dim, d_ff, n, m, s, t, b, tied, bias
):
    d_model = heads * head_dim
    with torch.device("meta"):
        model = ours.ReferenceTransformer(
            13, torch.empty(9, d_model), heads, n, m, d_ff, tied=tied, bias=bias
        )
        src, tgt = (torch.empty(b, length, dtype=torch.long) for length in (s, t))
    assert ours.parameter_count(d_model, heads, d_ff, n, m, 13, tied, bias) == count(model)
    with FlopCounterMode(display=False) as counter:
        model(src, tgt)
    assert ours.transformer_flops(s, t, d_model, d_ff, n, m, 13, b) == counter.get_total_flops()


def test_the_published_configurations():
    base = ours.parameter_parts(512, 8, 2048, 6, 6, 37_000)
    assert sum(base.values()) == ours.parameter_count(512, 8, 2048, 6, 6, 37_000) == 63_082_496
    official = nn.Transformer(512, 8, 6, 6, 2048, batch_first=True, device="meta")
    assert ours.parameter_count(512, 8, 2048, 6, 6, 0, final_norm=True) == count(official)
    assert ours.parameter_count(512, 8, 2048, 1, 0, 0) == count(official.encoder.layers[0])
    assert ours.parameter_count(512, 8, 2048, 0, 1, 0) == count(official.decoder.layers[0])
    assert 213e6 < ours.parameter_count(1024, 16, 4096, 6, 6, 37_000) < 215e6


def test_the_crossover_of_an_encoder_layer_is_at_six_widths():
    parts = ours.flop_parts(6 * 64, 0, 64, 256, 1, 0, 0)
    assert parts["scores and values"] == parts["projections"] + parts["feed-forward"]
    assert ours.transformer_flops(0, 0, 64, 256, 6, 6, 100) == 0


def test_bad_sizes_are_refused_by_name():
    with pytest.raises(ValueError, match="num_heads must divide d_model=8, got 3"):
        ours.parameter_count(8, 3, 20, 1, 1, 10)
    with pytest.raises(ValueError, match="num_heads must divide d_model=8, got 0"):
        ours.parameter_count(8, 0, 20, 1, 1, 10)
    with pytest.raises(ValueError, match="d_ff must not be negative, got -1"):
        ours.parameter_parts(8, 2, -1, 1, 1, 10)
    with pytest.raises(ValueError, match="tgt_len must not be negative, got -2"):
        ours.transformer_flops(1, -2, 8, 20, 1, 1, 10)


# --- the reference model --------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "tol"), [(F64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize(("s", "t"), [(7, 5), (1, 1), (3, 12)])
def test_the_reference_is_nn_transformer_with_its_surroundings(dtype, tol, s, t):
    model = reference().to(dtype)
    official = nn.Transformer(8, 2, 2, 3, 20, dropout=0.0, batch_first=True).to(dtype)
    official.encoder.norm = official.decoder.norm = None
    official.encoder.load_state_dict(model.encoder.state_dict())
    official.decoder.load_state_dict(model.decoder.state_dict())
    table, places = model.source_embedding.weight, model.source_positions.positions
    blocked = torch.ones(t, t).triu(1) == 1

    def by_hand(src, tgt):
        x, y = (table[n] * math.sqrt(8) + places[: n.shape[1]] for n in (src, tgt))
        return official(x, y, tgt_mask=blocked) @ table.T

    src, tgt = tokens(2, s), tokens(2, t, seed=1)
    assert_parity(model, by_hand, src, tgt, atol=tol, rtol=tol, check_grad=False)
    weights = torch.randn(2, t, 11, dtype=dtype)
    grads = [torch.autograd.grad((f(src, tgt) * weights).sum(), table)[0] for f in (model, by_hand)]
    torch.testing.assert_close(*grads, atol=100 * tol, rtol=100 * tol)
    torch.testing.assert_close(model(src, tgt, True), model(src, tgt).softmax(-1))


def test_order_matters_now_and_the_future_does_not():
    model, src, tgt = reference().double(), tokens(1, 7), tokens(1, 5, seed=1)
    assert (model(src.flip(1), tgt) - model(src, tgt)).abs().max() > 1e-3
    later = tgt.clone()
    later[0, 3:] = (later[0, 3:] + 1) % 11
    changed = (model(src, later) - model(src, tgt)).abs().amax(-1)[0]
    assert changed[:3].max() == 0
    assert changed[3:].min() > 1e-6


def test_tying_shares_one_matrix():
    tied, untied = reference(tied=True), reference(tied=False)
    assert tied.linear.weight is tied.source_embedding.weight is tied.target_embedding.weight
    assert count(untied) - count(tied) == 2 * 11 * 8
    first, second = untied.encoder.layers
    assert not torch.equal(first.linear1.weight, second.linear1.weight)


def test_bad_inputs_are_refused_by_name():
    model = reference()
    with pytest.raises(ValueError, match=r"src and tgt must have shapes .* got \(2, 3\) and \(3,"):
        model(tokens(2, 3), tokens(3, 3))
    with pytest.raises(ValueError, match=r"x must have shape \(B, T, 8\) with T up to 12"):
        model(tokens(1, 13), tokens(1, 2))
    with pytest.raises(ValueError, match=r"num_encoder_layers and .* at least 1, got 0 and 3"):
        reference(num_encoder_layers=0)
    with pytest.raises(ValueError, match="num_heads must divide d_model=8, got 3"):
        reference(num_heads=3)


# --- the tracer -----------------------------------------------------------------------------------


def test_the_data_flow_has_its_twelve_stages():
    model = reference(num_encoder_layers=6, num_decoder_layers=6)
    stages = ["source_embedding", "source_positions", "target_embedding", "target_positions"]
    stages += [f"{stack}.layers.{k}" for stack in ("encoder", "decoder") for k in range(6)]
    stages += ["linear", "softmax"]
    rows = ours.trace_shapes(model, tokens(1, 7), tokens(1, 5, seed=1), True, only=stages)
    assert [r.name for r in rows] == stages
    sizes = {"S": 7, "T": 5, "d": 8, "V": 11}
    shapes = [ours.name_shape(r.output[1:], sizes) for r in rows]
    assert shapes == ["S × d"] * 2 + ["T × d"] * 2 + ["S × d"] * 6 + ["T × d"] * 6 + ["T × V"] * 2
    flow = {r.name: [s for s in r.sources if s] for r in rows}
    assert flow["source_positions"] == ["source_embedding"]
    assert flow["encoder.layers.0"] == ["source_positions"]
    assert flow["decoder.layers.0"] == ["target_positions", "encoder.layers.5"]
    for k in range(1, 6):
        assert flow[f"encoder.layers.{k}"] == [f"encoder.layers.{k - 1}"]
        assert flow[f"decoder.layers.{k}"] == [f"decoder.layers.{k - 1}", "encoder.layers.5"]
    assert flow["linear"] == ["decoder.layers.5"]
    assert flow["softmax"] == ["linear"]


def test_a_trace_changes_nothing_and_works_without_numbers():
    model, src, tgt = reference(), tokens(2, 7), tokens(2, 5)
    before = model(src, tgt)
    rows = ours.trace_shapes(model, src, tgt)
    assert torch.equal(model(src, tgt), before)
    assert before.requires_grad
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    # In evaluation mode torch has a fast path in which the parts of a layer are not called.
    assert [r[:4] for r in ours.trace_shapes(model.eval(), src, tgt)] == [r[:4] for r in rows]
    assert ours.trace_shapes(model.to("meta"), src.to("meta"), tgt.to("meta")) == [
        *ours.trace_shapes(model, src.to("meta"), tgt.to("meta"))
    ]


def test_repeated_calls_tuples_and_errors():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.part = nn.LSTM(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            return self.part(self.part(self.lstm(x)[0]) + 1)

    rows = ours.trace_shapes(Twice(), torch.zeros(3, 4))
    assert [r.name for r in rows] == ["", "lstm", "part", "part"]
    assert [r.sources for r in rows] == [("input 0",), ("input 0",), ("lstm",), ("",)]
    assert rows[1] == ("lstm", "LSTM", ((3, 4),), (3, 4), ("input 0",))
    model = nn.Sequential(nn.Linear(4, 4))
    with pytest.raises(ValueError, match=r"only must hold names of modules, got \['1'\]"):
        ours.trace_shapes(model, torch.zeros(4), only=["1"])
    with pytest.raises(RuntimeError):
        ours.trace_shapes(model, torch.zeros(5))
    assert not model[0]._forward_hooks
    with pytest.raises(ValueError, match="sizes must differ"):
        ours.name_shape((3,), {"S": 3, "T": 3})
    assert ours.name_shape((3, 4), {"S": 3}) == "S × 4"


def test_the_reference_has_six_layers_in_each_stack_unless_one_asks():
    model = ours.ReferenceTransformer(11, torch.zeros(4, 8), num_heads=2, d_ff=16)
    assert [len(stack.layers) for stack in (model.encoder, model.decoder)] == [6, 6]
    asked = ours.ReferenceTransformer(11, torch.zeros(4, 8), 2, 1, 3, 16)
    assert [len(stack.layers) for stack in (asked.encoder, asked.decoder)] == [1, 3]


def test_the_table_of_boxes_sends_the_reader_where_the_glossary_says_the_box_is_explained():
    (cell,) = [
        c for c in read(NOTEBOOKS / "02_map.ipynb").cells if c.id == "every-box-and-its-chapter"
    ]
    rows = [line.split("|")[1:-1] for line in cell.source.splitlines() if line.startswith("| ")][2:]
    places = {entry.term: entry.place for entry in glossary()}
    terms = {
        "tokens": "token",
        "Embedding": "embedding",
        "Positions": "positional encoding",
        "Self-attention": "self-attention",
        "Masked self-attention": "causal mask",
        "Cross-attention": "cross-attention",
        "Feed-forward": "feed-forward network",
        "Add": "residual connection",
        "Norm": "layer normalization",
        "encoder layer, decoder layer": "decoder",
        "shifted right": "teacher forcing",
        "Linear": None,  # no term of its own: chapter 10 puts it on top of the stack
        "Softmax": "logits",
    }
    assert [row[0].strip() for row in rows] == list(terms)
    for row in rows:
        links = re.findall(r"\((?:(\w+)\.ipynb)?(#[\w-]+)?\)", row[-1])
        chapters = {chapter or "02_map" for chapter, _ in links}
        assert chapters
        if term := terms[row[0].strip()]:
            assert places[term].partition("#")[0] in chapters, row[0]
