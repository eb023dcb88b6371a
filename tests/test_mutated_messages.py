"""Damaged messages are accepted whole or rejected by name, never in part.

Real messages of every format are changed at random places. A rejected list leaves nothing behind; an
accepted one is rendered as valid requests and exported as a document that restores it.
"""

from __future__ import annotations

import copy
import json
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memman import BudgetExceeded, MemmanError, MemoryConfig, MemoryManager, SessionState
from memman.formats import builtin_formats
from memman.formats.rules import RULES, check
from tests.examples import examples
from tests.formats.rich import CONVERSATIONS
from tests.mutations import change

TARGETS = [form.name for form in builtin_formats() if form.name in RULES]
NOTHING_TO_SEND = "request.empty"
NEW_TYPE = (
    "shape.item-type"  # an item of an unknown type may be one that the provider added: it is sent
)


@pytest.mark.parametrize("form", CONVERSATIONS)
def test_unchanged_they_come_back_as_they_were(form: str):
    memory = MemoryManager(counter="chars4")
    memory.add_messages("s", CONVERSATIONS[form])
    assert check(CONVERSATIONS[form], form) == []
    assert memory.build_context("s", format=form).messages == CONVERSATIONS[form]


@pytest.mark.parametrize("form", CONVERSATIONS)
@settings(max_examples=examples(60))
@given(random=st.randoms(use_true_random=False), data=st.data())
def test_changed_messages_are_refused_whole_or_go_out_valid(form: str, random: Random, data: Any):
    messages = copy.deepcopy(CONVERSATIONS[form])
    for _ in range(data.draw(st.integers(1, 6))):
        change(messages, random)
    given_ = copy.deepcopy(messages)
    config = MemoryConfig(max_tokens=data.draw(st.sampled_from((300, 2_000, 100_000))))
    memory = MemoryManager(counter="chars4", config=config)
    try:
        memory.add_messages("s", messages, format=data.draw(st.sampled_from((form, "auto"))))
    except MemmanError:
        assert memory.list_sessions() == []
        return
    finally:
        assert repr(messages) == repr(given_), "what the caller gave is his"
    if not memory.list_sessions():
        assert messages == []
        return
    for target in TARGETS:
        try:
            sent = memory.build_context("s", format=target).messages
        except BudgetExceeded:
            continue
        assert {fault.rule for fault in check(sent, target)} <= {NOTHING_TO_SEND, NEW_TYPE}
        json.dumps(sent).encode()
    state = memory.export_session("s")
    again = MemoryManager(counter="chars4", config=config)
    again.import_session(SessionState.from_json(state.to_json()))
    assert again.export_session("s") == state
