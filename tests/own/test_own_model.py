"""The book's own model: how it is trained, and that the stored weights are what is said of them."""

import itertools
import json
import math
from dataclasses import asdict

import pytest
import torch

from book.measured import fingerprint
from book.own import FOLDER, decode, encode, made, own_model, snapshots
from book.own.files import digest_of_stories, save, save_snapshots
from book.own.measure import held_out, measure, shelves
from book.own.muon import Muon, orthogonalized
from book.own.recipe import (
    Recipe,
    batches,
    loss_of,
    new_model,
    optimizers,
    padded,
    schedule,
    train,
)
from book.own.snapshots import snapshot
from book.own.tokens import PAD_ID
from book.stories import VOCABULARY, stories


@pytest.fixture(scope="module")
def model():
    return own_model()


@pytest.fixture(scope="module")
def measured(model):
    return measure(model, held_out())


# ---- what is stored


def test_the_recipe_and_its_stories_are_those_of_the_weights():
    assert made()["recipe"] == asdict(Recipe())
    assert made()["stories"] == digest_of_stories(Recipe())
    assert made()["weights"] == fingerprint(FOLDER / "model.safetensors")


def test_the_first_steps_are_those_of_the_weights():
    losses = {}
    train(Recipe(), on_step=lambda step, loss, _: losses.setdefault(step, loss), stop=30)
    stored = {point["step"]: point["train"] for point in made()["curve"]}
    for step in (1, 10, 30):
        assert losses[step] == pytest.approx(stored[step], abs=2e-3)


def test_the_stored_weights_have_the_stored_loss(measured):
    end = made()["curve"][-1]
    assert end["step"] == Recipe().steps
    assert measured.loss == pytest.approx(end["loss"], abs=2e-4)
    for kind, asked in measured.questions.items():
        assert asked.right == pytest.approx(end[kind], abs=2e-4)


def test_the_loss_is_near_the_floor(measured):
    assert 0 < measured.excess < 0.05
    assert made()["loss"] - made()["floor"] == pytest.approx(measured.excess, abs=0.01)


def test_questions_are_answered_and_not_by_a_short_cut():
    asked = made()["questions"]
    assert set(asked) == {
        "who", "which", "where", "what", "how", "together", "every", "yesterday"
    }  # fmt: skip
    for kind, one in asked.items():
        assert one["number"] >= 80, kind
        assert one["right"] >= 0.9, kind
        assert one["right"] >= max(one["short_cuts"].values()) + 0.15, kind


def test_counting_stays_on_its_shelves(measured):
    stored = made()["shelves"]
    assert list(stored) == ["1", "2", "3", "4", "5"]
    again = shelves(made()["counted"], held_out(), (1,))
    assert again[1] == pytest.approx(stored["1"], abs=1e-3)
    assert min(stored.values()) > measured.loss + 0.3


@torch.no_grad()
def test_what_is_saved_is_what_is_loaded(tmp_path):
    model, tokens = new_model(Recipe()), torch.tensor([encode(held_out(1)[0].words)])
    save(model, Recipe(), {"loss": 1.5}, tmp_path)
    torch.testing.assert_close(own_model(tmp_path)(tokens), model(tokens), rtol=0, atol=1e-5)
    stored = made(tmp_path)
    assert stored["loss"] == 1.5
    assert stored["weights"] == fingerprint(tmp_path / "model.safetensors")
    # The runs with a part taken out are made by themselves, the snapshots during a training.
    assert {p.name for p in tmp_path.iterdir()} == {p.name for p in FOLDER.iterdir()} - {
        "without.json",
        "snapshots.json",
    }


def test_the_snapshots_are_of_these_weights(model):
    """The last one is what the stored model says; the first is one of the recipe's first step."""
    stored = json.loads((FOLDER / "snapshots.json").read_text(encoding="utf-8"))
    assert stored["weights"] == made()["weights"]
    taken = snapshots()
    assert [one["step"] for one in taken] == [point["step"] for point in made()["curve"]]
    first = {}
    train(Recipe(), on_step=lambda step, _, m: first.setdefault(step, snapshot(m)), stop=1)
    for now, then in ((first[1], taken[0]), (snapshot(model), taken[-1])):
        assert now["said"] == then["said"]
        for layer, of_layer in zip(now["maps"], then["maps"], strict=True):
            for head, of_head in zip(layer, of_layer, strict=True):
                for row, of_row in zip(head, of_head, strict=True):
                    assert row == pytest.approx(of_row, abs=0.0101)


def test_what_is_saved_of_snapshots_is_what_is_loaded(tmp_path):
    save(new_model(Recipe()), Recipe(), {}, tmp_path)
    taken = [{"step": 1, "said": 'a "word"', "maps": [[[[1.0], [0.25, 0.75]]]]}]
    save_snapshots(taken, tmp_path)
    assert snapshots(tmp_path) == taken


def test_the_files_are_small():
    assert (FOLDER / "model.safetensors").stat().st_size < 4e6
    assert sum(p.stat().st_size for p in FOLDER.iterdir()) < 5e6


# ---- how it is made


def test_loss_and_floor_are_of_the_same_words(model):
    # A story at a time, without padding.
    texts = held_out(8)
    whole = measure(model, texts, batch=8)
    surprises = [
        (len(t.words) - 1) * loss_of(model, torch.tensor([encode(t.words)])).item() for t in texts
    ]
    assert whole.loss == pytest.approx(
        sum(surprises) / sum(len(t.words) - 1 for t in texts), abs=1e-5
    )


def test_a_model_that_knows_nothing_answers_nothing():
    asked = measure(new_model(Recipe()), held_out(100))
    assert asked.loss > math.log(len(VOCABULARY))
    assert max(one.right for one in asked.questions.values()) < 0.2


def test_no_story_is_held_out_that_is_trained_on():
    trained = {t.words for t in itertools.islice(stories("train 0"), 3000)}
    assert not trained & {t.words for t in held_out()}


def test_every_story_has_room():
    longest = max(len(t.words) for t in itertools.islice(stories("long"), 5000))
    # The longest possible: a full opening, nine sentences, a babble and all five lists.
    assert longest < 290 < Recipe().max_seq_len


def test_a_batch_holds_stories_and_padding():
    recipe = Recipe(batch=4)
    first, again = next(batches(recipe)), next(batches(recipe))
    assert torch.equal(first, again)
    assert first.shape[0] == 4
    assert (first[:, 0] == encode([])[0]).all()
    assert padded([[1, 2, 3], [1]]).tolist() == [[1, 2, 3], [1, PAD_ID, PAD_ID]]


def test_the_rate_rises_and_falls():
    recipe = Recipe(steps=1000, warmup=100)
    rates = [schedule(recipe, step) for step in range(1000)]
    assert max(rates) == pytest.approx(rates[99], rel=0.03) == pytest.approx(1, rel=0.03)
    assert rates[0] == pytest.approx(0.01)
    assert rates[-1] == pytest.approx(recipe.last, abs=1e-4)


def test_embeddings_share_a_direction_at_the_start():
    rows = new_model(Recipe()).embed.weight
    assert rows.mean(0).norm().item() == pytest.approx(1, abs=0.25)
    assert new_model(Recipe(common=0.0)).embed.weight.mean(0).norm() < 0.15


def test_an_unknown_optimizer_is_refused():
    with pytest.raises(ValueError, match="'muon' or 'adamw', got 'sgd'"):
        optimizers(new_model(Recipe()), Recipe(optimizer="sgd"))


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_every_parameter_has_one_optimizer(optimizer):
    model = new_model(Recipe())
    groups = [g for o in optimizers(model, Recipe(optimizer=optimizer)) for g in o.param_groups]
    held = [id(p) for g in groups for p in g["params"]]
    assert sorted(held) == sorted(id(p) for p in model.parameters())


def test_words_and_numbers_are_the_same_text():
    text = str(held_out(1)[0])
    assert decode(encode(text)) == text
    with pytest.raises(ValueError, match="'dog' is no word"):
        encode("the dog")
    with pytest.raises(ValueError, match="999 is the number of no word"):
        decode([999])


# ---- Muon


def test_muon_takes_the_steps_of_torch():
    torch.manual_seed(0)
    ours = [torch.nn.Parameter(torch.randn(size)) for size in ((6, 10), (10, 6), (8, 8))]
    theirs = [torch.nn.Parameter(p.detach().clone()) for p in ours]
    start = [p.detach().clone() for p in ours]
    here = Muon(ours, lr=0.02, weight_decay=0.1)
    there = torch.optim.Muon(theirs, lr=0.02, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    for _ in range(4):
        for p, q in zip(ours, theirs, strict=True):
            p.grad = torch.randn_like(p)
            q.grad = p.grad.clone()
        here.step()
        there.step()
    for p, q, s in zip(ours, theirs, start, strict=True):
        # torch rounds to bfloat16 on the way: 2^-8 in each product.
        assert (p - q).norm() < 0.03 * (q - s).norm()


def test_a_step_of_muon_is_nearly_orthogonal():
    values = torch.linalg.svdvals(orthogonalized(torch.randn(3, 20, 50)))
    assert values.min() > 0.5
    assert values.max() < 1.3


def test_muon_takes_matrices_only():
    with pytest.raises(ValueError, match=r"takes matrices, got a parameter of shape \(3,\)"):
        Muon([torch.nn.Parameter(torch.zeros(3))])
