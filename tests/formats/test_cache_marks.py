"""`cache="auto"`: where the marks are, that providers accept them, and what a cache then reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pytest

from memman import InvalidInput, MemoryConfig, MemoryManager
from memman.counting.models import model_ref
from memman.formats import Rendering, format_named
from memman.formats.bedrock import sdk_messages
from memman.formats.cache_marks import marks_of
from memman.formats.rules import check
from memman.protocols import CachePlace, CacheRequest
from memman.testing.formats import CONVERSATIONS, window_of

pytest.importorskip("anthropic")
pytest.importorskip("botocore")
pytest.importorskip("pydantic")

from anthropic.types import MessageParam
from botocore.session import get_session
from botocore.validate import ParamValidator
from pydantic import TypeAdapter

pytestmark = [pytest.mark.package("anthropic"), pytest.mark.package("boto3")]
CLAUDE = TypeAdapter(list[MessageParam])
CONVERSE = (
    get_session().get_service_model("bedrock-runtime").operation_model("Converse").input_shape
)

Message = dict[str, Any]
SYSTEM = "You review a small Python project."
TOOLS: dict[str, list[Message]] = {
    "anthropic": [
        {"name": "read", "input_schema": {"type": "object"}},
        {"name": "find", "input_schema": {"type": "object"}},
    ],
    "bedrock": [{"toolSpec": {"name": "read", "inputSchema": {"json": {"type": "object"}}}}],
}
FORMATS = ("anthropic", "bedrock")
WIDE = MemoryConfig(max_tokens=100_000, max_entries=None)
POINT = {"cachePoint": {"type": "default"}}
MARK = {"type": "ephemeral"}
_LOOK_BACK = 20  # blocks


class PrefixCache:
    """A provider's cache: it reads the longest prefix that was written, near a mark of the request."""

    def __init__(self) -> None:
        self._written: set[str] = set()

    def request(self, context: Any) -> tuple[int, int, int]:
        """Send a request; return its blocks, and how many were read and written."""
        blocks, marks = [], []
        for part, marked in _parts(context):
            blocks.append(part)
            if marked:
                marks.append(len(blocks))
        assert len(marks) <= 4
        near = (end for mark in marks for end in range(mark, max(0, mark - _LOOK_BACK), -1))
        read = max((end for end in near if repr(blocks[:end]) in self._written), default=0)
        self._written |= {repr(blocks[:mark]) for mark in marks}
        return len(blocks), read, max([read, *marks])


def _parts(context: Any) -> Iterator[tuple[Any, bool]]:
    """Yield the blocks of a request in the order of the provider, and whether each is marked."""
    system = context.system
    groups = [("tools", context.tools or [])]
    groups += [("system", system if isinstance(system, list) else [{"text": system}])]
    groups += [
        (
            message["role"],
            message["content"]
            if isinstance(message["content"], list)
            else [{"type": "text", "text": message["content"]}],
        )
        for message in context.messages
    ]
    for group, blocks in groups:
        for number, block in enumerate(blocks):
            if "cachePoint" not in block:
                behind = blocks[number + 1] if number + 1 < len(blocks) else {}
                kept = {key: value for key, value in block.items() if key != "cache_control"}
                yield (group, kept), "cache_control" in block or "cachePoint" in behind


def sent(memory: MemoryManager, form: str, **build: Any) -> Any:
    return memory.build_context(
        "s", format=form, system=SYSTEM, tools=TOOLS[form], cache="auto", **build
    )


def turn(memory: MemoryManager, number: int, size: int = 40, calls: int = 1) -> None:
    for call in range(calls):
        memory.add_tool_call("s", "read", {"path": f"{number}.py"}, call_id=f"c{number}-{call}")
    for call in range(calls):
        text = f"line {number} of a file " * size
        memory.add_tool_result("s", "read", text, call_id=f"c{number}-{call}")


def marked(messages: list[Message]) -> list[tuple[int, int]]:
    """Return (message, block) of each mark; a cache point belongs to the block before it."""
    found = []
    for index, message in enumerate(messages):
        blocks = message["content"]
        if isinstance(blocks, list):
            points = 0
            for number, block in enumerate(blocks):
                points += "cachePoint" in block
                if "cachePoint" in block or "cache_control" in block:
                    found.append((index, number - points))
    return found


# ---------------------------------------------------------------- what the cache reads


@pytest.mark.parametrize("form", FORMATS)
def test_head_is_read_from_the_cache_after_a_compression(form: str) -> None:
    compressed: list[Any] = []
    memory = MemoryManager(config=MemoryConfig(max_tokens=4_000, max_entries=None), format=form)
    memory.on("compressed", compressed.append)
    memory.add_user_message("s", "Is there a bug?")
    cache, head = PrefixCache(), len(TOOLS[form]) + 1
    previous = cache.request(sent(memory, form))[0]
    for number in range(60):
        before = len(compressed)
        turn(memory, number)
        blocks, read, written = cache.request(sent(memory, form))
        assert written == blocks
        assert read >= head
        assert read == previous or len(compressed) > before
        previous = blocks
    assert len(compressed) > 3
    memory.close()


@pytest.mark.parametrize("form", FORMATS)
def test_previous_request_is_read_behind_many_parallel_calls(form: str) -> None:
    memory = MemoryManager(config=WIDE, format=form)
    memory.add_user_message("s", "Is there a bug?")
    cache = PrefixCache()
    previous = cache.request(sent(memory, form))[0]
    for number in range(4):
        turn(memory, number, size=1, calls=24)
        blocks, read, _ = cache.request(sent(memory, form))
        assert read == previous
        previous = blocks
    memory.close()


def test_previous_request_is_known_after_a_restart(tmp_path: Any) -> None:
    cache, previous = PrefixCache(), 0
    for number in range(4):
        with MemoryManager(tmp_path / "chat.db", config=WIDE, format="anthropic") as memory:
            memory.add_user_message("s", f"Question {number}")
            blocks, read, _ = cache.request(sent(memory, "anthropic"))
            turn(memory, number, size=1, calls=24)
        assert read == previous
        previous = blocks


# ---------------------------------------------------------------- where the marks are


def test_anthropic_marks_system_compressed_part_and_two_ends() -> None:
    memory = MemoryManager(config=MemoryConfig(max_tokens=3_000, max_entries=None))
    memory.add_user_message("s", "Is there a bug?")
    for number in range(40):
        turn(memory, number)
    memory.compress("s")
    turn(memory, 40)
    context = sent(memory, "anthropic")
    assert context.system == [{"type": "text", "text": SYSTEM, "cache_control": MARK}]
    assert context.tools == TOOLS["anthropic"]
    lead, previous, last = marked(context.messages)
    assert context.messages[lead[0]]["content"][lead[1]]["text"].startswith("[memman outline")
    assert last == (len(context) - 1, 0)
    assert previous[0] == len(context) - 3
    memory.close()


@pytest.mark.parametrize("form", FORMATS)
def test_without_a_system_prompt_the_tools_are_marked(form: str) -> None:
    with MemoryManager(format=form) as memory:
        memory.add_user_message("s", "Hello")
        context = memory.build_context("s", tools=TOOLS[form], cache="auto")
        assert context.system is None
        if form == "anthropic":
            assert context.tools == [TOOLS[form][0], {**TOOLS[form][1], "cache_control": MARK}]
        else:
            assert context.tools == [*TOOLS[form], POINT]


def test_tool_that_is_loaded_later_is_not_marked() -> None:
    later = {"name": "later", "input_schema": {}, "defer_loading": True}
    with MemoryManager(format="anthropic") as memory:
        memory.add_user_message("s", "Hello")
        context = memory.build_context("s", tools=[*TOOLS["anthropic"], later], cache="auto")
    assert context.tools is not None
    assert ["cache_control" in tool for tool in context.tools] == [False, True, False]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("conversation", CONVERSATIONS)
def test_marked_messages_differ_by_their_marks_alone(form: str, conversation: str) -> None:
    rendering = Rendering(format_named(form), len)
    rendering.update(window_of(CONVERSATIONS[conversation]))
    layout = rendering.layout()
    marks = marks_of(layout, None, 300.0)
    assert marks is not None
    messages = marks.on_messages(msgspec.to_builtins(layout.messages))
    assert 1 <= len(marked(messages)) <= 3
    assert _unmarked(messages) == _listed(layout.messages)
    accepted(messages, form)


def _listed(messages: list[Message]) -> list[Message]:
    return [
        {**message, "content": [{"type": "text", "text": message["content"]}]}
        if isinstance(message["content"], str)
        else message
        for message in messages
    ]


def _unmarked(messages: list[Message]) -> list[Message]:
    return [
        {
            **message,
            "content": [
                {key: value for key, value in block.items() if key != "cache_control"}
                for block in message["content"]
                if "cachePoint" not in block
            ],
        }
        for message in _listed(messages)
    ]


def accepted(messages: list[Message], form: str) -> None:
    """Raise if the SDK's own types refuse the messages, or the provider's rules do."""
    assert not check(messages, form)
    if form == "anthropic":
        read_through(CLAUDE.validate_python(messages))
    else:
        given = {"modelId": "m", "messages": sdk_messages(messages)}
        report = ParamValidator().validate(given, CONVERSE)
        assert not report.has_errors(), report.generate_report()


def read_through(validated: Any) -> None:
    """Read validated data to the end: the lists of these types are checked only as they are read."""
    if isinstance(validated, dict):
        read_through(list(validated.values()))
    elif isinstance(validated, Iterable) and not isinstance(validated, str):
        for item in validated:
            read_through(item)


# ---------------------------------------------------------------- what cannot be marked


def mark(form: str, blocks: list[Message], model: str | None = None) -> list[Message]:
    """Return the blocks of the only message of a request, marked at its end."""
    messages = [{"role": "user", "content": blocks}]
    request = CacheRequest(None if model is None else model_ref(model), 300.0)
    format_named(form).mark_messages(messages, [CachePlace(0)], request)  # type: ignore[attr-defined]
    content: list[Message] = messages[0]["content"]
    return content


def test_anthropic_marks_the_block_before_thinking() -> None:
    text, thinking = {"type": "text", "text": "a"}, {"type": "thinking", "thinking": "b"}
    assert mark("anthropic", [text.copy(), thinking]) == [{**text, "cache_control": MARK}, thinking]
    assert mark("anthropic", [thinking]) == [thinking]


@pytest.mark.parametrize("kind", ["reasoningContent", "document", "video"])
def test_bedrock_marks_before_blocks_that_no_mark_may_follow(kind: str) -> None:
    text, other = {"text": "a"}, {kind: {}}
    assert mark("bedrock", [text, other]) == [text, POINT, other]
    assert mark("bedrock", [other]) == [other]


@pytest.mark.parametrize(
    ("model", "after"),
    [
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", ["text", "toolResult"]),
        ("anthropic.claude-3-5-haiku-20241022-v1:0", ["text", "toolResult"]),
        ("us.amazon.nova-pro-v1:0", ["text"]),
        ("anthropic.claude-3-haiku-20240307-v1:0", []),
        ("meta.llama3-70b-instruct-v1:0", []),
    ],
)
def test_bedrock_marks_follow_the_model(model: str, after: list[str]) -> None:
    for kind in ("text", "toolResult"):
        block: Message = {kind: "a"}
        assert mark("bedrock", [block], model) == [block, POINT][: 2 if kind in after else 1]
    tools = TOOLS["bedrock"]
    with MemoryManager(model=model, format="bedrock") as memory:
        memory.add_user_message("s", "Hello")
        context = memory.build_context("s", tools=tools, cache="auto")
        assert context.tools == [*tools, POINT][: 2 if "toolResult" in after else 1]
        system = memory.build_context("s", system=SYSTEM, cache="auto").system
        assert system == [{"text": SYSTEM}, POINT][: 2 if after else 1]


def test_marks_of_the_caller_are_replaced() -> None:
    given = {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": MARK}] * 5}
    tool = {**TOOLS["anthropic"][0], "cache_control": MARK}
    with MemoryManager(format="anthropic") as memory:
        memory.add_messages("s", [given], "anthropic")
        context = memory.build_context("s", system=SYSTEM, tools=[tool, tool], cache="auto")
    assert marked(context.messages) == [(0, 4)]
    assert context.tools == [TOOLS["anthropic"][0]] * 2


# ---------------------------------------------------------------- lifetime, other formats


@pytest.mark.parametrize(
    ("ttl", "model", "expected"),
    [
        (3_600, "us.anthropic.claude-sonnet-4-5-20250929-v1:0", True),
        (300, "us.anthropic.claude-sonnet-4-5-20250929-v1:0", False),
        (3_600, "anthropic.claude-sonnet-4-20250514-v1:0", False),
        (3_600, "us.amazon.nova-pro-v1:0", False),
    ],
)
def test_caches_of_an_hour_are_asked_for(ttl: float, model: str, expected: bool) -> None:
    with MemoryManager(config=MemoryConfig(cache_ttl=ttl, model=model)) as memory:
        memory.add_user_message("s", "Hello")
        claude = memory.build_context("s", format="anthropic", system=SYSTEM, cache="auto")
        assert claude.system[0]["cache_control"].get("ttl") == ("1h" if ttl == 3_600 else None)
        bedrock = memory.build_context("s", format="bedrock", system=SYSTEM, cache="auto")
        assert bedrock.system[1]["cachePoint"].get("ttl") == ("1h" if expected else None)
        accepted(bedrock.messages, "bedrock")
        accepted(claude.messages, "anthropic")


def test_without_a_prompt_cache_nothing_is_marked() -> None:
    with MemoryManager(config=MemoryConfig(cache_ttl=None), format="anthropic") as memory:
        memory.add_user_message("s", "Hello")
        context = memory.build_context("s", system=SYSTEM, cache="auto")
        assert (context.system, marked(context.messages)) == (SYSTEM, [])


@pytest.mark.parametrize("form", ["openai-chat", "openai-responses"])
def test_key_of_openai_is_stable_and_of_one_session(form: str, tmp_path: Any) -> None:
    keys = set()
    for _ in range(2):
        with MemoryManager(tmp_path / "chat.db", format=form) as memory:
            memory.add_user_message("s", "Hello")
            memory.add_user_message("other", "Hello")
            assert memory.build_context("s").prompt_cache_key is None
            keys.add(memory.build_context("s", cache="auto").prompt_cache_key)
            other = memory.build_context("other", cache="auto").prompt_cache_key
    [key] = keys
    assert key
    assert key != other
    assert len(key) <= 64


@pytest.mark.parametrize("form", ["gemini", "mistral", "text", "openai-chat"])
def test_other_formats_stay_as_they_are(form: str) -> None:
    with MemoryManager(format=form) as memory:
        memory.add_user_message("s", "Hello")
        plain = memory.build_context("s", system=SYSTEM)
        cached = memory.build_context("s", system=SYSTEM, cache="auto")
        assert (cached.messages, cached.system) == (plain.messages, plain.system)


def test_tools_are_returned_fresh_and_marks_change_no_prefix() -> None:
    tools = TOOLS["anthropic"]
    with MemoryManager(format="anthropic") as memory:
        memory.add_user_message("s", "Hello")
        first = memory.build_context("s", tools=tools, cache="auto")
        assert first.tools is not first.tools
        assert memory.build_context("s").tools is None
        memory.add_assistant_message("s", "Hello")
        memory.add_user_message("s", "A question")
        assert memory.build_context("s", tools=tools, cache="auto").unchanged_prefix == 1
        assert memory.build_context("s", tools=tools).tools == tools


def test_fit_messages_marks_too() -> None:
    messages = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "A question"},
    ]
    with MemoryManager() as memory:
        context = memory.fit_messages(messages, format="anthropic", system=SYSTEM, cache="auto")
        assert marked(context.messages) == [(0, 0), (2, 0)]
        assert memory.fit_messages(messages, format="openai", cache="auto").prompt_cache_key is None


@pytest.mark.parametrize("cache", [True, False, "always", "", 7])
def test_other_values_of_cache_are_refused(cache: Any) -> None:
    with MemoryManager() as memory:
        memory.add_user_message("s", "Hello")
        with pytest.raises(InvalidInput, match="cache must be None or 'auto'"):
            memory.build_context("s", cache=cache)


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("form", ["anthropic", "bedrock"])
def test_stored_marks_add_up_to_four_and_the_newest_stay(form: str, nested: bool) -> None:
    memory = MemoryManager(counter="chars4")
    for number in range(8):
        memory.add_messages("s", _marked_turn(form, number, nested), form)
    messages = memory.build_context("s", format=form).messages
    marked = [index for index, message in enumerate(messages) if "cache" in str(message)]
    assert len(marked) == 4
    assert (
        marked
        == [index for index, message in enumerate(messages) if "question" in str(message)][-4:]
    )
    before = [message for each in range(8) for message in _marked_turn(form, each, nested)]
    assert memory.get_messages("s", format=form) == before


def _marked_turn(form: str, number: int, nested: bool) -> list[dict[str, Any]]:
    """Return a turn whose user message has a mark, in a tool's result if `nested`."""
    said = f"question {number}"
    if form == "bedrock":
        point = {"cachePoint": {"type": "default"}}
        content = [{"text": said}, point]
        use = {"toolUse": {"toolUseId": f"c{number}", "name": "f", "input": {}}}
        result = {"toolResult": {"toolUseId": f"c{number}", "content": [{"text": said}]}}
        answer: dict[str, Any] = {"text": "a"}
        content = [result, point] if nested else content
    else:
        mark = {"cache_control": {"type": "ephemeral"}}
        content = [{"type": "text", "text": said, **mark}]
        use = {"type": "tool_use", "id": f"c{number}", "name": "f", "input": {}}
        if nested:
            content = [{"type": "tool_result", "tool_use_id": f"c{number}", "content": content}]
        answer = {"type": "text", "text": "a"}
    begun = [{"role": "assistant", "content": [use]}] if nested else []
    ended = [{"role": "assistant", "content": [answer]}]
    return [*begun, {"role": "user", "content": content}, *ended]
