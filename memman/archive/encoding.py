"""Packed archives: gzip from the standard library, zstd from an extra."""

from __future__ import annotations

import io
import zlib
from typing import Any, BinaryIO, cast

from memman.archive.info import Packing
from memman.archive.limits import ArchiveLimits, too_much
from memman.display import safe_repr
from memman.errors import InvalidInput, StateError
from memman.plugins import how_to_install

SUFFIXES: dict[str, Packing] = {".gz": "gzip", ".zst": "zstd"}
_MAGICS: dict[bytes, Packing] = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
MAGIC_BYTES = 4
_LEVEL = {"gzip": 6, "zstd": 3}
_WINDOW = 2**23  # the largest memory that unpacking may need; level 19 needs this much
_HARMLESS = 16 * 2**20  # unpacked bytes below which the ratio is not checked
_CHUNK = 2**18


def packing_for(name: str, wanted: str | None) -> Packing:
    """Return the wanted packing, or without one, the packing that the suffix of a file name means."""
    if wanted is None:
        return next((how for end, how in SUFFIXES.items() if name.endswith(end)), "none")
    if wanted not in ("none", "gzip", "zstd"):
        raise InvalidInput(
            f"packing={safe_repr(wanted)}: use 'none', 'gzip' or 'zstd', or None for the suffix"
        )
    return cast("Packing", wanted)


def packed(out: BinaryIO, packing: Packing) -> BinaryIO:
    """Return a stream that packs into `out`; closing it leaves `out` open."""
    if packing == "gzip":
        import gzip

        # No name and no time: the same session gives the same bytes.
        return cast("BinaryIO", gzip.GzipFile("", "wb", _LEVEL["gzip"], out, mtime=0))
    writer = _zstandard().ZstdCompressor(level=_LEVEL["zstd"], write_checksum=True)
    return cast("BinaryIO", writer.stream_writer(out, closefd=False))


class Unpacked:
    """Reads a file that may be packed, within the limits.

    Raises `StateError` if a limit is exceeded or a packed file is broken.
    """

    def __init__(self, source: BinaryIO, limits: ArchiveLimits) -> None:
        self._limits = limits
        self._file = _LimitedFile(source, limits)
        kinds = (how for magic, how in _MAGICS.items() if self._file.start.startswith(magic))
        self.packing: Packing = next(kinds, "none")
        self.broken = False  # whether unpacking failed
        self._unpacked = 0
        self._stream, self._errors = self._opened()

    def read(self) -> bytes:
        """Return the next bytes; b"" at the end."""
        try:
            chunk = bytes(self._stream.read(_CHUNK))
        except self._errors as error:
            self.broken = True
            raise StateError([f"the {self.packing} file is broken: {error}"]) from None
        self._unpacked += len(chunk)
        if self.packing != "none":
            limits, size, taken = self._limits, self._unpacked, self._file.taken
            if size > limits.unpacked_bytes:
                raise StateError([too_much("it unpacks to more", "unpacked_bytes", limits)])
            if size > max(_HARMLESS, limits.ratio * taken):
                what = f"{taken:,} bytes unpack to {size:,} and more"
                raise StateError([too_much(what, "ratio", limits)])
        return chunk

    def _opened(self) -> tuple[Any, tuple[type[Exception], ...]]:
        """Return the unpacked stream, and the errors of a broken file."""
        buffered = io.BufferedReader(self._file, _CHUNK)
        if self.packing == "none":
            return buffered, ()
        if self.packing == "gzip":
            import gzip

            return gzip.GzipFile(fileobj=buffered), (OSError, EOFError, zlib.error)
        zstandard = _zstandard()
        reader = zstandard.ZstdDecompressor(max_window_size=_WINDOW)
        return reader.stream_reader(buffered, read_across_frames=True), (zstandard.ZstdError,)


class _LimitedFile(io.RawIOBase):
    """A file that counts its bytes; `start` has the first ones."""

    def __init__(self, source: BinaryIO, limits: ArchiveLimits) -> None:
        self._source = source
        self._limits = limits
        start = b""  # as many bytes as a magic number has; a pipe may return fewer at a time
        while len(start) < MAGIC_BYTES and (more := source.read(MAGIC_BYTES - len(start))):
            if not isinstance(more, bytes):
                raise InvalidInput("an archive is bytes: open its file in binary mode, 'rb'")
            start += more
        self.start = self._rest = start
        self.taken = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._rest or self._source.read(len(buffer))
        size = min(len(buffer), len(data))
        buffer[:size], self._rest = data[:size], data[size:]
        self.taken += size
        if self.taken > self._limits.file_bytes:
            raise StateError([too_much("the file is larger", "file_bytes", self._limits)])
        return size


def _zstandard() -> Any:
    try:
        import zstandard
    except ImportError:
        raise InvalidInput(
            f"zstd needs an extra: {how_to_install('memman-core[zstd]')}; or use gzip, which needs none"
        ) from None
    return zstandard
