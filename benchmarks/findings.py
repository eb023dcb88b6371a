"""A loop of 200 turns with a scripted agent, which gets 20 questions about its own earlier findings.

In each turn a user reports something, the agent reads one to three files, and answers with the cause, the
remedy and small talk. At every tenth turn the user asks about a report of an earlier turn instead. The
answer counts if the request at that moment has the cause, word for word. The window has 8,000 tokens, there
is no summarizer, and no question or answer repeats a cause. There are no questions about the newest ten
turns, which may still be in the window, but for the first question.
"""

from __future__ import annotations

import json
from random import Random

import msgspec

from benchmarks.needed import text_of
from memman import MemoryConfig, MemoryManager

BUDGET = 8_000
TURNS, EVERY = 200, 10
_RECENT = 10
_PARTS = (
    "booking page", "price list", "invoice mail", "seat map", "login form", "refund queue",
    "nightly export", "search box", "loyalty counter", "gate display", "crew roster",
    "baggage scanner", "weather feed",
    "currency table", "waiting list", "meal planner",
)  # fmt: skip
_SYMPTOMS = (
    "The {part} shows yesterday's figures since this morning. Can you find out why?",
    "Customers say that the {part} hangs on slow lines, please have a look.",
    "Another complaint about the {part}: every second entry is doubled.",
    "On Sundays the {part} stays empty. What is going on there?",
    "The {part} loses umlauts, at least for our office in Graz.",
)
_FIRST = (
    "worker", "cache", "parser", "timer", "lock", "cursor", "index", "socket", "template", "migration",
    "filter",
)  # fmt: skip
_CAUSES = (
    "the {a} waits for the {b} of the {c} team, which nobody starts on weekends",
    "the {a} rounds before the {b} adds the {c} share",
    "a stale {a} survives every restart because the {b} copies it from the {c} host",
    "the {a} reads the {b} twice when the {c} answers late",
    "the {a} takes the {c} zone for local time, and the {b} believes it",
)
_TEAMS = ("blue", "harbour", "night", "northern", "second", "spare", "copper", "quiet")
_ENDINGS = (
    "I found it: {cause}. The remedy is small and I have put it on the list for the next release.",
    "Done. The reason is that {cause}. A test for it is in place now, and the others still pass.",
    "It took a while, but it is clear now. In short: {cause}. I changed one line, nothing else.",
    "Result of the search: {cause}. Shall I also look at the neighbouring pages?",
)
_QUESTIONS = (
    "Remind me, what was behind the trouble with the {part} in ticket {ticket}?",
    "What did you find out about ticket {ticket} back then?",
    "Somebody asks me about ticket {ticket}, the {part}. What was the cause?",
)


class Score(msgspec.Struct, frozen=True):
    """The number of questions, of requests with the answer, and the mean size of a request in tokens."""

    asked: int
    there: int
    tokens: float


def play(seed: int, budget: int = BUDGET) -> Score:
    """Play the loop of a seed."""
    random = Random(f"findings {seed}")
    causes: list[tuple[str, str, str]] = []  # ticket, part, cause
    there, sizes = 0, list[int]()
    config = MemoryConfig(max_tokens=budget, max_entries=None)
    with MemoryManager(counter="chars4", config=config) as memory:
        memory.add_system_message("s", "You look after the programs of a small airline.")
        for turn in range(1, TURNS + 1):
            if turn % EVERY == 0:
                ticket, part, cause = random.choice(causes[:-_RECENT] or causes)
                asked = random.choice(_QUESTIONS).format(ticket=ticket, part=part)
                memory.add_user_message("s", asked)
                request = memory.build_context("s", format="openai-chat")
                there += cause in "\n".join(map(text_of, request.messages))
                sizes.append(request.tokens.tokens)
                memory.add_assistant_message("s", "That is in my notes of then, see the ticket.")
                continue
            ticket, part = f"AIR-{3_000 + 7 * turn}", random.choice(_PARTS)
            said = random.choice(_SYMPTOMS).format(part=part)
            memory.add_user_message("s", f"Ticket {ticket}. {said}")
            for number in range(random.randint(1, 3)):
                _read(memory, random, f"c{turn}.{number}")
            first, second = random.sample(_FIRST, 2)
            cause = random.choice(_CAUSES).format(a=first, b=second, c=random.choice(_TEAMS))
            causes.append((ticket, part, cause))
            memory.add_assistant_message("s", random.choice(_ENDINGS).format(cause=cause))
    return Score(len(sizes), there, sum(sizes) / len(sizes))


def _read(memory: MemoryManager, random: Random, call_id: str) -> None:
    path = f"src/{random.choice(_TEAMS)}/{random.choice(_FIRST)}_{random.randrange(90)}.py"
    memory.add_tool_call("s", "read", json.dumps({"path": path}), call_id=call_id)
    lines = [
        f"{n:4} {random.choice(_FIRST)}_{random.randrange(900)} = load({random.choice(_FIRST)!r}, {n})"
        for n in range(random.randint(20, 80))
    ]
    memory.add_tool_result("s", "read", "\n".join(lines), call_id=call_id)
