"""Arguments of the managers and of their methods: validation, and the entries that `add_*` make."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar, get_args

import msgspec

from memman.display import format_error, known_names, safe_repr
from memman.entries import (
    Entry,
    EntryType,
    NewEntry,
    Role,
    check_id,
    check_model,
    check_name,
    check_new_entry,
    check_text,
    encode_json,
    json_bytes,
)
from memman.errors import AsyncPortRefused, InvalidInput
from memman.formats.blocks import with_blocks
from memman.formats.lenient import altered_entry, text_entry
from memman.formats.plain import as_plain
from memman.ids import check_nonce
from memman.protocols import Format
from memman.results import EntryState
from memman.runtime.base import USE_ASYNC, is_async_callable
from memman.search import terms_of
from memman.session.requests import ContextRequest
from memman.session.search import Search
from memman.state import Keeps, is_title

T = TypeVar("T")
_HITS = 10
_FINDABLE = ("active", "stubbed", "folded", "clipped", "summarised", "dropped")


def check_function(port: Any, name: str) -> None:
    """Raise an error unless the port is None or a sync function."""
    if port is not None and not callable(port):
        raise InvalidInput(f"{name} must be callable, not {type(port).__name__}")
    if is_async_callable(port):
        raise AsyncPortRefused(f"{name} is async, and must be a plain function in both managers")


def check_embed(embed: Any, takes_async: bool) -> None:
    """Raise an error unless `embed` is None or a function that this manager can call."""
    if not is_async_callable(embed):
        check_function(embed, "embed")
    elif not takes_async:
        raise AsyncPortRefused(f"embed is async: {USE_ASYNC}, or a plain function")


def checked_keeps(keeps: Any) -> Keeps:
    """Return the caller's own sections of the outline.

    Raises `InvalidInput` unless they are functions by title.
    """
    if keeps is None:
        return {}
    if not isinstance(keeps, Mapping):
        raise InvalidInput(
            f'keeps must be a dict such as {{"Tickets": function}}, not {type(keeps).__name__}'
        )
    for title, function in keeps.items():
        if check_text(title, "a title in keeps").splitlines() != [title]:
            raise InvalidInput(f"a title in keeps must be one line, not {safe_repr(title)}")
        if is_title(title):
            raise InvalidInput(f"keeps has the title {title!r}, which is memman's own")
        check_function(function, f"keeps[{title!r}]")
    return dict(keeps)


def aware(clock: Callable[[], datetime]) -> Callable[[], datetime]:
    """Return the clock; it raises `InvalidInput` for a time without a zone."""

    def now() -> datetime:
        time = _answer_of(clock, "clock")
        if not isinstance(time, datetime) or time.tzinfo is None:
            raise InvalidInput(f"clock must return an aware datetime, not {safe_repr(time)}")
        return time

    return now


def checked_ids(new_id: Callable[[], str]) -> Callable[[], str]:
    """Return the factory of ids; it raises `InvalidInput` for an invalid one."""
    return lambda: check_id(_answer_of(new_id, "new_id"), "what new_id returned")


def _answer_of(port: Callable[[], T], name: str) -> T:
    """Call a function without arguments. Raises `InvalidInput` if it raises."""
    try:
        return port()
    except Exception as error:
        raise InvalidInput(f"{name} raised {format_error(error)}; nothing was changed") from error


def checked_nonces(new_nonce: Callable[[], str]) -> Callable[[], str]:
    """Return the factory of nonces; it raises `InvalidInput` for an invalid one."""
    return lambda: check_nonce(_answer_of(new_nonce, "new_nonce"))


def system_text(system: Any) -> str:
    """Return the text of a system prompt: a string, Anthropic's list of blocks, or Gemini's `Content`.

    Texts of several blocks are joined. Raises `InvalidInput` for anything but text in it.
    """
    texts = [_text_of(part) for block in _listed(system) for part in _parts(as_plain(block))]
    if not texts or None in texts:
        raise InvalidInput(
            "system must be a text, a list of text blocks, or a Content of text parts, not "
            f"{safe_repr(system, 60)}"
        )
    return "\n\n".join([check_text(text, "system") for text in texts])


def _listed(value: Any) -> Sequence[Any]:
    """Return a list as it is, anything else as the only item of one."""
    return value if isinstance(value, Sequence) and not isinstance(value, str | bytes) else [value]


def _parts(block: Any) -> Sequence[Any]:
    """Return the parts of Gemini's `Content`; a block of another kind is its only part."""
    return _listed(block["parts"]) if isinstance(block, Mapping) and "parts" in block else [block]


def _text_of(part: Any) -> str | None:
    """Return the text of a text block, None for anything else."""
    plain = as_plain(part)
    text = plain.get("text") if isinstance(plain, Mapping) else plain
    return text if isinstance(text, str) else None


def tools_json(tools: Any) -> bytes | None:
    """Return tool definitions as JSON; None if there are none."""
    if tools is None:
        return None
    listed = isinstance(tools, Sequence) and not isinstance(tools, str | bytes)
    if not listed or not all(isinstance(tool, Mapping) for tool in tools):
        raise InvalidInput(
            f"tools must be a list of definitions (dicts), not {safe_repr(tools, 60)}"
        )
    return json_bytes(list(tools), "tools") if tools else None


def check_goal(target_tokens: Any, focus: Any, summarize: Any) -> None:
    """Raise `InvalidInput` unless the target is a number of tokens, the focus has words, and
    `summarize` is None, True or False.
    """
    check_positive(target_tokens, "target_tokens", "a number of tokens, at least 1")
    if focus is not None and not check_text(focus, "focus").strip():
        raise InvalidInput(f"focus={safe_repr(focus)} has no words: name a topic, or omit it")
    if not isinstance(summarize, bool | None):
        raise InvalidInput(f"summarize must be None, True or False, not {safe_repr(summarize)}")


def check_switch(given: Any, name: str) -> None:
    """Raise `InvalidInput` unless it is True or False."""
    if not isinstance(given, bool):
        raise InvalidInput(f"{name} must be True or False, not {safe_repr(given, 60)}")


def check_adding(pinned: Any, compress: Any) -> None:
    """Raise `InvalidInput` unless `pinned` is True or False and `compress` that or None."""
    check_switch(pinned, "pinned")
    if not isinstance(compress, bool | None):
        raise InvalidInput(f"compress must be True, False or None, not {safe_repr(compress)}")


def check_message_ids(ids: Any, messages: int) -> list[str | None]:
    """Return the ids of messages. Raises `InvalidInput` unless there is one, or None, for each."""
    if not isinstance(ids, Sequence) or isinstance(ids, str | bytes):
        raise InvalidInput(
            f"ids must be a list with one id for each message, not {safe_repr(ids, 60)}"
        )
    if len(ids) != messages:
        raise InvalidInput(f"ids has {len(ids)} items for {messages} messages")
    return [None if given is None else check_id(given, "ids") for given in ids]


def check_last(last: Any) -> int | None:
    """Return the number of the newest entries or messages that are wanted, None for all.

    Raises `InvalidInput` for anything else.
    """
    if last is not None and (type(last) is not int or last < 0):
        raise InvalidInput(f"last must be a number, at least 0, or None, not {safe_repr(last, 60)}")
    return last


def check_entry_ids(ids: Any) -> list[str]:
    """Return a list of entry ids; one id is a list of one. Raises `InvalidInput` for anything else."""
    wanted = [ids] if isinstance(ids, str) else ids
    if not isinstance(wanted, Sequence) or not all(isinstance(name, str) for name in wanted):
        raise InvalidInput(f"ids must be a list of entry ids, not {safe_repr(ids, 60)}")
    return [check_text(name, "ids") for name in wanted]


def check_unknown(unknown: Any) -> bool:
    """Return whether unknown messages are kept. Raises `InvalidInput` for anything but the two words."""
    if unknown not in ("refuse", "keep"):
        raise InvalidInput(f"unknown={safe_repr(unknown)}: use 'refuse' or 'keep'")
    return bool(unknown == "keep")


def check_on_conflict(on_conflict: str) -> None:
    """Raise `InvalidInput` unless it is one of the three words."""
    if on_conflict not in ("fail", "skip", "new_session"):
        raise InvalidInput(
            f"on_conflict={safe_repr(on_conflict)}: use 'fail', 'skip' or 'new_session'"
        )


def context_request(
    form: str,
    model: str | None,
    budget: int | None,
    system: Any,
    tools: Any,
    system_inline: bool,
    pending: tuple[Entry, ...],
    complete: bool = True,
    cache: Any = None,
    recall: Any = None,
) -> ContextRequest:
    """Return the validated arguments of a context. Raises `InvalidInput`."""
    if budget is not None and (isinstance(budget, bool) or not isinstance(budget, int)):
        raise InvalidInput(f"budget must be a number of tokens, not {safe_repr(budget)}")
    check_switch(system_inline, "system_inline")
    check_switch(complete, "complete")
    if cache not in (None, "auto"):
        raise InvalidInput(f"cache must be None or 'auto', not {safe_repr(cache, 60)}")
    if recall is not None:
        check_switch(recall, "recall")
    return ContextRequest(
        form,
        None if model is None else check_model(model),
        budget,
        None if system is None else system_text(system),
        tools_json(tools),
        system_inline,
        pending,
        complete,
        cache is not None,
        complete and recall is not False,
    )


def search_request(
    session_id: str | None,
    query: Any,
    limit: Any,
    budget: Any,
    sessions: Any,
    types: Any,
    tools: Any,
    states: Any,
    since: Any,
    until: Any,
) -> Search:
    """Return the validated arguments of a search. Raises `InvalidInput`."""
    terms = terms_of(check_text(query, "query"))
    if not terms:
        raise InvalidInput("query is empty: give words, an exact value or a path to search for")
    prefix = ""
    if session_id is None and sessions is not None:
        pattern = check_text(sessions, "sessions")
        if pattern.endswith("*"):
            prefix = pattern[:-1]
        else:
            session_id = pattern
    elif sessions is not None:
        raise InvalidInput("sessions is for a search with session_id=None; name the session once")
    check_positive(limit, "limit")
    check_positive(budget, "budget")
    for name, moment in (("since", since), ("until", until)):
        if moment is not None and (not isinstance(moment, datetime) or moment.tzinfo is None):
            raise InvalidInput(
                f"{name} must be a datetime with a time zone, not {safe_repr(moment, 60)}"
            )
    return Search(
        query=query,
        terms=terms,
        session_id=None if session_id is None else check_id(session_id, "session_id"),
        prefix=prefix,
        limit=_HITS if limit is None and budget is None else limit,
        budget=budget,
        types=_chosen(types, "types", get_args(EntryType)),
        tools=_chosen(tools, "tools", None),
        states=_chosen(_FINDABLE if states is None else states, "states", get_args(EntryState)),
        since=since,
        until=until,
    )


def check_positive(number: Any, name: str, what: str = "a whole number from 1 on") -> None:
    """Raise `InvalidInput` unless the argument is None or a whole number from 1 on."""
    if number is not None and (
        isinstance(number, bool) or not isinstance(number, int) or number < 1
    ):
        raise InvalidInput(f"{name} must be {what}, not {safe_repr(number)}")


def _chosen(names: Any, what: str, known: Sequence[str] | None) -> frozenset[Any]:
    """Return the given names. Raises `InvalidInput` for one that is not known."""
    if isinstance(names, str) or not isinstance(names, Collection):
        raise InvalidInput(f"{what} must be a list of names, not {safe_repr(names, 60)}")
    for name in names:
        if known is not None and name not in known:
            raise InvalidInput(
                f"unknown name {safe_repr(name)} in {what}{known_names(name, known)}"
            )
    return frozenset(check_text(name, f"a name in {what}") for name in names)


def metadata_json(metadata: Mapping[str, Any]) -> msgspec.Raw:
    """Return metadata as JSON."""
    if not isinstance(metadata, Mapping):
        raise InvalidInput(f"metadata must be a mapping, not {type(metadata).__name__}")
    return encode_json(dict(metadata), "metadata")


# ---------------------------------------------------------------- new entries


def new_entry(
    kind: EntryType,
    role: Role,
    content: Any,
    message_id: str | None,
    name: str | None = None,
    call_id: str | None = None,
    is_error: bool = False,
) -> NewEntry:
    """Return a new entry of arguments that `checked_entry` checks."""
    return NewEntry(
        type=kind,
        role=role,
        content=content,
        call_id=call_id,
        name=name,
        message_id=message_id,
        is_error=is_error,
    )


def checked_entry(
    given: NewEntry, formats: Callable[[], Sequence[Format]], *, keep: bool
) -> NewEntry:
    """Return a new entry as it can be stored.

    Args:
        given: an entry of any values.
        formats: returns the formats that may read blocks in its content.
        keep: values that cannot be stored are altered, and noted in the entry.

    Raises:
        InvalidInput: a value cannot be stored, and `keep` is not set or would not help.
    """
    try:
        return _checked(given, formats)
    except InvalidInput as error:
        if not keep:
            raise
        noted = msgspec.structs.replace(altered_entry(given), altered=str(error))
    try:
        return _checked(noted, formats)
    except InvalidInput:
        return _checked(text_entry(noted), formats)


def _checked(given: NewEntry, formats: Callable[[], Sequence[Format]]) -> NewEntry:
    """Return a new entry with plain values, its blocks as parts. Raises `InvalidInput`."""
    kind, content = given.type, given.content
    if kind != "message" and not check_name(given.name, kind) and kind == "tool_call":
        raise InvalidInput("the name of a tool call must not be empty")  # providers refuse it
    if kind == "tool_call":
        given = msgspec.structs.replace(given, content=_arguments(content))
    elif not isinstance(content, str):
        given = with_blocks(given, formats())
    return check_new_entry(given)


def _arguments(arguments: Any) -> str:
    """Return the arguments of a tool call as text."""
    if isinstance(arguments, str):
        return check_text(arguments, "a tool call's arguments")
    if not isinstance(arguments, Mapping):
        raise InvalidInput(
            f"a tool call's arguments must be a mapping or text, not {type(arguments).__name__}"
        )
    return json_bytes(dict(arguments), "a tool call's arguments").decode()
