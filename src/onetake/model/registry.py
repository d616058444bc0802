"""Who answers for a model, and the one door through which every model call leaves the harness.

Adapters differ in how they fail: they throw, they stop in the middle, they end with an error, they say
nothing at all. Behind this door they are alike: the caller sees chunks and then exactly one `finish`, and
nothing after it. Only cancellation leaves no finish, so that the log can always say how a call ended.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

import msgspec

from onetake.errors import UsageError
from onetake.model import failures
from onetake.model.assembler import has_content, is_finish
from onetake.model.contract import FINISH_KINDS, block_fault
from onetake.model.failures import Failure, ModelFailure, error_finish, failure_of
from onetake.model.request import ModelRequest
from onetake.model.types import Chunk


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the harness must know about a model before it calls it."""

    id: str
    """The model's id at its provider."""
    context_window: int | None = None
    """Tokens that input and output share; None when unknown."""
    max_output: int | None = None
    """Most tokens of one answer; None when unknown."""
    efforts: tuple[str, ...] = ()
    """Reasoning efforts that may be asked for, weakest first; empty when there is no choice."""
    modalities: tuple[str, ...] = ("text",)
    """What the model reads: `text`, `image`."""
    retry: dict[str, Any] | None = None
    """The retry policy of its provider; None for the harness's own."""


class Provider(Protocol):
    """Answers model calls for a set of models."""

    @property
    def id(self) -> str:
        """The name that a composition and the log use for this provider."""

    @property
    def models(self) -> Mapping[str, ModelInfo]:
        """The catalogue, by model id."""

    def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Answer a call chunk by chunk; may throw `ModelFailure` or end with an error finish."""


class ProviderRegistry:
    """The providers of a running agent.

    `capture`, when set, is given each request before its provider is asked.
    """

    def __init__(self) -> None:
        self._providers: dict[str, Provider] = {}
        self.capture: Callable[[ModelRequest], None] | None = None

    def register(self, provider: Provider) -> Callable[[], None]:
        """Add a provider and return what removes it again. Raises UsageError when its id is taken."""
        if provider.id in self._providers:
            raise UsageError(f"provider {provider.id!r} is registered twice; give one of them another id")
        self._providers[provider.id] = provider

        def unregister() -> None:
            if self._providers.get(provider.id) is provider:
                del self._providers[provider.id]

        return unregister

    def get(self, provider: str, model: str) -> tuple[Provider, ModelInfo]:
        """Return who answers for a model and what is known about it. Raises UsageError naming the choices."""
        found = self._providers.get(provider)
        if found is None:
            raise UsageError(f"no provider {provider!r}; there is {_listed(self._providers)}")
        info = found.models.get(model)
        if info is None:
            choices = _listed(found.models)
            raise UsageError(f"provider {provider!r} has no model {model!r}; there is {choices}")
        return found, info

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        """Make a model call: yield its chunks, the last one a well-formed `finish`.

        Whatever goes wrong becomes that finish, an unknown model and a failing capture included. Cancellation
        passes through and leaves no finish.
        """
        ending: Chunk | None = None
        chunks: AsyncIterator[Chunk] | None = None
        said_something = False
        try:
            if self.capture is not None:
                self.capture(request)
            chunks = self._provider_for(request).stream(request)
            async for chunk in chunks:
                if not isinstance(chunk, dict):
                    raise _malformed(f"a chunk is {type(chunk).__name__}, not an object")
                if chunk.get("type") == "finish":
                    ending = _checked_finish(chunk, said_something)
                    break
                _check_end(chunk)
                said_something = said_something or _says_something(chunk)
                yield chunk
            if ending is None:
                cut = _failed("the model stream ended before it finished", failures.STREAM_CLOSED)
                ending = error_finish(cut)
        except Exception as error:
            ending = error_finish(failure_of(error))
        finally:
            await _close(chunks)
        yield ending

    def _provider_for(self, request: ModelRequest) -> Provider:
        try:
            return self.get(request.config["provider"], request.config["model"])[0]
        except UsageError as error:
            raise ModelFailure(_failed(str(error), failures.UNKNOWN_MODEL)) from error


def _failed(message: str, code: str) -> Failure:
    return failures.failure(message, code)


def _malformed(what: str) -> ModelFailure:
    return ModelFailure(_failed(f"the provider broke the stream contract: {what}", failures.MALFORMED_STREAM))


def _checked_finish(chunk: Chunk, said_something: bool) -> Chunk:
    """Return the finish to pass on: the provider's own, unless it claims success for an empty answer."""
    if not is_finish(chunk):
        raise _malformed("its finish has no reason")
    if chunk["reason"]["kind"] not in FINISH_KINDS:  # else it would pass for a success
        raise _malformed(f"its finish has the reason {chunk['reason']['kind']!r}")
    if chunk["reason"]["kind"] == "stop" and not said_something:
        return error_finish(_failed("the model answered without any content", failures.EMPTY_RESPONSE))
    return chunk


def _check_end(chunk: Chunk) -> None:
    """Refuse the end of a block that nobody could use, such as a tool call without a name."""
    block = chunk.get("block")
    if chunk.get("type") == "block-end" and isinstance(block, dict):
        fault = block_fault(block)
        if fault is not None:
            raise _malformed(f"a block-end has no usable {fault[0]}")


def _says_something(chunk: Chunk) -> bool:
    kind = chunk.get("type")
    if kind == "block-end":
        block = chunk.get("block")
        return isinstance(block, dict) and type(block.get("type")) is str and has_content(block)
    return kind == "tool-call-delta" or bool(kind in ("text-delta", "reasoning-delta") and chunk.get("text"))


async def _close(chunks: AsyncIterator[Chunk] | None) -> None:
    """Let the provider release what it holds; how the call ended is known, so errors change nothing."""
    aclose = getattr(chunks, "aclose", None)
    if aclose is not None:
        with suppress(Exception):
            await aclose()


def _listed(names: Mapping[str, object]) -> str:
    return ", ".join(repr(name) for name in sorted(names)) or "none"
