"""The spans of a manager's operations."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from opentelemetry import context, trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer

from memman import Context, TokenCount
from memman.events import CompressionResult
from memman.protocols import Appended, SummaryReply, SummaryRequest
from memman.providers import CountFailure
from memman.runtime.observation import End, Operation
from memman_otel.names import MEMORY_OPERATIONS, OPERATIONS, of_model

COMPACTED = "gen_ai.conversation.compacted"
Attributes = dict[str, Any]


class Spans:
    """Makes a span of each operation, inside the caller's span."""

    def __init__(self, tracer: Tracer, *, content: bool, session_ids: bool) -> None:
        self._tracer = tracer
        self._content = content
        self._session_ids = session_ids

    def begin(self, operation: Operation) -> End:
        """Begin the span of an operation, and return the function that ends it."""
        caller = trace.get_current_span()
        span = self._tracer.start_span(
            _name(operation), kind=_kind(operation), attributes=self._attributes(operation)
        )
        # Without an SDK and without a caller's span there is nothing to hand down.
        valid = span.get_span_context().is_valid
        token = context.attach(trace.set_span_in_context(span)) if valid else None

        def end(answer: Any, error: BaseException | None) -> None:
            if token is not None:
                context.detach(token)
            if span.is_recording():
                span.set_attributes(self._result(answer))
                self._set_error(span, answer, error)
            if _is_compacted(answer):
                for each in (span, caller):
                    if each.is_recording():
                        each.set_attribute(COMPACTED, True)
            span.end()

        return end

    def _attributes(self, operation: Operation) -> Attributes:
        """Return the attributes that are known at the beginning."""
        found: Attributes = dict(of_model(operation.model))
        name = OPERATIONS.get(operation.kind) or MEMORY_OPERATIONS.get(operation.method)
        if name is not None:
            found["gen_ai.operation.name"] = name
        if self._session_ids and operation.session_id is not None:
            found["gen_ai.conversation.id"] = operation.session_id
        if operation.kind == "store":
            found["memman.store.method"] = operation.method
            found["memman.store.type"] = type(operation.port).__name__
        elif operation.kind == "compress":
            found["memman.compression.trigger"] = operation.method
        elif operation.kind == "summarize":
            found["memman.summarizer.type"] = type(operation.port).__name__
        if self._content and isinstance(operation.request, SummaryRequest):
            found["gen_ai.input.messages"] = _message("user", operation.request.prompt)
        return found

    def _result(self, answer: Any) -> Attributes:
        """Return the attributes of an answer."""
        match answer:
            case Context():
                return self._of_context(answer)
            case CompressionResult():
                return self._of_compression(answer)
            case SummaryReply():
                return self._of_summary(answer)
            case TokenCount():
                return {"memman.count.tokens": answer.tokens}
            case Appended():
                return {"gen_ai.memory.record.count": answer.fresh}
        return {}

    def _of_context(self, built: Context) -> Attributes:
        found: Attributes = {
            "memman.context.tokens": built.tokens.tokens,
            "memman.context.budget": built.budget,
            "memman.context.messages": len(built),
            "memman.context.trimmed": len(built.trimmed),
            "memman.context.unchanged_messages": built.unchanged_prefix,
        }
        if self._content:
            found["memman.context.content"] = json.dumps(built.messages, ensure_ascii=False)
        return found

    def _of_compression(self, result: CompressionResult) -> Attributes:
        found: Attributes = {
            "memman.compression.tokens_before": result.tokens_before,
            "memman.compression.tokens_after": result.tokens_after,
            "memman.compression.replaced_entries": len(result.replaced_ids),
            "memman.compression.methods": sorted({item.method for item in result.replacements}),
        }
        if result.compression_id is not None:
            found["memman.compression.id"] = result.compression_id
        if self._content:
            found["memman.compression.reason"] = result.reason
        return found

    def _of_summary(self, reply: SummaryReply) -> Attributes:
        found: Attributes = {}
        if reply.model is not None:
            found["gen_ai.response.model"] = reply.model
        if reply.usage is not None:
            usage = reply.usage
            found["gen_ai.usage.input_tokens"] = usage.input_tokens
            found["gen_ai.usage.output_tokens"] = usage.output_tokens
            found["gen_ai.usage.cache_read.input_tokens"] = usage.cached_tokens
            found["gen_ai.usage.cache_write.input_tokens"] = usage.cache_written_tokens
        if reply.truncated:
            found["gen_ai.response.finish_reasons"] = ["length"]
        if self._content:
            finish = "length" if reply.truncated else "stop"
            found["gen_ai.output.messages"] = _message(
                "assistant", reply.text, finish_reason=finish
            )
        return found

    def _set_error(self, span: Span, answer: Any, error: BaseException | None) -> None:
        """Mark a failed operation; messages of errors may quote the conversation."""
        kind = error_type(answer, error)
        if kind is None:
            return
        span.set_attribute("error.type", kind)
        reason = error if error is not None else answer.reason
        span.set_status(Status(StatusCode.ERROR, str(reason) if self._content else None))


def error_type(answer: Any, error: BaseException | None) -> str | None:
    """Return the `error.type` of an operation: an exception's name, or a `CountFailure`'s kind."""
    if error is not None:
        return type(error).__qualname__
    return answer.kind if isinstance(answer, CountFailure) else None


def _name(operation: Operation) -> str:
    """Return the span's name, by the conventions where they have one."""
    if operation.kind == "store":
        return MEMORY_OPERATIONS.get(operation.method) or f"memman.store.{operation.method}"
    name = OPERATIONS[operation.kind]
    with_model = operation.kind in ("summarize", "count") and operation.model is not None
    return f"{name} {operation.model}" if with_model else name


def _kind(operation: Operation) -> SpanKind:
    """Return CLIENT for a store outside the process; a provider's own call has its SDK's span."""
    outside = operation.kind == "store" and not type(operation.port).__module__.startswith(
        "memman."
    )
    return SpanKind.CLIENT if outside else SpanKind.INTERNAL


def _is_compacted(answer: Any) -> bool:
    """Return whether an operation made or returned a compacted view of the conversation."""
    if isinstance(answer, CompressionResult):
        return answer.compression_id is not None
    return isinstance(answer, Context) and answer.compacted


def _message(role: str, text: str, **others: str) -> str:
    """Return one message of the conventions' form as JSON."""
    message: Mapping[str, Any] = {
        "role": role,
        "parts": [{"type": "text", "content": text}],
        **others,
    }
    return json.dumps([message], ensure_ascii=False)
