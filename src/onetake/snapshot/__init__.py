"""The snapshot suite: drive a real agent from a script, compare what it did with what it did once.

For Python code there is `Suite`; everything else here is what the commands are made of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onetake.snapshot.api import Suite

__all__ = ["Suite"]


def __getattr__(name: str) -> object:
    """Import the public names when they are asked for: the commands start without them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from onetake.snapshot import api

    value: object = getattr(api, name)
    return value
