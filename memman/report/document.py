"""The one-file page: its style and script are allowed by their hashes, its data is run by nothing."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from memman.files import replacing
from memman.manager import MemoryManager
from memman.report.data import Report, report_of
from memman.report.redaction import Redact, redacted, without_content

# In the order in which they stand in the page: each may use what stands before it.
_SCRIPTS: Final = ("session", "text", "summary", "chart", "list", "detail", "app")
GENERATOR: Final = (
    '<meta name="generator" content="memman">'  # by which a page is known as a report
)
_CHUNK: Final = 512  # of entries, or of anything else that there is a list of, in a block
# What would end the block or a line of it for a parser that is not one of JSON.
_ESCAPES: Final = (
    (b"<", b"\\u003c"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)
_encoder = msgspec.json.Encoder()


def render(
    memory: MemoryManager,
    session_id: str,
    *,
    redact: Redact | None = None,
    content: bool = True,
    undo: str | None = None,
    model: str | None = None,
    limited: bool = True,
) -> str:
    """The report of a session as one HTML document.

    Args:
        memory: the manager that has the session.
        session_id: which session.
        redact: what each entry becomes before anything of it is shown; it keeps id and type, and its count
            stays that of the session.
        content: False leaves out all that anybody said, with what it was called: what is left are numbers,
            times, types, the names of tools, and ids.
        undo: the command that undoes a compression, to which the page adds the compression, such as
            `memman undo chat.json`; the page shows a call of the library if None, nothing if "".
        model: the model to name; the session's own, or the one that was last in effect, if None.
        limited: False leaves out the manager's limits, where they are defaults that nobody chose.

    Raises:
        SessionNotFound: there is no such session.
        InvalidInput: `redact` failed, or returned another entry.
    """
    return "".join(
        pieces(
            memory,
            session_id,
            redact=redact,
            content=content,
            undo=undo,
            model=model,
            limited=limited,
        )
    )


def write(
    memory: MemoryManager,
    session_id: str,
    path: str | Path,
    *,
    redact: Redact | None = None,
    content: bool = True,
    undo: str | None = None,
    model: str | None = None,
    limited: bool = True,
) -> int:
    """Writes the report of a session to a file, over one that is there; returns its size in bytes.

    Only its owner may read the file, which is written whole or not at all; a symbolic link is replaced.
    The other arguments are those of `render`. Raises also `OSError` for a file that cannot be written.
    """
    made = pieces(
        memory,
        session_id,
        redact=redact,
        content=content,
        undo=undo,
        model=model,
        limited=limited,
    )
    with replacing(Path(path)) as file:
        return sum(file.write(piece.encode()) for piece in made)


def pieces(
    memory: MemoryManager,
    session_id: str,
    *,
    redact: Redact | None = None,
    content: bool = True,
    undo: str | None = None,
    model: str | None = None,
    limited: bool = True,
) -> Iterator[str]:
    """The document piece by piece, so that a long session is never in memory as text at once."""
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
    """Nothing may be loaded from anywhere; this style and this script may stand, by their hashes."""
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
    """The data as JSON in script blocks, long lists in many, so that they come piece by piece."""
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
