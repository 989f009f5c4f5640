"""Answers that are alike are found whatever was renamed, and honest ones are left alone."""

import json

from quick import Idle, table
from sample import GAIN, ROW, SOFTMAX, submission, write, write_source

from book.grading import __main__ as command
from book.grading import notebooks, prints, running

# The same long answer: by one, renamed and commented by another, and written by a third.
LONG = """
def attend(q, k, v, mask):
    scores = (q @ k.transpose(-1, -2)) / q.shape[-1] ** 0.5
    scores = scores.masked_fill(~mask, float("-inf"))
    shifted = scores - scores.amax(-1, keepdim=True).nan_to_num(0.0)
    weights = torch.exp(shifted)
    total = weights.sum(-1, keepdim=True)
    for row in range(total.shape[0]):
        if total[row].min() == 0:
            total[row] = total[row].clamp(min=1e-30)
    return (weights / total) @ v, weights
"""
RENAMED = '''"""def attend(query, key, value, keep):
    "My own words."
    s = (query @ key.transpose(-1, -2)) / query.shape[-1] ** 0.5   # scaled

    s = s.masked_fill(~keep, float("-inf"))
    t = s - s.amax(-1, keepdim=True).nan_to_num(0.0)
    w = torch.exp(t)
    n = w.sum(-1, keepdim=True)
    for i in range(n.shape[0]):
        if n[i].min() == 0:
            n[i] = n[i].clamp(min=1e-30)
    return (w / n) @ value, w
"""'''.strip('"')
OTHER = """
def attend(q, k, v, mask):
    d = q.size(-1)
    logits = torch.einsum("...qd,...kd->...qk", q, k).div(math.sqrt(d))
    bias = torch.zeros_like(logits).masked_fill(mask.logical_not(), -1e9)
    p = F.softmax(logits + bias, dim=-1)
    dead = mask.logical_not().all(-1, keepdim=True)
    p = torch.where(dead, torch.zeros_like(p), p)
    out = torch.einsum("...qk,...kd->...qd", p, v)
    return out, p
"""


def of(**answers):
    return {who: {"q": prints.prints(text)} for who, text in answers.items()}


def test_a_renamed_copy_is_found_and_another_answer_is_not():
    assert prints.prints(LONG) == prints.prints(RENAMED) != []
    found = prints.alike(of(ann=LONG, ben=RENAMED, cho=OTHER), {})
    assert found == {"ann": {"ben": ["q"]}, "ben": {"ann": ["q"]}}


def test_a_copy_with_a_line_changed_is_found():
    changed = RENAMED.replace("clamp(min=1e-30)", "clamp(min=1e-20)")
    assert prints.prints(changed) != prints.prints(LONG)
    assert "ben" in prints.alike(of(ann=LONG, ben=changed, cho=OTHER), {})


def test_what_is_given_or_common_or_short_is_no_sign():
    # The teacher's own solution; what four of five wrote; a right answer of one line.
    assert prints.alike(of(ann=LONG, ben=RENAMED), {"q": prints.prints(LONG)}) == {}
    many = of(a=LONG, b=LONG, c=RENAMED, d=LONG, e=OTHER)
    assert prints.alike(many, {}) == {}
    short = "def double(n):\n    return 2 * n"
    assert prints.alike(of(ann=short, ben=short), {}) == {}
    assert prints.alike(of(ann=GAIN, ben=SOFTMAX), {}) == {}


def test_what_cannot_be_read_has_no_fingerprint():
    for text in ("def f(:", "", "x" * 200_000, "\x00", "(" * 300 + ")" * 300):
        assert prints.prints(text) == []


class Marked(Idle):
    """An engine that takes the fingerprints of what it is given."""

    def graded(self, some, jobs):
        for one in some:
            plan = notebooks.plan(self.work, notebooks.cells(json.loads(one.path.read_text())))
            marks = {s.name: prints.prints(s.student) for s in plan.steps if s.kind == "solution"}
            yield one, {**ROW, "assignment": "parts", "prints": marks}


def test_the_table_names_them_and_no_page_does(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(running, "Engine", Marked)
    teacher = write_source(tmp_path / "source")
    for name, text in (("ann", LONG), ("ben", RENAMED), ("cho", OTHER)):
        write(tmp_path, f"given/{name}/parts.ipynb", submission(q3=text))
    asked = ["grade", teacher, tmp_path / "given", "--csv", tmp_path / "o.csv", "--json",
             tmp_path / "o.json", "--feedback", tmp_path / "pages"]  # fmt: skip
    assert command.main(list(map(str, asked))) == 0
    assert "Answers much alike, a hint and no verdict: ann, ben;" in capsys.readouterr().out
    assert [r["alike"] for r in table(tmp_path)] == ["ben: q3", "ann: q3", ""]
    assert json.loads((tmp_path / "o.json").read_text())[0]["alike"] == ["ben: q3"]
    assert "prints" not in json.loads((tmp_path / "o.json").read_text())[0]
    assert "ben" not in (tmp_path / "pages/ann.html").read_text()
