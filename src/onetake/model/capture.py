"""Every model request in full, written down where it leaves the harness.

The runner names the file and compares what it finds there: the one place where a dropped reasoning block or
an unlogged injection cannot hide. A line is written before the provider is asked, so that a call that kills
the process is seen too. Lines are also how a restarted process learns how many calls came before it.
"""

from __future__ import annotations

import os
from pathlib import Path

from onetake import jsontext
from onetake.errors import UsageError
from onetake.model.request import ModelRequest


class RequestCapture:
    """Appends requests to a file, one JSON line each, each line with a single write that survives `kill -9`.

    A line that an earlier process could not finish is cut off: its provider was never asked. One process
    writes a file at a time.
    """

    def __init__(self, path: Path) -> None:
        self._file: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        complete = path.read_bytes().rfind(b"\n") + 1
        os.ftruncate(self._file, complete)

    def __call__(self, request: ModelRequest) -> None:
        """Write one request down; raises OSError when that fails, `RuntimeError` after `close`."""
        if self._file is None:
            raise RuntimeError("the request capture is closed")
        record = {
            "session": request.session_id,
            "call": request.call,
            "purpose": request.purpose,
            "config": request.config,
            "system": request.system,
            "tools": request.tools,
            "messages": request.messages,
        }
        line = memoryview(jsontext.dumps(record) + b"\n")
        while line:
            line = line[os.write(self._file, line) :]

    def close(self) -> None:
        """Close the file; closing twice is fine."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def counts(path: Path) -> dict[str, int]:
    """Return how many calls of each session a captured file holds; a missing file holds none.

    An unfinished last line does not count (see `RequestCapture`). Raises UsageError, naming the line, when a
    finished line is not a captured request.
    """
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return {}
    found: dict[str, int] = {}
    for number, line in enumerate(raw.split(b"\n")[:-1], 1):
        try:
            session = jsontext.loads(line)["session"]
            found[session] = found.get(session, 0) + 1
        except (ValueError, TypeError, KeyError) as error:
            raise UsageError(f"{path}:{number}: not a captured model request ({error})") from error
    return found
