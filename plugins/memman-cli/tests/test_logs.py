"""A log is recognised by its content; an error names the place of the fault."""

from __future__ import annotations

import json

import pytest
from memman_cli.commands.demo import bundled_log
from memman_cli.errors import UnreadableError
from memman_cli.files import File
from memman_cli.logs import log_in

USER = {"role": "user", "content": "hello"}
REPLY = {"role": "assistant", "content": "hi"}
BLOCKS = {
    "role": "assistant",
    "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}],
}


def read(value, wanted="auto"):
    data = value if isinstance(value, bytes) else value.encode()
    return log_in(File("a.json", data=data), wanted)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([USER, REPLY]),
        json.dumps([USER, REPLY], indent=2),
        json.dumps({"model": "m", "messages": [USER, REPLY]}),
        f"{json.dumps(USER)}\n{json.dumps(REPLY)}\n",
        f"\n{json.dumps(USER)}\r\n\r\n{json.dumps(REPLY)}",
        "\ufeff" + json.dumps([USER, REPLY]),
    ],
)
def test_json_shapes_are_read_alike(text):
    log = read(text)
    assert (log.messages, log.format) == ([USER, REPLY], "openai-chat")
    assert len(log) == len(log.new_entries) == 2


def test_single_message_is_a_log():
    assert read(json.dumps(USER)).messages == [USER]


def test_pretty_printed_object_is_a_document():
    assert len(read(json.dumps({"messages": [USER]}, indent=1))) == 1


def test_anthropic_request_has_its_system_prompt():
    log = read(json.dumps({"system": "Be brief.", "messages": [USER, BLOCKS]}))
    assert (log.format, log.system) == ("anthropic", "Be brief.")
    assert len(log) == 3


def test_system_prompt_blocks_are_joined():
    system = [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]
    assert read(json.dumps({"system": system, "messages": [USER]})).system == "One.\nTwo."


def test_text_is_read_as_text():
    log = read("User: hello\nAssistant: hi\n")
    assert log.format == "text"
    assert [(new_entry.role, new_entry.content) for new_entry in log.new_entries] == [
        ("user", "hello"),
        ("assistant", "hi"),
    ]


def test_format_option_overrides_detection():
    assert read(json.dumps([USER]), "anthropic").format == "anthropic"


def test_bundled_log_is_openai_chat():
    log = bundled_log()
    assert (log.format, len(log)) == ("openai-chat", 233)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"role": "user", "content": "he', r"truncated \(line 1, column 30\)"),
        ('[{"role": "user"', r"truncated \(line 1, column"),
        ('[\n{"role": user}]', r"line 2, column 10"),
        ('{"role": "user", "content": "a"}\n{"role": "us', r"line 2 of a.json is not JSON"),
        (json.dumps([{"role": "user", "content": "\ud800"}]), r"\$\[0\].content holds a lone surr"),
        (f"{json.dumps(USER)}\n" + '{"role": "user", "x": NaN}', r"line 2 .*\$.x is nan"),
        ("[" * 100_000 + "]" * 100_000, "nested too deeply"),
        ("", "a.json is empty"),
        (json.dumps([USER, {"from": "x"}, USER]), "message 1 is in an unknown format"),
        (
            f"{json.dumps(USER)}\n{json.dumps({'role': 'nobody'})}",
            "line 2: role 'nobody' is not one",
        ),
        (
            json.dumps([{"role": "user", "blocks": []}]),
            "message 0: 'blocks' makes it a message of Llama",
        ),
        (json.dumps([USER, {"role": "user", "content": 7}]), "message 1"),
        ("Dear all,\nplease find", "such as `User: ...` and `Assistant: ...`"),
        ("[]", "no messages"),
        ('{"messages": []}', "no messages"),
        (
            '{"conversation": [], "id": 1}',
            r"without a list of `messages` \(it has conversation, id\)",
        ),
        ("{}", "it has nothing"),
        ("[1, 2]", "must be a dict"),
        ('[{"by": "human", "said": "x"}]', "unknown format"),
        ("Dear all,\nplease find", "unknown format"),
        ('{"messages": [1]}\n{"messages": [2]}', "2 conversations"),
        ('{"format": "memman-session", "log": []}', "memman show"),
        (
            '{"system": 3, "messages": [{"role": "user", "content": "x"}]}',
            "neither text nor blocks",
        ),
        (b"\xff\xfe\x00", "begins as UTF-16 text, but is not valid from byte 2"),
        (b"\x00\xff", "binary, not text .a null byte in line 1, byte 0"),
        (b'[{"role": "user",\n"content": "\xe9"}]', "not UTF-8 text .line 2, byte 30"),
        (b'{"role": "user"}\n{"role": "\xe9"}\n', "line 2 of a.json is not UTF-8 text .byte 10"),
        ("[" * 5000, "not JSON"),
    ],
)
def test_unreadable_log_error_has_the_reason(text, message):
    with pytest.raises(UnreadableError, match=message):
        _ = read(text).new_entries
