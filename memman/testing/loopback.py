"""A scripted provider on the loopback interface."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import unquote, urlsplit

import msgspec

_FAILURE = {"type": "error", "error": {"type": "error", "code": None, "message": "no answer"}}


class Answer(msgspec.Struct, frozen=True):
    """An answer of the server: `body` is JSON, or bytes that are sent unchanged.

    `delay` is in seconds. With `never` the request is accepted and not answered.
    """

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = {}
    delay: float = 0.0
    never: bool = False


class Received(msgspec.Struct, frozen=True):
    """A received request: unquoted path, header names in lower case, parsed body."""

    path: str
    headers: Mapping[str, str]
    body: Any


class LoopbackServer(ThreadingHTTPServer):
    """Answers requests to paths that end with `path`; `received` has them in order.

    `answers` are given in order, the last one repeatedly. A request to another path gets a 404 and is in
    `astray`.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, path: str, answers: Sequence[Answer]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.path = path
        self.received: list[Received] = []
        self.astray: list[str] = []
        self.closing = threading.Event()
        self._answers = list(answers)
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """The server's URL, without a slash at the end."""
        return f"http://127.0.0.1:{self.server_port}"

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Answer requests for the length of the block."""
        with self:
            thread = threading.Thread(target=self.serve_forever, args=(0.002,), daemon=True)
            thread.start()
            try:
                yield self
            finally:
                self.closing.set()
                self.shutdown()
                thread.join()

    def answer_with(self, *answers: Answer) -> None:
        """Set the next answers."""
        with self._lock:
            self._answers = list(answers)

    def answer_to(self, request: Received) -> Answer:
        """Return the next answer to a request of the served path."""
        with self._lock:
            if not request.path.endswith(self.path):
                self.astray.append(request.path)
                return Answer(404, {"error": {"message": f"nothing is served at {request.path}"}})
            self.received.append(request)
            return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet: two would wait for a delayed acknowledgement
    server: LoopbackServer

    def do_POST(self) -> None:
        size = int(self.headers.get("content-length") or 0)
        raw = self.rfile.read(size)
        path = unquote(urlsplit(self.path).path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        answer = self.server.answer_to(Received(path, headers, json.loads(raw or b"null")))
        if answer.never:
            self.server.closing.wait()
            self.close_connection = True
            return
        if answer.delay:
            self.server.closing.wait(answer.delay)
        with suppress(ConnectionError):  # the client has gone
            self._send(answer)

    def _send(self, answer: Answer) -> None:
        body = answer.body
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(answer.status)
        for name, value in {"content-type": "application/json", **answer.headers}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)
        self.wfile.flush()

    def log_message(self, *_: Any) -> None:
        """Log nothing: a failing test shows the requests."""


class ProviderLaws:
    """What the kits of counters and of summarizers around a provider's SDK share."""

    path: str = ""
    module: str = ""
    secret: str = "key-of-the-test"  # noqa: S105 - not a real secret
    reads_retry_after: bool = True

    def failure(self, status: int, headers: Mapping[str, str] | None = None) -> Answer:
        """Return the provider's failure."""
        return Answer(status, _FAILURE, headers or {})


def delayed(answer: Answer, seconds: float) -> Answer:
    """Return an answer that comes so many seconds later."""
    return msgspec.structs.replace(answer, delay=seconds)


def leaves(value: Any, keys: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every text, number, bool and null in a JSON value, each after the keys that lead to it."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from leaves(each, (*keys, key))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from leaves(each, keys)
    else:
        yield keys, value


def values_of(value: Any, kind: type) -> list[Any]:
    """Return the values of exactly this type in a JSON value."""
    return [leaf for _, leaf in leaves(value) if type(leaf) is kind]


def loopback(path: str, *answers: Answer) -> AbstractContextManager[LoopbackServer]:
    """Run a server for the length of the block."""
    return LoopbackServer(path, answers).running()
