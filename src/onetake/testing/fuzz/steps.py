"""The script of one run of the fuzzer: what its client does, and what its model answers.

A script is data, so that Hypothesis can shrink it, a file can keep it, and a run can repeat it. It says
nothing that depends on an agent's answers: a session is a number that is taken modulo the sessions that are
open, and a step that makes no sense at its place does nothing. So every part of a script is a script.
"""

from __future__ import annotations

from typing import Any

import msgspec

from onetake.errors import UsageError
from onetake.gateway.script import MockScript, parse_script


class _Step(msgspec.Struct, frozen=True, tag_field="op", rename="camel", forbid_unknown_fields=True):
    """A thing that the client does."""


class NewSession(_Step, frozen=True, tag="newSession"):
    """Open one more session."""


class Prompt(_Step, frozen=True, tag="prompt"):
    """Send a prompt and go on; the session's prompt before it is waited for first."""

    session: int
    content: list[dict[str, Any]]


class Cancel(_Step, frozen=True, tag="cancel"):
    """Cancel a session, whether a prompt is in flight or not."""

    session: int


class Settle(_Step, frozen=True, tag="settle"):
    """Wait for the answer to the session's prompt; one that nothing else can end is cancelled."""

    session: int


class Pause(_Step, frozen=True, tag="pause"):
    """Do nothing for some milliseconds."""

    ms: int


class AwaitModel(_Step, frozen=True, tag="awaitModel"):
    """Wait until the model was asked anew since the last prompt, or every prompt is answered."""


class Stray(_Step, frozen=True, tag="stray"):
    """Send what no agent knows: see `STRAYS`."""

    what: str


class Restart(_Step, frozen=True, tag="restart"):
    """End the agent, at the end of its input (`eof`) or by force (`kill`), and start it again.

    What it had open is loaded again where it offers that; if nothing is open then, a session is.
    """

    how: str


Step = NewSession | Prompt | Cancel | Settle | Pause | AwaitModel | Stray | Restart

HELLO: list[dict[str, Any]] = [{"type": "text", "text": "hello"}]
"""The plainest prompt."""
STRAYS = ("request", "notification", "prompt", "cancel")
"""A request and a notification of an unknown method; a prompt and a cancel for an unknown session."""
ENDINGS = ("eof", "kill")
ANSWERS = ("allow_once", "allow_always", "reject_once", "reject_always", "cancelled", "held")
"""What a permission question gets: an option of that kind, or `cancelled`; a `held` one is answered only when
its session's prompt is cancelled, with `cancelled`, as the protocol asks."""


class Case(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One run: the first session is there before the first step."""

    steps: list[Step] = []
    permission_answers: list[str] = []
    """Used up one by one; after the last every question gets `allow_once`."""
    replies: list[dict[str, Any]] = []
    """The model's answers, in the order in which it is asked; then it says `done` to everything."""

    @property
    def model(self) -> MockScript:
        """What the mock model follows. Raises UsageError for a reply that is not well-formed."""
        return parse_script(self.model_script, "the model's script")

    @property
    def model_script(self) -> dict[str, Any]:
        """The same as a JSON value, as `onetake mock-model` reads it."""
        last = {"repeat": True, "reply": {"text": "done"}}
        return {"replies": [*({"reply": reply} for reply in self.replies), last]}


def read_case(script: Any, model: Any, name: str) -> Case:
    """Make a case of the values of its two files. Raises UsageError naming `name` and what is wrong."""
    parse_script(model, f"{name}/mock-model.json")
    replies = [scripted["reply"] for scripted in model["replies"] if not scripted.get("repeat")]
    try:
        case = msgspec.convert({**script, "replies": replies}, Case)
    except (msgspec.ValidationError, TypeError) as error:
        raise UsageError(f"{name}/input.json: {error}; it is not what `onetake fuzz` saved") from error
    for number, step in enumerate(case.steps, 1):
        value, known = _choice(step)
        if value not in known:
            raise UsageError(f"{name}/input.json: step {number}: {value!r} is none of {', '.join(known)}")
    for answer in case.permission_answers:
        if answer not in ANSWERS:
            raise UsageError(
                f"{name}/input.json: permissionAnswers: {answer!r} is none of {', '.join(ANSWERS)}"
            )
    return case


def _choice(step: Step) -> tuple[str, tuple[str, ...]]:
    """The word in a step that is one of few, and which these are; any word where there is none."""
    if isinstance(step, Stray):
        return step.what, STRAYS
    return (step.how, ENDINGS) if isinstance(step, Restart) else ("", ("",))
