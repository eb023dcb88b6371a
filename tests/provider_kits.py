"""What the tests of the providers' plugins share."""

from __future__ import annotations

import functools
import ssl
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

T = TypeVar("T", bound=type)

# They wait for a time-out or start a Python, and test the SDK and the plugin rather than the client.
_SLOW = (
    "test_a_provider_that_never_answers_costs_the_deadline",
    "test_the_counter_itself_gives_up_at_its_time_out",
    "test_a_slow_answer_within_the_deadline_is_taken",
    "test_twenty_threads_with_one_request_make_one",
    "test_twenty_tasks_with_one_request_make_one",
    "test_listing_it_imports_no_sdk",
    "test_a_provider_that_never_answers_costs_the_time_out",
    "test_limits_that_keep_coming_end_at_the_time_out",
    "test_nobody_at_the_address_is_told_in_time",
    "test_a_loop_goes_on_while_it_works",
    "test_naming_it_imports_no_sdk",
)

# Each client of an SDK makes a context, which reads 140 certificates.
_context = functools.cache(ssl.create_default_context)


@pytest.fixture(autouse=True, scope="module")
def _one_tls_context() -> Iterator[None]:
    """Let all clients of a module share a TLS context."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", _context)
        yield


def second_client(kit: T) -> T:
    """Mark the slow laws of a provider's second client as `long`: they hold for its first client."""
    for name in _SLOW:
        if hasattr(kit, name):
            setattr(kit, name, pytest.mark.long(_copied(getattr(kit, name))))
    return kit


def _copied(law: Callable[[Any], None]) -> Callable[[Any], None]:
    @functools.wraps(law)
    def test(self: Any) -> None:
        law(self)

    return test
