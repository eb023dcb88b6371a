"""How many examples a law takes."""

from hypothesis import settings


def examples(number: int) -> int:
    """`number`, scaled as the profile scales Hypothesis's own 100: 20 times as many by `thorough`."""
    return number * settings.default.max_examples // 100
