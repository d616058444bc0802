"""Which conversation does a request continue? Read from the history that it carries, and from nothing else.

A request continues the conversation whose whole history is the beginning of its own; of several the longest,
then the one with the same system prompt and tools, then the oldest. One that holds an answer of a
conversation but not all that follows has edited that conversation's history. Anything else begins a
conversation: also a request that shares the user's words with another one but asks for something else, such
as a title or a summary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from onetake.gateway.alike import common, separate
from onetake.gateway.conversation import Call, Conversation, Heard
from onetake.model.types import Message, new_id
from onetake.session.events import make_header
from onetake.session.log import SessionLog, ms_now
from onetake.wire.format import WireRequest


class Conversations:
    """All conversations of one run.

    `opened` is told each new log before anything is in it. `cwd` goes into the headers of the logs.
    """

    def __init__(self, opened: Callable[[SessionLog], object] = lambda log: None, *, cwd: str = "") -> None:
        self.all: list[Conversation] = []
        """Oldest first."""
        self._opened = opened
        self._cwd = cwd
        self._created = 0
        self._answers: dict[str, tuple[Conversation, list[Message]]] = {}
        """By the id of an answer: where it was given, and the history that it ended."""

    def heard(self, provider: str, request: WireRequest) -> Heard:
        """A request as a conversation takes it; `provider` names the format."""
        header: dict[str, Any] = {
            "config": {"provider": provider, "model": request.model, **request.settings}
        }
        if request.system is not None:
            header["system"] = request.system
        if request.tools:
            header["tools"] = request.tools
        messages = separate(request.messages)
        if request.previous is not None and request.previous in self._answers:
            messages = [*self._answers[request.previous][1], *messages]
        return Heard(header, messages)

    def find(self, heard: Heard) -> Conversation | None:
        """The conversation that a request continues or edits; None when it begins one."""
        whole: list[tuple[int, bool, Conversation]] = []
        edited: list[tuple[int, Conversation]] = []
        for each in self.all:
            if each.busy:
                continue
            held = each.messages()
            count = common(heard.messages, held)
            if held and not count:
                continue
            equal = _same_header(each, heard)
            if count == len(held) and (equal or _known(held)):
                whole.append((count, equal, each))
            elif equal and _known(held[:count]):
                edited.append((count, each))
        if whole:
            return max(whole, key=lambda found: found[:2])[2]
        return max(edited, key=lambda found: found[0])[1] if edited else None

    def open(self) -> Conversation:
        """Begin a conversation."""
        self._created = max(ms_now(), self._created + 1)
        log = SessionLog(make_header(new_id(), created_at=self._created, cwd=self._cwd or None))
        self._opened(log)
        self.all.append(Conversation(log))
        return self.all[-1]

    def answered(self, call: Call) -> None:
        """End a call, and remember the answer by its id: a client may go on from it without the history."""
        call.end()
        state = call.replay_state
        response = state.get("response") if isinstance(state, dict) else None
        name = response.get("id") if isinstance(response, dict) else None
        if isinstance(name, str):
            self._answers[name] = call.conversation, call.conversation.messages()

    def close(self) -> None:
        """No request comes any more."""
        for conversation in self.all:
            conversation.close()


def _same_header(conversation: Conversation, heard: Heard) -> bool:
    return all(conversation.header.get(key) == heard.header.get(key) for key in ("system", "tools"))


def _known(held: Sequence[Message]) -> bool:
    """Whether messages hold an answer: the words of a user alone may be those of another conversation."""
    return any(message["role"] == "assistant" for message in held)
