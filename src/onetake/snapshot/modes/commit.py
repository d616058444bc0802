"""The last step of record and refresh: refuse what no replay could use, then write or show it."""

from __future__ import annotations

from collections.abc import Mapping

from onetake.errors import UsageError
from onetake.snapshot.findings import Difference, Problem, Verdict
from onetake.snapshot.guard.contents import staged_problems
from onetake.snapshot.guard.secrets import find_secrets
from onetake.snapshot.modes.judge import compare_file, is_compared, read_committed, surface_of
from onetake.snapshot.modes.write import write_files
from onetake.snapshot.render.pins import Pins
from onetake.snapshot.suites.select import command
from onetake.snapshot.suites.suite import Scenario, Suite


def secret_problems(
    files: Mapping[str, bytes], scenario: Scenario, environ: Mapping[str, str]
) -> list[Problem]:
    """What in these files must not be written: known shapes, and the values of key-like variables.

    `environ` has what a recorded agent was given from `.env`; refresh reads no such file.
    """
    return [
        Problem(
            guard="secret",
            scenario=scenario.name,
            file=f"{scenario.name}/{secret.file}",
            message=f"a secret would be written: {secret.text()}",
            remedy="keep it out of the agent's output, revoke it if it was real; nothing was written",
        )
        for secret in find_secrets(files, environ)
    ]


def planned(
    committed: Mapping[str, bytes],
    files: Mapping[str, bytes],
    scenario: Scenario,
    suite: Suite,
    *,
    fixtures: bool = False,
) -> dict[str, bytes | None]:
    """What becomes of the scenario's folder when a run gave `files`: new bytes, or None for what goes.

    Files of surfaces that the scenario does not compare are left alone, except a fixture that is missing:
    replay needs it. With `fixtures` every fixture is written, because a recording replaces it.
    """
    new: dict[str, bytes | None] = {name: None for name in committed if name not in files}
    new |= files
    return {
        name: data
        for name, data in new.items()
        if is_compared(surface_of(name) or "", scenario, suite)
        or (surface_of(name) == "log" and (fixtures or name not in committed))
    }


def staged(committed: Mapping[str, bytes], new: Mapping[str, bytes | None]) -> dict[str, bytes]:
    """The files of a scenario as they are once `new` is written."""
    return {name: data for name, data in {**committed, **new}.items() if data is not None}


def commit(
    verdict: Verdict,
    committed: Mapping[str, bytes],
    new: Mapping[str, bytes | None],
    scenario: Scenario,
    suite: Suite,
    pins: Pins,
    environ: Mapping[str, str],
    *,
    dry_run: bool,
) -> None:
    """Write what is `planned` into the scenario's folder, unless the verdict is red or a guard objects.

    `pins` are those of the suite before this write. Fills `written` and `changes` of the verdict.
    """
    verdict.problems += secret_problems({n: d for n, d in new.items() if d is not None}, scenario, environ)
    if scenario.settings.pins_header and is_compared("pins", scenario, suite):
        pins = pins.with_sidecars(scenario.name, verdict.sidecars)
    verdict.problems += staged_problems(scenario, suite, staged(committed, new), pins)
    if not verdict.ok:
        return
    for name, data in sorted(new.items()):
        old = committed.get(name)
        if old == data:
            continue
        comparison = compare_file(old, data, name)
        # Equal but for recorded gaps: written, but there is nothing to show.
        message = comparison.message if comparison is not None else "only recorded gaps between chunks change"
        verdict.changes.append(
            Difference(
                scenario=scenario.name,
                surface=surface_of(name) or "",
                file=f"{scenario.name}/{name}",
                message=message,
                diff=comparison.diff if comparison is not None else "",
                accept=command("refresh", suite, scenario.name),
                cause=f"{surface_of(name)}:{comparison.cause}" if comparison and comparison.cause else "",
            )
        )
        verdict.written.append(name)
    if not dry_run:
        verdict.written = write_files(
            scenario.dir, new, check=lambda: _require_unchanged(scenario, committed, new)
        )


def _require_unchanged(
    scenario: Scenario, committed: Mapping[str, bytes], new: Mapping[str, bytes | None]
) -> None:
    """Refuse when a file is neither what this command has read nor what it writes: it would undo what another
    one has recorded."""
    now = read_committed(scenario.dir)
    before = {name: committed.get(name) for name in {*now, *committed}}
    changed = sorted(name for name, old in before.items() if now.get(name) not in (old, new.get(name, old)))
    if changed:
        raise UsageError(
            f"{scenario.dir}: {', '.join(changed)} changed while this command ran (does another one record "
            "or refresh here?); nothing was written, run it again"
        )
