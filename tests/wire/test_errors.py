"""HTTP errors and failures: what each answer means, how each failure is told, and what never is."""

from __future__ import annotations

from typing import Any

import pytest

from onetake import jsontext
from onetake.wire import errors
from onetake.wire.errors import (
    KNOWN_CODES,
    error_of_failure,
    failure_of_error,
    failure_of_response,
    redacted,
    response_of_failure,
    retry_after_ms,
)


def described(status: int, error: Any = None, **headers: str) -> dict[str, Any]:
    body = b"" if error is None else jsontext.dumps({"error": error})
    return failure_of_response(status, {name.replace("_", "-"): v for name, v in headers.items()}, body)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (302, "MALFORMED_STREAM"),
        (400, "BAD_REQUEST"),
        (401, "AUTH"),
        (402, "INSUFFICIENT_BALANCE"),
        (403, "AUTH"),
        (404, "NOT_FOUND"),
        (408, "TIMEOUT"),
        (409, "BAD_REQUEST"),
        (422, "BAD_REQUEST"),
        (429, "RATE_LIMIT"),
        (500, "SERVER_ERROR"),
        (502, "SERVER_ERROR"),
        (503, "OVERLOADED"),
        (504, "TIMEOUT"),
        (529, "OVERLOADED"),
    ],
)
def test_a_status_alone_says_what_went_wrong(status: int, code: str) -> None:
    assert described(status) == {
        "message": f"the provider answered HTTP {status} without giving a reason",
        "code": code,
        "status": status,
    }


@pytest.mark.parametrize(
    ("status", "error", "code"),
    [
        (400, {"message": "m", "code": "context_length_exceeded"}, "CONTEXT_WINDOW_EXCEEDED"),
        (400, {"message": "m", "type": "exceed_context_size_error"}, "CONTEXT_WINDOW_EXCEEDED"),
        (400, {"message": "This model's maximum context length is 10 tokens."}, "CONTEXT_WINDOW_EXCEEDED"),
        (400, {"message": "the request exceeds the available context size"}, "CONTEXT_WINDOW_EXCEEDED"),
        (422, {"message": "Context window of 10 tokens was exceeded"}, "CONTEXT_WINDOW_EXCEEDED"),
        (500, {"message": "prompt is too long: 12 tokens"}, "CONTEXT_WINDOW_EXCEEDED"),
        (429, {"message": "maximum context length per minute"}, "RATE_LIMIT"),
        (429, {"message": "m", "code": "insufficient_quota"}, "INSUFFICIENT_BALANCE"),
        (400, {"message": "m", "code": "Content_Filter"}, "CONTENT_FILTER"),
        (503, {"message": "m", "type": "server_error"}, "OVERLOADED"),
        (400, {"message": "m", "type": "authentication_error", "code": None}, "AUTH"),
        (400, {"message": "m", "type": ["odd"], "code": 7}, "BAD_REQUEST"),
    ],
)
def test_the_body_knows_more_than_the_status(status: int, error: dict[str, Any], code: str) -> None:
    found = described(status, error)
    assert (found["code"], found["message"], found["status"]) == (code, error["message"], status)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error":"no such model"}', "no such model"),
        (b'{"message":"gateway says no"}', "gateway says no"),
        (b'{"detail":"not allowed"}', "not allowed"),
        (b'{"detail":[{"loc":1}]}', '{"detail":[{"loc":1}]}'),
        (b"[1]", "[1]"),
        (b"<html>Bad</html>\n", "<html>Bad</html>"),
        (b"\xff", "\ufffd"),
        (b'{"error":{"message":"  "}}', "the provider answered HTTP 400 without giving a reason"),
        (b'{"error":{"code":"x"}}', "the provider answered HTTP 400 without giving a reason"),
        (b"x" * 5000, "x" * 2000),
    ],
)
def test_the_message_is_found_wherever_a_body_has_it(body: bytes, message: str) -> None:
    assert failure_of_response(400, {}, body)["message"] == message


def test_an_error_inside_a_stream_has_only_its_object() -> None:
    assert failure_of_error({"message": "busy", "code": 503}) == {
        "message": "busy",
        "code": "OVERLOADED",
        "status": 503,
    }
    assert failure_of_error("boom") == {"message": "boom", "code": "SERVER_ERROR"}
    assert failure_of_error({}) == {
        "message": "the provider failed without giving a reason",
        "code": "SERVER_ERROR",
    }
    assert failure_of_error({"message": "m", "retry_after_ms": -1, "request_id": 3}) == {
        "message": "m",
        "code": "SERVER_ERROR",
    }


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2000),
        ({"retry-after": "0.25"}, 250),
        ({"retry-after": "0"}, 0),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "1e300"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1500),
        ({"retry-after-ms": "x", "retry-after": "9"}, 9000),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 90_000),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:05 GMT"}, 0),
    ],
)
def test_the_time_to_wait_is_read_in_every_form(headers: dict[str, str], wait: int | None) -> None:
    assert retry_after_ms(headers, lambda: 10.0) == wait


def test_a_date_is_measured_from_now_by_default() -> None:
    assert retry_after_ms({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}) == 0


def test_headers_give_the_wait_and_the_request_id() -> None:
    found = described(429, {"message": "slow"}, retry_after="3", x_request_id="r1", x_ds_trace_id="t1")
    assert found == {
        "message": "slow",
        "code": "RATE_LIMIT",
        "status": 429,
        "providerRetryAfterMs": 3000,
        "requestId": "r1",
    }
    assert list(found) == ["message", "code", "status", "providerRetryAfterMs", "requestId"]
    assert described(500, x_ds_trace_id="t1")["requestId"] == "t1"


def test_secrets_never_get_into_a_message() -> None:
    body = jsontext.dumps(
        {"error": {"message": "bad key hunter2hunter2, sk-abcdef0123456789 in Bearer xyz.abc/1"}}
    )
    message = failure_of_response(401, {}, body, secrets=["hunter2hunter2", ""])["message"]
    assert message == "bad key [redacted], [redacted] in Bearer [redacted]"
    assert (
        redacted("risk-averse-people take a task-oriented view")
        == "risk-averse-people take a task-oriented view"
    )


@pytest.mark.parametrize("code", KNOWN_CODES)
def test_every_known_failure_survives_an_answer_and_a_stream(code: str) -> None:
    failure = {"message": "m", "code": code}
    assert failure_of_error(error_of_failure(failure)) == failure
    status, headers, body = response_of_failure(failure)
    assert failure_of_response(status, headers, body) == {**failure, "status": status}
    assert headers["content-type"] == "application/json"
    kind = "invalid_request_error" if status < 500 else "server_error"
    assert jsontext.loads(body)["error"]["type"] == kind


def test_the_details_of_a_failure_are_told_as_well() -> None:
    failure = {
        "message": "m",
        "code": "RATE_LIMIT",
        "status": 420,
        "providerRetryAfterMs": 5,
        "requestId": "r",
    }
    assert failure_of_error(error_of_failure(failure)) == failure
    status, headers, body = response_of_failure(failure)
    assert status == 420
    assert headers["retry-after-ms"] == "5"
    assert headers["x-request-id"] == "r"
    assert failure_of_response(status, headers, body) == failure
    assert failure_of_response(status, {}, body) == failure


def test_a_code_of_somebody_else_is_told_as_it_is() -> None:
    status, _, body = response_of_failure({"message": "m", "code": "ODD"})
    assert status == 500
    assert jsontext.loads(body)["error"]["code"] == "ODD"


def test_the_table_in_the_documentation_is_complete() -> None:
    assert errors.__doc__ is not None
    missing = [code for code in KNOWN_CODES if f" {code}" not in errors.__doc__]
    assert missing == []
