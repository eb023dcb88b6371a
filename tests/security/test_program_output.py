"""The output of a failed summarizer is in no record."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from memman_cli.report import render

from memman import InvalidInput, MemoryConfig, MemoryManager
from memman.errors import SummarizerFailed
from memman.protocols import SummaryRequest
from memman.summarizers import CommandSummarizer

_CANARY = "sk-ant-ENVSECRET"
_REQUEST = SummaryRequest(prompt="p", entries=(), previous_summary=None, target_tokens=10)


def _program(code: str, **options: Any) -> CommandSummarizer:
    return CommandSummarizer([sys.executable, "-c", code], **options)


def _raising(prompt: str) -> str:
    raise ConnectionError(f"401 for {_CANARY}")


_COMPLAINS = f"import sys; sys.stderr.write('the key is {_CANARY}'); sys.exit(3)"


@pytest.mark.parametrize(
    ("summarizer", "kept"),
    [
        (lambda: _program(_COMPLAINS), "SummarizerFailed (exit status 3)"),
        (lambda: _raising, "ConnectionError"),
    ],
)
def test_words_of_a_failed_summarizer_are_not_stored(
    tmp_path: Path, summarizer: Callable[[], Any], kept: str
) -> None:
    """A record keeps type and exit status; the event has the words"""
    config = MemoryConfig(max_tokens=200, recent_window=0, min_entries_to_compress=1)
    memory = MemoryManager(tmp_path / "chat.db", summarizer=summarizer(), config=config)
    emitted: list[Any] = []
    memory.on("compression_failed", emitted.append)
    for number in range(8):
        memory.add_user_message("s", f"{number} " + "w " * 60)
    assert _CANARY in emitted[0].reason
    document = memory.export_session("s").to_json()
    assert kept in document
    assert _CANARY not in document
    assert _CANARY not in render(memory, "s")
    memory.close()
    assert _CANARY.encode() not in (tmp_path / "chat.db").read_bytes()


def test_program_gets_only_the_variables_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program gets only the variables of `env=`"""
    monkeypatch.setenv("MINE", "mine")
    monkeypatch.setenv("OTHERS", "others")
    code = (
        "import os; print(os.environ.get('MINE'), os.environ.get('OTHERS'), 'PATH' in os.environ)"
    )
    assert _program(code).summarize(_REQUEST).text.split() == ["mine", "others", "True"]
    named = _program(code, env=["MINE"]).summarize(_REQUEST)
    assert named.text.split() == ["mine", "None", "True"]


def test_exit_status_is_in_the_error() -> None:
    """`SummarizerFailed.exit_status` is the program's"""
    with pytest.raises(SummarizerFailed) as raised:
        _program("raise SystemExit(4)").summarize(_REQUEST)
    assert raised.value.exit_status == 4


def test_env_must_be_names() -> None:
    """A string in place of a list of names is refused"""
    with pytest.raises(InvalidInput, match="list of names"):
        _program("", env="PATH")
