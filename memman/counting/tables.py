"""The tables of figures that lie beside the code, as JSON; each is read when it is first asked for."""

from __future__ import annotations

import os
from typing import Final

# No pathlib: with what it imports it would be a tenth of what `import memman` may cost.
FOLDER: Final = os.path.dirname(__file__)  # noqa: PTH120


def table(name: str) -> bytes:
    """The bytes of a table by its file's name."""
    with open(os.path.join(FOLDER, name), "rb") as kept:  # noqa: PTH118, PTH123
        return kept.read()
