"""memman's own counters conform, and the kit finds one that does not."""

import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from memman.counting.builtin import BYTES4, CHARS4, builtin_specs
from memman.counting.estimator import estimator_for
from memman.counting.models import model_ref
from memman.errors import CounterUnavailable
from memman.protocols import CounterSpec, LocalCounter, ModelRef
from memman.testing import (
    CounterConformance,
    CounterSpecConformance,
    broken_laws,
    law_results,
    laws_of,
)

SPECS = {spec.name: spec for spec in builtin_specs()}


class TestChars4(CounterConformance):
    spec = SPECS["chars4"]
    module = "memman"
    sdk = "tiktoken"

    def make_counter(self) -> LocalCounter:
        return CHARS4


class TestBytes4(CounterConformance):
    spec = SPECS["bytes4"]
    foreign = ("gpt-4o", "a model nobody knows")

    def make_counter(self) -> LocalCounter:
        return BYTES4


class TestEstimate(CounterConformance):
    spec = SPECS["estimate"]
    models = ("gpt-4o", "claude-sonnet-4-5", "a model nobody knows")
    module = "memman"
    sdk = "tiktoken"
    slack = 5  # two texts may join to a rare sequence of classes, which weighs up to 4.5

    def make_counter(self) -> LocalCounter:
        return estimator_for(model_ref(self.models[0]))


class TestEstimateOfOldOpenAI(TestEstimate):
    models = ("gpt-4", "gpt-3.5-turbo")


class TestEstimateOfClaude3(TestEstimate):
    models = ("claude-3-5-sonnet", "claude-sonnet-4-5")


class TestEstimateOfClaude47(TestEstimate):
    models = ("claude-opus-4-7", "claude-sonnet-5")


class TestEstimateOfAStranger(TestEstimate):
    models = ("a model nobody knows", "gemini-2.5-pro")


class TestTiktoken(CounterConformance):
    models = ("gpt-4o", "openai/gpt-4o", "gpt-4.1-mini")
    foreign = ("claude-sonnet-4-5", "gemini-2.5-pro", "mistral-large")
    module = "memman_tiktoken"
    sdk = "tiktoken"

    @property
    def spec(self):
        plugin = pytest.importorskip("memman_tiktoken")
        return plugin.memman_token_counters()[0]

    def make_counter(self) -> LocalCounter:
        try:
            return self.spec.factory(model_ref("gpt-4o"))
        except CounterUnavailable as error:
            pytest.skip(f"no vocabulary here: {error.reason}")


class Panic(BaseException):
    """An error like a Rust extension's."""


Panic.__name__ = "PanicException"


class Counter:
    """A correct counter; `spoil` changes its counts, `name` is its fingerprint."""

    def __init__(self, spoil: Any = None, name: Any = "sound") -> None:
        self.fingerprint = name
        self.spoil = spoil
        self.calls = 0

    def count_texts(self, texts: Sequence[str]) -> list[int]:
        self.calls += 1
        counts = CHARS4.count_texts(texts)
        return counts if self.spoil is None else self.spoil(self, texts, counts)


def each(rule: Callable[[str, int], Any]) -> Callable[..., Any]:
    """Spoil each count separately."""
    return lambda counter, texts, counts: [rule(*pair) for pair in zip(texts, counts, strict=True)]


def panics(text: str, count: int) -> int:
    if len(text) > 1_000_000 and " " * 1_000 in text:
        raise Panic("a regular expression gave up")
    return count


def hangs(counter: Counter, texts: Sequence[str], counts: list[int]) -> list[int]:
    threading.Event().wait()
    return counts


def changes_the_batch(counter: Counter, texts: Any, counts: list[int]) -> list[int]:
    if isinstance(texts, list):
        texts.clear()
    return counts


def differs_by_thread(counter: Counter, texts: Sequence[str], counts: list[int]) -> list[int]:
    own = vars(counter).setdefault("first", threading.current_thread())
    return counts if own is threading.current_thread() else [count + 1 for count in counts]


def connects(counter: Counter, texts: Sequence[str], counts: list[int]) -> list[int]:
    with suppress(OSError, AssertionError):  # hides its own count
        socket.create_connection(("127.0.0.1", 9), timeout=0.1).close()
    return counts


# Each law, and a counter that breaks it.
SPOILED: dict[str, Any] = {
    "test_a_count_is_a_whole_number_and_never_negative": each(lambda text, n: -n),
    "test_an_empty_text_costs_nothing": each(lambda text, n: n + 1),
    "test_the_same_text_costs_the_same_each_time": lambda counter, texts, counts: [
        count + counter.calls for count in counts
    ],
    "test_a_batch_is_counted_as_its_texts_one_by_one": lambda counter, texts, counts: counts[:1],
    "test_an_empty_batch_has_no_counts": lambda counter, texts, counts: counts or [0],
    "test_a_batch_may_be_a_list_and_is_not_changed": changes_the_batch,
    "test_two_texts_together_cost_at_most_what_they_cost_apart": each(lambda text, n: n * n),
    "test_more_of_a_text_costs_more": each(lambda text, n: min(n, 10)),
    "test_control_tokens_in_a_text_are_ordinary_text": each(
        lambda text, n: 0 if "<|" in text else n
    ),
    "test_a_lone_surrogate_and_nul_are_counted": each(lambda text, n: len(text.encode())),
    "test_a_text_of_a_megabyte_is_counted": each(lambda text, n: min(n, 512)),
    "test_a_million_blanks_are_counted": each(panics),
    "test_memman_takes_its_answers_as_they_are": each(lambda text, n: float(n)),
    "test_threads_get_the_answers_that_one_gets": differs_by_thread,
    "test_an_offline_counter_opens_no_connection": connects,
}
FINE = CounterSpec(
    name="fine", match=lambda model: int(model.name == "fine"), factory=lambda model: Counter()
)


def listed(**changes: Any) -> Any:
    return msgspec.structs.replace(FINE, **changes)


def raising(error: Exception) -> Any:
    def make(model: ModelRef) -> Counter:
        if model.name != "fine":
            raise error
        return Counter()

    return make


LISTED: dict[str, CounterSpec] = {
    "test_its_spec_is_sound": listed(accuracy="exact"),
    "test_it_answers_for_its_models": listed(match=lambda model: 0),
    "test_it_leaves_foreign_models_alone": listed(match=lambda model: 1),
    "test_matching_takes_any_name_of_a_model": listed(match=lambda model: ord(model.name[0])),
    "test_it_claims_no_high_accuracy_for_a_model_nobody_knows": listed(match=lambda model: 1),
    "test_its_factory_makes_the_counter": listed(factory=lambda model: None),
    "test_a_model_it_cannot_serve_gets_a_counter_or_a_reason": listed(
        factory=raising(KeyError("x"))
    ),
}
OTHERWISE = {"test_the_fingerprint_is_a_name_that_stays", "test_listing_it_imports_no_sdk"}


def kit_of(spoil: Any = None, listing: CounterSpec = FINE) -> type[CounterConformance]:
    class Kit(CounterConformance):
        spec = listing
        models = ("fine", "vendor/FINE")
        foreign = ("gpt-4o",)
        deadline = 2.0

        def make_counter(self) -> LocalCounter:
            return Counter(spoil)

    return Kit


def test_a_sound_counter_breaks_no_law() -> None:
    assert broken_laws(kit_of()) == []


def test_every_law_has_a_counter_here_that_breaks_it() -> None:
    assert {*SPOILED, *LISTED, *OTHERWISE} == set(laws_of(CounterConformance))


@pytest.mark.parametrize("law", SPOILED)
def test_the_kit_catches_a_counter_that_breaks(law: str) -> None:
    assert law in broken_laws(kit_of(SPOILED[law]))


@pytest.mark.parametrize("law", LISTED)
def test_the_kit_catches_a_listing_that_breaks(law: str) -> None:
    assert law in broken_laws(kit_of(listing=LISTED[law]))


@pytest.mark.parametrize(
    ("reason", "holds"), [("has no vocabulary of it", True), (" ", False)], ids=["reason", "empty"]
)
def test_a_model_that_is_not_served_needs_a_reason(reason: str, holds: bool) -> None:
    law = "test_a_model_it_cannot_serve_gets_a_counter_or_a_reason"
    listing = listed(factory=raising(CounterUnavailable(reason)))
    assert (law not in broken_laws(kit_of(listing=listing))) == holds


def test_kit_catches_changing_and_invalid_fingerprints() -> None:
    for made in (
        lambda: Counter(name=str(uuid4())),
        lambda: Counter(name=7),
        lambda: Counter(name=""),
    ):

        class Kit(CounterConformance):
            make_counter = staticmethod(made)  # type: ignore[assignment]

        assert "test_the_fingerprint_is_a_name_that_stays" in broken_laws(Kit)


def test_the_kit_catches_an_sdk_that_is_imported_by_listing(tmp_path, monkeypatch) -> None:
    (tmp_path / "memman_test_hasty.py").write_text(
        "def memman_token_counters():\n    import sqlite3\n    return []\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    class Hasty(CounterSpecConformance):
        module = "memman_test_hasty"
        sdk = ("ftplib", "sqlite3")

    [result] = [result for result in law_results(Hasty) if result.problem]
    assert result.law == "test_listing_it_imports_no_sdk"
    assert result.problem == "import memman_test_hasty loads sqlite3"


@pytest.mark.parametrize(
    "answer",
    [-1, float("nan"), "5", None, True, 1.0],
    ids=["-1", "nan", "str", "none", "bool", "float"],
)
def test_the_kit_catches_a_counter_that_answers_with(answer: Any) -> None:
    broken = broken_laws(kit_of(each(lambda text, n: answer)))
    assert "test_a_count_is_a_whole_number_and_never_negative" in broken
    assert "test_memman_takes_its_answers_as_they_are" in broken


def test_hanging_counter_breaks_a_law_without_hanging_the_kit() -> None:
    class Hanging(kit_of(hangs)):  # type: ignore[misc]
        deadline = 0.1

    results = {result.law: result for result in law_results(Hanging)}
    result = results["test_a_count_is_a_whole_number_and_never_negative"]
    assert (result.overdue, result.problem) == (True, "not done after 0.1 s")
    assert results["test_it_answers_for_its_models"].problem == ""


def test_what_ends_the_program_is_not_taken_for_a_broken_law() -> None:
    def interrupted(text: str, count: int) -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken_laws(kit_of(each(interrupted)))


def test_unusable_counter_is_marked_in_the_results() -> None:
    def gone(text: str, count: int) -> int:
        raise CounterUnavailable("pip install acme")

    results = {result.law: result for result in law_results(kit_of(each(gone)))}
    result = results["test_an_empty_text_costs_nothing"]
    assert (result.unavailable, result.problem) == (True, "pip install acme")


def test_assertion_without_message_is_shown_by_its_source() -> None:
    class Wordless:
        def test_something(self) -> None:
            assert 1 + 1 == 3

    [result] = law_results(Wordless)
    assert result.problem.startswith("assert")
