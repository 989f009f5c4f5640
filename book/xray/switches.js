// The switches: parts that are taken out of the model, and the temperature.

// The switches of a model, in rows: [title, [[name of `run`, what stands on the switch], ...]].
const switchesOf = ({ config: c }) => [
  ...Array.from({ length: c.num_hidden_layers }, (_, l) => [
    [`layer ${l}, attention`, [
      [`norm of attention ${l}`, "norm"],
      ...Array.from({ length: c.num_attention_heads }, (_, h) => [`${l}.${h}`, `head ${l}.${h}`]),
      [`attention ${l}`, "all of it"],
    ]],
    [`layer ${l}, feed-forward`, [[`norm of feed-forward ${l}`, "norm"], [`feed-forward ${l}`, "all of it"]]],
  ]).flat(),
  ["whole model", [["RoPE", "RoPE"], ["last norm", "last norm"]]],
];
const called = (name) => (/^\d/.test(name) ? `head ${name}` : name === "RoPE" ? name : `the ${name}`.replace(/the (attention|feed-forward) (\d)/, "$1 $2"));
// What is put in the place of a part.
function instead(name) {
  if (/^\d/.test(name)) return `Head ${name} gives zero in place of the mean of its values.`;
  if (name === "RoPE") return "Without RoPE no query and no key is turned, as if every word stood at position 0.";
  if (name === "last norm") return "The last norm no longer divides by the root mean square; its gain stays.";
  if (name.startsWith("norm")) return `The ${name} no longer divides by the root mean square; its gain stays.`;
  const [part, layer] = name.split(" ");
  return `The ${part === "attention" ? "attention" : "feed-forward layer"} of layer ${layer} adds zero, so the stream passes it unchanged.`;
}

// The section of the page; `changed` computes anew, and `effect` says what came of it.
function switches({ model, state, changed, effect }) {
  const buttons = new Map();
  const press = (name) => {
    state.off[state.off.has(name) ? "delete" : "add"](name);
    changed("parts");
  };
  const rows = switchesOf(model).map(([title, parts]) => create("div", { className: "tp-xray-parts" }, create("span", { textContent: title }), ...parts.map(([name, text]) => {
    const button = create("button", { type: "button", textContent: text });
    button.setAttribute("aria-label", `switch off ${called(name)}`);
    button.addEventListener("click", () => press(name));
    buttons.set(name, button);
    return button;
  })));
  const norms = [...buttons.keys()].filter((name) => name.includes("norm"));
  const without = () => norms.every((name) => state.off.has(name));
  const every = create("button", { type: "button", textContent: "all norms" });
  every.setAttribute("aria-label", "switch off all norms");
  every.addEventListener("click", () => {
    const to = without() ? "delete" : "add";
    for (const name of norms) state.off[to](name);
    changed("parts");
  });
  rows.at(-1).append(every);
  const heat = create("input", { type: "range", id: "tp-xray-temperature", min: 0.1, max: 2, step: 0.1, value: 1 }), output = create("output", { htmlFor: "tp-xray-temperature" });
  heat.addEventListener("input", () => { state.temperature = Number(heat.value); changed("temperature"); });
  const all = create("button", { type: "button", textContent: "Everything on, temperature 1" });
  all.addEventListener("click", () => {
    state.off.clear();
    state.temperature = 1;
    changed("parts");
  });
  const told = create("p", { className: "tp-xray-replaced" });
  told.setAttribute("role", "status");
  const box = create("div", { className: "tp-xray-inside tp-xray-switches" },
    create("p", { className: "tp-title", textContent: "Take a part out" }), ...rows,
    create("div", { className: "tp-xray-controls" }, create("label", { htmlFor: heat.id, textContent: "temperature" }), heat, output, all), told);
  return {
    box,
    show() {
      for (const [name, button] of buttons) button.setAttribute("aria-pressed", String(state.off.has(name)));
      every.setAttribute("aria-pressed", String(without()));
      heat.value = state.temperature;
      output.textContent = state.temperature.toFixed(1);
      const out = [...buttons.keys()].filter((name) => state.off.has(name) && !(without() && norms.includes(name)));
      const replaced = out.map(instead);
      if (without()) replaced.push("No norm divides by the root mean square any longer; the gains stay.");
      if (state.temperature !== 1) replaced.push(`The logits are divided by ${state.temperature} before the softmax, so ${state.temperature < 1 ? "likely words become likelier still" : "unlikely words become likelier"}.`);
      told.textContent = replaced.length ? `${replaced.join(" ")} ${effect()}` : "All parts are at work. Press one to take it out, and watch the surprise under the words.";
    },
  };
}
