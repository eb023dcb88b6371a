"""Logs that are only read: what of each becomes an entry, and what a compaction in it becomes."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from memman import Entry, FormatError, MemoryManager
from memman.cli.app import memman
from memman.cli.logs import state_of_log
from memman.cli.reading import read_log
from memman.formats.logs import IMPORT_FORMATS, detect_log
from memman.formats.rules import RULES, check

SAMPLES = Path(__file__).parent / "samples"
FILES = sorted(SAMPLES.iterdir())


def loaded(name: str) -> MemoryManager:
    memory = MemoryManager(counter="chars4")
    read = read_log(str(SAMPLES / name)).read
    assert read is not None
    memory.import_session(state_of_log("s", read, len))
    return memory


def shapes(entries: list[Entry]) -> list[tuple[str, str, str]]:
    return [(entry.type, entry.role, entry.text) for entry in entries]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_each_file_is_recognised_as_what_it_is(path: Path) -> None:
    assert read_log(str(path)).format == path.stem


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_each_file_becomes_a_session_that_every_provider_takes(path: Path, tmp_path: Path) -> None:
    to = str(tmp_path / "s.json")
    done = CliRunner().invoke(memman, ["import", str(path), "-o", to])
    assert done.exit_code == 0, done.output
    memory = MemoryManager(counter="chars4")
    session = memory.import_session(Path(to).read_text())
    for target in RULES:
        context = memory.build_context(session, format=target)
        assert check(context.messages, target, system=context.system) == []


def test_claude_code_is_read_along_its_live_path() -> None:
    memory = loaded("claude-code.jsonl")
    assert shapes(memory.get_entries("s")) == [
        ("message", "user", "Read a.py and b.py."),
        ("message", "assistant", ""),  # the thinking, signed
        ("tool_call", "assistant", '{"path":"a.py"}'),
        ("tool_call", "assistant", '{"path":"b.py"}'),
        ("tool_result", "tool", "print(1)"),
        ("tool_result", "tool", "print(2)"),
        ("message", "assistant", "Each prints a number."),
        ("message", "assistant", "Shall I go on?"),
        ("message", "user", "Yes."),
    ]
    first, *_ = memory.get_entries("s")
    assert first.timestamp.isoformat() == "2026-03-01T10:00:01+00:00"
    calls = memory.get_entries("s")[1:4]
    assert len({entry.message_id for entry in calls}) == 1
    assert calls[0].metadata["claude-code"]["usage"] == {"input_tokens": 10, "output_tokens": 2}


def test_a_compaction_of_claude_code_is_one_that_can_be_undone() -> None:
    memory = loaded("claude-code.jsonl")
    assert shapes(memory.get_active_entries("s")) == [
        ("summary", "system", "They read a.py and b.py; each prints a number."),
        ("message", "assistant", "Shall I go on?"),
        ("message", "user", "Yes."),
    ]
    [summary] = memory.get_summaries("s")
    assert len(summary.original_entry_ids) == 7
    memory.undo_compression("s")
    assert len(memory.get_active_entries("s")) == 9


def test_what_went_before_a_continued_session_of_claude_code_is_its_summary() -> None:
    lines = [json.loads(line) for line in (SAMPLES / "claude-code.jsonl").read_text().splitlines()]
    [form] = [form for form in IMPORT_FORMATS if form.name == "claude-code"]
    memory = MemoryManager(counter="chars4")
    memory.import_session(state_of_log("s", form.parse(lines[11:]), len))
    assert [entry.type for entry in memory.get_active_entries("s")] == [
        "summary", "message", "message",
    ]  # fmt: skip


def test_codex_says_each_thing_once_and_its_compaction_is_ours() -> None:
    memory = loaded("codex.jsonl")
    assert [said for _, _, said in shapes(memory.get_entries("s"))] == [
        "Be brief.", "What is in a.py?", "", '{"command":["cat","a.py"]}', "print(1)", "It prints 1.",
        "And b.py?",
    ]  # fmt: skip
    assert shapes(memory.get_active_entries("s")) == [
        ("message", "system", "Be brief."),
        ("summary", "system", "The user asked about a.py, which prints 1."),
        ("message", "user", "And b.py?"),
    ]


def test_sharegpt_turns_come_in_order_with_what_is_beside_them() -> None:
    entries = loaded("sharegpt.json").get_entries("s")
    assert [(entry.type, entry.role) for entry in entries] == [
        ("message", "system"), ("message", "user"), ("message", "user"), ("tool_call", "assistant"),
        ("tool_result", "tool"), ("message", "assistant"),
    ]  # fmt: skip
    assert entries[-1].metadata == {"sharegpt": {"weight": 1}}


def test_a_chatgpt_export_is_read_from_its_current_node() -> None:
    memory = loaded("chatgpt-export.json")
    assert shapes(memory.get_entries("s")) == [
        ("message", "user", "What is 2+2?"),
        ("tool_call", "assistant", "2+2"),
        ("tool_result", "tool", "4"),
        ("message", "user", "In words?"),
        ("message", "assistant", "Four."),
    ]
    assert "file-service" not in json.dumps(memory.build_context("s").messages)


def test_the_last_span_is_the_conversation() -> None:
    memory = loaded("otel.json")
    assert shapes(memory.get_entries("s")) == [
        ("message", "system", "Be brief."),
        ("message", "user", "Weather in Paris?"),
        ("message", "assistant", ""),
        ("tool_call", "assistant", '{"city":"Paris"}'),
        ("tool_result", "tool", '{"sky":"rain"}'),
        ("message", "assistant", "Rain."),
    ]


def test_a_compaction_part_of_a_trace_is_a_compaction() -> None:
    messages: list[Any] = [
        {"role": "user", "parts": [{"type": "text", "content": "q"}]},
        {"role": "assistant", "parts": [{"type": "compaction", "content": "They asked q."}]},
        {"role": "user", "parts": [{"type": "text", "content": "and?"}]},
    ]
    form = detect_log(messages)
    assert form is not None
    memory = MemoryManager(counter="chars4")
    memory.import_session(state_of_log("s", form.parse(messages), len))
    assert [entry.text for entry in memory.get_active_entries("s")] == ["They asked q.", "and?"]


@pytest.mark.parametrize("form", IMPORT_FORMATS, ids=lambda form: form.name)
def test_what_is_none_of_its_items_is_not_recognised(form: Any) -> None:
    for junk in ([], [None], [5], ["x"], [[]], [{}], [{"role": "user", "content": "x"}]):
        assert form.detect(junk) == 0


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ([{"from": "martian", "value": "x"}], "from 'martian'"),
        ([{"mapping": {}, "current_node": "n"}], "current_node 'n'"),
        ([{"role": "user", "parts": [{"type": "text"}]}, {"role": "x"}], "message 1"),
    ],
)
def test_what_cannot_be_read_is_named(items: list[Any], said: str) -> None:
    form = detect_log(items[:1])
    assert form is not None
    with pytest.raises(FormatError, match=said):
        form.parse(items)


def test_one_of_several_conversations_has_to_be_chosen(tmp_path: Path) -> None:
    talks = [{"id": name, "conversations": [{"from": "human", "value": name}]} for name in "ab"]
    path = tmp_path / "many.json"
    path.write_text(json.dumps(talks))
    run = CliRunner().invoke
    done = run(memman, ["import", str(path), "-o", str(tmp_path / "s.json")], standalone_mode=False)
    assert "2 conversations (1 'a'; 2 'b')" in str(done.exception)
    assert not (tmp_path / "s.json").exists()
    for chosen in ("2", "b"):
        to = str(tmp_path / f"{chosen}.json")
        done = run(memman, ["import", str(path), "--conversation", chosen, "-o", to])
        assert done.exit_code == 0, done.output
        assert json.loads(Path(to).read_text())["entries"][0]["content"] == "b"
