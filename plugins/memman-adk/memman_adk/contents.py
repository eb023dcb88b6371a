"""The contents of a request: events as messages of memman, and contexts as contents."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from collections.abc import Iterator, Mapping, Sequence
from copy import copy, deepcopy
from typing import Any, Final

from google.adk.code_executors.code_execution_utils import CodeExecutionUtils
from google.adk.planners import BuiltInPlanner
from google.genai import types
from pydantic import ValidationError

from memman import Context

FORMAT: Final = "gemini"
_CLIENT_ID: Final = "adk-"  # begins the ids of calls that the model named none for
# The mark of calls that another model has made: memman spells it for the wire, ADK in bytes.
_MARK_OF_ADK: Final = b"skip_thought_signature_validator"
_MARK: Final = urlsafe_b64decode(_MARK_OF_ADK)

Transients = Sequence[tuple[int, types.Content]]
"""Contents of one request that are of no event, each with the number of the events' contents behind it."""


def message_of(content: types.Content) -> dict[str, Any]:
    """Return a content as a message of the format."""
    found: dict[str, Any] = content.model_dump(
        mode="json", by_alias=True, exclude_none=True, fallback=repr, warnings=False
    )
    found.setdefault("role", "user")
    found.setdefault("parts", [])
    return found


def payloads(content: types.Content) -> Iterator[str | bytes]:
    """Yield the texts and the data of a content, by which it is recognised."""
    for part in _parts(content):
        holders = (
            (part, "text"),
            (part.inline_data, "data"),
            (part.file_data, "file_uri"),
            (part.executable_code, "code"),
            (part.code_execution_result, "output"),
        )
        yield from filter(None, (getattr(holder, name, None) for holder, name in holders))


def is_shown(part: types.Part) -> bool:
    """Return whether a model gets a part of its past: not thoughts without a signature, nor empty ones."""
    has_more = any(value is not None for name, value in part if name not in ("text", "thought"))
    return has_more or bool(part.text and not part.thought)


def relayed(author: str, content: types.Content) -> str:
    """Return what another agent said and did as a text; its thoughts are its own."""
    lines = []
    for part in _parts(content):
        call, response = part.function_call, part.function_response
        media = part.inline_data or part.file_data
        if part.text and not part.thought:
            lines.append(f"{author} said:\n{part.text}")
        elif call:
            lines.append(f"{author} called {call.name} with {_as_text(call.args)}")
        elif response:
            lines.append(f"{response.name} returned:\n{_as_text(response.response)}")
        elif part.executable_code:
            lines.append(f"{author} ran:\n{part.executable_code.code}")
        elif part.code_execution_result:
            lines.append(f"The code returned:\n{part.code_execution_result.output}")
        elif media:
            lines.append(f"{author} attached {media.mime_type}")
    return "\n".join(lines).encode("utf-8", "replace").decode()


def _as_text(value: Mapping[str, Any] | None) -> str:
    """Return arguments or a response as text: the text itself if the response is one."""
    if value and len(value) == 1:
        [(key, text)] = value.items()
        if key in ("output", "result", "error") and isinstance(text, str):
            return text
    return json.dumps(value or {}, default=repr, ensure_ascii=False)


def as_read_by(agent: Any, content: types.Content) -> types.Content:
    """Return a content of an agent's past as ADK shows it to the agent.

    Agents with a code executor get code as text, and those with a planner of ADK's own their plans as text.
    """
    executor, planner = getattr(agent, "code_executor", None), getattr(agent, "planner", None)
    plans = planner is not None and not isinstance(planner, BuiltInPlanner)
    if executor is None and not plans:
        return content
    found = _copy(content)
    if executor is not None:
        first = next(iter(executor.code_block_delimiters), ("", ""))
        delimiters = executor.execution_result_delimiters
        CodeExecutionUtils.convert_code_execution_parts(found, first, delimiters)
    for part in _parts(found):
        part.thought = None if plans else part.thought
    return found


def has_call(content: types.Content) -> bool:
    """Return whether a content has a call of a function or its response."""
    return any(_calls(content))


class Contents:
    """Contexts of a session as contents of requests; what stays the same is converted once."""

    def __init__(self) -> None:
        self._made: list[tuple[Any, types.Content]] = []  # with the messages
        self._keeps_ids = False

    def of(
        self, context: Context, transients: Transients, given: Sequence[types.Content]
    ) -> list[types.Content]:
        """Return a context as contents.

        Args:
            context: a context that was built with the transients as pending messages.
            transients: the contents of no event, which get the places that ADK gave them.
            given: the contents that ADK made of the events, which show whether the model gets ADK's ids.
        """
        messages = _without_pending(context, transients)
        if messages is None:  # some were shortened
            messages, transients = list(context.messages), ()
        keeps_ids = any(map(_is_of_client, _calls(*given)))
        made = self._made if keeps_ids == self._keeps_ids else []
        self._made = [
            made[index]
            if index < len(made) and made[index][0] == message
            else (message, _content_of(message, keeps_ids))
            for index, message in enumerate(messages)
        ]
        self._keeps_ids = keeps_ids
        # Plugins and models may change the contents of a request.
        found = [_copy(content) for _, content in self._made]
        for behind, content in reversed(transients):
            found.insert(_place(found, len(given) - len(transients), behind), content)
        return found


def _without_pending(context: Context, transients: Transients) -> list[Any] | None:
    """Return the messages of a context without the pending ones; None if these were altered."""
    messages = list(context.messages)
    pending = [part for _, content in transients for part in message_of(content)["parts"]]
    while pending and messages:
        last = messages.pop()
        size = min(len(pending), len(last["parts"]))
        if last["parts"][-size:] != pending[-size:]:
            return None
        del pending[-size:]
        if parts := last["parts"][:-size]:  # the user's last message, to which they were joined
            messages.append({**last, "parts": parts})
    return None if pending else messages


def _place(contents: Sequence[types.Content], total: int, behind: int) -> int:
    """Return the index of a content with this number of contents behind it, of `total` in the history."""
    if behind >= total:
        return 0
    index = max(0, len(contents) - behind)
    while index < len(contents) and any(part.function_response for part in _parts(contents[index])):
        index += 1  # no call is parted from its result
    return index


def _parts(*contents: types.Content) -> Iterator[types.Part]:
    for content in contents:
        yield from content.parts or ()


def _calls(*contents: types.Content) -> Iterator[types.FunctionCall | types.FunctionResponse]:
    for part in _parts(*contents):
        if call := part.function_call or part.function_response:
            yield call


def _is_of_client(call: types.FunctionCall | types.FunctionResponse) -> bool:
    return (call.id or "").startswith(_CLIENT_ID)


def _content_of(message: Mapping[str, Any], keeps_ids: bool) -> types.Content:
    """Return a message as a content."""
    try:
        content = types.Content.model_validate(message)
    except ValidationError as error:
        # Another program may have logged keys that this release of google-genai does not know.
        message = deepcopy(dict(message))
        for problem in error.errors():
            _remove(message, problem["loc"])
        content = types.Content.model_validate(message)
    for part in _parts(content):
        if part.thought_signature == _MARK:
            part.thought_signature = _MARK_OF_ADK
    for call in _calls(content):
        if not keeps_ids and _is_of_client(call):
            call.id = None
    return content


def _copy(content: types.Content) -> types.Content:
    return content.model_copy(update={"parts": [copy(part) for part in _parts(content)]})


def _remove(value: Any, path: Sequence[int | str]) -> None:
    *parents, key = path
    for each in parents:
        value = value[each]
    value.pop(key, None)
