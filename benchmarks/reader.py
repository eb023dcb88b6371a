"""A reader of contexts, who knows that `directory/{a.py,b.py}` names two paths."""

from __future__ import annotations

import re

_LISTED = re.compile(r"([\w.~@+/:-]+/)\{([\w.~@+:,-]+)\}")


def with_paths(text: str) -> str:
    """Return a text followed by the paths that it lists as `directory/{name,name}`."""
    listed = _LISTED.findall(text)
    return "\n".join([text, *(head + name for head, names in listed for name in names.split(","))])
