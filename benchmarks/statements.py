"""Sessions with labelled statements, for `benchmarks.kits`: rules, limits, facts, wishes, updates.

Two disjoint sets of labels and wordings, neither of them a public kit's. Set A may be looked at while
memman is changed; set B is only reported.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import msgspec

Draw = random.Random


class Said(msgspec.Struct, frozen=True):
    """A message of the session."""

    role: str
    text: str


class Planted(msgspec.Struct, frozen=True):
    """A value that must survive, and the older value of the same thing, if it had one."""

    subject: str
    value: str
    stale: str = ""


class Session(msgspec.Struct, frozen=True):
    """A session: its messages, their planted statements, and pairs of subjects that only look alike."""

    said: tuple[Said, ...]
    planted: tuple[Planted, ...]
    pairs: tuple[tuple[str, str], ...]


class Subject(msgspec.Struct, frozen=True):
    """A thing that has a value: its label, a wording, and the wording of its update, if it has one."""

    label: str
    wording: str
    value: Callable[[Draw], str]
    update: str = ""


class Wordings(msgspec.Struct, frozen=True):
    """The subjects of a set, the pairs among them that look alike, and the talk between them."""

    subjects: dict[str, Subject]
    pairs: tuple[tuple[str, str], ...]
    filler: tuple[str, ...]
    answers: tuple[str, ...]


def _letters(draw: Draw, number: int) -> str:
    return "".join(draw.choice("bcdfghjklmnprstvwz") + draw.choice("aeiou") for _ in range(number))


def _person(draw: Draw) -> str:
    return f"{_letters(draw, 2).title()} {_letters(draw, 3).title()}"


def _code(draw: Draw) -> str:
    return f"{_letters(draw, 2).upper()}{draw.randrange(10, 99)}"


def _port(draw: Draw) -> str:
    return str(draw.randrange(2_000, 9_999))


def _size(draw: Draw) -> str:
    return f"{draw.randrange(300, 990)} MiB"


def _euros(draw: Draw) -> str:
    return f"{draw.randrange(110, 990)} euros"


def _word(draw: Draw) -> str:
    return _letters(draw, 3)


def _day(draw: Draw) -> str:
    month = draw.choice(("March", "April", "June", "July", "August", "October", "November"))
    return f"{draw.randrange(1, 29)} {month}"


def _path(draw: Draw) -> str:
    return f"{_letters(draw, 2)}/{_letters(draw, 3)}.{draw.choice(('toml', 'py', 'sql'))}"


_A = Wordings(
    {
        "database": Subject(
            "RULE", "Never copy the customer database to {v}.", lambda d: f"{_word(d)}.example"
        ),
        "approval": Subject(
            "RULE",
            "Nothing is merged without the approval of {v}.",
            _person,
            "{v} approves the merges from now on.",
        ),
        "memory": Subject(
            "LIMIT",
            "The service may use at most {v} of memory.",
            _size,
            "Change of plan: the service gets {v} of memory at most.",
        ),
        "refund": Subject("LIMIT", "Refunds above {v} need a supervisor.", _euros),
        "staging port": Subject("KNOWN", "The staging server listens on port {v}.", _port),
        "production port": Subject("KNOWN", "The production server listens on port {v}.", _port),
        "invoices": Subject("KNOWN", "Invoices of this year begin with {v}.", _code),
        "credit notes": Subject("KNOWN", "Credit notes of this year begin with {v}.", _code),
        "ticket": Subject("STATE", "We work on ticket {v}.", _code, "We now work on ticket {v}."),
        "file": Subject("STATE", "The failing check is in {v}.", _path),
        "tone": Subject("LIKES", "Write to me in the {v} tone.", _word),
        "report": Subject(
            "LIKES", "I want the report on {v}.", _day, "I need the report on {v} instead."
        ),
    },
    (("staging port", "production port"), ("invoices", "credit notes")),
    (
        "The nightly export took a little longer than usual, nothing to worry about.",
        "Somebody asked whether the old dashboard can be switched off at some point.",
        "The second replica was restarted and has caught up since.",
        "I read the notes of the last review again; most of it is about naming.",
        "The parser accepts trailing commas, which surprised a few people.",
        "We tried the new theme for the help pages and it looks fine so far.",
        "The queue is empty again after the restart of the two workers.",
        "There was a talk about caches at lunch, the slides will follow.",
    ),
    ("Understood.", "All right, I go on with the plan.", "Good, that is written down."),
)
_B = Wordings(
    {
        "backup": Subject(
            "Guard rail", "do not restore a backup onto {v}", lambda d: f"{_word(d)}-{_port(d)}"
        ),
        "keys": Subject(
            "Guard rail",
            "only {v} hands out signing keys",
            _person,
            "signing keys come from {v} since this morning",
        ),
        "budget": Subject(
            "Ceiling",
            "the campaign costs no more than {v}",
            _euros,
            "marketing got more money: up to {v} for the campaign",
        ),
        "image": Subject("Ceiling", "a container image stays below {v}", _size),
        "east gate": Subject("Background", "the east gate opens with badge {v}", _code),
        "west gate": Subject("Background", "the west gate opens with badge {v}", _code),
        "lisbon": Subject("Background", "parcels for Lisbon leave from hall {v}", _word),
        "turin": Subject("Background", "parcels for Turin leave from hall {v}", _word),
        "chapter": Subject(
            "Where we are",
            "the translation has reached chapter {v}",
            _code,
            "by now the translation is at chapter {v}",
        ),
        "draft": Subject("Where we are", "the newest draft is {v}", _path),
        "greeting": Subject("Wish", "letters begin with the greeting {v}", _word),
        "meeting": Subject(
            "Wish", "the meeting with the board is on {v}", _day, "the board meets on {v} after all"
        ),
    },
    (("east gate", "west gate"), ("lisbon", "turin")),
    (
        "my colleague found the missing cable behind the second rack",
        "the printer on the third floor is out of toner again, by the way",
        "they repainted the meeting room and now it smells of paint",
        "the figures of last week look much like those of the week before",
        "the courier was late because of the road works near the bridge",
        "I moved the pictures into the other folder, they load as before",
        "someone left an umbrella here, it has a wooden handle",
        "the heating was off for an hour, it works again",
    ),
    ("Thanks, I have seen it.", "Fine, let us continue.", "I see."),
)
SETS = {"A": _A, "B": _B}
"""Set A may be used while memman is changed, set B is held out."""
_UPDATED = 3
_FILLED = (1, 3)  # messages between two statements


def session(name: str, seed: int) -> Session:
    """Return the session of a set and a seed: every subject once, three of them updated later."""
    wordings, draw = SETS[name], random.Random(f"{name} {seed}")
    updated = draw.sample([key for key, one in wordings.subjects.items() if one.update], _UPDATED)
    first = [key for key in wordings.subjects if key not in updated or draw.random() < 0.5]
    draw.shuffle(first)
    first = [key for key in updated if key not in first] + first
    separator = draw.choice((": ", " - ", " = "))
    said = [Said("system", "You are an assistant. Keep to what you are told in this session.")]
    values: dict[str, str] = {}
    stale: dict[str, str] = {}
    for key in [*first, *updated]:
        subject = wordings.subjects[key]
        again = key in values
        if again:
            stale[key] = values[key]
        values[key] = _other(draw, subject, stale.get(key, ""))
        text = (subject.update if again else subject.wording).format(v=values[key])
        said += _between(draw, wordings)
        said.append(Said("user", text if again else f"{subject.label}{separator}{text}"))
        said.append(Said("assistant", draw.choice(wordings.answers)))
    for _ in range(3):
        said += _between(draw, wordings)
    planted = tuple(Planted(key, value, stale.get(key, "")) for key, value in values.items())
    return Session(tuple(said), planted, wordings.pairs)


def _other(draw: Draw, subject: Subject, old: str) -> str:
    while (value := subject.value(draw)) == old:
        pass
    return value


def _between(draw: Draw, wordings: Wordings) -> list[Said]:
    said = []
    for _ in range(draw.randint(*_FILLED)):
        said.append(Said("user", draw.choice(wordings.filler)))
        said.append(Said("assistant", draw.choice(wordings.answers)))
    return said


class Found(msgspec.Struct, frozen=True):
    """The parts of sessions that texts have: values, updates without the old value, old values, pairs."""

    values: int = 0
    kept: int = 0
    updates: int = 0
    resolved: int = 0
    stale: int = 0
    pairs: int = 0
    both: int = 0

    def __add__(self, other: Found) -> Found:
        return Found(*map(sum, zip(*map(msgspec.structs.astuple, (self, other)), strict=True)))


def found_in(text: str, of: Session) -> Found:
    """Return the parts of a session that a text has."""
    there = {one.subject: one.value.lower() in text.lower() for one in of.planted}
    updates = [one for one in of.planted if one.stale]
    old = {one.subject for one in updates if one.stale.lower() in text.lower()}
    return Found(
        values=len(there),
        kept=sum(there.values()),
        updates=len(updates),
        resolved=sum(there[one.subject] and one.subject not in old for one in updates),
        stale=len(old),
        pairs=len(of.pairs),
        both=sum(there[first] and there[second] for first, second in of.pairs),
    )


def sessions(name: str, seeds: Sequence[int]) -> list[Session]:
    """Return the sessions of these seeds."""
    return [session(name, seed) for seed in seeds]
