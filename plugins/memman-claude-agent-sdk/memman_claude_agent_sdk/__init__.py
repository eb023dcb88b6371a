"""memman for the Claude Agent SDK: a session store.

from claude_agent_sdk import ClaudeAgentOptions, query
from memman import MemoryManager
from memman_claude_agent_sdk import MemmanSessionStore

store = MemmanSessionStore(MemoryManager("chat.db"))
options = ClaudeAgentOptions(session_store=store)
"""

from memman_claude_agent_sdk.store import MemmanSessionStore

__all__ = ["MemmanSessionStore"]
