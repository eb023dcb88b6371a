// Making elements, and showing text that others wrote: as text nodes only, and what is invisible by its name.

function el(tag, props = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") made.className = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function svg(tag, props = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(props)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const byId = (id) => document.getElementById(id);
const number = new Intl.NumberFormat("en-US");
const n = (value) => number.format(Math.round(value));
const percent = (part, whole) => (whole ? `${(100 * part / whole).toFixed(1)} %` : "0 %");
const counted = (value, one, more = `${one}s`) => `${n(value)} ${value === 1 ? one : more}`;

function bytes(size) {
  if (size < 1000) return `${n(size)} bytes`;
  return size < 1e6 ? `${(size / 1e3).toFixed(0)} kB` : `${(size / 1e6).toFixed(1)} MB`;
}

function time(at) {
  const date = new Date(at);
  return Number.isNaN(date.getTime()) ? String(at) : date.toISOString().slice(0, 19).replace("T", " ");
}

// Characters that are not seen, or that turn the direction of what follows: shown by their names.
// As in memman/unseen.py, with controls and line ends other than a newline.
const UNSEEN = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\u{110bd}\u{110cd}\u{13430}-\u{1343f}\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]/gu;
const NAMES = {
  "\u0000": "NUL", "\u001b": "ESC", "\r": "CR", "\u200b": "ZWSP", "\u200e": "LRM", "\u200f": "RLM",
  "\u061c": "ALM", "\u202a": "LRE", "\u202b": "RLE", "\u202c": "PDF", "\u202d": "LRO", "\u202e": "RLO",
  "\u2066": "LRI", "\u2067": "RLI", "\u2068": "FSI", "\u2069": "PDI", "\ufeff": "BOM",
};

function nameOf(character) {
  return NAMES[character] || `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
}

// The text as nodes; `marks` are [start, end, class, title] in order and apart from each other.
function nodes(text, marks = []) {
  const made = document.createDocumentFragment();
  let done = 0;
  for (const [start, end, kind, title] of marks) {
    if (start < done) continue;
    made.append(plain(text.slice(done, start)));
    made.append(el("mark", { class: kind, title }, plain(text.slice(start, end))));
    done = end;
  }
  made.append(plain(text.slice(done)));
  return made;
}

function plain(given) {
  const text = given.replaceAll("\r\n", "\n");
  const made = document.createDocumentFragment();
  let done = 0;
  for (const found of text.matchAll(UNSEEN)) {
    if (found.index > done) made.append(text.slice(done, found.index));
    made.append(el("span", { class: "unseen", title: "a character that is not seen" }, nameOf(found[0])));
    done = found.index + found[0].length;
  }
  if (done < text.length) made.append(text.slice(done));
  return made;
}

// A name that others chose, on one line and apart from what stands around it.
function name(text) {
  return el("bdi", {}, plain(String(text)));
}

// A button that copies a text; without a clipboard it selects what is `shown`, to be copied by hand.
function copyButton(label, text, shown = null) {
  const button = el("button", { type: "button", class: "quiet copy", onclick: async () => {
    try {
      await navigator.clipboard.writeText(text());
      button.textContent = "Copied";
    } catch {
      if (shown) getSelection().selectAllChildren(shown);
      button.textContent = shown ? "Selected" : "Not copied";
    }
    setTimeout(() => { button.textContent = label; }, 1500);
  } }, label);
  return button;
}

function copyable(text) {
  const shown = el("code", {}, name(text));
  return el("span", { class: "copyable" }, shown, copyButton("Copy", () => text, shown));
}

// An id on one line; all of it is in its title.
const idOf = (text) => el("span", { class: "id", title: text }, name(text));

const JOINED = /^[A-Za-z0-9]{2}$/;

// Where an exact value stands as a word of its own.
function standing(text, value) {
  const found = [];
  for (let at = text.indexOf(value); at >= 0; at = text.indexOf(value, at + 1)) {
    const end = at + value.length;
    if (!JOINED.test(text.slice(Math.max(0, at - 1), at + 1)) && !JOINED.test(text.slice(end - 1, end + 1))) {
      found.push([at, end]);
    }
  }
  return found;
}

// Marks in order of their places; of two that overlap the match of a search is kept, else the longer one.
function sortedMarks(marks, hits = []) {
  const found = [];
  const order = (one, other) => one[0] - other[0] || other[1] - one[1];
  for (const mark of [...hits, ...marks.filter((mark) => !hits.some((hit) => hit[0] < mark[1] && mark[0] < hit[1]))].sort(order)) {
    if (!found.length || mark[0] >= found[found.length - 1][1]) found.push(mark);
  }
  return found;
}
