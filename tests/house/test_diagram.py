"""Traced diagrams: they show what the module does, and change when it does something else."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from book.diagram.draw import SMALL, Diagram, _area, _taken, _together
from book.diagram.layout import Layout, arrange
from book.diagram.models import original, today
from book.diagram.parts import key_of, label_of
from book.diagram.trace import Graph, trace
from book.diagram.view import View, fold, look
from transformer_parts import attention, kv_cache
from transformer_parts.decoder import DecoderOnlyTransformer, ModelConfig
from transformer_parts.embeddings import TokenEmbedding
from transformer_parts.feed_forward import FeedForward, GatedFeedForward
from transformer_parts.map import Call, trace_shapes
from transformer_parts.normalization import LayerNorm
from transformer_parts.residual import Residual
from transformer_parts.transformer import Transformer

WATCH: dict[str, tuple[object, str]] = {
    "linear": (TokenEmbedding, "logits"),
    "mask": (attention, "_masked"),
    "softmax": (attention, "softmax"),
    "rotate": (kv_cache, "apply_rotary_emb"),
}


def small(**options: Any) -> Transformer:
    """An encoder-decoder with four sizes that differ."""
    torch.manual_seed(0)
    sizes = {"num_encoder_layers": 2, "num_decoder_layers": 3, "max_len": 20, "dropout": 0.1}
    return Transformer(11, 11, 12, 3, d_ff=40, **(sizes | options))


def inputs() -> dict[str, Tensor]:
    """Seven source tokens and five target tokens."""
    return {
        "source": torch.tensor([[1, 2, 3, 4, 5, 6, 7]]),
        "target": torch.tensor([[1, 2, 3, 4, 5]]),
    }


def traced(model: nn.Module) -> Graph:
    """The graph of an encoder-decoder."""
    return trace(model, inputs(), watch=WATCH)


def names(graph: Graph, view: View) -> list[tuple[str, str]]:
    """The arrows of a view, in words."""
    words = {node.number: label_of(graph, node.number) for node in view.boxes}
    words |= {port.number: "in" if port.comes_in else "out" for port in view.ports}
    return [(words[link.source], words[link.target]) for link in view.links]


# ---------------------------------------------------------------- boxes


def test_every_box_has_the_shapes_of_the_call() -> None:
    model = small()
    graph = traced(model)
    calls = [c for c in trace_shapes(model, *inputs().values()) if c.name]
    unseen = {n for n, m in model.named_modules() if isinstance(m, nn.Dropout | nn.Identity)}
    masks = {(1, 7), (1, 5)}  # tensors of True and False, which the diagram does not follow

    def followed(call: Call) -> tuple[tuple[int, ...], ...]:
        tokens = call.kind == "TokenEmbedding"
        return tuple(shape for shape in call.inputs if tokens or shape not in masks)

    expected = [(c.name, c.kind, followed(c), c.output) for c in calls if c.name not in unseen]
    modules = dict(model.named_modules())
    found = [
        (n.name, n.kind, n.inputs, n.output)
        for n in graph.nodes.values()
        if n.name in modules and n.kind not in ("ModuleList", "Transformer")
    ]
    assert found == expected
    assert len(found) > 40


def test_every_box_has_its_parameters() -> None:
    model = small()
    graph = traced(model)
    for node in graph.nodes.values():
        if node.name and node.name in dict(model.named_modules()):
            own = dict(model.get_submodule(node.name).named_parameters())
            assert node.parameters == {k: tuple(p.shape) for k, p in own.items()}
    assert graph.find("linear").learned == 11 * 12
    assert graph.find("encoder").learned == sum(p.numel() for p in model.encoder.parameters())


def test_on_the_meta_device_the_graph_is_the_same() -> None:
    with torch.device("meta"):
        model = small()
        tokens = {name: torch.zeros_like(t, device="meta") for name, t in inputs().items()}
    assert trace(model, tokens, watch=WATCH) == traced(small())


def test_one_table_in_several_places_is_known() -> None:
    shared, apart = traced(small()), traced(small(shared=False))
    boxes = [n for n in shared.nodes.values() if n.parameters == {"weight": (11, 12)}]
    assert {n.kind for n in boxes} == {"TokenEmbedding", "function"}
    assert len(boxes) == 3
    for node in boxes:
        assert node.same == {n.number for n in boxes} - {node.number}
    others = [n for n in shared.nodes.values() if n not in boxes]
    assert not any(n.same for n in others)
    # Apart, the output layer still uses the table of the target.
    assert sorted(len(n.same) for n in apart.nodes.values() if n.same) == [1, 1]
    assert "one table for Embedding and Linear" in Diagram(shared, {0}, {}).sentence("linear")


def test_the_module_stays_as_it_was() -> None:
    model = small().train()
    before = {name: p.clone() for name, p in model.named_parameters()}
    traced(model)
    assert model.training
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert TokenEmbedding.logits.__qualname__ == "TokenEmbedding.logits"


# ---------------------------------------------------------------- arrows


def reachable(graph: Graph) -> dict[int, set[int]]:
    """Box -> the boxes that it feeds, directly or through others."""
    after: dict[int, set[int]] = {n: set() for n in graph.nodes}
    for edge in graph.edges:
        after[edge.source].add(edge.target)
    found = {}
    for start in graph.nodes:
        seen, todo = set(), [start]
        while todo:
            for n in after[todo.pop()] - seen:
                seen.add(n)
                todo.append(n)
        found[start] = seen
    return found


def dependencies(model: nn.Module, given: list[Tensor]) -> set[tuple[str, str]]:
    """Pairs of innermost modules of which the second's output changes with the first's."""
    outputs: dict[str, Tensor] = {}
    handles = []
    for name, module in model.named_modules():
        unseen = isinstance(module, nn.Dropout | nn.Identity)
        if not any(True for _ in module.children()) and not unseen:
            handles.append(
                module.register_forward_hook(
                    lambda m, a, y, name=name: outputs.setdefault(name, y), always_call=True
                )
            )
    model.eval()
    model(*given)
    for handle in handles:
        handle.remove()
    found = set()
    for b, y in outputs.items():
        # A random direction: the sum of a norm's output does not depend on its input.
        seen = torch.autograd.grad(
            (y * torch.randn_like(y)).sum(), [*outputs.values()], allow_unused=True,
            retain_graph=True,
        )  # fmt: skip
        for a, grad in zip(outputs, seen, strict=True):
            if a != b and grad is not None and bool(grad.abs().max() > 0):
                found.add((a, b))
    return found


@pytest.mark.parametrize("norm_first", [False, True])
def test_arrows_lead_from_a_to_b_exactly_if_b_depends_on_a(norm_first: bool) -> None:
    """Autograd knows what depends on what, too."""
    model = small(norm_first=norm_first, shared=False, num_encoder_layers=1, num_decoder_layers=2)
    graph = traced(model)
    depends = dependencies(model, [*inputs().values()])
    known = {name for pair in depends for name in pair}
    feeds = reachable(graph)
    modules = [n for n in graph.nodes.values() if n.name in known and "positions" not in n.name]
    assert len(modules) > 20
    drawn = {(a.name, b.name) for a in modules for b in modules if b.number in feeds[a.number]}
    assert drawn == {pair for pair in depends if "positions" not in "".join(pair)}


def test_arrows_of_a_decoder_of_today() -> None:
    torch.manual_seed(0)
    config = ModelConfig(11, 24, 2, 4, num_kv_heads=2, d_ff=20)
    model = DecoderOnlyTransformer(config)
    tokens = torch.tensor([[1, 2, 3, 4, 5]])
    graph = trace(model, {"tokens": tokens}, watch=WATCH)
    depends = dependencies(model, [tokens])
    feeds = reachable(graph)
    modules = [n for n in graph.nodes.values() if n.name in {x for pair in depends for x in pair}]
    drawn = {(a.name, b.name) for a in modules for b in modules if b.number in feeds[a.number]}
    assert drawn == depends
    inner = names(graph, look(graph, graph.find("layers.0.attn.sublayer").number))
    assert ("Queries", "Join") in inner
    assert ("Keys", "Join") in inner
    assert ("Values", "Join") not in inner
    assert ("Values", "Attention") in inner
    ffn = names(graph, look(graph, graph.find("layers.0.ffn.sublayer").number))
    assert ffn == [
        ("in", "Gate"),
        ("Gate", "SiLU"),
        ("in", "Up"),
        ("SiLU", "×"),
        ("Up", "×"),
        ("×", "Down"),
        ("Down", "out"),
    ]


class _Larger(nn.Module):
    """Two layers whose outputs meet in a function that is no box."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        """The larger of two, through a third layer."""
        y: Tensor = self.c(torch.maximum(self.a(x), self.b(x)).transpose(0, 1))
        return y


def test_what_is_no_box_passes_on_all_that_it_takes() -> None:
    graph = trace(_Larger(), [torch.ones(3, 3)])
    pairs = {(graph.nodes[e.source].name, graph.nodes[e.target].name) for e in graph.edges}
    assert pairs == {("input 0", "a"), ("input 0", "b"), ("a", "c"), ("b", "c"), ("c", "output")}


def test_every_box_is_fed() -> None:
    graph = traced(small())
    fed = {edge.target for edge in graph.edges}
    inner = {n.number for n in graph.nodes.values() if not graph.children(n.number)}
    assert {graph.nodes[n].kind for n in inner - fed} == {"input", "table"}


# ---------------------------------------------------------------- what changes the diagram


class _Block(nn.Module):
    """A residual block that can be built wrongly."""

    def __init__(self, d_ff: int = 32, *, residual: bool = True, first: bool = True) -> None:
        super().__init__()
        self.ffn, self.norm = FeedForward(8, d_ff), LayerNorm(8)
        self.residual, self.first = residual, first

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block."""
        y: Tensor = self.ffn(self.norm(x) if self.first else x)
        y = x + y if self.residual else y
        return y if self.first else self.norm(y)


def block(*args: Any, **kwargs: Any) -> tuple[Graph, View]:
    graph = trace(_Block(*args, **kwargs), [torch.zeros(1, 3, 8)])
    return graph, look(graph, 0)


def test_the_place_of_the_norm_is_seen() -> None:
    before, after = (names(*block(first=first)) for first in (True, False))
    assert before == [
        ("input", "LayerNorm"),
        ("LayerNorm", "Feed-forward"),
        ("input", "+"),
        ("Feed-forward", "+"),
        ("+", "output"),
    ]
    assert after == [
        ("input", "Feed-forward"),
        ("input", "+"),
        ("Feed-forward", "+"),
        ("+", "LayerNorm"),
        ("LayerNorm", "output"),
    ]


def test_a_missing_residual_connection_is_seen() -> None:
    graph, view = block(residual=False)
    assert names(graph, view) == [
        ("input", "LayerNorm"),
        ("LayerNorm", "Feed-forward"),
        ("Feed-forward", "output"),
    ]
    straight = arrange(view, lambda n: label_of(graph, n))
    assert not any(line.stream for line in straight.lines)


def test_a_width_is_seen() -> None:
    graph, _ = block(d_ff=20)
    inner = look(graph, graph.find("ffn").number)
    assert (1, 3, 20) in {link.shape for link in inner.links}
    assert (1, 3, 32) not in {link.shape for link in inner.links}


def test_a_mask_that_hides_padding_alone_has_a_name_of_its_own() -> None:
    graph = traced(small())
    masks = [n.number for n in graph.nodes.values() if n.name == "mask"]
    found = {key_of(graph, graph.nodes[n].parent or 0): key_of(graph, n) for n in masks}
    assert found == {
        "self-attention": "padding mask",
        "masked self-attention": "mask",
        "cross-attention": "padding mask",
    }


def test_the_texts_in_an_opened_part_stand_clear_of_each_other_and_of_the_arrows() -> None:
    for diagram in (original(), today()):
        for part, nodes in diagram.parts().items():
            lay = diagram._inside(nodes[-1])
            texts = [text for _, text in diagram._shapes(lay, 0.0)]
            areas = [_area(t.x, t.y, SMALL * len(t.text), t.anchor) for t in texts]
            for i, (left, right, low, high) in enumerate(areas):
                assert left >= 0, part
                assert right <= lay.width, part
                for x0, x1, y0, y1 in (*_taken(lay), *areas[:i]):
                    apart = x1 <= left or right <= x0 or y1 <= low or high <= y0
                    assert apart, (part, texts[i].text)


def test_shapes_that_differ_in_their_first_size_are_said_together() -> None:
    assert _together(["32 × T × 128", "8 × T × 128"]) == "32 and 8 × T × 128"
    assert _together(["8 × T × 128"]) == "8 × T × 128"
    assert _together(["T × 4", "S × 8"]) == "T × 4, S × 8"


def test_the_kind_of_attention_follows_from_the_run() -> None:
    graph = traced(small())
    kinds = {
        name: key_of(graph, graph.find(name).number)
        for name in ("encoder.0.self_attn", "decoder.0.self_attn", "decoder.0.cross_attn")
    }
    assert [*kinds.values()] == ["self-attention", "masked self-attention", "cross-attention"]


# ---------------------------------------------------------------- repeated layers


def test_equal_layers_are_one_box() -> None:
    graph = fold(traced(small()))
    assert [graph.find(name).times for name in ("encoder.0", "decoder.0")] == [2, 3]
    assert not any(n.name.startswith(("encoder.1", "decoder.1")) for n in graph.nodes.values())
    # The memory leads into the layer that stands for all, and the last layer to the head.
    pairs = {(graph.nodes[e.source].name, graph.nodes[e.target].name) for e in graph.edges}
    assert ("encoder.0.norm2", "decoder.0.cross_attn.k_proj") in pairs
    assert ("decoder.0.norm3", "linear") in pairs
    assert ("decoder.0.norm3", "decoder.0.self_attn.q_proj") not in pairs


def test_a_layer_that_differs_stays_apart() -> None:
    model = small(num_encoder_layers=4)
    model.encoder[2].ffn = FeedForward(12, 41)
    graph = fold(traced(model))
    found = {n.name: n.times for n in graph.nodes.values() if n.kind == "TransformerEncoderLayer"}
    assert found == {"encoder.0": 2, "encoder.2": 1, "encoder.3": 1}


class _Ladder(nn.Module):
    """Equal layers, of which the last gets the sum of what all the others made."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            Residual(GatedFeedForward(8, 16), LayerNorm(8)) for _ in range(3)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layers."""
        a = self.layers[0](x)
        b = self.layers[1](a)
        y: Tensor = self.layers[2](a)
        return y + b


def test_layers_that_are_fed_otherwise_stay_apart() -> None:
    graph = fold(trace(_Ladder(), [torch.zeros(1, 3, 8)]))
    assert [n.times for n in graph.nodes.values() if n.kind == "Residual"] == [2, 1]


# ---------------------------------------------------------------- the drawing


def drawings() -> Iterator[tuple[Graph, View, Layout]]:
    """The whole and every inside, of both kinds of models."""
    decoder = DecoderOnlyTransformer(ModelConfig(11, 24, 2, 4, num_kv_heads=2, d_ff=20))
    tokens = {"tokens": torch.tensor([[1, 2, 3, 4, 5]])}
    for graph in (
        fold(traced(small())),
        fold(traced(small(norm_first=True))),
        fold(trace(decoder, tokens, watch=WATCH)),
    ):
        layers = {n for n, node in graph.nodes.items() if node.times > 1 or node.kind == "Residual"}
        for view in [look(graph, 0, layers), *(look(graph, n) for n in graph.nodes)]:
            texts = {n.number: "box" for n in view.boxes} | {p.number: "port" for p in view.ports}
            yield graph, view, arrange(view, texts.__getitem__)


def test_boxes_lie_apart_and_inside() -> None:
    count = 0
    for _, _, lay in drawings():
        for a, b in itertools.combinations(lay.placed.values(), 2):
            apart = (
                a.x + a.w <= b.x + 0.01
                or b.x + b.w <= a.x + 0.01
                or a.y + a.h <= b.y + 0.01
                or b.y + b.h <= a.y + 0.01
            )
            assert apart, (a, b)
            count += 1
        for p in lay.placed.values():
            assert p.x >= -0.01
            assert p.x + p.w <= lay.width + 0.01
            assert p.y >= 0
            assert min(p.w, p.h) >= 24
    assert count > 500


def test_every_arrow_leads_from_its_box_to_its_box() -> None:
    for _, view, lay in drawings():
        assert {(line.source, line.target) for line in lay.lines} == {
            (link.source, link.target) for link in view.links
        }
        for line in lay.lines:
            a, b = lay.placed[line.source], lay.placed[line.target]
            (x0, y0), (x1, y1) = line.points[0], line.points[-1]
            assert a.x - 0.01 <= x0 <= a.x + a.w + 0.01
            assert a.y + a.h - 0.01 <= y0  # it leaves upwards, or the stream above the box
            assert b.x - 0.01 <= x1 <= b.x + b.w + 0.01
            assert b.y - 0.01 <= y1 <= b.y + b.h + 0.01
            for (xa, ya), (xb, yb) in itertools.pairwise(line.points):
                assert abs(xa - xb) < 0.01 or abs(ya - yb) < 0.01, "arrows run up or sideways"


def test_arrows_do_not_run_through_boxes() -> None:
    for _, _, lay in drawings():
        for line in lay.lines:
            for (xa, ya), (xb, yb) in itertools.pairwise(line.points):
                left, right = sorted((xa, xb))
                low, high = sorted((ya, yb))
                for p in lay.placed.values():
                    if p.number in (line.source, line.target):
                        continue
                    inside = (
                        left < p.x + p.w - 1
                        and right > p.x + 1
                        and low < p.y + p.h - 1
                        and high > p.y + 1
                    )
                    assert not inside, (line, p)


def test_a_stream_is_one_straight_line() -> None:
    graph = fold(traced(small()))
    layers = {n for n, node in graph.nodes.items() if node.times > 1}
    lay = arrange(look(graph, 0, layers), str)
    streams = [line for line in lay.lines if line.stream]
    assert len({x for line in streams for x, _ in line.points}) == 2  # one for each language
    assert len(streams) > 15
