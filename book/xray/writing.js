// Writing on: word after word behind a cache of keys and values, which is drawn as it grows.

const STRIP = 14; // so many words have a part of their own in the strip of probabilities

// A number from 0 up to 1 for the seed and the word's place in the text, the same each time: the bits are
// mixed as in C. Wellons's "lowbias32" (2018).
function chance(seed, place) {
  let x = (Math.imul(seed, 0x9e3779b1) ^ Math.imul(place, 0x85ebca77)) >>> 0;
  x = Math.imul(x ^ (x >>> 16), 0x7feb352d);
  x = Math.imul(x ^ (x >>> 15), 0x846ca68b);
  return ((x ^ (x >>> 16)) >>> 0) / 2 ** 32;
}

// Which word is next: the likeliest, or the one in whose part of the line from 0 to 1 the drawn number
// falls, the likelier words first. Temperature divides the logits. {word, order, p, u}.
function chosen(logits, { greedy, temperature, seed }, place) {
  const p = toProbabilities(Float64Array.from(logits, (z) => z / (greedy ? 1 : temperature)));
  const order = Array.from(p.keys()).sort((a, b) => p[b] - p[a] || a - b);
  if (greedy) return { word: order[0], order, p, u: null };
  const u = chance(seed, place);
  let sum = 0;
  const word = order.find((w) => (sum += p[w]) > u) ?? order[0];
  return { word, order, p, u };
}

// A text that grows: the model reads only what the cache does not hold yet. Of a text that `run` has
// `seen`, keys and values are there already.
function writer(model, start, off, seen = null) {
  const cache = emptyCache(model), tokens = [...start];
  let logits;
  function read(news) {
    const { stream } = forward(model, news, off, cache), last = matrix(1, stream.columns, stream.data.slice(-stream.columns));
    logits = saying(model, last, off, 1).logits.data;
  }
  const top = (m) => matrix(tokens.length, m.columns, m.data.slice(0, tokens.length * m.columns));
  if (seen) {
    seen.layers.forEach((layer, l) => { cache[l] = { k: top(layer.turnedK), v: top(layer.v) }; });
    logits = top(seen.logits).data.slice(-seen.logits.columns);
  } else read(tokens);
  return {
    tokens, cache, logits: () => logits,
    ended: () => tokens.at(-1) === model.config.eos_token_id,
    full: () => tokens.length >= model.config.max_position_embeddings,
    next(how) {
      const choice = chosen(logits, how, tokens.length);
      tokens.push(choice.word);
      if (tokens.length < model.config.max_position_embeddings) read([choice.word]);
      return choice;
    },
  };
}

// The section of the page. `page` gives the model, what the reader has chosen, and `take` for a new text.
function writing(page) {
  const { model, state } = page, { config: c, vocabulary } = model;
  let pen = null, from = 0, steps = [], timer = null;
  const how = { greedy: true, seed: 1 };

  // ---- what the reader moves
  const button = (text, does) => {
    const node = create("button", { type: "button", textContent: text });
    node.addEventListener("click", does);
    return node;
  };
  const one = button("Write a word", () => { stop(); step(); });
  const going = button("Write on", () => (timer ? stop() : go()));
  const again = button("Start over", () => { begin(); tell(ready()); });
  const keep = button("Put it into the text above", () => page.take(pen.tokens.slice(1).map((w) => vocabulary[w])));
  const greedy = button("the likeliest word", () => choose(true)), drawing = button("a word by chance", () => choose(false));
  const seed = create("input", { type: "number", id: "tp-xray-seed", min: 0, max: 9999, value: how.seed });
  seed.addEventListener("input", () => {
    how.seed = Math.max(0, Math.floor(Number(seed.value) || 0));
    begin();
    tell(ready());
  });
  function choose(value) {
    how.greedy = value;
    greedy.setAttribute("aria-pressed", String(value));
    drawing.setAttribute("aria-pressed", String(!value));
    seed.parentElement.hidden = value;
    if (pen) tell(value ? "From now on it takes the likeliest word." : "From now on it draws: a word with probability 0.2 comes one time in five.");
  }
  const text = create("p", { className: "tp-xray-text" }), told = create("p", { className: "tp-xray-wrote" });
  told.setAttribute("role", "status");
  const line = create("div", { className: "tp-xray-line" });
  line.setAttribute("aria-hidden", "true");
  const store = create("div", { className: "tp-xray-cache" }), counted = create("p", { className: "tp-xray-counted" });
  const pictures = Array.from({ length: c.num_hidden_layers }, (_, layer) => ["k", "v"].map((kind) => {
    const canvas = create("canvas"), fresh = create("span", { className: "tp-xray-fresh" });
    const figure = create("figure", {}, create("figcaption", { textContent: `layer ${layer}, ${kind === "k" ? "keys K" : "values V"}` }), create("div", { className: "tp-xray-room" }, canvas, fresh));
    canvas.setAttribute("role", "img");
    store.append(figure);
    return { layer, kind, canvas, fresh };
  })).flat();
  const box = create("div", { className: "tp-xray-inside tp-xray-writing" },
    create("p", { className: "tp-title", textContent: "It writes on" }),
    create("p", {}, "After the chosen word the model goes on by itself. It keeps the keys and values of all words that it has read, so for the next one it computes the tensors of a single word. ",
      create("a", { href: `${page.chapters}13_kv_cache.html#equation-eq-kv-law`, textContent: "Chapter 13 derives it: the KV cache" }), "."),
    create("div", { className: "tp-xray-controls" }, one, going, again, keep),
    create("div", { className: "tp-xray-controls" }, create("span", { textContent: "It takes" }), greedy, drawing, create("label", { htmlFor: seed.id }, "seed ", seed)),
    text, told, line, store, counted);
  choose(true);

  // ---- from word to word
  function begin() {
    stop();
    again.textContent = "Start over";
    from = state.at + 1;
    pen = writer(model, page.seen().tokens.slice(0, from), state.off, page.seen());
    steps = [];
    draw();
  }
  const ready = () => `It will go on after “${vocabulary[pen.tokens[from - 1]]}”, word ${from - 1}.`;
  function stop() {
    clearTimeout(timer);
    timer = null;
    going.textContent = "Write on";
  }
  function go() {
    going.textContent = "Pause";
    const on = () => { step(); if (timer) timer = setTimeout(on, 350); };
    timer = setTimeout(on, 0);
  }
  function step() {
    if (pen.ended() || pen.full()) return stop(), tell(pen.full() ? `It has no place for more than ${c.max_position_embeddings} words.` : "The text has ended: the model has said its sign for the end.");
    const choice = pen.next({ ...how, temperature: state.temperature });
    steps.push(choice);
    draw();
    const word = vocabulary[choice.word], ended = pen.ended();
    tell(`“${word}”: ${how.greedy ? "the likeliest word" : `drawn with ${choice.u.toFixed(3)}`}, probability ${said(choice.p[choice.word])}.${ended ? " With it the text has ended." : ""}`);
    if (ended || pen.full()) stop();
  }
  const tell = (words) => { told.textContent = words; };

  // ---- what is shown
  function draw() {
    const size = pen.tokens.length, words = pen.tokens.map((w) => vocabulary[w]);
    const begun = words.slice(Math.max(0, from - 12), from).join(" ");
    text.replaceChildren(`${from > 12 ? "… " : ""}${begun} `, ...steps.flatMap(({ word }, i) => [
      create("mark", { textContent: vocabulary[word], className: i === steps.length - 1 ? "tp-on" : "" }), " "]));
    keep.hidden = !steps.length;
    const last = steps.at(-1);
    line.hidden = !last;
    if (last) split(last);
    const held = pen.cache[0].k.rows, room = Math.min(c.max_position_embeddings, Math.ceil((Math.max(held, from) + 16) / 32) * 32);
    for (const { layer, kind, canvas, fresh } of pictures) {
      const rows = pen.cache[layer][kind], marked = steps.length && held > from - 1 ? held - 1 : null;
      paint(canvas, { rows: rows.columns, columns: rows.rows, at: (i, j) => rows.data[j * rows.columns + i] }, kind === "k" ? "key" : "value");
      canvas.setAttribute("aria-label", `Layer ${layer}: the ${kind === "k" ? "keys" : "values"} of ${held} words, a column for each`);
      canvas.style.width = `${100 * held / room}%`;
      fresh.hidden = marked === null;
      if (marked !== null) Object.assign(fresh.style, { left: `${100 * marked / room}%`, width: `${100 / room}%` });
    }
    const width = pen.cache[0].k.columns, each = 2 * c.num_hidden_layers * width;
    counted.textContent = `The cache holds ${held} ${held === 1 ? "word" : "words"}: ${c.num_hidden_layers} layers × (K and V) × ${held} × ${width} = ${(each * held).toLocaleString("en")} numbers`
      + (steps.length && held === size ? `; the ${each} of “${words.at(-1)}” are new, in the marked columns.` : ".");
  }
  // The line from 0 to 1 with a part for each word, and where the drawn number fell.
  function split({ word, order, p, u }) {
    const at = order.indexOf(word), named = order.slice(0, STRIP).filter((w) => p[w] >= 0.01).length;
    const part = (size, name, className) => {
      const bar = create("span", { className }, create("b", { textContent: name }));
      bar.style.flexGrow = size;
      return bar;
    };
    const all = (some) => some.reduce((s, w) => s + p[w], 0), others = (some) => part(all(some), "", "tp-xray-others");
    const own = (w) => part(p[w], p[w] > 0.05 ? vocabulary[w] : "", w === word ? "tp-on" : "");
    const parts = order.slice(0, named).map(own);
    if (at < named) parts.push(others(order.slice(named)));
    else parts.push(others(order.slice(named, at)), own(word), others(order.slice(at + 1)));
    const marker = create("i", { hidden: u === null });
    if (u !== null) marker.style.left = `${100 * u}%`;
    line.replaceChildren(create("div", {}, ...parts), marker);
  }

  return {
    box,
    // The text, the chosen word or what is taken out is another: what was written no longer follows.
    renew(kind) {
      if (kind === "temperature") return;
      if (kind === "parts" && steps.length) {
        stop();
        pen = writer(model, pen.tokens, state.off);
        draw();
        tell("Other parts of the model are at work: the cache was filled anew.");
      } else if (kind === "word" && steps.length) {
        again.textContent = `Start over after “${vocabulary[page.seen().tokens[state.at]]}”`;
      } else {
        begin();
        tell("");
      }
    },
    redraw: () => pen && draw(),
  };
}
