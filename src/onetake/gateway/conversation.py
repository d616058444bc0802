"""One conversation of an agent that is not ours, as the session log that its requests and answers amount to.

The agent keeps no log of our format, but each of its requests carries the whole history. So the log is
written from outside, by one rule: **after each request the log derives exactly the messages that were sent**.

- What is new in a request is appended: tool results to the step that called the tools, words of the user as a
  new turn.
- A message that is sent in other words than the log holds (reasoning left out, text trimmed) is replaced by a
  surface event, and a history that was cut or rewritten (compaction) is replaced from there on.
- The answer is logged chunk by chunk. A call that failed leaves its step open, so that its repetition belongs
  to the same step, as retries of our own agent do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onetake.gateway.alike import common, result_of, same
from onetake.model.assembler import BlockAssembler
from onetake.model.request import ModelRequest
from onetake.model.types import Chunk, Message, new_id
from onetake.session.history import History
from onetake.session.log import SessionLog

CLIENT = {"kind": "client"}
"""The source of what the client says in the model's place."""
COMPLETED: dict[str, Any] = {"kind": "completed"}


class Heard:
    """What a request says: the header of the call, and the history (see `alike.separate`)."""

    def __init__(self, header: dict[str, Any], messages: Sequence[Message]) -> None:
        self.header = header
        """`config`, and `system` and `tools` where the request has them: as `request/header` logs them."""
        self.messages = list(messages)


class Conversation:
    """The log of one conversation, and where it stands."""

    def __init__(self, log: SessionLog) -> None:
        self.log = log
        self.header: dict[str, Any] = {}
        """The header of the last request."""
        self.calls = 0
        self.busy = False
        """Whether a call is being answered: until then nobody can continue the conversation."""
        self._history = History()
        self._fed = 0
        self._turn = 0
        self._step = 0
        self._in_turn = False
        self._in_step = False
        self._called: list[str] = []
        """The ids of the calls of the last answer that have no result yet."""
        self._failure: dict[str, Any] | None = None

    @property
    def id(self) -> str:
        """The session id."""
        return self.log.id

    def messages(self) -> list[Message]:
        """What the log derives so far."""
        self._derive()
        return self._history.messages()

    def begin(self, heard: Heard) -> Call:
        """Take in a request and return the call that it makes."""
        sent, held = heard.messages, self.messages()
        seqs = self._history.seqs()
        kept = common(sent, held)
        change = self._rewriting(kept, sent, seqs) if kept < len(held) else None
        if change is not None:
            kept = min(kept, len(sent) - 1)
            self._called = []
        said = self._open_step(sent[kept:])
        for place in range(kept):
            if not same(sent[place], held[place]):
                self._surface(sent[place], _replacing(seqs[place], seqs[place]))
        for message in said:
            self._surface(message, change or "append")
            change = None
        self._log_header(heard.header)
        self.calls += 1
        self.busy = True
        request = ModelRequest(
            session_id=self.id,
            call=self.calls,
            config=heard.header["config"],
            system=heard.header.get("system"),
            tools=heard.header.get("tools"),
            messages=self.messages(),
        )
        return Call(self, request)

    def close(self) -> None:
        """Close what is open: no request comes any more."""
        reason = COMPLETED if self._failure is None else {"kind": "error", "error": self._failure}
        if self._called:
            reason = {"kind": "interrupted"}
        self._end_turn(reason)

    # -- the history ---------------------------------------------------------------------------------------

    def _derive(self) -> None:
        for event in self.log.events[self._fed :]:
            self._history.feed(event)
        self._fed = len(self.log.events)

    def _rewriting(self, kept: int, sent: list[Message], seqs: list[int]) -> dict[str, Any]:
        """How the history changes from the first message on that is not as it was held.

        Nothing can be taken out without something in its place: of a history that was only cut, the last
        message that stays is written again.
        """
        return _replacing(seqs[min(kept, len(sent) - 1)], seqs[-1])

    # -- turns and steps -----------------------------------------------------------------------------------

    def _open_step(self, new: list[Message]) -> list[Message]:
        """Log the results that came, open the step of the call, and return what else is new."""
        if self._failure is not None and not new:
            self._failure = None  # the same again: a retry, in the same step
            return []
        answered = [message for message in new if self._answers(message)]
        for message in answered:
            self._surface(message, "append")
        self._end_step()
        if not answered:
            self._end_turn(COMPLETED)
        self._called = []
        self._failure = None
        if not self._in_turn:
            self._turn, self._step, self._in_turn = self._turn + 1, 0, True
            self.log.append("turn/start", {"turn": self._turn})
        self._step, self._in_step = self._step + 1, True
        self.log.append("step/start", self._place())
        return [message for message in new if message not in answered]

    def _answers(self, message: Message) -> bool:
        result = result_of(message)
        return result is not None and result.get("toolCallId") in self._called

    def _end_step(self) -> None:
        if self._in_step:
            self.log.append("step/end", self._place())
            self._in_step = False

    def _end_turn(self, reason: dict[str, Any]) -> None:
        self._end_step()
        if self._in_turn:
            self.log.append("turn/end", {"turn": self._turn, "reason": reason})
            self._in_turn = False

    def _place(self) -> dict[str, Any]:
        return {"turn": self._turn, "step": self._step}

    def _surface(self, message: Message, op: Any) -> None:
        """Log a message of the client as the surface event of its kind."""
        result = result_of(message)
        source: dict[str, Any] = {"kind": "user"}
        if result is not None:
            source = {"kind": "tool", "callId": result.get("toolCallId")}
        elif message["role"] == "assistant":
            source = dict(CLIENT)
            state = message.get("source", {}).get("replayState")
            if state is not None:
                source["replayState"] = state
        stored = {"role": message["role"], "content": message["content"], "source": source, "id": new_id()}
        if message.get("extra"):
            stored["extra"] = message["extra"]
        if result is not None:
            self.log.append("tool/result", {**self._place(), "message": stored}, surface_op=op)
        elif message["role"] == "assistant":
            self.log.append("assistant/message", {**self._place(), "message": stored}, surface_op=op)
        else:
            self.log.append("user/message", stored, surface_op=op)

    def _log_header(self, header: dict[str, Any]) -> None:
        if header == self.header:
            return
        reason = "change" if self.header else "initial"
        self.header = header
        self.log.append("request/header", {"header": header, "reason": reason})
        config = header["config"]
        self.log.append("request/context", {"provider": config["provider"], "model": config["model"]})

    # -- the answer ----------------------------------------------------------------------------------------

    def chunk(self, chunk: Chunk) -> int:
        """Log one chunk of the answer; returns its seq."""
        seq: int = self.log.append("assistant/chunk", {**self._place(), "chunk": chunk})["seq"]
        return seq

    def answered(self, assembler: BlockAssembler, seqs: list[int]) -> None:
        """The answer is over."""
        self.busy = False
        finish = assembler.finish
        interrupted = not assembler.finished
        if finish["kind"] in ("error", "aborted"):
            self._failure = finish.get("failure") or {"message": "the call failed", "code": "INTERNAL"}
            return
        content = assembler.interrupted_blocks() if interrupted else assembler.blocks()
        if content:
            config = self.header["config"]
            source = {"kind": "model", "provider": config["provider"], "model": config["model"]}
            message = assembler.message(source, new_id())
            message["content"] = content
            data: dict[str, Any] = {**self._place(), "message": message}
            if assembler.usage is not None:
                data["usage"] = assembler.usage
            if interrupted:
                data["interrupted"] = True
            self.log.append("assistant/message", data, source_event_seqs=seqs, surface_op="append")
        calls = [block for block in content if block["type"] == "tool-call"]
        for call in calls:
            asked = {"callId": call["id"], "name": call["name"], "arguments": call["arguments"]}
            self.log.append("tool/call", {**self._place(), **asked})
        self._called = [call["id"] for call in calls]
        if interrupted:
            self._end_turn({"kind": "aborted", "reason": {"kind": "client"}})
        elif not calls:
            self._end_turn(COMPLETED if finish["kind"] != "max-tokens" else {"kind": "max-tokens"})


def _replacing(start: int, end: int) -> dict[str, Any]:
    return {"op": "replace", "start": start, "end": end}


class Call:
    """A call that is being answered: give it each chunk, then `end` it."""

    def __init__(self, conversation: Conversation, request: ModelRequest) -> None:
        self.conversation = conversation
        self.request = request
        """The call as our own agent would have made it; its messages are those of the log."""
        self._assembler = BlockAssembler()
        self._seqs: list[int] = []
        self._ended = False

    def chunk(self, chunk: Chunk) -> None:
        """Log the next chunk of the answer."""
        self._seqs.append(self.conversation.chunk(chunk))
        self._assembler.push(chunk)

    def end(self) -> None:
        """The answer is over, or will not come to its end; ending twice is fine."""
        if not self._ended:
            self._ended = True
            self.conversation.answered(self._assembler, self._seqs)

    @property
    def replay_state(self) -> Any:
        """What the client needs back of this answer; None when there is nothing."""
        return self._assembler.replay_state
