"""The frameworks' own tests, without memman and with memman's adapter in every agent that they create.

    uv run python -m benchmarks.framework_suites [NAME ...] [--folder DIR] [--source NAME=CHECKOUT ...]

Each suite gets a new environment with the newest framework and its adapter. The tests are those of the
framework's source distribution of the same version, from the package index that this machine uses, or of a
checkout that you name: the distribution of deepagents has none. They run twice. A test that fails only with
memman must be an expected difference of the suite.

Exit code 1: another test fails with memman. Exit code 2: there is no source distribution with these tests.

This module is also the pytest plugin that puts the adapter in, if MEMMAN_SUITE names a suite.
"""

from __future__ import annotations

import argparse
import functools
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from xml.etree import ElementTree as ET

ROOT: Final = Path(__file__).parents[1]
_MODULE: Final = "benchmarks.framework_suites"
_AMPLE: Final = 100_000  # tokens: the tests' conversations are short
_MINUTES: Final = 20


@dataclass(frozen=True)
class Suite:
    """A suite of a framework.

    `expected` are the tests that may differ with memman, as patterns of their names with the reasons;
    `inject` puts the adapter into the framework, before tests are imported.
    """

    distribution: str
    adapter: str
    tests: tuple[str, ...]
    inject: Callable[[], None]
    group: str | None = "test"  # the dependency group of the tests' own packages
    packages: tuple[str, ...] = ()  # more packages of the tests
    options: tuple[str, ...] = ()
    expected: Mapping[str, str] = field(default_factory=dict)


class Unavailable(Exception):
    """A suite that cannot run on this machine."""


# ---------------------------------------------------------------- injection


def pytest_configure() -> None:
    """Put the adapter into the framework whose suite runs."""
    name = os.environ.get("MEMMAN_SUITE")
    if name:
        SUITES[name].inject()


def _memory() -> Any:
    from memman import MemoryConfig, MemoryManager

    return MemoryManager(config=MemoryConfig(max_tokens=_AMPLE))


def _inject_langchain() -> None:
    import langchain.agents
    import langchain.agents.factory
    from memman_langchain import MemmanMiddleware

    modules = (langchain.agents.factory, langchain.agents)
    _add_middleware(modules, "create_agent", MemmanMiddleware)


def _inject_langgraph() -> None:
    import langgraph.prebuilt
    import langgraph.prebuilt.chat_agent_executor
    from memman_langchain import pre_model_hook

    create = langgraph.prebuilt.chat_agent_executor.create_react_agent

    @functools.wraps(create)
    def create_react_agent(*arguments: Any, **options: Any) -> Any:
        if options.get("pre_model_hook") is None and options.get("version", "v2") == "v2":
            options["pre_model_hook"] = pre_model_hook(_memory())
        return create(*arguments, **options)

    for module in (langgraph.prebuilt, langgraph.prebuilt.chat_agent_executor):
        vars(module)["create_react_agent"] = create_react_agent


def _inject_deepagents() -> None:
    import deepagents
    import deepagents.graph
    from memman_langchain import MemmanSummarization

    modules = (deepagents.graph, deepagents)
    _add_middleware(modules, "create_deep_agent", MemmanSummarization)


def _add_middleware(
    modules: Sequence[ModuleType], name: str, middleware_of: Callable[..., Any]
) -> None:
    """Give each agent that a function of these modules creates a middleware."""
    create = vars(modules[0])[name]

    @functools.wraps(create)
    def created(*arguments: Any, middleware: Any = (), **options: Any) -> Any:
        added = [*middleware, middleware_of(_memory())]
        return create(*arguments, middleware=added, **options)

    for module in modules:
        vars(module)[name] = created


def _inject_openai_agents() -> None:
    """Put memman into the place of the SDK's own SQLite session and of its tests' list session."""
    import agents
    import tests.utils.simple_session as simple  # type: ignore[import-untyped]  # of the SDK
    from memman_openai_agents import MemmanSession

    from memman import SessionNotFound

    class Sqlite(MemmanSession):  # type: ignore[misc]  # installed only where the suite runs
        def __init__(self, session_id: str, *_: Any, session_settings: Any = None, **__: Any):
            super().__init__(session_id, _memory(), session_settings=session_settings)

        def close(self) -> None:
            """Release nothing: the memory is in this process."""

    def init(self: Any, session_id: str = "test", history: Any = None) -> None:
        self.memory = _memory()
        MemmanSession.__init__(self, session_id, self.memory)
        self._ignore_ids_for_matching = False
        if history:
            self.memory.add_messages(session_id, history, "openai-responses", unknown="keep")

    def saved(self: Any) -> list[Any]:
        try:
            return list(self.memory.get_messages(self.memman_id, format="openai-responses"))
        except SessionNotFound:
            return []

    vars(agents)["SQLiteSession"] = Sqlite
    listed = simple.SimpleListSession  # with subclasses, so its methods are replaced in place
    own = {name: value for name, value in vars(MemmanSession).items() if name[:2] != "__"}
    own |= {"__init__": init, "saved_items": property(saved), "_items": property(saved)}
    for name, value in own.items():
        setattr(listed, name, value)


def _inject_strands() -> None:
    """Put memman into the place of the default conversation manager."""
    from uuid import uuid4

    from memman_strands import MemmanConversationManager
    from strands._context_manager.context_manager import ContextManager

    resolve = ContextManager.resolve_conversation_manager

    def resolved(context_manager: Any, conversation_manager: Any) -> Any:
        if context_manager is None and conversation_manager is None:
            return MemmanConversationManager(_memory(), uuid4().hex)
        return resolve(context_manager, conversation_manager)

    ContextManager.resolve_conversation_manager = staticmethod(resolved)


def _inject_agent_framework() -> None:
    """Put memman into the place of the framework's own history provider, and into agents without one."""
    import agent_framework
    import agent_framework._agents as agents
    import agent_framework._sessions as sessions
    from memman_agent_framework import MemmanHistoryProvider

    class InMemory(MemmanHistoryProvider):  # type: ignore[misc]  # installed only where the suite runs
        DEFAULT_SOURCE_ID = "in_memory"

        def __init__(self, source_id: str | None = None, **flags: Any) -> None:
            flags.pop("skip_excluded", None)
            super().__init__(_memory(), source_id=source_id or self.DEFAULT_SOURCE_ID, **flags)

    for module in (agent_framework, agents, sessions):
        vars(module)["InMemoryHistoryProvider"] = InMemory
    create = agents.RawAgent.__init__

    @functools.wraps(create)
    def created(self: Any, *arguments: Any, **options: Any) -> None:
        create(self, *arguments, **options)
        held = self.context_providers
        if not any(isinstance(each, agent_framework.HistoryProvider) for each in held):
            held.append(InMemory())

    agents.RawAgent.__init__ = created


def _inject_adk() -> None:
    """Give each runner memman's plugin; runners of agents as tools inherit it."""
    from google.adk.plugins.plugin_manager import PluginManager
    from memman_adk import MemmanPlugin

    make = PluginManager.__init__

    @functools.wraps(make)
    def init(self: Any, plugins: Any = None, *arguments: Any, **options: Any) -> None:
        given = list(plugins or [])
        if not any(isinstance(plugin, MemmanPlugin) for plugin in given):
            given.append(MemmanPlugin(_memory()))
        make(self, given, *arguments, **options)

    setattr(PluginManager, "__init__", init)  # noqa: B010 - a method may not be assigned


def _inject_adk_sessions() -> None:
    """Put memman's session service around ADK's own."""
    import google.adk.sessions.in_memory_session_service as in_memory
    import google.adk.sessions.sqlite_session_service as sqlite
    from memman_adk import MemmanPlugin, MemmanSessionService

    def around(service: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments: MemmanSessionService(service(*arguments), MemmanPlugin(_memory()))

    for module, name in ((in_memory, "InMemorySessionService"), (sqlite, "SqliteSessionService")):
        vars(module)[name] = around(vars(module)[name])


def _inject_claude_agent_sdk() -> None:
    """Put memman into the place of the SDK's own store in memory."""
    import claude_agent_sdk
    import claude_agent_sdk._internal.session_store as internal
    from memman_claude_agent_sdk import MemmanSessionStore

    from memman import MemoryManager

    class InMemorySessionStore(MemmanSessionStore):  # type: ignore[misc]  # installed only there
        def __init__(self) -> None:
            super().__init__(MemoryManager())

        def get_entries(self, key: Any) -> list[Any]:
            return self._load(key) or []

        @property
        def size(self) -> int:
            infos = self.memory.list_sessions()
            return sum("subpath" not in info.metadata["claude-transcript"] for info in infos)

        def clear(self) -> None:
            self.memory = MemoryManager()

    for module in (claude_agent_sdk, internal):
        vars(module)["InMemorySessionStore"] = InMemorySessionStore


# The tests of runs with a session.
_RUNS_OF_AGENTS: Final = (
    "agent_runner", "agent_runner_streamed", "cancel_streaming", "handoff_history_duplication",
    "hitl_session_scenario", "invalid_final_output_handler", "max_turns", "native_tool_failure_history",
    "prompt_cache_key", "run_impl_resume_paths", "run_state_pending_input", "runner_guardrail_resume",
    "runtime_symmetry_contract", "soft_cancel", "tool_batch_failure_history", "tool_failure_boundaries",
)  # fmt: skip

# The tests of runs, conversation managers and sessions.
_PARTS_OF_STRANDS: Final = (
    "agent", "event_loop", "hooks", "memory", "middleware", "multiagent", "session",
)  # fmt: skip

# Of agent-framework-core; those of skills and MCP servers need no history.
_OF_AGENT_FRAMEWORK: Final = (
    "core/test_agent_hooks", "core/test_agents", "core/test_as_tool_kwargs_propagation",
    "core/test_compaction", "core/test_function_invocation_logic", "core/test_harness_agent",
    "core/test_harness_loop", "core/test_harness_tool_approval", "core/test_middleware",
    "core/test_middleware_with_agent", "core/test_middleware_with_chat", "core/test_observability",
    "core/test_sessions", "workflow/test_agent_executor", "workflow/test_agent_executor_tool_calls",
    "workflow/test_full_conversation", "workflow/test_workflow_agent", "workflow/test_workflow_kwargs",
)  # fmt: skip

# The tests of session stores.
_STORES_OF_CLAUDE: Final = (
    "session_store_conformance", "session_helpers_store", "session_import", "session_mutations",
    "session_resume", "session_store_anyio", "session_summary", "transcript_mirror",
)  # fmt: skip

# The tests of agents that run; others need clients of a cloud.
_OF_ADK: Final = (
    "agents",
    "flows",
    "streaming",
    "tools/test_agent_tool.py",
)

SUITES: Final[Mapping[str, Suite]] = {
    "adk": Suite(
        distribution="google-adk",
        adapter="adk",
        tests=tuple(f"tests/unittests/{name}" for name in _OF_ADK),
        inject=_inject_adk,
        group=None,  # it has all clients of a cloud
        packages=("pytest-asyncio", "pytest-mock", "anthropic", "litellm", "mcp", "sqlalchemy"),
        # In two processes pytest ends when the text of a failure has a lone surrogate.
        options=(
            "-n",
            "0",
            "--continue-on-collection-errors",
            "--ignore-glob=*test_functions_thread_pool.py",  # it fails by chance in newer releases
        ),
        expected={
            r"long_running::test_async_function(_with_none_response)?": (
                "the test's UserContent is sent as a Content, its base, with the same role and parts"
            ),
        },
    ),
    "adk-sessions": Suite(
        distribution="google-adk",
        adapter="adk",
        tests=("tests/unittests/sessions/test_session_service.py",),
        inject=_inject_adk_sessions,
        group=None,
        packages=("aiosqlite", "pytest-asyncio", "sqlalchemy"),
        expected={
            "same_ref_as_storage_session": "it reads the sessions inside InMemorySessionService",
        },
    ),
    "agent-framework": Suite(
        distribution="agent-framework-core",
        adapter="agent-framework",
        tests=tuple(f"tests/{name}.py" for name in _OF_AGENT_FRAMEWORK),
        inject=_inject_agent_framework,
        group=None,
        packages=("opentelemetry-sdk", "pytest-asyncio", "pytest-timeout"),
        expected={
            "in_?memory|session_(messages|history)|session_and_messages|across_multiple_runs"
            "|state_is_serial|before_strategy": "reads or writes messages in the session's state",
            "fresh_context": "the loop resets the session's state, where memman's messages are not",
            "adds_middleware_when_agent_has_none": "it asserts that there is no other middleware",
        },
    ),
    "claude-agent-sdk": Suite(
        distribution="claude-agent-sdk",
        adapter="claude-agent-sdk",
        tests=tuple(f"tests/test_{name}.py" for name in _STORES_OF_CLAUDE),
        inject=_inject_claude_agent_sdk,
        group=None,
        packages=("anyio[trio]",),
        expected={
            "continue_(picks|skips|tie)": "reads the times inside InMemorySessionStore",
            "bounded|cancelled_after_mkdtemp|eager_flush_mode_appends": (
                "counts turns of the event loop; the store works in a thread"
            ),
            "fast_path_(limit_offset|skips_load)": "two appends within one millisecond",
        },
    ),
    "openai-agents": Suite(
        distribution="openai-agents",
        adapter="openai-agents",
        tests=(
            "tests/memory/test_session.py",
            "tests/memory/test_session_limit.py",
            "tests/deferred_session_writes",
            *(f"tests/test_{name}.py" for name in _RUNS_OF_AGENTS),
        ),
        inject=_inject_openai_agents,
        group=None,  # it has browsers and servers
        packages=("pytest-asyncio", "pytest-mock", "inline-snapshot", "httpx"),
        expected={
            "sqlite_session_.*(cancellation|closed|connection|corrupt|lock|rolls_back)": (
                "tests the inside of SQLiteSession: its connections, locks and rows"
            ),
            "test_prepare_input_with_session_keeps_orphan_output_without_limit": (
                'a context has a note in place of an output without its call; view="log" has the item'
            ),
            "test_pending_session_write_without_the_held_key_keeps_its_meaning": (
                "a session with run_compaction puts one more key into the state of a run"
            ),
        },
    ),
    "langchain": Suite(
        distribution="langchain",
        adapter="langchain",
        tests=("tests/unit_tests/agents",),
        inject=_inject_langchain,
        expected={
            "can_jump_to_graph_snapshot|test_create_agent_diagram": "a drawing of the agent's nodes",
            "transformer_not_registered_without": "it asserts that no middleware has a transformer",
            "answers_invalid_tool_calls_on_next_turn": "a result that LangChain puts between older "
            "messages is sent behind them, with its call",
        },
    ),
    "deepagents": Suite(
        distribution="deepagents",
        adapter="langchain",
        tests=("libs/deepagents/tests/unit_tests",),
        inject=_inject_deepagents,
        group=None,  # it has linters and servers
        packages=("langchain-tests", "pytest-asyncio", "pytest-socket", "pytest-timeout"),
        options=(
            "-c",
            "libs/deepagents/pyproject.toml",
            "-o",
            "addopts=",
            "--rootdir=libs/deepagents",
        ),
    ),
    "strands": Suite(
        distribution="strands-agents",
        adapter="strands",
        tests=tuple(f"tests/strands/{name}" for name in _PARTS_OF_STRANDS),
        inject=_inject_strands,
        group=None,  # it has none
        packages=("pytest-asyncio", "pytest-timeout", "pytest-rerunfailures", "moto[s3]"),
        options=("--ignore-glob=*a2a*",),
        expected={
            "preserves_sliding_window": "tests which manager is the default",
            "retry_with_reduced_context|retry_with_overwritten_tool": (
                "asserts which messages SlidingWindowConversationManager keeps after an overflow"
            ),
            "test_full_delegation_error_recovery": "a mock is the description of a tool",
        },
    ),
    "langgraph-prebuilt": Suite(
        distribution="langgraph-prebuilt",
        adapter="langchain",
        tests=("tests/test_react_agent.py",),
        inject=_inject_langgraph,
        expected={
            r"test_no_prompt|test_post_model_hook": "outputs with the node or the key of any hook",
            r"parallel_tool_calls\[memory-v2\]": "outputs with the node or the key of any hook",
        },
    ),
}

# ---------------------------------------------------------------- running


def run(name: str, folder: Path, checkout: Path | None) -> int:
    """Run a suite twice, print its row and what differs; return the number of unexpected differences.

    The tests are those of the checkout, or else of the source distribution.
    """
    suite = SUITES[name]
    python = _environment(suite, folder / name)
    version = _output(
        python, "-c", f"import importlib.metadata as m; print(m.version({suite.distribution!r}))"
    ).strip()
    source = checkout or _source(suite, version, python, folder / name)
    if suite.group:
        group = f"{source / 'pyproject.toml'}:{suite.group}"
        _install(python, "--no-sources", "--group", group)
    without = _outcomes(suite, source, python, folder / name, None)
    with_memman = _outcomes(suite, source, python, folder / name, name)
    new = sorted(
        test for test, passed in with_memman.items() if not passed and without.get(test, True)
    )
    unexpected = [test for test in new if not any(re.search(each, test) for each in suite.expected)]
    row = (name, version, _counts(without), _counts(with_memman), f"{len(new)} ({len(unexpected)})")
    print(f"| {' | '.join(row)} |", flush=True)
    for test in new:
        reasons = (why for each, why in suite.expected.items() if re.search(each, test))
        print(f"    {test}: {next(reasons, 'UNEXPECTED')}")
    return len(unexpected)


def _environment(suite: Suite, folder: Path) -> Path:
    """Return the Python of the environment with the newest framework, its adapter and pip."""
    python = folder / "env" / "bin" / "python"
    if not python.exists():
        _call("uv", "venv", "--quiet", "--seed", "--python", "3.11", str(folder / "env"))
    adapter = ROOT / "plugins" / f"memman-{suite.adapter}"
    tools = ("pytest", "pytest-xdist", *suite.packages)
    _install(python, "-e", str(ROOT), "-e", str(adapter), suite.distribution, *tools)
    return python


def _install(python: Path, *arguments: str) -> None:
    # A framework may need a certifi that an index does not have yet; uv would take an older framework.
    overrides = python.parents[2] / "overrides.txt"
    overrides.write_text("certifi\n", encoding="utf-8")
    options = ("--quiet", "--python", str(python), "--override", str(overrides))
    _call("uv", "pip", "install", *options, *arguments)


def _source(suite: Suite, version: str, python: Path, folder: Path) -> Path:
    """Return the folder of the framework's source distribution."""
    wanted = f"{suite.distribution}=={version}"
    to = ("--dest", str(folder), "--no-deps", "--no-binary", ":all:", "--quiet")
    _call(str(python), "-m", "pip", "download", *to, wanted)
    [archive] = folder.glob(f"*{version}.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    source = folder / archive.name.removesuffix(".tar.gz")
    missing = [tests for tests in suite.tests if not (source / tests).exists()]
    if missing:
        raise Unavailable(f"the source distribution of {wanted} has no {', '.join(missing)}")
    return source


def _outcomes(
    suite: Suite, source: Path, python: Path, folder: Path, injected: str | None
) -> dict[str, bool]:
    """Return whether each test passed; skipped tests are left out."""
    report = folder / f"{injected or 'baseline'}.xml"
    report.unlink(missing_ok=True)  # of an earlier run
    command = [str(python), "-m", "pytest", "-p", _MODULE, "-q", "-n", "2", f"--junitxml={report}",
               *suite.options, *suite.tests]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MEMMAN_SUITE": injected or ""}
    log = report.with_suffix(".log")
    with log.open("w", encoding="utf-8") as output:
        subprocess.run(
            command, cwd=source, env=environment, stdout=output, stderr=subprocess.STDOUT,
            timeout=60 * _MINUTES,
        )  # fmt: skip
    if not report.exists():
        raise Unavailable(f"the tests did not run: {log.read_text(encoding='utf-8')[-2_000:]}")
    cases = ET.parse(report).iter("testcase")  # noqa: S314 - written by pytest, just now
    return {
        f"{case.get('classname')}::{case.get('name')}": not _children(case, "failure", "error")
        for case in cases
        if not _children(case, "skipped")
    }


def _children(case: ET.Element, *tags: str) -> bool:
    return any(child.tag in tags for child in case)


def _counts(outcomes: Mapping[str, bool]) -> str:
    passed = sum(outcomes.values())
    return f"{passed:,} / {len(outcomes) - passed}"


def _call(*command: str) -> None:
    _output(*command)


def _output(*command: str | Path) -> str:
    done = subprocess.run(
        [str(each) for each in command], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Unavailable(f"{' '.join(map(str, command))}: {done.stderr.strip()[-1_000:]}")
    return done.stdout


def main() -> int:
    """Run the named suites, all by default."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SUITES))
    parser.add_argument("--folder", type=Path, help="where environments and reports are kept")
    parser.add_argument(
        "--source",
        action="append",
        default=[],
        metavar="NAME=CHECKOUT",
        help="where a suite's tests are",
    )
    given = parser.parse_args()
    checkouts = {
        name: Path(folder).absolute()
        for name, _, folder in (each.partition("=") for each in given.source)
    }
    unknown = set(given.names) - set(SUITES)
    if unknown:
        parser.error(f"unknown suites: {', '.join(sorted(unknown))}")
    unexpected, unavailable = 0, 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = (given.folder or Path(scratch)).absolute()
        print("| suite | version | passed / failed | with memman | new failures (unexpected) |")
        print("|---|---|---|---|---|", flush=True)
        for name in given.names or SUITES:
            started = time.monotonic()
            (folder / name).mkdir(parents=True, exist_ok=True)
            try:
                unexpected += run(name, folder, checkouts.get(name))
            except Unavailable as error:
                unavailable += 1
                print(f"    {name}: not run: {error}")
            print(f"    {name}: {time.monotonic() - started:.0f} s", flush=True)
    return 1 if unexpected else 2 if unavailable else 0


if __name__ == "__main__":
    sys.exit(main())
