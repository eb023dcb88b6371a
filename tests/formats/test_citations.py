"""The sources of a text are read wherever its words are, and sent to their provider unchanged."""

from __future__ import annotations

from typing import Any

import pytest

from memman import MemoryConfig, MemoryManager

URL = "https://acme.example/report"
CITED: dict[str, dict[str, Any]] = {
    "openai-chat": {
        "role": "assistant",
        "content": "Revenue rose.",
        "annotations": [
            {
                "type": "url_citation",
                "url_citation": {
                    "start_index": 0,
                    "end_index": 3,
                    "url": URL,
                    "title": "Acme yearbook",
                },
            }
        ],
    },
    "anthropic": {
        "role": "assistant",
        "content": [
            {
                "type": "text",
                "text": "Revenue rose.",
                "citations": [
                    {
                        "type": "web_search_result_location",
                        "url": URL,
                        "title": "Acme yearbook",
                        "encrypted_index": "Eo8BCioI",
                        "cited_text": "Revenue rose to 12 million",
                    }
                ],
            },
            {"type": "text", "text": " So did costs."},
        ],
    },
    "openai-responses": {
        "type": "message",
        "role": "assistant",
        "id": "msg_1",
        "status": "completed",
        "content": [
            {
                "type": "output_text",
                "text": "Revenue rose.",
                "annotations": [
                    {
                        "type": "url_citation",
                        "start_index": 0,
                        "end_index": 3,
                        "url": URL,
                        "title": "Acme yearbook",
                    }
                ],
            }
        ],
    },
}


@pytest.mark.parametrize("form", CITED)
def test_sources_are_found_and_sent_to_other_providers(form):
    memory = MemoryManager(format=form)
    memory.add_user_message("s", "How is Acme?")
    memory.add_messages("s", [CITED[form]], form)
    assert [hit.entry.role for hit in memory.search("s", "yearbook")] == ["assistant"]
    request = memory.build_context("s", format="gemini")
    assert f"Revenue rose.[Acme yearbook, {URL}]" in str(request.messages)


@pytest.mark.parametrize("form", CITED)
def test_cited_text_returns_to_its_provider_unchanged(form):
    memory = MemoryManager(format=form)
    memory.add_user_message("s", "How is Acme?")
    memory.add_messages("s", [CITED[form]], form)
    assert memory.get_messages("s", format=form)[1] == CITED[form]
    assert memory.build_context("s", format=form).messages[1]["content"] == CITED[form]["content"]


@pytest.mark.parametrize("form", CITED)
def test_sources_are_in_what_a_summarizer_reads(form):
    prompts: list[str] = []

    def summarize(prompt: str) -> str:
        prompts.append(prompt)
        return "## Goal\nAcme's revenue. Sources were read.\n" * 3

    memory = MemoryManager(format=form, summarizer=summarize, config=MemoryConfig(max_tokens=4_000))
    memory.add_user_message("s", "How is Acme? " * 20)
    memory.add_messages("s", [CITED[form]], form)
    for number in range(12):
        memory.add_user_message("s", f"Question {number}: " + "and the next year? " * 10)
        memory.add_assistant_message("s", "Not known yet. " * 10)
    memory.compress("s")
    assert URL in "".join(prompts)


@pytest.mark.parametrize("form", CITED)
def test_outline_keeps_a_statement_and_its_sources_together(form):
    memory = MemoryManager(format=form, config=MemoryConfig(max_tokens=4_000))
    memory.add_user_message("s", "How is Acme?")
    memory.add_messages("s", [CITED[form]], form)
    for number in range(12):
        memory.add_user_message("s", f"Question {number}: " + "and the next year? " * 10)
        memory.add_assistant_message("s", "Not known yet. " * 10)
    memory.compress("s")
    assert f"Revenue rose.[Acme yearbook, {URL}]" in str(memory.build_context("s").messages[0])
