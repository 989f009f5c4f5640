"""Finding Chromium: the program that draws the pages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

INSTALL = (
    "the PDF and the EPUB are drawn by Chromium, and none was found: install it (Debian, Ubuntu:"
    " apt-get install chromium), name one in the variable CHROMIUM, or run"
    " `.venv/bin/playwright install chromium`"
)
# A browser speaks to its maker on its own. This one resolves no name at all.
QUIET = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-sync",
    "--no-first-run",
    "--no-pings",
    "--host-resolver-rules=MAP * ~NOTFOUND",
]


@contextmanager
def chromium() -> Iterator[Browser]:
    """A running Chromium: the one in the variable CHROMIUM, else on the PATH, else Playwright's.

    Raises:
        RuntimeError: if there is none; the message says how to get it.
    """
    from playwright.sync_api import Error, sync_playwright

    names = ("chromium", "chromium-browser", "google-chrome")
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=found, args=QUIET)
        except Error as error:
            first = str(error).strip().splitlines()[0]
            raise RuntimeError(f"{INSTALL}\n({found or 'Playwright'}: {first})") from None
        yield browser
        browser.close()
