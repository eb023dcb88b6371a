"""`memman postgres`: commands for the owner of a database. `python -m memman_postgres` is `schema`."""

from __future__ import annotations

import click

from memman.errors import InvalidInput


@click.group()
def postgres() -> None:
    """Sessions in PostgreSQL: commands for the owner of the database."""


@postgres.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--partitions",
    type=int,
    is_flag=False,
    flag_value=64,
    default=0,
    metavar="[NUMBER]",
    help="Divide records and mentions by a hash of their session; into 64 if no number is given.",
)
@click.option("--tenants", is_flag=True, help="Row-level security by the setting memman.tenant.")
def schema(partitions: int, tenants: bool) -> None:
    """Print the script that creates the tables: `memman postgres schema | psql URL`."""
    from memman_postgres import tables  # the driver, which no other command needs

    try:
        script = tables.schema(partitions, tenants=tenants)
    except InvalidInput as error:
        raise click.UsageError(str(error)) from None
    click.echo(script, nl=False)
