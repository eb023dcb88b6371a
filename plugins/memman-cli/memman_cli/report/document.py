"""The page in one file: its policy allows its style and script by their hashes and nothing else."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, TypedDict, Unpack

import msgspec

from memman.files import replacing
from memman.manager import MemoryManager
from memman_cli.report.data import Report, report_of
from memman_cli.report.redaction import Redact, redacted, without_content

# In this order in the page: each may use the ones before it.
_SCRIPTS = ("session", "text", "summary", "chart", "spend", "list", "search", "detail", "app")
GENERATOR: Final = '<meta name="generator" content="memman">'  # marks a page as a report
_CHUNK: Final = 512  # of the items of a list in a block
# Characters that end the block or a line of it for the HTML or JavaScript parser.
_ESCAPES: Final = (
    (b"<", b"\\u003c"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)
_encoder = msgspec.json.Encoder()


class PageOptions(TypedDict, total=False):
    """How a report shows its session.

    Attributes:
        redact: returns an entry as it is to be shown, with its id and type kept. Token counts stay those of
            the session. Default: entries are shown as they are.
        content: False leaves out all texts and names. Numbers, times, types, the names of tools, and ids
            stay. Default: True.
        undo: the command that undoes a compression, such as `memman undo chat.json`; the page adds the
            compression's id. None, the default, shows a call of the library, "" nothing.
        model: the model to show; by default the session's own, or the one last in effect.
        limited: False leaves out the manager's limits, if they are only defaults. Default: True.
    """

    redact: Redact | None
    content: bool
    undo: str | None
    model: str | None
    limited: bool


def render(memory: MemoryManager, session_id: str, **options: Unpack[PageOptions]) -> str:
    """Return the report of a session as one HTML document.

    Args:
        memory: the manager that has the session.
        session_id: which session.
        **options: see `PageOptions`.

    Raises:
        SessionNotFound: the session does not exist.
        InvalidInput: `redact` failed, or returned another entry.
    """
    return "".join(pieces(memory, session_id, **options))


def write(
    memory: MemoryManager, session_id: str, path: str | Path, **options: Unpack[PageOptions]
) -> int:
    """Write the report of a session to a file, replacing an existing one, and return its size in bytes.

    Only the file's owner can read it. It is written whole or not at all; a symbolic link is replaced. The
    other arguments are those of `render`. Also raises `OSError`.
    """
    made = pieces(memory, session_id, **options)
    with replacing(Path(path)) as file:
        return sum(file.write(piece.encode()) for piece in made)


def pieces(
    memory: MemoryManager,
    session_id: str,
    redact: Redact | None = None,
    content: bool = True,
    undo: str | None = None,
    model: str | None = None,
    limited: bool = True,
) -> Iterator[str]:
    """Return the document in pieces, so that a long session is not in memory as one text."""
    change = partial(redacted, redact=redact) if redact else None
    data = report_of(memory, session_id, change, undo, model, limited)
    if not content:
        data = without_content(data)
    style = _file("report.css")
    script = '"use strict";\n' + "\n".join(_file(f"{name}.js") for name in _SCRIPTS)
    head, rest = _file("report.html").split("{{data}}")
    filled = head.replace("{{policy}}", _policy(style, script)).replace("{{style}}", style)
    yield filled.replace("{{title}}", html.escape(f"{session_id} · memman"))
    yield from _blocks(data)
    yield rest.replace("{{script}}", script)


def _policy(style: str, script: str) -> str:
    """Return a policy that allows this style and this script by their hashes, and loads nothing."""
    return (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest())
    return f"'sha256-{digest.decode()}'"


def _file(name: str) -> str:
    return (Path(__file__).parent / f"page/{name}").read_bytes().decode()


def _blocks(data: Report) -> Iterator[str]:
    """Return the data as JSON in script blocks; long lists are split into many."""
    single = {}
    for name in data.__struct_fields__:
        value = getattr(data, name)
        if not isinstance(value, list):
            single[name] = value
            continue
        for at in range(0, len(value), _CHUNK):
            yield _block(name, value[at : at + _CHUNK])
    yield _block("about", single)


def _block(name: str, value: Any) -> str:
    return f'<script type="application/json" data-name="{name}">{_inert(value)}</script>\n'


def _inert(value: Any) -> str:
    encoded = _encoder.encode(value)
    for plain, escaped in _ESCAPES:
        encoded = encoded.replace(plain, escaped)
    return encoded.decode()
