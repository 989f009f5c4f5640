"""Published weights, in and out: the names and layouts that the data file gives."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from transformer_parts.decoder import _FLOATS, _open, _sources
from transformer_parts.families.model import FamilyDecoder
from transformer_parts.families.plan import Plan
from transformer_parts.rope import convert_rope_layout

__all__ = ["load_weights", "published_weights"]


# From notebooks/22_families.ipynb#weights-that-load-and-are-wrong
class _Piece(NamedTuple):
    """Where a part of one of our tensors stands in a published one.

    `ours[at]` is `theirs[rows]` along `axis`, after the last two axes of `theirs` have
    changed places if `transposed`.
    """

    name: str
    at: tuple[Any, ...] = ()
    rows: Tensor | None = None
    axis: int = 0
    transposed: bool = False


# --- Which rows of a fused matrix are whose ------------------------------------------


def _by_parts(p: Plan) -> list[Tensor]:
    """All queries, all keys, all values."""
    q, kv = p.num_heads * p.head_dim, p.num_kv_heads * p.head_dim
    return list(torch.split(torch.arange(q + 2 * kv), [q, kv, kv]))


def _by_groups(p: Plan) -> list[Tensor]:
    """For each group its queries, then its key, then its value."""
    n, d = p.num_heads // p.num_kv_heads, p.head_dim
    rows = torch.arange((p.num_heads + 2 * p.num_kv_heads) * d)
    groups = rows.view(p.num_kv_heads, n + 2, d)
    return [part.reshape(-1) for part in torch.split(groups, [n, 1, 1], 1)]


def _by_quarters(p: Plan) -> list[Tensor]:
    """Four blocks, each with its queries, its values and its keys: CodeGen's."""
    rows = torch.arange(3 * p.num_heads * p.head_dim).view(4, 3, -1)
    return [rows[:, part].reshape(-1) for part in (0, 2, 1)]


_FUSED: dict[str, Callable[[Plan], list[Tensor]]] = {
    "parts": _by_parts, "groups": _by_groups, "quarters": _by_quarters,
}  # fmt: skip


def _latent_rows(p: Plan, key: str) -> Tensor:
    """For latent attention, rows whose rotated features are pairs of neighbours."""
    assert p.mla is not None
    turned = p.mla["qk_rope_head_dim"]
    if key == "kv_a":
        heads, offset = 1, p.mla["kv_lora_rank"]
    else:
        heads, offset = p.num_heads, p.mla["qk_nope_head_dim"]
    rows = torch.arange(heads * (offset + turned))
    return convert_rope_layout(rows, heads, "interleaved", turned, offset)


def _in_pairs(p: Plan, key: str) -> Tensor:
    """For each head its query, then its gate: Qwen3-Next's."""
    rows = torch.arange(2 * p.num_heads * p.head_dim).view(p.num_heads, 2, p.head_dim)
    return rows[:, ("q", "attn_gate").index(key)].reshape(-1)


# --- Every tensor of ours ------------------------------------------------------------

_TOP = ("embed", "embed_norm", "positions", "norm", "head")
_ATTENTION = {
    "q_proj": "q", "k_proj": "k", "v_proj": "v", "out_proj": "o", "q_norm": "q_norm",
    "k_norm": "k_norm", "gate_proj": "attn_gate", "sinks": "sinks",
    "q_down_proj": "q_a", "q_up_proj": "q_b", "kv_down_proj": "kv_a",
    "kv_norm": "kv_norm", "kv_up_proj": "kv_b",
}  # fmt: skip
_FEED_FORWARD = {
    "w_gate": "gate", "w_up": "up", "w_down": "down", "activation": "activation",
}  # fmt: skip
_SHARED = {"w_gate": "shared_gate_proj", "w_up": "shared_up", "w_down": "shared_down"}


def _pieces(ours: str, model: FamilyDecoder, given: Mapping[str, Any]) -> list[_Piece]:
    """Where the published weights hold one of our tensors."""
    p, names = model.plan, model.plan.data["names"]
    top, _, rest = ours.partition(".")
    if top in _TOP:
        return [_Piece(f"{names[top]}.{rest}")]
    _, i, part, *path = ours.split(".")
    layer = names["layer"].format(i=i)
    if part == "norms":
        return [_Piece(f"{layer}{names[path[0]]}.{path[1]}")]
    if part == "recurrent":
        return _of_recurrent(ours, layer, ".".join(path), model, given)
    transposed = bool(p.data["transposed"]) and path[-1] == "weight"
    if part == "attn":
        key, kind = _ATTENTION[path[0]], path[-1]
        if p.data["gate_in_q"] and key in ("q", "attn_gate"):
            return [_Piece(f"{layer}{names['q']}.{kind}", (), _in_pairs(p, key))]
        fused = ("q", "k", "v").index(key) if key in ("q", "k", "v") else None
        if fused is not None and "qkv" in names:
            rows = _FUSED[p.data["fused_qkv"]](p)[fused]
            return [_Piece(f"{layer}{names['qkv']}.{kind}", (), rows, 0, transposed)]
        if key == "sinks":
            return [_Piece(layer + names[key])]
        if "{e}" in names[key]:
            heads = p.num_heads if key == "q_norm" else p.num_kv_heads
            name = f"{layer}{names[key]}.{kind}"
            return [_Piece(name.format(e=e), (e,)) for e in range(heads)]
        if p.mla is not None and p.data["mla_halves"] and key in ("q", "q_b", "kv_a"):
            return [_Piece(f"{layer}{names[key]}.{kind}", (), _latent_rows(p, key))]
        plain = key in ("q_norm", "k_norm", "kv_norm")
        name = f"{layer}{names[key]}.{kind}"
        return [_Piece(name, (), None, 0, transposed and not plain)]
    return _of_feed_forward(ours, layer, path, model, given, transposed)


def _of_recurrent(
    ours: str, layer: str, path: str, model: FamilyDecoder, given: Mapping[str, Any]
) -> list[_Piece]:
    """A tensor of a recurrent part, whole or in the pieces in which it is published."""
    data = model.plan.data
    before = f"{layer}{data['names']['recurrent']}."
    module, dot, kind = path.rpartition(".")
    base = module if dot else kind
    theirs = data["recurrent_names"].get(base, base)
    in_files = data["recurrent_files"].get(base)
    kind = dot and f".{kind}"
    if in_files is not None and f"{before}{in_files[0]}{kind}" in given:
        theirs = in_files
    if isinstance(theirs, str):
        return [_Piece(f"{before}{theirs}{kind}")]
    tensor, pieces, start = model.get_parameter(ours), [], 0
    part = model.get_submodule(ours.split(".recurrent.")[0]).recurrent
    sizes = getattr(part, "splits", [len(tensor) // len(theirs)] * len(theirs))
    for name, size in zip(theirs, sizes, strict=True):
        at = (slice(start, start + size),)
        pieces.append(_Piece(f"{before}{name}{kind}", at))
        start += size
    return pieces


def _of_feed_forward(
    ours: str,
    layer: str,
    path: list[str],
    model: FamilyDecoder,
    given: Mapping[str, Any],
    transposed: bool,
) -> list[_Piece]:
    names, head, kind = model.plan.data["names"], path[0], path[-1]
    if head == "router":
        key = {"weight": "router", "bias": "router", "correction": "correction"}[kind]
        suffix = "" if key == "correction" else f".{kind}"
        return [_Piece(f"{layer}{names[key]}{suffix}")]
    if head == "shared_gate":
        return [_Piece(f"{layer}{names['shared_gate']}.{kind}")]
    if head == "shared":
        part = _SHARED[path[1]]
        if part != "shared_down" and "shared_gate_up" in names:
            name = f"{layer}{names['shared_gate_up']}.{kind}"
            return [_half(name, model.get_parameter(ours), part == "shared_up")]
        return [_Piece(f"{layer}{names[part]}.{kind}")]
    if len(path) == 1:  # stacked experts: w_in, b_in, w_down, b_down
        return _of_experts(ours, layer, head, model, given)
    if head in ("w_gate", "w_up") and "gate_up" in names:
        name = f"{layer}{names['gate_up']}.{kind}"
        return [_half(name, model.get_parameter(ours), head == "w_up")]
    name = f"{layer}{names[_FEED_FORWARD[head]]}.{kind}"
    return [_Piece(name, (), None, 0, transposed)]


def _half(name: str, ours: Tensor, second: bool) -> _Piece:
    """A matrix that is the first or the second half of a published one."""
    size = len(ours)
    return _Piece(name, (), torch.arange(size) + (size if second else 0))


def _of_experts(
    ours: str, layer: str, part: str, model: FamilyDecoder, given: Mapping[str, Any]
) -> list[_Piece]:
    """Experts stacked, as in Hugging Face's modules, or one by one, as in its files."""
    p, names = model.plan, model.plan.data["names"]
    tensor = model.get_parameter(ours)
    inner, bias = part.endswith("in"), part.startswith("b")
    if "expert_rows_down" in names:
        return _of_expert_rows(layer, tensor, inner, names)
    name = layer + names["experts_in" if inner else "experts_down"]
    name += p.data["experts_bias"] if bias else p.data["experts_weight"]
    if name in given or "expert_gate" not in names:
        rows = None
        if inner and p.data["interleaved_experts"]:
            rows = torch.arange(tensor.shape[1]).view(-1, 2).T.reshape(-1)
        flipped = bool(p.data["stacked_transposed"]) and not bias
        return [_Piece(name, (), rows, 1, flipped)]
    pieces = []
    half = tensor.shape[1] // 2
    for e in range(len(tensor)):
        keys = ["expert_gate", "expert_up"] if inner else ["expert_down"]
        for n, key in enumerate(keys):
            at = (e, slice(n * half, (n + 1) * half)) if inner else (e,)
            kind = "bias" if bias else "weight"
            pieces.append(_Piece(f"{layer}{names[key].format(e=e)}.{kind}", at))
    return pieces


def _of_expert_rows(
    layer: str, ours: Tensor, inner: bool, names: Mapping[str, str]
) -> list[_Piece]:
    """Experts one below the other in three matrices, down transposed: DBRX's."""
    size = ours.shape[1] // 2 if inner else ours.shape[2]
    found = []
    for e in range(len(ours)):
        rows = torch.arange(size) + e * size
        if not inner:
            name = layer + names["expert_rows_down"]
            found.append(_Piece(name, (e,), rows, 1, True))
            continue
        for n, key in enumerate(("expert_rows_gate", "expert_rows_up")):
            at = (e, slice(n * size, (n + 1) * size))
            found.append(_Piece(layer + names[key], at, rows))
    return found


def _tensors(model: FamilyDecoder) -> dict[str, Tensor]:
    """What is published of a model: parameters, each once, and corrections."""
    found: dict[str, Tensor] = dict(
        model.named_parameters()
    )  # a tied head is its embedding
    for name, tensor in model.named_buffers():
        if name.endswith("router.correction"):
            found[name] = tensor
    return found


def _shape(ours: Tensor, piece: _Piece, whole: int) -> tuple[int, ...]:
    """The shape of the published tensor that a piece belongs to."""
    shape = list(ours[piece.at].shape)
    if piece.rows is not None:
        shape[piece.axis] = whole
    if piece.transposed:
        shape[-2:] = shape[:-3:-1]
    return tuple(shape)


def _cut(tensor: Tensor, piece: _Piece) -> Tensor:
    """Our part of a published tensor."""
    tensor = tensor.mT if piece.transposed else tensor
    if piece.rows is None:
        return tensor
    return tensor.index_select(piece.axis, piece.rows.to(tensor.device))


def _layout(
    model: FamilyDecoder, given: Mapping[str, Any]
) -> tuple[dict[str, list[tuple[str, _Piece]]], dict[str, tuple[int, ...]]]:
    """For every published name its pieces, and the shape that it has to have."""
    of: dict[str, list[tuple[str, _Piece]]] = {}
    tensors, own = _tensors(model), getattr(model, "pieces", None)
    for ours in tensors:
        for piece in own(ours) if own else _pieces(ours, model, given):
            of.setdefault(piece.name, []).append((ours, piece))
    shapes = {}
    for name, parts in of.items():
        whole = sum(0 if x.rows is None else len(x.rows) for _, x in parts)
        shapes[name] = _shape(tensors[parts[0][0]], parts[0][1], whole)
    return of, shapes


def _canonical(name: str, data: Mapping[str, Any]) -> str:
    """A name in a file as the module of today calls it."""
    for pattern, replacement in data["aliases"].items():
        name = re.sub(pattern, replacement, name)
    return name


@torch.no_grad()
def load_weights(
    model: FamilyDecoder, state: Mapping[str, Tensor] | str | Path
) -> FamilyDecoder:
    """Copy published weights into the model, and return it.

    Everything is compared before anything is copied. Files are read tensor by tensor; a
    model on the meta device gets its memory first.

    Args:
        model: from `assemble`. It keeps its dtype and device.
        state: Hugging Face's state dict: a mapping, a .safetensors file, the index of
            several, or the folder that holds either.

    Raises:
        ValueError: naming every tensor that is missing, unexpected, of another shape or
            not floating point.
        FileNotFoundError, ImportError: as `load_hf_state_dict` of the chapter on the
            decoder.
    """
    data, sources = model.plan.data, _sources(state)
    found: dict[str, tuple[tuple[int, ...], str]] = {}
    for source in sources:
        with _open(source) as shard:
            found |= {_canonical(k, data): spec for k, spec in shard.specs.items()}
    of, shapes = _layout(model, found)
    _check(model, of, shapes, found)
    if any(p.is_meta for p in model.parameters()):
        model.to_empty(device="cpu")
    tensors = _tensors(model)
    for source in sources:
        with _open(source) as shard:
            for theirs in shard.specs:
                for ours, piece in of.get(_canonical(theirs, data), []):
                    into = tensors[ours][piece.at]
                    into.copy_(_cut(shard.read(theirs), piece).reshape(into.shape))
    return model


def _check(
    model: FamilyDecoder,
    of: Mapping[str, Any],
    shapes: Mapping[str, tuple[int, ...]],
    found: Mapping[str, tuple[tuple[int, ...], str]],
) -> None:
    """Raise a ValueError with a line for each tensor that does not fit."""
    data = model.plan.data
    tied = [f"{data['names']['head']}.weight"] if model.plan.tie else []
    wrong = {}
    for name in of.keys() | found.keys():
        if name not in found:
            wrong[name] = f"missing, expected shape {shapes[name]}"
        elif name not in of:
            skipped = any(re.search(pattern, name) for pattern in data["ignored"])
            if not skipped and name not in tied:
                wrong[name] = f"unexpected, got shape {found[name][0]}"
        elif _flat(found[name][0]) != _flat(shapes[name]):
            wrong[name] = f"got shape {found[name][0]}, expected {shapes[name]}"
        elif found[name][1] not in _FLOATS:
            wrong[name] = f"got dtype {found[name][1]}, expected floating point"
    if wrong:
        lines = "".join(f"\n  {name}: {wrong[name]}" for name in sorted(wrong))
        raise ValueError(f"{len(wrong)} tensors do not fit the model:{lines}")


def _flat(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape without leading ones, which some corrections have."""
    return shape[1:] if len(shape) == 2 and shape[0] == 1 else shape


@torch.no_grad()
def published_weights(model: FamilyDecoder) -> dict[str, Tensor]:
    """The model's weights under their published names: what `load_weights` read.

    Experts come stacked, as in the modules of Hugging Face's transformers 5. A tied
    head is left out.
    """
    of, shapes = _layout(model, {})
    if "expert_gate" in model.plan.data["names"]:
        stacked: dict[str, Any] = {}
        for name, module in model.named_modules():
            if name.endswith("ffn") and hasattr(module, "w_in"):
                for part in ("w_in", "w_down", "b_in", "b_down"):
                    stacked |= _stacked_names(model, f"{name}.{part}")
        of, shapes = _layout(model, stacked)
    tensors, state = _tensors(model), {}
    for name, parts in of.items():
        whole = torch.empty(shapes[name], dtype=tensors[parts[0][0]].dtype)
        for ours, piece in parts:
            view = whole.mT if piece.transposed else whole
            if piece.rows is None:
                view.copy_(tensors[ours][piece.at])
            else:
                view.index_copy_(piece.axis, piece.rows, tensors[ours][piece.at].cpu())
        row = model.plan.data["correction_row"] and parts[0][0].endswith("correction")
        state[name] = whole[None] if row else whole
    return state


def _stacked_names(model: FamilyDecoder, ours: str) -> dict[str, None]:
    names, p = model.plan.data["names"], model.plan
    _, i, _, part = ours.split(".")
    name = names["layer"].format(i=i)
    name += names["experts_in" if part.endswith("in") else "experts_down"]
    return {name + p.data["experts_bias" if part[0] == "b" else "experts_weight"]: None}
