"""The same agent on the OpenAI SDK and its Responses."""

from __future__ import annotations

from typing import Any

from openai import OpenAI

from tests.regressions.twist import RECORDED, Twist


def run(base_url: str, twist: Twist = RECORDED, prompt: str = "What colour is the sky?") -> str:
    """Answer a prompt."""
    schema = {"type": "object", "properties": {}}
    tools: list[Any] = [
        {"type": "function", "name": "look", "description": twist.tool, "parameters": schema, "strict": False}
    ]
    items: list[Any] = [{"role": "user", "content": prompt}]
    with OpenAI(base_url=base_url, api_key="sk-unused-but-secret-000", max_retries=2) as client:
        while True:
            answer = stream(client, items, tools, twist)
            for _ in range(twist.repeats):
                stream(client, items, tools, twist)
            calls = [item for item in answer.output if item.type == "function_call"]
            if not calls or twist.stops_early:
                break
            items += [item.model_dump(exclude_none=True) for item in answer.output]
            items += [
                {"type": "function_call_output", "call_id": call.call_id, "output": twist.look()}
                for call in calls
            ]
        if twist.asks_more:
            stream(client, [*items, {"role": "user", "content": "And the sea?"}], [], twist)
    return str(answer.output_text)


def stream(client: OpenAI, items: list[Any], tools: list[Any], twist: Twist) -> Any:
    """One call: the whole response."""
    more = {"tools": tools} if tools else {}
    with client.responses.create(
        model="m", instructions=twist.system, input=items, stream=True, store=False, **more
    ) as events:
        for event in events:
            if event.type == "response.output_text.delta":
                twist.pieces.append(event.delta)
            if event.type == "response.completed":
                return event.response
    raise RuntimeError("the response was not completed")
