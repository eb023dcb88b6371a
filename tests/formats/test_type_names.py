"""Names of wire types are in the table and in the rules; other modules read them from there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import memman
from memman.formats.wire.tables import FILES, kinds_of

ROOT = Path(memman.__file__).parent
HOMES = ("formats/wire/", "formats/rules/")
ENTRY_TYPES = {"message", "tool_call", "tool_result", "context", "summary"}
# Words that name a part, a key or a setting in any format, so that a literal says nothing about a type.
WORDS = {
    "audio", "document", "fallback", "file", "image", "program", "reasoning", "reference", "refusal",
    "resource", "text", "thinking", "thought", "video",
}  # fmt: skip
# Names that a module still has: the blocks that a format writes itself, and keys of messages that have
# the name of a type. A name that leaves a module leaves this list, too; none is added.
LEFT = {
    # A summarizer's reply that is a call written as text.
    "compression/reply.py": "function_call tool_use",
    # Gemini's files of the manager's own, which have a row under this name.
    "counting/blocks.py": "google_file",
    # Keys that cost nothing, at any depth, in any format.
    "counting/extras.py": "cachePoint thoughtSignature",
    # Images at any depth, in results of any shape.
    "counting/images.py": "image_url input_image",
    # Blocks that a format writes itself, and types by which it recognises messages.
    "formats/anthropic.py": "image_url search_result tool_use",
    "formats/bedrock.py": "cachePoint citationsContent guardContent reasoningContent searchResult"
    " toolResult toolUse",
    # Types by which a provider's list of blocks is recognised.
    "formats/blocks.py": "input_audio mediaResolution redacted_thinking search_result thoughtSignature"
    " videoMetadata",
    "formats/gemini.py": "audioTranscription codeExecutionResult executableCode fileData functionCall"
    " functionResponse inlineData mediaResolution partMetadata thoughtSignature toolCall"
    " toolResponse videoMetadata",
    "formats/langchain.py": "function_call image_url tool_use",
    "formats/mistral.py": "document_url image_url",
    "formats/openai_chat.py": "function_call image_url",
    "formats/openai_responses.py": "custom_tool_call custom_tool_call_output function_call"
    " function_call_output image_url input_file input_image input_text output_text",
    # Keys of any format's calls and results; a message without a type has them, too.
    "formats/parts.py": "functionCall functionResponse function_call image_url toolResult toolUse",
    "formats/plain.py": "function_call",
    # Keys of the pieces of Converse's streams.
    "formats/streams.py": "reasoningContent toolUse",
}


def names_in(module: Path) -> Iterator[str]:
    """Yield the texts of a module that are no docstrings."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.value


def test_type_names_are_in_the_table_alone():
    types = {name for form in FILES for name in kinds_of(form)} - ENTRY_TYPES - WORDS
    found = {}
    for module in sorted(ROOT.rglob("*.py")):
        path = module.relative_to(ROOT).as_posix()
        named = types & set(names_in(module))
        if named and not path.startswith(HOMES):
            found[path] = named
    assert found == {path: set(names.split()) for path, names in LEFT.items()}
