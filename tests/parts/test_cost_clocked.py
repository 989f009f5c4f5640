"""What was measured on GPUs: it is there, it says where it comes from, and it can be true."""

import pytest

from book.accelerator import clocked
from book.accelerator.clock import SEVEN
from book.facts import fact
from transformer_parts.cost import forward_bound, linear_flops


@pytest.mark.parametrize("name", ["h100", "h200"])
def test_nothing_is_faster_than_the_data_sheet_allows(name):
    seen = clocked(name)
    assert name.upper() in seen["device"]
    assert seen["torch"]
    assert seen["date"]
    top, speed = 1e12 * fact(name, "peak_tflops"), 1e12 * fact(name, "bandwidth_tbs")
    assert 0.5 * speed < seen["ceilings"]["copy"] < speed
    assert 0.5 * top < seen["ceilings"]["product"] < top
    for one in seen["decoding"]["steps"]:
        bound = forward_bound(SEVEN, one["batch"], 1, one["context"] + 1, top, speed)
        assert bound < one["graph"] < one["eager"]
    for one in seen["tiles"]:
        assert one["seconds"] > linear_flops(one["n"], one["n"], one["n"]) / top
    for one in seen["attention"]:
        assert one["fused"] < one["plain"]


def test_another_device_is_an_error():
    with pytest.raises(ValueError, match="must be one of h100, h200, got 'tpu'"):
        clocked("tpu")
