"""The `memman` command. It needs the extra `cli` (click and rich); importing this package does not."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec

from memman.plugins import how_to_install


def main(args: Sequence[str] | None = None) -> None:
    """Run the command on `args` (default: those of the process) and exit with its code."""
    missing = [name for name in ("click", "rich") if not _is_installed(name)]
    if missing:
        sys.stderr.write(
            f"memman: the command needs {' and '.join(missing)}: {how_to_install('memman-core[cli]')}\n"
        )
        raise SystemExit(2)
    from memman.cli.app import run

    run(args)


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ImportError:
        return False
