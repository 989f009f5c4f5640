"""Misconceptions of the chapter on looking inside, shown on the book's own model."""

from itertools import islice

import pytest
import torch
import torch.nn.functional as F

from book.own import encode, own_model
from book.own.inside import blocks, heads_off
from book.own.tokens import ID
from book.stories import VOCABULARY, stories
from book.stories import words as lists


@pytest.fixture(scope="module")
def model():
    return own_model()


@pytest.fixture(scope="module")
def told():
    return list(islice(stories("errata"), 30))


@torch.no_grad()
def right(model, told, kinds=None):
    """The part of the questions that is answered."""
    found = []
    for story in told:
        best = model(torch.tensor([encode(story.words)]))[0].argmax(-1)
        for q in story.questions:
            if kinds is None or q.kind in kinds:
                found.append(int(best[q.at - 1]) == ID[q.answer])
    return sum(found) / len(found)


@torch.no_grad()
def test_e130_a_head_with_a_map_is_hardly_needed(model, told):
    outputs = []
    layer = blocks(model)[1].attn.sublayer.out_proj
    hook = layer.register_forward_pre_hook(lambda _, inputs: outputs.append(inputs[0][0]))
    right(model, list(islice(stories("other"), 10)))
    hook.remove()
    mean = torch.cat(outputs).unflatten(-1, (4, -1)).mean(0)[3]

    def instead(_, inputs):
        x = inputs[0].unflatten(-1, (4, -1)).clone()
        x[..., 3, :] = mean
        return (x.flatten(-2),)

    hook = layer.register_forward_pre_hook(instead)
    share = right(model, told)
    hook.remove()
    assert share >= 0.97
    with heads_off(model, [(1, 0)]):
        assert right(model, told) <= 0.15
    # What that last head is needed for is another thing: it ends the stories.
    rows = [torch.tensor([encode(story.words)]) for story in told]

    def ends():
        last = (model(row)[0, -2].softmax(-1)[row[0, -1]] for row in rows)
        return sum(p.item() for p in last) / len(rows)

    assert {row[0, -1].item() for row in rows} == {ID["</s>"]}
    assert ends() > 0.9
    with heads_off(model, [(1, 3)]):
        assert ends() < 0.1


@torch.no_grad()
def test_e131_a_direction_for_names_and_hardly_an_analogy_for_verbs(model):
    rows = model.embed.weight - model.embed.weight.mean(0)
    she, he = (rows[[ID[w] for w in names]] for names in (lists.SHE, lists.HE))
    way = she.mean(0) - he.mean(0)
    assert (she @ way > 0).sum() + (he @ way < 0).sum() == 16
    verbs = list(lists.FORMS)
    assert len(verbs) == 17
    past = torch.stack([rows[ID[lists.FORMS[v][1]]] - rows[ID[v]] for v in verbs])
    hits = 0
    for k, verb in enumerate(verbs):
        others = past[[j for j in range(17) if j != k]].mean(0)
        cosines = F.cosine_similarity((rows[ID[verb]] + others)[None], rows)
        cosines[ID[verb]] = -1
        hits += VOCABULARY[cosines.argmax()] == lists.FORMS[verb][1]
    assert hits < 6


@torch.no_grad()
def test_e132_a_head_without_a_share_is_needed(model, told):
    text = "there was a red kite for anna . there was a blue drum for ben . who has what ? kite"
    seen = {}

    def note(name):
        def hook(_, inputs, output):
            x = output[0] if isinstance(output, tuple) else output
            seen[name] = (inputs[0][0, -1], x[0, -1])

        return hook

    attention = blocks(model)[0].attn
    hooks = [attention.register_forward_hook(note("attention"))]
    hooks.append(model.norm.register_forward_hook(note("norm")))
    logits = model(torch.tensor([encode(text)]))[0, -1]
    for hook in hooks:
        hook.remove()
    before, after = seen["attention"]
    stream = seen["norm"][0]
    rms = (stream.square().mean() + model.norm.eps).sqrt()
    lead = model.embed.weight[ID["anna"]] - model.embed.weight[ID["ben"]]
    share = ((after - before) * model.norm.weight) @ lead / rms
    assert abs(share) < 2
    assert logits[ID["anna"]] - logits[ID["ben"]] > 12
    with heads_off(model, [(0, 0)]):
        assert right(model, told, {"who"}) <= 0.20
