"""What an HTTP error of a model endpoint means, as a failure; and the answer of a server for a failure.

Providers agree on little: the status says one thing, the body's `type` or `code` another, the reason
sometimes stands in the message alone. One table decides, in both directions:

| failure code            | read from                                      | written as                    |
|-------------------------|------------------------------------------------|-------------------------------|
| AUTH                    | 401, 403                                       | 401 `invalid_api_key`         |
| INSUFFICIENT_BALANCE    | 402; `insufficient_quota` and kin              | 402 `insufficient_quota`      |
| RATE_LIMIT              | 429                                            | 429 `rate_limit_exceeded`     |
| CONTEXT_WINDOW_EXCEEDED | `context_length_exceeded` and kin; the message | 400 `context_length_exceeded` |
| CONTENT_FILTER          | `content_filter`, `content_policy_violation`   | 400 `content_filter`          |
| NOT_FOUND               | 404                                            | 404 `not_found`               |
| TIMEOUT                 | 408, 504                                       | 504 `timeout`                 |
| OVERLOADED              | 503, 529                                       | 503 `overloaded`              |
| SERVER_ERROR            | every other 5xx                                | 500 `server_error`            |
| BAD_REQUEST             | every other 4xx                                | 400 `bad_request`             |
| MALFORMED_STREAM        | anything else that is no success (redirects)   | 502 `malformed_stream`        |
| ABORTED, EMPTY_RESPONSE | never from a status                            | 502, the code in lower case   |
| NETWORK, STREAM_CLOSED  | never from a status                            | 502, the code in lower case   |

MISSING_CREDENTIAL is the adapter's own: there was no key to ask with.
The error object's `code` or `type`, where it is one of the words in the third column, counts before the
status: inside a stream it is all there is. A failure that carries its own `status` is written with that
status.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from onetake import jsontext
from onetake.model.failures import (
    ABORTED,
    CONTEXT_WINDOW_EXCEEDED,
    EMPTY_RESPONSE,
    MALFORMED_STREAM,
    STREAM_CLOSED,
    TIMEOUT,
    Failure,
    failure,
)

AUTH = "AUTH"
INSUFFICIENT_BALANCE = "INSUFFICIENT_BALANCE"
RATE_LIMIT = "RATE_LIMIT"
CONTENT_FILTER = "CONTENT_FILTER"
NOT_FOUND = "NOT_FOUND"
OVERLOADED = "OVERLOADED"
SERVER_ERROR = "SERVER_ERROR"
BAD_REQUEST = "BAD_REQUEST"
NETWORK = "NETWORK"
MISSING_CREDENTIAL = "MISSING_CREDENTIAL"

_WRITTEN: dict[str, tuple[int, str]] = {
    AUTH: (401, "invalid_api_key"),
    INSUFFICIENT_BALANCE: (402, "insufficient_quota"),
    RATE_LIMIT: (429, "rate_limit_exceeded"),
    CONTEXT_WINDOW_EXCEEDED: (400, "context_length_exceeded"),
    CONTENT_FILTER: (400, "content_filter"),
    NOT_FOUND: (404, "not_found"),
    TIMEOUT: (504, "timeout"),
    OVERLOADED: (503, "overloaded"),
    SERVER_ERROR: (500, "server_error"),
    BAD_REQUEST: (400, "bad_request"),
    MALFORMED_STREAM: (502, "malformed_stream"),
    ABORTED: (502, "aborted"),
    EMPTY_RESPONSE: (502, "empty_response"),
    NETWORK: (502, "network"),
    STREAM_CLOSED: (502, "stream_closed"),
}
KNOWN_CODES = tuple(_WRITTEN)
"""The failure codes that survive being written and read again."""

_BY_WORD = {word: code for code, (_, word) in _WRITTEN.items()} | {
    "insufficient_balance": INSUFFICIENT_BALANCE,
    "context_window_exceeded": CONTEXT_WINDOW_EXCEEDED,
    "context_exceeded": CONTEXT_WINDOW_EXCEEDED,
    "exceed_context_size_error": CONTEXT_WINDOW_EXCEEDED,
    "content_policy_violation": CONTENT_FILTER,
    "authentication_error": AUTH,
    "rate_limit_error": RATE_LIMIT,
    "overloaded_error": OVERLOADED,
    "permission_error": AUTH,
    "billing_error": INSUFFICIENT_BALANCE,
    "not_found_error": NOT_FOUND,
    "timeout_error": TIMEOUT,
    "request_too_large": BAD_REQUEST,
}
_BY_STATUS = {
    401: AUTH,
    402: INSUFFICIENT_BALANCE,
    403: AUTH,
    404: NOT_FOUND,
    408: TIMEOUT,
    429: RATE_LIMIT,
    503: OVERLOADED,
    504: TIMEOUT,
    529: OVERLOADED,
}
_TOO_LONG = re.compile(
    r"maximum context length|context (?:length|window|size|limit)[^.]{0,40}exceed"
    r"|exceeds? [^.]{0,40}context (?:length|window|size|limit)|prompt is too long|input is too long",
    re.IGNORECASE,
)
_REQUEST_IDS = ("x-request-id", "request-id", "x-ds-trace-id")
_KEY_SHAPE = re.compile(r"(?<![A-Za-z0-9])(?:sk|pk|rk)-[A-Za-z0-9_-]{8,}|(?<=Bearer )[!-~]+", re.IGNORECASE)
_MOST_TEXT = 2000
"""Characters of a provider's answer that a message may hold: error pages can be long."""


def failure_of_response(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    secrets: Iterable[str] = (),
    now: Callable[[], float] | None = None,
) -> Failure:
    """Describe an HTTP answer that is no success.

    `headers` are looked up by lower-case names. `secrets` and everything of a key's shape are kept out of the
    message. `now` gives the time in seconds since the epoch, for a `Retry-After` that is a date.
    """
    described = failure_of_error(_error_of(body), status=status, secrets=secrets)
    wait = retry_after_ms(headers, now)
    request_id = next((headers[name] for name in _REQUEST_IDS if headers.get(name)), None)
    return failure(
        described["message"],
        described["code"],
        status=status,
        provider_retry_after_ms=described.get("providerRetryAfterMs") if wait is None else wait,
        request_id=described.get("requestId") if request_id is None else request_id,
    )


def failure_of_error(error: Any, *, status: int | None = None, secrets: Iterable[str] = ()) -> Failure:
    """Describe the `error` value of an answer or of a stream: an object, or just a text.

    A numeric `code` or a `status` in the object counts as the HTTP status when none is given.
    """
    details = error if isinstance(error, dict) else {"message": error}
    if status is None:
        status = next((n for key in ("status", "code") if type(n := details.get(key)) is int), None)
    text = details.get("message")
    message = text if isinstance(text, str) and text.strip() else _unexplained(status)
    return failure(
        redacted(message[:_MOST_TEXT], secrets),
        _code_of(details.get("code"), details.get("type"), status, message),
        status=status,
        provider_retry_after_ms=_whole(details.get("retry_after_ms")),
        request_id=details["request_id"] if isinstance(details.get("request_id"), str) else None,
    )


def error_of_failure(described: Failure) -> dict[str, Any]:
    """Return the error object for a failure, as it stands in an answer's body or in a stream.

    A code that the table does not know is written as it is, and read back as whatever its status says.
    """
    status, word = _WRITTEN.get(described["code"], (500, described["code"]))
    written: dict[str, Any] = {"message": described["message"], "type": _type_of(status), "code": word}
    for name, key in (
        ("status", "status"),
        ("retry_after_ms", "providerRetryAfterMs"),
        ("request_id", "requestId"),
    ):
        if key in described:
            written[name] = described[key]
    return written


def response_of_failure(described: Failure) -> tuple[int, dict[str, str], bytes]:
    """Return the status, the headers and the JSON body with which a server tells a failure."""
    status = described.get("status") or _WRITTEN.get(described["code"], (500, ""))[0]
    headers = {"content-type": "application/json"}
    if "providerRetryAfterMs" in described:
        headers["retry-after-ms"] = str(described["providerRetryAfterMs"])
    if "requestId" in described:
        headers["x-request-id"] = described["requestId"]
    return status, headers, jsontext.dumps({"error": error_of_failure(described)})


def retry_after_ms(headers: Mapping[str, str], now: Callable[[], float] | None = None) -> int | None:
    """Return the milliseconds that a provider asks to wait (`retry-after-ms`, `retry-after`), or None."""
    exact = _number(headers.get("retry-after-ms"))
    if exact is not None:
        return round(exact)
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None:
        return round(seconds * 1000)
    return None if value is None else _until(value, now)


def redacted(text: str, secrets: Iterable[str] = ()) -> str:
    """Return a text without the given secrets and without anything that has the shape of a key."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, "[redacted]")
    return _KEY_SHAPE.sub("[redacted]", text)


def _code_of(code: Any, type_: Any, status: int | None, message: str) -> str:
    # As a type, "server_error" is said of every 5xx, of which the status knows more.
    words = (code, type_ if type_ != "server_error" else None)
    for word in words:
        if isinstance(word, str) and word.lower() in _BY_WORD:
            return _BY_WORD[word.lower()]
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if _TOO_LONG.search(message):
        return CONTEXT_WINDOW_EXCEEDED
    if status is None or 500 <= status < 600:
        return SERVER_ERROR
    return BAD_REQUEST if 400 <= status < 500 else MALFORMED_STREAM


def _type_of(status: int) -> str:
    return "invalid_request_error" if status < 500 else "server_error"


def _unexplained(status: int | None) -> str:
    answered = "failed" if status is None else f"answered HTTP {status}"
    return f"the provider {answered} without giving a reason"


def _error_of(body: bytes) -> Any:
    """Find what a body says about its error; a body of no known form is its own message."""
    text = body.decode("utf-8", "replace").strip()
    try:
        value = jsontext.loads(body)
    except ValueError:
        return text
    if not isinstance(value, dict):
        return text
    if isinstance(value.get("error"), dict):
        return value["error"]
    messages = (value.get(key) for key in ("error", "message", "detail"))
    return {**value, "message": next((message for message in messages if isinstance(message, str)), text)}


def _number(value: str | None) -> float | None:
    try:
        number = float(value) if value is not None else -1.0
    except ValueError:
        return None
    return number if 0 <= number < 1e9 else None


def _whole(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _until(date: str, now: Callable[[], float] | None) -> int | None:
    import time
    from email.utils import parsedate_to_datetime

    try:
        moment = parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):
        return None
    return max(0, round((moment - (now or time.time)()) * 1000))
