"""The layers and the whole model against torch's, and decoding against exhaustive search."""

import ast
import itertools
import math

import pytest
import torch
from torch import nn
from torch_weights import copied

from book.chapters import NOTEBOOKS, read
from transformer_parts.tensors import assert_parity
from transformer_parts.transformer import (
    Transformer,
    TransformerDecoderLayer,
    TransformerEncoderLayer,
    beam_search,
    count_parameters,
    greedy_decode,
    shift_right,
)

F64 = torch.float64


def draw(seed, *shape, dtype=F64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64).to(dtype)


BOTH_ORDERS = pytest.mark.parametrize("norm_first", [False, True])
TOLERANCE = {torch.float64: 1e-11, torch.float32: 2e-5}


@BOTH_ORDERS
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_layers_equal_torchs_with_padding(norm_first, dtype, activation):
    options = {"dropout": 0.0, "activation": activation, "norm_first": norm_first}
    x, memory = draw(0, 3, 5, 8, dtype=dtype), draw(1, 3, 7, 8, dtype=dtype)
    real = torch.arange(5) < torch.tensor([[5], [3], [1]])
    seen = torch.arange(7) < torch.tensor([[7], [2], [4]])
    tol = {"atol": TOLERANCE[dtype], "rtol": TOLERANCE[dtype]}
    official = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, **options).to(dtype)
    ours = copied(TransformerEncoderLayer(8, 2, 16, **options).to(dtype), official)
    assert_parity(
        lambda x: ours(x, real), lambda x: official(x, src_key_padding_mask=~real), x, **tol
    )
    official = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True, **options).to(dtype)
    mine = copied(TransformerDecoderLayer(8, 2, 16, **options).to(dtype), official)
    future = torch.ones(5, 5).triu(1).bool()
    assert_parity(
        lambda x, m: mine(x, m, real, seen),
        lambda x, m: official(x, m, future, None, ~real, ~seen),
        x,
        memory,
        **tol,
    )


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Transformer(12, 12, 8, 2, 2, 2, 16, dropout=0.0).double().eval()


def test_later_targets_change_nothing_earlier_and_everything_from_there_on(model):
    src, tgt = torch.randint(1, 12, (2, 6)), torch.randint(1, 12, (2, 5))
    before = model(src, tgt)
    changed = tgt.clone()
    changed[:, 3] = changed[:, 3] % 11 + 1
    difference = (model(src, changed) - before).abs().amax(-1)
    assert difference[:, :3].max() == 0
    assert (difference[:, 3:] > 0).all()


def test_padding_of_the_source_is_invisible(model):
    src, tgt = torch.randint(1, 12, (2, 6)), torch.randint(1, 12, (2, 5))
    padded = torch.cat([src, torch.zeros(2, 3, dtype=torch.long)], 1)
    torch.testing.assert_close(model(padded, tgt), model(src, tgt), atol=1e-12, rtol=0)


@BOTH_ORDERS
def test_parameters_are_those_of_the_published_layers(norm_first):
    with torch.device("meta"):
        base = Transformer(37_000, 37_000, norm_first=norm_first)
    layers = count_parameters(base, depth=2)
    assert layers["encoder.0"] == 3_152_384
    assert layers["decoder.0"] == 4_204_032
    total = 37_000 * 512 + 6 * (3_152_384 + 4_204_032) + norm_first * 2 * 1024
    assert sum(count_parameters(base).values()) == total


def test_separate_embeddings_are_counted_apart_and_shared_ones_need_equal_vocabularies():
    apart = count_parameters(Transformer(5, 7, 8, 2, 1, 1, 16, shared=False))
    assert (apart["src_embed"], apart["tgt_embed"]) == (40, 56)
    with pytest.raises(ValueError, match=r"equal vocabularies.*5 and 7"):
        Transformer(5, 7, 8, 2, 1, 1, 16)


def test_shift_right_puts_the_start_in_front_and_drops_the_end():
    tokens = torch.tensor([[5, 6, 2], [7, 2, 0]])
    assert shift_right(tokens, 1).tolist() == [[1, 5, 6], [1, 7, 2]]
    assert tokens.tolist() == [[5, 6, 2], [7, 2, 0]]


def test_greedy_decoding_takes_the_most_probable_token(model):
    src = torch.randint(1, 12, (3, 6))
    for row, tokens in zip(src, greedy_decode(model, src, 1, -1, 4).tolist(), strict=True):
        for k, token in enumerate(tokens):
            logits = model(row[None], torch.tensor([[1, *tokens[:k]]]))
            assert token == logits[0, -1].argmax()


class Scripted:
    """Stands for a model that wants to write these tokens."""

    pad = 0
    script = torch.tensor([[3, 2, 5, 5, 5], [4, 6, 2, 5, 5], [7, 2, 8, 8, 8]])

    def encode(self, src):
        return src

    def decode(self, tgt, memory, src):
        wanted = self.script[:, : tgt.shape[1]]
        return nn.functional.one_hot(wanted, 9).double()


def test_a_row_that_has_ended_is_padded_and_all_ended_rows_end_the_search():
    out = greedy_decode(Scripted(), torch.zeros(3, 1, dtype=torch.long), 1, 2, 5)
    assert out.tolist() == [[3, 2, 0], [4, 6, 2], [7, 2, 0]]
    out = greedy_decode(Scripted(), torch.zeros(3, 1, dtype=torch.long), 1, 2, 2)
    assert out.tolist() == [[3, 2], [4, 6], [7, 2]]


def random_steps(seed, vocab=5):
    """Log-probabilities that depend on the whole prefix."""

    def step(prefixes):
        rows = [draw(seed + 31 * hash(tuple(p.tolist())) % 10**6, vocab) for p in prefixes]
        return (2 * torch.stack(rows)).log_softmax(-1)

    return step


def score_of(step, tokens, alpha):
    total = sum(step(torch.tensor([[0, *tokens[:k]]]))[0, t].item() for k, t in enumerate(tokens))
    return total / ((5 + len(tokens)) / 6) ** alpha


@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
@pytest.mark.parametrize("seed", range(4))
def test_a_beam_wide_enough_finds_the_best_of_all_outputs(seed, alpha):
    step, words = random_steps(seed), (0, 2, 3, 4)
    outputs = [(*w, 1) for n in range(3) for w in itertools.product(words, repeat=n)]
    outputs += [(*w, last) for w in itertools.product(words, repeat=2) for last in words]
    best = max(outputs, key=lambda w: score_of(step, w, alpha))
    found, score = beam_search(step, 0, 1, 3, beam_size=200, length_penalty=alpha)
    assert tuple(found) == best
    assert score == pytest.approx(score_of(step, best, alpha))


@pytest.mark.parametrize("seed", range(4))
def test_one_beam_without_penalty_never_beats_a_wide_one(seed):
    step = random_steps(seed)
    narrow, wide = (beam_search(step, 0, 1, 4, beam_size=k, length_penalty=0.0) for k in (1, 400))
    assert narrow[1] <= wide[1] + 1e-12
    assert narrow[1] == pytest.approx(score_of(step, narrow[0], 0.0))


@pytest.mark.parametrize(("beam", "length"), [(0, 3), (2, 0)])
def test_a_beam_search_needs_a_beam_and_a_length(beam, length):
    with pytest.raises(ValueError, match="at least 1"):
        beam_search(random_steps(0), 0, 1, length, beam_size=beam)


def torchs_transformer(ours, official, src, tgt):
    """nn.Transformer with our weights between our embeddings and our output layer."""
    for mine, theirs in zip(ours.encoder, official.encoder.layers, strict=True):
        copied(mine, theirs)
    for mine, theirs in zip(ours.decoder, official.decoder.layers, strict=True):
        copied(mine, theirs)
    for mine, theirs in (
        (ours.encoder_norm, official.encoder.norm),
        (ours.decoder_norm, official.decoder.norm),
    ):
        if theirs is not None:
            nn.init.normal_(theirs.weight)
            mine.load_state_dict(theirs.state_dict())
    weight = ours.tgt_embed.weight
    position = draw(0, 1, tgt.shape[1] + src.shape[1], weight.shape[1]) * 0
    position = ours.positions(position)  # of zeros, so the table itself
    embed = lambda t, table: weight.shape[1] ** 0.5 * table[t] + position[:, : t.shape[1]]  # noqa: E731
    h = official(
        embed(src, ours.src_embed.weight),
        embed(tgt, weight),
        tgt_mask=torch.ones(tgt.shape[1], tgt.shape[1]).triu(1).bool(),
        src_key_padding_mask=src == ours.pad,
        memory_key_padding_mask=src == ours.pad,
        tgt_key_padding_mask=tgt == ours.pad,
    )
    return h @ weight.T


@BOTH_ORDERS
@pytest.mark.parametrize("pad", [0, 3])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_the_whole_model_equals_torchs_with_padding(norm_first, pad, activation):
    torch.manual_seed(0)
    options = {"dropout": 0.0, "activation": activation, "norm_first": norm_first}
    ours = Transformer(12, 12, 8, 2, 2, 2, 16, pad=pad, **options).double()
    official = nn.Transformer(8, 2, 2, 2, 16, batch_first=True, **options).double()
    if not norm_first:  # torch's has final norms even then; ours, as the paper, has not
        official.encoder.norm = official.decoder.norm = None
    src = torch.tensor([[5, 6, 7, 8, 9, 1], [4, 2, 5, 1, pad, pad]])
    tgt = torch.tensor([[1, 5, 2, 7, 4], [1, pad, 4, pad, pad]])
    want = torchs_transformer(ours, official, src, tgt)
    torch.testing.assert_close(ours(src, tgt), want, atol=1e-11, rtol=0)


def test_dropout_acts_on_the_branches_in_training_and_only_there():
    torch.manual_seed(0)
    x, memory = draw(0, 2, 5, 8), draw(1, 2, 7, 8)
    encoder = TransformerEncoderLayer(8, 2, 16, dropout=0.9, norm_first=True).double()
    decoder = TransformerDecoderLayer(8, 2, 16, dropout=0.9, norm_first=True).double()
    for layer, inputs in ((encoder, (x,)), (decoder, (x, memory))):
        layer.dropout.p = 1.0  # drops every branch, so the stream passes unchanged
        assert torch.equal(layer(*inputs), x)
        layer.eval()
        assert not torch.equal(layer(*inputs), x)
        assert torch.equal(layer(*inputs), layer(*inputs))


def test_greedy_decoding_keeps_no_graph(model):
    seen = []
    model.tgt_embed.register_forward_hook(lambda m, a, out: seen.append(out.requires_grad))
    greedy_decode(model, torch.randint(1, 12, (2, 6)), 1, -1, 2)
    assert seen
    assert not any(seen)


@pytest.mark.parametrize("seed", range(40))
def test_one_beam_without_penalty_is_greedy(seed):
    step, greedy = random_steps(seed), []
    while len(greedy) < 5 and (not greedy or greedy[-1] != 1):
        greedy.append(int(step(torch.tensor([[0, *greedy]]))[0].argmax()))
    found, score = beam_search(step, 0, 1, 5, beam_size=1, length_penalty=0.0)
    assert found == greedy
    assert score == pytest.approx(score_of(step, greedy, 0.0))


def test_one_beam_with_a_penalty_goes_on_after_the_first_end():
    """Chapter 10 says that it is not greedy: a longer output may win after the division."""
    table = torch.tensor([[0, 0.6, 0.4], [0, 1, 0], [0, 1, 0]], dtype=F64)  # bos, end, a word

    def step(prefixes):
        return table[prefixes[:, -1]].log()

    greedy, _ = beam_search(step, 0, 1, 3, beam_size=1, length_penalty=0.0)
    longer, score = beam_search(step, 0, 1, 3, beam_size=1, length_penalty=5.0)
    assert (greedy, longer) == ([1], [2, 1])
    assert score == pytest.approx(math.log(0.4) / (7 / 6) ** 5)
    assert score > math.log(0.6)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("norm_first", [False, True])
def test_torch_adds_a_final_norm_to_the_whole_model_and_to_no_stack_of_its_own(norm_first):
    """As chapter 10 says where it compares the orders."""
    options = {"norm_first": norm_first, "batch_first": True}
    whole = nn.Transformer(8, 2, 1, 1, 16, **options)
    assert isinstance(whole.encoder.norm, nn.LayerNorm)
    assert isinstance(whole.decoder.norm, nn.LayerNorm)
    layer = nn.TransformerEncoderLayer(8, 2, 16, **options)
    assert nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).norm is None


@pytest.mark.parametrize("shared", [True, False])
def test_each_vocabulary_goes_to_its_own_embedding(shared):
    model = Transformer(7, 7 if shared else 5, 8, 2, 1, 1, 16, shared=shared)
    assert model.src_embed.weight.shape == (7, 8)
    assert model.tgt_embed.weight.shape == ((7 if shared else 5), 8)
    assert model(torch.ones(1, 3, dtype=torch.long), torch.ones(1, 2, dtype=torch.long)).shape[
        2
    ] == (7 if shared else 5)


def test_the_original_order_is_the_default():
    names = ("encoder.0", "decoder.0")
    model = Transformer(7, 7, 8, 2, 1, 1, 16)
    assert [model.get_submodule(name).norm_first for name in names] == [False, False]
    assert isinstance(model.encoder_norm, nn.Identity)
    assert not TransformerEncoderLayer(8, 2, 16).norm_first
    assert not TransformerDecoderLayer(8, 2, 16).norm_first


def test_ended_prefixes_do_not_take_the_place_of_those_that_go_on():
    """With two beams, the end token first and second still leaves two prefixes to extend."""
    table = torch.tensor(  # rows: bos 0, end 1, words 2, 3, 4
        [[0, 0.05, 0.48, 0.47, 0], [0, 1, 0, 0, 0], [0, 0.52, 0, 0, 0.48],
         [0, 0.51, 0, 0, 0.49], [0, 0.999, 0, 0, 0.001]], dtype=F64
    )  # fmt: skip
    asked = []

    def step(prefixes):
        asked.append(prefixes.tolist())
        return table[prefixes[:, -1]].log()

    beam_search(step, 0, 1, 4, beam_size=2, length_penalty=0.0)
    assert asked[2] == [[0, 3, 4], [0, 2, 4]] or asked[2] == [[0, 2, 4], [0, 3, 4]]


def test_a_step_that_leaves_one_way_is_followed_and_impossible_prefixes_are_dropped():
    """Fewer possible prefixes than beams: what has probability 0 is never asked about."""
    asked = []

    def step(prefixes):
        asked.extend(prefixes.tolist())
        logs = torch.full((len(prefixes), 4), -torch.inf)
        logs[:, 2 if prefixes.shape[1] < 3 else 1] = 0.0
        return logs

    found, score = beam_search(step, 0, 1, 6, beam_size=3, length_penalty=1.0)
    assert (found, score) == ([2, 2, 1], 0.0)
    assert asked == [[0], [0, 2], [0, 2, 2]]


@pytest.mark.parametrize("value", [-torch.inf, torch.nan])
def test_a_step_without_any_possible_token_is_named(value):
    with pytest.raises(ValueError, match="no finite log-probability"):
        beam_search(lambda p: torch.full((len(p), 4), value), 0, 1, 3)


def test_two_vocabularies_have_tables_of_their_own_sizes():
    # 5 times 8 is 8 times 5: a count of parameters does not see which one is the vocabulary.
    model = Transformer(5, 7, 8, 2, 1, 1, 16, 0.0, shared=False)
    assert model.src_embed.weight.shape == (5, 8)
    assert model.tgt_embed.weight.shape == (7, 8)
    src, tgt = torch.tensor([[1, 4, 2]]), torch.tensor([[1, 6]])
    assert model(src, tgt).shape == (1, 2, 7)
    with pytest.raises(ValueError, match="tokens must"):
        model(tgt, tgt)


def test_norms_come_last_unless_one_asks():
    """The default is the order of 2017, in the layers and in the whole."""
    torch.manual_seed(0)
    x, memory = draw(0, 2, 5, 8), draw(1, 2, 3, 8)
    encoder, decoder = (
        kind(8, 2, 16, 0.0).to(F64) for kind in (TransformerEncoderLayer, TransformerDecoderLayer)
    )
    # The last operation of a Post-Norm layer is a LayerNorm without an offset yet.
    for out in (encoder(x), decoder(x, memory)):
        assert out.mean(-1).abs().max() < 1e-12
    asked = TransformerEncoderLayer(8, 2, 16, 0.0, norm_first=True).to(F64)
    assert asked(x).mean(-1).abs().max() > 1e-3
    model = Transformer(5, 5, 8, 2, 1, 1, 16)
    assert not any(layer.norm_first for layer in (*model.encoder, *model.decoder))
    assert [*model.encoder_norm.parameters(), *model.decoder_norm.parameters()] == []


@BOTH_ORDERS
def test_the_program_to_take_away_needs_torch_alone_and_is_the_same_model(norm_first):
    cells = {cell.id: cell.source for cell in read(NOTEBOOKS / "10_transformer.ipynb").cells}
    program = cells["take-away"]
    assert len(program.splitlines()) <= 70
    nodes = list(ast.walk(ast.parse(program)))
    names = [one.name for node in nodes if isinstance(node, ast.Import) for one in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom)]
    assert {name.split(".")[0] for name in names} == {"torch"}
    alone = {}
    exec(program, alone)  # in a file of its own
    torch.manual_seed(1)
    theirs = Transformer(12, 12, 8, 2, 2, 2, 16, dropout=0.0, norm_first=norm_first).eval()
    ours = alone["Translator"](12, 8, 2, 16, pre=norm_first)
    with torch.no_grad():
        for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            mine.copy_(other)
    src, tgt = torch.randint(3, 12, (3, 6)), torch.randint(3, 12, (3, 5))
    src[1, 2:], tgt[2, 3:] = 0, 0
    torch.testing.assert_close(ours(src, tgt), theirs(src, tgt), atol=2e-5, rtol=2e-5)
    written = ours.write(src, 9)
    assert torch.equal(written, greedy_decode(theirs, src, 1, 2, 9))
