// Turns the slides of a deck, and gives what each shows the size for which there is room.
(() => {
  "use strict";
  const root = document.documentElement;
  const stage = document.querySelector(".sl-stage");
  if (!stage) return;
  const slides = [...stage.querySelectorAll(".sl")];
  const bar = document.querySelector(".sl-bar"), told = document.querySelector(".sl-told");
  const button = (name) => bar.querySelector(`[data-sl="${name}"]`);
  const WIDE = 1280, TALL = 676;
  // A phone, on which a slide is a page.
  const phone = matchMedia("(max-width: 760px), (max-height: 480px)");
  let at = 0;

  // ---- sizes: how much larger or smaller than on the page things are drawn
  const SIZES = Array.from({ length: 29 }, (_, i) => (35 + 5 * i) / 100);
  const LARGEST = { title: 1.6, figure: 1.75, text: 1.3, exercise: 1.2, question: 1 };
  const MOVED = ".math-display, pre, .tp-code, .tp-table, .cell_output, .text_html, .tp-scrolled";

  // The largest size at which all of it is in its frame, as the slide is laid out now; of some that
  // are little smaller the one at which the panels of an explorer, which stand otherwise, are largest.
  function best(frame, box, most) {
    const { clientWidth: width, clientHeight: height } = frame;
    const drawn = [...box.querySelectorAll(".tp-drawing, img")];
    const lay = (k) => {
      box.style.width = `${width / k}px`;
      box.style.setProperty("--k", k);
    };
    const fits = (k) => {
      lay(k);
      return box.offsetHeight * k <= height - 2 && ![...box.querySelectorAll(MOVED)].some((e) => e.scrollWidth > e.clientWidth + 1);
    };
    const area = (k) => {
      lay(k);
      return drawn.reduce((sum, e) => { const r = e.getBoundingClientRect(); return sum + r.width * r.height * k * k; }, 0) * Math.min(1, k / 0.9) ** 2 || k;
    };
    let low = 0, high = SIZES.findLastIndex((k) => k <= most);
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if (fits(SIZES[middle])) low = middle;
      else high = middle - 1;
    }
    let k = SIZES[low], size = area(k);
    for (let step = 1; drawn.length > 1 && step <= 8 && low >= step && SIZES[low - step] >= 0.9; step++) {
      const less = SIZES[low - step], larger = area(less);
      if (larger > 1.1 * size && fits(less)) [k, size] = [less, larger];
    }
    return { k, size };
  }

  // The text stands above and below what is shown, or beside it where that makes it larger.
  function fit(slide) {
    const page = slide.querySelector(".sl-page"), frame = slide.querySelector(".sl-show"), box = slide.querySelector(".sl-fit");
    if (!box) return;
    const texts = [...slide.querySelectorAll(".sl-before, .sl-after")];
    page.classList.remove("sl-side");
    box.style.transform = "";
    if (phone.matches && !root.matches(".sl-all, .sl-paper")) { box.style.width = ""; return; }
    // What a step will show has its room from the start.
    const steps = [...box.querySelectorAll(".sl-step:not([open])")];
    for (const step of steps) step.open = true;
    const most = LARGEST[slide.dataset.kind];
    let found = best(frame, box, most);
    if (texts.length) {
      page.classList.add("sl-side");
      const beside = best(frame, box, most), tall = texts.reduce((sum, e) => sum + e.scrollHeight, 14);
      if (beside.size > 1.05 * found.size && tall <= frame.parentElement.clientHeight) found = beside;
      else page.classList.remove("sl-side");
    }
    box.style.width = `${frame.clientWidth / found.k}px`;
    box.style.setProperty("--k", found.k);
    box.style.transform = `scale(${found.k})`;
    slide.dataset.size = found.k;
    for (const step of steps) step.open = false;
  }

  // ---- the window
  function place() {
    root.classList.toggle("sl-flow", phone.matches);
    const { clientWidth, clientHeight } = stage;
    const k = Math.min(clientWidth / WIDE, clientHeight / TALL);
    stage.style.setProperty("--sl-k", k);
    stage.style.setProperty("--sl-x", `${(clientWidth - k * WIDE) / 2}px`);
    stage.style.setProperty("--sl-y", `${(clientHeight - k * TALL) / 2}px`);
  }

  // ---- which one is shown
  function show(number) {
    at = Math.max(0, Math.min(slides.length - 1, number));
    slides.forEach((slide, i) => slide.classList.toggle("sl-now", i === at));
    fit(slides[at]);
    stage.scrollTop = 0;
    bar.querySelector("progress").value = at + 1;
    bar.querySelector(".sl-count").textContent = `${at + 1} of ${slides.length}`;
    button("back").toggleAttribute("disabled", at === 0);
    button("on").toggleAttribute("disabled", at === slides.length - 1);
    told.replaceChildren(...[...slides[at].querySelector(".sl-notes").childNodes].map((n) => n.cloneNode(true)));
    told.scrollTop = 0;
    if (location.hash !== `#${at + 1}`) history.replaceState(null, "", `#${at + 1}`);
  }
  function on() {
    const step = slides[at].querySelector(".sl-step:not([open])");
    if (step) step.open = true;
    else show(at + 1);
  }
  function back() {
    const steps = slides[at].querySelectorAll(".sl-step[open]");
    if (steps.length) steps[steps.length - 1].open = false;
    else show(at - 1);
  }
  const fromAddress = () => show((parseInt(location.hash.slice(1), 10) || 1) - 1);

  // ---- all of them, notes, colors, the whole screen
  function all(wanted = !root.classList.contains("sl-all")) {
    root.classList.toggle("sl-all", wanted);
    button("all").setAttribute("aria-pressed", wanted);
    for (const slide of slides) {
      slide.querySelector(".sl-page").inert = wanted;
      slide.querySelector(".sl-go").hidden = !wanted;
      if (wanted) fit(slide);
    }
    place();
    if (!wanted) return show(at);
    slides[at].querySelector(".sl-go").focus();
    return slides[at].scrollIntoView({ block: "center" });
  }
  function notes() {
    told.hidden = !told.hidden;
    root.classList.toggle("sl-noted", !told.hidden);
    button("notes").setAttribute("aria-pressed", !told.hidden);
    place();
  }
  function colors() {
    root.dataset.mode = root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("mode", root.dataset.mode); } catch { /* kept as long as it is open */ }
  }
  const full = () => (document.fullscreenElement ? document.exitFullscreen() : root.requestFullscreen?.());
  const hint = () => slides[at].querySelector(".sl-hint:not([open])")?.setAttribute("open", "");
  const acts = { back, on, all, notes, colors, full };
  for (const [name, act] of Object.entries(acts)) button(name).addEventListener("click", () => act());
  stage.addEventListener("click", (event) => {
    const link = event.target.closest(".sl-go");
    if (!link) return;
    event.preventDefault();
    at = slides.indexOf(link.closest(".sl"));
    all(false);
  });
  // What is opened by hand may need more room.
  stage.addEventListener("toggle", (event) => { if (event.target.matches(".sl-hint")) fit(slides[at]); }, true);

  // ---- keys and fingers; what has the focus comes first
  const KEYS = {
    ArrowRight: on, PageDown: on, " ": on, ArrowLeft: back, PageUp: back,
    Home: () => show(0), End: () => show(slides.length - 1),
    o: () => all(), n: notes, d: colors, f: full, h: hint, Escape: () => all(false),
  };
  addEventListener("keydown", (event) => {
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key, chosen = root.classList.contains("sl-all");
    const own = event.target.closest("input, select, textarea") || (key === " " && event.target.closest("button, summary, a, [role=button]"));
    if (!KEYS[key] || event.defaultPrevented || own || event.altKey || event.ctrlKey || event.metaKey) return;
    if (chosen ? !["o", "d", "f", "Escape"].includes(key) : key === "Escape") return;
    event.preventDefault();
    KEYS[key]();
  });
  let from = null;
  stage.addEventListener("touchstart", (event) => {
    const busy = event.touches.length > 1 || event.target.closest(".tp-explorer, .tp-typed, input, pre, .tp-table, .math-display");
    from = busy || root.classList.contains("sl-all") ? null : event.touches[0];
  }, { passive: true });
  stage.addEventListener("touchend", (event) => {
    const { clientX, clientY } = event.changedTouches[0];
    if (from && Math.abs(clientX - from.clientX) > 50 && Math.abs(clientY - from.clientY) < 40) (clientX < from.clientX ? on : back)();
  });

  // ---- paper: all slides, in the light, with the answers
  let before = null;
  addEventListener("beforeprint", () => {
    before = { theme: root.dataset.theme, open: [...stage.querySelectorAll(".sl-step:not([open])")] };
    root.dataset.theme = "light";
    root.classList.add("sl-paper");
    for (const step of before.open) step.open = true;
    for (const image of document.images) image.loading = "eager";
    slides.forEach(fit);
  });
  addEventListener("afterprint", () => {
    root.classList.remove("sl-paper");
    root.dataset.theme = before.theme;
    for (const step of before.open) step.open = false;
    show(at);
  });

  root.classList.add("sl-on");
  addEventListener("resize", () => { place(); fit(slides[at]); });
  addEventListener("hashchange", fromAddress);
  place();
  fromAddress();
  // The letters of later slides come at once, because sizes depend on them.
  const ready = Promise.all([...document.fonts].map((font) => font.load().catch(() => {}))).then(() => fit(slides[at]));
  globalThis.bookSlides = { show, slides, ready };
})();
