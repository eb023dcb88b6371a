"""What adapters of frameworks share: the history of a framework as a session, and its model's requests."""

from memman.adapters.history import (
    HistoryMessage,
    HistoryMirror,
    logged_messages,
    message_id,
    named_by_content,
    retract_messages,
    stored_messages,
)
from memman.adapters.requests import MOST_REFUSALS, ModelRequests, kept_by_session

__all__ = [
    "MOST_REFUSALS",
    "HistoryMessage",
    "HistoryMirror",
    "ModelRequests",
    "logged_messages",
    "message_id",
    "named_by_content",
    "kept_by_session",
    "retract_messages",
    "stored_messages",
]
