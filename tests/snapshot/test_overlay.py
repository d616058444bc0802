"""What an overlay may change is decided by what a row is, not by what its config looks like."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from onetake.app.boot import boot
from onetake.app.composition import load_composition
from onetake.errors import UsageError
from onetake.runfile import RunFile
from onetake.snapshot.guard.overlay import overlay_faults
from onetake.snapshot.guard.static import overlay_problems
from onetake.snapshot.suites.scaffold import new_scenario
from onetake.snapshot.suites.suite import load_suite

MODELS = "models: [{id: m, retry: {max_attempts: 3, initial_delay_ms: 500, jitter: 0.2}}]"
LIVE = f"""\
- {{id: model, use: openai-chat, config: {{id: p, base_url: "http://127.0.0.1:9", {MODELS}}}}}
- {{id: agent, use: agent, config: {{provider: p, model: m}}}}
- {{id: guard, use: "mine:guard", config: {{id: g, models: [m], retry: {{times: 2}}}}}}
- {{id: asleep, use: "mine:adapter", config: {{id: q, models: [m]}}, disabled: true}}
"""
OFF = "{id: model, disabled: true}"
REPLAY = "insert: [{id: replay, use: replay}]"
CONFIG = '{id: p, base_url: "http://127.0.0.1:9", %s}'


def faults(folder: Path, *patches: str, live: str = LIVE, declared: tuple[str, ...] = ()) -> list[str]:
    """What is said about an overlay of these patches."""
    (folder / "agent.yml").write_text(live)
    overlay = "base: agent.yml\npatches:\n" + "".join(f"  - {patch}\n" for patch in patches)
    (folder / "agent.snapshot.yml").write_text(overlay)
    found = overlay_faults(folder / "agent.yml", folder / "agent.snapshot.yml", declared)
    return [message for _, message in found]


def test_the_adapter_off_and_replay_on(tmp_path: Path) -> None:
    """That is all it takes."""
    assert faults(tmp_path, OFF, REPLAY) == []


def test_a_row_with_a_catalogue_is_no_adapter_for_that(tmp_path: Path) -> None:
    """Any plugin may have a config with `id` and `models`; switching it off tests another agent."""
    (fault,) = faults(tmp_path, OFF, "{id: guard, disabled: true}", REPLAY)
    assert "switches off row 'guard' (use: mine:guard), which is no model adapter" in fault
    assert "[agent] adapters" in fault


def test_an_adapter_of_your_own_is_declared(tmp_path: Path) -> None:
    """Then it must be off, and what is declared must look like one."""
    declared = ("guard",)
    assert faults(tmp_path, OFF, "{id: guard, disabled: true}", REPLAY, declared=declared) == []
    (fault,) = faults(tmp_path, OFF, REPLAY, declared=declared)
    assert "leaves the adapter row 'guard' on" in fault
    (fault, *_) = faults(tmp_path, OFF, "{id: agent, disabled: true}", REPLAY, declared=("agent",))
    assert "row 'agent' (use: agent) is no adapter: it has no `id` and `models`" in fault


@pytest.mark.parametrize(
    ("retry", "field"),
    [
        ("{max_attempts: 0, initial_delay_ms: 0, jitter: 0}", "models.0.retry.max_attempts"),
        ("{initial_delay_ms: 0, jitter: 0}", "models.0.retry.max_attempts"),
        (
            "{max_attempts: 3, initial_delay_ms: 500, jitter: {codes: [X]}, codes: [X]}",
            "models.0.retry.codes",
        ),
        ("null", "models.0.retry"),
    ],
)
def test_how_often_is_no_delay(tmp_path: Path, retry: str, field: str) -> None:
    """Only how long a retry waits may be pinned, not whether and how often it is made."""
    config = CONFIG % f"models: [{{id: m, retry: {retry}}}]"
    found = faults(tmp_path, f"{{id: model, disabled: true, config: {config}}}", REPLAY)
    assert any(f"it changes `{field}` of row 'model'" in fault for fault in found), found
    replay = f"insert: [{{id: replay, use: replay, config: {{providers: [{config}]}}}}]"
    assert any(f"changes `{field}` of the provider 'p'" in fault for fault in faults(tmp_path, OFF, replay))


def test_delays_and_jitter_are_pinned(tmp_path: Path) -> None:
    """A replay does not wait."""
    config = CONFIG % "models: [{id: m, retry: {max_attempts: 3, initial_delay_ms: 0, jitter: 0}}]"
    assert faults(tmp_path, f"{{id: model, disabled: true, config: {config}}}", REPLAY) == []


def test_a_key_of_that_name_elsewhere_stays(tmp_path: Path) -> None:
    """`retry` means something in the catalogue of an adapter, and nowhere else."""
    patch = "{id: guard, config: {id: g, models: [m], retry: {times: 0}}}"
    (fault,) = faults(tmp_path, OFF, patch, REPLAY)
    assert "it changes `retry.times` of row 'guard'" in fault
    live = LIVE.replace("{provider: p, model: m}", "{provider: p, model: m, retry: {jitter: 1}}")
    patch = "{id: agent, config: {provider: p, model: m, retry: {jitter: 0}}}"
    (fault,) = faults(tmp_path, OFF, patch, REPLAY, live=live)
    assert "it changes `retry.jitter` of row 'agent'" in fault


def test_suite_toml_declares_adapters(tmp_path: Path) -> None:
    """`onetake new` writes the declaration for a plugin that has a catalogue, to be reviewed."""
    (tmp_path / "agent.yml").write_text(LIVE)
    new_scenario(tmp_path / "snapshots", "one", config=tmp_path / "agent.yml")
    suite = load_suite(tmp_path / "snapshots")
    assert suite.settings.agent.adapters == ["guard"]
    assert overlay_problems(suite, suite.scenarios["one"]) == []
    settings = tmp_path / "snapshots/suite.toml"
    settings.write_text(settings.read_text().replace('"guard"', ""))
    suite = load_suite(tmp_path / "snapshots")
    (problem,) = overlay_problems(suite, suite.scenarios["one"])
    assert problem.guard == "overlay" and "'guard'" in problem.message


def test_replay_answers_only_for_what_the_overlay_switched_off(tmp_path: Path) -> None:
    """A row that is off in the live agent too gives it no model, so it must give the replayed one none."""
    faults(tmp_path, OFF, REPLAY, live=LIVE.replace("- {id: guard", "- {id: guard, disabled: true"))
    run = RunFile(mode="replay", roots={"cwd": str(tmp_path)})

    async def providers() -> list[str]:
        composition = load_composition(tmp_path / "agent.snapshot.yml", {})
        async with boot(composition, environ={}, run=run) as ctx:
            found = []
            for provider in ("p", "q", "g"):
                try:
                    found.append(ctx.providers.get(provider, "m")[0].id)
                except UsageError:
                    continue
            return found

    assert asyncio.run(providers()) == ["p"]
