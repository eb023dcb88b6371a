"""SDK clients of providers: made when first used, with names and endpoints. No SDK is imported here.

The clients of Anthropic and OpenAI share an interface: `with_options(max_retries=0)` returns a client
without retries.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from functools import partial
from importlib import util
from typing import Any

from memman.errors import CounterUnavailable
from memman.plugins import how_to_install
from memman.protocols import ModelRef
from memman.runtime.forks import renew_in_child
from memman.runtime.threads import in_thread

Make = Callable[[], Any]


class Clients:
    """The clients of one endpoint, each made when first needed. Any thread may use it.

    `make` and `make_async` make them, and raise `CounterUnavailable` if a key or a setting is missing.
    `endpoint` is their address, for a counter's fingerprint, and contains no secret.
    """

    def __init__(self, endpoint: str, make: Make | None, make_async: Make | None) -> None:
        self.endpoint = endpoint
        self.only_sync = make_async is None
        self._makers = {"client": make, "async_client": make_async}
        self._renew()
        renew_in_child(self._renew)

    def _renew(self) -> None:
        """Begin without clients: a child must not share its parent's connections."""
        self._lock = threading.Lock()
        self._made: dict[str, Any] = {}

    @classmethod
    def given(cls, client: Any, async_client: Any) -> Clients:
        """Return the application's own clients, either of them or both."""
        one = client if client is not None else async_client
        if one is None:
            raise ValueError("pass `client`, `async_client`, or both")
        places = (getattr(one, each, None) for each in ("region", "project_id"))
        endpoint = "/".join((host_of(str(one.base_url)), *(place for place in places if place)))
        return cls(
            endpoint,
            None if client is None else lambda: client,
            None if async_client is None else lambda: async_client,
        )

    def sync(self) -> Any:
        """Return the sync client, without retries."""
        return self._client("client")

    def asynchronous(self) -> Awaitable[Any]:
        """Return the async client, without retries; made on a thread, since importing an SDK is slow."""
        import asyncio

        made = self._made.get("async_client")
        if made is None:
            return in_thread(partial(self._client, "async_client"))
        known: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        known.set_result(made)
        return known

    def ready(self) -> None:
        """Make a client, without a request; raise `CounterUnavailable` if that fails."""
        self._client("client" if self._makers["client"] else "async_client")

    def _client(self, kind: str) -> Any:
        with self._lock:
            if kind not in self._made:
                make = self._makers[kind]
                if make is None:
                    raise CounterUnavailable(f"it was made without `{kind}`: pass it too")
                self._made[kind] = make().with_options(max_retries=0)
            return self._made[kind]


def host_of(url: str) -> str:
    """Return host, port and path of a URL, without user and query, which could hold a secret."""
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.hostname or ''}{port}{parts.path.rstrip('/')}"


def require(module: str, distribution: str) -> None:
    """Raise `CounterUnavailable` with the install command if a module is missing; import no SDK."""
    try:
        found = util.find_spec(module)
    except ModuleNotFoundError:  # its parent package is missing
        found = None
    if found is None:
        raise CounterUnavailable(f"the module {module} is missing: {how_to_install(distribution)}")


def sent_name(given: str, model: ModelRef | None) -> str:
    """Return a model's name as its provider knows it: as given, without the server.

    An alias becomes the name of its model. On Azure a model's name is that of its deployment.
    """
    bare = given.rpartition("/")[2]
    if model is None or (model.provider or "").startswith("azure"):
        return bare
    # Vertex dates a version with `@`; a normalised name has `-`.
    head, name, tail = bare.lower().replace("@", "-").partition(model.name.replace("@", "-"))
    if not name or (head and head[-1] not in ":."):
        return model.name
    tuned = len("ft:") if head.endswith("ft:") else 0
    sent = bare[len(head) - tuned :]
    # A fine-tune's name may have capitals.
    return sent if tail or sent.lower().startswith("ft:") else sent.lower()
