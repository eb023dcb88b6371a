"""Tests of the layers, the cost of an import, the public names, and the parity of both APIs."""

from __future__ import annotations

import ast
import importlib
import inspect
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

import memman
from memman import AsyncMemoryManager, AsyncMethods, MemoryManager

PACKAGE = Path(memman.__file__).parent
ROOT = PACKAGE.parent
# The layers of design.md, section 3, lowest first: a part imports only from parts before it.
LAYERS = (
    "lazy_imports", "errors", "display", "extents", "files", "entries", "ids", "summary_metadata", "state",
    "spend", "records", "protocols", "config", "runtime", "search", "window", "log", "events", "results",
    "hookspecs", "plugins", "wire",
    "counting", "compression", "formats", "stores", "archive",
    "summarizers", "providers", "explain", "quoting", "session", "recall",
    "core", "async_manager", "manager", "adapters", "testing", "memman", "__main__",
)  # fmt: skip
# Parts that know nothing of each other.
APART = {"counting", "compression", "formats", "stores", "archive"}
# The layers of memman-cli.
LAYERS_OF_THE_COMMAND = (
    "errors", "output", "words", "options", "files", "explain", "report", "display", "log_formats",
    "detection", "logs", "archives", "conversion", "settings", "databases", "sessions", "trace_lines",
    "mcp_server", "answers", "conformance", "demo_log", "commands", "app", "memman_cli", "__main__",
)  # fmt: skip
THIRD_PARTY = {"blinker", "cachetools", "msgspec", "pluggy"}
# Parts of the lowest layers, which need nothing else.
OF_MSGSPEC_ALONE = {
    "lazy_imports", "errors", "display", "extents", "files", "entries", "ids", "config", "runtime",
}  # fmt: skip
OF_THE_COMMAND = {"click", "memman_cli", "msgspec", "rich"}
OF_AN_EXTRA = {  # and its user
    "archive": {"zstandard"},
    "stores": {"apsw"},
    "mcp_server": {"anyio", "mcp", "uvicorn"},
}
# Slow modules of the standard library and extras, imported inside functions.
LATE = {
    "anyio", "apsw", "mcp", "rich", "uvicorn", "zstandard",
    "asyncio", "sqlite3", "importlib", "subprocess", "shutil", "signal", "shlex", "urllib", "tempfile",
    "gzip", "json",
}  # fmt: skip
# Modules that are loaded on first use, with the function that imports them.
ON_FIRST_USE = {
    ("memman_cli.commands.plugins", "memman_cli.conformance"),
    ("memman_cli.commands.mcp", "memman_cli.mcp_server.http"),
    ("memman_cli.commands.mcp", "memman_cli.mcp_server.server"),
    ("memman_cli.commands.mcp", "memman_cli.mcp_server.sources"),
    ("memman_cli.commands.mcp", "memman_cli.mcp_server.tools"),
    ("memman.core.aio", "memman.session.feed"),
    ("memman.core.core", "memman.stores"),
    ("memman.core.methods", "memman.counting.overflow"),
    ("memman.core.methods", "memman.session.exporter"),
    ("memman.core.methods", "memman.session.feed"),
    ("memman.core.methods", "memman.session.forker"),
    ("memman.core.methods", "memman.session.importer"),
    ("memman.core.methods", "memman.session.search"),
    ("memman.core.resolver", "memman.counting.remote"),
    ("memman.formats.lenient", "memman.formats.rules"),
    ("memman.summarizers.adapters", "memman.summarizers.command"),
}
AWAITING = {
    "session",
    "core",
    "async_manager",
    "adapters",
    "recall",
    "runtime",
    "events",
    "testing",
    "mcp_server",
}
HEAVY = ("openai", "anthropic", "tiktoken", "click", "rich", "asyncio", "sqlite3", "subprocess",
         "httpx", "pydantic", "mcp", "starlette", "uvicorn",
         "importlib.metadata", "hypothesis", "pytest")  # fmt: skip


def modules(package: Path) -> Iterator[tuple[str, ast.Module]]:
    """Yield (dotted name, syntax tree) of every module of a package."""
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        yield name, ast.parse(path.read_text(encoding="utf-8"))


MODULES = dict(modules(PACKAGE))
# Every package of the repository, with its modules.
PACKAGES = {"memman": MODULES} | {
    folder.name: dict(modules(folder))
    for folder in sorted(ROOT.glob("plugins/*/memman_*"))
    if folder.is_dir()
}


def imported(tree: ast.AST, known: Collection[str] = MODULES) -> Iterator[tuple[str, bool]]:
    """Yield (module, whether inside a function) of every import, without TYPE_CHECKING blocks."""
    hidden, for_types = set[int](), set[int]()
    for outer in ast.walk(tree):
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            hidden |= {id(node) for node in ast.walk(outer)}
        elif isinstance(outer, ast.If) and ast.unparse(outer.test) == "TYPE_CHECKING":
            for_types |= {id(node) for child in outer.body for node in ast.walk(child)}
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) in hidden
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{ast.unparse(node)} is relative"
            module = node.module or ""
            for alias in node.names:
                full = f"{module}.{alias.name}"
                yield (full if full in known else module), id(node) in hidden


def part(module: str) -> str:
    """Return the part of a package that has a module: `counting` for `memman.counting.counter`.

    The table of wire types states facts for all parts; its reading belongs to it.
    """
    if module.startswith("memman.formats.wire"):
        return "wire"
    return module.split(".")[1] if "." in module else module


INNER = [name for name in MODULES if part(name) != "memman"]
# The library and its command.
BOTH = MODULES | PACKAGES["memman_cli"]


@pytest.mark.parametrize(
    ("package", "layers"), [("memman", LAYERS), ("memman_cli", LAYERS_OF_THE_COMMAND)]
)
def test_parts_import_only_from_lower_layers(package, layers):
    known = PACKAGES[package]
    assert {part(name) for name in known} == set(layers)
    arrows = {
        (name, module)
        for name, tree in known.items()
        for module, _ in imported(tree, known)
        if module in known and part(module) != part(name)
    }
    upward = [
        (name, module)
        for name, module in sorted(arrows)
        if layers.index(part(module)) > layers.index(part(name))
        or (package == "memman" and {part(module), part(name)} <= APART)
    ]
    assert upward == []


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_have_no_cycles(package):
    """Imports inside functions count: they only delay a cycle."""
    known = PACKAGES[package]
    graph = {
        name: {module for module, _ in imported(tree, known) if module in known and module != name}
        for name, tree in known.items()
    }
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join([*path[path.index(name) :], name])
        if name not in done:
            for following in graph[name]:
                visit(following, (*path, name))
            done.add(name)

    for name in graph:
        visit(name, ())


@pytest.mark.parametrize("name", BOTH)
def test_imports_are_at_the_top_except_slow_modules(name):
    for module, hidden in imported(BOTH[name], BOTH):
        if hidden and (name, module) not in ON_FIRST_USE:
            assert module.split(".")[0] in LATE, (
                f"{name} hides the import of {module} in a function"
            )


@pytest.mark.parametrize("name", BOTH)
def test_modules_use_only_declared_dependencies(name):
    own = THIRD_PARTY if name in MODULES else OF_THE_COMMAND
    allowed = own | OF_AN_EXTRA.get(part(name), set())
    if name in INNER and part(name) in OF_MSGSPEC_ALONE:
        allowed = {"msgspec"}
    for module, _ in imported(BOTH[name], BOTH):
        top = module.split(".")[0]
        known = top in sys.stdlib_module_names or top in allowed or top == "memman"
        assert known, f"{name} imports {module}"


@pytest.mark.parametrize("name", [name for name in BOTH if part(name) != "memman"])
def test_only_session_and_runtime_modules_await(name):
    if part(name) in AWAITING:
        return
    waits = [
        node
        for node in ast.walk(BOTH[name])
        if isinstance(node, ast.Await | ast.AsyncWith | ast.AsyncFor | ast.AsyncFunctionDef)
    ]
    assert not waits, f"{name} awaits in line {waits[0].lineno}"


@pytest.mark.parametrize(
    "statement", ["import memman", "from memman import MemoryManager as M; M()"]
)
def test_importing_memman_loads_nothing_heavy(statement):
    program = f"{statement}; import sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = set(done.stdout.split())
    assert not loaded & set(HEAVY)


# ---------------------------------------------------------------- state
# Attributes of other libraries' objects, which have no method for it.
NOT_OURS = {
    "_at_rest.ones",
    "connection.cursor_factory",
    "ctx.color",
    "socket.getaddrinfo",
    "watch.atexit",
}


@pytest.mark.parametrize("name", BOTH)
def test_an_object_alone_assigns_its_attributes(name):
    assigned = [
        ast.unparse(node)
        for node in ast.walk(BOTH[name])
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load)
    ]
    foreign = {target for target in assigned if target.count(".") > 1 or target[:5] != "self."}
    assert foreign <= NOT_OURS


@pytest.mark.parametrize("name", [name for name in BOTH if part(name) != "testing"])
def test_classes_have_at_most_45_members_and_3_ancestors(name):
    for cls in vars(importlib.import_module(name)).values():
        if not isinstance(cls, type) or cls.__module__ != name:
            continue
        if "Manager" in cls.__name__ or issubclass(
            cls, AsyncMethods
        ):  # the methods of both managers
            continue
        lineage = [base for base in cls.__mro__ if base.__module__.startswith("memman")]
        members = {member for base in lineage for member in vars(base) if member[:2] != "__"}
        assert len(members) <= 45, f"{cls.__name__} has {len(members)} members"
        assert len(lineage) <= 3, cls.__name__


# ---------------------------------------------------------------- size
# A commit lowers a number or leaves it. A feature pays for its lines by deleting others. A move lowers one
# number and raises the other by as much, and a new distribution adds its own lines in its first commit.
# No other commit raises one, unless the figure was agreed before the work began.
CODE_LINES = {"memman": 31_356, "plugins/*/memman_*": 15_800}


def code_lines(source: str) -> int:
    """Return the number of lines with code: no blank lines, comments and docstrings."""
    docstrings, code = set[int](), set[int]()
    for node in ast.walk(ast.parse(source)):
        alone = node.value if isinstance(node, ast.Expr) else None
        if isinstance(alone, ast.Constant) and isinstance(alone.value, str):
            docstrings.update(range(alone.lineno, (alone.end_lineno or 0) + 1))
    empty = (
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    )
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in empty:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - docstrings)


@pytest.mark.parametrize("folders", CODE_LINES)
def test_code_only_shrinks(folders):
    files = [path for folder in ROOT.glob(folders) for path in folder.rglob("*.py")]
    lines, held = sum(code_lines(path.read_text("utf-8")) for path in files), CODE_LINES[folders]
    assert lines <= held, f"{folders} has {lines:,} lines of code, at most {held:,}: delete some"
    assert lines == held, f"{folders} has {lines:,} lines of code: lower the number"


def test_lines_without_code_are_not_counted():
    source = '"""A docstring.\n\nIts end."""\n\n# a comment\nx = """two\nlines"""  # three\n'
    assert code_lines(source) == 2


# ---------------------------------------------------------------- public names


def test_all_public_names_are_listed_and_importable():
    assert len(memman.__all__) == len(set(memman.__all__))
    for name in memman.__all__:
        assert hasattr(memman, name), name
    own = {
        name
        for name, value in vars(memman).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert own <= set(memman.__all__), "imported in memman/__init__.py and not listed"


def test_every_error_is_public():
    errors = importlib.import_module("memman.errors")
    raised = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, memman.MemmanError)
    }
    assert raised <= set(memman.__all__)


def test_every_event_is_reachable_and_has_a_signal():
    kinds = {
        value
        for value in vars(memman.events).values()
        if inspect.isclass(value) and issubclass(value, memman.events.Event)
    } - {memman.events.Event}
    assert kinds == set(memman.events.SIGNALS)


def undocumented(owner: object, name: str) -> Iterator[str]:
    """Return the undocumented public members of a class, including itself."""
    if not inspect.getdoc(owner):
        yield name
    if inspect.isclass(owner):
        for key, value in vars(owner).items():
            member = (
                value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            )
            if not key.startswith("_") and inspect.isfunction(member) and not member.__doc__:
                yield f"{name}.{key}"


def test_every_public_name_is_documented():
    silent = [
        each
        for name in memman.__all__
        for each in undocumented(getattr(memman, name), name)
        if callable(getattr(memman, name)) or inspect.ismodule(getattr(memman, name))
    ]
    assert silent == []


@pytest.mark.parametrize("name", [name for name in BOTH if part(name) != "testing"])
def test_every_module_and_public_definition_is_documented(name):
    tree = BOTH[name]
    assert ast.get_docstring(tree), f"{name} says nothing of itself"
    for node in tree.body:
        public = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if public and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{name}.{node.name} in line {node.lineno}"


# ---------------------------------------------------------------- the two managers
NOT_AWAITED = {"follow", "observe", "on", "recall_tool"}  # an iterator, and plain methods


@pytest.mark.package("ruff")
def test_sync_manager_is_generated_from_async_methods():
    """Signatures, docstrings and order are the same because a script writes them."""
    script = ROOT / ".ci/generate_sync.py"
    done = subprocess.run(
        [sys.executable, script, "--check"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_every_method_is_awaited_in_the_async_manager_only():
    methods = {name for name, value in vars(MemoryManager).items() if inspect.isfunction(value)} - {
        "__init__",
        "__repr__",
        "__enter__",
        "__exit__",
        "_run",
    }
    assert len(methods) >= 36
    for name in methods:
        awaited = inspect.iscoroutinefunction(getattr(AsyncMemoryManager, name))
        assert awaited == (name not in NOT_AWAITED), name
        assert not inspect.iscoroutinefunction(getattr(MemoryManager, name)), name


# ---------------------------------------------------------------- language
LONGEST_NAME = 60
# Expressions that plain English has rarely, and how many of them 1,000 words may have.
RARE = {
    r"\bwhat (is|was|it|they|an?|the|has|came|comes|can|may|must|no|we|our|there|others|one)\b": 1.0,
    r"\bwhere (there|it|that|nothing|nobody|a|an|the|one|they|none|memman|we)\b": 0.7,
    r"\b(who|whoever|whom|somebody|nobody|anybody)\b": 1.0,
    r"\b(say|says|said)\b": 0.6,
    r"\b(ask|asks|asked|asking)\b": 0.8,
    r"\b(stand|stands|stood|standing)\b": 0.3,
    r"\b(is|are|was|be) (no|none)\b": 0.8,
    r"\b(tell|tells|told|telling)\b": 0.3,
    r"\b(meanwhile|anew|beside|aside|lately|afresh|strangers?)\b": 0.3,
    r"\b(verbs?|doors?)\b": 0.05,
}


def test_names_of_tests_are_short():
    long = [
        f"{path}: {name}"
        for pattern in ("tests/**/test_*.py", "plugins/*/tests/**/test_*.py")
        for path in ROOT.glob(pattern)
        for name in re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8"))
        if len(name) > LONGEST_NAME
    ]
    assert long == []


def prose(source: str) -> str:
    """Return the docstrings and comments of a module."""
    parts = [
        token.string
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    ]
    parts += [
        node.value.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]
    return "\n".join(parts)


@pytest.mark.parametrize(
    "folders",
    [
        ["memman"],
        ["plugins/memman-cli/memman_cli"],
        ["tests", "plugins/memman-cli/tests"],
    ],
    ids=str,
)
def test_docstrings_and_comments_are_plain(folders):
    texts = {
        path.relative_to(ROOT): prose(path.read_text(encoding="utf-8"))
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
    }
    words = sum(len(text.split()) for text in texts.values())
    for pattern, most in RARE.items():
        found = [
            f"{path}: {line.strip()}"
            for path, text in texts.items()
            for line in text.splitlines()
            if re.search(pattern, line)  # `None` is a value, not a word
        ]
        assert 1_000 * len(found) <= most * words, (pattern, found)
