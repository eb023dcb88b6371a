"""The fixture of the provider's tests."""

from __future__ import annotations

from tests.provider_kits import _one_tls_context

__all__ = ["_one_tls_context"]
