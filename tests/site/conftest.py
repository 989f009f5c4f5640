"""A browser that can reach nothing but the built site, which is served from a folder of its host.

Chromium is the program that the variable CHROMIUM names, else one on the PATH, else Playwright's
own. Without one the tests skip; with REQUIRE_BROWSER=1, as in CI, that is an error.
"""

import functools
import http.server
import os
import shutil
import threading
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Error, Page, sync_playwright

from book.chapters import ROOT

SITE = ROOT / "_build" / "html"
FOLDER = "/some/where/"
INSTALL = (
    "the browser tests need Chromium: install it (Debian, Ubuntu: apt-get install chromium), or name"
    " one in the variable CHROMIUM, or run `playwright install chromium`"
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
def browser():
    names = ("chromium", "chromium-browser", "google-chrome")
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    with sync_playwright() as playwright:
        try:
            chromium = playwright.chromium.launch(executable_path=found, args=QUIET)
        except Error as error:
            if found or os.environ.get("REQUIRE_BROWSER") == "1":
                pytest.fail(f"{INSTALL}\n{error}")
            pytest.skip(INSTALL)
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


@dataclass
class Visitor:
    """Opens pages in contexts of its own, and notes what they want from elsewhere and complain of."""

    browser: Browser
    home: str
    folder: Path
    foreign: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    contexts: list[BrowserContext] = field(default_factory=list)

    def context(self, **options) -> BrowserContext:
        """A fresh context with these options, in which every request to elsewhere is refused."""
        made = self.browser.new_context(**options)
        made.set_default_timeout(10_000)
        made.route("**/*", lambda route: route.continue_() if self._ours(route) else route.abort())
        made.on("request", self._note)
        made.on("console", lambda m: self._complain(m.page, f"{m.type}: {m.text}", m.type))
        made.on("weberror", lambda e: self._complain(e.page, f"uncaught: {e.error}", "error"))
        self.contexts.append(made)
        return made

    def open(self, address: str, *, clock: bool = False, **options) -> Page:
        """The page at `address` of the site, in a fresh context; `file:` before it opens the file.

        With `clock`, its time stands still until the test moves it.
        """
        page = self.context(**options).new_page()
        page.on("websocket", lambda socket: self.foreign.append(socket.url))
        if clock:
            page.clock.install()
        page.goto(self.url(address))
        return page

    def url(self, address: str) -> str:
        """The full form of an address within the site."""
        if address.startswith("file:"):
            return (self.folder / address.removeprefix("file:")).as_uri()
        return self.home + address

    def _ours(self, route) -> bool:
        return self.is_ours(route.request.url)

    def is_ours(self, url: str) -> bool:
        """Whether `url` is in the site, or no request at all."""
        parts = urlsplit(url)
        if parts.scheme == "file":
            return Path(unquote(parts.path)).is_relative_to(self.folder)
        return parts.scheme in ("data", "blob", "about") or url.startswith(self.home)

    def _note(self, request) -> None:
        if not self.is_ours(request.url):
            self.foreign.append(request.url)

    def _complain(self, page, what: str, kind: str) -> None:
        if kind in ("error", "warning", "assert"):
            self.complaints.append(f"{page.url if page else '?'}: {what}")

    def close(self) -> None:
        """Close what was opened."""
        for context in self.contexts:
            context.close()


def _visits(browser, served, built):
    one = Visitor(browser, served, built)
    yield one
    one.close()
    assert one.foreign == []
    assert one.complaints == []


# Opens pages. A request to elsewhere or a complaint fails the test, whatever it is about.
visitor = pytest.fixture(_visits, name="visitor")
_librarian = pytest.fixture(_visits, name="librarian", scope="module")


@pytest.fixture(scope="module")
def opened(librarian):
    """Opens each page once for all tests of a file. For tests that leave no trace on it."""
    return functools.cache(librarian.open)
