"""The laws of a local token counter, each a test."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from memman.counting import model_ref
from memman.ports import CounterSpec, LocalCounter
from memman.testing.laws import in_threads

SAMPLES = (
    "Hello, world!",
    "def f(x):\n    return x ** 2\n",
    '{"path": "/var/log/app.log", "lines": [1, 2, 3]}',
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u3053\u3093\u306b\u3061\u306f",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 family, e\u0301 combining",
    "   leading, trailing and tabs\t\t\n\n\n",
    "0123456789" * 20,
)
_MEGABYTE = "a long log line, number after number, 4711 0815\n" * 21_846
_THREADS = 8
_CONTROL = ("<|endoftext|>", "<|im_start|>", "[INST]", "</s>")


class CounterConformance:
    """Derive from it, say how the counter is made and what it promises; every law becomes a test.

        class TestMine(CounterConformance):
            def make_counter(self):
                return MyCounter("my-model")

            spec = MY_SPEC
            models = ("my-model", "vendor/my-model")
            foreign = ("gpt-4o",)

    `offline`: counting opens no connection. `slack`: by how many tokens two texts may cost more
    together than apart. `spec`, `models` and `foreign` are what it is listed as, models that it must
    and that it must not answer for. `module` and `sdk`: listing the counter imports the one and not
    the other.
    """

    offline: bool = True
    slack: int = 2
    spec: CounterSpec | None = None
    models: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    module: str = ""
    sdk: str = ""

    def make_counter(self) -> LocalCounter:
        """The counter under test."""
        raise NotImplementedError

    def count(self, text: str) -> int:
        """What the counter under test says of one text."""
        [tokens] = self.make_counter().count_texts((text,))
        return tokens

    # ------------------------------------------------------------ numbers

    def test_a_count_is_a_whole_number_and_never_negative(self) -> None:
        for text in SAMPLES:
            tokens = self.count(text)
            assert type(tokens) is int, f"{text!r} has {tokens!r} tokens"
            assert tokens > 0, f"{text!r} has {tokens} tokens"

    def test_an_empty_text_costs_nothing(self) -> None:
        assert self.count("") == 0

    def test_the_same_text_costs_the_same_each_time(self) -> None:
        counter = self.make_counter()
        first = counter.count_texts(SAMPLES)
        assert counter.count_texts(SAMPLES) == first
        assert self.make_counter().count_texts(SAMPLES) == first

    def test_a_batch_is_counted_as_its_texts_one_by_one(self) -> None:
        batch = list(self.make_counter().count_texts(SAMPLES))
        assert batch == [self.count(text) for text in SAMPLES]

    def test_an_empty_batch_has_no_counts(self) -> None:
        assert list(self.make_counter().count_texts(())) == []

    def test_a_batch_may_be_a_list_and_is_not_changed(self) -> None:
        texts = list(SAMPLES)
        assert len(self.make_counter().count_texts(texts)) == len(SAMPLES)
        assert texts == list(SAMPLES)

    def test_two_texts_together_cost_at_most_what_they_cost_apart(self) -> None:
        for left in SAMPLES:
            for right in SAMPLES:
                apart = self.count(left) + self.count(right)
                assert self.count(left + right) <= apart + self.slack, f"{left!r} + {right!r}"

    def test_more_of_a_text_costs_more(self) -> None:
        for text in SAMPLES:
            assert self.count(text) < self.count(text * 10) <= 10 * (self.count(text) + self.slack)

    # ------------------------------------------------------------ hard texts

    def test_control_tokens_in_a_text_are_ordinary_text(self) -> None:
        for text in _CONTROL:
            assert self.count(text) >= 1
            assert self.count(text * 8) > self.count(text)

    def test_a_lone_surrogate_and_nul_are_counted(self) -> None:
        for text in ("\ud83d alone", "\x00", "a\x00b", "\udcff"):
            assert self.count(text) >= 1

    def test_a_text_of_a_megabyte_is_counted(self) -> None:
        assert self.count(_MEGABYTE) > 1_000

    # ------------------------------------------------------------ behaviour

    def test_the_fingerprint_is_a_name_that_stays(self) -> None:
        first, second = self.make_counter().fingerprint, self.make_counter().fingerprint
        assert isinstance(first, str)
        assert first
        assert first == second

    def test_threads_get_the_answers_that_one_gets(self) -> None:
        counter = self.make_counter()
        alone = list(counter.count_texts(SAMPLES))
        together = in_threads([lambda: list(counter.count_texts(SAMPLES))] * _THREADS)
        assert together == [alone] * _THREADS

    def test_an_offline_counter_opens_no_connection(self) -> None:
        if self.offline:
            with _no_network():
                assert self.count(SAMPLES[0]) > 0

    # ------------------------------------------------------------ being found

    def test_it_answers_for_its_models(self) -> None:
        for model in self.models:
            assert _certainty(self.spec, model) > 0, f"it does not answer for {model}"

    def test_it_leaves_foreign_models_alone(self) -> None:
        for model in self.foreign:
            assert _certainty(self.spec, model) <= 0, f"it answers for {model}"

    def test_its_factory_makes_the_counter(self) -> None:
        for model in self.models if self.spec is not None else ():
            assert self.spec is not None
            made = self.spec.factory(model_ref(model))
            assert list(made.count_texts(SAMPLES))
            assert made.fingerprint

    def test_listing_it_imports_no_sdk(self) -> None:
        if self.module and self.sdk:
            program = f"import sys, {self.module}; sys.exit({self.sdk!r} in sys.modules)"
            done = subprocess.run([sys.executable, "-c", program], check=False)
            assert done.returncode == 0, f"import {self.module} loads {self.sdk}"


def _certainty(spec: CounterSpec | None, model: str) -> int:
    assert spec is not None, "`models` and `foreign` need a `spec`"
    return spec.match(model_ref(model))


@contextmanager
def _no_network() -> Iterator[None]:
    """Connecting raises inside the block."""

    def refuse(*_args: Any, **_kw: Any) -> None:
        raise AssertionError("the counter is said to be offline and opened a connection")

    connect, resolve = socket.socket.connect, socket.getaddrinfo
    socket.socket.connect = refuse  # type: ignore[method-assign]
    socket.getaddrinfo = refuse  # type: ignore[assignment]
    try:
        yield
    finally:
        socket.socket.connect = connect  # type: ignore[method-assign]
        socket.getaddrinfo = resolve
