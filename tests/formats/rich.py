"""A conversation with everything in it that each format has a word for."""

from __future__ import annotations

from typing import Any

IMAGE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PNG = f"data:image/png;base64,{IMAGE}"
PDF = "data:application/pdf;base64,JVBERi0xLjQ="
SCHEMA = '{"city": "Ōsaka", "days": [1, 2], "units": {"temperature": "C"}}'
INPUT: dict[str, Any] = {"city": "Ōsaka", "days": [1, 2], "units": {"temperature": "C"}}


def call(call_id: str, name: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": SCHEMA}}


CHAT: list[Any] = [
    {"role": "system", "content": "You are terse."},
    {"role": "user", "name": "ada", "content": [
        {"type": "text", "text": "What is on it?"},
        {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": PDF}},
    ]},
    {"role": "assistant", "content": None, "tool_calls": [call("c1", "weather"), call("c2", "clock")]},
    {"role": "tool", "tool_call_id": "c1", "content": "12 °C"},
    {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "noon"}]},
    {"role": "assistant", "content": "Cold.", "refusal": None, "annotations": []},
    {"role": "user", "content": "And then?"},
    {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}], "reasoning_content": "why"},
    {"role": "developer", "content": "Be kind."},
    {"role": "user", "content": "Well?"},
]  # fmt: skip

RESPONSES: list[Any] = [
    {"role": "developer", "content": "You are terse."},
    {"role": "user", "content": [
        {"type": "input_text", "text": "What is on it?"},
        {"type": "input_image", "image_url": PNG, "detail": "low"},
        {"type": "input_file", "filename": "a.pdf", "file_data": PDF},
    ]},
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "weather", "arguments": SCHEMA},
    {"type": "custom_tool_call", "id": "ct_1", "call_id": "c2", "name": "shell", "input": "date"},
    {"type": "function_call_output", "call_id": "c1", "output": "12 °C"},
    {"type": "custom_tool_call_output", "call_id": "c2", "output": [
        {"type": "input_text", "text": "noon"},
    ]},
    {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [
        {"type": "output_text", "text": "Cold.", "annotations": [], "logprobs": []},
    ]},
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}},
    {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
    {"role": "user", "content": "Well?"},
]  # fmt: skip

ANTHROPIC: list[Any] = [
    {"role": "user", "content": [
        {"type": "text", "text": "What is on it?", "cache_control": {"type": "ephemeral"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": IMAGE}},
        {"type": "document", "title": "t", "source": {
            "type": "text", "media_type": "text/plain", "data": "x",
        }},
    ]},
    {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "hm", "signature": "EuwD"},
        {"type": "redacted_thinking", "data": "EmwK"},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": INPUT},
        {"type": "tool_use", "id": "toolu_2", "name": "clock", "input": {}},
    ]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": [
            {"type": "text", "text": "12 °C"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": IMAGE}},
        ]},
        {"type": "tool_result", "tool_use_id": "toolu_2", "content": "broken", "is_error": True},
        {"type": "text", "text": "Hurry."},
    ]},
    {"role": "assistant", "content": [
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
        {"type": "text", "text": "Cold.", "citations": None},
    ]},
    {"role": "user", "content": "Well?"},
]  # fmt: skip

GEMINI: list[Any] = [
    {"role": "user", "parts": [
        {"text": "What is on it?"},
        {"inlineData": {"mimeType": "image/png", "data": IMAGE}},
        {"fileData": {"mimeType": "video/mp4", "fileUri": "gs://b/a.mp4"}, "videoMetadata": {"fps": 1}},
    ]},
    {"role": "model", "parts": [
        {"text": "hm", "thought": True},
        {"text": "I look.", "thoughtSignature": "RXV3"},
        {"functionCall": {"id": "f1", "name": "weather", "args": INPUT}, "thoughtSignature": "RXV3"},
        {"functionCall": {"name": "clock", "args": {}}},
    ]},
    {"role": "user", "parts": [
        {"functionResponse": {"id": "f1", "name": "weather", "response": {"output": "12 °C"}}},
        {"functionResponse": {"name": "clock", "response": {"error": "broken", "code": 3}}},
    ]},
    {"role": "model", "parts": [
        {"executableCode": {"language": "PYTHON", "code": "1"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
        {"text": "Cold."},
    ]},
    {"role": "user", "parts": [{"text": "Well?"}]},
]  # fmt: skip

BEDROCK: list[Any] = [
    {"role": "user", "content": [
        {"text": "What is on it?"},
        {"image": {"format": "png", "source": {"bytes": IMAGE}}},
        {"document": {"format": "pdf", "name": "a", "source": {"bytes": "JVBERi0xLjcK"}}},
        {"cachePoint": {"type": "default"}},
    ]},
    {"role": "assistant", "content": [
        {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "EuwD"}}},
        {"text": "I look."},
        {"toolUse": {"toolUseId": "t1", "name": "weather", "input": INPUT}},
        {"toolUse": {"toolUseId": "t2", "name": "clock", "input": {}}},
    ]},
    {"role": "user", "content": [
        {"toolResult": {"toolUseId": "t1", "content": [{"json": INPUT}], "status": "success"}},
        {"toolResult": {"toolUseId": "t2", "content": [{"text": "broken"}], "status": "error"}},
        {"text": "Hurry."},
    ]},
    {"role": "assistant", "content": [{"text": "Cold."}]},
    {"role": "user", "content": [{"text": "Well?"}]},
]  # fmt: skip

MISTRAL: list[Any] = [
    {"role": "system", "content": "You are terse."},
    {"role": "user", "content": [
        {"type": "text", "text": "What is on it?"},
        {"type": "image_url", "image_url": PNG},
        {"type": "document_url", "document_url": "https://example.org/a.pdf", "document_name": "a"},
    ]},
    {"role": "assistant", "content": [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "I look."},
    ], "tool_calls": [call("abcdefgh1", "weather"), call("abcdefgh2", "clock")]},
    {"role": "tool", "tool_call_id": "abcdefgh1", "name": "weather", "content": "12 °C"},
    {"role": "tool", "tool_call_id": "abcdefgh2", "name": "clock", "content": [
        {"type": "text", "text": "noon"},
    ]},
    {"role": "assistant", "content": "Cold.", "prefix": False},
    {"role": "user", "content": "Well?"},
]  # fmt: skip

LANGCHAIN: list[Any] = [
    {"type": "system", "data": {"content": "You are terse."}},
    {"type": "human", "data": {"content": [
        {"type": "text", "text": "What is on it?"},
        {"type": "image", "base64": IMAGE, "mime_type": "image/png"},
    ], "name": "ada", "additional_kwargs": {}}},
    {"type": "ai", "data": {
        "content": [{"type": "text", "text": "I look."}],
        "tool_calls": [
            {"name": "weather", "args": INPUT, "id": "c1", "type": "tool_call"},
            {"name": "clock", "args": {}, "id": "c2", "type": "tool_call"},
        ],
        "invalid_tool_calls": [],
        "usage_metadata": {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5},
    }},
    {"type": "tool", "data": {
        "content": "12 °C", "tool_call_id": "c1", "name": "weather", "artifact": None,
    }},
    {"type": "tool", "data": {"content": "broken", "tool_call_id": "c2", "status": "error"}},
    {"type": "ai", "data": {"content": "Cold.", "response_metadata": {"model_name": "m"}}},
    {"type": "human", "data": {"content": "Well?"}},
]  # fmt: skip

CONVERSATIONS = {
    "openai-chat": CHAT,
    "openai-responses": RESPONSES,
    "anthropic": ANTHROPIC,
    "gemini": GEMINI,
    "bedrock": BEDROCK,
    "mistral": MISTRAL,
    "langchain": LANGCHAIN,
}
