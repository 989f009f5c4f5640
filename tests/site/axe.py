"""Asks axe-core, which comes in the package axe-playwright-python, what is wrong with a page."""

from collections import Counter
from functools import cache
from importlib.resources import files

# Nothing is on its way from one colour to another, and what is many times the same is made small,
# or axe would take minutes: a coloured piece of code keeps its element where such a piece occurs
# for the first time in such a place; of all formulas but some the text is left, and of a paragraph
# that is alone in a cell of a table what stands in it. Of most pictures only what can be used or
# has a name of its own is left: of the colours in a picture axe knows nothing (test_explorers.py
# does).
READY = """() => {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync("* { transition: none !important }");
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
  const known = new Set();
  for (const piece of document.querySelectorAll("article pre *")) {
    const box = ".cell_output, .cell_input, .admonition, .tp-fold, .sd-card";
    const place = piece.closest(box)?.className;
    const kind = `${place} ${piece.className}`;
    if (known.has(kind)) piece.replaceWith(...piece.childNodes);
    known.add(kind);
  }
  for (const math of [...document.querySelectorAll("article math")].slice(12)) {
    math.replaceWith(math.textContent);
  }
  for (const p of document.querySelectorAll("article td > p:only-child:not([class], [id])")) {
    p.replaceWith(...p.childNodes);
  }
  const used = "a, [role], [tabindex], [aria-label], [aria-labelledby]";
  for (const picture of [...document.querySelectorAll("article svg")].slice(4)) {
    for (const shape of picture.querySelectorAll("rect, path, line, circle, polyline, text")) {
      if (shape.closest(used) === picture.closest(used) && !shape.matches(used)) shape.remove();
    }
  }
}"""
RUN = r"""async ([small, known]) => {
  // Colours are slow to find out about, and depend on two colours, the size of the letters and how
  // a link is marked in which place: the first few texts of each such kind stand for all. What is
  // behind a text in a picture axe does not know, and says nothing of its colours.
  const colours = { "color-contrast": "[data-few]", "link-in-text-block": "a[href][data-few]" };
  const seen = {};
  // What is behind an element, and how much of that comes through.
  const behind = new Map([[null, ["", 1]]]);
  const place = (e) => {
    if (!behind.has(e)) {
      const { backgroundColor, backgroundImage, opacity } = getComputedStyle(e);
      const [ground, share] = place(e.parentElement);
      const empty = /^rgba\(.*, 0\)$|transparent/.test(backgroundColor);
      const own = backgroundImage !== "none" ? backgroundImage : empty ? ground : backgroundColor;
      behind.set(e, [own, share * opacity]);
    }
    return behind.get(e);
  };
  for (const e of document.querySelectorAll("[data-few]")) delete e.dataset.few;
  for (const e of document.body.querySelectorAll("*")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!own || e.closest("svg") || !e.checkVisibility()) continue;
    const { color, fill, fontSize, fontWeight } = getComputedStyle(e);
    const link = e.closest("a");
    const line = link && getComputedStyle(link).textDecorationLine + link.parentElement.localName;
    const kind = [color, fill, fontSize, fontWeight, ...place(e), line].join();
    seen[kind] = (seen[kind] || 0) + 1;
    if (seen[kind] + (known[kind] || 0) > 3) continue;
    for (const one of link ? [e, link] : [e]) one.dataset.few = "";
  }
  axe.configure({ rules: Object.entries(colours).map(([id, selector]) => ({ id, selector })) });
  // The addresses of the elements that passed would take a third of the time.
  const options = { resultTypes: ["violations"], selectors: false };
  // No finger misses its aim. A rule of WCAG 2.2, which axe leaves out if it is not asked.
  if (small) options.runOnly = ["target-size", ...Object.keys(colours)];
  const { passes, violations } = await axe.run(document, options);
  const told = (n) => n.html.slice(0, 120) + " — " + (n.any[0] || n.all[0] || n.none[0])?.message;
  const found = violations.map((v) => [v.id, v.nodes.length, ...v.nodes.slice(0, 2).map(told)]);
  return {
    passed: passes.map((p) => p.id),
    found: found.map((parts) => parts.join(" ")),
    seen,
  };
}"""


@cache
def source() -> str:
    """The script of axe-core."""
    return (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")


def complaints(page, known: Counter[str], *, small: bool = False) -> list[str]:
    """What axe finds on this page. If it is `small`, only colours and the size of controls.

    Of what is many times the same, all but some is left out: the page is not whole after this.
    `known` counts the kinds of text on pages with nothing wrong, whose colours axe need not be
    asked about again. Those of this page are added.
    """
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(READY)
        page.evaluate(source())
    # The bar that stays at the top covers what happens to be under it where the page was left.
    page.evaluate("() => scrollTo({ top: 0, behavior: 'instant' })")
    answer = page.evaluate(RUN, [small, known])
    passed, found = set(answer["passed"]), answer["found"]
    wanted = {"target-size"} if small else {"document-title", "html-has-lang", "link-name"}
    if not known:
        wanted.add("color-contrast")
    assert found or wanted <= passed, f"axe has not looked at {wanted - passed}"
    assert found or small or len(passed) > 20, "axe has looked at little"
    if not found:
        known.update(answer["seen"])
    return found
