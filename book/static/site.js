// What every page has around its text: colours, search box, menus, side columns, copy buttons,
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

  // ---- colours: as the machine, light, dark
  function colours() {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const names = { auto: "as the system", light: "light", dark: "dark" };
    const show = () => {
      const mode = root.dataset.mode;
      root.dataset.theme = mode === "auto" ? (dark.matches ? "dark" : "light") : mode;
      for (const button of all(".theme-switch-button")) {
        button.setAttribute("aria-label", `Colours: ${names[mode]}`);
        button.title = `Colours: ${names[mode]}`;
      }
    };
    if (!(root.dataset.mode in names)) root.dataset.mode = "auto";
    dark.addEventListener("change", show);
    for (const button of all(".theme-switch-button")) {
      button.addEventListener("click", () => {
        const order = dark.matches ? ["auto", "light", "dark"] : ["auto", "dark", "light"];
        root.dataset.mode = order[(order.indexOf(root.dataset.mode) + 1) % 3];
        store.set("mode", root.dataset.mode);
        show();
      });
    }
    show();
  }

  // ---- dialogs: the search box, and on a small screen the two side columns
  const closeOutside = (dialog) => dialog.addEventListener("click", (event) => {
    const box = dialog.getBoundingClientRect();
    const inside = event.clientX >= box.left && event.clientX <= box.right && event.clientY >= box.top && event.clientY <= box.bottom;
    // A press of Enter on a button counts as a click at (0, 0).
    if (!inside && event.target === dialog) dialog.close();
  });

  function search() {
    const dialog = one("#pst-search-dialog");
    if (!dialog) return;
    const mac = /Mac|iPhone/.test(navigator.platform);
    if (mac) for (const key of all(".kbd-shortcut__modifier")) key.textContent = key.textContent === "Ctrl" ? "⌘" : key.textContent;
    const toggle = () => {
      const field = one(".bd-search-container input[name=q]");
      if (field) { field.focus(); field.select(); return; }
      if (dialog.open) dialog.close();
      else dialog.showModal();
    };
    for (const button of all(".search-button__button")) button.addEventListener("click", toggle);
    addEventListener("keydown", (event) => {
      if (event.key.toLowerCase() !== "k" || event.shiftKey || event.altKey || !(mac ? event.metaKey : event.ctrlKey)) return;
      event.preventDefault();
      toggle();
    });
    closeOutside(dialog);
    const field = one(".bd-search-container input[name=q]");
    if (field && !new URLSearchParams(location.search).get("q")) field.focus();
  }

  function column(side, wide) {
    const button = one(`.${side}-toggle`);
    const bar = one(`#pst-${side}-sidebar`);
    const dialog = one(`#pst-${side}-sidebar-modal`);
    if (!button || !bar || !dialog) return;
    const name = side === "primary" ? "Table of contents" : "On this page";
    button.setAttribute("aria-label", name);
    button.title = name;
    dialog.setAttribute("aria-label", name);
    const close = document.createElement("button");
    close.type = "button";
    close.className = "tp-close";
    close.textContent = "Close";
    close.addEventListener("click", () => dialog.close());
    button.addEventListener("click", () => {
      if (matchMedia(wide).matches) {
        const hidden = bar.classList.toggle("pst-sidebar-hidden");
        button.setAttribute("aria-expanded", String(!hidden));
        return;
      }
      dialog.className = bar.className;
      dialog.append(close, ...bar.childNodes);
      dialog.showModal();
    });
    dialog.addEventListener("close", () => {
      close.remove();
      bar.append(...dialog.childNodes);
      dialog.className = "";
      button.focus();
    });
    dialog.addEventListener("click", (event) => { if (event.target.closest("a[href^='#']")) dialog.close(); });
    closeOutside(dialog);
  }

  // ---- menus behind a button
  function menus() {
    for (const button of all("[data-toggle=dropdown]")) {
      const menu = one(".dropdown-menu", button.parentElement);
      const items = () => all("a, button", menu);
      const set = (open) => {
        menu.classList.toggle("show", open);
        button.setAttribute("aria-expanded", String(open));
      };
      button.addEventListener("click", () => set(!menu.classList.contains("show")));
      button.parentElement.addEventListener("keydown", (event) => {
        if (event.key === "Escape") { set(false); button.focus(); }
        if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
        event.preventDefault();
        set(true);
        const list = items();
        const at = list.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : -1);
        list[(at + list.length) % list.length].focus();
      });
      button.parentElement.addEventListener("focusout", (event) => {
        if (!button.parentElement.contains(event.relatedTarget)) set(false);
      });
      document.addEventListener("click", (event) => {
        if (!button.parentElement.contains(event.target)) set(false);
      });
    }
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
    const add = (block) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "copybtn";
      button.setAttribute("aria-label", "Copy this code");
      button.title = "Copy this code";
      const icon = document.createElement("i");
      icon.className = "fa-regular fa-copy";
      icon.setAttribute("aria-hidden", "true");
      button.append(icon);
      button.addEventListener("click", async () => {
        const done = await copy(plain(block));
        button.focus();
        button.setAttribute("aria-label", done ? "Copied" : "Copying failed");
        icon.className = done ? "fa-solid fa-check" : "fa-solid fa-xmark";
        setTimeout(() => {
          button.setAttribute("aria-label", "Copy this code");
          icon.className = "fa-regular fa-copy";
        }, 2000);
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
    for (const block of all("div.highlight")) if (!block.closest(".cell_output")) near.observe(block);
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
    for (const box of all("article :is(.math-display, pre, .tp-code, table, .cell_output, p:has(math), li:has(> math, > .tp-hold))")) near.observe(box);
  }

  // ---- where the reader is: in the contents of the page and in the list of chapters
  function place() {
    const links = new Map(all("#pst-page-toc-nav a[href^='#']").map((a) => [decodeURIComponent(a.hash.slice(1)), a]));
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
    const bar = one("#pst-primary-sidebar");
    const current = bar && one("li.current > a", bar);
    if (!current) return;
    current.setAttribute("aria-current", "page");
    if (matchMedia("(min-width: 992px)").matches) {
      const lower = current.getBoundingClientRect().top - bar.getBoundingClientRect().top;
      if (lower > bar.clientHeight * 0.7) bar.scrollTop = lower - bar.clientHeight * 0.3;
    }
  }

  // ---- what was read: kept in this browser and nowhere else
  function progress() {
    const key = "transformer-parts-read";
    const name = (link) => link.pathname.split("/").pop();
    const chapters = all("#pst-primary-sidebar li.toctree-l1 > a").filter((a) => /\/\d\d_\w+\.html$/.test(a.pathname));
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
    const end = one(".prev-next-footer");
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

  // ---- paper: everything folded out; the solutions if the reader wants them
  function printing() {
    const box = one("#tp-with-solutions");
    if (box) {
      box.checked = store.get("transformer-parts-solutions") !== "no";
      box.addEventListener("change", () => store.set("transformer-parts-solutions", box.checked ? "yes" : "no"));
    }
    let opened = [];
    addEventListener("beforeprint", () => {
      root.dataset.solutions = box && !box.checked ? "no" : "yes";
      // A mark and the first line of a docstring say enough on paper.
      opened = all("details:not([open], .tp-witness, .tp-docstring)").filter((d) => !(d.matches(".solution") && root.dataset.solutions === "no"));
      for (const details of opened) details.open = true;
      for (const image of all("img[loading=lazy]")) image.loading = "eager";
    });
    addEventListener("afterprint", () => {
      for (const details of opened) details.open = false;
      opened = [];
    });
    for (const button of all("[data-do=print]")) button.addEventListener("click", () => print());
    for (const button of all("[data-do=fullscreen]")) {
      button.addEventListener("click", () => (document.fullscreenElement ? document.exitFullscreen() : root.requestFullscreen?.()));
    }
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
    if (one(".bd-search-container")) return;
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
  const jobs = [colours, search, menus, () => column("primary", "(min-width: 992px)"),
    () => column("secondary", "(min-width: 1200px)"), unfold, progress, copying, sideways, place, found];
  const next = () => {
    jobs.shift()();
    if (jobs.length) setTimeout(next);
  };
  next();
})();
