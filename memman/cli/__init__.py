"""The `memman` command, which needs the extra `cli` (click and rich); importing it does not."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec

from memman.about import how_to_install

_NEEDED = ("click", "rich")


def main(args: Sequence[str] | None = None) -> None:
    """Runs the command on `args` (the process's own by default) and exits with its code."""
    missing = [name for name in _NEEDED if not _installed(name)]
    if missing:
        sys.stderr.write(
            f"memman: the command needs {' and '.join(missing)}: {how_to_install('memman-core[cli]')}\n"
        )
        raise SystemExit(2)
    from memman.cli.app import run

    run(args)


def _installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ImportError:
        return False
