"""The structs of the table: what a type of a provider's items or parts is."""

from __future__ import annotations

from typing import Literal

import msgspec

Unit = Literal["text", "json", "pixels", "pages", "seconds", "frames", "flat", "cipher", "free"]


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the value at a path costs besides the readable text.

    A block costs the first of its prices whose path has a value of that unit.

    Args:
        by: the unit: tokens of its text or JSON, pixels of an image, pages, seconds of sound, seconds of
            video (frames), once (flat), characters of a cipher, or nothing (free).
        path: where the value is; "" for the whole block.
        rate: tokens for a page, a second, a cipher's character, or in all if flat.
        most: at most so many pages; 0 for no limit.
        beyond: characters of a cipher that cost nothing.
    """

    by: Unit
    path: str = ""
    rate: float = 0.0
    most: int = 0
    beyond: int = 0


class Kind(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One type of an item or of a part of a message.

    A path is dotted; `*` stands for every item of a list, `**` for every text inside.

    Args:
        type: the wire's `type`, or the key that names the part (Gemini, Bedrock).
        role: the only role that may send it; "" for any.
        part: it is a part of a message's content, where the format's other types are items of their own.
        plain: an entry has all of it: it is read and rendered by its fields, and never kept whole.
        half: a call, a result, a whole (a call and its result in one item), or "" for neither.
        id: the key with the id that ties a half to its partner.
        anonymous: a half without an id is valid, and has no partner.
        partners: the types of the other half.
        beside: the result is in the assistant's message, behind its call.
        name: the key of its tool's name.
        tool: the name of its tool, if the block has none.
        args: where the arguments of a call are.
        text: where the text is that a person or another model reads.
        said: where a text goes that takes the result's place; "" if the type has no such place.
        shape: the other keys of a result with such a text; its value at `said` is made of `wrap`.
        wrap: the value at `said`, in which `%` is the text; None for the text itself.
        prices: what it costs besides its readable text.
        failed: the values of keys that make an error of a result.
        exact: it must return to its provider unchanged.
        private: its provider alone understands it; nothing says so where it is left out.
        bound: it is valid only behind the prefix that it was made behind.
        follows: it is valid only directly before another item of the same answer.
        stands_for: it stands for all entries before it ("before"), or for data at the provider ("id").
        sent: a request may have it; False for what only responses have.
        needs: paths of which one must have a value, else the provider refuses it (half a thought).
        guess: why the row is not certain; "" if public documentation or the SDK has it.
    """

    type: str = ""
    role: Literal["assistant", "user", ""] = ""
    part: bool = False
    plain: bool = False
    half: Literal["", "call", "result", "whole"] = ""
    id: str = ""
    anonymous: bool = False
    partners: tuple[str, ...] = ()
    beside: bool = False
    name: str = "name"
    tool: str = ""
    args: str = ""
    text: tuple[str, ...] = ()
    said: str = ""
    shape: dict[str, object] = {}
    wrap: object = None
    prices: tuple[Price, ...] = ()
    failed: dict[str, tuple[object, ...]] = {}
    exact: bool = False
    private: bool = False
    bound: bool = False
    follows: bool = False
    stands_for: Literal["", "before", "id"] = ""
    sent: bool = True
    needs: tuple[str, ...] = ()
    guess: str = ""


FREE = (Price("free"),)  # of a flag, or of data about another part
