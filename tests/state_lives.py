"""Sessions of an agent that works on a task, for the laws of the outline."""

from __future__ import annotations

import random
from collections.abc import Iterable
from io import BytesIO
from typing import Any, Self

from memman import MemmanError, MemoryConfig, MemoryManager
from memman.formats.rules import check
from memman.log import History
from memman.state import State
from memman.testing import FakeClock, sequential_ids
from tests.kinds import InFile

SESSION = "s"
# Short messages in several scripts; the last has lines.
MESSAGES = (
    "Never touch migrations/0007.",
    "Deploy from the branch harvest-9 only.",
    "Никогда не удаляйте файл отчёта.",
    "请只在周五部署。",
    "لا تغير المنفذ 8443.",
    "ห้ามลบไฟล์รายงาน",
    "Two things:\n- tests first\n- no tags",
)
_WORDS = "the build of this part went well and nothing else was found in any of the files"
WORDS = _WORDS.split()


def vague(_text: str) -> str:
    """A summarizer that omits everything."""
    return "The agent worked on several files and some tests ran."


def text_of(context: Any) -> str:
    """The text of every message of a context, calls included."""
    return "\n".join(_texts(context.messages))


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)


def lacking(texts: Iterable[str], context: Any) -> list[str]:
    """The lines of these texts that a context does not show."""
    shown = text_of(context)
    return [line for text in texts for line in text.splitlines() if line.strip() not in shown]


def block(memory: MemoryManager, session: str = SESSION) -> State | None:
    """The outline of a session, as a manager has it now."""
    memory.get_stats(session)  # in step with the store
    state = memory._core.sessions.get(session).log.window.state
    return None if state is None else state.state


class Life:
    """A session in a store, and the manager that works on it."""

    def __init__(
        self, kind: Any = None, seed: int = 0, paths: int = 10_000, **settings: Any
    ) -> None:
        self.kind = kind or InFile()
        self.rng = random.Random(seed)
        self.paths = paths  # that its calls read
        self.named = {
            name: settings.pop(name)
            for name in ("summarizer", "keeps", "redact")
            if name in settings
        }
        self.config = MemoryConfig(**{"max_tokens": 4_000, **settings})
        self.clock, self.new_id = FakeClock(), sequential_ids()
        self.session = SESSION
        self.form = "openai-chat"
        self.said: list[str] = []
        self.said_tokens = 0
        self.turns = 0
        self.memory = self.manager()

    def manager(self, **named: Any) -> MemoryManager:
        """Another manager over the same store."""
        given = {"counter": "chars4", "config": self.config, **self.named, **named}
        return MemoryManager(self.kind.open(), clock=self.clock, new_id=self.new_id, **given)

    def close(self) -> None:
        self.memory.close()
        self.kind.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------ steps

    def say(self, text: str) -> None:
        """Say something, unless the user's messages would be 5 % of the budget or more."""
        tokens = -(-len(text) // 4)
        if self.said_tokens + tokens < self.config.max_tokens // 20:
            self.memory.add_user_message(self.session, text)
            self.said.append(text)
            self.said_tokens += tokens

    def work(self, turns: int = 10, words: int = 40, parallel: int = 1) -> None:
        """Call tools, some of them in parallel, and comment on their results."""
        for _ in range(turns):
            self.turns += 1
            names = [f"c{self.turns}-{n}" for n in range(parallel)]
            for name in names:
                path = f"src/part{self.rng.randrange(self.paths)}.py"
                self.memory.add_tool_call(self.session, "read", {"path": path}, call_id=name)
            for name in names:
                self.memory.add_tool_result(self.session, "read", self.prose(words), call_id=name)
            if self.turns % 4 == 0:
                self.memory.add_assistant_message(self.session, self.prose(12))

    def prose(self, words: int) -> str:
        return " ".join([*self.rng.choices(WORDS, k=words), f"mark-{self.rng.randrange(10**6)}"])

    def context(self, **named: Any) -> Any:
        """A context that is checked to be valid and within the budget."""
        context = self.memory.build_context(self.session, format=self.form, **named)
        assert not context.messages or not check(context.messages, self.form, system=context.system)
        assert context.tokens.tokens <= context.budget
        return context

    def restart(self) -> None:
        self.memory.close()
        self.memory = self.manager()

    def fork(self) -> None:
        self.session = self.memory.fork_session(self.session, f"fork{self.new_id()}")

    def export(self) -> None:
        document = self.memory.export_session(self.session)
        self.session = self.memory.import_session(document, on_conflict="new_session")

    def archive(self) -> None:
        packed = BytesIO()
        self.memory.export_archive(self.session, packed)
        packed.seek(0)
        self.session = self.memory.import_archive(packed, on_conflict="new_session")

    def tried(self, step: str, *given: Any, **named: Any) -> Any:
        """The result of a method of the manager; None if it is refused."""
        try:
            return getattr(self.memory, step)(self.session, *given, **named)
        except MemmanError:
            return None

    # ------------------------------------------------------------ what holds

    def check_said(self, **named: Any) -> None:
        """Every message of the user is in the context."""
        gone = lacking(self.said, self.context(**named))
        assert not gone, f"not in the context after {self.turns} turns: {gone}"

    def check_folds(self) -> None:
        """The live block, that of a fresh manager and that of the log's fold are equal."""
        live = block(self.memory, self.session)
        with self.manager() as other:
            assert block(other, self.session) == live
            fresh = other._core.sessions.get(self.session).log.window
        window = self.memory._core.sessions.get(self.session).log.window
        assert (fresh.tokens, fresh.shares.get("state", 0)) == (
            window.tokens,
            window.shares.get("state", 0),
        )
        store = self.kind.open()
        folded = History.of(every(store, self.session)).state.window
        assert (folded.state and folded.state.state) == live
        if live is not None:
            assert window.state is not None
            assert fresh.state is not None
            assert folded.state is not None
            places = {each.state.item.place() for each in (window, fresh, folded)}
            assert len(places) == 1
            assert live.token_count.tokens >= len(live.text) // 4


def every(store: Any, session: str) -> list[Any]:
    """The whole log of a session."""
    found: list[Any] = []
    while page := store.read(session, len(found)):
        found += page
    return found


def file_bytes(kind: InFile) -> bytes:
    """Everything that is in the files of a SQLite store."""
    from pathlib import Path

    return b"".join(path.read_bytes() for path in Path(kind.url).parent.iterdir())
