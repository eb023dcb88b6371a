// The list: rows of one height, of which only those in view are elements.

const ROW = 54;
const SPARE = 12; // rows beyond the view that are made, too

const METHODS = { summary: "summary", outline: "outline", stub: "stub", fold: "fold", clip: "clip", drop: "drop" };
const DID = {
  summary: "summarised", outline: "outlined", stub: "cleared to stubs", fold: "folded", clip: "clipped", drop: "dropped",
};

const SEVERAL = { summary: "summaries", outline: "outlines", stub: "stubs", fold: "folds", clip: "clips", drop: "drops" };

function who(entry) {
  if (entry.method) return METHODS[entry.method];
  return entry.type === "message" ? entry.role : SINGLE[entry.type];
}

function stepTitle(step) {
  switch (step.kind) {
    case "opened": return "Session opened";
    case "compressed": return `Compressed ${counted(replacedIn(step), "entry", "entries")}`;
    case "retracted": return `Retracted ${touched(step)}`;
    case "undone": return `Took ${steps[step.undoes].kind === "retracted" ? "retraction" : "compression"} #${steps[step.undoes].seq} back`;
    case "pinned": return `${step.on ? "Pinned" : "Unpinned"} ${touched(step)}`;
    case "deleted": return `Deleted ${touched(step)}`;
    case "cleared": return "Cleared the window";
    case "configured": return "Settings changed";
    case "described": return "Metadata replaced";
    default: return "Usage reported";
  }
}

function stepLine(step) {
  switch (step.kind) {
    case "compressed": {
      const kept = step.value_count ? ` · ${percent(step.values_kept || 0, step.value_count)} of values kept` : "";
      return `${step.state === "in force" ? "" : `${step.state} · `}${methodsOf(step)}${kept}`;
    }
    case "retracted": return `${step.state === "in force" ? "" : `${step.state} · `}${step.reason}`;
    case "opened": return observed(step.changes || {}).map(([key, value]) => `${key} ${value}`).join(", ");
    case "configured":
    case "described": return JSON.stringify(step.changes || {});
    case "usage": return `${n(step.reported || 0)} tokens in, ${n(step.output || 0)} out; estimated ${n(step.estimated || 0)}`;
    case "cleared": return "a new era began; what was before stays in the log";
    default: return `${n(step.active)} tokens in ${counted(step.entries, "entry", "entries")} after it`;
  }
}

// The settings in effect, as observed: those that are known.
function observed(settings) {
  const names = { model: "model", max_tokens: "budget", target_tokens: "target", max_entries: "entries at most", counter: "counter", forked_from: "forked from" };
  return Object.entries(names).filter(([key]) => settings[key] != null && settings[key] !== "")
    .map(([key, said]) => [said, typeof settings[key] === "number" ? n(settings[key]) : settings[key]]);
}

const replacedIn = (step) => (step.splices || []).reduce((sum, [, gone]) => sum + gone, 0);

function methodsOf(step) {
  const counts = {};
  for (const item of step.replacements || []) {
    counts[item.method] = (counts[item.method] || 0) + [...numbersIn(item.originals)].length;
  }
  return Object.entries(counts).map(([method, count]) => `${n(count)} ${DID[method]}`).join(", ");
}

function touched(step) {
  const all = [...numbersIn(step.touches)];
  return all.length === 1 ? `#${entries[all[0]].seq}` : counted(all.length, "entry", "entries");
}

// The rows of the whole log: entries that were added, summaries and outlines where they were written, and every
// other record.
function logItems() {
  const items = [];
  for (let seq = 1; seq <= head; seq += 1) {
    if (addedAt[seq] >= 0) items.push({ entry: addedAt[seq], seq, type: entries[addedAt[seq]].type });
    const step = steps[stepAt[seq]];
    if (!step) continue;
    items.push({ step, seq, type: "step" });
    for (const item of step.replacements || []) {
      if (item.entry !== undefined && entries[item.entry].type === "summary") {
        items.push({ entry: item.entry, seq, type: "summary" });
      }
    }
    const block = blockOf(step);
    if (block) items.push({ block, seq, type: "state" });
  }
  return items;
}

function windowItems(view) {
  const items = view.slots.map((number) => ({ entry: number, seq: entries[number].seq, type: entries[number].type }));
  if (view.block) {
    const [number, before] = view.block;
    items.splice(before, 0, { block: blocks[number], seq: blocks[number].seq, type: "state" });
  }
  return items;
}

class List {
  constructor(place, describe, choose) {
    this.place = place;
    this.describe = describe;
    this.choose = choose;
    this.items = [];
    this.chosen = -1;
    this.space = el("div", { class: "space", role: "presentation" });
    place.append(this.space);
    place.addEventListener("scroll", () => this.draw(), { passive: true });
    place.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(place);
  }

  set(items, chosen = -1) {
    this.items = items;
    this.chosen = chosen;
    this.space.style.height = `${items.length * ROW}px`;
    this.space.classList.toggle("empty", items.length === 0);
    this.draw(true);
  }

  draw(anew = false) {
    const first = Math.max(0, Math.floor(this.place.scrollTop / ROW) - SPARE);
    const last = Math.min(this.items.length, Math.ceil((this.place.scrollTop + this.place.clientHeight) / ROW) + SPARE);
    if (!anew && first === this.first && last === this.last) return;
    [this.first, this.last] = [first, last];
    const rows = [];
    for (let at = first; at < last; at += 1) rows.push(this.row(at));
    if (!rows.length) rows.push(el("p", { class: "nothing" }, "Nothing of these types is here."));
    this.space.replaceChildren(...rows);
    if (this.chosen >= first && this.chosen < last) this.place.setAttribute("aria-activedescendant", `row-${this.chosen}`);
    else this.place.removeAttribute("aria-activedescendant");
  }

  row(at) {
    const row = this.describe(this.items[at]);
    row.id = `row-${at}`;
    row.setAttribute("role", "option");
    row.setAttribute("aria-selected", String(at === this.chosen));
    row.setAttribute("aria-posinset", String(at + 1));
    row.setAttribute("aria-setsize", String(this.items.length));
    row.style.top = `${at * ROW}px`;
    row.addEventListener("click", () => this.pick(at));
    return row;
  }

  pick(at) {
    if (at < 0 || at >= this.items.length) return;
    this.chosen = at;
    this.reveal(at);
    this.draw(true);
    this.choose(this.items[at]);
  }

  reveal(at, middle = false) {
    const view = this.place.clientHeight;
    const [top, end] = [at * ROW, (at + 1) * ROW];
    if (middle || top < this.place.scrollTop - view || end > this.place.scrollTop + 2 * view) this.place.scrollTop = top - view / 2;
    else if (top < this.place.scrollTop) this.place.scrollTop = top;
    else if (end > this.place.scrollTop + view) this.place.scrollTop = end - view;
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.place.clientHeight / ROW) - 1);
    const last = this.items.length - 1;
    const moves = {
      ArrowDown: this.chosen + 1, ArrowUp: Math.max(0, this.chosen - 1), PageDown: Math.min(last, this.chosen + page),
      PageUp: Math.max(0, this.chosen - page), Home: 0, End: last, j: this.chosen + 1, k: Math.max(0, this.chosen - 1),
    };
    if (!(event.key in moves) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.pick(moves[event.key]);
  }
}
