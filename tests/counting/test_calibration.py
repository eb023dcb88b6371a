"""Reports calibrate the next prediction, within bounds, whatever happens to a session."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memman import MemoryConfig, MemoryManager, SessionState
from memman.counting.calibration import learn, predicted
from memman.errors import StateError
from memman.records import LEAST_RATIO, MOST_RATIO, Learned

TOKENS = st.integers(0, 2_000_000)
REPORTS = st.lists(st.tuples(TOKENS, TOKENS, st.booleans()), max_size=30)


@given(REPORTS)
def test_ratio_is_bounded_and_prediction_is_never_negative(
    reports: list[tuple[int, int, bool]],
) -> None:
    known: Learned | None = None
    last: tuple[int, int] | None = None
    for reported, counted, same_shape in reports:
        known = learn(known, reported, counted, last if same_shape else None)
        last = reported, counted
        assert LEAST_RATIO <= known.ratio <= MOST_RATIO
        assert predicted(known, 0, anchored=True) >= 0
        assert predicted(known, counted, anchored=False) >= 0


@given(REPORTS, TOKENS, TOKENS)
def test_prediction_equals_the_last_report(
    reports: list[tuple[int, int, bool]], reported: int, counted: int
) -> None:
    known: Learned | None = None
    for before, estimated, _ in reports:
        known = learn(known, before, estimated, None)
    known = learn(known, reported, counted, None)
    assert predicted(known, counted, anchored=True) == pytest.approx(reported, abs=1)


@given(
    st.floats(0.6, 1.9),
    st.integers(0, 60_000),
    st.lists(st.integers(500, 4_000), min_size=60, max_size=60),
)
def test_a_constant_ratio_and_overhead_are_found(
    ratio: float, overhead: int, steps: list[int]
) -> None:
    known: Learned | None = None
    last: tuple[int, int] | None = None
    counted = 0
    for step in steps:
        counted += step
        report = round(overhead + ratio * counted), counted
        known = learn(known, *report, last)
        last = report
    assert known is not None
    assert known.ratio == pytest.approx(ratio, rel=0.1)
    # After a compression to a tenth, with nothing to anchor on.
    small = counted // 10
    truth = overhead + ratio * small
    assert predicted(known, small, anchored=False) == pytest.approx(
        truth, rel=0.2, abs=0.1 * counted
    )


def test_one_hidden_text_does_not_spoil_the_ratio() -> None:
    known = learn(None, 10_000, 10_000, None)
    known = learn(known, 50_000, 10_100, (10_000, 10_000))  # 100 tokens were added, 40,000 reported
    assert known.ratio < 1.1
    assert known.overhead > 38_000


def test_a_ratio_that_cannot_be_learned_is_refused() -> None:
    for wrong in ({"ratio": 0.1}, {"ratio": 9.0}, {"weight": -1.0}):
        with pytest.raises(ValueError, match="cannot be learned"):
            Learned(**{"ratio": 1.0, "weight": 1.0, "overhead": 0.0, **wrong})


# ---------------------------------------------------------------- in a session


def manager(**settings: Any) -> MemoryManager:
    return MemoryManager(counter="chars4", config=MemoryConfig(max_entries=None, **settings))


def conversation(memory: MemoryManager, rounds: int, ratio: float, overhead: int) -> None:
    """Add, build, and report the tokens of a provider with this ratio, in each round."""
    for number in range(rounds):
        memory.add_user_message("s", f"question {number} " + "word " * 200)
        counted = price(memory, counted=True)
        memory.record_usage("s", round(overhead + ratio * counted))


def price(memory: MemoryManager, *, counted: bool = False) -> int:
    context = memory.build_context("s")
    reserved = context.breakdown.get("reserved", 0)
    return context.tokens.tokens - (reserved if counted else 0)


def test_a_context_is_priced_as_its_provider_reports() -> None:
    memory = manager(max_tokens=100_000)
    conversation(memory, 20, ratio=1.3, overhead=5_000)
    memory.add_user_message("s", "more " * 400)
    counted = price(memory, counted=True)
    assert price(memory) == pytest.approx(5_000 + 1.3 * counted, rel=0.02)


def test_low_report_never_lowers_the_price_of_a_context() -> None:
    memory = manager(max_tokens=100_000)
    conversation(memory, 20, ratio=0.7, overhead=0)
    assert price(memory) == price(memory, counted=True)


def test_what_was_learned_moves_the_trigger() -> None:
    plain, taught = manager(max_tokens=8_000), manager(max_tokens=8_000)
    conversation(taught, 1, ratio=1.0, overhead=2_500)
    plain.add_user_message("s", "x")
    assert plain.get_stats("s").overhead_tokens < 100
    assert taught.get_stats("s").overhead_tokens >= 2_500
    for number in range(25):
        taught.add_user_message("s", f"{number} " + "word " * 200)
    assert taught.get_stats("s").active_tokens + 2_500 <= 8_000


def test_after_a_compression_the_ratio_stays() -> None:
    memory = manager(max_tokens=100_000)
    conversation(memory, 120, ratio=1.4, overhead=3_000)
    memory.compress("s", target_tokens=2_000)
    counted = price(memory, counted=True)
    assert price(memory) == pytest.approx(3_000 + 1.4 * counted, rel=0.1)


def test_another_model_has_its_own_ratio() -> None:
    memory = manager(max_tokens=100_000, model="acme-1")
    memory.add_user_message("s", "word " * 800)
    counted = price(memory, counted=True)
    memory.record_usage("s", counted + 9_000, model="acme-2")
    assert price(memory) == counted
    memory.update_config(model="acme-2")
    assert price(memory) == counted + 9_000


def test_context_for_another_model_uses_its_reports() -> None:
    memory = manager(max_tokens=100_000, model="acme-1")
    memory.add_user_message("s", "word " * 800)
    counted = memory.build_context("s", model="acme-2").tokens.tokens
    memory.record_usage("s", counted + 9_000, model="acme-2")
    assert memory.build_context("s", model="acme-2").tokens.tokens == counted + 9_000
    assert price(memory) == counted
    restored = manager(max_tokens=100_000, model="acme-1")
    restored.import_session(memory.export_session("s"))
    assert restored.build_context("s", model="acme-2").tokens.tokens == counted + 9_000


def test_report_is_compared_with_the_context_of_its_model() -> None:
    memory = MemoryManager(config=MemoryConfig(model="gpt-4o", count_policy="estimate"))
    memory.add_user_message("s", "Wie weit ist es noch bis zum Bahnhof? " * 400)
    ours = memory.build_context("s").tokens.tokens
    theirs = memory.build_context("s", model="claude-opus-5").tokens.tokens
    assert theirs > 1.1 * ours
    memory.record_usage("s", ours + 100, model="gpt-4o")
    assert memory.get_stats("s").drift == pytest.approx(100 / ours, abs=1e-4)
    memory.record_usage("s", theirs + 100, model="claude-opus-5")
    assert memory.get_stats("s").drift == pytest.approx(100 / theirs, abs=1e-4)
    assert price(memory) == ours + 100


def test_two_models_in_turn_each_learn_their_ratio() -> None:
    memory = manager(max_tokens=200_000, model="acme-1")
    for number in range(40):
        memory.add_user_message("s", f"question {number} " + "word " * 200)
        for model, ratio in (("acme-1", 1.3), ("acme-2", 1.6)):
            context = memory.build_context("s", model=model)
            counted = context.tokens.tokens - context.breakdown.get("reserved", 0)
            memory.record_usage("s", round(ratio * counted), model=model)
    memory.add_user_message("s", "more " * 4_000)
    for model, ratio in (("acme-1", 1.3), ("acme-2", 1.6)):
        context = memory.build_context("s", model=model)
        counted = context.tokens.tokens - context.breakdown["reserved"]
        assert context.tokens.tokens == pytest.approx(ratio * counted, rel=0.02)


def test_a_report_of_another_model_anchors_nothing_of_this_one() -> None:
    """After a compression, a request's cost never includes a negative rest."""
    alone, shared = (manager(max_tokens=100_000, model="acme-1") for _ in range(2))
    for memory in (alone, shared):
        conversation(memory, 20, ratio=1.0, overhead=0)
        memory.add_user_message("s", "word " * 4_000)
        memory.record_usage("s", 2 * price(memory, counted=True))
        memory.record_usage("s", price(memory, counted=True))  # a ratio over 1, so a rest under 0
        memory.compress("s", target_tokens=5_000)
    shared.build_context("s", model="acme-2")
    shared.record_usage("s", 5_000, model="acme-2")
    assert price(shared) == price(alone) > price(alone, counted=True)


@pytest.mark.parametrize(
    ("model", "reported"),
    [
        ("gpt-4o", "gpt-4o-2024-08-06"),
        ("openai/gpt-4o", "gpt-4o"),
        ("anthropic/claude-sonnet-4.5", "claude-sonnet-4-5-20250929"),
        ("bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5"),
    ],
)
def test_a_response_may_spell_its_model_otherwise(model: str, reported: str) -> None:
    memory = manager(max_tokens=100_000, model=model)
    memory.add_user_message("s", "word " * 800)
    counted = price(memory, counted=True)
    memory.record_usage("s", counted + 9_000, model=reported)
    assert price(memory) == counted + 9_000


def test_it_persists_with_the_session() -> None:
    memory = manager(max_tokens=100_000)
    conversation(memory, 10, ratio=1.2, overhead=4_000)
    state = memory.export_session("s")
    other = manager(max_tokens=100_000)
    other.import_session(SessionState.from_json(state.to_json()))
    assert price(other) == pytest.approx(price(memory), rel=0.01)
    assert other.get_stats("s").drift == memory.get_stats("s").drift


def test_a_forged_ratio_in_a_document_is_refused() -> None:
    memory = manager(max_tokens=100_000)
    conversation(memory, 2, ratio=1.2, overhead=4_000)
    document = msgspec.json.decode(memory.export_session("s").to_json())
    for record in document["log"]:
        if record["kind"] == "usage":
            record["learned"]["ratio"] = 77.0
    with pytest.raises(StateError):
        manager().import_session(document)


def test_small_budget_is_not_refused_for_invisible_text() -> None:
    memory = manager(max_tokens=100_000)
    conversation(memory, 10, ratio=1.0, overhead=40_000)
    context = memory.build_context("s", budget=4_000)
    assert context.tokens.tokens <= 4_000
    assert context.breakdown["reserved"] <= 2_000
