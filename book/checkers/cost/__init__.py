"""The exercises of chapter 16: FLOPs of a block, the time bound, the critical batch, decoding.

The oracles count: loops over the matrices, a search over the batch. They never call the library.
"""

from __future__ import annotations

from book.checkers.cost.estimates import CONTEXT, LATENCY, SEQUENCES, UTILIZATION
from book.checkers.cost.formulas import BLOCK_FLOPS, CRITICAL_BATCH, DECODE_RATE, TIME_BOUND

EXERCISES = {
    "latency": LATENCY,
    "block_flops": BLOCK_FLOPS,
    "context": CONTEXT,
    "time_bound": TIME_BOUND,
    "critical_batch": CRITICAL_BATCH,
    "sequences": SEQUENCES,
    "decode_rate": DECODE_RATE,
    "utilization": UTILIZATION,
}
