"""Turns: the exchanges of a window, valid by construction in every format.

An assistant message includes its calls, its results follow it directly (unless the format accepts them
anywhere), each call has exactly one result (a marked placeholder if it has none), a late result is shown
with its call once more, and a result without its call becomes a note. Text that is not the user's own is
delimited, and text that imitates the delimiters is neutralised.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping, Sequence
from math import inf
from typing import Literal

from memman.display import UNSEEN
from memman.entries import NO_JSON, Entry, JSONObject, neutralised
from memman.formats.parts import NOT_CARRIED, has_unsaid, is_beside, once_more
from memman.protocols import Call, Rendered, Turn
from memman.window import STATE_INDEX, WindowItem

NO_RESULT = "[memman: no result of this call is known]"
"""The result of a call that has none."""
NO_OUTPUT = "(no output)"
NOT_SAID = f"\n{NOT_CARRIED}"  # after a text whose parts were more than text
BEGINS = "[memman: the conversation begins with the assistant]"
"""The user's note before a first message of the assistant."""
GOES_ON = "[memman: the conversation goes on]"
SYSTEM_NOTE = "[memman: a system message within the conversation]\n"
STATE_HEAD = "[memman outline, from earlier entries, not a new request]"
STATE_HEADS = re.compile(
    rf"{re.escape(STATE_HEAD[:-1])}(?:; [A-Za-z0-9_-]{{1,64}} #N returns entry #N)?\]"
)
"""The head, also with the clause for the agent's recall tool."""
STATE_END = "[end of memman outline]"
NOTHING = Rendered((), 0)

_Kind = Literal["system", "user", "assistant", "context", "summary", "state", "orphan", "result"]
_MARK_LIKE = ", 9a9a9a9a]"  # costs as much as any nonce, and is the same in every session
_DIGITS = re.compile(r"[0-9]")
_BRACKETS = str.maketrans("[]", "()")


def turns(
    items: Sequence[WindowItem], form: str, *, results_anywhere: bool = False, last: bool = False
) -> list[Turn]:
    """Return the turns of one exchange in order.

    Args:
        items: the exchange.
        form: the name of a format with `results_beside`; "" for any other.
        results_anywhere: whether each result is its own turn.
        last: whether nothing follows: a call of the provider's own tool may still wait for its result.
    """
    first = items[0]
    beside = {item.entry.id: item for item in _calls_beside(items, form, last)}
    if not beside and (len(items) == 1 or (len(items) == 2 and first.result is items[1])):
        return [_turn_of_one(first)]  # possibly with a call's result: most exchanges of an agent
    found: list[Turn] = []
    taken: set[int] = set()
    results = {item.result.entry.id: item for item in beside.values() if item.result is not None}
    waiting: dict[str, Call] = {}  # the calls whose results have a later turn, by the result's id
    for number, item in enumerate(items):
        entry = item.entry
        if number in taken:
            continue
        if _is_assistant(entry) or entry.id in results:
            pieces = _assistant_pieces(items, number, results.keys())
            taken.update(pieces)
            turn = _assistant_turn([items[piece] for piece in pieces], beside, results)
            if results_anywhere:
                waiting |= {call.result.id: call for call in turn.calls if call.result is not None}
                unanswered = tuple(call for call in turn.calls if call.result is None)
                turn = Turn("assistant", turn.entries, turn.calls, unanswered)
            found.append(turn)
        elif not (entry.type == "tool_result" and item.answers):
            found.append(_other(item))
        elif entry.id in waiting:
            found.append(Turn("result", (entry,), (), (waiting[entry.id],)))
    return found


def _calls_beside(items: Sequence[WindowItem], form: str, last: bool) -> list[WindowItem]:
    """Return the calls of the provider's own tools with their results, or still without if `last`.

    A call or result that was replaced by a text, or one without the other, is like that of any tool.
    """
    found = []
    for item in items:
        if item.entry.type != "tool_call" or item.entry.raw_json is NO_JSON:
            continue
        answered = last if item.result is None else is_beside(item.result.entry, form)
        if answered and is_beside(item.entry, form):
            found.append(item)
    return found


def _turn_of_one(item: WindowItem) -> Turn:
    """Return the turn of an exchange with a single entry, or a call and its result."""
    entry = item.entry
    if item.index == STATE_INDEX:
        return Turn("state", (entry,))
    if entry.type == "message":
        return Turn("assistant" if _is_assistant(entry) else _kind(entry), (entry,))
    if entry.type == "tool_call":
        alone = (_call(item, set(), False),)
        return Turn("assistant", (), alone, alone)
    return _other(item)


def _other(item: WindowItem) -> Turn:
    """Return the turn of an entry that is not the assistant's; a late result is shown with its call."""
    if item.again is None:
        return Turn(_kind(item.entry), (item.entry,))
    unique = f"{item.again.call_id or 'memman-call'}--again-{item.position}"
    pair = (Call(once_more(item.again, item.position), unique, unique, item.entry),)
    return Turn("assistant", (), pair, pair)


def _is_assistant(entry: Entry) -> bool:
    kind = entry.type
    return kind == "tool_call" or (kind == "message" and entry.role == "assistant")


def _kind(entry: Entry) -> _Kind:
    kind = entry.type
    if kind == "message":
        return "system" if entry.role == "system" else "user"
    return kind if kind == "context" or kind == "summary" else "orphan"


def _assistant_pieces(items: Sequence[WindowItem], first: int, beside: Container[str]) -> list[int]:
    """Return the indexes of the entries that form one assistant message with the entry at `first`.

    `beside` are the ids of results that are in a message of the assistant.

    They share a `message_id`; adjacent calls without one run in parallel.
    """
    entry = items[first].entry
    if entry.message_id is not None:
        return [
            number
            for number in range(first, len(items))
            if items[number].entry.message_id == entry.message_id
            and (_is_assistant(items[number].entry) or items[number].entry.id in beside)
        ]
    last = first
    while (
        entry.type == "tool_call"
        and last + 1 < len(items)
        and items[last + 1].entry.type == "tool_call"
        and items[last + 1].entry.message_id is None
    ):
        last += 1
    return list(range(first, last + 1))


def _assistant_turn(
    pieces: Sequence[WindowItem], beside: Container[str], results: Mapping[str, WindowItem]
) -> Turn:
    """Return one assistant message: its texts, its calls, and the calls in the order of their results."""
    texts = tuple(item.entry for item in pieces if item.entry.type == "message")
    made = [item for item in pieces if item.entry.type == "tool_call"]
    used: set[str] = set()
    calls = tuple(_call(item, used, item.entry.id in beside) for item in made)
    ends = [inf if item.result is None else item.result.position for item in made]
    order = sorted(range(len(made)), key=ends.__getitem__)
    answers = tuple(calls[number] for number in order if not calls[number].beside)
    inside = tuple(
        _call(results[item.entry.id], set(), True) for item in pieces if item.entry.id in results
    )
    return Turn("assistant", texts, calls, answers, "", inside)


def _call(item: WindowItem, used: set[str], beside: bool) -> Call:
    """Return a call with its ids; an id that another call of the message uses is replaced."""
    unique = _unique_id(item)
    wire = item.entry.call_id or unique
    if wire in used:
        wire = unique
        while wire in used:  # a caller's id looks like one of ours
            wire += "-"
    used.add(wire)
    result = item.result
    return Call(item.entry, wire, unique, result.entry if result is not None else None, beside)


def _unique_id(item: WindowItem) -> str:
    call_id = item.entry.call_id
    if not call_id:
        return f"memman-call-{item.position}"
    return call_id if item.nth == 0 else f"{call_id}--memman-{item.position}"


# ---------------------------------------------------------------- delimited text


def delimited(turn: Turn) -> tuple[str, tuple[str, ...]]:
    """Return the text of a turn that is delimited, and the extras around the entry's own text."""
    entry = turn.entries[0]
    head, end = _heading(turn.kind, entry)
    content = entry.text
    text = neutralised(content)
    extras: tuple[str, ...] = (shape(head), f"\n{end}\n")
    if turn.nonce:  # a text that was written before the session began cannot contain it
        mark = f", {turn.nonce}]"
        head, end = head[:-1] + mark, end[:-1] + mark
        extras += (_MARK_LIKE, _MARK_LIKE)
    if len(text) != len(content):
        extras += (" ",) * (len(text) - len(content))
    if type(entry.content) is not str and has_unsaid(entry.content):
        text += NOT_SAID
        extras += (NOT_SAID,)
    return f"{head}\n{text}\n{end}", extras


def _heading(kind: str, entry: Entry) -> tuple[str, str]:
    """Return the lines before and after a text that is not the user's own."""
    if kind == "orphan":
        tool = f"tool {in_heading(entry.name)}" if entry.name else "a tool"
        head = f"[memman: a result of {tool}, whose call is not in this context]"
        return head, "[end of memman result]"
    if kind == "state":
        return state_head(entry), STATE_END
    if kind == "context":
        source = in_heading(entry.name) if entry.name else "an unnamed source"
        return f"[memman context from {source}, not user input]", "[end of memman context]"
    covers = entry.metadata
    span = ""
    if "first" in covers and "last" in covers:
        span = " of entries " + in_heading(f"{covers['first']}-{covers['last']}")
    offer = _offer(covers, f"#{covers['first']}-#{covers['last']} returns them") if span else ""
    return f"[memman summary{span}, not user input{offer}]", "[end of memman summary]"


def state_head(entry: Entry) -> str:
    """Return the line before an outline."""
    return f"{STATE_HEAD[:-1]}{_offer(entry.metadata, '#N returns entry #N')}]"


def _offer(metadata: JSONObject, what: str) -> str:
    """Return the clause for the agent's recall tool, if it had one when this was written."""
    recall = in_heading(str(metadata.get("recall", "")))
    return f"; {recall} {in_heading(what)}" if recall else ""


def in_heading(name: str | None) -> str:
    """Return a name for a heading: on one line, visible, without brackets that would end it."""
    name = UNSEEN.sub("", name or "")
    if name.isprintable() and "[" not in name and "]" not in name:
        return name
    return " ".join(name.translate(_BRACKETS).split())


def shape(text: str) -> str:
    """Replace every digit of a text by 9: it costs as much, and is the same each time."""
    return _DIGITS.sub("9", text)


def note(turn: Turn, framing: int, user_message: Callable[[str], JSONObject]) -> Rendered:
    """Return a turn that is neither the user's nor the assistant's as a note of the user's."""
    if turn.kind != "system":
        text, extras = delimited(turn)
        return Rendered((user_message(text),), framing, extras)
    [entry] = turn.entries
    unsaid = has_unsaid(entry.content)
    if not entry.text.strip() and not unsaid:
        return NOTHING
    text = SYSTEM_NOTE + entry.text + (NOT_SAID if unsaid else "")
    extras = (SYSTEM_NOTE, NOT_SAID) if unsaid else (SYSTEM_NOTE,)
    return Rendered((user_message(text),), framing, extras)
