"""Helpers for plugins around a provider's SDK: clients, summarizers, tools, errors, threads.

They import no SDK. This package is part of the API for plugin authors. `memman.protocols` has the types
that a plugin implements, and `memman.testing` the tests that it runs.
"""

from memman.counting.failures import CountFailure, failure_of, retry_after_of, status_of
from memman.counting.framing import framing_of
from memman.counting.limits import limits_of
from memman.counting.models import model_key, model_ref
from memman.counting.tools import Tool, read_tools
from memman.display import safe_repr
from memman.plugins import how_to_install
from memman.providers.clients import Clients, host_of, require, sent_name
from memman.providers.summarizers import (
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
from memman.runtime.forks import renew_in_child
from memman.runtime.threads import in_thread, start_in_thread

__all__ = [
    "SYSTEM",
    "Clients",
    "CountFailure",
    "ProviderSummarizer",
    "Tool",
    "billed",
    "failure_of",
    "framing_of",
    "host_of",
    "how_to_install",
    "in_thread",
    "limits_of",
    "model_key",
    "model_named",
    "model_ref",
    "persistently",
    "read_reply",
    "read_tools",
    "refuse_async",
    "renew_in_child",
    "reply_limit",
    "require",
    "require_sdk",
    "retry_after_of",
    "safe_repr",
    "sent_name",
    "start_in_thread",
    "status_of",
    "unavailable",
]
