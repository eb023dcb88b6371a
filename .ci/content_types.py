"""The page of what memman does with each content type, made of the table of wire types.

    python .ci/content_types.py            # write docs/reference/content-types.md
    python .ci/content_types.py --check    # the exit code is 1 if the page is another
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from memman.formats.wire.kinds import FREE, Kind, Price
from memman.formats.wire.tables import kinds_of

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "content-types.md"
TITLES = {
    "anthropic": "Anthropic Messages",
    "openai-responses": "OpenAI Responses",
    "openai-chat": "OpenAI Chat Completions",
    "gemini": "Gemini",
    "bedrock": "Bedrock Converse",
    "mistral": "Mistral",
}
_MEDIA = {"pages": "a file", "seconds": "sound", "frames": "video", "pixels": "an image"}
_INTRO = """# What memman does with each content type

<!-- Made by .ci/content_types.py. Change memman/formats/wire/ and run it again. -->

Each table has the types of one provider's messages. A call and its result always enter and leave a request
together, whatever their types.

- **Read**: whether search, summaries and recall read it.
- **At other providers**: what a request to another provider has in its place. Its own provider gets it
  as it came.
- **Cost**: the tokens that it counts until the provider's usage corrects them. Ids, signatures and cache
  marks count nothing.
- **Alone**: what is sent if its other half is missing, as after an interruption.

A type that is in no table returns to its own provider. Its name says whether it is half of a pair:
`X_call`, `X_use` and `X_request` are answered by `X_output`, `X_result` or `X_response` with the same id.
"""
_HEAD = """
| type | what it is | read | at other providers | cost | alone | notes |
|---|---|---|---|---|---|---|
"""


def page() -> str:
    """Return the page."""
    parts = [_INTRO]
    for form, title in TITLES.items():
        rows = "".join(map(row_of, [(form, kind) for kind in kinds_of(form).values()]))
        more = ""
        if form in ("openai-chat", "mistral"):
            more = "\nCalls and results are keys of the messages: they are pairs as in the other formats.\n"
        parts.append(f"\n## {title}\n{more}{_HEAD}{rows}")
    return "".join(parts)


def row_of(row: tuple[str, Kind]) -> str:
    """Return the line of a type."""
    form, kind = row
    cells = (what(kind), read(kind), elsewhere(kind), cost(kind), alone(form, kind), notes(kind))
    return f"| `{kind.type}` | {' | '.join(cells)} |\n"


def what(kind: Kind) -> str:
    """Return what a type is."""
    owner = " of the provider's own tool" if kind.beside or kind.half == "whole" else ""
    if kind.half == "whole":
        return f"a call{owner} with its result"
    if kind.half:
        return f"a {kind.half}{owner}"
    if kind.stands_for == "before":
        return "the provider's summary of all before it"
    if kind.stands_for == "id":
        return "a reference to data at the provider"
    if kind.prices == FREE:
        return "a mark or data about another part"
    if kind.private:
        return "reasoning of the model"
    media = [word for price in kind.prices if (word := _MEDIA.get(price.by))]
    return " or ".join(dict.fromkeys(media)) or "content"


def read(kind: Kind) -> str:
    """Return whether it is read."""
    if kind.half == "call":
        return "its arguments"
    return "yes" if kind.text else "no"


def elsewhere(kind: Kind) -> str:
    """Return what it is at other providers."""
    if kind.half in ("call", "result"):
        return f"an ordinary {kind.half}"
    if kind.stands_for == "before":
        return "a summary" if kind.text else "the messages that it stands for"
    if any(price.by in _MEDIA for price in kind.prices) and not kind.exact:
        return "the same where it takes one, else " + ("its text" if kind.text else "a note")
    if kind.text:
        return "its text"
    hidden = kind.private or kind.prices == FREE
    return "nothing" if hidden else "a note that content is missing"


def cost(kind: Kind) -> str:
    """Return what it counts."""
    found = ["its arguments"] if kind.half == "call" else ["its text"] if kind.text else []
    found += [priced(price) for price in kind.prices]
    return "; ".join(dict.fromkeys(found)) or "its text"


def priced(price: Price) -> str:
    """Return a price in words."""
    rate = f"{price.rate:,.0f} tokens"
    match price.by:
        case "pages":
            return f"{rate} a page, at most {price.most:,} pages"
        case "seconds":
            return f"{rate} a second of sound"
        case "frames":
            return f"{rate} a second of video"
        case "flat":
            where = " each" if "*" in price.path else " for a URL or an id" if price.path else ""
            return rate + where
        case "cipher":
            return f"a token for {1 / price.rate:.0f} characters of cipher"
        case "pixels":
            return "an image by its width and height"
        case "json":
            return "all of its definitions"
        case "free":
            return "nothing"
    return "its text"


def alone(form: str, kind: Kind) -> str:
    """Return what stands in for a missing half."""
    if kind.half == "result":
        return "a marked note with its text"
    if kind.half != "call":
        return ""
    rows: Mapping[str, Kind] = kinds_of(form)
    if not kind.beside and any(rows[name].said for name in kind.partners):
        return "a result that says that there is none"
    return "an ordinary call, and a result that says that there is none"


def notes(kind: Kind) -> str:
    """Return what else holds, and what is not certain."""
    found = []
    if kind.needs:
        found.append("Left out of requests while it is incomplete, as after an interrupted stream.")
    if kind.bound:
        found.append("Valid only behind the messages that it was made behind.")
    if kind.follows:
        found.append("Sent only with what it led to.")
    if not kind.sent:
        found.append("An instruction of a single request.")
    if kind.guess:
        found.append(f"Not certain: {kind.guess}.")
    return " ".join(found)


def main(given: list[str]) -> int:
    """Write the page, or compare it; return the exit code."""
    if given == ["--check"]:
        return int(PAGE.read_text(encoding="utf-8") != page())
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
