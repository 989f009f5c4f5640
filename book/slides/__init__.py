"""Slides: for each chapter a deck that a teacher can show without a network, `make slides`.

A deck is made from the page of the chapter as `make book` has built it, so there is no second
source: `source.py` reads from the page what a slide can hold (a picture, a formula, a finding, a
table, short code, an exercise, a question) with the sentences beside it, `compose.py` puts this on
slides, `write.py` writes the files. In the browser `slides.js` turns them, and gives each picture
the size for which there is room. Explorers are those of the page, with the same script and data.

The text of a slide is chosen by where it stands in the chapter:

- before a picture, a table or code: the paragraph directly before it, if it is short, else its
  first sentence; before a formula: the last sentence of that paragraph, which leads to it;
- after a picture: the first sentence of the paragraph directly after it; after a formula: the first
  sentence of a paragraph that goes on with it in lower case;
- where a section begins: its first sentence;
- of a list the first sentence of each entry.

All of the prose is in the notes of the slides. A short finding stands with the picture before it.
Code is at most ten lines: of longer code the first definition, if that is short, and a link.

Why not reveal.js, through nbconvert: its slides are whole cells that an author marks one by one, so
a slide would hold all of a text cell, and the folds, facts and numbers of the equations, which the
site makes, would be missing; MathJax would typeset the formulas, and like reveal.js itself it comes
from another host. From the page the MathML, the explorers and their script are just taken along.
"""
