"""The messages of a Hermes agent as a session of memman."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import chain, islice, takewhile
from typing import Any, Final
from uuid import uuid4

from memman import Context, MemoryManager, SessionNotFound
from memman.adapters import blocking, digest_of, message_id, retract_messages
from memman.records import Compressed, Undone, ids_retracted_by

FORMAT: Final = "openai-chat"
_PREFIX: Final = "hermes-"  # of the ids of messages
_KEY: Final = len(_PREFIX) + 24  # the letters of an id that tell the content
_METADATA: Final = "hermes"  # the key of what this module keeps in a session's metadata
_CONTINUED: Final = "continued_as"
_SHOWN: Final = "shown"
_GONE: Final = "no longer in the agent's messages"  # the reason of this module's retractions
# Keys that no provider gets; neither are those that begin with an underscore.
_OF_CODEX: Final = ("call_id", "response_item_id")  # keys of a call for another API
_OF_HERMES: Final = ("api_content", "finish_reason", "reasoning", "timestamp", "tool_name")

Message = dict[str, Any]


class Conversation:
    """A session that has the messages of an agent, which lists only those of its context.

    A message in the list is one of four: known, as its content is in the session's window; shown, as it
    came from a context of memman's (a summary, a stub); hidden, as it left the window; or new. Hermes gives
    messages no ids, so each gets one of its content and a random part.
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
        known = dict(enumerate(self._ids))
        if not self._keys or keys[: len(self._keys)] != self._keys:
            known = self._recognise(messages, keys)
        new = {n: f"{key}-{uuid4().hex[:12]}" for n, key in enumerate(keys) if n not in known}
        self._add([messages[number] for number in new], list(new.values()))
        self._ids = [known[n] if n in known else [new[n]] for n in range(len(keys))]
        self._keys = keys

    def is_continued_by(self, messages: Sequence[Message]) -> bool:
        """Return whether a list of messages begins with those that were seen last."""
        return [_key(message) for message in messages[: len(self._keys)]] == self._keys

    def is_changed(self) -> bool:
        """Return whether the window has other entries than this conversation gave it."""
        return self._window != self._active()

    def _recognise(self, messages: Sequence[Message], keys: Sequence[str]) -> dict[int, list[str]]:
        """Return the logged messages in each message that is known, and retract those that are gone.

        Gone are messages that the list had before, and those of the window behind the first new message.
        Others may be there again: a compression was undone.
        """
        self._window = self._active()
        own = [id_ for id_ in self._window if id_.startswith(_PREFIX) and id_ == message_id(id_)]
        shown = self._read_shown()
        active = _matches(own, keys)
        found = {number: shown[key] for number, key in enumerate(keys) if key in shown} | active
        # The user may ask again what was deleted, so a question at the end is new.
        asked = len(keys) - bool(messages and messages[-1].get("role") == "user")
        hidden: dict[int, list[str]] = {}
        if not found.keys() >= set(range(asked)):
            log = self._logged_ids()
            whole = _matches(log, keys)
            if whole.keys() >= set(range(asked)) and _names(whole) >= _names(active):
                found = {n: ids for n, ids in whole.items() if n < asked or ids[0] in own}
            else:  # the list is not the whole history
                hidden = self._find_hidden(log, keys[:asked], found)
                found |= hidden
        known = {
            number: found[number] for number in takewhile(found.__contains__, range(len(keys)))
        }
        ids = _names(known)
        before = set(chain.from_iterable(self._ids))
        last = max((number for number, id_ in enumerate(own) if id_ in ids), default=-1)
        self._retract(
            id_
            for number, id_ in enumerate(own)
            if id_ not in ids and (number > last or id_ in before)
        )
        return {**hidden, **known}

    def _find_hidden(
        self, log: Sequence[str], keys: Sequence[str], known: Mapping[int, list[str]]
    ) -> dict[int, list[str]]:
        """Return the logged messages in each message that left the window.

        It was deleted, retracted, cleared or compressed. Not those that Hermes took back: they may return.
        A message that was said elsewhere, before Hermes took the session, has no logged message here.
        """
        place = {id_: number for number, id_ in enumerate(log)}
        anchors = _names(known)
        found: dict[int, list[str]] = {}
        begin = 0
        for number, key in enumerate(keys):
            ids = known.get(number)
            if ids is None:  # only what the log has between the known neighbours
                gap = takewhile(lambda id_: id_ not in anchors, islice(log, begin, None))
                ids = list(islice((id_ for id_ in gap if id_.startswith(key)), 1))
                if ids:
                    found[number] = ids
            begin = max([begin, *(place[id_] + 1 for id_ in ids if id_ in place)])
        said = self.memory.get_messages(self.session_id, format=FORMAT) if self._window else ()
        texts = (_key(message) for message in said if message["role"] != "system")
        for number, (key, text) in enumerate(zip(keys, texts, strict=False)):
            if key != text:
                break
            if number not in known:
                found.setdefault(number, [])
        return found

    def _add(self, messages: Sequence[Message], ids: Sequence[str]) -> None:
        if not messages:
            return
        entries = self.memory.add_messages(
            self.session_id,
            [_logged(message) for message in messages],
            FORMAT,
            ids=ids,
            compress=False,  # Hermes asks for a compaction
            unknown="keep",
        )
        self._window += [entry.id for entry in entries]

    def _retract(self, ids: Iterable[str]) -> None:
        if gone := list(ids):
            methods, run = blocking(self.memory)
            run(retract_messages(methods, self.session_id, gone, _GONE))
            self._window = self._active()

    def _logged_ids(self) -> list[str]:
        """Return the ids of the messages that the log ever had, except for those that Hermes took back."""
        found: dict[str, None] = {}
        gone: set[str] = set()
        try:
            log = self.memory.export_session(self.session_id).log
        except SessionNotFound:
            return []
        for record in log:
            if record.id.startswith(_PREFIX):  # an entry
                found[message_id(record.id)] = None
            elif isinstance(record, Compressed) and record.reason.endswith(_GONE):
                gone.update(map(message_id, ids_retracted_by(record)))
            elif isinstance(record, Undone):
                gone.difference_update(map(message_id, record.restored))
        return [id_ for id_ in found if id_ not in gone]

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


def _matches(ids: Sequence[str], keys: Sequence[str]) -> dict[int, list[str]]:
    """Return the id of each message that has the content of one of these, in their order."""
    matcher = SequenceMatcher(None, [id_[:_KEY] for id_ in ids], list(keys), autojunk=False)
    blocks = matcher.get_matching_blocks()
    return {b + n: [ids[a + n]] for a, b, size in blocks for n in range(size)}


def _names(found: Mapping[int, list[str]]) -> set[str]:
    return set(chain.from_iterable(found.values()))


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
    return f"{_PREFIX}{digest_of(text)}"


def _joined(left: Message, right: Message) -> Message | None:
    """Return two messages of the user as one, as Hermes does before a request; None for others."""
    texts = [message.get("content") for message in (left, right)]
    if not left["role"] == right["role"] == "user" or not all(isinstance(t, str) for t in texts):
        return None
    return {"role": "user", "content": f"{texts[0]}\n\n{texts[1]}"}


def _unmarked(message: Message) -> Message:
    """Return a copy of an agent's message without marks that it is stored: Hermes stores it again."""
    return {key: value for key, value in message.items() if key != "_db_persisted"}
