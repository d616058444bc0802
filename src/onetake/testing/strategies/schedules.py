"""What happens to an agent, and what its model and its tools do meanwhile: material for a state machine, or
whole as a `Schedule`.

Times are in seconds of virtual time (`onetake.testing.virtual_time`). They are drawn from a few values, so
that things happen at the same moment often enough.
"""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

SAYINGS = ("followup", "ask", "steer", "inject", "inject-step")
"""The ways to say something: `ask` is a followup whose end somebody waits for, `inject-step` an injection
that joins the running turn."""
MOMENTS = (
    "agent/inbox/spliced",
    "turn/start",
    "step/start",
    "user/message",
    "assistant/message",
    "tool/call",
    "tool/result",
    "step/end",
    "turn/end",
)
"""The events of a log at which somebody who watches it may react."""


class ToolPlan(NamedTuple):
    """What a tool does whenever it is called."""

    kind: str
    """`answers`, `fails`, or `gives-up`: it raises a cancellation that nobody asked for."""
    seconds: float
    """How long it takes."""
    lingers: float
    """How long it takes to stop when it is cancelled."""


class CallPlan(NamedTuple):
    """What the model does in one call."""

    kind: str
    """`says`, `calls` (tools), `max-tokens`, `error` (a finish that says so), or `throws`."""
    seconds: float
    """Between two chunks."""
    tools: tuple[str, ...] = ()
    """For `calls`: the tools, by name, in order; a name twice is two calls."""
    lingers: float = 0.0
    """When it is cancelled: how long it takes to notice, saying one thing more; 0 is at once."""


class Act(NamedTuple):
    """One thing that is done to an agent."""

    what: str
    """One of `SAYINGS`, or `cancel`."""
    wait: float
    """How long to wait behind it."""


class Schedule(NamedTuple):
    """All that happens to an agent."""

    calls: list[CallPlan]
    """What the model does, call by call; behind the last plan it only says something."""
    tools: list[ToolPlan]
    """What each tool does, in the order in which the tools were given."""
    acts: list[Act]


def delays() -> st.SearchStrategy[float]:
    """Draw a time to wait; often none."""
    return st.sampled_from([0.0, 0.0, 0.5, 1.0, 3.0])


def tool_plans() -> st.SearchStrategy[ToolPlan]:
    """Draw what a tool does."""
    kinds = st.sampled_from(["answers", "answers", "answers", "fails", "gives-up"])
    return st.builds(ToolPlan, kinds, delays(), delays())


def call_plans(tools: tuple[str, ...]) -> st.SearchStrategy[CallPlan]:
    """Draw what a model does in one call; it knows `tools`, and now and then asks for one that is missing."""
    asked = st.lists(st.sampled_from([*tools, *tools, "missing"]), min_size=1, max_size=4).map(tuple)
    others = st.sampled_from(["says", "max-tokens", "error", "throws"])
    return st.one_of(
        st.builds(CallPlan, others, delays(), lingers=delays()),
        st.builds(CallPlan, st.just("calls"), delays(), asked, delays()),
    )


def acts() -> st.SearchStrategy[Act]:
    """Draw one thing to do."""
    return st.builds(Act, st.sampled_from([*SAYINGS, "cancel"]), delays())


def schedules(tools: tuple[str, ...]) -> st.SearchStrategy[Schedule]:
    """Draw all that happens to an agent which has `tools`."""
    return st.builds(
        Schedule,
        st.lists(call_plans(tools), max_size=8),
        st.lists(tool_plans(), min_size=len(tools), max_size=len(tools)),
        st.lists(acts(), max_size=20),
    )
