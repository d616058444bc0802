"""An agent on the OpenAI SDK: two streamed calls, and a real tool between them."""

from __future__ import annotations

from typing import Any

from openai import OpenAI

from tests.regressions.twist import RECORDED, Twist


def run(base_url: str, twist: Twist = RECORDED, prompt: str = "What colour is the sky?") -> str:
    """Answer a prompt."""
    function = {"name": "look", "description": twist.tool, "parameters": {"type": "object", "properties": {}}}
    tools = [{"type": "function", "function": function}]
    messages: list[Any] = [{"role": "system", "content": twist.system}, {"role": "user", "content": prompt}]
    with OpenAI(base_url=base_url, api_key="sk-unused-but-secret-000", max_retries=2) as client:
        while True:
            text, calls = stream(client, messages, tools, twist)
            for _ in range(twist.repeats):
                stream(client, messages, tools, twist)
            if not calls or twist.stops_early:
                break
            messages.append({"role": "assistant", "content": text or None, "tool_calls": calls})
            messages += [{"role": "tool", "tool_call_id": c["id"], "content": twist.look()} for c in calls]
        if twist.asks_more:
            stream(client, [*messages, {"role": "user", "content": "And the sea?"}], [], twist)
    return text


def stream(client: OpenAI, messages: list[Any], tools: list[Any], twist: Twist) -> tuple[str, list[Any]]:
    """One call: what was said, and which tools are called."""
    text, calls = "", dict[int, Any]()
    more = {"tools": tools} if tools else {}
    with client.chat.completions.create(model="m", messages=messages, stream=True, **more) as answer:
        for event in answer:
            delta = event.choices[0].delta if event.choices else None
            if delta is not None and delta.content:
                text += delta.content
                twist.pieces.append(delta.content)
            for piece in (delta.tool_calls or ()) if delta else ():
                function = {"name": "", "arguments": ""}
                call = calls.setdefault(
                    piece.index, {"id": piece.id, "type": "function", "function": function}
                )
                call["function"]["name"] += piece.function.name or ""
                call["function"]["arguments"] += piece.function.arguments or ""
    return text, list(calls.values())
