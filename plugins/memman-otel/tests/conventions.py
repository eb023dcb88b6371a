"""The names of the GenAI semantic conventions that memman-otel uses, with their types and values.

From https://github.com/open-telemetry/semantic-conventions-genai, which has no release yet.
"""

from __future__ import annotations

from typing import NamedTuple


class Revision(NamedTuple):
    schema_url: str
    commit: str
    read_on: str


REVISION = Revision(
    "https://opentelemetry.io/schemas/gen-ai-dev/1.42.0-dev",
    "ac48b1f9df15fdf281b96cccf15eb707e1fc1868",
    "2026-11-23",
)
ATTRIBUTES = {
    "gen_ai.conversation.compacted": "boolean",  # set to true or not at all
    "gen_ai.conversation.id": "string",
    "gen_ai.input.messages": "any",
    "gen_ai.memory.record.count": "int",
    "gen_ai.operation.name": "string",
    "gen_ai.output.messages": "any",
    "gen_ai.provider.name": "string",
    "gen_ai.request.model": "string",
    "gen_ai.response.finish_reasons": "string[]",
    "gen_ai.response.model": "string",
    "gen_ai.usage.cache_read.input_tokens": "int",
    "gen_ai.usage.cache_write.input_tokens": "int",
    "gen_ai.usage.input_tokens": "int",  # cached tokens included
    "gen_ai.usage.output_tokens": "int",
}
# Well-known values of `gen_ai.operation.name`; others are allowed.
OPERATIONS = {
    "chat", "create_agent", "create_memory", "create_memory_store", "delete_memory",
    "delete_memory_store", "embeddings", "execute_tool", "fetch_response", "generate_content",
    "invoke_agent", "invoke_workflow", "plan", "retrieval", "search_memory", "text_completion",
    "update_memory", "upsert_memory",
}  # fmt: skip
PROVIDERS = {
    "anthropic", "aws.bedrock", "azure.ai.inference", "azure.ai.openai", "cohere", "deepseek",
    "gcp.gemini", "gcp.gen_ai", "gcp.vertex_ai", "groq", "ibm.watsonx.ai", "mistral_ai",
    "moonshot_ai", "openai", "perplexity", "x_ai",
}  # fmt: skip
# Keys of a message in `gen_ai.input.messages` and `gen_ai.output.messages`.
MESSAGE_KEYS = {"input": {"role", "parts"}, "output": {"role", "parts", "finish_reason"}}
