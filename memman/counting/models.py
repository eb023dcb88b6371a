"""Models from any spelling of their names, and families that share a tokenizer and framing.

A spelling has up to four parts: the server (`azure/`, `arn:aws:bedrock:...`), the place (`us.`,
`locations/us-east5`), the model, and a fine-tune (`ft:...:org::id`). Ambiguous parts are not read: a
deployment called `my-gpt-4o-prod` keeps its name.

`models.json` has the families and the servers. A family is that of the first pattern that a name begins
with; `servers` has the other names that libraries use for a server.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from pathlib import Path
from typing import Final

import msgspec

from memman.protocols import ModelRef

# Claude 5.1 and later ones, with or without a number, check that nothing before a thought has changed.
_BINDS: Final = r"claude-(?!instant|v?[12]\b|3|([a-z]+-)?(4(?!\d)|5(?!-?[1-9]\d?(?!\d))))"
# Vendors, as resellers write them before a model's name.
_WHOSE: Final = r"(databricks-|fw-|zai-|cohere-|meta-|labs-|nvidia-|doubao-)*"

# These forward a request; the server's name follows.
_ROUTERS: Final = ("litellm/", "litellm:", "litellm_proxy/", "litellm-proxy/")

_LONGEST: Final = 512  # characters of a spelling that is read; an ARN has half as many
_CLOUD_REGION: Final = r"[a-z]{2,}(-gov)?-[a-z]+\d?-?\d+|global|us|eu|apac|au|jp|ca|sa|me"
_ARN: Final = r"arn:aws[a-z-]*:(?:bedrock|sagemaker):([a-z0-9-]*):\d*:[a-z-]+/(.*)"
_BEDROCK: Final = (
    r"(?:(us-gov|us|eu|apac|au|in|jp|ca|sa|me|uk|global)\.)?"
    r"(ai21|amazon|anthropic|cohere|deepseek|google|meta|minimax|mistral|moonshotai|moonshot|nvidia"
    r"|openai|qwen|stability|twelvelabs|writer|xai|zai)\.([a-z].*)"
)
# `-v1:0`, `-v1`, `-1:0`: the version of Bedrock's packaging, not of the model. With `:28k` behind it the
# offer has a window of its own, which stays part of the name.
_BEDROCK_VERSION: Final = r"(-v\d+(:\d+)?|-\d+:\d+)(?=$|:\d+k$)"
_BEDROCK_VERSIONED_NAME: Final = r"claude(-instant)?-v\d"  # there it is the model's
_RESOURCE: Final = r"(?:projects/[^/]+/)?(?:locations/([^/]+)/)?publishers/([^/]+)/models/(.+)"
_GEMINI_RESOURCE: Final = r"(?:tuned)?models/(.+)"
_FINE_TUNE: Final = r"ft:([^:]+).*"
SNAPSHOT: Final = r"-(?:\d{4}-\d{2}-\d{2}|\d{8}|latest)"
_VERTEX_VERSION: Final = r"([^@]+)@(\d+|default|latest)"


class _Names(msgspec.Struct, frozen=True):
    families: tuple[tuple[str, str], ...]
    servers: dict[str, tuple[str, ...]]


@cache
def _names() -> _Names:
    return msgspec.json.decode(Path(__file__).with_name("models.json").read_bytes(), type=_Names)


@cache
def _servers() -> dict[str, str]:
    """Return the server of each of its names."""
    known = _names().servers.items()
    return {name: server for server, others in known for name in (server, *others)}


@lru_cache(maxsize=4_096)
def model_ref(model: str) -> ModelRef:
    """Return the model of any spelling; unknown parts are kept, in lower case.

    The text before the last `/` is the provider unless a rule knows better. `given` is the spelling
    itself, as the provider's API takes it; `name` is normalised.
    """
    text = model.strip().lower()
    provider: str | None = None
    region: str | None = None
    if len(text) > _LONGEST:
        provider, _, last = text.rpartition("/")
        text, provider = (last or text).strip(), provider or None
    while len(text) <= _LONGEST and (step := _step(text, provider)) is not None:
        text, provider, found = step[0].strip(), *step[1:]
        region = found or region
    # The spelling of the vendor.
    if vertex := re.fullmatch(_VERTEX_VERSION, text):
        text = f"{vertex[1]}-{vertex[2]}"
    if text.startswith("gpt-35"):  # a deployment's name on Azure may have no dot
        text = f"gpt-3.5{text.removeprefix('gpt-35')}"
    if text.startswith("claude-"):  # Anthropic's have none, others write claude-sonnet-4.5
        text = re.sub(r"(?<=\d)\.(?=\d)", "-", text)
        text = re.sub(r"-v\d(?=-\d{8}$)", "", text)  # Vertex AI: claude-3-5-sonnet-v2@20241022
    return ModelRef(
        name=text, provider=provider, given=model, family=family_of(text), region=region
    )


def families() -> tuple[str, ...]:
    """Return the families of models: those of one share a tokenizer and framing."""
    return tuple(dict.fromkeys(family for _, family in _names().families))


@lru_cache(maxsize=8_192)
def family_of(name: str) -> str:
    """Return the family of a normalised name, "" if it is unknown."""
    found = _start_of_family().match(name)
    return _names().families[int(str(found.lastgroup)[1:])][1] if found else ""


@cache
def _start_of_family() -> re.Pattern[str]:
    starts = (f"(?P<_{n}>{start})" for n, (start, _) in enumerate(_names().families))
    return re.compile(f"{_WHOSE}(?:{'|'.join(starts)})")


def words_of(name: str) -> tuple[str, ...]:
    """Return the words and numbers of a normalised name, without the vendor before it."""
    return tuple(re.findall(r"[a-z]+|\d+", re.sub(_WHOSE, "", name, count=1)))


def binds_thoughts(name: str) -> bool:
    """Return whether the model of a normalised name binds its thoughts to what preceded them."""
    return re.match(_WHOSE + _BINDS, name) is not None


@lru_cache(maxsize=4_096)
def model_key(model: str | None) -> str:
    """Return the key of a model's usage reports: its name in any spelling, without a snapshot's date.

    A response may name a snapshot where the request named the model.
    """
    return "" if model is None else re.sub(SNAPSHOT + r"\Z", "", model_ref(model).name)


_Step = tuple[str, str | None, str | None]  # the rest, the provider, a region


def _step(text: str, provider: str | None) -> _Step | None:
    """Remove one layer of a spelling; None if there is none. Each step shortens the rest."""
    for read in (_routed, _arn, _resource, _prefixed, _bedrock, _tuned, _versioned):
        step = read(text, provider)
        if step is not None and step[0].strip() and len(step[0]) < len(text):
            return step
    return None


def _routed(text: str, provider: str | None) -> _Step | None:
    router = next((router for router in _ROUTERS if text.startswith(router)), None)
    return (text.removeprefix(router), provider, None) if router else None


def _arn(text: str, _provider: str | None) -> _Step | None:
    found = re.fullmatch(_ARN, text)
    return (found[2], "bedrock", found[1] or None) if found else None


def _resource(text: str, provider: str | None) -> _Step | None:
    """Remove Google's resource names."""
    if found := re.fullmatch(_RESOURCE, text):
        return found[3], provider or "vertex_ai", found[1]
    found = re.fullmatch(_GEMINI_RESOURCE, text)
    return (found[1], provider or "gemini", None) if found else None


def _prefixed(text: str, provider: str | None) -> _Step | None:
    """Split `server/model`, `server/where/model` or `server:model`, else at the last `/`."""
    head, slash, rest = text.partition("/")
    server = _servers().get(head)
    if slash and server is not None:
        # An aggregator's prefix is the server; the name after it is only the vendor.
        return rest, provider or server, None
    head, colon, rest = text.partition(":")
    server = _servers().get(head)
    # `mistral:7b` is a tag of Ollama's.
    if colon and server is not None and _known(rest):
        return rest, provider or server, None
    if "/" not in text:
        return None
    if provider is None:
        before, _, last = text.rpartition("/")
        return last, before or None, None
    head, _, rest = text.partition("/")
    return rest, provider, head if re.fullmatch(_CLOUD_REGION, head) else None


def _known(name: str) -> bool:
    return "/" in name or bool(family_of(name)) or re.fullmatch(_BEDROCK, name) is not None


def _bedrock(text: str, provider: str | None) -> _Step | None:
    found = re.fullmatch(_BEDROCK, text)
    if found is None:
        return None
    profile, vendor, name = found.groups()
    if not re.match(_BEDROCK_VERSIONED_NAME, name):
        name = re.sub(_BEDROCK_VERSION, "", name)
    if vendor == "deepseek" and not name.startswith(vendor):
        name = f"{vendor}-{name}"
    return name, provider or "bedrock", profile


def _tuned(text: str, provider: str | None) -> _Step | None:
    found = re.fullmatch(_FINE_TUNE, text)
    return (found[1], provider or "openai", None) if found else None


def _versioned(text: str, provider: str | None) -> _Step | None:
    """Normalise `claude-sonnet-4@20250514`, Vertex AI's spelling of a snapshot."""
    found = re.fullmatch(_VERTEX_VERSION, text)
    if found is None or found[2].isdigit():
        return None  # a number becomes part of the name
    return found[1], provider or "vertex_ai", None
