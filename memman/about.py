"""What this distribution is called, and which version of it this is."""

from __future__ import annotations

DISTRIBUTION = "memman-core"
VERSION = "0.1.0"
CREATED_BY = f"{DISTRIBUTION} {VERSION}"
