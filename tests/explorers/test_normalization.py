"""The explorers of chapter 8: torch's norms, their formulas, and half precision step by step."""

import math

import numpy as np
import torch
import torch.nn.functional as F

from book.explorer import Bars, Box, Cell, Dot, Heat, Lines, Scene

from .reading import Seen, check_explorer, says


def column_by_column(sheet):
    """BatchNorm with a pencil, and its mean and spread of each feature."""
    out, found = np.zeros((3, 4)), []
    for j in range(4):
        column = [sheet[i][j] for i in range(3)]
        mean = sum(column) / 3
        spread = math.sqrt(sum((v - mean) ** 2 for v in column) / 3 + 1e-5)
        out[:, j] = [(v - mean) / spread for v in column]
        found.append((mean, spread))
    return out, found


@check_explorer(
    "sheet",
    {"norm": "BatchNorm", "number": "cat, feature 2", "what happens": "add 6 to it"},
)
def test_a_number_of_the_sheet_moves_its_whole_column_under_batch_norm():
    tokens, changed = ["the", "cat", "sat"], [[1, 1, 3, 3], [2, 10, 6, 8], [0, 4, 0, 4]]
    before, _ = column_by_column([[1, 1, 3, 3], [2, 4, 6, 8], [0, 4, 0, 4]])
    after, found = column_by_column(changed)
    mean, spread = found[1]
    moved = np.abs(after - before) > 0.005
    lit_in = np.array([[False] * 4, [False, True, False, False], [False] * 4])
    ins = {"averaged together": Box(0.94, -3.07, 1.12, 3.14, strong=True)}
    outs = dict(ins)
    for i, j in np.ndindex(3, 4):
        name, corner = f"{tokens[i]}, feature {j + 1}", (j + 0.86, -i - 0.17)
        ins |= {
            name: Cell(
                i, j, str(changed[i][j]), role="data",
                fill=0.5 if lit_in[i, j] else 0.1, strong=(i, j) == (1, 1),
            ),
            f"{name} moved": Dot(*corner, size=0.5, shown=bool(lit_in[i, j])),
        }  # fmt: skip
        middle, width = found[j]
        said = f"({changed[i][j]} − {middle:.2f}) / {width:.2f} = {after[i, j]:.2f}"
        outs |= {
            name: Cell(
                i, j, f"{after[i, j]:.2f}".replace("-", "−"), role="data",
                fill=0.5 if moved[i, j] else 0.1, detail=said.replace("-", "−"),
            ),
            f"{name} moved": Dot(*corner, size=0.5, shown=bool(moved[i, j])),
        }  # fmt: skip
    plane = {"xlim": (-0.75, 4.1), "ylim": (-3.15, 0.6)}
    return Seen(
        says(
            "BatchNorm: feature {} is ({}, {}, {}), with mean {} and spread {}, so its {} becomes "
            "({} − {}) / {} = {}. {} of the {} outputs moved, in {} of the {} tokens",
            *(2, 1, 10, 4, mean, spread, 10, 10, mean, spread, (10 - mean) / spread),
            *(int(moved.sum()), 12, 3, 3),
        ),
        Scene("in: touch a number", ins, **plane),
        Scene("out: touch a number", outs, **plane),
    )


@check_explorer(
    "explore-epsilon",
    {"size of the row": "0.0032", "ε": "0.001", "ε stands": "outside the root"},
)
def test_how_much_of_a_small_row_survives_epsilon():
    exponents = np.arange(-60, 11) / 10
    rows = torch.tensor([[1.0, -1.0]]) * torch.tensor(10.0**exponents)[:, None]
    inside = F.rms_norm(rows, (2,), eps=1e-3)[:, 0].numpy()
    outside = [r / (1e-3 + r) for r in 10.0**exponents]
    there = exponents.tolist().index(-2.5)
    this = np.full(71, np.nan)
    this[there] = outside[there]
    return Seen(
        says(
            "A row of size {} comes out with size {} if ε = {} stands outside the root, and with "
            "size {} if it stands inside the root",
            *(10**-2.5, outside[there], 0.001, inside[there]),
        ),
        Lines(
            "the size that comes out",
            10.0**exponents,
            {"inside the root": inside, "outside the root": outside, "this row": this},
            "size of the row",
            "size of the result",
            xscale="log",
        ),
    )


@check_explorer("explore-offset", {"offset added to every feature": "−2"})
def test_an_offset_reaches_rms_norm_alone():
    # The row that the chapter chose, of mean zero.
    row = np.array([1.2, -0.7, 0.3, -1.5, 0.9, -0.2])
    assert abs(row.mean()) < 1e-12
    x = row - 2
    layer = row / np.sqrt((row**2).mean() + 1e-5)
    rms = x / np.sqrt((x**2).mean())
    return Seen(
        says(
            "Offset {}: LayerNorm's first entry is {}, as without an offset. RMSNorm's is {}, and "
            "the mean of its output is {}",
            *(-2, layer[0], rms[0], rms.mean()),
        ),
        Bars("input", list("123456"), {"x": x}, "feature", "value"),
        Bars("output", list("123456"), {"LayerNorm": layer, "RMSNorm": rms}, "feature", "value"),
    )


@check_explorer(
    "explore-axis",
    {
        "norm": "BatchNorm",
        "how unequal the features are": "1.5",
        "how unequal the tokens are": "3",
    },
)
def test_batch_norm_makes_features_equal_and_not_tokens():
    torch.manual_seed(3)
    noise = torch.randn(8, 10).numpy()
    x = [
        [noise[i, j] * np.exp(1.5 * j / 9) + 3 * (2 * i / 7 - 1) for j in range(10)]
        for i in range(8)
    ]
    x = np.array(x)
    y = (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5)
    tokens, features = np.sqrt((y**2).mean(1)), np.sqrt((y**2).mean(0))
    return Seen(
        says(
            "BatchNorm: the sizes of the tokens are not the same, from {} to {}; those of the "
            "features are all the same, from {} to {}",
            *(tokens.min(), tokens.max(), features.min(), features.max()),
        ),
        Heat(
            "the numbers, colored from −3 to 3",
            y,
            "feature",
            "token",
            limits=(-3, 3),
            diverging=True,
        ),
        Bars(
            "size of each token", list("01234567"), {"token": tokens}, "token", "root mean square"
        ),
        Bars(
            "size of each feature",
            list("0123456789"),
            {"feature": features},
            "feature",
            "root mean square",
        ),
    )


@check_explorer("explore-half", {"size of the entries": "0.001", "dtype": "float16"})
def test_squares_of_small_entries_in_half_precision():
    half, single = np.float16, np.float32
    x = (np.array([1, -2, 0.5, 1.5]) * 1e-3).astype(half)
    mean = half((x * x).astype(single).mean())  # each square is rounded, and then the mean
    here = x * half(1 / np.sqrt(single(mean + half(1e-5))))
    exact = x.astype(float) / np.sqrt((x.astype(float) ** 2).mean() + 1e-5)
    in_single = x.astype(single) / np.sqrt((x.astype(single) ** 2).mean() + single(1e-5))
    results = {
        "squared in this dtype": here,
        "squared in float32": in_single.astype(half),
        "exact": exact,
    }
    sizes = [np.sqrt((y.astype(float) ** 2).mean()) for y in results.values()]
    return Seen(
        says(
            "float16, entries around {}: squared in this dtype they come out with size {}, squared "
            "in float32 with size {}; exact is {}",
            *(1e-3, *sizes),
        ),
        Bars("result", list("1234"), results, "feature", "value"),
    )


@check_explorer("explore-sick", {"weights times": "2", "norm": "RMSNorm"})
def test_thirty_layers_with_a_norm_behind_each_matrix():
    torch.manual_seed(7)
    matrices, x = torch.randn(30, 64, 64) / 8, torch.randn(16, 64)

    def size(t):
        return t.square().mean().sqrt().item()

    sizes, slopes, h = [size(x)], [], x
    for matrix in matrices:
        made = h @ (2 * matrix)
        s = (made.square().mean(1, keepdim=True) + 1e-5).sqrt()
        slopes.append((made / s, s, matrix))
        h = (made / s).clamp(min=0)
        sizes.append(size(h))
    g, back = h, [size(h)]
    for hat, s, matrix in reversed(slopes):
        g = g * (hat > 0)
        g = (g - hat * (g * hat).mean(1, keepdim=True)) / s @ (2 * matrix).T
        back.append(size(g))
    back = np.array(back[::-1]) / back[0]
    bare = [x]
    for matrix in matrices:
        bare.append((bare[-1] @ (2 * matrix)).clamp(min=0))
    slope, bare_back = bare[-1], [size(bare[-1])]
    for h, matrix in zip(bare[:0:-1], matrices.flip(0), strict=True):
        slope = (slope * (h > 0)) @ (2 * matrix).T
        bare_back.append(size(slope))
    bare_back = np.array(bare_back[::-1]) / bare_back[0]
    rows = {"the norm chosen": sizes, "no norm": [size(h) for h in bare]}
    return Seen(
        says(
            "Weights times {}, norm: RMSNorm. Rows of size {} leave the thirtieth layer with size "
            "{}, and a gradient of size 1 there arrives at the first with size {}",
            *(2, sizes[0], sizes[-1], back[0]),
        ),
        Lines("size of the rows", np.arange(31), rows, "layer", "size", yscale="log"),
        Lines(
            "size of the gradient",
            np.arange(31),
            {"the norm chosen": back, "no norm": bare_back},
            "layer",
            "size, 1 at the end",
            yscale="log",
        ),
    )
