"""What happens to an agent, and what its model and its tools do meanwhile: the material of a state machine.

Delays are in seconds of virtual time (`onetake.testing.virtual_time`). They are drawn from a few values, so
that things happen at the same moment often enough.
"""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st


class ToolPlan(NamedTuple):
    """What a tool does when it is called."""

    seconds: float
    """How long it takes."""
    fails: bool


class CallPlan(NamedTuple):
    """What the model does in one call."""

    kind: str
    """`says`, `calls` (tools), `max-tokens`, `error` (a finish that says so), or `throws`."""
    seconds: float
    """Between two chunks."""
    tools: tuple[str, ...] = ()
    """For `calls`: the tools, by name, in order; a name twice is two calls."""


def delays() -> st.SearchStrategy[float]:
    """Draw a time to wait; often none."""
    return st.sampled_from([0.0, 0.0, 0.5, 1.0, 3.0])


def tool_plans() -> st.SearchStrategy[ToolPlan]:
    """Draw what a tool does."""
    return st.builds(ToolPlan, delays(), st.booleans())


def call_plans(tools: tuple[str, ...]) -> st.SearchStrategy[CallPlan]:
    """Draw what a model does in one call; it knows `tools`, and asks for others too."""
    asked = st.lists(st.sampled_from([*tools, "missing"]), min_size=1, max_size=4).map(tuple)
    return st.one_of(
        st.builds(CallPlan, st.sampled_from(["says", "max-tokens", "error", "throws"]), delays()),
        st.builds(CallPlan, st.just("calls"), delays(), asked),
    )


def schedules() -> st.SearchStrategy[list[tuple[str, float]]]:
    """Draw what is done to an agent, as (what, seconds to wait behind it)."""
    what = st.sampled_from(["followup", "steer", "inject", "cancel", "wait"])
    return st.lists(st.tuples(what, delays()), max_size=20)
