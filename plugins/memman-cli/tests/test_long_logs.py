"""A log of any length can be imported into a database or an archive."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from memman_cli.files import File
from memman_cli.log_formats.common import may_cut
from memman_cli.logs import log_in

from memman import SessionState

SAMPLES = Path(__file__).parent / "samples"
TURN = [
    {"role": "user", "content": "look"},
    {
        "role": "assistant",
        "content": "both",
        "tool_calls": [
            {"id": name, "type": "function", "function": {"name": f"f{name}", "arguments": "{}"}}
            for name in ("a", "b")
        ],
    },
    {"role": "tool", "tool_call_id": "b", "content": "2"},
    {"role": "tool", "tool_call_id": "a", "content": "1"},
    {"role": "assistant", "content": "done"},
]
ITEMS = [
    {"role": "user", "content": "look"},
    {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "x"},
    {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
    {"type": "function_call", "call_id": "b", "name": "g", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "b", "output": "2"},
    {"type": "function_call_output", "call_id": "a", "output": "1"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]},
]


def texts_of(state: SessionState) -> list[object]:
    """Return the content of a session without ids and times."""
    order = {entry.id: place for place, entry in enumerate(state.entries)}
    messages = {
        name: n for n, name in enumerate(dict.fromkeys(e.message_id for e in state.entries))
    }
    return [
        [
            (e.type, e.role, e.content, e.name, e.call_id, messages[e.message_id], e.raw, e.metadata,
             e.pinned, e.compressed, e.token_count.tokens)
            for e in state.entries
        ],
        [(s.content, [order[name] for name in s.original_entry_ids]) for s in state.summaries],
        state.totals, state.settings,
    ]  # fmt: skip


@pytest.mark.parametrize("path", sorted(SAMPLES.iterdir()), ids=lambda path: path.name)
def test_every_import_target_gets_the_same_session(path: Path, command, tmp_path: Path) -> None:
    model = ["--model", "gpt-4o", "--session", "s"]
    document, archive, db = (tmp_path / name for name in ("s.json", "s.jsonl.gz", "s.db"))
    figures = {
        command("import", path, "-o", document, *model).stderr,
        command("import", path, "-o", archive, *model).stderr,
        command("import", path, "--into", db, *model).stderr,
    }
    assert len(figures) == 1
    first = SessionState.from_json(document.read_bytes())
    for other in (archive, db):
        again = tmp_path / f"{other.name}.json"
        if other is archive:
            assert command("import", other, "-o", again).exit_code == 0
        else:
            assert command("export", other, "-t", "memman-jsonl", "-o", f"{again}l").exit_code == 0
            assert command("import", f"{again}l", "-o", again).exit_code == 0
        assert texts_of(SessionState.from_json(again.read_bytes())) == texts_of(first)


@pytest.mark.parametrize("items", [TURN, ITEMS], ids=["chat", "responses"])
def test_log_in_pieces_has_the_same_entries(items, tmp_path: Path) -> None:
    from memman.formats import detect_format

    long = [
        {**item, **({"call_id": f"{item['call_id']}{n}"} if "call_id" in item else {})}
        for n in range(120)
        for item in items
    ]
    whole = detect_format(long).parse(long)
    log = log_in(File("log", data="\n".join(map(json.dumps, long)).encode()))
    pieces = log.new_entries
    assert [(d.type, d.content, d.call_id) for d in pieces] == [
        (d.type, d.content, d.call_id) for d in whole
    ]
    label = {name: n for n, name in enumerate(dict.fromkeys(d.message_id for d in whole))}
    ours = {name: n for n, name in enumerate(dict.fromkeys(d.message_id for d in pieces))}
    assert [ours[d.message_id] for d in pieces] == [label[d.message_id] for d in whole]
    assert len(list(log._pieces())) > 1


def test_pieces_begin_with_an_assistant_message() -> None:
    user, speech = {"role": "user"}, {"role": "assistant"}
    result, call = {"type": "function_call_output"}, {"type": "function_call"}
    assert may_cut(user, speech, 1_000)
    assert may_cut(result, call, 1_000)
    assert not any(may_cut(*pair, 1_000) for pair in ((speech, user), (call, result), (call, call)))
    assert not may_cut(user, speech, 10)
    assert may_cut(call, result, 10_000)  # the limit of memory


def test_uncertain_lines_get_the_first_certain_format(command, tmp_path):
    block = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    log = [{"role": "user", "content": f"{n}"} for n in range(80)]
    log.append({"role": "assistant", "content": [block]})
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, log)))
    result = command("import", tmp_path / "log.jsonl", "-o", tmp_path / "s.json")
    assert "anthropic, 81 messages, 81 entries" in result.stderr
    assert (
        SessionState.from_json((tmp_path / "s.json").read_bytes()).entries[-1].type == "tool_call"
    )


def test_distant_result_gets_the_name_of_its_call(tmp_path):
    call = {"type": "tool_use", "id": "t", "name": "look", "input": {}}
    log = [{"role": "user", "content": "go"}, {"role": "assistant", "content": [call]}]
    between = [{"role": "assistant", "content": "."}, {"role": "user", "content": "?"}] * 400
    result = {"type": "tool_result", "tool_use_id": "t", "content": "found"}
    lines = "\n".join(map(json.dumps, [*log, *between, {"role": "user", "content": [result]}]))
    from memman_cli.conversion import records_of_log

    *_, last = records_of_log(log_in(File("log", data=lines.encode())).read(), None)
    assert (last.entry.type, last.entry.name) == ("tool_result", "look")


def test_line_may_hold_any_unicode_separator(command, tmp_path):
    text = "one\u2028two\x85three\x0bfour"
    (tmp_path / "log.jsonl").write_text(
        "\n".join(json.dumps({"role": "user", "content": text}, ensure_ascii=False) for _ in "ab")
    )
    assert command("import", tmp_path / "log.jsonl", "-o", tmp_path / "s.json").exit_code == 0
    state = SessionState.from_json((tmp_path / "s.json").read_bytes())
    assert [entry.text for entry in state.entries] == [text, text]


def test_second_import_is_a_conflict(command, tmp_path):
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, TURN)))
    options = ["import", tmp_path / "log.jsonl", "--into", tmp_path / "s.db"]
    assert command(*options).exit_code == 0
    again = command(*options)
    assert (again.exit_code, again.stdout) == (2, "")
    assert "log" in again.stderr
    assert len(again.stderr.splitlines()) == 1
    assert command(*options, "--on-conflict", "new_session").exit_code == 0
    assert len(json.loads(command("sessions", tmp_path / "s.db", "--json").stdout)["sessions"]) == 2
