"""Counting: the choice of a counter, its input, and faults of counters."""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memman import (
    CounterSpec,
    CounterUnavailable,
    Entry,
    ImagePart,
    MemoryConfig,
    MemoryManager,
    ModelRef,
    PluginNotFound,
    TextPart,
    events,
)
from memman.counting.builtin import BYTES4, CHARS4, builtin_specs
from memman.counting.counter import TokenCounter
from memman.counting.estimator import estimator_for
from memman.counting.images import DEFAULT_SIZE, image_tokens
from memman.counting.models import model_ref
from memman.counting.resolution import resolve
from memman.entries import NewEntry, entry_of

PIXEL = (  # a PNG of one pixel
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Letters:
    """A counter of one token for each character, which records the texts."""

    fingerprint = "letters"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def count_texts(self, texts: Sequence[str]) -> list[int]:
        self.asked += texts
        return [len(text) for text in texts]


def spec(
    name: str, match: int = 5, accuracy: Any = "high", make: Any = None, **more: Any
) -> CounterSpec:
    return CounterSpec(
        name=name,
        match=(lambda model: match) if isinstance(match, int) else match,
        factory=make or (lambda model: Letters()),
        accuracy=accuracy,
        **more,
    )


# ---------------------------------------------------------------- rules of thumb


@pytest.mark.parametrize(
    ("text", "chars4", "bytes4"),
    [
        ("", 0, 0),
        ("a", 1, 1),
        ("abcd", 1, 1),
        ("abcde", 2, 2),
        ("日本", 1, 2),
        ("🙂", 1, 1),
        ("é" * 4, 1, 2),
    ],
)
def test_a_rule_of_thumb_is_a_quarter_rounded_up(text: str, chars4: int, bytes4: int) -> None:
    assert CHARS4.count_texts([text]) == [chars4]
    assert BYTES4.count_texts([text]) == [bytes4]


@given(st.lists(st.text(max_size=50), max_size=5))
def test_bytes4_is_never_below_chars4(texts: list[str]) -> None:
    pairs = zip(BYTES4.count_texts(texts), CHARS4.count_texts(texts), strict=True)
    assert all(by_bytes >= by_chars for by_bytes, by_chars in pairs)


# ---------------------------------------------------------------- models


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("gpt-5", ModelRef("gpt-5", None, "gpt-5", "gpt-5")),
        (" GPT-5 ", ModelRef("gpt-5", None, " GPT-5 ", "gpt-5")),
        ("openai/gpt-5", ModelRef("gpt-5", "openai", "openai/gpt-5", "gpt-5")),
        ("a/b/C", ModelRef("c", "a/b", "a/b/C")),
    ],
)
def test_a_model_is_known_by_any_spelling(given: str, expected: ModelRef) -> None:
    assert model_ref(given) == expected


# ---------------------------------------------------------------- resolution


def chosen(*specs: CounterSpec, name: str | None = None) -> str:
    return resolve(model_ref("gpt-5"), [*specs, *builtin_specs()], name).spec.name


def test_the_most_specific_match_wins_whatever_the_order() -> None:
    assert chosen(spec("a", 3), spec("b", 9), spec("c", 5)) == "b"


def test_equal_matches_rank_by_accuracy_then_order() -> None:
    assert (
        chosen(spec("low", accuracy="low"), spec("high"), spec("medium", accuracy="medium"))
        == "high"
    )
    assert chosen(spec("first"), spec("second")) == "first"


def test_the_estimator_comes_last_and_matches_everything() -> None:
    assert chosen() == "estimate"
    assert chosen(spec("no", 0)) == "estimate"
    assert chosen(spec("yes", 2, accuracy="low")) == "yes"


def test_a_remote_counter_is_never_taken_for_entries() -> None:
    assert chosen(spec("remote", 99, remote=True)) == "estimate"


def unavailable(model: ModelRef) -> Any:
    raise CounterUnavailable("pip install acme")


def broken(model: Any) -> Any:
    raise ZeroDivisionError("a third party's own fault")


def test_an_unavailable_counter_gives_way_to_the_next() -> None:
    assert chosen(spec("gone", 9, make=unavailable), spec("there", 5)) == "there"


def test_raising_factory_or_match_is_logged_and_skipped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert chosen(spec("broken", 9, make=broken)) == "estimate"
    assert chosen(spec("worse", broken)) == "estimate"  # type: ignore[arg-type]
    assert [record.exc_info is not None for record in caplog.records] == [True, True]


def test_resolution_explains_every_candidate_in_the_order_tried() -> None:
    found = resolve(
        model_ref("gpt-5"),
        [spec("no", 0), spec("gone", 9, make=unavailable), spec("there", 5), *builtin_specs()],
    )
    assert [(one.name, one.chosen, one.reason) for one in found.candidates] == [
        ("gone", False, "pip install acme"),
        ("there", True, ""),
        ("estimate", False, "a better one was chosen"),
        ("no", False, "does not know this model"),
        ("chars4", False, "does not know this model"),
        ("bytes4", False, "does not know this model"),
    ]


def test_named_counter_is_used_whatever_it_matches() -> None:
    assert chosen(spec("mine", 0), name="mine") == "mine"
    assert chosen(name="chars4") == "chars4"


def test_counter_chosen_by_name_is_explained() -> None:
    found = resolve(model_ref("gpt-5"), [spec("mine", 0), *builtin_specs()], "mine")
    [candidate] = found.candidates
    assert (candidate.name, candidate.chosen, candidate.reason) == (
        "mine",
        True,
        "asked for by name",
    )


def test_unavailable_counter_chosen_by_name_has_its_reason() -> None:
    with pytest.raises(CounterUnavailable, match="pip install acme"):
        chosen(spec("gone", make=unavailable), name="gone")
    with pytest.raises(CounterUnavailable, match="ZeroDivisionError"):
        chosen(spec("broken", make=broken), name="broken")


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(PluginNotFound, match="'nope'; known are bytes4, chars4, estimate, mine"):
        chosen(spec("mine"), name="nope")


# ---------------------------------------------------------------- counted texts


def count(new_entry: NewEntry) -> tuple[int, list[str]]:
    counter = Letters()
    return TokenCounter(counter, "high").count_entry(new_entry).tokens, counter.asked


def test_a_calls_name_and_arguments_are_counted() -> None:
    call = NewEntry(type="tool_call", role="assistant", content='{"a":1}', name="shell")
    tokens, texts = count(call)
    assert tokens == 12
    assert sorted(texts) == ["shell", '{"a":1}']


def test_an_image_costs_its_formula_and_not_its_bytes() -> None:
    def image(model: str, **given: Any) -> int:
        new_entry = NewEntry(type="message", role="user", content=(ImagePart(**given),))
        return TokenCounter(Letters(), "high", model=model_ref(model)).count_entry(new_entry).tokens

    unknown = image_tokens(model_ref("acme-1"), *DEFAULT_SIZE)
    assert image("acme-1", data="A" * 100_000) == image("acme-1", url="http://x") == unknown
    assert image("gpt-4o", url="http://x", detail="low") == 85
    assert image("gpt-4o", data=PIXEL) == 85 + 170
    assert image("claude-sonnet-4-5", url=f"data:image/png;base64,{PIXEL}") == 1


def test_image_is_priced_again_for_another_model() -> None:
    new_entry = NewEntry(type="message", role="user", content=(ImagePart(data=PIXEL),))
    small = TokenCounter(Letters(), "high", model=model_ref("gpt-4o-mini"))
    entry = entry_of(new_entry, "e", datetime.now(UTC), small.count_entry(new_entry))
    assert entry.token_count.tokens > 1_000
    assert TokenCounter(Letters(), "high", model=model_ref("gpt-4o")).recount(entry) == 85 + 170


def test_the_parts_of_a_text_are_counted_as_one_text() -> None:
    parts = (TextPart("a"), TextPart("b"))
    assert count(NewEntry(type="message", role="user", content=parts)) == (3, ["a\nb"])


def test_count_has_its_method() -> None:
    looks = iter([1.0, 1.25])
    counted = TokenCounter(Letters(), "high", timer=lambda: next(looks)).count_text("abc")
    assert (counted.tokens, counted.method, counted.accuracy) == (3, "client", "high")
    assert (counted.counter, counted.cached, counted.latency) == ("letters", False, 0.25)
    assert counted.expected_output is None
    estimated = TokenCounter(estimator_for(), "low").count_text("abc")
    assert (estimated.method, estimated.accuracy) == ("estimation", "low")


def test_each_text_of_a_session_is_counted_once() -> None:
    counter = Letters()
    memory = MemoryManager(counter=counter, config=MemoryConfig(max_tokens=10**6))
    for number in range(30):
        memory.add_user_message("s", f"message {number}")
        memory.build_context("s")
        memory.get_stats("s")
    texts = [text for text in counter.asked if text.startswith("message ")]
    assert texts == [f"message {number}" for number in range(30)]


def test_repeated_text_comes_from_the_cache_and_is_marked() -> None:
    counter = Letters()
    memory = MemoryManager(counter=counter)
    first, second = memory.count_tokens("hello"), memory.count_tokens("hello")
    assert (first.cached, second.cached) == (False, True)
    assert first.tokens == second.tokens == 5
    assert counter.asked == ["hello"]


def test_the_cache_forgets_after_five_minutes() -> None:
    now = [0.0]
    counter = Letters()
    meter = TokenCounter(counter, "high", timer=lambda: now[0])
    meter.count_cached("hello")
    now[0] = 299.0
    assert meter.count_cached("hello").cached
    now[0] = 301.0
    assert not meter.count_cached("hello").cached
    assert counter.asked == ["hello", "hello"]


def test_the_cache_keeps_no_text() -> None:
    meter = TokenCounter(Letters(), "high")
    meter.count_cached("a secret text")
    assert "a secret text" not in repr(dict(meter._cache))


def test_count_tokens_takes_entries_messages_system_and_tools() -> None:
    memory = MemoryManager(counter=Letters())
    entry = memory.add_user_message("s", "12345")
    assert memory.count_tokens(entry).tokens == 5
    assert memory.count_tokens([entry, entry]).tokens == 10
    assert memory.count_tokens("abc", system="12345").tokens == 8
    assert memory.count_tokens("abc", tools=[{"a": 1}]).tokens == 3 + len('[{"a":1}]')
    framed = memory.count_tokens([{"role": "user", "content": "12345"}]).tokens
    assert 5 < framed <= 20


# ---------------------------------------------------------------- faults


class PanicException(BaseException):
    """An error like a Rust extension's panic: not an `Exception`."""


BAD_ANSWERS: dict[str, Any] = {
    "negative": [-1],
    "float": [2.0],
    "bool": [True],
    "None": None,
    "no list": 5,
    "a list of None": [None],
    "text": "5",
    "too few": [],
    "too many": [1, 2],
    "an exception": RuntimeError("no vocabulary"),
    "a panic": PanicException("index out of bounds"),
}


class Misbehaving:
    fingerprint = "misbehaving"

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def count_texts(self, texts: Sequence[str]) -> Any:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


@pytest.mark.parametrize("kind", BAD_ANSWERS)
def test_misbehaving_counter_is_replaced_for_that_text(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    memory = MemoryManager(counter=Misbehaving(BAD_ANSWERS[kind]))
    emitted: list[Any] = []

    def receive(sender: Any, event: Any) -> None:
        emitted.append(event)

    with (
        caplog.at_level(logging.WARNING, logger="memman.counting"),
        events.count_fell_back.connected_to(receive, sender=memory),
    ):
        entry = memory.add_user_message("s", "abcdefgh")
        memory.add_user_message("s", "ijkl")
    count = entry.token_count
    assert (count.tokens, count.method, count.accuracy, count.counter) == (
        2, "estimation", "low", "estimate:generic/1",
    )  # fmt: skip
    assert memory.get_stats("s").active_tokens == 3
    assert {event.counter for event in emitted} == {"misbehaving"}
    assert len(emitted) == 2
    assert "misbehaving failed, estimating instead" in caplog.text


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_an_interruption_in_a_counter_reaches_the_caller(stop: type[BaseException]) -> None:
    memory = MemoryManager(counter=Misbehaving(stop()))
    with pytest.raises(stop):
        memory.add_user_message("s", "x")
    assert memory.list_sessions() == []


@pytest.mark.parametrize("answer", [-1, 2.5, None, "3", True])
def test_a_plain_function_that_returns_rubbish_falls_back_too(answer: Any) -> None:
    memory = MemoryManager(counter=lambda text: answer)
    assert memory.add_user_message("s", "abcdefgh").token_count.tokens == 2


def test_counter_that_failed_is_called_for_the_next_text() -> None:
    answers = iter([RuntimeError("busy"), [7]])

    class Moody:
        fingerprint = "moody"

        def count_texts(self, texts: Sequence[str]) -> Any:
            answer = next(answers)
            if isinstance(answer, Exception):
                raise answer
            return answer

    memory = MemoryManager(counter=Moody())
    first, second = (memory.add_user_message("s", "abcd") for _ in range(2))
    assert (first.token_count.tokens, second.token_count.tokens) == (1, 7)


# ---------------------------------------------------------------- changing the counter


def test_another_model_prices_the_window_and_leaves_the_records() -> None:
    memory = MemoryManager(counter="chars4")
    entry = memory.add_user_message("s", "12345678")
    other = MemoryManager(counter=Letters())
    other.import_session(memory.export_session("s"))
    assert other.get_stats("s").active_tokens == 8
    assert other.get_stats("s").total_tokens == 2
    assert other.get_entry("s", entry.id).token_count == entry.token_count


def test_count_policy_estimate_calls_no_counter() -> None:
    memory = MemoryManager(model="gpt-4o", config=MemoryConfig(count_policy="estimate"))
    assert memory.add_user_message("s", "abcdefgh").token_count.counter == "estimate:o200k/1"


@pytest.mark.parametrize("counter", ["chars4", len])
def test_a_counter_that_is_given_counts_under_every_policy(counter: Any) -> None:
    counts = {
        MemoryManager(counter=counter, config=MemoryConfig(model="gpt-4o", count_policy=policy))
        .count_tokens("abcdefgh")
        .counter
        for policy in ("local", "confirm", "estimate")
    }
    assert counts == {MemoryManager(counter=counter).count_tokens("abcdefgh").counter}


def test_the_model_finds_its_counter() -> None:
    pytest.importorskip("memman_tiktoken")
    memory = MemoryManager(model="gpt-4o")
    entry: Entry = memory.add_user_message("s", "hello world")
    assert (entry.token_count.tokens, entry.token_count.method) == (2, "client")


REPLY = {"type": "output_text", "text": "It is fine.", "annotations": [], "logprobs": []}
CALL = {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"}
SAID = {"role": "assistant", "content": "It is fine."}


@pytest.mark.parametrize(
    ("form", "item", "bare"),
    [
        (
            "openai-responses",
            {"type": "message", "role": "assistant", "id": "msg_" + "0" * 50, "status": "completed"}
            | {"content": [REPLY]},
            SAID,
        ),
        ("openai-responses", CALL | {"id": "fc_" + "0" * 50, "status": "completed"}, CALL),
        (
            "langchain",
            {
                "type": "ai",
                "data": {
                    "content": "It is fine.",
                    "id": "run-" + "0" * 50,
                    "name": None,
                    "additional_kwargs": {},
                    "response_metadata": {"finish_reason": "stop", "model_name": "gpt-5"},
                    "usage_metadata": {"input_tokens": 9, "output_tokens": 4, "total_tokens": 13},
                },
            },
            {"type": "ai", "data": {"content": "It is fine."}},
        ),
    ],
    ids=["message", "call", "langchain"],
)
def test_what_only_the_api_reads_of_a_message_costs_no_token(
    form: str, item: Any, bare: Any
) -> None:
    memory = MemoryManager(counter="estimate")
    [entry] = memory.add_messages("as it came", [item], format=form)
    [other] = memory.add_messages("bare", [bare], format=form)
    assert entry.token_count.tokens == other.token_count.tokens
    assert item in memory.build_context("as it came", format=form).messages


def test_visible_content_besides_text_costs_its_bytes() -> None:
    memory = MemoryManager(counter="estimate")
    plain = {"role": "user", "content": "Hi"}
    memory.add_messages("s", [plain, plain | {"annex": "x" * 400}], format="openai-chat")
    first, second = memory.get_entries("s")
    assert second.token_count.tokens - first.token_count.tokens > 150


def test_long_text_is_estimated_from_pieces_of_it() -> None:
    seen: list[int] = []

    def words(text: str) -> int:
        seen.append(len(text))
        return len(text.split())

    memory = MemoryManager(counter=words)
    long = memory.add_user_message("s", "one two three four " * 160_000)
    assert max(seen) < 300_000  # a bounded time, whatever the counter
    assert abs(long.token_count.tokens - 640_000) < 3_000
    assert (long.token_count.method, long.token_count.accuracy) == ("estimation", "low")
    ordinary = memory.add_user_message("s", "one two " * 50_000)
    assert (ordinary.token_count.tokens, ordinary.token_count.method) == (100_000, "client")
