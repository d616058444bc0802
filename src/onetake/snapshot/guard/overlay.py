"""Does the snapshot overlay replace the model and nothing else? Answered from the two files.

A replay is worth what the replayed agent has in common with the real one. So the overlay may switch adapter
rows off, insert one `replay` row, and pin retry delays; any other difference would make the suite test
another agent.

What a row is decides, never what its config looks like: an adapter is a built-in one (`ADAPTERS`), or a row
that suite.toml names under `[agent] adapters`, where a reviewer sees it; what may be pinned are the delays
and the jitter in the `retry` of an adapter's models.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from onetake import jsontext
from onetake.app.builtin import BUILTIN
from onetake.app.composition import Composition, Row, load_uninterpolated

_ADAPTERS = ("openai-chat", "anthropic-messages", "openai-responses")
ADAPTERS = frozenset({*_ADAPTERS, *(BUILTIN[name] for name in _ADAPTERS)})
"""What the `use` of a built-in plugin that reaches a model can be."""
REPLAY = "replay"
"""The built-in plugin that answers from the recording (nothing installed can take a built-in name)."""
PINNABLE = frozenset({"initial_delay_ms", "max_delay_ms", "jitter"})
"""What an overlay may change in the `retry` of a model: how long it waits, never whether or how often."""


def overlay_faults(
    live_path: Path, snapshot_path: Path, declared: Collection[str] = ()
) -> Iterator[tuple[str, str]]:
    """What the overlay changes beyond what it may: (guard, message). Raises `UsageError`.

    `declared` are the ids of the rows that are adapters because suite.toml says so.
    """
    live, snapshot = load_uninterpolated(live_path), load_uninterpolated(snapshot_path)
    if live_path.resolve() not in {path.resolve() for path in snapshot.files}:
        yield "overlay", f"it is no overlay of {live_path.name}; begin it with `base: {live_path.name}`"
        return
    ours = {row.id: row for row in snapshot.rows}
    kept = [row.id for row in snapshot.rows if row.id in {base.id for base in live.rows}]
    if kept != [row.id for row in live.rows]:
        yield "overlay", f"it does not keep the rows of {live_path.name} in their order"
        return
    adapters = [row for row in live.rows if row.use in ADAPTERS or row.id in declared]
    for row in live.rows:
        yield from _row_faults(row, ours[row.id], row in adapters)
    yield from _inserted_faults(live, snapshot, adapters)


def has_catalogue(row: Row) -> bool:
    """Whether a row looks like an adapter: replay could answer for the models that it lists."""
    return "id" in row.config and "models" in row.config


def _row_faults(base: Row, row: Row, adapter: bool) -> Iterator[tuple[str, str]]:
    changed = [place for place in _changed(base.config, row.config) if not (adapter and _is_pinnable(place))]
    if changed:
        what = f"it changes `{'.'.join(changed[0])}` of row {row.id!r}"
        yield "overlay", f"{what}; only {_PINNABLE} of an adapter's models may be pinned"
    if base.disabled and not row.disabled:
        yield "overlay", f"it switches row {row.id!r} on, which is off in the live composition"
    if adapter and not has_catalogue(base):
        yield "overlay", f"row {row.id!r} (use: {row.use}) is no adapter: it has no `id` and `models`"
    if not adapter and row.disabled and not base.disabled:
        yield (
            "overlay",
            f"it switches off row {row.id!r} (use: {row.use}), which is no model adapter (one of your own is "
            "named in suite.toml: [agent] adapters)",
        )
    if adapter and not row.disabled:
        yield "overlay", f"it leaves the adapter row {row.id!r} on, so that a replay could call a real model"


def _is_pinnable(place: tuple[str, ...]) -> bool:
    return len(place) == 4 and (place[0], place[2]) == ("models", "retry") and place[3] in PINNABLE


_PINNABLE = ", ".join(f"`{name}`" for name in sorted(PINNABLE)) + " in the `retry`"


def _inserted_faults(
    live: Composition, snapshot: Composition, adapters: Collection[Row]
) -> Iterator[tuple[str, str]]:
    known = {row.id for row in live.rows}
    inserted = [row for row in snapshot.rows if row.id not in known]
    replays = [row for row in inserted if row.use == REPLAY and not row.disabled]
    if not replays:
        uses = ", ".join(f"{row.id!r} (use: {row.use})" for row in inserted) or "no row"
        yield (
            "plugin",
            f"it inserts {uses} where the built-in plugin `use: {REPLAY}` has to answer for the model",
        )
    for row in inserted:
        if row not in replays[:1] and (row.use == REPLAY or replays):
            yield (
                "overlay",
                f"it inserts row {row.id!r} (use: {row.use}); only one `{REPLAY}` row may be added",
            )
    for replay in replays[:1]:
        yield from _catalogue_faults(replay, {str(row.config.get("id")): row for row in adapters})


def _catalogue_faults(replay: Row, adapters: Mapping[str, Row]) -> Iterator[tuple[str, str]]:
    """A catalogue in the replay row must be that of the adapters, or headers and limits are not as live."""
    providers = replay.config.get("providers") or []
    for provider in providers if isinstance(providers, list) else []:
        name = str(provider.get("id")) if isinstance(provider, dict) else str(provider)
        adapter = adapters.get(name)
        if adapter is None or not isinstance(provider, dict):
            yield (
                "overlay",
                f"row {replay.id!r} answers for the provider {name!r}, which no adapter row offers",
            )
            continue
        was, now = {"models": adapter.config.get("models")}, {"models": provider.get("models")}
        changed = [place for place in _changed(was, now) if not _is_pinnable(place)]
        if changed:
            yield "overlay", f"row {replay.id!r} changes `{'.'.join(changed[0])}` of the provider {name!r}"


def _changed(was: Any, now: Any, place: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The places at which two configs differ."""
    if isinstance(was, dict) and isinstance(now, dict):
        for key in [*was, *(key for key in now if key not in was)]:
            if key in was and key in now:
                yield from _changed(was[key], now[key], (*place, str(key)))
            else:
                yield (*place, str(key))
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for number, (one, other) in enumerate(zip(was, now, strict=True)):
            yield from _changed(one, other, (*place, str(number)))
    elif jsontext.dumps(was) != jsontext.dumps(now):
        yield place
