"""The bar that notebooks show for a context or a session's numbers: HTML with nothing outside of it."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Final

_COLOURS: Final = {
    "message": "#4263eb",
    "tool_call": "#0b8fa3",
    "tool_result": "#e08a00",
    "context": "#ae3ec9",
    "summary": "#2f9e44",
    "in the window": "#4263eb",
}
_OTHER: Final = "#868e96"


def bar_html(title: str, parts: Mapping[str, int], room: int) -> str:
    """A title, a bar of the parts of `room` tokens, and a legend.

    Args:
        title: what the bar is of.
        parts: tokens by the name of a part; parts without tokens are left out.
        room: the tokens of the whole bar; a part of it that nothing takes stays empty.
    """
    taken = {name: tokens for name, tokens in parts.items() if tokens > 0}
    whole = max(room, sum(taken.values()), 1)
    pieces = "".join(
        f'<span style="width:{100 * tokens / whole:.2f}%;background:{_colour(name)}" '
        f'title="{escape(name)}: {tokens:,} tokens"></span>'
        for name, tokens in taken.items()
    )
    legend = " ".join(
        f'<span style="white-space:nowrap"><span style="color:{_colour(name)}">&#9632;</span> '
        f"{escape(name.replace('_', ' '))} {tokens:,}</span>"
        for name, tokens in taken.items()
    )
    return (
        f'<div style="max-width:40em"><div><b>{escape(title)}</b></div>'
        '<div style="display:flex;height:0.9em;margin:0.3em 0;border-radius:3px;overflow:hidden;'
        f'background:rgba(128,128,128,0.25)">{pieces}</div><small>{legend}</small></div>'
    )


def _colour(name: str) -> str:
    return _COLOURS.get(name, _OTHER)
