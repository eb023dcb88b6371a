"""The history of a framework as a session, and the requests of its agents, for adapters of frameworks."""

from memman.adapters.history import (
    HistoryMessage,
    HistoryMirror,
    digest_of,
    logged_messages,
    message_id,
    named_by_content,
    native_of,
    retract_messages,
    stored_messages,
)
from memman.adapters.requests import ModelRequests, Run, blocking, kept_by_session, methods_of
from memman.adapters.streams import streamed

__all__ = [
    "HistoryMessage",
    "HistoryMirror",
    "ModelRequests",
    "Run",
    "blocking",
    "digest_of",
    "kept_by_session",
    "logged_messages",
    "message_id",
    "methods_of",
    "named_by_content",
    "native_of",
    "retract_messages",
    "stored_messages",
    "streamed",
]
