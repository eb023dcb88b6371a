"""Conformance kits for implementations of a protocol, and small fakes for users of memman.

    from memman.testing import StoreConformance

    class TestMyStore(StoreConformance):
        def make_store(self):
            return MyStore()

A kit is a class for pytest that does not import pytest. Each law is a method, named after it. memman's
own stores, counters and formats run the same classes.
"""

from memman.testing.adapters import AdapterConformance, AdapterDriver
from memman.testing.counters import CounterConformance, CounterSpecConformance
from memman.testing.facts import Survival, survival
from memman.testing.fakes import (
    AsyncScriptedSummarizer,
    Delayed,
    FakeClock,
    ScriptedSummarizer,
    record_events,
    sequential_ids,
)
from memman.testing.formats import FormatConformance
from memman.testing.laws import LawResult, broken_laws, law_results, laws_of
from memman.testing.loopback import Answer, LoopbackServer, loopback
from memman.testing.models import (
    FakeModel,
    FakeModelError,
    FakeOverflow,
    ModelReply,
    ModelRequest,
    ToolCallRequest,
)
from memman.testing.remote import RemoteCounterConformance
from memman.testing.remote_summarizers import RemoteSummarizerConformance
from memman.testing.stores import StoreConformance
from memman.testing.summarizers import SummarizerConformance

__all__ = [
    "AdapterConformance",
    "AdapterDriver",
    "Answer",
    "AsyncScriptedSummarizer",
    "CounterConformance",
    "CounterSpecConformance",
    "Delayed",
    "FakeClock",
    "FakeModel",
    "FakeModelError",
    "FakeOverflow",
    "FormatConformance",
    "LawResult",
    "LoopbackServer",
    "ModelReply",
    "ModelRequest",
    "RemoteCounterConformance",
    "RemoteSummarizerConformance",
    "ScriptedSummarizer",
    "StoreConformance",
    "SummarizerConformance",
    "Survival",
    "ToolCallRequest",
    "broken_laws",
    "law_results",
    "laws_of",
    "loopback",
    "record_events",
    "sequential_ids",
    "survival",
]
