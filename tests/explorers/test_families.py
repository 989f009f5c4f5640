"""The explorers on families: drawings by hand, counts from the facts, lines from the data."""

import math
import tomllib

from book.chapters import ROOT
from book.explorer import Arrow, Box, Curve, Dot, Grid, Scene, Segment, Text
from book.facts import load
from book.kinship import COLUMNS, by_year, label, plan_of, words, year
from book.kinship_encoders import encoder_of, millions
from book.kinship_encoders import words as words_of_encoders
from transformer_parts.families.encoders import ENCODERS

from .reading import Seen, check_explorer, says

# What the two drawings say, from the papers and the configurations.
GPT2 = {
    "norm": "LayerNorm", "heads": "12 heads of 64, 12 for k and v",
    "positions": "+ a table of 1,024 positions", "more": "sees all",
    "kind of units": "GELU, no gate", "hidden": "3,072 hidden units", "biases": "all",
    "embedding": "50,257 tokens, width 768", "head": "head: the embedding",
}  # fmt: skip
MISTRAL = {
    "norm": "RMSNorm", "heads": "32 heads of 128, 8 for k and v", "positions": "RoPE",
    "more": "window 4,096", "kind of units": "SwiGLU", "hidden": "14,336 hidden units",
    "biases": "none", "embedding": "32,000 tokens, width 4,096",
    "head": "head of its own",
}  # fmt: skip
COHERE = {
    "norm": "LayerNorm", "heads": "64 heads of 128, 64 for k and v",
    "positions": "RoPE, neighbours paired",
    "more": "sees all", "kind of units": "SwiGLU", "hidden": "22,528 hidden units",
    "biases": "none", "embedding": "256,000 tokens, width 8,192",
    "head": "head: the embedding, scaled",
}  # fmt: skip


def drawn(title, name, said, lit, bold, norms=("attn_in", "ffn_in"), parallel=False):
    """The shapes of one side; `lit` are the boxes that are filled, `bold` the lines that differ."""

    def line(y, name, key=None, shown=True):
        return Text(
            5.75, y, said[key or name], small=True, strong=(key or name) in bold, shown=shown
        )

    def box(x, y, w, h, text, name, shown=True):
        on = name in lit
        return Box(
            x, y, w, h, text, fill=0.35 if on else None, role="weight" if on else "ink",
            strong=on, shown=shown,
        )  # fmt: skip

    entry = 3.0 if "attn_in" in norms else 5.4
    second = 11.1 if "ffn_in" in norms else 13.0
    shapes = {
        "name": Text(4.9, 21.9, name, strong=True),
        "stream": Arrow(0.8, 1.4, 0.8, 18.3),
        "to attention": Arrow(0.8, entry, 1.9, entry),
        "to units": Arrow(0.8, second, 1.9, second, shown=not parallel),
        "one norm for both": Curve(
            [9.6, 9.9, 9.9, 9.6], [3.0, 3.0, 13.0, 13.0], shown=parallel, dash=True
        ),
        "from attention": Arrow(1.9, 6.8, 0.95, 8.9),
        "from units": Arrow(1.9, 14.3, 0.95, 16.3),
        "first sum": Dot(0.8, 8.9),
        "second sum": Dot(0.8, 16.3),
        "embedding": box(0.2, 0.2, 9.4, 1.2, said["embedding"], "embedding"),
        "table": line(1.95, "positions", shown=said is GPT2),
        "attention": box(1.9, 3.8, 7.7, 3.4, "", "attention"),
        "heads": line(6.5, "heads"),
        "positions": line(5.5, "positions", shown=said is not GPT2),
        "more": line(4.5, "more"),
        "units": box(1.9, 11.9, 7.7, 2.8, "", "units"),
        "kind of units": line(13.9, "kind of units"),
        "hidden": line(12.7, "hidden"),
        "last norm": box(0.2, 18.4, 9.4, 1.0, said["norm"], "norm"),
        "biases": Text(
            5.75,
            -0.6,
            f"biases of linear layers: {said['biases']}",
            small=True,
            strong="biases" in bold,
        ),
        "head": box(0.2, 19.8, 9.4, 1.2, said["head"], "head"),
    }
    places = {"attn_in": 2.5, "attn_out": 7.5, "attn_sum": 9.3,
              "ffn_in": 10.6, "ffn_out": 15.0, "ffn_sum": 16.7}  # fmt: skip
    for place, y in places.items():
        left = 0.3 if place.endswith("sum") else 1.9
        shapes[place] = box(left, y, 9.6 - left, 1.0, said["norm"], "norm", shown=place in norms)
    return Scene(title, shapes, xlim=(0, 10.1), ylim=(-1.1, 22.6), height=435, equal=False)


def numbers(first, second):
    """The numbers beside the drawings: length, parameters, those of a token, cache, operations."""
    shapes = {"first": Text(7.5, 5.5, "first", anchor="end", strong=True),
              "second": Text(9.9, 5.5, "second", anchor="end", strong=True)}  # fmt: skip
    rows = ("tokens so far", "billions of parameters", "of these for a token",
            "GB of cache, 16 bits", "GFLOPs for a token")  # fmt: skip
    for k, row in enumerate(rows):
        shapes[row] = Text(0.1, 4.5 - k, row, anchor="start")
        for side, x, values in (("first", 7.5, first), ("second", 9.9, second)):
            v = values[k] / (1e9 if k else 1)
            text = f"{v:,.0f}" if v >= 100 else f"{v:.3g}"
            shapes[f"{row}, {side}"] = Text(x, 4.5 - k, text, anchor="end")
    return Scene("by the defaults of their classes", shapes, xlim=(0, 10), ylim=(0, 6),
                 height=150, equal=False)  # fmt: skip


def of_gpt2():
    d, layers = 768, 12
    matrices = layers * 12 * d * d
    total = matrices + layers * 13 * d + (50257 + 1024) * d + 2 * d
    flops = 2 * (matrices + 50257 * d) + 4 * layers * d * 1024  # its table ends there
    return [1024, total, total, 2 * 2 * layers * d * 1024, flops]


def of_mistral():
    d, layers, window = 4096, 32, 4096
    block = 2 * d * d + 2 * d * 1024 + 3 * d * 14336
    total = layers * (block + 2 * d) + 2 * 32000 * d + d
    flops = 2 * (layers * block + 32000 * d) + 4 * layers * d * window
    return [8192, total, total, 2 * 2 * layers * 1024 * window, flops]


def of_cohere():
    d, layers = 8192, 40
    matrices = layers * (4 * d * d + 3 * d * 22528)
    total = matrices + (layers + 1) * d + 256000 * d
    flops = 2 * (matrices + 256000 * d) + 4 * layers * d * 8192
    return [8192, total, total, 2 * 2 * layers * d * 8192, flops]


@check_explorer("explore-two", {"first": "GPT-2", "second": "Mistral"})
def test_gpt2_and_mistral_differ_nearly_everywhere():
    one, other = of_gpt2(), of_mistral()
    lit = {"norm", "attention", "units", "head"}
    bold = {"heads", "positions", "more", "kind of units", "biases"}
    return Seen(
        says(
            "GPT-{} and Mistral differ in {} of {} places, sizes apart: the norm, heads, "
            "positions, what attention sees, hidden units, biases, head. {} "
            "against {} billion parameters; {} against {} GB of cache",
            2, 7, 9, one[1] / 1e9, other[1] / 1e9, one[3] / 1e9, other[3] / 1e9,
        ),
        drawn("the first", "GPT-2", GPT2, lit, bold),
        drawn("the second", "Mistral", MISTRAL, lit, bold),
        numbers(one, other),
    )  # fmt: skip


@check_explorer("explore-two", {"first": "Cohere", "second": "Mistral"})
def test_a_parallel_block_has_one_norm_for_both_branches():
    one, other = of_cohere(), of_mistral()
    lit, bold = {"norm", "attention", "head"}, {"heads", "positions", "more"}
    return Seen(
        says(
            "Cohere and Mistral differ in {} of {} places, sizes apart: the norm, where norms "
            "stand, heads, positions, what attention sees, head. {} against {} billion "
            "parameters; {} against {} GB",
            6, 9, one[1] / 1e9, other[1] / 1e9, one[3] / 1e9, other[3] / 1e9,
        ),
        drawn("the first", "Cohere", COHERE, lit, bold, norms=("attn_in",), parallel=True),
        drawn("the second", "Mistral", MISTRAL, lit, bold),
        numbers(one, other),
    )  # fmt: skip


# ---------------------------------------------------------------- lines


def merged(data, name):
    """The choices of a family: those of the one it is like, then its own."""
    own = dict(data[name])
    like = own.pop("like", None)
    found = merged(data, like) if like else dict(data["defaults"])
    for key, value in own.items():
        nested = key in ("names", "experts") and isinstance(value, dict)
        found[key] = {**found.get(key, {}), **value} if nested else value
    return found


def flat(choices):
    """Choices by name, without the names and the layout of tensors."""
    layout = {"names", "fused_qkv", "transposed", "stacked_transposed", "aliases", "ignored",
              "interleaved_experts", "mla_halves", "correction_row", "experts_weight",
              "experts_bias", "sizes", "keys", "absent", "unsupported"}  # fmt: skip
    made = {}
    for key, value in choices.items():
        if isinstance(value, dict) and key not in layout:
            made |= {(key, k): v for k, v in value.items()}
        elif key not in layout:
            made[key] = value
    return made


@check_explorer("explore-lines", {"family": "OLMo 3"})
def test_the_table_of_olmo_3_begins_from_olmo_2_and_that_from_llama():
    file = ROOT / "transformer_parts/families/families.toml"
    data = tomllib.loads(file.read_text(encoding="utf-8"))
    line = ["olmo3", "olmo2", "llama"]
    assert [data[name].get("like") for name in line] == ["olmo2", "llama", None]
    own, root = flat(merged(data, "olmo3")), flat(merged(data, "llama"))
    differ = [k for k in {*own, *root} if own.get(k) != root.get(k)]
    shapes = {}
    names = ["OLMo 3", "OLMo 2", "Llama", "", "", ""]
    own_entries = ["kind, rope_scaled, absent", "norms, qk_norm, 2 more",
                   "qkv_bias, out_bias, mlp_bias", "", "", ""]  # fmt: skip
    for k, name in enumerate(names):
        y = [7.7, 5.1, 2.5, 2.5, 2.5, 2.5][k]  # what is hidden lies on the last box
        shapes[f"box {k}"] = Box(
            0.1, y, 3.3, 1.1, name, role="ink" if k else "weight", strong=k == 0, shown=bool(name)
        )
        shapes[f"entries {k}"] = Text(
            3.6, y + 0.55, own_entries[k], anchor="start", small=True, shown=bool(name)
        )
        if name:
            there = data[line[k]].keys() - {"like", "names"}
            assert there - {*own_entries[k].split(", ")} == (
                {"absent", "qk_norm_over"} if k == 1 else set()
            )
    for k in range(5):
        top = [7.7, 5.1, 5.1, 5.1, 5.1][k]  # the box that the arrow leads to
        shapes[f"arrow {k}"] = Arrow(
            1.75, top - 2.6 + 1.15, 1.75, top - 0.05, shown=bool(names[k + 1])
        )
    return Seen(
        says(
            "OLMo {}: {} entries of its own, {} names of tensors, {} tables below it. {} choices "
            "are not those of Llama.",
            3, 3, 0, 2, len(differ),
        ),
        Scene("each table says how it differs from the one below it", shapes,
              xlim=(0, 10.4), ylim=(0.3, 11)),
    )  # fmt: skip


# ---------------------------------------------------------------- the cache


def of_qwen3_next(n):
    """A quarter of the layers attend; the others keep 32 memories and three inputs."""
    attend, v = 48 // 4, load()["qwen3-next-layers"].values
    memory = v["num_v_heads"] * v["d_k"] * v["d_v"]
    inputs = 3 * (2 * 16 * v["d_k"] + v["num_v_heads"] * v["d_v"])
    return attend * 2 * v["num_kv_heads"] * v["head_dim"] * n + (48 - attend) * (memory + inputs)


def of_mamba2():
    """Every layer keeps 128 heads of 64 channels with 128 numbers each, and three inputs."""
    v = load()["mamba2-layers"].values
    wide = v["num_heads"] * v["head_dim"]
    return v["num_layers"] * (wide * v["d_state"] + 3 * (wide + 2 * 8 * v["d_state"]))


def bars(chosen, n):
    """What the families keep of n tokens, in numbers and as a drawing."""

    def of(entry):
        return load()[entry].values

    def grouped(entry, heads, width, kv=None, layers="num_hidden_layers", kept=None):
        v = of(entry)
        g = v.get("num_key_value_heads", v.get(heads)) if kv is None else kv
        dim = v.get("head_dim", v[width] // v[heads])
        return 2 * g * dim * (v[layers] * n if kept is None else kept)

    usual = ("num_attention_heads", "hidden_size")
    g3 = of("family-gemma3-text")
    full = g3["num_hidden_layers"] // 6
    near = (g3["num_hidden_layers"] - full) * min(n, g3["sliding_window"]) + full * n
    oss = of("family-gpt-oss")
    half = oss["num_hidden_layers"] // 2
    latent = {
        entry: of(entry)["num_hidden_layers"]
        * (of(entry)["kv_lora_rank"] + of(entry)["qk_rope_head_dim"]) * n
        for entry in ("family-minicpm3", "family-deepseek-v3")
    }  # fmt: skip
    numbers = {
        "GPT-NeoX": 2 * 6144 * 44 * n,
        "Llama": grouped("family-llama", *usual),
        "Mistral": grouped("family-mistral", *usual, kept=32 * min(n, 4096)),
        "Gemma 3": grouped("family-gemma3-text", *usual, kept=near),
        "Cohere": grouped("family-cohere", *usual),
        "Mixtral": grouped("family-mixtral", *usual),
        "gpt-oss": grouped(
            "family-gpt-oss", *usual, kept=half * (min(n, oss["sliding_window"]) + n)
        ),
        "MiniCPM3": latent["family-minicpm3"],
        "DeepSeek-V3": latent["family-deepseek-v3"],
        "Qwen3-Next": of_qwen3_next(n),
        "Mamba-2": of_mamba2(),
    }
    gb = {name: 2 * v / 1e9 for name, v in numbers.items()}
    shapes = {}
    for k, mark in enumerate(("10 MB", "100 MB", "1 GB", "10 GB", "100 GB")):
        x = 2.6 + 1.2 * k
        shapes[mark] = Text(x, 0, mark, small=True, role="quiet")
        shapes[f"line at {mark}"] = Segment(x, 0.4, x, 11.6, role="quiet", faint=True)
    for y, (name, v) in zip(range(11, 0, -1), gb.items(), strict=True):
        on = name == chosen
        text = f"{v:.3g} GB" if v >= 1 else f"{1000 * v:.3g} MB"
        shapes[f"{name}'s dot"] = Dot(
            2.6 + 1.2 * (math.log10(v) + 2), y, size=3.0 if on else 1.5,
            role="weight" if on else "ink",
        )  # fmt: skip
        shapes[f"{name}'s name"] = Text(2.1, y, name, anchor="end", small=True, strong=on)
        shapes[f"{name}'s number"] = Text(9.9, y, text, anchor="end", small=True, strong=on)
    return numbers, Scene(
        "cache of one text, 16 bits, on a logarithmic axis", shapes, xlim=(0, 10),
        ylim=(-0.4, 11.8), height=320, equal=False,
    )  # fmt: skip


@check_explorer("explore-costs", {"family": "Gemma 3", "tokens": "65,536"})
def test_the_cache_of_gemma_3_after_65536_tokens():
    n = 65536
    numbers, scene = bars("Gemma 3", n)
    mine, llama = numbers["Gemma 3"], numbers["Llama"]
    return Seen(
        says(
            "Gemma {} keeps {} GB for {} tokens, on average {} numbers for each, and {} times "
            "what Llama",
            3, 2 * mine / 1e9, n, float(mine / n), mine / llama,
        ),
        scene,
    )  # fmt: skip


@check_explorer("explore-costs", {"family": "Mamba-2", "tokens": "1,024"})
def test_a_memory_is_as_large_after_a_short_text():
    numbers, scene = bars("Mamba-2", 1024)
    assert numbers["Mamba-2"] == bars("Mamba-2", 65536)[0]["Mamba-2"]
    mine, llama = numbers["Mamba-2"], numbers["Llama"]
    return Seen(
        says(
            "Mamba-{} keeps {} MB for {} tokens, on average {} numbers for each, and {} times "
            "what Llama",
            2, 2 * mine / 1e6, 1024, mine / 1024, mine / llama,
        ),
        scene,
    )  # fmt: skip


# ---------------------------------------------------------------- the table

# The last page: what is left of the families beyond full pages of sixteen.
LAST = (len(by_year()) - 1) // 16 * 16
NEWEST = sorted({year(f) for f in by_year()[LAST:]})
ENDS = NEWEST if len(NEWEST) < 2 else [NEWEST[0], NEWEST[-1]]
LAST_PAGE = f"{LAST // 16 + 1}: " + " to ".join(map(str, ENDS))


@check_explorer("explore-table", {"page": LAST_PAGE, "marked": "QK-norm"})
def test_the_newest_families_with_a_norm_of_queries_and_keys():
    rows = {family: words(plan_of(family)) for family in by_year()}
    here = list(rows)[LAST:]
    assert {year(f) for f in here} == set(NEWEST)
    good = [plan_of(f).qk_norm is not None for f in rows]
    assert {"persimmon", "olmo2", "olmoe"} <= {f for f, has in zip(rows, good, strict=True) if has}
    cells = {"family": [label(f) for f in here], "dated": [f"{year(f)}" for f in here]}
    cells |= {c: [rows[f][c] for f in here] for c in COLUMNS}
    left = (6, 122, 164, 202, 249, 291, 347, 411, 447, 501, 559, 621)
    middle = 250 - 15 * (len(here) - 1) / 2
    shapes = {
        f"row {k}": Box(
            0, 242.5 - 15 * (k - 1), 690, 15, "", fill=0.22, role="weight",
            shown=k <= len(here) and good[LAST - 1 + k],
        )
        for k in range(1, 17)
    }  # fmt: skip
    for x, (name, column) in zip(left, cells.items(), strict=True):
        shapes[name] = Text(x, middle, "\n".join(column), anchor="start", small=True)
        shapes[f"head of {name}"] = Text(x, 270, name, anchor="start", small=True, strong=True)
    return Seen(
        says(
            "QK-norm: {} of the {} families on this page and {} of all {}",
            sum(good[LAST:]), len(here), sum(good), len(rows),
        ),
        Scene("families and parts, the oldest first", shapes, xlim=(0, 690), ylim=(0, 282)),
    )  # fmt: skip


def test_a_family_may_have_two_kinds_of_factors():
    found = [words(plan_of(f))["factors"] for f in ("gemma2", "gemma3_text", "nanochat", "llama")]
    assert found == ["cap, scale", "scale", "cap", "–"]


def test_the_words_of_some_families_are_those_of_their_papers():
    found = {family: words(plan_of(family)) for family in ("gpt2", "gptj", "olmo2", "gpt_oss")}
    assert list(found["gpt2"].values()) == [
        "LN", "before", "MHA", "–", "table", "–", "–", "GELU", "all", "–"
    ]  # fmt: skip
    hybrid = {family: words(plan_of(family)) for family in ("mamba2", "kimi_linear", "falcon_h1")}
    assert [found["memory"] for found in hybrid.values()] == ["Mamba-2", "delta", "Mamba-2"]
    assert [found["heads"] for found in hybrid.values()] == ["–", "MLA", "GQA"]
    assert [found["positions"] for found in hybrid.values()] == ["none", "none", "RoPE"]
    assert (found["gptj"]["placed"], found["gptj"]["positions"]) == ("parallel", "part")
    assert (found["olmo2"]["placed"], found["olmo2"]["q, k"]) == ("after", "RMS")
    assert [found["gpt_oss"][c] for c in ("heads", "window", "units", "factors")] == [
        "GQA", "some", "experts", "sinks"
    ]  # fmt: skip


# ---------------------------------------------------------------- one matrix


@check_explorer("explore-fused", {"order": "group by group", "heads of keys": "4"})
def test_four_groups_read_in_three_blocks():
    there = [f"{part}{i}" for i in (1, 2, 3, 4) for part in "qkv"]
    taken = sorted(there, key=lambda name: ("qkv".index(name[0]), name))
    roles = {"q": "query", "k": "key", "v": "value"}
    shapes = {
        "what it is": Text(2.3, 13.6, "what it is", strong=True),
        "what it is read as": Text(6.7, 13.6, "what it is read as", strong=True),
    }
    for i, (name, read) in enumerate(zip(there, taken, strict=True), 1):
        shapes[f"row {i}"] = Box(0.8, 13 - i, 3, 0.9, name, fill=0.4, role=roles[name[0]])
        shapes[f"read {i}"] = Box(5.2, 13 - i, 3, 0.9, read, fill=0.4, role=roles[read[0]])
        right = name == read
        shapes[f"sign {i}"] = Text(
            4.5, 13.45 - i, "=" if right else "≠", strong=True, role="good" if right else "bad"
        )
    return Seen(
        says(
            "group by group: {} heads in one matrix, {} of queries and {} of keys. Read as three "
            "blocks, {} of {} are taken for another one",
            12, 4, 4, sum(a != b for a, b in zip(there, taken, strict=True)), 12,
        ),
        Scene("the heads in the matrix", shapes, xlim=(0, 9), ylim=(0.8, 14.2)),
    )  # fmt: skip


# ---------------------------------------------------------------- encoders


def of_14(seen, bucket=None):
    """The square of 14 positions; hidden pairs are empty."""
    places = range(1, 15)
    return Grid(
        "who sees whom",
        [[(bucket(k - q) if bucket else 7.5) if seen(k - q) else math.nan for k in places]
         for q in places],
        [str(k) for k in places], [str(k) for k in places],
        text=lambda v: "" if v == 7.5 else f"{v:.0f}",
        xlabel="position that is seen", ylabel="position that sees", limits=(0, 31),
    )  # fmt: skip


@check_explorer("explore-masks", {"stack": "T5, decoder"})
def test_the_decoder_of_t5_sees_the_past_with_a_bucket_for_each_of_16_distances():
    return Seen(
        says(
            "T5, decoder: position {} of {} sees {} positions, {} of them later than itself. Its "
            "scores get {} different numbers",
            11, 14, 11, 0, 11,
        ),
        of_14(lambda distance: distance <= 0, abs),
    )  # fmt: skip


@check_explorer("explore-masks", {"stack": "ModernBERT, near layers"})
def test_near_layers_of_modernbert_see_three_on_each_side():
    return Seen(
        says(
            "ModernBERT, near layers: position {} of {} sees {} positions, {} of them later than "
            "itself. Nothing is added to its scores.",
            11, 14, 7, 3,
        ),
        of_14(lambda distance: -3 <= distance <= 3),
    )  # fmt: skip


def test_the_words_of_encoders_are_those_of_their_papers():
    found = {family: words_of_encoders(encoder_of(family)) for family in ENCODERS}
    assert {found[f]["norm"] for f in ("bert", "roberta")} == {"LN, on sum"}
    assert found["t5"]["norm"] == "RMS, before"
    assert found["t5"]["a position sees"] == "all; decoder: the past, and what was encoded"
    assert found["modernbert"]["a position sees"] == "all, or the nearest 129 in 14 of 22 layers"
    assert found["whisper"]["positions"] == "sines; decoder: table"
    d, f, v = 768, 3072, 30522  # BERT's, by hand: tables, 12 blocks, head
    block = 4 * (d * d + d) + 2 * d * f + f + d + 4 * d
    by_hand = (v + 512 + 2) * d + 2 * d + 12 * block + d * d + d + 2 * d + v
    assert round(1e6 * millions(encoder_of("bert"))) == by_hand == 109_514_298
    assert round(millions(encoder_of("whisper")), 2) == 37.76
