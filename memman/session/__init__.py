"""Live sessions, their cache, and what reads or writes their logs: imports, exports, forks and the feed."""

from typing import TYPE_CHECKING

from memman.archive.info import OnConflict
from memman.lazy_imports import on_first_use
from memman.session.policy import CompressionRequest
from memman.session.session import Session

if TYPE_CHECKING:
    from memman.session.feed import Feed, Follower, LoopFollower
    from memman.session.forker import fork_session
    from memman.session.importer import Importer
    from memman.session.search import Searcher
else:
    __getattr__ = on_first_use(
        "memman.session",
        {
            "feed": "Feed Follower LoopFollower",
            "forker": "fork_session",
            "importer": "Importer",
            "search": "Searcher",
        },
    )

__all__ = [
    "CompressionRequest",
    "Feed",
    "Follower",
    "Importer",
    "LoopFollower",
    "OnConflict",
    "Searcher",
    "Session",
    "fork_session",
]
