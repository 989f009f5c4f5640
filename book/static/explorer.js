// Draws every explorer of the book: on a static page (from the JSON island inside it) and in a
// live kernel (as the front end of the widget in book/explorer.py). One classic script, because
// a browser loads no module from file://. What a spec holds is described in book/explorer.py.
(() => {
  "use strict";
  const SVG = "http://www.w3.org/2000/svg";
  const W = 350, H = 228, LEFT = 52, RIGHT = 10, TOP = 8, BOTTOM = 42; // one panel, in its own units
  const COLOURS = 6; // --tp-c0 ... --tp-c5 in book.css
  const DASHES = ["", "7 4", "9 3 2 3", "2 3", "12 4", "4 2 1 2"];
  const MISSING = 255; // a stored value is 0..254 of its axis; 255 stands for nan

  const html = (tag, attributes = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  };
  const svg = (parent, tag, attributes, text) => {
    const node = document.createElementNS(SVG, tag);
    for (const [key, value] of Object.entries(attributes)) {
      // A policy may forbid styles in attributes, and allows them from a script.
      if (key === "style") node.style.cssText = value;
      else node.setAttribute(key, value);
    }
    if (text !== undefined) node.textContent = text;
    parent.append(node);
    return node;
  };
  const px = (fraction) => LEFT + fraction * (W - LEFT - RIGHT);
  const py = (fraction) => H - BOTTOM - fraction * (H - TOP - BOTTOM);
  const decode = (base64) => Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));

  function frame(panel) {
    const box = document.createElementNS(SVG, "svg");
    box.setAttribute("viewBox", `0 0 ${W} ${H}`);
    box.setAttribute("role", "img");
    for (const [at, label] of panel.xticks || []) {
      if (panel.kind !== "bars") svg(box, "line", { x1: px(at), x2: px(at), y1: py(0), y2: py(1), class: "tp-grid" });
      svg(box, "text", { x: px(at), y: py(0) + 15, class: "tp-xtick" }, label);
    }
    for (const [at, label] of panel.yticks || []) {
      svg(box, "line", { x1: px(0), x2: px(1), y1: py(at), y2: py(at), class: "tp-grid" });
      svg(box, "text", { x: LEFT - 5, y: py(at) + 4, class: "tp-ytick" }, label);
    }
    svg(box, "text", { x: (LEFT + W - RIGHT) / 2, y: H - 8, class: "tp-label" }, panel.xlabel);
    const y = (py(0) + py(1)) / 2;
    svg(box, "text", { x: 13, y, class: "tp-label", transform: `rotate(-90 13 ${y})` }, panel.ylabel);
    return [box, svg(box, "g", {})];
  }

  // Each painter gets the values of one frame (bytes) and draws them into an empty group.
  const painters = {
    lines(group, panel, bytes) {
      const n = panel.x.length;
      panel.series.forEach((_, s) => {
        const style = `stroke:var(--tp-c${s % COLOURS})`;
        const known = (i) => i >= 0 && i < n && bytes[s * n + i] !== MISSING;
        let path = "";
        for (let i = 0; i < n; i++) {
          if (!known(i)) continue;
          const x = px(panel.x[i]).toFixed(1), y = py(bytes[s * n + i] / 254).toFixed(1);
          path += `${known(i - 1) ? "L" : "M"}${x} ${y}`;
          // A value without neighbours is a dot.
          if (!known(i - 1) && !known(i + 1)) svg(group, "circle", { cx: x, cy: y, r: 4.5, style: `fill:var(--tp-c${s % COLOURS})` });
        }
        svg(group, "path", { d: path, class: "tp-line", style, "stroke-dasharray": DASHES[s % DASHES.length] });
      });
    },
    points(group, panel, bytes) {
      let i = 0;
      panel.series.forEach((series, s) => {
        for (let k = 0; k < series.count; k++, i += 2) {
          if (bytes[i] === MISSING || bytes[i + 1] === MISSING) continue;
          const cx = px(bytes[i] / 254), cy = py(bytes[i + 1] / 254), style = `fill:var(--tp-c${s % COLOURS})`;
          if (s % 2) svg(group, "rect", { x: cx - 3, y: cy - 3, width: 6, height: 6, style });
          else svg(group, "circle", { cx, cy, r: 3.2, style });
        }
      });
    },
    bars(group, panel, bytes) {
      const n = panel.labels.length, slot = 1 / n, zero = panel.zero, k = panel.series.length;
      for (let i = 0; i < n; i++) for (let s = 0; s < k; s++) {
        const value = bytes[s * n + i];
        if (value === MISSING) continue;
        const a = py(value / 254), b = py(zero), w = (0.8 * slot) / k;
        svg(group, "rect", {
          x: px(slot * (i + 0.1) + s * w), y: Math.min(a, b), width: w * (W - LEFT - RIGHT),
          height: Math.max(1, Math.abs(a - b)), style: `fill:var(--tp-c${s % COLOURS})`,
        });
      }
    },
    heat(group, panel, bytes) {
      const cell = Math.min((W - LEFT - RIGHT) / panel.columns, (H - TOP - BOTTOM) / panel.rows);
      const x0 = (LEFT + W - RIGHT - cell * panel.columns) / 2, y0 = (TOP + H - BOTTOM - cell * panel.rows) / 2;
      bytes.forEach((value, i) => {
        if (value === MISSING) return;
        const row = Math.floor(i / panel.columns), column = i % panel.columns, t = value / 254;
        const [from, to, mix] = panel.diverging
          ? ["--tp-mid", t < 0.5 ? "--tp-low" : "--tp-high", Math.abs(2 * t - 1)]
          : ["--tp-mid", "--tp-high", t];
        const fill = `color-mix(in oklab, var(${to}) ${(100 * mix).toFixed(1)}%, var(${from}))`;
        svg(group, "rect", {
          x: x0 + column * cell, y: y0 + row * cell, width: cell - 1, height: cell - 1, style: `fill:${fill}`,
        });
      });
    },
    picture(group, panel, base64) {
      svg(group, "image", { x: 0, y: TOP, width: W, height: H - TOP, href: `data:image/webp;base64,${base64}` });
    },
  };

  let count = 0;
  function mount(root, spec) {
    const id = `tp${++count}`;
    const sizes = spec.controls.map((control) => control.values.length);
    const state = spec.controls.map((control) => control.start);
    const panels = spec.panels.map((panel) => {
      const [box, group] = frame(panel);
      const all = panel.kind === "picture" ? null : decode(panel.data.bytes);
      const size = all && all.length / spec.sentences.length;
      const paint = painters[panel.kind];
      const draw = (at) => {
        group.replaceChildren();
        paint(group, panel, all ? all.subarray(at * size, (at + 1) * size) : panel.frames[at]);
      };
      return { box, draw, panel };
    });
    const sentence = html("p", { class: "tp-sentence", role: "status", "aria-live": "polite" });
    const update = () => {
      const at = state.reduce((sum, value, i) => sum * sizes[i] + value, 0);
      for (const { box, draw, panel } of panels) {
        draw(at);
        box.setAttribute("aria-label", `${panel.title}. ${spec.sentences[at]}`);
      }
      sentence.textContent = spec.sentences[at];
    };

    const resets = [];
    const controls = spec.controls.map((control, i) => {
      const name = `${id}-${i}`;
      const label = html("label", { for: name }, control.label);
      if (control.kind === "choice") {
        const select = html("select", { id: name });
        control.values.forEach((value, k) => select.append(html("option", { value: k }, value)));
        select.addEventListener("change", () => { state[i] = +select.value; update(); });
        resets.push(() => { select.value = state[i] = control.start; });
        return html("div", { class: "tp-control" }, label, select);
      }
      const range = html("input", { type: "range", id: name, min: 0, max: sizes[i] - 1, step: 1 });
      const value = html("output", { for: name });
      const move = (k) => {
        state[i] = k;
        range.value = k;
        range.setAttribute("aria-valuetext", control.values[k]);
        value.textContent = control.values[k];
      };
      range.addEventListener("input", () => { move(+range.value); update(); });
      resets.push(() => move(control.start));
      return html("div", { class: "tp-control" }, label, range, value, playButton(control, () => {
        move((state[i] + 1) % sizes[i]);
        update();
      }));
    });

    const keys = spec.panels.map((panel) => {
      if (!panel.series || panel.series.length < 2) return "";
      const list = html("ul", { class: "tp-key" });
      panel.series.forEach((series, s) => {
        const swatch = document.createElementNS(SVG, "svg");
        swatch.setAttribute("viewBox", "0 0 28 8");
        swatch.setAttribute("aria-hidden", "true");
        const colour = `var(--tp-c${s % COLOURS})`;
        if (panel.kind === "lines") {
          svg(swatch, "line", { x1: 0, x2: 28, y1: 4, y2: 4, class: "tp-line", style: `stroke:${colour}`, "stroke-dasharray": DASHES[s % DASHES.length] });
        } else svg(swatch, "rect", { x: 10, y: 0, width: 8, height: 8, style: `fill:${colour}` });
        list.append(html("li", {}, swatch, series.label));
      });
      return list;
    });

    root.replaceChildren(
      html("p", { class: "tp-title" }, spec.title),
      html("div", { class: "tp-controls", role: "group", "aria-label": spec.title }, ...controls),
      sentence,
      html("div", { class: "tp-panels" }, ...panels.map(({ box, panel }, k) => (
        html("div", { class: "tp-panel" }, html("p", { class: "tp-paneltitle" }, panel.title), box, keys[k])))),
    );
    const reset = () => { resets.forEach((set) => set()); update(); };
    window.addEventListener("beforeprint", reset); // paper shows the first state
    reset();
  }

  // Play moves on once a second. For readers who asked for less motion it takes one step a press.
  function playButton(control, step) {
    const button = html("button", { type: "button", class: "tp-play", "aria-label": `Play: ${control.label}` }, "▶");
    let timer = null;
    const stop = () => {
      clearInterval(timer);
      timer = null;
      button.textContent = "▶";
      button.setAttribute("aria-label", `Play: ${control.label}`);
    };
    button.addEventListener("click", () => {
      if (timer) return stop();
      step();
      if (matchMedia("(prefers-reduced-motion: reduce)").matches) return undefined;
      button.textContent = "⏸";
      button.setAttribute("aria-label", `Pause: ${control.label}`);
      timer = setInterval(() => (button.isConnected ? step() : stop()), 1000);
      return undefined;
    });
    return button;
  }

  globalThis.transformerParts = { mount };
  const mountIsland = (root) => {
    const island = root.querySelector("script.tp-spec");
    if (island) mount(root, JSON.parse(island.textContent));
  };
  const start = () => {
    const waiting = new Set(document.querySelectorAll(".tp-explorer"));
    // Nothing is decoded or laid out before it is about to be seen, or printed.
    const seen = new IntersectionObserver((entries) => {
      for (const { isIntersecting, target } of entries) {
        if (!isIntersecting || !waiting.delete(target)) continue;
        seen.unobserve(target);
        mountIsland(target);
      }
    }, { rootMargin: "300px" });
    waiting.forEach((root) => seen.observe(root));
    window.addEventListener("beforeprint", () => { waiting.forEach(mountIsland); waiting.clear(); });
  };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
