"""JSON-RPC 2.0 over lines, without I/O: bytes into messages, results and errors into frames.

A frame is one line that ends at `\\n` and nothing else. Lines may be of any length. What cannot be understood
becomes an `RpcError` with the code that the specification gives it; the connection goes on.
"""

from __future__ import annotations

from typing import Any

import msgspec

from onetake import jsontext

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

Id = str | int | None


class RpcError(Exception):
    """A request that is answered with an error."""

    def __init__(self, code: int, message: str, *, id: Id = None) -> None:
        super().__init__(message)
        self.code = code
        self.id = id
        """The id of the request, as far as it could be read; set by `parse` only."""


def invalid_params(what: str) -> RpcError:
    """The error for parameters that a method cannot take."""
    return RpcError(INVALID_PARAMS, f"Invalid params: {what}")


def invalid_request(what: str, *, id: Id = None) -> RpcError:
    """The error for a frame that is no request, or for a request that may not be made now."""
    return RpcError(INVALID_REQUEST, f"Invalid request: {what}", id=id)


class Incoming(msgspec.Struct, frozen=True):
    """A request, or a notification when `is_request` is false."""

    method: str
    params: dict[str, Any]
    is_request: bool
    id: Id = None


def parse(line: bytes) -> Incoming | None:
    """Read one line; None for an empty line and for responses (we ask nothing yet). Raises RpcError."""
    if not line.strip():
        return None
    try:
        frame = jsontext.loads(line)
    except ValueError as error:
        raise RpcError(PARSE_ERROR, f"Parse error: {error}") from error
    if not isinstance(frame, dict):
        raise invalid_request("a frame must be a JSON object")
    raw_id = frame.get("id")
    known_id: Id = raw_id if isinstance(raw_id, str | int) and not isinstance(raw_id, bool) else None
    if "id" in frame and raw_id is not None and known_id is None:
        raise invalid_request("id must be a string, an integer or null")
    if frame.get("jsonrpc") != "2.0":
        raise invalid_request('jsonrpc must be "2.0"', id=known_id)
    method = frame.get("method")
    if method is None and ("result" in frame or "error" in frame):
        return None
    if not isinstance(method, str):
        raise invalid_request("method must be a string", id=known_id)
    params = frame.get("params")
    if params is None:
        params = {}
    if not isinstance(params, dict):
        if "id" not in frame:
            return None
        raise RpcError(INVALID_PARAMS, "Invalid params: params must be an object", id=known_id)
    return Incoming(method, params, "id" in frame, known_id)


def result_frame(id: Id, result: Any) -> dict[str, Any]:
    """The answer to a request."""
    return {"jsonrpc": "2.0", "id": id, "result": result}


def error_frame(id: Id, code: int, message: str) -> dict[str, Any]:
    """The refusal of a request."""
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}


def notification_frame(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """A frame that nobody answers."""
    return {"jsonrpc": "2.0", "method": method, "params": params}


def encode(frame: dict[str, Any]) -> bytes:
    """A frame as one line."""
    return jsontext.dumps(frame) + b"\n"
