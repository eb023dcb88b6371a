"""memman in LangChain's agents, in LangGraph's graphs and in deepagents.

from langchain.agents import create_agent
from memman import MemoryManager
from memman_langchain import MemmanMiddleware

agent = create_agent(model, tools, middleware=[MemmanMiddleware(MemoryManager("chat.db"))])
"""

from memman_langchain.log import MessageLog, pre_model_hook
from memman_langchain.middleware import MemmanMiddleware, MemmanState, MemmanSummarization
from memman_langchain.models import chat_model_summarizer, token_counter

__all__ = [
    "MemmanMiddleware",
    "MemmanState",
    "MemmanSummarization",
    "MessageLog",
    "chat_model_summarizer",
    "pre_model_hook",
    "token_counter",
]
