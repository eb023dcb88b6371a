"""Ids are UUIDv7 that never go backwards and never come twice."""

import threading
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memman.ids import new_id, uuid7_factory


def test_an_id_is_a_uuid_of_version_7_and_the_rfc_variant() -> None:
    for _ in range(1_000):
        made = uuid.UUID(new_id())
        assert made.version == 7
        assert made.variant == uuid.RFC_4122
        assert str(made) == str(made).lower()


def test_the_first_48_bits_are_the_time_in_milliseconds() -> None:
    make = uuid7_factory(now_ns=lambda: 0x0123456789AB * 1_000_000 + 999_999)
    assert make().startswith("01234567-89ab-7")


@given(st.lists(st.integers(1, 2**48 - 1), min_size=2, max_size=50))
def test_ids_grow_whatever_the_clock_does(times: list[int]) -> None:
    clock = iter(times)
    make = uuid7_factory(now_ns=lambda: next(clock) * 1_000_000)
    made = [make() for _ in times]
    assert made == sorted(set(made))


@pytest.mark.parametrize("random_byte", [b"\x00", b"\xff"])
def test_many_ids_of_one_millisecond_grow(random_byte: bytes) -> None:
    make = uuid7_factory(now_ns=lambda: 5_000_000, random_bytes=lambda size: random_byte * size)
    made = [make() for _ in range(10_000)]
    assert made == sorted(set(made))
    assert {one[:14] for one in made} == {"00000000-0005-"}
    assert {uuid.UUID(one).version for one in made} == {7}


def test_ids_of_many_threads_are_all_different() -> None:
    made: list[list[str]] = [[] for _ in range(8)]

    def work(into: list[str]) -> None:
        into.extend(new_id() for _ in range(5_000))

    threads = [threading.Thread(target=work, args=(into,)) for into in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({one for into in made for one in into}) == 40_000
    assert all(into == sorted(into) for into in made)
