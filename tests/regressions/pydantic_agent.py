"""The same agent on PydanticAI."""

from __future__ import annotations

import asyncio

from pydantic_ai import Agent, Tool
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from tests.regressions.twist import RECORDED, Twist


async def answer(base_url: str, twist: Twist = RECORDED, prompt: str = "What colour is the sky?") -> str:
    """Answer a prompt, streamed."""
    model = OpenAIChatModel(
        "m", provider=OpenAIProvider(base_url=base_url, api_key="sk-unused-but-secret-000")
    )
    look = Tool(twist.look, name="look", description=twist.tool)
    agent = Agent(model, system_prompt=twist.system, tools=[look])
    said = ""
    for _ in range(1 + twist.repeats):
        async with agent.run_stream(prompt) as result:
            said = await result.get_output()
    if twist.asks_more:
        await agent.run("And the sea?")
    return said


def run(base_url: str, twist: Twist = RECORDED, prompt: str = "What colour is the sky?") -> str:
    """Answer a prompt."""
    return asyncio.run(answer(base_url, twist, prompt))
