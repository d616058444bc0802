"""Every way in which a provider can end, seen from the one door that all calls leave through."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, ClassVar

import pytest

from onetake.errors import UsageError
from onetake.model.failures import ModelFailure, failure, failure_of
from onetake.model.registry import ModelInfo, ProviderRegistry
from onetake.model.request import ModelRequest
from onetake.model.types import new_id

STOP = {"type": "finish", "reason": {"kind": "stop"}}
HELLO = {"type": "text-delta", "index": 0, "text": "hello"}


class Scripted:
    """A provider that runs a given generator function."""

    id = "fake"
    models: ClassVar[dict[str, ModelInfo]] = {"m": ModelInfo(id="m")}

    def __init__(self, answer: Callable[[], AsyncIterator[Any]]) -> None:
        self.answer = answer

    def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        return self.answer()


def request(model: str = "m") -> ModelRequest:
    return ModelRequest(session_id="s", call=1, config={"provider": "fake", "model": model})


def streamed(answer: Callable[[], AsyncIterator[Any]]) -> list[Any]:
    registry = ProviderRegistry()
    registry.register(Scripted(answer))

    async def run() -> list[Any]:
        return [chunk async for chunk in registry.stream(request())]

    return asyncio.run(run())


def failed(chunks: list[Any]) -> dict[str, Any]:
    assert [chunk["type"] for chunk in chunks].count("finish") == 1
    reason = chunks[-1]["reason"]
    assert reason["kind"] == "error"
    return dict(reason["failure"])


def test_chunks_pass_unchanged() -> None:
    async def answer() -> AsyncIterator[Any]:
        yield HELLO
        yield {"type": "usage", "usage": {}}
        yield {**STOP, "replayState": {"response": 1}}

    assert streamed(answer) == [
        HELLO,
        {"type": "usage", "usage": {}},
        {**STOP, "replayState": {"response": 1}},
    ]


def test_nothing_follows_the_finish_and_the_provider_is_closed_by_then() -> None:
    order = []

    async def answer() -> AsyncIterator[Any]:
        try:
            yield HELLO
            yield STOP
            yield HELLO
        finally:
            order.append("closed")
            raise RuntimeError("closing failed")

    kept = answer()  # a reference of ours, so that nothing but the registry closes it
    registry = ProviderRegistry()
    registry.register(Scripted(lambda: kept))

    async def run() -> None:
        async for chunk in registry.stream(request()):
            order.append(chunk["type"])

    asyncio.run(run())
    assert order == ["text-delta", "closed", "finish"]


def test_a_thrown_failure_becomes_the_finish_with_all_its_details() -> None:
    described = failure("slow down", "RATE_LIMIT", status=429, provider_retry_after_ms=1500, request_id="r")

    async def answer() -> AsyncIterator[Any]:
        yield HELLO
        raise ModelFailure(described)

    assert failed(streamed(answer)) == {
        "message": "slow down",
        "code": "RATE_LIMIT",
        "status": 429,
        "providerRetryAfterMs": 1500,
        "requestId": "r",
    }


def test_a_failure_that_the_provider_ends_with_passes() -> None:
    aborted = {"type": "finish", "reason": {"kind": "aborted", "failure": failure("gone", "ABORTED")}}

    async def answer() -> AsyncIterator[Any]:
        yield aborted

    assert streamed(answer) == [aborted]


def test_any_exception_becomes_the_finish() -> None:
    async def answer() -> AsyncIterator[Any]:
        raise ValueError("odd")
        yield

    assert failed(streamed(answer)) == {"message": "ValueError: odd", "code": "PROVIDER_ERROR"}


def test_a_timeout_has_its_code() -> None:
    assert failure_of(TimeoutError()) == {"message": "TimeoutError", "code": "TIMEOUT"}


def test_a_stream_that_just_ends_was_closed() -> None:
    async def answer() -> AsyncIterator[Any]:
        yield HELLO

    assert failed(streamed(answer))["code"] == "STREAM_CLOSED"


@pytest.mark.parametrize(
    "chunks",
    [
        [],
        [{"type": "usage", "usage": {}}],
        [{"type": "block-start", "index": 0, "blockType": "text"}, {**HELLO, "text": ""}],
        [{"type": "block-end", "index": 0, "block": {"type": "text", "text": ""}}],
        [{"type": "block-end", "index": 0, "block": None}],
        [{"type": "block-end", "index": 0, "block": {"type": []}}],
    ],
)
def test_stop_without_content_is_an_empty_response(chunks: list[Any]) -> None:
    async def answer() -> AsyncIterator[Any]:
        for chunk in chunks:
            yield chunk
        yield STOP

    got = streamed(answer)
    assert got[:-1] == chunks
    assert failed(got)["code"] == "EMPTY_RESPONSE"


@pytest.mark.parametrize(
    "chunk",
    [
        {"type": "reasoning-delta", "index": 0, "text": "hm"},
        {"type": "tool-call-delta", "index": 0, "id": "c", "argumentsDelta": ""},
        {"type": "block-end", "index": 0, "block": {"type": "image"}},
    ],
)
def test_any_kind_of_content_makes_a_stop_good(chunk: Any) -> None:
    async def answer() -> AsyncIterator[Any]:
        yield chunk
        yield STOP

    assert streamed(answer) == [chunk, STOP]


def test_max_tokens_without_content_passes() -> None:
    cut = {"type": "finish", "reason": {"kind": "max-tokens"}}

    async def answer() -> AsyncIterator[Any]:
        yield cut

    assert streamed(answer) == [cut]


@pytest.mark.parametrize(
    "chunk",
    [
        {"type": "finish"},
        "finish",
        None,
        {"type": "finish", "reason": {"kind": "stopped"}},
        {"type": "block-end", "index": 0, "block": {"type": "tool-call", "name": "bash", "arguments": "{}"}},
        {"type": "block-end", "index": 0, "block": {"type": "tool-call", "id": "c", "name": None}},
        {"type": "block-end", "index": 0, "block": {"type": "text"}},
    ],
)
def test_a_broken_stream_is_a_failure_of_its_own(chunk: Any) -> None:
    async def answer() -> AsyncIterator[Any]:
        yield HELLO
        yield chunk

    got = streamed(answer)
    assert got[0] == HELLO
    assert failed(got)["code"] == "MALFORMED_STREAM"


def test_an_unknown_model_is_a_failure_that_names_the_choices() -> None:
    registry = ProviderRegistry()
    registry.register(Scripted(lambda: None))  # type: ignore[arg-type, return-value]

    async def run(asked: ModelRequest) -> list[Any]:
        return [chunk async for chunk in registry.stream(asked)]

    wrong_model = failed(asyncio.run(run(request("n"))))
    assert wrong_model["code"] == "UNKNOWN_MODEL"
    assert wrong_model["message"] == "provider 'fake' has no model 'n'; there is 'm'"
    lost = ModelRequest(session_id="s", call=1, config={"provider": "x", "model": "m"})
    assert failed(asyncio.run(run(lost)))["message"] == "no provider 'x'; there is 'fake'"
    incomplete = ModelRequest(session_id="s", call=1, config={})
    assert failed(asyncio.run(run(incomplete)))["code"] == "PROVIDER_ERROR"


def test_a_provider_without_aclose_will_do() -> None:
    class Plain:
        def __init__(self) -> None:
            self.rest = [HELLO, STOP]

        def __aiter__(self) -> Plain:
            return self

        async def __anext__(self) -> Any:
            return self.rest.pop(0)

    assert streamed(Plain) == [HELLO, STOP]


def test_the_request_is_captured_before_the_provider_is_asked() -> None:
    order: list[str] = []

    async def answer() -> AsyncIterator[Any]:
        order.append("asked")
        yield HELLO
        yield STOP

    registry = ProviderRegistry()
    registry.register(Scripted(answer))
    registry.capture = lambda captured: order.append(captured.session_id)

    async def run() -> list[Any]:
        return [chunk async for chunk in registry.stream(request())]

    asyncio.run(run())
    assert order == ["s", "asked"]


def test_a_capture_that_fails_fails_the_call() -> None:
    registry = ProviderRegistry()
    registry.register(Scripted(lambda: pytest.fail("the provider was asked")))

    def broken(_: ModelRequest) -> None:
        raise OSError("disk full")

    registry.capture = broken

    async def run() -> list[Any]:
        return [chunk async for chunk in registry.stream(request())]

    assert failed(asyncio.run(run()))["message"] == "OSError: disk full"


def test_only_cancellation_leaves_no_finish() -> None:
    closed = []

    async def answer() -> AsyncIterator[Any]:
        try:
            yield HELLO
            await asyncio.Event().wait()
        finally:
            closed.append(True)

    async def run() -> list[Any]:
        registry = ProviderRegistry()
        registry.register(Scripted(answer))
        seen: list[Any] = []

        async def consume() -> None:
            async with aclosing(registry.stream(request())) as chunks:  # type: ignore[type-var]
                async for chunk in chunks:
                    seen.append(chunk)

        task = asyncio.create_task(consume())
        while not seen:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return seen

    assert asyncio.run(run()) == [HELLO]
    assert closed == [True]


def test_registration_can_be_undone() -> None:
    registry = ProviderRegistry()
    first = Scripted(lambda: None)  # type: ignore[arg-type, return-value]
    undo = registry.register(first)
    assert registry.get("fake", "m") == (first, Scripted.models["m"])
    with pytest.raises(UsageError, match="registered twice"):
        registry.register(Scripted(lambda: None))  # type: ignore[arg-type, return-value]
    undo()
    undo()
    with pytest.raises(UsageError, match="there is none"):
        registry.get("fake", "m")


def test_new_ids_are_version_4_uuids() -> None:
    import uuid

    ids = {new_id() for _ in range(100)}
    assert len(ids) == 100
    for each in ids:
        parsed = uuid.UUID(each)
        assert (str(parsed), parsed.version, parsed.variant) == (each, 4, uuid.RFC_4122)
