"""Encoders as data, and their parts: by hand, and what is refused. Hugging Face is not needed."""

import json
import math
import re

import pytest
import torch
import torch.nn.functional as F
from encoder_cases import CASES, a_text, family, numbers, written
from torch import nn

from transformer_parts.embeddings import sinusoidal_positional_encoding
from transformer_parts.families.encoders import (
    ENCODERS,
    FrameEmbedding,
    PatchEmbedding,
    assemble_encoder,
    encoder_data,
    greedy,
    load_weights,
    near_mask,
    published_weights,
    read_encoder_plan,
)
from transformer_parts.families.positions import (
    RelativePositionBias,
    relative_position_buckets,
    split_sinusoids,
)
from transformer_parts.transformer import TransformerEncoderLayer


def config(case, **options):
    return {"model_type": family(case), **CASES[case], **options}


def built(case, **options):
    torch.manual_seed(0)
    model = assemble_encoder(config(case, **options)).double().eval()
    for p in model.parameters():
        nn.init.normal_(p, std=0.3)
    return model


# --- The parts ------------------------------------------------------------------------------------


def test_a_patch_is_a_linear_layer_on_its_pixels():
    part = PatchEmbedding(3, (8, 14), (4, 5), 7).double()
    images = numbers(2, 3, 8, 14)
    weight, bias = part.project.weight.flatten(1), part.project.bias
    rows = [
        F.linear(images[:, :, y : y + 4, x : x + 5].flatten(1), weight, bias)
        for y in (0, 4) for x in (0, 5)
    ]  # fmt: skip
    got = part(images)
    assert got.shape == (2, part.num_patches, 7) == (2, 4, 7)
    torch.testing.assert_close(got, torch.stack(rows, 1), rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match=re.escape("images must have shape (B, 3, 8, 14), got (2")):
        part(images[..., 1:])
    with pytest.raises(ValueError, match=re.escape("patch_size (4, 20) does not fit")):
        PatchEmbedding(3, (8, 14), (4, 20), 7)


def test_a_row_sees_seven_frames_and_stands_for_two():
    part = FrameEmbedding(3, 12, 6).double()
    frames = numbers(1, 3, 12).requires_grad_()
    rows = part(frames)
    assert rows.shape == (1, 6, 6)
    for row in range(6):
        (grad,) = torch.autograd.grad(rows[0, row].sum(), frames, retain_graph=True)
        seen = grad[0].abs().sum(0).nonzero().flatten().tolist()
        assert seen == [t for t in range(2 * row - 2, 2 * row + 3) if 0 <= t < 12]
    with pytest.raises(ValueError, match="frames must be even, got 11"):
        FrameEmbedding(3, 11, 6)
    with pytest.raises(ValueError, match=re.escape("frames must have shape (B, 3, 12)")):
        part(frames[..., :10])


def test_split_sinusoids_are_the_old_ones_in_another_order():
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        old = sinusoidal_positional_encoding(40, 10)
    finally:
        torch.set_default_dtype(default)
    new = split_sinusoids(torch.arange(40), 10, steps=5)
    torch.testing.assert_close(new, torch.cat([old[:, 0::2], old[:, 1::2]], 1), rtol=0, atol=1e-12)
    slow = split_sinusoids(torch.tensor([3]), 10, steps=4)
    assert math.isclose(slow[0, 4], math.sin(3 / 10000))
    for bad in ({"d_model": 5, "steps": 2}, {"d_model": 4, "steps": 0}):
        with pytest.raises(ValueError, match="must be"):
            split_sinusoids(torch.arange(3), **bad)


def test_buckets_by_hand():
    near = torch.tensor([-3, -2, -1, 0, 1, 2, 3])
    assert relative_position_buckets(near, 16, 64).tolist() == [3, 2, 1, 0, 9, 10, 11]
    # One direction: 8 exact ones, then edges at 8 * 16 ** (k / 8): 11.3, 16, 22.6, 32, ...
    far = -torch.tensor([7, 8, 11, 12, 15, 17, 22, 23, 127, 128, 10**6])
    assert relative_position_buckets(far, 16, 128, False).tolist() == [
        7, 8, 8, 9, 9, 10, 10, 11, 15, 15, 15
    ]  # fmt: skip
    assert relative_position_buckets(torch.tensor([5]), 16, 128, False).tolist() == [0]
    with pytest.raises(ValueError, match="of integers"):
        relative_position_buckets(torch.ones(2))
    with pytest.raises(ValueError, match="at least 2 a direction, got 1"):
        relative_position_buckets(near, 3)
    with pytest.raises(ValueError, match="max_distance must be more than 8"):
        relative_position_buckets(near, 32, 8)


def test_a_bias_of_buckets_depends_on_distances_and_fits_a_cache():
    part = RelativePositionBias(3, 8, 20, bidirectional=False)
    whole = part(9, 9)
    assert whole.shape == (1, 3, 9, 9)
    assert torch.equal(whole[..., 1:, 1:], whole[..., :-1, :-1])
    assert torch.equal(part(2, 9), whole[:, :, 7:])
    assert torch.equal(whole[0, :, 8, 8], part.weight[0])
    with pytest.raises(ValueError, match="at most key_len=3, got 4"):
        part(4, 3)


def test_near_means_as_far_on_both_sides():
    assert near_mask(5, 3).int().tolist() == [
        [1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [0, 1, 1, 1, 0], [0, 0, 1, 1, 1], [0, 0, 0, 1, 1]
    ]  # fmt: skip
    with pytest.raises(ValueError, match="window must be odd and at least 1, got 4"):
        near_mask(5, 4)


# --- The models -----------------------------------------------------------------------------------


def test_berts_block_is_the_encoder_layer_of_its_own_chapter():
    block = built("bert").encoder.layers[0]
    layer = TransformerEncoderLayer(32, 4, 40, 0.0, "gelu", eps=1e-12).double()
    for theirs, mine in ((layer.self_attn, block.attn), (layer.ffn, block.ffn),
                         (layer.norm1, block.norms["attn_sum"]),
                         (layer.norm2, block.norms["ffn_sum"])):  # fmt: skip
        theirs.load_state_dict(mine.state_dict())
    _, mask = a_text()
    x = numbers(3, 13, 32)
    got = block(x, None, mask[:, None, None, :])
    torch.testing.assert_close(got, layer(x, mask), rtol=0, atol=1e-12)


@pytest.mark.parametrize("case", ["bert", "roberta", "modernbert", "t5"])
def test_padding_changes_nothing_for_tokens(case):
    model = built(case)
    x, mask = a_text(CASES[case].get("pad_token_id", 0))
    for states in (model.encode(x, mask), model.encode(x.masked_fill(~mask, 5), mask)):
        if case == "roberta":  # it tells padding by its token
            states = model.encode(x, mask)
        for row, n in enumerate(mask.sum(1)):
            alone = model.encode(x[row : row + 1, :n])
            torch.testing.assert_close(states[row, :n], alone[0], rtol=0, atol=1e-12)
        assert states.isfinite().all()


def test_who_sees_whom():
    def seen(model, x):
        """Which inputs change each output of the encoder, (T, T)."""
        with torch.no_grad():
            before, rows = model.encode(x), []
            for i in range(x.shape[1]):
                other = x.clone()
                other[0, i] = 4 + (other[0, i] + 1) % 57
                rows.append((model.encode(other) - before)[0].abs().amax(-1) > 0)
        return torch.stack(rows, 1)

    x, _ = a_text()
    assert seen(built("bert"), x[:1]).all()
    near = built("modernbert", num_hidden_layers=2, global_attn_every_n_layers=None,
                 layer_types=["sliding_attention"] * 2)  # fmt: skip
    assert torch.equal(seen(near, x[:1]), near_mask(13, 2 * 6 + 1))  # 3 on each side, twice


def test_the_decoders_of_t5_and_whisper_do_not_look_ahead():
    for case in ("t5", "whisper"):
        model = built(case)
        x = numbers(3, *model.front.shape) if model.front else a_text()[0]
        tokens = written()
        with torch.no_grad():
            memory = model.encode(x)
            whole = model.decode(tokens, memory)
            torch.testing.assert_close(model(x, tokens), whole, rtol=0, atol=0)
            cache = model.new_cache(3, 11)
            parts = [model.decode(part, memory, None, cache) for part in tokens.split([4, 1, 6], 1)]
            torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=0, atol=1e-12)
            other = tokens.clone()
            other[:, 7:] = 5
            changed = (model.decode(other, memory) - whole).abs().amax((0, 2)) > 1e-9
        assert changed.tolist() == [False] * 7 + [True] * 4


@pytest.mark.parametrize("case", ["bert", "modernbert", "t5"])
def test_no_row_of_a_mask_is_empty(case):
    """On some devices a query without keys gets nan, which would reach all others."""
    stack, x = built(case).encoder, torch.zeros((), dtype=torch.float64)
    real = torch.arange(13) < torch.tensor([13, 4, 0])[:, None]
    for window in {layer.window for layer in stack.stack.plan.layers}:
        seen = stack.mask(13, 13, window, real, x)
        seen = seen if seen.dtype == torch.bool else seen.isfinite()
        assert seen.any(-1).all()
        assert torch.equal(seen[2].any(0), torch.eye(13, dtype=torch.bool))
        assert not seen[:2, ..., :4, 4:][1].any()  # the tokens do not see padding


def test_keys_of_the_memory_are_computed_once():
    model, calls = built("t5"), []
    for block in model.decoder.layers:
        block.cross.k_proj.register_forward_hook(lambda *_: calls.append(1))
    greedy(model, a_text()[0], 5)
    assert len(calls) == len(model.decoder.layers)


@pytest.mark.parametrize("case", CASES)
def test_a_model_without_memory_gets_it_with_its_weights(case):
    source = assemble_encoder(config(case)).eval()
    with torch.device("meta"):
        model = assemble_encoder(config(case)).eval()
    load_weights(model, published_weights(source))
    inputs = a_text(1)[0]
    if source.front is not None:
        inputs = numbers(2, *source.front.shape).float()
    assert torch.equal(model.encode(inputs), source.encode(inputs))


# --- What is refused ------------------------------------------------------------------------------

REFUSED = {
    "is_decoder": ("bert", True), "add_cross_attention": ("roberta", True),
    "position_embedding_type": ("bert", "relative_key"), "scale_embedding": ("whisper", True),
    "tie_word_embeddings": ("modernbert", False), "hidden_act": ("vit", "quick_gelu"),
    "classifier_activation": ("modernbert", "snake"), "feed_forward_proj": ("t5", "gated-snake"),
    "rope_scaling": ("bert", {"rope_type": "linear", "factor": 2.0}), "logit_cap": ("t5", 3.0),
    "hidden_activation": ("t5", "silu"), "intermediate_size": ("whisper", 40),
    "partial_rotary_factor": ("modernbert", 0.5), "quantization_config": ("vit", {"bits": 4}),
}  # fmt: skip


@pytest.mark.parametrize("key", REFUSED)
def test_a_setting_without_a_part_is_named(key):
    case, value = REFUSED[key]
    with pytest.raises(ValueError, match=f"{family(case)} with this configuration lacks") as error:
        assemble_encoder(config(case, **{key: value}))
    named = "snake" if "snake" in str(value) else str(value) if key == "hidden_act" else key
    assert named in str(error.value)


def test_families_and_sizes_that_are_not_there_are_named():
    assert ENCODERS == ("bert", "roberta", "vit", "modernbert", "t5", "whisper")
    with pytest.raises(ValueError, match="'llama' is not known; known are bert, roberta"):
        read_encoder_plan({"model_type": "llama"})
    with pytest.raises(ValueError, match="family must be one of bert"):
        encoder_data("kittens")
    for case in CASES:
        for key in encoder_data(family(case))["sizes"]:
            cut = {k: v for k, v in config(case).items() if k != key}
            with pytest.raises(ValueError, match=f"lacks:\n  {key} is not given"):
                read_encoder_plan(cut)
    kept = read_encoder_plan(config("bert", ideas=3), ignore=["ideas"])
    assert kept == read_encoder_plan(config("bert"))


def test_a_config_in_a_folder(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(config("t5")), encoding="utf-8")
    assert read_encoder_plan(tmp_path) == read_encoder_plan(config("t5"))


def test_inputs_that_do_not_fit_are_refused():
    x, mask = a_text()
    bert, t5, vit = built("bert"), built("t5"), built("vit")
    images = numbers(3, *vit.front.shape)
    for call, message in (
        (lambda: bert(x, x), "bert has no decoder, but tokens is given"),
        (lambda: t5(x), "t5 has a decoder, but tokens is missing"),
        (lambda: bert(x[0]), "tokens must be integers of shape (B, T), got torch.int64 of"),
        (lambda: bert(x, mask=mask[:2]), "mask must have shape (3, 13), got (2, 13)"),
        (lambda: bert(x, mask=mask.long()), "mask must be boolean, got torch.int64"),
        (lambda: bert(x, types=x[:, 1:]), "types must have shape (3, 13), got (3, 12)"),
        (lambda: built("modernbert")(x, types=x), "modernbert has no token types"),
        (lambda: vit(images, mask=mask), "mask and types are for tokens, not patches"),
        (lambda: bert(x.repeat(1, 2)), "the input must end within 24 positions, got 26"),
        (lambda: built("roberta")(x.repeat(1, 2)), "within 22 positions, got 26"),
        (lambda: vit.new_cache(1, 2), "vit has no decoder"),
        (lambda: bert.decode(x, x), "bert has no decoder"),
        (lambda: greedy(bert, x, 3), "bert has no decoder"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            call()


def test_weights_that_do_not_fit_are_named_and_nothing_is_copied():
    model = built("modernbert")
    before = published_weights(model)
    state = dict(before)
    state["model.layers.1.attn.Wqkv.weight"] = torch.ones(96, 31)
    state["model.extra"] = torch.ones(2)
    del state["head.norm.weight"]
    with pytest.raises(ValueError, match="3 tensors do not fit") as error:
        load_weights(model, state)
    for name in ("Wqkv.weight: got shape", "model.extra: unexpected", "head.norm.weight: missing"):
        assert name in str(error.value)
    assert all(torch.equal(before[k], v) for k, v in published_weights(model).items())


def test_older_names_of_files_are_read():
    model, older = built("vit"), {}
    for name, tensor in published_weights(model).items():
        for new, old in (
            ("vit.layers.", "vit.encoder.layer."),
            ("attention.q_proj", "attention.attention.query"),
            ("attention.k_proj", "attention.attention.key"),
            ("attention.v_proj", "attention.attention.value"),
            ("attention.o_proj", "attention.output.dense"), ("mlp.fc1", "intermediate.dense"),
            ("mlp.fc2", "output.dense"),
        ):  # fmt: skip
            name = name.replace(new, old)
        older[name] = tensor
    again = load_weights(assemble_encoder(config("vit")).double(), older)
    images = numbers(3, *model.front.shape)
    assert torch.equal(again(images), model(images))
    bert = built("bert")
    state = {
        re.sub(r"LayerNorm\.weight$", "LayerNorm.gamma", k): v
        for k, v in published_weights(bert).items()
    }
    state["bert.pooler.dense.weight"] = torch.ones(32, 32)
    again = load_weights(assemble_encoder(config("bert")).double(), state)
    x, mask = a_text()
    assert torch.equal(again(x, mask=mask), bert(x, mask=mask))
