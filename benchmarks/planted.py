"""Conversations in which values of different shapes are planted, in several languages.

A user states constraints and preferences, and tools return values, among talk and lines of no weight. The
wordings are in `wordings/a.json` and `wordings/b.json`, which have no sentence in common: set A may be
looked at while memman is changed; set B is held out, and only reported.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path

import msgspec

from benchmarks.trajectories import Message

SETS = ("a", "b")
LANGUAGES = ("en", "de", "es", "zh", "ru")
KINDS = ("constraint", "preference", "tool")
_EACH = 6  # values of each kind in a conversation
_TALK = (1, 3)  # exchanges of no weight before each
_LINES = (8, 24)  # of a tool's result
_VARIED = 0.7  # the share of talk and lines with words that vary
_OTHER_SCRIPTS = (
    "ήσυχο ποτάμι πέτρα", "조용한 강 돌", "静かな川の石", "نهر هادئ حجر", "शांत नदी पत्थर",
    "แม่น้ำเงียบสงบ", "נהר שקט אבן", "հանգիստ գետ քար", "მშვიდი მდინარე ქვა", "ስላም ወንዝ ድንጋይ",
)  # fmt: skip


class Wordings(msgspec.Struct, frozen=True):
    """The wordings of a language: statements with `{v}`, talk and lines with a number or words, words."""

    topic: str
    constraint: list[str]
    preference: list[str]
    tool: list[str]
    user: list[str]
    assistant: list[str]
    line: list[str]
    words: list[str]
    sentence: str


class Planted(msgspec.Struct, frozen=True):
    """A value, and whether a constraint, a preference or a tool's result has it."""

    kind: str
    value: str


class Conversation(msgspec.Struct, frozen=True):
    """A conversation, and the values in it."""

    messages: tuple[Message, ...]
    planted: tuple[Planted, ...]


Draw = random.Random


def _letters(draw: Draw, number: int) -> str:
    return "".join(draw.choice("bdfgklmnprstvz") + draw.choice("aeiou") for _ in range(number))


def _plain(draw: Draw, of: Wordings) -> str:
    chosen = draw.sample(of.words, 3)
    return ("" if ord(chosen[0][0]) > 0x2E80 else " ").join(chosen)


def _quoted(draw: Draw, of: Wordings) -> str:
    first, second, third = draw.sample(of.words, 3)
    return f'"{of.sentence.format(a=first, b=second, c=third)}"'


def _script(draw: Draw, _of: Wordings) -> str:
    words = draw.choice(_OTHER_SCRIPTS).split()
    draw.shuffle(words)
    return f"{' '.join(words)} {draw.choice(_OTHER_SCRIPTS).split()[0]}"


SHAPES: dict[str, Callable[[Draw, Wordings], str]] = {
    "identifier": lambda draw, _: f"{_letters(draw, 2)}-{draw.randrange(1_000, 9_999)}",
    "path": lambda draw, _: f"{_letters(draw, 2)}/{_letters(draw, 3)}/{_letters(draw, 2)}.toml",
    "number": lambda draw, _: str(draw.randrange(10_000, 99_999)),
    "plain words": _plain,
    "quoted sentence": _quoted,
    "other script": _script,
}


@cache
def wordings(name: str) -> dict[str, Wordings]:
    """Return the wordings of a set by language."""
    path = Path(__file__).with_name("wordings") / f"{name}.json"
    return msgspec.json.decode(path.read_bytes(), type=dict[str, Wordings])


def conversation(name: str, language: str, shape: str, seed: int) -> Conversation:
    """Return the conversation of a set, a language, a shape of values and a seed."""
    draw = Draw(f"{name} {language} {shape} {seed}")
    of = wordings(name)[language]
    kinds = list(KINDS * _EACH)
    draw.shuffle(kinds)
    topics = draw.sample(of.words, len(kinds))  # so that no statement updates another
    messages: list[Message] = []
    planted: list[Planted] = []
    for kind in kinds:
        used = {one.value for one in planted}
        while (value := SHAPES[shape](draw, of)) in used:
            pass
        planted.append(Planted(kind, value))
        messages += _talk(draw, of)
        statement = draw.choice(getattr(of, kind)).format(v=value)
        if kind == "tool":
            messages += _called(draw, of, statement, f"call_{len(planted)}")
        else:
            around = draw.choice(((), (_of(draw, of, of.user),)))
            said = of.topic.format(a=topics.pop()) + statement
            messages.append({"role": "user", "content": " ".join((*around, said))})
        messages.append({"role": "assistant", "content": _of(draw, of, of.assistant)})
    for _ in range(2):
        messages += _talk(draw, of)
    return Conversation(tuple(messages), tuple(planted))


def _of(draw: Draw, of: Wordings, texts: list[str]) -> str:
    first, second, third = draw.sample(of.words, 3)
    # Texts with words are unlike each other, so most are of these.
    varied = [text for text in texts if "{a}" in text]
    chosen = varied if draw.random() < _VARIED else texts
    return draw.choice(chosen).format(n=draw.randrange(2, 90), a=first, b=second, c=third)


def _talk(draw: Draw, of: Wordings) -> list[Message]:
    messages: list[Message] = []
    for _ in range(draw.randint(*_TALK)):
        messages.append({"role": "user", "content": _of(draw, of, of.user)})
        said = (_of(draw, of, of.assistant) for _ in range(draw.randint(1, 3)))
        messages.append({"role": "assistant", "content": " ".join(said)})
    return messages


def _called(draw: Draw, of: Wordings, statement: str, call_id: str) -> list[Message]:
    function = {"name": "look_up", "arguments": json.dumps({"page": draw.randrange(2, 90)})}
    call = {"id": call_id, "type": "function", "function": function}
    lines = [_of(draw, of, of.line) for _ in range(draw.randint(*_LINES))]
    lines.insert(draw.randrange(len(lines)), statement)
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": "\n".join(lines)},
    ]
