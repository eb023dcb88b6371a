"""The number of examples of a law."""

from hypothesis import settings


def examples(number: int) -> int:
    """Scale `number` by the profile: all of it by `ci`, a tenth by default, 20 times by `thorough`."""
    return max(1, number * settings.default.max_examples // 100)
