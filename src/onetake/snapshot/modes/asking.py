"""Before the model is asked: what would make the recording futile, and can be known without paying for it."""

from __future__ import annotations

from collections.abc import Mapping

from onetake.snapshot.drive.env import RUN_VARIABLE, recording_variables
from onetake.snapshot.findings import Problem
from onetake.snapshot.guard.static import boots_composition
from onetake.snapshot.modes.judge import is_compared
from onetake.snapshot.render.unpinned import no_pin_remedy
from onetake.snapshot.suites.select import command
from onetake.snapshot.suites.suite import Scenario, Suite

_ALWAYS = ("HOME", "LANG", "PATH", "TZ", RUN_VARIABLE)
"""What every agent gets."""


def futile(suite: Suite, scenario: Scenario, environ: Mapping[str, str]) -> list[Problem]:
    """Why recording this scenario cannot succeed; empty when nothing is known against it.

    Says nothing about agents whose composition is not ours. Raises `UsageError` for one that cannot be read.
    """
    if not boots_composition(suite) or suite.settings.gateway is not None:
        return []
    from onetake.app.composition import load_uninterpolated, named_variables

    rows = [row for row in load_uninterpolated(suite.live_config(scenario)).rows if not row.disabled]
    found = []
    prompted = any(row.use == "prompt" and row.config.get("sections") for row in rows)
    pinned = any(other.settings.pins_header for other in suite.scenarios.values())
    if prompted and not pinned and is_compared("pins", scenario, suite):
        found.append(
            Problem(
                guard="unpinned-header",
                scenario=scenario.name,
                message="no scenario of the suite is a pin, so nothing would hold the prompt that is sent; "
                "the model was not asked",
                remedy=no_pin_remedy(scenario, suite),
            )
        )
    given = {
        **dict.fromkeys(_ALWAYS, "given"),
        **recording_variables(suite, scenario, environ),
        **suite.settings.agent.env,
        **scenario.settings.env,
    }
    needed = dict.fromkeys(
        name for row in rows for name, necessary in named_variables(row.config).items() if necessary
    )
    missing = [name for name in needed if not given.get(name, "").strip()]
    return found + [_unset(name, suite, scenario) for name in missing]


def _unset(name: str, suite: Suite, scenario: Scenario) -> Problem:
    config = suite.live_config(scenario)
    if name in suite.settings.agent.record_env:
        message = f"the variable {name} is not set, and {config.name} needs it; the model was not asked"
        remedy = f"{name}=... {command('record', suite, scenario.name)}, or put it into .env beside that file"
    else:
        message = f"{config.name} needs the variable {name}, and record does not pass it on"
        remedy = f'name it in suite.toml: [agent] record_env = [..., "{name}"]'
    return Problem(guard="input", scenario=scenario.name, message=message, remedy=remedy, exit_code=2)
