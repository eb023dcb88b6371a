"""Validity: requests of random histories against the providers' rules and their SDKs' request types.

    python -m benchmarks.validity [--requests N] [--seed N] [--show N]

Each history has the wire types of one of six formats in random order: with interruptions, late results,
retractions, deletions, compressions, undos, tools, other budgets and models. Each request, in its own
format or another, is checked by `memman.formats.rules`, which share no code with the renderers, and by the
request types of the SDKs that are installed, which know no other keys.
Exit codes: 0 no finding, 1 findings.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from itertools import count
from random import Random
from time import perf_counter
from typing import Any

import msgspec

from benchmarks.exchanges import EXCHANGES, Message, said, words
from benchmarks.tables import table
from memman import BudgetExceeded, MemoryConfig, MemoryManager, Refused
from memman.formats.rules import check
from memman.testing import FakeClock, sequential_ids

QUICK = 600
SEED = 20261128
_SESSION = "s"
_BUDGETS = (600, 1_500, 4_000, 20_000)
_MODELS = ("gpt-4.1", "claude-opus-4-6", "gemini-2.5-pro", None)
_TOOL = {"name": "find", "description": "Find a word.", "input_schema": {"type": "object"}}
_KEPT = 400  # characters of a reason

Validate = Callable[[list[Message]], str]
"""Returns why an SDK's types refuse a request, "" if they do not."""


class Finding(msgspec.Struct, frozen=True):
    """A broken rule of a request: `source` is the format of the history, `seed` makes it again."""

    form: str
    source: str
    rule: str
    reason: str
    seed: int
    messages: list[Message]


class Totals(msgspec.Struct):
    """The requests of one format."""

    requests: int = 0
    refused: int = 0
    seconds: float = 0.0
    findings: list[Finding] = []


# ---------------------------------------------------------------- the types of the SDKs


def validators() -> dict[str, Validate]:
    """Return the request types of the SDKs that are installed, by format."""
    made: dict[str, tuple[str, Callable[[], Validate]]] = {
        "anthropic": ("anthropic", _anthropic),
        "openai-responses": ("openai", _responses),
        "openai-chat": ("openai", _chat),
        "gemini": ("google.genai", _gemini),
        "bedrock": ("botocore", _bedrock),
    }
    return {form: make() for form, (module, make) in made.items() if _is_installed(module)}


def _is_installed(module: str) -> bool:
    with suppress(ModuleNotFoundError):  # the package above it is missing
        return find_spec(module) is not None
    return False


def _typed(kind: Any) -> Validate:
    """Return a validation by an SDK's `TypedDict`, which takes no key that it does not have."""
    from pydantic import ConfigDict, TypeAdapter, ValidationError

    adapter: TypeAdapter[Any] = TypeAdapter(list[kind], config=ConfigDict(extra="forbid"))

    def validate(messages: list[Message]) -> str:
        for number, message in enumerate(messages):
            try:
                _consume(adapter.validate_python([message]))
            except ValidationError as error:
                name = message.get("type", message.get("role"))
                return f"message {number} ({name}): {_reason(error, name)}"
        return ""

    return validate


def _consume(value: Any) -> None:
    """Read a validated value to its end: an `Iterable` is validated as it is read."""
    if isinstance(value, str | bytes | int | float | None):
        return
    for item in value.values() if isinstance(value, Mapping) else value:
        _consume(item)


def _reason(error: Any, name: object) -> str:
    """Return the errors of that type of a union whose own type or role is this one."""
    errors = error.errors(include_url=False)
    others = {
        each["loc"][:2]
        for each in errors
        if each["loc"][-1:] in (("type",), ("role",)) and each["input"] == name
    }
    own = [each for each in errors if each["loc"][:2] not in others] or errors
    listed = [f"{'.'.join(map(str, each['loc'][1:]))}: {each['msg']}" for each in own[:3]]
    return "; ".join(listed)[:_KEPT]


def _anthropic() -> Validate:
    from anthropic.types.beta import BetaMessageParam

    return _typed(BetaMessageParam)


def _responses() -> Validate:
    from openai.types.beta import BetaResponseInputItemParam

    return _typed(BetaResponseInputItemParam)


def _chat() -> Validate:
    from openai.types.chat import ChatCompletionMessageParam

    return _typed(ChatCompletionMessageParam)


def _gemini() -> Validate:
    from google.genai.types import Content
    from pydantic import TypeAdapter, ValidationError

    adapter = TypeAdapter(list[Content])

    def validate(messages: list[Message]) -> str:
        try:
            adapter.validate_python(messages)
        except ValidationError as error:
            return _reason(error, "")
        return ""

    return validate


def _bedrock() -> Validate:
    from botocore.loaders import Loader
    from botocore.model import ServiceModel
    from botocore.validate import ParamValidator

    from memman.formats.bedrock import sdk_messages

    service = ServiceModel(Loader().load_service_model("bedrock-runtime", "service-2"))
    shape = service.operation_model("Converse").input_shape

    def validate(messages: list[Message]) -> str:
        request = {"modelId": "m", "messages": sdk_messages(messages)}
        report = ParamValidator().validate(request, shape)
        return report.generate_report()[:_KEPT] if report.has_errors() else ""

    return validate


# ---------------------------------------------------------------- histories


class History:
    """A random history in one format; `requests` yields each request with its format."""

    def __init__(self, form: str, seed: int) -> None:
        self.form = form
        self._random = Random(seed)
        self._budget = self._random.choice(_BUDGETS)
        config = MemoryConfig(max_tokens=self._budget)
        self._memory = MemoryManager(
            counter="chars4",
            config=config,
            format=form,
            clock=FakeClock(),
            new_id=sequential_ids(),
            new_nonce=lambda: "0123abcd",
        )
        self._kinds = list(EXCHANGES[form])
        self._numbers = count(seed * 1_000 % 9_000_000)
        self._late: list[list[Message]] = []

    def requests(self, turns: int) -> Iterator[tuple[str, Any]]:
        """Yield the requests of so many turns as (format, context)."""
        with self._memory:
            for _ in range(turns):
                for _ in self._turn():
                    yield from self._request()
                    self._disturb()

    def _add(self, messages: Sequence[Message]) -> None:
        self._memory.add_messages(_SESSION, list(messages), self.form)

    def _turn(self) -> Iterator[None]:
        """Add a question, a few exchanges and an answer; yield where an agent would send a request."""
        random = self._random
        self._add([said(self.form, "user", words(random))])
        if self._late and random.random() < 0.5:
            self._add(self._late.pop())
        yield
        for _ in range(random.choice((0, 1, 1, 2, 3))):
            make = EXCHANGES[self.form][random.choice(self._kinds)]
            first, *others = make(random, next(self._numbers))
            self._add(first)
            chance = random.random()
            if others and chance < 0.15:  # interrupted; the results come later, or never
                yield
                self._late += others if chance < 0.08 else []
                return
            for messages in others:
                if random.random() < 0.3:
                    yield
                self._add(messages)
            yield
        if random.random() < 0.8:
            self._add([said(self.form, "assistant", words(random))])

    def _request(self) -> Iterator[tuple[str, Any]]:
        random = self._random
        form = self.form if random.random() < 0.7 else random.choice(list(EXCHANGES))
        how: dict[str, Any] = {}
        if random.random() < 0.2:
            how["budget"] = random.randint(300, self._budget)
        if random.random() < 0.2:
            how["tools"] = [_TOOL]
        if random.random() < 0.2:
            how["model"] = random.choice(_MODELS)
        if random.random() < 0.2:
            how["cache"] = "auto"
        yield form, lambda: self._memory.build_context(_SESSION, format=form, **how)

    def _disturb(self) -> None:
        """Do one of the things that happen to sessions, or mostly nothing."""
        random, memory = self._random, self._memory
        chance = random.random()
        with suppress(Refused, BudgetExceeded):
            if chance < 0.06:
                memory.compress(_SESSION, target_tokens=random.randint(100, self._budget))
            elif chance < 0.09:
                if any(entry.compressed for entry in memory.get_entries(_SESSION)):
                    memory.undo_compression(_SESSION)
            elif chance < 0.16:
                ids = [entry.id for entry in memory.get_entries(_SESSION, last=12)]
                some = random.sample(ids, min(len(ids), random.choice((1, 1, 2))))
                if chance < 0.12:
                    memory.retract(_SESSION, some)
                else:
                    memory.delete_entries(_SESSION, some)
            elif chance < 0.17:
                memory.pin(_SESSION, random.choice(memory.get_active_entries(_SESSION)).id)
            elif chance < 0.19:
                self._budget = random.choice(_BUDGETS)
                memory.update_config(_SESSION, max_tokens=self._budget)


def run(requests: int, seed: int = SEED) -> dict[str, Totals]:
    """Build and check so many requests; return the totals by format."""
    checked = validators()
    totals = {form: Totals() for form in EXCHANGES}
    for number in count():
        source = list(EXCHANGES)[number % len(EXCHANGES)]
        for form, build in History(source, seed + number).requests(12):
            if sum(each.requests for each in totals.values()) >= requests:
                return totals
            found = totals[form]
            began = perf_counter()
            try:
                context = build()
            except BudgetExceeded:
                found.refused += 1
                continue
            finally:
                found.seconds += perf_counter() - began
            found.requests += 1
            for rule, reason in _faults(form, context, checked.get(form)):
                found.findings.append(
                    Finding(form, source, rule, reason, seed + number, context.messages)
                )
    raise AssertionError("unreachable")


def _faults(form: str, context: Any, validate: Validate | None) -> Iterator[tuple[str, str]]:
    for broken in check(context.messages, form, system=context.system):
        yield broken.rule, f"message {broken.index}: {broken.message}"
    if validate is not None and (reason := validate(context.messages)):
        yield "SDK type", reason


def report(totals: Mapping[str, Totals]) -> str:
    """Return the table: format, requests, findings by rule, seconds."""
    rows = []
    for form, found in totals.items():
        rules = Counter(f"{each.rule} ({each.source})" for each in found.findings)
        listed = ", ".join(f"{rule} {times}" for rule, times in rules.most_common()) or "none"
        rows.append(
            [form, f"{found.requests:,}", f"{found.refused:,}", listed, f"{found.seconds:.1f}"]
        )
    return table(
        ["format", "requests", "over budget", "findings (format of the history)", "s"], rows
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.validity", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--requests", type=int, default=QUICK, help=f"{QUICK} by default")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument(
        "--show", type=int, default=5, help="reasons to print of each kind of finding"
    )
    options = parser.parse_args(arguments)
    totals = run(options.requests, options.seed)
    print(report(totals))
    shown: Counter[tuple[str, str, str]] = Counter()
    for finding in (each for found in totals.values() for each in found.findings):
        shown[finding.form, finding.source, finding.rule] += 1
        if shown[finding.form, finding.source, finding.rule] <= options.show:
            print(
                f"{finding.form} of {finding.source}, seed {finding.seed}: {finding.rule}: {finding.reason}"
            )
    return int(bool(shown))


if __name__ == "__main__":
    sys.exit(main())
