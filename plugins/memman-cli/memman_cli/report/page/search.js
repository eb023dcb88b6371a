// The search: the entries, summaries, outlines and changes with every word of a query.

const SLICE = 12; // milliseconds of work before the page may react again
const MOST_MATCHES = 2000; // emphasised matches in one text

const literal = (word) => word.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&").replace(/\s+/g, "\\s+");

// Words in any order and of any case; words in double quotes are a phrase. "#118" or an id is an entry's, too.
class Query {
  constructor(text) {
    this.text = text.trim();
    const words = [...text.matchAll(/"\s*([^"]*[^"\s])\s*"|[^\s"]+/g)].map((found) => literal(found[1] || found[0]));
    this.tests = words.map((word) => new RegExp(word, "iu"));
    const longest = words.sort((one, other) => other.length - one.length);
    this.any = words.length ? new RegExp(longest.join("|"), "giu") : null;
  }

  get empty() { return !this.tests.length; }

  // Whether each word is in one of the texts.
  isIn(texts) { return this.tests.every((test) => texts.some((text) => test.test(text))); }

  isName(entry) { return [addressOf(entry), entry.id, entry.call, entry.message].includes(this.text); }

  // The places of the words in a text, to be emphasised; at most so many.
  marks(text, most = MOST_MATCHES) {
    const found = [];
    if (!this.any) return found;
    for (const match of text.matchAll(this.any)) {
      found.push([match.index, match.index + match[0].length, "hit"]);
      if (found.length >= most) break;
    }
    return found;
  }

  // The text as nodes, with its matches emphasised.
  nodes(text) { return nodes(text, this.marks(text)); }

  name(text) { return el("bdi", {}, this.nodes(String(text))); }
}

const textsOf = (entry) => [entry.text, entry.name || "", ...(entry.parts || []).flatMap((part) => [part.name, part.alt, part.link].filter(Boolean))];

// The outline that a step left in the window, if the window had another one or none before.
function blockOf(step) {
  const block = step.block && blocks[step.block[0]];
  return block && block.seq === step.seq ? block : null;
}

function* matches(query) {
  const found = { entries: new Set(), steps: new Set(), blocks: new Set() };
  for (const [number, entry] of entries.entries()) {
    if (query.isName(entry) || query.isIn(textsOf(entry))) found.entries.add(number);
    yield found;
  }
  for (const block of blocks) {
    if (query.isIn([block.text])) found.blocks.add(block);
    yield found;
  }
  for (const step of steps) {
    if (`#${step.seq}` === query.text || query.isIn([stepTitle(step), stepLine(step), step.reason || ""])) found.steps.add(step);
    yield found;
  }
}

// Searches in slices, so that the page reacts meanwhile; a new search ends the one before.
class Search {
  constructor() { this.clear(); }

  clear() {
    clearTimeout(this.due);
    this.query = new Query("");
    this.found = { entries: new Set(), steps: new Set(), blocks: new Set() };
  }

  run(text, done) {
    this.clear();
    const query = new Query(text);
    const work = query.empty ? [][Symbol.iterator]() : matches(query);
    let found = this.found;
    const slice = () => {
      const end = performance.now() + SLICE;
      for (let next = work.next(); !next.done; next = work.next()) {
        found = next.value;
        if (performance.now() > end) { this.due = setTimeout(slice); return; }
      }
      this.query = query;
      this.found = found;
      done();
    };
    slice();
  }

  // How an item has what is searched for: itself, or in so many originals behind it.
  hit(item, inWindow) {
    if (this.query.empty) return null;
    if (item.step) return this.found.steps.has(item.step) ? { own: true, behind: 0 } : null;
    const own = item.block ? this.found.blocks.has(item.block) : this.found.entries.has(item.entry);
    const stands = inWindow && (item.block ? { originals: outlined(page.view) } : replacementOf(item.entry));
    const behind = stands ? this.behind(stands).length : 0;
    return own || behind ? { own, behind } : null;
  }

  // The originals of a replacement that have it.
  behind(replacement) {
    if (this.query.empty || !replacement) return [];
    return [...numbersIn(replacement.originals)].filter((number) => this.found.entries.has(number));
  }
}
