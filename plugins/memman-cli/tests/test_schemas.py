"""The published JSON Schemas match the code and the documents that memman writes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from generate_schemas import ANSWERS, file_content, schemas
from jsonschema import Draft202012Validator
from memman_cli import answers
from memman_cli.app import COMMANDS, memman

from memman import MemoryManager
from tests.docs.pages import DOCS, links

FOLDER = DOCS / "reference/schemas"
SCHEMAS = schemas()
WORDS = "Order ORD-8841 is on its way. " * 20
LOG = [
    {"role": role, "content": f"{number}: {WORDS}"}
    for number in range(8)
    for role in ("user", "assistant")
]
BROKEN = [{"role": "tool", "tool_call_id": "c9", "content": "nobody asked"}]

# Each JSON document of a command: its type, and the command line.
LINES = [
    (answers.DemoAnswer, "demo --file log.json --budget 2k -o played.json"),
    (answers.ImportFileAnswer, "import log.json -o other.json"),
    (answers.ImportAnswer, "import log.json"),
    (answers.ImportAnswer, "import s.json"),
    (answers.ImportDatabaseAnswer, "import s.json --into new.db"),
    (answers.SessionsAnswer, "sessions chat.db"),
    (answers.FollowAnswer, "follow chat.db --session trip --after 1 --timeout 0"),
    (answers.StatsAnswer, "stats small.json"),
    (answers.ShowAnswer, "show small.json --active"),
    (answers.EntryAnswer, "show s.json --entry 2"),
    (answers.BlockAnswer, "show small.json --outline"),
    (answers.SearchAnswer, "search small.json ORD-8841 --budget 2k"),
    (answers.SearchAnswer, "search chat.db hello"),
    (answers.CompressAnswer, "compress s.json --budget 1k -o smaller.json"),
    (answers.PlanAnswer, "compress s.json --budget 1k --dry-run"),
    (answers.PlanAnswer, "plan s.json --budget 1k"),
    (answers.DiffAnswer, "diff small.json"),
    (answers.WhyAnswer, "why small.json ORD-8841"),
    (answers.UndoAnswer, "undo small.json -o undone.json"),
    (answers.ExportAnswer, "export small.json -t anthropic"),
    (answers.ExportAnswer, "export s.json --budget 800"),
    (answers.ArchiveAnswer, "export s.json -t memman-jsonl -o s.jsonl"),
    (answers.ReportAnswer, "report small.json -o page.html"),
    (answers.ReportAnswer, "report log.json -o page.html"),
    (answers.VerifyAnswer, "verify s.json"),
    (answers.VerifyAnswer, "verify log.json"),
    (answers.CheckAnswer, "check log.json"),
    (answers.CheckAnswer, "check broken.json -t openai-chat"),
    (answers.FormatsAnswer, "formats"),
    (answers.CountAnswer, "count hello --model gpt-4o"),
    (answers.CountsAnswer, "count hello --all-counters"),
    (answers.CountersAnswer, "counters"),
    (answers.ExplainCounterAnswer, "counters explain gpt-4o"),
    (answers.ExplainCounterAnswer, "counters explain nobody-knows"),
    (answers.ModelsAnswer, "models gpt-4o"),
    (answers.CheckedModelsAnswer, "models --check names.txt"),
    (answers.PluginsAnswer, "plugins"),
    (answers.CheckedPluginAnswer, "plugins --check tiktoken --model gpt-4o"),
    (answers.ScaffoldAnswer, "plugins --scaffold acme"),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with logs, sessions and a database."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "log.json").write_text(json.dumps(LOG))
    (folder / "broken.json").write_text(json.dumps(BROKEN))
    (folder / "names.txt").write_text("gpt-4o gpt-99\n")
    with MemoryManager(str(folder / "chat.db")) as memory:
        memory.add_user_message("trip", "Hello")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for line in ("import log.json -o s.json", "compress s.json --budget 1k -o small.json"):
            assert CliRunner().invoke(memman, line.split()).exit_code == 0
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it as the working folder."""
    monkeypatch.delenv("MEMMAN_MODEL", raising=False)
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def faults(name: str, document: Any) -> list[str]:
    return [fault.message for fault in Draft202012Validator(SCHEMAS[name]).iter_errors(document)]


def test_schema_files_match_the_code() -> None:
    files = {file.stem: file.read_bytes() for file in FOLDER.glob("*.json")}
    assert files == {name: file_content(schema) for name, schema in SCHEMAS.items()}, (
        "run python .ci/generate_schemas.py docs/reference/schemas"
    )


def test_page_lists_every_schema_once() -> None:
    listed = [link for link in links(FOLDER / "README.md") if link.endswith(".json")]
    assert listed == [f"{name}.json" for name in SCHEMAS]


@pytest.mark.parametrize("name", SCHEMAS)
def test_schema_is_sound_and_complete(name: str) -> None:
    Draft202012Validator.check_schema(SCHEMAS[name])
    text = file_content(SCHEMAS[name]).decode()
    named = {line.split('"')[3] for line in text.splitlines() if '"$ref"' in line}
    assert {ref.removeprefix("#/$defs/") for ref in named} <= set(SCHEMAS[name]["$defs"])


def test_every_json_command_has_a_schema() -> None:
    answering = [
        str(command.name)
        for command in COMMANDS
        if any("--json" in option.opts for option in command.params)
    ]
    assert list(ANSWERS) == answering
    types = {kind for kinds in ANSWERS.values() for kind in kinds}
    assert types == set(answers.Answer.__subclasses__())
    assert types == {kind for kind, _ in LINES}


@pytest.mark.parametrize(("kind", "line"), LINES, ids=[line for _, line in LINES])
def test_answer_is_valid_against_its_schema(
    kind: type[answers.Answer], line: str, folder: Path
) -> None:
    done = CliRunner().invoke(memman, [*line.split(), "--json"])
    assert done.exit_code in (0, 1, 3), done.stderr
    document = json.loads(done.stdout)
    assert faults(f"{line.split()[0]}-answer", document) == []
    # The document has no key that its type, and so the schema, does not have.
    whole = msgspec.json.decode(done.stdout, type=kind)
    assert json.loads(msgspec.json.encode(whole)) == document


def test_session_document_is_valid_against_its_schema(folder: Path) -> None:
    document = json.loads(Path("small.json").read_text(encoding="utf-8"))
    assert faults("session", document) == []
    assert faults("session", {**document, "log": [{"kind": "unheard-of"}]}) != []
    assert faults("session", {**document, "entries": [{"id": 7}]}) != []


def test_record_is_valid_against_its_schema(folder: Path) -> None:
    with MemoryManager() as memory:
        memory.import_session(Path("small.json").read_bytes())
        memory.undo_compression("log")
        memory.pin("log", memory.get_entries("log")[3].id)
        memory.unpin("log", memory.get_entries("log")[3].id)
        memory.record_usage("log", {"prompt_tokens": 9, "completion_tokens": 1}, model="gpt-4o")
        memory.update_config("log", max_tokens=900)
        memory.delete_entries("log", [memory.get_entries("log")[0].id])
        memory.clear_session("log")
        records = [json.loads(msgspec.json.encode(item.record)) for item in memory.feed("log")]
    kinds = {record["kind"] for record in records}
    assert kinds == {
        "opened", "added", "compressed", "undone", "pinned", "deleted", "cleared", "configured", "usage",
    }  # fmt: skip
    assert [fault for record in records for fault in faults("record", record)] == []
    assert faults("record", {**records[0], "kind": "compressed"}) != []
