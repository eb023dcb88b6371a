"""`--redact`: the function that is to hide what others must not see, by its name."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from runpy import run_path
from typing import Any

from memman.cli.problems import UnusableError
from memman.display import format_error


def redactor(name: str) -> Any:
    """The function of `MODULE:FUNCTION`, or of `FILE.py:FUNCTION`. Raises `UnusableError`."""
    where, _, function = name.rpartition(":")
    if not where or not function:
        raise UnusableError(f"--redact {name!r} names no function; write MODULE:FUNCTION")
    try:
        found = _names(where).get(function)
    except Exception as error:
        what = format_error(error)
        raise UnusableError(f"--redact: {where} cannot be loaded: {what}") from error
    if not callable(found):
        raise UnusableError(f"--redact: {where} has no function {function!r}")
    return found


def _names(where: str) -> dict[str, Any]:
    if where.endswith(".py"):
        return run_path(where)
    folder = str(Path.cwd())  # as `python -m` does
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return vars(import_module(where))
