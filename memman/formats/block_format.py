"""The common part of formats whose messages are lists of blocks: a call is a block, and so is its result.

Results are in a message of the user's, and system messages in a separate system prompt.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import msgspec

from memman.entries import JSON, NO_JSON, Content, Entry, JSONObject, NewEntry, Part, TextPart
from memman.formats.calls import spoken_of
from memman.formats.parts import (
    Kept,
    compaction_in,
    in_order,
    kept_of,
    own_block,
    parts_framing,
    present,
    wire_parts,
    with_kept,
)
from memman.formats.plain import parse_each
from memman.formats.turns import BEGINS, GOES_ON, NO_RESULT, NOTHING, note
from memman.formats.wire.tables import KEYED, body_of, key_of
from memman.protocols import Call, Rendered, Turn


class BlockFormat(ABC):
    """Renders turns as messages of blocks.

    `_role` is that of the model, `_key` that of a message's blocks. With `_plain` a content that is one
    text is sent as such. `_good_id` matches the ids that the provider takes, by default any, and `_bad_id`
    a letter that no id has.
    """

    name: str
    request_framing = 4
    message_framing: int
    joins = True
    edges: tuple[str, ...] = (BEGINS, GOES_ON)
    inline_system = False
    results_beside = True
    _call_framing: int
    _role = "assistant"
    _key = "content"
    _plain = False
    _good_id = re.compile("")
    _bad_id = re.compile(r"[^a-zA-Z0-9_-]")

    def parse(self, messages: Sequence[JSON]) -> list[NewEntry]:
        """Return one entry for a message's text and other parts, one for each call and result."""
        names: dict[str, str] = {}
        return parse_each(messages, lambda message, label: self._parse(message, label, names))

    @abstractmethod
    def _parse(self, message: JSON, label: str, names: dict[str, str]) -> list[NewEntry]:
        """Return the entries of one message.

        `label` takes the place of a message id until one is made. `names` has the names of tools by the
        ids of their calls.
        """

    def render(self, turn: Turn) -> Rendered:
        """Return the messages of a turn without blank texts, which the provider rejects."""
        if turn.kind == "assistant":
            return self._render_assistant(turn)
        if (own := compaction_in(turn.entries[0], self.name)) is not None:
            return Rendered(({"role": self._role, self._key: [own]},), self.message_framing)
        if turn.kind != "user":
            return note(turn, self.message_framing, self._of_user)
        entry = turn.entries[0]
        kept, extras = kept_of(entry, self.name), list[str]()
        content = self._content(entry, kept, extras)
        if not content or (isinstance(content, str) and not content.strip()):
            return NOTHING
        framing = self.message_framing + parts_framing(entry.content)
        return Rendered((self._users(content, kept),), framing, tuple(extras))

    def join(self, left: JSONObject, right: JSONObject) -> JSONObject | None:
        """Join adjacent messages of one role: results first, as the provider requires."""
        if left["role"] != right["role"]:
            return None
        joined = [*listed(left[self._key]), *listed(right[self._key])]
        return {**with_kept(left, right), self._key: joined}

    def frame(self, messages: list[JSONObject]) -> list[JSONObject]:
        """Begin and end the conversation with the user.

        The newest models reject a prefilled end, and a system prompt alone.
        """
        if not messages:
            return [self._of_user(GOES_ON)]
        if messages[0].get("role") == self._role:
            messages = [self._of_user(BEGINS), *messages]
        if messages[-1].get("role") == self._role:
            messages = [*messages, self._of_user(GOES_ON)]
        return messages

    def _render_assistant(self, turn: Turn) -> Rendered:
        extras: list[str] = []
        calls = self._wire_calls(turn.calls, extras)
        results = ((call, self._wire_own(call.result, call)) for call in turn.beside)
        beside = {call.entry.id: own for call, own in results if own is not None}
        behind = spoken_of(turn)
        kept = kept_of(behind[0], self.name)
        content = self._only_text(turn)
        if content is None:
            spoken: list[JSONObject | None] = []
            for entry in turn.entries:
                spoken += self._blocks(entry.content, kept_of(entry, self.name), extras, True)
            content = _arranged(kept.order, spoken, calls, beside)
        if not content:
            return NOTHING
        message = with_kept({"role": self._role, self._key: content}, kept.message)
        framing = self.message_framing + self._call_framing * (len(calls) + len(beside))
        framing += sum(1 + parts_framing(entry.content) for entry in turn.entries)
        if not turn.answers:
            return Rendered((message,), framing, tuple(extras))
        framing += self.message_framing + self._call_framing * len(turn.answers)
        messages = self._results(turn.answers, extras)
        answers = tuple(call.result for call in turn.answers if call.result is not None)
        sources = (behind, *[answers] * len(messages))
        return Rendered((message, *messages), framing, tuple(extras), sources)

    def _only_text(self, turn: Turn) -> JSON:
        """Return the text of a message that is nothing else, "" for a blank one; else None."""
        if not self._plain or len(turn.entries) != 1 or turn.calls or turn.beside:
            return None
        content = turn.entries[0].content
        return None if not isinstance(content, str) else content if content.strip() else ""

    def _of_user(self, text: str) -> JSONObject:
        return self._users(text if self._plain else [{"text": text}])

    def _users(self, content: JSON, *kept: Kept) -> JSONObject:
        """Return a user's message with its kept keys."""
        message: JSONObject = {"role": "user", self._key: content}
        for each in kept:
            message = with_kept(message, each.message)
        return message

    def _content(self, entry: Entry, kept: Kept, extras: list[str]) -> JSON:
        """Return the content of a user's message or of a result; it may be blank."""
        if self._plain and isinstance(entry.content, str):
            return entry.content
        return present(self._blocks(entry.content, kept, extras))

    def _blocks(
        self, content: Content, kept: Kept, extras: list[str], spoken: bool = False
    ) -> list[JSONObject | None]:
        """Return the blocks of a content, None for parts that are left out; `spoken` by the model."""
        wire = self._wire_spoken if spoken else self._wire_part
        if isinstance(content, str):
            return [wire(TextPart(content))]
        return wire_parts(content, kept, wire, extras)

    def _wire_spoken(self, part: Part) -> JSONObject | None:
        """Return a part of an assistant message, or None if it may not have it."""
        return self._wire_part(part)

    @abstractmethod
    def _wire_part(self, part: Part) -> JSONObject | None:
        """Return a part in this provider's form, or None if it has none."""

    def _wire_calls(self, calls: Sequence[Call], extras: list[str]) -> list[tuple[str, JSONObject]]:
        """Return the blocks of calls, each with its entry's id."""
        owns = [(call, self._wire_own(call.entry, call) if call.beside else None) for call in calls]
        return [(call.entry.id, own or self._wire_call(call, extras)) for call, own in owns]

    def _wire_own(self, half: Entry | None, call: Call) -> JSONObject | None:
        """Return a call or its result in the form of the provider's own tools; None if it has none."""
        own = own_block(half, self.name)
        if own is None:
            return None
        block, kind = own
        body = {**body_of(self.name, block), kind.id: self._wire_id(call)}
        return {**block, key_of(self.name, block): body} if self.name in KEYED else body

    def _wire_id(self, call: Call) -> str:
        """Return the call's id in the provider's alphabet and length, still unique within the request."""
        if self._good_id.match(call.unique_id):
            return call.unique_id
        return f"{self._bad_id.sub('_', call.unique_id)[:40]}--{call.entry.seq}"

    @abstractmethod
    def _wire_call(self, call: Call, extras: list[str]) -> JSONObject:
        """Return the block of a call."""

    def _results(self, calls: Sequence[Call], extras: list[str]) -> list[JSONObject]:
        """Return the messages with the results of calls; a call without one gets a placeholder."""
        blocks: list[JSONObject] = []
        for call in calls:
            result = call.result
            if result is None:
                extras.append(NO_RESULT)
                result = msgspec.structs.replace(
                    call.entry, content=NO_RESULT, raw_json=NO_JSON, is_error=False
                )
            blocks.append(self._wire_result(call, result, extras))
        kept = [kept_of(call.result, self.name) for call in calls if call.result is not None]
        return [self._users(blocks, *kept)]

    @abstractmethod
    def _wire_result(self, call: Call, result: Entry, extras: list[str]) -> JSONObject:
        """Return the block of a call's result."""


def listed(content: JSON) -> list[JSONObject]:
    """Return a content as blocks."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _arranged(
    order: str,
    spoken: Sequence[JSONObject | None],
    calls: Sequence[tuple[str, JSONObject]],
    beside: Mapping[str, JSONObject],
) -> list[JSONObject]:
    """Return the blocks of an assistant's message in their original order, or texts before calls.

    Results of the provider's own tools come first in any order but the original: those of an earlier
    message must, the others directly behind their calls.

    Args:
        order: the original order ("t", "u", "r" for a result).
        spoken: the texts, None for one that is left out.
        calls: the calls, each with its entry's id.
        beside: those results, by the id of the call's entry.
    """
    found = in_order(order, t=spoken, u=[use for _, use in calls], r=[*beside.values()])
    if found is not None:
        return found
    made = {call for call, _ in calls}
    earlier = [result for call, result in beside.items() if call not in made]
    pairs = [block for call, use in calls if call in beside for block in (use, beside[call])]
    rest = [use for call, use in calls if call not in beside]
    return [*earlier, *pairs, *present(spoken), *rest]
