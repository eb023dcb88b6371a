"""Which format a file of messages is in: told by its first items, refused where that is not certain."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from memman.cli.display import first_line
from memman.cli.problems import UnreadableError
from memman.core.resolver import known_formats
from memman.errors import FormatError
from memman.formats import candidates, format_named, plain_messages
from memman.formats.foreign import fault_in
from memman.formats.logs import IMPORT_FORMATS
from memman.protocols import Format, ImportFormat

Kind = Format | ImportFormat
_SURE = 3  # from here on a format has something that others have not
_DIALECTS = ({"openai-chat", "mistral"},)


def kind_of(
    head: Sequence[Any], name: str, wanted: str, where: Callable[[int], str]
) -> tuple[Kind, bool]:
    """The format of a file by its first items, and whether they are surely in it.

    `wanted` is its name, or "auto". Raises `UnreadableError` where none takes them or several do, and
    `PluginNotFound` for a name that nobody has.
    """
    if wanted != "auto":
        readers = {reader.name: reader for reader in IMPORT_FORMATS}
        if wanted in readers:
            return readers[wanted], True
        return format_named(wanted, known_formats().values()), True
    score, kinds = _candidates(head)
    if not kinds:
        raise UnreadableError(f"{name}: {_unknown(head, where)}")
    if len(kinds) > 1 and score > 1:
        _check_alike(head, kinds, name, where)
        names = " or ".join(kind.name for kind in kinds)
        raise UnreadableError(f"{name} may be {names}: its first items fit each; say which with -f")
    return kinds[0], score > 1


def _check_alike(
    head: Sequence[Any], kinds: Sequence[Kind], name: str, where: Callable[[int], str]
) -> None:
    """Refuses a head of which some items are surely in one of these formats and some in another."""
    first: Kind | None = None
    for index, item in enumerate(head):
        own = surely(item)
        if own is None or own not in kinds:
            continue
        first = first or own
        if own is not first:
            raise UnreadableError(f"{name}: {mixed(where(index), [own], [first])}")


def other_kind(item: Any, kind: Kind, *, failed: bool = False) -> Kind | None:
    """The format that an item is surely in, where that is another than the file's; else None.

    What the file's own format takes for its own is never another's, nor is plain text, which is spelled
    alike in most of them. `failed` says that the file's own could not read it.
    """
    if not isinstance(item, dict):
        return None
    is_reader = not hasattr(kind, "render")  # told at little cost: every item is asked about
    if not (failed or is_reader or tells(item)) or kind.detect([item]) > 1:
        return None
    other = surely(item)
    if other is None or other is kind or {other.name, kind.name} in _DIALECTS:
        return None
    # Logs have typed lines of their own beside their messages, which look like items without a role.
    lone = other.name == "openai-responses" and "role" not in item
    return None if lone and not failed else other


def surely(item: Any) -> Kind | None:
    """The one format that an item is surely in; None where there is none, or several."""
    score, found = _candidates([item])
    return found[0] if score >= _SURE and len(found) == 1 else None


def tells(item: Any) -> bool:
    """Whether an item has more than a role and a text, which most formats spell alike."""
    return isinstance(item, dict) and (
        isinstance(item.get("content"), list) or "tool_calls" in item or "parts" in item
    )


def _candidates(items: Sequence[Any]) -> tuple[int, list[Kind]]:
    """How sure the surest formats are of these items, and which they are."""
    scored: list[tuple[int, Kind]] = [(kind.detect(items), kind) for kind in IMPORT_FORMATS]
    try:
        score, forms = candidates(plain_messages(items), known_formats().values())
        scored += [(score, form) for form in forms]
    except FormatError:
        pass  # no message of any provider, but perhaps a line of a log
    best = max(score for score, _ in scored)
    return best, [kind for score, kind in scored if score == best and score > 0]


def _unknown(items: Sequence[Any], where: Callable[[int], str]) -> str:
    """What to say of items in no known format: the first at fault, or how text looks."""
    names = ", ".join([*known_formats(), *(form.name for form in IMPORT_FORMATS)])
    if isinstance(items[0], str):
        return (
            f"this text is in no known format ({names}); a conversation as text has lines that "
            "begin with who speaks, such as `User: ...` and `Assistant: ...`"
        )
    kinds: list[Kind] = [*known_formats().values(), *IMPORT_FORMATS]
    fitting: set[Kind] = set()
    for index, item in enumerate(items):
        fits = {kind for kind in kinds if _fits(item, kind)}
        if index and fits and not fits & fitting:
            return mixed(where(index), fits, fitting)
        if not fits:
            if isinstance(item, dict) and (fault := fault_in(item)):
                return f"{where(index)}: {fault}"
            shown = first_line(repr(item), 80)
            what = "" if isinstance(item, dict) else " (it must be a dict)"
            return f"{where(index)} is in no known format{what} ({names}): {shown}"
        fitting = fits & fitting if index else fits
    return f"the messages are not all in one known format ({names}); name it with -f"


def _fits(item: Any, kind: Kind) -> bool:
    """Whether one item may be of a format."""
    if isinstance(kind, ImportFormat):
        return kind.detect([item]) > 0
    try:
        return kind.detect(plain_messages([item])) > 0
    except FormatError:
        return False


def mixed(where: str, found: Iterable[Kind], before: Iterable[Kind]) -> str:
    """What to say of a file whose format changes."""
    other, own = (" or ".join(sorted(kind.name for kind in kinds)) for kinds in (found, before))
    return (
        f"{where} is in the format {other}, what comes before it in {own}; a log has one format: "
        "split the file there"
    )
