"""Each rule is broken once, next to the smallest request that keeps it."""

import copy
from collections import deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import seeded_formats
from benchmarks.seeded_formats import Seed
from memman.formats.rules import RULES, check

Message = dict[str, Any]

USER: Message = {"role": "user", "content": "hi"}
ASSISTANT: Message = {"role": "assistant", "content": "hello"}
LONE = "\ud83d"


# The messages of OpenAI chat completions


def call(call_id: Any = "c1", name: Any = "find", arguments: Any = "{}") -> Message:
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def calls(*made: Any, content: Any = None) -> Message:
    return {"role": "assistant", "content": content, "tool_calls": list(made)}


def tool(call_id: Any = "c1", content: Any = "found") -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


# The messages of Anthropic


def use(call_id: Any = "t1", name: Any = "find", arguments: Any = None) -> Message:
    return {
        "type": "tool_use",
        "id": call_id,
        "name": name,
        "input": {} if arguments is None else arguments,
    }


def result(call_id: Any = "t1", content: Any = "found", **more: Any) -> Message:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def text(words: Any) -> Message:
    return {"type": "text", "text": words}


def user(*blocks: Any) -> Message:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Any) -> Message:
    return {"role": "assistant", "content": list(blocks)}


# The seeded requests


PREFILL = frozenset({"order.last-assistant"})
FOREIGN = frozenset({"shape.unknown-key"})

MARK = {"cache_control": {"type": "ephemeral"}}
SEARCH = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
SEEDS: dict[str, list[Seed]] = {
    "openai-chat": [
        Seed("request.empty", -1, [], [USER]),
        Seed("text.surrogate", 0, [{"role": "user", "content": LONE}], [USER]),
        Seed("shape.unknown-key", 0, [{**USER, "ts": 1}], [{**USER, "reasoning_content": "x"}]),
        Seed("system.shape", -1, [USER], [USER], bad_system="be brief"),
        Seed("shape.message", 0, [{"role": "bot", "content": "hi"}], [USER]),
        Seed("shape.content", 0, [{"role": "user", "content": None}], [USER]),
        Seed("shape.tool-calls", 0, [calls(content="hi")], [calls(call()), tool()]),
        Seed("content.empty", 0, [{"role": "assistant", "content": None}], [ASSISTANT]),
        Seed("pair.missing-result", 0, [calls(call()), USER], [calls(call()), tool(), USER]),
        Seed("pair.orphan-result", 1, [USER, tool()], [calls(call()), tool()]),
        Seed(
            "pair.not-adjacent",
            2,
            [calls(call()), USER, tool()],
            [calls(call()), tool(), USER],
        ),
        Seed("pair.duplicate-result", 2, [calls(call()), tool(), tool()], [calls(call()), tool()]),
        Seed("id.missing", 1, [USER, tool(call_id=None)], [calls(call()), tool()]),
        Seed(
            "id.duplicate",
            0,
            [calls(call("c1"), call("c1")), tool("c1")],
            [calls(call("c1"), call("c2")), tool("c1"), tool("c2")],
        ),
        Seed("args.not-string", 0, [calls(call(arguments={})), tool()], [calls(call()), tool()]),
        Seed("name.pattern", 0, [calls(call(name="a.b")), tool()], [calls(call()), tool()]),
    ],
    "anthropic": [
        Seed("request.empty", -1, [], [USER]),
        Seed("text.surrogate", 0, [user(text(f"hi {LONE}"))], [user(text("hi"))]),
        Seed(
            "shape.unknown-key", 0, [user({**text("hi"), "ts": 1})], [user({**text("hi"), **MARK})]
        ),
        Seed("system.shape", -1, [USER], [USER], bad_system=" ", good_system=[text("be brief")]),
        Seed("shape.message", 0, [{"role": "system", "content": "be brief"}], [USER]),
        Seed("shape.block", 0, [user({"text": "hi"})], [user(text("hi"))]),
        Seed("shape.block-role", 0, [user(use())], [USER, assistant(use()), user(result())]),
        Seed("order.first-not-user", 0, [ASSISTANT, USER], [USER, ASSISTANT, USER]),
        Seed("order.alternate", 1, [USER, USER], [USER, ASSISTANT, USER]),
        Seed("order.last-assistant", 1, [USER, ASSISTANT], [USER, ASSISTANT, USER]),
        Seed(
            "pair.missing-result",
            1,
            [USER, assistant(use("t1"), use("t2")), user(result("t1"))],
            [USER, assistant(use("t1"), use("t2")), user(result("t2"), result("t1"))],
        ),
        Seed(
            "pair.orphan-result",
            2,
            [USER, ASSISTANT, user(result())],
            [USER, assistant(use()), user(result())],
        ),
        Seed(
            "pair.result-first",
            2,
            [USER, assistant(use()), user(text("and?"), result())],
            [USER, assistant(use()), user(result(), text("and?"))],
        ),
        Seed(
            "pair.duplicate-result",
            2,
            [USER, assistant(use()), user(result(), result())],
            [USER, assistant(use()), user(result())],
        ),
        Seed(
            "id.pattern",
            1,
            [USER, assistant(use("a:1")), user(result("a:1"))],
            [USER, assistant(use("a_1")), user(result("a_1"))],
        ),
        Seed(
            "id.duplicate",
            3,
            [USER, assistant(use()), user(result()), assistant(use()), user(result())],
            [USER, assistant(use()), user(result()), assistant(use("t2")), user(result("t2"))],
        ),
        Seed(
            "args.not-object",
            1,
            [USER, assistant(use(arguments="{}")), user(result())],
            [USER, assistant(use(arguments={})), user(result())],
        ),
        Seed(
            "name.pattern",
            1,
            [USER, assistant(use(name="a" * 129)), user(result())],
            [USER, assistant(use(name="a" * 128)), user(result())],
        ),
        Seed("content.empty", 0, [user(text("hi"), text(""))], [user(text("hi"))]),
        Seed("content.whitespace", 0, [user(text("hi"), text(" \n"))], [user(text("hi"))]),
        Seed(
            "content.trailing-ws",
            1,
            [USER, assistant(text("It is "))],
            [USER, assistant(text("It is ")), USER],
            also=PREFILL,
        ),
        Seed(
            "result.empty-error",
            2,
            [USER, assistant(use()), user(result(content="", is_error=True))],
            [USER, assistant(use()), user(result(content="timed out", is_error=True))],
        ),
        Seed(
            "pair.server-tool",
            1,
            [USER, assistant(SEARCH), USER],
            [USER, assistant(SEARCH, FOUND), USER],
        ),
        Seed(
            "pair.server-tool",
            1,
            [USER, assistant(FOUND, text("hi")), USER],
            [USER, assistant(SEARCH)],  # a paused turn
        ),
        Seed(
            "block.half",
            1,
            [USER, assistant({"type": "thinking", "thinking": "hm", "signature": ""}), USER],
            [USER, assistant({"type": "thinking", "thinking": "hm", "signature": "s"}), USER],
        ),
        Seed(
            "block.half",
            1,
            [USER, assistant({"type": "compaction", "content": None}), USER],
            [USER, assistant({"type": "compaction", "content": "They met."}), USER],
        ),
        Seed(
            "marks.too-many",
            -1,
            [user(*[text("hi") | MARK] * 5)],
            [user(*[text("hi") | MARK] * 4)],
        ),
    ],
}

SEEDS |= seeded_formats.SEEDS

# Halves of the Responses API's own calls: each is refused alone.
HALVES = [
    {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}},
    {"type": "apply_patch_call_output", "call_id": "c", "status": "completed"},
    {"type": "local_shell_call_output", "id": "c", "output": ""},
    {"type": "computer_call", "call_id": "c", "action": {"type": "wait"}},
    {"type": "mcp_approval_request", "id": "a", "name": "pay", "arguments": "{}"},
    {"type": "mcp_approval_response", "approval_request_id": "a", "approve": True},
    {"type": "tool_search_output", "call_id": "c", "tools": []},
    {"type": "quantum_call", "call_id": "c"},
]

EACH_SEED = pytest.mark.parametrize(
    ("target", "seed"),
    [
        pytest.param(target, seed, id=f"{target}-{number}-{seed.rule}")
        for target, seeds in SEEDS.items()
        for number, seed in enumerate(seeds)
    ],
)
EACH_TARGET = pytest.mark.parametrize("target", list(RULES))


def said_in(target: str, words: str, role: str = "user") -> Message:
    """A plain message as the target has it."""
    if target == "gemini":
        return {"role": {"assistant": "model"}.get(role, role), "parts": [{"text": words}]}
    if target == "langchain":
        kind = {"user": "human", "assistant": "ai"}.get(role, role)
        return {"type": kind, "data": {"content": words}}
    return {"role": role, "content": [{"text": words}] if target == "bedrock" else words}


def rules_broken(messages: Any, target: str, system: Any = None) -> list[str]:
    return [violation.rule for violation in check(messages, target, system=system)]


# The promises of the table


def test_assistant_without_a_word_and_calls_is_found() -> None:
    """OpenAI takes the empty text, strict gateways do not"""
    silent = {"role": "assistant", "content": ""}
    assert rules_broken([USER, silent, USER], "openai-chat") == ["content.empty"]


@pytest.mark.parametrize("item", HALVES, ids=lambda item: item["type"])
def test_half_of_a_typed_call_is_found(item: Message) -> None:
    [broken] = rules_broken([item], "openai-responses")
    assert broken in ("pair.missing-result", "pair.orphan-result")


def test_hosted_call_needs_no_output() -> None:
    item = {"type": "mcp_call", "id": "m", "name": "f", "arguments": "{}", "output": "1"}
    assert rules_broken([item], "openai-responses") == []


@EACH_TARGET
def test_every_rule_is_seeded_and_every_seed_is_a_rule(target: str) -> None:
    assert {rule.id for rule in RULES[target]} == {seed.rule for seed in SEEDS[target]}


@EACH_SEED
def test_a_seeded_request_breaks_that_rule_and_no_other(target: str, seed: Seed) -> None:
    assert {*rules_broken(seed.bad, target, seed.bad_system)} == {seed.rule, *seed.also}


@EACH_SEED
def test_a_violation_names_the_message_that_is_wrong(target: str, seed: Seed) -> None:
    found = check(seed.bad, target, system=seed.bad_system)
    assert [hit.index for hit in found if hit.rule == seed.rule] == [seed.place]


@EACH_SEED
def test_violation_has_a_remedy(target: str, seed: Seed) -> None:
    for violation in check(seed.bad, target, system=seed.bad_system):
        wrong, _, remedy = violation.message.partition("; ")
        assert wrong
        assert remedy


@EACH_SEED
def test_good_request_of_each_seed_passes(target: str, seed: Seed) -> None:
    assert check(seed.good, target, system=seed.good_system) == []


@EACH_SEED
def test_checking_changes_nothing_in_the_request(target: str, seed: Seed) -> None:
    before = copy.deepcopy((seed.bad, seed.bad_system))
    check(seed.bad, target, system=seed.bad_system)
    assert (seed.bad, seed.bad_system) == before


@EACH_TARGET
def test_every_rule_names_its_target_and_cites_a_source(target: str) -> None:
    for rule in RULES[target]:
        assert target in rule.targets
        assert rule.statement.endswith(".")
        assert rule.source


def test_an_unknown_target_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="openai-chat, anthropic"):
        check([USER], "klingon")


# Malformed input


# JSON as a careless program makes it: the words of the formats in the wrong places.
FORMAT_WORDS = (
    "role content type text user assistant tool tool_use tool_result tool_calls tool_call_id id "
    "tool_use_id name input is_error function arguments function_call custom parts functionCall "
    "functionResponse args response toolUse toolResult toolUseId json document reasoning model "
    "function_call_output call_id output"
)
WORDS = st.sampled_from([*FORMAT_WORDS.split(), "a b", "", " ", LONE])
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.text(max_size=5)
GARBAGE = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(WORDS, inner, max_size=6)
        | st.dictionaries(LEAVES, inner, max_size=2)
    ),
    max_leaves=12,
)
ODD_BLOCK = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "tool_use", "tool_result", "function", "custom"]) | GARBAGE},
    optional={
        key: GARBAGE | st.sampled_from(["t1", "t2"])
        for key in ("id", "text", "name", "input", "tool_use_id", "content", "function", "custom")
    },
)
BODY = st.dictionaries(WORDS, GARBAGE | st.sampled_from(["t1", "t2"]), max_size=4) | GARBAGE
ODD_PART = st.dictionaries(WORDS, BODY, max_size=3)
ODD_MESSAGE = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "assistant", "model", "tool", "function", "system"])
        | GARBAGE
    },
    optional={
        "type": WORDS | GARBAGE,
        "parts": st.lists(ODD_PART | GARBAGE, max_size=3) | GARBAGE,
        "content": st.lists(ODD_BLOCK | ODD_PART | GARBAGE, max_size=3) | GARBAGE,
        "tool_calls": st.lists(ODD_BLOCK | GARBAGE, max_size=3) | GARBAGE,
        "function_call": GARBAGE,
        "tool_call_id": GARBAGE | st.sampled_from(["t1", "t2"]),
    },
)


@EACH_TARGET
@given(messages=GARBAGE, system=GARBAGE)
def test_garbage_never_raises(target: str, messages: Any, system: Any) -> None:
    check(messages, target, system=system)


@EACH_TARGET
@given(messages=st.lists(ODD_MESSAGE | GARBAGE, max_size=6))
def test_odd_messages_are_reported_in_the_order_of_their_index(target: str, messages: Any) -> None:
    found = check(messages, target)
    indexes = [violation.index for violation in found]
    assert indexes == sorted(indexes)
    assert all(-1 <= index < len(messages) for index in indexes)
    assert {violation.rule for violation in found} <= {rule.id for rule in RULES[target]}


@EACH_TARGET
@pytest.mark.parametrize(
    "message",
    [None, 3, "hi", [], {}, {"content": "hi"}, {"role": None}, {"role": ["user"]}, {"role": 3}],
)
def test_non_message_breaks_shape_message(target: str, message: Any) -> None:
    assert rules_broken([said_in(target, "hi"), message], target) == ["shape.message"]


@EACH_TARGET
@pytest.mark.parametrize("messages", [None, 3, "hi", b"hi", {"role": "user"}, {1, 2}])
def test_non_list_breaks_shape_message_of_the_request(target: str, messages: Any) -> None:
    assert [(hit.rule, hit.index) for hit in check(messages, target)] == [("shape.message", -1)]


@EACH_TARGET
@pytest.mark.parametrize("sequence", [tuple, deque])
def test_any_sequence_of_messages_will_do(target: str, sequence: Any) -> None:
    turns = [said_in(target, "hi", role) for role in ("user", "assistant", "user")]
    assert check(sequence(turns), target) == []
    assert rules_broken(sequence(), target) == ["request.empty"]


@EACH_TARGET
def test_a_number_too_long_to_print_is_reported_like_any_other(target: str) -> None:
    huge = 10**5000  # its repr raises ValueError
    assert rules_broken([huge, {"role": huge}], target) == ["shape.message", "shape.message"]
    assert check([{"role": "user", "content": huge}], target)


@EACH_TARGET
def test_deep_nesting_and_cycles_end(target: str) -> None:
    deep: Any = "x"
    for _ in range(100_000):
        deep = [deep]
    part: Message = {"type": "input_image" if target == "openai-responses" else "image"}
    cycle: Message = {**said_in(target, "hi")}
    inside = cycle["data"] if target == "langchain" else cycle
    inside["parts" if target == "gemini" else "content"] = [part]
    part["image"] = cycle
    assert {*rules_broken([cycle], target)} <= FOREIGN
    assert {*rules_broken([{**said_in(target, "hi"), "metadata": deep}], target)} <= FOREIGN


@EACH_TARGET
@pytest.mark.parametrize(
    "more", [{LONE: 1}, {"meta": {"tags": ["a", {"b": LONE}]}}], ids=["key", "deep"]
)
def test_a_lone_surrogate_is_found_in_keys_and_at_any_depth(target: str, more: Any) -> None:
    assert {*rules_broken([{**said_in(target, "hi"), **more}], target)} - FOREIGN == {
        "text.surrogate"
    }


@EACH_TARGET
def test_text_beyond_the_basic_plane_is_not_a_surrogate(target: str) -> None:
    assert check([said_in(target, "naïve 🙂 漢字")], target) == []


def test_surrogate_in_the_system_prompt_is_a_request_fault() -> None:
    (found,) = check([USER], "anthropic", system=f"be {LONE}")
    assert (found.rule, found.index) == ("text.surrogate", -1)


# Conversations that OpenAI takes


OPENAI_TAKES: dict[str, list[Message]] = {
    "parallel calls answered in another order": [
        {"role": "system", "content": "Be brief."},
        USER,
        calls(call("c1"), call("c2"), call("c3"), content="Looking."),
        tool("c3"),
        tool("c1"),
        tool("c2"),
        {"role": "assistant", "content": "Done."},
        {"role": "user", "content": "Thanks."},
    ],
    "null content with calls": [USER, calls(call(), content=None), tool(), ASSISTANT],
    "no content at all with calls": [USER, {"role": "assistant", "tool_calls": [call()]}, tool()],
    "ids that start again in every turn": [
        USER,
        calls(call("call_0"), call("call_1")),
        tool("call_0"),
        tool("call_1"),
        USER,
        calls(call("call_0")),
        tool("call_0"),
        calls(call("call_0")),
        tool("call_0"),
        ASSISTANT,
    ],
    "empty results": [USER, calls(call()), tool(content=""), ASSISTANT],
    "arguments that are not JSON": [calls(call(arguments='{"a": ')), tool()],
    "turns of one role in a row, the assistant first": [ASSISTANT, ASSISTANT, USER, USER],
    "a refusal": [USER, {"role": "assistant", "content": None, "refusal": "No."}, USER],
    "audio": [USER, {"role": "assistant", "content": None, "audio": {"id": "audio_1"}}, USER],
    "unset fields sent as null": [
        {**ASSISTANT, "tool_calls": None, "function_call": None, "refusal": None}
    ],
    "legacy function calls": [
        {
            "role": "assistant",
            "content": None,
            "function_call": {"name": "find", "arguments": "{}"},
        },
        {"role": "function", "name": "find", "content": "found"},
    ],
    "custom tools": [
        calls({"id": "c1", "type": "custom", "custom": {"name": "sh", "input": "ls"}}),
        tool(),
    ],
    "parts of known and unknown types": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "See"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}},
                {"type": "hologram", "frames": 3},
            ],
        },
        {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
    ],
}


@pytest.mark.parametrize("name", OPENAI_TAKES)
def test_openai_takes(name: str) -> None:
    assert check(OPENAI_TAKES[name], "openai-chat") == []


@pytest.mark.parametrize("between", [USER, ASSISTANT, calls(call("c9")), None, 3])
def test_openai_results_directly_follow_their_calls(between: Any) -> None:
    messages = [calls(call("c1"), call("c2")), tool("c1"), between, tool("c2"), USER]
    assert "pair.not-adjacent" in rules_broken(messages, "openai-chat")


def test_openai_a_late_result_is_not_reported_as_missing_too() -> None:
    messages = [calls(call("c1")), calls(call("c2")), tool("c2"), tool("c1")]
    assert rules_broken(messages, "openai-chat") == ["pair.not-adjacent"]


def test_openai_an_answered_id_of_an_earlier_block_is_an_orphan() -> None:
    messages = [calls(call("c1")), tool("c1"), USER, tool("c1")]
    assert rules_broken(messages, "openai-chat") == ["pair.orphan-result"]


def test_openai_calls_at_the_end_of_the_request_need_results() -> None:
    assert rules_broken([USER, calls(call())], "openai-chat") == ["pair.missing-result"]


def test_openai_each_call_without_a_result_is_reported() -> None:
    found = check([calls(call("c1"), call("c2"), call("c3")), tool("c2")], "openai-chat")
    assert [(hit.rule, hit.index) for hit in found] == [("pair.missing-result", 0)] * 2
    assert "'c1'" in found[0].message
    assert "'c3'" in found[1].message


@pytest.mark.parametrize("call_id", [None, "", 7, ["c1"]])
def test_openai_a_call_needs_an_id(call_id: Any) -> None:
    assert rules_broken([calls(call(call_id))], "openai-chat") == ["id.missing"]


@pytest.mark.parametrize("name", [None, "", 7, "a b", "a" * 65, "naïve", "find\n"])
def test_openai_a_function_name_has_1_to_64_plain_characters(name: Any) -> None:
    assert rules_broken([calls(call(name=name)), tool()], "openai-chat") == ["name.pattern"]


@pytest.mark.parametrize(
    ("made", "rule"),
    [
        ({"id": "c1", "type": "function"}, "shape.tool-calls"),
        ({"id": "c1", "function": {"name": "find", "arguments": "{}"}}, "shape.tool-calls"),
        ({"id": "c1", "type": "custom", "custom": {"name": "sh", "input": 1}}, "args.not-string"),
    ],
    ids=["no body", "no type", "custom input"],
)
def test_openai_a_call_has_a_type_and_a_body(made: Any, rule: str) -> None:
    assert rules_broken([calls(made), tool()], "openai-chat") == [rule]


def test_openai_a_legacy_function_call_is_checked_like_a_call() -> None:
    made = {"role": "assistant", "content": None, "function_call": {"name": "", "arguments": {}}}
    assert rules_broken([made], "openai-chat") == ["name.pattern", "args.not-string"]


@pytest.mark.parametrize("content", [3, {}, [], ["hi"], [{"text": "hi"}], [{"type": 3}], None])
@pytest.mark.parametrize("role", ["user", "system", "developer"])
def test_openai_content_is_a_string_or_typed_parts(role: str, content: Any) -> None:
    messages = [{"role": role, "content": content}]
    assert rules_broken(messages, "openai-chat") == ["shape.content"]


# Conversations that Anthropic takes


ANTHROPIC_TAKES: dict[str, list[Message]] = {
    "parallel calls answered in another order": [
        USER,
        assistant(text("Looking."), use("t1"), use("t2")),
        user(result("t2"), result("t1"), text("And?")),
        ASSISTANT,
        USER,
    ],
    "empty results": [
        USER,
        assistant(use("t1"), use("t2"), use("t3")),
        user(result("t1", ""), result("t2", []), {"type": "tool_result", "tool_use_id": "t3"}),
    ],
    "results made of blocks": [
        USER,
        assistant(use()),
        user(result(content=[text("See"), {"type": "image", "source": {}}], is_error=True)),
    ],
    "thinking": [
        USER,
        assistant(
            {"type": "thinking", "thinking": "", "signature": "c2ln"},
            {"type": "redacted_thinking", "data": "b2Zm"},
            use(),
        ),
        user(result()),
    ],
    "images, documents and unknown types": [
        user({"type": "image"}, {"type": "document"}, {"type": "hologram", "text": 3}, text("?"))
    ],
    "server tools": [
        USER,
        assistant(
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
            {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
            text("Found."),
        ),
        USER,
    ],
    "text that ends in whitespace before the end": [USER, assistant(text("So:\n")), USER],
}


@pytest.mark.parametrize("name", ANTHROPIC_TAKES)
def test_anthropic_takes(name: str) -> None:
    assert check(ANTHROPIC_TAKES[name], "anthropic") == []


@pytest.mark.parametrize("system", [None, "Be brief.", [text("Be brief.")]])
def test_anthropic_accepts_a_system_text_or_none(system: Any) -> None:
    assert check([USER], "anthropic", system=system) == []


@pytest.mark.parametrize(
    "system", ["", "\n", 3, {}, [], [text("")], [text("a"), text(" ")], ["a"], [{"type": "image"}]]
)
def test_anthropic_refuses_any_other_system_prompt(system: Any) -> None:
    assert rules_broken([USER], "anthropic", system) == ["system.shape"]


@pytest.mark.parametrize("content", ["", []])
def test_anthropic_only_a_final_assistant_message_may_be_empty(content: Any) -> None:
    empty = {"role": "assistant", "content": content}
    assert rules_broken([USER, empty], "anthropic") == ["order.last-assistant"]
    assert rules_broken([USER, empty, USER], "anthropic") == ["content.empty"]
    assert rules_broken([{**empty, "role": "user"}], "anthropic") == ["content.empty"]


def test_anthropic_rejects_a_message_of_whitespace() -> None:
    assert rules_broken([{"role": "user", "content": " "}], "anthropic") == ["content.whitespace"]


def test_anthropic_a_final_string_may_not_end_in_whitespace() -> None:
    messages = [USER, {"role": "assistant", "content": "It is\n"}]
    assert "content.trailing-ws" in rules_broken(messages, "anthropic")


def test_anthropic_results_belong_into_the_very_next_message() -> None:
    messages = [USER, assistant(use()), USER, ASSISTANT, user(result())]
    found = [(hit.rule, hit.index) for hit in check(messages, "anthropic")]
    assert found == [("pair.missing-result", 1), ("pair.orphan-result", 4)]


def test_anthropic_calls_at_the_end_of_the_request_need_results() -> None:
    found = rules_broken([USER, assistant(use())], "anthropic")
    assert sorted(found) == ["order.last-assistant", "pair.missing-result"]


def test_anthropic_ids_differ_within_one_message_too() -> None:
    messages = [USER, assistant(use(), use()), user(result())]
    assert rules_broken(messages, "anthropic") == ["id.duplicate"]


def test_anthropic_result_must_be_in_a_user_message() -> None:
    messages = [USER, assistant(result(), text("so")), USER]
    assert rules_broken(messages, "anthropic") == ["shape.block-role"]


@pytest.mark.parametrize("content", [None, "", [], [text("")]])
def test_anthropic_error_result_must_have_content(content: Any) -> None:
    messages = [USER, assistant(use()), user(result(content=content, is_error=True))]
    assert rules_broken(messages, "anthropic") == ["result.empty-error"]


@pytest.mark.parametrize("content", [None, 3, {}, ["hi"], [{"type": 3}], [{"type": "text"}]])
def test_anthropic_content_is_a_string_or_typed_blocks(content: Any) -> None:
    assert rules_broken([{"role": "user", "content": content}], "anthropic") == ["shape.block"]


@pytest.mark.parametrize("content", [3, {}, ["hi"]])
def test_anthropic_result_content_is_a_string_or_typed_blocks(content: Any) -> None:
    messages = [USER, assistant(use()), user(result(content=content))]
    assert rules_broken(messages, "anthropic") == ["shape.block"]


@pytest.mark.parametrize("call_id", [None, "", 7, "a b", "a\n"])
def test_anthropic_a_call_needs_a_plain_id(call_id: Any) -> None:
    assert "id.pattern" in rules_broken([USER, assistant(use(call_id)), USER], "anthropic")
