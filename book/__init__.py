"""What makes the chapters a book: explorers, figures, witnesses, checkers, and the site build.

The chapters themselves are `notebooks/`; the library they define is `transformer_parts`.
Each module here does one thing:

`explorer`    pictures that can be touched, in a live kernel and on a page without one
`figures`     the palette, and `show(fig, alt=...)`
`witness`     the machine check of one numbered equation
`checkers`    the exercises: their oracles, and their named wrong answers
`chapters`    reading the notebooks
`data`        reading files of data
`outputs`     do two runs of a cell agree?
`lint`        what a notebook must hold before it may be published
`refresh`     run a notebook and store its outputs in canonical form
`redraw`      draw the stored pictures anew, without running a cell
`weave`       collect the cells tagged `export` into `transformer_parts`
`sphinx_ext`  the website
`colab`       notebooks that fetch the book where it is not installed
"""
