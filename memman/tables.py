"""The tables that lie beside the code; each is read when it is first asked for."""

from __future__ import annotations

import os


def beside(module: str, name: str) -> bytes:
    """The bytes of the file `name` in the folder of a module, given by its `__file__`."""
    # No pathlib: with what it imports it would be a tenth of what `import memman` may cost.
    folder = os.path.dirname(module)  # noqa: PTH120 - see above
    with open(os.path.join(folder, name), "rb") as kept:  # noqa: PTH118, PTH123 - likewise
        return kept.read()
