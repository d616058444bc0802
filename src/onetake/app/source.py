"""Run the source on disk, never a cache that may be older.

Python takes a cached module (`__pycache__/*.pyc`) for its source when the source's size and whole second of
change are what they were. An edit that keeps the size, in the second of the last run, would go unseen: the
old code would run, and a test of it would be green. So whatever is not installed (modules beside the
composition, editable installs, `PYTHONPATH`) is cached by a hash of its source instead, as PEP 552 has it: a
start reads each source, and compiles only those that changed.

Out of reach: what was imported before the composition is resolved (onetake itself, the top package of an
editable install that brings an import hook of its own), and agents that are not onetake's: those follow
Python's rule.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
)
from importlib.util import MAGIC_NUMBER
from pathlib import PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.abc import PathEntryFinder

_BY_HASH = MAGIC_NUMBER + (0b11).to_bytes(4, "little")
"""How a cache begins that names the hash of its source, to be checked on every use."""
_STALE = _BY_HASH + bytes(8)
"""A cache of no source: Python compiles anew, and keeps the result by hash again."""
_STDLIB = PurePath(os.__file__).parent
_INSTALLED = frozenset({"site-packages", "dist-packages"})


class _Loader(SourceFileLoader):
    def get_data(self, path: str) -> bytes:
        if not path.endswith(".pyc"):
            return super().get_data(path)
        try:
            cached = super().get_data(path)
        except OSError:
            return _STALE
        return cached if cached.startswith(_BY_HASH) else _STALE


_find_in = FileFinder.path_hook((ExtensionFileLoader, EXTENSION_SUFFIXES), (_Loader, SOURCE_SUFFIXES))


def _hook(path: str) -> PathEntryFinder:
    if _is_installed(path):
        raise ImportError(f"{path} is not ours", path=path)
    return _find_in(path)


def trust_no_timestamps() -> None:
    """From now on import what is not installed as its source says. Calling it again changes nothing."""
    if _hook not in sys.path_hooks:
        sys.path_hooks.insert(0, _hook)
        for path in [path for path in sys.path_importer_cache if not _is_installed(path)]:
            del sys.path_importer_cache[path]


def _is_installed(path: str) -> bool:
    pure = PurePath(path)
    return _STDLIB in (pure, *pure.parents) or not _INSTALLED.isdisjoint(pure.parts)
