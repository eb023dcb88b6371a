"""Spans and metrics, with the SDK and its exporters in memory."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conventions import ATTRIBUTES, MESSAGE_KEYS, OPERATIONS, PROVIDERS, REVISION
from memman_otel import instrument
from memman_otel.names import of_model
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from memman import AsyncMemoryManager, MemoryConfig, MemoryManager, ModelInfo, Prices
from memman.compression import drop_oldest
from memman.errors import InvalidInput
from memman.protocols import SummaryReply, SummaryRequest, SummaryUsage
from memman.stores import MemoryStore

QUOTE = "the password is swordfish"
WORDS = f"{QUOTE} " + "word " * 200
COMPACTED = "gen_ai.conversation.compacted"
PAGE = Path(__file__).parents[3] / "docs/how-to/trace-with-opentelemetry.md"


class Writer:
    model = "anthropic/claude-haiku-4-5"

    def summarize(self, request: SummaryRequest) -> SummaryReply:
        usage = SummaryUsage(input_tokens=900, output_tokens=20)
        return SummaryReply(text=f"They talked: {QUOTE}.", model="claude-haiku-4-5-1", usage=usage)


class AsyncWriter(Writer):
    async def summarize(self, request: SummaryRequest) -> SummaryReply:
        await asyncio.sleep(0)
        return super().summarize(request)


class Failing(Writer):
    def summarize(self, request: SummaryRequest) -> SummaryReply:
        raise ConnectionError(QUOTE)


class Telemetry:
    """An SDK with exporters in memory."""

    def __init__(self) -> None:
        self._spans, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self.meters = MeterProvider([self._reader])
        self.tracer = self.tracers.get_tracer("agent")

    def instrument(self, memory: Any, **given: Any) -> Any:
        return instrument(memory, tracer_provider=self.tracers, meter_provider=self.meters, **given)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self._spans.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def parents(self) -> set[tuple[str, str]]:
        """Return the names of each span's parent and of the span."""
        names = {span.context.span_id: span.name for span in self.spans if span.context}
        return {(names[span.parent.span_id], span.name) for span in self.spans if span.parent}

    def points(self) -> dict[str, list[Any]]:
        """Return the data points of each metric."""
        data = self._reader.get_metrics_data()
        found = (
            each
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for each in scope.metrics
        )
        return {each.name: list(each.data.data_points) for each in found}

    def units(self) -> dict[str, str]:
        data = self._reader.get_metrics_data()
        assert data is not None
        scopes = data.resource_metrics[0].scope_metrics
        return {each.name: each.unit for scope in scopes for each in scope.metrics}


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    made = Telemetry()
    yield made
    made.tracers.shutdown()
    made.meters.shutdown()


def config(**given: Any) -> MemoryConfig:
    return MemoryConfig(max_tokens=4_000, recent_window=2, **given)


PRICES = Prices(input=1.0, output=10.0, cache_read=0.1, cache_write=1.25)  # US dollars a million
PRICED = ModelInfo(200_000, 200_000, 64_000, prices=PRICES)


def manager(summarizer: Any = None, **given: Any) -> MemoryManager:
    return MemoryManager(
        model="openai/gpt-5",
        model_info=PRICED,
        config=config(**given),
        summarizer=summarizer or Writer(),
    )


def talk(memory: MemoryManager) -> None:
    for _ in range(5):
        memory.add_user_message("chat-7", WORDS)
        memory.add_assistant_message("chat-7", WORDS)
    memory.compress("chat-7", summarize=True)
    memory.build_context("chat-7")
    memory.fit_messages([{"role": "user", "content": WORDS}])
    memory.search("chat-7", "swordfish")
    memory.record_usage(
        "chat-7", input_tokens=1_000, output_tokens=50, cached_tokens=700, cache_written_tokens=100
    )


async def atalk(memory: Any) -> None:
    for _ in range(5):
        await memory.add_user_message("chat-7", WORDS)
        await memory.add_assistant_message("chat-7", WORDS)
    await memory.compress("chat-7", summarize=True)
    await memory.build_context("chat-7")


NESTED = {
    ("turn", "create_memory"),
    ("turn", "compress"),
    ("compress", "summarize anthropic/claude-haiku-4-5"),
    ("compress", "upsert_memory"),
    ("turn", "build_context"),
}


def turn_of(telemetry: Telemetry) -> ReadableSpan:
    [turn] = telemetry.named("turn")
    return turn


# ---------------------------------------------------------------- spans


@pytest.mark.parametrize("timeout", [None, 30.0], ids=["inline", "on-a-thread"])
def test_sync_spans_are_inside_the_callers(telemetry: Telemetry, timeout: float | None) -> None:
    with manager(summarize_timeout=timeout) as memory:
        telemetry.instrument(memory)
        with telemetry.tracer.start_as_current_span("turn"):
            talk(memory)
    assert telemetry.parents() >= NESTED
    assert (turn_of(telemetry).attributes or {})[COMPACTED] is True


def test_async_spans_are_inside_the_callers(telemetry: Telemetry) -> None:
    async def run() -> None:
        async with AsyncMemoryManager(
            model="gpt-5", config=config(summarize_timeout=30.0), summarizer=AsyncWriter()
        ) as memory:
            telemetry.instrument(memory)
            with telemetry.tracer.start_as_current_span("turn"):
                await atalk(memory)

    asyncio.run(run())
    assert telemetry.parents() >= NESTED
    assert (turn_of(telemetry).attributes or {})[COMPACTED] is True


@pytest.mark.parametrize("given", ["memory", "aio"])
def test_aio_spans_are_inside_the_callers(telemetry: Telemetry, given: str) -> None:
    async def run() -> None:
        with MemoryManager(model="gpt-5", config=config(), async_ports=True) as memory:
            memory.set_summarize_callback(AsyncWriter())
            telemetry.instrument(memory if given == "memory" else memory.aio)
            with telemetry.tracer.start_as_current_span("turn"):
                await atalk(memory.aio)

    asyncio.run(run())
    assert telemetry.parents() >= NESTED


def test_concurrent_tasks_keep_their_own_spans(telemetry: Telemetry) -> None:
    async def turn(memory: Any, number: int) -> None:
        with telemetry.tracer.start_as_current_span(f"turn {number}"):
            for _ in range(3):
                await memory.add_user_message(f"chat-{number}", WORDS)
                await asyncio.sleep(0)
            await memory.build_context(f"chat-{number}")

    async def run() -> None:
        async with AsyncMemoryManager(model="gpt-5", config=config()) as memory:
            telemetry.instrument(memory)
            await asyncio.gather(*(turn(memory, number) for number in range(8)))

    asyncio.run(run())
    names = {span.context.span_id: span.name for span in telemetry.spans if span.context}
    for span in telemetry.spans:
        session = (span.attributes or {}).get("gen_ai.conversation.id")
        if session is not None:
            assert span.parent
            assert names[span.parent.span_id] == str(session).replace("chat-", "turn ")


def test_background_compression_is_part_of_the_turn(telemetry: Telemetry) -> None:
    with manager(background=True) as memory:
        telemetry.instrument(memory)
        with telemetry.tracer.start_as_current_span("turn"):
            for _ in range(20):
                memory.add_user_message("chat-7", WORDS)
    assert telemetry.parents() >= {("turn", "compress"), ("compress", "upsert_memory")}
    triggers = {
        (span.attributes or {})["memman.compression.trigger"]
        for span in telemetry.named("compress")
    }
    assert triggers == {"automatic"}


def test_build_of_a_whole_window_is_not_compacted(telemetry: Telemetry) -> None:
    with manager() as memory:
        telemetry.instrument(memory)
        with telemetry.tracer.start_as_current_span("turn"):
            memory.add_user_message("chat-7", "Hello")
            memory.build_context("chat-7")
    assert all(COMPACTED not in (span.attributes or {}) for span in telemetry.spans)


def test_later_build_marks_its_own_turn_as_compacted(telemetry: Telemetry) -> None:
    with manager() as memory:
        talk(memory)
        telemetry.instrument(memory)
        with telemetry.tracer.start_as_current_span("turn"):
            memory.build_context("chat-7")
    assert (turn_of(telemetry).attributes or {})[COMPACTED] is True


def test_build_after_drops_alone_is_compacted(telemetry: Telemetry) -> None:
    with manager(strategy=(drop_oldest,), state_ratio=0) as memory:
        for _ in range(5):
            memory.add_user_message("chat-7", WORDS)
            memory.add_assistant_message("chat-7", WORDS)
        memory.compress("chat-7")
        assert not any(entry.replacement for entry in memory.get_active_entries("chat-7"))
        telemetry.instrument(memory)
        with telemetry.tracer.start_as_current_span("turn"):
            context = memory.build_context("chat-7")
    assert "state" not in context.breakdown
    assert (turn_of(telemetry).attributes or {})[COMPACTED] is True


@pytest.mark.parametrize("budget", [4_000, 600], ids=["whole", "trimmed"])
def test_fit_messages_has_a_span(telemetry: Telemetry, budget: int) -> None:
    messages = [{"role": "user", "content": WORDS} for _ in range(5)]
    with manager() as memory:
        telemetry.instrument(memory)
        with telemetry.tracer.start_as_current_span("turn"):
            context = memory.fit_messages(messages, budget=budget)
    [span] = telemetry.named("fit_messages")
    attributes = dict(span.attributes or {})
    assert telemetry.parents() == {("turn", "fit_messages")}
    assert attributes["memman.context.tokens"] == context.tokens.tokens
    assert attributes["gen_ai.operation.name"] == "fit_messages"
    assert "gen_ai.conversation.id" not in attributes
    compacted = (turn_of(telemetry).attributes or {}).get(COMPACTED)
    assert compacted is (True if context.trimmed else None)
    assert bool(context.trimmed) is (budget == 600)


def test_failed_summary_is_an_error_without_its_message(telemetry: Telemetry) -> None:
    with manager(Failing()) as memory:
        telemetry.instrument(memory)
        talk(memory)
    [span] = telemetry.named("summarize anthropic/claude-haiku-4-5")
    assert (span.attributes or {})["error.type"] == "ConnectionError"
    assert not span.status.is_ok
    assert span.status.description is None
    assert span.events == ()
    points = telemetry.points()
    assert points["memman.compression.failures"][0].value == 1
    kinds = [point.attributes["memman.fallback.kind"] for point in points["memman.fallbacks"]]
    assert kinds == ["outline"]


def test_failed_store_call_is_an_error(telemetry: Telemetry) -> None:
    class Full(MemoryStore):
        def append(self, *args: Any, **kw: Any) -> Any:
            raise OSError(QUOTE)

    memory = MemoryManager(Full())
    telemetry.instrument(memory)
    with pytest.raises(OSError, match="swordfish"):
        memory.add_user_message("chat-7", "Hello")
    [span] = telemetry.named("create_memory")
    assert (span.attributes or {})["error.type"] == "OSError"
    assert span.kind is trace.SpanKind.CLIENT  # a store that is not memman's own


def test_summary_span_has_the_reported_usage(telemetry: Telemetry) -> None:
    with manager() as memory:
        telemetry.instrument(memory)
        talk(memory)
    [span] = telemetry.named("summarize anthropic/claude-haiku-4-5")
    attributes = dict(span.attributes or {})
    assert attributes["gen_ai.request.model"] == "anthropic/claude-haiku-4-5"
    assert attributes["gen_ai.response.model"] == "claude-haiku-4-5-1"
    assert attributes["gen_ai.provider.name"] == "anthropic"
    assert attributes["gen_ai.usage.input_tokens"] == 900
    assert attributes["gen_ai.usage.output_tokens"] == 20


# ---------------------------------------------------------------- the conventions

_TYPES: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "int": lambda value: type(value) is int,
    "double": lambda value: isinstance(value, float),
    "string[]": lambda value: all(isinstance(item, str) for item in value),
    "any": lambda value: isinstance(json.loads(value), list),  # as JSON on spans
}


@pytest.mark.parametrize("content", [False, True])
def test_attributes_are_those_of_the_conventions(telemetry: Telemetry, content: bool) -> None:
    for summarizer in (Writer(), Failing()):
        with manager(summarizer) as memory:
            telemetry.instrument(memory, content=content)
            with telemetry.tracer.start_as_current_span("turn"):
                talk(memory)
            memory.delete_session("chat-7")
    points = [point for each in telemetry.points().values() for point in each]
    carriers = [*telemetry.spans, *points]
    found = {(name, value) for each in carriers for name, value in (each.attributes or {}).items()}
    for name, value in found:
        if name.startswith("gen_ai."):
            assert _TYPES[ATTRIBUTES[name]](value), (name, value)
        else:
            assert name.startswith("memman.") or name == "error.type"
    values = dict.fromkeys(value for name, value in found if name == "gen_ai.operation.name")
    own = {"build_context", "fit_messages", "compress", "summarize", "count_tokens"}
    assert {*values} <= OPERATIONS | own
    assert not own & OPERATIONS


def test_providers_are_those_of_the_conventions() -> None:
    models = (
        "gpt-5", "claude-opus-4-7", "gemini-2.5-pro", "mistral-large-latest", "azure/gpt-5", "o3",
        "us.anthropic.claude-sonnet-4-5-20250929-v1:0", "vertex_ai/gemini-3-pro", "xai/grok-4",
        "groq/llama-4", "deepseek/deepseek-chat", "gemini/gemini-3-pro", "bedrock/nova-pro",
    )  # fmt: skip
    names = [of_model(model).get("gen_ai.provider.name") for model in models]
    assert names == [
        "openai", "anthropic", "gcp.gen_ai", "mistral_ai", "azure.ai.openai", "openai",
        "aws.bedrock", "gcp.vertex_ai", "x_ai",
        "groq", "deepseek", "gcp.gemini", "aws.bedrock",
    ]  # fmt: skip
    assert {*names} <= PROVIDERS
    assert of_model("acme-1") == {"gen_ai.request.model": "acme-1"}
    assert of_model(None) == {}


def test_scope_names_the_schema(telemetry: Telemetry) -> None:
    with manager() as memory:
        telemetry.instrument(memory)
        talk(memory)
    scopes = {
        (span.instrumentation_scope.name, span.instrumentation_scope.schema_url)
        for span in telemetry.spans
        if span.instrumentation_scope
    }
    assert scopes == {("memman", REVISION.schema_url)}


# ---------------------------------------------------------------- content and ids


def texts(telemetry: Telemetry) -> str:
    points = [point for each in telemetry.points().values() for point in each]
    spans = telemetry.spans
    parts = [each.attributes for each in (*spans, *points)]
    return repr([*map(dict, filter(None, parts)), *(span.status.description for span in spans)])


def test_no_content_by_default(telemetry: Telemetry) -> None:
    for summarizer in (Writer(), Failing()):
        with manager(summarizer) as memory:
            telemetry.instrument(memory)
            talk(memory)
    assert "swordfish" not in texts(telemetry)
    assert "They talked" not in texts(telemetry)


def test_content_is_recorded_on_request(telemetry: Telemetry) -> None:
    with manager() as memory:
        telemetry.instrument(memory, content=True)
        talk(memory)
    [summary] = telemetry.named("summarize anthropic/claude-haiku-4-5")
    attributes = dict(summary.attributes or {})
    for name, role in (("input", "user"), ("output", "assistant")):
        [message] = json.loads(str(attributes[f"gen_ai.{name}.messages"]))
        assert message.keys() == MESSAGE_KEYS[name]
        assert message["role"] == role
        [part] = message["parts"]
        assert part["type"] == "text"
        assert "swordfish" in part["content"]
    [built] = telemetry.named("build_context")
    assert "swordfish" in str((built.attributes or {})["memman.context.content"])


@pytest.mark.parametrize("shown", [True, False])
def test_session_ids_are_on_spans_unless_turned_off(telemetry: Telemetry, shown: bool) -> None:
    with manager() as memory:
        telemetry.instrument(memory, session_ids=shown)
        talk(memory)
    ids = {(span.attributes or {}).get("gen_ai.conversation.id") for span in telemetry.spans}
    assert ids - {None} == ({"chat-7"} if shown else set())
    assert ("chat-7" in texts(telemetry)) is shown
    points = [point for each in telemetry.points().values() for point in each]
    assert not any("gen_ai.conversation.id" in point.attributes for point in points)


# ---------------------------------------------------------------- metrics


def test_metrics_have_the_figures_of_the_session(telemetry: Telemetry) -> None:
    with manager() as memory:
        telemetry.instrument(memory)
        talk(memory)
    points = telemetry.points()
    [built] = telemetry.named("build_context")
    [fitted] = telemetry.named("fit_messages")
    tokens = sum((each.attributes or {})["memman.context.tokens"] for each in (built, fitted))
    [window] = points["memman.window.tokens"]
    assert (window.count, window.sum) == (2, tokens)
    compressions = points["memman.compressions"]
    assert sum(point.value for point in compressions) >= 1
    assert {point.attributes["memman.compression.trigger"] for point in compressions} >= {"manual"}
    assert sum(point.value for point in points["memman.compression.tokens_saved"]) > 0
    parts = {
        point.attributes["memman.token.cache"]: point.value
        for point in points["memman.usage.input_tokens"]
    }
    assert parts == {"none": 200, "read": 700, "write": 100}
    assert points["memman.usage.output_tokens"][0].value == 50
    assert points["memman.cache.hit_ratio"][0].sum == 0.7
    assert points["memman.usage.output_tokens"][0].attributes == {
        "gen_ai.request.model": "openai/gpt-5",
        "gen_ai.provider.name": "openai",
    }


def by_part(telemetry: Telemetry) -> dict[str, float]:
    points = telemetry.points().get("memman.spend", [])
    return {point.attributes["memman.spend.part"]: point.value for point in points}


class OwnWriter(Writer):
    model = "openai/gpt-5"


def test_spend_is_that_of_the_stats_by_part(telemetry: Telemetry) -> None:
    with manager(OwnWriter()) as memory:
        telemetry.instrument(memory)
        talk(memory)
        spend = memory.get_stats("chat-7").spend
    assert spend is not None
    parts = by_part(telemetry)
    assert parts == {name: pytest.approx(getattr(spend, name)) for name in parts}
    assert parts.keys() == {"input", "cached", "written", "output", "summaries"}
    assert min(parts.values()) > 0


def test_nothing_is_spent_without_prices(telemetry: Telemetry) -> None:
    scripted = OwnWriter()
    scripted.model = "no-such-model"
    with MemoryManager(model="no-such-model", config=config(), summarizer=scripted) as memory:
        telemetry.instrument(memory)
        talk(memory)
    assert by_part(telemetry) == {}


def test_lost_cache_is_counted(telemetry: Telemetry) -> None:
    with manager() as memory:
        telemetry.instrument(memory)
        memory.add_user_message("chat-7", "Hello")
        for cached in (0, 9_000, 0):
            memory.record_usage("chat-7", input_tokens=10_000, cached_tokens=cached)
    [point] = telemetry.points()["memman.cache.breaks"]
    assert point.value == 1
    assert point.attributes["gen_ai.request.model"] == "openai/gpt-5"


def test_tokens_of_a_providers_compaction_are_counted(telemetry: Telemetry) -> None:
    calls = [
        {"type": "compaction", "input_tokens": 180_000, "output_tokens": 3_500},
        {"type": "message", "input_tokens": 23_000, "output_tokens": 1_000},
    ]
    with manager() as memory:
        telemetry.instrument(memory)
        memory.add_user_message("chat-7", "Hello")
        usage = {"input_tokens": 23_000, "output_tokens": 1_000, "iterations": calls}
        memory.record_usage("chat-7", usage)
    points = telemetry.points()
    assert sum(point.value for point in points["memman.usage.input_tokens"]) == 203_000
    assert sum(point.value for point in points["memman.usage.output_tokens"]) == 4_500


def test_trimmed_context_is_a_fallback(telemetry: Telemetry) -> None:
    with manager(auto_compress=False) as memory:
        telemetry.instrument(memory)
        for _ in range(40):
            memory.add_user_message("chat-7", WORDS)
        memory.build_context("chat-7")
    [point] = telemetry.points()["memman.fallbacks"]
    assert (point.attributes["memman.fallback.kind"], point.value) == ("trim", 1)


def test_page_lists_each_attribute(telemetry: Telemetry) -> None:
    for summarizer in (Writer(), Failing()):
        with manager(summarizer) as memory:
            telemetry.instrument(memory, content=True)
            talk(memory)
    page = PAGE.read_text(encoding="utf-8")
    points = [point for each in telemetry.points().values() for point in each]
    names = {name for each in (*telemetry.spans, *points) for name in each.attributes or {}}
    short = {name: f"`.{'.'.join(name.split('.')[2:])}`" for name in names}
    assert [name for name in names if f"`{name}`" not in page and short[name] not in page] == []


def test_page_lists_each_metric_with_its_unit(telemetry: Telemetry) -> None:
    for summarizer in (Writer(), Failing()):
        with manager(summarizer) as memory:
            telemetry.instrument(memory)
            talk(memory)
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    rows = [line.split("|") for line in lines if line.startswith("| `memman.")]
    listed = {row[1].strip(" `"): row[3].strip(" `") for row in rows}
    units = telemetry.units()
    assert {name: unit for name, unit in listed.items() if name in units} == units


@pytest.fixture(scope="module")
def scraped() -> dict[str, set[str]]:
    """Each series of every metric as Prometheus reads it, with its labels."""
    prometheus = pytest.importorskip("opentelemetry.exporter.prometheus")
    exposition = pytest.importorskip("prometheus_client")
    parser = pytest.importorskip("prometheus_client.parser")
    registry = exposition.CollectorRegistry()
    reader = prometheus.PrometheusMetricReader(registry=registry)
    meters = MeterProvider([reader])
    for summarizer in (OwnWriter(), Failing()):
        with manager(summarizer) as memory:
            instrument(memory, meter_provider=meters)
            talk(memory)
            for cached in (9_000, 0):
                memory.record_usage("chat-7", input_tokens=10_000, cached_tokens=cached)
    text = exposition.generate_latest(registry).decode()
    families = parser.text_string_to_metric_families(text)
    found: dict[str, set[str]] = {}
    for sample in (sample for family in families for sample in family.samples):
        found.setdefault(sample.name, set()).update(sample.labels)
    meters.shutdown()
    return found


def test_page_has_the_names_of_prometheus(scraped: dict[str, set[str]]) -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    rows = [
        line.split("|") for line in lines if line.startswith("| `memman.") and "`memman_" in line
    ]
    kinds = {row[4].strip(" `"): row[2].strip() for row in rows}
    expected = {
        name if kind == "counter" else f"{name}_{part}"
        for name, kind in kinds.items()
        for part in (("",) if kind == "counter" else ("bucket", "count", "sum"))
    }
    assert {name for name in scraped if name.startswith("memman_")} == expected


def test_queries_of_the_page_name_series_and_labels(scraped: dict[str, set[str]]) -> None:
    page = PAGE.read_text(encoding="utf-8").partition("Panels to begin with")[2]
    queries = re.findall(r"^\|[^|]+\| `([^`]+)` \|$", page, re.MULTILINE)
    assert len(queries) >= 8
    for query in queries:
        names = re.findall(r"\bmemman_\w+(?=[\[{])", query)
        assert names
        assert [name for name in names if name not in scraped] == []
        labels = set(re.findall(r"(\w+)=\"", query)) | {*_grouped(query)}
        assert labels <= {"le"}.union(*(scraped[name] for name in names))


def _grouped(query: str) -> Iterator[str]:
    """Return the labels of `sum by (...)`."""
    for group in re.findall(r"by \(([^)]*)\)", query):
        yield from (label.strip() for label in group.split(","))


# ---------------------------------------------------------------- the end


def test_off_ends_spans_and_metrics(telemetry: Telemetry) -> None:
    with manager() as memory:
        first = telemetry.instrument(memory)
        with pytest.raises(InvalidInput, match=r"observe\(None\)"):
            telemetry.instrument(memory)
        first.off()
        second = telemetry.instrument(memory)
        first.off()  # does not end the second
        memory.add_user_message("chat-7", "Hello")
        before = len(telemetry.spans)
        assert before
        second.off()
        talk(memory)
    assert len(telemetry.spans) == before
    assert "memman.usage.output_tokens" not in telemetry.points()


def test_without_an_sdk_nothing_fails() -> None:
    with manager() as memory:
        telemetry = instrument(memory)
        talk(memory)
        assert not trace.get_current_span().get_span_context().is_valid
        telemetry.off()
