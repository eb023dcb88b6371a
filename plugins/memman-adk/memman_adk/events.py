"""The events of an ADK session, as one agent sees them, as a session of memman."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from google.adk.events import Event
from google.adk.sessions import Session
from google.genai import types

from memman import AsyncMethods, Entry, IdConflict, InvalidInput, SessionNotFound, valid_id
from memman.adapters import digest_of, logged_messages, retract_messages
from memman_adk.contents import (
    FORMAT,
    Transients,
    as_read_by,
    has_call,
    is_shown,
    message_of,
    payloads,
    relayed,
)

_PREFIX: Final = "adk-"  # of the ids that are made here
_TASK: Final = "adk-task"  # the entry of what a task is
# Calls between ADK and the application, which no model sees.
_OF_ADK: Final = {"adk_framework", "adk_request_credential", "adk_request_confirmation"}
_CHANGED: Final = "changed by a plugin"
_REWOUND: Final = "rewound in ADK"
_BATCH: Final = 16  # events that are looked for at once, and more if none is found
_REWORDED: Final = "For context:"  # begins what ADK makes of another agent's event


@dataclass(frozen=True)
class View:
    """What an agent sees of an ADK session."""

    agent: str
    branch: str | None
    scope: str | None

    def sees(self, event: Event) -> bool:
        """Return whether requests of the agent have the content of an event."""
        content = event.content
        if not content or not content.role or not any(map(is_shown, content.parts or ())):
            return False
        if event.isolation_scope != self.scope:
            return False
        if self.branch and event.branch and not f"{self.branch}.".startswith(f"{event.branch}."):
            return False
        responses = event.get_function_responses()
        if event.author == "user" and event.node_info.path and not responses:
            return False  # the input of a node in a workflow
        names = {call.name for call in event.get_function_calls()}
        return _OF_ADK.isdisjoint(names.union(each.name for each in responses))


class AgentLog:
    """The session of one agent: new events are added, rewound ones retracted.

    Nothing else leaves the session. ADK may load its own without the oldest events, or begin it anew where
    another process or framework has had the conversation.
    """

    def __init__(
        self, memory: AsyncMethods, session_id: str, session: Session, agent: Any, view: View
    ) -> None:
        self.session_id = session_id
        self._memory = memory
        self._user_id = session.user_id
        self._origin = {"user_id": session.user_id, "session_id": session.id}
        self._agent = agent
        self._view = view
        self._synced: tuple[int, str] | None = None  # the number of events, and the last one's id
        self._known: set[str] = set()  # the ids of events
        self._rewound: set[str] = set()
        self._callers: dict[str, str] = {}  # the authors of calls
        self._payloads: set[int] = set()  # hashes of texts and data in events
        self._early: tuple[str, Any] | None = None  # an event that was logged before ADK stored it

    async def sync(self, events: Sequence[Event]) -> None:
        """Make the session equal to the events of an ADK session."""
        if self._synced is None:
            await self._read(events)
        start = self._count_synced(events)
        for event in events[start:]:
            self._note(event)
        await self._check_early(events[start:])
        fresh = [event for event in events[start:] if event.id not in self._known]
        if any(event.actions.rewind_before_invocation_id for event in fresh):
            fresh = await self._rewind(events)
        for event in fresh:
            await self._add(event)
        self._synced = (len(events), events[-1].id if events else "")

    async def add_early(self, event: Event) -> None:
        """Add an event that ADK is about to store."""
        if event.id not in self._known:
            self._note(event)
            await self._add(event)
            self._early = (event.id, event.content and message_of(event.content))

    async def begin_task(self, contents: Sequence[types.Content]) -> None:
        """Log what an agent in the mode `task` is to do: the first content, which is of no event."""
        if self._view.scope and contents and not self._has(contents[0]):
            self._recognise(contents[0])
            await self._memory.add_messages(
                self.session_id,
                [message_of(contents[0])],
                FORMAT,
                ids=[_TASK],
                metadata={"adk": self._origin},
                unknown="keep",
            )

    def transients(self, contents: Sequence[types.Content]) -> Transients:
        """Return the contents of a request that come from no event: those of instructions and tools."""
        found: list[tuple[int, types.Content]] = []
        behind = 0
        for content in reversed(contents):
            if self._has(content):
                behind += 1
            else:
                found.append((behind, content))
        return found[::-1]

    # ------------------------------------------------------------ parts

    def _count_synced(self, events: Sequence[Event]) -> int:
        """Return how many of the events the last call of `sync` had."""
        count, newest = self._synced or (0, "")
        return count if 0 < count <= len(events) and events[count - 1].id == newest else 0

    def _note(self, event: Event) -> None:
        """Keep what recognises an event's content in requests."""
        compaction = event.actions.compaction
        for content in (event.content, compaction.compacted_content if compaction else None):
            if content:
                self._recognise(content)
                self._recognise(as_read_by(self._agent, content))
        self._callers |= {call.id: event.author for call in event.get_function_calls() if call.id}

    def _recognise(self, content: types.Content) -> None:
        self._payloads.update(map(hash, payloads(content)))

    def _sees(self, event: Event) -> bool:
        own, branch = f"{self._view.branch}." if self._view.branch else "", event.branch or ""
        inner = branch.removeprefix(own).split(".") if branch.startswith(own) else ()
        # What a tool says on the way to its result is for the user alone.
        is_of_tool = any(name.rpartition("@")[2] in self._callers for name in inner)
        return self._view.sees(event) and not is_of_tool

    def _has(self, content: types.Content) -> bool:
        found = list(payloads(content))
        if not found or has_call(content):
            return True
        is_reworded = isinstance(found[0], str) and found[0].startswith(_REWORDED)
        return is_reworded or any(hash(each) in self._payloads for each in found)

    async def _read(self, events: Sequence[Event]) -> None:
        """Find the newest of the events that the log has: it has had all before that one."""
        await self._check_user()
        end, size = len(events), _BATCH
        while end > 0:
            start = max(0, end - size)
            batch = {entry_id(event): n for n, event in enumerate(events[start:end], start)}
            found = await logged_messages(self._memory, self.session_id, batch)
            known = [batch[id_] for id_, reason in found.items() if reason != _CHANGED]
            if known:
                old = events[: max(known) + 1]
                self._known = {event.id for event in old}
                self._rewound = self._known - _live(old)
                return
            end, size = start, 4 * size

    async def _check_user(self) -> None:
        """Raise `InvalidInput` if the session is another user's."""
        own: list[Entry] = []
        with suppress(SessionNotFound):
            for last in (1, None):  # the newest one is ADK's, in most sessions
                entries = await self._memory.get_entries(self.session_id, last=last)
                own = [each for each in entries if each.id.startswith(_PREFIX)]
                if own:
                    break
        if own and (user := own[-1].metadata.get("adk", {}).get("user_id")) != self._user_id:
            raise InvalidInput(
                f"session {self.session_id!r} is of the user {user!r}, not of {self._user_id!r}: "
                "pass a session_id= that has the user in it"
            )

    async def _check_early(self, events: Sequence[Event]) -> None:
        """Replace an early event if a plugin has changed it before ADK stored it."""
        if self._early is None:
            return
        early, message = self._early
        for event in events:
            if event.id == early:
                self._early = None
                if (event.content and message_of(event.content)) != message:
                    gone = [entry_id(event)]
                    await retract_messages(self._memory, self.session_id, gone, _CHANGED)
                    self._known.discard(early)

    async def _rewind(self, events: Sequence[Event]) -> list[Event]:
        """Retract what ADK has rewound, and return the events to add."""
        live = _live(events)
        gone = {event.id for event in events} - live
        new = (entry_id(event) for event in events if event.id in gone - self._rewound)
        await retract_messages(self._memory, self.session_id, new, _REWOUND)
        self._known = self._known - (self._rewound & live) | gone
        self._rewound = gone
        return [event for event in events if event.id not in self._known]

    async def _add(self, event: Event) -> None:
        content = event.content
        if content and self._sees(event):
            # A process with another release may have logged it in other words.
            with suppress(IdConflict):
                await self._log(event, content)
        self._known.add(event.id)

    async def _log(self, event: Event, content: types.Content) -> None:
        about = {
            "author": event.author,
            "branch": event.branch,
            "invocation_id": event.invocation_id,
            "timestamp": event.timestamp,
        }
        known = {key: value for key, value in about.items() if value}
        metadata = {"adk": {**known, **self._origin}}
        callers = [self._callers.get(each.id or "") for each in event.get_function_responses()]
        if {event.author, *callers} <= {"user", self._view.agent, None}:
            await self._memory.add_messages(
                self.session_id,
                [message_of(as_read_by(self._agent, content))],
                FORMAT,
                ids=[entry_id(event)],
                metadata=metadata,
                unknown="keep",
            )
        elif text := relayed(event.author, content):  # not the user's words, and untrusted
            await self._memory.add_context(
                self.session_id, text, event.author, id=entry_id(event), metadata=metadata
            )


def entry_id(event: Event) -> str:
    """Return the id of the first entry of an event; what follows a colon would number its entries."""
    id_ = event.id
    if ":" in id_:
        id_ = digest_of(id_, 16)
    return valid_id(id_, prefix=_PREFIX)


def _live(events: Sequence[Event]) -> set[str]:
    """Return the ids of the events that no rewind has removed."""
    kept: set[str] = set()
    index = len(events) - 1
    while index >= 0:
        target = events[index].actions.rewind_before_invocation_id
        if target is None:
            kept.add(events[index].id)
        else:
            before = (n for n, event in enumerate(events[:index]) if event.invocation_id == target)
            index = next(before, 0)  # or it is older than these events
        index -= 1
    return kept
