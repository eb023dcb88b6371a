"""Every regular expression of the packages takes time in proportion to its input.

`re` holds the interpreter's lock while it matches, so one slow pattern stops a whole process. Patterns are
found in the source and run on inputs made of their own pieces. Only growth counts, so a busy machine does
not matter: four times the input may take at most `_MOST_GROWTH` times as long.
"""

from __future__ import annotations

import ast
import importlib
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from memman.compression.reply import answer_of, fault_of, is_refusal
from memman.config import MemoryConfig
from memman.counting.limits import limits_of
from memman.counting.models import model_ref
from memman.counting.overflow import parse_overflow
from memman.entries import neutralised
from memman.errors import MemmanError
from memman.formats.text import _parse_text
from memman.protocols import SearchRequest, SummaryReply, SummaryRequest
from memman.search import scan
from memman.search.snippets import snippet_of
from memman.testing.stores import added

pytestmark = pytest.mark.package("memman_mistral")  # the patterns of every plugin are tried
_REQUEST = SummaryRequest(prompt="p", entries=(), previous_summary=None, target_tokens=10)
_ROOT = Path(__file__).parents[2]
_METHODS = ("match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer")
_SHORT, _LONG = 2_000, 8_000  # characters
_MOST_GROWTH = 9.0  # linear is 4, quadratic 16
_TOO_QUICK = 0.004  # seconds for the short input: below it growth cannot be a problem
_GENERAL = (
    " ",
    "\n",
    "\n ",
    "\t",
    "a",
    "A1",
    "1",
    "-",
    ".",
    "/",
    "_",
    "#",
    "`",
    "[",
    "(",
    ",",
    '"',
)

# Patterns compiled from a function's arguments: their functions are tested instead, or the
# pattern is the user's own.
_DRIVEN = {
    "memman_cli.explain.traces": "words of the user's own, each escaped",
    "memman_cli.commands.window": "the user's own --grep",
    "memman.formats.rules.rulebook": "patterns of the rules below, each called with a constant",
    "memman.entries": "neutralised",
    "memman.compression.reply": "is_refusal",
    "memman.counting.framing": "constants of the table of framings",
    "memman.counting.limits": "limits_of",
    "memman.counting.models": "model_ref",
    "memman.counting.overflow": "parse_overflow",
    "memman.counting.images": "constants, found in the module's table",
    "memman.search.scan": "scan, with words of the query, each escaped",
    "memman.search.snippets": "snippet_of, with words of the query, each escaped",
    "memman.testing.models": "a word of the fake model's own, escaped",
    "memman_postgres.search": "words of the query, each escaped, with signs between them",
    "memman_mistral.models": "constants, found in the module's table",
    "memman_tiktoken.models": "constants, found in the module's table",
}


class Found(msgspec.Struct, frozen=True):
    """A pattern, its place and its use."""

    where: str
    pattern: re.Pattern[str]
    methods: tuple[str, ...]


def _modules() -> Iterator[tuple[str, Path]]:
    for folder in (_ROOT, *sorted((_ROOT / "plugins").iterdir())):
        for path in sorted(folder.glob("memman*/**/*.py")):
            if not {"tests", "scaffold", ".venv"} & set(path.parts):
                parts = path.relative_to(folder).with_suffix("").parts
                yield ".".join(parts).removesuffix(".__init__"), path


@cache
def _everything() -> tuple[tuple[Found, ...], frozenset[str]]:
    """Return all patterns, and the modules whose functions compile others."""
    found: list[Found] = []
    unknown: set[str] = set()
    for name, path in _modules():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if "re" not in _imported(tree) or name.endswith("__main__"):
            continue
        module = importlib.import_module(name)
        found += _kept(module, tree)
        for call in ast.walk(tree):
            if not _is_re_call(call):
                continue
            try:
                found.append(_inline(module, call))
            except (NameError, TypeError):
                unknown.add(name)
    return tuple(found), frozenset(unknown)


def _imported(tree: ast.Module) -> set[str]:
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import)]
    return {alias.name for node in imports for alias in node.names}


def _is_re_call(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "re"
        and node.func.attr in (*_METHODS, "compile")
    )


def _inline(module: ModuleType, call: Any) -> Found:
    """Return the pattern of `re.match(PATTERN, ...)`."""
    given = eval(compile(ast.Expression(call.args[0]), "", "eval"), vars(module))  # noqa: S307 - our own
    flags = [word.value for word in call.keywords if word.arg == "flags"]
    flags += call.args[1:2] if call.func.attr == "compile" else []
    value = eval(compile(ast.Expression(flags[0]), "", "eval"), vars(module)) if flags else 0  # noqa: S307
    where = f"{module.__name__}:{call.lineno}"
    methods = () if call.func.attr == "compile" else (call.func.attr,)
    return Found(where, re.compile(given, value), methods)


def _kept(module: ModuleType, tree: ast.Module) -> Iterator[Found]:
    """Return the patterns in a module's names, with the methods that are called on them."""
    called: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in _METHODS:
            called.setdefault(ast.unparse(node.value), set()).add(node.attr)
    others = {
        method
        for name, methods in called.items()
        if name != "re" and not isinstance(vars(module).get(name), re.Pattern)
        for method in methods
    }
    for name, value in vars(module).items():
        for pattern in _patterns_in(value):
            methods = called.get(name) or others or set(_METHODS[:3])
            yield Found(f"{module.__name__}.{name}", pattern, tuple(sorted(methods)))


def _patterns_in(value: Any) -> Iterator[re.Pattern[str]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, tuple | list | frozenset):
        for item in value:
            yield from _patterns_in(item)
    elif isinstance(value, dict):
        for item in value.items():
            yield from _patterns_in(item)
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from _patterns_in(getattr(value, name))


def _pieces(pattern: str) -> tuple[str, ...]:
    """Return the literal parts of a pattern, which lead a matcher into its inner parts."""
    plain = re.sub(r"\\[sSwWdDbBAZ]|\[[^\]]*\]|\(\?[:=!<]*", "\0", pattern)
    literal = [piece.replace("\\", "") for piece in re.split(r"[\0()|*+?{}^$]+", plain)]
    return tuple(dict.fromkeys(piece for piece in literal if piece))[:12]


def _inputs(pieces: tuple[str, ...]) -> Iterator[Callable[[int], str]]:
    """Return makers of inputs of a given length: a beginning, one repeated piece, and an end."""
    starts = ("", "a", *pieces[:4], "".join(pieces[:2]))
    for repeated in (*_GENERAL, *pieces, *(f"{piece} " for piece in pieces[:4])):
        for start in dict.fromkeys(starts):
            for end in ("", "!"):
                yield partial(_input, start, repeated, end)


def _input(start: str, repeated: str, end: str, length: int) -> str:
    return start + repeated * (length // len(repeated)) + end


def _seconds(run: Callable[[str], object], text: str, times: int = 1) -> float:
    best = float("inf")
    for _ in range(times):
        began = time.thread_time()
        run(text)
        best = min(best, time.thread_time() - began)
    return best


def _growth(run: Callable[[str], object], make: Callable[[int], str]) -> float:
    """Return the growth of the time with the input; 0 if the long input is quick."""
    if _seconds(run, make(_SHORT)) < _TOO_QUICK:
        return 0.0
    short = _seconds(run, make(_SHORT), times=3)
    if short < _TOO_QUICK:
        return 0.0
    return _seconds(run, make(_LONG), times=2) / short


def _use(pattern: re.Pattern[str], method: str, text: str) -> None:
    match method:
        case "sub" | "subn":
            pattern.sub("", text)
        case "finditer":
            for _ in pattern.finditer(text):
                pass
        case _:
            getattr(pattern, method)(text)


def _slow(found: Found) -> Iterator[str]:
    for method in found.methods:
        run = partial(_use, found.pattern, method)
        for make in _inputs(_pieces(found.pattern.pattern)):
            if (growth := _growth(run, make)) > _MOST_GROWTH:
                yield f"{found.where} {method} on {make(24)!r}: x{growth:.0f} for x4"
                break


def test_every_pattern_takes_linear_time() -> None:
    """Every pattern grows in proportion to its input"""
    found, _ = _everything()
    assert len(found) > 60
    texts = [item for item in found if isinstance(item.pattern.pattern, str)]
    assert [slow for item in texts for slow in _slow(item)] == []


def test_patterns_made_in_functions_are_listed() -> None:
    """A pattern that a function compiles is tested through that function"""
    _, unknown = _everything()
    assert unknown <= _DRIVEN.keys(), "drive the function below, and list its module"


def test_growth_test_finds_a_quadratic_pattern() -> None:
    """The test detects a quadratic pattern"""
    slow = Found("here", re.compile(r"\s*(\w+)\s*(?:\((.*)\))?\s*"), ("fullmatch",))
    assert list(_slow(slow))


def _preset(text: str) -> None:
    with pytest.raises(MemmanError):
        MemoryConfig(strategy="a" + text)


def _parsed(text: str) -> None:
    with suppress(MemmanError):
        _parse_text(text)


def _fault(text: str) -> None:
    fault_of(SummaryReply(text=text), _REQUEST)


_TERMS = ("retries", "limits", "src/limit.py")


def _scanned(text: str) -> None:
    scan(SearchRequest(terms=_TERMS), [("s", 1, added("a", text))])


_FUNCTIONS: dict[str, tuple[Callable[[str], object], tuple[str, ...]]] = {
    "answer_of": (answer_of, ("<think>", "</think>")),
    "fault_of": (_fault, ("```", "```json", "{", "<tool_call>")),
    "snippet_of": (lambda text: snippet_of(text, _TERMS), ("retr", "ies", "limit ")),
    "scan": (_scanned, ("retr", "ies", "limit ", "_")),
    "is_refusal": (is_refusal, ("I", "cannot")),
    "limits_of": (lambda text: limits_of(model_ref(text)), ("gpt-5-", "2025-01-01")),
    "model_ref": (model_ref, ("arn:aws:bedrock:", "projects/", "ft:", "us.", "v1:")),
    "neutralised": (neutralised, ("[", "[memman ", "[end of ", "\u200b")),
    "parse_overflow": (parse_overflow, ("too long", "maximum context length is ", "tokens ")),
    "parse_text": (_parsed, ("User: ", "[2025-01-01 - 2025-01-02]")),
    "preset": (_preset, ("window(", ")")),
}


@pytest.mark.parametrize("name", _FUNCTIONS)
def test_function_takes_linear_time(name: str) -> None:
    """A function that reads foreign text grows in proportion to it"""
    run, pieces = _FUNCTIONS[name]
    slow = [make(24) for make in _inputs(pieces) if _growth(run, make) > _MOST_GROWTH]
    assert slow == []
