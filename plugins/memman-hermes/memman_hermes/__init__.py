"""memman for Hermes Agent: a context engine.

In `~/.hermes/config.yaml`:

    plugins: {enabled: [memman]}
    context: {engine: memman}
"""

from memman_hermes.engine import MemmanEngine

__all__ = ["MemmanEngine"]
