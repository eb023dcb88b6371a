"""Test kits for whoever implements a port, and small fakes for whoever uses memman.

    from memman.testing import StoreConformance

    class TestMyStore(StoreConformance):
        def make_store(self):
            return MyStore()

A kit is a class of pytest style without pytest in it: every law of a port is one method whose name
says it. memman's own stores, counters and formats run the same classes.
"""

from memman.testing.counters import CounterConformance
from memman.testing.facts import Survival, survival
from memman.testing.fakes import FakeClock, ScriptedSummarizer, record_events, sequential_ids
from memman.testing.formats import FormatConformance
from memman.testing.laws import LawResult, broken_laws, law_results, laws_of
from memman.testing.loopback import Answer, LoopbackServer, loopback
from memman.testing.remote import RemoteCounterConformance
from memman.testing.remote_summarizers import RemoteSummarizerConformance
from memman.testing.specs import CounterSpecConformance
from memman.testing.stores import StoreConformance
from memman.testing.summarizers import SummarizerConformance

__all__ = [
    "Answer",
    "CounterConformance",
    "CounterSpecConformance",
    "FakeClock",
    "FormatConformance",
    "LawResult",
    "LoopbackServer",
    "RemoteCounterConformance",
    "RemoteSummarizerConformance",
    "ScriptedSummarizer",
    "StoreConformance",
    "SummarizerConformance",
    "Survival",
    "broken_laws",
    "law_results",
    "laws_of",
    "loopback",
    "record_events",
    "sequential_ids",
    "survival",
]
