"""Records in a temporary file: a sequence that decodes each record on access."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import IO, overload

from memman.records import Deleted, Record, decode, encode, tainted_by, tombstone

_IN_MEMORY = 2**20  # bytes of a log that stay in memory


class RecordFile(Sequence[Record]):
    """A log in a temporary file.

    Entries that the log deletes are returned as tombstones, with every replacement made of them. One
    thread at a time may read it.
    """

    def __init__(self) -> None:
        import tempfile

        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - closed by close
        self._ends = array("Q", [0])
        self._gone: set[str] = set()
        self._tainted: frozenset[str] | None = None

    def append(self, record: Record) -> None:
        """Append a record."""
        if isinstance(record, Deleted):
            self._gone.update(record.ids)
        payload = encode(record)
        self._file.write(payload)
        self._ends.append(self._ends[-1] + len(payload))
        self._tainted = None

    def close(self) -> None:
        """Close and remove the file."""
        self._file.close()

    @property
    def tainted(self) -> frozenset[str]:
        """The deleted entries, and the replacements whose originals include one."""
        if self._tainted is None:
            records = self._stored(0) if self._gone else ()
            self._tainted = tainted_by(records, frozenset(self._gone))
        return self._tainted

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __iter__(self) -> Iterator[Record]:
        tainted = self.tainted
        for record in self._stored(0):
            yield tombstone(record, tainted) if tainted else record

    @overload
    def __getitem__(self, place: int) -> Record: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Record]: ...
    def __getitem__(self, place: int | slice) -> Record | Sequence[Record]:
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(len(self)))]
        place = place + len(self) if place < 0 else place
        if not 0 <= place < len(self):
            raise IndexError(place)
        return tombstone(next(self._stored(place)), self.tainted)

    def _stored(self, first: int) -> Iterator[Record]:
        """Return the records as they were appended, from a place on."""
        # Seek each time: another reader may move the file's position in between.
        for number in range(first, len(self)):
            begin, end = self._ends[number], self._ends[number + 1]
            self._file.seek(begin)
            yield decode(self._file.read(end - begin))
