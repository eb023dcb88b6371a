"""A session with every kind of record, and one with hostile texts."""

from __future__ import annotations

from typing import Any

from memman import MemoryConfig, MemoryManager
from memman.testing import FakeClock, sequential_ids

SESSION = "trip </title><script>alert(1)</script>"
ATTACKS = (
    '</script><script>document.title = "owned"</script>',
    "<img src=x onerror=\"document.title = 'owned'\">",
    '<!-- <script> ]]> --> <svg onload=alert(1)> <a href="javascript:alert(1)">x</a>',
    "to the \u202eleft\u202c and \u2066isolated\u2069, a NUL \x00, an escape \x1b[31m, \u2028 and \u2029",
    "a lone <b> and &amp; \"quotes' `ticks` ${code} {{data}} {{script}}",
)
PICTURE = "data:image/svg+xml;base64," + "PHN2ZyBvbmxvYWQ9ImFsZXJ0KDEpIi8+" * 8
LINE = "x" * 60_000 + " LONG-9000"


def eventful() -> MemoryManager:
    """Return a manager with a session that has records of every kind."""
    memory = _manager()
    memory.add_system_message(SESSION, "You book trips.")
    _orders(memory, 0, 8)
    memory.pin(SESSION, memory.get_entries(SESSION)[6].id)
    first = memory.compress(SESSION, target_tokens=500).compression_id
    assert first is not None
    _orders(memory, 8, 12)
    taken = memory.compress(SESSION, target_tokens=450).compression_id
    memory.undo_compression(SESSION, taken)
    memory.delete_entries(SESSION, [memory.get_entries(SESSION)[3].id])
    memory.add_user_message(SESSION, "And where is my own order?", id="edited")
    memory.undo_compression(SESSION, memory.retract(SESSION, ["edited"], reason="by mistake"))
    memory.retract(SESSION, ["edited"], reason="the user edited it")
    memory.add_user_message(SESSION, "And where is the order of my sister?", id="edited")
    memory.clear_session(SESSION)
    memory.update_config(SESSION, max_tokens=2_000)
    memory.update_session(SESSION, metadata={"user": "ada"})
    _orders(memory, 12, 22)
    memory.record_usage(SESSION, {"prompt_tokens": 900, "completion_tokens": 12}, model="gpt-4o")
    memory.compress(SESSION, target_tokens=500)
    _orders(memory, 22, 30)
    memory.compress(SESSION, target_tokens=500)
    memory.add_user_message(SESSION, "And then?")
    return memory


def hostile() -> MemoryManager:
    """Return a manager with a session of hostile texts."""
    memory = _manager()
    for attack in ATTACKS:
        memory.add_user_message(SESSION, attack)
        memory.add_tool_call(SESSION, attack.replace("\x00", ""), {"q": attack}, call_id="c1")
        memory.add_tool_result(SESSION, attack.replace("\x00", ""), f"{attack} ORD-1", call_id="c1")
        memory.add_context(SESSION, attack, attack.replace("\x00", ""))
        memory.add_assistant_message(SESSION, f"{attack} " * 20)
    image: dict[str, Any] = {"type": "image_url", "image_url": {"url": PICTURE}}
    far: dict[str, Any] = {
        "type": "image_url",
        "image_url": {"url": "https://tracker.example/x.png"},
    }
    part = {"type": "text", "text": "look"}
    memory.add_messages(SESSION, [{"role": "user", "content": [part, image, far]}], "openai-chat")
    memory.add_user_message(SESSION, LINE)
    memory.add_assistant_message(SESSION, "I see. " * 40)
    memory.compress(SESSION, target_tokens=600)
    return memory


def _manager() -> MemoryManager:
    config = MemoryConfig(auto_compress=False, max_entries=None, recent_window=2)
    return MemoryManager(
        counter="chars4", config=config, clock=FakeClock(), new_id=sequential_ids()
    )


def _orders(memory: MemoryManager, start: int, stop: int) -> None:
    for at in range(start, stop):
        order = f"ORD-{8000 + at}"
        memory.add_user_message(SESSION, f"Where is {order}? It was sent on 2026-01-{1 + at:02}.")
        memory.add_tool_call(SESSION, "get_order", {"order": order}, call_id=f"c{at}")
        found = f"{order}: shelf A{at}-77, /srv/orders/{at}.json " + "scanned on a belt; " * 30
        memory.add_tool_result(SESSION, "get_order", found, call_id=f"c{at}")
        memory.add_assistant_message(
            SESSION, f"{order} is on shelf A{at}-77. " + "All is well. " * 8
        )
