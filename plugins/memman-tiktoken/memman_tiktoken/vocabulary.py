"""Load an encoding from files of this machine.

`tiktoken.get_encoding` downloads, with no time-out, under a lock of the whole process. Here a
vocabulary is looked for on this machine (what tiktoken has loaded, its cache folder, packages that
carry it), and downloaded only where `MEMMAN_TIKTOKEN_DOWNLOAD=1` allows it, with a deadline.

Names, patterns, addresses and checksums are tiktoken's own: its constructors in
`tiktoken_ext.openai_public` are run with our reader in the place of their downloader.
"""

from __future__ import annotations

import base64
import hashlib
import os
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from importlib import import_module
from pathlib import Path
from time import monotonic
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from memman.errors import CounterUnavailable
from memman.providers import renew_in_child
from memman_tiktoken.packages import from_package, how_to_get

if TYPE_CHECKING:
    from tiktoken import Encoding

DOWNLOAD_VARIABLE: Final = "MEMMAN_TIKTOKEN_DOWNLOAD"
DOWNLOAD_SECONDS: Final = 20.0
_LOADER: Final = "load_tiktoken_bpe"


class _Download(NamedTuple):
    contents: Future[bytes]
    deadline: float


_lock = threading.Lock()
_loaded: dict[str, Encoding] = {}
_downloads: dict[str, _Download] = {}


def _renew() -> None:
    """Begin with a free lock: a thread of the parent may have held it."""
    global _lock
    _lock = threading.Lock()
    _downloads.clear()


renew_in_child(_renew)


def encoding(name: str) -> Encoding:
    """Return the encoding called `name`, loaded once in a process and shared.

    Raises `CounterUnavailable` if its vocabulary is not on this machine and cannot be downloaded.
    """
    known = _loaded.get(name)
    if known is None:
        with _lock:
            known = _loaded.get(name)
            if known is None:
                known = _loaded[name] = _load(name)
    return known


def _load(name: str) -> Encoding:
    from tiktoken import Encoding
    from tiktoken.registry import ENCODINGS

    return ENCODINGS.get(name) or Encoding(**_arguments(name))


def _arguments(name: str) -> dict[str, Any]:
    """Return the result of tiktoken's constructor of `name`, with a vocabulary read here."""
    constructor = import_module("tiktoken_ext.openai_public").ENCODING_CONSTRUCTORS[name]
    if _LOADER not in constructor.__code__.co_names:
        raise CounterUnavailable(
            f"this release of tiktoken makes {name} in a way that memman-tiktoken does not know: "
            "upgrade memman-tiktoken, or install the tiktoken release that it was made for (0.14)"
        )
    scope = {**constructor.__globals__, _LOADER: _ranks}
    arguments: dict[str, Any] = FunctionType(constructor.__code__, scope)()
    return arguments


def _ranks(url: str, expected_hash: str) -> dict[bytes, int]:
    """Return the vocabulary of `url` as tokens and their ranks; replaces `load_tiktoken_bpe`."""
    lines = _contents(url, expected_hash).splitlines()
    pairs = (line.split() for line in lines if line)
    return {base64.b64decode(token): int(rank) for token, rank in pairs}


def _contents(url: str, sha256: str) -> bytes:
    readers: tuple[Callable[[str], bytes | None], ...] = (_from_cache, from_package)
    for read in readers:
        contents = read(url)
        if contents is not None and hashlib.sha256(contents).hexdigest() == sha256:
            return contents
    return _download(url, sha256)


def _from_cache(url: str) -> bytes | None:
    """Return the file in tiktoken's cache, located like `tiktoken.load.read_file_cached`."""
    default = str(Path(tempfile.gettempdir()) / "data-gym-cache")
    folder = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR", default))
    if not folder:
        return None
    key = hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest()
    try:
        return (Path(folder) / key).read_bytes()
    except OSError:
        return None


def _download(url: str, sha256: str) -> bytes:
    """Return tiktoken's download of a vocabulary, if it is allowed and done in time.

    A hanging download cannot be stopped: it stays the only one, and later callers are refused until it
    ends.
    """
    if os.environ.get(DOWNLOAD_VARIABLE) != "1":
        raise CounterUnavailable(
            f"{_file_name(url)} is not on this machine: "
            f"{how_to_get(_file_name(url))}, "
            f"or set {DOWNLOAD_VARIABLE}=1 to download it"
        )
    download = _downloads.get(url) or _start_download(url, sha256)
    wait([download.contents], max(0.0, download.deadline - monotonic()))
    if not download.contents.done():
        raise _not_downloaded(url, f"took over {DOWNLOAD_SECONDS:.0f} s")
    del _downloads[url]
    error = download.contents.exception()
    if error is not None:
        raise _not_downloaded(url, f"failed ({error})") from error
    return download.contents.result()


def _start_download(url: str, sha256: str) -> _Download:
    contents: Future[bytes] = Future()

    def run() -> None:
        from tiktoken.load import read_file_cached

        try:
            contents.set_result(read_file_cached(url, sha256))
        except Exception as error:  # noqa: BLE001 - raised in the waiting thread
            contents.set_exception(error)

    # A daemon: the pool of concurrent.futures would make the interpreter's exit wait for it.
    threading.Thread(target=run, name="memman-tiktoken-download", daemon=True).start()
    download = _downloads[url] = _Download(contents, monotonic() + DOWNLOAD_SECONDS)
    return download


def _not_downloaded(url: str, what: str) -> CounterUnavailable:
    return CounterUnavailable(
        f"the download of {_file_name(url)} {what}: {how_to_get(_file_name(url))}, which needs none"
    )


def _file_name(url: str) -> str:
    return url.rpartition("/")[2]
