// What was chosen: an entry in full, or what a compression replaced beside what stands for it.

const WHERE = {
  lost: ["lost to the model, still in the log", "The window had it no more; the log has it."],
  replacement: ["in the replacement", "The replacement says it."],
  state: ["in the outline", "The outline has it."],
  elsewhere: ["elsewhere", "Another entry of the window had it."],
};
const LONG = 12000; // characters of one text shown before somebody asks for the rest
const BRIEF = 900; // and of one that stands for others
const MANY = 40; // originals, and values, shown likewise

class Detail {
  constructor(place, search, go, close) {
    this.place = place;
    this.search = search;
    this.go = go;
    this.close = close;
  }

  get query() { return this.search.query; }

  show(item) {
    this.item = item;
    const closing = el("button", { type: "button", class: "quiet close", "aria-label": "Close", onclick: this.close }, "×");
    const made = !item ? this.nothing()
      : item.block ? this.block(item.block)
      : item.step ? this.step(item.step)
      : entries[item.entry].step !== undefined ? this.made(item.entry) : this.entry(item.entry);
    this.place.classList.toggle("open", Boolean(item));
    this.place.replaceChildren(...(item ? [closing] : []), ...made);
    if (this.place.scrollTop) this.place.scrollTop = 0;
    this.scrollToMatch();
    this.go.changed();
  }

  // Scrolls the first match into view, in each box around it that scrolls, but never the page.
  scrollToMatch() {
    const mark = this.place.querySelector("mark.hit");
    for (let box = mark; box && box !== this.place; ) {
      box = box.parentElement;
      if (box.scrollHeight <= box.clientHeight) continue;
      const [inner, outer] = [mark.getBoundingClientRect(), box.getBoundingClientRect()];
      if (inner.bottom > outer.top + box.clientHeight) box.scrollTop += inner.top - outer.top - box.clientHeight / 3;
    }
  }

  nothing() {
    return [el("p", { class: "hint" },
      "Choose an entry to read it in full, or a compression or a summary to see the originals beside what replaced them.")];
  }

  // ------------------------------------------------------------ an entry that was added

  entry(at) {
    const entry = entries[at];
    return [
      this.title(entry, at),
      this.meta(entry, at),
      ...this.content(entry, this.query.marks(entry.text)),
      ...recalled.filter((made) => made.message_id === entry.id)
        .map((made) => el("pre", {}, made.text)),
    ];
  }

  title(entry, at) {
    return el("h3", {}, el("span", { class: `dot t-${entry.type}` }), el("span", {}, who(entry)),
      entry.name ? el("code", {}, this.query.name(entry.name)) : null, ...this.here({ entry: at }, addressOf(entry)));
  }

  // The place of what is shown, as a link to it, and a button that copies the link.
  here(item, said) {
    return [el("a", { class: "place", href: `#${hashOf(item)}` }, said), copyButton("Copy link", url)];
  }

  meta(entry, at) {
    const rows = [["Tokens", `${n(entry.tokens)}${entry.counted ? ` by ${entry.counted}` : ""}`], ["Added", `${time(entry.at)} UTC`], ["Now", this.fate(at)]];
    rows.push(...this.matches(entry.text));
    if (entry.call) rows.push(["Call", idOf(entry.call)]);
    if (entry.message) rows.push(["Message", idOf(entry.message)]);
    if (entry.error) rows.push(["Result", "an error"]);
    for (const made of recalled) {
      if (made.message_id === entry.id) rows.push(["Recalled", `${made.addresses.join(", ")} by ${made.words.length ? `the words ${made.words.join(", ")}` : "meaning"}`]);
      if (made.addresses.includes(addressOf(entry))) rows.push(["Quoted", `behind ${made.message_address} in the next request`]);
    }
    rows.push(["Id", idOf(entry.id)], ...this.restore(this.go.latest().taken.get(at)));
    return facts(rows);
  }

  // How often a text has the words of the search.
  matches(text) {
    const found = this.query.marks(text).length;
    return found ? [["Matches", `${n(found)}${found < MOST_MATCHES ? "" : " or more"}`]] : [];
  }

  // How to have in the window again what a step took out of it.
  restore(step) {
    const command = step ? restoring(step) : "";
    return command ? [["Restore", copyable(command)]] : [];
  }

  // What became of an entry, as links to what replaced it, outwards.
  fate(at) {
    if (entries[at].deleted) return "deleted: nothing of it is left but its place";
    const now = this.go.latest();
    if (now.shown.has(at)) return entries[at].pinned ? "in the window, pinned" : "in the window";
    const made = el("span");
    const groups = []; // of compressions that replaced by the same method one after the other
    let number = at;
    for (let step = now.taken.get(number); step; step = now.taken.get(number)) {
      if (step.kind !== "compressed") { groups.push([`gone: ${stepTitle(step).toLowerCase()} `, [step]]); break; }
      const item = replacementIn(step, number);
      const method = item ? item.method : "drop";
      if (groups.length && groups[groups.length - 1][0] === method) groups[groups.length - 1][1].push(step);
      else groups.push([method, [step]]);
      number = item ? item.entry : undefined;
      if (number === undefined || now.shown.has(number)) break;
    }
    const outline = groups.length && groups[groups.length - 1][0] === "outline" && now.block;
    for (const [method, taken] of groups) {
      if (made.childNodes.length) made.append(", then ");
      if (taken.length > 1) made.append(`${counted(taken.length, method, SEVERAL[method])}, `, this.link(taken[0]), " to ", this.link(taken[taken.length - 1]));
      else made.append(DID[method] ? `${DID[method]} by ` : method, this.link(taken[0]));
    }
    if (now.shown.has(number)) made.append(", now in ", this.reference(number));
    if (outline) made.append(", now in the outline ", this.link(steps[stepAt[blocks[outline[0]].seq]]));
    return made.childNodes.length ? made : "not in the window";
  }

  link(step) {
    return el("button", { type: "button", class: "link", onclick: () => this.go.step(step) }, `#${step.seq}`);
  }

  content(entry, marks, most = LONG) {
    const parts = (entry.parts || []).map((part) => el("li", {}, el("b", {}, part.kind), " ",
      [part.media_type, part.size !== undefined ? bytes(part.size) : null].filter(Boolean).join(", "), " ",
      part.name ? this.query.name(part.name) : null, part.link ? el("span", { class: "where" }, " ", this.query.name(part.link)) : null,
      part.alt ? el("q", {}, this.query.name(part.alt)) : null));
    return [parts.length ? el("ul", { class: "parts" }, ...parts) : null, body(entry, marks, most)].filter(Boolean);
  }

  // ------------------------------------------------------------ what a compression did

  made(at) {
    const entry = entries[at];
    const step = steps[entry.step];
    const item = replacementOf(at);
    return [
      this.title(entry, at),
      facts([
        ["Tokens", `${n(item.before)} → ${n(item.after)}`], ["Compression", this.link(step)],
        ["Why", this.query.name(step.reason || "no reason was given")], ["Now", this.fate(at)], ["Id", idOf(entry.id)],
        ...this.restore(step),
      ]),
      this.pair(item),
    ];
  }

  step(step) {
    const heading = el("h3", {}, el("span", { class: "dot t-step" }), el("span", {}, stepTitle(step)), ...this.here({ step }, `#${step.seq}`));
    const block = blockOf(step);
    const set = block && this.outline(block);
    if (step.kind !== "compressed") return [heading, facts(this.told(step)), this.also(step), set].filter(Boolean);
    const items = step.replacements || [];
    const more = el("div", { class: "more" });
    const pairs = el("div", {}, ...items.slice(0, MANY).map((item) => this.pair(item, block)));
    if (items.length > MANY) {
      more.append(el("button", { type: "button", onclick: () => {
        pairs.append(...items.slice(MANY).map((item) => this.pair(item, block)));
        more.remove();
      } }, `Show ${counted(items.length - MANY, "more replacement")}`));
    }
    return [heading, this.saving(step), facts(this.compression(step)), items.some((item) => item.method === "outline") ? null : set, pairs, more].filter(Boolean);
  }

  block(block) {
    const step = steps[stepAt[block.seq]];
    const originals = page.view.block && blocks[page.view.block[0]] === block ? outlined(page.view) : [];
    return [
      el("h3", {}, el("span", { class: "dot t-state" }), el("span", {}, "Outline"), ...this.here({ step }, `#${block.seq}`)),
      facts([["Tokens", n(block.tokens)], ["Written by", this.link(step)], ["Has", name(sectionsOf(block))], ...this.matches(block.text)]),
      this.found({ originals }, originals),
      body(block, this.query.marks(block.text), LONG),
    ].filter(Boolean);
  }

  // The outline that a step left in the window, if it replaces none of the step's own entries.
  outline(block) {
    const marks = this.search.found.blocks.has(block) ? this.query.marks(block.text) : [];
    return el("details", { class: "values block", open: marks.length > 0 }, el("summary", {}, el("b", {}, "Outline: "), `${n(block.tokens)} tokens`, ": ",
      name(sectionsOf(block))), body(block, marks, LONG));
  }

  saving(step) {
    const after = el("span", { class: "after" });
    after.style.width = `${Math.max(0.5, 100 * (step.after || 0) / Math.max(1, step.before || 0))}%`;
    return el("div", { class: "saving" },
      el("p", {}, strong(n(step.before || 0)), " → ", strong(n(step.after || 0)), " tokens in the window, ",
        `${percent((step.before || 0) - (step.after || 0), step.before || 0)} less`),
      el("div", { class: "meter", "aria-hidden": "true" }, after));
  }

  compression(step) {
    const undo = undoneBy.get(step);
    const state = el("span", {}, step.state);
    if (undo) state.append(" by ", this.link(undo));
    for (const seq of step.folded_into || []) state.append(" into ", this.link(steps[stepAt[seq]]));
    const rows = [
      ["Why", this.query.name(step.reason || "no reason was given")], ["State", state], ["At", `${time(step.at)} UTC`],
      ["Cost", costOf(step.cost)],
    ];
    if (step.value_count) {
      rows.push(["Exact values", `${n(step.values_kept || 0)} of ${n(step.value_count)} kept in the window (${percent(step.values_kept || 0, step.value_count)})`]);
    }
    rows.push(["Id", idOf(step.id)], ...this.restore(step));
    return rows;
  }

  told(step) {
    const rows = [["At", `${time(step.at)} UTC`], ["Window after it", `${n(step.active)} tokens in ${counted(step.entries, "entry", "entries")}`]];
    if (step.kind === "retracted") {
      const undo = undoneBy.get(step);
      rows.unshift(["Why", this.query.name(step.reason)], ["State", el("span", {}, step.state, undo ? " by " : "", undo ? this.link(undo) : "")]);
      rows.push(["Id", idOf(step.id)], ...this.restore(step));
    }
    if (step.kind === "undone") rows.unshift([steps[step.undoes].kind === "retracted" ? "Retraction" : "Compression", this.link(steps[step.undoes])]);
    if (step.kind === "opened") rows.unshift(...observed(step.changes || {}).map(([key, value]) => [key, this.query.name(value)]));
    if (step.kind === "configured" || step.kind === "described") rows.unshift(...Object.entries(step.changes || {}).map(([key, value]) => [key, this.query.name(JSON.stringify(value))]));
    if (step.kind === "usage") {
      rows.unshift(["Reported", `${n(step.reported || 0)} tokens in (${n(step.cached || 0)} from the cache, ${n(step.cache_written || 0)} written to it), ${n(step.output || 0)} out`],
        ["Estimated", n(step.estimated || 0)], ["Model", step.model ? this.query.name(step.model) : "not named"]);
    }
    return rows;
  }

  also(step) {
    const all = [...numbersIn(step.touches)].slice(0, MANY);
    return all.length ? el("ul", { class: "touched" }, ...all.map((at) => el("li", {}, this.reference(at)))) : null;
  }

  reference(at) {
    return el("button", { type: "button", class: "link", onclick: () => this.go.entry(at) }, `${addressOf(entries[at])} ${who(entries[at])}`);
  }

  // ------------------------------------------------------------ originals beside a replacement

  // The outline replaces the outlined ones.
  pair(item, block = null) {
    const outline = item.method === "outline" ? block : null;
    const originals = [...numbersIn(item.originals)];
    const judged = valuesOf(item, originals);
    const state = new Map(judged.map((each) => [each.value, each.where]));
    const left = el("div", { class: "originals" });
    const add = (some) => left.append(...some.map((at) => this.original(at, state)));
    add(originals.slice(0, MANY));
    if (originals.length > MANY) {
      const more = el("button", { type: "button", onclick: () => { more.remove(); add(originals.slice(MANY)); } },
        `Show ${counted(originals.length - MANY, "more original")}`);
      left.append(more);
    }
    return el("article", { class: "pair" }, this.found(item, originals),
      el("header", {},
        el("h4", {}, `${counted(originals.length, "original")}, ${n(originals.reduce((sum, at) => sum + entries[at].tokens, 0))} tokens`),
        el("h4", {}, !outline && item.entry === undefined ? "Dropped" : `${METHODS[item.method]}, ${n(item.after)} tokens`)),
      el("div", { class: "beside" }, left, this.replacement(item, judged, outline)),
      judged.length ? valueTable(judged) : el("p", { class: "hint" }, "The originals have no exact values (paths, identifiers, numbers, dates, addresses)."));
  }

  // Links to the originals that have what is searched for, which may be behind a button.
  found(item, originals) {
    const behind = this.search.behind(item);
    if (!behind.length) return null;
    const links = behind.slice(0, MANY).map((at) => el("li", {}, this.reference(at)));
    const more = behind.length > MANY ? el("li", {}, `and ${n(behind.length - MANY)} more`) : null;
    return el("div", { class: "found" }, el("p", {}, `${n(behind.length)} of ${counted(originals.length, "original")} found`),
      el("ul", { class: "touched" }, ...links, more));
  }

  original(at, state) {
    const entry = entries[at];
    const found = this.search.found.entries.has(at) ? this.query.marks(entry.text) : [];
    const marks = (entry.values || []).flatMap((value) => standing(entry.text, values[value])
      .map(([start, end]) => [start, end, `v-${state.get(values[value])}`, WHERE[state.get(values[value])][1]]));
    return el("section", { class: "original" },
      el("h5", {}, el("span", { class: `dot t-${entry.type}` }), this.reference(at), entry.name ? name(entry.name) : null,
        el("span", { class: "tokens" }, n(entry.tokens))),
      ...this.content(entry, sortedMarks(marks, found)));
  }

  replacement(item, judged, outline) {
    if (!outline && item.entry === undefined) return el("p", { class: "stands hint" }, "Nothing stands for these in the window.");
    const entry = outline || entries[item.entry];
    const hit = this.search.found.blocks.has(outline) || this.search.found.entries.has(item.entry);
    const found = hit ? this.query.marks(entry.text) : [];
    const marks = judged.filter((each) => each.where === "replacement" || each.where === "state")
      .flatMap((each) => standing(entry.text, each.value).map(([start, end]) => [start, end, `v-${each.where}`, WHERE[each.where][1]]));
    return el("div", { class: "stands" }, ...this.content(entry, sortedMarks(marks, found), BRIEF));
  }
}

// The exact values of the originals, each once, and where the window had them once they were replaced.
function valuesOf(item, originals) {
  const where = new Map();
  for (const [place, kept] of Object.entries(item.kept || {})) for (const value of kept) where.set(value, place);
  const found = new Map();
  for (const at of originals) for (const value of entries[at].values || []) found.set(value, entries[at].seq);
  return [...found].map(([value, seq]) => ({ value: values[value], seq, where: where.get(value) || "lost" }));
}

const sectionsOf = (block) => Object.entries(block.sections || {}).map(([title, count]) => `${title} ${n(count)}`).join(", ") || "texts that were left out";

function valueTable(judged) {
  const groups = Object.keys(WHERE).map((where) => [where, judged.filter((each) => each.where === where)]);
  const lost = judged.filter((each) => each.where === "lost").length;
  const told = `${n(judged.length - lost)} kept${lost ? `, ${n(lost)} ${WHERE.lost[0]}` : ""}`;
  return el("details", { class: "values" }, el("summary", {}, el("b", {}, "Exact values: "), told),
    ...groups.filter(([, some]) => some.length).map(([where, some]) => {
      const list = el("ul", {}, ...some.slice(0, MANY).map(chip));
      if (some.length > MANY) {
        const more = el("li", {}, el("button", { type: "button", onclick: () => { more.remove(); list.append(...some.slice(MANY).map(chip)); } },
          `${n(some.length - MANY)} more`));
        list.append(more);
      }
      return el("div", { class: `group g-${where}` }, el("p", {}, el("b", {}, n(some.length)), ` ${WHERE[where][0]}`), list);
    }));
}

const chip = (each) => el("li", {}, el("code", { class: `v-${each.where}`, title: `last in #${each.seq}` }, name(each.value)));

// A text in full, or its beginning up to the first match and a button for the rest.
function body(entry, marks, least) {
  const text = entry.text;
  const first = marks.find(([, , kind]) => kind === "hit");
  const most = first ? Math.max(least, first[1] + BRIEF) : least;
  if (!text) return el("p", { class: "hint" }, entry.deleted ? "Deleted." : report.content === "none" ? "Left out." : "No text.");
  const shown = el("pre", { dir: "auto", tabindex: "0" });
  shown.append(nodes(text.slice(0, most), marks.filter(([, end]) => end <= most)));
  if (text.length <= most) return shown;
  const more = el("button", { type: "button", onclick: () => {
    shown.replaceChildren(nodes(text, marks));
    more.remove();
  } }, `Show all ${n(text.length)} characters`);
  return el("div", {}, shown, more);
}

function facts(rows) {
  const long = (said) => (said.textContent || said).length > 40 || said.className === "copyable";
  return el("dl", { class: "facts small" }, ...rows.map(([term, said]) => el("div", { class: long(said) && "long" }, el("dt", {}, term), el("dd", {}, said))));
}
