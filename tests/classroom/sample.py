"""A small assignment, and submissions to it made from a few lines each."""

import copy
import json

GIVEN = "import torch\nfrom torch import nn"
SOFTMAX = """
def my_softmax(x, dim):
    f = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    e = torch.exp(f - f.amax(dim, keepdim=True))
    return (e / e.sum(dim, keepdim=True)).to(x.dtype)
""".strip()
GAIN = """
class Gain(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return x * self.weight
""".strip()
DOUBLE = """
def double(n):
    return 2 * n
""".strip()

SOFTMAX_TEST = """
assert torch.allclose(my_softmax(torch.zeros(2, 4), 1), torch.full((2, 4), 0.25))
### BEGIN HIDDEN TESTS
from book.grading import require
require("softmax.softmax", my_softmax)
### END HIDDEN TESTS
""".strip()
GAIN_TEST = """
layer = Gain(3)
assert isinstance(layer, nn.Module), "Gain should be a module"
### BEGIN HIDDEN TESTS
layer.load_state_dict({"weight": torch.tensor([1.0, 2.0, 3.0])})
assert [p.shape for p in layer.parameters()] == [torch.Size([3])]
x_secret_input = torch.tensor([[7.0, -5.0, 0.5]], requires_grad=True)
y = layer(x_secret_input)
assert torch.equal(y, torch.tensor([[7.0, -10.0, 1.5]]))
y.sum().backward()
assert torch.equal(x_secret_input.grad, layer.weight.detach().expand(1, 3)), "a wrong gradient"
assert torch.equal(layer.weight.grad, x_secret_input.detach()[0])
### END HIDDEN TESTS
""".strip()
DOUBLE_TEST = """
assert double(2) == 4
### BEGIN HIDDEN TESTS
secret_number = 271828
assert double(secret_number) == 543656, "double should hold for large numbers"
assert double(-1.5) == -3.0
### END HIDDEN TESTS
""".strip()
POINTS = {"t1": 3, "t2": 3, "t3": 4}
# A row as the engine makes it.
ROW = {
    "student": "a", "file": "a.ipynb", "assignment": "x", "status": "graded", "score": 1.0,
    "max": 2.0, "reason": "", "tests": [], "cells": [], "remarks": [], "cut": 0, "by_hand": [],
    "seconds": 0.1,
}  # fmt: skip


def cell(source, grade_id="", kind="", *, points=None):
    """A code cell; `kind` as in nbgrader: given, solution, test, or nothing."""
    metadata = {}
    if kind:
        metadata["nbgrader"] = {
            "grade": kind == "test", "solution": kind == "solution",
            "locked": kind in ("test", "given"), "task": False, "grade_id": grade_id,
            "schema_version": 3,
        }  # fmt: skip
        if points is not None:
            metadata["nbgrader"]["points"] = points
    return {
        "cell_type": "code", "id": grade_id or f"free-{abs(hash(source)) % 10**8}",
        "metadata": metadata, "source": source, "outputs": [], "execution_count": None,
    }  # fmt: skip


def text(source):
    return {"cell_type": "markdown", "id": f"text-{len(source)}", "metadata": {}, "source": source}


def notebook(*cells):
    spec = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": spec},
            "cells": list(cells)}  # fmt: skip


def _marked(source):
    """A solution cell in which only the body of the definition is the solution."""
    first, *rest = source.split("\n")
    return "\n".join([first, "    ### BEGIN SOLUTION", *rest, "    ### END SOLUTION"])


def source():
    """The teacher's notebook."""
    return notebook(
        text("# Three parts\n\nWrite them."),
        cell(GIVEN, "imports", "given"),
        text("Softmax along `dim`."),
        cell(_marked(SOFTMAX), "q1", "solution"),
        cell(SOFTMAX_TEST, "t1", "test", points=3),
        cell(_marked(GAIN), "q2", "solution"),
        cell(GAIN_TEST, "t2", "test", points=3),
        cell(_marked(DOUBLE), "q3", "solution"),
        cell(DOUBLE_TEST, "t3", "test", points=4),
    )


def submission(q1=SOFTMAX, q2=GAIN, q3=DOUBLE, *, first=None, last=None):
    """What a student hands in: answers, and cells that were added at the start and the end."""
    cells = copy.deepcopy(source()["cells"])
    answers = {"q1": q1, "q2": q2, "q3": q3}
    for one in cells:
        if one["id"] in answers:
            one["source"] = answers[one["id"]]
        elif one["id"] in POINTS:
            one["source"] = one["source"].split("\n###")[0]
    if first is not None:
        cells.insert(0, cell(first))
    if last is not None:
        cells.append(cell(last))
    return notebook(*cells)


def write(folder, name, content):
    """Write a notebook, or bytes, at `folder/name`."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def write_source(folder):
    return write(folder, "parts/parts.ipynb", source())
