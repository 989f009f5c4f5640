"""What Sphinx and its extensions would compute once for every use, computed once for a build.

Together these are about a fifth of the time in which the site is built. Nothing here changes what a
page says; without it, the build is only slower.
"""

from __future__ import annotations

import functools
import gc
from typing import Any

import pybtex.plugin
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.domains.std import StandardDomain
from sphinx.search.en import SearchEnglish


class Remembering:
    """An environment that unpickles the tree of a page once, for those who only read it."""

    def __init__(self, env: Any) -> None:
        self._env = env
        self.get_doctree = functools.cache(env.get_doctree)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)


class Domain(StandardDomain):
    """Sphinx's domain of labels: for the number of an exercise it looks into its page's tree."""

    trees: Any = None

    def _resolve_numref_xref(self, env: Any, *rest: Any) -> nodes.Element | None:
        if self.trees is None:
            self.trees = Remembering(env)
        return super()._resolve_numref_xref(self.trees, *rest)


def _fresh(app: Sphinx, env: Any) -> None:
    """A tree that was read before is not the one of the page as it is now."""
    env.get_domain("std").trees = None


def setup(app: Sphinx) -> None:
    """Put these in the place of the slower ones; `book.sphinx_ext` calls this."""
    app.add_domain(Domain, override=True)
    app.connect("env-updated", _fresh)
    # A build makes millions of nodes and forgets few before its end: looking for those that can go
    # takes a fifth of the time.
    gc.disable()
    # Each citation asks for the same two plugins, and each time all packages were searched.
    if not hasattr(pybtex.plugin.find_plugin, "cache_info"):
        pybtex.plugin.find_plugin = functools.cache(pybtex.plugin.find_plugin)
    if not hasattr(SearchEnglish.stem, "cache_info"):
        remembered = functools.cache(SearchEnglish.stem)
        SearchEnglish.stem = remembered  # type: ignore[method-assign]
