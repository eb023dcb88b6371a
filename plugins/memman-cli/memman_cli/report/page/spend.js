// What the requests cost: their input and what the provider read from its cache, and the running bill below.

const BILL = { left: 58, right: 18, top: 30, upper: 130, gap: 34, lower: 90, bottom: 24 };
const requests = [];
let summarized = 0; // dollars of the summaries since the last request; the newest go to the last one
for (const step of steps) {
  if (step.cost) summarized += step.cost.dollars || 0;
  if (step.kind !== "usage") continue;
  requests.push({
    at: requests.length, seq: step.seq, input: step.reported || 0, cached: step.cached || 0, broke: Boolean(step.broke),
    priced: step.charged !== undefined, paid: (step.charged || 0) + summarized, uncompressed: step.uncompressed || 0,
  });
  summarized = 0;
}
if (requests.length) requests[requests.length - 1].paid += summarized;

class SpendChart {
  constructor(place, choose) {
    this.place = place;
    this.priced = requests.some((each) => each.priced);
    this.most = 1.06 * Math.max(1, ...requests.map((each) => each.input));
    this.bills = this.priced ? [["paid", "paid"], ["uncompressed", "without compressions"]].map(running) : [];
    this.dearest = 1.06 * Math.max(1e-9, ...this.bills.map((bill) => bill.sums[requests.length]));
    place.addEventListener("click", (event) => choose(requests[this.requestAt(event)].seq));
    new ResizeObserver(() => this.draw()).observe(place);
    this.drawKey();
  }

  get inner() { return this.width - BILL.left - BILL.right; }
  get floor() { return BILL.top + BILL.upper; }
  get bottom() { return this.floor + (this.priced ? BILL.gap + BILL.lower : 0); }
  x(at) { return BILL.left + at / requests.length * this.inner; }
  y(tokens) { return this.floor - tokens / this.most * BILL.upper; }
  money(dollars) { return this.bottom - dollars / this.dearest * BILL.lower; }

  requestAt(event) {
    const at = Math.floor((event.clientX - this.place.getBoundingClientRect().left - BILL.left) / this.inner * requests.length);
    return Math.min(requests.length - 1, Math.max(0, at));
  }

  draw() {
    this.width = this.place.clientWidth;
    if (!this.width) return;
    const height = this.bottom + BILL.bottom;
    const drawn = svg("svg", {
      viewBox: `0 0 ${this.width} ${height}`, width: this.width, height, role: "img", "aria-label": this.told(),
    });
    drawn.append(...this.grid(), ...this.area("input", "sent"), ...this.area("cached", "read"), ...this.marks(), ...this.lines());
    this.place.replaceChildren(drawn);
  }

  told() {
    const input = sumOf(requests, "input");
    const said = `Input of ${counted(requests.length, "request")}: ${n(input)} tokens, ${percent(sumOf(requests, "cached"), input)} of them `
      + `from the provider's cache, which was lost ${counted(requests.filter((each) => each.broke).length, "time")}.`;
    if (!this.priced) return said;
    const [paid, whole] = this.bills.map((bill) => dollars(bill.sums[requests.length]));
    return `${said} They cost ${paid}, and ${whole} without compressions.`;
  }

  grid() {
    const made = [label(BILL.left, BILL.top - 15, "input of each request, tokens", "start", "title")];
    const rule = (y, said) => made.push(
      svg("line", { class: "rule", x1: BILL.left, x2: this.width - BILL.right, y1: y, y2: y }), label(BILL.left - 10, y + 4, said, "end"));
    for (const tokens of ticks(this.most, 3)) rule(this.y(tokens), short(tokens));
    if (this.priced) {
      made.push(label(BILL.left, this.floor + BILL.gap - 10, "the bill so far, US dollars", "start", "title"));
      rule(this.bottom, "$0");
      rule(this.money(this.dearest / 1.06), dollars(this.dearest / 1.06));
    }
    for (const at of ticks(requests.length, this.width < 600 ? 4 : 8)) {
      if (at && at <= requests.length) made.push(label(this.x(at - 0.5), this.bottom + 18, n(at), "middle"));
    }
    return made;
  }

  // Steps; requests that stand closer than pixels are joined to one with their mean.
  area(name, kind) {
    const width = Math.max(1, Math.ceil(requests.length / this.inner));
    const line = [`M${this.x(0)} ${this.floor}`];
    for (let at = 0; at < requests.length; at += width) {
      const some = requests.slice(at, at + width);
      line.push(`V${this.y(sumOf(some, name) / some.length).toFixed(1)}`, `H${this.x(at + some.length).toFixed(1)}`);
    }
    return [svg("path", { class: `sum ${kind}`, d: `${line.join("")}V${this.floor}Z` })];
  }

  marks() {
    const made = [];
    for (const step of compressions) {
      const before = requests.filter((each) => each.seq < step.seq).length;
      const x = this.x(before);
      made.push(svg("path", { class: "mark", d: `M${x} ${BILL.top + 2}l-4.5 -8h9z` }));
    }
    for (const { at, broke, input } of requests) {
      if (!broke) continue;
      const x = this.x(at + 0.5);
      made.push(svg("line", { class: "lost", x1: x, x2: x, y1: this.floor, y2: this.y(input) - 10 }));
    }
    return made;
  }

  lines() {
    return this.bills.map((bill) => svg("path", {
      class: `line ${bill.kind}`, d: bill.sums.map((sum, at) => `${at ? "L" : "M"}${this.x(at).toFixed(1)} ${this.money(sum).toFixed(1)}`).join(""),
    }));
  }

  drawKey() {
    const rows = [["read", "read from the cache"], ["sent", "the other input"]];
    if (compressions.length) rows.push(["mark", "compression"]);
    if (requests.some((each) => each.broke)) rows.push(["lost", "the cache was lost"]);
    rows.push(...this.bills.map((bill) => [bill.kind, bill.said]));
    byId("bill-key").append(...rows.map(([kind, said]) => el("li", {}, el("span", { class: `sign ${kind}` }), said)));
  }
}

function sumOf(list, name) { return list.reduce((sum, each) => sum + (each[name] || 0), 0); }

// The sums of one kind of amount before each request and at the end.
function running([kind, said]) {
  const sums = [0];
  for (const each of requests) sums.push(sums[sums.length - 1] + each[kind]);
  return { kind, said, sums };
}

function dollars(amount) {
  if (amount === 0 || amount >= 1) return `$${amount.toFixed(2).replace(/\B(?=(\d{3})+(?!\d))/g, ",")}`;
  return amount >= 0.00005 ? `$${amount.toFixed(4)}` : "under $0.0001";
}

function drawSpend(choose) {
  if (!requests.length) return;
  byId("spending").hidden = false;
  const input = sumOf(requests, "input");
  const lost = requests.filter((each) => each.broke).length;
  const rows = [
    ["Requests", n(requests.length)], ["Input", `${n(input)} tokens`],
    ["Read from the cache", percent(sumOf(requests, "cached"), input)], ["Cache lost", counted(lost, "time")],
  ];
  const spend = stats.spend;
  if (spend) {
    const total = spend.input + spend.cached + spend.written + spend.output + spend.summaries;
    rows.unshift(["Paid", dollars(total)], ["Without compressions", dollars(spend.uncompressed)]);
    for (const name of ["input", "cached", "written", "output", "summaries"]) {
      if (spend[name]) rows.push([`For ${PARTS[name]}`, dollars(spend[name])]);
    }
    if (spend.unpriced) rows.push(["Without a known price", counted(spend.unpriced, "request")]);
  }
  for (const [term, said] of rows) byId("bill-facts").append(el("div", {}, el("dt", {}, term), el("dd", {}, said)));
  new SpendChart(byId("bill"), choose);
}

const PARTS = { input: "other input", cached: "reading the cache", written: "writing to the cache", output: "replies", summaries: "summaries" };
