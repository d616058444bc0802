"""Drive an agent over ACP from a script: one method per op."""

from __future__ import annotations

import asyncio
from typing import Any, get_args

from onetake.snapshot.drive.base import Driver, Timeouts, ended, short
from onetake.snapshot.drive.env import World
from onetake.snapshot.drive.livelog import LiveLogs
from onetake.snapshot.drive.process import Launch
from onetake.snapshot.drive.rpc import Frame, Peer
from onetake.snapshot.render import transcript
from onetake.snapshot.suites import ops

PROTOCOL_VERSION = 1
_LAST_WORDS_S = 0.005
"""How long an agent that ends by itself after its last answer has to show it."""


class AcpDriver(Driver):
    """The client of one agent (and of its successors after `restart`)."""

    known_ops = tuple(op for op in get_args(ops.Step) if op is not ops.Run)
    opening = ({"op": "initialize"}, {"op": "newSession"})
    render = staticmethod(transcript.render_transcript)

    def __init__(
        self, script: ops.Script, world: World, timeouts: Timeouts, launch: Launch, logs: LiveLogs
    ) -> None:
        super().__init__(script, world, timeouts, launch, logs)
        self._peer = Peer(send=self._send, on_request=self._asked, on_notification=self._told)
        self.frames, self.stray = self._peer.frames, self._peer.stray
        self.unused_answers = list(script.permission_answers)
        self._capabilities: Frame = {}
        self._open_prompts: dict[str, asyncio.Future[Frame]] = {}
        self._said: dict[str, str] = {}
        self._updates: set[str] = set()
        self._refused: str | None = None

    async def _begin(self) -> None:
        self._process = self._launch.start(self._peer.feed)

    async def _step(self, step: ops.Step) -> None:
        match step:
            case ops.Initialize(terminal_output=terminal):
                await self._initialize(terminal)
            case ops.NewSession():
                result = await self._result("session/new", self._new_session_params(None))
                self.session_ids.append(self._string(result, "sessionId", "session/new"))
            case ops.NewSessionExpectError(additional_directories=directories):
                await self._error("session/new", self._new_session_params(directories))
            case ops.Prompt(text=text):
                await self._settle(await self._prompt([{"type": "text", "text": text}]))
            case ops.PromptContent(content=content):
                await self._settle(await self._prompt(content))
            case ops.PromptExpectError(text=text):
                session = await self._prompt([{"type": "text", "text": text}])
                frame = await self._answer_to_prompt(session)
                if "error" not in frame:
                    raise self._failure(f"the prompt was to fail, but was answered with {short(frame)}")
            case ops.PromptAndCancel(text=text, wait_for_file=waited):
                session = await self._prompt([{"type": "text", "text": text}])
                if waited is not None:
                    await self._wait_for_file(
                        waited.path, waited.timeout_ms, unless=self._open_prompts[session]
                    )
                self._peer.notify("session/cancel", {"sessionId": session})
                await self._settle(session)
            case ops.PromptAndWaitForAgentMessage(text=text, wait_for_text=wanted):
                session = await self._prompt([{"type": "text", "text": text}])
                await self._wait_for_message(session, wanted)
            case ops.Cancel(wait_for_file=waited):
                if waited is not None:
                    await self._wait_for_file(waited.path, waited.timeout_ms)
                self._peer.notify("session/cancel", {"sessionId": self._session()})
            case ops.WaitForFile(path=path, timeout_ms=timeout_ms):
                await self._wait_for_file(path, timeout_ms)
            case ops.WaitForUpdate(kind=kind):
                what = f"a session update {kind!r}"
                await self._poll(lambda: kind in self._updates, what, self._timeouts.wait)
            case ops.Kill(signal=name):
                await self._kill(name)
                self._gone()
            case ops.Restart():
                await self._restart()
            case ops.ResumeSession():
                await self._resume()
            case _:
                assert not isinstance(step, ops.Run), "`check` refuses it"
                await self._wait_for_log(step)

    async def _initialize(self, terminal_output: bool) -> None:
        capabilities: Frame = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
        if terminal_output:
            capabilities["_meta"] = {"terminal_output": True}
        params = {"protocolVersion": PROTOCOL_VERSION, "clientCapabilities": capabilities}
        result = await self._result("initialize", params)
        offered = result.get("agentCapabilities")
        self._capabilities = offered if isinstance(offered, dict) else {}

    def _new_session_params(self, additional_directories: list[str] | None) -> Frame:
        params: Frame = {"cwd": str(self._world.cwd), "mcpServers": []}
        if additional_directories is not None:
            params["additionalDirectories"] = additional_directories
        return params

    async def _prompt(self, content: list[Any]) -> str:
        """Send a prompt to the current session, after its previous one was answered; the session's id."""
        session = self._session()
        if session in self._open_prompts:
            await self._settle(session)
        self._said[session] = ""
        self._open_prompts[session] = self._peer.request(
            "session/prompt", {"sessionId": session, "prompt": content}
        )
        return session

    async def _answer_to_prompt(self, session: str) -> Frame:
        future = self._open_prompts[session]
        frame = await self._await(future, "the answer to session/prompt", self._timeouts.prompt)
        del self._open_prompts[session]
        return frame

    async def _settle(self, session: str) -> None:
        """Wait for the answer to the open prompt; an error is a failure."""
        frame = await self._answer_to_prompt(session)
        if "error" in frame:
            raise self._failure(_refusal("session/prompt", frame))

    async def _restart(self) -> None:
        if self._process is not None:
            await self._shut_down()
        self._logs.process_ended()
        await self._begin()

    def _gone(self) -> None:
        super()._gone()
        self._open_prompts.clear()
        self._peer.forget()

    async def _resume(self) -> None:
        self._logs.resumed(self._session())
        params = {"sessionId": self._session(), "cwd": str(self._world.cwd), "mcpServers": []}
        extra = self._capabilities.get("sessionCapabilities")
        if self._capabilities.get("loadSession"):
            await self._result("session/load", params)
        elif isinstance(extra, dict) and "resume" in extra:
            await self._result("session/resume", params)
        else:
            raise self._failure("the agent offers neither `loadSession` nor `sessionCapabilities.resume`")

    async def _wait_for_message(self, session: str, wanted: str) -> None:
        def said() -> bool:
            answer = self._open_prompts[session]
            if answer.done() and "error" in answer.result():
                raise self._failure(_refusal("session/prompt", answer.result()))
            return wanted in self._said[session]

        await self._poll(said, f"an agent message with {wanted!r}", self._timeouts.prompt)

    async def _finish(self) -> None:
        """All prompts answered, all sessions idle, stdin closed, exit 0."""
        if self._process is None:
            return
        for session in list(self._open_prompts):
            await self._settle(session)
        await self._wait_until_idle()
        await self._shut_down()

    async def _shut_down(self) -> None:
        process = self._running()
        await asyncio.wait([process.exited], timeout=_LAST_WORDS_S)
        if process.exited.done():
            code = process.exited.result()
            raise self._failure(f"the agent {ended(code)} by itself, before the end of its input", 3)
        process.close_stdin()
        if not self._launch.ends_with_input:
            await process.end_group()
            self.exit_code = process.exited.result()
            self._refuse_half_line(process)
            self._gone()
            return
        code = await self._exit("the agent to exit after the end of its input")
        if code != 0:
            raise self._failure(f"the agent {ended(code)} after the end of its input; it must exit with 0", 3)
        self._refuse_half_line(process)
        self._gone()

    async def _answer(self, method: str, params: Frame) -> Frame:
        self._running()
        future = self._peer.request(method, params)
        return await self._await(future, f"the answer to {method}", self._timeouts.wait)

    async def _result(self, method: str, params: Frame) -> Frame:
        frame = await self._answer(method, params)
        result = frame.get("result")
        if "error" in frame or "result" not in frame:
            raise self._failure(_refusal(method, frame))
        return result if isinstance(result, dict) else {}

    async def _error(self, method: str, params: Frame) -> None:
        frame = await self._answer(method, params)
        if "error" not in frame:
            raise self._failure(f"{method} was to be refused, but was answered with {short(frame)}")

    def _send(self, data: bytes) -> None:
        if self._process is not None:
            self._process.send(data)

    def _told(self, method: str, params: Any) -> None:
        """A notification: collect what the agent says."""
        if method != "session/update" or not isinstance(params, dict):
            return
        update = params.get("update")
        if isinstance(update, dict):
            self._updates.add(str(update.get("sessionUpdate")))
        if isinstance(update, dict) and update.get("sessionUpdate") == "agent_message_chunk":
            content = update.get("content")
            session = str(params.get("sessionId"))
            if isinstance(content, dict) and isinstance(content.get("text"), str):
                self._said[session] = self._said.get(session, "") + content["text"]

    def _asked(self, method: str, params: Any) -> Frame:
        """A request of the agent: permission questions are answered from the script, all else is refused."""
        if method != "session/request_permission":
            return {"error": {"code": -32601, "message": f"Method not found: {method}"}}
        if not self.unused_answers:
            return {"result": {"outcome": {"outcome": "cancelled"}}}
        kind = self.unused_answers.pop(0).kind
        options = params.get("options") if isinstance(params, dict) else None
        offered = (
            [option for option in options if isinstance(option, dict)] if isinstance(options, list) else []
        )
        for option in offered:
            if option.get("kind") == kind:
                return {"result": {"outcome": {"outcome": "selected", "optionId": option.get("optionId")}}}
        kinds = ", ".join(str(option.get("kind")) for option in offered) or "nothing"
        self._refused = f"permissionAnswers has {kind!r} next, but the agent offered {kinds}"
        return {"result": {"outcome": {"outcome": "cancelled"}}}

    def _string(self, result: Frame, key: str, method: str) -> str:
        value = result.get(key)
        if not isinstance(value, str):
            raise self._failure(f"the result of {method} has no string `{key}`: {short(result)}")
        return value

    def _objection(self) -> str | None:
        return self._refused


def _refusal(method: str, frame: Frame) -> str:
    """An answer that is no result: what its error says, else the frame."""
    error = frame.get("error")
    if isinstance(error, dict) and isinstance(error.get("message"), str) and error["message"]:
        more = "" if error.get("data") is None else f"; data: {short(error['data'])}"
        return f"{method} failed: {error['message']} (code {error.get('code')}{more})"
    return f"{method} was answered with {short(frame)}"
