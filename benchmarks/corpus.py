"""Texts of many kinds, for fitting and judging estimates of tokens.

It downloads nothing, and contains no texts of others. Real texts are read from installed packages:
CPython's own library and headers, the packages of this environment, Django's and Sphinx' translations.
`texts/` has short ones of our own in 20 languages. Machine output (logs, records, numbers, random
ids) is generated from a seed. A kind whose package is not installed has fewer documents, or none.

Documents belong to one of two halves by a checksum of their names: one for fitting, one for judging.
"""

from __future__ import annotations

import ast
import base64
import difflib
import hashlib
import json
import re
import sysconfig
import uuid
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from zlib import crc32

# Short texts written for this benchmark: one story in 20 languages.
OWN_TEXTS = {path.stem: path for path in (Path(__file__).parent / "texts").glob("*.txt")}
_LIBRARY = Path(sysconfig.get_path("stdlib"))
_HEADERS = Path(sysconfig.get_path("include"))
_LARGEST = 200_000  # characters read of a file
_DOCUMENTS = 60  # of a kind at most
_MADE = 40  # documents of each generated kind
_SHORTEST, _LONGEST = 32, 4_096  # characters of a sample


class Document(NamedTuple):
    """A text, its kind, and a name that is the same wherever it is installed."""

    kind: str
    name: str
    text: str

    @property
    def held_out(self) -> bool:
        """Whether it is in the half that judges."""
        return bool(crc32(self.name.encode()) & 1)


# ---------------------------------------------------------------- installed texts


def _package(name: str) -> Path | None:
    spec = find_spec(name)
    places = spec.submodule_search_locations if spec else None
    return Path(next(iter(places))) if places else None


def _files(root: Path | None, pattern: str, *, least: int = 400) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of the files below `root`, mixed: in the order of their names' checksums."""
    if root is None:
        return
    # The library's folder depends on the version of Python; a file is the same document in each.
    place = re.sub(r"^python3\.\d+$", "python", root.name)
    found = [(f"{place}/{path.relative_to(root).as_posix()}", path) for path in root.rglob(pattern)]
    for name, path in sorted(found, key=lambda item: crc32(item[0].encode())):
        if "site-packages" in name or not path.is_file():
            continue
        try:
            text = path.read_text("utf-8")[:_LARGEST]
        except UnicodeDecodeError:
            continue
        if len(text) >= least:
            yield name, text


def _many(*sources: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield an equal share of each source, as long as it lasts."""
    for source in sources:
        yield from islice(source, _DOCUMENTS // len(sources) + 1)


def _python() -> Iterator[tuple[str, str]]:
    packages = (_files(_package(name), "*.py") for name in ("openai", "pygments", "django"))
    return _many(_files(_LIBRARY, "*.py", least=2_000), *packages)


def _prose() -> Iterator[tuple[str, str]]:
    """Docstrings, which are English, and Python's own documentation of its syntax."""
    for name, source in _files(_LIBRARY, "*.py", least=4_000):
        if "/test" in name or "idlelib" in name:
            continue
        try:
            nodes = list(ast.walk(ast.parse(source)))
        except SyntaxError:
            continue
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
        found = [ast.get_docstring(node) for node in nodes if isinstance(node, kinds)]
        text = "\n\n".join(each for each in found if each and ">>>" not in each and len(each) > 150)
        if len(text) > 1_500:
            yield name, text


def _markdown() -> Iterator[tuple[str, str]]:
    for each in sorted(metadata.distributions(), key=lambda one: one.metadata["Name"]):
        text = each.read_text("METADATA") or ""
        body = text.partition("\n\n")[2]
        if len(body) > 1_000:
            yield each.metadata["Name"], body[:40_000]


def _minified(text: str) -> bool:
    return len(text) / (text.count("\n") + 1) > 300


def _scripts(minified: bool) -> Iterator[tuple[str, str]]:
    for name in ("django", "sphinx", "jupyterlab", "notebook", "pygments"):
        for path, text in _files(_package(name), "*.js"):
            code = text[:60_000]
            if _minified(code) == minified and code.count("\\u") < 200:
                yield path, code


def _json_files() -> Iterator[tuple[str, str]]:
    return _many(
        _files(_package("botocore"), "*.json"),
        _files(_package("jupyterlab"), "*.json"),
        _tool_schemas(),
    )


def _tool_schemas() -> Iterator[tuple[str, str]]:
    """Functions of the library as the tools of a request, compact or indented."""
    for name, source in _files(_LIBRARY, "*.py", least=8_000):
        try:
            tree = ast.parse(source)
        except SyntaxError:
            continue
        tools = [_tool(node) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        if len(tools) > 4:
            indent = 2 if crc32(name.encode()) & 2 else None
            separators = None if indent else (",", ":")
            yield name + "#tools", json.dumps(tools, indent=indent, separators=separators)[:40_000]


def _tool(node: ast.FunctionDef) -> dict[str, Any]:
    arguments = [each.arg for each in node.args.args if each.arg != "self"]
    properties = {name: {"type": "string", "description": f"The {name}"} for name in arguments}
    parameters = {"type": "object", "properties": properties, "required": arguments}
    described = ast.get_docstring(node) or node.name.replace("_", " ")
    return {"name": node.name, "description": described[:300], "parameters": parameters}


def _markup() -> Iterator[tuple[str, str]]:
    names = ("django", "sphinx", "jupyterlab")
    return _many(_files(_LIBRARY, "*.html"), *(_files(_package(name), "*.html") for name in names))


def _diffs_and_searches() -> Iterator[tuple[str, str]]:
    """Yield the output of a coding agent's tools: numbered lines, search hits, listings, diffs."""
    files = list(islice(_files(_LIBRARY, "*.py", least=3_000), 4 * _MADE))
    for at, (name, text) in enumerate(files):
        lines = text.splitlines()
        match at % 4:
            case 0:
                shown = [f"{number:6}\t{line}" for number, line in enumerate(lines, 1)]
            case 1:
                hits = [
                    (number, line)
                    for number, line in enumerate(lines, 1)
                    if "self" in line or "def" in line
                ]
                shown = [f"{name}:{number}:{line}" for number, line in hits]
            case 2:
                random = Random(at)
                shown = [
                    f"-rw-r--r-- 1 root root {random.randint(200, 90_000):6} "
                    f"Nov {random.randint(1, 30):2} {_clock(random)} {other}"
                    for other, _ in random.sample(files, 80)
                ]
            case _:
                random = Random(at)
                changed = [
                    line.replace("self", "this") if random.random() < 0.1 else line
                    for line in lines
                ]
                shown = list(
                    difflib.unified_diff(lines, changed, f"a/{name}", f"b/{name}", lineterm="")
                )
        yield f"{name}#tool{at % 4}", "\n".join(shown)[:20_000]


_LANGUAGES = {
    "Chinese": ("zh_Hans", "zh_Hant", "zh_CN", "zh_TW"),
    "Japanese": ("ja",),
    "Korean": ("ko",),
    "Russian": ("ru",),
    "Cyrillic, other": ("uk", "bg", "sr", "be", "mk", "kk", "mn"),
    "German, French, Spanish": ("de", "fr", "es", "it", "nl", "pt", "pt_BR"),
    "Latin, other": ("pl", "cs", "tr", "vi", "hu", "fi", "ro", "lv", "sk", "hr", "az", "is"),
    "Arabic, Persian, Urdu": ("ar", "fa", "ur", "ckb"),
    "Hebrew": ("he",),
    "Greek": ("el",),
    "Indic": ("hi", "bn", "ta", "te", "ml", "mr", "ne", "kn", "pa"),
    "Thai": ("th",),
    "Georgian, Armenian, Khmer, Burmese": ("ka", "hy", "hy_AM", "hyw", "km", "my"),
}
_MESSAGE = re.compile(r'^msgstr(?:\[\d\])? ((?:".*"\n)+)', re.MULTILINE)
_QUOTED = re.compile(r'"(.*)"\n')


def _translations(languages: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for language in languages:
        if language in OWN_TEXTS:
            yield f"texts/{language}", OWN_TEXTS[language].read_text("utf-8")
        for package in ("django", "sphinx"):
            for name, text in _files(_package(package), f"{language}/LC_MESSAGES/*.po"):
                found = ("".join(_QUOTED.findall(each)) for each in _MESSAGE.findall(text + "\n"))
                said = "\n".join(
                    each.replace("\\n", "\n").replace('\\"', '"') for each in found if len(each) > 3
                )
                if len(said) > 300:
                    yield name, said


# ---------------------------------------------------------------- machine output

_WORDS = (
    "order", "payment", "user", "session", "cache", "worker", "queue", "index", "shard", "token",
    "region", "bucket", "stream", "batch", "retry", "deploy", "build", "fetch", "parse", "render",
    "upload", "search", "update", "delete", "create", "merge", "commit", "status", "health", "metrics",
)  # fmt: skip
_CHAT = (
    "sounds good", "see you at eight", "omg that is amazing", "can you send me the file again please",
    "running late, sorry", "happy birthday", "did you see the game last night", "I'll be there soon",
    "thanks so much for your help today", "lunch tomorrow?", "this is so funny", "no way",
    "the build is green again", "shipping it now", "great work everyone", "we need more coffee",
)  # fmt: skip
_EMOJI = "😀😂🤣😍🥰😘😎🤔😢😭😡👍👎🙏👏🔥🎉🎂✅❌⭐💯🚀🐛💡📎📅☕🍕🌍❤️👨‍👩‍👧🤷‍♀️👋🏽🇩🇪"
_LEVELS = ("INFO", "INFO", "INFO", "DEBUG", "WARNING", "ERROR")
_AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36",
    "curl/8.5.0", "python-requests/2.32.3", "kube-probe/1.29",
)  # fmt: skip


def _base64(random: Random) -> str:
    data = random.randbytes(random.randint(200, 3_000))
    text = base64.b64encode(data).decode()
    return text if random.random() < 0.5 else base64.encodebytes(data).decode()


def _ids(random: Random) -> str:
    def one() -> str:
        return random.choice((
            lambda: random.randbytes(random.choice((16, 20, 32))).hex(),
            lambda: str(uuid.UUID(bytes=random.randbytes(16), version=4)),
        ))()  # fmt: skip

    return random.choice(("\n", " ", ", ")).join(one() for _ in range(60))


def _numbers(random: Random) -> str:
    places = random.choice((0, 2, 4, 6))
    rows = (
        ",".join(f"{random.uniform(-1_000, 1_000):.{places}f}" for _ in range(8)) for _ in range(60)
    )
    return "\n".join(rows)


def _clock(random: Random) -> str:
    return f"{random.randint(0, 23):02}:{random.randint(0, 59):02}"


def _time(random: Random) -> str:
    month, day, second = random.randint(1, 12), random.randint(1, 28), random.randint(0, 59)
    return f"2026-{month:02}-{day:02}T{_clock(random)}:{second:02}"


def _address(random: Random) -> str:
    return ".".join(str(random.randint(1, 254)) for _ in range(4))


def _path(random: Random) -> str:
    parts = random.choices(_WORDS, k=random.randint(1, 4))
    return (
        "/" + "/".join(parts) + (f"/{random.randint(1, 99_999)}" if random.random() < 0.5 else "")
    )


def _access_log(random: Random) -> str:
    def line() -> str:
        stamp = f"{random.randint(1, 28):02}/Nov/2026:{_clock(random)}:11 +0000"
        verb, code = (
            random.choice(("GET", "GET", "POST", "PUT")),
            random.choice((200, 200, 304, 404, 500)),
        )
        return (
            f'{_address(random)} - - [{stamp}] "{verb} {_path(random)} HTTP/1.1" {code} '
            f'{random.randint(100, 90_000)} "-" "{random.choice(_AGENTS)}"'
        )

    return "\n".join(line() for _ in range(40))


def _service_log(random: Random) -> str:
    def line() -> str:
        where = ".".join(random.choices(_WORDS, k=2))
        said = " ".join(random.choices(_WORDS, k=random.randint(3, 8)))
        extra = f" id={random.randbytes(6).hex()} took={random.uniform(0, 900):.1f}ms"
        tail = (
            extra
            if random.random() < 0.6
            else f" for {_address(random)}:{random.randint(1_000, 60_000)}"
        )
        stamp = f"{_time(random)}.{random.randint(0, 999):03}Z"
        return f"{stamp} {random.choice(_LEVELS)} [{where}] {said}{tail}"

    return "\n".join(line() for _ in range(50))


def _record(random: Random) -> dict[str, Any]:
    return {
        "id": random.randint(1, 10**6),
        "uuid": str(uuid.UUID(bytes=random.randbytes(16), version=4)),
        "name": " ".join(random.choices(_WORDS, k=2)).title(),
        "created_at": _time(random) + "Z",
        "price": round(random.uniform(1, 900), 2),
        "active": random.random() < 0.5,
        "tags": random.choices(_WORDS, k=random.randint(0, 4)),
        "address": {"ip": _address(random), "path": _path(random), "parent": None},
    }


def _records(random: Random) -> str:
    records = [_record(random) for _ in range(20)]
    indent = random.choice((None, 2))
    return json.dumps(records, indent=indent, separators=(",", ":") if indent is None else None)


def _emoji_chat(random: Random) -> str:
    def line() -> str:
        shown = "".join(random.choices(_EMOJI, k=random.randint(0, 4)))
        return f"{random.choice(_CHAT)} {shown}".strip()

    return "\n".join(line() for _ in range(60))


def _made(kind: str, make: Callable[[Random], str]) -> Iterator[tuple[str, str]]:
    for number in range(_MADE):
        yield f"{kind} {number}", make(Random(f"{kind} {number}"))


GENERATED: dict[str, Callable[[Random], str]] = {
    "base64": _base64,
    "hex and UUIDs": _ids,
    "CSV numbers": _numbers,
    "access logs": _access_log,
    "service logs": _service_log,
    "JSON records": _records,
    "emoji chat": _emoji_chat,
}


def generated(kind: str, number: int) -> str:
    """Return a generated text, the same each time."""
    return GENERATED[kind](Random(f"{kind} {number}"))


# ---------------------------------------------------------------- all documents


def _sources() -> Iterator[tuple[str, Iterable[tuple[str, str]]]]:
    yield "English prose", _prose()
    yield "Markdown", _markdown()
    yield "Python", _python()
    yield "C", _files(_HEADERS, "*.h", least=2_000)
    yield "JavaScript", _scripts(minified=False)
    yield "minified JavaScript", _scripts(minified=True)
    yield "JSON files", _json_files()
    yield "HTML", _markup()
    yield (
        "CSS",
        _many(*(_files(_package(name), "*.css") for name in ("django", "sphinx", "jupyterlab"))),
    )
    yield "tool output", _diffs_and_searches()
    for kind, languages in _LANGUAGES.items():
        yield kind, _many(*(_translations((language,)) for language in languages))
    for kind, make in GENERATED.items():
        yield kind, _made(kind, make)


def documents() -> Iterator[Document]:
    """Yield every document, kind by kind."""
    for kind, source in _sources():
        for name, text in islice(source, _DOCUMENTS):
            yield Document(kind, name, text)


def samples(document: Document, most: int) -> list[str]:
    """Cut pieces of a document, 32 to 4,096 characters long, log-uniform."""
    random = Random(hashlib.sha256(document.name.encode()).digest())
    pieces: list[str] = []
    for _ in range(most):
        length = int(2 ** random.uniform(5, 12))
        start = random.randrange(max(1, len(document.text) - length))
        piece = document.text[start : start + length]
        if len(piece) >= _SHORTEST and not piece.isspace():
            pieces.append(piece)
    return pieces
