"""The laws of the outline, through the whole product."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memman import MemoryConfig, MemoryManager, events
from memman.log import History
from memman.records import decode, encode
from memman.testing import record_events
from tests.examples import examples
from tests.kinds import InFile, InMemory
from tests.state_lives import MESSAGES, Life, block, every, lacking, text_of, vague

PROFILE = settings(
    max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck)
)
SUMMARIZING = ("default", "summary", "summary_buffer")


# ---------------------------------------------------------------- the user's messages


@pytest.mark.parametrize("summarizer", [None, vague], ids=["outline", "llm"])
@pytest.mark.parametrize("budget", [1_500, 4_000, 16_000])
@pytest.mark.parametrize("strategy", SUMMARIZING)
def test_context_has_every_small_user_message(strategy: str, budget: int, summarizer: Any) -> None:
    rounds = 4 if budget < 16_000 else examples(4, by_default=1)  # of many turns
    with Life(InMemory(), strategy=strategy, max_tokens=budget, summarizer=summarizer) as life:
        for text in MESSAGES:
            life.say(text)
            for _ in range(rounds):
                life.work(budget // 250, words=budget // 40)
                life.check_said()
        assert len(life.memory.explain("s").compressions) >= 8


@pytest.mark.parametrize(
    "limits",
    [
        {"max_entries": 12},
        {"max_entries": 20},
        {"overhead_tokens": 2_000},
        {"recent_window": 0},
        {"recent_window": 2, "min_entries_to_compress": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("strategy", SUMMARIZING)
def test_dialogue_keeps_every_small_user_message(strategy: str, limits: dict[str, int]) -> None:
    with Life(InMemory(), strategy=strategy, summarizer=vague, **limits) as life:
        for number in range(40):
            life.say(f"{MESSAGES[number % len(MESSAGES)]} {number}")
            life.memory.add_assistant_message(life.session, life.prose(8))
            life.check_said()


_NAMES = (
    "say say work work work long parallel context compress target undo pin restart fork export archive "
    "asked unasked"
)
STEPS = st.sampled_from(_NAMES.split())


@given(
    seed=st.integers(0, 2**16),
    budget=st.sampled_from((1_500, 2_500, 6_000, 12_000)),
    strategy=st.sampled_from(SUMMARIZING),
    llm=st.booleans(),
    steps=st.lists(STEPS, min_size=5, max_size=25),
)
@PROFILE
def test_user_messages_survive_random_schedules(
    seed: int, budget: int, strategy: str, llm: bool, steps: list[str]
) -> None:
    named = {"summarizer": vague} if llm else {}
    with Life(InFile(), seed, strategy=strategy, max_tokens=budget, **named) as life:
        life.say(MESSAGES[seed % len(MESSAGES)])
        for step in steps:
            take(life, step, budget)
            life.check_said()


CHANGES = st.sampled_from(
    ("retract", "retract", "delete", "delete", "clear", "undo", "undo older", "other", "off", "on")
)


def take(life: Life, step: str, budget: int) -> None:
    """Take a step of a schedule."""
    rng, words = life.rng, budget // 30
    match step:
        case "say":
            life.say(f"{rng.choice(MESSAGES)} {rng.randrange(1000)}")
        case "work":
            life.work(8, words)
        case "long":
            life.work(1, 6 * words)
        case "parallel":
            life.work(2, words, parallel=5)
        case "context":
            life.memory.add_context(
                life.session, life.prose(2 * words), f"notes{rng.randrange(9)}.md"
            )
        case "compress":
            life.tried("compress")
        case "target":
            life.tried("compress", target_tokens=int(budget * rng.uniform(0.35, 0.7)))
        case "asked" | "unasked":
            life.tried("compress", summarize=step == "asked")
        case "undo":
            life.tried("undo_compression")
        case "pin":
            active = life.memory.get_active_entries(life.session)
            small = [entry for entry in active if entry.token_count.tokens < budget // 20]
            pinned = sum(entry.pinned for entry in active)
            if small and pinned < 3:
                life.tried("pin", rng.choice(small).id)
        case "retract" | "delete":
            entries = [entry.id for entry in life.memory.get_entries(life.session)] or ["none"]
            chosen = rng.sample(entries, min(len(entries), rng.randint(1, 3)))
            life.tried("retract" if step == "retract" else "delete_entries", chosen)
        case "clear":
            if rng.random() < 0.3:
                life.memory.clear_session(life.session)
        case "undo older":
            made = [each.compression_id for each in life.memory.explain(life.session).compressions]
            if made:
                life.tried("undo_compression", rng.choice(made))
        case "off" | "on":
            ratio = 0.0 if step == "off" else 0.1
            life.memory.update_config(life.session, state_ratio=ratio)
        case "other":
            with life.manager() as other:
                other.add_user_message(life.session, life.prose(words))
                other.compress(life.session)
        case _:
            getattr(life, step)()


# ---------------------------------------------------------------- the values


@pytest.mark.parametrize("summarizer", [None, vague], ids=["outline", "llm"])
@pytest.mark.parametrize("strategy", SUMMARIZING)
def test_value_stays_unless_newer_ones_fill_the_block(strategy: str, summarizer: Any) -> None:
    """While the values of all calls fit the block, each is in every context."""
    with Life(InMemory(), paths=6, strategy=strategy, summarizer=summarizer) as life:
        values = [f"ops/host-{number}.internal/unit{number}" for number in range(10)]
        for value in values:
            life.memory.add_tool_call("s", "connect", {"host": value}, call_id=value)
            life.memory.add_tool_result("s", "connect", "connected", call_id=value)
        with record_events(life.memory, [events.CompressionResult]) as compressions:
            while len(compressions) < 12:
                life.work(2)
                assert not lacking(values, life.context()), compressions


def test_value_gives_way_only_to_newer_or_more_frequent_ones() -> None:
    """Of values that are alike, each used once, the block shows the newest."""
    with Life(InMemory(), max_tokens=3_000, summarizer=vague) as life:
        values = [f"src/module{number:04}/part.py" for number in range(400)]
        for number, value in enumerate(values):
            life.memory.add_tool_call("s", "read", {"path": value}, call_id=f"v{number}")
            life.memory.add_tool_result("s", "read", "done " * 30, call_id=f"v{number}")
            text = text_of(life.context())
            shown = [at for at, each in enumerate(values[: number + 1]) if each in text]
            assert shown == list(range(shown[0], number + 1))
        assert len(shown) > 40


def test_block_of_ten_compressions_knows_the_first_entries() -> None:
    with Life(InMemory(), paths=4, summarizer=vague) as life:
        life.say("Use the key ring of team-harbour.")
        life.memory.add_tool_call("s", "unlock", {"ring": "keys/harbour-31.ring"}, call_id="r")
        life.memory.add_tool_result("s", "unlock", "unlocked", call_id="r")
        for _ in range(14):
            life.work(8)
            life.memory.compress("s")
        life.say("Now?")
        assert len(life.memory.explain("s").compressions) >= 14
        assert not lacking(["keys/harbour-31.ring", *life.said], life.context())


# ---------------------------------------------------------------- settings and old logs


@pytest.mark.parametrize("strategy", ["window", "window(8)", "token_buffer", "buffer"])
def test_preset_without_summaries_has_no_block(strategy: str) -> None:
    with Life(InMemory(), strategy=strategy, max_tokens=2_000) as life:
        life.say(MESSAGES[0])
        life.work(30 if strategy != "buffer" else 5)
        assert block(life.memory) is None


def test_log_without_states_still_loads() -> None:
    with Life(InFile(), max_tokens=2_000, strategy="window(20)") as life:
        life.say(MESSAGES[0])
        life.work(40)
        assert block(life.memory) is None
        payloads = [encode(record) for _, record in every(life.kind.open(), "s")]
        # As they were before there was an outline.
        old = [decode(re.sub(rb',"state":null(?=[,}])', b"", payload)) for payload in payloads]
        assert any(b'"state":null' in payload for payload in payloads)
        window = History.of(enumerate(old, 1)).state.window
        assert [item.entry.id for item in window.items] == [
            entry.id for entry in life.memory.get_active_entries("s")
        ]
        life.config = life.config.updated({"strategy": "default"})
        life.restart()
        life.memory.update_config("s", strategy="default")
        life.say("Go on.")
        life.work(40)
        assert block(life.memory) is not None
        life.check_said()
        life.check_folds()


# ---------------------------------------------------------------- one block, however it is read


@given(
    seed=st.integers(0, 2**16),
    llm=st.booleans(),
    steps=st.lists(st.one_of(STEPS, CHANGES), min_size=5, max_size=25),
)
@PROFILE
def test_live_block_equals_reloaded_one(seed: int, llm: bool, steps: list[str]) -> None:
    with Life(InFile(), seed, max_tokens=2_000, summarizer=vague if llm else None) as life:
        life.say(MESSAGES[seed % len(MESSAGES)])
        for step in steps:
            take(life, step, 2_000)
            life.context()
            life.check_folds()


S = "s"
RULES = [
    "Never touch migrations/0007.",
    "Never touch migrations/0012.",
    "Write commit messages as `shop: what`.",
]


def read_files(memory: MemoryManager, files: int, folder: str) -> None:
    """Add calls that read files, with long results."""
    for number in range(files):
        memory.add_tool_call(
            S, "read", {"path": f"{folder}/{number}.py"}, call_id=f"{folder}{number}"
        )
        memory.add_tool_result(S, "read", f"value = {number}\n" * 60, call_id=f"{folder}{number}")


def rules_in_context(memory: MemoryManager) -> list[str]:
    text = "\n".join(str(message["content"]) for message in memory.build_context(S).messages)
    return [rule for rule in RULES if rule in text]


@pytest.mark.parametrize("targets", [[150], [300], [1_000], [1_000, 400, 200, 1_000]])
@pytest.mark.parametrize("budget", [4_000, 8_000])
def test_rules_survive_compressions_to_small_targets(budget: int, targets: list[int]) -> None:
    memory = MemoryManager(counter="chars4", config=MemoryConfig(max_tokens=budget))
    for rule in RULES:
        memory.add_user_message(S, rule)
    read_files(memory, 20, "early")
    for target in targets:
        memory.compress(S, target_tokens=target)
    memory.add_user_message(S, "Go on.")
    read_files(memory, 30, "late")
    assert rules_in_context(memory) == RULES


def test_rules_stay_beside_constraints_and_a_large_overhead() -> None:
    config = MemoryConfig(max_tokens=4_000, overhead_tokens=2_500)
    memory = MemoryManager(counter="chars4", config=config)
    for rule in RULES:
        memory.add_user_message(S, rule)
    for number in range(11):
        memory.add_assistant_message(S, "Yes.")
        text = f"Gateway {number} is never restarted by hand. " * 3
        memory.add_system_message(S, text, metadata={"constraint": True})
    read_files(memory, 30, "late")
    assert rules_in_context(memory) == RULES
