"""Modules that are loaded on first use, so that `import memman` is fast."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def on_first_use(package: str, names: Mapping[str, str]) -> Callable[[str], object]:
    """Return the `__getattr__` of a package that loads its modules on first use.

    Args:
        package: its full name.
        names: for each module of the package, the names to take from it, separated by spaces.
    """
    modules = {name: module for module, each in names.items() for name in each.split()}

    def load(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{modules[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return load
