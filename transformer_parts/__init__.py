"""The parts of a Transformer, one module per chapter of the book.

`tensors`: Tensors, the Hadamard product, parameters, and how to check a claim.
`map`: The map: the original encoder–decoder Transformer.
`feed_forward`: Feed-forward networks and gating.
`normalization`: Normalization: BatchNorm, LayerNorm, RMSNorm.

Woven by `make weave`; do not edit.
"""
