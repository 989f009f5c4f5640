"""The explorers of chapter 13: masks by counting keys, memory and rooflines from the sizes."""

import math

import numpy as np
import torch
import torch.nn.functional as F

from book.explorer import (
    Arrow,
    Bars,
    Box,
    Cell,
    Dot,
    Grid,
    Lines,
    Scene,
    Segment,
    Text,
)
from transformer_parts.kv_cache import GroupedQueryAttention, KVCache

from .reading import Seen, check_explorer, says

# NVIDIA's table of the H100 SXM, and Llama 2 70B's own configuration.
PEAK, BANDWIDTH, MEMORY = 989e12, 3.35e12, 80e9
LLAMA_2_70B = {"parameters": 68_976_648_192, "layers": 80, "heads": 64, "head": 128}


def rows_of_every_pass(tokens, cached):
    """How many rows the key projection of a real layer gets in each pass."""
    layer, rows = GroupedQueryAttention(8, 4, 2, 2), []
    layer.k_proj.register_forward_hook(lambda _m, x, _y: rows.append(x[0].shape[1]))
    text, cache = torch.randn(1, tokens, 8), KVCache(1, 2, tokens, 2)
    with torch.no_grad():
        for n in range(tokens):
            layer(text[:, n : n + 1], cache=cache) if cached else layer(text[:, : n + 1])
    return rows


@check_explorer(
    "film",
    {
        "pass": "reads “sat”",
        "the model runs": "with a cache",
        "heads for keys and values": "8",
    },
)
def test_the_third_pass_with_a_cache_computes_one_row():
    new, again = (sum(rows_of_every_pass(3, way)) for way in (True, False))
    new_later, again_later = (sum(rows_of_every_pass(100, way)) for way in (True, False))
    longest = sum(rows_of_every_pass(6, False))
    # A layer's cache for one token, times the layers.
    one = KVCache(1, 8, 1, 128, dtype=torch.bfloat16)
    per_token = 32 * (one.keys.nbytes + one.values.nbytes) / 1024
    full = 32 * 4 * per_token  # six tokens of 32 heads make the bar one long; 8 heads have a fourth

    step, heads = {}, {}
    for k in range(6):
        past = k < 3
        word = ["the", "cat", "sat", "on", "the", "mat"][k]
        step |= {
            f"column {k + 1}": Text(k + 0.5, 2.4, word, faint=not past),
            f"row {k + 1}": Text(-0.1, -k - 0.5, word, anchor="end", faint=not past),
            f"key {k + 1}": Cell(
                -2, k, "new" if k == 2 else "kept", role="key",
                fill=0.5 if k == 2 else 0.1, shown=past,
            ),
        }  # fmt: skip
        for j in range(k + 1):
            fill = 0.8 if k == 2 else 0.1
            step[f"pair {k + 1}, {j + 1}"] = Cell(k, j, role="weight", shown=past, fill=fill)
    bars = {}
    for low, count, text, role, fill in (
        (3, again / longest, f"{again} without a cache", "weight", 0.1),
        (2, new / longest, f"{new} with a cache", "weight", 0.7),
        (0, 3 * per_token / (6 * full / 32), f"{3 * per_token:,.0f} KiB", "key", 0.7),
    ):
        bars |= {
            f"bar {low}": Box(0, low + 0.1, count, 0.8, role=role, fill=fill),
            f"number {low}": Text(count + 0.02, low + 0.5, text, anchor="start"),
        }
    # Torch's operator says which of eight stores a query head reads: the one whose value it gives.
    values = torch.arange(8.0)[None, :, None, None].expand(1, 8, 1, 4)
    read = F.scaled_dot_product_attention(
        torch.randn(1, 32, 1, 4), torch.randn(1, 8, 1, 4), values, enable_gqa=True
    )[0, :, 0, 0]
    heads["kept"] = Text(15.5, -0.5, "keys and values: 8, cached", role="key")
    middles = [float(np.mean([h for h in range(32) if read[h] == g])) for g in range(8)]
    for h in range(32):
        heads[f"line {h + 1}"] = Segment(h, 1, middles[int(read[h])], 0, role="quiet")
        heads[f"store {h + 1}"] = Dot(
            middles[h] if h < 8 else 0, 0, role="key", size=0.9, shown=h < 8
        )
    return Seen(
        says(
            "Pass {}, “sat”: only its own row is computed. Tokens through the layers: {} so far, "
            "{} without a cache; {} and {} for a text of {} tokens. Kept: {} KiB per token, {} KiB",
            *(3, new, again, new_later, again_later, 100, per_token, 3 * per_token),
        ),
        Scene("this pass: full is computed, dashed is not", step, xlim=(-1.9, 6), ylim=(-6, 2.8)),
        Scene("work and memory move opposite ways", bars, xlim=(0, 1.6), ylim=(0, 5)),
        Scene("who reads which keys", heads, xlim=(-0.7, 31.7), ylim=(-0.8, 1.8)),
    )


@check_explorer("sharing", {"key–value heads, G": "4", "query head": "7"})
def test_which_key_value_head_a_query_head_reads():
    shared = torch.arange(4.0)[None, :, None, None].expand(1, 4, 1, 2)
    queries = torch.randn(1, 8, 1, 2)
    read = F.scaled_dot_product_attention(queries, shared, shared, enable_gqa=True)[0, :, 0, 0]
    owner = [int(value) for value in read]
    middles = [float(np.mean([h for h in range(8) if owner[h] == g])) for g in range(4)]
    shapes = {}
    for h in range(8):
        here, kept = h == 7, h == owner[7]
        place = middles[h] if h < 4 else 0
        shapes |= {
            f"line {h}": Segment(h, 0.75, middles[owner[h]], 0.25, role="quiet", strong=here),
            f"query head {h}": Box(
                h - 0.45, 0.75, 0.9, 0.5, label=str(h), role="query",
                strong=here, fill=0.5 if here else 0.1,
            ),
            f"store {h}": Box(
                place - 0.45, -0.25, 0.9, 0.5, label=str(h), role="key",
                strong=kept, fill=0.5 if kept else 0.1, shown=h < 4,
            ),
        }  # fmt: skip
    return Seen(
        says(
            "H = {}, G = {}, so r = {}: query head {} reads the keys and values of head "
            "⌊{} / {}⌋ = {}. The cache is {} of what it would be with {} of them",
            *(8, 4, owner.count(3), 7, 7, 2, owner[7], 0.5, 8),
        ),
        Scene("touch a query head", shapes, xlim=(-0.5, 7.5), ylim=(-0.8, 1.8)),
    )


@check_explorer(
    "explore-chunk",
    {"positions in the cache": "3", "new positions": "4", "mask aligned at the": "top-left"},
)
def test_a_mask_from_the_top_left_hides_what_is_in_the_cache():
    torch.manual_seed(1)
    q, k, v = torch.randn(3, 1, 8, 8).squeeze(1).numpy()

    def output(query, keys):
        scores = np.exp([q[query] @ k[j] / math.sqrt(8) for j in keys])
        return sum(s * v[j] for s, j in zip(scores, keys, strict=True)) / scores.sum()

    picture = 0.15 * np.tri(8)
    errors, hidden, needed = np.zeros(8), 0, 0
    for new, query in enumerate(range(3, 7)):
        sees, should = range(new + 1), range(query + 1)
        errors[query] = np.abs(output(query, sees) - output(query, should)).max()
        hidden += len(should) - len(sees)
        needed += len(should)
        picture[query, list(should)] = 0.45
        picture[query, list(sees)] = 1
    wrong = int((errors > 1e-9).sum())
    return Seen(
        says(
            "{} cached positions and a chunk of {}, mask from the top-left: {} of {} needed keys "
            "are hidden, and {} of {} outputs are wrong, by up to {}",
            *(3, 4, hidden, needed, wrong, 4, errors.max()),
        ),
        Grid(
            "✓ seen, ✗ needed and hidden",
            picture,
            list("01234567"),
            list("01234567"),
            text=lambda v: "✓" if v == 1 else "✗" if v == 0.45 else "",
            xlabel="key",
            ylabel="query at position",
            limits=(0, 1),
        ),
        Bars("error of each output", list("01234567"), {"error": errors}, "position", "error"),
    )


@check_explorer(
    "explore-memory",
    {"key-value heads": "4", "tokens per sequence": "32768", "bits per cached number": "8"},
)
def test_what_fits_into_the_memory_of_eight_h100():
    weights = 2 * LLAMA_2_70B["parameters"]
    sequence = 32768 * LLAMA_2_70B["layers"] * 2 * 4 * LLAMA_2_70B["head"]  # a byte each
    fits = max(n for n in range(1, 2000) if weights + n * sequence <= 8 * MEMORY)

    def read(n):
        return n / ((weights + n * sequence) / (8 * BANDWIDTH))

    # A token meets each weight, and in each head 32768 keys and as many values.
    scores = values = 2 * 32768 * LLAMA_2_70B["head"]
    one = weights + LLAMA_2_70B["layers"] * LLAMA_2_70B["heads"] * (scores + values)
    computed = 8 * PEAK / one
    batches = [2 ** (k / 2) for k in range(30)]
    full = min(range(30), key=lambda k: abs(math.log(batches[k] / fits)))
    rate = [min(read(fits if k == full else n), computed) for k, n in enumerate(batches)]
    held = [r if k <= full else math.nan for k, r in enumerate(rate)]
    beyond = [r if k >= full else math.nan for k, r in enumerate(rate)]
    whole = 8 * max(n for n in range(300) if weights / 8 + n * sequence <= MEMORY)
    caches = fits * sequence / (weights + fits * sequence)
    full_rate = [r if k == full else math.nan for k, r in enumerate(rate)]
    assert read(fits) < computed
    return Seen(
        says(
            "{} key-value heads, {} tokens, {} bit: {} KiB per token, {} GB per sequence; "
            "{} sequences fit, {} if each must lie whole on one of the devices. With {}, tokens "
            "per second are at most {} by reading and {} by arithmetic: reading is the limit. Of "
            "what such a step reads, caches are {}",
            *(4, 32768, 8, sequence // 32768 // 1024, sequence / 1e9, fits, whole, fits),
            *(read(fits), computed, caches),
        ),
        Lines(
            "tokens per second of the batch, at most",
            batches,
            {
                "fits into memory": held,
                "would not fit": beyond,
                "memory is full": full_rate,
                "reading, large batches": [8 * BANDWIDTH / sequence] * 30,
                "arithmetic": [computed] * 30,
            },
            "sequences in the batch",
            "tokens per second",
            xscale="log",
            yscale="log",
        ),
    )


@check_explorer(
    "explore-roof", {"query heads per key-value head": "4", "new tokens": "8", "keys": "4096"}
)
def test_where_a_kernel_stands_under_the_roof():
    group, new, keys, width = 4, 8, 4096, 128
    scores = values = 2 * group * new * keys * width  # a multiplication and an addition each
    read = {"keys and values": 2 * keys * width * 2, "queries and outputs": 2 * group * new * width}
    read["queries and outputs"] *= 2  # bytes
    intensity = (scores + values) / sum(read.values())
    ridge = PEAK / BANDWIDTH
    # DeepSeek-V2: 128 heads meet the same 512 + 64 numbers of a token and sum the first 512.
    latent = 128 * (2 * (512 + 64) + 2 * 512) / (2 * (512 + 64))
    prefill = 4 * 4096 * 4096 * width / (4 * 2 * 4096 * width)  # 16 bit, four tensors
    grid = np.sort([2.0 ** (k / 2) for k in range(-2, 31)] + [ridge, latent])
    roof = np.array([min(PEAK, g * BANDWIDTH) / 1e12 for g in grid])

    def dot(there):
        nearest = min(range(len(grid)), key=lambda k: abs(math.log(grid[k] / there)))
        return np.where(np.arange(len(grid)) == nearest, roof, np.nan)

    assert intensity < ridge
    return Seen(
        says(
            "{} heads ... {} new tokens, {} keys: intensity {}, memory is the limit, at most {} of "
            "the peak. For comparison: multi-head decoding: {}; latent decoding: {}; multi-head "
            "prefill of {}: {}; the roof bends at {}",
            *(4, 8, 4096, intensity, intensity / ridge, 1, latent, 4096, round(prefill), ridge),
        ),
        Lines(
            "the roofline, and this kernel",
            grid,
            {
                "roof": roof,
                "this kernel": dot(intensity),
                "multi-head decoding": dot(1),
                "latent decoding": dot(latent),
                "multi-head prefill of 4096": dot(prefill),
            },
            "FLOPs per byte",
            "TFLOP/s",
            xscale="log",
            yscale="log",
        ),
    )


@check_explorer("by-hand", {"step": "the query asks"})
def test_a_query_meets_the_key_that_was_added():
    keys, values = [[1, 0], [0, 1], [1, 1], [2, 0]], [[4, 0], [0, 8], [2, 2], [0, 4]]
    names = ["the", "cat", "sat", "on"]
    scores = [0 * a + 2 * b for a, b in keys]
    columns = [[score, math.nan] for score in scores]

    def store(title, rows, role, most):
        return Grid(
            title, np.array(rows, float), names, ["1", "2"], text=lambda v: f"{v:g}", role=role,
            limits=(0, most), empty="–",
        )  # fmt: skip

    return Seen(
        says("Its query ({}, {}) meets the four keys: {}, {}, {} and {}.", 0, 2, *scores),
        store("keys", keys, "key", 3),
        store("values", values, "value", 8),
        Grid(
            "the query (0, 2)", np.array(columns), names, ["score", "exp"],
            text=lambda v: f"{v:.3g}", limits=(0, 8), role="query", empty="next",
            detail=lambda i, j: (
                "" if j else f"{names[i]}: 0·{keys[i][0]} + 2·{keys[i][1]} = {scores[i]}"
            ),
        ),
        Grid(
            "its weights", np.full((4, 1), math.nan), names, ["weight"],
            text=lambda v: f"{v:.2f}", limits=(0, 0.6), role="weight", empty="next",
            detail=lambda i, j: "",
        ),
    )  # fmt: skip


@check_explorer("appended", {"the layer that sees every token": "layer 3"})
def test_a_layer_that_looks_ahead_changes_the_keys_of_the_layer_above():
    draw = torch.Generator().manual_seed(2)
    tokens = torch.randn(6, 16, generator=draw)
    layers = torch.randn(4, 3, 16, 16, generator=draw) / 3

    def keys(count):
        x, found = tokens[:count].numpy(), []
        for n, (w_q, w_k, w_v) in enumerate(layers.numpy()):
            q, k, v = x @ w_q, x @ w_k, x @ w_v
            found.append(k[:5])
            scores = np.exp(q @ k.T / 4)
            scores = scores if n == 2 else np.tril(scores)
            x = x + scores @ v / scores.sum(1, keepdims=True)
        return np.array(found), x[:5]

    (before, old), (after, new) = keys(5), keys(6)
    moved, outputs = np.abs(after - before).max(-1), np.abs(new - old).max()
    return Seen(
        says(
            "Looking ahead: layer {}. A sixth token changes the old keys of {} of {} layers: layer "
            "{}. The old outputs of the last layer move by {}",
            *(3, 1, 4, 4, float(outputs)),
        ),
        Grid(
            "how far the keys of the old tokens move",
            moved,
            [f"layer {n}" for n in range(1, 5)],
            [f"token {n}" for n in range(5)],
            text=lambda v: f"{v:.2f}",
            limits=(0, 1.3),
        ),
    )


@check_explorer("padding-picture", {"padded": "on the right", "prompt": "the cat sat"})
def test_padding_on_the_right_stands_where_the_next_token_would():
    batch = [["the", "cat", "sat", "", ""], ["all", "day", "the", "dog", "ran"]]
    positions = [[0, 1, 2, math.nan, math.nan], [0, 1, 2, 3, 4]]
    seen = [[float(j <= i and bool(batch[0][j])) for j in range(5)] for i in range(5)]
    columns = list("01234")
    return Seen(
        says("the last column holds padding. Its query may attend to {} keys: the, cat, sat.", 3),
        Grid(
            "positions of the tokens (– is padding)", np.array(positions),
            ["the cat sat", "all day the dog ran"], columns, text=lambda v: f"{v:g}",
            limits=(0, 6), empty="–", xlabel="column",
            detail=lambda i, j: (
                f"“{batch[i][j]}” at position {positions[i][j]}" if batch[i][j] else "padding"
            ),
        ),
        Grid(
            "who may attend to whom in this prompt", np.array(seen), columns, columns,
            text=lambda v: "✓" if v else "", xlabel="key", ylabel="query", limits=(0, 1),
        ),
    )  # fmt: skip


@check_explorer("ring", {"tokens so far": "7", "window, W": "4"})
def test_the_seventh_token_takes_the_place_of_the_third():
    slots = []
    for token in range(7):  # one after the other; a full store loses its oldest
        if len(slots) < 4:
            slots.append(token)
        else:
            slots[slots.index(min(slots))] = token
    shapes = {}
    for p in range(12):
        kept = p in slots
        shapes[f"token {p}"] = Cell(
            1, p, str(p), role="data", shown=p < 7, dash=not kept,
            fill=0.7 if p == 6 else 0.35 if kept else 0.05,
        )  # fmt: skip
    for s in range(6):
        there = s < 4
        shapes[f"slot {s}"] = Cell(
            -1, s, str(slots[s]) if there else "", role="key", shown=there,
            fill=0.05 if not there else 0.7 if slots[s] == 6 else 0.35,
        )  # fmt: skip
        shapes[f"name {s}"] = Text(s + 0.5, 1.4, str(s), shown=there)
    shapes["goes to"] = Arrow(6.5, -0.95, slots.index(6) + 0.5, -0.05, role="key")
    return Seen(
        says(
            "Token {} goes into slot {} mod {} = {}. {} of {} tokens are forgotten. In the slots: "
            "{}, {}, {}, {}",
            *(6, 6, 4, slots.index(6), 3, 7, *slots),
        ),
        Scene("the text, and what is kept of it", shapes, xlim=(-1.6, 12.2), ylim=(-2.2, 2.1)),
    )


@check_explorer("stacking", {"new tokens": "2", "the heads": "each by itself"})
def test_heads_by_themselves_read_their_keys_four_times():
    shapes, low = {}, 0.0
    for h in range(4):
        for t in range(2):
            shapes[f"query {h}, {t}"] = Box(
                0, low - t - 0.95, 3, 0.9, label=f"head {h}, token {t}", role="query"
            )
        low -= 2
        shapes[f"keys {h}"] = Box(
            4, low + 0.05, 4, 1.9, role="key", fill=0.4, label=f"K read for head {h}"
        )
        low -= 0.5  # a gap before the next head
    # A real operator gets the rows of one head at a time, and of the stack at once.
    q, k = torch.randn(4, 2, 8), torch.randn(5, 8)
    one_by_one = torch.cat([head @ k.T for head in q])
    torch.testing.assert_close(one_by_one, q.flatten(0, 1) @ k.T)
    return Seen(
        says(
            "{} heads share a key, {} new tokens, each by itself: the keys are read {} times, for "
            "{} rows of queries, so {} rows in all",
            *(4, 2, len(q), len(q[0]), len(one_by_one)),
        ),
        Scene("one group", shapes, xlim=(-0.2, 8.2), ylim=(-9.7, 1.2)),
    )


@check_explorer("reach", {"layers": "2", "window, W": "3"})
def test_a_stack_of_windows_reaches_further_than_one_ring():
    # Walked back from the newest position: each layer adds the two tokens before the oldest.
    felt, levels = {13}, []
    for _ in range(2):
        levels.append(felt)
        felt = {j for i in felt for j in range(i - 2, i + 1)}
    levels.append(felt)
    cells = [[math.nan] * 14, [math.nan] * 14]
    cells += [[float(p in seen) for p in range(14)] for seen in levels]
    names = [f"after layer {n}" for n in (4, 3, 2, 1)] + ["tokens"]
    return Seen(
        says(
            "{} layers, W = {}: the newest output depends on {} tokens, itself and {} · {} = {} "
            "before it. Those that no ring holds any more: {}",
            *(2, 3, len(felt), 2, 2, len(felt) - 1, len(felt) - 3),
        ),
        Grid(
            "what the newest output depends on", np.array(cells), names,
            [str(p) for p in range(14)], text=lambda v: "✓" if v else "", xlabel="position",
            limits=(0, 1.6),
        ),
    )  # fmt: skip


@check_explorer("two-heads", {"head 2 turned by, degrees": "180"})
def test_a_head_of_the_other_sign_keeps_its_scores_and_changes_the_mean():
    first, second, query = np.array([1.4, 0.3]), np.array([-0.4, -1.3]), np.array([0.7, -1.2])
    merged = (first + second) / 2
    own, shared = query @ second, query @ merged
    ends = {
        "key 1": (first, "key", False),
        "key 2": (second, "key", True),
        "mean": (merged, "data", True),
        "query 2": (query, "query", False),
    }
    shapes = {
        name: Arrow(0, 0, *(float(n) for n in end), role=role, strong=strong, label=name)
        for name, (end, role, strong) in ends.items()
    }
    return Seen(
        says(
            "Head {} written with its queries and keys turned by {}°: its own score stays {}. With "
            "the mean of both keys it is {}, and {} where nothing is turned",
            *(2, 180, float(own), float(shared), float(query @ (second - first) / 2)),
        ),
        Scene("the key of one token in two heads", shapes, xlim=(-2.1, 2.1), ylim=(-1.7, 1.7)),
        Bars(
            "score of head 2",
            ["with its own key", "with the mean"],
            {"score": [own, shared]},
            "key",
            "score",
        ),
    )


@check_explorer(
    "prefix-picture",
    {"sequences": "4", "tokens in common": "2048", "tokens of their own": "512"},
)
def test_a_prefix_is_kept_once():
    token = KVCache(1, 8, 1, 128, dtype=torch.bfloat16).nbytes * 32 / 2**30
    # Every text of four is five blocks of 512 tokens, of which the first four are common.
    apart = [(text, block) for text in range(4) for block in range(5)]
    kept = {("common", block) if block < 4 else (text, block) for text, block in apart}
    sizes = len(apart) * 512 * token, len(kept) * 512 * token

    def drawn(once):
        tokens = "2048 + 4 · 512" if once else "4 · (2048 + 512)"
        shapes = {
            "sum": Text(0.5, 1.09, f"{tokens} tokens: {sizes[once]:.2f} GiB"),
            "common": Text(0, -0.09, "in common", anchor="start", role="data"),
            "rest": Text(1, -0.09, "their own", anchor="end", role="key"),
            "free": Box(0, 0, 0.8, 0.75, label="not kept again", dash=True, shown=once),
        }
        for k in range(16):
            low, there = max(0.75 - k / 4, 0), k < 4
            shapes |= {
                f"prefix {k + 1}": Box(
                    0, low, 0.8, 0.25, role="data", fill=0.5, shown=k == 0 or (there and not once)
                ),
                f"own {k + 1}": Box(0.8, low, 0.2, 0.25, role="key", fill=0.5, shown=there),
            }
        title = "the prefix kept once" if once else "each its own"
        return Scene(title, shapes, xlim=(-0.01, 1.01), ylim=(-0.16, 1.17))

    return Seen(
        says(
            "Llama {} {}B, {} sequences, {} tokens in common and {} of their own: {} GiB apart, {} "
            "GiB with the prefix kept once. Apart is {} times as much. A key of the prefix now "
            "meets {} query heads of every sequence, {} rows, and not {}",
            *(3, 8, 4, 2048, 512, *sizes, sizes[0] / sizes[1], 4, 16, 4),
        ),
        drawn(False),
        drawn(True),
    )
