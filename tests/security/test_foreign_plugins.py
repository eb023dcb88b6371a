"""A plugin answers for its own name only, and a program chooses the plugins that are loaded."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from memman import AsyncMemoryManager, InvalidInput, MemoryManager, PluginNotFound, plugins
from memman.plugins import load_plugins

_GREEDY = """
from memman import ModelRef, SummaryReply, hookimpl

class Summarizer:
    def summarize(self, request):
        return SummaryReply(text="{name}")

@hookimpl
def memman_summarizer(name):
    return Summarizer()

@hookimpl
def memman_store(url):
    from memman.stores import MemoryStore
    seen.append(url)
    return MemoryStore()

@hookimpl
def memman_resolve_model(model):
    return ModelRef(given=model, name="{name}", provider=None, family="")

seen = []
"""
_RAISING = """
from memman import hookimpl

@hookimpl
def memman_resolve_model(model):
    raise ZeroDivisionError("sk-secret")
"""
Install = Callable[..., str]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a distribution with one entry point; return its module's name."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(plugins, "_shared", None)
    modules: list[str] = []

    def make(distribution: str, point: str, source: str = _GREEDY) -> str:
        module = f"memman_test_{distribution.replace('-', '_')}"
        modules.append(module)
        (tmp_path / f"{module}.py").write_text(source.replace("{name}", distribution))
        info = tmp_path / f"{module}-1.0.dist-info"
        info.mkdir()
        metadata = f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n"
        (info / "METADATA").write_text(metadata)
        (info / "entry_points.txt").write_text(f"[memman]\n{point} = {module}\n")
        importlib.invalidate_caches()
        return module

    yield make
    for module in modules:
        sys.modules.pop(module, None)


def test_name_is_answered_by_the_plugin_of_its_prefix(install: Install) -> None:
    """A plugin that answers every name gets only those with its own prefix"""
    install("evil", "zzz")
    install("good", "acme")
    loaded = load_plugins()
    answers = {
        name: loaded.answer("memman_summarizer", point=name.partition(":")[0], name=name)
        for name in ("acme:big", "zzz:big")
    }
    assert {name: type(answer).__module__ for name, answer in answers.items()} == {
        "acme:big": "memman_test_good",
        "zzz:big": "memman_test_evil",
    }
    with pytest.raises(PluginNotFound):
        MemoryManager(summarizer="nobody:big", plugins=["evil"])


def test_url_is_seen_by_the_plugin_of_its_scheme_only(install: Install) -> None:
    """A foreign plugin gets no URL of another scheme, and so no password"""
    module = install("evil", "zzz")
    install("good", "acme")
    MemoryManager("acme://user:hunter2@host/db")
    MemoryManager("acme+driver://user:hunter2@host/db")
    MemoryManager("zzz://host")
    assert sys.modules[module].seen == ["zzz://host"]


def test_two_distributions_of_one_entry_point_are_both_refused(install: Install) -> None:
    """Which of two plugins of one name is loaded does not depend on the path"""
    install("evil", "acme")
    install("good", "acme")
    rows = {info.distribution: info.error for info in load_plugins().found if info.name == "acme"}
    assert rows.keys() == {"evil", "good"}
    assert all(
        "evil and good both have the entry point acme" in str(error) for error in rows.values()
    )
    with pytest.raises(PluginNotFound):
        MemoryManager(summarizer="acme:big")
    assert MemoryManager(summarizer="acme:big", plugins=["good"])
    assert load_plugins({"MEMMAN_PLUGINS": "evil"}).found[0].error is None


def test_two_answers_to_one_model_are_ignored(
    install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    """Two plugins that resolve a model differently are both named, and neither counts"""
    install("one", "one")
    install("two", "two")
    loaded = load_plugins({"MEMMAN_PLUGINS": "one,two"})
    with pytest.raises(InvalidInput, match=r"plugins (two and one|one and two)"):
        loaded.answer("memman_resolve_model", model="gpt-5")
    MemoryManager(model="gpt-5", plugins=["one", "two"])
    assert "both answer memman_resolve_model" in caplog.text


@pytest.mark.parametrize("made", [MemoryManager, AsyncMemoryManager])
def test_manager_loads_only_the_distributions_it_names(
    install: Install, made: type[MemoryManager | AsyncMemoryManager]
) -> None:
    """`plugins=` restricts which plugins a manager loads"""
    modules = {name: install(name, name) for name in ("one", "two")}
    for wanted in (["One"], ["one:one"]):
        made("one://x", plugins=wanted)
    with pytest.raises(PluginNotFound):
        made("two://x", plugins=["one"])
    with pytest.raises(PluginNotFound):
        made("one://x", plugins=[])
    assert modules["two"] not in sys.modules
    with pytest.raises(InvalidInput, match="list of distributions"):
        made(plugins="one")


def test_environment_restricts_what_a_manager_may_name(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`plugins=` cannot load what MEMMAN_PLUGINS excludes"""
    install("one", "one")
    monkeypatch.setenv("MEMMAN_PLUGINS", "")
    with pytest.raises(PluginNotFound):
        MemoryManager("one://x", plugins=["one"])


def test_name_of_an_entry_point_is_corrected(
    install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    """An entry point in place of a distribution loads nothing, and the log has the correct name"""
    install("memman-acme", "acme")
    assert load_plugins({"MEMMAN_PLUGINS": "acme"}).found == ()
    assert "write the distribution's name, memman-acme" in caplog.text


def test_raising_hook_is_logged_once_in_one_line(
    install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    """A hook that raises logs one line, without its words, however often it is called"""
    install("raising", "raising", _RAISING)
    loaded = load_plugins({"MEMMAN_PLUGINS": "raising"})
    with caplog.at_level(logging.INFO, logger="memman.plugins"):
        for _ in range(3):
            assert loaded.answer("memman_resolve_model", model="x") is None
    [line] = caplog.records
    assert line.getMessage() == "plugin raising failed in memman_resolve_model: ZeroDivisionError"
    assert line.exc_info is None
