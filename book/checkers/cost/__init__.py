"""The exercises of chapter 16: FLOPs of a block, the critical batch, decoding, devices.

The oracles count: loops over the matrices, a search over the batch. They never call the library.
"""

from __future__ import annotations

from book.checkers.cost.estimates import CONTEXT, DEVICES, KNEE, SEQUENCES, UTILIZATION
from book.checkers.cost.formulas import BLOCK_FLOPS, CRITICAL_BATCH, DECODE_RATE

EXERCISES = {
    "block_flops": BLOCK_FLOPS,
    "context": CONTEXT,
    "critical_batch": CRITICAL_BATCH,
    "sequences": SEQUENCES,
    "decode_rate": DECODE_RATE,
    "devices": DEVICES,
    "utilization": UTILIZATION,
    "knee": KNEE,
}
