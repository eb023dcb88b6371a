"""memman for Strands Agents: a conversation manager.

from memman import MemoryManager
from memman_strands import MemmanConversationManager
from strands import Agent

memory = MemoryManager("chat.db", model="claude-sonnet-5-5")
agent = Agent(conversation_manager=MemmanConversationManager(memory, "user-17"))
"""

from memman_strands.manager import MemmanConversationManager

__all__ = ["MemmanConversationManager"]
