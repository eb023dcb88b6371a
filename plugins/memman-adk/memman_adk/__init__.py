"""memman for Google's Agent Development Kit: a plugin.

from google.adk.apps import App
from memman import MemoryManager
from memman_adk import MemmanPlugin

memory = MemoryManager("agents.db", model="gemini-3-pro")
app = App(name="support", root_agent=agent, plugins=[MemmanPlugin(memory)])
"""

from memman_adk.plugin import MemmanPlugin
from memman_adk.sessions import MemmanSessionService

__all__ = ["MemmanPlugin", "MemmanSessionService"]
