"""memman for LiteLLM: a callback for the SDK, the Router and the proxy.

import litellm
from memman import MemoryManager
from memman_litellm import MemmanLogger

litellm.callbacks = [MemmanLogger(MemoryManager("chat.db"))]
await litellm.acompletion(model="gpt-4o", messages=messages, metadata={"session_id": "user-17"})
"""

from memman_litellm.logger import MemmanLogger, session_of

__all__ = ["MemmanLogger", "session_of"]
