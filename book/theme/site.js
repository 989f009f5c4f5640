// What every page has around its text: colors, search, the drawer of chapters, the menu, copy buttons,
// the place in the table of contents, what was read, and what is printed.
// Without this script all text, formulas and figures are there and every box folds out.
(() => {
  "use strict";
  const root = document.documentElement;
  const one = (selector, from = document) => from.querySelector(selector);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  // The browser may forbid a page to keep anything; then it is kept as long as the page is open.
  const store = (() => {
    const memory = new Map();
    return {
      get(key) { try { return localStorage.getItem(key); } catch { return memory.get(key) ?? null; } },
      set(key, value) { try { localStorage.setItem(key, value); } catch { memory.set(key, value); } },
      remove(key) { try { localStorage.removeItem(key); } catch { memory.delete(key); } },
    };
  })();

  // An icon like those of the templates (book/theme/icons.html).
  const icon = (path) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    made.setAttribute("viewBox", "0 0 24 24");
    made.setAttribute("class", "tp-icon");
    made.setAttribute("aria-hidden", "true");
    const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
    line.setAttribute("d", path);
    made.append(line);
    return made;
  };

  // ---- colors: as the machine, light, dark
  function colors() {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const names = { auto: "as the system", light: "light", dark: "dark" };
    const button = one(".tp-colours");
    const show = () => {
      const mode = root.dataset.mode;
      root.dataset.theme = mode === "auto" ? (dark.matches ? "dark" : "light") : mode;
      button.setAttribute("aria-label", `Colors: ${names[mode]}`);
      button.title = `Colors: ${names[mode]}`;
    };
    if (!(root.dataset.mode in names)) root.dataset.mode = "auto";
    dark.addEventListener("change", show);
    button.addEventListener("click", () => {
      const order = dark.matches ? ["auto", "light", "dark"] : ["auto", "dark", "light"];
      root.dataset.mode = order[(order.indexOf(root.dataset.mode) + 1) % 3];
      store.set("mode", root.dataset.mode);
      show();
    });
    show();
  }

  // ---- search: one key leads to the field, Escape back to where the reader was
  function search() {
    const field = one(".tp-search-page input") || one(".tp-search input");
    const mac = /Mac|iPhone/.test(navigator.platform);
    const key = one(".tp-search kbd");
    if (key && mac) key.textContent = "⌘ K";
    let before = null;
    addEventListener("keydown", (event) => {
      if (event.key.toLowerCase() !== "k" || event.shiftKey || event.altKey || !(mac ? event.metaKey : event.ctrlKey)) return;
      event.preventDefault();
      if (!field.checkVisibility()) { one(".tp-to-search").click(); return; }
      if (document.activeElement !== field) before = document.activeElement;
      field.focus();
      field.select();
    });
    field.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !before) return;
      event.preventDefault();
      field.blur();
      if (before !== document.body) before.focus();
      before = null;
    });
    if (field.matches(".tp-search-page input")) {
      const asked = new URLSearchParams(location.search).get("q");
      if (asked) field.value = asked;
      else field.focus();
    }
  }

  // ---- the column of chapters as a drawer: opened where the reader is, closed by what it leads to
  function drawer() {
    const bar = one("#tp-contents");
    const aim = { "tp-open-contents": ".tp-here > a", "tp-open-sections": "#tp-sections a" };
    for (const [name, wanted] of Object.entries(aim)) {
      one(`.${name}`)?.addEventListener("click", () => setTimeout(() => {
        const link = bar.matches(":popover-open") && one(wanted, bar);
        if (!link) return;
        bar.scrollTop = link.offsetTop - 60;
        link.focus({ preventScroll: true });
      }));
    }
    bar.addEventListener("click", (event) => { if (event.target.closest("a[href^='#']") && bar.matches(":popover-open")) bar.hidePopover(); });
  }

  // ---- the menu: arrow keys lead through it
  function menu() {
    const button = one(".tp-open-more");
    const list = one("#tp-more");
    if (!button || !list) return;
    const items = () => all("a, button", list).filter((e) => e.checkVisibility());
    // Told before it happens, not after: "toggle" comes a moment later than what is seen.
    list.addEventListener("beforetoggle", (event) => button.setAttribute("aria-expanded", String(event.newState === "open")));
    button.setAttribute("aria-expanded", "false");
    const move = (event) => {
      if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
      event.preventDefault();
      if (!list.matches(":popover-open")) list.showPopover();
      const known = items();
      const at = known.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : -1);
      known[(at + known.length) % known.length].focus();
    };
    button.addEventListener("keydown", move);
    list.addEventListener("keydown", move);
    list.addEventListener("keydown", (event) => { if (event.key === "Escape") { list.hidePopover(); button.focus(); } });
    list.addEventListener("focusout", (event) => {
      if (event.relatedTarget && !list.contains(event.relatedTarget) && event.relatedTarget !== button) list.hidePopover();
    });
  }

  // ---- copy: a button on each piece of code, made when it comes near
  function copying() {
    const plain = (block) => (one(".tp-code", block) || one("pre", block)).textContent.replace(/\n$/, "");
    const copy = async (text) => {
      try { await navigator.clipboard.writeText(text); return true; } catch { /* the old way */ }
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      return done;
    };
    const PAGES = "M9 9h10v10H9zM5 15V5h10", DONE = "M5 12.5l4.5 4.5L19 7.5", FAILED = "M6 6l12 12M18 6L6 18";
    const add = (block) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "copybtn";
      button.append(icon(PAGES));
      const line = one("path", button);
      const say = (words, path) => {
        button.setAttribute("aria-label", words);
        button.title = words;
        line.setAttribute("d", path);
      };
      say("Copy this code", PAGES);
      button.addEventListener("click", async () => {
        const done = await copy(plain(block));
        button.focus();
        say(done ? "Copied" : "Copying failed", done ? DONE : FAILED);
        setTimeout(() => say("Copy this code", PAGES), 2000);
      });
      block.append(button);
    };
    const near = new IntersectionObserver((entries) => {
      for (const { isIntersecting, target } of entries) {
        if (!isIntersecting) continue;
        near.unobserve(target);
        add(target);
      }
    }, { rootMargin: "400px" });
    for (const block of all("article div.highlight")) if (!block.closest(".cell_output")) near.observe(block);
  }

  // ---- notes beside the text are open where they stand beside it, and fold where they do not
  function notes() {
    const wide = matchMedia("(min-width: 1240px)");
    const set = () => { for (const note of all(".tp-margin")) note.open = wide.matches; };
    wide.addEventListener("change", set);
    set();
  }

  // ---- what is wider than its column can be moved by keyboard too
  function sideways() {
    const near = new IntersectionObserver((entries) => {
      for (const { isIntersecting, target } of entries) {
        if (!isIntersecting) continue;
        // A formula whose symbols answer is a stop already, and its arrow keys lead along it.
        if (target.matches(".math-display[role]")) continue;
        if (target.scrollWidth > target.clientWidth) target.tabIndex = 0;
        else target.removeAttribute("tabindex");
      }
    }, { rootMargin: "200px" });
    for (const box of all("article :is(.math-display, pre, .tp-code, .tp-table, .cell_output, .text_html, p:has(math), li:has(> math, > .tp-hold))")) near.observe(box);
  }

  // ---- where the reader is: in the contents of the page and in the list of chapters
  function place() {
    const links = new Map(all("#tp-sections a").map((a) => [decodeURIComponent(a.hash.slice(1)), a]));
    let marked = null;
    const seen = new Set();
    const watch = new IntersectionObserver((entries) => {
      for (const { isIntersecting, target } of entries) {
        if (isIntersecting) seen.add(target);
        else seen.delete(target);
      }
      // The innermost section at the upper edge of the window.
      const inner = [...seen].find((s) => ![...seen].some((t) => t !== s && s.contains(t)));
      const link = inner && links.get(inner.id);
      if (!link || link === marked) return;
      marked?.classList.remove("active");
      marked?.removeAttribute("aria-current");
      link.classList.add("active");
      link.setAttribute("aria-current", "true");
      marked = link;
    }, { rootMargin: "-15% 0px -80% 0px" });
    for (const id of links.keys()) {
      const section = document.getElementById(id);
      if (section) watch.observe(section);
    }
    const bar = one("#tp-contents");
    const current = one(".tp-here > a", bar);
    if (current && matchMedia("(min-width: 992px)").matches) {
      const lower = current.getBoundingClientRect().top - bar.getBoundingClientRect().top;
      if (lower > bar.clientHeight * 0.5) bar.scrollTop = lower - bar.clientHeight * 0.25;
    }
  }

  // ---- what was read: kept in this browser and nowhere else
  function progress() {
    const key = "transformer-parts-read";
    const name = (link) => link.pathname.split("/").pop();
    const chapters = all("#tp-contents li > a:has(> .tp-number)");
    const read = () => new Set((store.get(key) || "").split(" ").filter(Boolean));
    const line = one(".tp-progress");
    const show = () => {
      const known = read();
      for (const link of chapters) {
        const done = known.has(name(link));
        link.classList.toggle("tp-read", done);
        const sign = one(".tp-sign", link);
        if (done && !sign) {
          const made = document.createElement("span");
          made.className = "tp-sign";
          made.textContent = "✓";
          made.setAttribute("role", "img");
          made.setAttribute("aria-label", "read");
          link.append(" ", made);
        } else if (!done) sign?.remove();
      }
      if (!line || !chapters.length) return;
      const count = chapters.filter((a) => known.has(name(a))).length;
      const text = `You have read ${count} of ${chapters.length} chapters. This is kept in this browser only.`;
      line.replaceChildren(text);
      if (count) {
        const forget = document.createElement("button");
        forget.type = "button";
        forget.textContent = "Forget it";
        forget.addEventListener("click", () => { store.remove(key); show(); });
        line.append(" ", forget);
      }
    };
    show();
    const here = location.pathname.split("/").pop();
    const end = one(".tp-turn");
    if (!end || !/^\d\d_\w+\.html$/.test(here)) return;
    const watch = new IntersectionObserver((entries) => {
      // A page that is open at its end without having been moved was not read.
      if (!entries.some((e) => e.isIntersecting) || !scrollY) return;
      store.set(key, [...read().add(here)].join(" "));
      watch.disconnect();
      show();
    });
    watch.observe(end);
  }

  // ---- paper: what is said folded out; the solutions if the reader wants them
  function printing() {
    const box = one("#tp-with-solutions");
    if (box) {
      box.checked = store.get("transformer-parts-solutions") !== "no";
      box.addEventListener("change", () => store.set("transformer-parts-solutions", box.checked ? "yes" : "no"));
    }
    let opened = [];
    addEventListener("beforeprint", () => {
      root.dataset.solutions = box && !box.checked ? "no" : "yes";
      // A mark and the first line of a docstring say enough on paper, and a picture needs no program.
      opened = all("details:not([open], .tp-witness, .tp-docstring, .tp-drawing, .tp-setup)").filter((d) => !(d.matches(".solution") && root.dataset.solutions === "no"));
      for (const details of opened) details.open = true;
      for (const image of all("img[loading=lazy]")) image.loading = "eager";
    });
    addEventListener("afterprint", () => {
      for (const details of opened) details.open = false;
      opened = [];
    });
    for (const button of all("[data-do=print]")) button.addEventListener("click", () => print());
  }

  // ---- a link into a folded box opens it
  function unfold() {
    const open = () => {
      const aim = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
      const boxes = [];
      for (let box = aim && aim.closest("details"); box; box = box.parentElement.closest("details")) boxes.push(box);
      if (!boxes.some((box) => !box.open)) return;
      for (const box of boxes) box.open = true;
      aim.scrollIntoView();
    };
    addEventListener("hashchange", open);
    open();
  }

  // ---- the words that were searched for, marked without touching the page
  function found() {
    const key = "sphinx_highlight_terms";
    const words = (store.get(key) || "").split(/\s+/).filter((w) => w.length > 1);
    if (one(".tp-search-page")) return;
    store.remove(key);
    const article = one("article");
    if (!words.length || !article || !globalThis.Highlight || !CSS.highlights) return;
    const walk = document.createTreeWalker(article, NodeFilter.SHOW_TEXT);
    const ranges = [];
    while (walk.nextNode()) {
      const text = walk.currentNode.data.toLowerCase();
      for (const word of words) {
        for (let at = text.indexOf(word); at >= 0; at = text.indexOf(word, at + word.length)) {
          const range = new Range();
          range.setStart(walk.currentNode, at);
          range.setEnd(walk.currentNode, at + word.length);
          ranges.push(range);
        }
      }
    }
    CSS.highlights.set("found", new Highlight(...ranges));
    addEventListener("keydown", (event) => { if (event.key === "Escape") CSS.highlights.delete("found"); });
  }

  // A box that is ticked before it is listened to would forget it, so that is not put off.
  printing();
  // One job at a time, so that the page answers in between.
  const jobs = [colors, notes, search, drawer, menu, unfold, progress, copying, sideways, place, found];
  const next = () => {
    jobs.shift()();
    if (jobs.length) setTimeout(next);
  };
  next();
})();
