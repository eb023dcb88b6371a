"""The service of a model: the Gemini Developer API or Vertex AI.

The spelling decides (`gemini/...`, `vertex_ai/...`), else the SDK's environment variables. Exactly one
matches, so that no conversation goes to a service that was not chosen.
"""

from __future__ import annotations

import os
from typing import Final

from memman.protocols import ModelRef

KEYS: Final = ("GOOGLE_API_KEY", "GEMINI_API_KEY")
# of the SDK; the newer name wins
_WANTS_VERTEX: Final = ("GOOGLE_GENAI_USE_ENTERPRISE", "GOOGLE_GENAI_USE_VERTEXAI")
_SURE: Final = 20


def gemini_match(model: ModelRef) -> int:
    """Return 20 for a Gemini model of any server, else 0."""
    return _SURE if model.name.startswith("gemini-") else 0


def developer_match(model: ModelRef) -> int:
    """Return 20 for a Gemini model that the Developer API counts, else 0."""
    ours = model.provider in (None, "gemini") and not _on_vertex(model)
    return gemini_match(model) if ours else 0


def vertex_match(model: ModelRef) -> int:
    """Return 20 for a Gemini model that Vertex AI counts, else 0."""
    return gemini_match(model) if _on_vertex(model) else 0


def has_key() -> bool:
    """Return whether the environment has a key of the Developer API."""
    return any(os.environ.get(name) for name in KEYS)


def _on_vertex(model: ModelRef) -> bool:
    if "vertex" in (model.provider or ""):
        return True
    return model.provider is None and wants_vertex()


def wants_vertex() -> bool:
    """Return whether the environment selects Vertex AI."""
    said = next((os.environ[name] for name in _WANTS_VERTEX if name in os.environ), "")
    return said.lower() in ("true", "1")
