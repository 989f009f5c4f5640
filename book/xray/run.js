// The forward pass of the book's own model, a Llama: every tensor on its way, for all tokens at once or
// for new ones behind a cache.
//
// A matrix is {rows, columns, data}, row by row. Sums are kept in double precision. `off` is a set that
// names what is taken out: "1.0" (head 0 of layer 1 gives zero), "attention 1" and "feed-forward 0" (the
// sub-layer adds zero), "norm of attention 1", "norm of feed-forward 0" and "last norm" (no division by the
// root mean square; the gain stays), "RoPE" (queries and keys are not turned).

const matrix = (rows, columns, data = new Float64Array(rows * columns)) => ({ rows, columns, data });

// The file of the weights as it is stored: eight bytes that say how long the header is, the header
// with each tensor's shape and place, the numbers.
function weightsOf(bytes) {
  const view = new DataView(bytes.buffer), start = 8 + Number(view.getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(8, start))), weights = {};
  delete header.__metadata__;
  for (const [name, { dtype, shape, data_offsets: [from, to] }] of Object.entries(header)) {
    if (dtype !== "F32") throw new Error(`${name} is stored as ${dtype}`);
    const data = new Float32Array(bytes.slice(start + from, start + to).buffer);
    weights[name] = matrix(shape.length > 1 ? shape[0] : 1, shape.at(-1), data);
  }
  return weights;
}

// x W^T, as a linear layer has it: W has a row for each output. Four outputs at a time, because their sums
// need not wait for one another.
function times(x, w) {
  const y = matrix(x.rows, w.rows), n = x.columns, from = x.data, by = w.data;
  for (let i = 0; i < x.rows; i++) {
    let j = 0;
    for (; j + 3 < w.rows; j += 4) {
      let first = 0, second = 0, third = 0, fourth = 0;
      for (let k = 0, a = i * n, b = j * n; k < n; k++, a++, b++) {
        first += from[a] * by[b];
        second += from[a] * by[b + n];
        third += from[a] * by[b + 2 * n];
        fourth += from[a] * by[b + 3 * n];
      }
      y.data.set([first, second, third, fourth], i * w.rows + j);
    }
    for (; j < w.rows; j++) {
      for (let k = 0; k < n; k++) y.data[i * w.rows + j] += from[i * n + k] * by[j * n + k];
    }
  }
  return y;
}

const plus = (x, y) => matrix(x.rows, x.columns, x.data.map((v, i) => v + y.data[i]));

// Each row divided by its root mean square, times the gain; `plain` leaves the division out.
function normed(x, gain, eps, plain = false) {
  const y = matrix(x.rows, x.columns), n = x.columns;
  for (let i = 0; i < x.rows; i++) {
    let square = 0;
    for (let k = 0; k < n; k++) square += x.data[i * n + k] ** 2;
    const by = plain ? 1 : 1 / Math.sqrt(square / n + eps);
    for (let k = 0; k < n; k++) y.data[i * n + k] = x.data[i * n + k] * by * gain.data[k];
  }
  return y;
}

// One matrix under the other, as a cache grows.
function joined(above, below) {
  const data = new Float64Array(above.data.length + below.data.length);
  data.set(above.data);
  data.set(below.data, above.data.length);
  return matrix(above.rows + below.rows, above.columns, data);
}

// In each head the pairs (k, k + half) are turned by position * base^(-2k / width); `from` is the first
// row's position.
function rotated(x, heads, base, from) {
  const y = matrix(x.rows, x.columns), width = x.columns / heads, half = width / 2;
  for (let i = 0; i < x.rows; i++) {
    for (let h = 0; h < heads; h++) {
      for (let k = 0; k < half; k++) {
        const angle = (from + i) * base ** (-2 * k / width), at = i * x.columns + h * width + k;
        const c = Math.cos(angle), s = Math.sin(angle), a = x.data[at], b = x.data[at + half];
        y.data[at] = a * c - b * s;
        y.data[at + half] = b * c + a * s;
      }
    }
  }
  return y;
}

// Causal attention of one head: its scores, its weights, and the means of the values, which go to `mixed`
// if there is one. The queries belong to the last words of those that have keys.
function attended(q, k, v, head, width, queriesPerKey, mixed) {
  const rows = q.rows, all = k.rows, past = all - rows, root = Math.sqrt(width);
  const scores = matrix(rows, all), weights = matrix(rows, all);
  const mine = head * width, shared = Math.floor(head / queriesPerKey) * width;
  scores.data.fill(-Infinity);
  for (let i = 0; i < rows; i++) {
    const row = weights.data.subarray(i * all, i * all + past + i + 1);
    for (let j = 0; j < row.length; j++) {
      let dot = 0;
      for (let c = 0; c < width; c++) dot += q.data[i * q.columns + mine + c] * k.data[j * k.columns + shared + c];
      row[j] = dot / root;
    }
    scores.data.set(row, i * all);
    toProbabilities(row);
    if (!mixed) continue;
    for (let j = 0; j < row.length; j++) {
      for (let c = 0; c < width; c++) mixed.data[i * mixed.columns + mine + c] += row[j] * v.data[j * v.columns + shared + c];
    }
  }
  return { scores, weights };
}

// The softmax of some numbers, in their place.
function toProbabilities(numbers) {
  let largest = -Infinity, sum = 0;
  for (const z of numbers) largest = Math.max(largest, z);
  numbers.forEach((z, i) => { sum += numbers[i] = Math.exp(z - largest); });
  numbers.forEach((p, i) => { numbers[i] = p / sum; });
  return numbers;
}

// What the model would say if the stream ended here: last norm, head, softmax of logits / temperature.
function saying(model, x, off, temperature) {
  const { config, weights } = model;
  const last = normed(x, weights["model.norm.weight"], config.rms_norm_eps, off.has("last norm"));
  const logits = times(last, weights["model.embed_tokens.weight"]);
  const probabilities = matrix(logits.rows, logits.columns, logits.data.map((z) => z / temperature));
  for (let i = 0; i < x.rows; i++) toProbabilities(probabilities.data.subarray(i * logits.columns, (i + 1) * logits.columns));
  return { last, logits, probabilities };
}

const emptyCache = ({ config: c }) => Array.from({ length: c.num_hidden_layers }, () => {
  const columns = c.hidden_size / c.num_attention_heads * c.num_key_value_heads;
  return { k: matrix(0, columns), v: matrix(0, columns) };
});

// All that happens to these tokens on the way to the last norm. `cache` holds each layer's rotated keys
// and values of the words before them, and takes theirs in.
function forward(model, tokens, off, cache) {
  const { config: c, weights: w } = model, n = c.hidden_size, width = n / c.num_attention_heads;
  const embedding = matrix(tokens.length, n), from = cache[0].k.rows, layers = [];
  tokens.forEach((t, i) => embedding.data.set(w["model.embed_tokens.weight"].data.subarray(t * n, (t + 1) * n), i * n));
  let x = embedding;
  for (let l = 0; l < c.num_hidden_layers; l++) {
    const of = (name) => w[`model.layers.${l}.${name}.weight`], before = x, kept = cache[l];
    const seen = normed(x, of("input_layernorm"), c.rms_norm_eps, off.has(`norm of attention ${l}`));
    const q = times(seen, of("self_attn.q_proj")), k = times(seen, of("self_attn.k_proj")), v = times(seen, of("self_attn.v_proj"));
    const turn = (y, heads) => (off.has("RoPE") ? y : rotated(y, heads, c.rope_theta, from));
    const turnedQ = turn(q, c.num_attention_heads), turnedK = turn(k, c.num_key_value_heads);
    kept.k = joined(kept.k, turnedK);
    kept.v = joined(kept.v, v);
    const mixed = matrix(x.rows, q.columns);
    const heads = Array.from({ length: c.num_attention_heads }, (_, h) => attended(
      turnedQ, kept.k, kept.v, h, width, c.num_attention_heads / c.num_key_value_heads, off.has(`${l}.${h}`) ? null : mixed));
    const attention = off.has(`attention ${l}`) ? matrix(x.rows, n) : times(mixed, of("self_attn.o_proj"));
    const middle = plus(x, attention);
    const between = normed(middle, of("post_attention_layernorm"), c.rms_norm_eps, off.has(`norm of feed-forward ${l}`));
    const gate = times(between, of("mlp.gate_proj")), up = times(between, of("mlp.up_proj"));
    const hidden = matrix(x.rows, gate.columns, gate.data.map((g, i) => g / (1 + Math.exp(-g)) * up.data[i]));
    const down = off.has(`feed-forward ${l}`) ? matrix(x.rows, n) : times(hidden, of("mlp.down_proj"));
    x = plus(middle, down);
    layers.push({
      before, seen, q, k, v, turnedQ, turnedK, scores: heads.map((h) => h.scores), weights: heads.map((h) => h.weights),
      mixed, attention, middle, between, gate, up, hidden, down, after: x,
    });
  }
  return { embedding, layers, stream: x };
}

// A text from its beginning: every tensor, and what the model would say after each sub-layer.
function run(model, tokens, off = new Set(), temperature = 1) {
  const { embedding, layers, stream } = forward(model, tokens, off, emptyCache(model));
  const streams = [["embedding", embedding], ...layers.flatMap(({ middle, after }, l) => [[`attention ${l}`, middle], [`feed-forward ${l}`, after]])];
  const levels = streams.map(([name, x]) => [name, saying(model, x, off, temperature)]);
  return {
    tokens, embedding, layers, stream, temperature, off: new Set(off), ...levels.at(-1)[1],
    maps: layers.map((layer) => layer.weights), levels: levels.map(([name, { probabilities }]) => [name, probabilities]),
  };
}
