"""An MCP server over sessions: tools that search and read, for a coding agent that looks up its own past.

`sources` opens databases, and copies sessions of files into a temporary database. `tools` answers calls
with pages of quoted text. `server` speaks the protocol over stdio, `http` over HTTP on the loopback
interface. They need the extra `mcp`; importing this package does not load it.
"""
