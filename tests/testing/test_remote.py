"""The kit of remote counters: a plain counter keeps its laws, and each broken one is found."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

import pytest

from memman.protocols import CounterSpec, ModelRef
from memman.runtime.threads import in_thread
from memman.testing import Answer, RemoteCounterConformance

KEY = "key-of-the-test"
TOOL = {"name": "read_file", "description": "Reads a file", "input_schema": {"type": "object"}}


class Refused(Exception):
    """A provider's error, with a response as of SDKs."""

    def __init__(self, error: urllib.error.HTTPError) -> None:
        super().__init__(f"status {error.code}")
        self.status_code = error.code
        self.response = error


class PlainCounter:
    """A counter by `urllib`; a subclass can break each step of it."""

    fingerprint = "plain"

    def __init__(self, url: str) -> None:
        self.url = url

    def body(self, rendered: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in rendered.items() if value}

    def tokens(self, answer: Any) -> Any:
        return answer["tokens"]

    def ask(self, body: dict[str, Any], timeout: float) -> Any:
        data = json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/v1/count", data)  # noqa: S310 - the loopback
        try:
            with urllib.request.urlopen(request, timeout=timeout) as response:  # noqa: S310 - loopback
                return json.loads(response.read())
        except urllib.error.HTTPError as error:
            with error:
                raise Refused(error) from None

    def count_request(self, rendered: Mapping[str, Any], *, timeout: float) -> Any:
        return self.tokens(self.ask(self.body(rendered), timeout))

    async def acount_request(self, rendered: Mapping[str, Any], *, timeout: float) -> Any:  # noqa: ASYNC109 - the port
        return await in_thread(lambda: self.count_request(rendered, timeout=timeout))


class Plain(RemoteCounterConformance):
    path = "/v1/count"
    counter: type[PlainCounter] = PlainCounter
    models = ("plain-1",)
    foreign = ("gpt-4o",)
    spec = CounterSpec(
        name="plain",
        match=lambda model: 9 if model.name.startswith("plain") else 0,
        factory=lambda model: PlainCounter(""),
        remote=True,
        format="anthropic",
    )

    def make_counter(self, url: str) -> Any:
        return self.counter(url)

    def make_request(self, text: str) -> dict[str, Any]:
        messages = [{"role": "user", "content": text}]
        return {"model": "plain-1", "messages": messages, "system": "be brief", "tools": [TOOL]}

    def success(self, tokens: Any) -> Answer:
        return Answer(200, {"tokens": tokens})


class TestPlain(Plain):
    pass


class Retrying(PlainCounter):
    def ask(self, body: dict[str, Any], timeout: float) -> Any:
        try:
            return super().ask(body, timeout)
        except Refused:
            return super().ask(body, timeout)


class Guessing(PlainCounter):
    def tokens(self, answer: Any) -> Any:
        found = answer.get("tokens") if isinstance(answer, dict) else None
        return found if type(found) is int and found >= 0 else 100


class Swallowing(PlainCounter):
    def ask(self, body: dict[str, Any], timeout: float) -> Any:
        try:
            return super().ask(body, timeout)
        except Refused:
            return {"tokens": 0}


class Patient(PlainCounter):
    def ask(self, body: dict[str, Any], timeout: float) -> Any:
        return super().ask(body, timeout + 2.1)


class Blocking(PlainCounter):
    async def acount_request(self, rendered: Mapping[str, Any], *, timeout: float) -> Any:  # noqa: ASYNC109 - the port
        try:
            return self.count_request(rendered, timeout=timeout + 1)
        finally:
            await asyncio.sleep(0)


class Changing(PlainCounter):
    def body(self, rendered: Mapping[str, Any]) -> dict[str, Any]:
        rendered["messages"].append({"role": "user", "content": "."})
        return super().body(rendered)


class Forgetting(PlainCounter):
    left_out = ""

    def body(self, rendered: Mapping[str, Any]) -> dict[str, Any]:
        return {name: each for name, each in rendered.items() if each and name != self.left_out}


class WithoutTools(Forgetting):
    left_out = "tools"


class WithoutSystem(Forgetting):
    left_out = "system"


class WithoutModel(Forgetting):
    left_out = "model"


class Nulls(PlainCounter):
    def body(self, rendered: Mapping[str, Any]) -> dict[str, Any]:
        return dict(rendered)


class Telling(PlainCounter):
    fingerprint = f"plain:{KEY}"


class Random(PlainCounter):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.fingerprint = f"plain-{time.monotonic_ns()}"


class OfOneLoop(PlainCounter):
    """A client like an async one whose connections belong to the loop that made them."""

    loop: Any = None

    async def acount_request(self, rendered: Mapping[str, Any], *, timeout: float) -> Any:  # noqa: ASYNC109 - the port
        running = asyncio.get_running_loop()
        self.loop = self.loop or running
        if self.loop is not running:
            raise RuntimeError("attached to a different loop")
        return await super().acount_request(rendered, timeout=timeout)


@pytest.mark.parametrize(
    ("broken", "law"),
    [
        (Retrying, "a_failure_of_the_provider_is_a_reason_and_one_request"),
        (Guessing, "an_answer_that_is_no_count_is_a_failure"),
        (Swallowing, "a_failure_of_the_provider_is_a_reason_and_one_request"),
        (Swallowing, "a_limit_is_kept_until_the_provider_wants_to_be_asked_again"),
        (Swallowing, "a_model_that_is_not_supported_is_remembered"),
        (Swallowing, "refused_credentials_are_told_and_nobody_asks_again"),
        (Patient, "the_counter_itself_gives_up_at_its_time_out"),
        pytest.param(
            Blocking, "a_provider_that_never_answers_costs_the_deadline", marks=pytest.mark.long
        ),
        (Changing, "the_request_is_not_changed"),
        (WithoutTools, "the_tools_reach_the_provider"),
        (WithoutSystem, "every_text_of_the_request_reaches_the_provider"),
        (WithoutModel, "the_model_is_sent_in_the_spelling_of_the_request"),
        (Nulls, "a_request_without_system_and_tools_is_counted"),
        (Telling, "the_fingerprint_is_a_name_that_stays_and_holds_no_secret"),
        (Random, "the_fingerprint_is_a_name_that_stays_and_holds_no_secret"),
        (OfOneLoop, "a_counter_serves_one_loop_after_another"),
        (OfOneLoop, "threads_with_loops_of_their_own_share_a_counter"),
    ],
)
def test_broken_counter_is_reported(broken: type[PlainCounter], law: str) -> None:
    kit = type("Kit", (Plain,), {"counter": broken})
    with pytest.raises(AssertionError):
        getattr(kit(), f"test_{law}")()


def test_counter_listed_as_local_is_reported() -> None:
    local = CounterSpec(name="plain", match=lambda model: 1, factory=lambda model: PlainCounter(""))
    kit = type("Kit", (Plain,), {"spec": local})()
    with pytest.raises(AssertionError):
        kit.test_it_is_listed_as_a_remote_counter_with_a_format()
    with pytest.raises(AssertionError):
        kit.test_it_leaves_foreign_models_alone()


def test_requests_to_another_path_are_reported() -> None:
    kit = type("Kit", (Plain,), {"path": "/v2/count"})()
    with pytest.raises(AssertionError):
        kit.test_the_providers_number_is_the_count()


def test_kit_examples_are_of_the_requested_model() -> None:
    assert Plain.spec is not None
    assert Plain.spec.match(ModelRef(Plain().make_request("hi")["model"])) > 0
