"""The text of a call with deeply nested arguments does not depend on the stack of the caller."""

import sys

import pytest

from memman.search import searchable
from memman.testing.stores import added


@pytest.mark.parametrize("depth", [3, 60, 70, 700, 5_000])
def test_text_of_nested_arguments_ignores_the_stack(depth):
    arguments = '{"a":' * depth + '"line\\nend"' + "}" * depth
    entry = added("a", arguments, type="tool_call", role="assistant", name="f").entry

    def deeper(levels):
        return deeper(levels - 1) if levels else searchable(entry)

    expected = searchable(entry)
    assert deeper(sys.getrecursionlimit() // 2) == expected
    assert ("line\nend" in expected) == (depth <= 60)
