"""A plugin to begin with: a folder that installs, passes its tests, and counts or summarizes."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from string import Template
from typing import Final

from memman.cli.problems import UnusableError
from memman.counting import builtin_specs
from memman.errors import InvalidInput
from memman.plugins import shared_plugins

_TEMPLATES: Final = Path(__file__).with_name("scaffold")
KINDS: Final = ("counter", "summarizer")
_FILES: Final = {
    "pyproject.toml": "$kind/pyproject.toml.tmpl",
    "README.md": "$kind/README.md.tmpl",
    "$package/__init__.py": "$kind/init.py.tmpl",
    "$package/$kind.py": "$kind/$kind.py.tmpl",
    "$package/py.typed": "py.typed.tmpl",
    "tests/test_$module.py": "$kind/test.py.tmpl",
}
_PREFIX: Final = "memman-"
_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_LONGEST: Final = 40
# Distributions of memman itself.
_OWN: Final = frozenset(
    ("core", "tiktoken", "mistral", "tokenizers", "anthropic", "openai", "google", "bedrock")
)


def scaffold(name: str, into: Path, kind: str) -> tuple[Path, list[str]]:
    """Writes the plugin `name`, with what one of `KINDS` says in it, into a new folder `memman-NAME` in
    `into`: the folder and its files.

    Raises `InvalidInput` for a name that a package cannot have or that is taken, and `UnusableError`
    where there is such a folder already. Nothing that exists is touched.
    """
    _check(name)
    if not into.is_dir():
        raise UnusableError(f"--into {into}: there is no such folder; make it first")
    folder = into / f"{_PREFIX}{name}"
    try:
        folder.mkdir()
    except FileExistsError:
        raise UnusableError(
            f"{folder} exists and is not overwritten: take another name, or --into another folder"
        ) from None
    try:
        return folder, _write(folder, name, kind)
    except BaseException:
        shutil.rmtree(folder)  # made above, so all that is in it is ours
        raise


def _write(folder: Path, name: str, kind: str) -> list[str]:
    module = name.replace("-", "_")
    words = {
        "kind": kind,
        "name": name,
        "upper": name.upper(),
        "module": module,
        "package": f"memman_{module}",
        "distribution": f"{_PREFIX}{name}",
    }
    files = []
    for pattern, template in _FILES.items():
        path = Template(pattern).substitute(words)
        text = (_TEMPLATES / Template(template).substitute(words)).read_text(encoding="utf-8")
        target = folder / path
        target.parent.mkdir(exist_ok=True)
        target.write_text(Template(text).substitute(words), encoding="utf-8")
        files.append(path)
    return files


def _check(name: str) -> None:
    if name.startswith(_PREFIX):
        raise InvalidInput(f"give the name without {_PREFIX!r}: --scaffold {name[len(_PREFIX) :]}")
    if not _NAME.fullmatch(name) or len(name) > _LONGEST:
        raise InvalidInput(
            f"{name[:60]!r} cannot be a plugin's name: write lower-case letters and digits, in words with "
            f"one hyphen between, a letter first, at most {_LONGEST} characters, such as my-counter"
        )
    taken = {info.name for info in shared_plugins().found} | {spec.name for spec in builtin_specs()}
    if name in taken | _OWN:
        raise InvalidInput(f"{name!r} is taken by memman or an installed plugin: take another name")
