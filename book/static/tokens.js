// A box to type in, cut into tokens while the reader types (book/explorer/typed.py).
(() => {
  "use strict";
  const SPACE = "\\t-\\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
  // Letters in both cases; the long s is an s in another form.
  const bothCases = (text) => text.replace(/[a-z]/g, (c) => `[${c}${c.toUpperCase()}${c === "s" ? "ſ" : ""}]`);

  // A published pattern, with classes of Unicode and a part that ignores case.
  function compiled(source) {
    let inside = false, made = "";
    for (const part of source.match(/\(\?i:[^)]*\)|\\p\{[LN]\}|\\[^p]|[^\\]/g)) {
      inside = part === "[" || (inside && part !== "]");
      if (part.startsWith("(?i:")) made += `(?:${bothCases(part.slice(4))}`;
      else if (part === "\\s") made += inside ? SPACE : `[${SPACE}]`;
      else if (part === "\\S") made += `[^${SPACE}]`;
      else made += part;
    }
    return new RegExp(made, "gu");
  }

  function tokenizer({ merges, pattern }) {
    const pieces = compiled(pattern), rank = new Map();
    const bytes = Array.from({ length: 256 }, (_, b) => [b]);
    merges.forEach(([a, b, made], k) => {
      bytes[made] = [...bytes[a], ...bytes[b]];
      if (!rank.has(a * 65536 + b)) rank.set(a * 65536 + b, [k, made]);
    });
    const encode = (text, number) => (text.match(pieces) || []).flatMap((piece) => {
      let ids = [...new TextEncoder().encode(piece)];
      for (;;) {
        let best = null;
        for (let i = 0; i + 1 < ids.length; i++) {
          const found = rank.get(ids[i] * 65536 + ids[i + 1]);
          if (found && found[0] < (best ? best.first : number)) best = { first: found[0], made: found[1], a: ids[i], b: ids[i + 1] };
        }
        if (!best) return ids;
        const joined = [];
        for (let i = 0; i < ids.length; i++) {
          if (ids[i] === best.a && ids[i + 1] === best.b) { joined.push(best.made); i++; } else joined.push(ids[i]);
        }
        ids = joined;
      }
    });
    return { bytes, encode };
  }

  function label(bytes) {
    try {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(new Uint8Array(bytes))
        .replaceAll(" ", "␣").replaceAll("\n", "⏎").replaceAll("\t", "⇥");
    } catch {
      return bytes.map((b) => b.toString(16).toUpperCase().padStart(2, "0")).join(" ");
    }
  }

  function start(box) {
    const { bytes, encode } = tokenizer(JSON.parse(box.querySelector(".tp-merges").textContent));
    const field = box.querySelector("textarea"), range = box.querySelector("input"), play = box.querySelector(".tp-play");
    const said = box.querySelector(".tp-sentence"), chips = box.querySelector(".tp-chips"), value = box.querySelector("output span");
    const show = () => {
      const number = Number(range.value), text = field.value.toWellFormed ? field.value.toWellFormed() : field.value;
      const ids = encode(text, number), size = new TextEncoder().encode(text).length;
      value.textContent = range.value;
      range.setAttribute("aria-valuetext", range.value);
      said.textContent = ids.length
        ? `${size} bytes become ${ids.length} ${ids.length === 1 ? "token" : "tokens"}, ${(size / ids.length).toFixed(1)} bytes a token.`
        : "Nothing is typed: 0 tokens.";
      chips.replaceChildren(...ids.flatMap((id) => {
        const chip = document.createElement("span"), small = document.createElement("small");
        small.textContent = id;
        chip.append(label(bytes[id]), small);
        return [chip, " "];
      }));
    };
    let playing = 0;
    const stop = () => { clearInterval(playing); playing = 0; play.textContent = "▶"; };
    play.addEventListener("click", () => {
      if (playing) return stop();
      if (range.value === range.max) range.value = 0;
      play.textContent = "⏸";
      playing = setInterval(() => {
        range.value = Number(range.value) + 1;
        show();
        if (range.value === range.max) stop();
      }, 40);
    });
    for (const control of [field, range]) {
      control.disabled = false;
      control.addEventListener("input", () => { stop(); show(); });
    }
    play.disabled = false;
    box.classList.add("tp-live");
    box.encode = encode;
  }

  globalThis.transformerTokens = (place) => {
    for (const box of place.querySelectorAll(".tp-typed:not(.tp-live)")) start(box);
  };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", () => globalThis.transformerTokens(document));
  else globalThis.transformerTokens(document);
})();
