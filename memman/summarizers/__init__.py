"""Who writes summaries: what was handed over or named, asked in one way.

`accepting` takes a callable, a `Summarizer` or a name; `command` asks a program; `providers` has what a
plugin's summarizer needs around its provider's SDK.
"""

from memman.summarizers.adapters import DIGEST, Asker, Summarizers
from memman.summarizers.command import CommandSummarizer
from memman.summarizers.providers import (
    SYSTEM,
    ProviderSummarizer,
    billed,
    model_named,
    persistently,
    read_reply,
    refuse_async,
    reply_limit,
    require_sdk,
    unavailable,
)

__all__ = [
    "DIGEST",
    "SYSTEM",
    "Asker",
    "CommandSummarizer",
    "ProviderSummarizer",
    "Summarizers",
    "billed",
    "model_named",
    "persistently",
    "read_reply",
    "refuse_async",
    "reply_limit",
    "require_sdk",
    "unavailable",
]
