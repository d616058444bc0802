"""How a failed model call is described, so that adapters, retries, the log and replay agree on it.

A failure is a plain dictionary because it is logged: `message` (for people), `code` (for programs), and
optionally `status` (the HTTP status), `providerRetryAfterMs` (how long the provider asks to wait) and
`requestId` (the provider's id of the request). Codes are an open set; the constants are those the harness
itself gives or looks for.
"""

from __future__ import annotations

from typing import Any

from onetake.errors import OnetakeError
from onetake.model.types import Chunk

Failure = dict[str, Any]

EMPTY_RESPONSE = "EMPTY_RESPONSE"
STREAM_CLOSED = "STREAM_CLOSED"
TIMEOUT = "TIMEOUT"
CONTEXT_WINDOW_EXCEEDED = "CONTEXT_WINDOW_EXCEEDED"
ABORTED = "ABORTED"
MALFORMED_STREAM = "MALFORMED_STREAM"
UNKNOWN_MODEL = "UNKNOWN_MODEL"
PROVIDER_ERROR = "PROVIDER_ERROR"


class ModelFailure(OnetakeError):
    """A model call failed; `failure` is the description that the log keeps."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure["message"])
        self.failure = failure


def failure(
    message: str,
    code: str,
    *,
    status: int | None = None,
    provider_retry_after_ms: int | None = None,
    request_id: str | None = None,
) -> Failure:
    """Build a failure with its keys in the order in which they are logged; absent details are left out."""
    described: Failure = {"message": message, "code": code}
    if status is not None:
        described["status"] = status
    if provider_retry_after_ms is not None:
        described["providerRetryAfterMs"] = provider_retry_after_ms
    if request_id is not None:
        described["requestId"] = request_id
    return described


def failure_of(error: Exception) -> Failure:
    """Describe an exception that ended a call: a `ModelFailure` knows, others are named by their type."""
    if isinstance(error, ModelFailure):
        return error.failure
    text = str(error)
    name = type(error).__name__
    code = TIMEOUT if isinstance(error, TimeoutError) else PROVIDER_ERROR
    return failure(f"{name}: {text}" if text else name, code)


def error_finish(described: Failure) -> Chunk:
    """Return the terminal chunk that says that the call failed."""
    return {"type": "finish", "reason": {"kind": "error", "failure": described}}
