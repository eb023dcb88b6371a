"""The outline through compressions of different kinds, counted on outlines that are known."""

from __future__ import annotations

import json
from typing import Any

from benchmarks import mixed
from benchmarks.mixed import Held, Snapshot


def _call(path: str) -> dict[str, Any]:
    function = {"name": "read", "arguments": json.dumps({"path": path})}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": path, "type": "function", "function": function}],
    }


def test_values_and_messages_of_an_outline_are_told_apart() -> None:
    outline = (
        "What was said and done, oldest first:\n#3 user: Never touch a/b.py\n#4 user Ann: Two ... words\n"
        "  lines\n#5 did: read a/c.py (#6)\n"
        "Values in use:\n- src/{a.py,b.py} plain OPS-1\n- `make check_all`\n"
    )
    values, own = mixed.parts_of(outline)
    assert values == {"src/a.py", "src/b.py", "OPS-1", "check_all"}
    assert own == {"Never touch a/b.py", "Two", "words"}


def test_held_counts_values_that_are_used_later() -> None:
    first = Snapshot(0, "#1 user: Go.\n- src/a.py src/b.py src/c.py", "all of it")
    between = [Snapshot(1, "", "") for _ in range(mixed.LATER - 1)]
    last = Snapshot(2, "", "only src/a.py is here")
    messages = [_call("src/c.py"), _call("src/d.py"), _call("src/a.py"), _call("src/b.py")]
    found = mixed.held([first, *between, last], messages)
    assert found == Held(compressions=11, values=2, values_kept=1, own=1, own_kept=0)


def test_session_makes_every_step_in_turn() -> None:
    made: list[str] = []
    with mixed.Session(1_000) as session:
        session.memory.on("compressed", lambda event: made.append(event.reason))
        session.memory.on("compression_undone", lambda _event: made.append("undone"))
        said = "We went on with step {0} of the long plan and found nothing new. " * 3
        for number in range(60):
            session.add({"role": "user", "content": said.format(number)})
    reasons = "\n".join(made)
    assert made.count("undone") >= 1
    for kind in ("outlined", "summarized", "dropped"):
        assert kind in reasons


def test_snapshot_has_the_outline_without_its_delimiters() -> None:
    messages = [
        {
            "role": "user",
            "content": "[memman outline, x]\nRules:\n- Never.\n[end of memman outline, x]",
        },
        _call("src/a.py"),
    ]
    taken = mixed._snapshot(7, messages)
    assert (taken.at, taken.outline) == (7, "Rules:\n- Never.")
    assert "src/a.py" in taken.text
