"""The API pages have every public name, and every public name is documented."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import typing
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

import memman
from memman import errors, events, hookspecs, protocols, providers, records, summarizers, testing
from tests.docs.pages import DOCS

PAGES = sorted((DOCS / "reference").glob("**/*.md"))
_DIRECTIVE = re.compile(r"^\.\. auto(class|function|data|module):: (\S+)$", re.MULTILINE)
# A manager's parts and its wrapper of a summarizer, which callers do not need.
_INNER = {"Asker", "Core", "Summarizers", "OUTLINE"}


def _directives(page: Path) -> list[tuple[str, str]]:
    return _DIRECTIVE.findall(page.read_text(encoding="utf-8"))


def _found(name: str) -> Any:
    """Return the object of a dotted name."""
    package, _, last = name.rpartition(".")
    module = importlib.import_module(package)
    return getattr(module, last) if hasattr(module, last) else importlib.import_module(name)


def _defined_in(module: Any) -> Iterator[Any]:
    return (
        value
        for name, value in vars(module).items()
        if getattr(value, "__module__", None) == module.__name__ and not name.startswith("_")
    )


SHOWN = [(kind, name) for page in PAGES for kind, name in _directives(page)]
OBJECTS = {id(_found(name)) for _, name in SHOWN}


@pytest.mark.parametrize(
    "module", [memman, testing, summarizers, providers], ids=lambda module: str(module.__name__)
)
def test_api_pages_have_every_export(module: Any) -> None:
    absent = [name for name in module.__all__ if id(getattr(module, name)) not in OBJECTS]
    assert set(absent) - _INNER == set()


@pytest.mark.parametrize("module", [errors, protocols], ids=lambda module: str(module.__name__))
def test_api_pages_have_every_class_of_a_module(module: Any) -> None:
    classes = [value for value in _defined_in(module) if isinstance(value, type)]
    assert [each.__name__ for each in classes if id(each) not in OBJECTS] == []


def test_api_pages_have_every_signal_and_payload() -> None:
    wanted = [
        events.Event,
        *events.SIGNALS,
        *events.SIGNALS.values(),
        events.replay,
        events.areplay,
    ]
    assert [each for each in wanted if id(each) not in OBJECTS] == []


def test_api_pages_have_every_record() -> None:
    kinds = (
        *typing.get_args(records.SHAPES),
        records.Added,
        records.Configured,
        records.UsageReported,
    )
    assert [kind.__name__ for kind in kinds if id(kind) not in OBJECTS] == []


def test_api_pages_have_every_hook() -> None:
    text = (DOCS / "reference/api/plugins.md").read_text(encoding="utf-8")
    assert ".. automodule:: memman.hookspecs\n   :members:" in text
    hooks = [value for value in _defined_in(hookspecs) if isinstance(value, FunctionType)]
    assert hooks
    assert [hook.__name__ for hook in hooks if not hook.__doc__] == []


def test_no_name_is_on_two_pages() -> None:
    names = [name for _, name in SHOWN]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("name", [name for kind, name in SHOWN if kind in ("class", "function")])
def test_public_name_is_documented(name: str) -> None:
    shown = _found(name)
    docstring = inspect.getdoc(shown) if isinstance(shown, type) else shown.__doc__
    assert docstring
    assert not docstring.startswith(f"{shown.__name__}(")  # of a class without its own


AS_STORE = "memman.protocols.AsyncStore"  # its methods are those of `Store`


@pytest.mark.parametrize(
    "name", [name for kind, name in SHOWN if kind == "class" and name != AS_STORE]
)
def test_public_members_are_documented(name: str) -> None:
    members = {
        member: value
        for member, value in vars(_found(name)).items()
        if not member.startswith(("_", "test_"))  # the name of a law documents it
        and isinstance(value, FunctionType | property | classmethod | staticmethod)
    }
    assert [member for member, value in members.items() if not value.__doc__] == []


@pytest.mark.parametrize("name", [name for kind, name in SHOWN if kind == "data"])
def test_public_value_is_documented(name: str) -> None:
    value = _found(name)
    own = vars(value).get("__doc__") if hasattr(value, "__dict__") else None
    assert own or _below(name), "write a docstring below its assignment"


def _below(name: str) -> str:
    """Return the docstring below the assignment of a value."""
    module, _, last = name.rpartition(".")
    lines = inspect.getsource(importlib.import_module(module)).splitlines()
    body = ast.parse("\n".join(lines)).body
    for node in body:
        if isinstance(node, ast.ImportFrom) and any(each.name == last for each in node.names):
            return _below(f"{node.module}.{last}")
    for assigned, after in pairwise(body):
        targets = assigned.targets if isinstance(assigned, ast.Assign) else [assigned]
        named = [getattr(target, "target", target) for target in targets]
        if any(isinstance(each, ast.Name) and each.id == last for each in named):
            documented = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            return str(after.value.value) if documented else ""
    return ""


@pytest.mark.parametrize("name", [name for kind, name in SHOWN if kind in ("class", "function")])
def test_types_in_public_signatures_are_public(name: str) -> None:
    shown = _found(name)
    members = [] if not isinstance(shown, type) else [
        value.fget if isinstance(value, property) else value
        for member, value in vars(shown).items()
        if (member == "__init__" or not member.startswith("_"))
        and isinstance(value, FunctionType | property)
    ]  # fmt: skip
    types = {each for one in (shown, *members) for each in _types(one)}
    ours = {each for each in types if getattr(each, "__module__", "").startswith("memman")}
    assert {each.__qualname__ for each in ours if id(each) not in OBJECTS} - _INNER == set()


def _types(shown: Any) -> Iterator[Any]:
    """Return the classes in the annotations of a class or a function, at any depth."""
    try:
        hints = typing.get_type_hints(shown)
    except NameError:  # a name that only a type checker imports
        hints = {}
    for name, hint in hints.items():
        if not name.startswith("_"):
            yield from _classes(hint)


def _classes(hint: Any) -> Iterator[Any]:
    if isinstance(hint, type) and not typing.get_args(hint):
        yield hint
    for argument in typing.get_args(hint):
        for each in argument if isinstance(argument, list) else [argument]:
            yield from _classes(each)
