// The head of the page: what the session is, in a sentence, a bar and a few figures.

const LABELS = {
  system_prompt: "system prompt", tools: "tool definitions", message: "messages", tool_call: "tool calls",
  tool_result: "tool results", context: "context", summary: "summaries", state: "outline", framing: "framing",
  free: "free",
};
const SINGLE = {
  message: "message", tool_call: "tool call", tool_result: "tool result", context: "context",
  summary: "summary", state: "outline", step: "change",
};
const HINTS = { framing: "sent around the entries, or set aside" };

const HIDDEN = {
  redacted: "Its entries are as a redactor left them.",
  none: "What was said is left out of it; numbers, times, types, the names of tools and ids are not.",
};

function drawSummary() {
  byId("session").append(name(report.session));
  byId("sentence").append(...sentence());
  drawBar();
  drawFacts();
  drawShares();
  const hidden = HIDDEN[report.content];
  byId("made").textContent = `Made by memman. This file loads nothing and sends nothing.${hidden ? ` ${hidden}` : ""}`;
}

function strong(text) { return el("strong", {}, text); }

function sentence() {
  const made = [
    strong(counted(stats.total_entries, "entry", "entries")), ` with ${n(stats.total_tokens)} tokens came in. `,
    "The window holds ", strong(usage.window === null ? n(usage.used) : `${n(usage.used)} of ${n(usage.window)}`), " tokens",
  ];
  if (usage.window !== null && usage.used > usage.window) made.push(el("em", { class: "over" }, `, ${n(usage.used - usage.window)} over its limit`));
  const held = compressions.filter((step) => step.state === "in force" || step.state === "folded").length;
  const taken = compressions.filter((step) => step.state === "undone").length;
  if (!compressions.length) return [...made, ". Nothing was ever compressed."];
  made.push(": ", strong(counted(held, "compression")), ` made room${taken ? `, ${n(taken)} more ${taken === 1 ? "was" : "were"} taken back` : ""}. `);
  return [...made, report.content === "none" ? "What was said is left out here." : "Every word that was replaced is still below."];
}

function drawBar() {
  const free = Math.max(0, usage.free);
  const parts = [...Object.entries(usage.parts), ["free", free]].filter(([, tokens]) => tokens > 0);
  const whole = Math.max(usage.window || 0, usage.used);
  for (const [type, tokens] of parts) {
    const piece = el("span", { class: `piece t-${type}`, title: `${LABELS[type] || type}: ${n(tokens)} tokens` });
    piece.style.flexGrow = String(tokens / whole);
    byId("bar").append(piece);
    byId("legend").append(el("li", { title: HINTS[type] },
      el("span", { class: `dot t-${type}` }), el("span", { class: "what" }, LABELS[type] || type),
      el("b", {}, n(tokens)), el("span", { class: "share" }, percent(tokens, usage.window || usage.used))));
  }
  const told = parts.map(([type, tokens]) => `${LABELS[type] || type} ${n(tokens)}`).join(", ");
  byId("bar").setAttribute("aria-label", `${n(usage.used)}${usage.window === null ? "" : ` of ${n(usage.window)}`} tokens: ${told}`);
}

function drawFacts() {
  const cost = stats.cost || {};
  const rows = [
    ["Model", report.model ? name(report.model) : "not named"],
    ["Counter", name(stats.counter || "none yet")],
    ["Entries", `${n(stats.active_entries)} in the window, ${n(stats.compressed_entries)} replaced`],
    ["Limits", limits.trigger === null ? "none known" : `${n(limits.trigger)} tokens${stats.max_entries ? `, ${n(stats.max_entries)} entries` : ""}`],
  ];
  const written = compressions.filter(blockOf).length + entries.filter((entry) => entry.step !== undefined && entry.type === "summary").length;
  if (written) rows.push(["Summaries", `${n(stats.summaries)} in the window, ${n(written)} written`]);
  if (cost.calls) rows.push(["Summarizer", costOf(cost)]);
  if (stats.drift !== null && stats.drift !== undefined) {
    const sign = stats.drift < 0 ? "−" : "+";
    rows.push(["Drift", `${sign}${Math.abs(100 * stats.drift).toFixed(1)} % reported over estimated`]);
  }
  rows.push(["From", span()]);
  for (const [term, said] of rows) byId("facts").append(el("div", {}, el("dt", {}, term), el("dd", {}, said)));
}

const MOST_SHARES = 10; // of tools, and of sources

// Tokens by tool and by source, and the largest entries, which are links.
function drawShares() {
  byId("advice").append(plain(shares.advice));
  const most = Math.max(1, ...[...shares.tools, ...shares.sources].map((each) => each.tokens),
    ...shares.largest.map((at) => entries[at].tokens));
  const row = (type, said, tokens) => {
    const taken = el("span", { class: `taken t-${type}` });
    taken.style.width = `${100 * tokens / most}%`;
    return el("li", {}, el("span", { class: "what" }, ...said), el("b", {}, n(tokens)),
      el("span", { class: "share" }, percent(tokens, shares.tokens)), el("span", { class: "meter", "aria-hidden": "true" }, taken));
  };
  const group = (title, rows) => (rows.length ? [el("div", {}, el("h3", {}, title), el("ul", {}, ...rows.slice(0, MOST_SHARES)),
    rows.length > MOST_SHARES ? el("p", { class: "hint" }, `and ${n(rows.length - MOST_SHARES)} more`) : null)] : []);
  const named = (type) => (each) => row(type, [el("code", {}, name(each.name)), ` ${counted(each.entries, "entry", "entries")}`], each.tokens);
  const large = (at) => {
    const entry = entries[at];
    return row(entry.type, [el("a", { href: `#${hashOf({ entry: at })}` }, addressOf(entry)), ` ${who(entry)} `,
      entry.name ? el("code", {}, name(entry.name)) : name(entry.text.slice(0, 60).replace(/\s+/g, " "))], entry.tokens);
  };
  byId("shares").append(...group("By tool", shares.tools.map(named("tool_result"))),
    ...group("By source", shares.sources.map(named("context"))), ...group("Largest entries", shares.largest.map(large)));
}

function costOf(cost) {
  if (!cost || !cost.calls) return "no model was asked";
  const billed = cost.input_tokens ? `, ${n(cost.input_tokens)} tokens in, ${n(cost.output_tokens || 0)} out` : "";
  const by = cost.model ? `${cost.model}: ` : "";
  return `${by}${counted(cost.calls, "call")}, ${(cost.seconds || 0).toFixed(1)} s${billed}`;
}

function span() {
  const times = entries.length ? [time(entries[0].at), time((steps[stepAt[head]] || entries[addedAt[head]]).at)] : [];
  if (!times.length) return "no entries";
  return times[0].slice(0, 10) === times[1].slice(0, 10) ? `${times[0].slice(0, 16)} to ${times[1].slice(11, 16)} UTC`
    : `${times[0].slice(0, 16)} to ${times[1].slice(0, 16)} UTC`;
}
