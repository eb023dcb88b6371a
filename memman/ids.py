"""Identifiers, UUIDv7 (RFC 9562), and the nonce of a session.

An id is created before the first attempt to store a record, so that a retry is recognised. Ids do not
order records: the log's `seq` does.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from typing import Any

from memman.display import safe_repr
from memman.entries import check_id
from memman.errors import InvalidInput

_MILLISECOND = 1_000_000  # nanoseconds
_VERSION_AND_VARIANT = 0xF << 76 | 0x3 << 62  # the bits that RFC 9562 fixes
_NONCE = re.compile(r"[0-9a-f]{8,64}")
_IS_UUID7 = 0x7 << 76 | 0x2 << 62


def new_id() -> str:
    """Return a new UUIDv7: the time in milliseconds and 74 random bits.

    It has no state, so threads share nothing and a forked process makes other ids.
    """
    bits = time.time_ns() // _MILLISECOND << 80 | int.from_bytes(os.urandom(10))
    digits = f"{bits & ~_VERSION_AND_VARIANT | _IS_UUID7:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def valid_id(text: str, *, prefix: str = "") -> str:
    """Return an id of a session or an entry for a framework's own id, which may be any text.

    Args:
        text: the framework's id.
        prefix: comes first in the result.

    Returns:
        The prefix and the text if they are a valid id. Otherwise (an empty text, more than 255 bytes,
        control characters, lone surrogates) the prefix and a digest of the text, always the same.

    Raises:
        InvalidInput: the id is no string, or the prefix is too long or has control characters.
    """
    try:
        check_id(text, "id")
        return check_id(prefix + text, "id")
    except InvalidInput:
        if not isinstance(text, str):
            raise
        digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
        return check_id(f"{prefix}sha256-{digest}", "prefix")


def entry_id(message_id: str, number: int) -> str:
    """Return the id of one of a message's entries: the message's own for the first."""
    return valid_id(f"{message_id}:{number}") if number else message_id


def new_nonce() -> str:
    """Return the nonce of a new session: 32 random bits as hexadecimal digits."""
    return os.urandom(4).hex()


def check_nonce(nonce: Any) -> str:
    """Return the nonce. Raises `InvalidInput` unless it is 8 to 64 hexadecimal digits."""
    if not isinstance(nonce, str) or not _NONCE.fullmatch(nonce):
        raise InvalidInput(f"a nonce must be 8 to 64 hexadecimal digits, not {safe_repr(nonce)}")
    return nonce
