// A displayed formula answers: pointing at a symbol, tapping it, or leading to it with the arrow
// keys says what it is and marks it wherever else the chapter prints it. What the symbols mean
// comes with the page, by number (book/symbol_pages.py). Without this script the formulas are there,
// and the page on notation says what their letters mean.
(() => {
  "use strict";
  const island = document.querySelector("script.tp-symbols");
  const main = island && island.closest("main");
  if (!main) return;
  // Of each symbol: itself and its shape as MathML, what it is, its role, all of it in words.
  const meanings = JSON.parse(island.textContent);
  const make = (tag, attributes) => {
    const node = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    return node;
  };
  const card = make("div", { class: "tp-card", "aria-hidden": "true", hidden: "" });
  const said = make("p", { class: "tp-said", role: "status" });
  const told = make("div", { hidden: "" });
  main.append(card, said, told);

  // The element that answers.
  let shown = null;
  // "point", "tap" or "key".
  let how = "";
  let later = 0;
  const formulaOf = (node) => node.closest(".math-display[role]");
  const number = (symbol) => symbol.dataset.s;
  const symbols = (formula) => {
    const first = new Map();
    for (const symbol of formula.querySelectorAll("[data-s]")) {
      if (!first.has(number(symbol))) first.set(number(symbol), symbol);
    }
    return [...first.values()];
  };

  // Under the formula or over it, so that no part of it is covered; always within the window.
  function place() {
    const symbol = shown.getBoundingClientRect(), formula = formulaOf(shown).getBoundingClientRect();
    const { clientWidth, clientHeight } = document.documentElement;
    const { width, height } = card.getBoundingClientRect();
    const left = (symbol.left + symbol.right - width) / 2;
    const below = formula.bottom + 4, above = formula.top - height - 4, last = clientHeight - height - 8;
    card.style.left = `${Math.max(8, Math.min(left, clientWidth - width - 8))}px`;
    card.style.top = `${below <= last ? below : above >= 8 ? above : last}px`;
  }

  function mark(on) {
    shown.classList.toggle("tp-this", on);
    for (const same of main.querySelectorAll(`[data-s="${number(shown)}"]`)) same.classList.toggle("tp-same", on);
  }

  function hide() {
    clearTimeout(later);
    if (!shown) return;
    mark(false);
    shown = null;
    card.hidden = true;
  }

  function show(symbol, by) {
    clearTimeout(later);
    how = by;
    if (symbol === shown) return;
    if (shown) mark(false);
    shown = symbol;
    mark(true);
    const [sign, name, shape, role] = meanings[number(symbol)];
    const what = make("span", {}), more = make("span", { class: "tp-more" });
    what.textContent = name;
    more.innerHTML = shape && `shape <math>${shape}</math>, `;
    more.append(role);
    card.innerHTML = `<math>${sign}</math>`;
    card.append(what, more);
    card.hidden = false;
    place();
  }

  // ---- a mouse or a pen: there is time to come to the card, where words can be selected
  document.addEventListener("pointerover", (event) => {
    if (event.pointerType === "touch") return;
    const symbol = event.target.closest(".math-display [data-s]");
    if (symbol) show(symbol, "point");
    else if (card.contains(event.target)) clearTimeout(later);
    else if (shown && how === "point") {
      clearTimeout(later);
      later = setTimeout(hide, 300);
    }
  });

  // ---- a tap: a finger is wider than an index, so the nearest symbol is meant
  document.addEventListener("click", (event) => {
    if (card.contains(event.target)) return;
    const formula = formulaOf(event.target);
    let symbol = formula && event.target.closest("[data-s]");
    if (formula && !symbol && !event.target.closest("a")) {
      let near = 20;
      for (const one of formula.querySelectorAll("[data-s]")) {
        const { left, right, top, bottom } = one.getBoundingClientRect();
        const away = Math.hypot(Math.max(left - event.clientX, 0, event.clientX - right), Math.max(top - event.clientY, 0, event.clientY - bottom));
        if (away < near) [near, symbol] = [away, one];
      }
    }
    if (symbol) show(symbol, "tap");
    else hide();
  });

  // ---- keys: a formula is one stop, the arrows lead through its symbols
  document.addEventListener("focusin", ({ target }) => {
    if (target.matches(".math-display[role]:focus-visible")) show(symbols(target)[0], "key");
    else if (how === "key") hide();
  });
  document.addEventListener("focusout", () => { if (how === "key") hide(); });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    if (!event.target.matches(".math-display[role]")) return;
    event.preventDefault();
    const list = symbols(event.target);
    const at = shown && formulaOf(shown) === event.target ? list.findIndex((s) => number(s) === number(shown)) : step < 0 ? 0 : -1;
    const symbol = list[(at + step + list.length) % list.length];
    symbol.scrollIntoView({ block: "nearest", inline: "nearest" });
    show(symbol, "key");
    said.textContent = meanings[number(symbol)][4];
  });

  const follow = () => requestAnimationFrame(() => {
    if (!shown) return;
    const { bottom, top } = shown.getBoundingClientRect();
    if (!shown.isConnected || bottom < 0 || top > innerHeight) hide();
    else place();
  });
  addEventListener("scroll", follow, { capture: true, passive: true });
  addEventListener("resize", follow);
  addEventListener("beforeprint", hide);

  for (const [i, formula] of [...main.querySelectorAll(".math-display:has([data-s])")].entries()) {
    const words = make("p", { id: `tp-told-${i}` });
    words.textContent = symbols(formula).map((symbol) => meanings[number(symbol)][4]).join("; ") + ".";
    told.append(words);
    const count = formula.querySelector(".eqno")?.firstChild.textContent ?? "";
    formula.setAttribute("role", "group");
    formula.setAttribute("aria-label", `Formula ${count}`.trim());
    formula.setAttribute("aria-describedby", words.id);
    formula.tabIndex = 0;
  }
})();
