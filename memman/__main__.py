"""`python -m memman`: runs the command of memman-cli if it is installed."""

import runpy
import sys
from importlib.util import find_spec

from memman.plugins import how_to_install

if __name__ == "__main__":
    if find_spec("memman_cli") is None:
        sys.stderr.write(
            f"memman-core is the library; for the command {how_to_install('memman-cli')}\n"
        )
        sys.exit(2)  # of a wrong usage, as the command's own
    runpy.run_module("memman_cli", run_name="__main__")
