"""One look at a page: what it asks for, what it shows, what sticks out, and what axe finds."""

from collections import Counter
from dataclasses import dataclass, field

from axe import complaints
from drawing import DRAWN
from visiting import DOOR, Visitor

# A desk; a desk on which everything is twice as large; the smallest phone. The style sheets have
# no limit between that and larger phones.
WIDTHS = (1280, 640, 320)
HEIGHT = 900

# Everything that a reader can unfold or scroll to is on show after this: sections too, which the
# browser would lay out only when they come near. A sheet that a script makes is no style in the
# page, so the policy does not mind it.
UNFOLD = """async () => {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync("[data-tall] { content-visibility: visible !important }");
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
  for (const details of document.querySelectorAll("details")) details.open = true;
  const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  for (const explorer of document.querySelectorAll(".tp-explorer")) {
    explorer.scrollIntoView();
    for (let i = 0; i < 50 && !explorer.matches(".tp-live"); i++) await frame();
  }
  for (const image of document.images) image.loading = "eager";
  await Promise.all([...document.images].map((image) => image.decode().catch(() => {})));
  await document.fonts.ready;
}"""

# Sections that come near are laid out then, and are not as tall as was guessed: the page is at rest
# when three frames in a row have left its height and its place alone.
AT_REST = """async () => {
  const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  const now = () => `${document.documentElement.scrollHeight} ${scrollY}`;
  for (let seen = now(), same = 0, tries = 0; same < 3; tries++) {
    if (tries === 300) throw new Error(`the page never comes to rest: ${seen}`);
    await frame();
    same = now() === seen ? same + 1 : 0;
    seen = now();
  }
}"""

# What is too wide comes near, so that the page's script sees that it is.
PASS_BY = """async () => {
  const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  for (const box of document.querySelectorAll("article *")) {
    if (box.scrollWidth <= box.clientWidth || box.tabIndex >= 0) continue;
    if (!/auto|scroll/.test(getComputedStyle(box).overflowX)) continue;
    box.scrollIntoView({ behavior: "instant" });
    for (let i = 0; i < 10 && box.tabIndex < 0; i++) await frame();
  }
}"""

# What sticks out on the right, so that the page could be pushed sideways. The title does not hide.
OVERFLOW = """() => {
  const room = document.documentElement.clientWidth;
  const title = document.querySelector("main h1");
  if (!title.checkVisibility({ visibilityProperty: true })) return ["the title is hidden"];
  if (document.documentElement.scrollWidth <= room) return [];
  const wide = [...document.querySelectorAll("main *")]
    .filter((e) => e.getBoundingClientRect().right > room + 1);
  return [`${document.documentElement.scrollWidth} px in ${room}`,
          ...wide.slice(0, 4).map((e) => `${e.tagName.toLowerCase()}.${e.className}`)];
}"""

FACTS = """() => {
  const drawn = (e) => { const r = e.getBoundingClientRect(); return r.width > 0 && r.height > 0; };
  const shown = (e) => e.checkVisibility({ visibilityProperty: true });
  const formulas = [...document.querySelectorAll("math")].filter(shown);
  const images = [...document.images].filter(shown);
  const plain = (family) => family.split(",")[0].replaceAll('"', "");
  const ratio = (i) => (i.width / i.height) / (i.naturalWidth / i.naturalHeight);
  return {
    formulas: formulas.length,
    emptyFormulas: formulas.filter((e) => !drawn(e)).map((e) => e.textContent),
    mathFonts: [...new Set(formulas.map((e) => plain(getComputedStyle(e).fontFamily)))],
    loadedFonts: [...document.fonts]
      .filter((f) => f.status === "loaded").map((f) => plain(f.family)),
    images: images.length,
    silentImages: images.filter((i) => !(i.alt || "").trim()).map((i) => i.src),
    brokenImages: images.filter((i) => !i.naturalWidth || !drawn(i)).map((i) => i.src),
    squeezedImages: images.filter((i) => Math.abs(ratio(i) - 1) > 0.02).map((i) => i.src),
    explorers: document.querySelectorAll(".tp-explorer").length,
    mounted: document.querySelectorAll(".tp-explorer.tp-live").length,
  };
}"""


@dataclass
class Look:
    """What one look at a page has found; where it led on to another, only what it asked for."""

    requests: list[str] = field(default_factory=list)
    # Requests to elsewhere and complaints of the browser.
    heard: list[str] = field(default_factory=list)
    facts: dict = field(default_factory=dict)
    # What sticks out, by width.
    overflow: dict[int, list[str]] = field(default_factory=dict)
    # What is drawn badly, on a desk and on a small phone.
    drawn: list[str] = field(default_factory=list)
    # What axe finds, in the light on a phone and in the dark on a desk.
    barriers: list[str] = field(default_factory=list)


class Looker:
    """Looks at pages, which keep what they share.

    On a page that is served it tries all widths and asks axe. A page in a folder only has to be
    the same page.
    """

    def __init__(self, visitor: Visitor, by: str):
        self.visitor = visitor
        self.by = by
        self.requests = []
        self.kinds = Counter()
        self.context = visitor.context(
            color_scheme="light", viewport={"width": WIDTHS[0], "height": HEIGHT}
        )
        self.context.on("request", lambda request: self.requests.append(request.url))

    def look(self, name: str) -> Look:
        seen = Look()
        page = self.visitor.open(self.by + name, context=self.context)
        if name == DOOR:
            page.wait_for_url("**/book/pages/index.html")
        else:
            page.evaluate(UNFOLD)
            seen.facts = page.evaluate(FACTS)
            if not self.by:
                self._try_widths_and_axe(page, seen)
        page.close()
        seen.heard = self.visitor.heard()
        seen.requests, self.requests[:] = self.requests[:], []
        return seen

    def _try_widths_and_axe(self, page, seen):
        page.evaluate(PASS_BY)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": HEIGHT})
            if found := page.evaluate(OVERFLOW):
                seen.overflow[width] = found
            if width in (WIDTHS[0], WIDTHS[-1]):
                seen.drawn += [f"{width} px: {what}" for what in page.evaluate(DRAWN)]
        seen.barriers += complaints(page, self.kinds, small=True)
        page.emulate_media(color_scheme="dark")
        page.set_viewport_size({"width": WIDTHS[0], "height": HEIGHT})
        page.wait_for_selector("html[data-theme=dark]", state="attached")
        seen.barriers += complaints(page, self.kinds)
