"""What this distribution is called, which version of it this is, and how its parts are installed."""

from __future__ import annotations

DISTRIBUTION = "memman-core"
VERSION = "0.1.0"
CREATED_BY = f"{DISTRIBUTION} {VERSION}"
_PLUGINS = frozenset(
    f"memman-{name}"
    for name in (
        "anthropic",
        "bedrock",
        "google",
        "mistral",
        "openai",
        "postgres",
        "tiktoken",
        "tokenizers",
    )
)


def how_to_install(requirement: str) -> str:
    """Return what to do for a requirement such as `memman-openai` or `memman-core[zstd]`.

    memman's own distributions are on no package index yet: a package of such a name there is somebody
    else's.
    """
    name, bracket, extras = requirement.partition("[")
    if name == DISTRIBUTION:
        return f"install {requirement} from a clone of memman: pip install '.{bracket}{extras}'"
    if name in _PLUGINS:
        return (
            f"install {requirement} from a clone of memman: "
            f"pip install './plugins/{name}{bracket}{extras}'"
        )
    return f"pip install {requirement}"
