"""The limits of a model are a fact from the table, or unknown."""

from __future__ import annotations

import subprocess
import sys

import pytest

from memman import ModelInfo
from memman.counting.limits import _table, known_limits, limits_of
from memman.counting.models import model_ref

KNOWN = dict(known_limits())


def of(given: str) -> tuple[int, int, int] | None:
    info = limits_of(model_ref(given))
    return None if info is None else (info.context, info.max_input, info.max_output)


def test_table_has_sensible_limits_of_a_thousand_models() -> None:
    assert len(KNOWN) > 1_000
    for name, info in KNOWN.items():
        assert 0 < info.max_input <= info.context, name
        assert 0 < info.max_output <= info.context, name
        assert info.source, name
        assert info.date, name


def test_every_row_is_found_by_its_name() -> None:
    for name, info in KNOWN.items():
        assert limits_of(model_ref(name)) == info, name


@pytest.mark.parametrize(
    ("given", "limits"),
    [
        # the providers' model pages
        ("gpt-4o", (128_000, 128_000, 16_384)),
        ("gpt-4o-2024-05-13", (128_000, 128_000, 4_096)),
        ("gpt-4.1", (1_047_576, 1_047_576, 32_768)),
        ("gpt-5", (400_000, 272_000, 128_000)),
        ("o3", (200_000, 200_000, 100_000)),
        ("claude-sonnet-4-5-20250929", (200_000, 200_000, 64_000)),
        ("claude-opus-4-1-20250805", (200_000, 200_000, 32_000)),
        ("gemini/gemini-2.5-pro", (1_048_576, 1_048_576, 65_536)),
    ],
)
def test_table_matches_the_providers_pages(given: str, limits: tuple[int, int, int]) -> None:
    assert of(given) == limits


@pytest.mark.parametrize(
    ("spellings", "row"),
    [
        (("GPT-4o", "openai/gpt-4o", "openai:gpt-4o", "litellm/openai/gpt-4o"), "openai/gpt-4o"),
        (("ft:gpt-4.1-mini:org::id", "openai/ft:gpt-4.1-mini:o"), "openai/gpt-4.1-mini"),
        (("azure/gpt-4o", "azure/eu/gpt-4o", "AZURE/GPT-4O"), "azure/gpt-4o"),
        (
            (
                "bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0",
                "eu.anthropic.claude-sonnet-4-5-20250929-v1:0",
                "arn:aws:bedrock:us-east-1:1:inference-profile/"
                "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
            ),
            "bedrock/claude-sonnet-4-5-20250929",
        ),
        (
            (
                "vertex_ai/claude-sonnet-4@20250514",
                "projects/p/locations/us-east5/publishers/anthropic/models/claude-sonnet-4@20250514",
            ),
            "vertex_ai/claude-sonnet-4-20250514",
        ),
        (
            ("gemini-2.5-pro", "models/gemini-2.5-pro", "google/gemini-2.5-pro"),
            "gemini/gemini-2.5-pro",
        ),
        (("openrouter/anthropic/claude-sonnet-4.5",), "openrouter/claude-sonnet-4-5"),
    ],
)
def test_every_spelling_finds_the_row(spellings: tuple[str, ...], row: str) -> None:
    for spelling in spellings:
        assert limits_of(model_ref(spelling)) == KNOWN[row], spelling


@pytest.mark.parametrize(
    "given",
    [
        "acme-1",
        "",
        "azure/my-gpt-4o-prod",
        "gpt-4o-prod",
        "gpt-99",
        "unheard-of-server/gpt-4o",
        "anthropic.claude-3-sonnet-20240229-v1:0:28k",  # a window of its own
        "gpt-4o-2099-01-01",
        "gpt-3.5-turbo-0613",
    ],
)
def test_unknown_stays_unknown(given: str) -> None:
    assert of(given) is None


def test_a_name_of_two_vendors_is_known_only_where_they_agree() -> None:
    vendors = ("openai", "anthropic", "gemini", "mistral", "xai", "deepseek", "cohere", "zai",
               "moonshot", "perplexity", "minimax", "meta", "stepfun", "xiaomi")  # fmt: skip
    rows: dict[str, set[tuple[int, int, int]]] = {}
    for key, info in KNOWN.items():
        vendor, _, name = key.partition("/")
        if vendor in vendors:
            rows.setdefault(name, set()).add((info.context, info.max_input, info.max_output))
    for name, found in rows.items():
        assert of(name) == (next(iter(found)) if len(found) == 1 else None), name


def test_the_table_is_not_read_at_import() -> None:
    code = (
        "import memman, memman.counting.limits as limits\n"
        "assert limits._table.cache_info().currsize == 0\n"
        "memman.MemoryManager()\n"
        "assert limits._table.cache_info().currsize == 0\n"
        "memman.MemoryManager(model='gpt-4o')\n"
        "assert limits._table.cache_info().currsize == 1\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_table_names_its_sources() -> None:
    packages, pages = {"1", "2", "3"}, dict(_table().head.sources)
    assert packages <= pages.keys()
    assert all(page.startswith("https://") for key, page in pages.items() if key not in packages)
    assert isinstance(next(iter(KNOWN.values())), ModelInfo)
