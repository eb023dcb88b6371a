"""Thoughts that a model binds to what preceded them, and requests behind which that has changed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from memman import (
    BudgetExceeded,
    Context,
    EntryNotFound,
    MemoryConfig,
    MemoryManager,
    ModelInfo,
    Refused,
)
from memman.stores import MemoryStore
from tests.examples import examples

BINDING, OTHER = "claude-fable-5-1", "claude-sonnet-4-5"
GOES_ON = "the conversation goes on"
WORDS = "word " * 60

Block = tuple[str, str]


def blocks_of(messages: list[dict[str, Any]]) -> list[Block]:
    """Return the blocks of a request's messages, each with its role."""
    return [
        (message["role"], json.dumps(block, sort_keys=True))
        for message in messages
        for block in (
            message["content"]
            if isinstance(message["content"], list)
            else [{"type": "text", "text": message["content"]}]
        )
    ]


class Agent:
    """An agent that remembers behind what each of its thoughts was made, and checks each request."""

    def __init__(self, model: str = BINDING, **config: Any) -> None:
        self.model, self.config = model, {"max_tokens": 1_500, **config}
        self.store = MemoryStore()
        self.made: dict[str, list[Block]] = {}
        self.restart()

    def restart(self) -> None:
        """Go on in a new process."""
        self.memory = MemoryManager(
            model=self.model, store=self.store, config=MemoryConfig(**self.config)
        )

    def ask(self, text: str = "") -> None:
        """Add a message of the user."""
        self.memory.add_user_message("s", f"task {len(self.made)} {text or WORDS}")

    def request(self, budget: int | None = None) -> Context:
        """Build a request and check the thoughts in it."""
        context = self.memory.build_context("s", format="anthropic", budget=budget)
        for problem in self.problems(context):
            raise AssertionError(problem)
        return context

    def problems(self, context: Context) -> list[str]:
        """Return the thoughts behind another prefix, but those of an open turn whose request says so."""
        sent = blocks_of(context.messages)
        asked = [at for at, (role, block) in enumerate(sent) if role == "user" and _is_said(block)]
        return [
            f"{block} is behind another prefix than it was made behind"
            for at, (_, block) in enumerate(sent)
            if "signature" in block and sent[:at] != self.made[json.loads(block)["signature"]]
            if not (context.needs and at > max(asked, default=-1))
        ]

    def answer(self, context: Context, call: bool = False) -> None:
        """Add a reply to a request: a thought with a text or a call."""
        signature = f"sig{len(self.made)}"
        self.made[signature] = blocks_of(context.messages)
        thought = {"type": "thinking", "thinking": f"about {WORDS}", "signature": signature}
        done = {"type": "text", "text": f"done {WORDS}"}
        tool = {"type": "tool_use", "id": f"call{signature}", "name": "find", "input": {}}
        content = [thought, tool if call else done]
        self.memory.add_messages(
            "s", [{"role": "assistant", "content": content}], format="anthropic"
        )

    def result(self) -> None:
        """Add the result of the last call."""
        call = f"callsig{len(self.made) - 1}"
        self.memory.add_tool_result("s", "find", f"found {WORDS}", call_id=call)

    def step(self, call: bool = False, budget: int | None = None) -> Context:
        """Have a request answered."""
        context = self.request(budget)
        self.answer(context, call)
        if call:
            self.result()
        return context

    def turn(self) -> Context:
        """Have a message of the user answered."""
        self.ask()
        return self.step()


def _is_said(block: str) -> bool:
    return json.loads(block)["type"] != "tool_result"


def thoughts_in(context: Context) -> list[str]:
    """Return the signatures of the thoughts in a request."""
    sent = [json.loads(block) for _, block in blocks_of(context.messages)]
    return [block["signature"] for block in sent if "signature" in block]


OPERATIONS = st.sampled_from(
    ["ask", "reply", "call", "interrupted", "slow", "small", "compress", "undo", "retract", "delete",
     "restart"]
)  # fmt: skip


@settings(max_examples=examples(300), deadline=None, phases=[Phase.generate])
@given(st.lists(st.tuples(OPERATIONS, st.integers(0, 30)), min_size=5, max_size=40))
def test_no_thought_is_sent_behind_another_prefix(operations: list[tuple[str, int]]) -> None:
    agent = Agent(auto_compress=False)
    for operation, number in [("ask", 0), ("reply", 0), *operations, ("ask", 0), ("reply", 0)]:
        try:
            _do(agent, operation, number)
        except (BudgetExceeded, EntryNotFound, Refused):
            continue


def _do(agent: Agent, operation: str, number: int) -> None:
    memory = agent.memory
    entries = memory.get_entries("s") if operation in ("retract", "delete") else []
    match operation:
        case "ask":
            agent.ask()
        case "restart":
            agent.restart()
        case "compress":
            memory.compress("s", target_tokens=100 + 40 * number)
        case "undo":
            memory.undo_compression("s")
        case "retract" if entries:
            memory.retract("s", [entries[number % len(entries)].id])
        case "delete" if entries:
            memory.delete_entries("s", [entries[number % len(entries)].id])
        case "reply" | "call" | "interrupted" | "slow" | "small":
            context = agent.request(200 + 50 * number if operation == "small" else None)
            if GOES_ON in context.text or GOES_ON in str(context.messages[-1]):
                return  # no agent asks for a reply to the model's own text
            if operation == "slow":  # something compresses while the model answers
                memory.compress("s", target_tokens=100 + 40 * number)
            agent.answer(context, operation in ("call", "interrupted"))
            if operation == "call":
                agent.result()


def test_thoughts_stay_until_something_before_them_changes() -> None:
    agent = Agent(max_tokens=50_000)
    for _ in range(3):
        context = agent.turn()
    assert thoughts_in(context) == ["sig0", "sig1"]
    assert context.thoughts_left_out == ()
    assert context.needs == {}


def test_thoughts_from_before_a_compression_are_left_out() -> None:
    agent = Agent(max_tokens=50_000)
    for _ in range(8):
        agent.turn()
    agent.memory.compress("s", target_tokens=700)
    agent.turn()
    agent.ask()
    context = agent.request()
    assert thoughts_in(context) == ["sig8"]
    kept = [entry.id for entry in context.entries if entry.role == "assistant"][:-1]
    assert context.thoughts_left_out
    assert set(context.thoughts_left_out) <= set(kept)
    text = str(agent.memory.explain("s"))
    left_out = len(context.thoughts_left_out)
    assert f"thoughts left out of requests: {left_out}, since something before them" in text


@pytest.mark.parametrize("change", ["undo", "retract", "delete"])
def test_a_change_of_the_log_leaves_older_thoughts_out(change: str) -> None:
    agent = Agent(max_tokens=50_000)
    for _ in range(8):
        agent.turn()
    compressed = agent.memory.compress("s", target_tokens=700)
    assert compressed.compression_id
    agent.turn()
    _do(agent, change, 3)
    agent.restart()
    agent.turn()
    agent.ask()
    assert thoughts_in(agent.request()) == ["sig9"]


def test_a_context_costs_less_without_its_thoughts() -> None:
    agent, other = Agent(max_tokens=50_000), Agent(OTHER, max_tokens=50_000)
    tokens = []
    for each in (agent, other):
        for _ in range(8):
            each.turn()
        each.memory.compress("s", target_tokens=900)
        each.ask()
        context = each.memory.build_context("s", format="anthropic")
        tokens.append(int(context.tokens) - 60 * len(thoughts_in(context)))
    assert abs(tokens[0] - tokens[1]) < 40 * len(agent.made)
    assert tokens[0] < tokens[1] + 60


def test_open_tool_turn_keeps_thoughts_and_states_its_needs() -> None:
    agent = Agent(max_tokens=50_000)
    agent.turn()
    agent.ask()
    agent.step(call=True)
    agent.memory.compress("s", target_tokens=200)
    context = agent.request()
    assert thoughts_in(context) == ["sig1"]
    assert context.needs == {
        "thinking": {
            "type": "adaptive",
            "block_binding": {"prefix_mismatch_behavior": "drop_block"},
        },
        "betas": ["thinking-binding-controls-2026-08-01"],
    }
    agent.answer(context)
    agent.ask()
    closed = agent.request()
    assert (thoughts_in(closed), closed.needs) == ([], {})  # the second was made behind the first


def test_a_reply_to_a_trimmed_request_loses_its_thought() -> None:
    agent = Agent(max_tokens=50_000)
    for _ in range(8):
        agent.turn()
    agent.ask()
    assert agent.step(budget=900).trimmed
    document = agent.memory.export_session("s")
    agent.ask()
    assert thoughts_in(agent.request()) == []
    other = MemoryManager(model=BINDING)
    other.import_session(document)
    other.add_user_message("s", "and on")
    assert thoughts_in(other.build_context("s", format="anthropic")) == []


def test_other_models_get_all_thoughts_as_before() -> None:
    agent = Agent(OTHER, max_tokens=50_000)
    for _ in range(8):
        agent.ask()
        agent.answer(agent.memory.build_context("s", format="anthropic"))
    agent.memory.compress("s", target_tokens=900)
    agent.ask()
    context = agent.memory.build_context("s", format="anthropic")
    assert len(thoughts_in(context)) > 1
    assert context.thoughts_left_out == ()


def test_model_info_decides_whether_thoughts_are_bound() -> None:
    limits = ModelInfo(200_000, 200_000, 8_000, binds=False)
    memory = MemoryManager(model=BINDING, model_info=limits)
    assert memory._core.shared.binds(BINDING) is False
    unnamed = MemoryManager(model="ours", model_info=ModelInfo(9_000, 9_000, 900, binds=True))
    assert unnamed._core.shared.binds("ours") is True
    unnamed.record_overflow("prompt is too long: 9000 tokens > 8000 maximum")
    assert unnamed._core.shared.binds("ours") is True


REASONING = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}}


def test_bedrock_request_leaves_thoughts_out_and_has_needs() -> None:
    memory = MemoryManager(model="us.anthropic.claude-opus-5-5-v1:0")
    call = {"toolUse": {"toolUseId": "t", "name": "find", "input": {}}}
    for number in range(6):
        memory.add_user_message("s", f"{number} {WORDS}")
        said = {"text": f"done {WORDS}"} if number < 5 else call
        reply = {"role": "assistant", "content": [REASONING, said]}
        memory.add_messages("s", [reply], format="bedrock")
    memory.add_tool_result("s", "find", "found", call_id="t")
    memory.compress("s", target_tokens=500)
    context = memory.build_context("s", format="bedrock")
    assert str(context.messages).count("reasoningContent") == 1
    assert context.needs["additionalModelRequestFields"]["anthropic_beta"]


ERROR = (
    "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different "
    "conversation. Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "
    '"drop_block". That setting requires the `thinking-binding-controls-2026-08-01` value in the '
    "`anthropic-beta` header. The `system` prompt differs from the one this block was created with."
)


@pytest.mark.parametrize("text", [ERROR, ERROR[:120]])
def test_error_of_a_bound_thought_is_no_overflow(text: str) -> None:
    memory = MemoryManager(model=BINDING, format="anthropic")
    result = memory.record_overflow(RuntimeError(text))
    assert not result.overflow
    assert result.needs["betas"] == ["thinking-binding-controls-2026-08-01"]
    assert memory.record_overflow("rate limit").needs == {}
