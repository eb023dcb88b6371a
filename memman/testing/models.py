"""A model for tests of framework adapters: it checks every request and answers by a rule."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final
from zlib import crc32

import msgspec

from memman.counting.tools import read_tools
from memman.entries import text_of
from memman.errors import FormatError
from memman.formats import format_named
from memman.formats.lenient import read_messages
from memman.formats.rules import Violation, check
from memman.manager import MemoryManager

_NUMBERS: Final = itertools.count(1)  # of calls, unique in the process as a provider's ids are
_ANY: Final = 1_000_000_000  # tokens
_BODY: Final = "total = total + compute(row)\n" * 25  # of a tool's result: about 180 tokens
_ASKED: Final = re.compile(r"Which rate has (\S+)\?")


class ToolCallRequest(msgspec.Struct, frozen=True):
    """A tool call that the model requests: of `read`, with the argument `path`, or of `recall`."""

    call_id: str
    arguments: dict[str, str]
    name: str = "read"


class ModelReply(msgspec.Struct, frozen=True):
    """A reply of `FakeModel`, for the driver to spell in the framework's types.

    `native` is a signature or encrypted text to attach in the form that only the framework understands;
    "" for none. `input_tokens` and `output_tokens` are to be reported as usage.
    """

    text: str
    calls: tuple[ToolCallRequest, ...]
    native: str
    input_tokens: int
    output_tokens: int = 20


class ModelRequest(msgspec.Struct, frozen=True):
    """A request as the model received it, its price by the memory's counter, and the rules it breaks."""

    messages: list[Any]
    tokens: int
    billed: int
    violations: list[Violation]
    natives: tuple[str, ...]


class FakeModelError(Exception):
    """A scripted failure of `FakeModel`, such as a connection that breaks."""


class FakeOverflow(FakeModelError):
    """The request is over the limit of `FakeModel`; the text is OpenAI's."""


@dataclass(eq=False, repr=False)
class FakeModel:
    """A model that requests two tool calls after a user's message, and answers after their results.

    Asked "Which rate has src/module_1.py?", it answers by what the request has. If the file is not in it,
    the model calls the tool `recall` first; without this tool it has no answer.

    Args:
        memory: prices the requests.
        format: the format of the requests that the driver reports, with rules in `memman.formats.rules`.
        steps: rounds of two tool calls before the answer.
        factor: the billed tokens per token that `memory` counts.
        limit: the most tokens that the model takes; None for any number.
        fails: the numbers of the requests that raise `FakeModelError`, from 1.
        result: the text of every tool result; by default code that names its path.
        native: whether replies have a native part.
        holds: the number of the tool call that waits until it is cancelled, from 1; 0 for none.
        recalls: whether the driver is to give the tool `recall` to the agent.
        name: the name that the driver gives to the framework for this model.
        is_silent: whether a refusal names no limit, as those of gateways.
        numbers: of calls and answers, for models in several processes; by default unique in this process.
    """

    memory: MemoryManager
    format: str = "openai-chat"
    _: KW_ONLY
    steps: int = 1
    factor: float = 1.0
    limit: int | None = None
    fails: Collection[int] = ()
    result: str | None = None
    native: bool = False
    holds: int = 0
    recalls: bool = False
    numbers: Iterator[int] = _NUMBERS
    name: str = "memman-fake-model"
    is_silent: bool = False
    requests: list[ModelRequest] = field(default_factory=list, init=False)
    results: list[str] = field(default_factory=list, init=False)
    natives: list[str] = field(default_factory=list, init=False)
    overflows: int = field(default=0, init=False)
    holding: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _read: int = field(default=0, init=False)  # calls of `read`
    _done: int = field(default=0, init=False)  # steps of this turn
    _asked: str = field(default="", init=False)  # the path whose rate the turn asks for

    def reply(
        self,
        messages: Sequence[Any],
        *,
        system: str | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        natives: Sequence[str] = (),
    ) -> ModelReply:
        """Record a request and return the reply to it.

        Args:
            messages: the request's messages in `format`.
            system: the system prompt, if the framework sends it outside of the messages.
            tools: the definitions of all tools in the request, as `build_context` takes them.
            natives: the native parts in the request, as `ModelReply.native` gave them.

        Raises:
            FakeModelError: by `fails` or `limit`. The driver raises it to the framework, or the error
                that the framework's own models raise instead.
        """
        sent = [each.message for each in read_messages(list(messages), keep=True)]
        tokens = self._price(sent, system, tools)
        billed = round(self.factor * tokens)
        violations = check(sent, self.format)
        self.requests.append(ModelRequest(sent, tokens, billed, violations, tuple(natives)))
        if len(self.requests) in self.fails:
            raise FakeModelError(f"request {len(self.requests)} failed")
        if self.limit is not None and billed > self.limit:
            self.overflows += 1
            if self.is_silent:
                raise FakeOverflow(
                    "Error code: 400 - {'error': {'code': 'context_length_exceeded'}}"
                )
            raise FakeOverflow(
                f"This model's maximum context length is {self.limit} tokens. However, your messages "
                f"resulted in {billed} tokens. Please reduce the length of the messages."
            )
        [*_, newest] = format_named(self.format).parse(sent[-1:])
        if newest.type != "tool_result":
            asked = _ASKED.search(text_of(newest.content))
            self._done, self._asked = 0, asked[1] if asked else ""
        native = f"signature-{next(self.numbers)}=" if self.native else ""
        if native:
            self.natives.append(native)
        if self._asked:
            offered = {tool.name for tool in read_tools(tools or ())}
            text, calls = self._answer(sent, "recall" in offered)
        elif self._done == self.steps:
            text, calls = f"answer {next(self.numbers)}", ()
        else:
            numbers = (next(self.numbers), next(self.numbers))
            made = (ToolCallRequest(f"call-{n}", {"path": f"src/module_{n}.py"}) for n in numbers)
            text, calls = "", tuple(made)
        self._done += bool(calls)
        return ModelReply(text, calls, native, billed)

    def _answer(
        self, messages: Sequence[Any], can_recall: bool
    ) -> tuple[str, tuple[ToolCallRequest, ...]]:
        """Return the answer to the question for a rate, or the call that recalls it."""
        code = re.compile(rf"^# {re.escape(self._asked)}\nrate = (\d+)$", re.MULTILINE)
        entries = format_named(self.format).parse(messages)
        found = next(filter(None, (code.search(text_of(entry.content)) for entry in entries)), None)
        if found is None and can_recall and not self._done:
            call = ToolCallRequest(f"call-{next(self.numbers)}", {"query": self._asked}, "recall")
            return "", (call,)
        return found[1] if found else "I do not know.", ()

    def _price(self, messages: list[Any], system: Any, tools: Any) -> int:
        """Return the tokens of a request."""
        try:
            return self.memory.count_tokens(messages, system=system, tools=tools).tokens
        except FormatError:  # an unknown message
            fitted = self.memory.fit_messages(
                messages, format=self.format, budget=_ANY, system=system, tools=tools
            )
            return fitted.tokens.tokens

    async def read(self, path: str) -> str:
        """Read a file: the body of the tool `read` in an async framework."""
        self._read += 1
        if self._read == self.holds:
            self.holding.set()
            await asyncio.Event().wait()
        return self.read_sync(path)

    def read_sync(self, path: str) -> str:
        """Read a file: the body of the tool `read` if the framework runs without an event loop."""
        code = f"# {path}\nrate = {crc32(path.encode())}\n{_BODY}"
        self.results.append(code if self.result is None else self.result)
        return self.results[-1]
