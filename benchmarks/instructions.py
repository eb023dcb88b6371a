"""COMPINT's 15 instructions of a user (package `conpact`) in recorded sessions: each stays word for word.

"Lost in Compaction" (https://arxiv.org/abs/2608.11242). Each instruction is given at the first and at the
middle message of the user, as a message of its own and at the end of that message, in three recorded coding
sessions of 40,000 tokens, with a window of 6,000.
"""

from __future__ import annotations

import runpy
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path

import msgspec

from benchmarks.needed import text_of
from benchmarks.surroundings import kept
from benchmarks.trajectories import Message, Trajectory

WINDOW = 6_000
PLACES = ("first", "first, appended", "middle", "middle, appended")
SESSIONS = 3
_PACKAGE = "conpact"
_TOKENS = 40_000
_LEAST_OF_USER = 4  # messages


class Session(msgspec.Struct, frozen=True):
    """The beginning of a recorded session."""

    id: str
    messages: tuple[Message, ...]


def instructions() -> list[str]:
    """Return the instructions. Raises `ImportError` if the package is not installed.

    Importing the package would need `datasets`, which only downloads its conversations.
    """
    spec = find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"No module named '{_PACKAGE}'", name=_PACKAGE)
    path = Path(spec.submodule_search_locations[0]) / "constraints.py"
    return [each["sc"] for each in runpy.run_path(str(path))["SCS"]]


def sessions(recorded: Iterable[Trajectory]) -> list[Session]:
    """Return the beginnings of the first long coding sessions."""
    found: list[Session] = []
    for one in recorded:
        if len(found) == SESSIONS:
            break
        if one.id.startswith("tau-"):
            continue
        used, messages = 0, list[Message]()
        for message in one.messages:
            messages.append(message)
            used += (len(text_of(message)) + 3) // 4
            if used > _TOKENS:
                break
        if used > _TOKENS and len(_of_user(messages)) >= _LEAST_OF_USER:
            found.append(Session(one.id, tuple(messages)))
    return found


def _of_user(messages: Sequence[Message]) -> list[int]:
    return [
        at
        for at, message in enumerate(messages)
        if message["role"] == "user" and isinstance(message["content"], str)
    ]


def with_instruction(session: Session, place: str, instruction: str) -> list[Message]:
    """Return the messages of a session with an instruction at one of `PLACES`."""
    messages = list(session.messages)
    places = _of_user(messages)
    first = place.startswith("first")
    at = places[0 if first else len(places) // 2]
    if place.endswith("appended"):
        text = f"{messages[at]['content']}\n\n{instruction}"
        messages[at] = {**messages[at], "content": text}
    else:
        # Behind the first request, before the middle one.
        messages.insert(at + first, {"role": "user", "content": instruction})
    return messages


def is_kept(session: Session, place: str, instruction: str) -> bool:
    """Return whether the last context has the instruction word for word."""
    return instruction in kept(with_instruction(session, place, instruction), WINDOW)
