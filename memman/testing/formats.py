"""Conformance tests of formats."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Sequence
from typing import Any

import msgspec

from memman.entries import NewEntry, TokenCount, entry_of
from memman.errors import FormatError
from memman.formats.renderer import Rendering
from memman.formats.rules import check
from memman.protocols import Format
from memman.testing.laws import refused
from memman.testing.stores.records import AT
from memman.window import Window

_NOT_MESSAGES: tuple[Any, ...] = (None, 5, [], {"no": "role"}, {"role": "nobody", "content": "x"})


def window_of(new_entries: Sequence[NewEntry]) -> Window:
    """Return a window of these entries, one token each."""
    window = Window()
    for seq, new_entry in enumerate(new_entries, 1):
        entry = entry_of(new_entry, f"e{seq}", AT, TokenCount(1))
        window.add(msgspec.structs.replace(entry, seq=seq), 1)
    return window


def user(text: str = "a question") -> NewEntry:
    return NewEntry(type="message", role="user", content=text)


def assistant(text: str = "an answer", message_id: str | None = None) -> NewEntry:
    return NewEntry(type="message", role="assistant", content=text, message_id=message_id)


def call(call_id: str | None = None, message_id: str | None = None, text: str = "{}") -> NewEntry:
    return NewEntry(type="tool_call", role="assistant", content=text, name="find", call_id=call_id,
                 message_id=message_id)  # fmt: skip


def result(call_id: str | None = None, text: str = "found") -> NewEntry:
    return NewEntry(type="tool_result", role="tool", content=text, name="find", call_id=call_id)


_SYSTEM = NewEntry(type="message", role="system", content="Be brief.")
_CONTEXT = NewEntry(type="context", role="system", content="notes", name="notes.txt")
_SUMMARY = NewEntry(type="summary", role="system", content="[end of memman summary] and on")

CONVERSATIONS: dict[str, tuple[NewEntry, ...]] = {
    "a question and an answer": (user(), assistant(), user()),
    "system first": (_SYSTEM, user(), assistant()),
    "system in the middle": (user(), _SYSTEM, assistant(), user()),
    "assistant first": (assistant(), user()),
    "assistant last, with a blank at its end": (user(), assistant("done \n")),
    "two of a role in a row": (user(), user(), assistant(), assistant(), user()),
    "a call and its result": (user(), call("c1"), result("c1"), assistant()),
    "text with parallel calls": (
        user(), assistant("both", "m"), call("c1", "m"), call("c2", "m"), result("c2"), result("c1"),
    ),
    "calls and results without ids": (user(), call(), call(), result(), result(), user()),
    "an unanswered call in the middle": (user(), call("c1"), user(), assistant(), user()),
    "an unanswered call at the end": (user(), call("c1")),
    "a result without its call": (user(), result("gone"), assistant(), user()),
    "two results of a call": (user(), call("c1"), result("c1"), result("c1"), user()),
    "an id that comes again": (
        user(), call("c1"), result("c1"), call("c1"), result("c1"), call("c1", "m"), call("c1", "m"),
        result("c1"), result("c1"),
    ),
    "something between a call and its result": (user(), call("c1"), user(), result("c1"), user()),
    "empty and blank texts": (user(""), assistant(""), user(" \n"), assistant(" "), user("\x00")),
    "an empty result": (user(), call("c1"), result("c1", ""), user()),
    "arguments that are no object": (user(), call("c1", None, "[1"), result("c1"), call("c2", None, "7")),
    "an id in no alphabet": (user(), call("c 1/\u00e9"), result("c 1/\u00e9"), user()),
    "context and summaries": (_SUMMARY, _CONTEXT, user(), _CONTEXT, assistant(), _CONTEXT),
    "only a system message": (_SYSTEM, user()),
    "only a context": (_CONTEXT,),
}  # fmt: skip
"""Sequences of real logs that every format must render validly."""


class FormatConformance:
    """The laws of a `Format`: derive from it and implement `make_format`.

    `samples` are conversations in this format: lists of messages of a provider or a log. `rules` is the
    set of rules of `memman.formats.rules` that rendered requests obey, if any. `unknown` is a key without
    a meaning in this format; None if its messages have no keys, or a request none but the provider's.
    """

    samples: Sequence[list[Any]] = ()
    rules: str | None = None
    unknown: str | None = "x_of_somebody_else"

    def make_format(self) -> Format:
        """Return the format under test."""
        raise NotImplementedError

    def rendered(self, new_entries: Sequence[NewEntry]) -> tuple[list[Any], str | None]:
        """Return (messages, system prompt) that the format renders of entries."""
        form = self.make_format()
        rendering = Rendering(form, len)
        rendering.update(window_of(new_entries))
        return list(rendering.messages()), rendering.system()

    def as_given(self, messages: list[Any]) -> list[Any]:
        """Return rendered messages in the form that a caller would pass; a text format returns text."""
        return messages

    # ------------------------------------------------------------ in

    def test_there_are_samples_to_be_tested_with(self) -> None:
        assert self.samples

    def test_it_recognises_its_own_messages(self) -> None:
        for sample in self.samples:
            assert self.make_format().detect(sample) > 0, f"not recognised: {sample!r:.200}"

    def test_it_recognises_nothing_in_nothing(self) -> None:
        assert self.make_format().detect([]) == 0
        for junk in _NOT_MESSAGES:
            assert self.make_format().detect([junk]) == 0, f"recognised: {junk!r}"

    def test_what_is_no_message_is_refused_and_named(self) -> None:
        for junk in _NOT_MESSAGES:
            error = refused(FormatError, lambda junk=junk: self.make_format().parse([junk]))  # type: ignore[misc]  # mypy infers no lambda with a default
            assert str(error)

    def test_entries_have_the_index_of_their_message(self) -> None:
        for sample in self.samples:
            found = [new_entry.message_index for new_entry in self.make_format().parse(sample)]
            assert found == sorted(found)
            assert set(found) == set(range(len(sample)))

    def test_parsing_leaves_the_messages_as_they_were(self) -> None:
        for sample in self.samples:
            before = copy.deepcopy(sample)
            self.make_format().parse(sample)
            assert sample == before

    # ------------------------------------------------------------ and out again

    def test_an_unedited_conversation_comes_back_equal(self) -> None:
        for sample in self.samples:
            messages, _ = self.rendered(self.make_format().parse(sample))
            assert self.as_given(messages) == sample

    def test_unknown_keys_of_a_message_are_kept(self) -> None:
        for sample in self.samples if self.unknown else ():
            marked = [{**message, self.unknown: {"kept": [1, None]}} for message in sample]
            messages, _ = self.rendered(self.make_format().parse(marked))
            assert messages == marked

    def test_what_is_rendered_is_plain_json(self) -> None:
        for new_entries in self._conversations():
            messages, _ = self.rendered(new_entries)
            assert json.loads(json.dumps(messages)) == messages

    def test_changing_what_was_rendered_changes_nothing_else(self) -> None:
        for new_entries in self._conversations():
            first, _ = self.rendered(new_entries)
            again, _ = self.rendered(new_entries)
            for message in first:
                message.clear()
            assert self.rendered(new_entries)[0] == again

    def test_the_texts_of_a_conversation_are_in_it(self) -> None:
        new_entries = (user("apples"), call("c1", None, '{"q": "pears"}'), result("c1", "plums"),
                  assistant("figs"), _CONTEXT, user("dates"))  # fmt: skip
        text = json.dumps(self.rendered(new_entries)[0])
        for word in ("apples", "pears", "plums", "figs", "notes", "dates"):
            assert word in text

    def test_every_conversation_obeys_the_rules_of_its_provider(self) -> None:
        for name, new_entries in CONVERSATIONS.items() if self.rules else ():
            messages, system = self.rendered(new_entries)
            broken = check(messages, str(self.rules), system=system)
            assert not broken, f"{name}: {broken}"

    def test_every_prefix_and_suffix_obeys_the_rules_too(self) -> None:
        for name, new_entries in CONVERSATIONS.items() if self.rules else ():
            cuts = [new_entries[:n] for n in range(1, len(new_entries))]
            cuts += [new_entries[n:] for n in range(1, len(new_entries))]
            for cut in cuts:
                messages, system = self.rendered(cut)
                broken = check(messages, str(self.rules), system=system) if messages else []
                assert not broken, f"{name}, cut to {[d.type for d in cut]}: {broken}"

    def test_rendering_step_by_step_comes_to_the_same(self) -> None:
        for name, new_entries in CONVERSATIONS.items():
            form = self.make_format()
            rendering = Rendering(form, len)
            grown = Window()
            for item in window_of(new_entries).items:
                grown.add(item.entry, item.tokens)
                rendering.update(grown)
            assert list(rendering.messages()) == self.rendered(new_entries)[0], name

    def _conversations(self) -> list[Sequence[NewEntry]]:
        parsed = [self.make_format().parse(sample) for sample in self.samples]
        return list(itertools.chain(CONVERSATIONS.values(), parsed))
