"""The number of examples of a law."""

from hypothesis import settings


def examples(number: int, by_default: int | None = None) -> int:
    """Scale `number` by the profile: all of it by `ci`, a tenth by default, 20 times by `thorough`.

    A slow law names its examples `by_default`.
    """
    profile = settings.default.max_examples
    if by_default is not None and profile < 100:
        return by_default
    return max(1, number * profile // 100)
