"""A conversation in a file, recognised by its content.

JSON: a list of messages, a request with `messages` (and perhaps `system`), or one message. JSON lines: one
message a line, read one by one. Other content is text in the format `text`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import Any

import msgspec

from memman.archive.document import FORMAT as SESSION_FORMAT
from memman.entries import NewEntry
from memman.errors import FormatError
from memman.formats import plain_items
from memman.protocols import Format
from memman_cli.detection import (
    LogFormat,
    certain_format,
    detect,
    has_structure,
    mixed,
    other_format,
)
from memman_cli.errors import UnreadableError
from memman_cli.files import NOT_JSON, File, Items, Lines, decode, display_name, on_disk, text_of
from memman_cli.log_formats import IMPORT_FORMATS
from memman_cli.log_formats.common import may_cut, parse_piece
from memman_cli.log_formats.protocol import Compaction, ImportFormat, LeftOut, ReadEntry, ReadItem

_UNCUT = ("langchain", "text")  # formats whose messages may refer to others at any distance
_SCALARS = {"bool": "a boolean", "int": "a number", "float": "a number", "str": "a string"}
_RESPONSE_KEYS = frozenset(("role", "choices", "candidates", "output"))
_LOG_KEYS = _RESPONSE_KEYS | {"messages", "contents", "input"}


class Log:
    """A conversation in a file: its items, and the format that reads them.

    Args:
        name: the file's name in errors.
        items: the items of the file.
        form: the format.
        certain: whether the items are certainly in it; otherwise the first structured item decides.
        system: the system prompt of a request, which is not among its messages.
        chosen: one of several conversations, by its number or title.
        branches: whether abandoned branches are read, too.
    """

    def __init__(
        self,
        name: str,
        items: Items | Lines,
        form: LogFormat,
        certain: bool,
        system: str | None = None,
        chosen: str | None = None,
        branches: bool = True,
    ) -> None:
        self.name = name
        self.system = system
        self.left_out: list[str] = []  # the items that `read` could not use
        self._items = items
        self._form = form
        self._certain = certain
        self._chosen = chosen
        self._branches = branches
        self._whole_file = True  # whether the conversation is the whole file

    def __len__(self) -> int:
        return len(self._items) + bool(self.system)

    @property
    def format(self) -> str:
        """The format's name; if it is not certain, it is known after all items were read."""
        return self._form.name

    @property
    def read_only(self) -> bool:
        """Whether the format is that of a program's log, which memman does not write."""
        return isinstance(self._form, ImportFormat)

    @property
    def messages(self) -> list[Any]:
        """All messages as plain data. Raises `UnreadableError`."""
        if self.read_only:
            return list(self._items)
        with self._located():
            found = list(self._plain())
            parse_piece(self._provider_format, found)
            return [message for _, message in found]

    @cached_property
    def new_entries(self) -> list[NewEntry]:
        """The entries of the conversation, without abandoned branches."""
        found = [
            item.new_entry
            for item in self.read()
            if isinstance(item, ReadEntry) and not item.abandoned
        ]
        return found[bool(self.system) :]

    def read(self) -> Iterator[ReadItem]:
        """Yield the log's entries in order, a piece of it in memory at a time.

        Raises `UnreadableError`.
        """
        if self.system:
            yield ReadEntry(NewEntry(type="message", role="system", content=self.system))
        self.left_out.clear()
        with self._located():
            for item in self._read():
                if isinstance(item, LeftOut):
                    self.left_out.append(item.what)
                elif self._branches or isinstance(item, Compaction) or not item.abandoned:
                    yield item

    def _read(self) -> Iterator[ReadItem]:
        if isinstance(self._form, ImportFormat):
            yield from self._form.parse(self._conversation(self._form))
            return
        if self._chosen is not None:
            raise UnreadableError(f"{self.name} has one conversation: leave --conversation out")
        for number, (form, piece) in enumerate(self._pieces()):
            yield from map(ReadEntry, parse_piece(form, piece, number))

    def _conversation(self, reader: ImportFormat) -> Iterable[Any]:
        """Return the items of the chosen conversation, which may be left out if there is only one."""
        own = _OwnItems(self._items, reader)
        titles: list[str] = []
        count, found = 0, None
        for count, (title, items) in enumerate(reader.conversations(own), 1):
            if self._chosen in (None, str(count), title) and found is None:
                found = items
                if self._chosen is not None:
                    break
            if count <= 5:
                titles.append(f"{count} {title!r}")
        if self._chosen is None and count > 1:
            more = " ..." if count > len(titles) else ""
            raise UnreadableError(
                f"{self.name} has {count} conversations ({'; '.join(titles)}{more}); "
                "choose one with --conversation NUMBER"
            )
        if found is None and self._chosen is not None:
            raise UnreadableError(
                f"{self.name} has no conversation {self._chosen!r}, but 1 to {count}"
            )
        self._whole_file = found is own
        return found or ()

    def _pieces(self) -> Iterator[tuple[Format, list[tuple[int, Any]]]]:
        """Yield a piece of the messages at a time, each with the place of its item."""
        piece: list[tuple[int, Any]] = []
        form = self._provider_format
        for index, message in self._plain():
            if self._form is not form:
                yield form, piece
                form, piece = self._provider_format, []
            elif piece and form.name not in _UNCUT and may_cut(piece[-1][1], message, len(piece)):
                yield form, piece
                piece = []
            piece.append((index, message))
        yield form, piece

    @property
    def _provider_format(self) -> Format:
        assert not isinstance(self._form, ImportFormat)  # noqa: S101 - callers checked it
        return self._form

    def _plain(self) -> Iterator[tuple[int, Any]]:
        """Yield each message as plain data, and the place of its item."""
        for index, item in enumerate(self._items):
            try:
                messages = plain_items(item)
            except FormatError as error:
                fault = str(error).removeprefix("message 0").lstrip(": ")
                raise FormatError(fault, index) from None
            for message in messages:
                self._check_format(index, message)
                yield index, message

    def _check_format(self, index: int, message: Any) -> None:
        """Decide an uncertain format. Raises `FormatError` if the format changes."""
        other = other_format(message, self._form)
        if other is not None and (self._certain or isinstance(other, ImportFormat)):
            raise FormatError(mixed("it", [other], [self._form]), index)
        if not self._certain and has_structure(message):
            found = certain_format(message)
            self._form, self._certain = found or self._form, found is not None

    @contextmanager
    def _located(self) -> Iterator[None]:
        """Turn a format error into an `UnreadableError` with the place in the file."""
        try:
            yield
        except FormatError as error:
            raise UnreadableError(f"{self.name}: {self._with_place(error)}") from None

    def _with_place(self, error: FormatError) -> str:
        if error.index is None or not self._whole_file:
            return str(error)
        where = self._items.where(error.index)
        fault = str(error).removeprefix(f"message {error.index}: ")
        item = next(islice(self._items, error.index, None), None)
        other = other_format(item, self._form, failed=True)
        return mixed(where, [other], [self._form]) if other else f"{where}: {fault}"


class _OwnItems:
    """The items of a program's log. Raises `FormatError` for an item of another format."""

    def __init__(self, items: Items | Lines, reader: ImportFormat) -> None:
        self._items = items
        self._reader = reader

    def __iter__(self) -> Iterator[Any]:
        for index, item in enumerate(self._items):
            if (other := other_format(item, self._reader)) is not None:
                raise FormatError(mixed("it", [other], [self._reader]), index)
            yield item


# ---------------------------------------------------------------- from a file


def read_log(path: str, wanted: str = "auto", chosen: str | None = None) -> Log:
    """Return the log in a file, in a pipe, or on stdin for "-". Raises `UnreadableError`."""
    return log_in(File(display_name(path), Path(on_disk(path))), wanted, chosen)


def log_in(
    file: File, wanted: str = "auto", chosen: str | None = None, branches: bool = True
) -> Log:
    """Return the log in a file, recognised by its first items.

    `wanted` is the name of its format, `chosen` one of several conversations, `branches` whether abandoned
    branches are read, too. Raises `UnreadableError`.
    """
    items, system = _items(file)
    head = items.head
    if not head:
        raise UnreadableError(f"{file.name} has no messages")
    if isinstance(items, Lines) and any(
        isinstance(line, dict) and isinstance(line.get("messages"), list) for line in head
    ):
        raise UnreadableError(
            f"{file.name} has {len(items)} conversations, one a line; give a file with one of them"
        )
    form, certain = detect(head, file.name, wanted, items.where)
    return Log(file.name, items, form, certain, system, chosen, branches)


def _items(file: File) -> tuple[Items | Lines, str | None]:
    """Return the items of a file, and the system prompt that is not among them."""
    if file.check_head() not in (b"[", b"{"):
        text = text_of(file.read(), file.name)
        _check_text(text, file.name)
        return Items([text]), None
    if file.has_lines():
        return Lines(file), None
    return _items_of_document(decode(text_of(file.read(), file.name), file.name), file.name)


def _check_text(text: str, name: str) -> None:
    """Raise `UnreadableError` for a JSON value that is neither a list nor an object."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return
    kind = _SCALARS.get(type(value).__name__, "null")
    raise UnreadableError(
        f"{name} is JSON, but {kind} by itself; a log is a list of messages, an object that has one, or "
        "a message a line"
    )


def is_log(file: File) -> bool:
    """Return whether a file looks like messages, and not like a broken session."""
    if file.check_head() not in (b"[", b"{") or file.has_lines():
        return True
    try:
        document = msgspec.json.decode(file.read())
    except NOT_JSON:
        return False
    return isinstance(document, list) or bool(_LOG_KEYS & document.keys())


def _items_of_document(document: Any, name: str) -> tuple[Items, str | None]:
    if isinstance(document, list):
        return Items(document), None
    if document.get("format") == SESSION_FORMAT:
        raise UnreadableError(
            f"{name} is a memman session, not a log; see it with `memman show {quote(name)}`"
        )
    if isinstance(document.get("messages"), list):
        return Items(document["messages"]), _system(document.get("system"), name)
    if isinstance(document.get("contents"), list):
        instruction = document.get("systemInstruction", document.get("system_instruction"))
        parts = instruction.get("parts") if isinstance(instruction, dict) else instruction
        return Items(document["contents"]), _system(parts, name)
    if isinstance(document.get("input"), list):
        return Items(document["input"]), _system(document.get("instructions"), name)
    is_response = bool(_RESPONSE_KEYS & document.keys())
    if is_response or any(reader.detect([document]) for reader in IMPORT_FORMATS):
        return Items([document]), None
    found = ", ".join(list(document)[:6]) or "nothing"
    raise UnreadableError(f"{name} is an object without a list of `messages` (it has {found})")


def _system(system: Any, name: str) -> str | None:
    """Return the system prompt of a request, which is text or blocks of text."""
    if system is None or isinstance(system, str):
        return system
    try:
        return "\n".join(block["text"] for block in system) or None
    except (TypeError, KeyError):
        raise UnreadableError(f"`system` of {name} is neither text nor blocks of text") from None
