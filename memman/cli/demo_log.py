"""The conversation of the demo: a coding agent's working day, generated from a few templates and a seed."""

from __future__ import annotations

import json
from collections.abc import Iterator
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


def demo_messages() -> Iterator[dict[str, Any]]:
    """Yield the messages in the format of OpenAI's Chat Completions."""
    yield {"role": "system", "content": _SYSTEM}
    day = _Day()
    for number, ticket in enumerate(_TICKETS):
        yield from day.ticket(number, *ticket)


class _Day:
    """The random values of the day: sources, logs, rows and test results."""

    def __init__(self) -> None:
        self._random = Random(4127)  # noqa: S311 - the same conversation each time

    def ticket(
        self, number: int, ticket: str, module: str, symptom: str, cause: str, fix: str
    ) -> Iterator[dict[str, Any]]:
        """Yield the messages of one ticket: the request, the search, the fix, the tests, the answer."""
        path, test = f"harbor/{module}.py", f"tests/test_{module.rpartition('/')[2]}.py"
        log = f"/var/log/harbor/{module.partition('/')[0]}.log"
        source, harder = self._source(), number % 3 == 0
        read = ("read_file", {"path": path}, source)
        run = {"path": test}
        rules = "" if number else _RULES
        yield _message(
            "user", f"{rules}{ticket}: {symptom}. Find out why first, don't fix anything yet."
        )
        yield from self._turn(
            "I'll start with the code, its history and the log.",
            ("shell", {"command": f"git status && git log --oneline {path}"}, self._history()),
            read,
            ("shell", {"command": f"grep -h {ticket.lower()} {log}"}, self._log(26)),
        )
        yield from self._turn(
            None,
            ("search_code", {"query": self._word()}, self._matches()),
            ("read_file", {"path": test}, self._source()),
        )
        yield from self._turn(
            "The log shows when it began. Now the rows behind it, and the same test on staging.",
            ("shell", {"command": "psql service=harbor_ro -f /tmp/rows.sql"}, self._log(18)),
            ("run_tests", run, self._tests(test, failed=True)),
        )
        place = f"{path}:{self._number(40, 90)}"
        yield _message(
            "assistant", f"Found it: {cause}. It is in {place}, since commit {self._hex(7)}."
        )
        yield _message(
            "user", "That convinces me. Is production affected? Then fix it, with a test."
        )
        yield from self._turn(
            "Production has the same version. I'll look at its log, then edit.",
            ("shell", {"command": f"tail -n 30 {log}.1"}, self._log(30)),
            read,
        )
        yield from self._turn(
            f"The smallest fix: {fix}.",
            ("edit_file", {"path": path, "old": cause, "new": fix}, f"edited {path} (+6 -2)"),
            ("edit_file", {"path": test, "new": self._function()}, f"edited {test} (+14 -0)"),
        )
        yield from self._turn(None, ("run_tests", run, self._tests(test, failed=harder)))
        yield from self._turn(
            "One fixture has the old value; I'll correct it and run everything."
            if harder
            else None,
            ("edit_file", {"path": "tests/conftest.py"}, "edited tests/conftest.py (+1 -1)"),
            ("run_tests", {"path": "tests"}, self._tests("tests", failed=False)),
        )
        done = (
            f"[ops-4127-fixes {self._hex(7)}] {ticket}: {fix}\n 4 files changed, 23 insertions(+)"
        )
        yield from self._turn(
            "All green. I'll add the changelog line and commit.",
            ("shell", {"command": f"git commit -qam '{ticket}: {fix}'"}, done),
        )
        rows = f"{self._number(2, 40)} rows of {self._word()}_{self._number(10, 99)}"
        yield _message(
            "assistant",
            f"Fixed and committed for {ticket}: {fix}. Cause: {cause}. Changed: {path}, {test}, "
            f"tests/conftest.py, CHANGELOG.md. Left: {rows} keep the old value until the next run.",
        )
        if number:
            name, _, _, earlier, repair = _TICKETS[number // 2]
            yield _message("user", f"Thanks. Remind me: what was the cause of {name}?")
            yield _message("assistant", f"In {name}, {earlier}; the fix was to {repair}.")

    def _turn(
        self, text: str | None, *steps: tuple[str, dict[str, str], str]
    ) -> Iterator[dict[str, Any]]:
        """Yield an assistant's message with tool calls, and their results."""
        ids = [f"call_{self._hex(20)}" for _ in steps]
        calls = [
            {
                "id": call_id,
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for call_id, (name, arguments, _) in zip(ids, steps, strict=True)
        ]
        yield {"role": "assistant", "content": text, "tool_calls": calls}
        for call_id, (_, _, result) in zip(ids, steps, strict=True):
            yield {"role": "tool", "tool_call_id": call_id, "content": result}

    def _number(self, least: int, most: int) -> int:
        return self._random.randint(least, most)

    def _hex(self, digits: int) -> str:
        return f"{self._random.getrandbits(4 * digits):0{digits}x}"

    def _word(self) -> str:
        return self._random.choice(_WORDS)

    def _history(self) -> str:
        return "\n".join(
            f"{self._hex(7)} OPS-{self._number(4001, 4126)}: one {self._word()} per {self._word()}"
            for _ in range(12)
        )

    def _log(self, lines: int) -> str:
        return "\n".join(
            f"2025-10-{self._number(25, 28)}T{self._number(10, 23)}:{self._number(10, 59)}:07Z "
            f"{self._random.choice(('INFO', 'WARN', 'ERROR')):5} run={self._hex(8)} "
            f"{self._word()}={self._number(1, 9999)} took {self._number(2, 900)} ms"
            for _ in range(lines)
        )

    def _function(self) -> str:
        one, two = self._word(), self._word()
        return (
            f"def {one}_{two}(conn, {one}_id, limit={self._number(10, 500)}):\n"
            f'    """Return the {two} of one {one}."""\n'
            f"    rows = conn.execute({one.upper()}_BY_{two.upper()}, [{one}_id])\n"
            f"    return [row for row in rows if row.{two} > {self._number(1, 60)}][:limit]\n"
        )

    def _source(self) -> str:
        text = "from __future__ import annotations\n\n" + "\n".join(
            self._function() for _ in range(8)
        )
        return "\n".join(f"{number:4}  {line}" for number, line in enumerate(text.split("\n"), 1))

    def _matches(self) -> str:
        return "\n".join(
            f"harbor/{self._word()}/{self._word()}.py:{self._number(3, 300)}: {self._word()}_id = "
            f"{self._word()}[{self._number(0, 99)}]"
            for _ in range(14)
        )

    def _tests(self, path: str, failed: bool) -> str:
        number = self._number(40, 180)
        head = f"{path} {'.' * number}\n\n"
        if not failed:
            return f"{head}{number} passed in {self._number(2, 20)}.{self._number(10, 99)}s"
        name = f"test_{self._word()}_{self._word()}"
        return (
            f"{head}___ {name} ___\n\n{self._function()}\n"
            f"E   AssertionError: assert {self._number(1, 99)} == {self._number(100, 199)}\n"
            f"FAILED {path}::{name}\n1 failed, {number} passed in {self._number(2, 20)}.42s"
        )


def _message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}
