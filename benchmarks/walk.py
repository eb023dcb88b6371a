"""W1: an append and a context, again and again; CPU time over the floor of the same minute.

The floor is the unavoidable cost: `encode_ordinary` of o200k_base once over each text. After every
8 appends the floor runs over 8 texts from the other end of the workload, so that a disturbance of
the machine affects both. `x floor` is their ratio, per character of text.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Sequence
from time import process_time
from typing import Any

import msgspec

from benchmarks.subjects import Subject
from benchmarks.workload import Item

_BLOCK = 8
_FIRST_FOR_GROWTH = 250
_BIN_GROWTH = 1.6
_LEAST_BLOCKS = 3

Floor = Callable[[str], object]
Sampler = Callable[[Any, Any, Item], None]
"""`(subject, its context, the newest item)`."""


class Block(msgspec.Struct, frozen=True):
    """A few appends and contexts with their floor, in seconds of CPU and in characters."""

    entries: int
    chars: int
    seconds: float
    floor_chars: int = 0
    floor_seconds: float = 0.0


class Walk(msgspec.Struct, frozen=True):
    """A workload through a subject, block by block."""

    blocks: tuple[Block, ...]

    @property
    def microseconds(self) -> float:
        """Return the mean time of an append and a context."""
        return 1e6 * _sum(self.blocks, "seconds") / _sum(self.blocks, "entries")

    @property
    def x_floor(self) -> float:
        """Return the time over the floor's time for the same amount of text."""
        return _x_floor(self.blocks)

    @property
    def growth(self) -> float:
        """Return the exponent of cost over length: 0 is constant, 1 is an append that scans the history.

        It is the slope of log(mean cost) over log(entry) on bins of growing length from entry 250 on, each
        over the floor of its own stretch, if measured.
        """
        points = [(math.log(at), math.log(cost)) for at, cost in _bins(self.blocks)]
        return slope(points) if len(points) >= _LEAST_BLOCKS else 0.0


def walk(
    subject: Subject,
    items: Sequence[Item],
    floor: Floor | None = None,
    sample: Sampler | None = None,
    sample_every: int = 12,
) -> Walk:
    """Append every item and build a context each time.

    `sample` is called after every `sample_every` blocks, outside the measured time.
    """
    gc.collect()
    blocks: list[Block] = []
    for start in range(0, len(items) - _BLOCK + 1, _BLOCK):
        block = items[start : start + _BLOCK]
        began = process_time()
        for item in block:
            subject.append(item)
            context = subject.context()
        seconds = process_time() - began
        measured = Block(_BLOCK, _chars(block), seconds)
        if floor is not None:
            mirrored = items[len(items) - start - _BLOCK : len(items) - start]
            measured = _floored(measured, floor, mirrored)
        blocks.append(measured)
        if sample is not None and len(blocks) % sample_every == 0:
            sample(subject, context, block[-1])
    return Walk(tuple(blocks))


def _floored(block: Block, floor: Floor, items: Sequence[Item]) -> Block:
    began = process_time()
    for item in items:
        floor(item.content)
    seconds = process_time() - began
    return msgspec.structs.replace(block, floor_chars=_chars(items), floor_seconds=seconds)


def _chars(items: Sequence[Item]) -> int:
    return sum(len(item.content) for item in items)


def _sum(blocks: Sequence[Block], field: str) -> float:
    return math.fsum(getattr(block, field) for block in blocks)


def _x_floor(blocks: Sequence[Block]) -> float:
    per_char = _sum(blocks, "floor_seconds") / _sum(blocks, "floor_chars")
    return _sum(blocks, "seconds") / (per_char * _sum(blocks, "chars"))


def _bins(blocks: Sequence[Block]) -> list[tuple[float, float]]:
    """Return (entry, cost) for bins from entry 250 on, each 1.6 times as long as the one before."""
    found = []
    start = float(_FIRST_FOR_GROWTH)
    while start < len(blocks) * _BLOCK:
        stop = start * _BIN_GROWTH
        inside = blocks[math.ceil(start / _BLOCK) : math.ceil(stop / _BLOCK)]
        if len(inside) >= _LEAST_BLOCKS:
            floored = _sum(inside, "floor_chars") > 0
            mean = _sum(inside, "seconds") / _sum(inside, "entries")
            found.append((start, _x_floor(inside) if floored else mean))
        start = stop
    return found


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the slope of the line that fits the points best."""
    mean_x = math.fsum(x for x, _ in points) / len(points)
    mean_y = math.fsum(y for _, y in points) / len(points)
    covariance = math.fsum((x - mean_x) * (y - mean_y) for x, y in points)
    return covariance / math.fsum((x - mean_x) ** 2 for x, _ in points)
