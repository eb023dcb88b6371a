"""The document needs nothing else, and its content stays text."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest
from memman_cli.report import GENERATOR, pieces, render, write
from report_sessions import ATTACKS, PICTURE, SESSION, eventful, hostile

from memman import Entry, InvalidInput, MemoryConfig, MemoryManager

PAGE = Path(__file__).parents[2] / "memman_cli/report/page"


class Read(HTMLParser):
    """Collects the elements of a page and the texts of its scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {"script": [], "style": [], "title": []}
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in self.texts:
            self.texts[tag].append("")

    def handle_data(self, data: str) -> None:
        tag = self.tags[-1][0] if self.tags else ""
        if tag in self.texts:
            self.texts[tag][-1] += data

    def handle_endtag(self, tag: str) -> None:
        self.tags.append((f"/{tag}", {}))


@pytest.fixture(scope="module")
def page() -> Read:
    return Read(render(hostile(), SESSION))


def policy(page: Read) -> str:
    [found] = [
        attrs["content"] for tag, attrs in page.tags
        if tag == "meta" and attrs.get("http-equiv") == "Content-Security-Policy"
    ]  # fmt: skip
    return found or ""


def data(page: Read) -> Any:
    """Return the data of the blocks, joined as on the page."""
    found: dict[str, Any] = {"entries": [], "steps": [], "blocks": [], "values": []}
    blocks = [attrs["data-name"] for tag, attrs in page.tags if tag == "script" and attrs]
    for name, text in zip(blocks, page.texts["script"], strict=False):
        found |= json.loads(text) if name == "about" else {name: [*found[name], *json.loads(text)]}
    return found


def test_session_text_never_becomes_an_element(page: Read) -> None:
    quiet = Read(render(eventful(), SESSION))
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in quiet.tags]
    assert page.texts["title"] == [f"{SESSION} · memman"]


def test_data_block_has_every_text_and_no_markup(page: Read) -> None:
    raw = "".join(page.texts["script"][:-1])
    assert not set("<\u2028\u2029") & set(raw)
    texts = [entry["text"] for entry in data(page)["entries"]]
    for attack in ATTACKS:
        assert attack in texts


def test_policy_allows_only_the_own_style_and_script(page: Read) -> None:
    for name, text in (("style", page.texts["style"][0]), ("script", page.texts["script"][-1])):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}'" in policy(page)
    assert policy(page).startswith("default-src 'none'")
    assert "unsafe" not in policy(page)


def test_page_loads_nothing_from_elsewhere(page: Read) -> None:
    for tag, attrs in page.tags:
        for name in ("src", "href", "srcset", "action"):
            target = attrs.get(name)
            assert not target or target.startswith(("#", "data:image/svg+xml,")), (tag, target)
        assert not [name for name in attrs if name.startswith("on")]
    # The page's files contain no address but that of a vocabulary.
    for file in PAGE.iterdir():
        for address in re.findall(r"https?://[^\s\"')]+", file.read_text(encoding="utf-8")):
            assert address.startswith("http://www.w3.org/2000/svg")


def test_script_inserts_texts_only_as_text() -> None:
    for file in PAGE.glob("*.js"):
        script = file.read_text(encoding="utf-8")
        for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(",
                    "new Function", "DOMParser", "setAttribute(\"style\""):  # fmt: skip
            assert way not in script, f"{file.name} uses {way}"


def test_inline_image_is_left_out_but_its_type_and_size(page: Read) -> None:
    [parts] = [entry["parts"] for entry in data(page)["entries"] if entry.get("parts")]
    shown = [(part["kind"], part.get("media_type"), part.get("size")) for part in parts]
    assert shown == [("image", "image/svg+xml", 192), ("image", None, None)]
    assert PICTURE[30:60] not in "".join(page.texts["script"])


def test_page_is_the_same_each_time() -> None:
    assert render(eventful(), SESSION) == render(eventful(), SESSION)


def test_pieces_and_file_are_the_same_page(tmp_path: Path) -> None:
    memory = eventful()
    size = write(memory, SESSION, tmp_path / "s.html")
    written = (tmp_path / "s.html").read_bytes()
    assert len(written) == size
    assert written.decode() == "".join(pieces(memory, SESSION)) == render(memory, SESSION)
    assert GENERATOR in render(memory, SESSION)[:500]


def test_tiny_and_cleared_sessions_have_a_page() -> None:
    memory = eventful()
    memory.add_user_message("one", "Hello")
    assert len(data(Read(render(memory, "one")))["entries"]) == 1
    memory.clear_session(SESSION)
    assert data(Read(render(memory, SESSION)))["stats"]["active_tokens"] == 0


def test_report_needs_no_click() -> None:
    program = "import memman_cli.report, sys; print({'click', 'rich'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "set()"


# ---------------------------------------------------------------- for others' eyes


HIDDEN = "quagga"


def secretive() -> MemoryManager:
    """Return a session with the word in every text."""
    config = MemoryConfig(auto_compress=False, recent_window=1, min_entries_to_compress=1)
    memory = MemoryManager(
        counter="chars4",
        config=config,
        summarizer=lambda _: f"A summary of {HIDDEN}7 and /srv/{HIDDEN}.",
    )
    memory.add_system_message("s", f"System {HIDDEN}.")
    memory.update_session("s", metadata={HIDDEN: HIDDEN})
    for turn in range(6):
        memory.add_user_message("s", f"Where is {HIDDEN}{turn}? " * 9, metadata={"key": HIDDEN})
        memory.add_tool_call("s", "find", {"what": f"{HIDDEN}{turn}"}, call_id=f"{HIDDEN}-{turn}")
        memory.add_tool_result(
            "s", "find", f"/srv/{HIDDEN}/{turn} " * 30, call_id=f"{HIDDEN}-{turn}"
        )
        memory.add_context("s", f"note {HIDDEN}", f"{HIDDEN}.txt")
        memory.add_assistant_message("s", f"It is at {HIDDEN}{turn}.")
    parts = [
        {"type": "text", "text": HIDDEN},
        {"type": "image_url", "image_url": {"url": f"https://{HIDDEN}.example/x.png"}},
        {
            "type": "file",
            "file": {"filename": f"{HIDDEN}.pdf", "file_data": f"data:{HIDDEN};base64,aGk="},
        },
    ]
    memory.add_messages("s", [{"role": "user", "content": parts, HIDDEN: HIDDEN}], "openai-chat")
    memory.update_config("s", summarizer=f"cmd:{HIDDEN}", model="gpt-4o")
    memory.compress("s", target_tokens=300)
    memory.add_user_message("s", f"And {HIDDEN}?")
    return memory


def document_of(memory: MemoryManager, **hidden: Any) -> tuple[str, Any]:
    """Return a page and its data."""
    page = render(memory, "s", **hidden)
    return page, data(Read(page))


def test_report_without_content_has_no_texts() -> None:
    memory = secretive()
    assert HIDDEN in render(memory, "s")
    page, found = document_of(memory, content=False)
    assert HIDDEN not in page
    assert found["content"] == "none"
    assert {entry["name"] for entry in found["entries"] if entry["type"] == "tool_call"} == {"find"}
    whole = document_of(memory)[1]
    for kept in ("tokens", "seq", "at", "type", "role", "id"):
        assert [each[kept] for each in found["entries"]] == [
            each[kept] for each in whole["entries"]
        ]
    for step, full in zip(found["steps"], whole["steps"], strict=True):
        for kept in ("kind", "seq", "splices", "active", "value_count", "values_kept", "state"):
            assert step.get(kept) == full.get(kept)
    assert found["usage"] == whole["usage"]
    assert all(block["text"] for block in whole["blocks"])
    assert found["blocks"] == [
        {"seq": block["seq"], "tokens": block["tokens"], "text": ""} for block in whole["blocks"]
    ]


def test_redacted_report_shows_redacted_entries() -> None:
    memory = secretive()

    def hide(entry: Entry) -> Entry:
        clean = msgspec.structs.replace(
            entry, content=entry.text.replace(HIDDEN, "[hidden]"), call_id=None
        )
        name = None if entry.name is None else entry.name.replace(HIDDEN, "[hidden]")
        return msgspec.structs.replace(clean, name=name)

    page, found = document_of(memory, redact=hide)
    shown = json.dumps({**found, "steps": [step for step in found["steps"] if step["kind"] != "configured"],
                        "stats": None})  # fmt: skip
    assert HIDDEN not in shown
    assert "Where is [hidden]3?" in page
    assert found["content"] == "redacted"
    assert [e["tokens"] for e in found["entries"]] == [
        e["tokens"] for e in document_of(memory)[1]["entries"]
    ]


def test_failing_redactor_makes_no_report() -> None:
    def broken(entry: Entry) -> Entry:
        raise OSError("no dictionary")

    with pytest.raises(
        InvalidInput, match="redact raised OSError for a message; no report was made"
    ):
        render(secretive(), "s", redact=broken)
    with pytest.raises(InvalidInput, match="its id and type kept"):
        render(secretive(), "s", redact=lambda _: None)  # type: ignore[arg-type,return-value]
