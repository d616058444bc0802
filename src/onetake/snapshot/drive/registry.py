"""The drivers by name: each is a module with one class, which is imported when a suite asks for it.

A driver knows one protocol: which ops of a script make sense in it, how an agent is started and spoken to,
when a run is over, and how what it said on stdout is rendered. Everything else is the same for all of them
(see `onetake.snapshot.drive.base`).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onetake.snapshot.drive.base import Driver

DRIVERS = {
    "acp": ("onetake.snapshot.drive.acp", "AcpDriver"),
    "command": ("onetake.snapshot.drive.command", "CommandDriver"),
    "headless": ("onetake.snapshot.drive.headless", "HeadlessDriver"),
}
"""`[suite] driver` -> module and class."""


def driver_class(name: str) -> type[Driver]:
    """The driver that a suite names; the name was checked when the suite was read."""
    module, attribute = DRIVERS[name]
    found: type[Driver] = getattr(import_module(module), attribute)
    return found
