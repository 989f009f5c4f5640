"""Every public part that takes tensors, with small inputs to try torch's transformations on."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import nn

import transformer_parts.map as whole
from transformer_parts import (
    activations,
    attention,
    decoder,
    embeddings,
    experts,
    families,
    feed_forward,
    inside,
    kv_cache,
    local_attention,
    long_context,
    mla,
    normalization,
    recurrence,
    residual,
    rope,
    serving,
    softmax,
    tensors,
    transformer,
)


@dataclass(frozen=True)
class Part:
    """A module or function, and what it is called with for B sequences of T positions."""

    name: str
    make: Callable[[], nn.Module]
    inputs: Callable[[int, int], tuple]
    # What torch itself cannot do with it, and why: the test sees it fail.
    cannot: dict[str, str] = field(default_factory=dict)
    # The batch stays 1 (a single row), or the length is fixed by an argument.
    fixed: bool = False


class Function(nn.Module):
    """A function as a module without parameters."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


class First(nn.Module):
    """The output alone of a module that also returns what it keeps."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x)[0]


def function(name, call, inputs, **more):
    return Part(name, lambda: Function(call), inputs, **more)


def draw(*shape):
    return torch.randn(*shape)


def rows(b, t):
    return (draw(b, t, 8),)


def tokens(b, t):
    return (torch.randint(0, 11, (b, t)),)


def rotations(t, head_dim=4):
    return rope.RotaryEmbedding(head_dim, 16, dtype=torch.float64)(torch.arange(t))


def turned(b, t):
    return draw(b, t, 8), rotations(t)


def qkv(b, t):
    return draw(b, 2, t, 4), draw(b, 2, t, 4), draw(b, 2, t, 4)


def probs(b, t):
    return (draw(b, t, t).softmax(-1),)


BASE = {
    "vocab_size": 11,
    "d_model": 8,
    "num_layers": 2,
    "num_heads": 2,
    "max_seq_len": 16,
    "d_ff": 12,
}
LATENT = {
    "attention": "mla", "kv_lora_rank": 6, "q_lora_rank": 4, "qk_nope_head_dim": 4,
    "qk_rope_head_dim": 2, "v_head_dim": 4,
}  # fmt: skip
LLAMA = decoder.ModelConfig(**BASE, num_kv_heads=1)


def model(**options):
    return lambda: decoder.DecoderOnlyTransformer(decoder.ModelConfig(**BASE, **options))


FAMILY = {
    "vocab_size": 11, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 16,
}  # fmt: skip


def plan(name, **options):
    return families.read_plan({"model_type": name, **FAMILY, **options})


def family(name, **options):
    return lambda: families.FamilyDecoder(plan(name, **options))


def reference():
    table = embeddings.sinusoidal_positional_encoding(16, 8)
    return whole.ReferenceTransformer(11, table, 2, 1, 1, 12)


def mixture(**options):
    options = {"activation": "silu", **options}
    return lambda: experts.MixtureOfExperts(experts.Router(8, 4, 2), 12, **options)


UNROLLED = {"export": "no: its loop over the chunks is written out for one length"}


def norm_inputs(b, t):
    return draw(b, t, 8), draw(b, t, 8), draw(8)


MODULES = [
    Part("tensors.ScaleShift", lambda: tensors.ScaleShift(8), rows),
    Part("map.ScaledEmbedding", lambda: whole.ScaledEmbedding(11, 8), tokens),
    Part("map.AddPositions", lambda: whole.AddPositions(torch.ones(16, 8)), rows),
    Part("map.ReferenceTransformer", reference, lambda b, t: tokens(b, t) * 2),
    Part(
        "embeddings.SinusoidalPositionalEncoding",
        lambda: embeddings.SinusoidalPositionalEncoding(8, 16),
        rows,
    ),
    Part("embeddings.TokenEmbedding", lambda: embeddings.TokenEmbedding(11, 8), tokens),
    Part(
        "attention.MultiHeadAttention",
        lambda: attention.MultiHeadAttention(8, 2),
        lambda b, t: (draw(b, t, 8), *[draw(b, t + 1, 8)] * 2),
    ),
    Part("feed_forward.GLU", feed_forward.GLU, rows),
    Part("feed_forward.FeedForward", lambda: feed_forward.FeedForward(8, 12), rows),
    Part("feed_forward.GatedFeedForward", lambda: feed_forward.GatedFeedForward(8, 12), rows),
    Part("normalization.LayerNorm", lambda: normalization.LayerNorm(8), rows),
    Part("normalization.RMSNorm", lambda: normalization.RMSNorm(8), rows),
    Part(
        "normalization.BatchNorm1d",
        lambda: normalization.BatchNorm1d(8),
        lambda b, t: (draw(b, 8, t),),
    ),
    Part(
        "residual.Residual",
        lambda: residual.Residual(nn.Linear(8, 8), normalization.RMSNorm(8)),
        rows,
    ),
    Part(
        "residual.DeepNormResidual",
        lambda: residual.DeepNormResidual(nn.Linear(8, 8), normalization.LayerNorm(8), 1.5),
        rows,
    ),
    Part(
        "transformer.TransformerEncoderLayer",
        lambda: transformer.TransformerEncoderLayer(8, 2, 12),
        rows,
    ),
    Part(
        "transformer.TransformerDecoderLayer",
        lambda: transformer.TransformerDecoderLayer(8, 2, 12),
        lambda b, t: rows(b, t) + rows(b, t + 1),
    ),
    Part(
        "transformer.Transformer",
        lambda: transformer.Transformer(11, 11, 8, 2, 1, 1, 12, max_len=16),
        lambda b, t: tokens(b, t) * 2,
    ),
    Part(
        "rope.RotaryEmbedding",
        lambda: rope.RotaryEmbedding(4, 16),
        lambda b, t: (torch.arange(t).repeat(b, 1),),
    ),
    Part(
        "kv_cache.GroupedQueryAttention",
        lambda: kv_cache.GroupedQueryAttention(8, 2, 1, qk_norm=True),
        turned,
    ),
    Part(
        "mla.MultiHeadLatentAttention",
        lambda: mla.MultiHeadLatentAttention(8, 2, 4, 4, 4, 6, 4),
        turned,
    ),
    Part(
        "recurrence.LightningAttention",
        lambda: First(recurrence.LightningAttention(8, 2, 3, torch.tensor([0.5, 0.1]))),
        rows,
        cannot=UNROLLED,
    ),
    Part(
        "recurrence.GatedDeltaNet",
        lambda: First(recurrence.GatedDeltaNet(8, 1, 2, 3, 4)),
        rows,
        cannot=UNROLLED,
    ),
    Part(
        "recurrence.KimiDeltaAttention",
        lambda: First(recurrence.KimiDeltaAttention(8, 2, 3)),
        rows,
        cannot=UNROLLED,
    ),
    Part(
        "recurrence.Mamba2",
        lambda: First(recurrence.Mamba2(8, 3, 2, 4)),
        rows,
        cannot=UNROLLED,
    ),
    Part("experts.Router", lambda: experts.Router(8, 4, 2), rows),
    Part(
        "experts.Router, groups and a correction",
        lambda: experts.Router(
            8, 8, 2, scores="sigmoid", num_groups=4, top_groups=2, best_in_group=2, correction=True
        ),
        rows,
    ),
    Part("experts.MixtureOfExperts", mixture(), rows),
    Part("experts.MixtureOfExperts, inputs scaled", mixture(scale_input=True, bias=True), rows),
    Part(
        "experts.MixtureOfExperts, clamped", mixture(activation="clamped_swiglu", bias=True), rows
    ),
    Part("decoder.DecoderBlock", lambda: decoder.DecoderBlock(LLAMA), turned),
    Part("decoder.DecoderOnlyTransformer", model(num_kv_heads=1, tie_embeddings=True), tokens),
    Part("decoder.DecoderOnlyTransformer, sinusoids", model(position="sinusoidal"), tokens),
    Part("decoder.DecoderOnlyTransformer, latent", model(**LATENT), tokens),
    Part("decoder.DecoderOnlyTransformer, window", model(sliding_window=3), tokens),
]

_GEMMA = plan("gemma2", sliding_window=3, attn_logit_softcapping=5.0, head_dim=4)
MODULES += [
    Part("families.XIELU", families.XIELU, rows),
    Part("families.PlusOneRMSNorm", lambda: families.PlusOneRMSNorm(8), rows),
    Part("families.PlusOneLayerNorm", lambda: families.PlusOneLayerNorm(8), rows),
    Part(
        "families.FamilyAttention",
        lambda: families.FamilyAttention(_GEMMA, _GEMMA.layers[0]),
        turned,
    ),
    Part(
        "families.SplitDeltaNet",
        lambda: First(families.SplitDeltaNet(8, 1, 2, 3, 4, step=2.0)),
        rows,
        cannot=UNROLLED,
    ),
    Part(
        "families.LayerLightning",
        lambda: First(families.LayerLightning(8, 2, 3, (1, 4))),
        rows,
        cannot=UNROLLED,
    ),
    Part("families.ShortConvolution", lambda: First(families.ShortConvolution(8)), rows),
    Part(
        "families.SelectiveStateSpace",
        lambda: First(families.SelectiveStateSpace(8, 6, 3, 2, norms="gains")),
        rows,
        cannot=UNROLLED,
    ),
    Part("families.FamilyBlock", lambda: families.FamilyBlock(_GEMMA, _GEMMA.layers[0]), turned),
    Part("families.FamilyDecoder", family("llama"), tokens),
]

_ACTIVATIONS = [
    function(f"activations.{name}", getattr(activations, name), rows)
    for name in activations.__all__
]

# Chapter 21's tiles count what they move, and differentiate by hand, once and backwards.
COUNTS = "no: it counts what it moves"
BY_HAND = {
    "compile": COUNTS,
    "export": COUNTS,
    "vmap": "no: its backward pass is by hand",
    "vmap(grad)": "no: its backward pass is by hand",
    "jvp": "no: it has a backward pass only",
}

FUNCTIONS = [
    function("tensors.hadamard", tensors.hadamard, lambda b, t: (draw(b, t, 8), draw(8))),
    function("softmax.softmax", lambda x: softmax.softmax(x, -1), rows),
    function("softmax.logsumexp", lambda x: softmax.logsumexp(x, -1), rows),
    function("softmax.log_softmax", lambda x: softmax.log_softmax(x, -1), rows),
    function(
        "softmax.softmax_backward",
        lambda g, p: softmax.softmax_backward(g, p, -1),
        lambda b, t: (draw(b, t, 8), draw(b, t, 8).softmax(-1)),
    ),
    function(
        "softmax.cross_entropy",
        lambda x, y: softmax.cross_entropy(x.flatten(0, 1), y.flatten()),
        lambda b, t: (draw(b, t, 11), *tokens(b, t)),
    ),
    function(
        "softmax.online_softmax",
        lambda x, v: softmax.online_softmax(x, v, 2),
        lambda b, t: (draw(b, 5), draw(b, 5, 3)),
        fixed=True,
    ),
    function(
        "attention.padding_mask",
        lambda n: attention.padding_mask(n, 6),
        lambda b, t: (torch.arange(b),),
        fixed=True,
    ),
    function(
        "attention.attention_weights",
        lambda q, k: attention.attention_weights(q, k, is_causal=True),
        lambda b, t: qkv(b, t)[:2],
    ),
    function(
        "attention.scaled_dot_product_attention",
        lambda q, k, v: attention.scaled_dot_product_attention(q, k, v, is_causal=True),
        qkv,
    ),
    function(
        "attention.attention_backward",
        attention.attention_backward,
        lambda b, t: (draw(b, 2, t, 4), *qkv(b, t)),
    ),
    function("attention.split_heads", lambda x: attention.split_heads(x, 2), rows),
    function("attention.merge_heads", attention.merge_heads, lambda b, t: qkv(b, t)[:1]),
    *_ACTIVATIONS,
    function("feed_forward.glu", feed_forward.glu, rows),
    function(
        "normalization.layer_norm",
        lambda x, w: normalization.layer_norm(x, 8, w),
        lambda b, t: (draw(b, t, 8), draw(8)),
    ),
    function(
        "normalization.rms_norm",
        lambda x, w: normalization.rms_norm(x, 8, w, 1e-6),
        lambda b, t: (draw(b, t, 8), draw(8)),
    ),
    function(
        "normalization.batch_norm",
        lambda x: normalization.batch_norm(x, None, None, training=True),
        lambda b, t: (draw(b + 1, 8, t),),
    ),
    function("normalization.layer_norm_backward", normalization.layer_norm_backward, norm_inputs),
    function("normalization.rms_norm_backward", normalization.rms_norm_backward, norm_inputs),
    function(
        "normalization.batch_norm_backward",
        normalization.batch_norm_backward,
        lambda b, t: (draw(b + 1, 8), draw(b + 1, 8), draw(8)),
    ),
    function(
        "normalization.layer_norm_jacobian",
        normalization.layer_norm_jacobian,
        lambda b, t: (draw(8),),
        fixed=True,
    ),
    function(
        "normalization.rms_norm_jacobian",
        normalization.rms_norm_jacobian,
        lambda b, t: (draw(8),),
        fixed=True,
    ),
    function("transformer.shift_right", lambda x: transformer.shift_right(x, 1), tokens),
    function("rope.rotate_half", rope.rotate_half, rows),
    function(
        "rope.apply_rotary_emb",
        lambda x, r: rope.apply_rotary_emb(x, *r),
        lambda b, t: (draw(b, 2, t, 4), rotations(t)),
    ),
    function(
        "rope.apply_rotary_emb, halves",
        lambda x, r: rope.apply_rotary_emb(x, *r, interleaved=False),
        lambda b, t: (draw(b, 2, t, 4), rotations(t)),
    ),
    function(
        "rope.convert_rope_layout",
        lambda w: rope.convert_rope_layout(w, 2, "half"),
        lambda b, t: (draw(8, t + 1),),
    ),
    function(
        "long_context.position_interpolation",
        lambda f: long_context.position_interpolation(f, 4.0),
        lambda b, t: (rope.rope_frequencies(8, dtype=torch.float64, device="cpu"),),
        fixed=True,
    ),
    function(
        "long_context.ntk_by_parts",
        lambda f: long_context.ntk_by_parts(f, 4.0, 64),
        lambda b, t: (rope.rope_frequencies(8, dtype=torch.float64, device="cpu"),),
        fixed=True,
    ),
    function(
        "long_context.llama3_frequencies",
        lambda f: long_context.llama3_frequencies(f, 8.0, 1.0, 4.0, 64),
        lambda b, t: (rope.rope_frequencies(8, dtype=torch.float64, device="cpu"),),
        fixed=True,
    ),
    function("kv_cache.repeat_kv", lambda x: kv_cache.repeat_kv(x, 2), lambda b, t: qkv(b, t)[:1]),
    function(
        "kv_cache.causal_padding_mask",
        kv_cache.causal_padding_mask,
        lambda b, t: (torch.rand(b, t) < 0.7,),
    ),
    function(
        "kv_cache.padding_position_ids",
        kv_cache.padding_position_ids,
        lambda b, t: (torch.rand(b, t) < 0.7,),
    ),
    function(
        "kv_cache.fit_mask",
        lambda m: kv_cache.fit_mask(m, (2, 2, 5, 5), torch.float64),
        lambda b, t: (draw(5, 5),),
        fixed=True,
    ),
    function(
        "kv_cache.mha_to_gqa",
        lambda w: kv_cache.mha_to_gqa(w, 4, 2),
        lambda b, t: (draw(8, t + 1),),
    ),
    function(
        "decoder.next_token_probs",
        lambda x: decoder.next_token_probs(x, 0.7, top_k=5, top_p=0.9, min_p=0.01),
        rows,
    ),
    function("experts.clamped_swiglu", experts.clamped_swiglu, lambda b, t: rows(b, t) * 2),
    function("experts.expert_load", lambda c: experts.expert_load(c, 11), tokens),
    function(
        "experts.load_balancing_loss",
        experts.load_balancing_loss,
        lambda b, t: (draw(t, 11).softmax(-1), torch.randint(0, 11, (t, 2))),
    ),
    function("experts.router_z_loss", experts.router_z_loss, rows),
    function("local_attention.soft_cap", lambda x: local_attention.soft_cap(x, 5.0), rows),
    function(
        "local_attention.sink_attention",
        local_attention.sink_attention,
        lambda b, t: (*qkv(b, t), draw(2)),
    ),
    function(
        "local_attention.tiled_attention",
        lambda q, k, v: local_attention.tiled_attention(q, k, v, True, block_size=(2, 3)),
        qkv,
        cannot=BY_HAND,
    ),
    function(
        "local_attention.merge_partials",
        local_attention.merge_partials,
        lambda b, t: (draw(3, b, t, 4), draw(3, b, t)),
    ),
    function("serving.round_to_format", lambda x: serving.round_to_format(x, "e4m3"), rows),
    function("serving.round_to_mx", lambda x: serving.round_to_mx(x, block=4), rows),
    function(
        "recurrence.linear_attention",
        lambda q, k, v: recurrence.linear_attention(q, k, v, -q[..., 0].abs())[0],
        qkv,
        cannot=UNROLLED,
    ),
    function(
        "recurrence.delta_rule",
        lambda q, k, v: recurrence.delta_rule(q, k, v, q[..., 0].sigmoid())[0],
        qkv,
        cannot=UNROLLED,
    ),
    function("recurrence.l2_norm", recurrence.l2_norm, rows),
    function(
        "recurrence.selective_scan",
        lambda u, d, a, b, c: recurrence.selective_scan(u, d, a, b, c)[0],
        lambda b, t: (
            draw(b, t, 4),
            draw(b, t, 4).exp(),
            -draw(4, 3).exp(),
            draw(b, t, 3),
            draw(b, t, 3),
        ),
        cannot=UNROLLED,
    ),
    function(
        "recurrence.causal_conv",
        lambda x, w: recurrence.causal_conv(x, w)[0],
        lambda b, t: (draw(b, t, 8), draw(8, 1, 3)),
    ),
    function("inside.previous_token_score", inside.previous_token_score, probs),
    function(
        "inside.induction_score",
        lambda w: inside.induction_score(w, 3),
        lambda b, t: (draw(b, 6, 6).softmax(-1),),
        fixed=True,
    ),
    function(
        "inside.logit_lens",
        lambda x, w: inside.logit_lens(x, lambda y: y, w),
        lambda b, t: (draw(b, t, 8), draw(11, 8)),
    ),
    function(
        "inside.logit_attribution",
        lambda x, g, r: inside.logit_attribution(x, g, 1e-6, r),
        lambda b, t: (draw(3, 8), draw(8), draw(8)),
        fixed=True,
    ),
]

# Public names that take no tensors, or take whole models: torch's transformations are not for them.
ELSEWHERE = {
    "tensors": "broadcast_shape can_read_values TOLERANCE set_seed assert_parity gradcheck64",
    "map": "Shape Call trace_shapes name_shape parameter_parts parameter_count flop_parts "
    "transformer_flops",
    "embeddings": "sinusoidal_positional_encoding shift_matrix",
    "attention": "causal_mask",
    "feed_forward": "round_up_to_multiple swiglu_hidden_dim",
    "residual": "DeepNormScale deepnorm_constants noam_lr linear_warmup grad_norm_profile",
    "transformer": "count_parameters greedy_decode beam_search",
    "rope": "rope_frequencies build_rope_cache rotation_matrix interleaved_to_half_permutation",
    "long_context": "ntk_aware_base dynamic_ntk_base yarn_mscale yarn_frequencies alibi_slopes "
    "alibi_bias",
    "experts": "Routing update_correction load_hf_experts",
    "families": "FAMILIES MISSING Difference Layer Plan Rope differences family_data lineage "
    "own_lines plan_differences read_plan ACTIVATIONS assemble greedy load_weights "
    "published_weights cache_numbers parameters token_flops MIXERS StateCache",
    "local_attention": "window_mask chunk_mask layer_windows reach cache_positions RollingKVCache "
    "SlowMemory",
    "serving": "BlockPool PagedCache paged_forward Job Scheduler simulate Server "
    "speculative_accept speculate Quantized quantize FORMATS QuantizedKVCache Team shard "
    "tensor_parallel pipeline_step",
    "recurrence": "LayerState associative_scan affine",
    "kv_cache": "KVCache check_new check_cache_law kv_cache_bytes_per_token attention_intensity",
    "mla": "LatentCache mla_cache_elements mla_attention_flops",
    "decoder": "RopeScaling ModelConfig Cache generate from_pretrained_config load_hf_state_dict",
}
