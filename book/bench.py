"""How fast the parts are, against other ways to write them in torch: `python -m book.bench`.

Everything in one run, the candidates in turn, so that a slow minute of the machine meets all of
them; the table holds ratios, each the median over the rounds with the middle half of the rounds
as its spread. Every candidate computes the same function: `disagreement` says how far it is off,
in values and in gradients, and the tests look at that without timing anything.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from book import bench_experts, bench_families
from transformer_parts.decoder import (
    DecoderBlock,
    DecoderOnlyTransformer,
    ModelConfig,
    generate,
    load_hf_state_dict,
)
from transformer_parts.feed_forward import GatedFeedForward
from transformer_parts.kv_cache import GroupedQueryAttention
from transformer_parts.normalization import RMSNorm
from transformer_parts.rope import RotaryEmbedding, apply_rotary_emb

__all__ = ["LIMIT", "Part", "Row", "Size", "disagreement", "measure", "parts", "report", "run"]

Compute = Callable[[Tensor], Tensor]

# How much slower than the best eager candidate a part of this book may be.
LIMIT = 1.15


@dataclass(frozen=True)
class Size:
    """What is timed: a batch of sequences, and the widths of a small Llama."""

    batch: int = 4
    length: int = 512
    d_model: int = 512
    num_heads: int = 8
    num_kv_heads: int = 2
    d_ff: int = 1536

    @property
    def head_dim(self) -> int:
        """Features of one head."""
        return self.d_model // self.num_heads


@dataclass(frozen=True)
class Part:
    """One part: the same function written in several ways, with the same parameters.

    Args:
        name: of the part.
        x: the input, a leaf that requires a gradient.
        parameters: leaves that all candidates use.
        candidates: name -> function of x. The first is this book's.
        order: for candidates that want the last dimension of x in another order (RoPE in halves),
            that order; it is applied outside of what is timed.
        compile: which candidate torch.compile gets.
    """

    name: str
    x: Tensor
    parameters: tuple[Tensor, ...]
    candidates: Mapping[str, Compute]
    order: Mapping[str, Tensor] = field(default_factory=dict)
    compile: str = "plain"


@dataclass(frozen=True)
class Row:
    """A line of the table: the ratio to the fastest eager candidate, and its quartiles."""

    part: str
    candidate: str
    milliseconds: float
    ratio: float
    low: float
    high: float
    note: str = ""


# --- The candidates -------------------------------------------------------------------------------


def _plain_rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def _short_rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    square = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square() / x.shape[-1]
    return x * torch.rsqrt(square + eps) * weight


def _rms_norm_part(size: Size) -> Part:
    norm = RMSNorm(size.d_model, eps=1e-6)
    weight = norm.weight
    assert weight is not None
    return Part(
        "RMSNorm",
        torch.randn(size.batch, size.length, size.d_model, requires_grad=True),
        (weight,),
        {
            "this book": norm,
            "plain": lambda x: _plain_rms_norm(x, weight, 1e-6),
            "vector norm": lambda x: _short_rms_norm(x, weight, 1e-6),
            "F.rms_norm": lambda x: F.rms_norm(x, (size.d_model,), weight, 1e-6),
        },
    )


def _complex_rope(x: Tensor, turns: Tensor) -> Tensor:
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))  # type: ignore[no-untyped-call]
    return torch.view_as_real(pairs * turns).flatten(-2)


def _rope_part(size: Size) -> Part:
    cos, sin = RotaryEmbedding(size.head_dim, size.length)(torch.arange(size.length))
    turns = torch.complex(cos, sin)
    cos2, sin2 = torch.cat([cos, cos], -1), torch.cat([sin, sin], -1)
    halves = torch.cat([torch.arange(start, size.head_dim, 2) for start in (0, 1)])

    def neighbours(x: Tensor) -> Tensor:
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)

    def rotate_half(x: Tensor) -> Tensor:
        a, b = x.chunk(2, -1)
        return x * cos2 + torch.cat([-b, a], -1) * sin2

    def two_halves(x: Tensor) -> Tensor:
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)

    return Part(
        "apply_rotary_emb",
        torch.randn(size.batch, size.num_heads, size.length, size.head_dim, requires_grad=True),
        (),
        {
            "this book": lambda x: apply_rotary_emb(x, cos, sin),
            "complex": lambda x: _complex_rope(x, turns),
            "neighbours": neighbours,
            "halves": two_halves,
            "rotate_half": rotate_half,
        },
        order={"halves": halves, "rotate_half": halves},
        compile="halves",
    )


def _plain_ffn(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    return F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)


def _sigmoid_ffn(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    g = F.linear(x, gate)
    return F.linear(g * torch.sigmoid(g) * F.linear(x, up), down)


def _ffn_part(size: Size) -> Part:
    ffn = GatedFeedForward(size.d_model, size.d_ff)
    weights = (ffn.w_gate.weight, ffn.w_up.weight, ffn.w_down.weight)
    return Part(
        "GatedFeedForward",
        torch.randn(size.batch, size.length, size.d_model, requires_grad=True),
        weights,
        {
            "this book": ffn,
            "plain": lambda x: _plain_ffn(x, *weights),
            "x * sigmoid(x)": lambda x: _sigmoid_ffn(x, *weights),
        },
    )


def _attend(
    x: Tensor, attn: GroupedQueryAttention, turns: Tensor, repeat: bool, early: bool
) -> Tensor:
    """Grouped-query attention. repeat: copy the keys and values; early: rotate, then transpose."""
    q, k, v = (
        F.linear(x, p.weight).view(*x.shape[:2], -1, attn.head_dim)
        for p in (attn.q_proj, attn.k_proj, attn.v_proj)
    )  # (B, T, heads, head_dim)
    if early:
        q, k = (_complex_rope(t, turns[:, None]).transpose(1, 2) for t in (q, k))
    else:
        q, k = (_complex_rope(t.transpose(1, 2), turns) for t in (q, k))
    v = v.transpose(1, 2)
    if repeat:
        k, v = (t.repeat_interleave(attn.num_heads // attn.num_kv_heads, 1) for t in (k, v))
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=not repeat)
    return F.linear(out.transpose(1, 2).flatten(-2), attn.out_proj.weight)


def _attention_part(size: Size) -> Part:
    attn = GroupedQueryAttention(size.d_model, size.num_heads, size.num_kv_heads)
    rope = RotaryEmbedding(size.head_dim, size.length)(torch.arange(size.length))
    turns = torch.complex(*rope)
    return Part(
        "GroupedQueryAttention",
        torch.randn(size.batch, size.length, size.d_model, requires_grad=True),
        tuple(attn.parameters()),
        {
            "this book": lambda x: attn(x, rope),
            "plain": lambda x: _attend(x, attn, turns, repeat=False, early=False),
            "rotated early": lambda x: _attend(x, attn, turns, repeat=False, early=True),
            "repeated": lambda x: _attend(x, attn, turns, repeat=True, early=False),
        },
    )


def _block_part(size: Size) -> Part:
    config = ModelConfig(
        vocab_size=256, d_model=size.d_model, num_layers=1, num_heads=size.num_heads,
        num_kv_heads=size.num_kv_heads, d_ff=size.d_ff, max_seq_len=size.length,
    )  # fmt: skip
    block = DecoderBlock(config)
    rope = RotaryEmbedding(size.head_dim, size.length)(torch.arange(size.length))
    turns = torch.complex(*rope)
    attn, ffn = block.attn.sublayer, block.ffn.sublayer
    first, second = (sub.get_parameter("norm.weight") for sub in (block.attn, block.ffn))
    assert isinstance(attn, GroupedQueryAttention)
    assert isinstance(ffn, GatedFeedForward)
    weights = (ffn.w_gate.weight, ffn.w_up.weight, ffn.w_down.weight)

    def block_with(norm: Callable[[Tensor, Tensor], Tensor], early: bool) -> Compute:
        def compute(x: Tensor) -> Tensor:
            x = x + _attend(norm(x, first), attn, turns, repeat=False, early=early)
            return x + _plain_ffn(norm(x, second), *weights)

        return compute

    width = (size.d_model,)
    return Part(
        "DecoderBlock",
        torch.randn(size.batch, size.length, size.d_model, requires_grad=True),
        tuple(block.parameters()),
        {
            "this book": lambda x: block(x, rope),
            "plain": block_with(lambda x, w: _plain_rms_norm(x, w, config.eps), early=False),
            "vector norm": block_with(lambda x, w: _short_rms_norm(x, w, config.eps), early=True),
            "F.rms_norm": block_with(lambda x, w: F.rms_norm(x, width, w, config.eps), early=True),
        },
    )


def parts(size: Size | None = None, seed: int = 0) -> list[Part]:
    """The five parts and their candidates, with parameters drawn from `seed`."""
    size = Size() if size is None else size
    torch.manual_seed(seed)
    make = (_rms_norm_part, _rope_part, _ffn_part, _attention_part, _block_part)
    return [one(size) for one in make]


# --- Checking -------------------------------------------------------------------------------------


def _values_and_gradients(part: Part, compute: Compute, name: str) -> list[Tensor]:
    order = part.order.get(name)
    x = part.x if order is None else part.x[..., order]
    y = compute(x)
    if order is not None:
        y = y[..., order.argsort()]
    upstream = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
    return [y.detach(), *torch.autograd.grad(y, (part.x, *part.parameters), upstream)]


def disagreement(part: Part) -> dict[str, float]:
    """Per candidate: the largest difference from this book's value or gradients, relative to it."""
    results = {
        name: _values_and_gradients(part, compute, name)
        for name, compute in part.candidates.items()
    }
    ours = next(iter(results.values()))
    return {
        name: max(
            ((a - b).abs().max() / b.abs().max()).item() for a, b in zip(theirs, ours, strict=True)
        )
        for name, theirs in results.items()
    }


# --- Timing ---------------------------------------------------------------------------------------


def _timed(compute: Callable[[], object], runs: int) -> float:
    start = time.perf_counter()
    for _ in range(runs):
        compute()
    return (time.perf_counter() - start) / runs


def alternate(
    tasks: Mapping[str, Callable[[], object]], rounds: int, seconds: float
) -> dict[str, list[float]]:
    """Seconds per call of every task, in `rounds` rounds that go through all of them in turn."""
    runs = {}
    for name, task in tasks.items():
        task()  # the first call allocates
        runs[name] = max(1, round(seconds / max(_timed(task, 1), 1e-6)))
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for turn in range(rounds):
        names = list(tasks) if turn % 2 else list(tasks)[::-1]
        for name in names:
            times[name].append(_timed(tasks[name], runs[name]))
    return times


def compiler() -> str | None:
    """The C++ compiler that torch.compile would use on this machine, or None."""
    return next(filter(shutil.which, (os.environ.get("CXX", ""), "c++", "g++", "clang++")), None)


def measure(
    part: Part, rounds: int = 15, seconds: float = 0.05, compiled: bool = False
) -> list[Row]:
    """Time forward and backward of every candidate of a part.

    With `compiled`, one candidate is compiled too; where that fails, this is printed, and there is
    no row for it.
    """
    computes, note = dict(part.candidates), {}
    if compiled:
        name = f"compiled ({part.compile})"
        compute = torch.compile(part.candidates[part.compile])
        try:
            torch.autograd.grad(compute(part.x).sum(), part.x)
        except Exception as error:  # whatever the compiler raises on this machine
            print(f"{part.name}: torch.compile failed here ({type(error).__name__})")
        else:
            computes[name], note[name] = compute, "not eager"
    upstream = torch.randn_like(next(iter(computes.values()))(part.x))
    leaves = (part.x, *part.parameters)

    def task(compute: Compute) -> Callable[[], object]:
        return lambda: torch.autograd.grad(compute(part.x), leaves, upstream)

    times = alternate({name: task(c) for name, c in computes.items()}, rounds, seconds)
    best = min(part.candidates, key=lambda name: statistics.median(times[name]))
    rows = []
    for name, series in times.items():
        # Pairs of one round: both had the same neighbours on the machine.
        ratios = [a / b for a, b in zip(series, times[best], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        rows.append(
            Row(
                part.name, name, 1e3 * statistics.median(series), middle, low, high,
                note.get(name, ""),
            )
        )  # fmt: skip
    return rows


# --- Decoding, against Hugging Face ---------------------------------------------------------------

LLAMA = {
    "vocab_size": 1024, "hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 2, "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6, "tie_word_embeddings": False,
}  # fmt: skip


def decoding(new_tokens: int = 128, rounds: int = 5) -> dict[str, Any]:
    """Tokens per second of greedy decoding with the cache; both models have the same weights.

    Returns a dictionary with the key `skipped` (why) if transformers is not installed.
    """
    try:
        from transformers import LlamaConfig, LlamaForCausalLM  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return {"skipped": "transformers is not installed: pip install transformers"}
    torch.manual_seed(0)
    theirs = LlamaForCausalLM(
        LlamaConfig(**LLAMA, bos_token_id=None, eos_token_id=None, pad_token_id=0)
    ).eval()
    ours = DecoderOnlyTransformer(
        ModelConfig(
            vocab_size=1024, d_model=256, num_layers=4, num_heads=8, num_kv_heads=2, d_ff=704,
            max_seq_len=512,
        )
    ).eval()  # fmt: skip
    load_hf_state_dict(ours, theirs.state_dict())
    prompt = torch.randint(1, 1024, (1, 16))

    def hugging_face() -> Tensor:
        tokens: Tensor = theirs.generate(
            prompt, attention_mask=torch.ones_like(prompt), do_sample=False,
            max_new_tokens=new_tokens, min_new_tokens=new_tokens,
        )  # fmt: skip
        return tokens

    def this_book() -> Tensor:
        return generate(ours, prompt, new_tokens, temperature=0.0)

    same = bool(torch.equal(hugging_face(), this_book()))
    times = alternate({"transformers": hugging_face, "this book": this_book}, rounds, 0.0)
    ratios = [a / b for a, b in zip(times["transformers"], times["this book"], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    rate = {name: new_tokens / statistics.median(t) for name, t in times.items()}
    return {"same_tokens": same, "tokens_per_second": rate, "times_faster": middle,
            "low": low, "high": high}  # fmt: skip


# --- The report -----------------------------------------------------------------------------------


def header(size: Size) -> dict[str, Any]:
    """What a reader must know to compare two reports."""
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "compiler": compiler(),
        "size": asdict(size),
    }


def run(quick: bool = False, compiled: bool = True, decode: bool = True) -> dict[str, Any]:
    """Everything, as a dictionary that can be written as JSON.

    Args:
        quick: small sizes and few rounds; shows that all runs, and says little about speed.
        compiled: with torch.compile, if there is a C++ compiler.
        decode: with the comparisons with Hugging Face: decoding, experts, families.
    """
    size = Size(batch=2, length=64, d_model=64, num_heads=4, num_kv_heads=2, d_ff=128)
    size = size if quick else Size()
    rounds, seconds = (5, 0.002) if quick else (15, 0.05)
    about = header(size)
    compiled = compiled and about["compiler"] is not None
    rows = [row for part in parts(size) for row in measure(part, rounds, seconds, compiled)]
    result = {"header": about, "compiled": compiled, "rows": [asdict(row) for row in rows]}
    if decode:
        result["decoding"] = decoding(8 if quick else 128, 3 if quick else 7)
        result["experts"] = bench_experts.against_hugging_face(
            alternate, *((3, 32, 32) if quick else (7, 512, 256))
        )
        result["families"] = bench_families.against_hugging_face(
            alternate, *((3, 16, 32, 4) if quick else (7, 128, 256, 48))
        )
    return result


def report(result: Mapping[str, Any]) -> str:
    """The table for people."""
    about = result["header"]
    lines = [
        f"torch {about['torch']}, Python {about['python']}, {about['system']}, "
        f"{about['instructions']}, {about['threads']} threads; forward and backward of "
        f"{about['size']['batch']} x {about['size']['length']} tokens, "
        f"d_model {about['size']['d_model']}",
    ]
    if not result["compiled"]:
        reason = "left out" if about["compiler"] else "no C++ compiler found (g++ or clang++)"
        lines.append(f"torch.compile: {reason}")
    last = None
    for row in result["rows"]:
        if row["part"] != last:
            last = row["part"]
            lines += ["", f"{last:29} times the best eager one   (middle half of the rounds)"]
        verdict = ""
        if row["candidate"] == "this book":
            verdict = f"   at most {LIMIT}: {'yes' if row['ratio'] <= LIMIT else 'NO'}"
        lines.append(
            f"  {row['candidate']:27} {row['ratio']:6.2f}   ({row['low']:.2f} to "
            f"{row['high']:.2f}){verdict}"
        )
    decode = result.get("decoding")
    if decode:
        lines += ["", "decoding with the cache, a small Llama, one sequence"]
        if "skipped" in decode:
            lines.append(f"  left out: {decode['skipped']}")
        else:
            lines.append(
                f"  {decode['times_faster']:.2f} times the tokens per second of transformers "
                f"({decode['low']:.2f} to {decode['high']:.2f}); "
                f"the same tokens: {'yes' if decode['same_tokens'] else 'NO'}"
            )
    if "experts" in result:
        lines += bench_experts.report(result["experts"])
    if "families" in result:
        lines += bench_families.report(result["families"])
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> None:
    """The command line."""
    about, _, _ = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(prog="python -m book.bench", description=about)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--no-compile", action="store_true", help="without torch.compile")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers there too")
    parser.add_argument("--threads", type=int, help="how many threads torch uses")
    options = parser.parse_args(argv)
    if options.threads:
        torch.set_num_threads(options.threads)
    result = run(options.quick, not options.no_compile)
    print(report(result))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
