"""The explorers of chapter 5: softmax and its gradient by hand, masks by torch's own operator."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from book.explorer import Bars, Heat, Lines

from .reading import Seen, check_explorer, says


def softmax(scores):
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


@check_explorer("explore-root", {"features of a head": "16", "scores are divided": "by d_head"})
def test_scores_divided_by_the_width_give_small_gradients():
    torch.manual_seed(5)
    queries = torch.randn(2, 20, 10, 1024)[..., :16].numpy()
    keys = torch.randn(2, 20, 12, 1024)[..., :16].numpy()
    (q, d_out), (k, v) = queries, keys
    scores = q @ k.swapaxes(1, 2) / 16
    p = softmax(scores)
    d_p = d_out @ v.swapaxes(1, 2)
    d_scores = p * (d_p - (p * d_p).sum(-1, keepdims=True))
    sizes = np.sort(np.sqrt(((d_scores @ k / 16) ** 2).mean(-1)).ravel())
    percent = np.arange(0, 101, 2)
    return Seen(
        says(
            "{} features, divided by d_head: the scores have variance {}, the largest of twelve "
            "weights is {} on average ... size {} in the mean and {} in the median",
            *(16, scores.var(ddof=1), p.max(-1).mean(), sizes.mean(), np.median(sizes)),
        ),
        Bars(
            "mean weights, sorted",
            [str(i) for i in range(1, 13)],
            {"weight": -np.sort(-p, -1).mean((0, 1))},
            "rank of the key",
            "weight",
        ),
        Lines(
            "gradient of each query, sorted",
            percent,
            {"size of dq": np.interp(percent / 100 * 199, range(200), sizes)},
            "queries, %",
            "size, at least 1e-6",
            yscale="log",
        ),
    )


@check_explorer("explore-masks", {"mask": "causal and padding", "query": "6"})
def test_a_query_behind_the_padding_sees_the_tokens_before_it():
    torch.manual_seed(7)
    q, k = torch.randn(8, 16), torch.randn(8, 16)
    sees = torch.tensor([[key <= query and key < 5 for key in range(8)] for query in range(8)])
    weights = F.scaled_dot_product_attention(q[None], k[None], torch.eye(8)[None], sees[None])[0]
    shown = [
        [0.1 + s * (0.9 if i == 6 else 0.6) for s in row] for i, row in enumerate(sees.tolist())
    ]
    best = weights[6].tolist().index(weights[6].max())
    return Seen(
        says(
            "Mask: causal and padding. Query {} may attend to {} of {} keys; the largest weight is "
            "{}, on key {}",
            *(6, 5, 8, weights[6].max(), best),
        ),
        Heat("mask, query marked", shown, "key", "query", limits=(0, 1)),
        Heat("weights", weights, "key", "query", limits=(0, 1)),
        Bars("weights of this query", list("01234567"), {"weight": weights[6]}, "key", "weight"),
    )


@check_explorer("explore-heads", {"heads": "4"})
def test_four_heads_compare_tokens_by_a_matrix_of_rank_sixteen():
    torch.manual_seed(11)
    w_q, w_k = (torch.randn(64, 64).numpy() / 8 for _ in range(2))
    tokens = torch.randn(1, 16, 64).numpy()[0]

    def first_head(width):
        q, k = (tokens @ w[:, :width] for w in (w_q, w_k))
        return softmax(q @ k.T / math.sqrt(width))

    every = [first_head(64 // heads) for heads in (1, 2, 4, 8, 16, 32, 64)]
    product = w_q[:, :16] @ w_k[:, :16].T
    squares = np.linalg.eigvalsh(product @ product.T)[::-1]
    parameters = sum(p.numel() for p in nn.MultiheadAttention(64, 4).parameters())
    weights = 4 * 16 * 16
    return Seen(
        says(
            "{} heads of {} features: {} parameters as always, {} weights for {} tokens ... one "
            "head has rank {} of {}",
            *(4, 16, parameters, weights, 16, int(np.linalg.matrix_rank(product)), 64),
        ),
        Lines(
            "singular values, W_Q W_K^T",
            range(1, 65),
            {"singular value": np.sqrt(squares.clip(0))},
            "number",
            "singular value",
        ),
        Heat(
            "weights of head 0",
            every[2],
            "key",
            "query",
            limits=(np.min(every), np.max(every)),
        ),
        Bars(
            "entries to hold, thousands",
            ["parameters", "q, k and v", "weights"],
            {"thousands": [parameters / 1e3, 3 * 16 * 64 / 1e3, weights / 1e3]},
            "what",
            "thousands",
        ),
    )
