"""Tests of `memman plugins`: the laws that `--check` runs, and the plugin that `--scaffold` writes."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from memman_cli.commands.plugins import KINDS

from memman import plugins
from memman.counting.builtin import builtin_specs
from memman.testing import (
    CounterConformance,
    CounterSpecConformance,
    SummarizerConformance,
    laws_of,
)

COUNTER = """
import re
from memman import CounterSpec, CounterUnavailable, hookimpl

class Counter:
    fingerprint = "acme:1"
    def count_texts(self, texts):
        return [len(re.findall(r"\\w{1,4}|\\W", text)) for text in texts]
    def count_request(self, rendered, *, timeout):
        raise CounterUnavailable("no key")
    acount_request = count_request

def unavailable(model):
    raise CounterUnavailable("pip install acme-vocabulary")

def match(model):
    return 10 if model.name.startswith("acme-") else 0

@hookimpl
def memman_token_counters():
    return [CounterSpec(name="acme", match=match, factory=lambda model: Counter())]
"""
NEGATIVE = COUNTER.replace("len(re", "-len(re")
HANGING = COUNTER.replace("return [len", "import threading; threading.Event().wait(); return [len")
PANICKING = COUNTER.replace("return [len", "raise PanicException('x'); return [len").replace(
    "class Counter", "class PanicException(BaseException): pass\n\nclass Counter"
)
EAGER = COUNTER.replace("import re\n", "import re, rich\n", 1)
GONE = COUNTER.replace("lambda model: Counter()", "unavailable")
REMOTE = COUNTER.replace("match=match,", "match=match, remote=True, format='openai-chat',")
REMOTE_GONE = REMOTE.replace("lambda model: Counter()", "unavailable")
BY_NAME = COUNTER.replace("return 10 if", "return 0 if")
NO_LISTING = COUNTER.replace("return [CounterSpec(", "return ['acme']\n    [CounterSpec(")
RAISING = COUNTER.replace("return [CounterSpec(", "raise OSError('no disk')\n    [CounterSpec(")
SUMMARIZER = """
from memman import SummarizerUnavailable, SummaryReply, hookimpl

class Summarizer:
    model = "acme/small"
    def summarize(self, request):
        return SummaryReply(text=request.entries[0].text.strip()[:200] or "nothing")

@hookimpl
def memman_summarizer(name):
    return Summarizer() if name == "acme:small" else None
"""
SILENT = SUMMARIZER.replace('or "nothing")', 'and "")')
KEYLESS = SUMMARIZER.replace(
    "return SummaryReply",
    "raise SummarizerUnavailable('set ACME_KEY')\n        return SummaryReply",
)
NO_SDK = SUMMARIZER.replace(
    "return Summarizer()",
    "raise SummarizerUnavailable('pip install acme')\n    return Summarizer()",
)
MISTAKEN = SUMMARIZER.replace("return Summarizer()", "return 1 / 0 or Summarizer()")
NO_SUMMARIZER = SUMMARIZER.replace("return Summarizer() if", "return 'text' if")
NO_COUNTER = "from memman import hookimpl\n@hookimpl\ndef memman_store(url): return None\n"

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install the module of a plugin called acme, for this process and its children."""
    folder = tmp_path / "site"
    info = folder / "memman_test_acme-1.2.dist-info"
    info.mkdir(parents=True)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setattr(plugins, "_shared", None)

    def make(source: str, requires: str = "") -> None:
        (info / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: memman-test-acme\nVersion: 1.2\n"
            "Requires-Dist: memman-core\n" + (f"Requires-Dist: {requires}\n" if requires else "")
        )
        (info / "entry_points.txt").write_text("[memman]\nacme = memman_test_acme\n")
        (folder / "memman_test_acme.py").write_text(source)
        importlib.invalidate_caches()

    yield make
    sys.modules.pop("memman_test_acme", None)


def checked(command, *args: str) -> SimpleNamespace:
    """Return the exit code, the outcomes and reasons by law, and stderr."""
    result = command("plugins", "--check", "acme", "--json", *args)
    [counter] = json.loads(result.stdout)["counters"]
    laws = {law["law"]: law["outcome"] for law in counter["laws"]}
    reasons = {law["law"]: law["reason"] for law in counter["laws"] if law["reason"]}
    return SimpleNamespace(
        code=result.exit_code, laws=laws, reasons=reasons, stderr=result.stderr, counter=counter
    )


# ---------------------------------------------------------------- --check


def test_sound_counter_keeps_every_law(command, install):
    install(COUNTER)
    result = command("plugins", "--check", "acme")
    assert result.exit_code == 0, result.output
    head, *lines = result.stdout.splitlines()
    assert head == "acme: a local counter, made for acme-1"
    expected = [
        name.removeprefix("test_").replace("_", " ") for name in laws_of(CounterConformance)
    ]
    assert lines == [f"  ok       {law}" for law in expected]


def test_plugin_is_named_by_its_distribution(command, install):
    install(REMOTE)  # fewer laws
    assert command("plugins", "--check", "memman-test-acme").exit_code == 0


def test_negative_count_is_a_finding(command, install):
    install(NEGATIVE)
    found = checked(command)
    law = "a count is a whole number and never negative"
    assert (found.code, found.laws[law]) == (1, "failed")
    assert found.reasons[law] == "'Hello, world!' has -7 tokens"
    failed = sum(outcome == "failed" for outcome in found.laws.values())
    assert found.stderr.endswith(f"memman: plugin acme: {failed} laws not kept\n")


def test_hanging_counter_is_not_called_again(command, install, monkeypatch):
    monkeypatch.setattr(CounterSpecConformance, "deadline", 0.2)
    install(HANGING)
    found = checked(command)
    outcomes = list(found.laws.values())
    assert found.code == 1
    assert outcomes == ["failed"] + ["not run"] * (len(outcomes) - 1)
    assert "not done after 0.2 s" in found.reasons.values()
    assert len(outcomes) == len(laws_of(CounterConformance))


def test_panicking_counter_is_a_finding(command, install):
    install(PANICKING)
    found = checked(command)
    assert found.code == 1
    assert found.reasons["an empty text costs nothing"] == "PanicException: x"
    assert found.laws["its spec is sound"] == "ok"


def test_eager_import_of_a_dependency_is_a_finding(command, install):
    install(EAGER, requires="Rich>=13 ; python_version > '3'")
    found = checked(command)
    assert found.code == 1
    assert found.reasons == {"listing it imports no sdk": "import memman_test_acme loads rich"}


def test_unavailable_local_counter_is_a_finding(command, install):
    install(GONE)
    found = checked(command)
    assert found.code == 1
    reason = found.reasons["an empty text costs nothing"]
    assert reason == "unavailable here: pip install acme-vocabulary"


def test_remote_counter_is_checked_without_network(command, install):
    install(REMOTE)
    found = checked(command)
    assert (found.code, found.counter["remote"]) == (0, True)
    assert len(found.laws) == len(laws_of(CounterSpecConformance))
    assert set(found.laws.values()) == {"ok"}


def test_remote_counter_without_a_key_is_not_a_finding(command, install):
    install(REMOTE_GONE)
    found = checked(command)
    assert (found.code, found.laws["its factory makes the counter"]) == (0, "not run")


def test_counter_without_a_known_model_is_checked(command, install):
    install(BY_NAME)
    found = checked(command)
    assert (found.code, found.counter["model"]) == (0, None)
    assert "add --model NAME" in command("plugins", "--check", "acme").stderr
    wrong = checked(command, "--model", "acme-9")
    assert wrong.code == 1
    assert wrong.reasons == {"it answers for its models": "it does not answer for acme-9"}


def test_invalid_listing_is_a_finding(command, install):
    install(NO_LISTING)
    found = checked(command)
    assert (found.code, found.reasons) == (1, {"its spec is sound": "a str is not a CounterSpec"})


@pytest.mark.parametrize(
    ("source", "code", "message"),
    [
        ("import no_such_module_anywhere", 1, "plugin acme cannot be loaded: ModuleNotFoundError"),
        ("def", 1, "plugin acme cannot be loaded: SyntaxError"),
        (RAISING, 1, "memman_token_counters of plugin acme fails: OSError: no disk"),
        (
            NO_COUNTER,
            2,
            "plugin acme offers no token counter; it has memman_store. A summarizer is checked with",
        ),
    ],
    ids=["no module", "no syntax", "raises when called", "no counter"],
)
def test_uncheckable_plugin_error_has_the_reason(command, install, source, code, message):
    install(source)
    result = command("plugins", "--check", "acme")
    assert (result.exit_code, result.stdout) == (code, "")
    assert f"memman: {message}" in result.stderr
    assert "Traceback" not in result.stderr


def test_absent_plugin_error_names_the_installed_ones(command, install, monkeypatch):
    install(COUNTER)
    result = command("plugins", "--check", "abacus")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "no plugin called 'abacus' is loaded; there are: acme" in result.stderr
    monkeypatch.setenv("MEMMAN_PLUGINS", "")
    monkeypatch.setattr(plugins, "_shared", None)
    assert "MEMMAN_PLUGINS" in command("plugins", "--check", "acme").stderr


def test_check_needs_no_pytest():
    program = "import sys; sys.modules['pytest'] = None; import memman_cli.conformance"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_other_commands_do_not_load_the_kits():
    program = "import sys, memman_cli.app; sys.exit('memman.testing' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize(
    "args",
    [
        ["--check", "a", "--scaffold", "b"],
        ["--check", "a", "--strict"],
        ["--model", "gpt-4o"],
        ["--into", "."],
        ["--check", "a", "--into", "."],
        ["--summarizer", "a:b"],
        ["--check", "a", "--summarizer", "a:b", "--model", "gpt-4o"],
        ["--kind", "counter"],
        ["--scaffold", "a", "--kind", "store"],
    ],
)
def test_incompatible_options_are_refused(command, args):
    assert command("plugins", *args).exit_code == 2


# ---------------------------------------------------------------- --check --summarizer


def checked_summarizer(command, name: str = "acme:small") -> SimpleNamespace:
    """Return the exit code, the outcomes and reasons by law, and stderr."""
    result = command("plugins", "--check", "acme", "--summarizer", name, "--json")
    document = json.loads(result.stdout)
    [one] = document["summarizers"]
    assert (document["counters"], one["summarizer"]) == ([], name)
    laws = {law["law"]: law["outcome"] for law in one["laws"]}
    reasons = {law["law"]: law["reason"] for law in one["laws"] if law["reason"]}
    return SimpleNamespace(code=result.exit_code, laws=laws, reasons=reasons, stderr=result.stderr)


def test_sound_summarizer_keeps_every_law(command, install):
    install(SUMMARIZER)
    result = command("plugins", "--check", "acme", "--summarizer", "acme:small")
    assert result.exit_code == 0, result.output
    head, *lines = result.stdout.splitlines()
    assert head == "acme:small: a summarizer"
    expected = [
        name.removeprefix("test_").replace("_", " ") for name in laws_of(SummarizerConformance)
    ]
    assert lines == [f"  ok       {law}" for law in expected]


def test_empty_summary_is_a_finding(command, install):
    install(SILENT)
    found = checked_summarizer(command)
    assert (found.code, found.laws["it answers with text"]) == (1, "failed")
    assert "laws not kept" in found.stderr


def test_summarizer_without_a_key_is_not_a_finding(command, install):
    install(KEYLESS)
    found = checked_summarizer(command)
    assert found.code == 0
    assert found.reasons["a manager compresses with it"] == "unavailable here: set ACME_KEY"
    assert set(found.laws.values()) == {"ok", "not run"}


def test_object_without_summarize_is_a_finding(command, install):
    install(NO_SUMMARIZER)
    found = checked_summarizer(command)
    assert (found.code, found.reasons) == (1, {"it is a summarizer": "a str has no summarize()"})


@pytest.mark.parametrize(
    ("source", "name", "code", "message"),
    [
        (SUMMARIZER, "acme:large", 2, "plugin acme has no summarizer 'acme:large'; it has memman_"),
        (COUNTER, "acme:small", 2, "plugin acme has no summarizer 'acme:small'; it has memman_"),
        (NO_SDK, "acme:small", 2, "plugin acme cannot make 'acme:small' here: pip install acme"),
        (
            MISTAKEN,
            "acme:small",
            1,
            "memman_summarizer of plugin acme fails for 'acme:small': Zero",
        ),
    ],
    ids=["another name", "no summarizer", "no SDK", "raises when called"],
)
def test_unavailable_summarizer_error_has_the_reason(command, install, source, name, code, message):
    install(source)
    result = command("plugins", "--check", "acme", "--summarizer", name)
    assert (result.exit_code, result.stdout) == (code, "")
    assert f"memman: {message}" in result.stderr
    assert "Traceback" not in result.stderr


# ---------------------------------------------------------------- --scaffold


@pytest.mark.parametrize("name", ["acme", "my-own-counter", "a1"])
def test_new_plugin_has_files_with_its_name(command, tmp_path, name):
    result = command("plugins", "--scaffold", name, "--into", tmp_path, "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    folder = tmp_path / f"memman-{name}"
    module = name.replace("-", "_")
    assert document["folder"] == str(folder)
    written = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert written == set(document["files"])
    assert {f"memman_{module}/__init__.py", f"tests/test_{module}.py"} < written
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    assert project["project"]["name"] == f"memman-{name}"
    assert project["project"]["entry-points"]["memman"] == {name: f"memman_{module}"}
    assert not [path for path in written if "$" in (folder / path).read_text()]


@pytest.fixture(
    params=[
        pytest.param(kind, marks=[pytest.mark.long] if kind != "counter" else []) for kind in KINDS
    ]
)
def kind(request) -> str:
    return str(request.param)


@pytest.fixture
def scaffolded(command, tmp_path, kind) -> Path:
    """A new plugin with an installer's metadata."""
    made = command("plugins", "--scaffold", "my-own", "--kind", kind, "--into", tmp_path)
    assert made.exit_code == 0, made.output
    assert (tmp_path / "memman-my-own" / "memman_my_own" / f"{kind}.py").is_file()
    folder = tmp_path / "memman-my-own"
    info = folder / "memman_my_own-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: memman-my-own\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("[memman]\nmy-own = memman_my_own\n")
    return folder


def run_in(folder: Path, *args: str) -> None:
    own = {
        "PYTHONPATH": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # those of other projects take seconds
        "PYTEST_ADDOPTS": "",  # may have options of these plugins
    }
    done = subprocess.run(
        [sys.executable, "-m", *args],
        cwd=folder,
        env=os.environ | own,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_new_plugin_passes_its_tests(scaffolded):
    run_in(scaffolded, "pytest", "-q", "-p", "no:cacheprovider", "-W", "error")


@pytest.mark.long
def test_new_plugin_passes_the_check(scaffolded, kind):
    option = ["--summarizer", "my-own:small"] if kind == "summarizer" else []
    run_in(scaffolded, "memman_cli", "plugins", "--check", "my-own", *option)


@pytest.mark.long
def test_new_plugin_passes_the_linters(scaffolded):
    for args in (
        ["ruff", "check", "."],
        ["ruff", "format", "--check", "."],
        ["mypy", "--strict", "memman_my_own"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", *args],
            cwd=scaffolded,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_existing_folder_is_not_overwritten(command, tmp_path):
    folder = tmp_path / "memman-acme"
    folder.mkdir()
    (folder / "README.md").write_text("mine")
    for _ in range(2):
        result = command("plugins", "--scaffold", "acme", "--into", tmp_path)
        assert (result.exit_code, result.stdout) == (2, "")
        assert "is not overwritten" in result.stderr
    assert [path.name for path in folder.iterdir()] == ["README.md"]
    assert (folder / "README.md").read_text() == "mine"
    (tmp_path / "memman-other").write_text("a file")
    assert command("plugins", "--scaffold", "other", "--into", tmp_path).exit_code == 2
    assert (tmp_path / "memman-other").read_text() == "a file"


def test_incomplete_folder_is_removed(command, tmp_path, monkeypatch):
    from memman_cli.commands.plugins import _FILES

    monkeypatch.setitem(_FILES, "last.txt", "no-such-template")
    assert command("plugins", "--scaffold", "acme", "--into", tmp_path).exit_code == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "Acme",
        "1acme",
        "a b",
        "a_b",
        "-a",
        "a-",
        "a--b",
        "../a",
        "/a",
        "a/b",
        "a.b",
        "ž",
        "x" * 41,
        "a\n",
    ],
)
def test_invalid_name_error_has_the_rule(command, tmp_path, name):
    result = command("plugins", "--scaffold", name, "--into", tmp_path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "cannot be a plugin's name" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [builtin_specs()[0].name, "core", "tiktoken"])
def test_existing_name_is_refused(command, tmp_path, name):
    result = command("plugins", "--scaffold", name, "--into", tmp_path)
    assert result.exit_code == 2
    assert "is taken" in result.stderr


def test_name_with_the_prefix_is_refused(command, tmp_path):
    result = command("plugins", "--scaffold", "memman-acme", "--into", tmp_path)
    assert result.exit_code == 2
    assert "--scaffold acme" in result.stderr


def test_missing_parent_folder_is_refused(command, tmp_path):
    result = command("plugins", "--scaffold", "acme", "--into", tmp_path / "nowhere")
    assert result.exit_code == 2
    assert "there is no such folder" in result.stderr
