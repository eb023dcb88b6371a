"""The history of a framework as a session, and the requests of its agents, for adapters of frameworks."""

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
    "kept_by_session",
    "logged_messages",
    "message_id",
    "named_by_content",
    "retract_messages",
    "stored_messages",
]
