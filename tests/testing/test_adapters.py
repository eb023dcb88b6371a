"""A correct adapter of a tiny framework conforms, and the kit finds adapters that do not."""

from typing import ClassVar
from unittest import SkipTest

import pytest

from memman import MemoryManager, valid_id
from memman.testing import AdapterConformance, AdapterDriver, FakeModel
from tests.testing.frameworks import FORMAT, Adapter, Conversation

RECALLING = 32  # turns; after fewer, what the first half read is still in the context


class TestTinyFramework(AdapterConformance):
    turns = RECALLING

    def start(self, memory: MemoryManager, session_id: str, model: FakeModel) -> AdapterDriver:
        return Conversation(Adapter(memory, valid_id(session_id)), model)


def breaks(adapter: type, law: str) -> bool:
    """Return whether an adapter breaks a law, in short runs."""

    class Kit(AdapterConformance):
        turns = RECALLING if "recalls" in law or "_stream_" in law else 10

        def start(self, memory: MemoryManager, session_id: str, model: FakeModel) -> AdapterDriver:
            return Conversation(adapter(memory, valid_id(session_id)), model)

    try:
        getattr(Kit(), law)()
    except Exception:  # any failure of the adapter breaks the law
        return True
    return False


LONG = "test_long_run_fits_is_valid_and_is_logged_whole"


class Unbounded(Adapter):
    def fit(self, messages):
        self.log(messages)
        return messages


class Cutting(Adapter):
    def fit(self, messages):
        return super().fit(messages)[-3:]


class Twice(Adapter):
    def log(self, messages):
        ids = [f"{message['id']}/{len(messages)}" for message in messages]
        self.memory.add_messages(self.session_id, messages, FORMAT, ids=ids, unknown="keep")


class Positions(Adapter):
    def __init__(self, memory, session_id):
        super().__init__(memory, session_id)
        self.done = 0

    def log(self, messages):
        self.memory.add_messages(self.session_id, messages[self.done :], FORMAT, unknown="keep")
        self.done = len(messages)


class Late(Adapter):
    def log(self, messages):
        if messages[-1]["role"] != "assistant" or "tool_calls" in messages[-1]:
            super().log(messages)


class Stripping(Adapter):
    def log(self, messages):
        super().log([{k: v for k, v in m.items() if k != "signature"} for m in messages])


class Unpriced(Adapter):
    def fit(self, messages):
        self.log(messages)
        built = self.memory.build_context(self.session_id, format=FORMAT).messages
        return [{"role": "system", "content": "You review code."}, *built]


class Unreported(Adapter):
    def use(self, reply):
        pass


class Fickle(Adapter):
    def use(self, reply):
        super().use(reply)
        super().use(reply)


class Strict(Adapter):
    def log(self, messages):
        ids = [message["id"] for message in messages]
        self.memory.add_messages(self.session_id, messages, FORMAT, ids=ids)


class Shared(Adapter):
    def __init__(self, memory, session_id):
        super().__init__(memory, "one for all")


class Deleting(Adapter):
    def log(self, messages):
        ids = [message["id"] for message in messages]
        self.memory.add_messages(self.session_id, messages, FORMAT, ids=ids, unknown="keep")
        stored = [entry.id for entry in self.memory.get_entries(self.session_id)]
        if gone := [each for each in stored if each.split(":")[0] not in ids]:
            self.memory.delete_entries(self.session_id, gone)


class Loose(Adapter):
    def offer_recall(self):
        super().offer_recall()
        self.recall = lambda arguments: self.memory.recall_tool(self.session_id)(arguments)


class Silent(Adapter):
    def fit(self, messages):
        found = super().fit(messages)
        self.stream.clear()
        return found


class Unfinished(Adapter):
    def fit(self, messages):
        found = super().fit(messages)
        self.stream = [event for event in self.stream if event["name"] != "memman.compressed"]
        return found


class Anew(Adapter):
    def log(self, messages):
        self.memory.add_user_message(self.session_id, "x", id="first")
        self.memory.clear_session(self.session_id)
        super().log(messages)


@pytest.mark.parametrize(
    ("adapter", "laws"),
    [
        (Unbounded, {LONG, "test_forty_steps_in_one_turn_stay_within_the_budget"}),
        (Cutting, {LONG, "test_retried_turns_are_logged_once"}),
        (Twice, {LONG, "test_retried_turns_are_logged_once"}),
        (Positions, {"test_another_process_continues_without_rewriting",
                     "test_rewound_turn_leaves_the_context_and_not_the_log"}),
        (Late, {LONG}),
        (Stripping, {"test_native_parts_come_back_unaltered", "test_long_run_with_native_parts_is_valid"}),
        (Unpriced, {"test_usage_of_every_request_is_recorded"}),
        (Unreported, {"test_usage_of_every_request_is_recorded",
                      "test_budget_holds_by_the_bill_of_a_dearer_model"}),
        (Fickle, {"test_usage_of_every_request_is_recorded"}),
        (Strict, {"test_unknown_message_is_kept_and_reported",
                  "test_lone_surrogate_in_a_result_is_replaced_and_reported"}),
        (Shared, {"test_session_ids_of_any_kind_are_taken"}),
        (Deleting, {"test_rewound_turn_leaves_the_context_and_not_the_log"}),
        (Loose, {"test_agent_recalls_in_a_sync_run"}),
        (Silent, {"test_stream_has_an_event_before_and_after_each_compression"}),
        (Unfinished, {"test_stream_has_an_event_before_and_after_each_compression"}),
        (Anew, {"test_another_process_continues_without_rewriting"}),
    ],
)  # fmt: skip
def test_kit_finds_a_wrong_adapter(adapter, laws):
    assert [law for law in laws if not breaks(adapter, law)] == []


def test_capability_that_is_lacking_skips_its_law():
    class Kit(AdapterConformance):
        lacks: ClassVar = {"fork": "one line of messages"}

    with pytest.raises(SkipTest, match="fork: one line of messages"):
        Kit().test_fork_shares_the_past_only()
