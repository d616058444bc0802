"""The built-in plugins whose parts live in rooms that know nothing of plugins.

Each is a row's `use` with a typed config; whatever it registers is undone on exit. Nothing heavy is imported
before it is needed: these functions run at every start of every agent.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from onetake.agent.agent import AgentConfig
from onetake.agent.context import AppContext, state_dir
from onetake.agent.prompt import Section, SessionFacts
from onetake.app.composition import did_you_mean
from onetake.errors import UsageError
from onetake.model.registry import ModelInfo

if TYPE_CHECKING:
    from onetake.providers.http import HttpProvider
    from onetake.wire.chat_request import ChatDialect


class SessionStoreConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where session logs are kept."""

    root: str | None = None
    """A folder, relative to the composition's; default: `onetake/sessions` in the user's state directory."""
    compression: Literal["zstd", "none"] = "zstd"
    """Zstandard frames, or plain JSON lines."""


@asynccontextmanager
async def session_store(ctx: AppContext, config: SessionStoreConfig) -> AsyncIterator[None]:
    """Keep session logs on disk. A run started by a snapshot runner writes where the runner says."""
    from onetake.session.store import SessionStore

    if ctx.store is not None:
        raise UsageError("there is a session store already; remove one of the rows")
    if ctx.run is not None and ctx.run.sessions_root:
        root = Path(ctx.run.sessions_root)
    elif config.root is not None:
        root = ctx.config_dir / Path(config.root).expanduser()
    else:
        root = state_dir(ctx.env) / "sessions"
    ctx.store = SessionStore(root, compression=config.compression, project="sessions")
    try:
        yield
    finally:
        ctx.store = None


class PromptSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One section of the system prompt."""

    name: str
    text: str
    """`{cwd}` stands for the session's working directory; all other braces are plain text."""


class PromptConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sections in the order in which the model reads them."""

    sections: list[PromptSection]


@asynccontextmanager
async def prompt(ctx: AppContext, config: PromptConfig) -> AsyncIterator[None]:
    """Contribute sections to the system prompt."""
    with ExitStack() as stack:
        for section in config.sections:
            stack.callback(ctx.prompt.register(section.name, _filled(section.text)))
        yield


def _filled(text: str) -> Section:
    if "{cwd}" not in text:
        return text

    def fill(facts: SessionFacts) -> str:
        return text.replace("{cwd}", str(facts.cwd))

    return fill


@asynccontextmanager
async def agent(ctx: AppContext, config: AgentConfig) -> AsyncIterator[None]:
    """Say which model the sessions call, and how."""
    if ctx.agent_config is not None:
        raise UsageError("there is an agent already; remove one of the rows")
    ctx.agent_config = config
    try:
        yield
    finally:
        ctx.agent_config = None


class ModelRow(ModelInfo, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model of a catalogue, as a composition says it: misspelt keys are refused."""


class EndpointConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An endpoint and the models that it answers for."""

    id: str
    """The provider id that the `agent` row names."""
    base_url: str
    """What `/chat/completions`, or the path of another format, is appended to."""
    models: list[str | ModelRow]
    """Model ids, or rows with what is known about the model."""
    api_key_env: str | None = None
    """The variable that holds the key; without it none is sent. The key itself never stands in a file."""
    idle_timeout_s: float = 300.0
    """Seconds of silence after which a call fails."""
    connect_timeout_s: float = 15.0
    headers: dict[str, str] = {}
    """Further headers of every request."""

    def __post_init__(self) -> None:
        if not self.base_url.startswith(("http://", "https://")):
            raise ValueError(f"`base_url` must begin with http:// or https://, got {self.base_url!r}")
        if not self.models:
            raise ValueError("`models` must name at least one model")


class OpenAIChatConfig(EndpointConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A chat-completions endpoint and the models that it answers for."""

    dialect: dict[str, Any] = {}
    """How the endpoint differs from the plain format; see `onetake.wire.chat_request.ChatDialect`."""


class ExtendedEndpointConfig(EndpointConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Messages or Responses endpoint and the models that it answers for."""

    extra: dict[str, Any] = {}
    """Fields to send along with every request, as they are; they win over computed ones."""


def catalogue(models: list[str | ModelRow]) -> Mapping[str, ModelInfo]:
    """The models of a config by id."""
    rows = [ModelRow(id=model) if isinstance(model, str) else model for model in models]
    return {row.id: row for row in rows}


@asynccontextmanager
async def openai_chat(ctx: AppContext, config: OpenAIChatConfig) -> AsyncIterator[None]:
    """Answer model calls by asking a chat-completions endpoint."""
    from onetake.providers.openai_chat import OpenAIChatProvider

    provider = OpenAIChatProvider(
        config.id,
        dialect=_dialect(config.dialect) if config.dialect else None,
        **_endpoint(ctx, config),
    )
    async with _registered(ctx, provider):
        yield


@asynccontextmanager
async def anthropic_messages(ctx: AppContext, config: ExtendedEndpointConfig) -> AsyncIterator[None]:
    """Answer model calls by asking an endpoint of Anthropic's Messages format."""
    from onetake.providers.anthropic_messages import AnthropicMessagesProvider
    from onetake.wire.messages_request import MessagesDialect

    provider = AnthropicMessagesProvider(
        config.id,
        dialect=MessagesDialect(extra=config.extra),
        **_endpoint(ctx, config),
    )
    async with _registered(ctx, provider):
        yield


@asynccontextmanager
async def openai_responses(ctx: AppContext, config: ExtendedEndpointConfig) -> AsyncIterator[None]:
    """Answer model calls by asking an endpoint of OpenAI's Responses format."""
    from onetake.providers.openai_responses import OpenAIResponsesProvider

    provider = OpenAIResponsesProvider(config.id, extra=config.extra, **_endpoint(ctx, config))
    async with _registered(ctx, provider):
        yield


def _endpoint(ctx: AppContext, config: EndpointConfig) -> dict[str, Any]:
    """What every adapter is told of its endpoint."""
    return {
        "base_url": config.base_url,
        "models": catalogue(config.models),
        "api_key_env": config.api_key_env,
        "environ": ctx.env,
        "headers": config.headers,
        "idle_timeout_s": config.idle_timeout_s,
        "connect_timeout_s": config.connect_timeout_s,
    }


@asynccontextmanager
async def _registered(ctx: AppContext, provider: HttpProvider) -> AsyncIterator[None]:
    """Let a provider answer while the context is entered."""
    unregister = ctx.providers.register(provider)
    try:
        yield
    finally:
        unregister()
        await provider.aclose()


def _dialect(settings: dict[str, Any]) -> ChatDialect:
    from onetake.wire.chat_request import ChatDialect

    known = ChatDialect.__struct_fields__
    for key in settings:
        if key not in known:
            raise UsageError(f"config: dialect: unknown key {key!r}; {did_you_mean(key, known)}")
    try:
        return msgspec.convert(settings, ChatDialect)
    except msgspec.ValidationError as error:
        raise UsageError(f"config: dialect: {error}") from error


class AcpOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the ACP surface talks."""

    stream: bool = False
    """False: one update for each text of a committed message. True: text and thoughts as they are written,
    and tool calls as they run, as editors show them.
    """


@asynccontextmanager
async def acp(ctx: AppContext, config: AcpOptions) -> AsyncIterator[None]:
    """Keep the options of the ACP surface for the command that serves it."""
    ctx.surface_options["acp"] = config
    try:
        yield
    finally:
        ctx.surface_options.pop("acp", None)
