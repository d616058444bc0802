"""What is said about a header that no pin holds: what differs, and what to refresh or to make a pin.

Where the fixture names a pin, replay shows how the live text differs from it: usually the pin's own scenario
differs alike, and refreshing that one accepts it for all. Where it names none, and wherever something is
about to be written, nobody may accept it by rewriting files.
"""

from __future__ import annotations

from onetake.snapshot.diff import compare as comparing
from onetake.snapshot.findings import Difference, Problem
from onetake.snapshot.render.pins import Unpinned, session_file, write_sidecar
from onetake.snapshot.suites.select import command
from onetake.snapshot.suites.suite import Scenario, Suite


def unpinned_problem(unpinned: Unpinned, scenario: Scenario, suite: Suite) -> Problem:
    """A header that no pin holds, with the way out."""
    what = _what(unpinned)
    if unpinned.fresh:
        # The pin was refreshed a moment ago, so it does not lag behind: the two do send different texts.
        guard, message = "pin-clash", f"this run would write the {what} of a pin that was written just now"
        remedy = f"make this scenario a pin too: {_own_pin(scenario)}"
    else:
        guard, message = "unpinned-header", f"no pin of the suite holds the {what} that this run sent"
        remedy = _remedy(unpinned, scenario, suite)
    return Problem(
        guard=guard,
        scenario=scenario.name,
        surface="pins",
        file=f"{scenario.name}/{session_file(unpinned.session)}" if unpinned.session else None,
        message=f"{message}{_against_pin(unpinned)}",
        remedy=remedy,
    )


def pin_difference(unpinned: Unpinned, scenario: Scenario, suite: Suite) -> Difference:
    """A live header that is not what the named sidecar says: the same cause as in the pin itself."""
    pin = unpinned.committed
    comparison = _compare_with_pin(unpinned)
    assert pin is not None and comparison is not None, "an unpinned text equals no pin"
    hint = f"(if only {scenario.name} is meant to send another {_what(unpinned)}: {_own_pin(scenario)})"
    return Difference(
        scenario=scenario.name,
        surface="pins",
        file=pin.file,
        message=f"{comparison.message}\n{hint}",
        diff=comparison.diff,
        accept=command("refresh", suite, pin.scenario),
        cause=f"pins:{comparison.cause}",
    )


def _remedy(unpinned: Unpinned, scenario: Scenario, suite: Suite) -> str:
    first = next((s for s in suite.scenarios.values() if s.settings.pins_header), None)
    pin = suite.scenarios.get(unpinned.committed.scenario) if unpinned.committed is not None else first
    if pin is None:
        return no_pin_remedy(scenario, suite)
    mode = "record" if pin.recorded and not (pin.dir / session_file(0)).is_file() else "refresh"
    return (
        f"{mode} the pin first: {command(mode, suite, pin.name)}; if this scenario's {_what(unpinned)} is "
        f"meant to be another one, make it a pin too: {_own_pin(scenario)}"
    )


def no_pin_remedy(scenario: Scenario, suite: Suite) -> str:
    """What to do in a suite without a pin: one scenario of those with this composition becomes one."""
    alike = [s for s in suite.scenarios.values() if s.settings.config == scenario.settings.config]
    first = next((s for s in alike if s.settings.model_turn), scenario)
    if first is scenario:
        return f"make this scenario the pin: {_own_pin(scenario)}"
    return f"make the first scenario the pin, and write it first: {_own_pin(first)}"


def empty_pin(scenario: Scenario, why: str) -> Problem:
    """A pin without a text of its own; `why` says who has it."""
    return Problem(
        guard="empty-pin",
        scenario=scenario.name,
        message=f"the scenario is a pin without a text of its own: {why}",
        remedy=f"remove pins_header from [scenarios.{scenario.name}]",
    )


def _against_pin(unpinned: Unpinned) -> str:
    pin = unpinned.committed
    comparison = _compare_with_pin(unpinned) if pin is not None else None
    return (
        f"; against {pin.file}:\n{comparison.message}" if pin is not None and comparison is not None else ""
    )


def _compare_with_pin(unpinned: Unpinned) -> comparing.Comparison | None:
    pin = unpinned.committed
    assert pin is not None
    old, new = write_sidecar(pin.kind, pin.value), write_sidecar(pin.kind, unpinned.value)
    return comparing.compare(old, new, pin.file)


def _what(unpinned: Unpinned) -> str:
    return "system prompt" if unpinned.kind == "system" else "set of tool schemas"


def _own_pin(scenario: Scenario) -> str:
    return f"pins_header = true in [scenarios.{scenario.name}]"
