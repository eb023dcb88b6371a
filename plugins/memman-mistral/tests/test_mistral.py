"""The mistral counter: which models, which counts, and that nothing is downloaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from time import perf_counter

import memman_mistral
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memman_mistral import counter, tokenizers
from memman_mistral.counter import MistralCounter
from memman_mistral.models import ASSUMED, PUBLISHED, SENTENCEPIECE, TEKKEN, vocabulary_of
from mistral_common.tokens.tokenizers.mistral import MODEL_NAME_TO_TOKENIZER_CLS
from mistral_common.tokens.tokenizers.sentencepiece import SentencePieceTokenizer

from memman.counting.models import model_ref
from memman.errors import CounterUnavailable
from tests.examples import examples
from tests.patience import PATIENCE

# text, tokens in sentencepiece, tokens in tekken: from mistral-common 1.13.1, without begin and end
GOLDEN = [
    ("", 0, 0),
    ("hello world", 3, 2),
    ("<s>[INST]</s>", 9, 8),
    ("<|endoftext|>", 7, 7),
    ("a\x00b", 3, 3),
    ("\u4f60\u597d\u4e16\u754c", 5, 2),
    ("\ufffd alone", 3, 2),
    ("\ud83d alone", 3, 2),
]
TEXTS = st.text(st.characters(exclude_categories=())) | st.text("aB7 \n\t\u3000'!/\u4e2d\u00e9")
SENTENCEPIECE_FILES = (
    "tokenizer.model.v1",
    "mistral_instruct_tokenizer_240216.model.v2",
    "mistral_instruct_tokenizer_241114.model.v7",
    "mistral_instruct_tokenizer_241114.model.v7m1",
)


@pytest.fixture(scope="module")
def counters() -> dict[str, MistralCounter]:
    return {name: tokenizers.loaded(name) for name in (SENTENCEPIECE, TEKKEN)}


# ---------------------------------------------------------------- models


@pytest.mark.long
def test_vocabularies_agree_with_mistral_common() -> None:
    theirs = {
        model: make().instruct_tokenizer.tokenizer
        for model, make in MODEL_NAME_TO_TOKENIZER_CLS.items()
    }
    expected = {
        model: SENTENCEPIECE if isinstance(tokenizer, SentencePieceTokenizer) else TEKKEN
        for model, tokenizer in theirs.items()
    }
    ours = {model: vocabulary_of(model) for model in theirs}
    assert {model: known and known.vocabulary for model, known in ours.items()} == expected
    assert {known and known.certainty for known in ours.values()} == {PUBLISHED}


@pytest.mark.parametrize(
    ("vocabulary", "certainty", "models"),
    [
        (SENTENCEPIECE, PUBLISHED, "open-mistral-7b mistral-7b-instruct-v0.2 mixtral:8x7b"),
        (SENTENCEPIECE, PUBLISHED, "mistral.mistral-7b-instruct-v0:2 codestral@2405"),
        (SENTENCEPIECE, PUBLISHED, "us.mistral.pixtral-large-2502-v1:0 codestral-22b-v0.1"),
        (TEKKEN, PUBLISHED, "open-mistral-nemo mistralai/mistral-nemo ministral-8b-2410"),
        (TEKKEN, PUBLISHED, "ft:open-mistral-nemo:org:x Mistral-Nemo-Instruct-2407"),
        (
            TEKKEN,
            PUBLISHED,
            "mistral-large-latest mistral:mistral-large-latest ministral-3b-latest",
        ),
        (TEKKEN, PUBLISHED, "mistral.mistral-large-3-675b-instruct"),
        (
            TEKKEN,
            ASSUMED,
            "mistral-small-latest mistral-small-3.2-24b-instruct mistral-medium-2508",
        ),
        (TEKKEN, ASSUMED, "magistral-medium-latest devstral-small-2507 labs-devstral-small-2512"),
    ],
)
def test_a_model_has_its_vocabulary_in_any_spelling(
    vocabulary: str, certainty: int, models: str
) -> None:
    known = {model: vocabulary_of(model) for model in models.split()}
    assert known == dict.fromkeys(models.split(), (vocabulary, certainty))


@pytest.mark.parametrize(
    "models",
    [
        "gpt-4o claude-opus-5 llama-3 mistralite openmistral e5-mistral-7b-instruct x-mixtral",
        "mistral-embed codestral-embed codestral-2508 codestral-latest mistral-ocr-latest mistral",
        "mistral-moderation-latest mistral-largest mistral-smaller mixtral-9 / :",
    ],
)
def test_other_models_are_left_to_the_estimator(models: str) -> None:
    [spec] = memman_mistral.memman_token_counters()
    matches = {model: spec.match(model_ref(model)) for model in models.split()}
    assert set(matches.values()) == {0}, matches


def test_a_model_without_a_tokenizer_is_refused_with_the_way_out() -> None:
    [spec] = memman_mistral.memman_token_counters()
    with pytest.raises(CounterUnavailable, match="memman_resolve_model"):
        spec.factory(model_ref("codestral-2508"))


# ---------------------------------------------------------------- counts


@pytest.mark.parametrize(("text", "sentencepiece", "tekken"), GOLDEN)
def test_counts_are_the_recorded_ones(
    counters: dict[str, MistralCounter], text: str, sentencepiece: int, tekken: int
) -> None:
    assert counters[SENTENCEPIECE].count_texts([text]) == [sentencepiece]
    assert counters[TEKKEN].count_texts([text]) == [tekken]


@pytest.mark.parametrize(
    ("vocabulary", "file_name"),
    [(SENTENCEPIECE, name) for name in SENTENCEPIECE_FILES] + [(TEKKEN, "tekken_240911.json")],
)
def test_the_versions_of_a_vocabulary_count_text_the_same(
    counters: dict[str, MistralCounter], vocabulary: str, file_name: str
) -> None:
    other = tokenizers.counter_of(file_name, vocabulary)

    @settings(max_examples=examples(150))
    @given(st.lists(TEXTS))
    def law(texts: list[str]) -> None:
        assert other.count_texts(texts) == counters[vocabulary].count_texts(texts)

    law()


def test_a_text_cut_at_boundaries_counts_as_the_whole(
    counters: dict[str, MistralCounter], monkeypatch: pytest.MonkeyPatch
) -> None:
    tekken = counters[TEKKEN]

    @settings(max_examples=examples(300))
    @given(TEXTS, st.integers(1, 20))
    def law(text: str, size: int) -> None:
        [whole] = tekken.count_texts([text])
        with monkeypatch.context() as patch:
            patch.setattr(counter, "_CHUNK", size)
            assert "".join(counter._chunks(text)) == text
            assert tekken.count_texts([text]) == [whole]

    law()


@pytest.mark.parametrize("after", [pytest.param("", marks=pytest.mark.long), "x"])
def test_a_run_of_spaces_that_would_panic_is_counted_quickly(
    counters: dict[str, MistralCounter], after: str
) -> None:
    began = perf_counter()
    [tokens] = counters[TEKKEN].count_texts(["a" + " " * 1_200_000 + after])
    assert perf_counter() - began < PATIENCE
    assert abs(tokens - 1_200_000 / 64) < 5


def test_a_panic_becomes_an_error_that_can_be_caught() -> None:
    def panic(_text: str) -> list[int]:
        raise type("PanicException", (BaseException,), {})("stack overflow")

    with pytest.raises(CounterUnavailable, match="panicked at a text: stack overflow"):
        MistralCounter(TEKKEN, panic, whole=False).count_texts(["text"])


def test_an_interruption_is_not_swallowed() -> None:
    def interrupt(_text: str) -> list[int]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        MistralCounter(TEKKEN, interrupt, whole=True).count_texts(["text"])


@pytest.mark.parametrize("vocabulary", [SENTENCEPIECE, TEKKEN])
def test_a_text_that_is_no_string_is_a_type_error(
    counters: dict[str, MistralCounter], vocabulary: str
) -> None:
    with pytest.raises(TypeError, match="must be a string, not bytes"):
        counters[vocabulary].count_texts([b"text"])  # type: ignore[list-item]


# ---------------------------------------------------------------- loading


def test_the_fingerprint_names_the_vocabulary() -> None:
    [spec] = memman_mistral.memman_token_counters()
    assert spec.factory(model_ref("mistral-nemo")).fingerprint == "mistral:tekken"
    assert spec.factory(model_ref("mixtral-8x7b")).fingerprint == "mistral:sentencepiece"


def test_a_vocabulary_is_loaded_once() -> None:
    assert tokenizers.loaded(TEKKEN) is tokenizers.loaded(TEKKEN)


def test_a_release_without_the_file_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizers, "_loaded", {})
    monkeypatch.setitem(tokenizers._FILES, TEKKEN, "tekken_300101.json")
    with pytest.raises(CounterUnavailable, match=r"does not carry tekken_300101\.json"):
        tokenizers.loaded(TEKKEN)


def test_counting_in_a_fresh_process_touches_no_network(tmp_path: Path) -> None:
    program = (
        "import socket, sys, memman_mistral\n"
        "from memman.counting.models import model_ref\n"
        "def refuse(*a, **k): raise AssertionError('the network was touched')\n"
        "socket.socket.connect = socket.getaddrinfo = refuse\n"
        "[spec] = memman_mistral.memman_token_counters()\n"
        "assert spec.match(model_ref('mistral-nemo')) > 0\n"
        "assert not {'mistral_common', 'numpy', 'tiktoken'} & set(sys.modules)\n"
        "assert spec.factory(model_ref('mistral-nemo')).count_texts(['hello world']) == [2]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, cwd=tmp_path)
