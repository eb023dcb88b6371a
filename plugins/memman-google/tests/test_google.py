"""memman-google against a server on this machine that speaks Google's wire format."""

from __future__ import annotations

import asyncio
import base64
import functools
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from time import monotonic
from typing import Any

import memman_google
import pytest
from google.auth.credentials import AnonymousCredentials
from google.genai import Client
from google.genai.types import HttpOptions
from memman_google import GoogleCounter, counter_specs

from memman import (
    AsyncMemoryManager,
    CounterUnavailable,
    InvalidInput,
    MemoryConfig,
    MemoryManager,
    ModelRef,
    TokenCount,
    events,
    plugins,
)
from memman.counting.failures import CountFailure
from memman.counting.models import model_ref
from memman.counting.remote import RemoteTokenCounter
from memman.testing import Answer, LoopbackServer, RemoteCounterConformance, loopback
from tests.patience import PATIENCE
from tests.provider_kits import second_client

MODEL = "gemini-2.5-flash"
HELLO = {"role": "user", "parts": [{"text": "hello"}]}
SECRET = "a-key-that-nobody-prints"  # noqa: S105 - not a real one
TOOL = {"name": "ls", "description": "lists", "input_schema": {"type": "object"}}
DECLARED = {
    "functionDeclarations": [
        {"name": "ls", "description": "lists", "parametersJsonSchema": {"type": "object"}}
    ]
}
VARIABLES = (
    "GOOGLE_API_KEY", "GEMINI_API_KEY", "GOOGLE_GENAI_USE_ENTERPRISE", "GOOGLE_GENAI_USE_VERTEXAI",
    "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION",
)  # fmt: skip

PATH = ":countTokens"


def counted(tokens: Any) -> Answer:
    return Answer(200, {"totalTokens": tokens})


def failed(status: int, *details: Any, headers: Mapping[str, str] | None = None) -> Answer:
    error = {"code": status, "message": "no", "status": "NO", "details": list(details)}
    return Answer(status, {"error": error}, headers or {})


@pytest.fixture
def google() -> Iterator[LoopbackServer]:
    with loopback(PATH, counted(33)) as server:
        yield server


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def developer(url: str) -> GoogleCounter:
    client = Client(api_key=SECRET, http_options=HttpOptions(base_url=url))
    return GoogleCounter(model_ref(MODEL), vertex=False, client=client)


class Credentials(AnonymousCredentials):
    def __init__(self) -> None:
        super().__init__()
        self.token = "t"  # noqa: S105 - not a real one


def vertex(url: str) -> GoogleCounter:
    client = Client(
        vertexai=True,
        project="p",
        location="us-central1",
        credentials=Credentials(),
        http_options=HttpOptions(base_url=url),
    )
    return GoogleCounter(model_ref(MODEL), vertex=True, client=client)


def received(server: LoopbackServer) -> list[tuple[str, Mapping[str, str], Any]]:
    return [(each.path, each.headers, each.body) for each in server.received]


def request(**more: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [HELLO], "system": None, "tools": [], **more}


Ask = Callable[..., int]


def in_sync(counter: GoogleCounter, rendered: Mapping[str, Any], timeout: float = 5.0) -> int:
    return counter.count_request(rendered, timeout=timeout)


def in_async(counter: GoogleCounter, rendered: Mapping[str, Any], timeout: float = 5.0) -> int:
    return asyncio.run(counter.acount_request(rendered, timeout=timeout))


@pytest.fixture(params=[in_sync, in_async], ids=["sync", "async"])
def ask(request: pytest.FixtureRequest) -> Ask:
    asked: Ask = request.param
    return asked


# ---------------------------------------------------------------- the laws


class Googles(RemoteCounterConformance):
    path = PATH
    secret = SECRET
    module, sdk = "memman_google", "google.genai"
    foreign = ("gpt-4o", "vertex_ai/claude-sonnet-4", "gemma-3-27b")

    def make_request(self, text: str) -> dict[str, Any]:
        said = {"role": "user", "parts": [{"text": text}]}
        return request(messages=[said], system="be brief", tools=[DECLARED])

    def success(self, tokens: Any) -> Answer:
        return counted(tokens)

    def failure(self, status: int, headers: Mapping[str, str] | None = None) -> Answer:
        return failed(status, headers=headers)

    def close_counter(self, counter: Any) -> None:
        counter._clients._client.close()


class TestDeveloper(Googles):
    spec = counter_specs()[0]
    models = (MODEL, "gemini/gemini-2.5-pro", "models/gemini-3-pro")

    def make_counter(self, url: str) -> GoogleCounter:
        return developer(url)

    def test_the_tools_reach_the_provider(self) -> None:
        """Within a text: the service has no other place for them."""
        for _runtime, received in self._sent(self.make_request("hi")):
            [_system, tools, _hi] = received.body["contents"]
            assert json.loads(tools["parts"][0]["text"]) == [DECLARED]


@second_client
class TestVertex(Googles):
    spec = counter_specs()[1]
    models = ("vertex_ai/gemini-2.5-pro",)

    def make_counter(self, url: str) -> GoogleCounter:
        return vertex(url)


# ---------------------------------------------------------------- on the wire


def read(value: Any) -> Any:
    """What Google's service reads: its JSON takes both spellings of a key, and URL-safe base64."""
    if isinstance(value, list):
        return [read(each) for each in value]
    if not isinstance(value, dict):
        return value
    pairs = {re.sub(r"_(.)", lambda m: m[1].upper(), key): read(value[key]) for key in value}
    if isinstance(pairs.get("data"), str):
        pairs["data"] = base64.b64decode(pairs["data"].replace("_", "/").replace("-", "+"))
    return pairs


def test_the_developer_api_is_asked_for_the_contents(google: LoopbackServer, ask: Ask) -> None:
    assert ask(developer(google.url), request()) == 33
    [(path, headers, body)] = received(google)
    assert path.endswith(f"/models/{MODEL}:countTokens")
    assert body == {"contents": [HELLO]}
    assert headers["x-goog-api-key"] == SECRET


def test_developer_api_gets_system_and_tools_as_text(google: LoopbackServer, ask: Ask) -> None:
    ask(developer(google.url), request(system="be brief", tools=[TOOL]))
    [(_, _, body)] = received(google)
    assert set(body) == {"contents"}
    system, tools, hello = body["contents"]
    assert system == {"role": "user", "parts": [{"text": "be brief"}]}
    assert json.loads(tools["parts"][0]["text"]) == [DECLARED]
    assert hello == HELLO


def test_vertex_gets_system_and_tools_as_what_they_are(google: LoopbackServer, ask: Ask) -> None:
    assert ask(vertex(google.url), request(system="be brief", tools=[TOOL])) == 33
    [(path, _, body)] = received(google)
    assert path.endswith(
        f"/projects/p/locations/us-central1/publishers/google/models/{MODEL}:countTokens"
    )
    assert body["contents"] == [HELLO]
    assert body["systemInstruction"]["parts"] == [{"text": "be brief"}]
    assert read(body["tools"]) == [DECLARED]


def test_tools_of_gemini_itself_go_as_they_are(google: LoopbackServer) -> None:
    tools = [DECLARED, {"googleSearch": {}}]
    in_sync(vertex(google.url), request(tools=tools))
    assert read(google.received[0].body["tools"]) == tools


def test_calls_results_and_images_are_sent_as_they_are(google: LoopbackServer, ask: Ask) -> None:
    png = base64.b64encode(b"\x89PNG\xff\xfe").decode()
    assert "/" in png
    messages = [
        {"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": png}}]},
        {"role": "model", "parts": [{"functionCall": {"name": "ls", "args": {"path": "."}}}]},
        {
            "role": "user",
            "parts": [{"functionResponse": {"name": "ls", "response": {"output": "a.txt"}}}],
        },
    ]
    ask(developer(google.url), request(messages=messages))
    assert read(google.received[0].body["contents"]) == read(messages)


@pytest.mark.parametrize(
    "spelling", ["gemini/gemini-2.5-flash", "models/gemini-2.5-flash", "GEMINI-2.5-Flash"]
)
def test_the_model_goes_by_its_own_name(google: LoopbackServer, spelling: str) -> None:
    in_sync(developer(google.url), request(model=spelling))
    assert google.received[0].path.endswith(f"/models/{MODEL}:countTokens")


def test_an_alias_goes_by_the_name_of_its_model(google: LoopbackServer) -> None:
    client = Client(api_key=SECRET, http_options=HttpOptions(base_url=google.url))
    counter = GoogleCounter(ModelRef(MODEL, given="ours"), vertex=False, client=client)
    in_sync(counter, request(model="ours"))
    assert google.received[0].path.endswith(f"/models/{MODEL}:countTokens")


@pytest.mark.parametrize(
    "broken",
    [
        {"messages": []},
        {"messages": [{"role": "user", "parts": [{"txt": "hello"}]}]},
        {"messages": ["hello"]},
        {"tools": [7]},
        {"tools": [{"type": "computer"}]},
    ],
)
def test_what_the_sdk_does_not_take_is_refused_before_it_is_sent(
    google: LoopbackServer, ask: Ask, broken: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput):
        ask(vertex(google.url), request(**broken))
    assert google.received == []


# ---------------------------------------------------------------- failures


def met(counter: GoogleCounter, ask: Ask, rendered: Any = None, **more: Any) -> Any:
    """Return the count of a remote counter by either manager."""
    meter = RemoteTokenCounter(counter, model_ref(MODEL), **more)
    if ask is in_sync:
        return meter.price(rendered or request())

    async def asked() -> TokenCount | CountFailure:
        return await meter.aprice(rendered or request())

    return asyncio.run(asked())


@pytest.mark.parametrize(
    ("answer", "kind", "wait"),
    [
        (failed(400), "refused", None),
        (failed(400, {"reason": "API_KEY_INVALID"}), "denied", None),
        (failed(403), "denied", None),
        (failed(404), "unsupported", None),
        (failed(429, headers={"retry-after": "7"}), "limited", 7.0),
        (failed(429, {"retryDelay": "17s"}), "limited", 17.0),
        (failed(429), "limited", None),
        (failed(500), "server", None),
        (failed(503), "server", None),
        (Answer(502, b"<html>bad gateway</html>"), "server", None),
        (Answer(200, b"<html>welcome</html>"), "malformed", None),
        (Answer(200, {}), "malformed", None),
        (counted(-1), "malformed", None),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_failure_is_told_by_its_kind_after_one_attempt(
    google: LoopbackServer, ask: Ask, answer: Answer, kind: str, wait: float | None
) -> None:
    google.answer_with(answer)
    fallen = met(developer(google.url), ask)
    assert isinstance(fallen, CountFailure)
    assert (fallen.kind, fallen.retry_after) == (kind, wait), fallen.reason
    assert SECRET not in fallen.reason
    assert len(google.received) == 1


def test_nobody_there_is_a_failure_of_the_network(google: LoopbackServer, ask: Ask) -> None:
    with loopback(PATH, counted(1)) as gone:
        counter = developer(gone.url)
    assert met(counter, ask).kind == "network"


# ---------------------------------------------------------------- credentials


def test_without_a_key_the_factory_says_what_to_set() -> None:
    [google, _] = counter_specs()
    with pytest.raises(CounterUnavailable, match="set GOOGLE_API_KEY or GEMINI_API_KEY"):
        google.factory(model_ref(MODEL))


def test_without_credentials_a_count_on_vertex_says_what_to_set(
    google: LoopbackServer, ask: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    [_, spec] = counter_specs()
    fallen = met(spec.factory(model_ref(MODEL)), ask, timeout=5.0)
    assert fallen.kind == "unavailable"
    assert "gcloud auth application-default login" in fallen.reason


def test_the_environments_key_makes_the_client(
    google: LoopbackServer, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", SECRET)
    monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", google.url)
    [spec, _] = counter_specs()
    counter = spec.factory(model_ref(MODEL))
    assert ask(counter, request()) == 33
    assert SECRET not in counter.fingerprint
    assert google.received[0].headers["x-goog-api-key"] == SECRET


def test_another_endpoint_is_another_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    def names() -> set[str]:
        return {GoogleCounter(model_ref(MODEL), vertex=way).fingerprint for way in (False, True)}

    own = names()
    monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", "https://user:secret@proxy.example/google")
    monkeypatch.setenv("GOOGLE_CLOUD_LOCATION", "europe-west4")
    assert names() == {"google:developer/proxy.example/google", "google:vertex/europe-west4"}
    assert own == {"google:developer", "google:vertex"}


# ---------------------------------------------------------------- being found


@pytest.mark.parametrize(
    ("model", "environ", "names"),
    [
        ("gemini-2.5-flash", {}, ["google"]),
        ("gemini/gemini-2.5-pro", {}, ["google"]),
        ("openrouter/google/gemini-2.5-pro", {}, []),
        ("openrouter/google/gemini-2.5-pro", {"GOOGLE_GENAI_USE_VERTEXAI": "true"}, []),
        ("google-gla:gemini-2.5-pro", {}, ["google"]),
        ("google-vertex:gemini-2.5-pro", {}, ["google-vertex"]),
        ("vertex_ai/gemini-2.5-pro", {}, ["google-vertex"]),
        ("gemini-2.5-flash", {"GOOGLE_GENAI_USE_VERTEXAI": "true"}, ["google-vertex"]),
        ("gemini-2.5-flash", {"GOOGLE_GENAI_USE_ENTERPRISE": "1"}, ["google-vertex"]),
        ("gemini/gemini-2.5-pro", {"GOOGLE_GENAI_USE_VERTEXAI": "true"}, ["google"]),
        ("gpt-4o", {}, []),
        ("vertex_ai/claude-sonnet-4", {}, []),
    ],
)
def test_one_of_the_two_answers_for_a_gemini_model(
    model: str, environ: dict[str, str], names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    specs = counter_specs()
    assert [spec.name for spec in specs if spec.match(model_ref(model)) > 0] == names


def test_a_client_of_ones_own_answers_for_every_gemini_model(google: LoopbackServer) -> None:
    client = Client(api_key=SECRET, http_options=HttpOptions(base_url=google.url))
    [spec] = counter_specs(client)
    assert (spec.name, spec.accuracy) == ("google", "medium")
    for model in ("vertex_ai/gemini-2.5-pro", MODEL):
        of_environment = max(each.match(model_ref(model)) for each in counter_specs())
        assert spec.match(model_ref(model)) > of_environment
    assert in_sync(spec.factory(model_ref(MODEL)), request()) == 33


def test_listing_it_and_making_a_counter_import_no_sdk() -> None:
    program = (
        "import sys, memman_google as m; from memman.counting.models import model_ref;"
        "[s.factory(model_ref('vertex_ai/gemini-2.5-pro')) for s in m.counter_specs()[1:]];"
        "sys.exit('google.genai' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


# ---------------------------------------------------------------- in a manager


class Plugin:
    def __init__(self, client: Client) -> None:
        self.client = client

    @memman_google.hookimpl
    def memman_token_counters(self) -> Any:
        return counter_specs(self.client)


@pytest.fixture
def installed(google: LoopbackServer, monkeypatch: pytest.MonkeyPatch) -> None:
    found = plugins.load_plugins({"MEMMAN_PLUGINS": ""})
    client = Client(api_key=SECRET, http_options=HttpOptions(base_url=google.url))
    found.register(Plugin(client), "ours")
    monkeypatch.setattr(plugins, "_shared", found)


CONFIG = MemoryConfig(
    model=MODEL, max_tokens=1_000, max_entries=None, count_policy="confirm", auto_compress=False
)


def heard_and_built() -> tuple[list[Any], Any]:
    memory = MemoryManager(counter="chars4", config=CONFIG)
    heard: list[Any] = []

    def hear(sender: Any, event: Any) -> None:
        heard.append(event)

    for number in range(18):
        memory.add_user_message("s", f"{number:>3} ".ljust(4 * 46, "x"))
    with events.count_fell_back.connected_to(hear, sender=memory):
        return heard, memory.build_context("s", system="be brief")


def async_heard_and_built() -> tuple[list[Any], Any]:
    heard: list[Any] = []

    def hear(sender: Any, event: Any) -> None:
        heard.append(event)

    async def run() -> Any:
        memory = AsyncMemoryManager(counter="chars4", config=CONFIG)
        for number in range(18):
            await memory.add_user_message("s", f"{number:>3} ".ljust(4 * 46, "x"))
        with events.count_fell_back.connected_to(hear, sender=memory):
            return await memory.build_context("s", system="be brief")

    return heard, asyncio.run(run())


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("build", [heard_and_built, async_heard_and_built], ids=["sync", "async"])
def test_a_doubtful_context_has_the_price_that_google_says(
    google: LoopbackServer, build: Any
) -> None:
    google.answer_with(counted(930))
    heard, context = build()
    assert (context.tokens.tokens, context.tokens.method) == (930, "api")
    assert context.tokens.accuracy == "medium"
    assert heard == []
    [(_, _, body)] = received(google)
    assert body["contents"][0] == {"role": "user", "parts": [{"text": "be brief"}]}
    assert len(body["contents"]) > 1


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("build", [heard_and_built, async_heard_and_built], ids=["sync", "async"])
@pytest.mark.parametrize("status", [400, 403, 404, 429, 500])
def test_failure_is_an_event_and_the_estimate_is_used(
    google: LoopbackServer, build: Any, status: int
) -> None:
    google.answer_with(failed(status))
    heard, context = build()
    assert context.tokens.counter == "chars4"
    [event] = heard
    assert event.counter == "google:developer/given"
    assert str(status) in event.reason


@pytest.mark.usefixtures("installed")
def test_a_server_that_hangs_does_not_hold_up_a_context(
    google: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hasty = functools.partial(RemoteTokenCounter, timeout=0.3)
    monkeypatch.setattr("memman.counting.remote.RemoteTokenCounter", hasty)
    google.answer_with(Answer(never=True))
    began = monotonic()
    heard, context = heard_and_built()
    assert monotonic() - began < PATIENCE
    assert context.tokens.counter == "chars4"
    assert len(heard) == 1
