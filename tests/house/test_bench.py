"""The benchmark without the clock: that all candidates compute the same, and the report's form."""

import json

import pytest
import torch

from book import bench

SMALL = bench.Size(batch=2, length=6, d_model=16, num_heads=4, num_kv_heads=2, d_ff=24)
NAMES = ["RMSNorm", "apply_rotary_emb", "GatedFeedForward", "GroupedQueryAttention", "DecoderBlock"]


@pytest.fixture
def still(monkeypatch):
    """A clock that only counts how often it was read."""
    ticks = iter(range(1, 10**9))
    monkeypatch.setattr(bench.time, "perf_counter", lambda: float(next(ticks)))


def test_the_five_parts_each_have_the_books_candidate_first_and_others():
    made = bench.parts(SMALL)
    assert [part.name for part in made] == NAMES
    for part in made:
        assert next(iter(part.candidates)) == "this book"
        assert len(part.candidates) >= 3
        assert part.compile in part.candidates
        assert set(part.order) <= set(part.candidates)


def test_the_default_size_is_the_one_that_is_promised():
    size = bench.Size()
    assert (size.batch, size.length, size.d_model, bench.LIMIT) == (4, 512, 512, 1.15)


@pytest.mark.parametrize("number", range(len(NAMES)), ids=NAMES)
def test_all_candidates_have_the_same_values_and_gradients(number):
    apart = bench.disagreement(bench.parts(SMALL)[number])
    assert len(apart) >= 3
    assert max(apart.values()) < 2e-5, apart


def test_a_candidate_with_another_gradient_is_seen():
    part = bench.parts(SMALL)[0]
    wrong = {**part.candidates, "detached": lambda x: part.candidates["plain"](x.detach()) + 0 * x}
    apart = bench.disagreement(
        bench.Part(part.name, part.x, part.parameters, wrong, part.order, part.compile)
    )
    assert apart["plain"] < 1e-5
    assert apart["detached"] > 0.5


def test_every_parameter_gets_a_gradient():
    for part in bench.parts(SMALL):
        y = part.candidates["this book"](part.x)
        grads = torch.autograd.grad(y.sum(), (part.x, *part.parameters))
        assert all(g.isfinite().all() for g in grads)


def test_tasks_are_timed_in_turn(still):
    order = []
    tasks = {name: lambda name=name: order.append(name) for name in "ab"}
    times = bench.alternate(tasks, rounds=3, seconds=0.0)
    assert "".join(order[-6:]) == "baabba"
    assert {name: len(t) for name, t in times.items()} == {"a": 3, "b": 3}


def test_the_report_and_the_json_have_every_row(still, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(bench, "compiler", lambda: None)
    monkeypatch.setattr(bench, "decoding", lambda *_: {"skipped": "not asked"})
    monkeypatch.setattr(
        bench.bench_experts, "against_hugging_face", lambda *_: {"skipped": "nor this"}
    )
    monkeypatch.setattr(
        bench.bench_families, "against_hugging_face", lambda *_: {"skipped": "nor these"}
    )
    file = tmp_path / "bench.json"
    bench.main(["--quick", "--json", str(file)])
    result = json.loads(file.read_text())
    want = [(part.name, name) for part in bench.parts(SMALL) for name in part.candidates]
    assert [(row["part"], row["candidate"]) for row in result["rows"]] == want
    for row in result["rows"]:
        assert row["milliseconds"] > 0
        assert row["low"] <= row["ratio"] <= row["high"]
    out = capsys.readouterr().out
    assert "no C++ compiler found" in out
    assert out.count("this book") == len(NAMES)
    assert "left out: not asked" in out
    assert "left out: nor this" in out
    assert "left out: nor these" in out
    assert all(name in out for name in NAMES)
    assert result["header"]["torch"] == torch.__version__


def test_decoding_is_left_out_with_a_reason_without_transformers(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    assert "pip install transformers" in bench.decoding()["skipped"]


def test_the_report_says_when_a_part_is_too_slow():
    row = {"part": "p", "candidate": "this book", "milliseconds": 1.0, "ratio": 1.3, "low": 1.2,
           "high": 1.4, "note": ""}  # fmt: skip
    about = {"header": bench.header(SMALL), "compiled": True, "rows": [row]}
    assert "NO" in bench.report(about)
    assert "yes" in bench.report({**about, "rows": [{**row, "ratio": 1.1}]})
    slow = {"same_tokens": False, "times_faster": 1.2, "low": 1.0, "high": 1.3}
    assert "the same tokens: NO" in bench.report({**about, "decoding": slow})


def test_the_report_says_whether_the_experts_are_as_fast_and_the_same():
    row = {"experts": 8, "top_k": 2, "apart": 1e-6, "forward": [1.0, 1.1, 1.2],
           "both": [1.5, 1.8, 2.0]}  # fmt: skip
    [*_, said] = bench.bench_experts.report({"rows": [row]})
    assert "forward  1.10   with backward  1.80 (1.50 to 2.00)   at least 1: yes" in said
    assert "the same results: yes" in said
    [*_, slow] = bench.bench_experts.report({"rows": [{**row, "forward": [0.8, 0.9, 1.0]}]})
    assert "at least 1: NO" in slow
    [*_, other] = bench.bench_experts.report({"rows": [{**row, "apart": 1e-3}]})
    assert "the same results: NO" in other


def test_experts_are_left_out_with_a_reason_without_transformers(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    assert "pip install" in bench.bench_experts.against_hugging_face(bench.alternate)["skipped"]


def test_the_report_says_whether_families_are_as_fast_and_the_same():
    row = {"family": "gpt2", "apart": 1e-6, "same_tokens": True, "both": [0.9, 1.0, 1.1],
           "decode": [1.2, 1.5, 1.6]}  # fmt: skip
    [*_, said] = bench.bench_families.report({"rows": [row]})
    assert "gpt2     forward and backward  1.00 of their time (0.90 to 1.10)" in said
    assert "decoding  1.50 times as fast" in said
    assert said.count("yes") == 2
    for bad in ({"both": [1.0, 1.2, 1.3]}, {"decode": [1.0, 1.1, 1.6]}):
        [*_, slow] = bench.bench_families.report({"rows": [{**row, **bad}]})
        assert "at least 1.2: NO" in slow
    for bad in ({"apart": 1e-3}, {"same_tokens": False}):
        [*_, other] = bench.bench_families.report({"rows": [{**row, **bad}]})
        assert "the same results: NO" in other


def test_families_are_left_out_with_a_reason_without_transformers(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    assert "pip install" in bench.bench_families.against_hugging_face(bench.alternate)["skipped"]
