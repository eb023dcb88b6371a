"""A model is recognized in any spelling, and an ambiguous name is not."""

from __future__ import annotations

import logging
from time import process_time
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memman import MemoryManager, ModelInfo, ModelRef, hookimpl
from memman.counting.limits import known_limits
from memman.counting.lookup import Models
from memman.counting.models import families, family_of, model_ref
from memman.plugins import shared_plugins

SPELLINGS = [
    # spelling, provider, name, family, region
    ("gpt-5", None, "gpt-5", "gpt-5", None),
    ("  GPT-4o-2024-08-06 ", None, "gpt-4o-2024-08-06", "gpt-4o", None),
    ("openai/gpt-4.1", "openai", "gpt-4.1", "gpt-4.1", None),
    ("openai:gpt-4o", "openai", "gpt-4o", "gpt-4o", None),
    ("azure/gpt-4o", "azure", "gpt-4o", "gpt-4o", None),
    ("azure/eu/gpt-4o-2024-08-06", "azure", "gpt-4o-2024-08-06", "gpt-4o", "eu"),
    ("azure/gpt-35-turbo", "azure", "gpt-3.5-turbo", "gpt-3.5", None),
    ("azure/my-gpt-4o-prod", "azure", "my-gpt-4o-prod", "", None),
    ("my-gpt-4o-prod", None, "my-gpt-4o-prod", "", None),
    ("azure_ai/claude-opus-4-6", "azure_ai", "claude-opus-4-6", "claude-4", None),
    ("claude-sonnet-4-5-20250929", None, "claude-sonnet-4-5-20250929", "claude-4", None),
    ("claude-3-5-sonnet-latest", None, "claude-3-5-sonnet-latest", "claude-3", None),
    ("claude-opus-4-7", None, "claude-opus-4-7", "claude-4.7", None),
    ("anthropic/claude-sonnet-5", "anthropic", "claude-sonnet-5", "claude-4.7", None),
    (
        "bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "bedrock", "claude-sonnet-4-5-20250929", "claude-4", "us",
    ),
    (
        "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "bedrock", "claude-sonnet-4-5-20250929", "claude-4", "us",
    ),
    ("eu.amazon.nova-lite-v1:0", "bedrock", "nova-lite", "nova", "eu"),
    ("bedrock/converse/amazon.nova-pro-v1:0", "bedrock", "nova-pro", "nova", None),
    ("anthropic.claude-opus-4-6-v1", "bedrock", "claude-opus-4-6", "claude-4", None),
    ("anthropic.claude-v2:1", "bedrock", "claude-v2:1", "claude-3", None),
    (
        "anthropic.claude-3-sonnet-20240229-v1:0:28k",
        "bedrock", "claude-3-sonnet-20240229:28k", "claude-3", None,
    ),
    ("openai.gpt-oss-120b-1:0", "bedrock", "gpt-oss-120b", "gpt-5", None),
    ("us.deepseek.r1-v1:0", "bedrock", "deepseek-r1", "deepseek", "us"),
    ("meta.llama3-1-70b-instruct-v1:0", "bedrock", "llama3-1-70b-instruct", "llama", None),
    (
        "bedrock/us-gov-west-1/anthropic.claude-3-haiku-20240307-v1:0",
        "bedrock", "claude-3-haiku-20240307", "claude-3", "us-gov-west-1",
    ),
    (
        "arn:aws:bedrock:us-east-1:123456789012:inference-profile/"
        "us.anthropic.claude-opus-4-1-20250805-v1:0",
        "bedrock", "claude-opus-4-1-20250805", "claude-4", "us",
    ),
    (
        "bedrock/arn:aws:bedrock:eu-west-1::foundation-model/amazon.nova-pro-v1:0",
        "bedrock", "nova-pro", "nova", "eu-west-1",
    ),
    (
        "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/a1b2c3",
        "bedrock", "a1b2c3", "", "us-east-1",
    ),
    ("vertex_ai/claude-sonnet-4@20250514", "vertex_ai", "claude-sonnet-4-20250514", "claude-4", None),
    ("vertex/claude-opus-4-5@20251101", "vertex_ai", "claude-opus-4-5-20251101", "claude-4", None),
    (
        "vertex_ai/claude-3-5-sonnet-v2@20241022",
        "vertex_ai", "claude-3-5-sonnet-20241022", "claude-3", None,
    ),
    ("claude-opus-4-6@default", "vertex_ai", "claude-opus-4-6", "claude-4", None),
    ("publishers/google/models/gemini-2.5-pro", "vertex_ai", "gemini-2.5-pro", "gemini-2", None),
    (
        "projects/p/locations/us-east5/publishers/anthropic/models/claude-sonnet-4@20250514",
        "vertex_ai", "claude-sonnet-4-20250514", "claude-4", "us-east5",
    ),
    ("models/gemini-2.5-flash", "gemini", "gemini-2.5-flash", "gemini-2", None),
    ("google/gemini-3-pro-preview", "gemini", "gemini-3-pro-preview", "gemini-3", None),
    ("litellm/azure/gpt-4o", "azure", "gpt-4o", "gpt-4o", None),
    ("litellm_proxy/claude-haiku-4-5", None, "claude-haiku-4-5", "claude-4", None),
    ("openrouter/anthropic/claude-sonnet-4.5", "openrouter", "claude-sonnet-4-5", "claude-4", None),
    ("openrouter/x-ai/grok-4", "openrouter", "grok-4", "grok", None),
    ("groq/openai/gpt-oss-120b", "groq", "gpt-oss-120b", "gpt-5", None),
    (
        "fireworks_ai/accounts/fireworks/models/deepseek-v3",
        "fireworks_ai", "deepseek-v3", "deepseek", None,
    ),
    ("ft:gpt-4.1-mini:org::id", "openai", "gpt-4.1-mini", "gpt-4.1", None),
    ("openai/ft:gpt-4o-2024-08-06:org:name:9x", "openai", "gpt-4o-2024-08-06", "gpt-4o", None),
    ("mistral:mistral-large-latest", "mistral", "mistral-large-latest", "mistral", None),
    ("mistral:7b", None, "mistral:7b", "mistral", None),
    ("llama3.1:8b", None, "llama3.1:8b", "llama", None),
    ("meta-llama/Llama-3.3-70B", "meta-llama", "llama-3.3-70b", "llama", None),
    ("a/b/C", "a/b", "c", "", None),
    ("litellm:gpt-4o", None, "gpt-4o", "gpt-4o", None),
    ("openai-responses:gpt-5", "openai", "gpt-5", "gpt-5", None),
    ("openai-chat:gpt-5-mini", "openai", "gpt-5-mini", "gpt-5", None),
    (
        "google_anthropic_vertex:claude-haiku-4-5@20251001",
        "vertex_ai", "claude-haiku-4-5-20251001", "claude-4", None,
    ),
    (
        "anthropic_bedrock:us.anthropic.claude-haiku-4-5-20251001-v1:0",
        "bedrock", "claude-haiku-4-5-20251001", "claude-4", "us",
    ),
    ("bedrock/in.moonshotai.kimi-k3", "bedrock", "kimi-k3", "kimi", "in"),
    ("claude-opus-4-10", None, "claude-opus-4-10", "claude-4.7", None),
    ("claude-opus-4-20250514", None, "claude-opus-4-20250514", "claude-4", None),
    ("claude-mythos-preview", None, "claude-mythos-preview", "claude-4.7", None),
    (
        "openrouter/~anthropic/claude-sonnet-latest",
        "openrouter", "claude-sonnet-latest", "claude-4.7", None,
    ),
    ("gemini-flash-latest", None, "gemini-flash-latest", "gemini-3", None),
    ("gemini-exp-1206", None, "gemini-exp-1206", "gemini-2", None),
    ("openai/chat-latest", "openai", "chat-latest", "gpt-5", None),
    (
        "databricks/databricks-meta-llama-3-3-70b-instruct",
        "databricks", "databricks-meta-llama-3-3-70b-instruct", "llama", None,
    ),
    ("cerebras/zai-glm-4.7", "cerebras", "zai-glm-4.7", "glm", None),
    ("latest", None, "latest", "", None),
    ("", None, "", "", None),
    ("/", None, "/", "", None),
    ("azure/", None, "azure/", "", None),
]  # fmt: skip


@pytest.mark.parametrize(
    "word",
    ["claude-", "gemini-", "kimi", "glm-", "deepseek-v", "command-", "meta-llama-3", "gpt-5"],
)
def test_every_named_model_with_limits_has_a_family(word: str) -> None:
    named = [model_ref(key) for key, _ in known_limits() if word in key.rpartition("/")[2]]
    assert len(named) > 5
    assert [ref.name for ref in named if not ref.family] == []


@pytest.mark.parametrize(("given", "provider", "name", "family", "region"), SPELLINGS)
def test_spelling_has_provider_model_and_region(
    given: str, provider: str | None, name: str, family: str, region: str | None
) -> None:
    assert model_ref(given) == ModelRef(name, provider, given, family, region)


@pytest.mark.parametrize("given", [row[0] for row in SPELLINGS])
def test_upper_case_is_the_same_model(given: str) -> None:
    lower, upper = model_ref(given), model_ref(given.upper())
    assert (upper.name, upper.provider, upper.region) == (lower.name, lower.provider, lower.region)
    assert upper.given == given.upper()


_PIECES = st.sampled_from(
    [
        "gpt-4o", "gpt-35-turbo", "claude-sonnet-4.5", "claude-v2", "gemini-2.5-pro", "nova-lite", "ft:",
        "models/", "tunedModels/", "publishers/google/models/", "azure/", "openai:", "openrouter/",
        "litellm/", "us.", "anthropic.", "deepseek.", "-v1:0", "-v2:0", ":28k", "@20250514", "@default",
        "-v2", "-20250101", "arn:aws:bedrock:us-east-1::foundation-model/", "eu/", "/", ":", "@", ".", " ",
        "x", "İ", "\n", "1.2.3",
    ]
)  # fmt: skip


@given(st.lists(_PIECES, max_size=8).map("".join) | st.text(max_size=40))
@example("azure/us.anthropic.claude-v2:1")
def test_a_name_is_understood_as_itself(text: str) -> None:
    ref = model_ref(text)
    again = model_ref(ref.name)
    assert again.name == ref.name
    assert again.family == ref.family == family_of(ref.name)
    assert ref.given == text
    assert ref.family in ("", *families())


@pytest.mark.parametrize("piece", ["a/", "azure/", "models/", "us.anthropic.", "ft:", " ", "@1"])
def test_a_spelling_of_any_length_is_read_at_once(piece: str) -> None:
    given = "azure/" + piece * 50_000 + "gpt-4o"
    began = process_time()
    ref = model_ref(given)
    assert process_time() - began < 0.5
    assert ref.given == given
    assert model_ref(ref.name).name == ref.name


# ---------------------------------------------------------------- plugins come first


class Deployments:
    """A plugin that knows the model behind a deployment's name."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.models: list[str] = []

    @hookimpl
    def memman_resolve_model(self, model: str) -> Any:
        self.models.append(model)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer if model == "my-deployment" else None


def test_plugin_resolves_a_deployment_once(hooked: Any) -> None:
    plugin = Deployments(ModelRef("gpt-4.1", "azure"))
    hooked(plugin)
    memory = MemoryManager(model="my-deployment")
    for number in range(5):
        memory.add_user_message("s", f"message {number}")
        memory.build_context("s")
    assert plugin.models == ["my-deployment"]
    assert memory.get_stats("s").counter.startswith("tiktoken:o200k")
    ref = Models(shared_plugins).ref("my-deployment")
    assert ref == ModelRef("gpt-4.1", "azure", "my-deployment", "gpt-4.1")


@pytest.mark.parametrize("answer", [ZeroDivisionError("broken"), "gpt-4.1", 5, {"name": "gpt-4.1"}])
def test_a_plugin_that_answers_nonsense_stops_nothing(
    hooked: Any, answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    hooked(Deployments(answer))
    with caplog.at_level(logging.WARNING, "memman"):
        assert Models(shared_plugins).ref("my-deployment") == model_ref("my-deployment")
        assert MemoryManager(model="my-deployment").count_tokens("some text").tokens > 0
    assert "memman_resolve_model" in caplog.text


@pytest.mark.parametrize(
    "answer",
    [
        ZeroDivisionError("broken"),
        200_000,
        ModelInfo(0, 0, 0),
        ModelInfo(1_000, -5, 100),
        ModelInfo(1_000.5, 1_000, 100),  # type: ignore[arg-type]
        ModelInfo("1000", 1_000, 100),  # type: ignore[arg-type]
    ],
)
def test_limits_that_are_none_are_refused(
    hooked: Any, answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Limits:
        @hookimpl
        def memman_model_info(self, model: ModelRef) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer

    hooked(Limits())
    with caplog.at_level(logging.WARNING, "memman"):
        info = Models(shared_plugins).info("gpt-4o")
    assert info is not None
    assert info.context == 128_000
    assert "memman_model_info" in caplog.text


def test_invalid_counter_of_a_plugin_is_logged(
    hooked: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd:
        @hookimpl
        def memman_token_counters(self) -> Any:
            return ["tiktoken", None]

    hooked(Odd())
    memory = MemoryManager(model="gpt-4o")
    assert memory.count_tokens("hello world").counter.startswith("tiktoken:")
    assert "invalid counter: 'tiktoken'" in caplog.text
