"""Stores by path or URL."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from memman.display import safe_repr
from memman.entries import is_path
from memman.errors import PluginNotFound, StoreError
from memman.plugins import Plugins, how_to_install
from memman.protocols import Store
from memman.stores.sqlite import SQLiteStore
from memman.stores.sqlite_readonly import SQLiteReader

PLUGINS = {"postgres": "memman-postgres", "postgresql": "memman-postgres"}
_POINTS = {"postgresql": "postgres"}  # schemes whose entry point has another name
_SQLITE = "sqlite:///"
_SECRET = re.compile(r"([?&](?:password|sslpassword)=)[^&]*", re.IGNORECASE)


def _scheme(given: str) -> str:
    """Return a URL's scheme, without the name of a driver in it."""
    return given.partition(":")[0].partition("+")[0].lower()


def is_url(given: str) -> bool:
    """Return whether the text has a scheme; everything else is a path."""
    return "://" in given


def open_store(given: str, plugins: Callable[[], Plugins], *, create: bool = True) -> Store:
    """Open the store of a path or URL: SQLite's, or that of a plugin.

    With `create=False` no new store is created, and a file without write permission is opened read-only.

    Raises `StoreError` if the store cannot be opened, `PluginNotFound` if no plugin knows the scheme.
    """
    if given.startswith("sqlite:"):
        return _sqlite_store(given, create)
    if not is_url(given):
        return _in_file(given, create)
    scheme = _scheme(given)
    point = _POINTS.get(scheme, scheme)  # no other plugin sees the URL and its password
    found: Store | None = plugins().answer(
        "memman_store", point=point, raises=(StoreError,), url=given, create=create
    )
    if found is None:
        raise PluginNotFound(no_store(given))
    return found


def _sqlite_store(given: str, create: bool) -> SQLiteStore:
    """Open the store of `sqlite:///PATH?durability=full&timeout=30`.

    The path follows the three slashes: an absolute one makes four. `driver=apsw` is an option, too.

    Raises `StoreError` for any other option, or if the file cannot be opened.
    """
    if not given.startswith(_SQLITE) or given == _SQLITE:
        raise StoreError(
            f"{without_password(given.partition('?')[0])!r} names no file: write {_SQLITE}PATH"
        )
    from urllib.parse import unquote

    path, _, query = given.removeprefix(_SQLITE).partition("?")
    return _in_file(unquote(path), create, **_options(query))


def _in_file(path: str, create: bool, **options: Any) -> SQLiteStore:
    if not create:
        try:
            size = Path(path).stat().st_size if is_path(path) else 0
        except (FileNotFoundError, NotADirectoryError):
            size = 0
        except OSError as error:
            raise StoreError(f"cannot read {path}: {error.strerror or error}") from None
        if not size:
            raise StoreError(f"there is no database at {path}")
    # SQLite writes to the file, and creates others in its folder.
    writes = create or all(os.access(p, os.W_OK) for p in (path, Path(path).absolute().parent))
    return (SQLiteStore if writes else SQLiteReader)(path, **options)


def _options(query: str) -> dict[str, Any]:
    from urllib.parse import parse_qsl

    options: dict[str, Any] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name in ("durability", "driver"):
            options[name] = value
        elif name == "timeout" and value.replace(".", "", 1).isdigit():
            options[name] = float(value)
        else:
            # The value of another option may be a password.
            wrong = f"timeout={safe_repr(value, 40)}" if name == "timeout" else safe_repr(name, 40)
            raise StoreError(
                f"{wrong} is not an option of a sqlite URL; the options are durability=fast|full, "
                "timeout=SECONDS and driver=sqlite3|apsw"
            )
    return options


def without_password(given: str) -> str:
    """Return a path or URL without its password."""
    if not is_url(given):
        return given
    scheme, _, rest = given.partition("://")
    login, at, host = rest.rpartition("@")
    user, colon, _ = login.partition(":")
    safe = f"{user}:***@{host}" if colon and at else rest
    return _SECRET.sub(r"\1***", f"{scheme}://{safe}")


def no_store(given: str) -> str:
    """Return the error message for a URL that no plugin opens, without its password."""
    scheme = given.partition(":")[0]
    plugin = PLUGINS.get(_scheme(given))
    if plugin is None:
        return f"no installed plugin opens a store of the scheme {scheme!r}; pass a path or a Store"
    return f"a store of the scheme {scheme!r} is opened by a plugin: {how_to_install(plugin)}"
