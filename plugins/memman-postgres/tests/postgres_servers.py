"""A schema for each test, a wire that can be cut, and a server and a pooler of one's own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.patience import PATIENCE

HOST, PORT = "127.0.0.1", 5432


def server_url(port: int = PORT, schema: str = "") -> str:
    """The test database, as seen through a port."""
    options = f"?options=-csearch_path%3D{schema}" if schema else ""
    return f"postgresql://postgres@{HOST}:{port}/test{options}"


def run_sql(sql: str, url: str = "") -> None:
    """Statements in the test database, or in that of a URL, without parameters."""
    with psycopg.connect(url or server_url(), autocommit=True) as connection:
        connection.execute(sql.encode())


def asked(sql: str, url: str = "") -> Any:
    """The one value that a query of the test database, or of that of a URL, answers with."""
    with psycopg.connect(url or server_url(), autocommit=True) as connection:
        [value] = connection.execute(sql.encode()).fetchone() or [None]
        return value


def new_schema() -> str:
    """An empty schema."""
    name = f"memman_{uuid.uuid4().hex}"
    run_sql(f'CREATE SCHEMA "{name}"')
    return name


def drop(schema: str) -> None:
    """Removes a schema with all that is in it."""
    run_sql(f'DROP SCHEMA "{schema}" CASCADE')


def free_port() -> int:
    """Return a free port."""
    with socket.create_server((HOST, 0)) as probe:
        return int(probe.getsockname()[1])


def program(name: str) -> str:
    """A program of the machine or of its newest PostgreSQL; a test that needs a missing one skips."""
    newest = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    found = shutil.which(name) or shutil.which(f"/usr/sbin/{name}") or (newest and str(newest[-1]))
    if found:
        return str(found)
    reason = f"the program {name} is not here"
    if "service" in os.environ.get("MEMMAN_REQUIRE", ""):
        pytest.fail(f"service is required here: {reason}")
    pytest.skip(reason)


# Neither the server nor the pooler runs as root.
_AS: dict[str, Any] = {"user": "postgres"} if os.geteuid() == 0 else {}


def _folder() -> Path:
    """A folder for a server; pytest's own are closed to other users."""
    folder = Path(tempfile.mkdtemp(prefix="memman-pg-"))
    if _AS:
        shutil.chown(folder, "postgres", "postgres")
    return folder


class Server:
    """A PostgreSQL of the test's own, which may be stopped, broken and started again."""

    def __init__(self) -> None:
        self._tool = program("pg_ctl")
        self._folder = _folder()
        self.port = free_port()
        self._data = str(self._folder / "data")
        self._run(program("initdb"), "-D", self._data, "-U", "postgres", "-A", "trust", "--no-sync")
        hba = Path(self._data, "pg_hba.conf")
        hba.write_text(f"host all ada {HOST}/32 scram-sha-256\n{hba.read_text()}")
        self.start()

    def url(self, user: str = "postgres", database: str = "postgres", port: int = 0) -> str:
        """A database of this server, or as seen through another port."""
        return f"postgresql://{user}@{HOST}:{port or self.port}/{database}"

    def start(self) -> None:
        """Starts it and waits until it answers."""
        options = f"-p {self.port} -c unix_socket_directories={self._folder} -c fsync=off"
        self._run(
            self._tool, "start", "-w", "-D", self._data, "-o", options, "-l", f"{self._data}.log"
        )

    def stop(self, mode: str = "fast") -> None:
        """Stop the server: "fast" rolls back and closes connections, "immediate" is a crash."""
        self._run(self._tool, "stop", "-w", "-D", self._data, "-m", mode)

    def sql(self, statements: str, user: str = "postgres") -> None:
        """Statements as one of its users."""
        run_sql(statements, self.url(user))

    def close(self) -> None:
        """Ends it and removes its files."""
        with suppress(subprocess.CalledProcessError):
            self.stop("immediate")
        shutil.rmtree(self._folder)

    def _run(self, *command: str) -> None:
        # To a file, not to a pipe, because the server keeps inherited pipes open.
        with Path(f"{self._folder}.out").open("w") as told:
            subprocess.run(command, check=True, stdout=told, stderr=told, cwd="/", **_AS)
        Path(f"{self._folder}.out").unlink()


class Pooler:
    """A pgbouncer that hands out connections by transaction; each schema is a database of it."""

    def __init__(self) -> None:
        self._program = program("pgbouncer")
        self._folder = _folder()
        self.port = free_port()
        self._settings = self._folder / "pgbouncer.ini"
        self._write([])
        self._process = subprocess.Popen(
            [self._program, "-q", str(self._settings)],
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd="/",
            **_AS,
        )
        self._wait()

    def url(self, schema: str) -> str:
        """The way through the pooler to a schema of the test database."""
        return f"postgresql://postgres@{HOST}:{self.port}/{schema}"

    def serve(self, schemas: list[str]) -> None:
        """Lets through to these schemas."""
        self._write(schemas)
        run_sql("RELOAD", f"postgresql://postgres@{HOST}:{self.port}/pgbouncer")

    def close(self) -> None:
        """Ends it and removes its files."""
        self._process.terminate()
        self._process.wait()
        shutil.rmtree(self._folder)

    def _write(self, schemas: list[str]) -> None:
        # Fewer connections to the server than a test has to the pooler: they change hands all the time.
        ways = [
            f"{name} = host={HOST} port={PORT} dbname=test user=postgres pool_size=3"
            f" connect_query='SET search_path TO {name}'"
            for name in schemas
        ]
        lines = [
            "[databases]", *ways, "[pgbouncer]", f"listen_addr = {HOST}", f"listen_port = {self.port}",
            "pool_mode = transaction", "auth_type = any", "unix_socket_dir =",
            "admin_users = postgres", "max_client_conn = 200",
        ]  # fmt: skip
        self._settings.write_text("\n".join(lines) + "\n")
        self._settings.chmod(0o644)

    def _wait(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            with suppress(OSError):
                socket.create_connection((HOST, self.port), timeout=1).close()
                return
            time.sleep(0.02)
        pytest.fail("pgbouncer does not answer")


class Wire:
    """A port that leads to the server; a statement may get through on it, and its answer not."""

    def __init__(self, port: int = PORT) -> None:
        self._listener = socket.create_server((HOST, 0))
        self._server_port = port
        self.port = self._listener.getsockname()[1]
        self._word: bytes | None = None
        self._left: int | None = None
        self._ends: list[socket.socket] = [self._listener]
        self._clients: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.cuts = 0
        self._silent = False
        self._open = True
        self._start(self._accept)

    def cut_after(self, word: str) -> None:
        """The next statement that holds `word` reaches the server, and then the connection is gone."""
        self._word = word.encode()

    def cut_after_statements(self, count: int) -> None:
        """So many statements from now reach the server; the answer to the last one is lost."""
        self._left = count

    def fall_silent(self) -> None:
        """Pass requests to the server, and hold back its answers; no connection is cut."""
        self._silent = True

    def mend(self) -> None:
        """Stop cutting, and pass answers to new connections."""
        self._word = self._left = None
        self._silent = False

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
            server = socket.create_connection((HOST, self._server_port))
            self._ends += [client, server]
            self._clients.append(client)
            doomed = threading.Event()
            self._pump(client, server, lambda data, d=doomed: self._asked(data, d))
            self._pump(server, client, lambda _data, d=doomed: not d.is_set())

    def _asked(self, data: bytes, doomed: threading.Event) -> bool:
        # A message other than a start-up packet begins with its kind: a query, or a statement to parse.
        if self._left is not None and data[:1] in (b"Q", b"P"):
            self._left -= 1
        if self._left == 0 or (self._word is not None and self._word in data):
            self.mend()
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
                    if not (self._silent and sink in self._clients):
                        sink.sendall(data)
            for end in (source, sink):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

        self._start(run)
