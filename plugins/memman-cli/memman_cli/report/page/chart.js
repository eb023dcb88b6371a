// Tokens over time: the window above, all that was added below; both over the places in the log.

const SPACE = { left: 58, right: 18, top: 22, upper: 190, gap: 30, lower: 46, bottom: 24 };
const MOST_MARKS = 120; // compressions beyond this many are ticks without a head

class Chart {
  constructor(place, choose) {
    this.place = place;
    this.tip = el("div", { class: "tip", "aria-hidden": "true" });
    this.moment = head;
    this.highest = Math.max(1, limits.trigger || 0, ...columns(activeAt, 400).map(([, most]) => most));
    this.fits = limits.model !== null && limits.model <= 2.2 * this.highest;
    this.most = 1.06 * (this.fits ? Math.max(this.highest, limits.model) : this.highest);
    place.addEventListener("click", (event) => choose(this.seqAt(this.at(event))));
    place.addEventListener("pointermove", (event) => this.hover(event));
    place.addEventListener("pointerleave", () => this.hover(null));
    new ResizeObserver(() => this.draw()).observe(place);
    this.drawKey();
  }

  draw() {
    this.width = this.place.clientWidth;
    if (!this.width) return;
    this.height = SPACE.top + SPACE.upper + SPACE.gap + SPACE.lower + SPACE.bottom;
    const drawn = svg("svg", {
      viewBox: `0 0 ${this.width} ${this.height}`, width: this.width, height: this.height, role: "img",
      "aria-label": `Tokens in the window over ${n(head)} records, between 0 and ${n(this.highest)}; `
        + `${counted(compressions.length, "compression")}. The slider below moves through it.`,
    });
    drawn.append(...this.grid(), ...this.panels(), ...this.lines(), ...this.events());
    this.cursor = svg("g", { class: "cursor" });
    this.pointer = svg("line", { class: "pointer", y1: SPACE.top, y2: this.floor(1) });
    drawn.append(this.pointer, this.cursor);
    this.place.replaceChildren(drawn, this.tip);
    this.show(this.moment);
  }

  x(seq) {
    const inner = this.width - SPACE.left - SPACE.right;
    return SPACE.left + (head > 1 ? (seq - 1) / (head - 1) : 0.5) * inner;
  }

  seqAt(x) {
    const inner = this.width - SPACE.left - SPACE.right;
    const seq = 1 + Math.round((x - SPACE.left) / inner * (head - 1));
    return Math.min(head, Math.max(1, seq));
  }

  at(event) { return event.clientX - this.place.getBoundingClientRect().left; }

  // The lower edge of the upper panel (0) and of the lower one (1).
  floor(panel) {
    const upper = SPACE.top + SPACE.upper;
    return panel ? upper + SPACE.gap + SPACE.lower : upper;
  }

  y(tokens) { return this.floor(0) - tokens / this.most * SPACE.upper; }

  grid() {
    const made = [];
    for (const tokens of ticks(this.most, 4)) {
      made.push(svg("line", { class: "rule", x1: SPACE.left, x2: this.width - SPACE.right, y1: this.y(tokens), y2: this.y(tokens) }));
      made.push(label(SPACE.left - 10, this.y(tokens) + 4, short(tokens), "end"));
    }
    for (const seq of ticks(head, this.width < 600 ? 4 : 8)) {
      if (seq) made.push(label(this.x(seq), this.height - 6, `#${seq}`, "middle"));
    }
    const total = totalAt[head];
    made.push(label(SPACE.left - 10, this.floor(1) - SPACE.lower + 8, short(total), "end"));
    made.push(label(SPACE.left, this.floor(1) - SPACE.lower - 8, "added in all", "start", "title"));
    made.push(label(SPACE.left, SPACE.top - 9, "in the window", "start", "title"));
    return made;
  }

  panels() {
    const most = Math.max(1, totalAt[head], ...columns(totalAt, 200).map(([, high]) => high));
    const low = (tokens) => this.floor(1) - tokens / most * SPACE.lower;
    return [
      ...this.area(activeAt, (tokens) => this.y(tokens), this.floor(0), "active"),
      ...this.area(totalAt, low, this.floor(1), "total"),
    ];
  }

  // A line of steps and the area below it; where records stand closer than pixels their extremes are drawn.
  area(series, y, floor, kind) {
    const line = [];
    const inner = Math.max(1, Math.floor(this.width - SPACE.left - SPACE.right));
    if (head <= 2 * inner) {
      for (let seq = 1; seq <= head; seq += 1) {
        line.push(`${line.length ? "H" : "M"}${this.x(seq).toFixed(1)}${line.length ? "" : ` ${y(series[seq]).toFixed(1)}`}`);
        if (seq > 1) line.push(`V${y(series[seq]).toFixed(1)}`);
      }
    } else {
      columns(series, inner).forEach(([first, most, least, last], at) => {
        const x = (SPACE.left + at).toFixed(0);
        line.push(`${line.length ? "L" : "M"}${x} ${y(first).toFixed(1)}L${x} ${y(most).toFixed(1)}L${x} ${y(least).toFixed(1)}L${x} ${y(last).toFixed(1)}`);
      });
    }
    const drawn = line.join("");
    const closed = `${drawn}V${floor}H${this.x(1).toFixed(1)}Z`;
    return [svg("path", { class: `area ${kind}`, d: closed }), svg("path", { class: `line ${kind}`, d: drawn })];
  }

  levels() {
    const known = limits.model !== null;
    const made = limits.trigger === null ? [] : [
      [limits.target, "target", `target ${n(limits.target)}`],
      [limits.trigger, "trigger", known ? `trigger ${n(limits.trigger)}` : `limit and trigger ${n(limits.trigger)}`],
    ];
    if (this.fits) made.push([limits.model, "limit", `the model takes ${n(limits.model)}`]);
    return made;
  }

  // Their names are in the key: here they would cover what is drawn.
  lines() {
    return this.levels().map(([tokens, kind]) =>
      svg("line", { class: `level ${kind}`, x1: SPACE.left, x2: this.width - SPACE.right, y1: this.y(tokens), y2: this.y(tokens) }));
  }

  events() {
    const heads = compressions.length <= MOST_MARKS;
    const made = [];
    for (const step of steps) {
      const x = this.x(step.seq);
      if (step.kind === "compressed") {
        const undone = step.state === "undone" ? " undone" : "";
        const [top, low] = [this.y(activeAt[step.seq - 1]), this.y(step.active)];
        made.push(svg("line", { class: `drop${undone}`, x1: x, x2: x, y1: top, y2: low }));
        if (heads) made.push(svg("path", { class: `mark${undone}`, d: `M${x} ${low + 2}l-4.5 -7h9z` }));
      } else if (step.kind === "undone") {
        made.push(svg("circle", { class: "mark back", cx: x, cy: this.y(step.active), r: 4 }));
      } else if (step.kind === "cleared") {
        made.push(svg("line", { class: "cleared", x1: x, x2: x, y1: SPACE.top, y2: this.floor(1) }));
      } else if (step.kind === "usage") {
        made.push(svg("line", { class: "usage", x1: x, x2: x, y1: this.floor(0), y2: this.floor(0) + 5 }));
      }
    }
    return made;
  }

  drawKey() {
    const has = (kind) => steps.some((step) => step.kind === kind);
    const rows = [["active", "in the window"], ["total", "added in all"]];
    if (compressions.length) rows.push(["mark", "compression"]);
    if (has("undone")) rows.push(["back", "taken back"]);
    if (has("cleared")) rows.push(["cleared", "cleared"]);
    if (has("usage")) rows.push(["usage", "usage reported"]);
    rows.push(...this.levels().map(([, kind, said]) => [kind, said]));
    byId("key").append(...rows.map(([kind, said]) => el("li", {}, el("span", { class: `sign ${kind}` }), said)));
    if (compressions.length && limits.trigger !== null && this.highest > limits.trigger) {
      byId("peaks").textContent = "A peak above the trigger is the window before its compression. No context was larger than its budget: one that was built there was cut to fit.";
    }
  }

  show(seq) {
    this.moment = seq;
    if (!this.cursor) return;
    const [x, y] = [this.x(seq), this.y(activeAt[seq])];
    this.cursor.replaceChildren(
      svg("line", { x1: x, x2: x, y1: SPACE.top, y2: this.floor(1) }), svg("circle", { cx: x, cy: y, r: 5 }));
  }

  hover(event) {
    const inside = event && this.at(event) >= SPACE.left - 8 && this.at(event) <= this.width - SPACE.right + 8;
    this.tip.classList.toggle("shown", Boolean(inside));
    this.pointer?.classList.toggle("shown", Boolean(inside));
    if (!inside) return;
    const seq = this.seqAt(this.at(event));
    const x = this.x(seq);
    this.pointer.setAttribute("x1", x);
    this.pointer.setAttribute("x2", x);
    const step = steps[stepAt[seq]];
    this.tip.replaceChildren(
      el("b", {}, `#${seq} `), step ? stepTitle(step) : SINGLE[entries[addedAt[seq]].type],
      el("br"), `${n(activeAt[seq])} tokens in the window`, el("br"), `${n(totalAt[seq])} added in all`);
    const wide = this.tip.offsetWidth;
    this.tip.style.left = `${Math.min(this.width - wide - 4, Math.max(4, x + (x > this.width / 2 ? -wide - 12 : 12)))}px`;
  }
}

// First, most, least and last value of a series in each of so many columns.
function columns(series, count) {
  const made = [];
  for (let column = 0; column < Math.min(count, head); column += 1) {
    const start = 1 + Math.floor(column * head / Math.min(count, head));
    const end = Math.max(start, Math.floor((column + 1) * head / Math.min(count, head)));
    let [most, least] = [series[start], series[start]];
    for (let seq = start; seq <= end; seq += 1) {
      most = Math.max(most, series[seq]);
      least = Math.min(least, series[seq]);
    }
    made.push([series[start], most, least, series[end]]);
  }
  return made;
}

function ticks(most, count) {
  const rough = most / count;
  const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1)));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((each) => each >= rough) || power;
  const whole = Math.max(1, Math.round(step));
  return Array.from({ length: Math.floor(most / whole) + 1 }, (_, at) => at * whole);
}

function short(tokens) {
  if (tokens < 1000) return n(tokens);
  return tokens < 1e6 ? `${Number((tokens / 1e3).toFixed(1))}k` : `${Number((tokens / 1e6).toFixed(2))}M`;
}

function label(x, y, said, anchor, kind = "") {
  return svg("text", { x, y, class: `label ${kind}`, "text-anchor": anchor }, said);
}
