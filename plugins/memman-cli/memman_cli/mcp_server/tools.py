"""The tools of the server: search, read, why, stats. Each returns one page of text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from memman.archive.document import records_of
from memman.entries import EntryType, neutralised
from memman.errors import InvalidInput
from memman.explain.history import LogHistory
from memman.ids import new_nonce
from memman.protocols import SessionInfo
from memman.quoting import Quote, block_of, excerpt_of, pages_of
from memman.recall import addresses_in
from memman.results import EntryState, Hit
from memman.search import searchable, terms_of
from memman_cli.explain import trace
from memman_cli.mcp_server.pages import check_page, on_a_line, page_note, page_of_lines
from memman_cli.mcp_server.sources import ALL, Scope, Sources
from memman_cli.trace_lines import lines_of_trace
from memman_cli.words import entries_of, plural

_MOST_HITS: Final = 50
_STATES: Final[tuple[EntryState, ...]] = (
    "active", "stubbed", "folded", "clipped", "summarised", "dropped", "cleared",
)  # fmt: skip
"""The states of entries that are found: cleared entries are the past, retracted ones are not."""
_LEAST_SCORE: Final = 1 / 3  # of the best one's, of a hit
_EXCERPT_SHARE: Final = 0.25  # of a page: the most of a long entry that a search returns
_REFUSED: Final = "[memman: "  # the beginning of a recall tool's answer to a wrong call
_MOST_LISTED: Final = 5  # unreadable files

_Page = Annotated[
    int, Meta(ge=1, description="The page of the answer; the first one names their number.")
]
_Text = Annotated[str, Meta(min_length=1, max_length=10_000)]
_Name = Annotated[str, Meta(max_length=1_000)]  # of a session, or the beginning of names and *
_Session = Annotated[
    _Name,
    Meta(
        description="The session's name, as the tool stats lists it. Not needed if there is only one."
    ),
]


class SearchArguments(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The arguments of `search`."""

    query: Annotated[
        _Text, Meta(description="Words, an exact value, a path, an identifier or an error message.")
    ]
    session: Annotated[
        _Name,
        Meta(
            description="One session, or the beginning of names and *, such as `chat.db/*`; default: all."
        ),
    ] = ALL
    types: Annotated[list[EntryType], Meta(description="Only entries of these types.")] = []
    tools: Annotated[
        list[str], Meta(description="Only calls and results of these tools, such as `Bash`.")
    ] = []
    since: Annotated[
        str, Meta(description="Only entries from this time on: 2026-03-01 or 2026-03-01T10:00Z.")
    ] = ""
    until: Annotated[str, Meta(description="Only entries before this time.")] = ""
    page: _Page = 1


class ReadArguments(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The arguments of `read`."""

    entries: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=100,
            description='The address of an entry, "#118", or of several, "#118-#130".',
        ),
    ]
    session: _Session = ""
    page: _Page = 1


class WhyArguments(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The arguments of `why`."""

    text: Annotated[
        _Text,
        Meta(
            description='A text as it was in the conversation, or the address of an entry, "#118".'
        ),
    ]
    session: _Session = ""
    page: _Page = 1


class StatsArguments(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The arguments of `stats`."""

    session: Annotated[
        _Name,
        Meta(
            description="One session, for its numbers, or the beginning of names and *; default: all."
        ),
    ] = ALL
    page: _Page = 1


Arguments = SearchArguments | ReadArguments | WhyArguments | StatsArguments


class Tool(msgspec.Struct, frozen=True):
    """A tool: its name, title and description for the model, and the type of its arguments."""

    name: str
    title: str
    description: str
    arguments: type[Arguments]

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments, without references."""
        (found,), _ = msgspec.json.schema_components((self.arguments,), ref_template="{name}")
        _, components = msgspec.json.schema_components((self.arguments,))
        schema = dict(components[found["$ref"]])
        schema.pop("title", None)
        schema.pop("description", None)
        return schema


TOOLS: Final = (
    Tool(
        "search",
        "Search sessions",
        "Search earlier conversations, with all tool calls and results, also those that a compaction "
        "removed from the context. Returns quoted entries, best first, each with its session and its "
        "address such as #118. Use `read` for a whole entry and its neighbours.",
        SearchArguments,
    ),
    Tool(
        "read",
        "Read entries",
        'Read entries of a session by address ("#118") or range ("#118-#130"), whole, as they were added.',
        ReadArguments,
    ),
    Tool(
        "why",
        "What became of a text",
        "Show what became of a text or an entry of a session: whether it is still in the context window, "
        "which compaction or compression removed it and when, and what replaces it.",
        WhyArguments,
    ),
    Tool(
        "stats",
        "List sessions",
        "List the sessions with their first line, times, entries and tokens, the most recent first. For "
        "one session: its totals, its window, and the share of each tool.",
        StatsArguments,
    ),
)


class ToolCalls:
    """Answers the calls of the tools.

    Args:
        sources: the sessions.
        max_tokens: the most tokens of an answer, estimated.
    """

    def __init__(self, sources: Sources, max_tokens: int) -> None:
        self._sources = sources
        self._max_tokens = max_tokens

    def call(self, name: str, arguments: Mapping[str, Any] | None) -> str:
        """Return the answer of a tool. Raises `InvalidInput`, or the error of reading a source."""
        types = {tool.name: tool.arguments for tool in TOOLS}
        if name not in types:
            raise InvalidInput(f"there is no tool {name!r}, but {', '.join(types)}")
        try:
            given = msgspec.convert(arguments or {}, types[name], strict=False)
        except msgspec.ValidationError as error:
            # With the names of arguments, not with paths of JSON.
            fault = str(error).replace("`$.", "`").replace(" - at `$`", "")
            raise InvalidInput(f"the arguments of {name}: {fault}") from None
        match given:
            case SearchArguments():
                return self._search(given)
            case ReadArguments():
                return self._read(given)
            case WhyArguments():
                return self._why(given)
            case StatsArguments():
                return self._stats(given)

    # ------------------------------------------------------------ tools

    def _search(self, given: SearchArguments) -> str:
        since, until = _time(given.since, "since"), _time(given.until, "until")
        one = "" if given.session.endswith(ALL) else given.session
        with self._sources.reading(one):
            found = [
                msgspec.structs.replace(hit, session_id=scope.name_of(hit.session_id))
                for scope in self._sources.scopes(given.session)
                for hit in scope.memory.search(
                    None,
                    given.query,
                    limit=_MOST_HITS,
                    sessions=scope.pattern,
                    types=given.types,
                    tools=given.tools,
                    states=_STATES,
                    since=since,
                    until=until,
                )
            ]
        notes = self._unread()
        best = sorted(_relevant(found, given.query), key=lambda hit: hit.score, reverse=True)
        best = best[:_MOST_HITS]
        if not best:
            return " ".join(["Nothing was found: try fewer or other words, or a path.", *notes])
        nonce, count = new_nonce(), self._sources.count
        head = f"[memman search: {entries_of(len(best))}{{}}, {nonce}]"
        room = self._max_tokens - count("\n".join([head, page_note(9_999, 99_999), *notes]))
        share = int(_EXCERPT_SHARE * room)
        quotes = [_excerpt(hit, given.query, share, count, nonce) for hit in best]
        pages = pages_of(quotes, room, count, nonce)
        check_page(given.page, len(pages))
        blocks = [block_of(quote, nonce) for quote in pages[given.page - 1]]
        return "\n".join([head.format(page_note(given.page, len(pages))), *notes, *blocks])

    def _read(self, given: ReadArguments) -> str:
        if not addresses_in(given.entries):
            raise InvalidInput(
                f'{given.entries!r} is not an address: write "#118", or "#118-#130" for several'
            )
        with self._sources.reading(given.session):
            scope = self._sources.one(given.session)
            # No tool of a log has this name, which the recall tool leaves out of its answers.
            tool = scope.memory.recall_tool(
                scope.session_id or "", name="memman__read", max_tokens=self._max_tokens
            )
            answer = tool({"query": given.entries, "page": given.page})
        if answer.startswith(_REFUSED):
            raise InvalidInput(answer.removeprefix(_REFUSED).removesuffix("]"))
        return answer

    def _why(self, given: WhyArguments) -> str:
        with self._sources.reading(given.session):
            scope = self._sources.one(given.session)
            state = scope.memory.export_session(scope.session_id or "")
        history = LogHistory(list(enumerate(records_of(state), 1)))
        traced = trace(history, given.text)
        if not traced.found and not traced.survives:
            entries = entries_of(len(history.entries))
            raise InvalidInput(
                f"{given.text!r} was never in this session: none of {entries} has it"
            )
        lines = [neutralised(line) for line in lines_of_trace(traced, history)]
        return self._lines("why", lines, given.page)

    def _stats(self, given: StatsArguments) -> str:
        with self._sources.reading():
            found = self._sources.sessions(given.session)
            if not given.session.endswith(ALL):
                name, scope, _ = found[0]
                numbers = [f'session "{on_a_line(name)}"', *_numbers(scope)]
                return self._lines("stats", numbers, given.page)
        lines = [
            f"{plural(len(found), 'session')}, the most recent first",
            *self._notes(),
            *(_listed(name, info) for name, _, info in found),
        ]
        return self._lines("stats", lines, given.page)

    # ------------------------------------------------------------ answers

    def _unread(self) -> list[str]:
        """Return a line for the files that are not read yet, if there are any."""
        unread = self._sources.unread
        return [f"{plural(unread, 'file')} not read yet: call again for the rest."] * bool(unread)

    def _notes(self) -> list[str]:
        """Return a line for the files that are not read yet, and one for those that cannot be read."""
        notes = self._unread()
        if faults := self._sources.faults:
            listed = [f"{on_a_line(path)}: {on_a_line(fault)}" for path, fault in faults.items()]
            more = "" if len(listed) <= _MOST_LISTED else " ..."
            shown = "; ".join(listed[:_MOST_LISTED])
            notes.append(f"{plural(len(listed), 'file')} without a readable session: {shown}{more}")
        return notes

    def _lines(self, title: str, lines: Sequence[str], page: int) -> str:
        return page_of_lines(title, lines, page, self._max_tokens, self._sources.count)


def _relevant(hits: Sequence[Hit], query: str) -> list[Hit]:
    """Return the hits that have the whole query or a good score."""
    pieces = query.lower().split()
    least = _LEAST_SCORE * max((hit.score for hit in hits), default=0.0)

    def has_all(hit: Hit) -> bool:
        text = searchable(hit.entry).lower()
        return all(piece in text for piece in pieces)

    return [hit for hit in hits if hit.score >= least or has_all(hit)]


def _excerpt(hit: Hit, query: str, tokens: int, count: Callable[[str], int], nonce: str) -> Quote:
    """Return a quote of a hit, or of its best part if it is long."""
    whole = Quote.of(hit, session=True)
    named = msgspec.structs.replace(whole, note=f"read {hit.address} returns all of it")
    part = excerpt_of(named, terms_of(query), tokens, count, nonce)
    return whole if len(part.text) == whole.whole else part


def _listed(name: str, info: SessionInfo) -> str:
    """Return the line of a session in the list."""
    times = f"{info.created_at:%Y-%m-%d %H:%M} to {info.last_active_at:%Y-%m-%d %H:%M}"
    sizes = f"{entries_of(info.entries)}, {plural(info.tokens, 'token')}"
    return f'"{on_a_line(name)}", {times}, {sizes}: "{on_a_line(info.first_line)}"'


def _time(given: str, name: str) -> datetime | None:
    """Return a time, in UTC unless it names a zone; None for ""."""
    if not given:
        return None
    try:
        found = datetime.fromisoformat(given)
    except ValueError:
        raise InvalidInput(
            f"{name}: {given!r} is not a time; write 2026-03-01 or 2026-03-01T10:00Z"
        ) from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _numbers(scope: Scope) -> list[str]:
    """Return the numbers of one session."""
    session_id = scope.session_id or ""
    stats = scope.memory.get_stats(session_id)
    shares = scope.memory.explain(session_id).shares
    lines = [
        f"added: {entries_of(stats.total_entries)}, {plural(stats.total_tokens, 'token')}, "
        f"{stats.compressed_entries:,} of them no longer in the window",
        f"window: {entries_of(stats.active_entries)}, {plural(stats.active_tokens, 'token')}"
        + (f", {stats.summaries:,} of them summaries" if stats.summaries else ""),
    ]
    lines += [f"window, {kind}: {plural(tokens, 'token')}" for kind, tokens in shares.types.items()]
    lines += [
        f"window, tool {on_a_line(each.name)}: {entries_of(each.entries)}, "
        f"{plural(each.tokens, 'token')}"
        for each in shares.tools
    ]
    return lines
