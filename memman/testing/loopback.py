"""A provider's server on the loopback interface that answers as it is told to, or never."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Answer(msgspec.Struct, frozen=True):
    """What the server answers a request with: `body` is JSON, or bytes that are sent as they are.

    `delay` is in seconds; with `never` the request is accepted and no answer comes.
    """

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = _NO_HEADERS
    delay: float = 0.0
    never: bool = False


class Received(msgspec.Struct, frozen=True):
    """A request as it came: the path unquoted, header names in lower case, the body parsed."""

    path: str
    headers: Mapping[str, str]
    body: Any


class LoopbackServer(ThreadingHTTPServer):
    """Answers each request to a path that ends with `path`; `received` has those, in order.

    `answers` are given one after the other, the last one for ever. A request to another path gets a 404
    and is in `astray`.
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
        """Where it listens, without a slash at the end."""
        return f"http://127.0.0.1:{self.server_port}"

    def answer_with(self, *answers: Answer) -> None:
        """Answers so from now on."""
        with self._lock:
            self._answers = list(answers)

    def answer_to(self, request: Received) -> Answer:
        """The next answer, for a request to the path that is served."""
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
        with suppress(ConnectionError):  # whoever asked has given up
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
        """Says nothing: the test that fails shows the requests."""


@contextmanager
def loopback(path: str, *answers: Answer) -> Iterator[LoopbackServer]:
    """A server that runs as long as the block does."""
    with LoopbackServer(path, answers) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.closing.set()
            server.shutdown()
            thread.join()
