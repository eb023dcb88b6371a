"""Images and files of the newest user message stay in the request, or it is refused."""

from __future__ import annotations

import base64

import pytest

from memman import BudgetExceeded, FilePart, ImagePart, MemoryConfig, MemoryManager, TextPart

PDF = b"%PDF-1.7\n" + b"<< /Type /Page >>\n" * 3
TERMS = FilePart(
    name="terms.pdf", data=base64.b64encode(PDF).decode(), media_type="application/pdf"
)
LONG = TextPart("The log says that nothing happened at all. " * 2_000)
SCREEN = ImagePart(url="https://e.example/a.png")


def manager(max_tokens: int = 8_000) -> MemoryManager:
    return MemoryManager(
        model="gpt-4o",
        config=MemoryConfig(max_tokens=max_tokens),
        counter="estimate",
        format="openai-chat",
    )


def kinds_in(memory: MemoryManager) -> list[str]:
    return [part["type"] for message in memory.build_context("s").messages
            for part in message["content"] or () if isinstance(part, dict)]  # fmt: skip


@pytest.mark.parametrize(
    "content", [[TERMS, TextPart("May I cancel?")], [TERMS], [LONG, TERMS, SCREEN]]
)
def test_file_of_newest_message_stays_in_a_long_turn(content):
    memory = manager()
    for number in range(20):
        memory.add_user_message("s", f"Question {number}: " + "what then? " * 60)
        memory.add_assistant_message("s", "That is so. " * 60)
    memory.add_user_message("s", content)
    for number in range(30):
        assert "file" in kinds_in(memory)
        assert int(memory.build_context("s").tokens) <= 8_000
        memory.add_tool_call("s", "look", {"at": number}, call_id=f"c{number}")
        memory.add_tool_result("s", "look", "It is there. " * 90, call_id=f"c{number}")
    assert "file" in kinds_in(memory)


def test_text_beside_a_file_is_cut_and_read_back():
    memory = manager()
    memory.add_user_message("s", [LONG, TERMS])
    [*_, message] = memory.build_context("s").messages
    words = message["content"][0]["text"]
    assert f"of {len(LONG.text)} characters here; the original is entry #2]" in words
    assert "took out" not in words
    memory.add_assistant_message("s", "You may.")
    memory.add_user_message("s", "Thanks. " * 1_500)
    memory.compress("s", target_tokens=4_000)
    assert "memman took out 1 file (terms.pdf) and cut" in str(memory.build_context("s").messages)


def test_file_above_the_budget_is_refused_and_not_cut():
    memory = manager(max_tokens=2_000)
    memory.add_user_message("s", [TERMS, TextPart("May I cancel?")])
    with pytest.raises(BudgetExceeded, match="#2 user message"):
        memory.build_context("s")
    memory.update_config("s", max_tokens=8_000)
    assert "file" in kinds_in(memory)


def test_file_above_the_window_is_refused_by_the_add():
    memory = MemoryManager(model="gpt-4o", counter="estimate", format="openai-chat")
    memory.add_user_message("s", "Hello")
    url = f"data:application/pdf;base64,{TERMS.data}"
    message = {"role": "user", "content": [{"type": "file", "file": {"file_data": url}}] * 40}
    with pytest.raises(BudgetExceeded, match="files of the message"):
        memory.add_messages("s", [message])
    with pytest.raises(BudgetExceeded, match="files of the message"):
        memory.add_user_message("s", [TERMS] * 40)
    assert [entry.text for entry in memory.get_entries("s")] == ["Hello"]
    memory.add_user_message("s", [TERMS] * 3)
