"""Which store a path or URL means."""

from __future__ import annotations

from typing import Any, cast

from memman.errors import StoreError
from memman.stores.drivers import Driver
from memman.stores.sqlite import Durability, SQLiteStore

PLUGINS = {"postgres": "memman-postgres", "postgresql": "memman-postgres"}
_SQLITE = "sqlite:///"


def is_url(given: str) -> bool:
    """Whether it has a scheme; everything else is a path."""
    return "://" in given


def sqlite_store(given: str) -> SQLiteStore | None:
    """The store of a path, or of `sqlite:///PATH?durability=full&timeout=30`; None for another URL.

    After the three slashes comes the path: an absolute one makes four. `driver=apsw` is an option too.

    Raises `StoreError` for a URL with anything else in it, or whose file cannot be opened.
    """
    if not is_url(given):
        return SQLiteStore(given)
    if not given.startswith("sqlite:"):
        return None
    if not given.startswith(_SQLITE) or given == _SQLITE:
        raise StoreError(f"{given!r} names no file: write {_SQLITE}PATH")
    from urllib.parse import unquote

    path, _, query = given.removeprefix(_SQLITE).partition("?")
    return SQLiteStore(unquote(path), **_options(given, query))


def _options(given: str, query: str) -> dict[str, Any]:
    from urllib.parse import parse_qsl

    options: dict[str, Any] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name == "durability":
            options[name] = cast("Durability", value)
        elif name == "driver":
            options[name] = cast("Driver", value)
        elif name == "timeout" and value.replace(".", "", 1).isdigit():
            options[name] = float(value)
        else:
            raise StoreError(
                f"{given!r}: {name}={value} is no option; there are durability=fast|full, "
                "timeout=SECONDS and driver=sqlite3|apsw"
            )
    return options


def no_store(given: str) -> str:
    """What is said where nothing opens a URL; a password in it is not repeated."""
    scheme = given.partition(":")[0]
    plugin = PLUGINS.get(scheme.partition("+")[0])
    if plugin is None:
        return f"no installed plugin opens a store of the scheme {scheme!r}; pass a path or a Store"
    return f"a store of the scheme {scheme!r} is opened by a plugin: pip install {plugin}"
