"""Attention against torch's operators, over shapes, dtypes and masks; and the error messages."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from transformer_parts import attention as ours
from transformer_parts.tensors import assert_parity, gradcheck64

F64 = torch.float64
LENGTHS = st.integers(1, 6)
LEADS = st.sampled_from([(), (1,), (3,), (2, 3)])


def draw(seed, *shape, dtype=F64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64).to(dtype)


def mask_of(kind, t, s, seed):
    allowed = draw(seed, t, s) > 0  # rows without a key are likely, and welcome
    if kind == "boolean":
        return {"attn_mask": allowed}
    if kind == "additive":
        return {"attn_mask": draw(seed + 1, t, s).masked_fill(~allowed, -torch.inf)}
    return {"is_causal": True} if kind == "causal" else {}


@settings(max_examples=60)
@given(
    lead=LEADS, t=LENGTHS, s=LENGTHS, d=LENGTHS, d_v=LENGTHS, seed=st.integers(0, 99),
    kind=st.sampled_from(["none", "boolean", "additive", "causal"]),
    # Positive: with `is_causal` and another scale torch's fused kernel gives nan.
    scale=st.sampled_from([None, 1e-3, 0.5, 30.0]),
)  # fmt: skip
def test_values_and_gradients_equal_torchs(lead, t, s, d, d_v, seed, kind, scale):
    q, k, v = draw(seed, *lead, t, d), draw(seed + 1, *lead, s, d), draw(seed + 2, *lead, s, d_v)
    options = {"scale": scale, **mask_of(kind, t, s, seed)}
    assert_parity(
        lambda *qkv: ours.scaled_dot_product_attention(*qkv, **options),
        lambda *qkv: F.scaled_dot_product_attention(*qkv, **options),
        q, k, v, atol=1e-10, rtol=1e-10,
    )  # fmt: skip
    options.pop("scale")
    gradient = draw(seed + 3, *lead, t, d_v)
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    out = F.scaled_dot_product_attention(*leaves, **options)
    official = torch.autograd.grad(out, leaves, gradient)
    by_hand = ours.attention_backward(gradient, q, k, v, **options)
    torch.testing.assert_close(by_hand, official, atol=1e-11, rtol=1e-11)


def test_the_output_minimises_squared_distances_and_not_distances():
    query, key, value = draw(0, 1, 4), draw(1, 5, 4), draw(2, 5, 3)
    weights = ours.attention_weights(query, key)[0]
    out = ours.scaled_dot_product_attention(query, key, value)[0]

    def slope(power):
        leaf = out.clone().requires_grad_()
        far = (value - leaf).norm(dim=-1) ** power
        return torch.autograd.grad((weights * far).sum(), leaf)[0].norm()

    assert slope(2) < 1e-14
    assert slope(1) > 1e-2


@pytest.mark.parametrize("n", [2, 5, 64])
def test_a_large_trace_of_the_jacobian_may_be_spread_over_many_directions(n):
    weights = torch.full((n,), 1 / n, dtype=F64)
    jacobian = torch.diag(weights) - torch.outer(weights, weights)
    assert jacobian.trace() == pytest.approx(1 - 1 / n)
    eigenvalues = torch.linalg.eigvalsh(jacobian)  # in ascending order
    expected = torch.full((n,), 1 / n, dtype=F64)
    expected[0] = 0
    torch.testing.assert_close(eigenvalues, expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_every_dtype_gives_torchs_values_in_the_same_dtype(dtype):
    q, k, v = (draw(i, 2, 3, 9, 16, dtype=dtype) for i in range(3))
    assert_parity(
        lambda *qkv: ours.scaled_dot_product_attention(*qkv, is_causal=True),
        lambda *qkv: F.scaled_dot_product_attention(*qkv, is_causal=True),
        q, k, v,
    )  # fmt: skip
    assert ours.attention_weights(q, k).dtype == dtype


def test_scores_that_overflow_float16_are_computed_in_float32():
    q = torch.full((1, 8), 200.0, dtype=torch.float16)
    out = ours.scaled_dot_product_attention(q, torch.cat([q, -q]), torch.cat([q, -q]))
    assert out.tolist() == [[200.0] * 8]


def test_no_keys_and_no_queries_are_no_error():
    q, none = draw(0, 2, 3, 4), draw(1, 2, 0, 4)
    assert torch.equal(ours.scaled_dot_product_attention(q, none, none), torch.zeros(2, 3, 4).to(q))
    assert ours.scaled_dot_product_attention(none, q, q).shape == (2, 0, 4)


def test_weights_sum_to_one_or_to_zero_without_a_nan_on_the_way():
    q, k = draw(0, 3, 4).requires_grad_(), draw(1, 5, 4)
    mask = torch.ones(3, 5, dtype=torch.bool)
    mask[1] = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the mode warns that it is slow
        anomaly = torch.autograd.detect_anomaly(check_nan=True)
    with anomaly:
        weights = ours.attention_weights(q, k, mask)
        weights.pow(2).sum().backward()
    torch.testing.assert_close(weights.detach().sum(-1), torch.tensor([1.0, 0.0, 1.0], dtype=F64))
    assert q.grad.isfinite().all()


# ---------------------------------------------------------------- masks


@given(t=st.integers(0, 6), s=st.integers(0, 6))
def test_causal_masks_are_cut_out_of_the_square_one(t, s):
    square = torch.tensor([[j <= i for j in range(6)] for i in range(6)])
    assert torch.equal(ours.causal_mask(t, s, align="top-left"), square[:t, :s])
    places = torch.arange(t)[:, None] + s - t
    assert torch.equal(ours.causal_mask(t, s), torch.arange(s) <= places)


def test_padding_mask_marks_the_tokens():
    expected = torch.tensor([[1, 1, 0], [0, 0, 0], [1, 1, 1]]).bool()
    assert torch.equal(ours.padding_mask([2, 0, 3], 3), expected)
    assert torch.equal(ours.padding_mask(torch.tensor([2, 0, 3]), 3), expected)


# ---------------------------------------------------------------- heads


def test_heads_are_cut_out_of_the_features_and_put_back():
    x = draw(0, 2, 5, 12)
    heads = ours.split_heads(x, 3)
    assert heads.shape == (2, 3, 5, 4)
    assert torch.equal(heads[:, 1], x[..., 4:8])
    assert torch.equal(ours.merge_heads(heads), x)


def pair(d_model, num_heads, **options):
    official = nn.MultiheadAttention(d_model, num_heads, batch_first=True, **options).double()
    for i, p in enumerate(official.parameters()):
        p.data = 0.5 * draw(i, *p.shape)  # torch's biases start at zero, which would hide them
    mine = ours.MultiHeadAttention(d_model, num_heads, **options).double()
    return mine.load_from_torch(official), official


@settings(max_examples=25)
@given(
    heads=st.integers(1, 4), d_head=st.integers(1, 4), t=LENGTHS, s=LENGTHS, bias=st.booleans(),
    additive=st.booleans(), seed=st.integers(0, 99),
)  # fmt: skip
def test_multi_head_attention_equals_torchs(heads, d_head, t, s, bias, additive, seed):
    mine, official = pair(heads * d_head, heads, bias=bias)
    x, y = draw(seed, 2, t, heads * d_head), draw(seed + 1, 2, s, heads * d_head)
    tokens = ours.padding_mask([s, 1], s)
    allowed = draw(seed + 2, t, s) > 0
    allowed[:, 0] = True
    added = torch.zeros(t, s, dtype=F64).masked_fill(~allowed, -torch.inf)
    padded = torch.zeros(2, s, dtype=F64).masked_fill(~tokens, -torch.inf)
    theirs = (added, padded) if additive else (~allowed, ~tokens)
    assert_parity(
        lambda x, y: mine(x, y, y, added if additive else allowed, tokens),
        lambda x, y: official(x, y, y, attn_mask=theirs[0], key_padding_mask=theirs[1])[0],
        x, y, atol=1e-10,
    )  # fmt: skip


def test_a_sequence_of_padding_gives_the_bias_of_the_output():
    mine, _ = pair(6, 2)
    x = draw(0, 2, 4, 6)
    out = mine(x, x, x, key_padding_mask=ours.padding_mask([4, 0], 4), is_causal=True)
    torch.testing.assert_close(out[1], mine.out_proj.bias.expand(4, 6))


def test_a_mask_per_head_reaches_its_head():
    mine, official = pair(6, 2)
    x = draw(0, 3, 4, 6)
    mask = draw(1, 3, 2, 4, 4) > 0
    mask[..., 0] = True
    theirs = official(x, x, x, attn_mask=~mask.flatten(0, 1), need_weights=False)[0]
    torch.testing.assert_close(mine(x, x, x, attn_mask=mask), theirs)


def test_dropout_drops_weights_in_training_only():
    mine, official = pair(8, 2, dropout=0.5)
    x = draw(0, 2, 5, 8)
    torch.manual_seed(3)
    out = mine(x, x, x)
    torch.manual_seed(3)
    torch.testing.assert_close(out, official(x, x, x)[0])
    mine.eval()
    assert torch.equal(mine(x, x, x), mine(x, x, x))
    assert (mine(x, x, x) - out).abs().max() > 0.01


def test_finite_differences_agree_with_the_gradient_of_the_module():
    mine, _ = pair(4, 2)
    gradcheck64(lambda x: mine(x, x, x, is_causal=True), draw(0, 1, 3, 4))


# ---------------------------------------------------------------- errors

Q, K5, X, Y = draw(0, 2, 3, 4), draw(1, 2, 5, 4), draw(0, 2, 3, 8), draw(0, 2, 5, 8)
MHA = ours.MultiHeadAttention(8, 2).double()
BAD_CALLS = {
    "query_len must be at least 0, got -1": lambda: ours.causal_mask(-1, 3),
    "align must be": lambda: ours.causal_mask(2, 3, align="left"),
    r"lengths must have shape \(B,\), got \(1, 2\)": lambda: ours.padding_mask([[1, 2]], 3),
    r"from 0 to max_len=3, got \[4\]": lambda: ours.padding_mask([4], 3),
    r"got \(2, 3, 4\) and \(2, 3\)": lambda: ours.attention_weights(Q, Q[..., 0]),
    "one row per key": lambda: ours.scaled_dot_product_attention(Q, K5, Q),
    "attn_mask must be None if is_causal": lambda: ours.attention_weights(
        Q, Q, torch.ones(3, 3), is_causal=True
    ),
    r"broadcast to \(2, 3, 5\), got \(5, 3\)": lambda: ours.attention_weights(
        Q, K5, torch.ones(5, 3)
    ),
    "boolean or floating, got torch.int64": lambda: ours.attention_weights(
        Q, K5, torch.ones(3, 5, dtype=torch.int64)
    ),
    "floating-point dtype, got torch.int64": lambda: ours.attention_weights(Q.long(), K5.long()),
    r"grad_out must have shape \(2, 3, 4\)": lambda: ours.attention_backward(K5, Q, K5, K5),
    r"value must start with \(2,\)": lambda: ours.attention_backward(Q, Q, K5, K5[0]),
    "num_heads=3, got": lambda: ours.split_heads(X, 3),
    r"\(B, H, T, d_head\), got": lambda: ours.merge_heads(X),
    "multiple of num_heads, got 8 and 3": lambda: ours.MultiHeadAttention(8, 3),
    "dropout must be from 0 to 1": lambda: ours.MultiHeadAttention(8, 2, dropout=1.5),
    r"query must have shape \(B, positions, 8\)": lambda: MHA(Q, X, X),
    r"key and value must have shape \(2, S, 8\)": lambda: MHA(X, X, Y),
    r"\(T, S\) or \(B, H, T, S\), got \(2, 3, 3\)": lambda: MHA(X, X, X, torch.ones(2, 3, 3)),
    "is_causal needs as many queries as keys, got 3 and 5": lambda: MHA(X, Y, Y, is_causal=True),
    "None if is_causal=True$": lambda: MHA(X, X, X, torch.ones(3, 3), is_causal=True),
    r"boolean of shape \(2, 5\), got torch.float64": lambda: MHA(
        X, Y, Y, key_padding_mask=torch.ones(2, 5, dtype=F64)
    ),
    "official must have no kdim": lambda: MHA.load_from_torch(nn.MultiheadAttention(8, 2, kdim=3)),
    r"= \(8, 2, True\), got \(8, 4, True\)": lambda: MHA.load_from_torch(
        nn.MultiheadAttention(8, 4)
    ),
}


@pytest.mark.parametrize("message", BAD_CALLS)
def test_bad_input_is_named(message):
    with pytest.raises(ValueError, match=message):
        BAD_CALLS[message]()
