"""Ids are UUIDv7 and never come twice, in other threads and processes too."""

import os
import threading
import time
import uuid

import pytest

from memman.errors import InvalidInput
from memman.ids import new_id, valid_id


def test_id_is_uuid_version_7_with_rfc_variant() -> None:
    for _ in range(1_000):
        made = uuid.UUID(new_id())
        assert made.version == 7
        assert made.variant == uuid.RFC_4122
        assert str(made) == str(made).lower()


def test_first_48_bits_are_the_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 0x0123456789AB * 1_000_000 + 999_999)
    assert new_id().startswith("01234567-89ab-7")


@pytest.mark.parametrize("random_byte", [b"\x00", b"\xff"])
def test_extreme_random_bytes_give_a_valid_id(
    random_byte: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "urandom", lambda size: random_byte * size)
    made = uuid.UUID(new_id())
    assert made.version == 7
    assert made.variant == uuid.RFC_4122


def test_ids_of_many_threads_all_differ() -> None:
    made: list[list[str]] = [[] for _ in range(8)]

    def work(into: list[str]) -> None:
        into.extend(new_id() for _ in range(5_000))

    threads = [threading.Thread(target=work, args=(into,)) for into in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({one for into in made for one in into}) == 40_000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_ids_differ_after_a_fork_with_a_stepped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    new_id()
    monkeypatch.setattr(time, "time_ns", lambda: 5_000_000)
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writes, " ".join(new_id() for _ in range(50)).encode())
        finally:
            os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as source:
        of_child = source.read().split()
    os.waitpid(child, 0)
    assert len({*of_child, *(new_id() for _ in range(50))}) == 100


@pytest.mark.parametrize("given", [None, 5, b"s"])
def test_id_of_a_framework_must_be_text(given: object) -> None:
    with pytest.raises(InvalidInput, match="id must be a string"):
        valid_id(given)  # type: ignore[arg-type]  # what a caller without a type checker gives
