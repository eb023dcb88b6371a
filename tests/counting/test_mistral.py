"""Mistral reports Tekken's tokens of the texts and a constant for each role."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator

import pytest

from memman.counting.models import model_ref
from tests.conftest import SHARED

ROLES = {"system": 2, "user": 2, "assistant": 1}
BEGIN = 1


def _requests(models: tuple[str, ...]) -> Iterator[tuple[str, list[dict[str, str]], int]]:
    """(model, messages, reported tokens) of text-only chats with Mistral's own API."""
    with gzip.open(SHARED / "usage.public.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            request = record["request"]
            if record["model"] not in models or record["provider"] != "mistral":
                continue
            messages = request.get("messages") or []
            plain = all(type(m.get("content")) is str and m["role"] in ROLES for m in messages)
            if (
                messages
                and plain
                and not request.get("tools")
                and "tool_calls" not in str(messages)
            ):
                yield record["model"], messages, record["reported_input_tokens"]


@pytest.mark.shared
def test_reported_text_requests_are_priced_to_the_token() -> None:
    plugin = pytest.importorskip("memman_mistral")
    [spec] = plugin.memman_token_counters()
    recorded = list(_requests(("mistral-large-latest", "ministral-3b-latest")))
    assert len(recorded) >= 10
    for model, messages, reported in recorded:
        texts = spec.factory(model_ref(model)).count_texts([m["content"] for m in messages])
        assert BEGIN + sum(texts) + sum(ROLES[m["role"]] for m in messages) == reported
