"""Checks that the rules of several providers share."""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from memman.entries import JSON
from memman.formats.rules.rulebook import Here, There, matches
from memman.formats.rules.values import dicts, filled, get, repeated, says, show

Ids = Callable[[JSON], list[JSON]]
Halves = Iterator[tuple[str, JSON]]


def no_system(instead: str) -> Callable[[JSON], Here]:
    """Return a check that there is no system parameter, with advice to send another thing instead."""

    def of_system(system: JSON) -> Here:
        if system is not None:
            yield "system.shape", f"a system parameter is given; send a first {instead}"

    return of_system


def system_texts(system: JSON, kind: str | None = None) -> Here:
    """Yield a system prompt that is no text and no blocks of text, or blank; `kind` is their type."""
    blocks = system if isinstance(system, list) else [{"type": kind, "text": system}]
    texts = [says(get(b, "text")) and kind in (None, get(b, "type")) for b in blocks]
    if system is not None and not (texts and all(texts)):
        yield "system.shape", "system is not text, or some of it is blank; omit blank text"


def tool_name(name: JSON, what: str = "tool", most: int = 64) -> Here:
    """Yield a name that is not of letters, digits, underscores and hyphens alone."""
    if not matches(rf"[a-zA-Z0-9_-]{{1,{most}}}", name):
        text = f"a {what} name is {show(name)}; use 1 to {most} letters, digits, _ and -"
        yield "name.pattern", text


def alternating(messages: Sequence[JSON]) -> There:
    """Yield a first message of the assistant's, and the second of two messages of one role."""
    roles = [get(message, "role") for message in messages]
    first = dicts(get(messages[0], "content")) if messages else []
    if roles[:1] == ["assistant"] and get(next(iter(first), None), "type") != "compaction":
        yield 0, "order.first-not-user", "the assistant speaks first; put a user message before"
    for index, (before, role) in enumerate(pairwise(roles), start=1):
        if before == role and role in ("user", "assistant"):
            yield index, "order.alternate", f"two {role} messages in a row; merge them"


def reused_ids(messages: Sequence[JSON], ids: Ids, text: str) -> There:
    """Yield the ids of calls that were used before; `text` has a gap for the id."""
    seen: set[str] = set()
    for index, message in enumerate(messages):
        for call_id in ids(message):
            if call_id in seen:
                yield index, "id.duplicate", text.format(show(call_id))
            seen.add(call_id)


def answers_next(
    messages: Sequence[JSON], called: Ids, answered: Ids, use: str, result: str
) -> There:
    """Yield broken pairs in formats in which the message after calls begins with all their results.

    `called` returns the ids of a message's calls, `answered` those of its results. `use` and `result` are
    the types of their blocks, or the keys in a format without types.
    """
    for index, (before, after) in enumerate(pairwise((None, *messages, None))):
        asked, results = called(before), answered(after)
        for call_id in dict.fromkeys(asked):
            if call_id not in results:
                text = f"no {result} answers {show(call_id)} in the next message; add one"
                yield index - 1, "pair.missing-result", text
        for call_id in results:
            if call_id not in asked:
                text = f"no {use} {show(call_id)} in the message before; drop the result"
                yield index, "pair.orphan-result", text
        for call_id in repeated([call_id for call_id in results if call_id in asked]):
            yield index, "pair.duplicate-result", f"{show(call_id)} has several results; keep one"
        first = dicts(get(after, "content"))[: len(results)]
        if not all(result in block or block.get("type") == result for block in first):
            text = f"something precedes a {result}; put results first"
            yield index, "pair.result-first", text


def answers_in_place(
    messages: Sequence[JSON], called: Ids, answered: Callable[[JSON], tuple[bool, JSON]]
) -> There:
    """Yield broken pairs in formats in which results directly follow the message with their calls.

    `called` returns the ids of a message's calls; `answered` returns whether a message is a result, and
    the id of its call. Another rule covers a result without an id.
    """
    asked: list[str] = []
    done: list[JSON] = []
    caller = -1
    for index, message in enumerate([*messages, None]):
        is_result, call_id = answered(message)
        if not is_result:
            for waiting in dict.fromkeys(asked):
                if waiting not in done:
                    text = f"no tool message answers the call {show(waiting)}; add one"
                    yield caller, "pair.missing-result", text
            asked, done, caller = called(message), [], index
        elif call_id in done:
            text = f"the result of {show(call_id)} is there already; keep one"
            yield index, "pair.duplicate-result", text
        elif filled(call_id) and call_id not in asked:
            text = f"the result of {show(call_id)} follows no such call; send it as text"
            yield index, "pair.orphan-result", text
        if is_result:
            done.append(call_id)


def served_pairs(
    messages: Sequence[JSON], served: Callable[[JSON], Halves], *, may_wait: bool = False
) -> There:
    """Yield half pairs of the provider's own tools, whose results are in the assistant's messages.

    `served` yields ("use" or "result", id) of a message. If they `may_wait`, the last message is exempt.
    """
    waiting: dict[str, int] = {}
    for index, message in enumerate(messages):
        for half, call_id in served(message):
            name = show(call_id)
            if half == "use" and filled(call_id):
                waiting[call_id] = index
            elif half == "result" and waiting.pop(call_id if filled(call_id) else "", None) is None:
                yield index, "pair.server-tool", f"no use {name} before its result; drop the result"
    for call_id, index in waiting.items():
        if index < len(messages) - may_wait:
            yield index, "pair.server-tool", f"no result for the use {show(call_id)}; drop the use"
