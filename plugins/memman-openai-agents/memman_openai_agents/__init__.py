"""memman for the OpenAI Agents SDK: a session, its filter of the model's input, and hooks for usage.

memory = MemoryManager("chat.db", model="gpt-5")
session = MemmanSession("user-17", memory)
config = RunConfig(call_model_input_filter=session.fit)
await Runner.run(agent, "Hello", session=session, run_config=config, hooks=session.hooks)
"""

from memman_openai_agents.session import MemmanSession, UsageHooks

__all__ = ["MemmanSession", "UsageHooks"]
