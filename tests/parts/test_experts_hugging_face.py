"""Ten published families, their layers with random weights: ours against theirs, in float64.

Their routers go through float32 on the way: `.float()`, `.type(torch.float32)`, a softmax with
`dtype=torch.float32`. That would hide all that is smaller than 1e-7, so `InDouble` switches these
detours off while their layer runs; `test_the_detour_is_switched_off` shows that it does.

Without `transformers` the file is skipped, see `tests/hugging_face.py`.
"""

import importlib
from dataclasses import dataclass, field

import pytest
import torch
from hugging_face import WITHOUT_THEIR_WARNINGS, InDouble, transformers

from book import bench_experts
from book.measured import record
from transformer_parts.experts import (
    MixtureOfExperts,
    Router,
    load_balancing_loss,
    load_hf_experts,
)
from transformer_parts.feed_forward import GatedFeedForward

pytestmark = WITHOUT_THEIR_WARNINGS

D, D_FF, E, TOKENS = 24, 20, 8, 40


@dataclass(frozen=True)
class Family:
    """How a family's layer is made, in their words and in ours."""

    module: str
    config: str
    layer: str
    theirs: dict = field(default_factory=dict)  # what its configuration says beside the sizes
    router: dict = field(default_factory=dict)
    ours: dict = field(default_factory=dict)
    shared: int = 0  # width of the shared expert
    top_k: int = 3
    load: dict = field(default_factory=dict)
    detours: bool = True  # whether their router goes through float32


DEEPSEEK = {"moe_intermediate_size": D_FF, "n_shared_experts": 2, "n_routed_experts": E,
            "routed_scaling_factor": 2.5, "norm_topk_prob": True}  # fmt: skip
V3 = {"scores": "sigmoid", "scale": 2.5, "num_groups": 4, "top_groups": 2, "best_in_group": 2,
      "correction": True}  # fmt: skip
IN_GROUPS = {"n_group": 4, "topk_group": 2}

FAMILIES = {
    "Mixtral": Family(
        "mixtral", "MixtralConfig", "MixtralSparseMoeBlock",
        {"num_local_experts": E, "intermediate_size": D_FF}
    ),
    "Qwen2-MoE": Family(
        "qwen2_moe", "Qwen2MoeConfig", "Qwen2MoeSparseMoeBlock",
        {"num_experts": E, "moe_intermediate_size": D_FF, "shared_expert_intermediate_size": 28,
         "norm_topk_prob": False},
        {"norm_topk": False}, {"shared_gate": True}, shared=28,
    ),
    "Qwen3-MoE": Family(
        "qwen3_moe", "Qwen3MoeConfig", "Qwen3MoeSparseMoeBlock",
        {"num_experts": E, "moe_intermediate_size": D_FF, "norm_topk_prob": True},
    ),
    "OLMoE": Family(
        "olmoe", "OlmoeConfig", "OlmoeSparseMoeBlock",
        {"num_experts": E, "intermediate_size": D_FF, "norm_topk_prob": False},
        {"norm_topk": False},
    ),
    "Granite-MoE": Family(
        "granitemoe", "GraniteMoeConfig", "GraniteMoeMoE",
        {"num_local_experts": E, "intermediate_size": D_FF}
    ),
    "DeepSeek-V2-Lite": Family(
        "deepseek_v2", "DeepseekV2Config", "DeepseekV2Moe", {**DEEPSEEK, "topk_method": "greedy"},
        {"norm_topk": False, "scale": 2.5}, shared=2 * D_FF,
    ),
    "DeepSeek-V2": Family(
        "deepseek_v2", "DeepseekV2Config", "DeepseekV2Moe",
        {**DEEPSEEK, **IN_GROUPS, "topk_method": "group_limited_greedy"},
        {"norm_topk": False, "scale": 2.5, "num_groups": 4, "top_groups": 2}, shared=2 * D_FF,
    ),
    "DeepSeek-V3": Family(
        "deepseek_v3", "DeepseekV3Config", "DeepseekV3MoE",
        {**DEEPSEEK, **IN_GROUPS}, V3, shared=2 * D_FF
    ),
    "GLM-4.5": Family(
        "glm4_moe", "Glm4MoeConfig", "Glm4MoeMoE", {**DEEPSEEK, "n_group": 1, "topk_group": 1},
        {**V3, "num_groups": 1, "top_groups": 1}, shared=2 * D_FF,
    ),
    "gpt-oss": Family(
        "gpt_oss", "GptOssConfig", "GptOssMLP", {"num_local_experts": E, "intermediate_size": D_FF},
        {"bias": True}, {"activation": "clamped_swiglu", "bias": True},
        load={"transposed": True, "interleaved": True}, detours=False,
    ),
    "Llama 4": Family(
        "llama4", "Llama4TextConfig", "Llama4TextMoe",
        {"num_local_experts": E, "intermediate_size": D_FF},
        {"scores": "sigmoid", "norm_topk": False}, {"scale_input": True}, shared=D_FF, top_k=1,
        load={"transposed": True},
    ),
    "Llama 4, two of eight": Family(
        "llama4", "Llama4TextConfig", "Llama4TextMoe",
        {"num_local_experts": E, "intermediate_size": D_FF},
        {"scores": "sigmoid", "norm_topk": False}, {"scale_input": True}, shared=D_FF, top_k=2,
        load={"transposed": True},
    ),
}  # fmt: skip
every_family = pytest.mark.parametrize("name", FAMILIES)


def made(name):
    """Their layer with random weights, ours with the same, and how the family is described."""
    family = FAMILIES[name]
    modeling = importlib.import_module(
        f"transformers.models.{family.module}.modeling_{family.module}"
    )
    config = getattr(transformers, family.config)(
        hidden_size=D,
        num_attention_heads=2,
        num_experts_per_tok=family.top_k,
        hidden_act="silu",
        **family.theirs,
    )
    config._experts_implementation = "eager"
    torch.manual_seed(3)
    theirs = getattr(modeling, family.layer)(config).double()
    with torch.no_grad():
        for tensor in [*theirs.parameters(), *theirs.buffers()]:
            tensor.normal_(std=0.5)
    return theirs, ours_with(family, theirs.state_dict()), family


def ours_with(family, state):
    router = Router(D, E, family.top_k, **family.router)
    shared = GatedFeedForward(D, family.shared) if family.shared else None
    ours = MixtureOfExperts(router, D_FF, **family.ours, shared=shared).double()
    return load_hf_experts(ours, state, **family.load)


def tokens(scale=1.0):
    x = scale * torch.randn(2, TOKENS, D, dtype=torch.float64, generator=seeded(5))
    return x.requires_grad_()


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def values_and_gradients(layer, x, upstream):
    """What comes out, and the gradients of x and of all parameters, by name."""
    y = layer(x)
    y = (y[0] if isinstance(y, tuple) else y).view_as(x)
    names, leaves = zip(*layer.named_parameters(), strict=True)
    grads = torch.autograd.grad(y, (x, *leaves), upstream)
    return y.detach(), grads[0], dict(zip(names, grads[1:], strict=True))


def apart(a, b):
    return ((a - b).abs().max() / b.abs().max()).item()


@every_family
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_values_and_gradients_are_theirs(name, scale):
    theirs, ours, family = made(name)
    x, upstream = tokens(scale), torch.randn(2, TOKENS, D, dtype=torch.float64)
    with InDouble() as double:
        want, want_x, want_all = values_and_gradients(theirs, x, upstream)
    assert bool(double.detours) is family.detours
    got, got_x, got_all = values_and_gradients(ours, x, upstream)
    assert want.abs().max() > 1e-3
    # Their gradients, put where our loader puts their weights.
    buffers = dict(theirs.named_buffers())
    placed = dict(ours_with(family, {**want_all, **buffers}).named_parameters())
    worst = max(
        apart(got, want), apart(got_x, want_x),
        *(apart(got_all[key], placed[key]) for key in got_all),
    )  # fmt: skip
    assert worst < 1e-10
    assert got_all.keys() == placed.keys()
    record(
        "oracle",
        f"20 {name} x {scale:g}",
        {
            "chapter": "20",
            "part": "MixtureOfExperts",
            "reference": f"transformers, {name}",
            "case": f"inputs of size {scale:g}",
            "dtype": "float64",
            "gradients": True,
            "error": worst,
            "tolerance": 1e-10,
        },
    )


@every_family
def test_the_chosen_experts_and_their_weights_are_theirs(name):
    theirs, ours, _ = made(name)
    router = getattr(theirs, "gate", None) or theirs.router
    x = tokens().detach().view(-1, D)
    with InDouble():
        got = router(x)
    routing = ours.router(x)
    if len(got) == 2:  # Llama 4: a weight for each expert, 0 for most
        assert apart(torch.zeros_like(got[0]).scatter(1, *ends(routing)), got[0]) < 1e-12
        return
    logits, weights, chosen = got
    assert apart(routing.logits, logits) < 1e-12
    # DeepSeek's topk is not sorted, so both go back to a row with a place for each expert.
    want = torch.zeros_like(logits).scatter(1, chosen, weights)
    assert apart(torch.zeros_like(logits).scatter(1, *ends(routing)), want) < 1e-12


def ends(routing):
    return routing.chosen, routing.weights


@pytest.mark.parametrize("name", [n for n, f in FAMILIES.items() if f.detours])
def test_the_detour_is_switched_off(name):
    """Left on, it hides the sixteen digits that are compared above."""
    theirs, ours, _ = made(name)
    x = tokens()
    with torch.no_grad():
        y = theirs(x)
        y = (y[0] if isinstance(y, tuple) else y).view_as(x)
        assert 1e-10 < apart(ours(x), y) < 1e-5


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("Mixtral", {"norm_topk": False}),
        ("Qwen2-MoE", {"norm_topk": True}),
        ("Granite-MoE", {"scores": "sigmoid"}),
        ("DeepSeek-V2", {"num_groups": 1, "top_groups": 1}),
        ("DeepSeek-V2", {"scale": 1.0}),
        ("DeepSeek-V3", {"best_in_group": 1}),
        ("Llama 4", {"scores": "softmax"}),
    ],
)
def test_another_router_is_another_layer(name, change):
    theirs, _, family = made(name)
    other = Family(**{**vars(family), "router": {**family.router, **change}})
    wrong = ours_with(other, theirs.state_dict())
    x = tokens()
    with torch.no_grad(), InDouble():
        y = theirs(x)
        y = (y[0] if isinstance(y, tuple) else y).view_as(x)
    assert apart(wrong(x), y) > 1e-3


@pytest.mark.parametrize("names", [("gate_proj", "up_proj", "down_proj"), ("w1", "w3", "w2")])
def test_experts_that_come_one_by_one_are_stacked(names):
    theirs, ours, family = made("Mixtral")
    state = dict(theirs.state_dict())
    whole = state.pop("experts.gate_up_proj"), state.pop("experts.down_proj")
    gate, up, down = names
    for e in reversed(range(E)):
        state[f"experts.{e}.{down}.weight"] = whole[1][e]
        state[f"experts.{e}.{up}.weight"] = whole[0][e, D_FF:]
        state[f"experts.{e}.{gate}.weight"] = whole[0][e, :D_FF]
    again = ours_with(family, state)
    for a, b in zip(again.parameters(), ours.parameters(), strict=True):
        assert torch.equal(a, b)
    del state[f"experts.2.{up}.weight"]
    with pytest.raises(ValueError, match="lacks a matrix of an expert"):
        ours_with(family, state)


def test_the_balance_loss_is_theirs_up_to_top_k():
    modeling = importlib.import_module("transformers.models.mixtral.modeling_mixtral")
    logits = torch.randn(50, E, generator=seeded(1))
    logits.requires_grad_()
    scores = logits.softmax(-1)
    ours = load_balancing_loss(scores, scores.topk(3).indices)
    theirs = modeling.load_balancing_loss_func((logits,), E, 3)
    torch.testing.assert_close(3 * ours, theirs, rtol=1e-6, atol=0)
    for a, b in zip(*(torch.autograd.grad(z, logits) for z in (3 * ours, theirs)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-9)


def test_the_layers_that_are_timed_have_the_same_values_and_gradients():
    result = bench_experts.against_hugging_face(
        lambda tasks, *_: {name: [1.0, 2.0, 3.0] for name in tasks}, tokens=20, d_model=16
    )
    assert [(row["experts"], row["top_k"]) for row in result["rows"]] == [(8, 2), (64, 8), (128, 8)]
    assert all(row["apart"] < 1e-5 for row in result["rows"])
