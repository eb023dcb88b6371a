"""The definitions of everything that the runner sends as a tool, and memman's own tool."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agents import Agent, AgentOutputSchema, AgentOutputSchemaBase, FunctionTool, Handoff, handoff
from agents.tool_context import ToolContext

from memman import AsyncRecallTool


async def tools_of(agent: Agent[Any], servers: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Return the tools, handoffs and structured output of an agent, as definitions for `build_context`.

    Tools of MCP servers are listed once for each agent and kept in `servers`: listing may be a request
    over the network.
    """
    if agent.mcp_servers and agent.name not in servers:
        servers[agent.name] = [
            tool for server in agent.mcp_servers for tool in await server.list_tools()
        ]
    return [*_own(agent), *map(_of_server, servers.get(agent.name, ()))]


def function_tool_of(recall: AsyncRecallTool) -> FunctionTool:
    """Return memman's tool as one of the SDK."""

    async def answer(_: ToolContext[Any], arguments: str) -> str:
        return await recall(arguments)

    return FunctionTool(
        name=recall.name,
        description=recall.description,
        params_json_schema=recall.parameters,
        on_invoke_tool=answer,
        strict_json_schema=False,  # strict schemas have no optional arguments
    )


def _own(agent: Agent[Any]) -> Iterator[dict[str, Any]]:
    for tool in agent.tools:
        if isinstance(tool, FunctionTool):
            yield _function(tool.name, tool.description, tool.params_json_schema)
        else:
            yield {"type": tool.name}  # hosted: its definition is the provider's
    for target in agent.handoffs:
        to = target if isinstance(target, Handoff) else handoff(target)
        yield _function(to.tool_name, to.tool_description, to.input_json_schema)
    output = agent.output_type
    if output is not None:
        schema = output if isinstance(output, AgentOutputSchemaBase) else AgentOutputSchema(output)
        if not schema.is_plain_text():
            yield _function("final_output", "", schema.json_schema())


def _of_server(tool: Any) -> dict[str, Any]:
    return _function(tool.name, tool.description or "", tool.inputSchema)


def _function(name: str, description: str, parameters: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "function",
        "name": name,
        "description": description,
        "parameters": parameters,
    }
