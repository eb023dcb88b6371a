"""Conformance tests of local token counters, and of any counter's `CounterSpec`."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

from memman.counting.counter import TokenCounter
from memman.counting.models import model_ref
from memman.errors import CounterUnavailable
from memman.protocols import CounterSpec, LocalCounter
from memman.testing.laws import finished, in_threads, run_program

UNKNOWN_MODEL: Final = "no-such-model-anywhere-4711"
_ACCURACIES: Final = ("high", "medium", "low")
_ODD_NAMES: Final = ("", " ", "\u2603", "a/b/c", ":", "ft::", "x" * 10_000, "gpt-4o\n", "\x00")
_IMPORTS: Final = """
import importlib, sys
module = importlib.import_module({module!r})
listed = getattr(module, "memman_token_counters", None)
if listed is not None:
    list(listed())
print(*[name for name in {sdks!r} if name in sys.modules])
"""
SAMPLES: Final = (
    "Hello, world!",
    "def f(x):\n    return x ** 2\n",
    '{"path": "/var/log/app.log", "lines": [1, 2, 3]}',
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u3053\u3093\u306b\u3061\u306f",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 family, e\u0301 combining",
    "   leading, trailing and tabs\t\t\n\n\n",
    "0123456789" * 20,
)
_MEGABYTE: Final = "a long log line, number after number, 4711 0815\n" * 21_846
# The regular expressions of some tokenizers fail above 1,000,000.
_BLANKS: Final = (" " * 1_100_000, "\t" * 1_100_000, "x" + " " * 1_100_000 + "y")
_THREADS: Final = 8
_CONTROL: Final = ("<|endoftext|>", "<|im_start|>", "[INST]", "</s>")


class ListedCounterLaws:
    """The laws of a counter in the list of its plugin."""

    spec: CounterSpec | None = None
    models: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    module: str = ""
    sdk: str | tuple[str, ...] = ""
    deadline: float = 10.0

    def test_it_answers_for_its_models(self) -> None:
        for model in self.models:
            assert self._match(model) > 0, f"it does not answer for {model}"

    def test_it_leaves_foreign_models_alone(self) -> None:
        for model in self.foreign:
            assert self._match(model) <= 0, f"it answers for {model}"

    def test_listing_it_imports_no_sdk(self) -> None:
        sdks = (self.sdk,) if isinstance(self.sdk, str) else tuple(self.sdk)
        if self.module and any(sdks):
            program = _IMPORTS.format(module=self.module, sdks=sdks)
            done = run_program(program)
            assert done.returncode == 0, f"import {self.module} fails: {done.stderr[-300:]}"
            assert not done.stdout.split(), f"import {self.module} loads {done.stdout.strip()}"

    def _match(self, model: str) -> int:
        spec = self.spec
        assert spec is not None, "`models` and `foreign` need a `spec`"
        return finished(lambda: spec.match(model_ref(model)), self.deadline)


class CounterSpecConformance(ListedCounterLaws):
    """The laws of a counter's spec; `CounterConformance` and `RemoteCounterConformance` include them.

    `spec` is the counter's spec; it must match `models` and must not match `foreign`. Importing `module`
    and listing its counters must not import `sdk`, one name or several. `deadline` is the most seconds of
    any single call.
    """

    def test_its_spec_is_sound(self) -> None:
        spec = self.spec
        if spec is None:
            return
        assert isinstance(spec, CounterSpec), f"{spec!r} is no CounterSpec"
        assert isinstance(spec.name, str), f"its name is {spec.name!r}, not a string"
        assert spec.name, "its name is empty"
        assert spec.name == spec.name.strip(), f"its name {spec.name!r} has spaces around it"
        assert spec.accuracy in _ACCURACIES, (
            f"its accuracy is {spec.accuracy!r}; it must be one of {', '.join(_ACCURACIES)}"
        )
        if spec.remote:
            assert spec.format, "a remote counter names the format in which it wants a request"

    def test_matching_takes_any_name_of_a_model(self) -> None:
        for name in _ODD_NAMES if self.spec is not None else ():
            match = self._match(name)
            assert type(match) is int, f"match for {name[:20]!r} is {match!r}, not a whole number"

    def test_it_claims_no_high_accuracy_for_a_model_nobody_knows(self) -> None:
        if self.spec is not None and self.spec.accuracy == "high":
            assert self._match(UNKNOWN_MODEL) <= 0, (
                f'it answers for {UNKNOWN_MODEL!r} with accuracy "high": match only the models '
                'whose vocabulary it has, or say "low"'
            )

    def test_its_factory_makes_the_counter(self) -> None:
        for model in self.models if self.spec is not None else ():
            self._check_made(self._made(model))

    def test_a_model_it_cannot_serve_gets_a_counter_or_a_reason(self) -> None:
        if self.spec is None:
            return
        unreasoned = False
        try:
            self._check_made(self._made(UNKNOWN_MODEL))
        except CounterUnavailable as error:
            unreasoned = not error.reason.strip()
        assert not unreasoned, "CounterUnavailable has an empty reason"

    # ------------------------------------------------------------ the spec

    def _made(self, model: str) -> Any:
        spec = self.spec
        assert spec is not None, "`models` needs a `spec`"
        return finished(lambda: spec.factory(model_ref(model)), self.deadline)

    def _check_made(self, made: Any) -> None:
        assert self.spec is not None
        needed = ("count_request", "acount_request") if self.spec.remote else ("count_texts",)
        for method in needed:
            assert callable(getattr(made, method, None)), f"{type(made).__name__} has no {method}"
        fingerprint = getattr(made, "fingerprint", None)
        assert isinstance(fingerprint, str), f"its fingerprint is {fingerprint!r}, not a string"
        assert fingerprint, "its fingerprint is empty"


class CounterConformance(CounterSpecConformance):
    """The laws of a local counter: derive from it and set its attributes.

        class TestMine(CounterConformance):
            def make_counter(self):
                return MyCounter("my-model")

            spec = MY_SPEC
            models = ("my-model", "vendor/my-model")
            foreign = ("gpt-4o",)

    `offline`: making the counter and counting open no connection. `slack`: the most tokens that two texts
    may cost more together than apart. `spec` is the counter's spec; it must match `models` and must not
    match `foreign`. Importing `module` and listing its counters must not import `sdk`. `deadline` is the
    most seconds of any single call, with a megabyte of text, too; a counter that hangs breaks the laws
    and does not block the tests.
    """

    offline: bool = True
    slack: int = 2

    def make_counter(self) -> LocalCounter:
        """Return the counter under test."""
        raise NotImplementedError

    def counts(self, texts: Sequence[str], counter: LocalCounter | None = None) -> list[int]:
        """Return the counts of a counter, a new one by default; fail after the deadline."""
        return finished(lambda: (counter or self.make_counter()).count_texts(texts), self.deadline)

    def count(self, text: str) -> int:
        """Return the count of one text by the counter under test."""
        counts = self.counts((text,))
        assert len(counts) == 1, f"one text has {len(counts)} counts"
        return counts[0]

    # ------------------------------------------------------------ numbers

    def test_a_count_is_a_whole_number_and_never_negative(self) -> None:
        for text in SAMPLES:
            tokens = self.count(text)
            assert type(tokens) is int, f"{text!r} has {tokens!r} tokens, not a whole number"
            assert tokens > 0, f"{text!r} has {tokens} tokens"

    def test_an_empty_text_costs_nothing(self) -> None:
        tokens = self.count("")
        assert tokens == 0, f"an empty text has {tokens!r} tokens"

    def test_the_same_text_costs_the_same_each_time(self) -> None:
        counter = self.make_counter()
        first = self.counts(SAMPLES, counter)
        again = self.counts(SAMPLES, counter)
        assert again == first, f"the same texts cost {first} and then {again}"
        anew = self.counts(SAMPLES)
        assert anew == first, f"one counter says {first}, another {anew}"

    def test_a_batch_is_counted_as_its_texts_one_by_one(self) -> None:
        batch = list(self.counts(SAMPLES))
        alone = [self.count(text) for text in SAMPLES]
        assert batch == alone, f"in a batch {batch}, one by one {alone}"

    def test_an_empty_batch_has_no_counts(self) -> None:
        counts = list(self.counts(()))
        assert counts == [], f"no texts have the counts {counts}"

    def test_a_batch_may_be_a_list_and_is_not_changed(self) -> None:
        texts = list(SAMPLES)
        counts = self.counts(texts)
        assert len(counts) == len(SAMPLES), f"{len(SAMPLES)} texts have {len(counts)} counts"
        assert texts == list(SAMPLES), "the list of texts was changed"

    def test_two_texts_together_cost_at_most_what_they_cost_apart(self) -> None:
        for left in SAMPLES:
            for right in SAMPLES:
                apart = self.count(left) + self.count(right)
                together = self.count(left + right)
                assert together <= apart + self.slack, (
                    f"{left!r} + {right!r}: {together} tokens together, {apart} apart"
                )

    def test_more_of_a_text_costs_more(self) -> None:
        for text in SAMPLES:
            once, often = self.count(text), self.count(text * 10)
            assert once < often <= 10 * (once + self.slack), (
                f"{text!r} has {once} tokens, and ten times the text has {often}"
            )

    # ------------------------------------------------------------ hard texts

    def test_control_tokens_in_a_text_are_ordinary_text(self) -> None:
        for text in _CONTROL:
            once, often = self.count(text), self.count(text * 8)
            assert once >= 1, f"{text!r} has {once} tokens"
            assert often > once, f"{text!r} has {once} tokens, and eight of it have {often}"

    def test_a_lone_surrogate_and_nul_are_counted(self) -> None:
        for text in ("\ud83d alone", "\x00", "a\x00b", "\udcff"):
            tokens = self.count(text)
            assert tokens >= 1, f"{text!r} has {tokens} tokens"

    def test_a_text_of_a_megabyte_is_counted(self) -> None:
        tokens = self.count(_MEGABYTE)
        assert tokens > 1_000, f"a megabyte of log lines has {tokens} tokens"

    def test_a_million_blanks_are_counted(self) -> None:
        for text in _BLANKS:
            tokens = self.count(text)
            assert tokens >= 1, f"{len(text)} characters of blanks have {tokens} tokens"

    # ------------------------------------------------------------ behaviour

    def test_the_fingerprint_is_a_name_that_stays(self) -> None:
        first, second = self.make_counter().fingerprint, self.make_counter().fingerprint
        assert isinstance(first, str), f"the fingerprint is {first!r}, not a string"
        assert first, "the fingerprint is empty"
        assert first == second, f"the fingerprint is {first!r} and then {second!r}"

    def test_memman_takes_its_answers_as_they_are(self) -> None:
        accuracy = self.spec.accuracy if self.spec is not None else "high"
        counter = self.make_counter()
        tokens = TokenCounter(counter, accuracy)
        for text in SAMPLES:
            count = finished(lambda text=text: tokens.count_text(text), self.deadline)  # type: ignore[misc]  # mypy infers no lambda with a default
            assert count.counter == counter.fingerprint, (
                f"memman estimates instead: {tokens.failure}"
            )
            assert count.accuracy == accuracy

    def test_threads_get_the_answers_that_one_gets(self) -> None:
        counter = self.make_counter()
        alone = list(self.counts(SAMPLES, counter))
        asks = [lambda: list(counter.count_texts(SAMPLES))] * _THREADS
        for answer in in_threads(asks, self.deadline):
            assert answer == alone, f"a thread got {answer}, and one alone {alone}"

    def test_an_offline_counter_opens_no_connection(self) -> None:
        if self.offline:
            with _no_network() as tried:
                tokens = self.count(SAMPLES[0])
            # A counter may catch the error; the attempt counts all the same.
            assert not tried, "the counter is said to be offline and opened a connection"
            assert tokens > 0, f"without a network {SAMPLES[0]!r} has {tokens} tokens"


@contextmanager
def _no_network() -> Iterator[list[str]]:
    """Make connecting raise inside the block, and yield the list of attempts."""
    tried: list[str] = []

    def refuse(*_args: Any, **_kw: Any) -> None:
        tried.append("a connection")
        raise AssertionError("the counter is said to be offline and opened a connection")

    connecting = patch.multiple(socket.socket, connect=refuse, connect_ex=refuse, sendto=refuse)
    with connecting, patch.object(socket, "getaddrinfo", refuse):
        yield tried
