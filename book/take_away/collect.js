// Runs in a page of the built site. Returns its article as XHTML that needs no script: explorers
// drawn in their first state, everything that folds opened, ids and links as they are in the book.
// `pages` maps the address of every page of the book to its name there; `number` is the chapter's;
// `title` is what the page is called in the book, where that differs from its heading on the site.
({ pages, number, title: called }) => {
  const here = (address) => pages[address.split(/[?#]/)[0]];
  const name = here(location.href);
  // Unique in the whole book, and a name that XML allows.
  const anchor = (page, id) => (id ? `${page}--${id.replace(/[^\w.-]/g, "-")}` : page);
  const make = (tag, kind, ...children) => {
    const node = document.createElement(tag);
    node.className = kind;
    node.append(...children);
    return node;
  };

  window.dispatchEvent(new Event("beforeprint")); // draws the explorers that were not seen yet
  const article = document.querySelector("article.tp-article").cloneNode(true);
  const all = (selector, root = article) => [...root.querySelectorAll(selector)];

  // ---- explorers: a picture of the first state, and the state in words
  const pixel = Object.assign(document.createElement("canvas"), { width: 1, height: 1 })
    .getContext("2d", { willReadFrequently: true });
  const known = new Map();
  const rgb = (colour) => {
    if (!colour || colour === "none") return "none";
    if (!known.has(colour)) {
      pixel.clearRect(0, 0, 1, 1);
      pixel.fillStyle = colour;
      pixel.fillRect(0, 0, 1, 1);
      const [r, g, b] = pixel.getImageData(0, 0, 1, 1).data;
      known.set(colour, `#${[r, g, b].map((v) => v.toString(16).padStart(2, "0")).join("")}`);
    }
    return known.get(colour);
  };
  const PAINT = {
    text: ["fill", "font-size", "font-family", "font-weight", "text-anchor"],
    line: ["stroke", "stroke-width"], path: ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray"],
    rect: ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray"],
    circle: ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray"], g: ["opacity"],
  };
  const pictures = ".tp-explorer, .tp-typed, nav.tp-here";
  const drawn = [...document.querySelector("article.tp-article").querySelectorAll(pictures)];
  all(pictures).forEach((box, i) => {
    const live = [...drawn[i].querySelectorAll("svg, svg *")];
    all("svg, svg *", box).forEach((node, k) => {
      const style = getComputedStyle(live[k]);
      for (const property of PAINT[node.tagName] || []) {
        const value = style.getPropertyValue(property);
        node.setAttribute(property, /^(fill|stroke)$/.test(property) ? rgb(value) : value.replace(/"/g, "'"));
      }
      if (node.tagName === "text") node.setAttribute("font-family", "sans-serif");
      // What can be touched on a screen is only looked at here.
      const touch = [...node.attributes].map((a) => a.name).filter((a) => /^(data-|tabindex|aria-(?!label|hidden))/.test(a));
      for (const name of ["style", "class", ...touch]) node.removeAttribute(name);
      if (node.tagName === "g" && node.hasAttribute("role")) { node.removeAttribute("role"); node.removeAttribute("aria-label"); }
    });
    all("svg [visibility=hidden], .tp-grip, .tp-hit, .tp-detail", box).forEach((node) => node.remove());
    all("svg[role=group]", box).forEach((node) => node.setAttribute("role", "img"));
    all(".tp-says", box).forEach((node) => node.removeAttribute("data-longest"));
    const states = [...drawn[i].querySelectorAll(".tp-control:not(.tp-guess)")].map((control) => {
      const value = control.querySelector("select")?.selectedOptions[0].textContent
        ?? control.querySelector(".tp-count, output").textContent;
      return `${control.querySelector("span").textContent} ${value}`;
    });
    all(".tp-controls", box).forEach((c) => c.replaceWith(make("p", "tp-state", `Drawn at: ${states.join("; ")}.`)));
    all(".tp-sentence", box).forEach((p) => { p.removeAttribute("role"); p.removeAttribute("aria-live"); });
    all(".tp-key svg", box).forEach((s) => { s.setAttribute("width", 28); s.setAttribute("height", 8); });
  });

  // A box to type in shows the text that stands in it.
  all(".tp-field").forEach((field) => field.replaceWith(make("p", "tp-state", `The text: ${field.querySelector("textarea").defaultValue}`)));

  // ---- what only works on a screen
  const SCREEN = "script, style, link, button, .headerlink, .tp-filter, .tp-choice, .tp-score, .tp-hint, "
    + ".tp-tools, .tp-compared, .tp-progress, .tp-eyebrow, .tp-needs-script, input, .toctree-wrapper, "
    + ".tp-drawing, .tp-setup"; // what only draws: the picture is there
  all(SCREEN).forEach((node) => node.remove());
  // A witness is a mark beside the number of its equation; code in pieces becomes one again.
  for (const box of all(".tp-equation")) {
    const display = box.querySelector(".math-display");
    display.querySelector(".eqno")?.append(" ✓");
    box.replaceWith(display);
  }
  for (const box of all(".tp-code")) {
    const whole = make("pre", "");
    for (const piece of all("pre, summary > code", box)) whole.append(...piece.childNodes);
    box.replaceWith(whole);
  }
  // Beside the text there is no place: what the chapter is about comes before what is in it.
  for (const note of all(".tp-opening")) note.parentNode.querySelector(":scope > p:not([class])")?.after(note);
  for (const fold of all("details")) {
    const summary = fold.querySelector(":scope > summary");
    summary.remove();
    if (fold.matches(".tp-question, .tp-margin")) fold.replaceWith(make("div", "tp-unfolded", make("p", "tp-question", ...summary.childNodes), ...fold.childNodes));
    else if (fold.matches(".admonition")) { // an admonition that folds, such as a solution, stays one
      fold.classList.remove("tp-fold");
      const box = make("div", fold.className, make("p", "admonition-title", ...summary.childNodes), ...fold.childNodes);
      if (fold.id) box.id = fold.id;
      fold.replaceWith(box);
    } else fold.replaceWith(make("div", "tp-aside", ...fold.childNodes));
  }

  // ---- symbols that answer (static/symbols.js) do so on a screen
  all("math [data-s]").forEach((symbol) => symbol.removeAttribute("data-s"));
  all(".math-display[role]").forEach((box) => {
    for (const name of ["role", "aria-label", "aria-describedby"]) box.removeAttribute(name);
  });

  // ---- MathML 3, the version of e-readers, sets these two on fewer elements than browsers do
  all("math *:is([scriptlevel], [displaystyle]):not(mstyle)").forEach((node) => {
    const style = document.createElementNS(node.namespaceURI, "mstyle");
    for (const name of ["scriptlevel", "displaystyle"]) {
      if (!node.hasAttribute(name)) continue;
      style.setAttribute(name, node.getAttribute(name));
      node.removeAttribute(name);
    }
    node.replaceWith(style);
    style.append(node);
  });

  // ---- a card that is a link as a whole: its title becomes the link
  all("a.sd-hide-link-text").forEach((link) => {
    const title = link.closest(".sd-card")?.querySelector(".sd-card-title");
    if (title) {
      link.replaceChildren(...title.childNodes);
      title.append(link);
    }
  });

  // ---- links, ids, pictures
  all("a").forEach((a) => {
    if (!a.hasAttribute("href")) return;
    const url = new URL(a.getAttribute("href"), location.href); // a link in a picture has no `hash`
    const to = here(url.href), out = /^(https?|mailto):$/.test(url.protocol);
    if (to) a.setAttribute("href", `${to}.xhtml#${anchor(to, decodeURIComponent(url.hash.slice(1)))}`);
    else if (!out) a.replaceWith(...a.childNodes); // a source file, a figure on its own
  });
  // Marks of code that have no colour of their own, or no meaning, are half of the weight.
  all("pre[id]").forEach((pre) => pre.removeAttribute("id"));
  all("pre > span:not([class]), pre span:is(.n, .nn, .nx, .p, .w)").forEach((span) => {
    const parent = span.parentNode;
    span.replaceWith(...span.childNodes);
    parent.normalize();
  });
  const seen = new Set();
  all("[id]").forEach((node) => {
    const id = anchor(name, node.id);
    if (seen.has(id)) node.removeAttribute("id");
    else node.id = id;
    seen.add(id);
  });
  const images = all("img").map((img) => {
    const from = img.src;
    img.setAttribute("src", `images/${from.split("/").at(-1)}`);
    img.removeAttribute("loading");
    return from;
  });
  all("[data-toggle], [tabindex], [border]").forEach((n) => ["data-toggle", "tabindex", "border"].forEach((a) => n.removeAttribute(a)));

  // ---- the page
  const title = article.querySelector("h1");
  if (called) title.textContent = called;
  const text = title.textContent.trim();
  if (number) title.prepend(make("span", "tp-number", `Chapter ${number}. `));
  const page = make("section", "tp-page", ...article.childNodes);
  page.id = name;
  return {
    title: text,
    images,
    headings: [...page.querySelectorAll("h2")].map((h) => [h.closest("section").id, h.textContent.trim()]),
    solutions: [...page.querySelectorAll(".solution")].map((s) => s.querySelector("pre")?.textContent ?? s.textContent),
    chinese: [...new Set(page.textContent.match(/\p{Script=Han}/gu) || [])].join(""),
    xhtml: new XMLSerializer().serializeToString(page),
  };
}
