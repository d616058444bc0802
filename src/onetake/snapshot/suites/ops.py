"""The script of a scenario: `input.json`, decoded strictly into typed ops.

Each op is its own small record, so that an unknown op or a misspelt field is refused when the suite is
read, with the file and the place, and not met (or worse, ignored) in the middle of a run.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_args

import msgspec

from onetake import jsontext
from onetake.errors import UsageError

Positive = Annotated[int, msgspec.Meta(gt=0)]


class _Op(msgspec.Struct, tag_field="op", forbid_unknown_fields=True, frozen=True, rename="camel"):
    pass


class WaitedFile(msgspec.Struct, forbid_unknown_fields=True, frozen=True, rename="camel"):
    """A file that has to appear in the workspace."""

    path: str
    """Relative to the workspace."""
    timeout_ms: Positive | None = None
    """How long to wait, in milliseconds; else as long as every wait."""


class Initialize(_Op, tag="initialize", frozen=True):
    """Handshake; `terminalOutput` offers the client capability of that name."""

    terminal_output: bool = False


class NewSession(_Op, tag="newSession", frozen=True):
    """Open a session in the workspace; later ops speak to the session opened last."""


class NewSessionExpectError(_Op, tag="newSessionExpectError", frozen=True):
    """Ask for a session that the agent must refuse."""

    additional_directories: list[str] | None = None


class Prompt(_Op, tag="prompt", frozen=True):
    """Send text and wait for the answer."""

    text: str


class Run(_Op, tag="run", frozen=True):
    """Run the program once (driver `command`)."""

    args: list[str] = []
    """Arguments behind those of the suite's command."""
    stdin: str = ""
    """What it reads."""
    exit_code: int = 0
    """How it must end."""


class PromptContent(_Op, tag="promptContent", frozen=True):
    """Send content blocks as they are and wait for the answer."""

    content: list[Any]


class PromptExpectError(_Op, tag="promptExpectError", frozen=True):
    """Send text; the answer must be an error."""

    text: str


class PromptAndCancel(_Op, tag="promptAndCancel", frozen=True):
    """Send text, wait for the file when one is named, cancel, and wait for the answer."""

    text: str
    wait_for_file: WaitedFile | None = None


class PromptAndWaitForAgentMessage(_Op, tag="promptAndWaitForAgentMessage", frozen=True):
    """Send text, and go on once the agent has said `waitForText`, before the answer comes."""

    text: str
    wait_for_text: str


class Cancel(_Op, tag="cancel", frozen=True):
    """Cancel the current session, after the named file appeared."""

    wait_for_file: WaitedFile | None = None


class WaitForFile(_Op, tag="waitForFile", frozen=True):
    """Wait until a file of the workspace exists."""

    path: str
    timeout_ms: Positive | None = None


class WaitForUpdate(_Op, tag="waitForUpdate", frozen=True):
    """Wait until the agent has sent a session update of this kind, such as `available_commands_update`."""

    kind: str


class WaitForTurnStart(_Op, tag="waitForTurnStart", frozen=True):
    """Wait until the log holds a `turn/start` of at least this turn."""

    minimum_turn: Positive = 1


class WaitForTurnEnd(_Op, tag="waitForTurnEnd", frozen=True):
    """Wait until the last turn that started has ended."""


class WaitForEventAfterTurnEnd(_Op, tag="waitForEventAfterTurnEnd", frozen=True):
    """Wait for an event of this type after the last `turn/end`."""

    type: str


class WaitForInboxMessage(_Op, tag="waitForInboxMessage", frozen=True):
    """Wait until a message with this text was put into the inbox."""

    text: str


class WaitForSubagentTurnEnd(_Op, tag="waitForSubagentTurnEnd", frozen=True):
    """Wait until a child session ended a turn; `child` counts from 1 (absent: any child)."""

    child: Positive | None = None
    minimum_turn: Positive = 1


class WaitForIdle(_Op, tag="waitForIdle", frozen=True):
    """Wait until every session is idle, as after the last step: notices of sub-agents included."""


class Kill(_Op, tag="kill", frozen=True):
    """Send a signal to the agent and wait until it is gone."""

    signal: str = "SIGKILL"


class Restart(_Op, tag="restart", frozen=True):
    """Start the agent again over the same store and workspace."""


class ResumeSession(_Op, tag="resumeSession", frozen=True):
    """Load the current session in the agent that runs now."""


Step = (
    Initialize
    | NewSession
    | NewSessionExpectError
    | Run
    | Prompt
    | PromptContent
    | PromptExpectError
    | PromptAndCancel
    | PromptAndWaitForAgentMessage
    | Cancel
    | WaitForFile
    | WaitForUpdate
    | WaitForTurnStart
    | WaitForTurnEnd
    | WaitForEventAfterTurnEnd
    | WaitForInboxMessage
    | WaitForSubagentTurnEnd
    | WaitForIdle
    | Kill
    | Restart
    | ResumeSession
)


class PermissionAnswer(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The option kind that answers the next permission request."""

    kind: str
    """The kind of one of the options that the agent will offer (`allow_once`, say)."""


class Script(msgspec.Struct, forbid_unknown_fields=True, frozen=True, rename="camel"):
    """The whole of `input.json`."""

    steps: list[Step]
    """What happens, in order; each step has an `op`."""
    permission_answers: list[PermissionAnswer] = []
    """What the agent's permission requests are answered, in order; when none is left: `cancelled`."""


LogStep = (
    WaitForTurnStart
    | WaitForTurnEnd
    | WaitForEventAfterTurnEnd
    | WaitForInboxMessage
    | WaitForSubagentTurnEnd
    | WaitForIdle
)
"""Ops that wait for something in the session log; `check` refuses them for agents without one."""

_OPS = [op.__struct_config__.tag for op in get_args(Step)]


def load_script(path: Path) -> Script:
    """Decode `input.json`. Raises `UsageError` with file and place."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot read the script of the scenario: {error.strerror}") from error
    return _decoded(lambda: jsontext.loads_strict(raw), str(path), raw)


def script_from(value: Any, place: str) -> Script:
    """The script that a value of the shape of `input.json` means. Raises `UsageError` that names `place`."""
    return _decoded(lambda: value, place)


def _decoded(load: Callable[[], Any], place: str, raw: bytes = b"") -> Script:
    try:
        value = load()
        script = msgspec.convert(value, Script)
    except jsontext.JsonError as error:
        raise UsageError(f"{place}: {error.in_lines(raw)}") from error
    except msgspec.ValidationError as error:
        from onetake.snapshot.suites.hints import unknown_key_hint, unknown_op_hint

        hint = unknown_key_hint(value, Script) if "unknown field" in str(error) else ""
        if str(error).endswith(".op`"):
            hint = unknown_op_hint(value, _OPS)
        raise UsageError(f"{place}: {error}{hint}") from error
    if not script.steps:
        raise UsageError(f"{place}: `steps` is empty, so the scenario would test nothing")
    return script
