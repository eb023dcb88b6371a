"""The format of Agent Framework's messages: loss-free, valid by construction, read by the framework."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from agent_framework import Content, Message
from memman_agent_framework import AgentFrameworkFormat
from memman_agent_framework.run import dumped_message

from memman import MemoryManager
from memman.protocols import Format
from memman.testing import FormatConformance

PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
PDF = base64.b64encode(b"%PDF-1.7").decode()
IMAGE = Content.from_uri(f"data:image/png;base64,{PIXEL}", media_type="image/png")


def dumped(*messages: Message) -> list[Any]:
    return [dumped_message(message) for message in messages]


def call(
    call_id: str, name: str = "read", arguments: Any = '{"path": "a"}', id: str | None = None
) -> Content:
    made = Content.from_function_call(call_id, name, arguments=arguments)
    made.id = id
    return made


def result(call_id: str, value: Any = "1", id: str | None = None, **more: Any) -> Content:
    made = Content.from_function_result(call_id, result=value, **more)
    made.id = id
    return made


CONVERSATION = dumped(
    Message("system", ["You build."]),
    Message("user", ["Why?"], author_name="Ada", message_id="m1", additional_properties={"a": 1}),
    Message(
        "assistant",
        [
            Content.from_text_reasoning(text="hm", protected_data="c2ln", id="r1"),
            Content.from_text("I look.", annotations=[{"type": "citation", "title": "x"}]),
            call("c1", id="af-call-1"),
            call("c2", arguments={"path": "b"}),
            Content.from_text("One more."),
            call("c3", "now", ""),
        ],
        author_name="builder",
    ),
    Message(
        "tool",
        [
            result("c1", '{"lines": [1, null]}', id="af-call-1"),
            result("c2", "no such file", exception="FileNotFoundError"),
            result("c3", [Content.from_text("Look"), IMAGE]),
        ],
    ),
    Message(
        "user",
        [
            "Look",
            IMAGE,
            Content.from_uri("https://example.com/a.png", media_type="image/png"),
            Content.from_uri("https://example.com/a.pdf", media_type="application/pdf"),
            Content.from_hosted_file("file-1"),
            Content.from_uri(f"data:application/pdf;base64,{PDF}", media_type="application/pdf"),
        ],
    ),
    Message("assistant", ["Done."]),
    Message("user", ["Thanks."]),
)
SAMPLES = [
    CONVERSATION,
    dumped(  # an approval, a result in several messages, what only providers read
        Message("user", ["Delete it."]),
        Message(
            "assistant",
            [
                call("c1", "delete"),
                Content.from_function_approval_request("q1", call("c1", "delete")),
            ],
        ),
        Message("tool", [result("c1", "")]),
        Message(
            "user", [Content.from_function_approval_response(True, "q1", call("c1", "delete"))]
        ),
        Message(
            "assistant",
            [
                Content.from_text_reasoning(protected_data="c2ln"),
                Content.from_mcp_server_tool_call(
                    "n1", "search", server_name="s", arguments={"q": "x"}
                ),
                Content.from_mcp_server_tool_result("n1", output=[Content.from_text("y")]),
                Content.from_error(message="partly"),
                IMAGE,
            ],
        ),
        Message("user", ["and now?"]),
    ),
    dumped(  # contents of the future, arguments that are no JSON, blank texts
        Message("user", [Content("hologram", text="?")]),  # type: ignore[arg-type]
        Message("assistant", [call("c1", "f", "{oops")]),
        Message("tool", [result("c1", 5)]),
        Message("tool", [Content.from_text("and this")]),
        Message("user", [" "]),
    ),
]


class TestAgentFrameworkFormat(FormatConformance):
    samples = SAMPLES

    def make_format(self) -> Format:
        return AgentFrameworkFormat()


@pytest.mark.parametrize("sample", SAMPLES)
def test_framework_reads_what_is_restored(sample: list[Any]) -> None:
    with MemoryManager() as memory:
        memory.add_messages("s", sample, "agent-framework")
        restored = memory.get_messages("s", format="agent-framework")
        messages = [Message.from_dict(message) for message in restored]
    assert dumped(*messages) == sample
