// The page as a whole: the moment, the list, what is chosen, the search, the theme, the keys.

const TYPES = ["message", "tool_call", "tool_result", "context", "summary", "state", "step"];
const PRINTED = 3000; // rows of a printed list

const now = windowAt(head);
const page = {
  mode: "log", // or "window"
  view: now,
  hidden: new Set(),
  found: new Map(), // item -> how it has what is searched for
  hits: [], // rows of the list
  hit: -1,
};
const whole = logItems();
const search = new Search();

// ------------------------------------------------------------ rows

function describe(item) {
  const found = page.found.get(item);
  if (item.block) return blockRow(item, found);
  return item.step ? stepRow(item.step, found) : entryRow(item, found);
}

function stepRow(step, found) {
  const change = step.kind === "compressed" ? `${n(step.before || 0)} → ${n(step.after || 0)}` : "";
  return el("div", { class: `row step k-${step.kind}${step.state === "undone" ? " undone" : ""}${later(step.seq)}${missed(found)}` },
    el("span", { class: "seq" }, `#${step.seq}`), el("span", { class: "who" }, search.query.nodes(stepTitle(step))),
    el("span", { class: "tokens" }, change), el("span", { class: "text" }, search.query.nodes(stepLine(step))));
}

function blockRow({ block }, found) {
  const held = page.view.block && blocks[page.view.block[0]] === block;
  return el("div", { class: `row t-state ${held ? "in" : "out"}${later(block.seq)}${missed(found)}` },
    el("span", { class: "seq" }, `#${block.seq}`), el("span", { class: "who" }, SINGLE.state),
    el("span", { class: "tokens" }, n(block.tokens)), el("span", { class: "text", dir: "auto" }, excerpt(block)),
    el("span", { class: "state" }, found && found.behind ? behindIt(found) : page.mode === "window" ? standsFor(outlined(page.view).length) : ""));
}

function entryRow(item, found) {
  const entry = entries[item.entry];
  return el("div", { class: `row t-${entry.type}${stateOf(item.entry)}${missed(found)}` },
    el("span", { class: "seq" }, addressOf(entry)),
    el("span", { class: "who" }, who(entry), entry.name ? el("code", {}, search.query.name(entry.name)) : null,
      entry.error ? el("em", { class: "over" }, "error") : null, entry.pinned ? el("em", {}, "pinned") : null),
    el("span", { class: "tokens" }, n(entry.tokens)),
    el("span", { class: "text", dir: "auto" }, excerpt(entry)),
    el("span", { class: "state" }, stateWords(item.entry, found)));
}

const missed = (found) => (search.query.empty || found ? "" : " miss");
const later = (seq) => (page.mode === "log" && seq > page.view.seq ? " later" : "");

function stateOf(number) {
  if (page.mode === "window") return " in";
  if (entries[number].seq > page.view.seq) return " later";
  return page.view.shown.has(number) ? " in" : " out";
}

const behindIt = (found) => `${counted(found.behind, "original")} behind it`;
const standsFor = (number) => `for ${counted(number, "entry", "entries")}`;

function stateWords(number, found) {
  if (found && found.behind) return behindIt(found);
  if (page.mode === "window" && entries[number].step !== undefined) {
    const stands = replacementOf(number);
    return stands ? standsFor([...numbersIn(stands.originals)].length) : "";
  }
  const step = page.view.taken.get(number);
  if (entries[number].deleted) return "deleted";
  if (page.mode === "window" || entries[number].seq > page.view.seq || !step) return "";
  return step.kind === "compressed" ? `→ #${step.seq}` : step.kind;
}

function excerpt(entry) {
  const [first] = search.query.marks(entry.text, 1);
  const start = first && first[0] > 36 ? first[0] - 24 : 0;
  const text = `${start ? "…" : ""}${entry.text.slice(start, start + 220)}`.replace(/\s+/g, " ").trim();
  if (!text && entry.parts) return entry.parts.map((part) => part.kind).join(", ");
  return search.query.nodes(text);
}

// ------------------------------------------------------------ the list and the moment

const list = new List(byId("list"), describe, (item) => detail.show(item));
const detail = new Detail(byId("detail"), search, {
  changed: () => remember(),
  latest: () => now,
  step: (step) => select((item) => item.step === step),
  entry: (number) => select((item) => item.entry === number),
}, closeDetail);
const chart = new Chart(byId("chart"), (seq) => setMoment(seq, true));
drawSpend((seq) => setMoment(seq, true));

function closeDetail() {
  list.chosen = -1;
  detail.show(null);
  list.draw(true);
  byId("list").focus();
}

function fill(keep = list.items[list.chosen]) {
  const items = page.mode === "log" ? whole : windowItems(page.view);
  const shown = page.hidden.size ? items.filter((item) => !page.hidden.has(item.type)) : items;
  const chosen = keep ? shown.findIndex((item) => item.entry === keep.entry && item.step === keep.step && item.block === keep.block) : -1;
  findHits(items, shown);
  drawTypes(items);
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
  const { seq, slots, block, tokens } = page.view;
  const step = steps[stepAt[seq]];
  const what = step ? stepTitle(step) : `${who(entries[addedAt[seq]])} added`;
  const at = step ? step.at : entries[addedAt[seq]].at;
  byId("when").replaceChildren(strong(seq === head ? "At the end" : `At #${seq}`), ` · ${time(at)} UTC · ${what} · `,
    strong(n(tokens)), ` tokens in ${counted(slots.length, "entry", "entries")}${block ? " and the outline" : ""}, without framing`);
  byId("tab-window").textContent = `As the model saw it${seq === head ? "" : ` at #${seq}`}`;
  byId("moment").setAttribute("aria-valuetext", `record ${seq} of ${head}, ${n(tokens)} tokens in the window`);
}

function setMode(mode) {
  page.mode = mode;
  byId("tab-log").setAttribute("aria-pressed", String(mode === "log"));
  byId("tab-window").setAttribute("aria-pressed", String(mode === "window"));
  byId("explore").dataset.mode = mode;
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
  if (item.block) return `record-${item.block.seq}`;
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

function drawTypes(items) {
  const [counts, hits] = [{}, {}];
  for (const item of items) {
    counts[item.type] = (counts[item.type] || 0) + 1;
    if (page.found.has(item)) hits[item.type] = (hits[item.type] || 0) + 1;
  }
  const focused = byId("types").contains(document.activeElement) ? document.activeElement.dataset.type : "";
  byId("types").replaceChildren(...TYPES.filter((type) => counts[type]).map((type) => {
    const words = { context: "contexts", summary: "summaries" }[type] || `${SINGLE[type]}s`;
    const number = search.query.empty ? n(counts[type]) : `${n(hits[type] || 0)} of ${n(counts[type])}`;
    return el("button", { type: "button", class: "type", "data-type": type, "aria-pressed": String(!page.hidden.has(type)), onclick: () => {
      if (!page.hidden.delete(type)) page.hidden.add(type);
      fill();
    } }, el("span", { class: `dot t-${type}` }), words, el("span", { class: "count" }, number));
  }));
  if (focused) byId("types").querySelector(`[data-type="${focused}"]`)?.focus();
}

// Finds the hits among all items, and the rows of those that are shown.
function findHits(items, shown) {
  page.found = new Map();
  for (const item of items) {
    const found = search.hit(item, page.mode === "window");
    if (found) page.found.set(item, found);
  }
  page.hit = -1;
  page.hits = [];
  shown.forEach((item, at) => { if (page.found.has(item)) page.hits.push(at); });
  byId("hits").textContent = search.query.empty ? "" : page.hits.length ? counted(page.hits.length, "hit") : "no hits";
  byId("previous").disabled = byId("next").disabled = !page.hits.length;
}

function searchFor(text) {
  byId("hits").textContent = "…";
  search.run(text, () => {
    fill();
    // An address or an id leads to its entry first.
    const named = page.hits.findIndex((at) => isNamed(list.items[at]));
    if (page.hits.length) goHit(named < 0 ? 1 : named + 1);
    else if (detail.item) detail.show(detail.item); // without the matches of the search before
    byId("list").dataset.query = text;
  });
}

const isNamed = (item) => (item.entry === undefined ? `#${item.seq}` === search.query.text : search.query.isName(entries[item.entry]));

function goHit(direction) {
  if (!page.hits.length) return;
  page.hit = (Math.max(page.hit, direction < 0 ? 0 : -1) + direction + page.hits.length) % page.hits.length;
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
    due = setTimeout(() => searchFor(event.target.value), 80);
  });
  byId("query").addEventListener("keydown", (event) => {
    if (event.key === "Escape") { event.target.value = ""; searchFor(""); byId("list").focus(); }
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
