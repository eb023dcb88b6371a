"""The conversation of the demo: a coding agent's working day, generated from a few templates and a seed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final

_SYSTEM: Final = """\
You are a coding agent working for one developer in the repository /opt/harbor/src on the host hb-stage.
The project is harbor, a parcel tracking API (FastAPI, psycopg 3, PostgreSQL 16) with a queue worker.

Tools: shell, read_file, edit_file, search_code and run_tests. You may call several tools at once.
Read before you edit, run the tests that cover an edit, and do not hide failures."""
_RULES: Final = """\
Morning. Some rules for today, they apply to everything we do in this session:
1. Never touch migrations/0007_depot_hourly.sql. Production has stored its checksum.
2. We still ship for Python 3.11, so nothing newer than that.
3. You may commit on the branch ops-4127-fixes. Never tag and never push, I do that myself.
4. Changelog lines start with the ticket number.

"""
DEMO_RULES: Final = tuple(line for line in _RULES.splitlines() if line[:1].isdigit())
"""The rules that the user states in the first message."""
# Ticket, module, symptom, cause, fix.
_TICKETS: Final = (
    ("OPS-4127", "jobs/nightly_rollup", "the nightly rollup has failed three nights in a row",
     "the hour 02:00 exists twice on the day the clocks go back", "group by the UTC hour"),
    ("OPS-4131", "worker/leases", "two workers delivered the same parcel event",
     "a lease is renewed after it has expired", "renew a lease only while it is valid"),
    ("OPS-4133", "api/search", "the search for a tracking number is slow since Monday",
     "the query casts the column, so its index is not used", "cast the parameter instead"),
    ("OPS-4136", "repository", "the list of depots shows closed ones again",
     "the filter was lost when the query moved to a view", "filter closed depots in the view"),
    ("OPS-4138", "feeds/norrpost", "scans of one carrier arrive with the wrong depot",
     "the carrier renamed a field in its feed", "accept both names of the field"),
    ("OPS-4140", "timeutil", "estimated arrivals are one day late for some hubs",
     "dates are compared in local time", "compare dates in UTC"),
    ("OPS-4143", "api/webhooks", "customers receive the same webhook several times",
     "a timeout counts as a failure although the request arrived", "send an idempotency key"),
    ("OPS-4145", "worker/queue", "the queue stops after a malformed message",
     "the parser's error ends the loop", "move such a message to the dead letters"),
)  # fmt: skip
_WORDS: Final = (
    "parcel", "depot", "scan", "lease", "bucket", "window", "carrier", "route", "batch", "cursor", "hub",
)  # fmt: skip
_FUNCTION: Final = """\
def <word>_<word>(conn, key, limit=<number>):
    \"\"\"Return the newest <word> of each <word> by <word>.\"\"\"
    rows = conn.execute(<word>_BY_<word>, [key, "<hex>"])
    return [row for row in rows if row.<word> > <number>][:limit]

"""
_LOG: Final = "2025-10-26T02:<number>Z WARN run=<hex> <word>=<number> <word> took <number> ms\n"
_PASSED: Final = "{test} " + 80 * "." + "\n\n<number> passed in <number> ms"
_FAILED: Final = (
    "{test} " + 80 * "." + "F\n\n" + _FUNCTION + "E   AssertionError: assert <number> == <number>\n"
    "FAILED {test}::test_<word>_<word>\n1 failed, <number> passed in <number> ms"
)
_Call = tuple[str, dict[str, str], str]
# The messages of a ticket: the speaker, the text, and the tool calls with their results.
_SCRIPT: Final[tuple[tuple[str, str, tuple[_Call, ...]], ...]] = (
    ("user", "{rules}{ticket}: {symptom}. Find out why first, don't fix anything yet.", ()),
    ("assistant", "I'll start with the code, its history and the log.", (
        ("shell", {"command": "git log --oneline {path}"}, 20 * "<hex> one <word> per <word>\n"),
        ("read_file", {"path": "{path}"}, "{source}"),
        ("shell", {"command": "grep -h {ticket} {log}"}, 40 * _LOG),
    )),
    ("assistant", "", (
        ("search_code", {"query": "<word>_<word>"}, 14 * "harbor/<word>.py:<number>: <word>[<number>]\n"),
        ("read_file", {"path": "{test}"}, 8 * _FUNCTION),
    )),
    ("assistant", "The log shows when it began. Now the rows behind it, and the test on staging.", (
        ("shell", {"command": "psql service=harbor_ro -f rows.sql"}, 18 * " <word> | <hex> | <number>\n"),
        ("run_tests", {"path": "{test}"}, _FAILED),
    )),
    ("assistant", "Found it: {cause}. It is in {path}, since commit <hex>.", ()),
    ("user", "That convinces me. Is production affected? Then fix it, with a test.", ()),
    ("assistant", "Production has the same version. I'll look at its log, then edit.", (
        ("shell", {"command": "tail -n 30 {log}.1"}, 30 * _LOG),
        ("read_file", {"path": "{path}"}, "{source}"),
    )),
    ("assistant", "The smallest fix: {fix}.", (
        ("edit_file", {"path": "{path}", "new": _FUNCTION}, "edited {path} (+6 -2)"),
        ("edit_file", {"path": "{test}", "new": _FUNCTION}, "edited {test} (+14 -0)"),
    )),
    ("assistant", "", (("run_tests", {"path": "{test}"}, _FAILED),)),
    ("assistant", "One fixture has the old value; I'll correct it and run everything.", (
        ("edit_file", {"path": "tests/conftest.py"}, "edited tests/conftest.py (+1 -1)"),
        ("run_tests", {"path": "tests"}, _PASSED),
    )),
    ("assistant", "All green. I'll add the changelog line and commit.", (
        ("shell", {"command": "git commit -qam '{ticket}: {fix}'"}, "[ops-4127-fixes <hex>] {fix}"),
    )),
    ("assistant", "Fixed and committed for {ticket}: {fix}. Cause: {cause}. Changed: {path}, {test}, "
     "CHANGELOG.md. Left: <number> rows of <word>_<word> keep the old value until the next run.", ()),
    ("user", "Thanks. Remind me: what was the cause of {earlier}?", ()),
    ("assistant", "In {earlier}, {earlier_cause}; the fix was to {earlier_fix}.", ()),
)  # fmt: skip


def demo_messages() -> Iterator[dict[str, Any]]:
    """Yield the messages in the format of OpenAI's Chat Completions."""
    random = Random(4127)  # noqa: S311 - the same conversation each time
    values: dict[str, Callable[[], str]] = {
        "word": lambda: random.choice(_WORDS),
        "number": lambda: str(random.randint(10, 9_999)),
        "hex": lambda: f"{random.getrandbits(32):08x}",
    }

    def fill(template: str, facts: dict[str, str]) -> str:
        text = template.format_map(facts)
        return re.sub("<(word|number|hex)>", lambda found: values[found[1]](), text)

    yield {"role": "system", "content": _SYSTEM}
    for number, (ticket, module, symptom, cause, fix) in enumerate(_TICKETS):
        earlier, _, _, earlier_cause, earlier_fix = _TICKETS[number // 2]
        facts = {
            "ticket": ticket, "symptom": symptom, "cause": cause, "fix": fix,
            "rules": "" if number else _RULES,
            "path": f"harbor/{module}.py",
            "test": f"tests/test_{module.rpartition('/')[2]}.py",
            "log": f"/var/log/harbor/{module.partition('/')[0]}.log",
            "source": fill(8 * _FUNCTION, {}),
            "earlier": earlier, "earlier_cause": earlier_cause, "earlier_fix": earlier_fix,
        }  # fmt: skip
        for role, text, steps in _SCRIPT:
            message: dict[str, Any] = {"role": role, "content": fill(text, facts) or None}
            results = []
            for tool, arguments, result in steps:
                filled = {name: fill(value, facts) for name, value in arguments.items()}
                call = {"name": tool, "arguments": json.dumps(filled)}
                call_id = fill("call_<hex><hex>", {})
                calls = message.setdefault("tool_calls", [])
                calls.append({"id": call_id, "type": "function", "function": call})
                content = fill(result, facts)
                results.append({"role": "tool", "tool_call_id": call_id, "content": content})
            yield message
            yield from results
