"""`memman demo`: a log goes through a manager, and every promise is checked after every message.

After each message a context is built in two providers' formats and checked against their rules. At the
end the session is compared with the log, and its export with the same export after an import.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from memman import events
from memman.config import MemoryConfig
from memman.entries import NO_JSON, Entry, NewEntry, text_of
from memman.errors import BudgetExceeded
from memman.formats.rules import check
from memman.manager import MemoryManager
from memman_cli import display, options
from memman_cli.answers import DemoAnswer, DemoCompression, write_answer
from memman_cli.commands.compression import enough_budget
from memman_cli.demo_log import DEMO_RULES, demo_messages
from memman_cli.errors import FindingError, UnusableError
from memman_cli.files import STDIN, File
from memman_cli.logs import Log, log_in, read_log
from memman_cli.report.usage import usage_of
from memman_cli.sessions import check_target, save
from memman_cli.words import counter_note, plural

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

SESSION = "demo"
_TARGETS = ("openai-chat", "anthropic")
# The words for a method: for one entry, and for several.
_METHODS = {
    "stub": ("1 result cleared", "{} results cleared"),
    "fold": ("1 repeat folded", "{} repeats folded"),
    "summary": ("summary of 1 entry", "summary of {} entries"),
    "outline": ("outline of 1 entry", "outline of {} entries"),
    "drop": ("1 entry dropped", "{} entries dropped"),
    "clip": ("1 entry clipped", "{} entries clipped"),
}


@click.command()
@click.option("--file", "path", metavar="LOG", help='A log of your own; "-" reads stdin.')
@options.budget("The context window to play it in, in tokens.", default="8k")
@options.model
@click.option(
    "-o",
    "--output",
    default="memman-demo.json",
    show_default=True,
    help="The session file to write.",
)
@options.force
@options.json
def demo(
    path: str | None, budget: int, model: str | None, output: str, force: bool, as_json: bool
) -> None:
    """Play a long agent conversation through a small window.

    Without --file it is a generated one: a coding agent's working day. Each message is added as an agent
    would add it; then a context for OpenAI and one for Anthropic is built and checked.
    """
    if output == STDIN:
        raise UnusableError("stdout is for the report; name a file for the session with -o")
    log = bundled_log() if path is None else read_log(path)
    check_target(output, SESSION, force)
    run = Run(log, budget, model or "gpt-4o", () if path else DEMO_RULES)
    answer = _play(run)
    enough = _enough_budget(log, answer)
    answer = msgspec.structs.replace(answer, session_file=output, enough=enough)
    answer = msgspec.structs.replace(answer, faults=_faults(answer))
    size = save(run.memory.export_session(SESSION), output, force)
    if as_json:
        write_answer(answer)
    else:
        _show(answer, output, size)
    if answer.faults:
        raise FindingError("; ".join(answer.faults))


def bundled_log() -> Log:
    """Return the conversation of the demo: a coding agent's working day."""
    lines = "".join(json.dumps(message) + "\n" for message in demo_messages())
    return log_in(File("a coding agent's working day", data=lines.encode()))


# ---------------------------------------------------------------- the run


class Run:
    """Plays one log into one session, and keeps the results of all checks.

    `rules` are texts of its first message that each context should have.
    """

    def __init__(self, log: Log, budget: int, model: str | None, rules: Sequence[str] = ()) -> None:
        self.log = log
        self._rules = rules
        self._with_rules = 0
        self.budget = budget
        self.model = model
        self.memory = MemoryManager(model=model, config=MemoryConfig(max_tokens=budget))
        # As the session's own settings, they are in its file.
        self.memory.update_config(SESSION, model=model, max_tokens=budget)
        head = [("message", "system", log.system)] if log.system else []
        own = [(each.type, each.role, each.content) for each in log.new_entries]
        self._expected: list[tuple[str, str, Any]] = [*head, *own]
        self._compressions: list[DemoCompression] = []
        self._contexts = dict.fromkeys(_TARGETS, 0)
        self._largest = self._over = 0
        self._refused: list[str] = []
        self._required: int | None = None
        self._violations: list[str] = []

    def play(
        self,
        on_compression: Callable[[DemoCompression], None] = lambda _: None,
        on_message: Callable[[], None] = lambda: None,
    ) -> DemoAnswer:
        """Add every message and return the results."""
        added: list[str] = []
        happened: list[events.CompressionResult] = []

        def remember(_sender: Any, event: events.CompressionResult) -> None:
            happened.append(event)

        with events.compressed.connected_to(remember, sender=self.memory):
            for ids in self._add_messages():
                added += ids
                for event in happened:
                    self._compressions.append(self._compression(event, len(added)))
                    on_compression(self._compressions[-1])
                happened.clear()
                active = self.memory.get_active_entries(SESSION)
                if {entry.role for entry in active} != {"system"}:  # a context needs more than that
                    for target in _TARGETS:
                        self._build(target, len(added))
                on_message()
        return self._answer(added)

    def _add_messages(self) -> Iterator[list[str]]:
        """Add the log message by message, or entry by entry; yield the ids of the new entries."""
        if self.log.system:
            yield [self.memory.add_system_message(SESSION, self.log.system).id]
        if self.log.read_only:
            for new_entry in self.log.new_entries:
                yield [_add_entry(self.memory, new_entry).id]
            return
        for message in self.log.messages:
            added = self.memory.add_messages(SESSION, [message], self.log.format)
            yield [entry.id for entry in added]

    def _compression(self, event: events.CompressionResult, entries: int) -> DemoCompression:
        counts = Counter[str]()
        for item in event.replacements:
            counts[item.method] += len(item.ids)
        return DemoCompression(
            number=len(self._compressions) + 1,
            entry=entries,
            tokens_before=event.tokens_before,
            tokens_after=event.tokens_after,
            reason=event.reason,
            replaced={method: counts[method] for method in _METHODS if counts[method]},
        )

    def _build(self, target: str, entries: int) -> None:
        """Build a context and check it."""
        try:
            context = self.memory.build_context(SESSION, format=target)
        except BudgetExceeded as error:
            self._refused.append(f"{target} after entry {entries}: {error}")
            self._required = max(self._required or 0, error.required)
            return
        self._contexts[target] += 1
        tokens = context.tokens.tokens
        self._largest = max(self._largest, tokens)
        self._over += tokens > self.budget
        text = str(context.messages)
        self._with_rules += all(rule in text for rule in self._rules)
        for fault in check(context.messages, target, system=context.system):
            where = f"{target} after entry {entries}, message {fault.index}"
            self._violations.append(f"{where}: {fault.rule}: {fault.message}")

    def _answer(self, added: list[str]) -> DemoAnswer:
        count = self.memory.count_tokens(self.log.name)
        return DemoAnswer(
            log=self.log.name,
            format=self.log.format,
            model=self.model,
            counter=count.counter,
            method=count.method,
            accuracy=count.accuracy,
            budget=self.budget,
            messages=len(self.log),
            entries=len(self._expected),
            tokens=self.memory.get_stats(SESSION).total_tokens,
            compressions=tuple(self._compressions),
            contexts=self._contexts,
            with_rules=self._with_rules if self._rules else None,
            largest=self._largest,
            over_budget=self._over,
            refused=tuple(self._refused),
            required=self._required,
            violations=tuple(self._violations),
            entries_lost=self._lost(added),
            import_equals_export=self._round_trip(),
            usage=usage_of(self.memory, SESSION),
        )

    def _lost(self, added: list[str]) -> int:
        """Return how many entries of the log are missing, changed or out of place in the session."""
        kept = [
            (entry.id, entry.type, entry.role, entry.content)
            for entry in self.memory.get_entries(SESSION)
        ]
        came = [(name, *fact) for name, fact in zip(added, self._expected, strict=False)]
        changed = sum(one != other for one, other in zip(came, kept, strict=False))
        return changed + abs(len(self._expected) - len(kept))

    def _round_trip(self) -> bool:
        state = self.memory.export_session(SESSION)
        other = MemoryManager()
        other.import_session(state.to_json(), trust_settings=True)
        return other.export_session(SESSION) == state


def _add_entry(memory: MemoryManager, new_entry: NewEntry) -> Entry:
    """Add one entry of a program's log, as an agent would have added it."""
    common: dict[str, Any] = {"message_id": new_entry.message_id}
    if new_entry.metadata_json is not NO_JSON:
        common["metadata"] = msgspec.json.decode(new_entry.metadata_json)
    name, content = new_entry.name or "", new_entry.content
    match new_entry.type:
        case "tool_call":
            common["call_id"] = new_entry.call_id
            return memory.add_tool_call(SESSION, name, text_of(content), **common)
        case "tool_result":
            common |= {"call_id": new_entry.call_id, "is_error": new_entry.is_error}
            return memory.add_tool_result(SESSION, name, content, **common)
        case "context":
            return memory.add_context(SESSION, content, name, **common)
    add = {
        "user": memory.add_user_message,
        "assistant": memory.add_assistant_message,
        "system": memory.add_system_message,
    }
    return add[new_entry.role](SESSION, content, **common)


def _enough_budget(log: Log, answer: DemoAnswer) -> int | None:
    """Return a budget at which all contexts can be built; None if none is needed or found."""

    def required_at(budget: int) -> int | None:
        return Run(log, budget, answer.model).play().required

    if answer.required is None:
        return None
    return enough_budget(answer.budget, answer.required, required_at)


def _faults(answer: DemoAnswer) -> tuple[str, ...]:
    """Return the broken promises, each with an example."""
    faults = []
    if answer.over_budget:
        faults.append(f"{plural(answer.over_budget, 'context is', 'contexts are')} over budget")
    if answer.required is not None:
        refused = plural(len(answer.refused), "context")
        enough = f"; a budget of {answer.enough:,} is enough" if answer.enough else ""
        faults.append(
            f"{refused} could not be built within {answer.budget:,} tokens, the largest needs "
            f"{answer.required:,}{enough}"
        )
    if answer.violations:
        broken = plural(len(answer.violations), "rule is", "rules are")
        faults.append(f"{broken} broken, the first is {answer.violations[0]}")
    if answer.entries_lost:
        lost = plural(answer.entries_lost, "entry is", "entries are")
        faults.append(f"{lost} missing or changed in the log")
    if not answer.import_equals_export:
        faults.append("an import of the export differs from it")
    return tuple(faults)


# ---------------------------------------------------------------- the report


def _play(run: Run) -> DemoAnswer:
    """Play with live progress on a terminal, and with plain lines otherwise; both on stderr."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.text import Text

    console = display.open_console("stderr")
    count = run.memory.count_tokens(run.log.name)
    messages = plural(len(run.log), f"{run.log.format} message")
    opening: list[Text | str] = [
        Text(f"Playing {run.log.name} through {run.budget:,} tokens", "bold"),
        f"  {messages}, {counter_note(count, run.model)}",
        "",
    ]
    display.print_lines(console, opening)
    columns = (TextColumn("      "), BarColumn(40), MofNCompleteColumn(), TextColumn("messages"))
    hidden = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task("", total=len(run.log))

        def show(done: DemoCompression) -> None:
            display.print_lines(console, [_compression_line(done, display.arrow(console))])

        return run.play(show, lambda: bar.advance(task))


def _compression_line(done: DemoCompression, arrow: str) -> str:
    """Return a compression as one line, with its reason unless that is the budget."""
    methods = [_METHODS[method][count > 1].format(count) for method, count in done.replaced.items()]
    cause = done.reason.partition(";")[0]
    why = "" if "over max_tokens" in cause else f" ({cause})"
    change = f"{done.tokens_before:>6,} {arrow} {done.tokens_after:>5,} tokens"
    return f"{f'#{done.number}':>5}  entry {done.entry:<4} {change}  {', '.join(methods)}{why}"


def _show(answer: DemoAnswer, output: str, size: int) -> None:
    from rich.text import Text

    console = display.open_console()
    wrote = f"the session is in {output} ({size / 1000:,.0f} kB)"
    command, file = options.own_command(), shlex.quote(output)
    budget = answer.enough or answer.budget // 2 or 1
    suggestions = (
        f"  {command} show {file} --active",
        f"  {command} stats {file}",
        f"  {command} plan {file} --budget {budget}",
        f"  {command} export {file} -t anthropic",
    )
    lines: list[Text | str] = [
        "",
        *display.usage_lines(console, answer.usage),
        "",
        Text("Checked after every message", "bold"),
        *_checks(answer, console),
        "",
        Text.assemble(("Try next", "bold"), f"   {wrote}"),
        *suggestions,
    ]
    display.print_lines(console, lines)


def _checks(answer: DemoAnswer, console: Console) -> Iterator[Text]:
    """Yield a line for each promise: whether it was kept, its number, and the details."""
    built = sum(answer.contexts.values())
    targets = ", ".join(f"{count:,} {target}" for target, count in answer.contexts.items())
    over, broken, lost = answer.over_budget, len(answer.violations), answer.entries_lost
    kept = f"{answer.entries:,} came in, {answer.entries - lost:,} are in the log"
    same = answer.import_equals_export
    yield _check(console, not answer.refused, "contexts built", f"{built:,}", targets)
    if built:
        largest = f"largest {answer.largest:,}"
        yield _check(console, not over, "over budget", f"{over:,}", largest)
        yield _check(console, not broken, "rules broken", f"{broken:,}", "of both providers")
        if answer.with_rules is not None:
            sign = True if answer.with_rules == built else None
            where = "every request" if sign else f"{answer.with_rules:,} requests"
            yield _check(console, sign, "user rules", "kept" if sign else "", f"in {where}")
    else:
        yield _check(console, None, "over budget", "not checked", "")
        yield _check(console, None, "rules broken", "not checked", "")
    yield _check(console, not lost, "entries lost", f"{lost:,}", kept)
    value = "equal" if same else "differs"
    yield _check(console, same, "import(export)", value, "the session, read back")


def _check(console: Console, kept: bool | None, name: str, value: str, details: str) -> Text:
    """Return the line of a promise; `kept` is None if it was not checked."""
    from rich.text import Text

    unicode = display.has_unicode(console)
    if kept is None:
        sign = ("-" if unicode else "--", "dim")
    elif kept:
        sign = ("✓" if unicode else "ok", "green")
    else:
        sign = ("✗" if unicode else "!!", "bold red")
    line = Text.assemble("  ", sign, f" {name:<15}{value:>8}")
    return line.append(f"   {details}", "dim") if details else line
