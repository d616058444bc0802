"""The same agent on the Anthropic SDK."""

from __future__ import annotations

from typing import Any

from anthropic import Anthropic

from tests.regressions.twist import RECORDED, Twist


def run(base_url: str, twist: Twist = RECORDED, prompt: str = "What colour is the sky?") -> str:
    """Answer a prompt."""
    schema = {"type": "object", "properties": {}}
    tools: list[Any] = [{"name": "look", "description": twist.tool, "input_schema": schema}]
    messages: list[Any] = [{"role": "user", "content": prompt}]
    with Anthropic(base_url=base_url.removesuffix("/v1"), api_key="sk-unused-but-secret-000") as client:
        while True:
            answer = stream(client, messages, tools, twist)
            for _ in range(twist.repeats):
                stream(client, messages, tools, twist)
            calls = [block for block in answer.content if block.type == "tool_use"]
            if not calls or twist.stops_early:
                break
            messages.append({"role": "assistant", "content": answer.content})
            results = [
                {"type": "tool_result", "tool_use_id": call.id, "content": twist.look()} for call in calls
            ]
            messages.append({"role": "user", "content": results})
        if twist.asks_more:
            stream(client, [*messages, {"role": "user", "content": "And the sea?"}], [], twist)
    return "".join(block.text for block in answer.content if block.type == "text")


def stream(client: Anthropic, messages: list[Any], tools: list[Any], twist: Twist) -> Any:
    """One call: the whole message."""
    more = {"tools": tools} if tools else {}
    with client.messages.stream(
        model="m", max_tokens=99, system=twist.system, messages=messages, **more
    ) as answer:
        for text in answer.text_stream:
            twist.pieces.append(text)
        return answer.get_final_message()
