"""Providers whose conversation is the user's and the model's alone, and begins and ends with the user."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from memman.entries import Entry
from memman.formats.parts import has_unsaid
from memman.formats.turns import NOT_SAID
from memman.protocols import Rendered

BEGINS = "[memman: the conversation begins with the assistant]"
GOES_ON = "[memman: the conversation goes on]"
SYSTEM_NOTE = "[memman: a system message within the conversation]\n"
NOTHING = Rendered((), 0)

Message = dict[str, Any]
Said = Callable[[str], Message]  # a text as a message of the user's


def framed(messages: list[Message], model: str, said: Said) -> list[Message]:
    """The messages with a user's note before what the role `model` begins and after what it ends.

    The newest models refuse a prefilled end; a system prompt alone is refused too.
    """
    if not messages:
        return [said(GOES_ON)]
    if messages[0].get("role") == model:
        messages = [said(BEGINS), *messages]
    if messages[-1].get("role") == model:
        messages = [*messages, said(GOES_ON)]
    return messages


def system_note(entry: Entry, framing: int, said: Said) -> Rendered:
    """A system message within the conversation, as a marked note of the user's."""
    unsaid = has_unsaid(entry.content)
    if not entry.text.strip() and not unsaid:
        return NOTHING
    text = SYSTEM_NOTE + entry.text + (NOT_SAID if unsaid else "")
    extras = (SYSTEM_NOTE, NOT_SAID) if unsaid else (SYSTEM_NOTE,)
    return Rendered((said(text),), framing, extras)
