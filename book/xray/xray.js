// The X-ray page: a text goes through the book's own model, and what happens on its way is shown.
// book/xray/__init__.py draws the first frame by the same rules; the two are compared by a test.

const TOP = 8;
const NS = "http://www.w3.org/2000/svg";
const create = (name, properties = {}, ...children) => {
  const node = Object.assign(document.createElement(name), properties);
  node.append(...children);
  return node;
};
const drawn = (name, attributes, ...children) => {
  const node = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
};
const levelOfWeight = (w) => Math.min(9, Math.floor(10 * Math.sqrt(w)));
const levelOfSurprise = (s) => Math.min(9, Math.floor(2 * s));
// A probability of the model is never quite 0 or 1; one of the language can be.
const said = (p) => (p < 0.0005 ? "<0.001" : p >= 0.9995 ? ">0.999" : p.toFixed(3));
const saidExactly = (p) => (p === 0 || p === 1 ? String(p) : said(p));
const mean = (numbers) => numbers.reduce((a, b) => a + b, 0) / Math.max(1, numbers.length);

// The words of a typed text: small letters, each sign a word of its own.
const wordsOf = (text) => text.toLowerCase().replace(/[.,:?]/g, " $& ").split(/\s+/).filter(Boolean);

// How many letters must be added, dropped or changed to make one word of the other.
function edits(one, other) {
  let row = Array.from({ length: other.length + 1 }, (_, j) => j);
  for (let i = 1; i <= one.length; i++) {
    const next = [i];
    for (let j = 1; j <= other.length; j++) {
      next.push(Math.min(row[j] + 1, next[j - 1] + 1, row[j - 1] + (one[i - 1] === other[j - 1] ? 0 : 1)));
    }
    row = next;
  }
  return row.at(-1);
}
const near = (word, vocabulary, count = 4) => vocabulary.filter((w) => /^[a-z]/.test(w))
  .map((w) => [edits(word, w), w]).sort(([a, v], [b, w]) => a - b || (v < w ? -1 : 1)).slice(0, count).map(([, w]) => w);

function start(box, model) {
  const { config, vocabulary, language, first } = model, one = (name) => box.querySelector(`.tp-xray-${name}`);
  const number = new Map(vocabulary.map((w, i) => [w, i]));
  const state = { words: first.words.slice(1), at: first.at, under: null, off: new Set(), temperature: 1 };
  let seen, whole, known, tokens, surprises;

  // ---- what the reader moves
  const field = create("textarea", { id: "tp-xray-field", rows: 4, autocapitalize: "off", autocomplete: "off", spellcheck: false });
  const trouble = create("div", { className: "tp-xray-trouble" });
  trouble.setAttribute("role", "status");
  const examples = create("div", { className: "tp-xray-examples" }, create("span", { textContent: "Try:" }));
  for (const { name, text, at, under } of model.examples) {
    const button = create("button", { type: "button", textContent: name });
    button.addEventListener("click", () => {
      field.value = text;
      state.off.clear();
      state.temperature = 1;
      read({ at, under });
    });
    examples.append(button);
  }
  one("ask").replaceWith(create("div", { className: "tp-xray-live" }, examples, create("label", { htmlFor: field.id, textContent: "Your text, in words of the language" }), field, trouble));

  const strip = one("words"), told = one("told"), sum = one("sum"), looks = one("looks");
  strip.setAttribute("role", "group");
  strip.setAttribute("aria-label", "The words: arrow keys choose one");
  told.setAttribute("role", "status");
  const under = create("button", { type: "button", textContent: "Surprise under the words" });
  under.addEventListener("click", () => { state.under = null; show(); });
  looks.before(under);

  const heads = [...box.querySelectorAll(".tp-xray-heads figure")].map((figure) => {
    const name = figure.dataset.head, [layer, head] = name.split(".").map(Number);
    const look = create("button", { type: "button", textContent: `head ${name}` });
    figure.querySelector("b").replaceWith(look);
    look.addEventListener("click", () => { Object.assign(state, { under: name, layer, head }); show(); });
    const map = figure.querySelector("svg");
    map.addEventListener("click", (event) => {
      const area = map.getBoundingClientRect();
      const row = Math.floor((event.clientY - area.top) / area.height * tokens.length);
      Object.assign(state, { under: name, layer, head });
      choose(row);
    });
    return { name, layer, head, figure, map, look, most: figure.querySelector("span") };
  });

  // ---- the sections that need the script: switches, every tensor, writing on
  const page = {
    model, state, seen: () => seen, chapters: "../../notebooks/", choose,
    changed: (kind) => compute(kind),
    effect: () => (state.words.length ? `The mean surprise is ${mean(surprises).toFixed(2)} nats per word now; as it was trained the model has ${whole.toFixed(2)}.` : ""),
    take(words) {
      field.value = words.join(" ");
      read();
    },
    redraw: () => pen.redraw(),
  };
  const board = switches(page), map = tensors(page), pen = writing(page);
  one("tables").after(board.box);
  one("heads").after(map.box, pen.box);
  function choose(at) {
    state.at = Math.max(0, Math.min(tokens.length - 1, at));
    show();
    pen.renew("word");
  }

  // ---- from a text to what is shown
  function read(to = {}) {
    const typed = wordsOf(field.value), most = config.max_position_embeddings - 1;
    const unknown = [...new Set(typed.filter((w) => !number.has(w)))];
    trouble.replaceChildren();
    for (const word of unknown.slice(0, 5)) {
      const line = create("p", { textContent: `“${word}” is no word of the language. Near it: ` });
      for (const instead of near(word, vocabulary)) {
        const button = create("button", { type: "button", textContent: instead });
        button.addEventListener("click", () => {
          const parts = field.value.split(/([\s.,:?]+)/);
          field.value = parts.map((part) => (part.toLowerCase() === word ? instead : part)).join("");
          field.focus();
          read();
        });
        line.append(button, " ");
      }
      trouble.append(line);
    }
    if (unknown.length > 5) trouble.append(create("p", { textContent: `And ${unknown.length - 5} more words.` }));
    if (unknown.length) return void trouble.append(create("p", { textContent: "Shown below is still the last text that could be read." }));
    if (typed.length > most) trouble.append(create("p", { textContent: `The model reads ${most} words; the first ${most} of your ${typed.length} are shown.` }));
    state.words = typed.slice(0, most);
    Object.assign(state, to);
    state.at = Math.min(to.at ?? Infinity, state.words.length);
    compute();
  }
  // -log p of each word after the first, from the logits: even where p is too small for a number.
  const surprisesOf = ({ logits, temperature }, numbers) => numbers.slice(1).map((t, i) => {
    const z = logits.data.subarray(i * logits.columns, (i + 1) * logits.columns), most = z.reduce((a, b) => Math.max(a, b));
    return Math.max(0, Math.log(z.reduce((total, x) => total + Math.exp((x - most) / temperature), 0)) - (z[t] - most) / temperature);
  });
  function compute(kind = "text") {
    tokens = [vocabulary[config.bos_token_id], ...state.words];
    const numbers = tokens.map((w) => number.get(w));
    seen = run(model, numbers, state.off, state.temperature);
    if (kind === "text") {
      whole = mean(surprisesOf(state.off.size || state.temperature !== 1 ? run(model, numbers) : seen, numbers));
      known = follow(language, tokens);
    }
    surprises = surprisesOf(seen, numbers);
    strip.replaceChildren(...tokens.map((word, i) => {
      const chip = create("button", { type: "button" }, `${word} `, create("small"));
      chip.addEventListener("click", () => choose(i));
      return chip;
    }));
    const count = state.words.length;
    const value = mean(surprises).toFixed(2), words = `${count} ${count === 1 ? "word" : "words"}. `;
    const floor = known.chances.slice(0, count).map((p, i) => -Math.log(p[state.words[i]]));
    sum.textContent = !count ? "No word yet: the model has only its sign for the beginning of a text." : words
      + `${[...(state.off.size ? [`with ${[...state.off].sort().map(called).join(", ")} switched off`] : []), ...(state.temperature !== 1 ? [`at temperature ${state.temperature}`] : []), `the mean surprise is ${value} nats per word`].join(" ")}`.replace(/^./, (letter) => letter.toUpperCase())
      + (state.off.size || state.temperature !== 1 ? `, as the model was trained ${whole.toFixed(2)}; ` : "; ")
      + (known.at === null ? `the floor, below which no model can come on average, is ${mean(floor).toFixed(2)} for this text.`
        : `a floor is not defined, because no story of the language goes like this: ${couldBe()}`);
    show();
    pen.renew(kind);
  }
  function couldBe() {
    const { could, at } = known;
    if (!could.length) return `it has ended before “${tokens[at]}”.`;
    const some = could.slice(0, 5).join(", "), more = could.length > 5 ? ` or ${could.length - 5} others` : "";
    return `where “${tokens[at]}” stands as word ${at}, it has ${some}${more}.`;
  }

  // ---- what is shown of the chosen word
  function show() {
    const { at } = state, size = tokens.length, chosen = heads.find((h) => h.name === state.under);
    [...strip.children].forEach((chip, i) => {
      const weight = chosen && i <= at ? seen.maps[chosen.layer][chosen.head].data[at * size + i] : null;
      const level = chosen ? levelOfWeight(weight ?? 0) : i ? levelOfSurprise(surprises[i - 1]) : 0;
      chip.className = `tp-xray-word tp-l${level}${chosen ? " tp-xray-weight" : ""}`;
      chip.setAttribute("aria-pressed", String(i === at));
      chip.tabIndex = i === at ? 0 : -1;
      chip.lastChild.textContent = chosen ? (weight === null ? "" : weight.toFixed(2)) : i ? surprises[i - 1].toFixed(2) : "";
    });
    const best = (p) => Array.from(p.data.subarray(at * p.columns, (at + 1) * p.columns), (x, w) => [w, x]).sort(([, a], [, b]) => b - a);
    const likeliest = best(seen.probabilities), after = tokens[at + 1] ?? null, exact = known.chances[at];
    const tracked = after ?? vocabulary[likeliest[0][0]], p = seen.probabilities.data[at * vocabulary.length + number.get(tracked)], lost = after === null ? null : surprises[at];
    told.textContent = after !== null
      ? `After “${tokens[at]}” comes “${after}”: probability ${said(p)}, surprise ${lost.toFixed(2)} nats`
        + (exact && Object.hasOwn(exact, after) ? `; in the language itself ${saidExactly(exact[after])}.` : ".")
      : `After “${tokens[at]}” your text ends. The model expects “${tracked}”, probability ${said(p)}.`;
    one("next").tBodies[0].replaceChildren(...likeliest.slice(0, TOP).map(([w, x]) => row(
      vocabulary[w], bar(x), said(x), exact ? saidExactly(exact[vocabulary[w]] ?? 0) : "–")));
    const lens = one("lens");
    lens.tHead.rows[0].lastElementChild.textContent = `“${tracked}”`;
    lens.tBodies[0].replaceChildren(...seen.levels.map(([name, probabilities]) => {
      const [w, x] = best(probabilities)[0];
      return row(name, vocabulary[w], said(x), said(probabilities.data[at * vocabulary.length + number.get(tracked)]));
    }));
    for (const { name, layer, head, map, look, most, figure } of heads) {
      const weights = seen.maps[layer][head];
      drawMap(map, weights, at);
      look.setAttribute("aria-pressed", String(state.under === name));
      figure.classList.toggle("tp-xray-off", state.off.has(name) || state.off.has(`attention ${layer}`));
      const mine = Array.from(weights.data.subarray(at * size, at * size + at + 1), (w, j) => [j, w]).sort(([, a], [, b]) => b - a);
      most.textContent = `${tokens[mine[0][0]]} ${mine[0][1].toFixed(2)}`;
      if (state.under === name) {
        looks.textContent = `Under the words: the weights of head ${name} at “${tokens[at]}”. The largest: ${mine.slice(0, 3).map(([j, w]) => `“${tokens[j]}” (word ${j}) ${w.toFixed(2)}`).join(", ")}.`;
      }
    }
    under.setAttribute("aria-pressed", String(!chosen));
    if (!chosen) looks.textContent = `Under each picture: the word that has most of the head’s weight at “${tokens[at]}”.`;
    board.show();
    map.show();
  }
  const row = (...cells) => create("tr", {}, create("th", { scope: "row", textContent: cells[0] }), ...cells.slice(1).map((c) => create("td", {}, c)));
  const bar = (p) => drawn("svg", { class: "tp-xray-bar", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" }, drawn("rect", { width: 100 * p, height: 8 }));
  function drawMap(map, weights, at) {
    const size = weights.rows, paths = Array.from({ length: 10 }, () => "");
    for (let i = 0; i < size; i++) {
      for (let j = 0; j <= i; j++) {
        const level = levelOfWeight(weights.data[i * size + j]);
        if (level) paths[level] += `M${j} ${i}h1`;
      }
    }
    map.setAttribute("viewBox", `0 -0.5 ${size} ${size}`);
    map.replaceChildren(
      drawn("path", { class: "tp-xray-ground", d: `M0 -0.5L${size} ${size - 0.5}H0z` }),
      ...paths.flatMap((d, level) => (d ? [drawn("path", { d, opacity: (level / 9).toFixed(2) })] : [])),
      drawn("rect", { class: "tp-xray-row", x: 0, y: at - 0.5, width: size, height: 1 }));
  }

  // ---- keys, and typing
  strip.addEventListener("keydown", (event) => {
    const to = { ArrowLeft: state.at - 1, ArrowRight: state.at + 1, Home: 0, End: tokens.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    choose(to);
    strip.children[state.at].focus();
  });
  let timer = null;
  field.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(() => read(), 400); });
  field.value = state.words.join(" ");
  box.classList.add("tp-xray-moving");
  compute();
  map.first();
  map.show();
  field.focus({ preventScroll: true });
}

// The model as it is written by book/xray: configuration, words, grammar, examples, weights.
function unpacked({ file, ...given }) {
  const text = atob(file), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return { ...given, weights: weightsOf(bytes) };
}
