"""Entries of a conversation, their parts, and the validation of their values.

Entries are frozen and contain only strings, numbers and encoded JSON, so callers cannot change them.
`metadata` and `raw` are decoded at each read.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, Literal, TypeVar

import msgspec

from memman.display import gap, safe_repr
from memman.errors import InvalidInput
from memman.extents import MAX_DEPTH, MAX_ENTRY_BYTES, check_extent

EntryType = Literal["message", "tool_call", "tool_result", "context", "summary"]
"""The type of an entry."""
JSON = Any
"""Decoded JSON: a dict, list, string, number, boolean or None."""
JSONObject = dict[str, Any]
Role = Literal["system", "user", "assistant", "tool"]
"""The author of an entry. Contexts and summaries have the role system."""
Method = Literal["api", "client", "estimation"]
Accuracy = Literal["high", "medium", "low"]
"""The accuracy of a count; high only with the model's own vocabulary."""

ENTRY_TYPES: tuple[EntryType, ...] = ("message", "tool_call", "tool_result", "context", "summary")
NO_JSON = msgspec.Raw()
MOST_TOKENS = 2**53  # exact in every store, and in the JSON of other programs
# Alphabets in circles, squares and parentheses.
_ENCLOSED = (0x24B6, 0x24D0, 0x249C, 0x1F110, 0x1F130, 0x1F150, 0x1F170)
MAX_NAME_CHARACTERS = 1_000
MAX_SOURCE_CHARACTERS = 4_096
_MAX_ID_BYTES = 255
_MAX_CALL_ID_BYTES = 16_384  # some gateways put the model's signature into the id of a call
_ADDRESS = re.compile(r"#([1-9][0-9]{0,17})(?:\.([1-9][0-9]{0,8}))?")
_ODD_BRACKETS = "\uff3b\u3010\u3014\u27e6\u301a\u2045\u2772\u298b"
# Cyrillic, Greek and other letters that look like those of our delimiters, in addition to the wide, the
# circled and the thirteen mathematical alphabets.
_ALIKE = {
    "a": "\u0430\u03b1\u0251\u1d00",
    "d": "\u0501\u217e\u1d05",
    "e": "\u0435\u0395\u1d07\u212f",
    "m": "\u043c\u039c\u217f\u1d0d\u13b7",
    "n": "\u0578\u039d\u0274",
    "o": "\u043e\u03bf\u1d0f\u2134",
}


class TextPart(msgspec.Struct, frozen=True, gc=False, tag="text"):
    """A piece of text in a message of several parts."""

    text: str


class ImagePart(msgspec.Struct, frozen=True, gc=False, tag="image", omit_defaults=True):
    """An image by `url` or inline as base64 `data`. `alt` describes it, for formats of text."""

    url: str | None = None
    data: str | None = None
    media_type: str | None = None
    detail: str | None = None
    alt: str | None = None


class FilePart(msgspec.Struct, frozen=True, gc=False, tag="file", omit_defaults=True):
    """A file by `url` or provider's `file_id`, or inline as base64 `data`. `alt` describes it."""

    name: str | None = None
    url: str | None = None
    file_id: str | None = None
    data: str | None = None
    media_type: str | None = None
    alt: str | None = None


class OpaquePart(msgspec.Struct, frozen=True, gc=False, tag="opaque", omit_defaults=True):
    """A block that only its provider understands (signed reasoning, an unknown type).

    It is returned to that provider unchanged, and never sent to another, which gets its `text`: what can be
    read of it.
    """

    format: str
    block: msgspec.Raw
    text: str = ""


Part = TextPart | ImagePart | FilePart | OpaquePart
"""A piece of a message that is not only text."""
Content = str | tuple[Part, ...]
"""The content of an entry: text, or parts in order."""
ContentLike = str | Part | Sequence[Part | Mapping[str, Any]]
"""A content as the `add_*` methods take it: also a part, a list, or a provider's list of blocks."""


class TokenCount(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A number of tokens, with the method and the accuracy of the count.

    `latency` is in seconds. `expected_output` is None unless the counter knows it.
    """

    tokens: int
    method: Method = "estimation"
    accuracy: Accuracy = "low"
    counter: str = ""
    cached: bool = False
    latency: float = 0.0
    expected_output: int | None = None

    def __int__(self) -> int:
        return self.tokens


NOT_COUNTED = TokenCount(tokens=0)


class Entry(
    msgspec.Struct,
    frozen=True,
    gc=False,  # made of immutable values: it cannot be part of a cycle
    kw_only=True,
    omit_defaults=True,
    rename={"metadata_json": "metadata", "raw_json": "raw"},
):
    """One entry of a conversation.

    `content` is a string or a tuple of parts; `text` is always a string. A tool call's content is its
    arguments as received. The `name` of a context is its source, that of a message its speaker's. `seq` is
    the position in the session's log. An entry that a compression wrote has the `seq` of that compression,
    and `replacement` is its number there, from 1. `seq`, `replacement`, `compressed` and `summary_id` are
    derived from the log when the entry is read.
    """

    id: str
    type: EntryType
    role: Role
    content: Content
    timestamp: datetime
    token_count: TokenCount = NOT_COUNTED
    seq: int = 0
    call_id: str | None = None
    name: str | None = None
    message_id: str | None = None
    is_error: bool = False
    pinned: bool = False
    metadata_json: msgspec.Raw = NO_JSON
    raw_json: msgspec.Raw = NO_JSON
    compressed: bool = False
    summary_id: str | None = None
    replacement: int = 0

    def __repr__(self) -> str:
        """Short enough for a prompt; every field is an attribute."""
        kind = f"{self.role} message" if self.type == "message" else self.type
        what = " ".join(filter(None, (self.address, kind, self.name)))
        return f"<Entry {what}, {self.token_count.tokens:,} tokens: {excerpt(self.text)!r}>"

    @property
    def address(self) -> str:
        """Its position in the log: `#556`, or `#556.2` for the second replacement of compression #556.

        "" before it is stored. `get_entry` and the command accept it in place of an id.
        """
        if not self.seq:
            return ""
        return f"#{self.seq}.{self.replacement}" if self.replacement else f"#{self.seq}"

    @property
    def text(self) -> str:
        """The text, without other parts."""
        return text_of(self.content)

    @property
    def metadata(self) -> dict[str, Any]:
        """The caller's own data, a fresh plain dict at each read."""
        return decode_json(self.metadata_json) or {}

    @property
    def raw(self) -> Any:
        """The parts of the provider's message that rendering cannot reproduce, fresh at each read."""
        return decode_json(self.raw_json)


class NewEntry(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """An entry without id, time and count, as `parse` and the `add_*` methods create it.

    `message_index` is the index of the message that it was parsed from. `altered` is the reason if that
    message could not be stored as it was, `kept` the reason if it could not be read and is kept whole; an
    entry has both in its metadata.
    """

    type: EntryType
    role: Role
    content: Content
    call_id: str | None = None
    name: str | None = None
    message_id: str | None = None
    is_error: bool = False
    metadata_json: msgspec.Raw = NO_JSON
    raw_json: msgspec.Raw = NO_JSON
    message_index: int = 0
    altered: str = ""
    kept: str = ""


D = TypeVar("D", NewEntry, Entry)


def entry_of(
    new_entry: NewEntry,
    entry_id: str,
    at: datetime,
    count: TokenCount,
    pinned: bool = False,
    metadata_json: msgspec.Raw = NO_JSON,
) -> Entry:
    """Return the entry of a new entry, with its id, time and count."""
    metadata = metadata_json if new_entry.metadata_json is NO_JSON else new_entry.metadata_json
    entry = Entry(
        id=entry_id,
        type=new_entry.type,
        role=new_entry.role,
        content=new_entry.content,
        timestamp=at,
        token_count=count,
        call_id=new_entry.call_id,
        name=new_entry.name,
        message_id=new_entry.message_id,
        is_error=new_entry.is_error,
        pinned=pinned,
        metadata_json=metadata,
        raw_json=new_entry.raw_json,
    )
    return noted(entry, altered=new_entry.altered, kept=new_entry.kept)


def noted(entry: Entry, **notes: str) -> Entry:
    """Return the entry with notes of memman's own in its metadata; empty ones are left out."""
    kept = {name: reason for name, reason in notes.items() if reason}
    if not kept:
        return entry
    metadata = entry.metadata
    own = metadata.get("memman")
    metadata["memman"] = {**(own if isinstance(own, dict) else {}), **kept}
    return msgspec.structs.replace(entry, metadata_json=encode_json(metadata, "metadata"))


def note_of(entry: Entry, name: str) -> str:
    """Return a note of memman's own in the metadata of an entry; "" without it."""
    if b'"memman"' not in bytes(entry.metadata_json):
        return ""
    own = entry.metadata.get("memman")
    note = own.get(name) if isinstance(own, dict) else None
    return note if isinstance(note, str) else ""


def parse_address(text: str) -> tuple[int, int] | None:
    """Return `seq` and `replacement` of an address such as `#556` or `#556.2`; None for other text."""
    found = _ADDRESS.fullmatch(text)
    return None if found is None else (int(found[1]), int(found[2] or 0))


def excerpt(text: str, most: int = 40) -> str:
    """Return the beginning of a text."""
    return text if len(text) <= most else f"{text[:most]}..."


def text_of(content: Content) -> str:
    """Return the text of a content, parts joined by a newline."""
    if type(content) is str:
        return content
    readable = (part for part in content if isinstance(part, TextPart | OpaquePart))
    return "\n".join(part.text for part in readable if part.text or isinstance(part, TextPart))


def encode_json(value: Any, what: str) -> msgspec.Raw:
    """Encode plain JSON data, None and {} as NO_JSON; errors as in `json_bytes`."""
    return NO_JSON if value is None or value == {} else msgspec.Raw(json_bytes(value, what))


def json_bytes(value: Any, what: str) -> bytes:
    """Encode plain JSON data. Raises `InvalidInput` that names the part that is not JSON.

    Values that an encoder would change (NaN to null, a key 1 to "1", a tuple to a list) are refused, and so
    is data of more than a million values, 64 levels or `MAX_ENTRY_BYTES` characters.
    """
    return _there_and_back(value, what)[0]


def plain_json(value: Any, what: str) -> Any:
    """Return a copy of plain JSON data with plain strings, lists and dicts; errors as in `json_bytes`."""
    return _there_and_back(value, what)[1]


def strings_in(value: JSON, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield the strings of plain JSON data in order, each behind the key of it or of its list."""
    if isinstance(value, str):
        yield key, value
    for name, item in value.items() if isinstance(value, dict) else ():
        yield from strings_in(item, name)
    for item in value if isinstance(value, list) else ():
        yield from strings_in(item, key)


def _there_and_back(value: Any, what: str) -> tuple[bytes, Any]:
    """Return JSON data encoded and decoded again, which is equal to it."""
    check_extent(value, what)
    try:
        encoded = _encoder.encode(value)
        back = msgspec.json.decode(encoded)
        if back == value:
            return encoded, back
        fault = "it does not survive"
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        fault = str(error)
    raise InvalidInput(f"{what} must be plain JSON: {fault_in_json(value) or fault}")


def depth_of(value: Any, most: int) -> int:
    """Return the number of levels of arrays and objects, counted up to one above `most`."""
    level, depth = [value], 0
    while depth <= most and (level := [each for each in level if isinstance(each, dict | list)]):
        level = [
            each for item in level for each in (item.values() if isinstance(item, dict) else item)
        ]
        depth += 1
    return depth


def _plain_string(value: object) -> str:
    """Return a string of a subclass as a plain one; anything else is not JSON."""
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError(f"it holds an object of type {type(value).__name__}")


_encoder = msgspec.json.Encoder(enc_hook=_plain_string)


def decode_json(raw: msgspec.Raw) -> Any:
    """Return the value of encoded JSON; None if it is empty."""
    return msgspec.json.decode(raw) if len(memoryview(raw)) else None


def json_or(default: Any, text: str | msgspec.Raw) -> Any:
    """Return the value of a JSON text, `default` if it is not JSON."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return default


def fault_in_json(value: Any, path: str = "$", depth: int = 0) -> str:
    """Return a description of the first part of `value` that is not JSON, or ""."""
    if depth >= MAX_DEPTH and isinstance(value, dict | list):
        return f"{path[:40]}... is nested deeper than {MAX_DEPTH} levels"
    if isinstance(value, dict):
        odd = [key for key in value if not isinstance(key, str)]
        if odd:
            return f"the key {safe_repr(odd[0])} at {path} is not a string"
        if broken := [key for key in value if not is_encodable(key)]:
            return f"the key {safe_repr(broken[0])} at {path} holds a lone surrogate"
        inside = ((f"{path}.{key}", item) for key, item in value.items())
        return next(filter(None, (fault_in_json(item, at, depth + 1) for at, item in inside)), "")
    if isinstance(value, list):
        faults = (fault_in_json(v, f"{path}[{i}]", depth + 1) for i, v in enumerate(value))
        return next(filter(None, faults), "")
    if isinstance(value, str):
        return "" if is_encodable(value) else f"{path} holds a lone surrogate"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{path} is {value!r}, which JSON has no form for"
    plain = value is None or isinstance(value, bool | int | float)
    return "" if plain else f"{path} is of type {type(value).__name__}"


def is_encodable(text: str) -> bool:
    """Return whether the text has no lone surrogate, so that every store and provider accepts it."""
    if text.isascii():
        return True
    try:
        text.encode("utf-32")  # fails for the same texts as UTF-8, and is faster
    except UnicodeEncodeError:
        return False
    return True


def check_text(text: object, what: str) -> str:
    """Return the text as a plain string. Raises `InvalidInput` for other types and lone surrogates.

    A subclass of `str` (a member of an enum, a node of a document) can be neither counted nor stored.
    """
    if not isinstance(text, str):
        raise InvalidInput(f"{what} must be a string, not {type(text).__name__}")
    plain = str.__str__(text)
    if not is_encodable(plain):
        raise InvalidInput(
            f"{what} holds a lone surrogate, which no store or provider accepts; "
            "decode the bytes with errors='replace' first"
        )
    return plain


def check_content(content: object, what: str) -> Content:
    """Return the content with plain strings. Raises `InvalidInput` unless it is text or parts."""
    if isinstance(content, str):
        return check_text(content, what)
    if isinstance(content, Part):
        content = (content,)
    if isinstance(content, list | tuple):
        return tuple(_check_part(part, what) for part in content)
    hint = ": a block goes into a list, and json.dumps makes text of a tool's own data"
    raise InvalidInput(
        f"{what} must be a text, parts (TextPart, ImagePart ...) or a list of a provider's blocks, not "
        f"{type(content).__name__}{hint if isinstance(content, dict) else ''}"
    )


def _check_part(part: object, what: str) -> Part:
    if not isinstance(part, Part):
        raise InvalidInput(f"{what} has a part of type {type(part).__name__}")
    changed = {}
    for name in part.__struct_fields__:
        value = getattr(part, name)
        if isinstance(part, OpaquePart) and name == "block":
            _check_block(value, what)
        elif value is not None or isinstance(part, TextPart | OpaquePart):
            plain = check_text(value, f"{what}: {name} of a {type(part).__name__}")
            if plain is not value:
                changed[name] = plain
    return msgspec.structs.replace(part, **changed) if changed else part


def _check_block(block: object, what: str) -> None:
    """Raise `InvalidInput` for a block that would make an export unreadable."""
    if not isinstance(block, msgspec.Raw):
        raise InvalidInput(
            f"{what}: block of an OpaquePart must be msgspec.Raw with JSON, not {safe_repr(block, 60)}"
        )
    try:
        deep = depth_of(msgspec.json.decode(block), MAX_DEPTH) > MAX_DEPTH
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{what}: block of an OpaquePart is not JSON: {error}") from None
    if deep:
        raise InvalidInput(
            f"{what}: block of an OpaquePart is nested deeper than {MAX_DEPTH} levels"
        )


def check_new_entry(new_entry: D) -> D:
    """Return the entry with plain strings. Raises `InvalidInput` for a value that cannot be stored."""
    name, call_id, message_id = new_entry.name, new_entry.call_id, new_entry.message_id
    checked = {
        "content": check_content(new_entry.content, "content"),
        "name": None if name is None else check_name(name, new_entry.type),
        "call_id": None if call_id is None else check_id(call_id, "call_id", _MAX_CALL_ID_BYTES),
        "message_id": None if message_id is None else check_id(message_id, "message_id"),
    }
    changed = {key: plain for key, plain in checked.items() if plain is not getattr(new_entry, key)}
    if new_entry.is_error is not False and new_entry.is_error is not True:
        raise InvalidInput(f"is_error must be True or False, not {safe_repr(new_entry.is_error)}")
    if changed:
        new_entry = msgspec.structs.replace(new_entry, **changed)
    content = new_entry.content
    parts = (content,) if isinstance(content, str) else content
    size = len(memoryview(new_entry.raw_json)) + len(memoryview(new_entry.metadata_json))
    size += sum(map(_bytes_of, parts))
    if size > MAX_ENTRY_BYTES:
        raise InvalidInput(
            f"an entry of {size:,} bytes is too large; at most {MAX_ENTRY_BYTES:,} bytes are taken"
        )
    return new_entry


def check_name(name: object, kind: EntryType) -> str:
    """Return the name of a tool or speaker, or a context's source, as a plain string of limited length.

    A context may be cut to fit, a name may not.
    """
    what, most = "a speaker's name" if kind == "message" else "a tool's name", MAX_NAME_CHARACTERS
    if kind == "context":
        what, most = "a context's source", MAX_SOURCE_CHARACTERS
    plain = check_text(name, what)
    if len(plain) > most:
        raise InvalidInput(f"{what} has {len(plain):,} characters; at most {most:,} are taken")
    return plain


def _bytes_of(part: Part | str) -> int:
    """Return the bytes of a text, or of all texts of a part."""
    if isinstance(part, str):
        exact = part.isascii() or len(part) > MAX_ENTRY_BYTES
        return len(part) if exact else len(part.encode())
    if isinstance(part, OpaquePart):
        return len(memoryview(part.block)) + _bytes_of(part.text)
    values = (getattr(part, name) for name in part.__struct_fields__)
    return sum(_bytes_of(value) for value in values if value is not None)


def check_id(value: object, what: str, most: int = _MAX_ID_BYTES) -> str:
    """Return the id as a plain string. Ids are opaque: 1 to `most` bytes, no control characters."""
    plain = check_text(value, what)
    if not plain or len(plain) > most or (not plain.isascii() and len(plain.encode()) > most):
        raise InvalidInput(f"{what} must have 1 to {most:,} bytes, not {len(plain.encode()):,}")
    if not plain.isprintable():
        raise InvalidInput(f"{what} {plain!r} holds control characters")
    return plain


def check_model(name: object) -> str:
    """Return a model's name as a plain string. Raises `InvalidInput` for a blank one."""
    plain = check_text(name, "model")
    if is_blank(plain):
        raise InvalidInput(names_nothing("model", plain))
    return plain


def is_blank(name: str) -> bool:
    """Return whether a name is empty or blank."""
    return not name or name.isspace()


def names_nothing(what: str, name: str) -> str:
    """Return the error message for a blank name."""
    return f"{what}={name!r} is blank: give a name, or None"


def is_of_tool(entry: Entry, name: str) -> bool:
    """Return whether an entry is a call of this tool or a result of it; never for the name ""."""
    return bool(name) and entry.name == name and entry.type in ("tool_call", "tool_result")


def is_path(text: str) -> bool:
    """Return whether a file can have this name."""
    try:
        return bool(text) and b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def file_mode(path: str | os.PathLike[str]) -> int:
    """Return the mode of the file at a path, for the functions of `stat`; 0 if none is visible.

    `Path.exists` raises for a file in a folder that this user cannot read.
    """
    try:
        return os.stat(path).st_mode  # noqa: PTH116 - a path of any kind, in one call
    except (OSError, ValueError):
        return 0


def neutralised(text: str) -> str:
    """Return the text with a space in imitations of memman's own brackets.

    Imitations may contain lookalike letters and invisible characters.
    """
    if text.isascii():
        return _ASCII_IMITATION.sub("[ ", text)
    if any(bracket in text for bracket in _ODD_BRACKETS):
        return _lookalike(rf"[\[{_ODD_BRACKETS}]").sub(r"\g<0> ", text)
    # A search for a single bracket is much faster than for any of nine.
    return _lookalike(r"\[").sub("[ ", text) if "[" in text else text


def _imitation(bracket: str, gap: str, letters: Callable[[str], str]) -> re.Pattern[str]:
    """Return a pattern for a bracket before memman's name, with gaps between the letters."""
    end, name = (gap.join(map(letters, word)) for word in ("endof", "memman"))
    return re.compile(rf"{bracket}(?={gap}(?:{end}{gap})?{name}(?!\w))", re.IGNORECASE)


@cache
def _lookalike(bracket: str) -> re.Pattern[str]:
    return _imitation(bracket, gap(), _printed_like)


def _printed_like(letter: str) -> str:
    """Return a character class of letters that look like this one or its capital."""
    at = ord(letter) - ord("a")
    plain = [first + at for first in (ord("a"), 0xFF41, *_ENCLOSED)]
    mathematical = [first + 52 * k + at for k in range(13) for first in (0x1D400, 0x1D41A)]
    return f"[{''.join(map(chr, plain + mathematical))}{_ALIKE.get(letter, '')}]"


_ASCII_IMITATION = _imitation(r"\[", r"[\s\x00-\x1f\x7f]*", str)


def speaker_of(entry: Entry) -> str:
    """Return the speaker's name of a message, on one line; "" if it has none."""
    return " ".join((entry.name or "").split()) if entry.type == "message" else ""


def attributed(speaker: str, text: str) -> str:
    """Return a text with the name of its speaker in front; the same text if there is none."""
    return f"{speaker}: {text}" if speaker else text


def transcript_line(entry: Entry, text: str) -> str:
    """Return an entry with this text as one line, as in the text format and the summary prompt."""
    kind = entry.type
    if kind == "message":
        return f"{entry.role.capitalize()}: {text}"
    if kind == "tool_call":
        return f"Tool call {entry.name}({text})"
    if kind == "tool_result":
        return f"Tool {entry.name or 'result'}: {text}"
    return f"Context {entry.name}: {text}" if kind == "context" else f"Summary: {text}"
