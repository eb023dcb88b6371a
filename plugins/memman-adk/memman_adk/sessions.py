"""`MemmanSessionService`: a session service whose deletions reach memman."""

from __future__ import annotations

from typing import Any

from google.adk.events import Event
from google.adk.sessions import BaseSessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig, ListSessionsResponse

from memman_adk.plugin import MemmanPlugin


class MemmanSessionService(BaseSessionService):
    """Pass each call on to another session service, and delete a session's conversation with it.

    Args:
        service: the service that keeps sessions and their state.
        plugin: the plugin of the application.
    """

    def __init__(self, service: BaseSessionService, plugin: MemmanPlugin) -> None:
        self._service = service
        self._plugin = plugin

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Create a session."""
        return await self._service.create_session(
            app_name=app_name, user_id=user_id, state=state, session_id=session_id
        )

    async def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        """Return a session, None if there is none."""
        return await self._service.get_session(
            app_name=app_name, user_id=user_id, session_id=session_id, config=config
        )

    async def list_sessions(
        self, *, app_name: str, user_id: str | None = None
    ) -> ListSessionsResponse:
        """Return the sessions of a user, or of all."""
        return await self._service.list_sessions(app_name=app_name, user_id=user_id)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete a session, and the memman sessions of all its agents, for good."""
        config = GetSessionConfig(num_recent_events=0)
        session = await self.get_session(
            app_name=app_name, user_id=user_id, session_id=session_id, config=config
        )
        await self._service.delete_session(
            app_name=app_name, user_id=user_id, session_id=session_id
        )
        if session is not None:
            await self._plugin.delete(session)

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Return the state of a user."""
        return await self._service.get_user_state(app_name=app_name, user_id=user_id)

    async def append_event(self, session: Session, event: Event) -> Event:
        """Append an event to a session."""
        return await self._service.append_event(session, event)

    async def flush(self) -> None:
        """Write what the service has not written yet."""
        await self._service.flush()
