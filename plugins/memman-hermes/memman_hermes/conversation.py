"""The messages of a Hermes agent as a session of memman."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from hashlib import blake2b
from itertools import chain
from typing import Any, Final
from uuid import uuid4

from memman import Context, MemoryManager, SessionNotFound
from memman.mirror import message_id

FORMAT: Final = "openai-chat"
_PREFIX: Final = "hermes-"  # of the ids of messages
_KEY: Final = len(_PREFIX) + 24  # the letters of an id that tell the content
_METADATA: Final = "hermes"  # the key of what this module keeps in a session's metadata
_CONTINUED: Final = "continued_as"
_SHOWN: Final = "shown"
# Keys that no provider gets; neither are those that begin with an underscore.
_OF_CODEX: Final = ("call_id", "response_item_id")  # keys of a call for another API
_OF_HERMES: Final = ("api_content", "finish_reason", "reasoning", "timestamp", "tool_name")

Message = dict[str, Any]


class Conversation:
    """A session that has the messages of an agent, which lists only those of its context.

    A message in the list is one of three: known, as its content is in the session's window; shown, as it
    came from a context of memman's (a summary, a stub); or new. Hermes gives messages no ids, so each gets
    one of its content and a random part.
    """

    def __init__(self, memory: MemoryManager, session_id: str) -> None:
        self.memory = memory
        self.session_id = session_id
        self._keys: list[str] = []  # of the agent's messages, as they were last seen
        self._ids: list[list[str]] = []  # the logged messages in each of them
        self._window: list[str] = []  # the entries of the session's window
        self._shown: dict[str, list[str]] | None = None

    # ------------------------------------------------------------ in

    def sync(self, messages: Sequence[Message]) -> None:
        """Log what is new in an agent's messages, and retract what is gone at their end."""
        keys = [_key(message) for message in messages]
        known = len(self._keys)
        if not known or keys[:known] != self._keys:
            known = self._recognise(keys)
        self._add(messages[known:], keys[known:])
        self._keys = keys

    def is_continued_by(self, messages: Sequence[Message]) -> bool:
        """Return whether a list of messages begins with those that were seen last."""
        return [_key(message) for message in messages[: len(self._keys)]] == self._keys

    def is_changed(self) -> bool:
        """Return whether the window has other entries than this conversation gave it."""
        return self._window != self._active()

    def _recognise(self, keys: Sequence[str]) -> int:
        """Return how many messages are known from the beginning on, and retract those that are gone.

        Gone are messages that the list had before, and those of the window behind the known ones. Others
        may be there again: a compression was undone.
        """
        self._window = self._active()
        own = [id_ for id_ in self._window if id_.startswith(_PREFIX) and id_ == message_id(id_)]
        shown = self._read_shown()
        matcher = SequenceMatcher(None, [id_[:_KEY] for id_ in own], list(keys), autojunk=False)
        at = {b + n: a + n for a, b, size in matcher.get_matching_blocks() for n in range(size)}
        before = set(chain.from_iterable(self._ids))
        self._ids = []
        for number, key in enumerate(keys):
            if number not in at and key not in shown:
                break
            self._ids.append([own[at[number]]] if number in at else shown[key])
        known = set(chain.from_iterable(self._ids))
        last = max((number for number, id_ in enumerate(own) if id_ in known), default=-1)
        self._retract(
            id_
            for number, id_ in enumerate(own)
            if id_ not in known and (number > last or id_ in before)
        )
        return len(self._ids)

    def _add(self, messages: Sequence[Message], keys: Sequence[str]) -> None:
        if not messages:
            return
        ids = [f"{key}-{uuid4().hex[:12]}" for key in keys]
        entries = self.memory.add_messages(
            self.session_id,
            [_logged(message) for message in messages],
            FORMAT,
            ids=ids,
            compress=False,  # Hermes asks for a compaction
            unknown="keep",
        )
        self._window += [entry.id for entry in entries]
        self._ids += [[id_] for id_ in ids]

    def _retract(self, ids: Iterable[str]) -> None:
        gone = set(ids)
        if not gone:
            return
        doomed = [
            entry.id
            for entry in self.memory.get_entries(self.session_id)
            if message_id(entry.id) in gone
        ]
        self.memory.retract(self.session_id, doomed, reason="no longer in the agent's messages")
        self._window = self._active()

    def _active(self) -> list[str]:
        try:
            return [entry.id for entry in self.memory.get_active_entries(self.session_id)]
        except SessionNotFound:
            return []

    # ------------------------------------------------------------ out

    def show(self, context: Context, messages: list[Message]) -> list[Message]:
        """Return a context as the agent's next messages: its own wherever they are unaltered.

        Args:
            context: a context of the session.
            messages: the agent's messages of the last `sync`, which are returned if nothing changes.
        """
        made = self._read_shown()
        own = {
            ids[0]: message
            for key, ids, message in zip(self._keys, self._ids, messages, strict=True)
            if ids and key not in made
        }
        found: list[Message] = []
        contents: list[list[str]] = []
        shown: dict[str, list[str]] = {}
        for rendered, source in zip(context.messages, context.sources, strict=True):
            names = [id_ for id_ in map(message_id, source.entries) if id_.startswith(_PREFIX)]
            native = own.get(names[0]) if source.unaltered and len(set(names)) == 1 else None
            message = rendered if native is None else _unmarked(native)
            if found and (joined := _joined(found[-1], message)) is not None:
                found[-1], contents[-1], native = joined, [*contents[-1], *names], None
            else:
                found.append(message)
                contents.append(names)
            if native is None:
                shown[_key(found[-1])] = list(dict.fromkeys(contents[-1]))
        keys = [_key(message) for message in found]
        if keys == self._keys:
            self._window = self._active()
            return messages
        self._keys, self._ids = keys, contents
        self._window = self._active()
        self._shown = {key: ids for key, ids in shown.items() if key in keys}
        self._describe(**{_SHOWN: self._shown})
        return found

    def _read_shown(self) -> dict[str, list[str]]:
        """Return the logged messages in each message that a context made, by their keys."""
        if self._shown is None:
            self._shown = self._metadata().get(_METADATA, {}).get(_SHOWN, {})
        return self._shown

    def continue_as(self, hermes_id: str) -> None:
        """Note a further session of Hermes that continues this conversation."""
        ids = self._metadata().get(_METADATA, {}).get(_CONTINUED, [])
        self._describe(**{_CONTINUED: [*ids, hermes_id]})

    def _describe(self, **own: Any) -> None:
        metadata = self._metadata()
        kept = {**metadata.get(_METADATA, {}), **own}
        self.memory.update_session(self.session_id, metadata={**metadata, _METADATA: kept})

    def _metadata(self) -> dict[str, Any]:
        infos = self.memory.list_sessions(prefix=self.session_id)
        return next((info.metadata for info in infos if info.session_id == self.session_id), {})


def session_of(memory: MemoryManager, hermes_id: str, *, default: str) -> str:
    """Return the memman session of a Hermes session that may continue another one."""
    infos = memory.list_sessions()
    if any(info.session_id == default for info in infos):
        return default
    continued = (
        info.session_id
        for info in infos
        if hermes_id in info.metadata.get(_METADATA, {}).get(_CONTINUED, ())
    )
    return next(continued, default)


def _logged(message: Message) -> Message:
    """Return a message as providers get it."""
    logged = {
        key: value
        for key, value in message.items()
        if not key.startswith("_") and key not in _OF_HERMES
    }
    if isinstance(calls := message.get("tool_calls"), list):
        logged["tool_calls"] = [
            {key: value for key, value in call.items() if key not in _OF_CODEX}
            if isinstance(call, dict)
            else call
            for call in calls
        ]
    return logged


def _key(message: Message) -> str:
    """Return what two copies of a message have in common, also after Hermes has stored and read one."""
    content = message.get("content")
    said = content.strip() if isinstance(content, str) else content or ""
    calls = [
        (call.get("id"), (call.get("function") or {}).get("name"))
        for call in message.get("tool_calls") or ()
        if isinstance(call, dict)
    ]
    parts = [message.get("role"), said, calls, message.get("tool_call_id")]
    text = json.dumps(parts, sort_keys=True, default=repr)
    return f"{_PREFIX}{blake2b(text.encode('utf-8', 'surrogatepass'), digest_size=12).hexdigest()}"


def _joined(left: Message, right: Message) -> Message | None:
    """Return two messages of the user as one, as Hermes does before a request; None for others."""
    texts = [message.get("content") for message in (left, right)]
    if not left["role"] == right["role"] == "user" or not all(isinstance(t, str) for t in texts):
        return None
    return {"role": "user", "content": f"{texts[0]}\n\n{texts[1]}"}


def _unmarked(message: Message) -> Message:
    """Return a copy of an agent's message without marks that it is stored: Hermes stores it again."""
    return {key: value for key, value in message.items() if key != "_db_persisted"}
