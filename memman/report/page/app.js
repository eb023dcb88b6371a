// The page as a whole: the moment, the list, what is chosen, the search, the theme, the keys.

const TYPES = ["message", "tool_call", "tool_result", "context", "summary", "step"];
const PRINTED = 3000; // rows of a printed list

const now = windowAt(head);
const page = {
  mode: "log", // or "window"
  view: now,
  hidden: new Set(),
  query: "",
  hits: [],
  hit: -1,
};
const whole = logItems();

// ------------------------------------------------------------ rows

function describe(item) {
  return item.step ? stepRow(item.step) : entryRow(item);
}

function stepRow(step) {
  const change = step.kind === "compressed" ? `${n(step.before || 0)} → ${n(step.after || 0)}` : "";
  return el("div", { class: `row step k-${step.kind}${step.state === "undone" ? " undone" : ""}${later(step.seq)}` },
    el("span", { class: "seq" }, `#${step.seq}`), el("span", { class: "who" }, stepTitle(step)),
    el("span", { class: "tokens" }, change), el("span", { class: "text" }, plain(stepLine(step))));
}

function entryRow(item) {
  const entry = entries[item.entry];
  const found = hitsIn(item);
  return el("div", { class: `row t-${entry.type}${stateOf(item.entry)}${page.query && !found ? " miss" : ""}` },
    el("span", { class: "seq" }, addressOf(entry)),
    el("span", { class: "who" }, who(entry), entry.name ? el("code", {}, name(entry.name)) : null,
      entry.error ? el("em", { class: "over" }, "error") : null, entry.pinned ? el("em", {}, "pinned") : null),
    el("span", { class: "tokens" }, n(entry.tokens)),
    el("span", { class: "text", dir: "auto" }, excerpt(entry)),
    el("span", { class: "state" }, stateWords(item.entry, found)));
}

const later = (seq) => (page.mode === "log" && seq > page.view.seq ? " later" : "");

function stateOf(number) {
  if (page.mode === "window") return " in";
  if (entries[number].seq > page.view.seq) return " later";
  return page.view.shown.has(number) ? " in" : " out";
}

function stateWords(number, found) {
  if (found && found.behind) return `${counted(found.behind, "original")} behind it`;
  if (page.mode === "window" && entries[number].step !== undefined) {
    const stands = replacementOf(number);
    return stands ? `for ${counted([...numbersIn(stands.originals)].length, "entry", "entries")}` : "";
  }
  const step = page.view.taken.get(number);
  if (entries[number].deleted) return "deleted";
  if (page.mode === "window" || entries[number].seq > page.view.seq || !step) return "";
  return step.kind === "compressed" ? `→ #${step.seq}` : step.kind;
}

function excerpt(entry) {
  const first = occurrences(entry.text, page.query)[0];
  const start = first && first[0] > 60 ? first[0] - 40 : 0;
  const text = `${start ? "…" : ""}${entry.text.slice(start, start + 220)}`.replace(/\s+/g, " ").trim();
  if (!text && entry.parts) return entry.parts.map((part) => part.kind).join(", ");
  return nodes(text, occurrences(text, page.query));
}

// ------------------------------------------------------------ the list and the moment

const list = new List(byId("list"), describe, (item) => detail.show(item));
const detail = new Detail(byId("detail"), {
  changed: () => remember(),
  latest: () => now,
  step: (step) => select((item) => item.step === step),
  entry: (number) => select((item) => item.entry === number),
}, closeDetail);
const chart = new Chart(byId("chart"), (seq) => setMoment(seq, true));

function closeDetail() {
  list.chosen = -1;
  detail.show(null);
  list.draw(true);
  byId("list").focus();
}

function fill(keep = list.items[list.chosen]) {
  const items = page.mode === "log" ? whole : windowItems(page.view);
  const shown = page.hidden.size ? items.filter((item) => !page.hidden.has(item.type)) : items;
  const chosen = keep ? shown.findIndex((item) => item.entry === keep.entry && item.step === keep.step) : -1;
  findHits(shown);
  list.set(shown, chosen);
  byId("list").setAttribute("aria-label", page.mode === "log" ? "Timeline" : `The window at #${page.view.seq}`);
}

// Chooses the row of an item, in the timeline where the window does not have it.
function select(is) {
  let at = list.items.findIndex(is);
  if (at < 0) {
    page.hidden.clear();
    setMode("log");
    at = list.items.findIndex(is);
  }
  if (at >= 0) { list.reveal(at, true); list.pick(at); return; }
  const stub = entries.findIndex((_, number) => is({ entry: number }));
  if (stub >= 0) detail.show({ entry: stub });
}

function setMoment(seq, scroll = false) {
  page.view = windowAt(Math.min(head, Math.max(1, seq)));
  byId("moment").value = String(page.view.seq);
  chart.show(page.view.seq);
  tellMoment();
  fill();
  remember();
  if (scroll && page.mode === "log") {
    const at = list.items.findIndex((item) => item.seq >= page.view.seq);
    list.reveal(at < 0 ? list.items.length - 1 : at, true);
    list.draw(true);
  }
}

function tellMoment() {
  const { seq, slots, tokens } = page.view;
  const step = steps[stepAt[seq]];
  const what = step ? stepTitle(step) : `${who(entries[addedAt[seq]])} added`;
  const at = step ? step.at : entries[addedAt[seq]].at;
  byId("when").replaceChildren(strong(seq === head ? "At the end" : `At #${seq}`), ` · ${time(at)} UTC · ${what} · `,
    strong(n(tokens)), ` tokens in ${counted(slots.length, "entry", "entries")}, without framing`);
  byId("tab-window").textContent = `As the model saw it${seq === head ? "" : ` at #${seq}`}`;
  byId("moment").setAttribute("aria-valuetext", `record ${seq} of ${head}, ${n(tokens)} tokens in the window`);
}

function setMode(mode) {
  page.mode = mode;
  byId("tab-log").setAttribute("aria-pressed", String(mode === "log"));
  byId("tab-window").setAttribute("aria-pressed", String(mode === "window"));
  byId("explore").dataset.mode = mode;
  drawTypes();
  fill();
}

function neighbour(direction) {
  const near = direction < 0 ? compressions.filter((step) => step.seq < page.view.seq).pop()
    : compressions.find((step) => step.seq > page.view.seq);
  if (!near) return;
  setMoment(near.seq, true);
  if (page.mode === "log") select((item) => item.step === near);
}

// ------------------------------------------------------------ links

// What an address of this page ends with: `at-120` for a moment, `entry-556.2` for an entry, `record-556` for
// what else is in the log; a moment and what is chosen are joined by a slash.
function hashOf(item) {
  return item.step ? `record-${item.step.seq}` : `entry-${addressOf(entries[item.entry]).slice(1)}`;
}

function hash() {
  const parts = page.view.seq === head ? [] : [`at-${page.view.seq}`];
  return [...parts, ...(detail.item ? [hashOf(detail.item)] : [])].join("/");
}

const url = () => `${location.href.split("#")[0]}${hash() && `#${hash()}`}`;

// Puts the moment and what is chosen into the page's address, not more often than browsers allow.
function remember() {
  clearTimeout(page.due);
  if (page.started) page.due = setTimeout(() => history.replaceState(null, "", url()), 250);
}

// Goes to what the page's address names; false where it names nothing.
function follow() {
  const found = location.hash.slice(1).split("/").map((part) => part.match(/^(at|entry|record)-([0-9.]+)$/)).filter(Boolean);
  for (const [, kind, place] of found) {
    const at = kind === "entry" ? entries.findIndex((entry) => addressOf(entry) === `#${place}`) : -1;
    const step = kind === "record" && steps[stepAt[Number.parseInt(place, 10)]];
    if (kind === "at") setMoment(Number.parseInt(place, 10), true);
    else if (step) select((item) => item.step === step);
    else if (at >= 0) select((item) => item.entry === at);
  }
  return found.length > 0;
}

// ------------------------------------------------------------ types and search

function drawTypes() {
  const counts = {};
  for (const item of page.mode === "log" ? whole : windowItems(page.view)) counts[item.type] = (counts[item.type] || 0) + 1;
  byId("types").replaceChildren(...TYPES.filter((type) => counts[type]).map((type) => {
    const words = { context: "contexts", summary: "summaries" }[type] || `${SINGLE[type]}s`;
    const button = el("button", { type: "button", class: "type", "aria-pressed": String(!page.hidden.has(type)), onclick: () => {
      if (!page.hidden.delete(type)) page.hidden.add(type);
      drawTypes();
      fill();
    } }, el("span", { class: `dot t-${type}` }), words, el("span", { class: "count" }, n(counts[type])));
    return button;
  }));
}

// Whether an item has what is looked for: in its own text, or in so many originals behind it.
function hitsIn(item) {
  if (!page.query || item.step) return null;
  const own = page.matching.has(item.entry);
  const stands = page.mode === "window" ? replacementOf(item.entry) : null;
  let behind = 0;
  for (const number of numbersIn(stands ? stands.originals : [])) behind += page.matching.has(number) ? 1 : 0;
  return own || behind ? { own, behind } : null;
}

function findHits(items) {
  page.hits = [];
  page.hit = -1;
  if (page.query) items.forEach((item, at) => { if (hitsIn(item)) page.hits.push(at); });
  byId("hits").textContent = page.query ? counted(page.hits.length, "entry", "entries") : "";
  byId("previous").disabled = byId("next").disabled = !page.hits.length;
}

function search(query) {
  page.query = query;
  page.matching = new Set();
  page.lowered ||= entries.map((entry) => `${entry.name || ""}\n${entry.text}`.toLowerCase());
  const low = query.toLowerCase();
  page.lowered.forEach((text, number) => { if (query && text.includes(low)) page.matching.add(number); });
  detail.query = query;
  fill();
  if (page.hits.length) goHit(1);
  byId("list").dataset.query = query;
}

function goHit(direction) {
  if (!page.hits.length) return;
  page.hit = (page.hit + direction + page.hits.length) % page.hits.length;
  if (page.hit < 0) page.hit = 0;
  byId("hits").textContent = `${n(page.hit + 1)} of ${n(page.hits.length)}`;
  const at = page.hits[page.hit];
  list.reveal(at, true);
  list.chosen = at;
  list.draw(true);
  if (!narrow()) detail.show(list.items[at]);
}

// Whether what is chosen covers the list instead of standing beside it.
const narrow = () => matchMedia("(max-width: 60rem)").matches;

// ------------------------------------------------------------ theme, keys, print

function dark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function tellTheme() {
  byId("theme").textContent = dark() ? "Light" : "Dark";
  byId("theme").setAttribute("aria-pressed", String(dark()));
  byId("theme").setAttribute("aria-label", "Dark theme");
}

const typing = (event) => event.target.matches("input, textarea") && event.target.type !== "range";

const KEYS = {
  "/": () => { byId("query").focus(); byId("query").select(); },
  "[": () => neighbour(-1),
  "]": () => neighbour(1),
  w: () => setMode(page.mode === "log" ? "window" : "log"),
  n: () => goHit(1),
  N: () => goHit(-1),
  Escape: () => closeDetail(),
};

function listen() {
  let due = 0;
  byId("query").addEventListener("input", (event) => {
    clearTimeout(due);
    due = setTimeout(() => search(event.target.value), 80);
  });
  byId("query").addEventListener("keydown", (event) => {
    if (event.key === "Escape") { event.target.value = ""; search(""); byId("list").focus(); }
    if (event.key !== "Enter") return;
    event.preventDefault();
    goHit(event.shiftKey ? -1 : 1);
  });
  byId("previous").addEventListener("click", () => goHit(-1));
  byId("next").addEventListener("click", () => goHit(1));
  byId("tab-log").addEventListener("click", () => setMode("log"));
  byId("tab-window").addEventListener("click", () => setMode("window"));
  byId("moment").addEventListener("input", (event) => setMoment(Number(event.target.value), true));
  byId("earlier").addEventListener("click", () => neighbour(-1));
  byId("later").addEventListener("click", () => neighbour(1));
  byId("now").addEventListener("click", () => setMoment(head, true));
  byId("theme").addEventListener("click", () => {
    document.documentElement.dataset.theme = dark() ? "light" : "dark";
    tellTheme();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", tellTheme);
  document.addEventListener("keydown", (event) => {
    if (typing(event) || event.ctrlKey || event.metaKey || event.altKey || !(event.key in KEYS)) return;
    event.preventDefault();
    KEYS[event.key]();
  });
  addEventListener("hashchange", follow);
  addEventListener("beforeprint", () => list.space.replaceChildren(...list.items.slice(0, PRINTED).map((_, at) => list.row(at))));
  addEventListener("afterprint", () => list.draw(true));
}

function start() {
  drawSummary();
  tellTheme();
  byId("moment").max = String(head);
  for (const id of ["earlier", "later"]) byId(id).disabled = !compressions.length;
  byId("previous").disabled = byId("next").disabled = true;
  listen();
  detail.show(null);
  byId("moment").value = String(head);
  tellMoment();
  setMode("log");
  document.documentElement.dataset.ready = "yes";
  // The page stands before the largest part of it is made.
  requestAnimationFrame(() => setTimeout(() => {
    const last = compressions.filter((step) => step.state === "in force").pop();
    if (!follow() && last && !narrow() && list.chosen < 0) select((item) => item.step === last);
    page.started = true;
  }));
}

start();
