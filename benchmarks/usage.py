"""Recorded requests with the usage that their provider reported, divided into two halves.

`../shared/data` holds them; they are for measuring only and no part of the project. A record that its own
text refutes is left out: where o200k_base alone counts over 1.3 times the report, a gateway reported the
uncached part only. The two halves: the first four bytes of the SHA-256 of a record's source path, even
for fitting, odd for evaluating, so that no conversation is in both.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.request_bodies import Body, read_body
from memman.counting.models import model_ref
from memman.errors import FormatError
from memman.protocols import ModelRef

SHARED: Final = Path(__file__).resolve().parents[2] / "shared" / "data"
QUICK: Final = ("fixture_usage.jsonl.gz",)
FULL: Final = ("usage.public.jsonl.gz", "usage_crush.public.jsonl.gz")

# The goals are about these figures; `redacted_here` is reported separately.
PLAIN: Final = frozenset({"tools", "cache_control"})
MOST_OVER_REPORTED: Final = 1.3
# Endpoints that take a conversation, by the name that is shown.
_ENDPOINTS: Final = {
    "chat.completions": "chat completions",
    "messages": "messages",
    "messages.count_tokens": "count_tokens",
    "responses": "responses",
    "responses.input_tokens": "count_tokens",
    "generateContent": "generateContent",
    "streamGenerateContent": "generateContent",
    "countTokens": "count_tokens",
    "converse": "converse",
    "converse-stream": "converse",
    "invoke": "invoke",
    "invoke-stream": "invoke",
    "v2.chat": "chat (Cohere)",
    "api.chat": "chat (Ollama)",
}
# Bedrock's ids begin with a region and a vendor.
_VENDOR: Final = re.compile(
    r"(?:[a-z]{2,6}\.)?(?:anthropic|amazon|meta|cohere|openai|mistral|qwen|zai)\.|zai-(?=glm)"
)


class Sample(msgspec.Struct, frozen=True):
    """One recorded request: its body as sent, read, and the input tokens that were reported."""

    ref: ModelRef
    endpoint: str
    repository: str
    request: dict[str, Any]
    body: Body
    reported: int
    plain: bool
    redacted: bool
    evaluates: bool

    @property
    def of_goal(self) -> bool:
        """Whether the goals include it: chat completions and messages, with no other flags."""
        return self.plain and self.endpoint in ("chat completions", "messages")


def read_samples(paths: Sequence[Path]) -> Iterator[Sample]:
    """The usable records of some files: flags within tools, cache_control and redactions, no media."""
    for path in paths:
        for record in read_records(path):
            sample = _sample(record)
            if sample is not None:
                yield sample


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a file; a first line may hold the texts that later ones refer to."""
    shared: dict[str, str] = {}
    with gzip.open(path, "rb") as lines:
        for line in lines:
            record = msgspec.json.decode(line)
            if "$table" in record:
                shared = record["$table"]
                continue
            if shared:
                record["request"] = _resolved(record["request"], shared)
            yield record


def _resolved(value: Any, shared: dict[str, str]) -> Any:
    if isinstance(value, dict):
        if len(value) == 1 and "$ref" in value:
            return shared[value["$ref"]]
        if len(value) == 1 and "$ref_json" in value:
            return json.loads(shared[value["$ref_json"]])
        return {key: _resolved(each, shared) for key, each in value.items()}
    return [_resolved(each, shared) for each in value] if isinstance(value, list) else value


def _sample(record: dict[str, Any]) -> Sample | None:
    endpoint = _ENDPOINTS.get(record["endpoint"])
    reported = record["reported_input_tokens"]
    flags = set(record["flags"])
    redactions = {"redacted_here", "redacted_at_source"}
    if endpoint is None or not flags <= PLAIN | redactions:
        return None
    if record["measure"]["text_o200k"] > MOST_OVER_REPORTED * reported:
        return None
    try:
        body = read_body(record["request"])
    except FormatError:
        return None  # an endpoint of Bedrock or Ollama in a shape of its vendor's own
    if body.hosted or any(message.images for message in body.messages):
        return None
    bare = (record["model"] or "").lower().rpartition("/")[2]
    known = model_ref(_VENDOR.sub("", bare, count=1))
    digest = hashlib.sha256(record["source_path"].encode()).digest()
    return Sample(
        ref=msgspec.structs.replace(known, provider=record["provider"], given=record["model"]),
        endpoint=endpoint,
        repository=record["source_repo"],
        request=record["request"],
        body=body,
        reported=reported,
        plain=flags <= PLAIN,
        redacted=bool(flags & redactions),
        evaluates=int.from_bytes(digest[:4]) % 2 == 1,
    )
