"""The plugin itself: what needs no server."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner
from memman_cli.app import memman
from memman_postgres import memman_store, tables


def test_driver_is_imported_with_the_first_store() -> None:
    code = "import memman_postgres, sys; print([n for n in sys.modules if n.startswith('psycopg')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("url", ["sqlite:///chat.db", "redis://x", "chat.db"])
def test_plugin_ignores_other_urls(url: str) -> None:
    assert memman_store(url, create=True) is None


def test_command_prints_the_script() -> None:
    for options, script in (
        ([], tables.schema()),
        (["--partitions"], tables.schema(64)),
        (["--partitions", "8", "--tenants"], tables.schema(8, tenants=True)),
    ):
        done = CliRunner().invoke(memman, ["postgres", "schema", *options])
        assert (done.exit_code, done.stdout) == (0, script)


def test_command_is_listed_only_with_the_plugin() -> None:
    code = "from memman_cli.app import run; run(['--help'])"
    command = [sys.executable, "-c", code]
    for allowed, there in (("memman-postgres", True), ("", False)):
        environment = os.environ | {"MEMMAN_PLUGINS": allowed}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        assert ("Sessions in PostgreSQL" in done.stdout) == there
    done = subprocess.run(
        [sys.executable, "-c", "from memman_cli.app import run; run(['postgres', 'schema'])"],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert "No such command 'postgres'" in done.stderr


def test_number_out_of_range_is_one_line_and_no_traceback() -> None:
    done = CliRunner().invoke(memman, ["postgres", "schema", "--partitions", "10001"])
    assert (done.exit_code, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert "must be between 0 and 10,000" in line


def test_python_module_prints_the_script() -> None:
    command = [sys.executable, "-m", "memman_postgres", "--tenants"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == tables.schema(tenants=True)
