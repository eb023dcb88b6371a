"""A refusal for length is distinguished from one for rate or credit, and its numbers are read."""

# ruff: noqa: E501 - the providers' sentences are longer than a line

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memman.counting.overflow import Overflow, parse_overflow

# Wordings as the providers write them; the numbers are ours.
CONTEXT = [
    # text, limit, requested, output
    (
        "This model's maximum context length is 4097 tokens. However, you requested 4130 tokens (3130 in the"
        " messages, 1000 in the completion). Please reduce the length of the messages or completion.",
        4_097, 4_130, 1_000,
    ),
    (
        "This model's maximum context length is 8192 tokens. However, you requested 8213 tokens (6683 in the"
        " messages, 730 in the functions, and 800 in the completion). Please reduce the length of the"
        " messages, functions, or completion.",
        8_192, 8_213, 800,
    ),
    (
        "This model's maximum context length is 4097 tokens, however you requested 6539 tokens (6283 in your"
        " prompt; 256 for the completion). Please reduce your prompt; or completion length.",
        4_097, 6_539, 256,
    ),
    (
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 204308"
        " tokens. Please reduce the length of the messages.",
        128_000, 204_308, None,
    ),
    (
        "'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum context length is"
        " 65536 tokens and your request has 57879 input tokens (8192 > 65536 - 57879).",
        65_536, 66_071, 8_192,
    ),
    (
        "This model's maximum context length is 131072 tokens. However, you requested 128000 output tokens"
        " and your prompt contains at least 3073 input tokens, for a total of at least 131073 tokens. Please"
        " reduce the length of the input prompt or the number of requested output tokens.",
        131_072, 131_073, 128_000,
    ),
    (
        "You passed 10001 input tokens and requested 500 output tokens. However, the model's context length"
        " is only 8192 tokens, resulting in a maximum input length of 7692 tokens.",
        8_192, 10_501, 500,
    ),
    (
        "Requested token count exceeds the model's maximum context length of 32768 tokens. You requested a"
        " total of 40000 tokens: 30000 tokens from the input messages and 10000 tokens for the completion.",
        32_768, 40_000, None,
    ),
    (
        "This endpoint's maximum context length is 128000 tokens. However, you requested about 130000 tokens"
        " (100000 of text input, 5000 of tool input, 25000 in the output). Please reduce the length.",
        128_000, 130_000, 25_000,
    ),
    (
        "input length and `max_tokens` exceed context limit: 199759 + 8192 > 200000, decrease input length or"
        " `max_tokens` and try again",
        200_000, 207_951, 8_192,
    ),
    (
        "request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it",
        8_192, 9_000, None,
    ),
    ("Requested tokens (5000) exceed context window of 4096", 4_096, 5_000, None),
    (
        "Trying to keep the first 5014 tokens when context the overflows. However, the model is loaded with"
        " context length of only 4096 tokens, which is not enough.",
        4_096, 5_014, None,
    ),
    (
        "Prompt contains 32853 tokens and 0 draft tokens, too large for model with 32768 maximum context"
        " length",
        32_768, 32_853, None,
    ),
    (
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. Given: 7000 `inputs`"
        " tokens and 2000 `max_new_tokens`",
        8_193, 9_000, 2_000,
    ),
    ("The prompt is too long: 150000, model maximum context length: 131071", 131_071, 150_000, None),
    (
        "Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192",
        8_192, 9_000, None,
    ),
    (
        "The input (70000 tokens) is longer than the model's context length (65536 tokens).",
        65_536, 70_000, None,
    ),
    (
        "too many tokens: total number of tokens (prompt and prediction) cannot exceed 2048 - received 6354."
        " Try using a shorter prompt or a smaller max_tokens value.",
        2_048, 6_354, None,
    ),
    (
        "Invalid request: Your request exceeded model token limit: 262144 (requested: 279000)",
        262_144, 279_000, None,
    ),
    ("Invalid request: Your request exceeded model token limit: 8192", 8_192, None, None),
]  # fmt: skip
INPUT = [
    # text, limit, requested
    ("prompt is too long: 213462 tokens > 200000 maximum", 200_000, 213_462),
    (
        "The model returned the following errors: prompt is too long: 213,462 tokens > 200,000 maximum",
        200_000, 213_462,
    ),
    (
        "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
        1_048_575, 1_196_265,
    ),
    ("The input token count exceeds the maximum number of tokens allowed 1048576.", 1_048_576, None),
    (
        "Unable to submit request because the input token count is 1100000 but model only supports up to"
        " 1048576. Reduce the input token count and try again.",
        1_048_576, 1_100_000,
    ),
    (
        "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300123 tokens."
        " Please reduce the length of the messages.",
        272_000, 300_123,
    ),
    (
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        131_072, 537_812,
    ),
    ("Too many input tokens. Max input tokens: 8192, request input token count: 20000", 8_192, 20_000),
    (
        "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 4292. Try using"
        " a shorter prompt.",
        4_081, 4_292,
    ),
    (
        "too many tokens: size limit exceeded by 11326 tokens. Try using shorter or fewer inputs. The limit"
        " for this model is 128000 tokens.",
        128_000, None,
    ),
    ("prompt token count of 140000 exceeds the limit of 128000", 128_000, 140_000),
    ("Request body too large for gpt-4.1 model. Max size: 8000 tokens.", 8_000, None),
    ("Input prompt (36893 tokens) is too long and exceeds limit of 1000", 1_000, 36_893),
    ("Range of input length should be [1, 129024]", 129_024, None),
]  # fmt: skip
WORDLESS = [
    "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "Input is too long for requested model.",
    "the request exceeds the available context size. try increasing the context size or enable context shift",
    "invalid params, context window exceeds limit (2013)",
    "Prompt exceeds max length",
    "the input length exceeds the context length",
    "prompt too long; exceeded max context length by 4 tokens",
    "Please reduce the length of the messages or completion.",
    "litellm.ContextWindowExceededError: litellm.BadRequestError: AnthropicException - too long",
]
NO_OVERFLOW = [
    "Request too large for model `llama-3.3-70b-versatile` in organization `org_01` service tier `on_demand`"
    " on tokens per minute (TPM): Limit 12000, Requested 14137, please reduce your message size and try again.",
    "Rate limit reached for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Used 29000,"
    " Requested 4000. Please try again in 6s.",
    "This request would exceed your organization's rate limit of 30,000 input tokens per minute.",
    "You exceeded your current quota, please check your plan and billing details.",
    "Quota exceeded for quota metric 'Generate Content API requests per minute'",
    "Too many tokens, please wait before trying again.",
    "An error occurred (ThrottlingException) when calling the Converse operation: Too many tokens per day",
    "This request requires more credits, or fewer max_tokens. You requested up to 65536 tokens, but can only"
    " afford 4000.",
    "Prompt tokens limit exceeded: 6000 > 2000. To increase, visit the settings and add credits",
    "max_tokens is too large: 20000. This model supports at most 16384 completion tokens, whereas you"
    " provided 20000.",
    "max_tokens must be less than or equal to 16384, the maximum value for max_tokens",
    "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens",
    "Incorrect API key provided",
    "The model `gpt-99` does not exist",
    "messages: text content blocks must be non-empty",
    "Invalid 'messages[0].content': string too long. Expected a string with maximum length 10485760",
    "Connection error.",
    "",
]


@pytest.mark.parametrize(("text", "limit", "requested", "output"), CONTEXT)
def test_the_numbers_of_a_context_are_read(
    text: str, limit: int, requested: int | None, output: int | None
) -> None:
    assert parse_overflow(text) == Overflow(
        limit=limit, requested=requested, output=output, bounds="context", message=text
    )


@pytest.mark.parametrize(("text", "limit", "requested"), INPUT)
def test_the_numbers_of_an_input_are_read(text: str, limit: int, requested: int | None) -> None:
    assert parse_overflow(text) == Overflow(
        limit=limit, requested=requested, bounds="input", message=text
    )


@pytest.mark.parametrize("text", WORDLESS)
def test_an_overflow_without_numbers_is_one_all_the_same(text: str) -> None:
    assert parse_overflow(text) == Overflow(limit=None, requested=None, message=text)


@pytest.mark.parametrize("text", NO_OVERFLOW)
def test_a_refusal_for_another_reason_is_no_overflow(text: str) -> None:
    assert parse_overflow(text) is None
    assert parse_overflow(ValueError(text)) is None


@pytest.mark.parametrize("row", [*CONTEXT, *INPUT])
@pytest.mark.parametrize(
    "wrapped",
    [
        "litellm.ContextWindowExceededError: litellm.BadRequestError: ContextWindowExceededError: "
        "OpenAIException - {}. Received Model Group=gpt-4o\nAvailable Model Group Fallbacks=None",
        "Error code: 400 - {{'error': {{'message': \"{}\", 'type': 'invalid_request_error'}}}}",
        "An error occurred (ValidationException) when calling the Converse operation: {}",
    ],
)
def test_a_wrapper_changes_no_number(row: tuple[Any, ...], wrapped: str) -> None:
    found, bare = parse_overflow(wrapped.format(row[0])), parse_overflow(row[0])
    assert found is not None
    assert bare is not None
    assert (found.limit, found.requested, found.output, found.bounds) == (
        bare.limit, bare.requested, bare.output, bare.bounds,
    )  # fmt: skip


@given(st.text(max_size=300))
def test_any_text_is_read_without_an_error(text: str) -> None:
    found = parse_overflow(text)
    assert found is None or found.message == text


def test_a_text_of_any_length_is_read_in_time() -> None:
    for piece in (
        "maximum context length is 1 ",
        "requested 9 ",
        "tokens ",
        "(",
        "input token count ",
    ):
        parse_overflow(piece * 100_000)


# ---------------------------------------------------------------- the SDKs' own errors


Raised = Callable[[str, int, dict[str, Any]], Exception]


@pytest.fixture(scope="module")
def raised() -> Iterator[Raised]:
    """Return the error that an SDK raises for a status and a body, over a real connection."""
    answers: list[tuple[int, bytes]] = []

    class Refuses(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            status, body = answers.pop()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            """Send no log lines of the server; the tests check the requests."""

    server = HTTPServer(("127.0.0.1", 0), Refuses)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    messages: Any = [{"role": "user", "content": "x"}]

    def ask(sdk: str, status: int, error: dict[str, Any]) -> Exception:
        module = pytest.importorskip(sdk)
        answers.append((status, json.dumps({"type": "error", "error": error}).encode()))
        client = getattr(module, {"openai": "OpenAI"}.get(sdk, "Anthropic"))
        with client(api_key="none", base_url=url, max_retries=0) as opened:
            call = opened.chat.completions if sdk == "openai" else opened.messages
            with pytest.raises(module.APIStatusError) as caught:
                call.create(model="m", messages=messages, max_tokens=1)
        return caught.value

    yield ask
    server.shutdown()
    server.server_close()
    thread.join()


def test_an_error_of_the_openai_sdk(raised: Raised) -> None:
    error = raised(
        "openai",
        400,
        {"message": CONTEXT[3][0], "type": "invalid_request_error", "param": "messages",
         "code": "context_length_exceeded"},
    )  # fmt: skip
    found = parse_overflow(error)
    assert found is not None
    assert (found.limit, found.requested, found.bounds) == (128_000, 204_308, "context")


def test_the_code_of_the_openai_sdk_is_enough(raised: Raised) -> None:
    error = raised("openai", 400, {"message": "Too much.", "code": "context_length_exceeded"})
    found = parse_overflow(error)
    assert found is not None
    assert found.limit is None


def test_llama_cpp_numbers_outside_its_message_are_read(raised: Raised) -> None:
    error = raised(
        "openai",
        400,
        {"message": "the request exceeds the available context size", "code": 400,
         "type": "exceed_context_size_error", "n_prompt_tokens": 9_000, "n_ctx": 8_192},
    )  # fmt: skip
    found = parse_overflow(error)
    assert found is not None
    assert (found.limit, found.requested) == (8_192, 9_000)


@pytest.mark.parametrize(
    ("status", "code", "text"),
    [
        (429, "rate_limit_exceeded", NO_OVERFLOW[1]),
        (429, "insufficient_quota", NO_OVERFLOW[3]),
        (413, "rate_limit_exceeded", NO_OVERFLOW[0]),
        (429, None, CONTEXT[0][0]),  # the status is for a rate limit
        (400, "invalid_api_key", "Incorrect API key provided"),
    ],
)
def test_a_rate_limit_of_the_openai_sdk_is_no_overflow(
    raised: Raised, status: int, code: str | None, text: str
) -> None:
    assert parse_overflow(raised("openai", status, {"message": text, "code": code})) is None


def test_an_error_of_the_anthropic_sdk(raised: Raised) -> None:
    text, limit, requested = INPUT[0]
    found = parse_overflow(
        raised("anthropic", 400, {"type": "invalid_request_error", "message": text})
    )
    assert found is not None
    assert (found.limit, found.requested, found.bounds) == (limit, requested, "input")


def test_a_rate_limit_of_the_anthropic_sdk_is_no_overflow(raised: Raised) -> None:
    error = raised("anthropic", 429, {"type": "rate_limit_error", "message": NO_OVERFLOW[2]})
    assert parse_overflow(error) is None


class ClientError(Exception):
    """An error like botocore's: the message is in `response`."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        self.response = {
            "Error": {"Code": code, "Message": message},
            "ResponseMetadata": {"HTTPStatusCode": status},
        }
        super().__init__(
            f"An error occurred ({code}) when calling the Converse operation: {message}"
        )


def test_an_error_with_a_response_of_plain_data() -> None:
    found = parse_overflow(ClientError("ValidationException", INPUT[7][0]))
    assert found is not None
    assert (found.limit, found.requested) == (8_192, 20_000)
    assert parse_overflow(ClientError("ThrottlingException", "Too many tokens", 429)) is None


def test_the_cause_of_a_frameworks_error_is_read() -> None:
    error = RuntimeError("the agent failed")
    error.__cause__ = ValueError(INPUT[0][0])
    found = parse_overflow(error)
    assert found is not None
    assert found.limit == 200_000


def test_error_handled_earlier_is_not_reported() -> None:
    error = RuntimeError("the disk is full")
    error.__context__ = ValueError(INPUT[0][0])
    assert parse_overflow(error) is None


def test_a_rate_limit_behind_which_an_overflow_was_stays_one() -> None:
    error = ClientError("ThrottlingException", "slow down", 429)
    error.__cause__ = ValueError(INPUT[0][0])
    assert parse_overflow(error) is None


def test_errors_that_are_each_others_cause_come_to_an_end() -> None:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    assert parse_overflow(one) is None


def test_number_of_thousands_of_digits_is_no_limit() -> None:
    """An error whose number has thousands of digits raises nothing"""
    found = parse_overflow("maximum context length is " + "9" * 8_000 + " tokens")
    assert found is None or found.limit is None
