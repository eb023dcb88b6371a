"""No output of a command can steer a terminal."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from memman_cli import app

from memman import MemoryConfig, MemoryManager

pty = pytest.importorskip("pty", reason="pseudo-terminals are of POSIX systems")

_CANARY = "\x1b]0;PWNED\x07\x1b[2J\x9b31m\u202eRTL\r\x08"
_IN_NAME = _CANARY.replace("/", "")
_UNSAFE = re.compile("[\x00-\x08\x0b-\x0c\x0e-\x1f\x7f-\x9f\u202e]|\r(?!\r?\n)")
# Rich's own sequences: colours, and the moves of its progress bar.
_OF_RICH = re.compile(r"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\r?\x1b\[[12][KA]")
_MARK = "@@ command"
_DRIVER = f"""
import json
from pathlib import Path
from memman_cli.app import run
for number, args in enumerate(json.loads(Path("commands.json").read_text())):
    print("{_MARK}", number, flush=True)
    try:
        run(args)
    except SystemExit:
        pass
"""


def _make_files() -> None:
    memory = MemoryManager(
        "s.db", config=MemoryConfig(max_tokens=600, recent_window=0, min_entries_to_compress=1)
    )
    memory.add_user_message("s", f"head {_CANARY}")
    memory.update_config("s", auto_compress=False)
    for number in range(12):
        name, call = f"tool{_CANARY}", f"c{number}"
        memory.add_tool_call("s", name, {f"k{_CANARY}": _CANARY}, call_id=call)
        found = f"result {number} /path/{_CANARY}/x " + "w " * 120
        memory.add_tool_result("s", name, found, call_id=call, is_error=True)
        memory.add_context("s", f"context {_CANARY}", f"source{_CANARY}")
        memory.add_assistant_message("s", f"a {number} [31mred[/31m] {_CANARY}")
    memory.update_config("s", model=f"model{_CANARY}")
    memory.compress("s", focus=f"focus{_CANARY}")
    state = memory.export_session("s")
    Path("s.json").write_text(state.to_json())
    memory.export_archive("s", "s.jsonl")
    memory.close()
    call = {
        "id": "c\u202e",
        "type": "function",
        "function": {"name": _CANARY, "arguments": _CANARY},
    }
    messages = [
        {"role": "user", "content": f"hi {_CANARY}"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"zz{_CANARY}", "content": _CANARY},
    ]
    Path("log.jsonl").write_text("\n".join(map(json.dumps, messages)))
    Path(f"bad{_IN_NAME}.json").write_text('{"a":"' + _CANARY)
    Path("format.json").write_text(json.dumps({"format": f"memman-session{_CANARY}"}))
    document = json.loads(state.to_json())
    document["log"][0]["id"] = f"no{_CANARY}"
    Path("document.json").write_text(json.dumps(document | {"settings": {f"x{_CANARY}": 1}}))
    strange = {"role": f"user{_CANARY}", "content": 1, _CANARY: 2}
    Path("messages.json").write_text(json.dumps({"messages": [strange]}))
    Path("lines.jsonl").write_text(Path("s.jsonl").read_text().replace("head", f"{_CANARY}"))


_COMMANDS = [
    ["show", "s.json"],
    ["show", "s.json", "--entry", "1"],
    ["show", "s.json", "--entry", "2"],
    ["show", "s.json", "--entry", f"x{_CANARY}"],
    ["show", "s.json", "--grep", f"({_CANARY}"],
    ["show", "s.json", "--json"],
    ["mcp", f"x{_CANARY}"],
    ["show", "s.db"],
    ["show", "log.jsonl"],
    ["show", f"bad{_IN_NAME}.json"],
    ["show", "format.json"],
    ["show", "document.json"],
    ["show", "messages.json"],
    ["show", f"nofile{_CANARY}"],
    ["show", "s.db", "--session", _CANARY],
    ["search", "s.json", "result path"],
    ["search", "s.json", "PWNED"],
    ["search", "s.db", _CANARY],
    ["search", "s.db", "PWNED", "--session", "*"],
    ["search", "s.db", "PWNED", "--session", _CANARY],
    ["search", "s.db", "PWNED", "--json"],
    ["search", "log.jsonl", "hi", "--since", _CANARY],
    ["search", "log.jsonl", "hi", "--tool", _CANARY],
    ["stats", "s.json"],
    ["stats", "s.json", "--json"],
    ["stats", "log.jsonl", "--model", _CANARY],
    ["plan", "s.json"],
    ["compress", "s.json", "--dry-run"],
    ["compress", "s.json", "-o", f"out{_IN_NAME}.json"],
    ["compress", "s.json", "-o", "-"],
    ["compress", "s.json", "--summarizer", f"cmd:x{_CANARY}", "-o", "c.json"],
    ["compress", "s.json", "--summarizer", f"x{_CANARY}:y", "-o", "c.json"],
    ["diff", "s.json"],
    ["why", "s.json", "path"],
    ["why", "s.json", _CANARY],
    ["undo", "s.json", "-o", "u.json"],
    ["undo", "s.json", "-o", "-"],
    ["verify", "s.json"],
    ["verify", "s.jsonl"],
    ["verify", "lines.jsonl"],
    ["verify", f"bad{_IN_NAME}.json"],
    ["sessions", "s.db"],
    ["sessions", "s.db", "--json"],
    ["follow", "s.db", "--timeout", "0.01"],
    ["follow", "s.db", "--timeout", "0.01", "--json"],
    ["export", "s.json"],
    ["export", "s.json", "--format", "text"],
    ["export", "s.json", "--format", "anthropic"],
    ["export", "s.json", "--format", "memman-jsonl"],
    ["export", "s.json", "--format", "memman-jsonl", "--packing", "gzip"],
    ["export", "s.json", "--format", _CANARY],
    ["import", "log.jsonl", "-o", f"i{_IN_NAME}.json"],
    ["import", "log.jsonl", "-o", "-"],
    ["import", "messages.json", "-o", "i.json"],
    ["check", "log.jsonl"],
    ["check", "messages.json"],
    ["report", "s.json", "-o", "-"],
    ["report", "s.json", "-o", f"r{_IN_NAME}.html"],
    ["count", "log.jsonl"],
    ["count", "--model", _CANARY, "hi"],
    ["count", "--counter", _CANARY, "hi"],
    ["formats"],
    ["formats", _CANARY],
    ["models", _CANARY],
    ["counters", _CANARY],
    ["plugins"],
    ["plugins", "--check", _CANARY],
    ["demo", _CANARY],
    ["demo", "log.jsonl"],
    ["demo", "messages.json"],
    [_CANARY],
    [f"--{_CANARY}"],
]


def _on_a_terminal(folder: Path) -> str:
    """Return the output of the commands, with a mark before each."""
    leader, follower = pty.openpty()
    environ = {
        **os.environ,
        "TERM": "xterm-256color",
        "COLUMNS": "120",
        "PYTHONIOENCODING": "utf-8",
    }
    environ.pop("NO_COLOR", None)
    program = subprocess.Popen(
        [sys.executable, "-c", _DRIVER],
        cwd=folder,
        env=environ,
        stdin=follower,
        stdout=follower,
        stderr=follower,
    )
    os.close(follower)
    printed = b""
    try:
        while some := os.read(leader, 65_536):
            printed += some
    except OSError:  # Linux, when the other side is closed
        pass
    finally:
        os.close(leader)
    assert program.wait(60) == 0, printed[-3000:].decode()
    return printed.decode(errors="replace")


def test_no_command_prints_control_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No command prints a control character of a foreign text"""
    monkeypatch.chdir(tmp_path)
    _make_files()
    Path("commands.json").write_text(json.dumps(_COMMANDS))
    outputs = _on_a_terminal(tmp_path).split(f"{_MARK} ")[1:]
    assert len(outputs) == len(_COMMANDS)
    unsafe = [
        (_COMMANDS[number], text[max(0, at.start() - 60) : at.end() + 20])
        for number, output in enumerate(outputs)
        for text in [_OF_RICH.sub("", output)]
        for at in [_UNSAFE.search(text)]
        if at is not None
    ]
    assert unsafe == []
    shown = "".join(outputs)
    assert "PWNED" in shown
    assert "Traceback" not in shown


def test_every_command_is_run_on_a_terminal() -> None:
    """The list of tested commands is complete"""
    assert {args[0] for args in _COMMANDS} >= {command.name for command in app.COMMANDS}


def test_printing_goes_through_one_module() -> None:
    """Only `memman_cli.output` prints text directly"""
    folder = Path(app.__file__).parent
    call = re.compile(r"click\.s?echo\(|(?<![.\w])print\(")
    printing = {path.name for path in folder.rglob("*.py") if call.search(path.read_text())}
    assert printing == {"output.py"}
