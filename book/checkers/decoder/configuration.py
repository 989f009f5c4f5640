"""What a config.json says, and what it leaves to its family."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from book.checkers.core import Answer, Case, Exercise, WrongAnswer, in_parts


@in_parts
def _read(
    head_dim: Callable[[dict[str, Any]], int] | None = None,
    kv_heads: Callable[[dict[str, Any]], int] | None = None,
    qkv_bias: Callable[[dict[str, Any]], bool] | None = None,
    out_bias: Callable[[dict[str, Any]], bool] | None = None,
    qk_norm: Callable[[dict[str, Any]], bool] | None = None,
) -> Answer:
    def right_dim(hf: dict[str, Any]) -> int:
        if hf.get("head_dim") is not None:
            return int(hf["head_dim"])
        quotient = int(hf["hidden_size"] // hf["num_attention_heads"])
        return 128 if hf["model_type"] == "qwen3" else quotient

    def right_kv(hf: dict[str, Any]) -> int:
        given = hf.get("num_key_value_heads")
        return int(hf["num_attention_heads"] if given is None else given)

    def right_out(hf: dict[str, Any]) -> bool:
        return hf["model_type"] != "qwen2" and bool(hf.get("attention_bias", False))

    def right_qkv(hf: dict[str, Any]) -> bool:
        return hf["model_type"] == "qwen2" or right_out(hf)

    def read_config(hf: dict[str, Any]) -> tuple[int, int, bool, bool, bool]:
        return (
            (head_dim or right_dim)(hf),
            (kv_heads or right_kv)(hf),
            (qkv_bias or right_qkv)(hf),
            (out_bias or right_out)(hf),
            (qk_norm or (lambda hf: hf["model_type"] == "qwen3"))(hf),
        )

    return read_config


def _read_by_family(hf: dict[str, Any]) -> list[Any]:
    heads = hf["num_attention_heads"]
    defaults = {"llama": None, "qwen2": None, "qwen3": 128}
    dim = hf.get("head_dim") or defaults[hf["model_type"]] or hf["hidden_size"] // heads
    kv = hf.get("num_key_value_heads") or heads
    flag = hf.get("attention_bias", False)
    rest = {
        "llama": [flag, flag, False],
        "qwen2": [True, False, False],
        "qwen3": [flag, flag, True],
    }
    return [dim, kv, *rest[hf["model_type"]]]


def _config_case(name: str, family: str, width: int, heads: int, **more: Any) -> Case:
    hf = {"model_type": family, "hidden_size": width, "num_attention_heads": heads, **more}
    return Case(name, lambda: (dict(hf),))


READ_CONFIG = Exercise(
    title="Read a configuration",
    oracle=_read(),
    cases=[
        _config_case("LLaMA-7B", "llama", 4096, 32),
        _config_case("Llama-3-8B", "llama", 4096, 32, num_key_value_heads=8),
        _config_case(
            "a Llama with nulls", "llama", 4096, 32, head_dim=None, num_key_value_heads=None
        ),
        _config_case("a Llama with wide heads", "llama", 2048, 16, head_dim=256),
        _config_case("a Llama with biases", "llama", 512, 8, attention_bias=True),
        _config_case("Qwen2.5-7B", "qwen2", 3584, 28, num_key_value_heads=4),
        _config_case("a Qwen2 that says it has none", "qwen2", 896, 14, attention_bias=False),
        _config_case("a Qwen2 that says it has them", "qwen2", 896, 14, attention_bias=True),
        _config_case(
            "Qwen3-0.6B",
            "qwen3",
            1024,
            16,
            head_dim=128,
            num_key_value_heads=8,
            attention_bias=False,
        ),
        _config_case("a Qwen3 without head_dim", "qwen3", 1024, 16, num_key_value_heads=8),
        _config_case("a Qwen3 with biases", "qwen3", 1024, 8, attention_bias=True),
    ],
    variants=(_read_by_family,),
    wrong=(
        WrongAnswer(
            "head_dim always the quotient",
            "The configuration may give head_dim itself, and Qwen3's default is 128. Divide only "
            "if neither applies.",
            _read(head_dim=lambda hf: hf["hidden_size"] // hf["num_attention_heads"]),
        ),
        WrongAnswer(
            "the default of Qwen3 forgotten",
            "A Qwen3 without head_dim has heads of 128 features, whatever its width.",
            _read(
                head_dim=lambda hf: int(
                    hf.get("head_dim") or hf["hidden_size"] // hf["num_attention_heads"]
                )
            ),
        ),
        WrongAnswer(
            "nulls taken for values",
            "hf.get(key, default) gives None for a null in the file: the key is there. Test for "
            "None.",
            _read(
                kv_heads=lambda hf: hf.get("num_key_value_heads", hf["num_attention_heads"]),
                head_dim=lambda hf: hf.get(
                    "head_dim",
                    128
                    if hf["model_type"] == "qwen3"
                    else hf["hidden_size"] // hf["num_attention_heads"],
                ),
            ),
        ),
        WrongAnswer(
            "one key-value head where none is given",
            "An absent num_key_value_heads means multi-head attention: as many as query heads.",
            _read(kv_heads=lambda hf: hf.get("num_key_value_heads") or 1),
        ),
        WrongAnswer(
            "Qwen2 without biases",
            "Qwen2's configuration does not mention them; its model_type implies biases of q, k "
            "and v.",
            _read(qkv_bias=lambda hf: bool(hf.get("attention_bias", False))),
        ),
        WrongAnswer(
            "Qwen2 with a bias on the output",
            "In Qwen2 only q, k and v have biases. The output projection has none.",
            _read(
                out_bias=lambda hf: (
                    hf["model_type"] == "qwen2" or bool(hf.get("attention_bias", False))
                )
            ),
        ),
        WrongAnswer(
            "Llama's attention_bias without the output",
            "In Llama and Qwen3 attention_bias is for all four matrices of attention.",
            _read(out_bias=lambda hf: False),
        ),
        WrongAnswer(
            "QK-norm in Qwen2",
            "QK-norm came with Qwen3, in place of the biases.",
            _read(qk_norm=lambda hf: "qwen" in hf["model_type"]),
        ),
        WrongAnswer(
            "no QK-norm",
            "Qwen3 normalises queries and keys in every layer, and its configuration has no key "
            "for it.",
            _read(qk_norm=lambda hf: False),
        ),
    ),
)
