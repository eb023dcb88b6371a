"""A tiny agent framework and an adapter for it, right and wrong in named ways."""

import copy
import itertools
import json

from memman.adapters import streamed
from memman.testing import AdapterDriver

FORMAT = "openai-chat"
TOOLS = [
    {
        "type": "function",
        "function": {"name": "read", "parameters": {"properties": {"path": {"type": "string"}}}},
    }
]
PROMPT = {"role": "system", "content": "You review code."}
_IDS = itertools.count()


class Adapter:
    """memman in the framework: `fit` before each request, `log` after the run, `use` after each reply."""

    def __init__(self, memory, session_id):
        self.memory = memory
        self.session_id = session_id
        self.tools = TOOLS
        self.recall = None
        self.model = None
        self.stream = []  # the events that the user interface gets

    def offer_recall(self):
        """Give the agent the tool `recall`."""
        self.recall = self.memory.recall_tool(self.session_id)
        self.tools = [*TOOLS, self.recall.openai_chat]

    def log(self, messages):
        """Store the messages of the framework that are new."""
        ids = [message["id"] for message in messages]
        self.memory.add_messages(self.session_id, messages, FORMAT, ids=ids, unknown="keep")
        gone = [
            e.id for e in self.memory.get_entries(self.session_id) if e.id.split(":")[0] not in ids
        ]
        if gone:
            self.memory.retract(self.session_id, gone, reason="rewound")

    def fit(self, messages):
        """Return the messages to send."""
        with streamed(self.stream.append):
            self.log(messages)
            return self.memory.build_context(
                self.session_id,
                format=FORMAT,
                model=self.model,
                system=PROMPT["content"],
                tools=self.tools,
            ).messages

    def use(self, reply):
        """Record what a request was billed."""
        self.memory.record_usage(
            self.session_id,
            model=self.model,
            input_tokens=reply.input_tokens,
            output_tokens=reply.output_tokens,
        )


class Conversation(AdapterDriver):
    """The framework: a list of messages and a loop over a model and a tool."""

    def __init__(self, adapter, model, messages=()):
        self.adapter = adapter
        self.session_id = adapter.session_id
        self.switch(model)
        self.messages = list(messages)
        if model.recalls:
            adapter.offer_recall()

    @property
    def events(self):
        return [event["name"] for event in self.adapter.stream]

    def _say(self, **message):
        self.messages.append({"id": f"m{next(_IDS)}", **message})

    def _step(self):
        """Call the model once and return its tool calls."""
        sent = self.adapter.fit(copy.deepcopy(self.messages))
        natives = [message["signature"] for message in sent if "signature" in message]
        reply = self.model.reply(sent, tools=self.adapter.tools, natives=natives)
        self.adapter.use(reply)
        message = {"content": reply.text or None}
        if reply.calls:
            message["tool_calls"] = [
                {"id": call.call_id, "type": "function",
                 "function": {"name": call.name, "arguments": json.dumps(call.arguments)}}
                for call in reply.calls
            ]  # fmt: skip
        self._say(
            role="assistant", **message, **({"signature": reply.native} if reply.native else {})
        )
        return reply

    def _answer(self, call, result):
        self._say(role="tool", tool_call_id=call.call_id, content=result)

    def _run_tool(self, call):
        if call.name == "recall":
            return self.adapter.recall(call.arguments)
        return self.model.read_sync(**call.arguments)

    async def run(self, text, *, stream=False):
        self._say(role="user", content=text)
        return await self.retry(text)

    async def retry(self, text):
        while (reply := self._step()).calls:
            for call in reply.calls:
                read = call.name == "read"
                result = await self.model.read(**call.arguments) if read else self._run_tool(call)
                self._answer(call, result)
        self.adapter.log(self.messages)
        return reply.text

    def run_sync(self, text):
        self._say(role="user", content=text)
        while (reply := self._step()).calls:
            for call in reply.calls:
                self._answer(call, self._run_tool(call))
        self.adapter.log(self.messages)
        return reply.text

    async def history(self):
        return copy.deepcopy(self.messages)

    def resume(self, memory, model):
        adapter = type(self.adapter)(memory, self.session_id)
        return type(self)(adapter, model, self.messages)

    def _before(self, turns):
        starts = [n for n, message in enumerate(self.messages) if message["role"] == "user"]
        return self.messages[: starts[-turns]]

    async def fork(self, turns):
        adapter = type(self.adapter)(self.adapter.memory, f"{self.session_id}-fork")
        return type(self)(adapter, self.model, self._before(turns))

    async def rewind(self, turns):
        self.messages = self._before(turns)

    def switch(self, model):
        self.model, self.adapter.model = model, model.name

    async def add_unknown(self, text):
        self._say(role="oracle", content=text)
