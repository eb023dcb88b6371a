"""A name that no row states gets the smallest window of its like, a counter, and one warning."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from memman import MemoryConfig, MemoryManager, ModelInfo
from memman.counting.framing import framing_in
from memman.counting.limits import ASSUMED, VARIABLE, assumed_limits, limits_of, own_limits
from memman.counting.models import model_ref
from memman.display import warn_once
from memman.errors import InvalidInput

# Names that users write, with the largest context that a public page or genai-prices 0.2.3 states for them.
# A model without one of its own has that of its family.
WINDOWS = {
    "https://platform.openai.com/docs/models": """
        gpt-5 400000 gpt-5.1 400000 gpt-5.2 400000 gpt-5.2-codex 400000 gpt-5.3-codex 400000
        gpt-5.4 1050000 gpt-5.5 1000000 gpt-5.6-sol 1050000 gpt-5.5-mini 400000 gpt-6 1050000
        o4-mini 200000 gpt-oss-120b 131072 openai/gpt-oss-20b 131072 gpt-4.1 1047576 gpt-4o 128000
        gpt-realtime 32000
    """,
    "https://docs.claude.com/en/docs/about-claude/models/overview": """
        claude-opus-4-5 200000 claude-sonnet-4-5-20250929 200000 claude-opus-4-6 1000000
        claude-opus-4-7 1000000 claude-opus-4-8 1000000 claude-opus-5 1000000 claude-opus-5-5 1000000
        claude-sonnet-5 1000000 claude-haiku-4-5 200000 claude-haiku-5 1000000 claude-mythos-5 1000000
        us.anthropic.claude-opus-4-5-20251101-v1:0 200000 anthropic/claude-opus-4.5 200000
        claude-sonnet-4-6@20260101 1000000 global.anthropic.claude-sonnet-4-6 1000000
        claude-3-7-sonnet-latest 200000
    """,
    "https://ai.google.dev/gemini-api/docs/models": """
        gemini-2.5-pro 1048576 gemini-3-pro-preview 1048576 gemini-3.1-pro-preview 1048576
        gemini-3-flash 1048576 gemini-3.5-flash 1048576 gemini-3.5-pro 1048576
        google/gemini-3-pro 1048576 gemini-flash-latest 1048576 gemma-3-27b-it 131072
    """,
    "https://docs.x.ai/docs/models": """
        grok-4 256000 grok-4-fast 2000000 grok-4-1-fast-reasoning 2000000 grok-4.20 2000000
        grok-4.3 1000000 grok-5 256000 grok-code-fast-1 256000 x-ai/grok-4.1-fast 2000000
    """,
    "https://api-docs.deepseek.com/quick_start/pricing": """
        deepseek-chat 128000 deepseek-reasoner 128000 deepseek-v3.2 128000
        deepseek-ai/DeepSeek-V3.2 128000 deepseek-r1 64000 deepseek-r2 64000 deepseek-v4 1000000
        deepseek-v4-pro 1000000 deepseek-v4-flash 1000000
    """,
    "https://www.alibabacloud.com/help/en/model-studio/models": """
        qwen3-coder 262144 qwen3-max 262144 qwen3-235b-a22b 131072 Qwen/Qwen3-32B 32768
        qwen3.5-plus 1000000 qwen3.5-397b-a17b 262144 qwen3.6-plus 1000000 qwen-max 32768
        qwen3-next-80b-a3b-instruct 131072
    """,
    "https://platform.moonshot.ai/docs/pricing/chat": """
        kimi-k2 131072 kimi-k2-thinking 262144 kimi-k2.5 262144 kimi-k2.6 262144
        moonshotai/kimi-k2.5 262144 moonshotai/Kimi-K2-Instruct 131072
    """,
    "https://docs.z.ai/guides/llm/glm-5": """
        glm-4.6 200000 glm-4.7 200000 glm-5 200000 glm-5.1 200000 z-ai/glm-5 200000
        zai-org/GLM-5 200000
    """,
    "https://platform.minimax.io/docs/api-reference/text-anthropic-api": """
        minimax-m2 204800 MiniMax-M2.1 204800 minimax-m2.5 204800 MiniMaxAI/MiniMax-M2 204800
    """,
    "https://docs.mistral.ai/getting-started/models/models_overview": """
        mistral-large-latest 262144 mistral-large-2512 262144 mistral-medium-3.1 131072
        mistral-medium-latest 262144 mistral-small-latest 256000 devstral-2512 262144
        devstral-medium-latest 262144 ministral-8b-2512 262144 magistral-medium-latest 128000
        codestral-latest 256000
    """,
    "https://huggingface.co/meta-llama": """
        meta-llama/Llama-4-Maverick-17B-128E-Instruct 1048576 llama-4-scout 10485760 llama3.3 131072
    """,
    "https://docs.aws.amazon.com/nova/latest/userguide/what-is-nova.html": """
        amazon.nova-pro-v1:0 300000 amazon.nova-2-lite-v1:0 1000000 us.amazon.nova-2-pro-v1:0 1000000
        nova-premier 1000000
    """,
    "github.com: ollama/ollama/docs/context-length.mdx, zed-industries/zed/issues/33938": """
        qwen3:8b 4096 llama3.1:8b 4096 gemma3:27b 4096 ollama/gpt-oss:20b 4096
        lm_studio/qwen3-30b 4096
    """,
    "the cards at https://huggingface.co": """
        command-a-03-2025 256000 phi-4 16384 granite-4 131072 ernie-5 131072 hunyuan-2 262144
        step-3.5-flash 262144 seed-1.8 256000 mimo-v2-flash 262144 nemotron-3-super 1048576
    """,
    "https://openrouter.ai/openrouter/auto": "openrouter/auto 2000000",
}
_WORDS = " ".join(WINDOWS.values()).split()
NAMES = dict(zip(_WORDS[::2], map(int, _WORDS[1::2]), strict=True))


def assumed(given: str) -> ModelInfo:
    ref = model_ref(given)
    found = limits_of(ref) or assumed_limits(ref)
    assert found is not None
    return found


def test_there_are_115_names() -> None:
    assert len(NAMES) == 115


@pytest.mark.parametrize(("given", "most"), NAMES.items())
def test_window_of_a_name_is_within_a_cited_one(given: str, most: int) -> None:
    info = assumed(given)
    assert 4_096 <= info.max_input <= most
    memory = MemoryManager(model=given)
    memory.add_user_message("s", "hello")
    assert memory.get_stats("s").max_tokens != 50_000


@pytest.mark.parametrize("given", [name for name in NAMES if name != "openrouter/auto"])
def test_name_has_a_family_with_a_framing(given: str) -> None:
    """So `tiktoken-scaled` counts with the family's factor, and no generic estimate."""
    ref = model_ref(given)
    assert ref.family
    assert framing_in(ref, "openai-chat") is not None


@pytest.mark.parametrize(
    ("given", "row"),
    [
        # the same name at another server, of which one has the smallest window
        ("unheard-of-server/gpt-4o", "azure/gpt-4o"),
        # without a date, a stage, a quantisation, an offer of a router
        ("claude-sonnet-4-6@20260101", "anthropic/claude-sonnet-4-6"),
        ("gpt-4.1-2099-01-01", "openai/gpt-4.1"),
        ("gpt-4o-2099-01-01", "openai/gpt-4o"),
        ("gemini-3-flash", "gemini/gemini-3-flash-preview"),
        ("nvidia/phi-4-awq:free", "azure_ai/phi-4"),
    ],
)
def test_name_without_its_tags_has_a_row(given: str, row: str) -> None:
    info, listed = assumed(given), limits_of(model_ref(row))
    assert listed is not None
    assert info.max_input <= listed.max_input
    assert info.source.startswith("as for ")


@pytest.mark.parametrize(
    ("given", "row"),
    [
        ("deepseek-v4", "dashscope/deepseek-v4-flash"),  # variants of the version
        ("gpt-5.5-mini", "openai/gpt-5-mini"),  # the same line
        ("grok-5", "xai/grok-4"),
        ("ernie-5", "openrouter/ernie-4.5-vl-28b-a3b"),  # all of the family
        ("gpt-99", "openai/gpt-5"),
        ("llama-2-13b-code", "huggingface/llama-2-13b"),  # not the newer ones of its vendor
    ],
)
def test_unknown_version_has_the_smallest_window_of_its_family(given: str, row: str) -> None:
    info, listed = assumed(given), limits_of(model_ref(row))
    assert listed is not None
    assert info.max_input == listed.max_input
    assert info.source.startswith(f"{ASSUMED}the smallest of the family {model_ref(given).family}")


@pytest.mark.parametrize("given", ["acme-1", "azure/my-gpt-4o-prod", "gtp-5", "", "*", "/"])
def test_unknown_family_has_no_window(given: str) -> None:
    assert assumed_limits(model_ref(given)) is None


def test_ollama_tag_is_a_local_model_unless_it_is_in_the_cloud() -> None:
    assert assumed("hf.co/someone/Llama-3.2-3B-GGUF:Q4_K_M").max_input == 4_096
    assert assumed("gpt-oss:120b-cloud").max_input > 100_000
    assert assumed("openrouter/qwen/qwen3-coder:free").max_input > 100_000


def test_window_of_the_family_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    warn_once.cache_clear()
    for _ in range(3):
        MemoryManager(model="grok-5").add_user_message("s", "hello")
    MemoryManager(model="grok-5", config=MemoryConfig(max_tokens=9_000)).add_user_message("s", "hi")
    MemoryManager(model="qwen3-max").add_user_message("s", "a name that others list")
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == (
        "no limits are known for model 'grok-5': 256,000 tokens are assumed: the smallest of the family "
        "grok, xai/grok-4 (https://docs.x.ai/docs/models/grok-4-0709); if the name is right, write "
        "MemoryManager(config=MemoryConfig(max_tokens=...)) or give model_info="
    )


def test_limits_of_a_refusal_replace_assumed_ones() -> None:
    memory = MemoryManager(model="ollama/qwen3")
    memory.add_user_message("s", "hello")
    error = "maximum context length is 16384 tokens, however you requested 20000 tokens"
    assert memory.record_overflow(error).overflow
    assert memory.get_stats("s").max_tokens > 4_096


# ---------------------------------------------------------------- the user's own file

OWN = {
    "acme-large": {"context": 32_768, "max_output": 4_096},
    "anthropic/claude-sonnet-4.5": {"context": 1_000_000, "max_input": 900_000},
    "ollama/*": {"context": 16_384},
}


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "models.json"
    path.write_text(json.dumps(OWN))
    monkeypatch.setenv(VARIABLE, str(path))
    return path


@pytest.mark.parametrize(
    ("given", "numbers"),
    [
        ("acme-large", (32_768, 32_768, 4_096)),
        ("azure/acme-large", (32_768, 32_768, 4_096)),
        ("acme-large-2026-11-01", (32_768, 32_768, 4_096)),
        ("anthropic:claude-sonnet-4-5", (1_000_000, 900_000, 1_000_000)),
        ("ollama/qwen3:8b", (16_384, 16_384, 16_384)),
        ("qwen3:8b", (16_384, 16_384, 16_384)),
        ("gpt-4o", (128_000, 128_000, 16_384)),
    ],
)
def test_own_file_adds_models_and_replaces_rows(
    own: Path, given: str, numbers: tuple[int, int, int]
) -> None:
    info = assumed(given)
    assert (info.context, info.max_input, info.max_output) == numbers
    assert str(own) in info.source or given == "gpt-4o"


BROKEN = (
    "{", "[]", '{"m": {}}', '{"m": {"context": 0}}', '{"m": {"context": 9, "contxt": 9}}',
    "[" * 9_999, "\ud800",
)  # fmt: skip


@pytest.mark.parametrize("text", [*BROKEN, None])
def test_unreadable_own_file_is_one_warning(
    text: str | None, own: Path, caplog: pytest.LogCaptureFixture
) -> None:
    warn_once.cache_clear()
    path = own.with_name("broken.json")
    if text is not None:
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(path))
        for name in ("gpt-4o", "gpt-4.1"):
            assert assumed(name).max_input >= 128_000
    [record] = caplog.records
    assert record.getMessage().startswith("the file of MEMMAN_MODELS is not used: ")
    assert "broken.json" in record.getMessage()


@pytest.mark.parametrize("text", BROKEN)
def test_bytes_of_another_table_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"'own\.json' cannot be read as a table of models"):
        own_limits(text.encode("utf-8", "surrogatepass"), "own.json")
