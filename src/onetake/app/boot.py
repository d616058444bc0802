"""Start an agent from its composition, and take it down again in reverse order."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from onetake.agent.context import AppContext
from onetake.app.composition import Composition, fill_where_set
from onetake.app.resolve import Plugin, resolve
from onetake.errors import AgentError, OnetakeError, UsageError
from onetake.runfile import RunFile


@asynccontextmanager
async def boot(
    composition: Composition, *, environ: Mapping[str, str] | None = None, run: RunFile | None = None
) -> AsyncIterator[AppContext]:
    """Start all rows in order and yield the app context; on exit close the sessions, then undo the rows.

    All rows are resolved and their configs typed before the first one is started. Raises UsageError naming
    file, row and key, and AgentError when a plugin fails to start.
    """
    plugins = resolve(composition)
    ctx = AppContext(
        config_dir=composition.path.resolve().parent,
        environ=os.environ if environ is None else environ,
        run=run,
    )
    off = [row for row in composition.rows if row.switched_off_in == composition.path]
    ctx.disabled_rows = [(row.place, fill_where_set(row.config, ctx.env)) for row in off]
    async with AsyncExitStack() as stack:
        if run is not None and run.requests:
            from onetake.model.capture import RequestCapture

            capture = RequestCapture(Path(run.requests))
            stack.callback(capture.close)
            ctx.providers.capture = capture
        for plugin in plugins:
            await _start(stack, ctx, plugin)
        _check_agent(ctx, composition)
        stack.push_async_callback(ctx.close)
        yield ctx


async def _start(stack: AsyncExitStack, ctx: AppContext, plugin: Plugin) -> None:
    try:
        await stack.enter_async_context(plugin.start(ctx, plugin.config))
    except UsageError as error:
        raise UsageError(f"{plugin.row.place}: {error}") from error
    except OnetakeError:
        raise
    except (Exception, SystemExit) as error:  # nobody may take sys.exit(0) for a run that succeeded
        raise AgentError(
            f"{plugin.row.place}: {plugin.target} failed to start: {type(error).__name__}: {error}"
        ) from error


def _check_agent(ctx: AppContext, composition: Composition) -> None:
    """Refuse at the start what would fail every turn: no agent, an unknown model, an unknown effort."""
    config = ctx.agent_config
    if config is None:
        raise UsageError(f"{composition.path}: no row uses `agent`; add one that names provider and model")
    place = next(row.place for row in composition.active() if row.use == "agent")
    try:
        _, model = ctx.providers.get(config.provider, config.model)
    except UsageError as error:
        raise UsageError(f"{place}: {error}") from error
    if config.effort is not None and model.efforts and config.effort not in model.efforts:
        raise UsageError(
            f"{place}: config: effort: {config.model!r} has no effort {config.effort!r}; "
            f"there is {', '.join(map(repr, model.efforts))}"
        )
