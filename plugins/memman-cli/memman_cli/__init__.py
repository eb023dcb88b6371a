"""The command `memman`: sessions and logs in a terminal, as an HTML page, and for MCP clients."""
