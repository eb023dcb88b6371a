"""Read-only logs: their entries and their compactions."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from memman_cli.app import memman
from memman_cli.conversion import state_of_log
from memman_cli.log_formats import IMPORT_FORMATS
from memman_cli.logs import read_log

from memman import Entry, FormatError, MemoryManager, PluginNotFound
from memman.archive.document import records_of
from memman.formats.plain import LOGS
from memman.formats.rules import RULES, check
from memman.records import Compressed

SAMPLES = Path(__file__).parent / "samples"
FILES = sorted(SAMPLES.iterdir())


def loaded(name: str) -> MemoryManager:
    memory = MemoryManager(counter="chars4")
    memory.import_session(state_of_log("s", read_log(str(SAMPLES / name)).read(), len))
    return memory


def live(memory: MemoryManager) -> list[Entry]:
    """The entries that no branch left behind."""
    entries = memory.get_entries("s")
    behind = {
        name
        for record in records_of(memory.export_session("s"))
        if isinstance(record, Compressed)
        for item in record.replacements
        if item.method == "drop"
        for name in item.ids
    }
    return [entry for entry in entries if entry.id not in behind]


def read_items(path: Path) -> list[Any]:
    """Return the lines of a JSONL file, or the elements of a JSON list."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".txt":
        return [text]
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines()]
    found = json.loads(text)
    return found if isinstance(found, list) else [found]


def shapes(entries: list[Entry]) -> list[tuple[str, str, str]]:
    return [(entry.type, entry.role, entry.text) for entry in entries]


def detect_log(items: list[Any]) -> Any:
    """The format that recognises the first items of a file, None for none."""
    best = max(IMPORT_FORMATS, key=lambda form: form.detect(items))
    return best if best.detect(items) > 0 else None


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_each_log_file_is_recognised(path: Path) -> None:
    assert read_log(str(path)).format == path.stem


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_library_names_the_package_for_a_log(path: Path) -> None:
    items = read_items(path)
    if detect_log(items) is None:
        pytest.skip("the library reads these messages itself")
    memory = MemoryManager()
    with pytest.raises(FormatError, match=r"`memman import FILE` reads it \(.*memman-cli"):
        memory.add_messages("s", items)
    with pytest.raises(
        PluginNotFound, match=r"a log: `memman import FILE` reads it \(.*memman-cli"
    ):
        memory.add_messages("s", items, path.stem)
    assert memory.list_sessions() == []


@pytest.mark.parametrize("form", IMPORT_FORMATS, ids=lambda form: form.name)
def test_library_knows_the_name_of_each_log(form: Any) -> None:
    assert form.name in LOGS


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
    assert shapes(live(memory)) == [
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
    first, *_ = live(memory)
    assert first.timestamp.isoformat() == "2026-03-01T10:00:01+00:00"
    calls = live(memory)[1:4]
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
    memory.undo_compression("s", compactions(memory)[-1].id)
    assert len(memory.get_active_entries("s")) == 9


def compactions(memory: MemoryManager) -> list[Compressed]:
    return [r for r in records_of(memory.export_session("s")) if isinstance(r, Compressed)]


def test_abandoned_branch_is_in_the_log_and_restorable() -> None:
    memory = loaded("claude-code.jsonl")
    dropped, compacted = compactions(memory)
    assert dropped.reason == "left behind: the conversation went on from an earlier message"
    assert [item.method for item in dropped.replacements] == ["drop"]
    [entry] = [memory.get_entry("s", name) for name in dropped.replacements[0].ids]
    assert (entry.text, entry.compressed) == ("An answer that was abandoned.", True)
    memory.undo_compression("s", compacted.id)
    memory.undo_compression("s", dropped.id)
    assert [entry.text for entry in memory.get_active_entries("s")][:2] == [
        "Read a.py and b.py.", "An answer that was abandoned.",
    ]  # fmt: skip


def claude(*lines: dict[str, Any]) -> list[dict[str, Any]]:
    """Lines of a session file, as short as they can be."""
    return [{"sessionId": "s1", "parentUuid": None, **line} for line in lines]


def turn(uuid: str, parent: str | None, text: str, kind: str = "user", **more: Any) -> Any:
    message = {"role": kind, "content": text}
    return {"type": kind, "uuid": uuid, "parentUuid": parent, "message": message, **more}


BOUNDARY = {"type": "system", "subtype": "compact_boundary", "uuid": "c"}
ODD_GRAPHS: dict[str, tuple[list[Any], list[str], list[str]]] = {
    "a first prompt that was written anew": (
        [turn("1", None, "a"), turn("2", "1", "b", "assistant"), turn("3", None, "c")],
        ["c"], ["a", "b"],
    ),
    "a branch in a branch": (
        [turn("1", None, "a"), turn("2", "1", "b"), turn("3", "2", "c"), turn("4", "2", "d"),
         turn("5", "1", "e")],
        ["a", "e"], ["b", "c", "d"],
    ),
    "two terminals that write in turns": (
        [turn("1", None, "a"), turn("2", "1", "left"), turn("3", "1", "right"), turn("4", "2", "left 2"),
         turn("5", "3", "right 2")],
        ["a", "right", "right 2"], ["left", "left 2"],
    ),
    "a compaction that was left behind": (
        [turn("1", None, "a"), turn("2", "1", "b"), {**BOUNDARY, "logicalParentUuid": "2"},
         turn("3", "c", "a and b", isCompactSummary=True), turn("4", "3", "d"), turn("5", "2", "e")],
        ["a", "b", "e"], ["a and b", "d"],
    ),
    "a boundary that does not say what came before": (
        [turn("1", None, "a"), BOUNDARY, turn("3", "c", "a was said", isCompactSummary=True),
         turn("4", "3", "b")],
        ["a was said", "b"], [],
    ),
    "a parent that is in another file": (
        [turn("1", None, "a"), turn("2", "gone", "b"), turn("3", "2", "c")], ["a", "b", "c"], [],
    ),
    "a line that was written twice": (
        [turn("1", None, "a"), turn("1", None, "a"), turn("2", "1", "b")], ["a", "b"], [],
    ),
    "a line that is its own ancestor": (
        [turn("1", "2", "a"), turn("2", "1", "b")], ["a", "b"], [],
    ),
    "a sub-agent's own file": (
        [turn("1", None, "a task", isSidechain=True), turn("2", "1", "done", isSidechain=True)],
        ["a task", "done"], [],
    ),
    "lines of kinds that are yet to come": (
        [{"type": "hologram", "shape": 1}, turn("1", None, "a"), {"type": "hologram", "uuid": "9"}],
        ["a"], [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD_GRAPHS)
def test_graph_is_read_with_live_and_abandoned_branches(name: str) -> None:
    lines, window, behind = ODD_GRAPHS[name]
    [form] = [form for form in IMPORT_FORMATS if form.name == "claude-code"]
    memory = MemoryManager(counter="chars4")
    memory.import_session(state_of_log("s", form.parse(claude(*lines)), len))
    assert [entry.text for entry in memory.get_active_entries("s")] == window
    dropped = [
        name
        for r in compactions(memory)
        for i in r.replacements
        if i.method == "drop"
        for name in i.ids
    ]
    assert [memory.get_entry("s", name).text for name in dropped] == behind


def test_logs_own_compactions_are_counted_in_window_tokens() -> None:
    memory = loaded("claude-code.jsonl")
    dropped, compacted = compactions(memory)
    text = {entry.id: entry.text for entry in memory.get_entries("s")}
    gone = sum(len(text[name]) for name in dropped.replacements[0].ids)
    assert dropped.tokens_before - dropped.tokens_after == gone
    assert compacted.tokens_before == sum(len(text[n]) for n in compacted.replacements[0].ids)
    assert compacted.tokens_after == len("They read a.py and b.py; each prints a number.")


def test_side_chains_are_left_out_and_reported(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        memman, ["import", str(SAMPLES / "claude-code.jsonl"), "-o", str(tmp_path / "s.json")]
    )
    assert "left out: 1 side chain of sub-agents (1 message)" in done.stderr.splitlines()


def test_micro_compactions_keep_the_cleared_results(tmp_path: Path) -> None:
    log, to = tmp_path / "log.jsonl", tmp_path / "s.json"
    boundary = {
        "type": "system",
        "subtype": "microcompact_boundary",
        "uuid": "m",
        "parentUuid": "1",
    }
    lines = claude(turn("1", None, "a"), boundary, turn("2", "m", "b", "assistant"))
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = CliRunner().invoke(memman, ["import", str(log), "-o", str(to)])
    assert "left out: 1 micro-compaction: the tool results" in done.stderr
    assert [entry["content"] for entry in json.loads(to.read_text())["entries"]] == ["a", "b"]


def test_without_branches_only_the_live_path_is_in_the_log(tmp_path: Path) -> None:
    to = tmp_path / "s.json"
    log = str(SAMPLES / "claude-code.jsonl")
    assert (
        CliRunner().invoke(memman, ["import", log, "--branch", "active", "-o", str(to)]).exit_code
        == 0
    )
    memory = MemoryManager(counter="chars4")
    memory.import_session(to.read_text())
    [session] = [info.session_id for info in memory.list_sessions()]
    assert "An answer that was abandoned." not in [e.text for e in memory.get_entries(session)]
    assert len(memory.get_entries(session)) == 9


def test_continued_claude_code_session_begins_with_its_summary() -> None:
    lines = [json.loads(line) for line in (SAMPLES / "claude-code.jsonl").read_text().splitlines()]
    [form] = [form for form in IMPORT_FORMATS if form.name == "claude-code"]
    memory = MemoryManager(counter="chars4")
    memory.import_session(state_of_log("s", form.parse(lines[11:]), len))
    assert [entry.type for entry in memory.get_active_entries("s")] == [
        "summary", "message", "message",
    ]  # fmt: skip


def test_codex_log_is_read_once_with_its_compaction() -> None:
    memory = loaded("codex.jsonl")
    assert [text for _, _, text in shapes(memory.get_entries("s"))] == [
        "Be brief.", "What is in a.py?", "", '{"command":["cat","a.py"]}', "print(1)", "It prints 1.",
        "And b.py?",
    ]  # fmt: skip
    assert shapes(memory.get_active_entries("s")) == [
        ("message", "system", "Be brief."),
        ("summary", "system", "The user asked about a.py, which prints 1."),
        ("message", "user", "And b.py?"),
    ]


def test_sharegpt_turns_come_in_order_with_their_other_keys() -> None:
    entries = loaded("sharegpt.json").get_entries("s")
    assert [(entry.type, entry.role) for entry in entries] == [
        ("message", "system"), ("message", "user"), ("message", "user"), ("tool_call", "assistant"),
        ("tool_result", "tool"), ("message", "assistant"),
    ]  # fmt: skip
    assert entries[-1].metadata == {"sharegpt": {"weight": 1}}


def test_a_chatgpt_export_is_read_from_its_current_node() -> None:
    memory = loaded("chatgpt-export.json")
    assert [entry.text for entry in memory.get_entries("s")][1] == "Five."  # a new question follows
    assert shapes(live(memory)) == [
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
def test_foreign_items_are_not_recognised(form: Any) -> None:
    for junk in ([], [None], [5], ["x"], [[]], [{}], [{"role": "user", "content": "x"}]):
        assert form.detect(junk) == 0


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([{"from": "martian", "value": "x"}], "from 'martian'"),
        ([{"mapping": {}, "current_node": "n"}], "current_node 'n'"),
        ([{"role": "user", "parts": [{"type": "text"}]}, {"role": "x"}], "message 1"),
    ],
)
def test_unreadable_item_is_named(items: list[Any], message: str) -> None:
    form = detect_log(items[:1])
    assert form is not None
    with pytest.raises(FormatError, match=message):
        list(form.parse(items))


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
