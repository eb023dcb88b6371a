"""A live session: everything that can be done with a conversation, in one class."""

from __future__ import annotations

from memman.session.adding import Adding
from memman.session.changing import Changing
from memman.session.explaining import Explaining


class Session(Adding, Changing, Explaining):
    """A conversation in this process."""

    __slots__ = ()
