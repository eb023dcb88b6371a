"""A shell completes commands, options and file names."""

from __future__ import annotations

import pytest
from click.shell_completion import ShellComplete
from memman_cli.app import COMMANDS, memman


def completed(*words: str) -> list[str]:
    *before, last = words
    complete = ShellComplete(memman, {}, "memman", "_MEMMAN_COMPLETE")
    return [item.value for item in complete.get_completions(before, last)]


def test_commands_are_completed() -> None:
    assert completed("re") == ["report"]
    assert completed("")[: len(COMMANDS)] == [command.name for command in COMMANDS]


def test_plugin_commands_and_options_are_completed() -> None:
    assert "postgres" in completed("")
    assert completed("postgres", "") == ["schema"]
    assert "--tenants" in completed("postgres", "schema", "--")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: str(command.name))
def test_options_of_every_command_are_completed(command) -> None:
    found = completed(str(command.name), "--")
    assert "--help" in found
    for option in command.params:
        long = [name for name in option.opts if name.startswith("--")]
        assert set(long) <= set(found)


@pytest.mark.parametrize(
    "words",
    [("stats",), ("report",), ("sessions",), ("search",), ("import",), ("report", "s.json", "-o")],
)
def test_file_names_are_completed_by_the_shell(words: tuple[str, ...]) -> None:
    complete = ShellComplete(memman, {}, "memman", "_MEMMAN_COMPLETE")
    assert [item.type for item in complete.get_completions(list(words), "s")] == ["file"]


def test_completion_script_is_printed(command, monkeypatch) -> None:
    monkeypatch.setenv("_MEMMAN_COMPLETE", "bash_source")
    done = command()
    assert "_memman_completion" in done.stdout
