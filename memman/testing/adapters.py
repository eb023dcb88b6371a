"""Conformance tests of framework adapters."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from functools import cached_property, partial
from logging import WARNING, LogRecord
from os.path import commonprefix
from pathlib import Path
from typing import Any, ClassVar, Final, TypeAlias
from unittest import SkipTest

from memman.compression import drop_oldest
from memman.config import MemoryConfig
from memman.entries import Entry, NewEntry, text_of
from memman.formats import format_named, plain_messages
from memman.formats.lenient import read_messages
from memman.manager import MemoryManager
from memman.records import UsageReported
from memman.testing.laws import in_threads, logged
from memman.testing.models import FakeModel, FakeModelError

Fact: TypeAlias = tuple[str, ...]
_AMPLE: Final = 1_000_000  # tokens, so that nothing is compressed
_RECALL_BUDGET: Final = 4_000  # tokens, at least
_RECALL_TURNS: Final = 60  # at most, of the streamed run and the sync run
_FEW: Final = 6  # turns
_STREAMED: Final = 60  # turns, with more than one compression in most frameworks
_ENTRIES_A_TURN: Final = 6  # a question, two calls, two results, an answer
_DRIFT: Final = 0.04  # a share; ids are random, prices in the driver's format differ a little
_SLACK: Final = 16  # tokens, likewise, and a note before a first message of the assistant
_ATTEMPTS: Final = 10
_REFUSALS: Final = 10  # at most, until a request is a quarter shorter often enough
_PATIENCE: Final = 300.0  # seconds, for twenty sessions on a slow machine
_SESSION_IDS: Final = ("x" * 300, "x" * 300 + "y", "tab\there\x00", "caf\u00e9/of a/b")


class AdapterDriver:
    """One conversation of a framework with memman's adapter in it, as a test drives it.

    A driver implements `run` and `history`. It implements the others too, except for capabilities that
    `AdapterConformance.lacks` names.
    """

    session_id: str
    """The memman session that has the conversation now."""

    @cached_property
    def events(self) -> list[str]:
        """The names of memman's events in the streams of all runs; `run` adds to it ("events")."""
        return []

    async def run(self, text: str, *, stream: bool = False) -> str:
        """Run a turn with the user's text, by the streaming call if `stream`, and return the answer."""
        raise NotImplementedError

    async def history(self) -> Sequence[Any]:
        """Return the framework's own full list of messages, read from the framework and not from memman."""
        raise NotImplementedError

    def run_sync(self, text: str) -> str:
        """Run a turn by the framework's call for code without an event loop ("sync")."""
        raise NotImplementedError("implement run_sync, or name `sync` in `lacks`")

    async def retry(self, text: str) -> str:
        """Run a turn again whose model call failed, as an application of this framework does."""
        return await self.run(text)

    def resume(self, memory: MemoryManager, model: FakeModel) -> AdapterDriver:
        """Return a driver of the same stored conversation, with nothing else of this process ("resume")."""
        raise NotImplementedError("implement resume, or name `resume` in `lacks`")

    async def fork(self, turns: int) -> AdapterDriver:
        """Return a driver of a second conversation that has all but the last `turns` turns ("fork")."""
        raise NotImplementedError("implement fork, or name `fork` in `lacks`")

    async def rewind(self, turns: int) -> None:
        """Remove the last `turns` turns from the framework's history ("rewind")."""
        raise NotImplementedError("implement rewind, or name `rewind` in `lacks`")

    def switch(self, model: FakeModel) -> None:
        """Make the next runs ask another model, in the same conversation ("switch")."""
        raise NotImplementedError("implement switch, or name `switch` in `lacks`")

    async def add_unknown(self, text: str) -> None:
        """Put a message with this text and of a kind unknown to memman into the history ("unknown")."""
        raise NotImplementedError("implement add_unknown, or name `unknown` in `lacks`")


class AdapterConformance:
    """The laws of a framework adapter: derive from it and implement `start`.

    The driver's agent has one tool, `read(path: str) -> str`, whose body is `await model.read(path)`, and a
    model that passes each request to `model.reply` and returns its reply to the framework, with its usage.
    If `model.recalls`, it also has the adapter's tool `recall`.
    """

    format: ClassVar[str] = "openai-chat"
    """The format of `AdapterDriver.history` and of the messages given to `FakeModel.reply`."""
    lacks: ClassVar[Mapping[str, str]] = {}
    """Capabilities that the framework does not have, with reasons; their laws are skipped.

    Names: sync, stream, native, resume, fork, rewind, cancel, retry, overflow, usage, surrogates, unknown,
    recall, switch, events, quotes.
    """
    turns: ClassVar[int] = 200
    """Turns of the long runs."""
    budget: ClassVar[int] = 2_500
    """Tokens of the long runs."""
    small_window: ClassVar[int] = 1_500
    """Tokens that a small model takes: more than the framework's prompt and one turn."""

    def start(self, memory: MemoryManager, session_id: str, model: FakeModel) -> AdapterDriver:
        """Return a driver of a new conversation that memman keeps under `session_id`.

        The budget is that of `memory`, and the framework's model is called `model.name`.
        """
        raise NotImplementedError

    def make_memory(self, budget: int, store: str | None = None) -> MemoryManager:
        """Return a manager with a budget in tokens, on a SQLite file if `store` is a path."""
        config = MemoryConfig(max_tokens=budget, max_entries=None)
        return MemoryManager(store, model=FakeModel.name, config=config)

    # ------------------------------------------------------------ long runs

    def test_long_run_fits_is_valid_and_is_logged_whole(self) -> None:
        with self._conversation(self.budget) as talk:
            self._check_long_run(talk, talk.play(self.turns))

    def test_long_streamed_run_fits_is_valid_and_is_logged_whole(self) -> None:
        with self._conversation(self.budget, needs="stream") as talk:
            self._check_long_run(talk, talk.play(self.turns, stream=True))

    def test_stream_has_an_event_before_and_after_each_compression(self) -> None:
        self._needs("stream", "events")
        for steps, words in ((1, 1), (0, self.budget // 25)):  # with tools, and in a plain chat
            done = list[object]()
            with self._conversation(self.budget, steps=steps) as talk:
                talk.memory.on("compress", done.append)
                questions = _questions(min(self.turns, _STREAMED))
                talk.say((text + " please" * words for text in questions), stream=True)
                assert len(done) > 1, "give the law a smaller budget"
                # The stream of a run may have ended when its answer was logged.
                assert len(done) - 1 <= talk.driver.events.count("memman.compressed") <= len(done)
                told = [name for name in talk.driver.events if name.startswith("memman.compress")]
                assert told == ["memman.compressing", "memman.compressed"] * (len(told) // 2)

    def test_long_sync_run_fits_is_valid_and_is_logged_whole(self) -> None:
        with self._conversation(self.budget, needs="sync") as talk:
            answers = [talk.driver.run_sync(text) for text in _questions(self.turns)]
            self._check_long_run(talk, answers)

    def test_forty_steps_in_one_turn_stay_within_the_budget(self) -> None:
        with self._conversation(self.budget, steps=40) as talk:
            talk.play(1)
            assert len(talk.model.requests) == 41
            talk.check(self.budget)

    def _check_long_run(self, talk: _Conversation, answers: list[str]) -> None:
        assert len(talk.model.requests) == 2 * self.turns, "one for the calls, one for the answer"
        facts = talk.check(self.budget)
        assert _texts(facts, "user") == list(_questions(self.turns))
        assert _texts(facts, "assistant") == answers
        assert _texts(facts, "result") == talk.model.results

    # ------------------------------------------------------------ recall

    def test_agent_recalls_what_it_read_many_turns_ago(self) -> None:
        with self._recalling() as talk:
            self._check_recall(talk, self.turns, talk.say)

    def test_agent_recalls_in_a_streamed_run(self) -> None:
        self._needs("stream")
        with self._recalling() as talk:
            self._check_recall(talk, min(self.turns, _RECALL_TURNS), partial(talk.say, stream=True))

    def test_agent_recalls_in_a_sync_run(self) -> None:
        self._needs("sync")
        with self._recalling() as talk:
            run, turns = talk.driver.run_sync, min(self.turns, _RECALL_TURNS)
            self._check_recall(talk, turns, lambda texts: [run(text) for text in texts])

    def _recalling(self) -> AbstractContextManager[_Conversation]:
        return self._conversation(max(self.budget, _RECALL_BUDGET), needs="recall", recalls=True)

    def _check_recall(
        self, talk: _Conversation, turns: int, run: Callable[[Iterable[str]], list[str]]
    ) -> None:
        """Check that the second half of the turns is answered by files that the first half read."""
        run(_questions(turns // 2))
        files = [result.splitlines() for result in talk.model.results[::2]]
        answers = run(f"Which rate has {path.removeprefix('# ')}?" for path, *_ in files)
        assert answers == [rate.removeprefix("rate = ") for _, rate, *_ in files]
        talk.check_requests(max(self.budget, _RECALL_BUDGET))
        assert any(fact[0] == "call" and fact[2] == "recall" for fact in talk.check_log())
        assert any("; recall #" in str(request.messages) for request in talk.model.requests), (
            "no notice names the tool: its RecallTool must exist as long as the session is used"
        )

    def test_old_message_comes_back_by_itself(self) -> None:
        with self._conversation(self.budget, needs="quotes") as talk:
            # Without an outline, which would show the sentence.
            talk.memory.update_config(strategy=(drop_oldest,), state_ratio=0, recall_ratio=0.2)
            talk.say(["The staging box answers to the name amber heron."])
            talk.play(_STREAMED)
            assert "amber heron" not in str(talk.model.requests[-1].messages)
            talk.say(["Which name has the staging box?"])
            assert "amber heron" in str(talk.model.requests[-1].messages)
            talk.check(self.budget)
            assert "[memman recalled: " not in talk.document()

    # ------------------------------------------------------------ loops, threads, sessions

    def test_each_turn_may_have_an_event_loop_of_its_own(self) -> None:
        with self._conversation(self.budget) as talk:
            for text in _questions(_FEW):
                asyncio.run(talk.driver.run(text))
            talk.check(self.budget)

    def test_twenty_sessions_in_four_threads_stay_apart(self) -> None:
        async def one(talk: _Conversation) -> None:
            for text in _questions(_FEW):
                await talk.driver.run(f"{text} in {talk.driver.session_id}")

        async def some(talks: list[_Conversation]) -> None:
            await asyncio.gather(*map(one, talks))

        with closing(self.make_memory(self.budget)) as memory:
            talks = [self._with(memory, f"s{n}") for n in range(20)]
            groups = [talks[n : n + 5] for n in range(0, 20, 5)]
            in_threads([partial(asyncio.run, some(group)) for group in groups], _PATIENCE)
            for talk in talks:
                talk.check_requests(self.budget)
                assert len(_texts(talk.check_log(), "user")) == _FEW

    # ------------------------------------------------------------ once, and unaltered

    def test_retried_turns_are_logged_once(self) -> None:
        fails = (3, 6, 7)  # the first and the second request of a turn, and a retried one
        with self._conversation(_AMPLE, needs="retry", fails=fails) as talk:
            asyncio.run(talk.persist(_FEW))
            talk.check(_AMPLE)
            talk.check_last_request()

    def test_native_parts_come_back_unaltered(self) -> None:
        with self._conversation(_AMPLE, needs="native", native=True) as talk:
            talk.play(_FEW)
            made = talk.model.natives
            sent = list(talk.model.requests[-1].natives)
            assert sent == made[:-1], "the last reply's comes later"
            document = talk.document()
            assert [native for native in made if native not in document] == []
            talk.check_log()

    def test_long_run_with_native_parts_is_valid(self) -> None:
        with self._conversation(self.budget, needs="native", native=True) as talk:
            talk.play(5 * _FEW)
            talk.check_requests(self.budget)
            assert any(request.natives for request in talk.model.requests[-5:])
            talk.check_log()

    def test_another_process_continues_without_rewriting(self) -> None:
        self._needs("resume")
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder, "chat.db"))
            with closing(self.make_memory(self.budget, path)) as memory:
                talk = self._with(memory, "s")
                talk.play(2 * _FEW)
                before = memory.export_session(talk.driver.session_id)
            with closing(self.make_memory(self.budget, path)) as memory:
                talk = talk.resumed(memory)
                talk.play(1)
                after = memory.export_session(talk.driver.session_id)
                assert after.log[: len(before.log)] == before.log, "the log was rewritten"
                assert len(after.entries) == len(before.entries) + _ENTRIES_A_TURN
                talk.check(self.budget)

    # ------------------------------------------------------------ edited histories

    def test_fork_shares_the_past_only(self) -> None:

        async def fork(driver: AdapterDriver) -> AdapterDriver:
            other = await driver.fork(2)
            await other.run("another way")
            await driver.run("the first way")
            await other.run("further on the other way")
            return other

        with self._conversation(_AMPLE, needs="fork") as talk:
            talk.play(_FEW)
            other = talk.of(asyncio.run(fork(talk.driver)))
            other.check_requests(_AMPLE)
            other.check_last_request()
            talk.check_log()
            other.check_log()
            assert talk.driver.session_id != other.driver.session_id

    def test_rewound_turn_leaves_the_context_and_not_the_log(self) -> None:

        async def rewind(driver: AdapterDriver) -> None:
            await driver.rewind(1)
            await driver.run("again, otherwise")

        with self._conversation(_AMPLE, needs="rewind") as talk:
            first = talk.driver.session_id
            talk.play(_FEW)
            asyncio.run(rewind(talk.driver))
            talk.check(_AMPLE)
            talk.check_last_request()
            *_, last = _questions(_FEW)
            assert last not in str(talk.model.requests[-1].messages)
            assert last in talk.memory.export_session(first).to_json(), "nothing is lost"

    def test_deleted_entry_stays_deleted(self) -> None:
        with self._conversation(_AMPLE) as talk:
            talk.play(2)
            session_id, lost = talk.driver.session_id, talk.model.results[0]
            doomed = [e.id for e in talk.memory.get_entries(session_id) if e.content == lost]
            assert len(doomed) == 1
            talk.memory.delete_entries(session_id, doomed)
            talk.play(2)
            talk.check_requests(_AMPLE)
            first_line = lost.splitlines()[0]
            assert first_line not in str(talk.model.requests[-1].messages)
            assert first_line not in talk.document()

    # ------------------------------------------------------------ interruptions

    def test_run_cancelled_inside_a_tool_can_be_continued(self) -> None:

        async def cancel(talk: _Conversation) -> None:
            run = asyncio.ensure_future(talk.driver.run("Is it slow?"))
            held = asyncio.ensure_future(talk.model.holding.wait())
            await asyncio.wait([run, held], return_when=asyncio.FIRST_COMPLETED)
            assert not run.done(), f"the run ended before its tool did: {run}"
            run.cancel()
            await asyncio.wait([run])

        with self._conversation(self.budget, needs="cancel", holds=1) as talk:
            asyncio.run(cancel(talk))
            talk.play(_FEW)
            talk.check(self.budget)

    def test_overflow_of_the_provider_is_survived(self) -> None:
        with self._conversation(self.budget, needs="overflow", limit=self.budget * 3 // 5) as talk:
            asyncio.run(talk.persist(4 * _FEW, talk.model))
            assert 1 <= talk.model.overflows <= 3, "the limit is learned from the first overflow"
            talk.check_log()

    def test_models_that_take_turns_keep_their_windows(self) -> None:
        self._needs("switch", "overflow")
        config = MemoryConfig(max_entries=None)
        with closing(MemoryManager(config=config, counter="chars4")) as memory:
            talk = self._with(memory, "s", name="house-large")
            small = FakeModel(
                memory, self.format, name="house-small", limit=self.small_window, is_silent=True
            )
            talk.play(4 * _FEW)
            expected = [talk.model.name] * len(talk.model.requests)
            assert talk.model.requests[-1].tokens > 2 * self.small_window
            for turn in range(3):
                before, refused = len(small.requests), small.overflows
                talk.driver.switch(small)
                asyncio.run(talk.persist(1, small))
                answered = len(small.requests) - before - (small.overflows - refused)
                assert turn == 0 or small.overflows == refused, "the limit is known from then on"
                before = len(talk.model.requests)
                talk.driver.switch(talk.model)
                talk.play(1)
                talk.check_last_request()
                expected += [small.name] * answered
                expected += [talk.model.name] * (len(talk.model.requests) - before)
            assert 1 <= small.overflows < _REFUSALS
            talk.check_requests(_AMPLE)
            talk.check_log()
            if "usage" not in self.lacks:
                log = memory.export_session(talk.driver.session_id).log
                reports = [record for record in log if isinstance(record, UsageReported)]
                assert [report.model for report in reports] == expected

    # ------------------------------------------------------------ usage

    def test_usage_of_every_request_is_recorded(self) -> None:
        with self._conversation(self.budget, needs="usage") as talk:
            talk.play(2 * _FEW)
            session_id = talk.driver.session_id
            log = talk.memory.export_session(session_id).log
            reports = [record for record in log if isinstance(record, UsageReported)]
            billed = [request.billed for request in talk.model.requests]
            assert [report.input_tokens for report in reports] == billed
            unpriced = billed[0] - reports[0].estimated
            assert abs(unpriced) <= _SLACK, f"{unpriced} tokens of the first request are not priced"
            drift = talk.memory.get_stats(session_id).drift
            assert drift is not None
            assert abs(drift) < _DRIFT, f"requests have {drift:+.1%} tokens more than contexts"

    def test_budget_holds_by_the_bill_of_a_dearer_model(self) -> None:
        with self._conversation(self.budget, needs="usage", factor=1.5) as talk:
            talk.play(4 * _FEW)
            later = talk.model.requests[4 * _FEW :]
            # Calibration by earlier bills gives an estimate of the next one.
            assert max(request.billed for request in later) <= 1.01 * self.budget

    def test_events_and_search_show_the_run(self) -> None:
        with self._conversation(self.budget) as talk:
            added: list[str] = []
            talk.memory.on("entry_added", lambda event: added.append(event.entry.id))
            talk.play(2 * _FEW)
            session_id = talk.driver.session_id
            assert added == [entry.id for entry in talk.memory.get_entries(session_id)]
            result = talk.model.results[0].splitlines()[0]
            hits = talk.memory.search(session_id, result)
            assert any(result in hit.entry.text for hit in hits)

    # ------------------------------------------------------------ bad input

    def test_session_ids_of_any_kind_are_taken(self) -> None:
        with closing(self.make_memory(self.budget)) as memory:
            talks = [self._with(memory, session_id) for session_id in _SESSION_IDS]
            for talk in talks:
                talk.play(2)
            for talk in talks:
                talk.check_log()
            assert len({talk.driver.session_id for talk in talks}) == len(talks)

    def test_lone_surrogate_in_a_result_is_replaced_and_reported(self) -> None:
        with (
            self._conversation(self.budget, needs="surrogates", result="cut \ud83d off") as talk,
            logged("memman", WARNING) as records,
        ):
            talk.play(2)
            talk.check(self.budget)
            assert "cut \ufffd off" in str(talk.model.requests[-1].messages)
            assert len(warned := _about_messages(records)) == 1, warned

    def test_unknown_message_is_kept_and_reported(self) -> None:
        self._needs("unknown")
        with self._conversation(self.budget) as talk, logged("memman", WARNING) as records:
            talk.play(1)
            asyncio.run(talk.driver.add_unknown("from the future"))
            talk.play(2)
            assert len(talk.model.requests) == 6
            assert "from the future" in talk.document()
            assert len(warned := _about_messages(records)) == 1, warned

    # ------------------------------------------------------------ parts of laws

    def _needs(self, *capabilities: str) -> None:
        for capability in capabilities:
            if capability in self.lacks:
                raise SkipTest(f"{capability}: {self.lacks[capability]}")

    @contextmanager
    def _conversation(self, budget: int, needs: str = "", **model: Any) -> Iterator[_Conversation]:
        """Yield a new conversation; skip the law if the framework lacks what it `needs`."""
        self._needs(needs)
        with closing(self.make_memory(budget)) as memory:
            yield self._with(memory, "s", **model)

    def _with(self, memory: MemoryManager, session_id: str, **model: Any) -> _Conversation:
        fake = FakeModel(memory, self.format, **model)
        return _Conversation(fake, self.start(memory, session_id, fake))


class _Conversation:
    """A conversation under test: the memory, the model and the driver, and checks of them."""

    def __init__(self, model: FakeModel, driver: AdapterDriver) -> None:
        self.memory = model.memory
        self.model = model
        self.driver = driver

    def of(self, driver: AdapterDriver) -> _Conversation:
        """Return the conversation of another driver with the same memory and model."""
        return _Conversation(self.model, driver)

    def resumed(self, memory: MemoryManager) -> _Conversation:
        """Return the conversation as another process with this memory continues it."""
        model = FakeModel(memory, self.model.format)
        return _Conversation(model, self.driver.resume(memory, model))

    def play(self, turns: int, *, stream: bool = False) -> list[str]:
        """Run turns in an event loop and return the answers."""
        return self.say(_questions(turns), stream=stream)

    def say(self, texts: Iterable[str], *, stream: bool = False) -> list[str]:
        """Run a turn with each text in an event loop and return the answers."""

        async def run() -> list[str]:
            return [await self.driver.run(text, stream=stream) for text in texts]

        return asyncio.run(run())

    async def persist(self, turns: int, model: FakeModel | None = None) -> None:
        """Run turns, each again after a failure; the memory learns from overflows of `model`."""
        for text in _questions(turns):
            for attempt in range(_ATTEMPTS):
                try:
                    await (self.driver.retry(text) if attempt else self.driver.run(text))
                    break
                except Exception as error:
                    if FakeModelError.__name__ not in _lineage(error):
                        raise
                    if model is not None:
                        refused = model.requests[-1].tokens
                        model.memory.record_overflow(error, model=model.name, tokens=refused)
            else:
                raise AssertionError(f"no answer to {text!r} after {_ATTEMPTS} attempts")

    def check(self, budget: int) -> list[Fact]:
        """Check the requests and the log, and return the log's facts."""
        self.check_requests(budget)
        return self.check_log()

    def check_requests(self, budget: int) -> None:
        """Check that each request obeys the provider's rules and is within the budget."""
        for number, request in enumerate(self.model.requests, 1):
            assert not request.violations, f"request {number}: {request.violations}"
            assert request.tokens <= budget, f"request {number}: {request.tokens} of {budget}"

    def check_log(self) -> list[Fact]:
        """Check that the log equals the framework's own history, and return its facts."""
        log, history = _facts(self.memory.get_entries(self.driver.session_id)), self._history()
        assert log == history, f"in the log {_difference(log, history)}"
        return log

    def check_last_request(self) -> None:
        """Check that the last request had the whole history, up to the answer."""
        request, history = self._parsed(self.model.requests[-1].messages), self._history()[:-1]
        assert request == history, f"in the request {_difference(request, history)}"

    def document(self) -> str:
        """Return the exported session as text."""
        return self.memory.export_session(self.driver.session_id).to_json()

    def _history(self) -> list[Fact]:
        read = read_messages(list(asyncio.run(self.driver.history())), keep=True)
        return self._parsed([each.message for each in read])

    def _parsed(self, messages: Sequence[Any]) -> list[Fact]:
        return _facts(format_named(self.model.format).parse(plain_messages(list(messages))))


def _questions(turns: int) -> Iterator[str]:
    return (f"question {turn} of the user" for turn in range(turns))


def _lineage(error: BaseException | None) -> set[str]:
    """Return the names of the types of an error and of those that caused it."""
    names: set[str] = set()
    while error is not None:
        names |= {cls.__name__ for cls in type(error).__mro__}
        error = error.__cause__ or error.__context__
    return names


def _facts(entries: Iterable[Entry | NewEntry]) -> list[Fact]:
    """Return texts, calls and results as tuples that compare equal in every format."""
    facts: list[Fact] = []
    for entry in entries:
        content = text_of(entry.content)
        match entry.type:
            case "tool_call":
                arguments = json.dumps(json.loads(content), sort_keys=True)
                facts.append(("call", arguments, entry.name or "", entry.call_id or ""))
            case "tool_result":
                facts.append(("result", content, entry.call_id or ""))
            case "message" if entry.role in ("user", "assistant") and content.strip():
                facts.append((entry.role, content))
    return facts


def _texts(facts: Iterable[Fact], kind: str) -> list[str]:
    return [fact[1] for fact in facts if fact[0] == kind]


def _difference(found: list[Fact], expected: list[Fact]) -> str:
    """Return the first difference of two lists of facts."""
    at = len(commonprefix([found, expected]))  # noqa: RUF071 - of facts, not of a path
    return (
        f"{len(found)} facts instead of {len(expected)}; number {at} is {found[at : at + 1]!s:.200} "
        f"instead of {expected[at : at + 1]!s:.200}"
    )


def _about_messages(records: Iterable[LogRecord]) -> list[str]:
    """Return the warnings about altered messages."""
    lines = [record.getMessage() for record in records]
    return [line for line in lines if "message" in line]
