"""The exercises of the chapter on attention: masks, a leak test, and heads.

The oracles are torch's own operators and autograd, never the book's library. As in the other
chapters a builder is the right computation in parts, and a wrong answer replaces one of them.
"""

from book.checkers.attention.asked import DECIDED, FULL, WRONG_KEY
from book.checkers.attention.causal_mask import CAUSAL_MASK
from book.checkers.attention.leaks import LEAKS
from book.checkers.attention.next_letter import NEXT_LETTER
from book.checkers.attention.sdpa import SDPA
from book.checkers.attention.self_attention import SELF_ATTENTION
from book.checkers.core import Exercise

EXERCISES: dict[str, Exercise] = {
    "decided": DECIDED,
    "causal_mask": CAUSAL_MASK,
    "sdpa": SDPA,
    "leaks": LEAKS,
    "next_letter": NEXT_LETTER,
    "self_attention": SELF_ATTENTION,
    "wrong_key": WRONG_KEY,
    "full": FULL,
}
