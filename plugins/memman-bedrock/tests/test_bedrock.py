"""memman-bedrock against a server on this machine that speaks Bedrock's wire format."""

from __future__ import annotations

import asyncio
import base64
import functools
from collections.abc import Callable, Iterator, Mapping
from time import monotonic
from typing import Any

import boto3
import pytest
from botocore.config import Config
from memman_bedrock import BedrockCounter, clients, counter_spec
from memman_bedrock.models import bedrock_model

from memman import (
    AsyncMemoryManager,
    InvalidInput,
    MemoryConfig,
    MemoryManager,
    ModelRef,
    TokenCount,
    events,
    hookimpl,
    plugins,
)
from memman.counting.failures import CountFailure
from memman.counting.models import model_ref
from memman.counting.remote import RemoteTokenCounter
from memman.testing import Answer, LoopbackServer, RemoteCounterConformance, loopback
from tests.patience import PATIENCE
from tests.provider_kits import second_client

BASE = "anthropic.claude-sonnet-4-20250514-v1:0"
PATH = "/count-tokens"
SECRET = "a-key-that-nobody-prints"  # noqa: S105 - not a real one
HELLO = {"role": "user", "content": [{"text": "hello"}]}
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
SPEC = {
    "toolSpec": {"name": "ls", "description": "lists", "inputSchema": {"json": SCHEMA}},
}
VARIABLES = (
    "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN", "AWS_BEARER_TOKEN_BEDROCK", "AWS_ENDPOINT_URL",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
)  # fmt: skip


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


def in_environment(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", url)


@functools.cache  # boto3 reads its description of the service once for a session, and slowly
def _session() -> boto3.Session:
    return boto3.Session()


SESSION_OF = functools.cache(clients._session)  # by region, for the same reason


def client_of(url: str, region: str = "us-east-1") -> Any:
    return _session().client(
        "bedrock-runtime",
        region_name=region,
        endpoint_url=url,
        aws_access_key_id="a",
        aws_secret_access_key=SECRET,
        config=Config(connect_timeout=2, read_timeout=2, retries={"total_max_attempts": 1}),
    )


def counted(tokens: Any) -> Answer:
    return Answer(200, {"inputTokens": tokens})


def failed(
    status: int, code: str = "", message: str = "no", headers: Mapping[str, str] | None = None
) -> Answer:
    typed = {"x-amzn-errortype": code} if code else {}
    return Answer(status, {"message": message}, {**typed, **(headers or {})})


UNSUPPORTED = failed(
    400, "ValidationException", "The provided model doesn't support counting tokens."
)


@pytest.fixture
def bedrock() -> Iterator[LoopbackServer]:
    with loopback(PATH, counted(44)) as server:
        yield server


def request(**more: Any) -> dict[str, Any]:
    return {"model": BASE, "messages": [HELLO], "system": None, "tools": [], **more}


Ask = Callable[..., int]


def in_sync(counter: BedrockCounter, rendered: Mapping[str, Any]) -> int:
    return counter.count_request(rendered, timeout=10.0)


def in_async(counter: BedrockCounter, rendered: Mapping[str, Any]) -> int:
    return asyncio.run(counter.acount_request(rendered, timeout=10.0))


@pytest.fixture(params=[in_sync, in_async], ids=["sync", "async"])
def ask(request: pytest.FixtureRequest) -> Ask:
    asked: Ask = request.param
    return asked


def counter_of(
    server: LoopbackServer, model: str = BASE, region: str = "us-east-1"
) -> BedrockCounter:
    return BedrockCounter(model_ref(model), client=client_of(server.url, region))


def met(counter: BedrockCounter, ask: Ask, rendered: Any = None) -> Any:
    """Return the count of a remote counter by either manager."""
    meter = RemoteTokenCounter(counter, model_ref(BASE), timeout=10.0)
    if ask is in_sync:
        return meter.price(rendered or request())

    async def asked() -> TokenCount | CountFailure:
        return await meter.aprice(rendered or request())

    return asyncio.run(asked())


# ---------------------------------------------------------------- the laws


class Bedrocks(RemoteCounterConformance):
    path = PATH
    secret = SECRET
    spec = counter_spec()
    module, sdk = "memman_bedrock", "boto3"
    models = (
        BASE,
        "us.anthropic.claude-3-7-sonnet-20250219-v1:0",
        "bedrock/us-east-1/anthropic.claude-v2",
        "bedrock:amazon.nova-pro-v1:0",
        "bedrock/something-new",
        "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/abc",
    )
    foreign = ("gpt-4o", "claude-sonnet-4-5", "anthropic/claude-opus-4-7", "vertex_ai/claude-3")
    unsupported_requests = 2  # the base id, and that of the region's inference profile

    def make_request(self, text: str) -> dict[str, Any]:
        said = {"role": "user", "content": [{"text": text}]}
        return request(messages=[said], system="be brief", tools=[SPEC])

    def success(self, tokens: Any) -> Answer:
        return counted(tokens)

    def failure(self, status: int, headers: Mapping[str, str] | None = None) -> Answer:
        return failed(status, headers=headers)

    def unsupported(self) -> Answer:
        return UNSUPPORTED


@second_client
class TestClientOfOnesOwn(Bedrocks):
    def make_counter(self, url: str) -> BedrockCounter:
        return BedrockCounter(model_ref(BASE), client=client_of(url))

    def close_counter(self, counter: Any) -> None:
        counter._clients._client.close()


class TestClientOfTheEnvironment(Bedrocks):
    @pytest.fixture(autouse=True)
    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        monkeypatch.setattr(clients, "_session", SESSION_OF)

    def make_counter(self, url: str) -> BedrockCounter:
        in_environment(self.monkeypatch, url)
        self.monkeypatch.setenv("AWS_REGION", "us-east-1")
        return BedrockCounter(model_ref(BASE))

    def close_counter(self, counter: Any) -> None:
        if counter._clients._client is not None:
            counter._clients._client.close()


# ---------------------------------------------------------------- on the wire


def test_a_request_goes_as_converse_input_to_the_models_path(
    bedrock: LoopbackServer, ask: Ask
) -> None:
    assert ask(counter_of(bedrock), request(system="be brief", tools=[SPEC])) == 44
    [received] = bedrock.received
    assert received.path == f"/model/{BASE}/count-tokens"
    assert received.body == {
        "input": {
            "converse": {
                "messages": [HELLO],
                "system": [{"text": "be brief"}],
                "toolConfig": {"tools": [SPEC]},
            }
        }
    }


@pytest.mark.parametrize(
    "tool",
    [
        {
            "type": "function",
            "function": {"name": "ls", "description": "lists", "parameters": SCHEMA},
        },
        {"name": "ls", "description": "lists", "input_schema": SCHEMA},
        {"functionDeclarations": [{"name": "ls", "description": "lists", "parameters": SCHEMA}]},
        SPEC,
    ],
)
def test_tools_of_any_provider_go_in_bedrocks_shape(bedrock: LoopbackServer, tool: Any) -> None:
    in_sync(counter_of(bedrock), request(tools=[tool]))
    assert bedrock.received[0].body["input"]["converse"]["toolConfig"] == {"tools": [SPEC]}


def test_calls_without_tools_get_tools_of_their_names(bedrock: LoopbackServer) -> None:
    use = {"toolUseId": "t1", "name": "ls", "input": {"bytes": "not base64 at all"}}
    result = {"toolUseId": "t1", "content": [{"text": "a.txt"}]}
    messages = [
        HELLO,
        {"role": "assistant", "content": [{"toolUse": use}]},
        {"role": "user", "content": [{"toolResult": result}]},
    ]
    in_sync(counter_of(bedrock), request(messages=messages))
    sent = bedrock.received[0].body["input"]["converse"]
    assert sent["messages"] == messages
    assert [each["toolSpec"]["name"] for each in sent["toolConfig"]["tools"]] == ["ls"]


def test_bytes_reach_the_service_encoded_once(bedrock: LoopbackServer, ask: Ask) -> None:
    png = base64.b64encode(b"\x89PNG\xff\xfe").decode()
    image = {"image": {"format": "png", "source": {"bytes": png}}}
    result = {"toolResult": {"toolUseId": "t1", "content": [image]}}
    use = {"toolUse": {"toolUseId": "t1", "name": "ls", "input": {}}}
    messages = [
        {"role": "user", "content": [image]},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
    ]
    ask(counter_of(bedrock), request(messages=messages))
    assert bedrock.received[0].body["input"]["converse"]["messages"] == messages


@pytest.mark.parametrize(
    "broken",
    [
        {"messages": []},
        {"messages": ["secret words"]},
        {"messages": [{"role": "user", "content": "secret words"}]},
        {"messages": [{"role": "user", "content": [{"text": 7}]}]},
        {"messages": [{"role": "user", "content": [{"words": "secret words"}]}]},
        {"tools": [7]},
        {"tools": {"a": 1}},
        {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
    ],
)
def test_what_boto3_does_not_take_is_refused_before_it_is_sent(
    bedrock: LoopbackServer, ask: Ask, broken: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput) as raised:
        ask(counter_of(bedrock), request(**broken))
    assert "secret words" not in str(raised.value)
    assert bedrock.received == []
    assert met(counter_of(bedrock), ask, request(**broken)).kind == "refused"


# ---------------------------------------------------------------- ids

ARN = f"arn:aws:bedrock:eu-west-1:123456789012:inference-profile/eu.{BASE}"
OPAQUE = "arn:aws:bedrock:eu-west-1:123456789012:application-inference-profile/abc123"


@pytest.mark.parametrize(
    ("spelling", "ids", "region"),
    [
        (BASE, (BASE,), None),
        (f"us.{BASE}", (BASE, f"us.{BASE}"), None),
        (f"bedrock/global.{BASE}", (BASE, f"global.{BASE}"), None),
        (f"bedrock/us-gov.{BASE}".upper(), (BASE, f"us-gov.{BASE}"), None),
        (f"bedrock/converse/us-west-2/{BASE}", (BASE,), "us-west-2"),
        ("bedrock:amazon.nova-pro-v1:0", ("amazon.nova-pro-v1:0",), None),
        (f"litellm/bedrock/us.{BASE}", (BASE, f"us.{BASE}"), None),
        (f"litellm_proxy/bedrock/eu-west-1/{BASE}", (BASE,), "eu-west-1"),
        (f"aws/us.{BASE}", (BASE, f"us.{BASE}"), None),
        (f"amazon_bedrock/{BASE}", (BASE,), None),
        (f"anthropic_bedrock:us.{BASE}", (BASE, f"us.{BASE}"), None),
        ("xai.grok-4-v1:0", ("xai.grok-4-v1:0",), None),
        ("bedrock/eu-west-1/new-vendor.model-1", ("new-vendor.model-1",), "eu-west-1"),
        (f"arn:aws:bedrock:us-east-1::foundation-model/{BASE}", (BASE,), "us-east-1"),
        (ARN, (BASE, ARN), "eu-west-1"),
        (f"bedrock/{OPAQUE}", (OPAQUE,), "eu-west-1"),
        ("bedrock/new-vendor.model-1", ("new-vendor.model-1",), None),
    ],
)
def test_a_spelling_tells_the_ids_and_the_region(
    spelling: str, ids: tuple[str, ...], region: str | None
) -> None:
    found = bedrock_model(model_ref(spelling))
    assert found is not None
    assert (found.ids, found.region) == (ids, region)


@pytest.mark.parametrize(
    "spelling", ["gpt-4o", "claude-sonnet-4-5", "anthropic/claude-3", "x/y.z", ""]
)
def test_another_spelling_is_no_model_of_bedrocks(spelling: str) -> None:
    assert bedrock_model(model_ref(spelling)) is None


def test_an_alias_is_the_model_that_it_stands_for() -> None:
    found = bedrock_model(ModelRef(BASE, given="ours"))
    assert found is not None
    assert found.ids == (BASE,)


def asked_ids(server: LoopbackServer) -> list[str]:
    return [each.path.removeprefix("/model/").removesuffix(PATH) for each in server.received]


@pytest.mark.parametrize(
    ("region", "geo"),
    [
        ("us-east-1", "us"),
        ("eu-central-1", "eu"),
        ("ap-southeast-2", "apac"),
        ("us-gov-west-1", "us-gov"),
    ],
)
def test_the_base_id_is_asked_for_first_then_the_regions_profile(
    bedrock: LoopbackServer, ask: Ask, region: str, geo: str
) -> None:
    bedrock.answer_with(UNSUPPORTED, counted(9))
    counter = counter_of(bedrock, region=region)
    assert ask(counter, request()) == 9
    assert asked_ids(bedrock) == [BASE, f"{geo}.{BASE}"]
    assert ask(counter, request()) == 9, "the wrong id is remembered"
    assert asked_ids(bedrock)[2:] == [f"{geo}.{BASE}"]


def test_a_wrong_id_is_tried_again_after_600_seconds(bedrock: LoopbackServer) -> None:
    bedrock.answer_with(UNSUPPORTED, counted(9))
    now = [0.0]
    counter = BedrockCounter(model_ref(BASE), client=client_of(bedrock.url), timer=lambda: now[0])
    in_sync(counter, request())
    now[0] = 599.0
    in_sync(counter, request())
    now[0] = 601.0
    in_sync(counter, request())
    assert asked_ids(bedrock) == [BASE, f"us.{BASE}", f"us.{BASE}", BASE]


def test_a_refused_request_is_not_tried_under_another_id(bedrock: LoopbackServer, ask: Ask) -> None:
    bedrock.answer_with(failed(400, "ValidationException", "This model doesn't support tool use."))
    assert met(counter_of(bedrock), ask).kind == "refused"
    assert asked_ids(bedrock) == [BASE]


# ---------------------------------------------------------------- failures and credentials


@pytest.mark.parametrize(
    ("answer", "kind", "requests"),
    [
        (failed(403, "AccessDeniedException"), "denied", 1),
        (failed(404, "ResourceNotFoundException"), "unsupported", 2),
        (failed(429, "ThrottlingException"), "limited", 1),
        (failed(500, "InternalServerException"), "server", 1),
        (failed(503, "ServiceUnavailableException"), "server", 1),
        (Answer(502, b"<html>bad gateway</html>"), "server", 1),
        (Answer(200, b"<html>welcome</html>"), "malformed", 1),
        (Answer(200, {}), "malformed", 1),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_failure_is_told_by_its_kind(
    bedrock: LoopbackServer, ask: Ask, answer: Answer, kind: str, requests: int
) -> None:
    bedrock.answer_with(answer)
    fallen = met(counter_of(bedrock), ask)
    assert isinstance(fallen, CountFailure)
    assert fallen.kind == kind, fallen.reason
    assert SECRET not in fallen.reason
    assert len(bedrock.received) == requests


def test_nobody_there_is_a_failure_of_the_network(ask: Ask) -> None:
    with loopback(PATH, counted(1)) as gone:
        counter = counter_of(gone)
    assert met(counter, ask).kind == "network"


def test_without_a_region_it_says_what_to_set(ask: Ask) -> None:
    fallen = met(counter_spec().factory(model_ref(BASE)), ask)
    assert fallen.kind == "unavailable"
    assert "set AWS_REGION" in fallen.reason


def test_without_credentials_it_says_what_to_set(
    bedrock: LoopbackServer, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", bedrock.url)
    model = f"bedrock/us-east-1/{BASE}"
    fallen = met(counter_spec().factory(model_ref(model)), ask, request(model=model))
    assert fallen.kind == "unavailable"
    assert "set AWS_ACCESS_KEY_ID" in fallen.reason
    assert bedrock.received == []


@pytest.mark.parametrize(
    ("model", "environ", "fingerprint"),
    [
        (BASE, {"AWS_REGION": "eu-west-1"}, "bedrock:eu-west-1"),
        (BASE, {"AWS_DEFAULT_REGION": "eu-west-2"}, "bedrock:eu-west-2"),
        (f"bedrock/us-west-2/{BASE}", {"AWS_REGION": "eu-west-1"}, "bedrock:us-west-2"),
        (ARN, {"AWS_REGION": "us-east-1"}, "bedrock:eu-west-1"),
        (BASE, {}, "bedrock:default"),
    ],
)
def test_the_region_is_the_spellings_or_the_environments(
    model: str, environ: dict[str, str], fingerprint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert counter_spec().factory(model_ref(model)).fingerprint == fingerprint


def test_the_client_is_made_once(bedrock: LoopbackServer, monkeypatch: pytest.MonkeyPatch) -> None:
    in_environment(monkeypatch, bedrock.url)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    counter = counter_spec().factory(model_ref(BASE))
    in_sync(counter, request())
    first = counter._clients._client
    in_async(counter, request())
    assert counter._clients._client is first
    first.close()


def test_a_client_of_ones_own_goes_before_the_environments(bedrock: LoopbackServer) -> None:
    ours, theirs = counter_spec(client_of(bedrock.url)), counter_spec()
    assert ours.match(model_ref(BASE)) > theirs.match(model_ref(BASE)) > 0
    assert ours.match(model_ref("gpt-4o")) == 0


# ---------------------------------------------------------------- in a manager


class Plugin:
    def __init__(self, client: Any) -> None:
        self.client = client

    @hookimpl
    def memman_token_counters(self) -> Any:
        return [counter_spec(self.client)]


@pytest.fixture
def installed(bedrock: LoopbackServer, monkeypatch: pytest.MonkeyPatch) -> None:
    found = plugins.load_plugins({"MEMMAN_PLUGINS": ""})
    found.register(Plugin(client_of(bedrock.url)), "ours")
    monkeypatch.setattr(plugins, "_shared", found)


MODEL = f"bedrock/us.{BASE}"
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


BOTH_DOORS = pytest.mark.parametrize(
    "build", [heard_and_built, async_heard_and_built], ids=["sync", "async"]
)


@pytest.mark.usefixtures("installed")
@BOTH_DOORS
def test_a_doubtful_context_has_the_price_that_bedrock_says(
    bedrock: LoopbackServer, build: Any
) -> None:
    bedrock.answer_with(counted(930))
    heard, context = build()
    assert (context.tokens.tokens, context.tokens.method) == (930, "api")
    assert heard == []
    [received] = bedrock.received
    assert received.path == f"/model/{BASE}/count-tokens"
    assert received.body["input"]["converse"]["system"] == [{"text": "be brief"}]


@pytest.mark.usefixtures("installed")
@BOTH_DOORS
@pytest.mark.parametrize("status", [400, 403, 404, 429, 500])
def test_failure_is_an_event_and_the_estimate_is_used(
    bedrock: LoopbackServer, build: Any, status: int
) -> None:
    bedrock.answer_with(failed(status))
    heard, context = build()
    assert context.tokens.counter == "chars4"
    [event] = heard
    assert event.counter == "bedrock:us-east-1"
    assert str(status) in event.reason


@pytest.mark.usefixtures("installed")
def test_a_server_that_hangs_does_not_hold_up_a_context(
    bedrock: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hasty = functools.partial(RemoteTokenCounter, timeout=0.3)
    monkeypatch.setattr("memman.counting.remote.RemoteTokenCounter", hasty)
    bedrock.answer_with(Answer(never=True))
    began = monotonic()
    heard, context = heard_and_built()
    assert monotonic() - began < PATIENCE
    assert context.tokens.counter == "chars4"
    assert len(heard) == 1
