// The forward pass of the book's own model, a Llama: everything on its way, for all tokens at once.
//
// A matrix is {rows, columns, data}, row by row. Sums are kept in double precision.

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

// x W^T, as a linear layer has it: W has a row for each output.
function times(x, w) {
  const y = matrix(x.rows, w.rows), n = x.columns;
  for (let i = 0; i < x.rows; i++) {
    for (let j = 0; j < w.rows; j++) {
      let sum = 0;
      for (let k = 0, a = i * n, b = j * n; k < n; k++) sum += x.data[a + k] * w.data[b + k];
      y.data[i * w.rows + j] = sum;
    }
  }
  return y;
}

const plus = (x, y) => matrix(x.rows, x.columns, x.data.map((v, i) => v + y.data[i]));

// Each row divided by its root mean square, times the gain.
function normed(x, gain, eps) {
  const y = matrix(x.rows, x.columns), n = x.columns;
  for (let i = 0; i < x.rows; i++) {
    let square = 0;
    for (let k = 0; k < n; k++) square += x.data[i * n + k] ** 2;
    const by = 1 / Math.sqrt(square / n + eps);
    for (let k = 0; k < n; k++) y.data[i * n + k] = x.data[i * n + k] * by * gain.data[k];
  }
  return y;
}

// In each head the pairs (k, k + half) are turned by position * base^(-2k / width).
function rotated(x, heads, base) {
  const y = matrix(x.rows, x.columns), width = x.columns / heads, half = width / 2;
  for (let i = 0; i < x.rows; i++) {
    for (let h = 0; h < heads; h++) {
      for (let k = 0; k < half; k++) {
        const angle = i * base ** (-2 * k / width), at = i * x.columns + h * width + k;
        const c = Math.cos(angle), s = Math.sin(angle), a = x.data[at], b = x.data[at + half];
        y.data[at] = a * c - b * s;
        y.data[at + half] = b * c + a * s;
      }
    }
  }
  return y;
}

// Causal attention of one head: its weights, and the means of the values, which go to `mixed`.
function attended(q, k, v, head, width, queriesPerKey, mixed) {
  const rows = q.rows, weights = matrix(rows, rows), root = Math.sqrt(width);
  const mine = head * width, shared = Math.floor(head / queriesPerKey) * width;
  for (let i = 0; i < rows; i++) {
    const row = weights.data.subarray(i * rows, i * rows + i + 1);
    for (let j = 0; j <= i; j++) {
      let dot = 0;
      for (let c = 0; c < width; c++) dot += q.data[i * q.columns + mine + c] * k.data[j * k.columns + shared + c];
      row[j] = dot / root;
    }
    toProbabilities(row);
    if (!mixed) continue;
    for (let j = 0; j <= i; j++) {
      for (let c = 0; c < width; c++) mixed.data[i * mixed.columns + mine + c] += row[j] * v.data[j * v.columns + shared + c];
    }
  }
  return weights;
}

// The softmax of some numbers, in their place.
function toProbabilities(numbers) {
  let largest = -Infinity, sum = 0;
  for (const z of numbers) largest = Math.max(largest, z);
  numbers.forEach((z, i) => { sum += numbers[i] = Math.exp(z - largest); });
  numbers.forEach((p, i) => { numbers[i] = p / sum; });
  return numbers;
}

// What the model would say if the stream ended here: last norm, head, softmax.
function saying(model, x) {
  const { config, weights } = model;
  const logits = times(normed(x, weights["model.norm.weight"], config.rms_norm_eps), weights["model.embed_tokens.weight"]);
  const probabilities = matrix(logits.rows, logits.columns, logits.data.slice());
  for (let i = 0; i < x.rows; i++) toProbabilities(probabilities.data.subarray(i * logits.columns, (i + 1) * logits.columns));
  return { logits, probabilities };
}

// All that happens to these tokens. `off` holds heads that give zero: "1.0" is layer 1, head 0.
function run(model, tokens, off = new Set()) {
  const { config: c, weights: w } = model, n = c.hidden_size, width = n / c.num_attention_heads;
  let x = matrix(tokens.length, n);
  tokens.forEach((t, i) => x.data.set(w["model.embed_tokens.weight"].data.subarray(t * n, (t + 1) * n), i * n));
  const levels = [["embedding", x]], maps = [];
  for (let l = 0; l < c.num_hidden_layers; l++) {
    const of = (name) => w[`model.layers.${l}.${name}.weight`];
    const seen = normed(x, of("input_layernorm"), c.rms_norm_eps);
    const q = rotated(times(seen, of("self_attn.q_proj")), c.num_attention_heads, c.rope_theta);
    const k = rotated(times(seen, of("self_attn.k_proj")), c.num_key_value_heads, c.rope_theta);
    const v = times(seen, of("self_attn.v_proj")), mixed = matrix(x.rows, q.columns);
    maps.push(Array.from({ length: c.num_attention_heads }, (_, h) => attended(
      q, k, v, h, width, c.num_attention_heads / c.num_key_value_heads, off.has(`${l}.${h}`) ? null : mixed)));
    x = plus(x, times(mixed, of("self_attn.o_proj")));
    levels.push([`attention ${l}`, x]);
    const between = normed(x, of("post_attention_layernorm"), c.rms_norm_eps);
    const gate = times(between, of("mlp.gate_proj")), up = times(between, of("mlp.up_proj"));
    const hidden = matrix(x.rows, gate.columns, gate.data.map((g, i) => g / (1 + Math.exp(-g)) * up.data[i]));
    x = plus(x, times(hidden, of("mlp.down_proj")));
    levels.push([`feed-forward ${l}`, x]);
  }
  return { maps, levels: levels.map(([name, stream]) => [name, saying(model, stream).probabilities]), ...saying(model, x) };
}
