"""Visits to the built site: pages that are opened, and what they want from elsewhere."""

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from playwright.sync_api import Browser, BrowserContext, Page

from book.chapters import ROOT, chapters
from book.take_away.pages import entries

SITE = ROOT / "_build" / "html"
# It only leads on to the first page.
DOOR = "index.html"
CHAPTERS = [f"notebooks/{path.stem}.html" for path in chapters()]


def listed() -> list[str]:
    """The pages of the table of contents, in order, without `.html`."""
    return [entry.document for entry in entries()]


def pages_of(folder: Path) -> list[str]:
    """The addresses of all pages of the site in this folder."""
    found = sorted(folder.rglob("*.html"))
    return [p.relative_to(folder).as_posix() for p in found if "_static" not in p.parts]


@dataclass
class Visitor:
    """Opens pages, and notes what they want from elsewhere and their complaints.

    They do not get it: the browser finds no other machine (book/take_away/browser.py).
    """

    browser: Browser
    home: str
    folder: Path
    foreign: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    contexts: list[BrowserContext] = field(default_factory=list)
    # Complaints that hold this text are not counted, whenever they come.
    expected: str | None = None

    def context(self, **options) -> BrowserContext:
        """A fresh context with these options, in which every request is heard."""
        made = self.browser.new_context(**options)
        made.set_default_timeout(10_000)
        made.on("request", self._note)
        made.on("console", lambda m: self._complain(m.page, f"{m.type}: {m.text}", m.type))
        made.on("weberror", lambda e: self._complain(e.page, f"uncaught: {e.error}", "error"))
        self.contexts.append(made)
        return made

    def open(
        self,
        address: str,
        *,
        clock: bool = False,
        context: BrowserContext | None = None,
        **options,
    ) -> Page:
        """The page at `address` of the site; `file:` before it opens the file.

        It is opened in `context`, or else in a fresh one with these options. With `clock`, its
        time stands still until the test moves it.
        """
        page = (context or self.context(**options)).new_page()
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

    def heard(self) -> list[str]:
        """Every request to elsewhere and every complaint since this was last asked."""
        heard = [c for c in self.complaints if not (self.expected and self.expected in c)]
        news = [*(f"asked for {url}" for url in self.foreign), *heard]
        self.foreign.clear()
        self.complaints.clear()
        return news

    def close(self) -> None:
        """Close what was opened."""
        for context in self.contexts:
            context.close()
