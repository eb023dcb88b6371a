"""The types and keys that the providers' SDKs send, against the table of wire types.

    python .ci/wire_types.py            # name every type and key that the table lacks
    python .ci/wire_types.py --keys     # write memman/formats/wire/keys.json with the installed SDKs

The exit code is 1 if the table lacks one. It walks the installed SDKs; a test does so with those of
the default environment. With the newest ones:

    uv run --isolated --upgrade --group full --with mistralai python .ci/wire_types.py
"""

from __future__ import annotations

import inspect
import json
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typing_extensions

from memman.formats.wire.tables import kinds_of

Types = set[str]
Json = dict[str, Any]
_WRAPPERS = (
    typing.Annotated,
    typing.Required,
    typing.NotRequired,
    typing_extensions.ReadOnly,
)


def bare(hint: Any) -> Any:
    """Return a type without its alias and annotations."""
    while True:
        if hasattr(hint, "__value__"):
            hint = hint.__value__
        elif typing.get_origin(hint) in _WRAPPERS:
            hint = typing.get_args(hint)[0]
        else:
            return hint


def classes_of(hint: Any) -> Iterator[type]:
    """Yield the classes of a union, also inside lists."""
    hint = bare(hint)
    if inspect.isclass(hint) and (
        typing_extensions.is_typeddict(hint) or hasattr(hint, "model_fields")
    ):
        yield hint
    elif typing.get_origin(hint) is not typing.Literal:
        for argument in typing.get_args(hint):
            yield from classes_of(argument)


def fields_of(cls: Any) -> dict[str, Any]:
    """Return the types of a request's keys by their names on the wire."""
    if not typing_extensions.is_typeddict(cls):
        return {field.alias or name: field.annotation for name, field in cls.model_fields.items()}
    hints = typing_extensions.get_type_hints(cls, include_extras=True)
    aliases = {
        name: alias
        for name, hint in hints.items()
        for extra in getattr(hint, "__metadata__", ())
        if (alias := getattr(extra, "alias", None))
    }
    return {aliases.get(name, name): hint for name, hint in hints.items()}


def typed(*unions: Any, key: str = "type") -> Types:
    """Return the types of unions by the literal of a key."""
    classes = (cls for union in unions for cls in classes_of(union))
    return {name for cls in classes for name in literals(fields_of(cls).get(key))}


def literals(hint: Any) -> list[str]:
    """Return the texts that a type allows."""
    hint = bare(hint)
    if typing.get_origin(hint) is typing.Literal:
        return [str(value) for value in typing.get_args(hint)]
    inside = (
        typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else ()
    )
    return [name for each in inside for name in literals(each)]


def of_anthropic() -> Types:
    """Return the blocks of messages, those in beta included."""
    from anthropic.types import ContentBlockParam
    from anthropic.types.beta import BetaContentBlockParam

    return typed(ContentBlockParam, BetaContentBlockParam)


def of_responses() -> Types:
    """Return the items of requests and the parts of their messages, those in beta included."""
    from openai.types import responses
    from openai.types.beta import beta_response_input_item_param as beta
    from openai.types.responses import response_input_item_param as stable
    from openai.types.responses import response_output_message_param as output

    return typed(
        stable.ResponseInputItemParam,
        beta.BetaResponseInputItemParam,
        responses.ResponseInputContentParam,
        output.Content,
    )


def of_chat() -> Types:
    """Return the parts of messages."""
    from openai.types import chat

    return typed(chat.ChatCompletionContentPartParam, chat.ChatCompletionContentPartRefusalParam)


def of_gemini() -> Types:
    """Return the keys that name a part."""
    from google.genai.types import Part

    return set(fields_of(Part))


def of_bedrock() -> Types:
    """Return the keys that name a block of Converse."""
    import botocore.session

    service = botocore.session.get_session().get_service_model("bedrock-runtime")
    message = service.operation_model("Converse").input_shape.members["messages"].member
    return set(message.members["content"].member.members)


def of_mistral() -> Types:
    """Return the chunks of messages."""
    from mistralai.client.models import ContentChunk

    return typed(ContentChunk)


SDKS: dict[str, tuple[str, Callable[[], Types]]] = {
    "anthropic": ("anthropic", of_anthropic),
    "openai-responses": ("openai", of_responses),
    "openai-chat": ("openai", of_chat),
    "gemini": ("google.genai", of_gemini),
    "bedrock": ("botocore", of_bedrock),
    "mistral": ("mistralai", of_mistral),
}
"""For each format the module of its SDK, and the function that walks it."""


def of_messages_anthropic() -> list[Any]:
    """Return the classes of a request's messages, those in beta included."""
    from anthropic.types import MessageParam
    from anthropic.types.beta import BetaMessageParam

    return [*classes_of(MessageParam), *classes_of(BetaMessageParam)]


def of_items_responses() -> list[Any]:
    """Return the classes of a request's items, those in beta included."""
    from openai.types.beta import beta_response_input_item_param as beta
    from openai.types.responses import response_input_item_param as stable

    unions = (stable.ResponseInputItemParam, beta.BetaResponseInputItemParam)
    return [cls for union in unions for cls in classes_of(union)]


REQUESTS: dict[str, Callable[[], list[Any]]] = {
    "anthropic": of_messages_anthropic,
    "openai-responses": of_items_responses,
}
"""For each format whose requests have only known keys, the classes of their messages."""
KEYS = Path(__file__).parents[1] / "memman" / "formats" / "wire" / "keys.json"
_MARKS = ("type", "role")  # which class of a union a value is of
_FROM_CALLER = ("tool", "tools", "tool_changes")  # definitions of tools, which no log adds keys to
_REQUIRED = (typing.Required, typing_extensions.Required)
# Servers behind OpenAI's chat completions take keys of their own (reasoning_content, cache_control and many
# more), which no SDK has: only keys that are known from logs are cut, and those that begin with "_".
LOG_KEYS = (
    "action", "agent", "createdAt", "created_at", "extra", "is_demo", "message_type", "metrics",
    "modelInfo", "tags", "thought", "timestamp", "ts",
)  # fmt: skip
OF_CHAT: Json = {
    "roots": ["Message"],
    "classes": {
        "Message": {"is": {}, "keys": {"content": ["Part"]}, "cut": LOG_KEYS},
        "Part": {"is": {}, "keys": {}, "cut": ["timestamp", "ts"]},
    },
}
# Contents of Google and messages of Amazon have these keys alone; the keys of their parts are not cut.
OF_KEYED: Json = {
    form: {"roots": ["Message"], "classes": {"Message": {"is": {}, "keys": {"role": [], parts: []}}}}
    for form, parts in (("bedrock", "content"), ("gemini", "parts"))
}


def keys_of(form: str) -> Json:
    """Return the roots of a format's messages and for each class its marks and keys.

    A key has the names of the classes that are in its value, none for any value. Classes of the same
    name in beta add their keys. "" among a mark's values: it may be missing.
    """
    roots = REQUESTS[form]()
    found: Json = {}
    stack, seen = list(roots), set(roots)
    while stack:
        cls = stack.pop()
        row = found.setdefault(name_of(cls), {"is": {}, "keys": {}})
        fields = fields_of(cls)
        for mark in _MARKS:
            if mark in fields and (values := literals(fields[mark])):
                # Without its type, an object is a message if it has a role.
                required = typing.get_origin(fields[mark]) in _REQUIRED or "role" not in fields
                row["is"][mark] = sorted(
                    {*row["is"].get(mark, []), *values, *[""] * (not required)}
                )
        for key, hint in fields.items():
            inside = [] if is_free(hint) or key in _FROM_CALLER else inner_classes(hint)
            stack += (new := [each for each in inside if each not in seen])
            seen |= {*new}
            row["keys"][key] = sorted({*row["keys"].get(key, []), *map(name_of, inside)})
    rows = {name: {**row, "keys": dict(sorted(row["keys"].items()))} for name, row in found.items()}
    return {"roots": sorted({*map(name_of, roots)}), "classes": dict(sorted(rows.items()))}


def name_of(cls: Any) -> str:
    """Return the name of a class, the same in beta and not."""
    name: str = cls.__name__
    return name.removeprefix("Beta").removesuffix("Param")


def inner_classes(hint: Any) -> list[Any]:
    """Return the classes of a request in a type; the SDKs also take the objects of their responses."""
    return [cls for cls in classes_of(hint) if typing_extensions.is_typeddict(cls)]


def is_free(hint: Any) -> bool:
    """Return whether a type allows a dict with any keys."""
    hint = bare(hint)
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return any(map(is_free, typing.get_args(hint)))
    return hint in (object, Any, dict) or origin in (dict, Mapping)


def written(keys: Json) -> str:
    """Return the data file with a line for each class."""
    forms = [
        f'"{form}": {{"roots": {json.dumps(each["roots"])}, "classes": {{\n'
        + ",\n".join(
            f"{json.dumps(name)}: {json.dumps(row)}" for name, row in each["classes"].items()
        )
        + "\n}}"
        for form, each in sorted(keys.items())
    ]
    return "{\n" + ",\n".join(forms) + "\n}\n"


def lacking_keys(form: str, walked: Json, known: Json) -> list[str]:
    """Return the classes and keys of an SDK that the data file lacks."""
    classes = known.get(form, {}).get("classes", {})
    return [
        f"{form}: {name} has no entry for {key}"
        for name, row in walked["classes"].items()
        for key in row["keys"]
        if key not in classes.get(name, {"keys": {}})["keys"]
    ]


def lacking(form: str, known: Types) -> list[str]:
    """Return the types that have no row in the table."""
    return [f"{form}: {name} has no row" for name in sorted(known - kinds_of(form).keys())]


def main(given: list[str]) -> int:
    """Write the types and keys that the table lacks, or the data file of keys; return the exit code."""
    walked = {form: walk() for form, (module, walk) in SDKS.items() if find_spec(module)}
    keys = {form: keys_of(form) for form in REQUESTS if form in walked}
    stored = json.loads(KEYS.read_text(encoding="utf-8"))
    if given == ["--keys"]:  # those of an SDK that is not installed stay
        of_servers = dict.fromkeys(("openai-chat", "mistral"), OF_CHAT)
        KEYS.write_text(written({**stored, **keys, **of_servers, **OF_KEYED}), encoding="utf-8")
        return 0
    missing = [line for form, known in walked.items() for line in lacking(form, known)]
    missing += [line for form, found in keys.items() for line in lacking_keys(form, found, stored)]
    sys.stdout.write("".join(f"{line}\n" for line in missing))
    return int(bool(missing))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
