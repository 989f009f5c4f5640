"""A browser that can reach nothing but the built site, which is served from a folder of its host.

It is the Chromium that the books to take away are drawn with (book/take_away/browser.py). Without
one the tests skip; with REQUIRE_BROWSER=1, as in CI, that is an error.
"""

import functools
import http.server
import os
import threading

import pytest
from visiting import SITE, Visitor
from xraying import at_work

from book.chapters import chapters
from book.take_away.browser import chromiums, program

FOLDER = "/some/where/"


@pytest.fixture(scope="session")
def start():
    """Starts a browser; what else it should be told goes into the arguments."""
    with chromiums() as launch:

        def begin(*options):
            try:
                return launch(*options)
            except RuntimeError as error:
                if program() or os.environ.get("REQUIRE_BROWSER") == "1":
                    pytest.fail(str(error))
                pytest.skip(str(error))

        yield begin


@pytest.fixture(scope="session")
def browser(start):
    return start()


class _Handler(http.server.SimpleHTTPRequestHandler):
    def translate_path(self, path: str) -> str:
        inside = path.startswith(FOLDER)
        return super().translate_path(path[len(FOLDER) - 1 :] if inside else "/no such place")

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="session")
def built():
    """The folder of the built site."""
    if not (SITE / "index.html").exists():
        pytest.fail("there is no site in _build/html: run `make book` first")
    for path in chapters():
        source = SITE / "_sources" / "notebooks" / path.name
        if not source.exists() or source.read_bytes() != path.read_bytes():
            pytest.fail(f"_build/html was not built from this {path.name}: run `make book` first")
    return SITE


@pytest.fixture(scope="session")
def served(built):
    """The address of the site, which ends in a slash."""
    handler = functools.partial(_Handler, directory=str(built))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}{FOLDER}"
        server.shutdown()
        thread.join()


@pytest.fixture
def visitor(browser, served, built):
    """Opens pages. A request to elsewhere or a complaint fails the test, whatever it is about."""
    one = Visitor(browser, served, built)
    yield one
    one.close()
    assert one.heard() == []


@pytest.fixture(scope="session")
def loaded(browser, served, built):
    """The X-ray page with the model loaded, for tests that only compute."""
    yield from at_work(browser, served, built)


@pytest.fixture(scope="session")
def bench(browser, served, built):
    """Another one, whose script is given faults (xraying.py)."""
    yield from at_work(browser, served, built)


@pytest.fixture(scope="module")
def _librarian(browser, served, built):
    one = Visitor(browser, served, built)
    # Each in a context of its own: a page behind another one would draw no frames.
    yield one, functools.cache(one.open)
    one.close()


@pytest.fixture
def opened(_librarian):
    """Opens each page once for all tests of a file. For tests that leave no trace on it."""
    one, cached = _librarian
    yield cached
    assert one.heard() == []
