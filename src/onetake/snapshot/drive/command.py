"""Drive a program that is run, prints text and ends: any program that calls a model, in any language.

Each step runs the program once: `run` with further arguments, text on stdin and the exit code that it must
end with; `prompt` with a text, in place of `{prompt}` in the command, or on stdin. All of them work in the
same workspace and HOME, one after the other. What is printed on stdout is compared line by line, and so is
how each run ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from onetake import jsontext
from onetake.errors import UsageError
from onetake.fixture.normalize import Rules
from onetake.snapshot.drive.base import Driver, ended, tag
from onetake.snapshot.drive.process import Launch
from onetake.snapshot.render.transcript import Transcript
from onetake.snapshot.suites import ops

_EXIT = b"\0exit "
"""How a frame begins that is no line of stdout but the end of a run."""


class CommandDriver(Driver):
    """The one who runs a program and reads what it prints."""

    known_ops = (ops.Run, ops.Prompt, ops.PromptExpectError)

    @classmethod
    def check(cls, script: ops.Script, place: str) -> None:
        """Nobody is asked for permissions."""
        super().check(script, place)
        if script.permission_answers:
            raise UsageError(f"{place}: permissionAnswers: the command driver is never asked")

    @staticmethod
    def render(
        frames: Sequence[bytes], tokenize: Callable[[Any], Any], rules: Rules, *, joined: bool
    ) -> Transcript:
        """A record per line of text, and one per end of a run."""
        records = [_record(frame) for frame in frames]
        return Transcript(b"".join(jsontext.dumps(tokenize(rules.apply(r))) + b"\n" for r in records), [])

    async def _begin(self) -> None:
        """Nothing: it is a step that starts the program."""

    async def _step(self, step: ops.Step) -> None:
        match step:
            case ops.Run(args=args, stdin=stdin, exit_code=code):
                await self._run(args, stdin, None, code, tag(ops.Run))
            case ops.Prompt(text=text):
                await self._run([], text, text, 0, tag(ops.Prompt))
            case _:
                assert isinstance(step, ops.PromptExpectError), "`check` refuses everything else"
                await self._run([], step.text, step.text, None, tag(ops.PromptExpectError))

    async def _finish(self) -> None:
        """Each step has ended what it started."""

    async def _run(
        self, args: list[str], stdin: str, prompt: str | None, wanted: int | None, what: str
    ) -> None:
        """Run the program once; `wanted` is its exit code, None: any but 0."""
        base = self._launch
        launch = Launch([*base.command, *args], base.env, base.cwd, base.stderr)
        placed = prompt is not None and launch.takes_prompt
        process = self._process = launch.start(self.frames.append, prompt=prompt if placed else None)
        if not placed and stdin:
            process.send(stdin.encode("utf-8", "surrogatepass"))
        process.close_stdin()
        timeout = self._timeouts.prompt
        code = self.exit_code = await self._await(
            process.exited, "the end of the program", timeout, dies=True
        )
        self.left_running += process.left_running
        if process.partial:
            self.frames.append(process.partial)  # a last line without its end is a line all the same
        self.frames.append(_EXIT + str(code).encode())
        failed = code == 0 if wanted is None else code != wanted
        if failed:
            meant = "was to fail" if wanted is None else f"was to exit with code {wanted}"
            raise self._failure(f"the program {meant}, but {ended(code)}", 3 if code < 0 else 1)
        self._gone()


def _record(frame: bytes) -> dict[str, Any]:
    if frame.startswith(_EXIT):
        return {"exit": int(frame[len(_EXIT) :])}
    return {"line": frame.decode("utf-8", "replace").removesuffix("\r")}
