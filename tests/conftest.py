"""The folder of the data of tests marked `shared`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memman.session import context as contexts

HERE = Path(__file__).resolve().parent
SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


# Their budgets are a few words, less than the framing of a few messages. So their trigger counts
# only the entries until a context was built. test_overhead.py tests the framing.
IN_WORDS = frozenset(
    {
        "docs/test_come_from.py",
        "session/test_compressor.py",
        "session/test_faults.py",
        "test_parity_reference.py",
        "test_requirements.py",
    }
)


@pytest.fixture(autouse=True, scope="module")
def without_framing(request: pytest.FixtureRequest) -> Iterator[None]:
    """Leave framing out of the trigger in the modules that count in words."""
    with pytest.MonkeyPatch.context() as patch:
        if request.path.is_relative_to(HERE) and str(request.path.relative_to(HERE)) in IN_WORDS:
            patch.setattr(contexts, "expected_framing", lambda _form, _meter: (0.0, lambda _: 0.0))
        yield
