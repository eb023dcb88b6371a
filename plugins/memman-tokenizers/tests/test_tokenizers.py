"""The tokenizers counter: a file for a model, and what its tokenizer makes of a text."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import memman_tokenizers
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memman_tokenizers import TokenizerCounter
from memman_tokenizers.settings import VARIABLE, file_for
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from memman import MemoryManager
from memman.counting.builtin import builtin_specs
from memman.counting.models import model_ref
from memman.counting.resolution import resolve
from memman.errors import CounterUnavailable
from memman.protocols import CounterSpec, LocalCounter
from memman.testing import CounterConformance
from tests.examples import examples

CORPUS = Path(__file__).with_name("corpus.txt")
SPECIAL = ("<|endoftext|>", "<s>", "</s>")


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A byte-level BPE with special tokens, a template that adds them, truncation and padding."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS.read_text(encoding="utf-8").splitlines(), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(length=8)
    path = tmp_path_factory.mktemp("trained") / "tokenizer.json"
    tokenizer.save(str(path))
    return path


[SPEC] = memman_tokenizers.memman_token_counters()


class TestLaws(CounterConformance):
    spec: CounterSpec = SPEC
    models = ("qwen3-32b", "Qwen/Qwen3-8B", "openrouter/qwen/qwen3-coder")
    foreign = ("gpt-4o", "claude-sonnet-4-5", "llama-3")
    module = "memman_tokenizers"
    sdk = "tokenizers"

    @pytest.fixture(autouse=True)
    def _named(self, trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(VARIABLE, f"qwen3={trained}")
        self.path = trained

    def make_counter(self) -> LocalCounter:
        return TokenizerCounter(self.path)


# ---------------------------------------------------------------- counts


def test_a_text_has_the_tokens_that_the_library_gives_it(trained: Path) -> None:
    plain = Tokenizer.from_file(str(trained))
    plain.no_truncation()
    plain.no_padding()
    plain.encode_special_tokens = True  # a special token's spelling in a text is ordinary text
    counter = TokenizerCounter(trained)

    @settings(max_examples=examples(200))
    @given(st.text() | st.sampled_from(["<s>", "a</s>b", "<|endoftext|> ship"]))
    def law(text: str) -> None:
        expected = len(plain.encode(text, add_special_tokens=False).ids)
        assert counter.count_texts([text]) == [expected]

    law()


def test_truncation_padding_and_template_do_not_count(trained: Path) -> None:
    counter = TokenizerCounter(trained)
    assert counter.count_texts(["", "ship", "ship " * 50]) == [0, 1, 51]
    assert len(Tokenizer.from_file(str(trained)).encode("ship " * 50)) == 8


@pytest.mark.parametrize("special", ["<|endoftext|>", "<s>", "</s>"])
def test_a_special_token_in_a_text_is_ordinary_text(trained: Path, special: str) -> None:
    assert len(Tokenizer.from_file(str(trained)).encode(special, add_special_tokens=False)) == 8
    [tokens] = TokenizerCounter(trained).count_texts([special])
    bare = Tokenizer.from_file(str(trained))
    bare.no_padding()
    assert len(bare.encode(special, add_special_tokens=False)) == 1
    assert tokens > 1


def test_a_lone_surrogate_counts_as_the_replacement_character(trained: Path) -> None:
    counter = TokenizerCounter(trained)
    assert counter.count_texts(["\ud83d ship"]) == counter.count_texts(["\ufffd ship"])
    assert counter.count_texts(["\ud83d\udc4d"]) == counter.count_texts(["\U0001f44d"])


def test_a_text_that_is_no_string_is_a_type_error(trained: Path) -> None:
    with pytest.raises(TypeError, match="must be a string, not int"):
        TokenizerCounter(trained).count_texts([5])  # type: ignore[list-item]


def test_failing_text_error_names_the_tokenizer(tmp_path: Path) -> None:
    path = tmp_path / "strict.json"
    # It has no token for unknown words, so the library refuses them.
    words = Tokenizer(models.WordLevel({"ship": 0}, unk_token="?"))  # noqa: S106 - no password
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.save(str(path))
    counter = TokenizerCounter(path)
    assert counter.count_texts(["ship ship"]) == [2]
    with pytest.raises(CounterUnavailable, match=r"tokenizers:.* failed at a text: "):
        counter.count_texts(["ship harbour"])


def test_the_fingerprint_is_of_the_contents(trained: Path, tmp_path: Path) -> None:
    copy, other = tmp_path / "copy.json", tmp_path / "other.json"
    copy.write_bytes(trained.read_bytes())
    other.write_bytes(trained.read_bytes() + b"\n")
    first = TokenizerCounter(trained).fingerprint
    assert first == TokenizerCounter(str(copy)).fingerprint
    assert first != TokenizerCounter(other).fingerprint
    assert first.startswith("tokenizers:")


# ---------------------------------------------------------------- files that are none


@pytest.mark.parametrize("contents", [b"", b"{}", b"\xff\xfe", b'{"model":{"type":"BPE"}}', b"[1]"])
def test_a_file_that_is_no_tokenizer_is_named(tmp_path: Path, contents: bytes) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(contents)
    with pytest.raises(CounterUnavailable) as caught:
        TokenizerCounter(path)
    assert str(path) in caught.value.reason
    assert "tokenizer.json" in caught.value.reason


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(CounterUnavailable, match=r"none\.json could not be read \(No such file"):
        TokenizerCounter(tmp_path / "none.json")
    with pytest.raises(CounterUnavailable, match=r"could not be read \(Is a directory"):
        TokenizerCounter(tmp_path)


# ---------------------------------------------------------------- the setting


def test_the_longest_pattern_that_fits_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = "qwen=/q.json, Qwen3 = /q3.json ,llama-?-*-instruct=/l.json,qwen3-coder=~/c=1.json,"
    monkeypatch.setenv(VARIABLE, setting)
    assert file_for("qwen2.5-7b") == Path("/q.json")
    assert file_for("qwen3-32b") == Path("/q3.json")
    assert file_for("qwen3-coder-plus") == Path("~/c=1.json").expanduser()
    assert file_for("llama-3-8b-instruct") == Path("/l.json")
    assert file_for("llama-3-8b") is None
    assert file_for("my-qwen3") is None


@pytest.mark.parametrize("setting", ["", " , ", "other=/x.json"])
def test_a_model_that_nobody_names_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    monkeypatch.setenv(VARIABLE, setting)
    assert SPEC.match(model_ref("qwen3")) == 0
    with pytest.raises(CounterUnavailable, match=r"MEMMAN_TOKENIZERS names no file .*'qwen3'"):
        SPEC.factory(model_ref("qwen3"))


@pytest.mark.parametrize("setting", ["/x/tokenizer.json", "qwen=", "=/x.json", "a=/b.json,qwen3"])
def test_a_setting_that_cannot_be_read_is_told_where_people_look(
    monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    monkeypatch.setenv(VARIABLE, setting)
    found = resolve(model_ref("qwen3"), [SPEC, *builtin_specs()])
    assert found.spec.accuracy == "low"
    assert "pattern=path" in found.candidates[0].reason


def test_a_manager_counts_a_named_model_with_its_file(
    monkeypatch: pytest.MonkeyPatch, trained: Path
) -> None:
    monkeypatch.setenv(VARIABLE, f"qwen3={trained}")
    count = MemoryManager(model="qwen/qwen3-32b").count_tokens("the ship")
    assert count.counter == TokenizerCounter(trained).fingerprint
    assert [count.tokens] == TokenizerCounter(trained).count_texts(["the ship"])
    assert (count.method, count.accuracy) == ("client", "high")


def test_counting_in_a_fresh_process_touches_no_network(trained: Path) -> None:
    program = (
        "import os, socket, sys, memman_tokenizers\n"
        "from memman.counting.models import model_ref\n"
        "def refuse(*a, **k): raise AssertionError('the network was touched')\n"
        "socket.socket.connect = socket.getaddrinfo = refuse\n"
        f"os.environ[{VARIABLE!r}] = 'qwen3=' + {str(trained)!r}\n"
        "[spec] = memman_tokenizers.memman_token_counters()\n"
        "assert spec.match(model_ref('qwen3')) > 0\n"
        "assert 'tokenizers' not in sys.modules\n"
        "assert spec.factory(model_ref('qwen3')).count_texts(['ship']) == [1]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
