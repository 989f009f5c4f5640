// The pages that can be worked with and are not chapters: the filter of the misconceptions, the quiz, the X-ray.
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
      chapter: [...box.classList].find((c) => c.startsWith("tp-ch-")).slice(6),
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

  // ---- quiz: two buttons before each answer; the first choice counts
  function quiz(boxes) {
    const score = make("p", { role: "status", class: "tp-score" });
    boxes.at(-1).after(score);
    const results = new Map();
    const tell = () => {
      const right = [...results.values()].filter(Boolean).length;
      score.textContent = results.size ? `${right} right of ${results.size} answered, ${boxes.length} in all.` : "";
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
    if (place) filter(place);
    const boxes = [...document.querySelectorAll(".tp-quiz")];
    if (boxes.length) quiz(boxes);
    const model = document.querySelector(".tp-xray");
    if (model) xray(model);
  };
  if (document.readyState === "loading") addEventListener("DOMContentLoaded", start);
  else start();
})();
