"""Reports to the runner that a replay left its recording.

They go out of band, to a file that the runner names, because everything else can lie: the agent may retry
the failed call, report an error that a scenario expects anyway, or be killed. A violation is on disk before
the agent learns of it.
"""

from __future__ import annotations

import os
from typing import Any

from onetake import jsontext
from onetake.model.failures import Failure, failure

REPLAY_VIOLATION = "REPLAY_VIOLATION"
"""The failure code of a call that the recording does not answer; no retry policy may list it."""

EXTRA_CALL = "extra-call"
"""More calls than the recording of the session holds."""
UNBOUND_SESSION = "unbound-session"
"""A session that has no place in the recording."""
UNKNOWN_TOKEN = "unknown-token"
"""The recorded answer repeats a value that the live run has not produced."""
NO_MATCH = "no-match"
"""A `{{fromRequest:REGEX}}` of an override that finds nothing in the live request."""
READY_FILE = "ready-file"
"""The `readyFile` of a hanging call cannot be written."""


def report(path: str, violation: dict[str, Any]) -> Failure:
    """Append a violation to the runner's file and return the failure that the agent gets.

    `violation` has `kind`, `session`, `call`, `message`, `nearest`. The line is on disk on return; without a
    file (an empty path) only the failure tells.
    """
    if path:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(descriptor, jsontext.dumps(violation) + b"\n")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    return failure(violation["message"], REPLAY_VIOLATION)
