"""Protects that a build computes once what Sphinx would compute for every use, and no longer."""

from types import SimpleNamespace

import pybtex.plugin
from sphinx.search.en import SearchEnglish

from book import swift


class Env:
    def __init__(self):
        self.read = []
        self.numbers = {"a": 1}

    def get_doctree(self, name):
        self.read.append(name)
        return object()


def test_a_tree_is_read_once_and_everything_else_is_the_environments():
    env = Env()
    remembering = swift.Remembering(env)
    assert remembering.get_doctree("a") is remembering.get_doctree("a")
    remembering.get_doctree("b")
    assert env.read == ["a", "b"]
    assert remembering.numbers is env.numbers


def test_the_trees_of_an_earlier_build_are_forgotten():
    domain = SimpleNamespace(trees=object())
    swift._fresh(None, SimpleNamespace(get_domain=lambda name: domain))
    assert domain.trees is None


def test_plugins_and_stems_are_looked_up_once():
    given = []
    app = SimpleNamespace(
        add_domain=lambda domain, override: given.append((domain, override)),
        connect=lambda event, handler: given.append((event, handler)),
    )
    swift.setup(app)
    swift.setup(app)  # as when two books are built in one process
    assert (swift.Domain, True) in given
    assert ("env-updated", swift._fresh) in given
    names = ("pybtex.backends", "plaintext")
    assert pybtex.plugin.find_plugin(*names) is pybtex.plugin.find_plugin(*names)
    assert pybtex.plugin.find_plugin.cache_info().hits > 0
    english = SearchEnglish({})
    assert english.stem("weights") == english.stem("weights") == "weight"
    assert SearchEnglish.stem.cache_info().hits > 0
