"""The book's parts on a GPU: are they right there, and how long do they take?

    python -m book.accelerator parts     every public part, values and gradients, against the CPU
    python -m book.accelerator clock FILE    chapter 16's estimates with a clock beside them

CI has no GPU. What a clock said on one is kept in h100.json, and chapter 16 puts it beside what
the data sheet predicts.
"""
