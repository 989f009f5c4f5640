// The pages that can be worked with and are not chapters: the filter of the misconceptions, the quiz, the
// questions as cards, the X-ray.
// Without this script all entries are shown and every answer can be folded out.
(() => {
  "use strict";
  const make = (tag, attributes = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  };

  // ---- misconceptions: by chapter, by severity, by word; the choice is kept in the address
  function filter(place) {
    const entries = [...document.querySelectorAll(".tp-erratum")].map((box) => ({
      section: box.closest("section"),
      chapter: chapterOf(box),
      severity: [...box.classList].find((c) => c.startsWith("tp-sev-")).slice(7),
      words: box.closest("section").textContent.toLowerCase(),
    }));
    const groups = [...new Set(entries.map((e) => e.section.parentElement))];
    const titles = new Map(entries.map((e) => [e.chapter, e.section.parentElement.querySelector("h2").firstChild.textContent.trim()]));
    const select = (name, label, all, options) => {
      const control = make("select", { id: `tp-${name}` }, make("option", { value: "" }, all));
      for (const [value, text] of options) control.append(make("option", { value }, text));
      place.append(make("label", { for: control.id }, label, control));
      return control;
    };
    const severities = [...new Set(entries.map((e) => e.severity))];
    const chapter = select("chapter", "Chapter", "all chapters", [...titles]);
    const severity = select("severity", "Kind", "all kinds", severities.map((s) => [s, s]));
    const word = make("input", { id: "tp-word", type: "search", autocomplete: "off" });
    place.append(make("label", { for: word.id }, "Contains", word));
    const told = make("p", { role: "status", class: "tp-count" });
    const reset = make("button", { type: "button" }, "Show all");
    place.append(reset, told);

    const apply = () => {
      const wanted = word.value.trim().toLowerCase();
      let shown = 0;
      for (const e of entries) {
        const fits = (!chapter.value || e.chapter === chapter.value)
          && (!severity.value || e.severity === severity.value) && e.words.includes(wanted);
        e.section.hidden = !fits;
        shown += fits;
      }
      for (const group of groups) group.hidden = !group.querySelector(":scope > section:not([hidden])");
      told.textContent = `${shown} of ${entries.length} shown.`;
      reset.hidden = shown === entries.length;
    };
    const remember = () => {
      const query = new URLSearchParams();
      for (const [name, control] of [["chapter", chapter], ["kind", severity], ["word", word]])
        if (control.value) query.set(name, control.value);
      const text = query.toString();
      history.replaceState(null, "", location.pathname + (text ? `?${text}` : "") + location.hash);
    };
    const clear = () => { chapter.value = severity.value = word.value = ""; };
    // A link to an entry has to find it, whatever was filtered before.
    const target = () => {
      const aim = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
      if (!aim || !aim.closest("[hidden]")) return;
      clear(); apply(); remember(); aim.scrollIntoView();
    };
    const query = new URLSearchParams(location.search);
    chapter.value = query.get("chapter") || "";
    severity.value = query.get("kind") || "";
    word.value = query.get("word") || "";
    for (const control of [chapter, severity, word])
      control.addEventListener("input", () => { apply(); remember(); });
    reset.addEventListener("click", () => { clear(); apply(); remember(); chapter.focus(); });
    addEventListener("hashchange", target);
    place.hidden = false;
    apply();
    target();
  }

  // The choice of a chapter among `sections`, a map by number; it is kept in the address. `act` follows a choice.
  function choice(sections, act) {
    const chapter = make("select", { id: "tp-chapter" }, make("option", { value: "" }, "all chapters"));
    for (const [value, section] of sections)
      chapter.append(make("option", { value }, section.querySelector("h2").firstChild.textContent.trim()));
    chapter.value = new URLSearchParams(location.search).get("chapter") || "";
    if (chapter.selectedIndex < 0) chapter.value = "";
    chapter.addEventListener("input", () => {
      act();
      history.replaceState(null, "", location.pathname + (chapter.value ? `?chapter=${chapter.value}` : ""));
    });
    return chapter;
  }
  const chapterOf = (box) => [...box.classList].find((c) => c.startsWith("tp-ch-")).slice(6);

  // ---- quiz: a chapter's, or all; two buttons before each answer; the first choice counts
  function quiz(place, boxes) {
    const sections = new Map(boxes.map((box) => [chapterOf(box), box.closest("section")]));
    const choose = () => {
      for (const [value, section] of sections) section.hidden = chapter.value !== "" && value !== chapter.value;
      tell();
    };
    const chapter = choice(sections, choose);
    const score = make("p", { role: "status", class: "tp-score" });
    [...sections.values()].at(-1).after(score);
    const results = new Map();
    const tell = () => {
      const asked = boxes.filter((box) => !box.closest("[hidden]"));
      const answered = asked.filter((box) => results.has(box));
      const right = answered.filter((box) => results.get(box)).length;
      score.textContent = answered.length ? `${right} right of ${answered.length} answered, ${asked.length} in all.` : "";
    };
    for (const [index, box] of boxes.entries()) {
      const truth = box.classList.contains("tp-true");
      const answer = box.querySelector("details");
      const verdict = make("span", { role: "status", class: "tp-verdict" });
      const buttons = make("div", { role: "group", "aria-label": `Statement ${index + 1}`, class: "tp-choice" });
      for (const [text, value] of [["True", true], ["False", false]]) {
        const button = make("button", { type: "button", "aria-pressed": "false" }, text);
        button.addEventListener("click", () => {
          for (const b of buttons.querySelectorAll("button")) b.setAttribute("aria-pressed", String(b === button));
          if (!results.has(box)) results.set(box, value === truth);
          verdict.textContent = value === truth ? "Right." : "Not right.";
          verdict.dataset.right = String(value === truth);
          answer.open = true;
          tell();
        });
        buttons.append(button);
      }
      buttons.append(verdict);
      answer.before(buttons);
    }
    place.append(make("label", { for: chapter.id }, "Chapter", chapter));
    place.hidden = false;
    choose();
  }

  // ---- questions: a chapter's, or all; as a list, or as a pile of cards to turn, from which what is known goes
  function cards(place, boxes) {
    const all = boxes.map((box) => ({
      box,
      section: box.closest("section"),
      fold: box.querySelector("details"),
      chapter: chapterOf(box),
    }));
    const sections = new Map(all.map((c) => [c.chapter, c.section]));
    const chapter = choice(sections, () => { pile = null; show(); });
    const button = (text, act) => {
      const made = make("button", { type: "button" }, text);
      made.addEventListener("click", act);
      return made;
    };
    const told = make("p", { role: "status", class: "tp-count" });
    const chosen = () => all.filter((c) => !chapter.value || c.chapter === chapter.value);
    // The cards that are left, the top one first; without a pile there is the list.
    let pile = null;
    let size = 0;
    const show = (said) => {
      const shown = pile ? pile.slice(0, 1) : chosen();
      for (const c of all) {
        c.box.hidden = !shown.includes(c);
        c.box.classList.toggle("tp-top", pile !== null && c === pile[0]);
      }
      for (const section of sections.values()) section.hidden = !shown.some((c) => c.section === section);
      deal.hidden = pile !== null;
      for (const b of [turn, mix, list]) b.hidden = pile === null;
      for (const b of [again, known]) b.hidden = !pile?.[0].fold.open;
      turn.textContent = pile?.[0].fold.open ? "Turn back" : "Turn";
      told.textContent = said ?? (pile ? `${pile.length} left of ${size}.` : `${shown.length} questions.`);
    };
    const next = (back) => {
      const [top] = pile.splice(0, 1);
      top.fold.open = false;
      if (back) pile.push(top);
      const done = pile.length === 0;
      if (done) pile = null;
      show(done ? `All ${size} known.` : undefined);
      (done ? deal : turn).focus();
    };
    const deal = button("Turn them one at a time", () => {
      pile = chosen();
      size = pile.length;
      for (const c of pile) c.fold.open = false;
      show();
      turn.focus();
    });
    const turn = button("Turn", () => { pile[0].fold.open = !pile[0].fold.open; show(); });
    const again = button("Again later", () => next(true));
    const known = button("I knew it", () => next(false));
    const mix = button("Shuffle", () => {
      for (const c of pile) c.fold.open = false;
      for (let i = pile.length - 1; i > 0; i--) {
        const j = Math.floor(Math.random() * (i + 1));
        [pile[i], pile[j]] = [pile[j], pile[i]];
      }
      show();
    });
    const list = button("Show the list", () => { pile = null; show(); deal.focus(); });
    for (const c of all) c.fold.addEventListener("toggle", () => { if (c === pile?.[0]) show(); });
    place.append(make("label", { for: chapter.id }, "Chapter", chapter), deal, turn, again, known, mix, list, told);
    place.hidden = false;
    show();
  }

  // ---- X-ray: the model, two megabytes, comes when it is asked for
  function xray(box) {
    const button = box.querySelector(".tp-xray-ask button");
    const told = box.querySelector(".tp-xray-ask [role=status]");
    button.addEventListener("click", () => {
      if (button.getAttribute("aria-disabled")) return;
      button.setAttribute("aria-disabled", "true");
      told.textContent = "The model is on its way …";
      const script = make("script", { src: box.dataset.file });
      script.addEventListener("load", () => globalThis.tpXray.start(box));
      script.addEventListener("error", () => {
        script.remove();
        button.removeAttribute("aria-disabled");
        told.textContent = "The model did not arrive. Are you connected? Press the button again.";
      });
      document.head.append(script);
    });
  }

  const start = () => {
    const place = document.querySelector(".tp-filter");
    const flash = [...document.querySelectorAll(".tp-flash")];
    const boxes = [...document.querySelectorAll(".tp-quiz")];
    if (flash.length) cards(place, flash);
    else if (boxes.length) quiz(place, boxes);
    else if (place) filter(place);
    const model = document.querySelector(".tp-xray");
    if (model) xray(model);
  };
  if (document.readyState === "loading") addEventListener("DOMContentLoaded", start);
  else start();
})();
