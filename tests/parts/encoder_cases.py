"""Small encoders of each family: what Hugging Face's configuration is given, and their inputs."""

import torch

WORDS = {"vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
         "intermediate_size": 40, "max_position_embeddings": 24}  # fmt: skip
PIXELS = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
          "intermediate_size": 40}  # fmt: skip
T5 = {"vocab_size": 61, "d_model": 32, "d_kv": 6, "d_ff": 40, "num_layers": 2, "num_heads": 4,
      "num_decoder_layers": 3, "relative_attention_num_buckets": 8,
      "relative_attention_max_distance": 10, "decoder_start_token_id": 0}  # fmt: skip
LOCAL = ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]

# case: what its configuration is given; a case's family is its name up to a hyphen.
CASES: dict[str, dict] = {
    "bert": {**WORDS, "type_vocab_size": 3},
    "bert-tanh": {**WORDS, "hidden_act": "gelu_new", "layer_norm_eps": 1e-3},
    "roberta": {**WORDS, "pad_token_id": 1, "type_vocab_size": 1, "hidden_act": "relu"},
    "vit": {**PIXELS, "image_size": 12, "patch_size": 4, "num_labels": 5},
    "vit-oblong": {**PIXELS, "image_size": [12, 21], "patch_size": [4, 5], "num_channels": 1,
                   "qkv_bias": False, "layer_norm_eps": 1e-3},
    "modernbert": {**WORDS, "pad_token_id": 0, "num_hidden_layers": 4, "local_attention": 6},
    "modernbert-biased": {
        **WORDS, "pad_token_id": 0, "num_hidden_layers": 4, "local_attention": 4,
        "layer_types": LOCAL[::-1], "norm_bias": True, "attention_bias": True, "mlp_bias": True,
        "classifier_bias": True, "decoder_bias": False, "norm_eps": 1e-3,
        "hidden_activation": "silu", "classifier_activation": "relu",
    },
    "t5": T5,
    "t5-gated": {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False,
                 "layer_norm_epsilon": 1e-3},
    "whisper": {
        "vocab_size": 61, "d_model": 32, "num_mel_bins": 5, "encoder_layers": 2,
        "decoder_layers": 3, "encoder_attention_heads": 4, "decoder_attention_heads": 2,
        "encoder_ffn_dim": 40, "decoder_ffn_dim": 24, "max_source_positions": 12,
        "max_target_positions": 20, "decoder_start_token_id": 3, "pad_token_id": 0,
        "bos_token_id": 1, "eos_token_id": 2,
    },
}  # fmt: skip
LENGTHS = 13, 9, 4


def family(case):
    return case.split("-")[0]


def a_text(pad=0):
    """Three texts of these lengths, padded; and where their tokens are."""
    x = torch.randint(4, 61, (3, 13), generator=torch.Generator().manual_seed(1))
    mask = torch.arange(13) < torch.tensor(LENGTHS)[:, None]
    return x.masked_fill(~mask, pad), mask


def written():
    """What a decoder has written so far."""
    return torch.randint(4, 61, (3, 11), generator=torch.Generator().manual_seed(2))


def numbers(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
