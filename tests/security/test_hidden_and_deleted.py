"""Texts that `redact` hides or a deletion removes are nowhere afterwards."""

from __future__ import annotations

import re
import traceback
from pathlib import Path
from typing import Any

import msgspec
import pytest
from memman_cli.report import render

from memman import Entry, InvalidInput, MemmanError, MemoryConfig, MemoryManager, StoreError

_PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "redact.md"
_CANARY = "sk-abcdef123456"
_SMALL = MemoryConfig(
    max_tokens=900, recent_window=0, min_entries_to_compress=1, auto_compress=False
)


def _redact_of_the_page() -> Any:
    """The function that the documentation shows."""
    block = _PAGE.read_text().partition("```python\n")[2].partition("\nmemory = ")[0]
    names: dict[str, Any] = {}
    exec(block, names)  # noqa: S102 - our own page
    return names["redact"]


def test_documented_redact_leaves_the_secret_nowhere(tmp_path: Path) -> None:
    """The page's `redact` hides a secret in every place of an entry, and in a focus"""
    requests: list[str] = []

    def summarize(prompt: str) -> str:
        requests.append(prompt)
        return "Goal: fine 123"

    path = tmp_path / "chat.db"
    memory = MemoryManager(
        path, redact=_redact_of_the_page(), summarizer=summarize, config=_SMALL, counter="chars4"
    )
    memory.add_user_message("s", f"key {_CANARY}", message_id=_CANARY, metadata={"k": _CANARY})
    memory.add_tool_call("s", _CANARY, {"k": _CANARY}, call_id=_CANARY)
    memory.add_tool_result("s", _CANARY, _CANARY, call_id=_CANARY)
    memory.add_context("s", "x", _CANARY)
    image = {"type": "image_url", "image_url": {"url": f"https://h/?k={_CANARY}"}}
    memory.add_messages("s", [{"role": "user", "content": [image], "name": _CANARY}])
    for number in range(10):
        memory.add_user_message("s", f"{number} " + "w " * 60)
    memory.compress("s", focus=f"about {_CANARY}", summarize=True)
    assert requests
    assert not [prompt for prompt in requests if _CANARY in prompt]
    assert _CANARY not in memory.export_session("s").to_json()
    memory.close()
    assert _CANARY.encode() not in path.read_bytes()


def _refuses(entry: Entry) -> Entry:
    raise RuntimeError(f"cannot handle {entry.text}")


def _returns_too_much(entry: Entry) -> Entry:
    return msgspec.structs.replace(entry, name=f"{entry.text}\ud800")


@pytest.mark.parametrize("redact", [_refuses, _returns_too_much])
def test_failing_redact_does_not_quote_the_secret(redact: Any) -> None:
    """Neither the error of a failing `redact` nor its traceback has the secret"""
    memory = MemoryManager(redact=redact)
    with pytest.raises(InvalidInput) as raised:
        memory.add_user_message("s", f"key {_CANARY}")
    assert _CANARY not in "".join(traceback.format_exception(raised.value)).replace(
        f'"key {_CANARY}"', ""
    )
    assert raised.value.__cause__ is None


def test_deleted_entry_leaves_its_message_id_nowhere(tmp_path: Path) -> None:
    """A deletion removes content, names and every id but the entry's own"""
    path = tmp_path / "chat.db"
    memory = MemoryManager(path, config=_SMALL, counter="chars4")
    ids = []
    for number in range(8):
        text = f"note {number} of {_CANARY} " + "w " * 60
        kept = {"tag": _CANARY}
        message = f"m{number}-{_CANARY}"
        ids.append(memory.add_user_message("s", text, message_id=message, metadata=kept).id)
    ids.append(memory.add_tool_call("s", f"t_{_CANARY}", {"k": _CANARY}, call_id=_CANARY).id)
    memory.add_user_message("s", "go on")
    memory.compress("s")
    memory.delete_entries("s", ids)
    memory.export_archive("s", tmp_path / "a.jsonl")
    assert _CANARY not in memory.export_session("s").to_json()
    assert _CANARY not in (tmp_path / "a.jsonl").read_text()
    assert _CANARY not in render(memory, "s")
    memory.close()
    assert _CANARY.encode() not in path.read_bytes()


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///x?key={}",
        "sqlite:///x?password={}",
        "sqlite://user:{}@host/x",
        "sqlite://?key={}",
        "redis://user:{}@host/x",
    ],
)
def test_password_in_a_url_is_not_repeated(url: str) -> None:
    """No error about a store's URL has the password in it"""
    with pytest.raises((StoreError, MemmanError)) as raised:
        MemoryManager(url.format(_CANARY))
    assert _CANARY not in str(raised.value)


@pytest.mark.parametrize(
    "message",
    [
        {"role": "w" * 5_000, "content": "x"},
        {"role": "user", "content": {"k": "w" * 5_000}},
        {"nothing": "w" * 5_000},
    ],
)
def test_error_quotes_a_short_piece_of_a_message(message: dict[str, Any]) -> None:
    """An error about a message quotes at most a short piece of it"""
    with pytest.raises(MemmanError) as raised:
        MemoryManager().add_messages("s", [message])
    assert not re.search("w{100}", str(raised.value))
