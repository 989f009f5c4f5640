"""Asks axe-core, which comes in the package axe-playwright-python, what is wrong with a page."""

from functools import cache
from importlib.resources import files

from test_pages import UNFOLD

# Everything is laid out, unfolded and has been near once. A sheet that a script makes is no style
# in the page, so the policy does not mind it.
READY = """async () => {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(
    "[data-tall] { content-visibility: visible !important } * { transition: none !important }");
  document.adoptedStyleSheets = [sheet];
  const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  for (let y = 0; y < document.documentElement.scrollHeight; y += 900) {
    scrollTo(0, y);
    await frame();
  }
  scrollTo(0, 0);
  await frame();
}"""
RUN = """async (rules) => {
  // Contrast is slow to find out, and equal in equal things: six of each kind stand for all.
  const alike = ["article pre", "article math", "article tr", "article .tp-erratum", "article dd"];
  const exclude = alike.flatMap((kind) => [...document.querySelectorAll(kind)].slice(6));
  const contrast = ["color-contrast"];
  const runs = [axe.run({ include: [document], exclude }, { runOnly: contrast })];
  await runs[0];
  if (rules !== "contrast") {
    runs.push(axe.run(document, { rules: { "color-contrast": { enabled: false } } }));
  }
  const results = await Promise.all(runs);
  const told = (n) => n.html.slice(0, 120) + " — " + (n.any[0] || n.all[0] || n.none[0])?.message;
  const found = results.flatMap((r) => r.violations)
    .map((v) => [v.id, v.nodes.length, ...v.nodes.slice(0, 2).map(told)].join(" "));
  return { passes: results.flatMap((r) => r.passes).length, found };
}"""


@cache
def source() -> str:
    """The script of axe-core."""
    return (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")


def complaints(page, rules: str = "all") -> list[str]:
    """What axe finds on this page, or of its contrast alone: nothing, on a good one."""
    page.evaluate(UNFOLD)
    page.evaluate(READY)
    page.evaluate(source())
    answer = page.evaluate(RUN, rules)
    assert answer["passes"] >= (1 if rules == "contrast" else 20), "axe has looked at nothing"
    return answer["found"]
