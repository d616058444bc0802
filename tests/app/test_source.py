"""What runs is the source on disk, whatever a cache says."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from onetake.app.composition import load_composition
from onetake.app.resolve import resolve
from onetake.app.source import _is_installed

PLUGIN = """\
from contextlib import asynccontextmanager
import msgspec
from onetake_lab_helpers.words import WORD

class Options(msgspec.Struct, forbid_unknown_fields=True):
    pass

@asynccontextmanager
async def plugin(ctx, config: Options):
    yield

NAME = "one"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A composition with a module of its own, which imports from a package beside it."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "agent.yml").write_text("- {id: mine, use: 'onetake_lab_plugin:plugin'}\n")
    (tmp_path / "onetake_lab_plugin.py").write_text(PLUGIN)
    (tmp_path / "onetake_lab_helpers").mkdir()
    (tmp_path / "onetake_lab_helpers/__init__.py").write_text("")
    (tmp_path / "onetake_lab_helpers/words.py").write_text('WORD = "one"\n')
    return tmp_path


def boot(folder: Path) -> tuple[str, str]:
    """What a process that starts now would run: the module's own value, and its helper's."""
    for name in [name for name in sys.modules if name.startswith("onetake_lab_")]:
        del sys.modules[name]
    (plugin,) = resolve(load_composition(folder / "agent.yml", {}))
    module = sys.modules[plugin.target.partition(":")[0]]
    return module.NAME, module.WORD


def edit(path: Path) -> None:
    """Change a source within its second and keep its size."""
    before = path.stat()
    path.write_text(path.read_text().replace('"one"', '"two"'))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size


def test_an_edit_that_keeps_second_and_size_is_seen(folder: Path) -> None:
    """In a module beside the composition, and in what it imports from there."""
    assert boot(folder) == ("one", "one")
    edit(folder / "onetake_lab_helpers/words.py")
    assert boot(folder) == ("one", "two")
    edit(folder / "onetake_lab_plugin.py")
    assert boot(folder) == ("two", "two")


def test_a_cache_that_python_wrote_is_not_trusted(folder: Path) -> None:
    """It names a time and a size: `python -c 'import ...'` and pytest leave such files."""
    import py_compile

    source = folder / "onetake_lab_helpers/words.py"
    py_compile.compile(str(source), invalidation_mode=py_compile.PycInvalidationMode.TIMESTAMP)
    edit(source)
    assert boot(folder) == ("one", "two")


def test_an_unchanged_source_is_not_compiled_again(folder: Path) -> None:
    """Start-up time is a feature: the cache names the hash of its source, and Python accepts that too."""
    boot(folder)
    cached = Path(importlib.util.cache_from_source(str(folder / "onetake_lab_plugin.py")))
    written = cached.stat().st_mtime_ns
    data = cached.read_bytes()
    assert data[4:8] == b"\3\0\0\0" and data[8:16] == importlib.util.source_hash(PLUGIN.encode())
    boot(folder)
    assert cached.stat().st_mtime_ns == written


def test_a_module_whose_source_is_gone_is_gone(folder: Path) -> None:
    """A `.pyc` without its source is no source."""
    boot(folder)
    source = folder / "onetake_lab_helpers/words.py"
    Path(importlib.util.cache_from_source(str(source))).rename(source.with_suffix(".pyc"))
    source.unlink()
    with pytest.raises(Exception, match=r"no module named|No module named"):
        boot(folder)


def test_installed_packages_keep_their_caches() -> None:
    """They do not change between two runs, and there are many."""
    import msgspec

    assert _is_installed(str(Path(msgspec.__file__).parent))
    assert _is_installed(str(Path(os.__file__).parent))
    assert not _is_installed("/somewhere/agent") and not _is_installed("")
