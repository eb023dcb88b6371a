"""One live session: the only place that awaits.

`live` keeps the window in step with the store; `adding`, `compressing`, `changing`, `reading` and
`explaining` are what can be done with it.
"""

from memman.sessions.adding import Adding
from memman.sessions.changing import Changing
from memman.sessions.explaining import Explaining
from memman.sessions.live import no_session

__all__ = ["Session", "no_session"]


class Session(Adding, Changing, Explaining):
    """A conversation in this process."""

    __slots__ = ()
