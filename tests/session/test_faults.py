"""A fault at every step of a compression: it is committed whole or not at all, with its event.

The faults are in the protocols of a user: the store, the counter and the summarizer. Each call
of each of them is a step; a fault strikes before or after it.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from memman import CompressionFailed, MemmanError, MemoryManager, events
from memman.log import History
from memman.records import Compressed, Record, encode
from memman.stores import MemoryStore
from memman.testing import Delayed, record_events
from tests.apis import APIS, SESSION, SyncUse, words
from tests.oracle import Oracle

METHODS = (
    "append", "commit", "load", "state", "read", "find", "feed", "lease", "erase", "sessions", "delete",
)  # fmt: skip


class Killed(BaseException):
    """A `BaseException` that must not be swallowed."""


class Steps:
    """A counter of the calls of protocols while armed, which fails at one of them."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.armed = False
        self.at = 0
        self.after = False
        self.strike: Callable[[], None] = lambda: None

    def call(self, name: str, method: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
        if not self.armed:
            return method(*args, **keywords)
        self.names.append(name)
        mine = len(self.names) == self.at
        if mine and not self.after:
            self.strike()
        answer = method(*args, **keywords)
        if mine and self.after:
            self.strike()
        return answer


class FaultyStore:
    """A store in memory; each of its methods is a step."""

    blocking = False

    def __init__(self, steps: Steps) -> None:
        self.inner = MemoryStore()
        for name in METHODS:
            setattr(self, name, functools.partial(steps.call, name, getattr(self.inner, name)))

    def close(self) -> None:
        self.inner.close()


class AwaitedFaultyStore(FaultyStore):
    """The same with awaitable methods: a cancellation comes before or after each one."""

    def __init__(self, steps: Steps) -> None:
        super().__init__(steps)
        for name in METHODS:
            setattr(self, name, functools.partial(self._awaited, getattr(self, name)))

    async def _awaited(self, method: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
        await asyncio.sleep(0)
        answer = method(*args, **keywords)
        await asyncio.sleep(0)
        return answer


class Scene:
    """Return a session before its compression, with a step at every call of a protocol."""

    def __init__(self, api: str, exclusive: bool, **settings: Any) -> None:
        self.steps = Steps()
        self.store = (FaultyStore if api == "sync" else AwaitedFaultyStore)(self.steps)
        self.use: SyncUse = APIS[api](
            self._summary, store=self.store, counter=self._counted, exclusive=exclusive,
            summarize_timeout=None, recent_window=1, **settings,
        )  # fmt: skip
        self.use.do("add_tool_call", "read", {"path": "a.txt"}, call_id="c1", compress=False)
        self.use.do("add_tool_result", "read", "x " * 60, call_id="c1", compress=False)
        for number in range(4):
            self.use.do("add_user_message", f"n{number} " + "word " * 9, compress=False)
        # A stub in the old part: its original is read again for the summary.
        self.use.do("compress", target_tokens=60)
        self.use.do("add_user_message", "the newest " + "word " * 9, compress=False)
        self.before = self.log()

    def _counted(self, text: str) -> int:
        return self.steps.call("count", words, text)

    def _summary(self, request: Any) -> str:
        return self.steps.call("summarize", lambda: "short")

    def log(self) -> list[tuple[int, Record]]:
        return list(self.store.inner.read(SESSION, 0, 10_000))

    def run(self, verb: str, *args: Any, **keywords: Any) -> Any:
        """Call one method with the steps counted; return its answer or its error."""
        self.steps.armed = True
        session = self.use.core.sessions.find(SESSION)
        try:
            answer = self.use.do(verb, *args, **keywords)
        except (OSError, MemmanError, Killed, KeyboardInterrupt, asyncio.CancelledError) as error:
            answer = error
        self.use.until(lambda: not session.compressor.is_running)
        self.steps.armed = False
        return answer


def done(scene: Scene, emitted: list[events.Event], may_add: bool = False) -> bool:
    """Return whether the compression is done; check that it is whole and emitted."""
    active = scene.use.do("get_active_entries")  # reads the store again if needed
    log = scene.log()
    fresh = [record for _, record in log[len(scene.before) :]]
    assert log[: len(scene.before)] == scene.before
    compressions = [record for record in fresh if isinstance(record, Compressed)]
    assert len(compressions) <= 1
    assert len(fresh) - len(compressions) <= may_add
    assert Oracle.of(log).window() == [entry.id for entry in active]
    snapshot = scene.store.inner.load(SESSION)
    folded = History.of(log)
    assert [place for place, _ in snapshot.window] == [
        item.place() for item in folded.state.window.stored_items
    ]
    stats = scene.use.do("get_stats")
    assert stats.active_tokens == sum(entry.token_count.tokens for entry in active)
    assert stats.total_entries == len(scene.use.do("get_entries"))
    exported = scene.use.do("export_session")
    assert [record.id for record in exported.log] == [record.id for _, record in log]
    again = MemoryManager(counter=words)
    again.import_session(exported)
    assert [entry.id for entry in again.get_active_entries(SESSION)] == [e.id for e in active]
    scene.use.do("add_user_message", "the next", compress=False)  # which emits the events found
    results = [event for event in emitted if isinstance(event, events.CompressionResult)]
    assert [event.compression_id for event in results] == [each.id for each in compressions]
    return bool(compressions)


def struck(
    api: str, exclusive: bool, strike: str, verb: tuple[Any, ...], **settings: Any
) -> Iterator[tuple[Scene, Any, list[events.Event], str]]:
    """Run the scene with a fault before and after each step; return the outcomes and the steps' names."""
    clean = Scene(api, exclusive, **settings)
    clean.run(*verb)
    names = clean.steps.names
    assert {"commit", "find", "count", "summarize"} <= set(names)
    clean.use.end()
    for at, name in enumerate(names, 1):
        for after in (False, True):
            scene = Scene(api, exclusive, **settings)
            scene.steps.at, scene.steps.after = at, after
            scene.steps.strike = functools.partial(_strike, scene, strike)
            with record_events(scene.use.memory) as emitted:
                outcome = scene.run(*verb)
                assert len(scene.steps.names) >= at, "the step was not reached"
                yield scene, outcome, emitted, f"{'after' if after else 'before'} {name} ({at})"
            scene.use.end()


def _strike(scene: Scene, kind: str) -> None:
    if kind == "cancel":
        scene.use.task.cancel()  # type: ignore[attr-defined]
        return
    raise {"error": OSError("fault"), "killed": Killed(), "interrupt": KeyboardInterrupt()}[kind]


CASES = [
    ("sync", "error"), ("sync", "killed"), ("sync", "interrupt"),
    ("async", "error"), ("async", "killed"), ("async", "cancel"),
    ("aio", "error"), ("aio", "killed"),
]  # fmt: skip


MODES = [
    pytest.param(
        *case, exclusive, marks=pytest.mark.long if exclusive and case[0] != "sync" else ()
    )
    for exclusive in (True, False)
    for case in CASES
]


@pytest.mark.parametrize(("api", "strike", "exclusive"), MODES)
def test_fault_at_any_step_leaves_a_compression_whole_or_undone(
    api: str, strike: str, exclusive: bool
) -> None:
    outcomes = set()
    for scene, outcome, emitted, where in struck(api, exclusive, strike, ("compress",)):
        whole = done(scene, emitted)
        outcomes.add(whole)
        if isinstance(outcome, events.CompressionResult):
            assert whole is (outcome.compression_id is not None), where
        if strike in ("killed", "interrupt"):
            assert isinstance(outcome, Killed | KeyboardInterrupt), f"{where} was swallowed"
        # The session continues.
        scene.use.do("add_user_message", "later " * 30, compress=False)
        assert scene.use.do("compress").tokens_after <= 100, where
        assert len(History.of(scene.log()).items) == len(scene.use.do("get_active_entries"))
    assert outcomes == {True, False}


@pytest.mark.parametrize(("api", "strike", "exclusive"), MODES)
def test_fault_at_any_step_of_an_add_keeps_acknowledged_entries(
    api: str, strike: str, exclusive: bool
) -> None:
    adding = ("add_user_message", "and " * 60)
    for scene, outcome, emitted, where in struck(api, exclusive, strike, adding):
        whole = done(scene, emitted, may_add=True)
        texts = [entry.text for entry in scene.use.do("get_entries")]
        assert texts.count("and " * 60) <= 1
        if whole or not isinstance(outcome, BaseException):
            assert texts[-2] == "and " * 60, f"acknowledged and lost: {where}"
        assert not isinstance(outcome, MemmanError), (
            f"{where}: {outcome!r} reached the caller of add"
        )


@pytest.mark.parametrize("api", APIS)
def test_background_fault_leaves_a_compression_whole_or_undone(api: str) -> None:
    adding = ("add_user_message", "and " * 60)
    outcomes = set()
    for scene, outcome, emitted, _ in struck(api, False, "error", adding, background=True):
        whole = done(scene, emitted, may_add=True)
        outcomes.add(whole)
        failed = [event for event in emitted if isinstance(event, events.CompressionFailedNotice)]
        assert whole or isinstance(outcome, OSError) or failed, "the failure was not emitted"
    assert outcomes == {True, False}


# ---------------------------------------------------------------- a summarizer that misbehaves

GOOD = "a good summary"
REPLIES: dict[str, Callable[[SyncUse], tuple[Any, ...]]] = {
    "raises": lambda use: (OSError("429"),),
    "hangs": lambda use: (Delayed("late", use.gate()),),
    "is cancelled": lambda use: (asyncio.CancelledError(),),
    "says nothing": lambda use: ("",),
    "says ten times the target": lambda use: (
        lambda request: "word " * 10 * request.target_tokens,
    ),
    "says the prompt": lambda use: (lambda request: request.prompt + " and more" * 50,),
    "alternates": lambda use: ("", GOOD),
    "is slow": lambda use: (Delayed(GOOD, 0.002),),
}


@pytest.mark.parametrize("on_failure", ["fallback", "keep", "raise"])
@pytest.mark.parametrize("how", REPLIES)
@pytest.mark.parametrize("api", APIS)
def test_any_summarizer_leaves_the_window_whole_or_unchanged(
    api: str, how: str, on_failure: str
) -> None:
    use: SyncUse = APIS[api](on_failure=on_failure, summarize_timeout=0.05, max_tokens=500)
    use.scripted.replies = REPLIES[how](use)
    for number in range(9):
        use.do("add_user_message", f"n{number} " + "word " * 49, compress=False)
    before = use.do("export_session"), use.do("get_active_entries"), use.do("get_stats")
    with record_events(use.memory) as emitted:
        try:
            result = use.do("compress")
        except CompressionFailed as error:
            result = error
    good = how in ("alternates", "is slow")
    notices = [event for event in emitted if isinstance(event, events.CompressionFailedNotice)]
    assert len(notices) == (not good)
    if good or on_failure == "fallback":
        assert {item.method for item in result.replacements} == {"summary" if good else "outline"}
        assert emitted[-1] == result
        assert use.do("get_stats").active_tokens == result.tokens_after <= 250
        assert all(notice.fallback == "outline" for notice in notices)
    else:
        assert isinstance(result, CompressionFailed) is (on_failure == "raise")
        after = use.do("export_session"), use.do("get_active_entries"), use.do("get_stats")
        expected = msgspec.structs.replace(after[2], cost=before[2].cost)
        assert (*after[:2], expected) == before
        assert after[2].cost.calls >= 1  # a failed call was paid for, too
        assert [notice.fallback for notice in notices] == ["nothing was changed"]
    use.end()


def test_the_steps_are_those_of_every_port() -> None:
    scene = Scene("sync", exclusive=False)
    scene.run("compress")
    assert {"state", "find", "commit", "count", "summarize"} <= set(scene.steps.names)
    assert encode(scene.log()[-1][1]).startswith(b"{")
