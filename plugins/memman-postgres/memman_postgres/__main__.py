"""`python -m memman_postgres`: prints the script that makes the tables."""

from __future__ import annotations

import sys
from argparse import ArgumentParser

from memman.errors import InvalidInput
from memman_postgres.tables import migrations, schema


def main() -> int:
    """The command; returns its exit code."""
    parser = ArgumentParser(prog="python -m memman_postgres", description=__doc__)
    parser.add_argument(
        "--partitions",
        type=int,
        nargs="?",
        const=64,
        default=0,
        metavar="NUMBER",
        help="divide records and names by a hash of their session (64)",
    )
    parser.add_argument(
        "--tenants", action="store_true", help="row-level security by the setting memman.tenant"
    )
    parser.add_argument(
        "--from",
        dest="version",
        type=int,
        metavar="VERSION",
        help="only what brings tables of this version to the newest, to be run in one transaction",
    )
    options = parser.parse_args()
    try:
        script = schema(options.partitions, tenants=options.tenants)
    except InvalidInput as error:
        parser.error(str(error))
    sys.stdout.write(script if options.version is None else migrations(options.version))
    return 0


if __name__ == "__main__":
    sys.exit(main())
