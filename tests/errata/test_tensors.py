"""What people get wrong about tensors and checks: each wrong form fails, the right one holds."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn


def test_e26_two_curves_that_overlap_are_not_equal():
    x = torch.linspace(-5, 5, 1001)
    official = F.gelu(x)
    by_tanh, by_erf = F.gelu(x, approximate="tanh"), x / 2 * (1 + torch.erf(x / math.sqrt(2)))
    pixel = (official.max() - official.min()) / 1000
    gap = (by_tanh - official).abs().max()
    # Drawn one over the other, 1,000 pixels tall, the curves are a tenth of a pixel apart ...
    assert gap < pixel / 10
    # ... yet they are different functions,
    assert 4.7e-4 < gap < 4.8e-4
    assert not torch.allclose(by_tanh, official)
    # and on a log axis the right one lies eleven decades lower.
    right = (by_erf - official).abs().max()
    assert right < 1e-15
    assert gap / right > 1e11


def test_e68_a_cell_that_needs_a_deleted_cell_fails_in_a_fresh_kernel():
    x = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    define = "def rms(x): return x / x.pow(2).mean(-1, keepdim=True).sqrt()"
    stale, right = "shown = ln(x)", "shown = rms(x)"
    # In the old session `ln` still exists, so the cell runs and shows something plausible.
    session = {"x": x, "ln": lambda x: F.layer_norm(x, (4,))}
    exec(f"{define}\n{stale}", session)
    expected = F.rms_norm(x, (4,), eps=0.0)
    assert (session["shown"] - expected).abs().max() > 1
    # Run in order from nothing, the same two cells stop.
    with pytest.raises(NameError, match="ln"):
        exec(f"{define}\n{stale}", {"x": x})
    fresh = {"x": x}
    exec(f"{define}\n{right}", fresh)
    torch.testing.assert_close(fresh["shown"], expected)


def test_e73_only_an_assigned_parameter_is_registered():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.assigned = nn.Parameter(torch.ones(2))
            self.in_a_list = [nn.Parameter(torch.ones(2))]
            self.in_a_parameter_list = nn.ParameterList([nn.Parameter(torch.ones(2))])
            self.plain = torch.ones(2, requires_grad=True)
            self.register_buffer("buffer", torch.ones(2))

    block = Block()
    # A class, not a method: and calling it registers nothing.
    assert isinstance(nn.Parameter, type)
    assert issubclass(nn.Parameter, torch.Tensor)
    registered = {name for name, _ in block.named_parameters()}
    assert not registered & {"in_a_list", "in_a_list.0", "plain", "buffer"}
    assert registered == {"assigned", "in_a_parameter_list.0"}
    assert set(block.state_dict()) == registered | {"buffer"}
    # An integer tensor is refused only because a gradient is asked for by default.
    whole = torch.ones(2, dtype=torch.int64)
    with pytest.raises(RuntimeError, match="floating point"):
        nn.Parameter(whole)
    block.fixed = nn.Parameter(whole, requires_grad=False)
    assert "fixed" in dict(block.named_parameters())
    assert "fixed" in block.state_dict()


def test_e91_a_product_that_lost_its_sign_is_another_number():
    a, b = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[5.0, 6.0], [7.0, 8.0]])
    as_printed = torch.tensor([[15.0, 26.0], [37.0, 48.0]])
    hadamard = torch.tensor([[5.0, 12.0], [21.0, 32.0]])
    assert (as_printed - a * b).abs().min() >= 10
    assert (a @ b - a * b).abs().min() >= 10
    torch.testing.assert_close(a @ b, torch.tensor([[19.0, 22.0], [43.0, 50.0]]))
    torch.testing.assert_close(a * b, hadamard)
    torch.testing.assert_close(torch.einsum("ij,ij->ij", a, b), hadamard)


def test_e92_attention_is_scaled_by_one_number():
    q, k, gate = torch.randn(4, 8), torch.randn(5, 8), torch.randn(4, 8)
    scores = q @ k.T
    # One number may be applied before or after the product of the matrices; a gate may not.
    torch.testing.assert_close((q / math.sqrt(8)) @ k.T, scores / math.sqrt(8))
    # It is a Hadamard product too, with equal entries, so the sign alone does not tell them apart.
    torch.testing.assert_close(torch.full((4, 5), 1 / math.sqrt(8)) * scores, scores / math.sqrt(8))
    gated_after = gate[:, :5] * scores
    assert ((gate * q) @ k.T - gated_after).abs().max() > 1
    # Where a Transformer does multiply entry by entry: the gain of a norm, a gate, dropout.
    weight, x = torch.randn(8), torch.randn(4, 8)
    torch.testing.assert_close(F.layer_norm(x, (8,), weight), weight * F.layer_norm(x, (8,)))
    torch.testing.assert_close(F.glu(x), x[:, :4] * torch.sigmoid(x[:, 4:]))
    dropped = F.dropout(x, p=0.25)
    mask = (dropped != 0).to(x.dtype)
    assert 0 < mask.sum() < mask.numel()
    torch.testing.assert_close(dropped, mask * x / 0.75)


def test_e93_the_gain_of_a_norm_needs_broadcasting():
    x, gain = torch.randn(3, 8), torch.randn(1, 8)
    # The textbook's Hadamard product is undefined for these shapes; torch repeats the row.
    assert gain.shape != x.shape
    torch.testing.assert_close(gain * x, gain.expand(3, 8) * x)
    # Broadcasting aligns the last axes, so a statistic without keepdim fails, or worse, does not.
    with pytest.raises(RuntimeError, match="must match"):
        x - x.mean(-1)
    square = torch.randn(4, 4)
    right = square - square.mean(-1, keepdim=True)
    assert ((square - square.mean(-1)) - right).abs().max() > 0.1
    assert right.mean(-1).abs().max() < 1e-15
    # And `*` between two objects of np.matrix is the matrix product.
    a, b = [[1, 2], [3, 4]], [[5, 6], [7, 8]]
    with pytest.warns(PendingDeprecationWarning):
        product = np.matrix(a) * np.matrix(b)
    assert (np.asarray(product) == np.array(a) @ np.array(b)).all()
    assert (np.asarray(product) != np.array(a) * np.array(b)).all()


def test_e121_linear_stores_the_transpose_and_multiplies_rows():
    linear, x = nn.Linear(3, 5), torch.randn(2, 3)
    assert linear.weight.shape == (5, 3)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        x @ linear.weight
    torch.testing.assert_close(linear(x), x @ linear.weight.T + linear.bias)
    # With a square weight the other reading raises nothing and is wrong.
    square, x = nn.Linear(4, 4, bias=False), torch.randn(2, 4)
    assert (x @ square.weight - square(x)).abs().max() > 0.1
    torch.testing.assert_close(square(x), x @ square.weight.T)
