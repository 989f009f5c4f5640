"""The look of the website: a Sphinx theme of the book's own.

It inherits Sphinx's basic theme. Templates say what stands around the text (`layout.html`, filled
by `page.py`), a translator writes the elements of the text (`translator.py`, `boxes.py`), one style
sheet and one script make it a page (`style/`, `site.js`, joined and named by `assets.py`). When all
pages are there, `finish.py` adds what needs them all, and the font of the formulas is cut down to
the signs that occur.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.config import Config

from book import xray
from book.theme import assets, boxes, finish, page, spreads, translator

NAME = "transformer_parts"


def _name_assets(app: Sphinx, config: Config) -> None:
    """With a changed style sheet or script every page has to be written again."""
    config.tp_assets = assets.names()


def finished(app: Sphinx, book: finish.Book) -> None:
    """Add what needs all pages, and clear up."""
    out = Path(app.outdir)
    assets.write_fonts(out)
    assets.write(out / "_static", app.config.tp_assets)
    xray.write(out / "_static")
    finish.finish(out, book, page.policy())


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the theme. Who uses it sets `tp_book`, `tp_repository` and `tp_branch`."""
    app.add_html_theme(NAME, str(Path(__file__).parent))
    app.add_config_value("tp_assets", {}, "html")
    app.add_config_value("tp_book", None, "html")
    app.add_config_value("tp_repository", None, "html")
    app.add_config_value("tp_branch", "main", "html")
    # jupyter-book sets these for extensions that are not loaded here.
    app.add_config_value("comments_config", {}, "html")
    boxes.setup(app)
    spreads.setup(app)
    translator.setup(app)
    app.connect("config-inited", _name_assets)
    app.connect("html-page-context", page.fill)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
