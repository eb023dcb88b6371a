"""The common part of formats whose adjacent messages of one role stay apart."""

from __future__ import annotations

from memman.entries import JSONObject


class SeparateMessages:
    """Joins no messages; by default none has to be first or last, and system messages are among them."""

    joins = False
    edges: tuple[str, ...] = ()
    inline_system = True

    def join(self, left: JSONObject, right: JSONObject) -> JSONObject | None:
        """Return None: adjacent messages of one role are valid."""
        return None

    def frame(self, messages: list[JSONObject]) -> list[JSONObject]:
        """Return the messages: nothing has to be first or last."""
        return messages
