"""The memories of chapter 24: three forms, states, gradients, half precision, and bad input."""

import pytest
import torch
import torch.nn.functional as F

from transformer_parts.recurrence import (
    GatedDeltaNet,
    KimiDeltaAttention,
    LayerState,
    LightningAttention,
    Mamba2,
    affine,
    associative_scan,
    causal_conv,
    delta_rule,
    l2_norm,
    linear_attention,
    selective_scan,
)

FORMS = [("recurrent", 64), ("parallel", 64), ("chunked", 64), ("chunked", 5), ("chunked", 1)]


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rows(t, lead=(2, 3), d_k=5, d_v=4):
    q, k, v = draw(*lead, t, d_k, seed=1), draw(*lead, t, d_k, seed=2), draw(*lead, t, d_v, seed=3)
    return q, l2_norm(k), v, draw(*lead, d_k, d_v, seed=4)


def decays(kind, k):
    shape = {"none": None, "by token": k.shape[:-1], "by feature": k.shape}[kind]
    return None if shape is None else -draw(*shape, seed=5).abs()


def loop(q, k, v, g, beta, memory):
    """One token after the other, by einsum."""
    outs = []
    for t in range(q.shape[-2]):
        if g is not None:
            fade = g[..., t, :] if g.dim() == q.dim() else g[..., t, None]
            memory = fade.exp()[..., None] * memory
        write = v[..., t, :]
        if beta is not None:
            read = torch.einsum("...d,...de->...e", k[..., t, :], memory)
            write = beta[..., t, None] * (write - read)
        memory = memory + torch.einsum("...d,...e->...de", k[..., t, :], write)
        outs.append(torch.einsum("...d,...de->...e", q[..., t, :], memory))
    return torch.stack(outs, -2), memory


@pytest.mark.parametrize("decay", ["none", "by token", "by feature"])
@pytest.mark.parametrize("corrects", [False, True])
def test_every_form_is_the_loop_with_its_gradients(decay, corrects):
    q, k, v, start = rows(13)
    g, beta = decays(decay, k), draw(2, 3, 13, seed=6).sigmoid() if corrects else None
    leaves = [x.requires_grad_() for x in (q, k, v, start, g, beta) if x is not None]
    want, end = loop(q, k, v, g, beta, start)
    weigh, late = draw(*want.shape, seed=7), draw(*end.shape, seed=8)
    slopes = torch.autograd.grad((want * weigh).sum() + (end * late).sum(), leaves)
    for form, size in FORMS:
        how = {"form": form, "chunk_size": size}
        if corrects:
            have, memory = delta_rule(q, k, v, beta, g, start, **how)
        else:
            have, memory = linear_attention(q, k, v, g, start, **how)
        assert (have - want).abs().max() < 1e-10
        assert (memory - end).abs().max() < 1e-10
        own = torch.autograd.grad((have * weigh).sum() + (memory * late).sum(), leaves)
        assert all((a - b).abs().max() < 1e-10 for a, b in zip(own, slopes, strict=True))


@pytest.mark.parametrize(("form", "size"), FORMS)
def test_a_text_in_pieces_is_the_text_at_once(form, size):
    q, k, v, start = rows(11)
    beta, g = draw(2, 3, 11, seed=6).sigmoid(), decays("by token", k)
    before = start.clone()
    want, end = delta_rule(q, k, v, beta, g, start, form=form, chunk_size=size)
    memory, outs = start, []
    for part in (slice(0, 4), slice(4, 4), slice(4, 5), slice(5, 11)):
        pieces = q[..., part, :], k[..., part, :], v[..., part, :], beta[..., part], g[..., part]
        out, memory = delta_rule(*pieces, memory, form=form, chunk_size=size)
        outs.append(out)
    assert (torch.cat(outs, -2) - want).abs().max() < 1e-12
    assert (memory - end).abs().max() < 1e-12
    assert torch.equal(start, before)


def test_no_token_and_no_sequence():
    for shape in ((2, 0, 5), (0, 7, 5)):
        x = torch.zeros(shape)
        out, memory = linear_attention(x, x, x)
        assert out.shape == shape
        assert memory.shape == (shape[0], 5, 5)


def test_a_strong_decay_neither_overflows_nor_loses_its_gradient():
    q, k, v, start = rows(40)
    g = torch.full((2, 3, 40), -60.0, dtype=torch.float64).requires_grad_()
    for form, size in FORMS:
        out, memory = linear_attention(q, k, v, g, start, form=form, chunk_size=size)
        assert torch.allclose(out, (q * k).sum(-1, keepdim=True) * v, atol=1e-12)
        (slope,) = torch.autograd.grad(out.sum() + memory.sum(), g)
        assert slope.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(dtype):
    q, k, v, _ = (x.to(dtype) for x in rows(50))
    beta = torch.full(q.shape[:-1], 0.5, dtype=dtype)
    out, memory = delta_rule(q, k, v, beta)
    wide, _ = delta_rule(q.float(), k.float(), v.float(), beta.float())
    assert out.dtype == dtype
    assert memory.dtype == torch.float32
    assert torch.equal(out, wide.to(dtype))


def test_a_key_of_length_one_reads_its_value_after_a_whole_step():
    _, k, v, start = rows(9)
    ones = torch.ones(2, 3, 9, dtype=torch.float64)
    out, _ = delta_rule(k, k, v, ones, state=start)
    assert (out - v).abs().max() < 1e-5  # l2_norm has 1e-6 in its root


@pytest.mark.parametrize("length", [1, 2, 3, 8, 13, 100])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_a_scan_is_the_loop_also_where_order_matters(length, dim):
    a, b = draw(length, length, length), draw(length, length, length, seed=1)
    if length > 20:
        a, b = a[:, :2, :2] if dim == 0 else a[:2, :, :2] if dim == 1 else a[:2, :2], None
        b = torch.ones_like(a)
    decay, states = associative_scan(affine, (a, b), dim)
    h, product = torch.zeros(()), torch.ones(())
    for t in range(length):
        h = a.select(dim, t) * h + b.select(dim, t)
        product = product * a.select(dim, t)
        assert torch.allclose(states.select(dim, t), h, rtol=1e-9, atol=1e-9)
        assert torch.allclose(decay.select(dim, t), product, rtol=1e-9, atol=1e-12)


def test_a_scan_joins_matrices_from_left_to_right():
    a = draw(7, 3, 3)
    (products,) = associative_scan(lambda x, y: (y[0] @ x[0],), (a,))
    want = a[0]
    for t in range(1, 7):
        want = a[t] @ want
    assert torch.allclose(products[-1], want)


def space(t=17, e=4, n=3):
    u, dt = draw(2, t, e, seed=1), draw(2, t, e, seed=2).exp()
    return u, dt, -draw(e, n).exp(), draw(2, t, n, seed=3), draw(2, t, n, seed=4), draw(e, seed=5)


def test_every_form_of_a_selective_scan_has_the_same_gradients():
    u, dt, a, b, c, d = (x.requires_grad_() for x in space())
    start = draw(2, 4, 3, seed=6).requires_grad_()
    results = []
    for form, size in FORMS:
        out, h = selective_scan(u, dt, a, b, c, d, start, form=form, chunk_size=size)
        slopes = torch.autograd.grad(out.square().sum() + h.sum(), [u, dt, a, b, c, d, start])
        results.append((out, h, *slopes))
    for other in results[1:]:
        assert all((x - y).abs().max() < 1e-10 for x, y in zip(results[0], other, strict=True))


def test_a_state_space_with_one_rate_is_linear_attention():
    u, dt, _, b, c, _ = space()
    step, a = dt[..., :1], torch.full((4, 3), -0.7, dtype=torch.float64)
    want, _ = selective_scan(u, step.expand_as(u), a, b, c)
    have, _ = linear_attention(c, b, step * u, -0.7 * step[..., 0])
    assert (have - want).abs().max() < 1e-10


def test_the_convolution_goes_on_where_it_stopped():
    x, weight, bias = draw(2, 9, 6), draw(6, 1, 4, seed=1), draw(6, seed=2)
    want = F.conv1d(x.mT, weight, bias, padding=3, groups=6).mT[:, :9]
    state, outs = None, []
    for piece in x.split([2, 1, 6], 1):
        out, state = causal_conv(piece, weight, bias, state)
        outs.append(out)
    assert torch.allclose(torch.cat(outs, 1), want)
    assert causal_conv(x, weight[..., -1:])[1].shape == (2, 0, 6)


def layers():
    torch.manual_seed(0)
    return {
        "lightning": LightningAttention(12, 3, 4, torch.tensor([1.0, 0.3, 0.0])),
        "gated delta": GatedDeltaNet(12, 2, 4, 3, 5, kernel=3),
        "kimi": KimiDeltaAttention(12, 3, 4),
        "mamba": Mamba2(12, 5, 4, 3, num_groups=2),
    }


@pytest.mark.parametrize("name", layers())
def test_a_layer_in_steps_and_pieces_is_the_layer_at_once(name):
    layer, x = layers()[name].double(), draw(2, 21, 12)
    with torch.no_grad():
        want, end = layer(x)
        for sizes in ([1] * 21, [4, 1, 9, 7], [21]):
            for form, size in FORMS[:4]:
                state, outs = None, []
                for piece in x.split(sizes, 1):
                    out, state = layer(piece, state, form, size)
                    outs.append(out)
                assert (torch.cat(outs, 1) - want).abs().max() < 1e-10
        states = [end, state] if name == "lightning" else [end.memory, state.memory]
        assert (states[0] - states[1]).abs().max() < 1e-10


@pytest.mark.parametrize("name", layers())
def test_a_layer_is_causal_and_every_parameter_learns(name):
    layer, x = layers()[name].double(), draw(2, 9, 12)
    changed = x.clone()
    changed[:, 5:] += 1.0
    out = layer(x)[0]
    assert torch.equal(out[:, :5], layer(changed)[0][:, :5])
    out.square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in layer.parameters())


@pytest.mark.parametrize("name", layers())
def test_a_refused_step_leaves_the_state_as_it_was(name):
    layer, x = layers()[name].double(), draw(2, 5, 12)
    with torch.no_grad():
        _, state = layer(x)
        kept = [state] if name == "lightning" else list(state)
        before = [part.clone() for part in kept]
        for wrong in (draw(2, 1, 11), draw(3, 1, 12), draw(2, 12)):
            with pytest.raises(ValueError, match="shape"):
                layer(wrong, state)
        assert all(torch.equal(a, b) for a, b in zip(kept, before, strict=True))
        once, _ = layer(x[:, :1], state)
        again, _ = layer(x[:, :1], state)
        assert torch.equal(once, again)


@pytest.mark.parametrize("name", layers())
def test_a_layer_in_bfloat16_and_on_no_device(name):
    layer, x = layers()[name], draw(2, 6, 12).float()
    with torch.no_grad():
        want = layer(x)[0]
        half, state = layer.bfloat16()(x.bfloat16())
        assert half.dtype == torch.bfloat16
        assert (state if name == "lightning" else state.memory).dtype == torch.float32
        assert (half.float() - want).norm() < 0.15 * want.norm()
        assert layer.to("meta")(x.bfloat16().to("meta"))[0].shape == x.shape


def test_what_does_not_fit_is_said():
    q, k, v, start = rows(6)
    one = torch.ones(2, 3, 6)
    cases = [
        (lambda: linear_attention(q[..., :4], k, v), r"query, key and value .*\(2, 3, 6, 4\)"),
        (lambda: linear_attention(q, k, v[..., :5, :]), "query, key and value"),
        (lambda: linear_attention(q[0, 0, 0], k[0, 0, 0], v[0, 0, 0]), "query, key and value"),
        (lambda: linear_attention(q, k, v, one[..., :5]), r"log_decay .*\(2, 3, 5\)"),
        (lambda: linear_attention(q, k, v, None, start.mT), r"state .*\(2, 3, 5, 4\), got"),
        (lambda: linear_attention(q, k, v, form="fast"), "form .*'fast'"),
        (lambda: linear_attention(q, k, v, chunk_size=0), "chunk_size .*0"),
        (lambda: linear_attention(q.int(), k.int(), v.int()), "floating-point dtype.*int32"),
        (lambda: delta_rule(q, k, v, one[0]), r"beta .*\(2, 3, 6\), got \(3, 6\)"),
        (lambda: associative_scan(affine, ()), "xs"),
        (lambda: associative_scan(affine, (one, one[:1])), "one length"),
        (lambda: causal_conv(draw(2, 5, 3), draw(4, 1, 3)), r"x .*4"),
        (lambda: causal_conv(draw(2, 5, 4), draw(4, 1, 3), None, draw(2, 3, 4)), "inputs before"),
        (lambda: LightningAttention(8, 2, 4, torch.ones(3)), r"rates .*\(2,\).*\(3,\)"),
        (lambda: GatedDeltaNet(8, 2, 3, 4, 4), "num_v_heads .*3"),
        (lambda: Mamba2(8, 4, 3, 4, num_groups=2), "num_heads .*3"),
        (lambda: KimiDeltaAttention(8, 0, 4), "num_heads .*0"),
    ]
    for number in range(5):
        parts = list(space()[:5])
        parts[number] = parts[number][..., :-1]
        cases.append((lambda p=parts: selective_scan(*p), "u, delta, A, B, C"))
    cases.append((lambda: selective_scan(*space(), draw(2, 3, 4)), r"state .*\(2, 3, 4\)"))
    for call, says in cases:
        with pytest.raises(ValueError, match=says):
            call()


def test_a_state_is_a_pair_with_names():
    state = GatedDeltaNet(12, 2, 4, 3, 5, kernel=3)(torch.randn(2, 7, 12))[1]
    assert isinstance(state, LayerState)
    assert state.conv.shape == (2, 2, 2 * 6 + 20)
    assert state.memory.shape == (2, 4, 3, 5)
