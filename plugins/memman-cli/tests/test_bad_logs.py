"""Errors of bad logs: one line with the place, the fault and the way out; nothing is written."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from command_fixtures import Command
from memman_cli import conversion

CHAT = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}
BLOCKS = {
    "role": "assistant",
    "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}],
}
CONTENT = {"role": "user", "parts": [{"text": "hello"}]}
CLAUDE = {
    "type": "user",
    "uuid": "1",
    "parentUuid": None,
    "sessionId": "s",
    "message": {"content": "a"},
}
CODEX = {"type": "session_meta", "timestamp": "2026-01-01T00:00:00Z", "payload": {"id": "s"}}


def lines(*items: object) -> bytes:
    return b"".join(json.dumps(item).encode() + b"\n" for item in items)


BAD: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "a file of one log behind a file of another": (
        lines(CLAUDE, CODEX),
        ("log: line 2 is in the format codex", "before it in claude-code", "split the file there"),
    ),
    "null": (b"null", ("log is JSON, but null by itself", "a log is a list of messages")),
    "a number": (b" 5\n", ("log is JSON, but a number by itself", "a message a line")),
    "a string": (b'"hi"', ("log is JSON, but a string by itself",)),
    "a boolean": (b"true", ("log is JSON, but a boolean by itself",)),
    "half a JSON document": (
        json.dumps(CHAT).encode()[:40],
        ("log is not JSON", "ends too early, the file is truncated (line 1, column"),
    ),
    "half of the last line": (
        lines(*CHAT) + b'{"role": "us',
        ("line 3 of log is not JSON", "truncated", "each line must be one JSON object", "mend that line"),
    ),
    "a line that is no JSON": (
        lines(CHAT[0]) + b"# a remark\n" + lines(CHAT[1]),
        ("line 2 of log is not JSON", "mend that line, or take it out"),
    ),
    "a binary file": (
        bytes(range(256)) * 9, ("log is binary, not text (a null byte in line 1, byte 0 of", "in UTF-8")
    ),
    "a null in text that is UTF-8": (
        "User: hé\nAssistant: l\0\n".encode(),
        ("log is binary, not text (a null byte in line 2, byte 22 of",),
    ),
    "a null in a line": (
        lines(*CHAT) + b'{"role": "user", "content": "\0"}\n',
        ("log is binary, not text (a null byte in line 3",),
    ),
    "a picture": (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", ("log is a PNG image, not a log",)),
    "a document to print": (b"%PDF-1.7\n%\xe2\xe3\n1 0 obj\n", ("log is a PDF document, not a log",)),
    "a Parquet file": (b"PAR1\x15\x04\x15", ("log is a Parquet file: make JSON lines of its messages",)),
    "a file packed with zip": (b"PK\x03\x04\x14\0", ("log is packed with zip; unpack it first",)),
    "UTF-16 without its mark": (
        json.dumps(CHAT).encode("utf-16-le"), ("log is binary, not text (a null byte in line 1, byte 1 of",)
    ),
    "UTF-16 that is cut short": (
        json.dumps(CHAT).encode("utf-16")[:-1], ("log begins as UTF-16 text, but is not valid from byte",)
    ),
    "a packed file": (gzip.compress(lines(*CHAT)), ("log is packed with gzip; unpack it first",)),
    "an empty file": (b"", ("log is empty", "give a file that has some")),
    "a blank file": (b" \n\n\t\n", ("log is empty",)),
    "an empty list": (b"[]", ("log has no messages",)),
    "invalid UTF-8 in a document": (
        b'[{"role": "user",\n "content": "caf\xe9"}]',
        ("log is not UTF-8 text (line 2, byte 34 of the file)", "convert it first"),
    ),
    "invalid UTF-8 in a line": (
        lines(*CHAT) + b'{"role": "user", "content": "caf\xe9"}\n',
        ("line 3 of log is not UTF-8 text (byte 32 of the line)", "mend that line"),
    ),
    "lines of no format": (
        lines(*CHAT, {"by": "me"}), ("line 3 is in an unknown format (known: openai-chat, ", "{'by': 'me'}")
    ),
    "a number in the list": (
        json.dumps([*CHAT, 5]).encode(), ("message 2 is in an unknown format (it must be a dict)",)
    ),
    "chat that goes on as Gemini's": (
        lines(*CHAT, CALL, CONTENT),
        ("line 4 is in the format gemini, the lines before it in", "split the file there"),
    ),
    "chat that goes on as Anthropic's": (
        lines(*CHAT, CALL, BLOCKS),
        ("line 4 is in the format anthropic, the lines before it in openai-chat", "split the file"),
    ),
    "chat behind a session of Claude Code": (
        lines(CLAUDE, CALL), ("line 2 is in the format openai-chat, the lines before it in claude-code",)
    ),
    "chat behind a session of Codex": (
        lines(CODEX, CALL), ("line 2 is in the format openai-chat, the lines before it in codex",)
    ),
    "another format far behind the head": (
        lines(*CHAT * 40, CALL, BLOCKS),
        ("line 82 is in the format anthropic, the lines before it in openai-chat",),
    ),
    "a fault far behind the head": (
        lines(*CHAT * 400, {"role": "user", "content": 7}), ("line 801: ", "content")
    ),
    "blank lines before a fault": (
        lines(CHAT[0]) + b"\n\n" + lines(CALL, {"role": "user", "content": 7}), ("line 5: ", "content")
    ),
    "a broken response_item": (
        lines(CODEX, {"type": "response_item", "payload": {"type": "function_call", "name": "f"}}),
        ("line 2: its response_item: ", "call_id"),
    ),
    "a broken message of Claude Code": (
        lines(CLAUDE, {**CLAUDE, "uuid": "2", "parentUuid": "1", "message": {"content": 5}}),
        ("line 2: the message with uuid 2: ",),
    ),
    "an object that is nested too deep": (
        b'{"messages":' * 100_000 + b"1" + b"}" * 100_000, ("nested too deeply",)
    ),
    "messages of a span that are nested too deep": (
        lines({"attributes": {"gen_ai.input.messages": "[" * 100_000}}),
        ("gen_ai.input.messages is nested too deeply: str",),
    ),
    "many conversations": (
        lines({"messages": CHAT}, {"messages": CHAT}), ("2 conversations, one a line; give a",)
    ),
}  # fmt: skip


@pytest.mark.parametrize("to", ["s.json", "s.jsonl", "chat.db"])
@pytest.mark.parametrize("name", BAD)
def test_bad_log_error_is_one_line_with_a_way_out(
    name: str, to: str, command, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data, message = BAD[name]
    Path("log").write_bytes(data)
    result = command("import", "log", "--into" if to == "chat.db" else "-o", to)
    assert (result.exit_code, result.stdout) == (3, ""), result.output
    [line] = result.stderr.splitlines()
    for words in ("memman: ", *message):
        assert words in line, line
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_ambiguous_log_error_names_both_formats(command, tmp_path, monkeypatch):
    monkeypatch.setattr("memman.formats.gemini.GeminiFormat.detect", lambda *_: 4)
    (tmp_path / "log.json").write_text(json.dumps([BLOCKS]))
    result = command("import", tmp_path / "log.json", "-o", tmp_path / "s.json")
    assert result.exit_code == 3
    assert "may be anthropic or gemini: its first items fit each; name one with -f" in result.stderr
    assert not (tmp_path / "s.json").exists()
    named = command("import", tmp_path / "log.json", "-f", "anthropic", "-o", tmp_path / "s.json")
    assert named.exit_code == 0


@pytest.mark.parametrize(
    "output", [["-o", "s.json"], [], ["--json"], ["--into", "a.db", "--budget", "9"]]
)
def test_too_long_log_error_names_the_alternatives(output, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("memman_cli.commands.importer.MOST_IN_DOCUMENT", 3)
    Path("log").write_bytes(lines(*CHAT * 2))
    result = command("import", "log", *output)
    assert (result.exit_code, result.stdout) == (2, "")
    [line] = result.stderr.splitlines()
    assert "log has more than 3 entries, too many for a session document" in line
    assert "--into chat.db or with -o chat.jsonl" in line
    assert [path.name for path in tmp_path.iterdir()] == ["log"]
    assert conversion.MOST_IN_DOCUMENT < 1_000_000


def test_unknown_export_target_error_names_known_ones(command, session_file):
    result = command("export", session_file, "-t", "morse")
    assert (result.exit_code, result.stdout) == (2, "")
    [line] = result.stderr.splitlines()
    assert "no message format is called 'morse'; known are openai-chat, anthropic" in line


@pytest.mark.parametrize("mark", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("shape", ["a document", "lines", "text", "a session"])
@pytest.mark.parametrize("source", ["a file", "stdin"])
def test_utf_16_with_a_byte_order_mark_is_read(
    command: Command, tmp_path: Path, mark: str, shape: str, source: str
) -> None:
    messages = [
        {"role": "user", "content": "h\u00e9llo \U0001f600"},
        {"role": "assistant", "content": "hi"},
    ]
    plain = {
        "a document": json.dumps(messages, ensure_ascii=False),
        "lines": "\r\n".join(json.dumps(message, ensure_ascii=False) for message in messages)
        + "\r\n",
        "text": "User: h\u00e9llo \U0001f600\r\nAssistant: hi\r\n",
    }
    if shape == "a session":
        plain[shape] = command("import", "-", "-o", "-", given=plain["lines"]).stdout
    data = "\ufeff".encode(mark) + plain[shape].encode(mark)
    log: object = "-"
    if source == "a file":
        log = tmp_path / "log"
        (tmp_path / "log").write_bytes(data)
    words = ["export", log] if shape == "a session" else ["import", log, "-o", "-"]
    result = command(*words, given=data)
    assert result.exit_code == 0, result.stderr
    assert "h\u00e9llo \U0001f600" in result.stdout
