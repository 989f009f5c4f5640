"""The library of chapter 23: blocks, schedules, drafts, formats and teams, against another way."""

import itertools
import math

import pytest
import torch

from book.own import encode, own_model
from book.own.draft import ngram_draft
from book.own.tokens import END_ID
from book.stories import stories
from book.together import in_one_piece, split, together
from transformer_parts.decoder import DecoderOnlyTransformer, ModelConfig, generate
from transformer_parts.kv_cache import KVCache
from transformer_parts.serving import (
    FORMATS,
    BlockPool,
    Job,
    QuantizedKVCache,
    Scheduler,
    Server,
    paged_forward,
    pipeline_step,
    quantize,
    round_to_format,
    round_to_mx,
    shard,
    simulate,
    speculate,
    speculative_accept,
    tensor_parallel,
)

DOUBLE = torch.float64


def drawn(seed=0, **changes):
    """Two layers with grouped queries and random weights."""
    sizes = {"num_kv_heads": 2, "d_ff": 48, "max_seq_len": 96, **changes}
    torch.manual_seed(seed)
    model = DecoderOnlyTransformer(ModelConfig(206, 32, 2, 4, **sizes))
    return model.double().requires_grad_(False)


@pytest.fixture(scope="module")
def models():
    return {"own": own_model().double().requires_grad_(False), "drawn": drawn()}


def prompts(count, seed="tests", longest=30):
    told = itertools.islice(stories(seed), count)
    return [encode(s.words)[: 4 + (5 * n) % longest] for n, s in enumerate(told)]


def alone(model, prompt, new, eos=None):
    return generate(model, torch.tensor([prompt]), new, temperature=0, eos=eos)[0].tolist()


# ---------------------------------------------------------------- the pool


@pytest.mark.parametrize("name", ["own", "drawn"])
@pytest.mark.parametrize("size", [1, 3, 16])
def test_a_batch_of_unequal_texts_has_the_logits_of_each_alone(models, name, size):
    model, texts = models[name], prompts(3)
    pool = BlockPool.for_model(model, 64, size)
    opened = [pool.open() for _ in texts]
    for sequence, text in zip(opened, texts, strict=True):
        paged_forward(model, pool, [sequence], torch.tensor([text[:-2]]))
    got = paged_forward(model, pool, opened, torch.tensor([t[-2:] for t in texts]))
    for row, text in zip(got, texts, strict=True):
        want = model(torch.tensor([text]))[0, -2:]
        assert torch.allclose(row, want, 0, 1e-11)
    assert pool.num_blocks - pool.free_blocks == sum(math.ceil(len(t) / size) for t in texts)


def test_forks_share_until_they_write_and_each_keeps_its_past(models):
    model, text = models["drawn"], prompts(1, longest=40)[0] + [7, 8, 9, 10, 11, 12]
    pool = BlockPool.for_model(model, 12, 4)
    first = pool.open()
    paged_forward(model, pool, [first], torch.tensor([text]))
    held = pool.num_blocks - pool.free_blocks
    forks = [first, pool.fork(first), pool.fork(first)]
    assert pool.num_blocks - pool.free_blocks == held
    got = paged_forward(model, pool, forks, torch.tensor([[20], [30], [40]]))
    assert pool.num_blocks - pool.free_blocks == held + 2  # two of three made a copy
    more = paged_forward(model, pool, forks, torch.tensor([[1], [2], [3]]))
    for row, (a, b) in enumerate(((20, 1), (30, 2), (40, 3))):
        want = model(torch.tensor([[*text, a, b]]))[0, -2:]
        assert torch.allclose(torch.stack([got[row, 0], more[row, 0]]), want, 0, 1e-11)
    for sequence in forks:
        pool.close(sequence)
    assert pool.free_blocks == pool.num_blocks
    assert not pool.users.count(1)


def test_a_known_beginning_is_not_read_again_and_not_overwritten(models):
    model = models["drawn"]
    text = encode(next(stories("beginning")).words)[:22]
    pool = BlockPool.for_model(model, 20, 4)
    first = pool.open(text)
    assert pool.lengths[first] == 0
    paged_forward(model, pool, [first], torch.tensor([text]))
    pool.remember(first, text)
    second = pool.open(text)
    assert pool.lengths[second] == 20
    assert pool.tables[second] == pool.tables[first][:5]
    other = pool.open([*text[:9], 5, 6, 7, 8])
    assert pool.lengths[other] == 8
    exact = pool.open(text[:20])  # one token stays, for its logits
    assert pool.lengths[exact] == 16
    # Truncated into a shared block, the first one writes a copy.
    at = pool.slots([second], [20])[0]
    before = pool.keys[:, :, at].clone()
    pool.truncate(first, 6)
    changed = [*text[:6], 99, 98]
    got = paged_forward(model, pool, [first], torch.tensor([[99, 98]]))
    assert torch.allclose(got[0], model(torch.tensor([changed]))[0, 6:], 0, 1e-11)
    assert torch.equal(pool.keys[:, :, at], before)
    rest = paged_forward(model, pool, [second], torch.tensor([text[20:]]))
    assert torch.allclose(rest[0], model(torch.tensor([text]))[0, 20:], 0, 1e-11)
    again = pool.open([*changed, 3])
    assert pool.lengths[again] == 4
    for sequence in (first, second, other, exact, again):
        pool.close(sequence)
    assert pool.lengths[pool.open(text)] == 0


def test_what_a_pool_refuses_changes_nothing(models):
    model = models["drawn"]
    pool = BlockPool.for_model(model, 4, 4)
    one, two = pool.open(), pool.open()
    paged_forward(model, pool, [one, two], torch.tensor([[5] * 7, [6] * 7]))
    pool.close(pool.fork(one))

    def state():
        return (pool.keys.clone(), pool.values.clone(), dict(pool.lengths), list(pool.users),
                {k: list(v) for k, v in pool.tables.items()})  # fmt: skip

    before = state()
    token = torch.tensor([[1]])
    tries = [
        (MemoryError, "2 blocks too few", lambda: paged_forward(
            model, pool, [one, two], torch.tensor([[1, 2, 3]] * 2))),
        (ValueError, "no sequence 9", lambda: paged_forward(model, pool, [9], token)),
        (ValueError, "no sequence 9", lambda: pool.fork(9)),
        (ValueError, "no sequence 9", lambda: pool.close(9)),
        (ValueError, "each sequence once", lambda: paged_forward(
            model, pool, [one, one], torch.tensor([[1], [1]]))),
        (ValueError, "length must be from 0 to 7", lambda: pool.truncate(one, 8)),
        (ValueError, "must have shape", lambda: paged_forward(model, pool, [one, two], token)),
        (ValueError, "name all 7 positions", lambda: pool.remember(one, [5] * 6)),
        (ValueError, "k must be as the cache", lambda: pool.cache([one])[0].update(
            torch.zeros(1, 2, 1, 7), torch.zeros(1, 2, 1, 8))),
    ]  # fmt: skip
    for kind, says, attempt in tries:
        with pytest.raises(kind, match=says):
            attempt()
        after = state()
        assert all(torch.equal(a, b) for a, b in zip(before[:2], after[:2], strict=True))
        assert before[2:] == after[2:], says
    with pytest.raises(ValueError, match="block_size must be at least 1"):
        BlockPool(3, 0, 1, 1, 2)
    latent = ModelConfig(50, 16, 1, 2, attention="mla", kv_lora_rank=4, qk_nope_head_dim=4,
                         qk_rope_head_dim=4, v_head_dim=4)  # fmt: skip
    with pytest.raises(ValueError, match="attention='gqa'"):
        BlockPool.for_model(DecoderOnlyTransformer(latent), 3, 4)


# ---------------------------------------------------------------- the scheduler and the server


@pytest.mark.parametrize("name", ["own", "drawn"])
@pytest.mark.parametrize(
    "switches",
    [
        {"slots": 3, "budget": 5},
        {"slots": 6, "budget": 64, "chunked": False},
        {"slots": 2, "budget": 64, "chunked": False, "continuous": False},
    ],
)
def test_a_server_writes_what_each_text_would_be_alone(models, name, switches):
    model, asked = models[name], prompts(5)
    asked.append([*asked[4][:9], 3])  # a beginning in common
    pool = BlockPool.for_model(model, 15, 4)
    server = Server(model, pool, Scheduler(**switches), eos=END_ID)
    for prompt in asked:
        server.submit(prompt, 9)
    assert server.run() == [alone(model, prompt, 9, END_ID) for prompt in asked]
    assert pool.free_blocks == pool.num_blocks
    assert not pool.tables


def test_a_full_pool_takes_blocks_from_the_youngest():
    jobs = [Job(4, 12), Job(4, 12), Job(4, 12)]
    scheduler = Scheduler(3, 16, blocks=6, block_size=4)
    for job in jobs:
        scheduler.add(job)
    finished = []
    for _ in range(80):
        chosen = scheduler.plan()
        used = sum(math.ceil((j.read + dict(chosen).get(j, 0)) / 4) for j in scheduler.running)
        assert used <= 6
        finished += scheduler.ran(chosen)
    assert scheduler.evicted > 0
    assert finished[0] is jobs[0]
    assert [job.written for job in jobs] == [12, 12, 12]


def test_a_plan_writes_first_and_keeps_to_its_budget():
    scheduler = Scheduler(4, 10)
    old, new, third = Job(5, 9, read=5, written=1), Job(30, 2), Job(2, 2)
    scheduler.running = [new, old]
    scheduler.add(third)
    assert scheduler.plan() == [(old, 1), (new, 9)]
    scheduler.ran([(old, 1), (new, 9)])
    assert (old.written, new.read, new.written) == (2, 9, 0)
    whole = Scheduler(4, 30, chunked=False)
    whole.running = [Job(20, 2), Job(20, 2)]
    assert [n for _, n in whole.plan()] == [20]


def test_four_jobs_by_hand():
    """Passes of one second: fixed batches of two end at 5 and 13, free places at 2, 5, 5, 13."""
    ends = {}
    for free in (False, True):
        jobs = [Job(1, n) for n in (2, 5, 3, 8)]
        simulate(jobs, Scheduler(2, 2, continuous=free), lambda chosen: 1.0)
        ends[free] = [job.times[-1] for job in jobs]
    assert ends == {False: [2, 5, 8, 13], True: [2, 5, 5, 13]}
    late = [Job(1, 2, arrival=10.0)]
    assert simulate(late, Scheduler(1, 1), lambda chosen: 0.5) == 11.0


def test_what_a_scheduler_refuses():
    scheduler = Scheduler(2, 8, blocks=3, block_size=4, chunked=False)
    with pytest.raises(ValueError, match="needs 4 blocks, and there are 3"):
        scheduler.add(Job(8, 6))
    with pytest.raises(ValueError, match="longer than budget=8"):
        scheduler.add(Job(9, 1))
    with pytest.raises(ValueError, match="prompt must be at least 1"):
        scheduler.add(Job(0, 1))
    with pytest.raises(ValueError, match="budget must be at least slots=4"):
        Scheduler(4, 3)
    assert not scheduler.waiting


# ---------------------------------------------------------------- drafts


def test_drafted_tokens_have_the_models_distribution_in_100_000_draws(models):
    """Two drafted tokens and one more, at a place of a story: pairs, by a chi-squared test."""
    model, draft = models["own"], ngram_draft(order=4, counted=300)
    text = encode(next(stories("goodness")).words)
    ps = model(torch.tensor([text[:60]]))[0].softmax(-1)
    place = 10 + int(-(ps * ps.log()).sum(-1)[10:50].argmax())
    text = text[: place + 1]
    q, p = draft(torch.tensor(text)), ps[place]
    size, generator = 100_000, torch.Generator().manual_seed(0)
    drafted = torch.multinomial(q, size, replacement=True, generator=generator)
    written = []
    for part in drafted.split(10_000):
        rows = torch.stack([p, p]).expand(len(part), 2, -1), q.expand(len(part), 1, -1)
        count, token = speculative_accept(*rows, part[:, None], generator)
        written.append(torch.where(count > 0, part, token))
    seen = torch.bincount(torch.cat(written), minlength=206).double()
    rare = size * p < 5

    def statistic(expected):
        classes = [(seen[~rare], expected[~rare])]
        classes.append((seen[rare].sum()[None], expected[rare].sum()[None]))
        return sum(((s - e) ** 2 / e).sum() for s, e in classes), int((~rare).sum())

    value, freedom = statistic(size * p)
    assert freedom > 5
    assert value < freedom + 4 * math.sqrt(2 * freedom)  # four standard deviations
    wrong, _ = statistic(size * (0.98 * p + 0.02 * q))
    assert wrong > 2 * value


def test_the_law_of_a_row_of_drafted_tokens():
    """All pairs of two drafted tokens over three, counted against the model's pairs."""
    draw = torch.Generator().manual_seed(3)
    p = torch.randn(3, 3, generator=draw, dtype=DOUBLE).softmax(-1)  # the same for any past
    q = torch.randn(2, 3, generator=draw, dtype=DOUBLE).softmax(-1)
    size = 60_000
    drafted = torch.stack(
        [torch.multinomial(row, size, replacement=True, generator=draw) for row in q], -1
    )
    count, token = speculative_accept(p.expand(size, 3, 3), q.expand(size, 2, 3), drafted, draw)
    assert set(count.tolist()) == {0, 1, 2}
    first = torch.where(count > 0, drafted[:, 0], token)
    second = torch.where(count > 1, drafted[:, 1], token)[count > 0]
    third = token[count > 1]
    for seen, want in ((first, p[0]), (second, p[1]), (third, p[2])):
        share = torch.bincount(seen, minlength=3) / len(seen)
        assert (share - want).abs().max() < 4 * math.sqrt(0.25 / len(seen))
    mean = torch.minimum(p[0], q[0]).sum()
    assert abs((count > 0).double().mean() - mean) < 0.01


@pytest.mark.parametrize("name", ["own", "drawn"])
@pytest.mark.parametrize("k", [1, 4])
def test_greedy_texts_are_the_same_with_any_draft(models, name, k):
    model, prompt = models[name], prompts(3)[2]
    table, sharp = ngram_draft(order=4, counted=300), drawn(seed=1)
    drafts = {
        "table": table,
        "another model": lambda tokens: sharp(tokens[None])[0, -1].softmax(-1),
        "itself": lambda tokens: model(tokens[None])[0, -1].softmax(-1),
    }
    want = alone(model, prompt, 11, END_ID)
    for says, draft in drafts.items():
        text, accepted = speculate(
            model, draft, prompt, 11, k=k, temperature=0, eos=END_ID,
            generator=torch.Generator().manual_seed(0),
        )  # fmt: skip
        assert text == want, says
        assert all(0 <= n <= k for n in accepted)
    assert sum(accepted) + len(accepted) >= len(text) - len(prompt)
    assert len(accepted) <= math.ceil(11 / (k + 1)) + 1  # itself: nothing is refused


def test_what_a_draft_may_not_be(models):
    model = models["drawn"]
    with pytest.raises(ValueError, match="206 probabilities"):
        speculate(model, lambda tokens: torch.ones(205) / 205, [1, 2], 4)
    with pytest.raises(ValueError, match="prompt must be at least 1"):
        speculate(model, lambda tokens: torch.ones(206) / 206, [], 4)
    with pytest.raises(ValueError, match="k must be at least 1"):
        speculate(model, lambda tokens: torch.ones(206) / 206, [1], 4, k=0)
    p, q = torch.full((3, 4), 0.25), torch.tensor([[1.0, 0, 0, 0], [0, 1.0, 0, 0]])
    with pytest.raises(ValueError, match="above 0 in q"):
        speculative_accept(p, q, torch.tensor([0, 0]))
    with pytest.raises(ValueError, match="must have shapes"):
        speculative_accept(p[:2], q, torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="must have shapes"):
        speculative_accept(p, q, torch.tensor([0]))


def test_the_draft_of_the_book_is_a_distribution_and_the_same_each_time():
    draft = ngram_draft(order=4, counted=300)
    text = torch.tensor(encode(next(stories("goodness")).words))
    for length in (1, 2, 7, 40):
        q = draft(text[:length])
        assert q.shape == (206,)
        assert (q > 0).all()
        assert abs(q.sum() - 1) < 1e-12
        assert torch.equal(q, draft(text[:length]))
    assert torch.equal(draft(text[:40]), draft(text[37:40]))  # three words decide
    assert not torch.equal(draft(text[:40]), draft(text[38:40]))


# ---------------------------------------------------------------- formats


@pytest.mark.filterwarnings("ignore:torch.quantize_per")
@pytest.mark.parametrize("scale", [1e-4, 1.0, 300.0])
def test_codes_are_those_of_torchs_quantised_tensors(scale):
    x = scale * torch.randn(24, 40, generator=torch.Generator().manual_seed(1))
    whole = quantize(x)
    theirs = torch.quantize_per_tensor(x, whole.scale.item(), 0, torch.qint8)
    assert torch.equal(theirs.int_repr(), whole.codes)
    assert torch.allclose(theirs.dequantize(), whole.dequantize(), rtol=1e-6)
    for dim in (0, 1, -1):
        each = quantize(x, dim=dim)
        scales = each.scale.flatten()
        zeros = torch.zeros(len(scales), dtype=torch.int32)
        theirs = torch.quantize_per_channel(x, scales, zeros, dim % 2, torch.qint8)
        assert torch.equal(theirs.int_repr(), each.codes)
    for bits in (4, 3):
        top = 2 ** (bits - 1) - 1
        ours = quantize(x, bits)
        want = torch.fake_quantize_per_tensor_affine(x, ours.scale.item(), 0, -top, top)
        assert torch.allclose(ours.dequantize(), want, rtol=1e-6)


def test_groups_are_scaled_by_themselves_and_bytes_are_counted():
    x = torch.randn(3, 8, 12, dtype=DOUBLE, generator=torch.Generator().manual_seed(2))
    grouped = quantize(x, 4, group=4)
    for start in range(0, 12, 4):
        part = quantize(x[..., start : start + 4].reshape(-1, 4), 4, dim=0)
        got = grouped.dequantize()[..., start : start + 4].reshape(-1, 4)
        assert torch.equal(got, part.dequantize())
    assert grouped.nbytes == x.numel() / 2 + 2 * x.numel() / 4
    assert quantize(x).nbytes == x.numel() + 2
    step = grouped.scale.repeat_interleave(4, -1)
    assert ((x - grouped.dequantize()).abs() <= step / 2 * (1 + 1e-12)).all()
    assert grouped.codes.abs().max() == 7
    assert torch.equal(quantize(torch.zeros(4)).dequantize(), torch.zeros(4))


@pytest.mark.parametrize(
    ("name", "dtype"), [("e4m3", torch.float8_e4m3fn), ("e5m2", torch.float8_e5m2)]
)
def test_small_floats_are_torchs_bit_by_bit(name, dtype):
    codes = torch.arange(256, dtype=torch.uint8).view(dtype).float()
    values = codes[codes.isfinite()].sort().values.unique()
    assert torch.equal(round_to_format(values, name), values)
    middles = (values[1:] + values[:-1]) / 2
    near = torch.cat([middles, middles * (1 + 1e-6), middles * (1 - 1e-6)])
    draw = torch.Generator().manual_seed(0)
    random = torch.randn(20_000, generator=draw) * torch.exp2(
        torch.randint(-20, 16, (20_000,), generator=draw).float()
    )
    x = torch.cat([near, random]).clamp(-FORMATS[name][2], FORMATS[name][2])
    assert torch.equal(round_to_format(x, name), x.to(dtype).float())
    assert round_to_format(torch.tensor(1e9), name) == FORMATS[name][2]


def test_four_bits_and_their_blocks():
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    x = torch.linspace(-7, 7, 1401)
    nearest = torch.cat([-values.flip(0), values])
    best = nearest[(x[:, None] - nearest).abs().argmin(1)]
    ties = ((x[:, None] - nearest).abs().sort(1).values[:, :2].diff() == 0).flatten()
    ours = round_to_format(x, "e2m1")
    assert torch.equal(ours[~ties].abs(), best[~ties].abs())
    halves = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])
    assert round_to_format(halves, "e2m1").tolist() == [0, 1, 1, 2, 2, 4, 4]  # ties to even
    x = torch.randn(5, 64, generator=torch.Generator().manual_seed(4)) * 40
    top = x.view(5, 2, 32).abs().amax(-1, keepdim=True)
    power = (top / 4).log2().floor().exp2()
    assert torch.equal(power.to(torch.float8_e8m0fnu).float(), power)
    want = round_to_format(x.view(5, 2, 32) / power, "e2m1") * power
    assert torch.equal(round_to_mx(x), want.view(5, 64))
    assert torch.equal(round_to_mx(torch.zeros(2, 32)), torch.zeros(2, 32))


def test_a_rounded_cache_obeys_the_law_of_caches_and_costs_little(models):
    model, text = models["drawn"], torch.tensor([prompts(6)[5] + [9] * 6])
    exact = model(text)
    errors = {}
    for bits in (8, 4, 2):
        cache = [QuantizedKVCache(1, 2, 64, 8, dtype=DOUBLE, bits=bits) for _ in range(2)]
        pieces = torch.cat([model(part, cache) for part in text.split(5, 1)], 1)
        once = [QuantizedKVCache(1, 2, 64, 8, dtype=DOUBLE, bits=bits) for _ in range(2)]
        assert torch.allclose(model(text, once), pieces, 0, 1e-11)
        errors[bits] = (pieces - exact).abs().max().item()
    assert 0 < errors[8] < errors[4] / 5 < errors[2] / 5
    plain, small = KVCache(1, 2, 64, 8), QuantizedKVCache(1, 2, 64, 8, bits=4)
    assert small.nbytes == 2 * 2 * 64 * (8 // 2 + 2)
    assert small.nbytes < plain.nbytes / 4


@pytest.mark.parametrize(
    ("says", "attempt"),
    [
        ("bits must be from 2 to 8", lambda x: quantize(x, 9)),
        ("give dim or group", lambda x: quantize(x, 8, dim=0, group=2)),
        ("group must divide", lambda x: quantize(x, 8, group=5)),
        ("x must be finite", lambda x: quantize(x / 0)),
        ("name must be one of", lambda x: round_to_format(x, "e3m2")),
        ("block must divide", lambda x: round_to_mx(x)),
        ("no multiple of 3", lambda x: shard(x, 0, 3, 1)),
        ("bits must be from 2 to 8", lambda x: QuantizedKVCache(1, 1, 4, 2, bits=1)),
    ],
)
def test_what_formats_refuse(says, attempt):
    with pytest.raises(ValueError, match=says):
        attempt(torch.ones(2, 4))


# ---------------------------------------------------------------- several processes


@pytest.fixture(scope="module")
def two_processes(models):
    tokens = torch.tensor([encode(s.words)[:14] for s in itertools.islice(stories("two"), 4)])
    given = [(m.config, dict(m.state_dict())) for m in models.values()]
    return tokens, given, together(split, 2, given, tokens, 2)


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("way", ["tensor", "pipeline"])
def test_two_processes_have_the_values_and_gradients_of_one(two_processes, number, way):
    tokens, given, answers = two_processes
    whole = in_one_piece(given[number], tokens)
    found = set()
    for rank, answer in enumerate(answers):
        got = answer[number][way]
        assert abs(got["loss"] - whole["loss"]) < 1e-12
        if way == "tensor":
            assert torch.allclose(got["logits"], whole["logits"], 0, 1e-11)
        for name, gradient in got["gradients"].items():
            plain = name.replace(".part.", ".")
            want = whole["gradients"][plain]
            for dim in range(want.dim()):
                if want.shape[dim] != gradient.shape[dim]:
                    want = want.chunk(2, dim)[rank]
            assert torch.allclose(gradient, want, 0, 1e-12), name
            found.add(plain)
    assert found == set(whole["gradients"])


@pytest.mark.parametrize("number", [0, 1])
def test_the_bytes_of_all_reduces_are_those_of_the_formula(two_processes, number):
    tokens, given, answers = two_processes
    config = given[number][0]
    once = 2 * config.num_layers * len(tokens) * (tokens.shape[1] - 1) * config.d_model * 8
    for answer in answers:
        assert answer[number]["tensor"]["forwards"] == once
        assert answer[number]["tensor"]["reduced"] == 2 * once
        stream = len(tokens) * (tokens.shape[1] - 1) * config.d_model * 8
        assert answer[number]["pipeline"]["passed"] == stream


class Alone:
    """A team of which nobody has been asked yet."""

    rank, size, reduced, passed = 0, 3, 0, 0


def test_a_model_that_cannot_be_shared_out_stays_as_it_is():
    model = drawn()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    with pytest.raises(ValueError, match="num_kv_heads=2 must be a multiple of 3"):
        tensor_parallel(model, Alone())
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    with pytest.raises(ValueError, match="no biases"):
        tensor_parallel(drawn(out_bias=True), Alone())
    with pytest.raises(ValueError, match="2 layers and 4 rows"):
        pipeline_step(model, torch.zeros(4, 5, dtype=torch.long), 2, Alone())
    with pytest.raises(ValueError, match="no window"):
        pipeline_step(drawn(sliding_window=3), torch.zeros(4, 5, dtype=torch.long), 2, Alone())


def failing(team):
    raise ArithmeticError(f"process {team.rank} of {team.size}")


def test_a_process_that_fails_says_so():
    with pytest.raises(RuntimeError, match=r"process . of 2"):
        together(failing, 2)
