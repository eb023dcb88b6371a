"""One live session: the only place that awaits.

`live` keeps the window in step with the store, on top of `telling`, which has its events; `adding`,
`compressing`, `changing`, `reading` and `explaining` are what can be done with it. `automatic` compresses
where an add makes it due, `asking` gets its summaries, `pacing` knows when a summarizer may be asked,
`leasing` who pays for it. `living` keeps the sessions of one manager and `importing` takes in others;
`feed` reads the log as it grows.
"""

from memman.sessions.asking import Wanted
from memman.sessions.feed import Feed, Following
from memman.sessions.importing import Importing, OnConflict
from memman.sessions.living import LiveSessions
from memman.sessions.session import Session

__all__ = ["Feed", "Following", "Importing", "LiveSessions", "OnConflict", "Session", "Wanted"]
