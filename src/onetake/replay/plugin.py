"""The `replay` row of a snapshot composition: providers that answer from the recording of the run.

It answers for the same provider and model ids as the live composition, with the same catalogue, so that
headers and limits are as live. Unless its config says otherwise it takes both from the adapter rows that
the overlay has switched off, so that nothing has to be written twice.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from onetake.agent.context import AppContext
from onetake.errors import UsageError
from onetake.model.capture import counts
from onetake.model.registry import ModelInfo
from onetake.replay.provider import Replay, ReplayProvider
from onetake.replay.recordings import load_recordings
from onetake.runfile import RUN_VARIABLE, RunFile
from onetake.session.log import SessionLog
from onetake.session.store import SessionStore, read_live


class Catalogue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One provider to answer for."""

    id: str
    """The provider id that the `agent` row names."""
    models: list[str | dict[str, Any]]
    """Model ids, or objects with the fields of `onetake.model.registry.ModelInfo`."""


class ReplayConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What replay answers for."""

    providers: list[Catalogue] = []
    """Empty: the providers and models of the switched-off adapter rows."""


@asynccontextmanager
async def replay(ctx: AppContext, config: ReplayConfig) -> AsyncIterator[None]:
    """Answer model calls from the recording that the runner names."""
    run = ctx.run
    if run is None:
        raise UsageError(f"replay needs a recording: `onetake replay` names it in {RUN_VARIABLE}")
    if run.mode == "record":
        raise UsageError("replay is on in a recording; boot the live composition instead of the overlay")
    served = Replay(
        load_recordings(run),
        lambda: _open_logs(ctx),
        roots=run.roots,
        workspace=Path(run.roots.get("cwd") or "."),
        violations_file=run.violations,
        mint=[(rule.pattern, rule.name) for rule in run.mint],
        nonce=run.nonce,
        earlier=_earlier_logs(run),
        made=counts(Path(run.requests)) if run.requests else None,
        pace=run.pace,
    )
    catalogues = config.providers or switched_off(ctx.disabled_rows)
    if not catalogues:
        raise UsageError("replay has nobody to answer for: no adapter row is switched off; list `providers`")
    with ExitStack() as stack:
        for catalogue in catalogues:
            stack.callback(ctx.providers.register(ReplayProvider(catalogue.id, _models(catalogue), served)))
        yield


def switched_off(rows: Iterable[tuple[str, Mapping[str, Any]]]) -> list[Catalogue]:
    """The providers of the switched-off rows, given as (place, config), that have a catalogue of models."""
    found: list[Catalogue] = []
    for place, config in rows:
        if "id" in config and "models" in config:
            try:
                found.append(msgspec.convert({"id": config["id"], "models": config["models"]}, Catalogue))
            except msgspec.ValidationError as error:
                raise UsageError(f"{place}: config: {error}") from error
    return found


def _models(catalogue: Catalogue) -> dict[str, ModelInfo]:
    rows = [{"id": model} if isinstance(model, str) else model for model in catalogue.models]
    try:
        infos = [msgspec.convert(row, ModelInfo) for row in rows]
    except msgspec.ValidationError as error:
        raise UsageError(f"the catalogue of provider {catalogue.id!r}: {error}") from error
    return {info.id: info for info in infos}


def _earlier_logs(run: RunFile) -> list[SessionLog]:
    """The logs that former processes of the run left, oldest first; one that is broken the runner reports."""
    if not run.sessions_root:
        return []
    logs: list[SessionLog] = []
    for path in SessionStore(Path(run.sessions_root), project="sessions").logs():
        with suppress(UsageError):
            logs.append(SessionLog(*read_live(path)))
    return sorted(logs, key=lambda log: log.header.get("createdAt", 0))


def _open_logs(ctx: AppContext) -> Iterable[SessionLog]:
    return [agent.log for agent in ctx.agents.values()]
