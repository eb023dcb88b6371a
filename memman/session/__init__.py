"""One live session: the only place that awaits.

`live` keeps the window in step with the store, on top of `telling`, which has its events; `adding`,
`compressing`, `changing`, `reading` and `explaining` are what can be done with it. `automatic` compresses
where an add makes it due, `asking` gets its summaries, `pacing` knows when a summarizer may be asked,
`leasing` who pays for it. `living` keeps the sessions of one manager and `importing` takes in others;
`feed` reads the log as it grows.
"""

from memman.session.asking import Wanted
from memman.session.cache import SessionCache
from memman.session.feed import Feed, Following
from memman.session.importer import Importing, OnConflict
from memman.session.session import Session

__all__ = ["Feed", "Following", "Importing", "SessionCache", "OnConflict", "Session", "Wanted"]
