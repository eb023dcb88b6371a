"""Runs the Python blocks of README and docs. Blocks of one page share their names, from top to bottom.

A block marked `output` must equal the output of the Python block before it. The pages with a provider's
SDK run against a server on the loopback interface (`tests/docs/loopback.py`). The pages of the command
run in a folder of their own; their blocks marked `console` must show what each `$ memman ...` prints.

Tests are marked by the parts of the machine that they need, and skip if one is missing. Tests of a service
run only when asked for, by `-m service` or `MEMMAN_REQUIRE=service`, for they take long. Files that need a
package of the group `full` skip likewise. `MEMMAN_REQUIRE=packages,shared,service,browser`
turns such a skip into a failure, as in CI. `MEMMAN_REQUIRE=long` runs the tests that take long,
`MEMMAN_REQUIRE=npm` those that install a program of npm.
"""

from __future__ import annotations

import gc
import io
import os
import re
import shlex
import shutil
import socket
import sys
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, settings
from memman_cli.app import memman
from sybil import Example, Sybil
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import CodeBlockParser
from sybil.sybil import SybilCollection
from sybil.typing import Evaluator

from tests.conftest import SHARED
from tests.docs.loopback import Loopback, running

pytest.register_assert_rewrite("memman.testing")

# A busy machine must not fail a test; times are measured in benchmarks/.
settings.register_profile(
    "memman",
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.register_profile(
    "ci", settings.get_profile("memman"), max_examples=100, derandomize=True, database=None
)
settings.register_profile("thorough", settings.get_profile("memman"), max_examples=2_000)
settings.load_profile("memman")

_LOOPS = (
    "docs/README.md",
    "docs/how-to/agent-loop.md",
)
_COMMANDS = (
    "docs/how-to/debug-a-session.md",
    "docs/how-to/import-a-coding-agents-log.md",
    "docs/how-to/search-from-an-mcp-client.md",
)
# Files of tests and pages that need a package which the default environment lacks.
_PACKAGES = {
    "docs/how-to/search-from-an-mcp-client.md": "mcp",
    "docs/how-to/use-with-crewai.md": "crewai",
    "docs/how-to/use-with-litellm.md": "litellm",
    "docs/how-to/use-with-smolagents.md": "smolagents",
    "docs/reference/formats.md": "langchain_core",
    "tests/formats/test_langchain.py": "langchain_core",
    "tests/session/test_unknown_messages.py": "langchain_core",
    "tests/formats/test_more_formats.py": "mistral_common",
    "plugins/memman-cli/tests/mcp_server": "mcp",
    "plugins/memman-mistral": "mistral_common",
    "plugins/memman-prices": "genai_prices",
    "plugins/memman-tokenizers": "tokenizers",
}
_ROOT = Path(__file__).parent
# The adapters of agent frameworks are installed in environments of their own: `.ci/adapters`.
_UV = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["uv"]
_ADAPTERS = [Path(folder).name.removeprefix("memman-") for folder in _UV["workspace"]["exclude"]]
_PRINTED = "printed by the last block"  # no identifier, so no page can use the name
_DONE = "where the blocks begin that were run"
# Run by the plugin's own tests, against a server that counts.
_ELSEWHERE = (
    "plugins/memman-anthropic/README.md",
    "plugins/memman-openai/README.md",
    "plugins/memman-postgres/README.md",
    "docs/tutorial/your-store-in-an-hour.md",  # its blocks are parts of files: tests/docs
)
_run = PythonEvaluator()


def _run_and_listen(example: Example) -> None:
    printed = io.StringIO()
    with redirect_stdout(printed):
        _run(example)
    example.namespace[_PRINTED] = printed.getvalue()


def _compare(example: Example) -> str | None:
    shown, printed = str(example.parsed), example.namespace[_PRINTED]
    return None if shown == printed else f"The page shows\n{shown}and the block printed\n{printed}"


def _run_commands(example: Example) -> str | None:
    """Run each command of a block; return None, or the difference to the shown output."""
    for step in re.split(r"^\$ ", str(example.parsed), flags=re.MULTILINE)[1:]:
        command, _, shown = step.partition("\n")
        command, _, target = command.partition(" > ")
        done = CliRunner().invoke(memman, shlex.split(command)[1:])
        printed = done.stderr if target else done.output
        if target:
            Path(target).write_text(done.stdout, encoding="utf-8")
        if printed.strip() != shown.strip():
            return f"The page shows\n{shown}and `{command}` printed\n{printed}"
    return None


def _forget(namespace: dict[str, Any]) -> None:
    # Signals hold receivers weakly: without its names a page no longer listens to the next ones.
    namespace.clear()


def _in_turn(evaluate: Evaluator) -> Evaluator:
    """Run a block once in a process, after the earlier ones of the page, which another one may have run."""

    def run(example: Example) -> str | None:
        done = example.namespace.setdefault(_DONE, set())
        if example.start in done:  # a later block of the page was tested before it
            return None
        for earlier in example.document.examples():
            if earlier.start >= example.start:
                break
            if earlier.start not in done:
                earlier.evaluate()
        fault = evaluate(example)
        if not fault:
            done.add(example.start)
        return fault

    return run


def _lacking() -> list[str]:
    """Return patterns of the pages that need a missing package."""
    missing = [start for start, package in _needs().items() if find_spec(package) is None]
    return [start if start.endswith(".md") else f"{start}/*.md" for start in missing]


def _needs() -> dict[str, str]:
    """Return the packages that files of tests and pages need, by the beginnings of their paths."""
    adapters = {}
    for name in _ADAPTERS:
        package = f"memman_{name.replace('-', '_')}"
        adapters[f"plugins/memman-{name}"] = package
        adapters[f"docs/how-to/use-with-{name}.md"] = package
    return _PACKAGES | adapters


def _pages(
    *patterns: str,
    excludes: tuple[str, ...] = (),
    fixtures: tuple[str, ...] = (),
    more: tuple[CodeBlockParser, ...] = (),
) -> Sybil:
    return Sybil(
        parsers=[
            CodeBlockParser("python", _in_turn(_run_and_listen)),
            CodeBlockParser("output", _in_turn(_compare)),
            *more,
        ],
        patterns=patterns,
        excludes=excludes,
        fixtures=fixtures,
        teardown=_forget,
    )


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Run files that are named one by one in this process: for them, workers take long to start."""
    named = all(Path(name.partition("::")[0]).is_file() for name in config.args)
    return 0 if named else None


def _missing_shared() -> str | None:
    return None if SHARED.is_dir() else f"the conversations of {SHARED} are not here"


def _missing_service(asked: bool) -> str | None:
    if not asked and "service" not in _required():
        return "it runs with `-m service`, and takes long"
    try:
        socket.create_connection(("127.0.0.1", 5432), timeout=1).close()
    except OSError as error:
        return f"no PostgreSQL answers on this machine ({error})"
    return None


def _missing_browser() -> str | None:
    if shutil.which("chromium") is None:
        return "there is no Chromium: install your system's `chromium`"
    if find_spec("playwright") is None:
        return "there is no Playwright: run with `uv run --group browser`"
    return None


def _missing_time() -> str | None:
    if "long" in _required():
        return None
    return "it takes long, and CI runs it: set MEMMAN_REQUIRE=long to run it here"


def _required() -> list[str]:
    return os.environ.get("MEMMAN_REQUIRE", "").split(",")


def _missing_package(path: Path) -> str | None:
    """Return the package that a file needs, if it is not installed."""
    name = path.relative_to(_ROOT).as_posix() if path.is_relative_to(_ROOT) else ""
    for start, package in _needs().items():
        if name.startswith(start) and find_spec(package) is None:
            return package
    return None


def _is_required(package: str) -> bool:
    """Return whether the tests that need a package must not skip."""
    return ("adapters" if package.startswith("memman_") else "packages") in _required()


class _SkippedModule(pytest.Module):
    """A file of tests that need a package which is not installed."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        package = _missing_package(self.path) or ""
        adapter = package.startswith("memman_")
        command = f".ci/adapters {package[7:]}" if adapter else "uv sync --group full"
        pytest.skip(f"needs {package}: run `{command}`", allow_module_level=True)


def pytest_pycollect_makemodule(
    module_path: Path, parent: pytest.Collector
) -> pytest.Module | None:
    """Skip a file that needs a missing package, unless all packages are required."""
    package = _missing_package(module_path)
    if package is None or _is_required(package):
        return None
    return _SkippedModule.from_parent(parent, path=module_path)


def _missing_npm() -> str | None:
    if shutil.which("npx") is None:
        return "there is no npx: install Node.js"
    if "npm" not in _required():
        return "it installs a program of npm, and CI runs it: set MEMMAN_REQUIRE=npm to run it here"
    return None


MISSING = {
    "shared": _missing_shared,
    "browser": _missing_browser,
    "long": _missing_time,
    "npm": _missing_npm,
}


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a marked test if its part of the machine is missing, or fail it if that is required."""
    for mark in item.iter_markers("package"):
        if find_spec(mark.args[0]) is None and "packages" not in _required():
            pytest.skip(f"needs {mark.args[0]}: run `uv sync --group full`")
    asked = re.search(r"(?<!not )\bservice\b", item.config.option.markexpr) is not None
    for name, missing in (MISSING | {"service": partial(_missing_service, asked)}).items():
        if item.get_closest_marker(name) and (reason := missing()):
            if name in _required():
                pytest.fail(f"{name} is required here: {reason}")
            pytest.skip(reason)


def pytest_collection_finish() -> None:
    """Takes thousands of collected tests and the imported SDKs out of the garbage collector's rounds."""
    gc.collect()
    gc.freeze()


pytest_collect_file = SybilCollection(
    (
        _pages(
            "README.md",
            "plugins/*/README.md",
            "docs/*.md",
            "docs/*/*.md",
            excludes=(*_LOOPS, *_COMMANDS, *_ELSEWHERE, *_lacking()),
            fixtures=("page_folder",),
        ),
        _pages(*_LOOPS, fixtures=("page_folder", "provider")),
        _pages(
            *_COMMANDS,
            excludes=tuple(_lacking()),
            fixtures=("page_folder",),
            more=(CodeBlockParser("console", _in_turn(_run_commands)),),
        ),
    )
).pytest()


@pytest.fixture(scope="module")
def page_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder in which a page is followed, so that its files are not left in the checkout."""
    path = tmp_path_factory.mktemp("page")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        patch.setattr(sys, "argv", ["memman"])
        patch.delenv("UV_RUN_RECURSION_DEPTH", raising=False)
        patch.delenv("COLUMNS", raising=False)  # the width of what commands print
        yield path


@pytest.fixture(scope="module")
def provider() -> Iterator[Loopback]:
    """A provider on the loopback interface, to which the SDKs are directed."""
    with running() as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        patch.setenv("OPENAI_API_KEY", "unused")
        patch.setenv("ANTHROPIC_BASE_URL", server.url)
        patch.setenv("ANTHROPIC_API_KEY", "unused")
        patch.setenv("GOOGLE_GEMINI_BASE_URL", server.url)
        patch.setenv("GEMINI_API_KEY", "unused")
        patch.setenv("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", server.url)
        patch.setenv("AWS_ACCESS_KEY_ID", "unused")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "unused")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("NO_PROXY", "127.0.0.1")
        yield server
