"""Model limits: context, input and output in tokens, from a bundled table and your own file.

The table is a snapshot made by `python -m benchmarks.make_limits`, which documents its sources and rules.
It is read when first needed, never at import. Limits depend on the server: one in four of a cloud's
differs from its vendor's. The variable `MEMMAN_MODELS` names a JSON file that adds and replaces rows:

    {"acme-large": {"context": 32768, "max_output": 4096}, "ollama/*": {"context": 16384}}

Keys are models in any spelling; one without a server is for all servers, and `server/*` for every model
of a server that has no row. `max_input` and `max_output` are the context if absent.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import lru_cache
from os.path import commonprefix
from pathlib import Path
from typing import Annotated, Final

import msgspec

from memman.counting.models import family_of, model_ref, words_of
from memman.display import warn_once
from memman.errors import InvalidInput
from memman.protocols import ModelInfo, ModelRef

VARIABLE: Final = "MEMMAN_MODELS"
ASSUMED: Final = "assumed: "  # begins the source of limits that no row states for the model
_SAME: Final = 4  # the likeness of names that differ in tags alone
_OWN: Final = ""  # the server of the file's rows that have none
# The servers of a model that is named without one: its vendors.
_VENDORS: Final = (
    "openai", "anthropic", "gemini", "mistral", "xai", "deepseek", "cohere", "zai", "moonshot",
    "perplexity", "minimax", "meta", "stepfun", "xiaomi",
)  # fmt: skip
# Alibaba also serves models of other vendors, whose own rows decide.
_LIKELY: Final = (*_VENDORS, "dashscope")
# Suffixes of a model's name: a date or a stage, a quantisation, an offer of a router.
_TAG: Final = (
    r"[-:@](\d{4}-\d\d-\d\d|\d\d-\d{4}|\d{8}|\d{6}|\d{3,4}|latest|default|preview(-\d\d-\d{2,4})?|exp|beta"
    r"|w\d+a\d+|(bf|fp|f)(16|8|4)(-dynamic)?|(nv|mx)fp[48]|int[48]|[48]-?bit|awq|gptq|gguf|mlx|i?q\d(_\w+)?"
    r"|cloud|free|floor|nitro|extended|exacto|tee|maas|hf)(?=$|[-:@])"
)
_OLLAMA_TAG: Final = r".+:(e?\d+(x\d+)?(\.\d+)?b|\d{3}m|i?q\d|f(p)?16|latest)(?!.*cloud)"

_Row = tuple[int, int, int, int]  # context, max_input, max_output, and the number of its source
_Tokens = Annotated[int, msgspec.Meta(gt=0)]


class _Head(msgspec.Struct, frozen=True):
    date: str
    sources: dict[str, str]


class _Table(msgspec.Struct, frozen=True):
    head: _Head
    models: dict[str, _Row]  # by server/name


class _Own(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    context: _Tokens
    max_input: _Tokens | None = None
    max_output: _Tokens | None = None


def limits_of(ref: ModelRef) -> ModelInfo | None:
    """Return a model's limits, None if the table and your file do not have them: never a guess.

    A model of a local server has that server's default window.
    """
    rows, local = _limits(), re.match(_OLLAMA_TAG, ref.name) and ref.provider is None
    for servers in ((_OWN,), _VENDORS if ref.provider is None else (ref.provider,)):
        listed = [rows[key] for server in servers if (key := f"{server}/{ref.name}") in rows]
        # Two vendors may have a model of one name.
        if len({(info.context, info.max_input, info.max_output) for info in listed}) == 1:
            return listed[0]
    return rows.get("ollama/*" if local else f"{ref.provider}/*")


def assumed_limits(ref: ModelRef) -> ModelInfo | None:
    """Return the smallest limits of the models that an unlisted one is most like, None if it is unlike all.

    The models of the same name at other servers come first, then the same name with other tags. The
    model's family follows: variants of its version, models that differ only in numbers, then all, and of
    these the names with the longest common beginning. Rows of its own server come before others; a model
    without a server takes the rows of vendors.
    `source` names the row, and begins with `ASSUMED` for a family.
    """
    rows, near = _limits(), (_OWN, *(_LIKELY if ref.provider is None else (ref.provider,)))
    likeness = {}
    for key in rows:
        server, _, name = key.partition("/")
        kind, shared = _likeness(ref, name)
        if kind:
            likeness[key] = kind, shared, server in near
    if not likeness:
        return None
    best = max(likeness.values())
    like = [key for key, each in likeness.items() if each == best]
    least = min(like, key=lambda key: (rows[key].max_input, rows[key].context))
    why = "as for" if best[0] >= _SAME else f"{ASSUMED}the smallest of the family {ref.family},"
    source = f"{why} {least.removeprefix('/')} ({rows[least].source})"
    return msgspec.structs.replace(rows[least], source=source)


def _likeness(ref: ModelRef, name: str) -> tuple[int, int]:
    """Return how alike two names are, 0 if not at all, and how many words of their beginnings."""
    words, other = _words(ref.name), _words(name)
    if not words or family_of(name) != ref.family or not (ref.family or other == words):
        return 0, 0
    if other == words:
        return _SAME + (name == ref.name), 0
    shared = len(commonprefix([words, other]))  # noqa: RUF071 - of words, not of a path
    if shared == len(words) and re.match(r"[a-z]|\d+b", "".join(other[shared:])):
        return 3, 0  # an edition or a size of this version
    return (2 if _line(name) == _line(ref.name) else 1), shared


def known_limits() -> Iterator[tuple[str, ModelInfo]]:
    """Yield (server/name, limits) of every model in the table and your file, in alphabetical order."""
    for key, info in sorted(_limits().items()):
        yield key.removeprefix("/"), info


def own_limits(data: bytes, path: str) -> dict[str, ModelInfo]:
    """Return the limits in a file's bytes, by server/name. Raises `InvalidInput` for another content."""
    try:
        rows = msgspec.json.decode(data, type=dict[str, _Own])
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise InvalidInput(f"{path!r} cannot be read as a table of models: {error}") from error
    found = {}
    for given, row in rows.items():
        ref, most = model_ref(given), row.context
        max_input, max_output = min(row.max_input or most, most), min(row.max_output or most, most)
        key = f"{ref.provider or _OWN}/{ref.name}"
        found[key] = ModelInfo(most, max_input, max_output, path)
    return found


def _limits() -> dict[str, ModelInfo]:
    """Return all limits by server/name; a file that cannot be read is one warning."""
    path = os.environ.get(VARIABLE)
    try:
        return _merged(path)
    except (OSError, InvalidInput) as error:
        warn_once("memman", f"the file of {VARIABLE} is not used: {error}")
        return _merged(None)


@lru_cache(maxsize=4)
def _merged(path: str | None) -> dict[str, ModelInfo]:
    table = _table()
    rows = {}
    for key, (context, max_input, max_output, number) in table.models.items():
        source = table.head.sources[str(number)]
        if key.endswith("/*"):
            source = f"{ASSUMED}the default of {key.removesuffix('/*')}, {source}"
        rows[key] = ModelInfo(context, max_input, max_output, source, table.head.date)
    return rows | own_limits(Path(path).expanduser().read_bytes(), path) if path else rows


@lru_cache(maxsize=1)
def _table() -> _Table:
    data = Path(__file__).with_name("model_limits.json").read_bytes()
    return msgspec.json.decode(data, type=_Table)


@lru_cache(maxsize=8_192)
def _words(name: str) -> tuple[str, ...]:
    """Return a name's words and numbers without its tags."""
    return words_of(re.sub(_TAG, "", name))


def _line(name: str) -> tuple[str, ...]:
    """Return the words of a name without the numbers of its version and size."""
    return tuple(word for word in _words(name) if not word.isdecimal())
