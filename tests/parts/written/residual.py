"""Chapter 09: answers to its exercises that the checkers do not know."""

import math

import torch

from . import Right, Wrong


# test
def shapes_alone(block):
    x = torch.randn(2, 3)
    return block(x, torch.zeros_like, torch.zeros_like).shape == x.shape


def addition_alone(block):
    x = torch.tensor([[1.0, -2.0, 5.0]])
    return torch.equal(block(x, torch.zeros_like, lambda t: 3 * t), x)


def linear_parts(block):
    x = torch.tensor([[1.0, -2.0, 5.0]])
    return torch.equal(block(x, lambda t: 2 * t, lambda t: 3 * t), 7 * x)


def order_of_calls(block):
    calls = []
    block(
        torch.ones(1, 3),
        lambda t: (calls.append("sublayer"), t)[1],
        lambda t: (calls.append("norm"), t)[1],
    )
    return calls == ["norm", "sublayer"]


def the_same_object(block):
    x, y = torch.ones(1, 3), torch.zeros(1, 3)
    return block(x, lambda t: y, lambda t: t) is x


def with_random_functions(block):
    torch.manual_seed(0)
    a, b, x = torch.randn(4, 4), torch.randn(4, 4), torch.randn(5, 4)
    norm = lambda t: (t @ a).tanh() + 1  # noqa: E731
    sublayer = lambda t: (t @ b).cos()  # noqa: E731
    return torch.allclose(block(x, sublayer, norm), x + sublayer(norm(x)))


def with_numbers_to_tell_apart(block):
    x = torch.tensor([[7.0, 11.0]], dtype=torch.float64)
    got = block(x, lambda t: t**2 + 5, lambda t: t * 2 + 3)
    return bool((got == x + (2 * x + 3) ** 2 + 5).all())


# dead
def norms_of_the_whole(layers, x):
    x = x.detach().requires_grad_()
    streams = [x]
    for layer in layers:
        streams.append(layer(streams[-1]))
    grads = torch.autograd.grad(streams[-1].sum(), streams, allow_unused=True)
    return [n for n, g in enumerate(grads[:-1]) if g is None or not g.any()]


def sum_of_the_output(layers, x):
    dead = []
    for n, layer in enumerate(layers):
        leaf = x.detach().requires_grad_()
        x = layer(leaf)
        if not x.requires_grad:
            dead.append(n)
            continue
        (g,) = torch.autograd.grad(x.sum(), leaf, allow_unused=True)
        if g is None or g.abs().max() < 1e-3:
            dead.append(n)
    return dead


def the_first_alone(layers, x):
    dead = dead_by_backward(layers, x)
    return dead[:1]


def counted_from_one(layers, x):
    return [n + 1 for n in dead_by_backward(layers, x)]


def off_somewhere(layers, x):
    dead = []
    for n, layer in enumerate(layers):
        leaf = x.detach().requires_grad_()
        x = layer(leaf)
        g = None
        if x.requires_grad:
            (g,) = torch.autograd.grad((x * torch.randn_like(x)).sum(), leaf, allow_unused=True)
        if g is None or (g == 0).any():
            dead.append(n)
    return dead


def detached_alone(layers, x):
    dead = []
    for n, layer in enumerate(layers):
        x = layer(x.detach().requires_grad_())
        if not x.requires_grad:
            dead.append(n)
    return dead


def dead_by_backward(layers, x):
    dead = []
    for n, layer in enumerate(layers):
        leaf = x.detach().clone().requires_grad_()
        x = layer(leaf)
        if x.requires_grad:
            torch.autograd.backward(x, torch.rand_like(x) + 0.1)
        if leaf.grad is None or leaf.grad.count_nonzero() == 0:
            dead.append(n)
    return dead


def dead_by_a_jacobian(layers, x):
    dead = []
    for n, layer in enumerate(layers):
        jacobian = torch.autograd.functional.jacobian(layer, x.detach())
        if not jacobian.any():
            dead.append(n)
        x = layer(x.detach()).detach()
    return dead


# init
WRONG = [
    Wrong("residual.test", "shapes alone", shapes_alone, named="shapes only"),
    Wrong("residual.test", "the addition alone", addition_alone, named="a sub-layer of zeros only"),
    Wrong(
        "residual.test",
        "linear parts cannot tell the order",
        linear_parts,
        named="a norm and a sub-layer that commute",
    ),
    Wrong("residual.test", "the order of the calls alone", order_of_calls),
    Wrong("residual.test", "the same object", the_same_object),
    Wrong("residual.dead", "from the top alone", norms_of_the_whole),
    Wrong(
        "residual.dead", "a small gradient is none", sum_of_the_output, named="small taken for dead"
    ),
    Wrong("residual.dead", "the first alone", the_first_alone, named="only the first one"),
    Wrong("residual.dead", "counted from 1", counted_from_one, named="numbers from 1"),
    Wrong("residual.dead", "off somewhere", off_somewhere, named="dead if a single number is"),
    Wrong("residual.dead", "detached alone", detached_alone, named="only what autograd knows of"),
    Wrong(
        "residual.init",
        "not the root",
        lambda num_layers, branches, v, top: (top - 1) / (num_layers * branches * v),
        named="root forgotten",
    ),
    Wrong(
        "residual.init",
        "the top without the input",
        lambda num_layers, branches, v, top: (top / (num_layers * branches * v)) ** 0.5,
        named="the input forgotten",
    ),
    Wrong(
        "residual.init",
        "two branches",
        lambda num_layers, branches, v, top: ((top - 1) / (2 * num_layers * v)) ** 0.5,
    ),
    Wrong(
        "residual.init",
        "top is 2",
        lambda num_layers, branches, v, top: (num_layers * branches * v) ** -0.5,
    ),
    Wrong(
        "residual.init",
        "v outside of the root",
        lambda num_layers, branches, v, top: ((top - 1) / (num_layers * branches)) ** 0.5 / v,
    ),
]


def init_by_logarithms(num_layers, branches, v, top):
    if top == 1:
        return 0.0
    return math.exp(0.5 * (math.log(top - 1) - math.log(num_layers * branches * v)))


def init_by_shares(num_layers, branches, v, top):
    share = (top - 1) / num_layers / branches
    return math.sqrt(share / v)


RIGHT = [
    Right("residual.test", "random functions", with_random_functions),
    Right("residual.test", "numbers to tell apart", with_numbers_to_tell_apart),
    Right("residual.dead", "backward", dead_by_backward),
    Right("residual.dead", "a Jacobian", dead_by_a_jacobian),
    Right("residual.init", "logarithms", init_by_logarithms),
    Right("residual.init", "a branch's share", init_by_shares),
]
