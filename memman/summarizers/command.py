"""A program as a summarizer: it reads the prompt from stdin and prints the summary."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NoReturn

from memman.display import safe_repr
from memman.errors import InvalidInput, SummarizerFailed, SummarizerUnavailable
from memman.protocols import SummaryReply, SummaryRequest
from memman.runtime.threads import start_in_thread

if TYPE_CHECKING:
    from subprocess import Popen

_MOST_BYTES: Final = 4_000_000  # of a summary; longer output is not one
_SHOWN_CHARACTERS: Final = 300  # of the program's stderr
_LAST_WORDS: Final = 2_000  # bytes of stderr that are kept
# Few programs run without these.
_BASIC: Final = frozenset(
    ("PATH", "HOME", "USER", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT")
)
_AT_THE_END: Final = 1.0  # seconds for stderr, which other processes may hold open


class CommandSummarizer:
    """Runs a program for each summary, without a shell.

        MemoryManager(summarizer=CommandSummarizer(["llm", "-m", "gpt-4o-mini"]))

    The prompt goes to stdin and stdout is the summary, both in UTF-8. The program has the working
    directory of this process, and its environment unless `env` limits it. At `request.timeout`, and when
    this process ends, the program is killed with all its children; a cancelled compression leaves it
    running until then. Errors do not contain its arguments, which may hold a secret.

    Args:
        arguments: the program and its arguments, each a separate text.
        max_input_tokens: the most that it takes in one call, None if unknown.
        env: names of the environment variables that the program gets besides PATH, HOME and the like, such
            as `["OPENAI_API_KEY"]`; None for all of them.

    Raises:
        InvalidInput: `arguments` names no program, or `env` is not a list of names.
        SummarizerUnavailable: the program is missing, or may not be run.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        max_input_tokens: int | None = None,
        env: Sequence[str] | None = None,
    ) -> None:
        from shutil import which

        if isinstance(arguments, str) or not arguments or not all(map(_is_argument, arguments)):
            raise InvalidInput(
                f"a command is a list of texts, a program first, not {safe_repr(arguments, 60)}"
            )
        self._program = arguments[0]
        if which(self._program) is None:
            raise SummarizerUnavailable(
                f"the program {self._program!r} of the summarizer is not on PATH, or may not be run"
            )
        if env is not None and (isinstance(env, str) or not all(map(_is_argument, env))):
            raise InvalidInput(f"env is a list of names of variables, not {safe_repr(env, 60)}")
        self._arguments = tuple(arguments)
        self._env = None if env is None else frozenset(env) | _BASIC
        self.max_input_tokens = max_input_tokens

    @classmethod
    def of_line(cls, line: str) -> CommandSummarizer:
        """Return the summarizer of a line such as `llm -m gpt-4o-mini`, split like a POSIX shell."""
        import shlex

        try:
            words = shlex.split(line)
        except ValueError as error:
            raise InvalidInput(f"the command of a summarizer cannot be split: {error}") from None
        if not words or not words[0]:
            raise InvalidInput(f"'cmd:{line}' names no program; write cmd:PROGRAM ARGS")
        return cls(words)

    def summarize(self, request: SummaryRequest) -> SummaryReply:
        """Return the program's output. Raises `SummarizerFailed` with the reason of a failure."""
        output = self._run(request.prompt.encode(), request.timeout)
        try:
            return SummaryReply(text=output.decode())
        except UnicodeDecodeError as error:
            raise SummarizerFailed(
                f"{self._program} printed text that is not UTF-8: {error}"
            ) from None

    def _run(self, prompt: bytes, timeout: float | None) -> bytes:
        ends = None if timeout is None else monotonic() + timeout
        from subprocess import TimeoutExpired

        process = self._started()
        at_exit = partial(_end_of, os.getpid(), process)
        atexit.register(at_exit)  # an interrupted main thread leaves the waiting one behind
        start_in_thread(lambda: _fed(process.stdin, prompt))
        last_words = start_in_thread(lambda: _tail(process.stderr))
        try:
            output = start_in_thread(lambda: _read(process.stdout)).result(_left(ends))
            if len(output) > _MOST_BYTES:
                raise SummarizerFailed(f"{self._program} printed more than {_MOST_BYTES:,} bytes")
            status = process.wait(_left(ends))
        except (TimeoutError, TimeoutExpired):
            raise SummarizerFailed(
                f"{self._program} took longer than {timeout:g} s and was ended"
            ) from None
        finally:
            _end(process)
            atexit.unregister(at_exit)
        if status != 0:
            self._fail(status, last_words)
        return output

    def _started(self) -> Popen[bytes]:
        from subprocess import PIPE, Popen

        env = None  # all variables, as they are now
        if self._env is not None:
            env = {name: value for name, value in os.environ.items() if name in self._env}
        try:
            # A new session is a new process group, which can be killed as one.
            return Popen(
                self._arguments,
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                start_new_session=True,
                env=env,
            )
        except (OSError, ValueError) as error:
            raise SummarizerUnavailable(f"{self._program} cannot be run: {error}") from None

    def _fail(self, status: int, last_words: Future[bytes]) -> NoReturn:
        how = f"ended with status {status}" if status > 0 else f"was ended by signal {-status}"
        try:
            said = " ".join(last_words.result(_AT_THE_END).decode(errors="replace").split())
        except TimeoutError:
            said = ""
        words = f": {said[-_SHOWN_CHARACTERS:]}" if said else ""
        raise SummarizerFailed(f"{self._program} {how}{words}", exit_status=status)


def _is_argument(word: Any) -> bool:
    return isinstance(word, str) and "\0" not in word


def _left(ends: float | None) -> float | None:
    return None if ends is None else max(0.0, ends - monotonic())


def _fed(stream: Any, prompt: bytes) -> None:
    """Write the prompt; a program may ignore the rest of it."""
    with suppress(BrokenPipeError), stream:
        stream.write(prompt)


def _read(stream: Any) -> bytes:
    with stream:
        output: bytes = stream.read(_MOST_BYTES + 1)
        return output


def _tail(stream: Any) -> bytes:
    """Return the end of a stream, however long it is."""
    kept = b""
    with stream:
        for some in iter(partial(stream.read, 65_536), b""):
            kept = (kept + some)[-_LAST_WORDS:]
    return kept


def _end(process: Popen[bytes]) -> None:
    """End a program that still runs, with all its children."""
    if process.returncode is not None:
        return
    if _killed(process):
        process.wait()
    else:
        start_in_thread(process.wait)


def _end_of(owner: int, process: Popen[bytes]) -> None:
    """Kill the program when its owner ends, but not when a forked process does."""
    if os.getpid() == owner and process.returncode is None:
        _killed(process)


def _killed(process: Popen[bytes]) -> bool:
    """Kill a program and its children; return False if they run as another user (sudo)."""
    if sys.platform == "win32":
        process.kill()
        return True
    from signal import SIGKILL

    try:
        os.killpg(process.pid, SIGKILL)
    except ProcessLookupError:
        pass
    except PermissionError:
        return False
    return True
