"""Small models with recurrent layers: what Hugging Face's configuration is given."""

MAMBA = {"mamba_n_heads": 8, "mamba_d_state": 7, "mamba_n_groups": 2, "mamba_d_conv": 3,
         "mamba_expand": 2, "mamba_chunk_size": 8}  # fmt: skip
DELTA = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 6,
         "linear_value_head_dim": 5, "linear_conv_kernel_dim": 3}  # fmt: skip
MIXED = {"layer_types": ["linear_attention", "full_attention"]}
FEW = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 20}
SHARED = {**FEW, "shared_expert_intermediate_size": 24}
MULTIPLIERS = {"embedding_multiplier": 3.0, "residual_multiplier": 0.4,
               "attention_multiplier": 0.2, "logits_scaling": 1.7}  # fmt: skip

HYBRIDS: dict[str, dict] = {
    "mamba": {"state_size": 5, "time_step_rank": 3},
    "mamba-biased": {"state_size": 5, "use_bias": True, "use_conv_bias": False, "expand": 3,
                     "intermediate_size": 192},
    "falcon_mamba": {"state_size": 5, "mixer_rms_eps": 1e-3},
    "mamba2": {"num_heads": 8, "state_size": 7, "n_groups": 2, "conv_kernel": 3, "chunk_size": 8},
    "mamba2-limited": {"num_heads": 8, "state_size": 7, "n_groups": 1, "chunk_size": 8,
                       "time_step_limit": [0.4, 0.8], "use_bias": True, "use_conv_bias": False,
                       "layer_norm_epsilon": 1e-3},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2,
              "expert_layer_offset": 0, "num_experts": 6, "mamba_d_state": 5,
              "mamba_proj_bias": True, "mamba_conv_bias": False},
    "bamba": {**MAMBA, "attn_layer_indices": [1], "attention_bias": True, "mlp_bias": True},
    "granitemoehybrid": {**MAMBA, **MIXED, **MULTIPLIERS, "num_local_experts": 6,
                         "shared_intermediate_size": 24, "position_embedding_type": "rope"},
    "granitemoehybrid-dense": {**MAMBA, **MIXED, "num_local_experts": 0,
                               "shared_intermediate_size": 24, "mamba_proj_bias": True,
                               "mamba_conv_bias": False, "time_step_limit": [0.4, 0.8]},
    "falcon_h1": {**MAMBA, "mamba_d_ssm": 96, "mamba_d_head": 12, "ssm_in_multiplier": 0.5,
                  "ssm_out_multiplier": 1.5, "ssm_multipliers": [0.5, 0.75, 1.25, 1.5, 2.0],
                  "attention_in_multiplier": 0.75, "attention_out_multiplier": 1.25,
                  "key_multiplier": 0.5, "mlp_multipliers": [0.5, 1.5],
                  "embedding_multiplier": 2.0, "lm_head_multiplier": 0.25},
    "falcon_h1-normed": {**MAMBA, "mamba_d_ssm": 96, "mamba_d_head": 12, "mamba_rms_norm": True,
                         "projectors_bias": True, "mamba_conv_bias": False},
    "falcon_h1-gated": {**MAMBA, "mamba_d_ssm": None, "mamba_rms_norm": True, "mlp_bias": True,
                        "mamba_norm_before_gate": False, "mamba_proj_bias": True,
                        "attention_bias": True, "time_step_limit": [0.4, 0.8]},
    "nemotron_h": {"hybrid_override_pattern": "M-*M", "mamba_num_heads": 8, "mamba_head_dim": 12,
                   "ssm_state_size": 7, "n_groups": 2, "conv_kernel": 3, "chunk_size": 8,
                   "time_step_min": 0.4, "tie_word_embeddings": True},  # which they never do
    "nemotron_h-biased": {"hybrid_override_pattern": "*-M", "mamba_num_heads": 4,
                          "mamba_head_dim": 12, "ssm_state_size": 7, "n_groups": 1,
                          "use_bias": True, "use_conv_bias": False, "mlp_bias": True,
                          "attention_bias": True,  # which their attention does not read
                          "mlp_hidden_act": "silu", "layer_norm_epsilon": 1e-3},
    "lfm2": {"layer_types": ["conv", "full_attention"], "block_multiple_of": 10,
             "block_ffn_dim_multiplier": 1.3},
    "lfm2-biased": {"layer_types": ["full_attention", "conv"], "conv_bias": True,
                    "conv_L_cache": 4, "block_auto_adjust_ff_dim": False, "norm_eps": 1e-3},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1, **FEW,
                 "routed_scaling_factor": 1.7},
    "lfm2_moe-plain": {"layer_types": ["full_attention", "conv"], "num_dense_layers": 0, **FEW,
                       "use_expert_bias": False, "norm_topk_prob": False},
    "qwen3_next": {**DELTA, **MIXED, **SHARED, "mlp_only_layers": [1]},
    "qwen3_next-dense": {**DELTA, **MIXED, "num_experts": 0},
    "qwen3_5_text": {**DELTA, **MIXED},
    "qwen3_5_moe_text": {**DELTA, **MIXED, **SHARED},
    # Their files hold convolutions cut in three equal parts, so keys and values are as wide here;
    # `test_families_hybrids_hugging_face.py` tries other widths.
    "olmo_hybrid": {**DELTA, "linear_num_key_heads": 4, "linear_value_head_dim": 6, **MIXED,
                    "attention_bias": True,
                    "rope_parameters": {"rope_type": "default", "rope_theta": None}},
    "olmo_hybrid-turned": {**MIXED, "rope_parameters": {"rope_type": "default",
                                                        "rope_theta": 100.0},
                           "linear_value_head_dim": 12, "linear_allow_neg_eigval": False},
    "kimi_linear": {"kv_lora_rank": 20, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8,
                    "v_head_dim": 10, "num_key_value_heads": 4, "linear_head_dim": 6,
                    "linear_num_heads": 3, "linear_conv_kernel_dim": 3, **MIXED,
                    "mlp_layer_types": ["sparse", "dense"], "num_local_experts": 8,
                    "num_experts_per_tok": 3, "n_shared_experts": 2, "moe_intermediate_size": 20,
                    "n_group": 4, "topk_group": 2, "norm_topk_prob": False},
    "minimax": {**MIXED, "num_local_experts": 6, "num_experts_per_tok": 2, "block_size": 8,
                "full_attn_alpha_factor": 0.75, "full_attn_beta_factor": 1.25,
                "linear_attn_alpha_factor": 1.5, "linear_attn_beta_factor": 0.5,
                "mlp_alpha_factor": 0.625, "mlp_beta_factor": 1.75},
}  # fmt: skip

# What eight layers need beside their sizes, where the class alone would not do.
NEEDED_BY_HYBRIDS: dict[str, dict] = {
    "mamba2": {"num_heads": 8},
    "nemotron_h": {"hybrid_override_pattern": "M-*M-M*-"},
    "lfm2": {"full_attn_idxs": [2, 5]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 4, "num_experts_per_tok": 4},
}
# Lines for the keys of older files, which `test_families_hybrids.py` tries.
OLD_KEYS_OF_HYBRIDS: dict[str, set[str]] = {
    "bamba": {"rotary"},
    "lfm2": {"keys.intermediate_size", "keys.tie_word_embeddings"},
    "nemotron_h": {"kind", *(f"keys.{k}" for k in ("n_groups", "conv_kernel", "time_step_min",
                                                   "use_conv_bias"))},
}  # fmt: skip
