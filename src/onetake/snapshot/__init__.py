"""The snapshot suite: drive a real agent from a script, compare what it did with what it did once.

For Python code there are `Suite` (`api`) and `recorded_model` (`inprocess`); everything else here is what the
commands are made of. `run` takes many scenarios, `attempt` one, and in order they go through:

    suites/     what is asked for: suite.toml, scripts, selection, skeletons
    drive/      one run of the agent as a process, brought home as a harvest
    render/     a harvest as the files that should be committed, one module a surface
    diff/       where two states of a file part, and which scenarios part for one cause
    guard/      what must never pass silently, with and without a run
    volatile/   values that change from run to run, and the rule that would cover them
    modes/      what is done with all that: judge, record, refresh, migrate, and writing safely

`findings` are what any of them may report; `report` and `artifacts` bring them to people.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onetake.snapshot.api import Suite
    from onetake.snapshot.inprocess import recorded_model

__all__ = ["Suite", "recorded_model"]


def __getattr__(name: str) -> object:
    """Import the public names when they are asked for: the commands start without them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module = "onetake.snapshot.api" if name == "Suite" else "onetake.snapshot.inprocess"
    value: object = getattr(import_module(module), name)
    return value
