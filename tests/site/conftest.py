"""A browser that can reach nothing but the built site, which is served from a folder of its host.

Chromium is the program that the variable CHROMIUM names, else one on the PATH, else Playwright's
own. Without one the tests skip; with REQUIRE_BROWSER=1, as in CI, that is an error.
"""

import functools
import http.server
import os
import shutil
import threading

import pytest
from playwright.sync_api import Error, sync_playwright
from visiting import SITE, Visitor

from book.chapters import chapters

FOLDER = "/some/where/"
INSTALL = (
    "the browser tests need Chromium: install it (Debian, Ubuntu: apt-get install chromium),"
    " name one in the variable CHROMIUM, or run `playwright install chromium`"
)
# A browser speaks to its maker on its own. This one resolves no name but that of this machine.
QUIET = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-sync",
    "--no-first-run",
    "--no-pings",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1",
]


@pytest.fixture(scope="session")
def start():
    """Starts a browser; what else it should be told goes into the arguments."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    with sync_playwright() as playwright:

        def begin(*options):
            try:
                return playwright.chromium.launch(executable_path=found, args=[*QUIET, *options])
            except Error as error:
                if found or os.environ.get("REQUIRE_BROWSER") == "1":
                    pytest.fail(f"{INSTALL}\n{error}")
                pytest.skip(INSTALL)

        yield begin


@pytest.fixture(scope="session")
def browser(start):
    chromium = start()
    yield chromium
    chromium.close()


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


@pytest.fixture(scope="module")
def _librarian(browser, served, built):
    one = Visitor(browser, served, built)
    yield one, functools.cache(one.open)
    one.close()


@pytest.fixture
def opened(_librarian):
    """Opens each page once for all tests of a file. For tests that leave no trace on it."""
    one, cached = _librarian
    yield cached
    assert one.heard() == []
