"""The messages of one run of an agent: which of them are logged, and which are sent."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from typing import Any, Final
from uuid import uuid4

from agent_framework import Content, Message

from memman import AsyncMethods, Context, EntryNotFound, SessionNotFound
from memman.adapters import digest_of, message_id, native_of
from memman.entries import JSONObject
from memman_agent_framework.messages import NAME

_PREFIX: Final = "af-"  # of the ids that are made here
_MARK: Final = (
    "_memman"  # a property of loaded messages: the id in the log, "" for a text of memman's
)
_FIELDS: Final = ("role", "contents", "author_name", "message_id", "additional_properties")
_OF_RUN: Final = (_MARK, "_attribution")  # properties that are not logged


class Run:
    """A run of an agent in a session.

    A message has an id by its content and its number among equal ones of the run. So it is logged once,
    whether the tool loop or the framework hands it over, in a stream with other objects.

    Args:
        memory: the methods of a manager, `memory.aio`.
        session_id: the memman session.
        inputs: the messages that the run was called with.
        loaded: the messages of the session that the run got.
    """

    def __init__(
        self,
        memory: AsyncMethods,
        session_id: str,
        inputs: Sequence[Message] = (),
        loaded: Iterable[Message] = (),
    ) -> None:
        self.session_id = session_id
        self._memory = memory
        self._inputs = inputs
        self._loaded = [(_mark(message) or "", message) for message in loaded]
        self._known = {id_ for id_, _ in self._loaded}
        # The length of the first request, and the digests of the assistant's texts that are no answers.
        self._begun: tuple[int, Counter[str]] | None = None
        self._token = uuid4().hex[:12]
        self._logged: set[str] = set()
        self._entries: list[str] = []  # of the logged messages
        # The digests of messages, which are held so that their `id()` stays theirs.
        self._digests: dict[int, tuple[list[Content], Message, str]] = {}
        self._repeated: list[str] | None = None  # digests of first messages that the log had before

    async def log(self, messages: Sequence[Message]) -> list[str]:
        """Log those of the run's messages that are new, and return the ids of all."""
        digests = list(map(self._digest_of, messages))
        if self._repeated is None and messages:
            self._repeated = await self._end_of_log(messages, digests)
            self._logged.update(self._repeated)
        ids = list(self._named(digests, self._repeated or ()))
        pairs = zip(ids, messages, strict=True)
        new = {id_: dumped_message(each) for id_, each in pairs if id_ not in self._logged}
        if new:
            added = await self._memory.add_messages(
                self.session_id, list(new.values()), NAME, ids=list(new), unknown="keep"
            )
            self._logged |= new.keys()
            self._entries += [entry.id for entry in added]
        return ids

    async def retract(self) -> None:
        """Take the run's messages out of the context: it failed, and the framework stores none of them."""
        if self._entries:
            reason = "a model call of the run failed"
            with suppress(EntryNotFound, SessionNotFound):  # they may be deleted by now
                await self._memory.retract(self.session_id, self._entries, reason=reason)
        self._logged, self._entries = set(), []

    async def follow(self, messages: Sequence[Message]) -> list[tuple[str | None, Message]]:
        """Log what is new in a request, and return its messages with their ids in the log.

        None: a message of another context provider or a middleware, for this request alone.
        """
        places = self._places(messages)
        answers = self._answers(messages, places)
        for number, index in enumerate(answers, len(self._inputs)):
            places[index] = number
        ids = await self.log([*self._inputs, *(messages[index] for index in answers)])
        self._known.update(ids[: len(self._inputs)])
        names = [ids[place] if isinstance(place, int) else place for place in places]
        return list(zip(names, messages, strict=True))

    def request(
        self, named: Sequence[tuple[str | None, Message]], context: Context
    ) -> list[Message]:
        """Return the messages to send: the session's context, and those that are not the session's.

        A message of the session that the framework or a middleware has left out stays out: an approval
        that is settled, or an input that was redacted.
        """
        own = {id_: message for id_, message in named if id_}
        absent = self._known - own.keys()
        sent: list[tuple[set[str], Message]] = []
        called: set[str | None] = set()
        for each, source in zip(context.messages, context.sources, strict=True):
            names = set(map(message_id, source.entries))
            if names and names <= absent:
                continue
            native = native_of(source, own)
            message = native or message_of(each)
            if native is None and message.role == "tool":  # the call may have been left out
                message.contents = [each for each in message.contents if each.call_id in called]
            called |= {content.call_id for content in message.contents}
            if native is not None or message.contents:
                sent.append((names, _attributed(message)))
        if any(id_ is None for id_, _ in named):
            _insert(named, sent)
        return [message for _, message in sent]

    async def _end_of_log(self, messages: Sequence[Message], digests: Sequence[str]) -> list[str]:
        """Return the digests of the first messages if they are the end of the log already.

        A caller repeats messages of a run that was cut off, or sends the whole conversation each time. A
        single message without an id of its own is a new one.
        """
        given = self._inputs or messages
        if len(self._inputs) < 2 and not messages[0].message_id:
            return []
        stored: list[str] = []
        with suppress(SessionNotFound):
            found = await self._memory.get_messages(self.session_id, format=NAME, last=len(given))
            stored = [_digest(dumped_message(message_of(each))) for each in found]
        for count in range(len(stored), 0, -1):
            if stored[-count:] == list(digests[:count]):
                single = count == 1 and not messages[0].message_id and messages[0].role == "user"
                return [] if single else stored[-count:]
        return []

    def _places(self, messages: Sequence[Message]) -> list[str | int | None]:
        """Return the id of each loaded message and the number of each input; None for other messages.

        A middleware may have made one again, without its mark. Then its digest tells, and each loaded
        message and each input is found once.
        """
        inputs = {
            id(content): number
            for number, each in enumerate(self._inputs)
            for content in each.contents
        }
        found: list[str | int | None] = []
        for message in messages:
            number = inputs.get(id(message.contents[0])) if message.contents else None
            found.append(_mark(message) if number is None else number)
        known = set(found)
        missing: dict[str, list[str | int]] = {}
        expected: list[tuple[str | int, Message]] = [*self._loaded, *enumerate(self._inputs)]
        for place, message in expected:
            if place not in known:
                missing.setdefault(self._digest_of(message), []).append(place)
        numbers = (index for index, place in enumerate(found) if isinstance(place, int))
        last = max(numbers, default=len(messages))  # loaded messages come before the inputs
        for index in range(last if missing else 0):
            if found[index] is None and not _is_attributed(messages[index]):
                equal = missing.get(self._digest_of(messages[index]))
                found[index] = equal.pop(0) if equal else None
        return found

    def _answers(
        self, messages: Sequence[Message], places: Sequence[str | int | None]
    ) -> list[int]:
        """Return the indexes of what the model and its tools have said in the run.

        A text in the run's first request is none of them: a middleware has added it, or has changed a
        loaded message. It may change the text each time, so the place counts too.
        """
        new = [
            index
            for index, message in enumerate(messages)
            if places[index] is None
            and message.role in ("assistant", "tool")
            and not _is_attributed(message)
        ]
        texts = {
            index: self._digest_of(messages[index])
            for index in new
            if not any(content.call_id for content in messages[index].contents)
        }
        if self._begun is None:
            self._begun = len(messages), Counter(texts.values())
        length, others = self._begun[0], self._begun[1].copy()
        for index, digest in texts.items():
            if index < length or others[digest] > 0:
                others[digest] -= 1
                new.remove(index)
        return new

    def _digest_of(self, message: Message) -> str:
        known = self._digests.get(id(message))
        if known is None or len(known[0]) != len(message.contents):
            known = (list(message.contents), message, _digest(dumped_message(message)))
            self._digests[id(message)] = known
        return known[-1]

    def _named(self, digests: Sequence[str], repeated: Sequence[str]) -> Iterator[str]:
        yield from repeated
        counts = Counter[str]()
        for digest in digests[len(repeated) :]:
            counts[digest] += 1
            number = f"-{counts[digest]}" if counts[digest] > 1 else ""
            yield f"{_PREFIX}{digest}-{self._token}{number}"


def message_of(stored: Mapping[str, Any]) -> Message:
    """Return a message of the log as the framework's."""
    return Message(**{key: stored[key] for key in _FIELDS if key in stored})


def loaded_messages(context: Context) -> list[Message]:
    """Return the messages of a context as ones that `Run.follow` recognises."""
    made = []
    for message, source in zip(context.messages, context.sources, strict=True):
        names = {message_id(entry) for entry in source.entries}
        made.append(message_of(message))
        made[-1].additional_properties[_MARK] = names.pop() if len(names) == 1 else ""
    return made


def fitted_inputs(context: Context, given: Sequence[Message]) -> tuple[int, list[Message]]:
    """Return how many messages of a context precede its pending ones, and these: those given if whole."""
    made_of = {each.entry.id: each.ids for each in context.trimmed if each.entry is not None}
    first, found = len(context.sources), list[Message]()
    for at, (message, source) in enumerate(zip(context.messages, context.sources, strict=True)):
        names = {name for id_ in source.entries for name in made_of.get(id_, (id_,))}
        numbers = {name.split(":")[1] for name in names if name.startswith("pending:")}
        first = min(first, at) if numbers else first
        if at >= first:
            is_whole = source.unaltered and set(map(message_id, names)) == {"pending"}
            own = given[int(*numbers)] if is_whole and len(numbers) == 1 else None
            found.append(own or message_of(message))
    return first, found


def _insert(
    named: Sequence[tuple[str | None, Message]], sent: list[tuple[set[str], Message]]
) -> None:
    """Insert the messages that are not the session's before the next one that is sent, or at the start."""
    at = len(sent)
    for index in range(len(named) - 1, -1, -1):
        id_, message = named[index]
        if id_ is None:
            leads = all(each is None for each, _ in named[:index])
            sent.insert(0 if leads else at, (set(), message))
        elif message.role != "tool":  # nothing comes between calls and their results
            at = next((n for n, (names, _) in enumerate(sent) if id_ in names), at)


def dumped_message(message: Message) -> JSONObject:
    """Return a message as it is logged: without defaults, and without what belongs to one run."""
    properties = {k: v for k, v in message.additional_properties.items() if k not in _OF_RUN}
    more = {
        "author_name": message.author_name,
        "message_id": message.message_id,
        "additional_properties": properties,
    }
    contents = [_dumped(content) for content in message.contents]
    return {
        "role": message.role,
        "contents": contents,
        **{key: value for key, value in more.items() if value},
    }


def _dumped(content: Content) -> JSONObject:
    found = _without_defaults(content.to_dict())
    if isinstance(items := found.get("items"), list):
        found["items"] = [_without_defaults(item) for item in items]
    return found


def _without_defaults(content: JSONObject) -> JSONObject:
    if content.get("additional_properties"):
        return content
    defaults = ("additional_properties", "hosted") if not content.get("hosted") else ()
    return {key: value for key, value in content.items() if key not in defaults}


def _digest(message: JSONObject) -> str:
    """Return a digest of what a message says: it is the same in a stream and in another process."""
    said: list[Any] = [message["role"]]
    if message["role"] == "user":
        said.append(message.get("message_id"))
    contents = message["contents"]
    # Calls and results have ids, by which a message stays the same if a middleware changes its text.
    said += [[each["type"], each["call_id"]] for each in contents if each.get("call_id")] or [
        {**each, "additional_properties": None} for each in contents
    ]
    return digest_of(json.dumps(said, skipkeys=True, default=repr), 10)


def _attributed(message: Message) -> Message:
    """Return a message as one of the history.

    Clients send a message of the history otherwise than a new one, with other ids: if the newest messages
    were sent so only from the next run on, the provider's cache would lose them.
    """
    if "_attribution" in message.additional_properties:
        return message
    made = copy(message)
    made.additional_properties = {
        **message.additional_properties,
        "_attribution": {"source_id": "memman"},
    }
    return made


def _mark(message: Message) -> str | None:
    mark = message.additional_properties.get(_MARK)
    return mark if isinstance(mark, str) else None


def _is_attributed(message: Message) -> bool:
    return _MARK in message.additional_properties or "_attribution" in message.additional_properties
