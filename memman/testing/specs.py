"""The laws of a counter's listing, each a test: what its `CounterSpec` promises before it counts."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, Final

from memman.counting import model_ref
from memman.errors import CounterUnavailable
from memman.protocols import CounterSpec
from memman.testing.laws import finished

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


class CounterSpecConformance:
    """The laws that local and remote counters share; `CounterConformance` has them all and more.

    `spec` is what the counter is listed as, `models` and `foreign` are models that it must and that it
    must not answer for. `module` and `sdk` (one name or several): importing the one and listing its
    counters imports none of the other. `deadline`: seconds that any single answer may take.
    """

    spec: CounterSpec | None = None
    models: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    module: str = ""
    sdk: str | tuple[str, ...] = ""
    deadline: float = 10.0

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

    def test_it_answers_for_its_models(self) -> None:
        for model in self.models:
            assert self._match(model) > 0, f"it does not answer for {model}"

    def test_it_leaves_foreign_models_alone(self) -> None:
        for model in self.foreign:
            assert self._match(model) <= 0, f"it answers for {model}"

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

    def test_listing_it_imports_no_sdk(self) -> None:
        sdks = (self.sdk,) if isinstance(self.sdk, str) else tuple(self.sdk)
        if self.module and any(sdks):
            program = _IMPORTS.format(module=self.module, sdks=sdks)
            done = subprocess.run(
                [sys.executable, "-c", program],
                check=False,
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert done.returncode == 0, f"import {self.module} fails: {done.stderr[-300:]}"
            assert not done.stdout.split(), f"import {self.module} loads {done.stdout.strip()}"

    # ------------------------------------------------------------ asking the listing

    def _match(self, model: str) -> int:
        spec = self.spec
        assert spec is not None, "`models` and `foreign` need a `spec`"
        return finished(lambda: spec.match(model_ref(model)), self.deadline)

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
