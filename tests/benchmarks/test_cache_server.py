"""The model of a prompt cache, in process and behind the SDKs of Anthropic and OpenAI."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import cache_server
from benchmarks.cache_server import (
    ANTHROPIC,
    GEMINI,
    HOUR,
    OPENAI,
    Charge,
    Piece,
    PromptCache,
    pieces_of,
    rules_of,
    serving,
)
from benchmarks.tokens import chars4
from tests.conftest import SHARED

MARK = {"cache_control": {"type": "ephemeral"}}
FIVE = ANTHROPIC.lifetime
LONG = "The gate of the harbour opens at six. " * 140


def _blocks(count: int, *marked: int, seconds: float = FIVE, tokens: int = 600) -> list[Piece]:
    return [Piece(at, tokens, seconds if at in marked else None) for at in range(count)]


def test_marked_prefix_is_written_then_read() -> None:
    cache = PromptCache()
    assert cache.charge(_blocks(3, 1), 0) == Charge(input=600, written=1_200)
    assert cache.charge(_blocks(4, 1, 3), 10) == Charge(read=1_200, written=1_200)


def test_request_without_marks_is_paid_in_full() -> None:
    cache = PromptCache()
    cache.charge(_blocks(3, 2), 0)
    assert cache.charge(_blocks(3), 1) == Charge(input=1_800)


def test_prefix_below_the_least_length_is_not_cached() -> None:
    cache = PromptCache(rules_of("claude-opus-4-5-20251101"))
    assert cache.charge(_blocks(6, 5), 0) == Charge(input=3_600)
    assert cache.charge(_blocks(7, 6), 0) == Charge(written=4_200)


@pytest.mark.parametrize(("added", "read"), [(19, 1_200), (20, 0)])
def test_mark_looks_back_over_20_blocks(added: int, read: int) -> None:
    cache = PromptCache()
    cache.charge(_blocks(2, 1), 0)
    assert cache.charge(_blocks(2 + added, 1 + added), 1).read == read


def test_entry_lives_five_minutes_after_its_last_read() -> None:
    cache = PromptCache()
    cache.charge(_blocks(3, 2), 0)
    assert cache.charge(_blocks(3, 2), 299).read == 1_800
    assert cache.charge(_blocks(3, 2), 598).read == 1_800
    assert cache.charge(_blocks(3, 2), 898).read == 0


def test_entry_with_ttl_lives_an_hour() -> None:
    cache = PromptCache()
    assert cache.charge(_blocks(3, 2, seconds=HOUR), 0) == Charge(written_1h=1_800)
    assert cache.charge(_blocks(3, 2, seconds=HOUR), 3_599).read == 1_800


def test_marked_head_is_read_after_the_rest_changed() -> None:
    cache = PromptCache()
    head, rest = _blocks(2, 1), [Piece(9, 5_000, FIVE)]
    cache.charge([*head, *rest], 0)
    charge = cache.charge([*head, Piece(10, 700, FIVE)], 5)
    assert charge == Charge(read=1_200, written=700)


def test_automatic_cache_reads_whole_steps() -> None:
    cache = PromptCache(OPENAI)
    assert cache.charge(_blocks(2), 0) == Charge(input=1_200)
    assert cache.charge(_blocks(3), 1) == Charge(input=648, read=1_152)
    assert cache.charge(_blocks(3), 602) == Charge(input=1_800)


def test_automatic_cache_ignores_short_prefixes() -> None:
    cache = PromptCache(GEMINI)
    cache.charge(_blocks(6), 0)
    assert cache.charge(_blocks(6), 1).read == 0


def test_pieces_are_the_same_with_and_without_marks() -> None:
    plain = {"system": "Be brief.", "messages": [{"role": "user", "content": "Hello"}]}
    text = {"type": "text", "text": "Hello"}
    marked = {
        "system": [{"type": "text", "text": "Be brief.", **MARK}],
        "messages": [{"role": "user", "content": [{**text, "cache_control": {"ttl": "1h"}}]}],
    }
    found, bare = pieces_of(marked, chars4), pieces_of(plain, chars4)
    assert [piece.mark for piece in found] == [FIVE, HOUR]
    assert [piece._replace(mark=None) for piece in found] == bare
    whole = {"messages": [{"role": "user", "content": "Hello", **MARK}]}
    assert pieces_of(whole, chars4) == [bare[1]._replace(mark=FIVE)]


def test_cache_point_marks_the_block_before_it() -> None:
    blocks = [{"text": "Hello"}, {"cachePoint": {"type": "default"}}]
    [piece] = pieces_of({"messages": [{"role": "user", "content": blocks}]}, chars4)
    assert piece.mark == FIVE


def test_pieces_count_calls_and_results_of_each_format() -> None:
    function = {"name": "read", "arguments": '{"path":"a.py"}'}
    chat = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": function}]}
    use = {"type": "tool_use", "id": "c", "name": "read", "input": {"path": "a.py"}}
    blocks = {"role": "assistant", "content": [use]}
    gemini = {
        "role": "model",
        "parts": [{"functionCall": {"name": "read", "args": {"path": "a.py"}}}],
    }
    sizes = [
        [piece.tokens for piece in pieces_of(request, chars4)]
        for request in ({"messages": [chat]}, {"messages": [blocks]}, {"contents": [gemini]})
    ]
    assert sizes == [[9], [9], [9]]
    item = {"type": "function_call", "call_id": "c", **function}
    assert [piece.tokens for piece in pieces_of({"input": [item]}, chars4)] == [9]


def test_anthropic_sdk_gets_reads_and_writes() -> None:
    anthropic = pytest.importorskip("anthropic")
    now = 0.0
    system = [{"type": "text", "text": LONG, **MARK}]

    def ask(client: Any, text: str) -> Any:
        messages = [{"role": "user", "content": text}]
        return client.messages.create(
            model="claude-sonnet-5-5", max_tokens=9, system=system, messages=messages
        ).usage

    with serving(clock=lambda: now) as server:
        client = anthropic.Anthropic(api_key="none", base_url=server.url, max_retries=0)
        first, second = ask(client, "Hello"), ask(client, "Goodbye")
        now = 301.0
        third = ask(client, "Hello")
        client.close()
    size = first.cache_creation_input_tokens
    assert size > 1_024
    assert (first.cache_read_input_tokens, first.cache_creation.ephemeral_5m_input_tokens) == (
        0,
        size,
    )
    assert (second.cache_read_input_tokens, second.cache_creation_input_tokens) == (size, 0)
    assert (third.cache_read_input_tokens, third.cache_creation_input_tokens) == (0, size)
    assert server.charges[1] == Charge(input=second.input_tokens, read=size)


def test_server_refuses_a_fifth_mark() -> None:
    anthropic = pytest.importorskip("anthropic")
    content = [{"type": "text", "text": str(at), **MARK} for at in range(5)]
    with serving() as server:
        client = anthropic.Anthropic(api_key="none", base_url=server.url, max_retries=0)
        with pytest.raises(anthropic.BadRequestError, match="maximum of 4 blocks"):
            client.messages.create(
                model="claude-sonnet-5-5",
                max_tokens=9,
                messages=[{"role": "user", "content": content}],
            )
        client.close()


def test_openai_sdk_gets_cached_tokens() -> None:
    openai = pytest.importorskip("openai")
    with serving() as server:
        client = openai.OpenAI(api_key="none", base_url=server.url, max_retries=0)
        messages: list[Any] = [{"role": "system", "content": LONG}]
        usages = []
        for text in ("Hello", "Goodbye"):
            messages.append({"role": "user", "content": text})
            reply = client.chat.completions.create(model="gpt-5", messages=messages)
            usages.append(reply.usage.prompt_tokens_details.cached_tokens)
        with pytest.raises(openai.NotFoundError):
            client.responses.create(model="gpt-5", input="Hello")
        client.close()
    assert usages[0] == 0
    assert usages[1] >= 1_024
    assert usages[1] % 128 == 0


def test_command_without_records_returns_2(tmp_path: Any) -> None:
    assert cache_server.main(["--folder", str(tmp_path)]) == 2


@pytest.mark.shared
def test_predicted_reads_are_near_reported_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert cache_server.main(["--folder", str(SHARED)]) == 0
    assert "Anthropic" in capsys.readouterr().out
