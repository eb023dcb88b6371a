"""`memman postgres`: what the owner of a database runs. `python -m memman_postgres` is its `schema`."""

from __future__ import annotations

import click

from memman.errors import InvalidInput


@click.group()
def postgres() -> None:
    """Sessions in PostgreSQL: what the owner of the database runs."""


@postgres.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--partitions",
    type=int,
    is_flag=False,
    flag_value=64,
    default=0,
    metavar="[NUMBER]",
    help="Divide records and names by a hash of their session; into 64 if no number is given.",
)
@click.option("--tenants", is_flag=True, help="Row-level security by the setting memman.tenant.")
def schema(partitions: int, tenants: bool) -> None:
    """Prints the script that makes the tables: `memman postgres schema | psql URL`."""
    from memman_postgres import tables  # the driver, which no other command needs

    try:
        script = tables.schema(partitions, tenants=tenants)
    except InvalidInput as error:
        raise click.UsageError(str(error)) from None
    click.echo(script, nl=False)
