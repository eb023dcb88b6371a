"""A schema of PostgreSQL for each test, and a wire to it that can be cut."""

from __future__ import annotations

import socket
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress

import psycopg

HOST, PORT = "127.0.0.1", 5432


def server_url(port: int = PORT, schema: str = "") -> str:
    """The test database, as seen through a port."""
    options = f"?options=-csearch_path%3D{schema}" if schema else ""
    return f"postgresql://postgres@{HOST}:{port}/test{options}"


def new_schema() -> str:
    """An empty schema."""
    name = f"memman_{uuid.uuid4().hex}"
    with psycopg.connect(server_url(), autocommit=True) as connection:
        connection.execute(f'CREATE SCHEMA "{name}"'.encode())
    return name


def drop(schema: str) -> None:
    """Removes a schema with all that is in it."""
    with psycopg.connect(server_url(), autocommit=True) as connection:
        connection.execute(f'DROP SCHEMA "{schema}" CASCADE'.encode())


class Wire:
    """A port that leads to the server; `cut_after(word)` lets a statement through and its answer not."""

    def __init__(self) -> None:
        self._listener = socket.create_server((HOST, 0))
        self.port = self._listener.getsockname()[1]
        self._word: bytes | None = None
        self._ends: list[socket.socket] = [self._listener]
        self._threads: list[threading.Thread] = []
        self.cuts = 0
        self._open = True
        self._start(self._accept)

    def cut_after(self, word: str) -> None:
        """The next statement that holds `word` reaches the server, and then the connection is gone."""
        self._word = word.encode()

    def close(self) -> None:
        """Ends every connection and takes no more."""
        self._open = False
        for end in self._ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for end in self._ends:
            end.close()

    def _accept(self) -> None:
        while self._open:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection((HOST, PORT))
            self._ends += [client, server]
            doomed = threading.Event()
            self._pump(client, server, lambda data, d=doomed: self._asked(data, d))
            self._pump(server, client, lambda _data, d=doomed: not d.is_set())

    def _asked(self, data: bytes, doomed: threading.Event) -> bool:
        if self._word is not None and self._word in data:
            self._word = None
            self.cuts += 1
            doomed.set()
        return True

    def _start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _pump(
        self, source: socket.socket, sink: socket.socket, passes: Callable[[bytes], bool]
    ) -> None:
        def run() -> None:
            with suppress(OSError):
                while (data := source.recv(65_536)) and passes(data):
                    sink.sendall(data)
            for end in (source, sink):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

        self._start(run)
