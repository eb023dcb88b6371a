"""Live sessions, their cache, and what reads or writes their logs: imports, exports and the feed."""

from memman.session.cache import SessionCache
from memman.session.feed import Feed, Following
from memman.session.importer import Importing, OnConflict
from memman.session.policy import CompressionRequest
from memman.session.session import Session

__all__ = [
    "CompressionRequest",
    "Feed",
    "Following",
    "Importing",
    "OnConflict",
    "Session",
    "SessionCache",
]
