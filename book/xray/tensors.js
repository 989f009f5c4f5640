// The map of the forward pass: a row for each tensor, which opens to its numbers and their arithmetic.

const ROW = 15; // how tall a row of a heat map is, in px
const SIDE = 4.4; // how wide the names of its rows are, in rem (style/xray.css)

// The share of its color that a number has, by its size.
const shade = (x, most) => (most ? Math.sqrt(Math.abs(x) / most) : 0);
function largest(view) {
  let most = 0;
  for (let i = 0; i < view.rows; i++) {
    for (let j = 0; j < view.columns; j++) {
      const size = Math.abs(view.at(i, j));
      if (size > most && size < Infinity) most = size;
    }
  }
  return most;
}

// A pixel for each number: its role's color above zero, gray below; what no word may look at is left open.
function paint(canvas, view, role, most = largest(view)) {
  const style = getComputedStyle(document.documentElement);
  const color = (name) => [1, 3, 5].map((i) => parseInt(style.getPropertyValue(`--tp-${name}`).trim().slice(i, i + 2), 16));
  const ground = color("ground"), above = color(role), below = color("quiet");
  Object.assign(canvas, { width: Math.max(1, view.columns), height: Math.max(1, view.rows) });
  const pen = canvas.getContext("2d"), image = pen.createImageData(canvas.width, canvas.height);
  for (let i = 0, n = 0; i < view.rows; i++) {
    for (let j = 0; j < view.columns; j++, n += 4) {
      const x = view.at(i, j), part = shade(x, most), own = x < 0 ? below : above;
      for (let c = 0; c < 3; c++) image.data[n + c] = ground[c] + (own[c] - ground[c]) * part;
      image.data[n + 3] = x === -Infinity ? 0 : 255;
    }
  }
  pen.putImageData(image, 0, 0);
}

// W_q as W with a small q.
const symbols = (text) => text.split(/_(\w+)/).map((part, i) => (i % 2 ? create("sub", { textContent: part }) : part));

function tensors(page) {
  const { model, state } = page, { config: c, vocabulary } = model;
  const open = { id: null, column: 0, pointed: null };
  state.layer = c.num_hidden_layers - 1;
  state.head = 0;
  const seen = () => page.seen(), word = (i) => vocabulary[seen().tokens[i]];
  const view = (id) => viewOf(model, seen(), id, state);

  // ---- where the reader looks: word, layer, head
  const words = create("select", { id: "tp-xray-at" });
  words.addEventListener("change", () => page.choose(Number(words.value)));
  const choice = (name, count, key) => {
    const buttons = Array.from({ length: count }, (_, i) => {
      const button = create("button", { type: "button", textContent: i });
      button.setAttribute("aria-label", `${name} ${i}`);
      button.addEventListener("click", () => { state[key] = i; show(); });
      return button;
    });
    return [create("span", { className: "tp-xray-choice" }, create("span", { textContent: name }), ...buttons), () => buttons.forEach((b, i) => b.setAttribute("aria-pressed", String(i === state[key])))];
  };
  const [layers, pressLayer] = choice("layer", c.num_hidden_layers, "layer");
  const [heads, pressHead] = choice("head", c.num_attention_heads, "head");

  // ---- the map
  const rows = TENSORS.map((tensor) => {
    const shape = create("span", { className: "tp-xray-shape" }), strip = create("canvas");
    strip.setAttribute("aria-hidden", "true");
    const button = create("button", { type: "button" }, create("b", { textContent: tensor.name }), create("i", {}, ...symbols(tensor.is)), shape, strip);
    button.setAttribute("aria-expanded", "false");
    button.addEventListener("click", () => { toggle(tensor.id); });
    return { ...tensor, shape, strip, button, item: create("li", { className: `tp-xray-${tensor.name === "stream" || tensor.group === "in" ? "stream" : "branch"}` }, button) };
  });
  const titles = { in: () => "A word becomes a vector", attention: () => `Layer ${state.layer}: attention, head ${state.layer}.${state.head}`, "feed-forward": () => `Layer ${state.layer}: feed-forward`, out: () => "The stream becomes a word" };
  const groups = Object.entries(titles).map(([group, title]) => {
    const head = create("p", { className: "tp-xray-group" });
    return { head, title, node: create("div", {}, head, create("ol", {}, ...rows.filter((r) => r.group === group).map((r) => r.item))) };
  });
  const box = create("div", { className: "tp-xray-inside tp-xray-tensors" },
    create("p", { className: "tp-title", textContent: "Every number on the way" }),
    create("p", { textContent: "From top to bottom, the way of one word through the model. The strip of a tensor holds its numbers at that word: colored above zero, gray below, and the paler the nearer to zero. Open a tensor, and point at a number to see how it came about." }),
    create("div", { className: "tp-xray-controls" }, create("label", { htmlFor: words.id, textContent: "word" }), words, layers, heads),
    create("div", { className: "tp-xray-flow" }, ...groups.map((g) => g.node)));

  // ---- the panel of the open tensor
  const over = create("div", { className: "tp-xray-over" }), side = create("div", { className: "tp-xray-side" });
  const canvas = create("canvas"), frame = create("span", { className: "tp-xray-frame" }), band = create("span", { className: "tp-xray-band" });
  const cells = create("div", { className: "tp-xray-cells" }, canvas, band, frame);
  const heat = create("div", { className: "tp-xray-heat", tabIndex: 0 }, create("div", { className: "tp-xray-corner" }), over, side, cells);
  heat.setAttribute("role", "group");
  const spoken = create("div"), reasons = create("div"), answer = create("div", { className: "tp-xray-answer" }, spoken, reasons);
  const numbers = create("div", { className: "tp-xray-numbers" });
  spoken.setAttribute("role", "status");
  numbers.setAttribute("role", "group");
  const caption = create("p", { className: "tp-xray-caption" }), which = create("p", { className: "tp-xray-caption" });
  const panel = create("div", { className: "tp-xray-panel", id: "tp-xray-panel" }, answer, caption, heat, which, numbers);

  // Which of the listed numbers is the chosen one.
  const mine = () => (tensorOf[open.id].columns === "number" ? state.at : open.column);
  const placeOf = (cell) => cell && { row: Number(cell.dataset.row), column: Number(cell.dataset.column) };
  function toggle(id) {
    open.id = open.id === id ? null : id;
    open.pointed = open.tall = null;
    answer.style.minHeight = "0";
    if (open.id) open.column = strongest();
    show();
  }
  function strongest() {
    const of = view(open.id);
    let best = 0;
    for (let j = 1; j < of.columns; j++) {
      const x = Math.abs(of.at(state.at, j));
      if (x < Infinity && x > Math.abs(of.at(state.at, best))) best = j;
    }
    return best;
  }
  const columnName = (tensor, j) => (tensor.columns === "word" ? word(j) : tensor.columns === "vocabulary" ? vocabulary[j] : tensor.columns === "number" ? "" : String(j));

  // ---- drawing
  function show() {
    const { at } = state, size = seen().tokens.length;
    words.replaceChildren(...Array.from({ length: size }, (_, i) => create("option", { value: i, textContent: `${i} ${word(i)}`, selected: i === at })));
    pressLayer();
    pressHead();
    for (const group of groups) group.head.textContent = group.title();
    for (const { id, role, shape, strip, button, columns } of rows) {
      const of = view(id), wide = columns === "word" ? at + 1 : of.columns;
      shape.textContent = columns === "number" ? `${of.rows}` : `${of.rows} × ${of.columns}`;
      strip.hidden = columns === "number";
      if (!strip.hidden) paint(strip, { rows: 1, columns: wide, at: (_, j) => of.at(at, j) }, role);
      button.setAttribute("aria-expanded", String(id === open.id));
      button[id === open.id ? "setAttribute" : "removeAttribute"]("aria-controls", panel.id);
    }
    if (open.id) showOpen();
    else panel.remove();
  }
  function showOpen() {
    const row = rows.find((r) => r.id === open.id), of = view(open.id), most = largest(of);
    if (panel.parentElement !== row.item) row.item.append(panel);
    if (open.column >= of.columns) open.column = strongest();
    panel.dataset.role = row.role;
    // Names of words stand on every column, numbers of features on every eighth. Tokens need no picture: of
    // them the list shows one for each word.
    const named = row.columns === "word" || row.columns === "vocabulary", listed = row.columns === "number";
    const room = box.clientWidth - 16 * SIDE - 30;
    heat.hidden = caption.hidden = listed;
    const wide = named ? ROW : Math.max(4, Math.min(ROW, Math.floor(room / of.columns)));
    open.wide = wide;
    paint(canvas, of, row.role, most);
    Object.assign(canvas.style, { width: `${wide * of.columns}px`, height: `${ROW * of.rows}px` });
    side.replaceChildren(...Array.from({ length: of.rows }, (_, i) => create("span", { textContent: word(i), className: i === state.at ? "tp-on" : "" })));
    over.replaceChildren(...Array.from({ length: of.columns }, (_, j) => {
      const name = create("span", { textContent: named || j % 8 === 0 ? columnName(row, j) : "" });
      name.style.width = `${wide}px`;
      return name;
    }));
    over.classList.toggle("tp-xray-named", named);
    const what = named ? (row.columns === "word" ? "a column for each word that is looked at" : "a column for each word of the vocabulary") : "a column for each feature";
    caption.replaceChildren(`The whole tensor: a row for each word, ${what}.`);
    heat.setAttribute("aria-label", `${row.name}, ${of.rows} words: arrow keys choose a number`);
    const count = listed ? of.rows : row.columns === "word" ? state.at + 1 : of.columns;
    which.textContent = listed ? "The number of each word:" : `Its ${count === 1 ? "number" : `${count} numbers`} at “${word(state.at)}”:`;
    numbers.classList.toggle("tp-xray-worded", named || listed);
    numbers.setAttribute("aria-label", listed ? "The numbers of all words: arrow keys choose one" : `The numbers at “${word(state.at)}”: arrow keys choose one`);
    numbers.replaceChildren(...Array.from({ length: count }, (_, j) => {
      const x = listed ? of.at(j, 0) : of.at(state.at, j), short = listed ? String(x) : x.toFixed(2).replace("-", "−");
      const cell = create("button", { type: "button", className: `tp-l${listed ? 0 : Math.min(9, Math.floor(10 * shade(x, most)))}${x < 0 ? " tp-xray-minus" : ""}` },
        create("small", { textContent: listed ? word(j) : columnName(row, j) }), short === "−0.00" ? "0.00" : short);
      Object.assign(cell.dataset, listed ? { row: j, column: 0 } : { row: state.at, column: j });
      return cell;
    }));
    mark(true);
  }
  // The number that is chosen or pointed at, and its arithmetic.
  function mark(follow = false) {
    const { row, column } = open.pointed ?? { row: state.at, column: open.column }, { wide } = open;
    Object.assign(frame.style, { left: `${wide * column}px`, top: `${ROW * row}px`, width: `${wide}px`, height: `${ROW}px` });
    Object.assign(band.style, { top: `${ROW * state.at}px`, height: `${ROW}px` });
    [...numbers.children].forEach((cell, j) => {
      cell.setAttribute("aria-pressed", String(Number(cell.dataset.row) === row && Number(cell.dataset.column) === column));
      cell.tabIndex = j === mine() ? 0 : -1;
    });
    if (follow) {
      const seenX = heat.clientWidth - cells.offsetLeft, seenY = heat.clientHeight - cells.offsetTop;
      if (wide * column < heat.scrollLeft || wide * (column + 1) > heat.scrollLeft + seenX) heat.scrollLeft = Math.max(0, wide * column - seenX / 2);
      if (ROW * row < heat.scrollTop || ROW * (row + 1) > heat.scrollTop + seenY) heat.scrollTop = ROW * Math.max(0, Math.round(row - seenY / ROW / 2));
      const cell = numbers.children[mine()];
      const above = cell && cell.offsetTop - numbers.scrollTop;
      if (cell && (above < 0 || above + cell.offsetHeight > numbers.clientHeight)) numbers.scrollTop = cell.offsetTop - 3 * (cell.offsetHeight + 2) - 3;
    }
    arithmetic(row, column);
    // What stands below must not move while the reader points at it.
    open.tall = Math.max(open.tall ?? 0, answer.scrollHeight);
    answer.style.minHeight = `${open.tall}px`;
  }
  function arithmetic(row, column) {
    const tensor = tensorOf[open.id], value = view(open.id).at(row, column);
    const { expression, why, terms, chapter: [to, derived] } = explain(model, seen(), open.id, { layer: state.layer, head: state.head, row, column });
    const at = `“${word(row)}”`, who = tensor.mine ? ` of head ${state.layer}.${state.head}` : ["in", "out"].includes(tensor.group) ? "" : ` in layer ${state.layer}`;
    const title = {
      number: `Token ${row}, ${at}`, vocabulary: `${tensor.one} of “${vocabulary[column]}” after ${at}`,
      word: `${tensor.one}${who} from ${at} to “${word(column)}”, word ${column}`, feature: `${tensor.name[0].toUpperCase()}${tensor.name.slice(1)}${who} at ${at}, feature ${column}`,
    }[tensor.columns];
    const most = Math.max(...terms.map((t) => Math.abs(t[3])));
    const list = create("table", { className: "tp-xray-terms" }, create("tbody", {}, ...terms.map(([name, a, b, product]) => {
      const bar = create("span", { className: product < 0 ? "tp-xray-minus" : "" });
      bar.style.width = `${most ? 100 * Math.abs(product) / most : 0}%`;
      return create("tr", {}, create("th", { scope: "row", textContent: name }), create("td", { textContent: `${factor(a)} · ${factor(b)}` }), create("td", { textContent: written(product) }), create("td", {}, bar));
    })));
    spoken.replaceChildren(
      create("p", { className: "tp-xray-number" }, `${title}: `, create("b", { textContent: tensor.columns === "number" ? String(value) : written(value) })),
      ...(expression ? [create("p", { className: "tp-xray-expression" }, "= ", create("span", { textContent: expression }), " = ", create("b", { textContent: written(value) }))] : []));
    reasons.replaceChildren(
      create("p", {}, ...symbols(why), " ", create("a", { href: page.chapters + to, textContent: derived }), "."),
      ...(terms.length > 1 ? [create("p", { className: "tp-xray-caption", textContent: "The largest terms" }), list] : []));
  }

  // ---- pointing, tapping, keys
  function pick(row, column) {
    const of = view(open.id), to = Math.max(0, Math.min(of.rows - 1, row));
    open.column = Math.max(0, Math.min(of.columns - 1, column));
    open.pointed = null;
    if (to === state.at) mark(true);
    else page.choose(to);
  }
  const under = (event) => {
    const area = canvas.getBoundingClientRect(), of = view(open.id);
    const at = (part, size, count) => Math.max(0, Math.min(count - 1, Math.floor(part / size * count)));
    return { row: at(event.clientY - area.top, area.height, of.rows), column: at(event.clientX - area.left, area.width, of.columns) };
  };
  const point = (to) => {
    if (to?.row === open.pointed?.row && to?.column === open.pointed?.column) return;
    open.pointed = to;
    mark();
  };
  cells.addEventListener("pointermove", (event) => { if (event.pointerType === "mouse") point(under(event)); });
  cells.addEventListener("click", (event) => { const { row, column } = under(event); pick(row, column); });
  numbers.addEventListener("pointermove", (event) => {
    const cell = event.target.closest("button");
    if (event.pointerType === "mouse") point(placeOf(cell));
  });
  for (const node of [cells, numbers]) node.addEventListener("pointerleave", () => point(null));
  numbers.addEventListener("click", (event) => {
    const to = placeOf(event.target.closest("button"));
    if (to) pick(to.row, to.column);
  });
  const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0], Home: [0, -Infinity], End: [0, Infinity] };
  heat.addEventListener("keydown", (event) => {
    const by = moves[event.key];
    if (!by) return;
    event.preventDefault();
    pick(state.at + by[0], open.column + by[1]);
  });
  numbers.addEventListener("keydown", (event) => {
    const by = moves[event.key];
    if (!by) return;
    event.preventDefault();
    const top = (n) => n.offsetTop, all = [...numbers.children], across = all.filter((n) => top(n) === top(all[0])).length;
    const to = placeOf(all[Math.max(0, Math.min(all.length - 1, mine() + by[1] + across * by[0]))]);
    pick(to.row, to.column);
    numbers.children[mine()].focus({ preventScroll: true });
  });
  new MutationObserver(() => { show(); page.redraw(); }).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  open.id = "weights";
  return { box, show, first: () => { open.column = strongest(); } };
}
