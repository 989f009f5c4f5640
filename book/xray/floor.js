// The grammar of the book's language (book/stories/grammar.py), as far as it follows a text: which
// words could stand at each place, and how likely. tests/site/test_xray.py compares the two.

// The distribution of each word of a text and of the one after it, as far as a story goes like it:
// {chances: [word -> probability], at, could}, where `at` is the first word that no story has there.
function follow(language, text) {
  const L = language, chances = [], words = [];
  const END_OF_TEXT = {}, ANOTHER = {};
  const total = (weights) => Object.values(weights).reduce((a, b) => a + b, 0);
  const equally = (of) => Object.fromEntries(Array.from(of, (word) => [word, 1]));
  const without = (weights, gone) => {
    const out = new Set(gone);
    return Object.fromEntries(Object.entries(weights).filter(([word]) => !out.has(word)));
  };
  const scaled = (weights, to) => {
    const sum = total(weights);
    return sum && to ? Object.fromEntries(Object.entries(weights).map(([w, x]) => [w, x * to / sum])) : {};
  };
  const add = (weights, more) => {
    for (const [word, weight] of Object.entries(more)) weights[word] = (weights[word] ?? 0) + weight;
    return weights;
  };
  function choose(weights) {
    const sum = total(weights), word = text[words.length];
    chances.push(Object.fromEntries(Object.entries(weights).filter(([, x]) => x).map(([w, x]) => [w, x / sum])));
    if (word === undefined) throw END_OF_TEXT;
    if (!Object.hasOwn(chances.at(-1), word)) throw ANOTHER;
    words.push(word);
    return word;
  }
  const say = (...said) => { for (const word of said) choose({ [word]: 1 }); };

  const people = [], things = new Map(), can = new Map(), song = new Map(), count = new Map();
  const sentences = [], listed = new Set();
  let counted = false, babbled = false, last = "";

  function answers(kind) {
    const all = [...things.values()];
    if (kind === "who") return new Map(all.map((t) => [t.name, t.owner]));
    if (kind === "which") return new Map(all.map((t) => [t.colour, t.name]));
    if (kind === "where") return new Map(all.filter((t) => t.place).map((t) => [t.name, t.place]));
    if (kind === "what") return new Map(can);
    return new Map([...count].map(([person, n]) => [person, L.numbers[n - 1]]));
  }
  const kinds = () => Object.fromEntries(Object.entries(L.often)
    .filter(([kind]) => !listed.has(kind) && answers(kind).size >= L.least));

  function newThing(owner) {
    say("was", "a");
    const colour = choose(without(L.colours, [...things.values()].map((t) => t.colour)));
    const name = choose(without(L.things, things.keys()));
    say("for");
    if (owner) say(owner);
    else owner = choose(equally(people));
    say(".");
    things.set(name, { name, colour, owner, place: null });
  }
  function opening() {
    say("one");
    choose(L.weather);
    choose(L.partOfDay);
    people.push(choose(L.names));
    if (choose({ and: 0.25, ",": 0.75 }) === ",") {
      people.push(choose(without(L.names, people)));
      say("and");
    }
    people.push(choose(without(L.names, people)));
    say("met", ".");
    for (const person of people) {
      const start = words.length;
      say("there");
      newThing(person);
      sentences.push(words.slice(start));
      last = person;
    }
  }
  function firstWords() {
    let weights = equally(people);
    weights[last] = 0.3;
    weights[L.pronoun[last]] = 0.7;
    weights = scaled(weights, 0.7);
    if (can.size > 1) add(weights, { every: 0.12, yesterday: 0.12 });
    if (count.size > 1 && !counted) weights.together = 0.25;
    weights.parrot = 0.08;
    if (!babbled) weights.baby = 0.12;
    if (things.size < 5) weights.now = 0.06;
    return weights;
  }
  function mention(some, weight = () => 1) {
    say("the");
    const of = Object.fromEntries(some.map((t) => [t.colour, t]));
    const thing = of[choose(Object.fromEntries(some.map((t) => [t.colour, weight(t)])))];
    say(thing.name);
    return thing;
  }
  function parrot() {
    say(":");
    for (let left = sentences, at = 0; at < Math.max(...left.map((s) => s.length)); at++) {
      const weights = {};
      for (const s of left) if (at < s.length) add(weights, { [s[at]]: 1 });
      const word = choose(weights);
      left = left.filter((s) => s[at] === word);
    }
  }
  function babble() {
    say(":");
    const said = [];
    while (said.at(-1) !== ",") {
      const comma = said.length < 4 ? 0 : said.length === 16 ? 1 : 0.12;
      const weights = scaled(without(L.anything, said), 1 - comma);
      if (comma) weights[","] = comma;
      said.push(choose(weights));
    }
    say(...said.slice(0, -1), ".");
  }
  function deed(who) {
    const mine = [...things.values()].filter((t) => t.owner === who), most = Math.min(5, Math.floor(L.numbers.length / people.length));
    const verb = choose({
      gave: 0.7 * (mine.length > 0), hid: 0.9, can: 0.7 * !can.has(who), saw: 0.5 * !count.has(who), sang: 0.15,
    });
    if (verb === "gave") {
      const thing = mention(mine);
      say("to");
      thing.owner = choose(equally(people.filter((p) => p !== who)));
    } else if (verb === "hid") {
      const thing = mention([...things.values()], (t) => (t.place ? 2.5 : 1));
      const at = choose({ in: 1, at: 1, under: 1 });
      say("the");
      thing.place = choose(Object.fromEntries(Object.entries(L.places).filter(([p]) => L.at[p] === at)));
    } else if (verb === "can") {
      can.set(who, choose(without(L.verbs, can.values())));
    } else if (verb === "saw") {
      const seen = [...count.values()].map((n) => L.numbers[n - 1]);
      count.set(who, L.numbers.indexOf(choose(without(equally(L.numbers.slice(0, most)), seen))) + 1);
      say("stars");
    } else {
      say(":");
      if (song.has(who)) say(...song.get(who));
      else song.set(who, [0, 1, 2, 3].map(() => choose(equally(L.syllables))));
    }
    say(".");
  }
  function sentence(first) {
    if (first === "every" || first === "yesterday") {
      if (first === "every") say("day");
      last = choose(equally(can.keys()));
      say(L.forms[can.get(last)][first === "yesterday" ? 1 : 0], ".");
    } else if (first === "together") {
      counted = true;
      say("they", "saw", L.numbers[[...count.values()].reduce((a, b) => a + b) - 1], "stars", ".");
    } else if (first === "parrot") parrot();
    else if (first === "baby") {
      babbled = true;
      babble();
    } else if (first === "now") {
      say("there");
      newThing(null);
    } else {
      if (first !== L.pronoun[last]) last = first;
      deed(last);
    }
  }
  function list(kind) {
    say(...L.asking[kind]);
    listed.add(kind);
    const answer = answers(kind), left = equally(answer.keys());
    for (;;) {
      const about = choose(left);
      say(answer.get(about));
      delete left[about];
      if (!Object.keys(left).length) return say(".");
      if (choose({ ",": 0.75, ".": 0.25 }) === ".") return undefined;
    }
  }
  function story() {
    say(L.begin);
    opening();
    for (let n = 0; n <= L.most; n++) {
      const asking = scaled(kinds(), n < L.fewest ? 0 : n === L.most ? 1 : 0.3), weights = { ...asking };
      if (n < L.most) add(weights, scaled(firstWords(), 1 - total(asking)));
      const start = words.length, first = choose(weights);
      if (Object.hasOwn(asking, first)) { list(first); break; }
      sentence(first);
      sentences.push(words.slice(start));
    }
    for (;;) {
      const first = choose({ ...scaled(kinds(), 0.8), good: 0.2 });
      if (first === "good") return say("night", ".", L.end);
      list(first);
    }
  }
  try {
    story();
  } catch (stopped) {
    if (stopped === END_OF_TEXT) return { chances: chances.slice(1), at: null, could: [] };
    if (stopped !== ANOTHER) throw stopped;
    return { chances: chances.slice(1), at: words.length, could: Object.keys(chances.at(-1)).sort() };
  }
  return { chances: chances.slice(1), at: text.length > words.length ? words.length : null, could: [] };
}
