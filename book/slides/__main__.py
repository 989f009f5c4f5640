"""`python -m book.slides OUT`: make the decks of all chapters from the built website."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from book.chapters import chapters
from book.slides import compose, source, write
from book.take_away.pages import SITE, about


def one_deck(page: Path, pages: str) -> tuple[source.Chapter, list[compose.Slide]]:
    """A chapter, read from its page, and its slides."""
    chapter = source.read(page, pages, "")
    return chapter, compose.slides(chapter)


def make(out: Path, site: Path, only: Sequence[str] = ()) -> list[write.Deck]:
    """Write the decks into `out`.

    Args:
        out: the folder to write.
        site: the built website.
        only: stems of notebooks; all chapters where it is empty.

    Raises:
        FileNotFoundError: if the site has no page of a chapter.
        ValueError: if a page was not built from the notebook as it is now, if `only` names no
            chapter, or `out` is the site itself.
    """
    known = {path.stem: path for path in chapters()}
    if strange := sorted(set(only) - set(known)):
        raise ValueError(f"no chapter is called {', '.join(strange)}; there are {', '.join(known)}")
    wanted = [site / f"notebooks/{name}.html" for name in known if not only or name in only]
    for page in wanted:
        built = site / f"_sources/notebooks/{page.stem}.ipynb"
        if not (page.exists() and built.exists()):
            raise FileNotFoundError(f"{page.stem}.html is not in {site}: run `make book` first")
        if built.read_bytes() != known[page.stem].read_bytes():
            raise ValueError(f"the site holds another {page.stem}: run `make book` first")
    if out.resolve() == site.resolve():
        raise ValueError(f"{out} is the site itself: the decks need a folder of their own")
    pages = write.way(out, site)
    with ProcessPoolExecutor() as workers:
        made = list(workers.map(partial(one_deck, pages=pages), wanted))
    out.mkdir(parents=True, exist_ok=True)
    names = write.load(out, site)
    decks = []
    for chapter, slides in made:
        text = write.deck(chapter, slides, names, pages)
        (out / f"{chapter.name}.html").write_text(text, encoding="utf-8")
        write.pictures(out, site, (image for image in chapter.images if image in text))
        decks.append(write.Deck(chapter.name, chapter.title, chapter.eyebrow, len(slides)))
    listed = write.index(decks, names, pages, about().title)
    (out / "index.html").write_text(listed, encoding="utf-8")
    return decks


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the decks; 1 if they cannot be made."""
    parser = argparse.ArgumentParser(prog="python -m book.slides", description=__doc__)
    parser.add_argument("out", type=Path, help="the folder to write, such as _build/slides")
    parser.add_argument("--site", type=Path, default=SITE, help="the built website")
    parser.add_argument("--only", default="", help="stems of notebooks, with commas between them")
    asked = parser.parse_args(arguments)
    began = time.perf_counter()
    try:
        only = [name for name in asked.only.split(",") if name]
        decks = make(asked.out, asked.site, only)
    except (FileNotFoundError, ValueError) as error:
        print(f"slides: {error}", file=sys.stderr)
        return 1
    count, seconds = sum(one.count for one in decks), time.perf_counter() - began
    print(f"{asked.out}/index.html: {len(decks)} decks, {count} slides, in {seconds:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
