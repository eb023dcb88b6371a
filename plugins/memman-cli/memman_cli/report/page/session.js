// The data of the page, and the window of any moment, folded from what each step did to it.

const entries = [];
const steps = [];
const blocks = [];
const values = [];
const lists = { entries, steps, blocks, values };
let report = {};
for (const block of document.querySelectorAll("script[data-name]")) {
  const read = JSON.parse(block.textContent);
  if (block.dataset.name === "about") report = read;
  else for (const each of read) lists[block.dataset.name].push(each);
}
const { head, stats, usage, limits, shares, recalled } = report;

// Where an entry is in the log: one that a compression made has the compression's place and its own number there.
const addressOf = (entry) => `#${entry.seq}${entry.replacement ? `.${entry.replacement}` : ""}`;

const addedAt = new Int32Array(head + 1).fill(-1); // place in the log -> number of the entry
const stepAt = new Int32Array(head + 1).fill(-1); // place in the log -> number of the step
const activeAt = new Float64Array(head + 1); // tokens in the window after each record
const totalAt = new Float64Array(head + 1); // tokens added until then

entries.forEach((entry, number) => { if (entry.step === undefined) addedAt[entry.seq] = number; });
steps.forEach((step, number) => { stepAt[step.seq] = number; });
for (let seq = 1; seq <= head; seq += 1) {
  const step = steps[stepAt[seq]];
  const tokens = addedAt[seq] < 0 ? 0 : entries[addedAt[seq]].tokens;
  activeAt[seq] = step ? step.active : activeAt[seq - 1] + tokens;
  totalAt[seq] = step ? step.total : totalAt[seq - 1] + tokens;
}

const compressions = steps.filter((step) => step.kind === "compressed");
const undoneBy = new Map(); // compression's step -> the step that took it back
steps.forEach((step) => { if (step.undoes !== undefined) undoneBy.set(steps[step.undoes], step); });

// The window once the record at `seq` was in the log: entries' numbers in order, and by number of each
// entry that is not in it the step that took it out.
function windowAt(seq) {
  let slots = [];
  let block; // the number of the outline, and of the entries before it
  const taken = new Map();
  for (let at = 1; at <= seq; at += 1) {
    if (addedAt[at] >= 0) slots.push(addedAt[at]);
    const step = steps[stepAt[at]];
    if (step) block = step.block;
    if (!step || !step.splices) continue;
    slots = spliced(slots, step.splices);
    for (const [, , come] of step.splices) for (const number of come) taken.delete(number);
    for (const number of spliced.gone) taken.set(number, step);
  }
  return { seq, slots, block, taken, shown: new Set(slots), tokens: activeAt[seq] };
}

function spliced(slots, splices) {
  const result = [];
  const gone = [];
  let done = 0;
  for (const [at, count, come] of splices) {
    for (; done < at; done += 1) result.push(slots[done]);
    for (; done < at + count; done += 1) gone.push(slots[done]);
    for (const number of come) result.push(number);
  }
  for (; done < slots.length; done += 1) result.push(slots[done]);
  spliced.gone = gone;
  return result;
}

function* numbersIn(spans) {
  for (const [first, last] of spans || []) for (let at = first; at <= last; at += 1) yield at;
}

// The added entries that the outline of a window represents, as spans.
function outlined(view) {
  if (!view.block) return [];
  view.outlined ||= entries.flatMap((entry, number) => (entry.step === undefined && isOutlined(view, number) ? [[number, number]] : []));
  return view.outlined;
}

function isOutlined(view, number) {
  const step = view.taken.get(number);
  const item = step && replacementIn(step, number);
  if (!item || item.entry === undefined) return Boolean(item) && item.method === "outline";
  return isOutlined(view, item.entry);
}

// The compressions to undo for one of them, the outermost first.
function undoOrder(step) {
  const found = new Set([step]);
  for (const each of found) for (const seq of each.folded_into || []) found.add(steps[stepAt[seq]]);
  return [...found].sort((one, other) => other.seq - one.seq);
}

// What undoes a compression: a command, or calls of the library; "" where nothing does.
function restoring(step) {
  if (report.undo === "" || !["in force", "folded"].includes(step.state)) return "";
  const due = undoOrder(step);
  if (report.undo) return `${report.undo} ${step.seq}${due.length > 1 ? " --outer" : ""} --in-place`;
  return due.map((each) => `memory.undo_compression(${JSON.stringify(report.session)}, ${JSON.stringify(each.id)})`).join("\n");
}

// What an entry that a compression made stands for.
function replacementOf(number) {
  const step = steps[entries[number].step];
  return step && step.replacements.find((item) => item.entry === number);
}

// The replacement of a step that speaks for an entry which it took out, or null where nothing does.
function replacementIn(step, number) {
  const made = replacementOf(number);
  const original = made ? made.originals[0][0] : number;
  const holds = (item) => item.originals.some(([first, last]) => first <= original && original <= last);
  return (step.replacements || []).find(holds) || null;
}
