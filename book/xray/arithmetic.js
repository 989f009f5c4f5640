// Every tensor of the forward pass: what it is called, where `run` keeps it, and of each of its numbers the
// arithmetic that gave it. Pure functions; tensors.js shows what they return, and a test computes both
// the numbers and the written arithmetic again.

const LARGEST = 4; // so many terms of a long sum are written out
const SUPERSCRIPT = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };

// A number with three or so digits that count, and with a sign that is a minus.
function written(x) {
  const size = Math.abs(x), sign = x < 0 ? "−" : "";
  if (size === Infinity) return `${sign}∞`;
  if (size === 0) return "0";
  if (size >= 1000) return sign + size.toFixed(0);
  if (size >= 100) return sign + size.toFixed(1);
  if (size >= 0.1) return sign + size.toFixed(3);
  if (size >= 1e-4) return sign + size.toPrecision(3);
  const [digits, power] = size.toExponential(2).split("e");
  return `${sign}${digits}·10${Array.from(power, (c) => SUPERSCRIPT[c]).join("")}`;
}
// The same as a factor or after a sign, where a minus and a power need brackets.
const factor = (x) => (x < 0 || (x !== 0 && Math.abs(x) < 1e-4) ? `(${written(x)})` : written(x));
// A number that was not computed, such as a position, as it is.
const plain = (x) => String(x).replace("-", "−");

// Where to read on: each page from the folder of this one, and what it derives there.
const CHAPTERS = {
  tokens: ["17_tokens.html#tokens-from-text-to-numbers", "Chapter 17: tokens, from text to numbers"],
  embedding: ["04_embeddings.html#equation-eq-embed-onehot", "Chapter 4 derives it: a look-up is a matrix product"],
  stream: ["09_residual.html#equation-eq-residual-sum", "Chapter 9 derives it: the residual stream"],
  norm: ["08_normalization.html#equation-eq-rms-forward", "Chapter 8 derives it: RMSNorm"],
  projection: ["05_attention.html#three-projections", "Chapter 5 derives it: three projections"],
  rotation: ["11_rope.html#equation-eq-rope-elements", "Chapter 11 derives it: one angle per pair"],
  scores: ["05_attention.html#why-the-root", "Chapter 5 derives it: why the root"],
  weights: ["03_softmax.html#equation-eq-softmax-stable", "Chapter 3 derives it: the softmax, less its maximum"],
  mask: ["05_attention.html#masks", "Chapter 5 derives it: masks"],
  head: ["05_attention.html#equation-eq-mha-head", "Chapter 5 derives it: many heads"],
  heads: ["05_attention.html#equation-eq-mha-sum", "Chapter 5 derives it: concatenation is a sum"],
  gating: ["07_feed_forward.html#equation-eq-glu-ffn", "Chapter 7 derives it: gating"],
  silu: ["06_activations.html#equation-eq-act-swish", "Chapter 6 derives it: Swish and SiLU"],
  logits: ["04_embeddings.html#equation-eq-embed-logits", "Chapter 4 derives it: one matrix used twice"],
  probabilities: ["15_decoder.html#equation-eq-dec-temperature", "Chapter 15 derives it: from logits to a token"],
};

// The tensors in their order. `columns` says what a column stands for, `one` what a number is called where that
// is no feature; `mine` that a head has its own part.
const TENSORS = [
  { id: "tokens", group: "in", name: "tokens", is: "the number of each word", columns: "number", role: "data", chapter: "tokens" },
  { id: "embedding", group: "in", name: "embedding", is: "x = E[token]", columns: "feature", role: "data", chapter: "embedding" },
  { id: "before", group: "attention", name: "stream", is: "x, as it arrives", columns: "feature", role: "data", chapter: "stream" },
  { id: "seen", group: "attention", name: "norm", is: "x̂ = x / rms(x) · γ", columns: "feature", role: "data", chapter: "norm" },
  { id: "q", group: "attention", name: "query", is: "q = W_q x̂", columns: "feature", role: "query", mine: true, chapter: "projection" },
  { id: "k", group: "attention", name: "key", is: "k = W_k x̂", columns: "feature", role: "key", mine: true, chapter: "projection" },
  { id: "v", group: "attention", name: "value", is: "v = W_v x̂", columns: "feature", role: "value", mine: true, chapter: "projection" },
  { id: "turnedQ", group: "attention", name: "rotated query", is: "q, turned by the position", columns: "feature", role: "query", mine: true, chapter: "rotation" },
  { id: "turnedK", group: "attention", name: "rotated key", is: "k, turned by the position", columns: "feature", role: "key", mine: true, chapter: "rotation" },
  { id: "scores", group: "attention", name: "scores", one: "Score", is: "q · k / √d", columns: "word", role: "weight", mine: true, chapter: "scores" },
  { id: "weights", group: "attention", name: "weights", one: "Weight", is: "softmax of the scores", columns: "word", role: "weight", mine: true, chapter: "weights" },
  { id: "mixed", group: "attention", name: "head’s output", is: "Σ weight · v", columns: "feature", role: "value", mine: true, chapter: "head" },
  { id: "attention", group: "attention", name: "output projection", is: "W_o [all heads]", columns: "feature", role: "data", chapter: "heads" },
  { id: "middle", group: "feed-forward", name: "stream", is: "x + attention", columns: "feature", role: "data", chapter: "stream" },
  { id: "between", group: "feed-forward", name: "norm", is: "x̂ = x / rms(x) · γ", columns: "feature", role: "data", chapter: "norm" },
  { id: "gate", group: "feed-forward", name: "gate", is: "g = W_gate x̂", columns: "feature", role: "data", chapter: "gating" },
  { id: "up", group: "feed-forward", name: "up", is: "u = W_up x̂", columns: "feature", role: "data", chapter: "gating" },
  { id: "hidden", group: "feed-forward", name: "hidden", is: "h = silu(g) · u", columns: "feature", role: "data", chapter: "silu" },
  { id: "down", group: "feed-forward", name: "down", is: "W_down h", columns: "feature", role: "data", chapter: "gating" },
  { id: "after", group: "feed-forward", name: "stream", is: "x + feed-forward", columns: "feature", role: "data", chapter: "stream" },
  { id: "last", group: "out", name: "last norm", is: "x̂ = x / rms(x) · γ", columns: "feature", role: "data", chapter: "norm" },
  { id: "logits", group: "out", name: "logits", one: "Logit", is: "z = E x̂", columns: "vocabulary", role: "data", chapter: "logits" },
  { id: "probabilities", group: "out", name: "probabilities", one: "Probability", is: "softmax(z / temperature)", columns: "vocabulary", role: "weight", chapter: "probabilities" },
];
const tensorOf = Object.fromEntries(TENSORS.map((t) => [t.id, t]));

// A tensor as {rows, columns, at(row, column)}: of a head its own columns.
function viewOf(model, seen, id, { layer, head }) {
  const { group, mine } = tensorOf[id];
  if (id === "tokens") return { rows: seen.tokens.length, columns: 1, at: (i) => seen.tokens[i] };
  const held = group === "in" || group === "out" ? seen[id] : seen.layers[layer][id];
  const of = Array.isArray(held) ? held[head] : held;
  const { num_attention_heads: heads, num_key_value_heads: shared } = model.config;
  if (!mine || of !== held) return { rows: of.rows, columns: of.columns, at: (i, j) => of.data[i * of.columns + j] };
  const count = ["k", "v", "turnedK"].includes(id) ? shared : heads, width = of.columns / count;
  const from = Math.floor(head * count / heads) * width;
  return { rows: of.rows, columns: width, from, at: (i, j) => of.data[i * of.columns + from + j] };
}

// Where a number comes from: `result` as computed here, `expression` as somebody would write it, or none
// where there is nothing to compute; `terms` [name, a, b] of a long sum, the largest first; `why` in words.
function explain(model, seen, id, place) {
  const { layer, head, row, column } = place, { config: c, vocabulary, weights: w } = model, { off } = seen;
  const L = seen.layers[layer], view = (name) => viewOf(model, seen, name, place);
  const word = (i) => `“${vocabulary[seen.tokens[i]]}”`, here = word(row);
  const numbers = (m, i) => m.data.subarray(i * m.columns, (i + 1) * m.columns);
  const chapter = CHAPTERS[tensorOf[id].chapter];
  const told = (result, expression, why, terms = []) => ({ result, expression, why, terms, chapter });
  const zero = (why) => told(0, null, why);

  // A sum of products; `close` is what still happens to it, as in (sum) / √32.
  function sum(pairs, why, close = (text) => text, by = 1) {
    const terms = pairs.map(([name, a, b]) => [name, a, b, a * b]).sort((p, q) => Math.abs(q[3]) - Math.abs(p[3]));
    const shown = terms.slice(0, LARGEST), others = terms.slice(LARGEST);
    const rest = others.reduce((total, t) => total + t[3], 0);
    const text = shown.map(([, a, b]) => `${factor(a)}·${factor(b)}`).join(" + ")
      + (others.length ? ` + ${factor(rest)} [${others.length} more]` : "");
    return told(terms.reduce((total, t) => total + t[3], 0) * by, close(text), why, shown);
  }
  const product = (x, weight, r, why) => sum(
    Array.from(numbers(x, row), (a, i) => [`feature ${i}`, a, weight.data[r * weight.columns + i]]), why);
  const of = (name) => w[`model.layers.${layer}.${name}.weight`];

  function norm(x, gain, name) {
    const a = x.data[row * x.columns + column], g = gain.data[column];
    if (off.has(name)) return told(a * g, `${factor(a)}·${factor(g)}`, "The norm is out: the number is not divided by the root mean square; the gain γ stays.");
    const square = numbers(x, row).reduce((total, v) => total + v * v, 0) / x.columns;
    return told(a / Math.sqrt(square + c.rms_norm_eps) * g, `${factor(a)} / √(${written(square)} + ${written(c.rms_norm_eps)})·${factor(g)}`,
      `The stream at ${here}, divided by the root of the mean of its ${x.columns} squares, times the gain γ of feature ${column}.`);
  }
  function turned(name) {
    const x = view(name), value = x.at(row, column), half = x.columns / 2;
    if (off.has("RoPE")) return told(value, written(value), `RoPE is off: the ${tensorOf[name].name} stays as it is.`);
    const pair = column % half, angle = row * c.rope_theta ** (-2 * pair / x.columns);
    const [cos, sin] = [Math.cos(angle), Math.sin(angle)], other = x.at(row, column < half ? column + half : pair);
    const why = `Features ${pair} and ${pair + half} are a pair. At position ${row} it is turned by the angle ${row}·${c.rope_theta}^(−${2 * pair}/${x.columns}) = ${written(angle)}; ${factor(cos)} is its cosine, ${factor(sin)} its sine.`;
    return column < half
      ? told(value * cos - other * sin, `${factor(value)}·${factor(cos)} − ${factor(other)}·${factor(sin)}`, why)
      : told(value * cos + other * sin, `${factor(value)}·${factor(cos)} + ${factor(other)}·${factor(sin)}`, why);
  }
  const added = (x, y, names) => {
    const [a, b] = [x, y].map((m) => m.data[row * m.columns + column]);
    return told(a + b, `${factor(a)} + ${factor(b)}`, names);
  };
  // A softmax over numbers up to the last that takes part.
  function share(all, at, why, temperature = null) {
    const largest = all.reduce((a, b) => Math.max(a, b), -Infinity), t = temperature ?? 1;
    const total = all.reduce((s, z) => s + Math.exp((z - largest) / t), 0);
    const inside = `${written(all[at])} − ${factor(largest)}`;
    return told(Math.exp((all[at] - largest) / t) / total,
      `exp(${temperature === null ? inside : `(${inside}) / ${plain(t)}`}) / ${written(total)}`, why(written(largest), written(total)));
  }
  const later = column > row ? `${word(column)} comes after ${here}, and no word may look at a later one` : null;
  const mineFrom = viewOf(model, seen, tensorOf[id].mine ? id : "embedding", place).from ?? 0;
  const projected = (name, what) => product(L.seen, of(`self_attn.${what}_proj`), mineFrom + column,
    `Row ${mineFrom + column} of W_${what} times the normed stream at ${here}: feature ${column} of the ${name} of head ${layer}.${head}.`);

  switch (id) {
    case "tokens": return told(seen.tokens[row], null, `${here} has the number ${seen.tokens[row]} in the vocabulary of ${vocabulary.length} words, counted from 0. The model knows nothing else of it.`);
    case "embedding": {
      const table = w["model.embed_tokens.weight"], value = table.data[seen.tokens[row] * table.columns + column];
      return told(value, `E[${seen.tokens[row]}, ${column}]`, `Row ${seen.tokens[row]} of the table E is that of ${here}; it was learned.`);
    }
    case "before": {
      if (layer) return added(seen.layers[layer - 1].middle, seen.layers[layer - 1].down, `The stream at ${here} within layer ${layer - 1}, plus what its feed-forward layer added.`);
      const value = seen.embedding.data[row * seen.embedding.columns + column];
      return told(value, written(value), `Layer 0 gets the embedding of ${here} as it is.`);
    }
    case "seen": return norm(L.before, of("input_layernorm"), `norm of attention ${layer}`);
    case "q": return projected("query", "q");
    case "k": return projected("key", "k");
    case "v": return projected("value", "v");
    case "turnedQ": return turned("q");
    case "turnedK": return turned("k");
    case "scores": {
      if (later) return { ...told(-Infinity, null, `${later}: this score counts as −∞.`), chapter: CHAPTERS.mask };
      const q = view("turnedQ"), k = view("turnedK"), pairs = Array.from({ length: q.columns }, (_, i) => [`feature ${i}`, q.at(row, i), k.at(column, i)]);
      return sum(pairs, `The query of ${here} times the key of ${word(column)}, both turned by their positions, divided by the root of ${q.columns}, the width of a head.`, (text) => `(${text}) / √${q.columns}`, 1 / Math.sqrt(q.columns));
    }
    case "weights": {
      if (later) return { ...zero(`${later}: its weight is exp(−∞) = 0.`), chapter: CHAPTERS.mask };
      const scores = L.scores[head];
      return share(numbers(scores, row).subarray(0, row + 1), column, (largest, total) => `The softmax over ${row + 1} words: ${largest} is the largest score of ${here}, and ${total} the sum of exp(score − ${largest}) over all of them.`);
    }
    case "mixed": {
      if (off.has(`${layer}.${head}`)) return zero(`Head ${layer}.${head} is switched off: it gives zero.`);
      const weights = L.weights[head], v = view("v");
      return sum(Array.from({ length: row + 1 }, (_, j) => [word(j), weights.data[row * weights.columns + j], v.at(j, column)]),
        `The mean of feature ${column} of the values of ${row + 1} words, each with its weight.`);
    }
    case "attention": return off.has(`attention ${layer}`) ? zero(`The attention of layer ${layer} is switched off: it adds zero.`)
      : product(L.mixed, of("self_attn.o_proj"), column, `Row ${column} of W_o times the outputs of all heads at ${here}, one beside the other.`);
    case "middle": return added(L.before, L.attention, `The stream at ${here}, plus what attention adds.`);
    case "between": return norm(L.middle, of("post_attention_layernorm"), `norm of feed-forward ${layer}`);
    case "gate": return product(L.between, of("mlp.gate_proj"), column, `Row ${column} of W_gate times the normed stream at ${here}.`);
    case "up": return product(L.between, of("mlp.up_proj"), column, `Row ${column} of W_up times the normed stream at ${here}.`);
    case "hidden": {
      const g = view("gate").at(row, column), u = view("up").at(row, column);
      return told(g / (1 + Math.exp(-g)) * u, `${factor(g)} / (1 + exp(${written(-g)}))·${factor(u)}`, `silu(g) = g / (1 + exp(−g)) of the gate ${written(g)}, times up, ${written(u)}.`);
    }
    case "down": return off.has(`feed-forward ${layer}`) ? zero(`The feed-forward layer of layer ${layer} is switched off: it adds zero.`)
      : sum(Array.from(numbers(L.hidden, row), (a, i) => [`neuron ${i}`, a, of("mlp.down_proj").data[column * L.hidden.columns + i]]), `Row ${column} of W_down times the ${L.hidden.columns} hidden numbers of ${here}.`);
    case "after": return added(L.middle, L.down, `The stream at ${here}, plus what the feed-forward layer adds.`);
    case "last": return norm(seen.stream, w["model.norm.weight"], "last norm");
    case "logits": return product(seen.last, w["model.embed_tokens.weight"], column, `The row of “${vocabulary[column]}” in the table E times the stream at ${here} after the last norm. The same table turned words into embeddings.`);
    case "probabilities": return share(numbers(seen.logits, row), column, (largest, total) => `The softmax over ${vocabulary.length} words: ${largest} is the largest logit, and ${total} the sum of exp((logit − ${largest}) / ${plain(seen.temperature)}) over all words. ${plain(seen.temperature)} is the temperature.`, seen.temperature);
    default: throw new Error(`no tensor is called ${id}`);
  }
}
