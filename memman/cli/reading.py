"""A file of messages, in whichever of the usual shapes it comes; recognised by its content.

JSON: a list of messages, an object with `messages` (a request's body; its `system` comes along), or
one message. JSON lines: one message a line, read as they come. Anything else is text in the format `text`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from importlib.resources import files
from itertools import islice
from shlex import quote
from typing import Any

import msgspec

from memman.archive import FORMAT as SESSION_FORMAT
from memman.cli.databases import check_file
from memman.cli.detecting import Kind, kind_of, mixed, other_kind, surely, tells
from memman.cli.lines import STDIN, File, Items, Lines, check_head, decode, file_of, text_of
from memman.cli.logs import add_draft, state_of_log
from memman.cli.problems import UnreadableError, UnusableError
from memman.entries import NewEntry
from memman.errors import FormatError
from memman.formats import plain_items
from memman.formats.batches import may_cut
from memman.formats.logs import IMPORT_FORMATS
from memman.manager import MemoryManager
from memman.protocols import Compaction, Format, ImportFormat, LeftOut, ReadEntry, ReadItem

_WHOLE = ("langchain", "text")  # what these say of an earlier message may come at any distance


class Log:
    """A conversation in a file: its items, and the format that reads them.

    Args:
        name: what errors call it.
        items: the items of the file.
        kind: the format.
        sure: whether the items are surely in it; where not, the first that tells it decides.
        system: the system prompt of a request's body, which stands beside its messages.
        chosen: one of several conversations, by its number or title.
    """

    def __init__(
        self,
        name: str,
        items: Items | Lines,
        kind: Kind,
        sure: bool,
        system: str | None = None,
        chosen: str | None = None,
    ) -> None:
        self.name = name
        self.branches = True  # whether what was left behind is read, too
        self.left_out: list[str] = []  # what was not read, known once all of it was
        self._items = items
        self._reader = kind if isinstance(kind, ImportFormat) else None
        self._kind = kind
        self._sure = sure
        self._system = system
        self._chosen = chosen
        self._of_file = True  # whether an item's place in the conversation is that in the file

    def __len__(self) -> int:
        return len(self._items) + bool(self._system)

    @property
    def format(self) -> str:
        """The format's name; of lines that are not surely in it, known once all of them were read."""
        return self._kind.name

    @property
    def system(self) -> str | None:
        """The system prompt beside the messages."""
        return self._system

    @property
    def messages(self) -> list[Any]:
        """All messages, as plain data. Raises `UnreadableError` where one cannot be read."""
        if self._reader is not None:
            return list(self._items)
        with self._located():
            found = list(self._plain())
            _parsed(self._form, found)
            return [message for _, message in found]

    @cached_property
    def new_entries(self) -> list[NewEntry]:
        """The entries of the conversation, without what was left behind."""
        return [
            item.new_entry
            for item in self.read()
            if isinstance(item, ReadEntry) and not item.abandoned
        ][bool(self._system) :]

    @property
    def facts(self) -> list[tuple[str, str, Any]]:
        """What must be found in a session that took this log: type, role and content, in order."""
        head = [("message", "system", self._system)] if self._system else []
        return [
            *head,
            *(
                (new_entry.type, new_entry.role, new_entry.content)
                for new_entry in self.new_entries
            ),
        ]

    def read(self) -> Iterator[ReadItem]:
        """The log's entries in order, a piece of it in memory at a time. Raises `UnreadableError`."""
        if self._system:
            yield ReadEntry(NewEntry(type="message", role="system", content=self._system))
        self.left_out.clear()
        with self._located():
            for item in self._read():
                if isinstance(item, LeftOut):
                    self.left_out.append(item.what)
                elif self.branches or isinstance(item, Compaction) or not item.abandoned:
                    yield item

    def play(self, memory: MemoryManager, session_id: str) -> Iterator[list[str]]:
        """Adds the log message by message; yields the ids of the entries that each one made.

        Of a log that is only read, the entries; where it was compacted itself is left out.
        """
        if self._system:
            yield [memory.add_system_message(session_id, self._system).id]
        if self._reader is not None:
            for new_entry in self.new_entries:
                yield [add_draft(memory, session_id, new_entry).id]
            return
        for message in self.messages:
            yield [entry.id for entry in memory.add_messages(session_id, [message], self.format)]

    def fill(
        self,
        memory: MemoryManager,
        session_id: str,
        settings: dict[str, Any],
        most: int | None = None,
    ) -> None:
        """Makes the log a new session with these settings, all of it at once.

        Raises `UnusableError` for one of more than `most` entries.
        """
        read = self.read() if most is None else self._at_most(most)
        state = state_of_log(session_id, read, self.counting(memory), settings)
        memory.import_session(state, trust_settings=True)

    def _at_most(self, entries: int) -> Iterator[ReadItem]:
        for number, item in enumerate(self.read()):
            if number == entries:
                raise UnusableError(
                    f"{self.name} has more than {entries:,} entries, too many for a session document: "
                    "import it with --into chat.db or with -o chat.jsonl, and go on with that"
                )
            yield item

    def counting(self, memory: MemoryManager) -> Callable[[str], int] | None:
        """What counts the entries that a compaction of the log's own replaced; None if it can have none."""
        return None if self._reader is None else lambda text: memory.count_tokens(text).tokens

    # ------------------------------------------------------------ inside

    def _read(self) -> Iterator[ReadItem]:
        if self._reader is not None:
            yield from self._reader.parse(self._conversation(self._reader))
            return
        if self._chosen is not None:
            raise UnreadableError(f"{self.name} has one conversation: leave --conversation out")
        pieces = self._pieces()
        for number, (form, piece) in enumerate(pieces):
            for new_entry in _parsed(form, piece):
                if new_entry.message_id is not None:
                    label = f"{number}-{new_entry.message_id}"
                    new_entry = msgspec.structs.replace(new_entry, message_id=label)
                yield ReadEntry(new_entry)

    def _conversation(self, reader: ImportFormat) -> Iterable[Any]:
        """The chosen conversation of a log that is only read."""
        own = _Own(self._items, reader)
        found = reader.conversations(own)
        if self._chosen is None:
            only = _only(found, self.name)
            self._of_file = only is own
            return only
        number = 0
        for number, (title, items) in enumerate(found, 1):
            if self._chosen in (str(number), title):
                self._of_file = items is own
                return items
        raise UnreadableError(
            f"{self.name} has no conversation {self._chosen!r}, but 1 to {number}"
        )

    def _pieces(self) -> Iterator[tuple[Format, list[tuple[int, Any]]]]:
        """The messages a piece at a time, each with the place of its item, and the piece's format."""
        run: list[tuple[int, Any]] = []
        kind, form = self._kind, self._form
        for index, message in self._plain():
            if self._kind is not kind:
                yield form, run
                kind, form, run = self._kind, self._form, []
            long = form.name not in _WHOLE and bool(run)
            if long and may_cut(run[-1][1], message, len(run)):
                yield form, run
                run = []
            run.append((index, message))
        yield form, run

    @property
    def _form(self) -> Format:
        assert not isinstance(self._kind, ImportFormat)  # noqa: S101 - those have no pieces
        return self._kind

    def _plain(self) -> Iterator[tuple[int, Any]]:
        """Each message as plain data, and the place of its item."""
        for index, item in enumerate(self._items):
            try:
                messages = plain_items(item)
            except FormatError as error:
                raise FormatError(
                    str(error).removeprefix("message 0").lstrip(": "), index
                ) from None
            for message in messages:
                self._check_kind(index, message)
                yield index, message

    def _check_kind(self, index: int, message: Any) -> None:
        """Settles the format where it was open. Raises `FormatError` where it changes."""
        other = other_kind(message, self._kind)
        if other is not None and (self._sure or isinstance(other, ImportFormat)):
            raise FormatError(mixed("it", [other], [self._kind]), index)
        if not self._sure and tells(message):
            found = surely(message)
            self._kind, self._sure = found or self._kind, found is not None

    @contextmanager
    def _located(self) -> Iterator[None]:
        """Makes of a message that cannot be read an error that says where it is."""
        try:
            yield
        except FormatError as error:
            raise UnreadableError(f"{self.name}: {self._told(error)}") from None

    def _told(self, error: FormatError) -> str:
        """The error with the place of the item that is at fault."""
        if error.index is None or not self._of_file:
            return str(error)
        where = self._items.where(error.index)
        said = str(error).removeprefix(f"message {error.index}: ")
        item = next(islice(self._items, error.index, None), None)
        other = other_kind(item, self._kind, failed=True)
        return mixed(where, [other], [self._kind]) if other else f"{where}: {said}"


class _Own:
    """The items of a log that is only read, with those refused that are surely of another format."""

    def __init__(self, items: Items | Lines, reader: ImportFormat) -> None:
        self._items = items
        self._reader = reader

    def __iter__(self) -> Iterator[Any]:
        for index, item in enumerate(self._items):
            if (other := other_kind(item, self._reader)) is not None:
                raise FormatError(mixed("it", [other], [self._reader]), index)
            yield item


def _parsed(form: Format, piece: list[tuple[int, Any]]) -> list[NewEntry]:
    """The entries of a piece; a fault's place is that in the file."""
    try:
        return form.parse([message for _, message in piece])
    except FormatError as error:
        if error.index is None:
            raise
        said = str(error).removeprefix(f"message {error.index}: ")
        raise FormatError(said, piece[error.index][0]) from None


def _only(found: Iterable[tuple[str, Iterable[Any]]], name: str) -> Iterable[Any]:
    """The one conversation; says which there are where there are several."""
    titles: list[str] = []
    count = 0
    only: Iterable[Any] = ()
    for count, (title, items) in enumerate(found, 1):
        only = items
        if count <= 5:
            titles.append(f"{count} {title!r}")
    if count > 1:
        more = " ..." if count > len(titles) else ""
        raise UnreadableError(
            f"{name} has {count} conversations ({'; '.join(titles)}{more}); "
            "choose one with --conversation NUMBER"
        )
    return only


# ---------------------------------------------------------------- from a file


def read_log(path: str, wanted: str = "auto", chosen: str | None = None) -> Log:
    """The log in a file, or on stdin for "-"; `chosen` is one of several conversations.

    Raises `UnreadableError`.
    """
    if path != STDIN:
        check_file(path)
    return log_in(file_of(path), wanted, chosen)


def bundled_log() -> Log:
    """The conversation that comes with memman: a coding agent's working day."""
    data = files("memman.cli").joinpath("demo.jsonl").read_bytes()
    return log_in(File("a coding agent's working day", data=data))


def log_in(file: File, wanted: str = "auto", chosen: str | None = None) -> Log:
    """The log in a file, recognised by its first items."""
    items, system = _items(file)
    head = items.head
    if not head:
        raise UnreadableError(f"{file.name} has no messages")
    _check_one(items, head, file.name)
    kind, sure = kind_of(head, file.name, wanted, items.where)
    return Log(file.name, items, kind, sure, system, chosen)


def _items(file: File) -> tuple[Items | Lines, str | None]:
    """The items of a file, and the system prompt beside them."""
    if check_head(file) not in (b"[", b"{"):
        text = text_of(file.read(), file.name)
        _check_text(text, file.name)
        return Items([text]), None
    if file.has_lines():
        return Lines(file), None
    return _document(decode(text_of(file.read(), file.name), file.name), file.name)


_SCALARS = {
    "NoneType": "null",
    "bool": "boolean",
    "int": "number",
    "float": "number",
    "str": "string",
}


def _check_text(text: str, name: str) -> None:
    """Refuses JSON that is one value by itself, and neither a list nor an object."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return
    kind = _SCALARS[type(value).__name__]
    found = "null" if value is None else f"a {kind}"
    raise UnreadableError(
        f"{name} is JSON, but {found} by itself; a log is a list of messages, an object that has one, or "
        "a message a line"
    )


_RESPONSES = frozenset(("role", "choices", "candidates", "output"))
_OF_LOGS = _RESPONSES | {"messages", "contents", "input"}


def is_log(file: File) -> bool:
    """Whether a file looks like messages, and not like a session that is broken."""
    if check_head(file) not in (b"[", b"{") or file.has_lines():
        return True
    try:
        document = msgspec.json.decode(file.read())
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return isinstance(document, list) or bool(_OF_LOGS & document.keys())


def _check_one(items: Items | Lines, head: list[Any], name: str) -> None:
    if isinstance(items, Lines) and any(
        isinstance(line, dict) and isinstance(line.get("messages"), list) for line in head
    ):
        raise UnreadableError(
            f"{name} has {len(items)} conversations, one a line; give a file with one of them"
        )


def _document(document: Any, name: str) -> tuple[Items, str | None]:
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
    if _RESPONSES & document.keys() or _is_of_log(document):
        return Items([document]), None
    found = ", ".join(list(document)[:6]) or "nothing"
    raise UnreadableError(f"{name} is an object without a list of `messages` (it has {found})")


def _is_of_log(document: dict[str, Any]) -> bool:
    return any(reader.detect([document]) for reader in IMPORT_FORMATS)


def _system(system: Any, name: str) -> str | None:
    """The system prompt of a request: text, or blocks of text."""
    if system is None or isinstance(system, str):
        return system
    try:
        return "\n".join(block["text"] for block in system) or None
    except (TypeError, KeyError):
        raise UnreadableError(f"`system` of {name} is neither text nor blocks of text") from None
