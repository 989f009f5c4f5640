"""The parts of a Transformer, one module per chapter of the book.

`tensors`: Tensors, and how to check a claim.
`map`: The map: the original encoder–decoder Transformer.
`softmax`: Softmax, cross-entropy, and their numerics.
`embeddings`: Token embeddings and sinusoidal positions.
`attention`: Attention: scaled dot product, heads and masks.
`activations`: Activation functions and their derivatives.
`feed_forward`: Feed-forward networks and gating.
`normalization`: Normalization: BatchNorm, LayerNorm, RMSNorm.
`residual`: Residual connections: the stream, Post-Norm and Pre-Norm.
`transformer`: Encoder layer, decoder layer, the whole Transformer.
`rope`: Rotary position embedding: positions as angles.
`long_context`: Longer contexts: interpolation, NTK, YaRN, ALiBi.
`kv_cache`: The KV cache, multi-query and grouped-query attention.
`mla`: Multi-head latent attention.
`decoder`: The modern decoder.
`cost`: Cost and speed.
`tokens`: Tokens: from text to numbers.
`training`: Training: from a likelihood to a model.
`inside`: Looking inside: what a trained model has learned.
`experts`: Mixture of experts.
`local_attention`: Local attention and FlashAttention.
`families`: The family tree: one decoder, a few lines of data for each family.
`serving`: Serving a model.
`recurrence`: Beyond attention.

Woven by `make weave`; do not edit.
"""
