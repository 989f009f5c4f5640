// Brings the pictures of the book to life. Python has drawn the first state of each and packed all
// others (book/explorer); this script finds what moves and moves it, on a static page and, as the
// front end of the widget, in a notebook. One classic script: a browser loads no module from file://.
(() => {
  "use strict";
  const SVG = "http://www.w3.org/2000/svg";
  // A stored value is 0..254 of its axis; 255 stands for nan.
  const MISSING = 255, STEPS = 254;
  const LETTER = 6.6, LINE = 15, HEAD = 10, HIT = 13;

  // ---- columns: what varies over the states (book/explorer/columns.py)
  const whole = (text, width = 1) => {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    return width === 1 ? bytes : new (width === 2 ? Uint16Array : Uint32Array)(bytes.buffer);
  };
  const unpacked = (column, name) => (column.all ??= whole(column[name], column.width));
  const place = (over, { state, sizes }) => over.reduce((sum, axis) => sum * sizes[axis] + state[axis], 0);
  const printed = (n, { places, minus = "-", commas }) => {
    let text = (Math.abs(n) / 10 ** places).toFixed(places);
    if (commas) text = text.replace(/\B(?=(\d{3})+(?!\d))(?<!\.\d*)/g, ",");
    return (n < 0 ? minus : "") + text;
  };
  function textAt(column, now) {
    if (typeof column === "string") return column;
    if (column.words) {
      let k = 0;
      return textAt(column.words, now).replace(/\{\}/g, () => textAt(column.slots[k++], now));
    }
    const at = place(column.over, now);
    if (column.texts) return column.texts[unpacked(column, "index")[at]];
    return printed(unpacked(column, "whole")[at] + column.low, column);
  }
  function numberAt(column, now) {
    if (typeof column === "number") return column;
    const count = column.count ?? 1, from = place(column.over, now) * count;
    const value = (i) => column.low + unpacked(column, "bytes")[from + i] * column.step;
    return "count" in column ? Array.from({ length: count }, (_, i) => value(i)) : value(0);
  }

  const short = (value) => {
    const text = (value + 1e-9).toFixed(1).replace(/\.0$/, "");
    return text === "-0" ? "0" : text;
  };
  const put = (node, attributes) => {
    for (const [key, value] of Object.entries(attributes)) {
      const text = typeof value === "number" ? short(value) : value;
      if (node.getAttribute(key) !== text) node.setAttribute(key, text);
    }
  };

  // ---- charts: the paths of one state, as in book/explorer/draw.py
  const dot = (x, y, series, r = 3.2) => {
    const [a, c, k] = [short(x - r), short(2 * r), short(r)];
    if (series % 3 === 1) return `M${a} ${short(y - r)}h${c}v${c}h-${c}z`;
    if (series % 3 === 2) {
      const [t, u] = [short(0.4 * r), short(0.6 * r)];
      return `M${a} ${short(y - 0.6 * r)}l${t}-${t} ${u} ${u} ${u}-${u} ${t} ${t}-${u} ${u} ${u} ${u}-${t} ${t}-${u}-${u}-${u} ${u}-${t}-${t} ${u}-${u}z`;
    }
    return `M${a} ${short(y)}a${k} ${k} 0 1 0 ${c} 0a${k} ${k} 0 1 0 -${c} 0z`;
  };
  const charts = {
    lines(panel, data, [x0, , w], y) {
      const n = panel.x.length;
      return panel.series.flatMap((_, s) => {
        let line = "", dots = "";
        const known = (i) => i >= 0 && i < n && data[s * n + i] !== MISSING;
        panel.x.forEach((at, i) => {
          if (!known(i)) return;
          const [x, top] = [x0 + at * w, y(data[s * n + i])];
          if (!known(i - 1) && !known(i + 1)) dots += dot(x, top, 0, 4.5);
          else line += `${known(i - 1) ? "L" : "M"}${short(x)} ${short(top)}`;
        });
        return panel.marks ? [line, dots] : [line];
      });
    },
    points(panel, data, [x0, , w], y) {
      let i = 0;
      return panel.series.map(({ count }, s) => {
        let d = "";
        for (let k = 0; k < count; k++, i += 2) {
          if (data[i] !== MISSING && data[i + 1] !== MISSING) d += dot(x0 + (data[i] / STEPS) * w, y(data[i + 1]), s);
        }
        return d;
      });
    },
    bars(panel, data, [x0, y0, w, h], y) {
      const n = panel.labels.length, k = panel.series.length;
      const breadth = (0.8 * w) / n / k, base = y0 + (1 - panel.zero) * h;
      return panel.series.map((_, s) => {
        let d = "";
        for (let i = 0; i < n; i++) {
          const value = data[s * n + i];
          if (value === MISSING) continue;
          const left = x0 + (w * (i + 0.1)) / n + s * breadth, top = y(value);
          d += `M${short(left)} ${short(base)}V${short(Math.abs(top - base) >= 1 ? top : base - 1)}H${short(left + breadth)}V${short(base)}z`;
        }
        return d;
      });
    },
  };

  // How the parts of each kind of panel follow the state.
  function chart(box, panel) {
    const plane = box.dataset.box.split(" ").map(Number);
    const data = whole(panel.data.bytes), parts = [...box.querySelectorAll(".tp-line, .tp-mark")];
    const y = (byte) => plane[1] + (1 - byte / STEPS) * plane[3];
    panel.marks = panel.kind === "lines" && parts.length > panel.series.length;
    return (now) => {
      const size = data.length / now.frames;
      const paths = charts[panel.kind](panel, data.subarray(now.at * size, (now.at + 1) * size), plane, y);
      paths.forEach((d, k) => put(parts[k], { d }));
    };
  }
  function cells(box, panel) {
    const data = whole(panel.data.bytes), size = panel.rows * panel.columns;
    const rects = [...box.querySelectorAll("rect[fill-opacity]")].slice(0, size), full = panel.texts ? 0.55 : 1;
    const high = panel.role ? `tp-role-${panel.role}` : "tp-high";
    return (now) => rects.forEach((rect, i) => {
      const value = data[now.at * size + i], t = value / STEPS, group = rect.parentNode;
      const [kind, opacity] = value === MISSING ? ["tp-none", 1]
        : panel.diverging ? [t < 0.5 ? "tp-low" : high, full * Math.abs(2 * t - 1)] : [high, full * t];
      put(rect, { class: kind, "fill-opacity": String(+opacity.toFixed(3)) });
      const text = panel.texts ? textAt(panel.texts[i], now) : "";
      if (panel.texts) group.lastChild.textContent = text;
      if (group.classList.contains("tp-touch")) {
        group.answer = panel.details ? textAt(panel.details[i], now) : "";
        const said = `${panel.rownames[Math.floor(i / panel.columns)]}, ${panel.columnnames[i % panel.columns]}`;
        group.setAttribute("aria-label", said + (text && `: ${text}`) + (panel.details ? `. ${group.answer}` : ""));
      }
    });
  }

  // ---- scenes: the shapes of one state, as in book/explorer/draw_scene.py
  const side = (u) => (u > 0.35 ? "start" : u < -0.35 ? "end" : "middle");
  const curve = ({ x, y }) => `M${x.map((v, i) => `${short(v)} ${short(y[i])}`).join("L")}`;
  const paths = {
    arrow({ x0, y0, x1, y1 }) {
      const length = Math.hypot(x1 - x0, y1 - y0);
      if (length < 0.5) return ["", [x1, y1 - 8, "middle"]];
      const u = (x1 - x0) / length, v = (y1 - y0) / length, size = Math.min(HEAD, length / 2);
      const bx = x1 - u * size, by = y1 - v * size, half = 0.42 * size;
      const corner = (sign) => `L${short(bx - sign * v * half)} ${short(by + sign * u * half)}`;
      return [
        `M${short(x0)} ${short(y0)}L${short(bx)} ${short(by)}M${short(x1)} ${short(y1)}${corner(1)}${corner(-1)}z`,
        [x1 + 9 * u, y1 + 4.5 + 11 * v, side(u)],
      ];
    },
    segment({ x0, y0, x1, y1 }) {
      const length = Math.hypot(x1 - x0, y1 - y0) || 1, sign = x1 >= x0 ? 1 : -1;
      const u = (sign * (x1 - x0)) / length, v = (sign * (y1 - y0)) / length;
      const at = [(x0 + x1) / 2 + 10 * v, (y0 + y1) / 2 - 10 * u + 4.5, Math.abs(v) > 0.5 ? "start" : "middle"];
      return [`M${short(x0)} ${short(y0)}L${short(x1)} ${short(y1)}`, at];
    },
    arc({ x, y, r, start, stop }) {
      const turn = Math.max(-6.283, Math.min(6.283, stop - start)), k = short(r);
      const at = (t) => `${short(x + r * Math.cos(t))} ${short(y - r * Math.sin(t))}`;
      const to = (t) => `A${k} ${k} 0 0 ${turn >= 0 ? 0 : 1} ${at(t)}`;
      const u = Math.cos(start + turn / 2), v = -Math.sin(start + turn / 2);
      const label = [x + (r + 7) * u, y + (r + 9) * v + 4.5, side(u)];
      return [`M${at(start)}${to(start + turn / 2)}${to(start + turn)}`, label];
    },
    curve: (at) => [curve(at), [0, 0, "middle"]],
    polygon: (at) => [`${curve(at)}z`, [0, 0, "middle"]],
  };
  const NUMBERS = ["x", "y", "x0", "y0", "x1", "y1", "r", "start", "stop", "w", "h", "fill", "shown", "faint", "strong", "dash", "small"];
  const headOf = (kind, at) => (kind === "arrow" || kind === "segment" ? [at.x1, at.y1] : [at.x, at.y]);

  function words(node, [x, y, anchor], text, width) {
    const lines = text.split("\n"), room = LETTER * Math.max(...lines.map((line) => line.length));
    const before = { start: 0, middle: room / 2, end: room }[anchor];
    x = Math.max(before + 2, Math.min(x, width - 2 - room + before));
    put(node, { x, y: y - ((lines.length - 1) * LINE) / 2, "text-anchor": anchor });
    if (lines.length === 1) {
      if (node.textContent !== text || node.firstElementChild) node.textContent = text;
      return;
    }
    node.replaceChildren(...lines.map((line, k) => {
      const span = document.createElementNS(SVG, "tspan");
      put(span, { x, dy: k ? LINE : 0 });
      span.textContent = line;
      return span;
    }));
  }
  function shape(node, one, width) {
    const body = node.querySelector("path, circle:not(.tp-grip)"), hit = node.querySelector(".tp-hit"), rects = [...node.querySelectorAll("rect")];
    const label = node.querySelector("text"), grip = node.querySelector(".tp-grip");
    node.places = (now) => Object.fromEntries(NUMBERS.filter((key) => key in one).map((key) => [key, numberAt(one[key], now)]));
    node.one = one;
    return (now) => {
      const at = node.places(now), kind = one.is, text = textAt(one.label ?? "", now);
      const flags = ["faint", "strong", "dash", "small"].filter((flag) => at[flag]).map((flag) => `tp-${flag}`);
      const kept = ["tp-drag", "tp-touch", "tp-lit", "tp-held"].filter((name) => node.classList.contains(name));
      put(node, { class: [`tp-role-${textAt(one.role, now)}`, `tp-is-${kind}`, ...flags, ...kept].join(" ") });
      if ("shown" in at) at.shown ? node.removeAttribute("visibility") : node.setAttribute("visibility", "hidden");
      let spot = [at.x, at.y + 4.5, one.anchor ?? "middle"];
      if (rects.length) {
        rects.forEach((rect) => put(rect, { x: at.x, y: at.y, width: at.w, height: at.h }));
        put(rects.at(-1), { "fill-opacity": String(+(0.55 * Math.max(at.fill, 0)).toFixed(3)) });
        spot = [at.x + at.w / 2, at.y + at.h / 2 + 4.5, "middle"];
      } else if (kind === "dot" || kind === "circle") {
        put(body, { cx: at.x, cy: at.y, r: at.r });
        if (hit) put(hit, { cx: at.x, cy: at.y, r: Math.max(HIT, at.r) });
        spot = [at.x, at.y - at.r - 5, "middle"];
      } else if (kind !== "text") {
        const [d, beside] = paths[kind](at);
        put(body, { d });
        if (hit) put(hit, { d });
        spot = beside;
      }
      if (label) words(label, spot, text, width);
      if (grip) {
        const [cx, cy] = headOf(kind, at);
        put(grip, { cx, cy });
      }
      if (!node.hasAttribute("aria-label")) return;
      node.answer = one.detail ? textAt(one.detail, now) : "";
      put(node, { "aria-label": [text || one.name, node.answer].filter(Boolean).join(". ") });
      if (one.sets) put(node, { "aria-pressed": String(chosen(one.sets, now).every(([c, k]) => now.state[c] === k)) });
    };
  }
  function scene(box, panel) {
    const nodes = [...box.querySelectorAll("[data-shape]")];
    const moves = nodes.map((node, k) => shape(node, panel.shapes[k], panel.plane.width));
    return (now) => moves.forEach((move) => move(now));
  }
  function picture(box, panel) {
    const image = box.querySelector("image");
    return (now) => image.setAttribute("href", `data:image/webp;base64,${panel.frames[now.at]}`);
  }
  const kinds = { lines: chart, points: chart, bars: chart, heat: cells, grid: cells, scene, picture };

  // What touching a shape chooses now: [control, place] pairs.
  const chosen = (sets, now) => Object.entries(sets).map(([c, column]) => [+c, numberAt(column, now)]).filter(([, k]) => k >= 0);

  const toggles = (sets) => Object.entries(sets).some(([c, column]) => column.over?.includes(+c));

  // ---- one picture
  function mount(root) {
    const island = root.querySelector("script.tp-spec");
    if (!island || root.classList.contains("tp-live")) return;
    root.classList.add("tp-live");
    const spec = JSON.parse(island.textContent);
    const sizes = spec.controls.map((control) => control.values.length);
    const frames = sizes.reduce((a, b) => a * b, 1);
    const now = { sizes, frames, state: spec.controls.map((control) => control.start), at: 0 };
    const boxes = [...root.querySelectorAll(".tp-drawing")];
    const moves = boxes.map((box, k) => kinds[spec.panels[k].kind](box, spec.panels[k]));
    const sentence = root.querySelector(".tp-sentence");
    const settings = [...root.querySelectorAll(".tp-control")].map((node, c) => control(node, spec.controls[c], c));
    const listeners = [];

    function show(fresh = false) {
      now.at = place([...sizes.keys()], now);
      moves.forEach((move) => move(now));
      const says = textAt(spec.sentences, now);
      if (sentence.textContent !== says) sentence.textContent = says;
      boxes.forEach((box, k) => put(box, { "aria-label": [spec.panels[k].title, says].filter(Boolean).join(": ") }));
      settings.forEach((set, c) => set(now.state[c]));
      listeners.forEach((listener) => listener(fresh));
    }
    function go(pairs) {
      if (pairs.every(([c, k]) => now.state[c] === k)) return;
      for (const [c, k] of pairs) now.state[c] = k;
      show();
    }
    const reset = () => {
      now.state = spec.controls.map((control) => control.start);
      show(true);
    };

    // Returns what shows a place of the control.
    function control(node, { kind, values, label }, c) {
      const input = node.querySelector("input, select"), output = node.querySelector("output");
      const buttons = [...node.querySelectorAll("button")];
      [input, ...buttons].forEach((part) => part && (part.disabled = false));
      const last = values.length - 1;
      const to = (k) => go([[c, Math.max(0, Math.min(last, k))]]);
      if (kind === "choice" || kind === "slider") input.addEventListener("input", () => to(+input.value));
      if (kind === "slider") play(buttons[0], label, () => go([[c, (now.state[c] + 1) % sizes[c]]]));
      if (kind === "steps") {
        const [back, next] = buttons, count = node.querySelector(".tp-count");
        back.addEventListener("click", () => to(now.state[c] - 1));
        next.addEventListener("click", () => to(now.state[c] + 1));
        node.addEventListener("keydown", (event) => {
          const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
          if (!way) return;
          event.preventDefault();
          to(now.state[c] + way);
        });
        swipe((way) => to(now.state[c] + way));
        return (k) => {
          count.textContent = `${k + 1} of ${values.length}`;
          if (output) output.firstChild.textContent = values[k];
          back.setAttribute("aria-disabled", String(k === 0));
          next.setAttribute("aria-disabled", String(k === last));
        };
      }
      if (kind === "guess") {
        const again = buttons.pop();
        buttons.forEach((button, k) => button.addEventListener("click", () => to(k + 1)));
        again.addEventListener("click", () => { to(0); buttons[0].focus(); });
        return (k) => {
          buttons.forEach((button, j) => button.setAttribute("aria-pressed", String(j + 1 === k)));
          again.classList.toggle("tp-ready", k > 0);
        };
      }
      return (k) => {
        if (+input.value !== k) input.value = k;
        if (kind === "choice") return;
        input.setAttribute("aria-valuetext", values[k]);
        output.firstChild.textContent = values[k];
      };
    }

    // A finger that goes sideways over the picture turns the steps.
    function swipe(turn) {
      const panels = root.querySelector(".tp-panels");
      panels.classList.add("tp-swipes");
      let from = null;
      panels.addEventListener("pointerdown", (event) => {
        const held = event.target.closest(".tp-drag");
        from = event.pointerType === "touch" && !held ? [event.clientX, event.clientY] : null;
      });
      panels.addEventListener("pointerup", (event) => {
        if (!from) return;
        const [x, y] = [event.clientX - from[0], event.clientY - from[1]];
        if (Math.abs(x) > 40 && Math.abs(x) > 2 * Math.abs(y)) turn(x < 0 ? 1 : -1);
        from = null;
      });
    }

    boxes.forEach((box) => touch(box, { now, go, sizes, spec, listeners }));
    root.addEventListener("keydown", (event) => {
      if (event.key === "Escape") reset();
    });
    // Paper shows the first state.
    window.addEventListener("beforeprint", reset);
    settings.forEach((set, c) => set(now.state[c]));
    show();
  }

  // ---- touching: dragging, choosing, and asking for the arithmetic
  function touch(box, { now, go, sizes, spec, listeners }) {
    const answers = box.parentNode.querySelector(".tp-detail");
    const stops = [...box.querySelectorAll(".tp-touch")], grips = [...box.querySelectorAll(".tp-drag")];
    const panel = spec.panels[[...box.closest(".tp-panels").querySelectorAll(".tp-drawing")].indexOf(box)];
    const setsOf = (node) => node.one?.sets ?? (panel.sets ? panel.sets[+node.dataset.cell] : undefined);
    let lit = null;
    const light = (node) => {
      if (lit !== node) lit?.classList.remove("tp-lit");
      lit = node;
      node?.classList.add("tp-lit");
      if (answers) answers.textContent = node?.answer ?? "";
    };
    listeners.push((fresh) => light(fresh ? null : lit));
    const choose = (node) => {
      const sets = setsOf(node);
      if (sets) go(chosen(sets, now));
    };
    const stop = (node) => stops.forEach((one) => put(one, { tabindex: one === node ? "0" : "-1" }));
    const middle = (node) => {
      const { x, y, width, height } = node.getBoundingClientRect();
      return [x + width / 2, y + height / 2];
    };
    const visible = (node) => node.getAttribute("visibility") !== "hidden";
    // The nearest neighbor in the direction of an arrow key; what lies askew counts as farther.
    function neighbor(node, key) {
      const [u, v] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[key];
      const [x, y] = middle(node);
      let best = null, least = Infinity;
      for (const one of stops) {
        if (one === node || !visible(one)) continue;
        const [a, b] = middle(one), along = (a - x) * u + (b - y) * v, across = Math.abs((a - x) * v) + Math.abs((b - y) * u);
        if (along > 1 && along + 3 * across < least) [best, least] = [one, along + 3 * across];
      }
      return best;
    }
    stops.forEach((node) => {
      node.addEventListener("pointerenter", () => light(node));
      node.addEventListener("focus", () => { light(node); stop(node); });
      node.addEventListener("blur", () => light(null));
      node.addEventListener("click", () => { node.focus({ preventScroll: true }); choose(node); });
      node.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") {
          event.preventDefault();
          choose(node);
        } else if (event.key.startsWith("Arrow")) {
          event.preventDefault();
          const next = neighbor(node, event.key);
          if (!next) return;
          next.focus();
          // A cell that toggles waits for Enter; one that selects is selected at once.
          if (!toggles(setsOf(next) ?? {})) choose(next);
        }
      });
    });
    box.addEventListener("pointerleave", () => light(stops.includes(document.activeElement) ? document.activeElement : null));
    // A finger that moves over small cells asks each of them.
    box.addEventListener("pointermove", (event) => {
      if (event.pointerType !== "touch" || !stops.length) return;
      const under = document.elementFromPoint(event.clientX, event.clientY)?.closest(".tp-touch");
      if (under && stops.includes(under)) light(under);
    });

    grips.forEach((node) => {
      const { drag, is } = node.one, controls = [...new Set(Object.values(drag))];
      const heads = () => {
        let all = [{ ...now, state: [...now.state] }];
        for (const c of controls) {
          all = all.flatMap((one) => Array.from({ length: sizes[c] }, (_, k) => {
            const state = [...one.state];
            state[c] = k;
            return { ...now, state };
          }));
        }
        return all.map(({ state }) => [state, headOf(is, node.places({ ...now, state }))]);
      };
      const name = () => put(node, {
        "aria-valuemin": "0", "aria-valuemax": String(sizes[controls[0]] - 1), "aria-valuenow": String(now.state[controls[0]]),
        "aria-valuetext": controls.map((c) => `${spec.controls[c].label} ${spec.controls[c].values[now.state[c]]}`).join(", "),
      });
      listeners.push(name);
      name();
      let known = null;
      const drop = () => { known = null; node.classList.remove("tp-held"); };
      node.addEventListener("pointerdown", (event) => {
        if (event.button) return;
        event.preventDefault();
        node.focus({ preventScroll: true });
        node.setPointerCapture(event.pointerId);
        node.classList.add("tp-held");
        known = heads();
      });
      node.addEventListener("pointermove", (event) => {
        if (!known) return;
        const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(box.getScreenCTM().inverse());
        const far = ([, [x, y]]) => (x - at.x) ** 2 + (y - at.y) ** 2;
        const [state] = known.reduce((a, b) => (far(b) < far(a) ? b : a));
        go(controls.map((c) => [c, state[c]]));
      });
      // Inside a drawing browsers do not all heed touch-action: what is held must not scroll the page.
      node.addEventListener("touchstart", (event) => event.preventDefault(), { passive: false });
      for (const end of ["pointerup", "pointercancel", "lostpointercapture"]) node.addEventListener(end, drop);
      node.addEventListener("pointerenter", () => light(node));
      node.addEventListener("focus", () => light(node));
      node.addEventListener("blur", () => light(null));
      node.addEventListener("keydown", (event) => {
        const [axis, way] = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [1, 1], ArrowDown: [1, -1] }[event.key] ?? [];
        if (axis === undefined) return;
        event.preventDefault();
        const c = (axis ? drag.y ?? drag.x : drag.x ?? drag.y);
        // The key leads where it points, if the head does not come back to where it began.
        const ends = [0, sizes[c] - 1].map((k) => headOf(is, node.places({ ...now, state: now.state.map((v, i) => (i === c ? k : v)) }))[axis]);
        const moved = (ends[1] - ends[0]) * (axis ? -1 : 1), k = now.state[c] + (moved < -1 ? -way : way);
        if (k >= 0 && k < sizes[c]) go([[c, k]]);
      });
    });
  }

  // Play moves on once a second. For readers who asked for less motion it takes one step a press.
  function play(button, label, step) {
    let timer = null;
    const stop = () => {
      clearInterval(timer);
      timer = null;
      button.textContent = "▶";
      button.setAttribute("aria-label", `Play: ${label}`);
    };
    button.addEventListener("click", () => {
      if (timer) return stop();
      step();
      if (matchMedia("(prefers-reduced-motion: reduce)").matches) return undefined;
      button.textContent = "⏸";
      button.setAttribute("aria-label", `Pause: ${label}`);
      timer = setInterval(() => (button.isConnected ? step() : stop()), 1000);
      return undefined;
    });
  }

  // In a notebook the page comes from the kernel.
  const show = (element, page) => {
    element.innerHTML = page;
    element.querySelectorAll(".tp-explorer").forEach(mount);
  };
  globalThis.transformerParts = { mount, show };
  const start = () => {
    const waiting = new Set(document.querySelectorAll(".tp-explorer"));
    // Nothing is decoded before it is about to be seen. Paper shows what is drawn already.
    const seen = new IntersectionObserver((entries) => {
      for (const { isIntersecting, target } of entries) {
        if (!isIntersecting || !waiting.delete(target)) continue;
        seen.unobserve(target);
        mount(target);
      }
    }, { rootMargin: "300px" });
    waiting.forEach((root) => seen.observe(root));
  };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
