"""One live session: the only place that awaits.

`live` keeps the window in step with the store; `adding`, `compressing`, `changing`, `reading` and
`explaining` are what can be done with it; `living` keeps those of one manager.
"""

from memman.sessions.live import no_session
from memman.sessions.living import LiveSessions
from memman.sessions.session import Session

__all__ = ["LiveSessions", "Session", "no_session"]
