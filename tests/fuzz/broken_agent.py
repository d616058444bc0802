"""A small ACP agent in one process and no framework, which has one flaw: `broken_agent.py FLAW MODEL_URL`.

With the flaw `none` it is a proper agent: it asks the model, asks for permission before a tool call, can load
sessions, and answers everything once. Only the standard library, and little of it, so that it starts fast.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import subprocess
import sys
import time
from typing import Any

FLAW, URL = sys.argv[1], sys.argv[2]
HOST, PORT = URL.split("/")[2].split(":")
TOOL = {"type": "function", "function": {"name": "touch", "parameters": {"type": "object"}}}
Frame = dict[str, Any]


class Turn:
    """A prompt in flight: waits for the model, then perhaps for a permission."""

    def __init__(self, id: Any, session: str) -> None:
        self.id, self.session = id, session
        self.socket = socket.create_connection((HOST, int(PORT)))
        self.received = b""


class Agent:
    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.selector.register(0, selectors.EVENT_READ)
        self.turns: dict[str, Turn] = {}
        self.questions: dict[str, Turn] = {}
        self.prompts = 0
        self.failed: set[str] = set()
        self.number = 0
        self.rest = b""

    def send(self, **fields: Any) -> None:
        os.write(1, json.dumps({"jsonrpc": "2.0", **fields}).encode() + b"\n")

    def run(self) -> None:
        while True:
            for key, _ in self.selector.select():
                if key.fd != 0:
                    self.model_said(key.data)
                elif data := os.read(0, 1 << 16):
                    *lines, self.rest = (self.rest + data).split(b"\n")
                    for line in lines:
                        self.handle(json.loads(line))
                else:
                    return

    def handle(self, frame: Frame) -> None:
        method, params = frame.get("method"), frame.get("params") or {}
        if method is None:
            if "result" in frame:
                self.permitted(self.questions.pop(frame["id"]), frame["result"]["outcome"])
        elif method == "session/cancel":
            self.cancel(params["sessionId"])
        elif "id" in frame:
            self.answer(frame["id"], method, params)

    def answer(self, id: Any, method: str, params: Frame) -> None:
        session = params.get("sessionId")
        if method == "initialize":
            if FLAW == "refuses":
                self.send(id=id, error={"code": 1, "message": "not today"})
                return
            capabilities = {
                "loadSession": True,
                "promptCapabilities": {"image": True, "audio": True, "embeddedContext": True},
            }
            self.send(id=id, result={"protocolVersion": 1, "agentCapabilities": capabilities})
        elif method == "session/new":
            self.number += 1
            if FLAW == "no-auth":
                self.send(id=id, error={"code": -32000, "message": "log in first"})
            elif FLAW == "no-session-id":
                self.send(id=id, result={})
            else:
                name = "s" if FLAW == "same-session" else f"s{os.getpid()}-{self.number}"
                self.update(name, "welcome")  # before the answer, as some agents do
                self.send(id=id, result={"sessionId": name})
        elif method == "session/load" and FLAW != "cannot-load":
            self.update(session, "as I said")
            self.send(id=id, result=None)
        elif method == "session/prompt" and session != "no-such-session":
            self.prompt(id, params)
        elif FLAW != "ignores-unknown":
            self.send(id=id, error={"code": -32601, "message": "no"})

    def prompt(self, id: Any, params: Frame) -> None:
        self.prompts += 1
        session = params["sessionId"]
        if FLAW == "sticky" and session in self.failed:
            self.send(id=id, error={"code": -32603, "message": "it failed before"})
            return
        if FLAW == "dies" and self.prompts == 2:
            sys.exit("cannot count to two")
        if FLAW == "no-model":
            self.send(id=id, result={"stopReason": "end_turn"})
            return
        turn = self.turns[session] = Turn(id, session)
        text = json.dumps(params["prompt"])
        body = {"model": "m", "messages": [{"role": "user", "content": text}], "tools": [TOOL]}
        data = json.dumps(body).encode()
        lines = ["POST /v1/chat/completions HTTP/1.1", "host: x", "connection: close"]
        head = "\r\n".join([*lines, f"content-length: {len(data)}"])
        turn.socket.sendall(head.encode() + b"\r\n\r\n" + data)
        self.selector.register(turn.socket, selectors.EVENT_READ, turn)

    def model_said(self, turn: Turn) -> None:
        if self.turns.get(turn.session) is not turn:
            return  # cancelled in the same moment
        data = turn.socket.recv(1 << 16)
        turn.received += data
        if data:
            return
        self.selector.unregister(turn.socket)
        turn.socket.close()
        head, _, body = turn.received.partition(b"\r\n\r\n")
        if b" 200 " not in head.split(b"\r\n")[0] or FLAW == "model-fails":
            self.failed.add(turn.session)
            self.end(turn, error={"code": -32603, "message": "the model failed"})
            return
        if json.loads(body)["choices"][0]["message"].get("tool_calls"):
            question = f"q{turn.id}"
            self.questions[question] = turn
            options = [
                {"optionId": "y", "name": "yes", "kind": "allow_once"},
                {"optionId": "n", "name": "no", "kind": "reject_once"},
            ]
            wanted = {"sessionId": turn.session, "options": options}
            self.send(id="f", method="fs/read_text_file", params={}) if FLAW == "reads" else None
            self.send(id=question, method="session/request_permission", params=wanted)
            return
        self.end(turn, result={"stopReason": "end_turn"})

    def permitted(self, turn: Turn, outcome: Frame) -> None:
        if FLAW == "hangs-on-reject" and outcome.get("optionId") == "n":
            return
        cancelled = outcome["outcome"] == "cancelled"
        self.end(turn, result={"stopReason": "cancelled" if cancelled else "end_turn"})

    def cancel(self, session: str) -> None:
        turn = self.turns.get(session)
        if turn is None or FLAW == "cancel-hangs" or turn in self.questions.values():
            return
        self.selector.unregister(turn.socket)
        turn.socket.close()
        self.end(turn, result={"stopReason": "cancelled"})

    def end(self, turn: Turn, **answer: Any) -> None:
        if self.turns.pop(turn.session, None) is None:
            return
        if FLAW == "never-answers":
            return
        if FLAW == "no-stop-reason":
            answer = {"result": {}}
        if FLAW == "junk":
            os.write(1, b"debug: here\n")
        if FLAW == "half-line":
            os.write(1, b"{")
            sys.exit(0)
        self.update("stranger" if FLAW == "stranger-update" else turn.session, "done")
        self.send(id=turn.id, **answer)
        if FLAW == "answers-twice" and "error" in answer:
            self.send(id=turn.id, **answer)
        if FLAW == "dies-idle":
            sys.exit("bored")
        if FLAW == "orphan":
            quiet = subprocess.DEVNULL
            subprocess.Popen(["sleep", "30"], stdin=quiet, stdout=quiet, start_new_session=True)

    def update(self, session: Any, text: str) -> None:
        update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
        self.send(method="session/update", params={"sessionId": session, "update": update})


if __name__ == "__main__":
    if FLAW == "does-not-start":
        sys.exit("no licence")
    if FLAW == "banner":
        os.write(1, b"Welcome!\n")
    Agent().run()
    if FLAW == "unfinished":
        os.write(1, b"bye")
    if FLAW == "ignores-eof":
        time.sleep(60)
    sys.exit(3 if FLAW == "exit-code" else 0)
