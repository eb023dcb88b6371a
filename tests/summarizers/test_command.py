"""A program as a summarizer: real programs, on this machine, correct and faulty."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from memman import (
    AsyncMemoryManager,
    InvalidInput,
    MemoryConfig,
    MemoryManager,
    SummarizerFailed,
    SummarizerUnavailable,
    SummaryRequest,
    events,
)
from memman.summarizers import CommandSummarizer
from memman.testing import SummarizerConformance, record_events
from tests.patience import PATIENCE

CONFIG = MemoryConfig(auto_compress=False, max_tokens=2_000, max_entries=None)
PYTHON = sys.executable
FIRST_WORDS = "import sys; print('They said:', ' '.join(sys.stdin.read().split()[:40]))"
Fill = Callable[[MemoryManager], MemoryManager]


def python(program: str) -> CommandSummarizer:
    return CommandSummarizer([PYTHON, "-c", program])


def within(request: SummaryRequest, seconds: float | None) -> SummaryRequest:
    return msgspec.structs.replace(request, timeout=seconds)


def running(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def gone(pid: int, patience: float = PATIENCE) -> bool:
    ends = time.monotonic() + patience
    while running(pid) and time.monotonic() < ends:
        time.sleep(0.02)
    return not running(pid)


class TestLaws(SummarizerConformance):
    def make_summarizer(self) -> CommandSummarizer:
        return python(FIRST_WORDS)


# ---------------------------------------------------------------- in both managers


def test_a_command_by_name_writes_the_summary_in_both_managers(filled: Fill) -> None:
    name = f"cmd:{shlex.quote(PYTHON)} -c {shlex.quote(FIRST_WORDS)}"
    memory = filled(MemoryManager(config=CONFIG, summarizer=name))
    result = memory.compress("s")
    summary, _ = memory.get_summaries("s")  # and the outline
    assert "They said:" in summary.content
    assert result.cost.calls == 1

    async def run() -> str:
        other = AsyncMemoryManager(config=CONFIG, summarizer=name)
        await other.import_session(filled(MemoryManager()).export_session("s"))
        await other.compress("s")
        found, _ = await other.get_summaries("s")
        return found.content

    assert "They said:" in asyncio.run(run())


def test_the_loop_goes_on_while_a_command_works(request_: SummaryRequest, tmp_path: Path) -> None:
    flag = tmp_path / "go on"
    program = f"import os, sys, time\nwhile not os.path.exists({str(flag)!r}): time.sleep(.01)\nprint('x')"

    async def run() -> bool:
        memory = AsyncMemoryManager(config=CONFIG, summarizer=python(program))
        for number in range(60):
            await memory.add_user_message("s", f"Question {number}: " + "why is it red? " * 6)
        work = asyncio.ensure_future(memory.compress("s"))
        await asyncio.sleep(0.1)
        flag.touch()  # this line needs a free event loop
        return bool((await work).replacements)

    assert asyncio.run(run())


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("import sys; sys.exit(3)", "ended with status 3"),
        ("", "the summary was empty"),
        ("print('word ' * 20_000)", "is the most"),
        ("import sys; sys.stdout.buffer.write(b'\\xff\\xfe')", "not UTF-8"),
    ],
)
def test_failing_command_is_reported_and_the_outline_used(
    program: str, reason: str, filled: Fill
) -> None:
    memory = filled(MemoryManager(config=CONFIG, summarizer=python(program)))
    with record_events(kinds=(events.CompressionFailedNotice,)) as emitted:
        result = memory.compress("s")
    assert "outline" in {item.method for item in result.replacements}
    [notice] = emitted
    assert reason in notice.reason  # type: ignore[attr-defined]


# ---------------------------------------------------------------- the command line


def test_the_prompt_is_on_stdin_and_stdout_is_the_summary(request_: SummaryRequest) -> None:
    reply = CommandSummarizer(["cat"]).summarize(request_)
    assert reply.text == request_.prompt
    assert (reply.usage, reply.model, reply.truncated, reply.refused) == (None, None, False, False)


def test_words_are_split_as_a_shell_does_and_no_shell_reads_them(request_: SummaryRequest) -> None:
    show = "import sys; print(sys.argv[1:])"
    line = f"{shlex.quote(PYTHON)} -c {shlex.quote(show)} 'two words' $HOME '|' cat \\; *"
    reply = CommandSummarizer.of_line(line).summarize(request_).text
    assert reply.strip() == str(["two words", "$HOME", "|", "cat", ";", "*"])


@pytest.mark.parametrize("name", ["cmd:", "cmd:   ", "cmd:''", "cmd:'' x"])
def test_a_name_without_a_program_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="write cmd:PROGRAM ARGS"):
        MemoryManager(summarizer=name)


def test_a_quote_that_is_left_open_is_refused() -> None:
    with pytest.raises(InvalidInput, match="No closing quotation"):
        MemoryManager(summarizer="cmd:llm 'unfinished")


@pytest.mark.parametrize("arguments", ["cat", [], [7], ["cat", None], ["cat", "a\0b"]])
def test_command_must_be_a_list_of_texts(arguments: Any) -> None:
    with pytest.raises(InvalidInput, match="a list of texts"):
        CommandSummarizer(arguments)


def test_missing_program_is_reported_at_once(tmp_path: Path) -> None:
    unmarked = tmp_path / "summarize"
    unmarked.write_text("#!/bin/sh\necho x\n")
    for program in ("no-such-program-anywhere", str(unmarked), str(tmp_path)):
        with pytest.raises(SummarizerUnavailable, match="not on PATH, or may not be run"):
            MemoryManager(summarizer=f"cmd:{program}")


def test_removed_program_is_reported_at_the_call(request_: SummaryRequest, tmp_path: Path) -> None:
    program = tmp_path / "summarize"
    program.write_text("#!/bin/sh\necho x\n")
    program.chmod(0o755)
    summarizer = CommandSummarizer([str(program)])
    program.unlink()
    with pytest.raises(SummarizerUnavailable, match="cannot be run"):
        summarizer.summarize(request_)


# ---------------------------------------------------------------- failures


def test_failure_has_status_and_stderr_but_no_arguments(
    request_: SummaryRequest,
) -> None:
    program = "import sys; sys.stderr.write('x' * 100_000 + ' no\\nquota'); sys.exit(4)"
    summarizer = CommandSummarizer([PYTHON, "-c", program, "--key", "secret-key"])
    with pytest.raises(SummarizerFailed, match=r"ended with status 4: x+ no quota$") as raised:
        summarizer.summarize(request_)
    assert "secret-key" not in str(raised.value)
    assert len(str(raised.value)) < 500


def test_signal_is_reported(request_: SummaryRequest) -> None:
    with pytest.raises(SummarizerFailed, match="was ended by signal 9"):
        python("import os; os.kill(os.getpid(), 9)").summarize(request_)


def test_invalid_utf8_is_reported(request_: SummaryRequest) -> None:
    with pytest.raises(SummarizerFailed, match="not UTF-8"):
        python("import sys; sys.stdout.buffer.write(b'caf\\xe9')").summarize(request_)


def test_a_program_that_reads_nothing_may_answer(request_: SummaryRequest) -> None:
    long = msgspec.structs.replace(request_, prompt="x" * 2_000_000)
    assert python("print('done')").summarize(long).text.strip() == "done"


def test_a_program_that_prints_for_ever_is_ended(request_: SummaryRequest) -> None:
    with pytest.raises(SummarizerFailed, match="printed more than 4,000,000 bytes"):
        CommandSummarizer(["yes"]).summarize(within(request_, 60))


def test_a_program_that_complains_for_ever_is_ended_in_time(request_: SummaryRequest) -> None:
    program = "import sys\nwhile True: sys.stderr.write('x' * 10_000)"
    began = time.monotonic()
    with pytest.raises(SummarizerFailed, match=r"longer than 0\.5 s"):
        python(program).summarize(within(request_, 0.5))
    assert time.monotonic() - began < PATIENCE


def test_at_the_time_out_all_that_it_started_is_ended(
    request_: SummaryRequest, tmp_path: Path
) -> None:
    note = tmp_path / "pids"
    program = f"sleep 60 & echo $$ $! > {note}; sleep 60"
    began = time.monotonic()
    with pytest.raises(SummarizerFailed, match="took longer than 2 s and was ended"):
        CommandSummarizer(["sh", "-c", program]).summarize(within(request_, 2))
    assert time.monotonic() - began < PATIENCE
    pids = [int(pid) for pid in note.read_text().split()]
    assert len(pids) == 2
    assert all(gone(pid) for pid in pids)


@pytest.mark.parametrize("end", ["", "os.kill(os.getpid(), signal.SIGINT); time.sleep(60)"])
def test_program_ends_with_its_owner_not_with_a_fork(end: str, tmp_path: Path) -> None:
    told = tmp_path / "pid"
    asking = f"""
import os, signal, sys, threading, time
from pathlib import Path
from memman import SummaryRequest
from memman.summarizers import CommandSummarizer

told = Path({str(told)!r})
asked = CommandSummarizer(["sh", "-c", 'echo $$ > "$0.new"; mv "$0.new" "$0"; sleep 60', str(told)])
request = SummaryRequest(prompt="", entries=(), target_tokens=9, previous_summary=None, timeout=60)
threading.Thread(target=asked.summarize, args=(request,), daemon=True).start()
while not told.exists():
    time.sleep(0.01)
signal.signal(signal.SIGINT, signal.default_int_handler)
child = os.fork()
if not child:
    sys.exit()
os.waitpid(child, 0)
os.kill(int(told.read_text()), 0)
print("still there", flush=True)
{end}
"""
    done = subprocess.run([PYTHON, "-c", asking], capture_output=True, text=True, timeout=PATIENCE)
    assert "still there" in done.stdout, done.stderr
    assert gone(int(told.read_text()))


def test_program_that_cannot_be_ended_is_reported(
    request_: SummaryRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[int] = []

    def forbidden(group: int, _signal: int) -> None:
        kept.append(group)
        raise PermissionError("not yours")

    with monkeypatch.context() as patch:
        patch.setattr("os.killpg", forbidden)
        with pytest.raises(SummarizerFailed, match="took longer"):
            python("import time; time.sleep(60)").summarize(within(request_, 0.3))
    [group] = kept
    os.killpg(group, signal.SIGKILL)
    assert gone(group)


def test_a_child_that_keeps_stdout_after_its_parent_is_ended_too(
    request_: SummaryRequest, tmp_path: Path
) -> None:
    note = tmp_path / "pid"
    program = f"sleep 60 & echo $! > {note}"
    with pytest.raises(SummarizerFailed, match="took longer"):
        CommandSummarizer(["sh", "-c", program]).summarize(within(request_, 2))
    assert gone(int(note.read_text()))


def test_a_program_that_closes_stdout_and_stays_is_ended(request_: SummaryRequest) -> None:
    closing = CommandSummarizer(["sh", "-c", "exec >&-; sleep 60"])
    with pytest.raises(SummarizerFailed, match="took longer"):
        closing.summarize(within(request_, 0.3))


def test_ten_failures_leave_no_file_open(request_: SummaryRequest) -> None:
    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    summarizer = python("import sys; sys.exit(1)")
    before = open_files()
    for _ in range(10):
        with pytest.raises(SummarizerFailed):
            summarizer.summarize(request_)
    ends = time.monotonic() + PATIENCE  # the reading threads close their pipes
    while open_files() > before and time.monotonic() < ends:
        time.sleep(0.02)
    assert open_files() <= before


def test_the_manager_goes_on_at_its_time_out(filled: Fill) -> None:
    config = CONFIG.updated({"summarize_timeout": 0.3})
    memory = filled(MemoryManager(config=config, summarizer="cmd:sleep 60"))
    began = time.monotonic()
    with record_events(kinds=(events.CompressionFailedNotice,)) as emitted:
        memory.compress("s")
    assert time.monotonic() - began < PATIENCE
    assert [notice for notice in emitted if "0.3 s" in notice.reason]  # type: ignore[attr-defined]
