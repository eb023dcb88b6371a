"""Tests of the command as a process: exit codes, missing packages, colours, plugins, pipes."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from terminals import on_a_terminal

import memman

ROOT = Path(memman.__file__).parent.parent
LONG = pytest.mark.long
ALONE = {"MEMMAN_PLUGINS": ""}  # plugins take as long to load as all else


def run(*args, given=None, path=(), **environ):
    """Run `memman` as a process; `path` is put before its import path."""
    inherited = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "MEMMAN_PLUGINS")}
    places = [*map(str, path), str(ROOT), inherited.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, "-m", "memman_cli", *map(str, args)],
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=inherited | {"PYTHONPATH": os.pathsep.join(filter(None, places))} | environ,
    )


def shell(script):
    return subprocess.run(
        ["/bin/sh", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=ROOT,
        env=os.environ | ALONE,
    )


def python(code):
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=ROOT,
    )


# ---------------------------------------------------------------- exit codes


def test_version_is_printed(command):
    assert command("--version").stdout == f"memman {memman.__version__}\n"


def test_no_command_shows_the_help(command):
    result = command()
    assert result.exit_code == 2
    assert "Commands:" in result.stdout


def test_help_lists_every_command(command):
    shown = command("--help").stdout
    assert "a JSON document or an archive" in " ".join(shown.split())
    assert "or a database" in " ".join(shown.split())
    for name in ("demo", "import", "stats", "show", "compress", "export", "count", "plugins"):
        assert f"\n  {name} " in shown
        assert command(name, "--help").exit_code == 0


@pytest.mark.parametrize(
    "args", [["demo", "--bogus"], ["nonsense"], ["stats"], ["show", "s.json", "--type", "dream"]]
)
def test_usage_error_is_one_line_with_exit_code_2(command, args):
    result = command(*args)
    assert result.exit_code == 2
    assert result.stderr.startswith("memman: ")
    assert "--help`" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert re.search(r"[.?!)] See `memman", result.stderr)


READERS = [["stats"], ["show"], ["compress", "-o", "-"], ["export"]]


@pytest.mark.parametrize("args", READERS)
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        ("", "is empty"),
        ("{}", "not a memman session"),
        ('{"format": "memman-session", "ver', "truncated (line 1, column 30)"),
        ("[1]", "message 0 is in an unknown format"),
        ('{"messages": []}', "has no messages"),
        ('{"format": "memman-session", "version": 99}', "version is 99"),
        ('{"format": "memman-session", "version": 1}', "session_id"),
    ],
)
def test_unreadable_session_is_one_line_with_exit_code_3(command, tmp_path, args, content, message):
    path = tmp_path / "s.json"
    if content is not None:
        path.write_text(content)
    result = command(args[0], path, *args[1:])
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr.startswith("memman: ")
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("args", [*READERS, ["import"]])
def test_packed_file_is_refused_with_the_packer(command, demo_file, tmp_path, args):
    path = tmp_path / "s.json.gz"
    path.write_bytes(gzip.compress(demo_file.read_bytes()))
    result = command(args[0], path, *args[1:])
    assert (result.exit_code, result.stdout) == (3, "")
    assert "gzip; unpack it first" in result.stderr


@pytest.mark.parametrize("args", READERS)
def test_dangling_id_is_named(command, demo_file, tmp_path, args):
    document = json.loads(demo_file.read_text())
    gone = document["entries"].pop(5)["id"]
    path = tmp_path / "s.json"
    path.write_text(json.dumps(document))
    result = command(args[0], path, *args[1:])
    assert (result.exit_code, result.stdout) == (3, "")
    assert gone in result.stderr


def test_each_fault_of_a_session_has_a_line(command, demo_file, tmp_path):
    document = json.loads(demo_file.read_text())
    gone = [document["entries"].pop(5)["id"] for _ in range(7)]
    path = tmp_path / "s.json"
    path.write_text(json.dumps(document))
    head, *faults = command("stats", path).stderr.splitlines()
    assert head.endswith(f"it has {len(faults)} faults:")
    assert len(faults) >= 7
    assert [gone_id in line for gone_id, line in zip(gone, faults, strict=False)] == [True] * 7


def test_wrong_totals_are_refused(command, demo_file, tmp_path):
    document = json.loads(demo_file.read_text())
    document["totals"]["tokens"] += 1
    path = tmp_path / "s.json"
    path.write_text(json.dumps(document))
    assert command("stats", path).exit_code == 3


def test_directory_is_unreadable(command, tmp_path):
    assert command("stats", tmp_path).exit_code == 3
    assert command("import", tmp_path).exit_code == 3


# ---------------------------------------------------------------- the process


def test_commands_work_in_a_pipeline(log_file):
    session = run("import", log_file, **ALONE)
    smaller = run("compress", "-", "--budget", "2k", "-o", "-", given=session.stdout, **ALONE)
    body = run("export", "-", "-t", "anthropic", given=smaller.stdout, **ALONE)
    assert json.loads(body.stdout)["system"] == "You fix builds."


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_full_disk_causes_no_traceback(demo_file):
    done = shell(f'"{sys.executable}" -m memman_cli export "{demo_file}" > /dev/full')
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "memman: cannot write: No space left on device"


def test_closed_reader_causes_no_traceback(demo_file):
    done = shell(f'"{sys.executable}" -m memman_cli show "{demo_file}" | head -n 1')
    assert "Traceback" not in done.stderr
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.parametrize(
    "args",
    [["show"], *(pytest.param(each, marks=LONG) for each in (["show", "--json"], ["export"]))],
)
def test_closed_pipe_is_not_a_failure(demo_file, args):
    command = [sys.executable, "-m", "memman_cli", args[0], str(demo_file), *args[1:]]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env=os.environ | ALONE,
    ) as process:
        process.stdout.close()
        output = process.stderr.read().decode()
        assert process.wait(60) == 0, output
    assert "pipe" not in output.lower()


def test_version_loads_neither_rich_nor_plugins():
    done = python(
        "import sys\n"
        "from memman_cli.app import run\n"
        "try:\n"
        "    run(['--version'])\n"
        "finally:\n"
        "    print({'rich', 'memman_tiktoken', 'importlib.metadata'} & set(sys.modules))\n"
    )
    assert done.stdout == f"memman {memman.__version__}\nset()\n"


def test_unencodable_character_becomes_an_escape(log_file, tmp_path):
    log_file.write_text(json.dumps([{"role": "user", "content": "žluťoučký →"}]))
    session = tmp_path / "s.json"
    assert run("import", log_file, "-o", session, **ALONE).returncode == 0
    shown = run("show", session, PYTHONIOENCODING="ascii", **ALONE)
    assert shown.returncode == 0
    assert r"\u017elu\u0165ou\u010dk\xfd \u2192" in shown.stdout


def test_demo_runs_on_an_ascii_terminal(long_log, tmp_path):
    play = ["demo", "--file", long_log, "--budget", "1k"]
    done = run(*play, "-o", tmp_path / "s.json", PYTHONIOENCODING="ascii", **ALONE)
    assert done.returncode == 0
    assert " -> " in done.stderr
    assert "\\u" not in done.stdout + done.stderr


# ---------------------------------------------------------------- colours


def test_terminal_shows_progress_of_a_long_file(tmp_path):
    log, archive = tmp_path / "log.jsonl", tmp_path / "s.jsonl"
    message = '{"role": "user", "content": "%s"}\n' % ("word " * 200)
    log.write_text(message * 1_000)
    lines = f"import {log} -o {archive}", f"verify {archive}"
    imported, verified = on_a_terminal(*lines, **ALONE)
    assert "importing" in imported
    assert "100%" in imported
    assert "verifying" in verified


@pytest.fixture(scope="module", params=[60, pytest.param(80, marks=LONG)])
def narrow(request, demo_file):
    """The columns of a narrow terminal, and the lines of `compress`, `stats` and `show` on it."""
    shown = on_a_terminal(
        f"compress {demo_file} --budget 4k --dry-run",
        f"stats {demo_file}",
        f"show {demo_file}",
        NO_COLOR="1",
        COLUMNS=str(request.param),
        **ALONE,
    )
    return request.param, *(each.splitlines() for each in shown)


def test_narrow_terminal_keeps_the_main_columns(narrow):
    columns, lines, _, _ = narrow
    head, *rows = [line.split() for line in lines[:-1]]
    assert head[:4] == ["seq", "tokens", "after", "action"]
    assert head[-1] == "text"
    assert max(map(len, lines[:-1])) <= columns
    assert {row[3] for row in rows if len(row) > 3} > {"keep"}
    assert all(
        re.fullmatch(r"#\d+(\.\d+)?", row[0]) and row[1].replace(",", "").isdigit() for row in rows
    )


def test_narrow_terminal_has_the_bar_on_one_line(narrow):
    columns, _, lines, _ = narrow
    assert len(lines[1]) == min(68, columns)
    assert lines[1].endswith("]")
    assert max(map(len, lines)) <= max(columns, 68)


def test_narrow_terminal_keeps_state_and_text(narrow):
    columns, _, _, lines = narrow
    assert all(heading in lines[0] for heading in ("seq", "tokens", "state", "text"))
    state = "→" if columns == 60 else "in outline"
    assert any(re.search(rf"{state} #\d+(\.\d+)? +\S", line) for line in lines)
    assert max(map(len, lines)) <= columns


def test_demo_shows_progress_on_a_terminal(long_log, tmp_path):
    play = f"demo --file {long_log} --budget 1k -o {tmp_path / 's.json'}"
    [written] = on_a_terminal(play, **ALONE)
    assert re.search(r"\d+/24", written)
    assert "Try next" in written


# ---------------------------------------------------------------- plugins


@pytest.fixture
def installed(tmp_path):
    """Install plugins as a package manager would, into a folder for the import path."""

    def install(name, code):
        folder = tmp_path / "site"
        info = folder / f"acme_{name}-1.2.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: acme-{name}\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text(f"[memman]\n{name} = acme_{name}\n")
        (folder / f"acme_{name}.py").write_text(code)
        return folder

    return install


BROKEN = "raise RuntimeError('no luck\\ntoday')\n"
COMMAND = """
import click
from memman import hookimpl

@hookimpl
def memman_cli_commands(group):
    @group.command()
    def hello():
        "Says hello."
        click.echo("hello from a plugin")
"""
FAILING = """
from memman import hookimpl

@hookimpl
def memman_cli_commands(group):
    group.add_command(group.commands["demo"], "stats")
"""


def test_plugins_are_listed_with_their_hooks(installed):
    folder = installed("good", COMMAND)
    document = json.loads(run("plugins", "--json", path=[folder]).stdout)
    [good] = [plugin for plugin in document["plugins"] if plugin["name"] == "good"]
    assert (document["memman"], document["version"]) == ("plugins", 1)
    assert (good["distribution"], good["version"]) == ("acme-good", "1.2")
    assert (good["hooks"], good["error"]) == (["memman_cli_commands"], None)


def test_broken_plugin_is_listed_without_a_traceback(installed):
    folder = installed("broken", BROKEN)
    done = run("plugins", path=[folder])
    assert done.returncode == 0
    assert "error: RuntimeError: no luck today" in done.stdout
    assert "memman: plugin broken of acme-broken could not be loaded" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("args", [["--help"], ["nonsense"]])
def test_broken_plugin_causes_no_traceback_in_help(installed, args):
    done = run(*args, path=[installed("broken", BROKEN)])
    assert "could not be loaded" in done.stderr
    assert "Traceback" not in done.stderr


def test_strict_makes_a_broken_plugin_a_finding(installed):
    folder = installed("broken", BROKEN)
    assert run("plugins", "--strict", "--json", path=[folder]).returncode == 1
    assert run("plugins", "--strict", MEMMAN_PLUGINS="").returncode == 0


def test_strict_makes_an_absent_plugin_a_finding(installed):
    folder = installed("good", COMMAND)
    done = run("plugins", "--strict", path=[folder], MEMMAN_PLUGINS="acme-good, gone")
    assert done.returncode == 1
    assert "not installed: gone" in done.stderr
    assert run("plugins", "--strict", path=[folder], MEMMAN_PLUGINS="acme-good").returncode == 0


def test_environment_restricts_plugins(installed):
    folder = installed("broken", BROKEN)
    done = run("plugins", "--json", path=[folder], MEMMAN_PLUGINS="")
    assert json.loads(done.stdout)["plugins"] == []
    assert "no plugins" in run("plugins", path=[folder], MEMMAN_PLUGINS="").stderr


def test_plugin_adds_a_command(installed):
    folder = installed("good", COMMAND)
    assert run("hello", path=[folder]).stdout == "hello from a plugin\n"
    assert "Says hello." in run("--help", path=[folder]).stdout


def test_failing_plugin_does_not_affect_others(installed):
    installed("good", COMMAND)
    folder = installed("failing", FAILING)
    done = run("hello", path=[folder])
    assert (done.returncode, done.stdout) == (0, "hello from a plugin\n")
    assert "plugin failing failed to add its commands" in done.stderr
    assert "Traceback" not in done.stderr
