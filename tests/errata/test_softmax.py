"""What people get wrong about softmax: each wrong form fails, the right one holds."""

import math

import torch
import torch.nn.functional as F


def gap(a, b):
    return (a - b).abs().max().item()


def test_e19_softmax_takes_the_whole_row():
    z = torch.tensor([2.0, 1.0, 0.0])
    p = z.softmax(0)
    # Taken literally, the softmax of one number is 1, whatever the number.
    one_by_one = torch.stack([t.reshape(1).softmax(0) for t in z]).squeeze(1)
    assert one_by_one.tolist() == [1.0, 1.0, 1.0]
    assert gap(one_by_one, p) > 0.3
    assert gap(z.exp() / z.exp().sum(), p) < 1e-15
    # Another score changes this weight too.
    other = torch.tensor([2.0, 1.0, 3.0]).softmax(0)
    assert [round(v, 2) for v in (p[0].item(), other[0].item())] == [0.67, 0.24]


def test_e21_equal_rows_and_a_printout_are_no_test():
    equal = torch.tensor([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]])
    unequal = torch.tensor([[1.0, 2.0, 3.0], [3.0, 1.0, 0.0]])

    def mixes_the_rows(x):
        return x.mean(0, keepdim=True).softmax(1).expand_as(x)

    assert gap(mixes_the_rows(equal), equal.softmax(1)) < 1e-15
    assert gap(mixes_the_rows(unequal), unequal.softmax(1)) > 0.3
    assert (equal.softmax(0) == 0.5).all()
    # What has to be tried: large scores ...
    big = torch.tensor([1000.0, 1001.0])
    assert (big.exp() / big.exp().sum()).isnan().all()
    stable = (big - big.max()).exp() / (big - big.max()).exp().sum()
    assert [round(v, 4) for v in stable.tolist()] == [0.2689, 0.7311]
    assert gap(stable, big.softmax(0)) < 1e-15
    # ... and a row without any score, where torch's own functions disagree.
    assert torch.full((1, 3), -math.inf).softmax(1).isnan().all()
    q, may_attend = torch.randn(1, 2, 4), torch.tensor([[True, True], [False, False]])
    out = F.scaled_dot_product_attention(q, q, q, attn_mask=may_attend)
    assert (out[0, 1] == 0).all()


def test_e97_a_loss_on_top_of_a_softmax_has_a_floor():
    d, target = 100, torch.tensor([7])
    z = torch.zeros(1, d)
    z[0, 7] = 5.57

    def loss(scores):
        return F.cross_entropy(scores, target).item()

    assert [round(v, 2) for v in (loss(z), loss(z.softmax(1)))] == [0.32, 3.89]
    # The surer the model, the closer to zero with scores, to the floor with weights.
    floor = math.log(math.e + d - 1) - 1
    assert round(floor, 2) == 3.62
    assert loss(100 * z) < 1e-12
    assert abs(loss((100 * z).softmax(1)) - floor) < 1e-12
    random = 10 * torch.randn(1000, d)
    losses = F.cross_entropy(random.softmax(1), target.expand(1000), reduction="none")
    assert losses.min() > floor
    # Sure and wrong: nothing is learned any more.
    wrong = F.one_hot(torch.tensor([0]), d) * 20.0

    def slope(last):
        scores = wrong.clone().requires_grad_()
        (grad,) = torch.autograd.grad(F.cross_entropy(last(scores), target), scores)
        return grad.norm().item()

    assert round(slope(lambda s: s), 2) == 1.41
    assert slope(lambda s: s.softmax(1)) < 1e-6
