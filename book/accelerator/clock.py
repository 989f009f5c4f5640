"""Chapter 16's estimates with a clock beside them: the same work, timed on a GPU.

What is written are seconds and sizes, and no estimate: the chapter computes those from the data
sheet. Every time is the median of several, each between two marks on the GPU's own clock, after
calls that do not count. Between two calls of a small kernel the cache is filled with other data.
"""

from __future__ import annotations

import datetime
import gc
import json
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile

from transformer_parts.cost import matmul_parameters
from transformer_parts.decoder import DecoderOnlyTransformer, ModelConfig
from transformer_parts.kv_cache import KVCache, kv_cache_bytes_per_token

HALF = torch.bfloat16
# Mistral 7B, whose numbers chapter 16 takes for its first picture.
SEVEN = ModelConfig(
    32000, d_model=4096, num_layers=32, num_heads=32, num_kv_heads=8, d_ff=14336, max_seq_len=16384
)
SMALL = ModelConfig(32000, d_model=2048, num_layers=16, num_heads=16, d_ff=5632, max_seq_len=2048)


def run(device: str, file: Path) -> int:
    """Measure everything and write it, after each part, so that what was measured is kept."""
    made: dict[str, Any] = {
        "device": torch.cuda.get_device_name(device),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }
    for measure in (ceilings, products, tiles, attention, norms, prefill, training, decoding):
        torch.manual_seed(0)
        with torch.device(device):
            made[measure.__name__] = measure()
        print(measure.__name__, json.dumps(made[measure.__name__]), flush=True)
        file.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
        gc.collect()
        torch.cuda.empty_cache()
    return 0


def seconds(call: Callable[[], Any], repeats: int = 15) -> float:
    """The median time of a call on the GPU."""
    flush = torch.empty(256 * 2**20, dtype=torch.int8)
    for _ in range(3):
        call()
    marks = []
    for _ in range(repeats):
        flush.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in "se")  # type: ignore[no-untyped-call]
        start.record()
        call()
        end.record()
        marks.append((start, end))
    torch.cuda.synchronize()
    return float(statistics.median(a.elapsed_time(b) for a, b in marks)) / 1e3


def draw(*shape: int) -> Tensor:
    """Normal numbers in half precision."""
    return torch.randn(*shape, dtype=HALF)


def ceilings() -> dict[str, float]:
    """Bytes per second of a copy, and FLOP/s of a large product of random numbers."""
    source = draw(2**31)
    target = torch.empty_like(source)
    copied = 2 * source.nbytes / seconds(partial(target.copy_, source))
    a, b = draw(8192, 8192), draw(8192, 8192)
    return {"copy": copied, "product": 2 * 8192**3 / seconds(partial(torch.mm, a, b))}


def products() -> list[dict[str, float]]:
    """A linear layer from 4,096 to 14,336 features, by the number of its rows."""
    layer = nn.Linear(4096, 14336, bias=False, dtype=HALF)
    found = []
    with torch.inference_mode():
        for rows in (1, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192):
            x = draw(rows, 4096)
            found.append({"rows": rows, "seconds": seconds(partial(layer, x))})
    return found


def tiles() -> list[dict[str, float]]:
    """Square products of sizes beside a multiple of the tiles'."""
    found = []
    for n in (4095, 4096, 4097, 4100, 4104, 4112, 4160, 4224):
        a, b = draw(n, n), draw(n, n)
        found.append({"n": n, "seconds": seconds(partial(torch.mm, a, b))})
    return found


def attention() -> list[dict[str, Any]]:
    """32 heads of 128 features, causal, operator by operator and as one kernel."""
    found = []
    for length in (512, 1024, 2048, 4096, 8192):
        q, k, v = (draw(1, 32, length, 128) for _ in range(3))
        hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
        torch.testing.assert_close(_plain(q, k, v, hidden), _fused(q, k, v), rtol=2e-2, atol=2e-2)
        plain, fused = partial(_plain, q, k, v, hidden), partial(_fused, q, k, v)
        found.append({"length": length, "plain": seconds(plain), "fused": seconds(fused)})
    return found


def _plain(q: Tensor, k: Tensor, v: Tensor, hidden: Tensor) -> Tensor:
    scores = (q @ k.mT * 128**-0.5).masked_fill_(hidden, -torch.inf)
    attended: Tensor = scores.softmax(-1) @ v
    return attended


def _fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def norms() -> dict[str, float]:
    """16,384 rows of 4,096 features: torch's fused kernels, and formulas operator by operator."""
    x, gain, offset = draw(16384, 4096), draw(4096), draw(4096)

    def formula() -> Tensor:
        return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * gain

    return {
        "bytes": 2 * x.nbytes,
        "copy": seconds(lambda: x.clone()),
        "layer_norm": seconds(lambda: F.layer_norm(x, (4096,), gain, offset)),
        "rms_norm": seconds(lambda: F.rms_norm(x, (4096,), gain)),
        "rms_formula": seconds(formula),
    }


def _model(config: ModelConfig) -> DecoderOnlyTransformer:
    before = torch.get_default_dtype()
    torch.set_default_dtype(HALF)
    try:
        return DecoderOnlyTransformer(config).to(torch.get_default_device())
    finally:
        torch.set_default_dtype(before)


def decoding() -> dict[str, Any]:
    """One step of the book's decoder with 7 billion random weights, by batch and context.

    As torch runs it, kernel by kernel as Python asks for them; and the same kernels recorded once
    and replayed without Python (a CUDA graph).
    """
    model = _model(SEVEN).eval()
    weights = sum(p.numel() for p in model.parameters())
    found: list[dict[str, Any]] = []
    room = torch.cuda.mem_get_info()[0] * 0.9
    position = kv_cache_bytes_per_token(SEVEN.num_layers, SEVEN.kv_heads, SEVEN.d_head)
    with torch.inference_mode():
        for context in (0, 1024, 8192):
            for batch in (1, 8, 32, 64, 128, 256, 512):
                if batch * (context + 1) * position > room:
                    continue
                step = _step(model, batch, context)
                eager = seconds(step, 7)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    step()
                replayed = seconds(graph.replay, 11)
                found.append(
                    {"context": context, "batch": batch, "eager": eager, "graph": replayed}
                )
                del graph, step
                gc.collect()
                torch.cuda.empty_cache()
        # Last of all: once the profiler was there, every kernel takes longer to start.
        for one in found:
            if (one["batch"], one["context"]) in ((1, 0), (256, 1024)):
                one |= _kernels(_step(model, one["batch"], one["context"]))
    return {"weights": weights, "steps": found}


def _kernels(step: Callable[[], Tensor]) -> dict[str, float]:
    """How many kernels a step starts, and the seconds of those for products and for attention."""
    step()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        step()
        torch.cuda.synchronize()
    found: dict[str, float] = {"kernels": 0, "products": 0.0, "attention": 0.0, "others": 0.0}
    for one in seen.key_averages():
        if not one.self_device_time_total:  # a call that starts a kernel, and no kernel
            continue
        name = one.key.lower()
        if any(word in name for word in ("flash", "fmha", "attention", "softmax")):
            kind = "attention"
        elif any(word in name for word in ("gemm", "gemv", "nvjet", "cutlass", "splitk")):
            kind = "products"
        else:
            kind = "others"
        found[kind] += one.self_device_time_total / 1e6
        found["kernels"] += one.count
    return found


def _step(model: DecoderOnlyTransformer, batch: int, context: int) -> Callable[[], Tensor]:
    """One step of decoding after `context` positions, whose keys and values are random."""
    cache = cast(list[KVCache], model.new_cache(batch, context + 1))
    for layer in cache:
        layer.keys.normal_()
        layer.values.normal_()
    tokens = torch.randint(0, 32000, (batch, 1))

    def step() -> Tensor:
        for layer in cache:
            layer.length = context
        logits: Tensor = model(tokens, cache)
        return logits

    return step


def prefill() -> list[dict[str, float]]:
    """A prompt of the same model; only its last position meets the vocabulary."""
    model = _model(SEVEN).eval()
    found = []
    with torch.inference_mode():
        for length in (128, 512, 2048, 8192):
            tokens = torch.randint(0, 32000, (1, length))
            found.append({"length": length, "seconds": seconds(partial(_read, model, tokens), 7)})
    return found


def _read(model: DecoderOnlyTransformer, tokens: Tensor) -> Tensor:
    return model.logits(model.hidden_states(tokens)[:, -1])


def training() -> dict[str, float]:
    """Forward and backward of a model of a billion weights, 4 sequences of 2,048 tokens."""
    model = _model(SMALL)
    tokens = torch.randint(0, 32000, (4, 2049))
    torch.cuda.reset_peak_memory_stats()

    def step() -> None:
        model.zero_grad(set_to_none=True)
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        torch.autograd.backward(loss)

    taken = seconds(step, 7)
    return {
        "matmul_weights": sum(matmul_parameters(SMALL).values()),
        "tokens": tokens[:, 1:].numel(),
        "seconds": taken,
        "peak_bytes": torch.cuda.max_memory_allocated(),
    }
