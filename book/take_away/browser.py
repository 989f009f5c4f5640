"""Finding Chromium: the program that draws the pages, for the books and for the tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

INSTALL = (
    "the PDF, the EPUB and the browser tests need Chromium, which does not start here: install it"
    " (Debian: apt-get install chromium-headless-shell, Ubuntu: chromium), name one in the variable"
    " CHROMIUM, or run `.venv/bin/playwright install chromium`"
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


def program() -> str | None:
    """The Chromium in the variable CHROMIUM, else on the PATH; None leaves it to Playwright.

    The first choice is the one without windows, which Playwright too brings for this: the pages are
    the same, and it need not draw a window around each, a quarter of the work of opening one.
    """
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)


@contextmanager
def chromiums() -> Iterator[Callable[..., Browser]]:
    """A function that starts Chromium, `program`'s or else Playwright's, with further arguments.

    It raises a RuntimeError if there is none, or it does not start; the message says how to get
    one. All that it started are closed at the end.
    """
    from playwright.sync_api import Error, sync_playwright

    found = program()
    with sync_playwright() as playwright, ExitStack() as stack:

        def start(*options: str) -> Browser:
            try:
                browser = playwright.chromium.launch(executable_path=found, args=[*QUIET, *options])
            except Error as error:
                first = str(error).strip().splitlines()[0]
                raise RuntimeError(f"{INSTALL}\n({found or 'Playwright'}: {first})") from None
            stack.callback(browser.close)
            return browser

        yield start


@contextmanager
def chromium() -> Iterator[Browser]:
    """One running Chromium; errors as `chromiums`."""
    with chromiums() as start:
        yield start()
