"""Mixtures of experts: against a loop over tokens, one by one, and what the parts refuse."""

import math
from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from transformer_parts.experts import (
    MixtureOfExperts,
    Router,
    clamped_swiglu,
    expert_load,
    load_balancing_loss,
    load_hf_experts,
    router_z_loss,
    update_correction,
)
from transformer_parts.feed_forward import GatedFeedForward

F64 = torch.float64


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def layer(experts=5, top_k=2, d=6, d_ff=4, router=None, **how):
    return MixtureOfExperts(Router(d, experts, top_k, **(router or {})), d_ff, **how).double()


def draw(*shape):
    return torch.randn(*shape, dtype=F64)


# ---------------------------------------------------------------- the layer


def one_by_one(moe, x, gate):
    """Every token through every expert that its router chose."""
    rows, out = x.reshape(-1, x.shape[-1]), []
    for row in rows:
        weights, chosen, *_ = moe.router(row)
        y = torch.zeros_like(row)
        for weight, i in zip(weights[0], chosen[0].tolist(), strict=True):
            fed = weight * row if moe.scale_input else row
            both = moe.w_in[i] @ fed
            if moe.b_in is not None:
                both = both + moe.b_in[i]
            d_ff = len(both) // 2
            made = moe.w_down[i] @ gate(both[:d_ff], both[d_ff:])
            if moe.b_down is not None:
                made = made + moe.b_down[i]
            y = y + (made if moe.scale_input else weight * made)
        if moe.shared is not None:
            always = moe.shared(row)
            if moe.shared_gate is not None:
                always = always / (1 + (-(moe.shared_gate.weight[0] @ row)).exp())
            y = y + always
        out.append(y)
    return torch.stack(out).view(x.shape)


GATES = {
    "silu": lambda a, u: a / (1 + (-a).exp()) * u,
    "gelu": lambda a, u: a * (1 + torch.erf(a / math.sqrt(2))) / 2 * u,
    "relu": lambda a, u: a.clamp(min=0) * u,
    "clamped_swiglu": lambda a, u: (
        (u.clamp(-7, 7) + 1) * a.clamp(max=7) / (1 + (-1.702 * a.clamp(max=7)).exp())
    ),
}
VARIANTS = {
    "plain": {},
    "one expert": {"top_k": 1, "router": {"norm_topk": False}},
    "all experts": {"top_k": 5},
    "gelu": {"activation": "gelu"},
    "relu and biases": {"activation": "relu", "bias": True},
    "clamped, biases": {"activation": "clamped_swiglu", "bias": True, "router": {"bias": True}},
    "scaled input": {"scale_input": True, "router": {"scores": "sigmoid", "norm_topk": False}},
    "shared": {"shared": GatedFeedForward(6, 3)},
    "shared with a gate": {"shared": nn.Linear(6, 6), "shared_gate": True},
    "groups": {
        "experts": 8,
        "top_k": 3,
        "router": {
            "scores": "sigmoid", "scale": 2.5, "num_groups": 4, "top_groups": 2,
            "best_in_group": 2, "correction": True,
        },
    },
}  # fmt: skip


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("shape", [(7, 6), (2, 3, 6), (6,)])
def test_values_and_gradients_are_those_of_a_loop(name, shape):
    how = VARIANTS[name]
    moe = layer(**how)
    with torch.no_grad():
        for p in moe.parameters():
            p.normal_()
    x, upstream = draw(*shape).requires_grad_(), draw(*shape)
    want = one_by_one(moe, x, GATES[how.get("activation", "silu")])
    got = moe(x)
    torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)
    leaves = [x, *moe.parameters()]
    found, wanted = (
        torch.autograd.grad(y, leaves, upstream, allow_unused=True, materialize_grads=True)
        for y in (got, want)
    )
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_an_expert_that_nobody_chose_has_a_gradient_of_zero():
    moe = layer(experts=6, top_k=1, router={"norm_topk": False})
    x = draw(2, 6)
    used = set(moe.router(x).chosen.flatten().tolist())
    moe(x).sum().backward()
    for i in range(6):
        assert bool(moe.w_in.grad[i].any()) is (i in used)


def test_no_token_is_dropped_if_all_want_the_same():
    moe = layer(experts=4, top_k=1, router={"norm_topk": False, "bias": True})
    with torch.no_grad():
        moe.router.bias[2] = 100.0
    x = draw(50, 6)
    assert Counter(moe.router(x).chosen.flatten().tolist()) == {2: 50}
    assert (moe(x).abs().sum(-1) > 0).all()
    torch.testing.assert_close(moe(x), one_by_one(moe, x, GATES["silu"]))


def test_a_token_does_not_depend_on_its_neighbors():
    moe, x = layer(), draw(9, 6)
    torch.testing.assert_close(moe(x)[[4]], moe(x[[4]]), rtol=1e-12, atol=1e-14)
    order = torch.randperm(9)
    torch.testing.assert_close(moe(x)[order], moe(x[order]), rtol=1e-12, atol=1e-14)


def test_a_routing_that_is_known_is_used():
    moe, x = layer(), draw(4, 6)
    routing = moe.router(x)
    assert torch.equal(moe(x, routing), moe(x))
    doubled = routing._replace(weights=2 * routing.weights)
    torch.testing.assert_close(moe(x, doubled), 2 * moe(x))
    with pytest.raises(ValueError, match=r"routing is of 4 tokens, but x, \(3, 6\), has 3"):
        moe(x[:3], routing)


def test_no_token_is_no_error():
    moe = layer(shared=GatedFeedForward(6, 3))
    assert moe(draw(0, 6)).shape == (0, 6)
    assert moe(draw(2, 0, 6)).shape == (2, 0, 6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_keeps_its_dtype_and_routes_in_float32(dtype):
    moe = layer().to(dtype)
    x = torch.randn(30, 6).to(dtype)
    routing = moe.router(x)
    assert routing.weights.dtype == routing.logits.dtype == torch.float32
    y = moe(x)
    assert y.dtype == dtype
    exact = moe.float()(x.float())
    torch.testing.assert_close(y.float(), exact, rtol=0.03, atol=0.02)


# ---------------------------------------------------------------- the router


def test_renormalised_softmax_is_softmax_over_the_chosen():
    router, x = Router(6, 8, 3).double(), draw(20, 6)
    weights, chosen, _, logits = router(x)
    torch.testing.assert_close(weights, logits.gather(-1, chosen).softmax(-1))
    torch.testing.assert_close(logits, x @ router.weight.T)
    assert (logits.gather(-1, chosen).amin(-1) >= logits.topk(4).values[:, 3]).all()


def test_weights_that_are_not_renormalised_are_the_scores():
    router, x = Router(6, 8, 3, norm_topk=False, scale=1.5).double(), draw(20, 6)
    weights, chosen, scores, _ = router(x)
    torch.testing.assert_close(weights, 1.5 * scores.gather(-1, chosen))
    assert (weights.sum(-1) < 1.5).all()


def test_saturated_scores_are_chosen_by_their_logits():
    """In float32 the sigmoid of 20 and of 30 are both 1."""
    router = Router(3, 4, 1, scores="sigmoid", norm_topk=False)
    with torch.no_grad():
        router.weight.copy_(torch.tensor([[20.0, 0, 0], [30, 0, 0], [25, 0, 0], [-9, 0, 0]]))
    assert router(torch.tensor([[1.0, 0, 0]])).chosen.tolist() == [[1]]


def test_the_correction_changes_the_choice_and_no_weight():
    router = Router(6, 5, 2, scores="sigmoid", norm_topk=False, correction=True).double()
    x = draw(40, 6)
    before = router(x)
    router.correction[3] = 10.0
    after = router(x)
    assert (after.chosen == 3).any(-1).all()
    assert not (before.chosen == 3).any(-1).all()
    assert torch.equal(before.scores, after.scores)
    torch.testing.assert_close(after.weights, after.scores.gather(-1, after.chosen))
    assert "correction" in dict(router.named_buffers())
    assert "correction" not in dict(router.named_parameters())


@pytest.mark.parametrize("best", [1, 2, 3])
def test_what_is_chosen_lies_in_the_best_groups(best):
    router = Router(
        6, 12, 4, scores="sigmoid", num_groups=4, top_groups=2, best_in_group=best, correction=True
    ).double()
    router.correction.copy_(-2 + draw(12))  # all that is compared is negative
    x = draw(30, 6)
    routing = router(x)
    for row, chosen in zip(routing.scores + router.correction, routing.chosen, strict=True):
        blocks = row.view(4, 3).tolist()
        value = [sum(sorted(block)[-best:]) for block in blocks]
        kept = sorted(range(4), key=lambda g: value[g])[-2:]
        left = sorted((i for i in range(12) if i // 3 in kept), key=lambda i: -row[i])
        assert sorted(chosen.tolist()) == sorted(left[:4])


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"scores": "tanh"}, "scores must be one of softmax, sigmoid, got 'tanh'"),
        ({"num_groups": 3}, "8 experts in num_groups = 3"),
        ({"num_groups": 4, "top_groups": 5}, "top_groups = 5"),
        ({"num_groups": 4, "best_in_group": 3}, "best_in_group must be from 1 to 2"),
        ({"top_k": 9}, "top_k must be from 1 to 8"),
        ({"top_k": 0}, "top_k must be from 1 to 8"),
        ({"top_k": 3, "num_groups": 4}, "top_k must be from 1 to 2"),
    ],
)
def test_a_router_that_cannot_be(how, said):
    with pytest.raises(ValueError, match=said):
        Router(6, 8, **{"top_k": 2, **how})


def test_a_layer_that_cannot_be():
    with pytest.raises(ValueError, match="activation must be one of silu"):
        layer(activation="tanh")
    with pytest.raises(ValueError, match="needs a shared expert"):
        layer(shared_gate=True)
    with pytest.raises(ValueError, match=r"x must have shape \(\*, 6\), got \(2, 5\)"):
        layer()(draw(2, 5))
    with pytest.raises(ValueError, match=r"x must have shape \(\*, 6\), got \(\)"):
        layer().router(torch.tensor(1.0, dtype=F64))


# ---------------------------------------------------------------- balance


def test_the_balance_loss_of_an_even_load_is_one():
    chosen = torch.tensor([[0, 1], [2, 3], [1, 2], [3, 0]])
    scores = draw(4, 4).softmax(-1)
    torch.testing.assert_close(load_balancing_loss(scores, chosen), torch.tensor(1.0, dtype=F64))


def test_the_balance_loss_is_the_sum_written_out_and_moves_towards_balance():
    logits = draw(50, 6)
    logits[:, 0] += 2
    logits.requires_grad_()
    scores = logits.softmax(-1)
    chosen = logits.topk(2).indices
    counts = Counter(chosen.flatten().tolist())
    want = 6 * sum(counts[i] / 100 * scores[:, i].mean() for i in range(6))
    got = load_balancing_loss(scores, chosen)
    torch.testing.assert_close(got, want)
    assert got > 1.2
    (found,) = torch.autograd.grad(got, logits)
    assert found[:, 0].sum() > 0  # downhill the busy expert loses
    steps = logits.detach().clone().requires_grad_()
    for _ in range(300):
        scores = steps.softmax(-1)
        pulled = load_balancing_loss(scores, steps.topk(2).indices)
        (g,) = torch.autograd.grad(pulled, steps)
        steps = (steps - 5 * g).detach().requires_grad_()
    assert load_balancing_loss(steps.softmax(-1), steps.topk(2).indices) < 1.05


def test_the_z_loss():
    logits = draw(7, 5)
    want = sum(math.log(sum(math.exp(v) for v in row)) ** 2 for row in logits.tolist()) / 7
    assert math.isclose(router_z_loss(logits).item(), want, rel_tol=1e-12)


def test_the_correction_moves_by_steps_of_one_size():
    router = Router(3, 4, 1, correction=True)
    update_correction(router, torch.tensor([[0], [0], [0], [1], [2], [2]]), 0.1)
    torch.testing.assert_close(router.correction, torch.tensor([-0.1, 0.1, -0.1, 0.1]))
    update_correction(router, torch.tensor([[0], [1], [2], [3]]), 0.1)  # even: nothing moves
    torch.testing.assert_close(router.correction, torch.tensor([-0.1, 0.1, -0.1, 0.1]))
    with pytest.raises(ValueError, match="make it with correction=True"):
        update_correction(Router(3, 4, 1), torch.tensor([[0]]), 0.1)


def test_corrections_even_out_a_router_that_prefers_one():
    router = Router(4, 5, 1, scores="sigmoid", norm_topk=False, correction=True, bias=True)
    with torch.no_grad():
        router.bias[1] = 3.0
    x = torch.randn(400, 4)
    assert expert_load(router(x).chosen, 5)[1] > 200
    for _ in range(400):
        update_correction(router, router(x).chosen, 0.005)
    load = expert_load(router(x).chosen, 5)
    assert load.max() < 1.3 * 80
    assert load.sum() == 400


def test_loads_and_what_they_refuse():
    assert expert_load(torch.tensor([[0, 3], [3, 1]]), 5).tolist() == [1, 1, 0, 2, 0]
    assert expert_load(torch.zeros(0, 2, dtype=torch.long), 3).tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="experts from 0 to 2, got 0 to 3"):
        expert_load(torch.tensor([0, 3]), 3)
    with pytest.raises(ValueError, match="got -1 to 1"):
        expert_load(torch.tensor([-1, 1]), 3)
    with pytest.raises(ValueError, match=r"got \(3, 4\) and \(2, 1\)"):
        load_balancing_loss(torch.zeros(3, 4), torch.zeros(2, 1, dtype=torch.long))
    with pytest.raises(ValueError, match="chosen is empty"):
        load_balancing_loss(torch.zeros(0, 4), torch.zeros(0, 1, dtype=torch.long))


# ---------------------------------------------------------------- gate and loading


def test_the_clamped_gate():
    gate = torch.tensor([9.0, 7.0, -9.0, 0.5], dtype=F64)
    up = torch.tensor([-9.0, 9.0, 2.0, -0.5], dtype=F64)
    got = clamped_swiglu(gate, up)
    sigmoid = [1 / (1 + math.exp(-1.702 * a)) for a in (7, 7, -9, 0.5)]
    want = [-6 * 7 * sigmoid[0], 8 * 7 * sigmoid[1], 3 * -9 * sigmoid[2], 0.25 * sigmoid[3]]
    torch.testing.assert_close(got, torch.tensor(want, dtype=F64))
    torch.testing.assert_close(
        clamped_swiglu(gate, up, alpha=1.0, limit=100.0), (up + 1) * F.silu(gate)
    )


def test_a_state_that_does_not_fit():
    moe = layer(experts=3)
    state = {
        "gate.weight": draw(3, 6),
        "experts.gate_up_proj": draw(3, 8, 6),
        "experts.down_proj": draw(3, 6, 4),
    }
    assert load_hf_experts(moe, state) is moe
    assert torch.equal(moe.w_in, state["experts.gate_up_proj"])
    with pytest.raises(ValueError, match=r"not known: 'experts\.norm'"):
        load_hf_experts(moe, {**state, "experts.norm": draw(3)})
    with pytest.raises(ValueError, match=r"does not fit this layer: (?s:.)*w_down"):
        load_hf_experts(moe, {**state, "experts.down_proj": draw(3, 4, 6)})
    with pytest.raises(ValueError, match=r"does not fit this layer: (?s:.)*Missing"):
        load_hf_experts(moe, {"gate.weight": draw(3, 6)})
    with pytest.raises(ValueError, match=r"does not fit this layer: (?s:.)*Unexpected"):
        load_hf_experts(moe, {**state, "shared_expert_gate.weight": draw(1, 6)})
