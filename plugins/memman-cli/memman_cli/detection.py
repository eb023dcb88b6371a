"""Detection of a file's format by its first items; a file that may have several is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from memman.core.resolver import known_formats
from memman.errors import FormatError
from memman.formats import candidates, format_named, plain_messages
from memman.formats.plain import fault_in
from memman.protocols import Format
from memman_cli.errors import UnreadableError
from memman_cli.log_formats import IMPORT_FORMATS
from memman_cli.log_formats.protocol import ImportFormat
from memman_cli.words import first_line

LogFormat = Format | ImportFormat
_CERTAIN = 3  # the score of an item with keys that no other format has
_DIALECTS = ({"openai-chat", "mistral"},)


def detect(
    head: Sequence[Any], name: str, wanted: str, where: Callable[[int], str]
) -> tuple[LogFormat, bool]:
    """Return the format of a file by its first items, and whether that is certain.

    `wanted` is its name, or "auto". Raises `UnreadableError` if no format or several match, and
    `PluginNotFound` for an unknown name.
    """
    if wanted != "auto":
        readers = {reader.name: reader for reader in IMPORT_FORMATS}
        return readers.get(wanted) or format_named(wanted, known_formats().values()), True
    score, formats = _best(head)
    if not formats:
        raise UnreadableError(f"{name}: {_unknown(head, where)}")
    if len(formats) > 1 and score > 1:
        _check_one_format(head, formats, name, where)
        names = " or ".join(each.name for each in formats)
        raise UnreadableError(f"{name} may be {names}: its first items fit each; name one with -f")
    return formats[0], score > 1


def _check_one_format(
    head: Sequence[Any], formats: Sequence[LogFormat], name: str, where: Callable[[int], str]
) -> None:
    """Raise `UnreadableError` if items are certain to be in different formats of these."""
    first: LogFormat | None = None
    for index, item in enumerate(head):
        own = certain_format(item)
        if own is None or own not in formats:
            continue
        first = first or own
        if own is not first:
            raise UnreadableError(f"{name}: {mixed(where(index), [own], [first])}")


def other_format(item: Any, own: LogFormat, *, failed: bool = False) -> LogFormat | None:
    """Return the format of an item that is certainly not in the file's own format, else None.

    Plain text is never in another format: most formats spell it alike. `failed` means that the file's own
    format could not read the item.
    """
    if not isinstance(item, dict):
        return None
    is_reader = not hasattr(own, "render")  # cheaper than `isinstance` of a protocol, for each item
    if not (failed or is_reader or has_structure(item)) or own.detect([item]) > 1:
        return None
    other = certain_format(item)
    if other is None or other is own or {other.name, own.name} in _DIALECTS:
        return None
    # Lines with a type in other logs look like items of this format that have no role.
    lone = other.name == "openai-responses" and "role" not in item
    return None if lone and not failed else other


def certain_format(item: Any) -> LogFormat | None:
    """Return the one format that an item is certainly in, None without one or with several."""
    score, found = _best([item])
    return found[0] if score >= _CERTAIN and len(found) == 1 else None


def has_structure(item: Any) -> bool:
    """Return whether an item has more than a role and a text, which most formats spell alike."""
    return isinstance(item, dict) and (
        isinstance(item.get("content"), list) or "tool_calls" in item or "parts" in item
    )


def _best(items: Sequence[Any]) -> tuple[int, list[LogFormat]]:
    """Return the best score for these items, and the formats that have it."""
    scored: list[tuple[int, LogFormat]] = [(each.detect(items), each) for each in IMPORT_FORMATS]
    try:
        score, formats = candidates(plain_messages(items), known_formats().values())
        scored += [(score, each) for each in formats]
    except FormatError:
        pass  # not a provider's message, but perhaps a line of a log
    best = max(score for score, _ in scored)
    return best, [each for score, each in scored if score == best and score > 0]


def _unknown(items: Sequence[Any], where: Callable[[int], str]) -> str:
    """Return the error for items in an unknown format, with the first item at fault."""
    formats: list[LogFormat] = [*known_formats().values(), *IMPORT_FORMATS]
    names = ", ".join([*known_formats(), *(each.name for each in IMPORT_FORMATS)])
    if isinstance(items[0], str):
        return (
            f"this text is in an unknown format (known: {names}); a conversation as text has lines that "
            "begin with the speaker, such as `User: ...` and `Assistant: ...`"
        )
    fitting: set[LogFormat] = set()
    for index, item in enumerate(items):
        fits = {each for each in formats if _fits(item, each)}
        if index and fits and not fits & fitting:
            return mixed(where(index), fits, fitting)
        if not fits:
            if isinstance(item, dict) and (fault := fault_in(item)):
                return f"{where(index)}: {fault}"
            hint = "" if isinstance(item, dict) else " (it must be a dict)"
            shown = first_line(repr(item), 80)
            return f"{where(index)} is in an unknown format{hint} (known: {names}): {shown}"
        fitting = fits & fitting if index else fits
    return f"the messages are not all in one known format ({names}); name it with -f"


def _fits(item: Any, form: LogFormat) -> bool:
    """Return whether one item may be in a format."""
    try:
        items = [item] if isinstance(form, ImportFormat) else plain_messages([item])
    except FormatError:
        return False
    return form.detect(items) > 0


def mixed(where: str, found: Iterable[LogFormat], before: Iterable[LogFormat]) -> str:
    """Return the error for a file whose format changes."""
    other, own = (" or ".join(sorted(each.name for each in group)) for group in (found, before))
    return (
        f"{where} is in the format {other}, the lines before it in {own}; a log has one format: "
        "split the file there"
    )
