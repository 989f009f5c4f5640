"""The book to take away: one PDF and one EPUB, made from the built website.

    python -m book.take_away pdf _build/transformer-parts.pdf
    python -m book.take_away epub _build/transformer-parts.epub --check

The pages of the site are opened in Chromium, so there is one way of drawing: explorers in their
first state, by the same script as on the page. What is taken from a page is XHTML that needs no
script (collect.js). The PDF is that, printed; the EPUB is that, in a box.
"""
