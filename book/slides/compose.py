"""From the pieces of a chapter to its slides: what stands together, and what is split."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import groupby

from book.slides.source import Chapter, Part, Piece, tall

# How much stands on a slide, as `source` estimates heights: they are rather too large.
ROOM = 620
# What a picture leaves for others: nothing taller stands with it.
BESIDE = 170
SUBHEAD = 44


@dataclass
class Slide:
    """One slide."""

    kind: str  # title, figure, text, exercise, question
    heading: str
    anchor: str  # of the section on the page
    above: str = ""  # the heading of the section of the second level
    before: str = ""
    body: str = ""
    after: str = ""
    notes: list[str] = field(default_factory=list)


def slides(chapter: Chapter) -> list[Slide]:
    """All slides of a chapter, the title first."""
    made: list[Slide] = []
    for above, parts in groupby(chapter.parts, lambda part: part.above):
        made += _section(above, list(parts))
    first = made[0]
    opening = Slide("title", chapter.title, "")
    # The picture at the top of the page is that of the title.
    if first.kind == "figure" and first.heading == chapter.title:
        made.remove(first)
        opening.body, opening.notes = first.body, [*first.notes, first.after]
    opening.before = f'<p class="sl-promise">{chapter.promise}</p>{first.before}'
    opening.notes.insert(0, chapter.goals)
    return [opening, *made]


class _Packer:
    """Puts what follows each other on one slide as long as there is room."""

    def __init__(self, above: str) -> None:
        self.above = above
        self.made: list[Slide] = []
        self.waiting: list[tuple[Part, Piece]] = []
        self.used = 0

    def add(self, part: Part, piece: Piece) -> None:
        """One more, on the slide that is begun, or on the next."""
        kinds = {one.kind == "question" for _, one in self.waiting}
        changes = bool(self.waiting) and self.waiting[-1][0] is not part
        high = piece.height + sum(map(tall, [*piece.before, *piece.after])) + SUBHEAD * changes
        if self.used + high > ROOM or (piece.kind == "question") not in (kinds or {True, False}):
            self.flush()
        self.waiting.append((part, piece))
        self.used += high

    def flush(self) -> None:
        """The slide that is begun is finished."""
        if not self.waiting:
            return
        if self._joins():
            return
        parts = {part.anchor for part, _ in self.waiting}
        first, begun = self.waiting[0][0], ""
        body, notes = "", []
        for part, piece in self.waiting:
            if len(parts) > 1 and part.anchor != begun and part.heading != self.above:
                body += f"<h3>{part.heading}</h3>"
            begun = part.anchor
            body += _told(piece.before) + piece.html + _told(piece.after)
            notes += piece.notes
        heading = first.heading if len(parts) == 1 else self.above
        kind = "question" if self.waiting[0][1].kind == "question" else "text"
        self.made.append(Slide(kind, heading, first.anchor, self.above, body=body, notes=notes))
        self.waiting, self.used = [], 0

    def _joins(self) -> bool:
        """A short finding that is alone joins the picture before it, if that has none."""
        (part, piece), *more = self.waiting
        last = self.made[-1] if self.made else None
        if more or piece.kind != "finding" or piece.height > BESIDE or last is None:
            return False
        if last.kind != "figure" or last.anchor != part.anchor or "tag_finding" in last.after:
            return False
        last.after = piece.html
        last.notes = [*last.notes, *piece.notes]
        self.waiting, self.used = [], 0
        return True

    def picture(self, part: Part, piece: Piece, finding: Piece | None) -> None:
        """A slide of its own, with what the picture shows."""
        self.flush()
        after = finding.html if finding else _told(piece.after)
        before = _told(piece.before)
        self.made.append(
            Slide(
                "figure", part.heading, part.anchor, self.above, before, piece.html, after,
                piece.notes,
            )
        )  # fmt: skip

    def exercise(self, part: Part, piece: Piece) -> None:
        """A slide of its own."""
        self.flush()
        self.made.append(
            Slide("exercise", piece.title, part.anchor, self.above, "", piece.html, "", piece.notes)
        )


def _section(above: str, parts: list[Part]) -> list[Slide]:
    """The slides of a section of the second level, and of those within it."""
    packer = _Packer(above)
    for part in parts:
        pieces = list(part.pieces)
        while pieces:
            piece = pieces.pop(0)
            if piece.kind == "exercise":
                packer.exercise(part, piece)
            elif piece.kind == "figure":
                # What the picture shows may be said by a finding that follows at once.
                short = pieces and pieces[0].kind == "finding" and pieces[0].height <= BESIDE
                says = pieces.pop(0) if short and not pieces[0].notes else None
                packer.picture(part, piece, says)
            else:
                for one in _halves(piece):
                    packer.add(part, one)
        if part.rest:
            if packer.waiting:
                packer.waiting[-1][1].notes += part.rest
            elif packer.made:
                packer.made[-1].notes += part.rest
    packer.flush()
    return packer.made


def _told(said: list[str]) -> str:
    return "".join(f'<p class="sl-said">{one}</p>' for one in said)


def _halves(piece: Piece) -> list[Piece]:
    """A list that is too long for a slide as several."""
    if piece.kind != "list" or piece.height <= ROOM:
        return [piece]
    entries = re.findall(r"<li>.*?</li>(?=\s*(?:<li>|</[uo]l>\s*$))", piece.html, re.S)
    opening = re.match(r"<[uo]l[^>]*>", piece.html)
    assert opening is not None
    parts: list[Piece] = []
    for entry in entries:
        high = tall(entry)
        if not parts or parts[-1].height + high > ROOM - 60:
            parts.append(Piece("list", "", 0))
        parts[-1].html += entry
        parts[-1].height += high
    tag = opening[0][1:3]
    for one in parts:
        one.html = f"<{tag}>{one.html}</{tag}>"
    parts[0].before, parts[0].notes, parts[-1].after = piece.before, piece.notes, piece.after
    return parts
