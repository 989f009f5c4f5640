"""Every part under torch's transformations.

Compiled, exported, mapped, differentiated forwards, made without memory, copied, in half precision.
What holds is recorded for the page that shows how the book is checked.
"""

import contextlib
import copy
import importlib
import pickle
import warnings

import pytest
import torch
from torch.func import functional_call, grad, jvp, stack_module_state, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformable import ELSEWHERE, FUNCTIONS, MODULES, Function

from book.accelerator.parts import flat
from book.measured import record
from transformer_parts.decoder import DecoderOnlyTransformer, ModelConfig, generate

B, T = 2, 5
PARTS = {part.name: part for part in MODULES + FUNCTIONS}


@pytest.fixture(autouse=True)
def double():
    before, fast = torch.get_default_dtype(), torch.backends.mha.get_fastpath_enabled()
    torch.set_default_dtype(torch.float64)
    # The fused layer of nn.TransformerEncoderLayer has no derivative forwards.
    torch.backends.mha.set_fastpath_enabled(False)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(before)
    torch.backends.mha.set_fastpath_enabled(fast)
    torch._dynamo.reset()


def same(have, want, atol=1e-10):
    for a, b in zip(flat(have), flat(want), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=atol, equal_nan=True)


def loss(value):
    return sum((t.square() + 0.3 * t).sum() for t in flat(value) if t.is_floating_point())


def stacked(values):
    if isinstance(values[0], torch.Tensor):
        return torch.stack(values)
    return tuple(stacked([v[i] for v in values]) for i in range(len(values[0])))


def learned(module, args):
    """What to differentiate by: the parameters, or the floating-point inputs; and the function."""
    parameters = {k: v.detach() for k, v in module.named_parameters()}
    if parameters:
        return parameters, lambda p, a: functional_call(module, p, a)
    numbers = {i: a for i, a in enumerate(args) if _floating(a)}
    return numbers, lambda p, a: module(*(p.get(i, one) for i, one in enumerate(a)))


def _floating(value):
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def differentiable(module, args):
    values, call = learned(module, args)
    leaves = {k: v.detach().clone().requires_grad_() for k, v in values.items()}
    return any(t.requires_grad for t in flat(call(leaves, args)))


# ---------------------------------------------------------------- the transformations


def compiled(part):
    """torch.compile(fullgraph=True), values and gradients; Dynamo and AOTAutograd, no code made."""
    module, args = part.make().eval(), part.inputs(B, T)
    fast = torch.compile(module, fullgraph=True, backend="aot_eager")
    same(fast(*args), module(*args))
    values = list(module.parameters()) or [a.requires_grad_() for a in args if _floating(a)]
    if differentiable(module, args):
        want = torch.autograd.grad(loss(module(*args)), values, allow_unused=True)
        have = torch.autograd.grad(loss(fast(*args)), values, allow_unused=True)
        for a, b in zip(have, want, strict=True):
            assert (a is None) == (b is None)
            assert a is None or torch.allclose(a, b, rtol=0, atol=1e-10)


def exported(part):
    """torch.export with dynamic batch and length, run with others."""

    def dynamic(value):
        if isinstance(value, torch.Tensor):
            return dict.fromkeys(range(0 if part.fixed else value.dim()), torch.export.Dim.AUTO)
        return tuple(dynamic(v) for v in value)

    module, args = part.make().eval(), part.inputs(3, 6)
    shapes = tuple(dynamic(a) for a in args)
    program = torch.export.export(
        module, args, dynamic_shapes=(shapes,) if isinstance(module, Function) else shapes
    )
    run = program.module()
    for b, t in [(3, 6)] if part.fixed else [(3, 6), (2, 4), (5, 9)]:
        others = part.inputs(b, t)
        same(run(*others), module(*others))


def mapped(part):
    """Vmap over a batch of inputs."""
    module, several = part.make().eval(), [part.inputs(B, T) for _ in range(3)]
    have = vmap(lambda *args: module(*args))(*stacked(several))
    want = [flat(module(*args)) for args in several]
    same(have, [torch.stack(ones) for ones in zip(*want, strict=True)])


def mapped_gradients(part):
    """vmap(grad): the gradient of each example."""
    module, several = part.make().eval(), [part.inputs(B, T) for _ in range(3)]
    if not differentiable(module, several[0]):
        return False
    _, call = learned(module, several[0])
    total = lambda args, values: loss(call(values, args))  # noqa: E731
    every = [learned(module, args)[0] for args in several]
    batch = {k: torch.stack([one[k] for one in every]) for k in every[0]}
    have = vmap(grad(total, argnums=1))(stacked(several), batch)
    for i, (args, values) in enumerate(zip(several, every, strict=True)):
        leaves = {k: v.clone().requires_grad_() for k, v in values.items()}
        want = torch.autograd.grad(
            total(args, leaves), list(leaves.values()), allow_unused=True, materialize_grads=True
        )
        same([have[k][i] for k in values], list(want))
    return True


def ensemble(part):
    """Vmap over the parameters of several models and one input."""
    models = [part.make().eval() for _ in range(3)]
    parameters, buffers = stack_module_state(models)
    if not parameters:
        return False
    args = part.inputs(B, T)
    have = vmap(lambda p, b: functional_call(models[0], (p, b), args))(parameters, buffers)
    want = [flat(one(*args)) for one in models]
    same(have, [torch.stack(ones) for ones in zip(*want, strict=True)])
    return True


def forwards(part):
    """jvp, against the difference quotient; torch's attention has it in its plain kernel only."""
    module, args = part.make().eval(), part.inputs(B, T)
    if not differentiable(module, args):
        return False
    values, call = learned(module, args)
    tangent = {k: torch.randn_like(v) for k, v in values.items()}
    with sdpa_kernel(SDPBackend.MATH):
        _, have = jvp(lambda p: call(p, args), (values,), (tangent,))
        h = 1e-6
        ends = [
            flat(call({k: v + sign * h * tangent[k] for k, v in values.items()}, args))
            for sign in (1, -1)
        ]
    moved = [(a - b) / (2 * h) if _floating(a) else 0 * a for a, b in zip(*ends, strict=True)]
    same(have, moved, atol=1e-5)
    return True


def without_memory(part, assign=False):
    """Made on meta, given memory and the weights of another: the same outputs."""
    module, args = part.make().eval(), part.inputs(B, T)
    with torch.device("meta"):
        empty = part.make().eval()

    def shapes(value):
        return value.to("meta") if isinstance(value, torch.Tensor) else tuple(map(shapes, value))

    want = module(*args)
    found = flat(empty(*shapes(args)))
    assert [(t.shape, t.dtype) for t in found] == [(t.shape, t.dtype) for t in flat(want)]
    if not assign:
        empty.to_empty(device="cpu")
        for t in (*empty.parameters(), *(b for b in empty.buffers() if b.is_floating_point())):
            assert not t.is_meta
    empty.load_state_dict(module.state_dict(), assign=assign)
    same(empty(*args), want)


def assigned(part):
    """Made on meta, load_state_dict(assign=True)."""
    without_memory(part, assign=True)


def copied(part):
    """deepcopy: equal, and nothing shared."""
    module, args = part.make().eval(), part.inputs(B, T)
    twin = copy.deepcopy(module)
    same(twin(*args), module(*args))
    mine = {t.data_ptr() for t in module.parameters()}
    assert not mine & {t.data_ptr() for t in twin.parameters()}


def pickled(part):
    """pickle, forth and back."""
    module, args = part.make().eval(), part.inputs(B, T)
    if isinstance(module, Function):
        return False  # a function is pickled by its name
    same(pickle.loads(pickle.dumps(module))(*args), module(*args))
    return True


def autocast(part):
    """Autocast in bfloat16, forward and backward: near float32, with gradients."""
    torch.set_default_dtype(torch.float32)
    module = part.make().eval()
    args = tuple(_single(a) for a in part.inputs(B, T))
    values = list(module.parameters()) or [a.requires_grad_() for a in args if _floating(a)]
    with torch.autocast("cpu", torch.bfloat16):
        have = module(*args)
    want = module(*args)
    for a, b in zip(flat(have), flat(want), strict=True):
        torch.testing.assert_close(a.float(), b.float(), rtol=0.1, atol=0.1)
    if values and any(t.requires_grad for t in flat(have)):
        found = torch.autograd.grad(loss(have), values, allow_unused=True)
        assert all(bool(g.isfinite().all()) for g in found if g is not None)


def _single(value):
    if isinstance(value, torch.Tensor):
        return value.float() if value.is_floating_point() else value
    return tuple(map(_single, value))


TRANSFORMATIONS = {
    "compile": compiled,
    "export": exported,
    "vmap": mapped,
    "vmap(grad)": mapped_gradients,
    "vmap over models": ensemble,
    "jvp": forwards,
    "meta, to_empty": without_memory,
    "meta, assign": assigned,
    "deepcopy": copied,
    "pickle": pickled,
    "autocast": autocast,
}
# A function has no state to make, copy or stack.
OF_MODULES = {"vmap over models", "meta, to_empty", "meta, assign", "deepcopy", "pickle"}


@pytest.mark.parametrize("name", PARTS)
def test_a_part_under_every_transformation(name):
    part, found = PARTS[name], {}
    tried = {k: v for k, v in TRANSFORMATIONS.items() if part in MODULES or k not in OF_MODULES}
    for kind, transformation in tried.items():
        there = None
        with warnings.catch_warnings(), contextlib.ExitStack() as stack:
            warnings.simplefilter("ignore")
            if kind in part.cannot:
                stack.enter_context(pytest.raises(Exception))
            there = transformation(part)
        found[kind] = part.cannot.get(kind, "" if there is False else "yes")
        torch.manual_seed(0)
        torch.set_default_dtype(torch.float64)
    record("transformation", name, found)


def test_every_public_name_is_tried_or_said_to_take_no_tensors():
    for module in sorted({name.split(".")[0] for name in PARTS}):
        public = set(importlib.import_module(f"transformer_parts.{module}").__all__)
        tried = {n.split(".")[1].split(",")[0] for n in PARTS if n.startswith(f"{module}.")}
        left = set(ELSEWHERE.get(module, "").split())
        assert public == tried | left
        assert not tried & left


@pytest.mark.parametrize(
    "name", ["decoder.DecoderOnlyTransformer", "decoder.DecoderOnlyTransformer, latent"]
)
@pytest.mark.parametrize("use_cache", [True, False])
def test_generate_under_autocast(name, use_cache):
    torch.set_default_dtype(torch.float32)
    model, prompt = PARTS[name].make(), torch.tensor([[1, 2, 3], [4, 5, 6]])
    with torch.autocast("cpu", torch.bfloat16):
        out = generate(model, prompt, 5, temperature=0, use_cache=use_cache)
    assert out.shape == (2, 8)


def test_sinusoids_that_left_meta_are_those_of_a_model_made_with_memory():
    config = ModelConfig(11, 8, 1, 2, max_seq_len=16, position="sinusoidal")
    with torch.device("meta"):
        model = DecoderOnlyTransformer(config)
    model.to_empty(device="cpu")
    want = DecoderOnlyTransformer(config).positions.pe
    torch.testing.assert_close(model.positions.pe, want, rtol=0, atol=0)


def test_tokens_outside_the_vocabulary_are_refused_where_they_are_not_looked_at():
    embed = PARTS["embeddings.TokenEmbedding"].make()
    fast = torch.compile(embed, fullgraph=True, backend="aot_eager")
    for bad in (-1, 11):
        with pytest.raises((IndexError, RuntimeError)):
            fast(torch.tensor([bad, 1, 2]))
