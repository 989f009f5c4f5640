"""What a browser has drawn badly on a page, as far as a program can measure it.

It is asked of a page on which everything is unfolded (looking.py), at the width of a desk and at
that of a small phone.
"""

DRAWN = r"""() => {
  const found = [];
  const say = (what, e, more) => {
    const near = e.closest("[id]")?.id || e.closest("section")?.id || "";
    found.push(`${what}: ${more.replace(/\s+/g, " ").trim().slice(0, 80)} (${near})`);
  };
  const shown = (e) => e.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  const text = (e) => e.textContent.trim();

  // ---- texts cut off by their own box
  const canvas = document.createElement("canvas").getContext("2d");
  const widthOf = (words, style) => {
    canvas.font = `${style.fontStyle} ${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
    return canvas.measureText(words).width;
  };
  for (const e of document.body.querySelectorAll("*")) {
    if (e.closest("math, svg, script") || !shown(e)) continue;
    const style = getComputedStyle(e);
    for (const part of ["::before", "::after"]) {
      const made = getComputedStyle(e, part);
      const words = (made.content.match(/^"(.*)"$/)?.[1] || "").match(/[\p{L}\p{N}]{2,}/gu);
      if (!words || made.display === "inline" || made.width === "auto") continue;
      const widest = Math.max(...words.map((word) => widthOf(word, made)));
      if (widest > parseFloat(made.width) + 1) say("cut off", e, words.join(" "));
    }
    // What is one pixel large is for screen readers.
    if (e.clientWidth <= 1 || e.clientHeight <= 1 || !text(e)) continue;
    const across = /hidden|clip/.test(style.overflowX) && e.scrollWidth > e.clientWidth + 1;
    const down = /hidden|clip/.test(style.overflowY) && e.scrollHeight > e.clientHeight + 1;
    if (!across && !down) continue;
    // What sticks out has to be text: its lines are measured one by one.
    const box = e.getBoundingClientRect();
    const inner = [box.left + e.clientLeft, box.top + e.clientTop];
    const range = document.createRange();
    const walk = document.createTreeWalker(e, NodeFilter.SHOW_TEXT);
    for (let node = walk.nextNode(); node; node = walk.nextNode()) {
      if (!node.data.trim() || !shown(node.parentElement)) continue;
      if (node.parentElement.closest("math, svg, script")) continue;
      range.selectNodeContents(node);
      const out = [...range.getClientRects()].some((r) => r.width > 1 && (
        (across && (r.right > inner[0] + e.clientWidth + 1 || r.left < inner[0] - 1))
        || (down && (r.bottom > inner[1] + e.clientHeight + 0.3 * r.height
          || r.top < inner[1] - 0.3 * r.height))));
      if (out) {
        say("cut off", e, node.data);
        break;
      }
    }
  }

  // ---- formulas that a wide screen does not show whole; a phone lets them be moved
  for (const box of innerWidth < 1000 ? [] : document.querySelectorAll(".math-display")) {
    if (shown(box) && box.clientWidth > 0 && box.scrollWidth > box.clientWidth + 2) {
      say("a formula wider than its column", box, text(box));
    }
  }

  // ---- texts that run out of the box they stand in
  for (const box of document.querySelectorAll(".admonition:not(.tp-fold)")) {
    const { left, right } = box.getBoundingClientRect();
    for (const e of box.querySelectorAll("p, li, pre, table")) {
      // What scrolls sideways within the box is cut off by that, and not sticking out.
      if (!shown(e) || e.closest(".tp-table, .math-display, .highlight")) continue;
      const at = e.getBoundingClientRect();
      if (at.right > right + 1 || at.left < left - 1) say("runs out of its box", e, text(e));
    }
  }

  // ---- labels of pictures that cover one another or stick out
  const apart = (a, b) => a.right <= b.left || b.right <= a.left
    || a.bottom <= b.top || b.bottom <= a.top;
  // A line of text has room above its letters and below.
  const letters = (e) => {
    const { left, right, top, bottom, width, height } = e.getBoundingClientRect();
    const upright = height > 1.5 * width && text(e).length > 1;
    const [x, y] = upright ? [0.22 * width, 1] : [1, 0.22 * height];
    return { left: left + x, right: right - x, top: top + y, bottom: bottom - y };
  };
  for (const svg of document.querySelectorAll(".tp-explorer svg, .tp-diagram svg")) {
    if (!shown(svg)) continue;
    const all = [...svg.querySelectorAll("text")].filter((e) => text(e) && shown(e));
    const room = svg.getBoundingClientRect();
    const boxes = all.map(letters);
    all.forEach((e, i) => {
      const b = boxes[i];
      if (b.left < room.left - 2 || b.right > room.right + 2
          || b.top < room.top - 2 || b.bottom > room.bottom + 2) {
        say("sticks out of the picture", svg, text(e));
      }
      for (let k = 0; k < i; k++) {
        if (!apart(b, boxes[k])) say("overlap", svg, `${text(all[k])} | ${text(e)}`);
      }
    });
  }

  // ---- brackets and bars of formulas
  const PAIRS = { "(": ")", "[": "]", "{": "}", "⌊": "⌋", "⌈": "⌉", "⟨": "⟩" };
  const CLOSING = new Set(Object.values(PAIRS));
  // The bracket that bears a script, or stands in a row of its own.
  const core = (e) => {
    while (e && e.localName !== "mo" && (/^msu/.test(e.localName)
        || (e.localName === "mrow" && e.children.length === 1))) e = e.children[0];
    return e;
  };
  for (const row of document.querySelectorAll("math, math mrow, math mtd")) {
    if (row.children.length < 2 || !shown(row)) continue;
    const open = [];
    for (const child of row.children) {
      const mo = core(child);
      if (mo?.localName !== "mo") continue;
      const sign = text(mo);
      if (sign in PAIRS) open.push(mo);
      if (!CLOSING.has(sign) || !open.length) continue;
      const one = open.pop().getBoundingClientRect();
      const other = mo.getBoundingClientRect();
      const unit = parseFloat(getComputedStyle(mo).fontSize);
      const off = Math.max(Math.abs(one.top - other.top), Math.abs(one.bottom - other.bottom));
      if (off > 0.08 * unit) say("a bracket unlike its partner", row, text(row));
    }
  }
  for (const e of document.querySelectorAll("math mover[accent], math munder[accentunder]")) {
    const [base, bar] = e.children;
    if (!shown(e) || !/^[¯‾_\u0332]$/.test(text(bar))) continue;
    const letter = (base.querySelector("mi") || base).getBoundingClientRect();
    const line = bar.getBoundingClientRect();
    const unit = parseFloat(getComputedStyle(e).fontSize);
    const gap = e.localName === "mover" ? letter.top - line.bottom : line.top - letter.bottom;
    if (gap < 0.03 * unit) say("a bar touches its letter", e, text(e));
    if (text(base).length !== 1) continue;
    // Its ink may lie beside its box, as that of a combining mark does.
    widthOf("", getComputedStyle(bar));
    const ink = canvas.measureText(text(bar));
    const left = Math.min(line.left, line.left - ink.actualBoundingBoxLeft);
    const right = Math.max(line.right, line.left + ink.actualBoundingBoxRight);
    const beside = Math.max(letter.left - left, right - letter.right);
    if (beside > 0.1 * unit) say("a bar runs to its neighbours", e, text(e));
  }
  return [...new Set(found)];
}"""
