"""Third-party plugins are found as installed distributions, and each has its own guard."""

import importlib
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from memman import MemoryManager, PluginNotFound, hookimpl, plugins
from memman.plugins import PluginInfo, Plugins, load_plugins

WORKING = """
from memman import CounterSpec, ModelInfo, ModelRef, SummaryReply, hookimpl

class Words:
    fingerprint = "acme-words-1"
    def count_texts(self, texts):
        return [len(text.split()) for text in texts]

class Summarizer:
    def summarize(self, request):
        return SummaryReply(text=f"acme summary of {len(request.entries)} entries")

@hookimpl
def memman_token_counters():
    return [CounterSpec(
        name="acme",
        match=lambda model: 10 if model.name.startswith("acme-") else 0,
        factory=lambda model: Words(),
    )]

@hookimpl
def memman_model_info(model):
    return ModelInfo(10_000, 10_000, 1_000) if model.name == "acme-1" else None

@hookimpl
def memman_summarizer(name):
    return Summarizer() if name.startswith("acme:") else None

@hookimpl
def memman_store(url):
    from memman.stores import MemoryStore
    return MemoryStore() if url.startswith("acme://") else None
"""
FORMAT = """
from memman import hookimpl
from memman.formats.openai_chat import OpenAIChatFormat

class Pirate(OpenAIChatFormat):
    name = "pirate"
    def detect(self, messages):
        return 9 if all(isinstance(m, dict) and m.get("role") == "pirate" for m in messages) else 0
    def parse(self, messages):
        return super().parse([{**m, "role": "user"} for m in messages])

@hookimpl
def memman_formats():
    return [Pirate()]
"""
RAISING = """
from memman import hookimpl

@hookimpl
def memman_token_counters():
    raise ZeroDivisionError("at call")

@hookimpl
def memman_formats():
    raise ZeroDivisionError("at call")

@hookimpl
def memman_store(url):
    raise ZeroDivisionError("at call")
"""
BROKEN = {
    "raises at import": 'raise ZeroDivisionError("at import")',
    "imports what is not there": "import no_such_module_anywhere",
    "has a syntax error": "def",
    "names an unknown hook": (
        "from memman import hookimpl\n@hookimpl\ndef memman_no_such_hook(): return 1"
    ),
    "asks for an unknown argument": (
        "from memman import hookimpl\n@hookimpl\ndef memman_store(url, colour): return None"
    ),
}

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install distributions into a directory on the path, like an installer."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(plugins, "_shared", None)
    modules: list[str] = []

    def make(name: str, source: str, *, version: str = "1.2", point: str = "") -> None:
        module = f"memman_test_{name}"
        modules.append(module)
        (tmp_path / f"{module}.py").write_text(source)
        info = tmp_path / f"{module}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: memman-test-{name}\nVersion: {version}\n"
        )
        (info / "entry_points.txt").write_text(f"[memman]\n{name} = {module}{point}\n")
        (info / "RECORD").write_text("")
        importlib.invalidate_caches()

    yield make
    for module in modules:
        sys.modules.pop(module, None)


def row(found: Plugins, name: str) -> PluginInfo:
    [info] = [info for info in found.found if info.name == name]
    return info


def test_an_installed_plugin_is_found_with_its_version_and_hooks(install: Install) -> None:
    install("acme", WORKING, version="3.4")
    assert row(load_plugins(), "acme") == PluginInfo(
        name="acme",
        distribution="memman-test-acme",
        version="3.4",
        hooks=("memman_model_info", "memman_store", "memman_summarizer", "memman_token_counters"),
    )


def test_its_counter_answers_for_its_models(install: Install) -> None:
    install("acme", WORKING)
    memory = MemoryManager(model="ACME-1")
    entry = memory.add_user_message("s", "one two three")
    assert (entry.token_count.tokens, entry.token_count.counter) == (3, "acme-words-1")
    assert memory.get_stats("s").max_tokens == 7_200
    assert MemoryManager(counter="acme").add_user_message("s", "one two").token_count.tokens == 2


@pytest.mark.parametrize("how", ["argument", "callback", "setting"])
def test_summarizer_is_called_by_name(install: Install, how: str) -> None:
    install("acme", WORKING)
    memory = MemoryManager(counter="chars4", summarizer="acme:big" if how == "argument" else None)
    if how == "callback":
        memory.set_summarize_callback("acme:big")
    elif how == "setting":
        memory.update_config(summarizer="acme:big")
    for number in range(101):
        memory.add_user_message("s", f"{number} " + "abc " * 20)
    summary, _outline = memory.get_summaries("s")
    count = len(summary.original_entry_ids)
    assert summary.content == f"acme summary of {count} entries"


def test_its_store_opens_by_the_scheme_of_a_url(install: Install) -> None:
    install("acme", WORKING)
    memory = MemoryManager("acme://anything")
    memory.add_user_message("s", "x")
    assert [info.session_id for info in memory.list_sessions()] == ["s"]
    with pytest.raises(PluginNotFound, match="scheme 'other'"):
        MemoryManager("other://x")


def test_its_format_is_detected_and_rendered_by_name(install: Install) -> None:
    install("pirate", FORMAT)
    memory = MemoryManager()
    memory.add_messages("s", [{"role": "pirate", "content": "arr"}])
    assert [entry.text for entry in memory.get_entries("s")] == ["arr"]
    assert memory.build_context("s", format="pirate").format == "pirate"


@pytest.mark.parametrize("fault", BROKEN)
def test_broken_plugin_is_one_row_and_one_log_line(
    install: Install, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    install("broken", BROKEN[fault])
    install("acme", WORKING)
    with caplog.at_level(logging.WARNING, logger="memman.plugins"):
        found = load_plugins()
    broken = row(found, "broken")
    assert broken.error
    assert broken.hooks == ()
    assert broken.distribution == "memman-test-broken"
    assert row(found, "acme").error is None
    lines = [record.getMessage() for record in caplog.records]
    assert lines == ["plugin broken of memman-test-broken could not be loaded"]
    assert found.answer("memman_store", url="acme://x", create=True) is not None


def test_an_entry_point_that_names_nothing_is_a_broken_plugin(install: Install) -> None:
    install("nothing", "", point=":no_such_name")
    assert "no_such_name" in (row(load_plugins(), "nothing").error or "")


def test_raising_hook_is_logged_and_the_others_are_called(
    install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    install("raising", RAISING)
    install("acme", WORKING)
    found = load_plugins()
    names = [spec.name for _, spec in found.listed("memman_token_counters")]
    assert "acme" in names
    assert "plugin raising failed in memman_token_counters" in caplog.text


def test_a_first_result_hook_that_raises_gives_way_to_the_next(
    install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    install("acme", WORKING)
    install("raising", RAISING)  # loaded later, so it comes first
    found = load_plugins()
    assert found.answer("memman_store", url="acme://x", create=True) is not None
    assert "memman_store" in caplog.text


@pytest.mark.parametrize(
    ("allowed", "loaded"),
    [
        (None, {"acme", "pirate"}),
        ("memman-test-acme", {"acme"}),
        ("Memman_Test.acme", {"acme"}),
        ("memman-test-acme:acme", {"acme"}),
        ("memman-test-acme:other", set()),
        (" memman-test-acme , memman-test-pirate ", {"acme", "pirate"}),
        ("", set()),
        ("acme", set()),
    ],
)
def test_memman_plugins_restricts_which_are_loaded(
    install: Install, allowed: str | None, loaded: set[str]
) -> None:
    install("acme", WORKING)
    install("pirate", FORMAT)
    found = load_plugins({} if allowed is None else {"MEMMAN_PLUGINS": allowed})
    assert {info.name for info in found.found} & {"acme", "pirate"} == loaded
    if allowed == "":
        assert found.found == ()
    assert ("memman_test_acme" in sys.modules) == ("acme" in loaded)


def test_plugins_are_loaded_once_and_lazily(
    install: Install,
) -> None:
    install("acme", WORKING)
    MemoryManager().add_user_message("s", "x")
    assert "memman_test_acme" not in sys.modules
    first = plugins.shared_plugins()
    assert "memman_test_acme" in sys.modules
    assert plugins.shared_plugins() is first


def test_plugin_registered_by_hand_is_called(install: Install) -> None:
    class ByHand:
        @hookimpl
        def memman_store(self, url: str) -> Any:
            return "opened" if url == "hand://" else None

    found = load_plugins({"MEMMAN_PLUGINS": ""})
    found.register(ByHand(), "by-hand")
    assert found.answer("memman_store", url="hand://", create=True) == "opened"


def test_a_plugin_by_hand_with_an_unknown_hook_is_refused(install: Install) -> None:
    import pluggy

    class Wrong:
        @hookimpl
        def memman_no_such_hook(self) -> None: ...

    found = load_plugins({"MEMMAN_PLUGINS": ""})
    with pytest.raises(pluggy.PluginValidationError):
        found.register(Wrong(), "wrong")
