"""The world in which an agent runs: generated roots, a copied workspace and an allow-listed environment.

Everything that could differ between two machines, or between two runs, is either fixed here or generated in a
form that the judging side can find again. Three rules matter most:

* Generated roots are resolved, over `[a-z0-9/-]`, of one fixed length, with one nonce per run, and keyed by
  scenario, so that a path is always spelled the same way and truncation never depends on the machine.
* The environment is an allow-list. No key can reach a replayed agent, because none is ever copied.
* `ONETAKE_RUN` is the one channel from the runner to the agent.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import sys
from collections.abc import AsyncGenerator, Awaitable, Generator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import msgspec

from onetake.errors import UsageError
from onetake.snapshot.drive.rundirs import (
    ELSEWHERE,
    NONCE_LENGTH,
    make_directory,
    new_nonce,
    remove_directory,
    remove_tree,
    scratch,
    sweep,
)
from onetake.snapshot.suites.suite import Scenario, Suite

RUN_VARIABLE = "ONETAKE_RUN"
RUN_DIR_LENGTH = 48
"""Length of the path that holds all generated roots of a run, in characters."""
FIXED_MTIME = 946_684_800
"""Every copied file is of 2000-01-01T00:00:00Z."""
UMASK = 0o022

_CLEAN = re.compile(r"/[a-z0-9/-]*")
_FIXED = {
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
}


class World(msgspec.Struct, frozen=True):
    """Where one run lives. Everything but an authored workspace parent is under `run_dir`."""

    run_dir: Path
    nonce: str
    cwd: Path
    home: Path
    spill: Path
    sessions: Path
    unlogged: Path
    """An empty folder: where a driver looks for logs of an agent that keeps none."""
    requests: Path
    violations: Path
    run_file: Path
    stderr: Path

    @property
    def roots(self) -> dict[str, str]:
        """The generated roots by name, as the tokens name them."""
        return {"cwd": str(self.cwd), "home": str(self.home), "spill": str(self.spill)}


def make_world(suite: Suite, scenario: Scenario) -> World:
    """Create the directories of one run and copy the scenario's workspace. Raises `UsageError`."""
    nonce = new_nonce()
    run_dir = _run_dir(_temporary_base(), nonce, scenario.name)
    cwd = _workspace(suite, scenario, run_dir)
    make_directory(run_dir)
    world = World(
        run_dir=run_dir,
        nonce=nonce,
        cwd=cwd,
        home=run_dir / "home",
        spill=run_dir / "full",
        sessions=run_dir / "logs",
        unlogged=run_dir / "none",
        requests=run_dir / "requests.jsonl",
        violations=run_dir / "violations.jsonl",
        run_file=run_dir / "run.json",
        stderr=run_dir / "stderr.txt",
    )
    for directory in (world.home, world.spill, world.sessions, world.unlogged):
        directory.mkdir()
    source = scenario.dir / "workspace"
    home = suite.settings.agent.home
    try:
        if cwd.parent != run_dir:
            (run_dir / ELSEWHERE).symlink_to(cwd)
        if home is not None:
            _copy_home(suite, home, world.home)
        if source.is_dir():
            copy_tree(source, cwd)
        else:
            cwd.mkdir()
            cwd.chmod(0o755)
    except BaseException:
        remove_run(run_dir, cwd)
        raise
    return world


def _copy_home(suite: Suite, name: str, home: Path) -> None:
    if not (suite.dir / name).is_dir():
        raise UsageError(f"{suite.path}: [agent] home: {suite.dir / name} is no folder")
    home.rmdir()
    copy_tree(suite.dir / name, home)


def _temporary_base() -> Path:
    """The first temporary directory whose resolved path needs no spelling but its own."""
    for candidate in (os.environ.get("TMPDIR"), "/tmp", "/var/tmp"):
        if candidate:
            path = os.path.realpath(candidate)
            room = RUN_DIR_LENGTH - len(path) - len("/ot--") - NONCE_LENGTH - 4
            if room >= 0 and _CLEAN.fullmatch(path) and os.access(path, os.W_OK | os.X_OK):
                return Path(path)
    raise UsageError(
        "no usable temporary directory: TMPDIR, /tmp and /var/tmp are not writable, too long, or need "
        "characters beyond a-z, 0-9, `-` and `/`; set TMPDIR to a short plain path"
    )


def _run_dir(base: Path, nonce: str, scenario: str) -> Path:
    key = hashlib.sha256(scenario.encode()).hexdigest()
    stem = f"{base}/ot-{nonce}-".replace("//", "/")
    return Path(stem + key[: RUN_DIR_LENGTH - len(stem)])


def _workspace(suite: Suite, scenario: Scenario, run_dir: Path) -> Path:
    parent = scenario.settings.workspace_parent
    if parent is None:
        return run_dir / "work"
    directory = (suite.dir / parent).resolve()
    if not directory.is_dir():
        raise UsageError(
            f"{suite.path}: [scenarios.{scenario.name}] workspace_parent: {directory} is not a directory"
        )
    return directory / run_dir.name


def copy_tree(source: Path, target: Path) -> None:
    """Copy files, links and the executable bit, nothing else; every mtime becomes `FIXED_MTIME`."""
    target.mkdir()
    for entry in sorted(os.scandir(source), key=lambda e: e.name):
        copy = target / entry.name
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), copy)
            os.utime(copy, (FIXED_MTIME, FIXED_MTIME), follow_symlinks=False)
        elif entry.is_dir():
            copy_tree(Path(entry.path), copy)
        elif entry.is_file():
            copy.write_bytes(Path(entry.path).read_bytes())
            copy.chmod(_fixed_mode(entry.stat().st_mode))
            os.utime(copy, (FIXED_MTIME, FIXED_MTIME))
        else:
            raise UsageError(f"{entry.path}: only files, folders and links can be copied into a workspace")
    target.chmod(0o755)
    os.utime(target, (FIXED_MTIME, FIXED_MTIME))


def _fixed_mode(mode: int) -> int:
    """What git keeps of a mode. (A folder that nobody may enter is of no use.)"""
    return 0o755 if stat.S_ISDIR(mode) or mode & stat.S_IXUSR else 0o644


async def prepare_workspace(scenario: Scenario, workspace: Path) -> None:
    """Let the scenario's hook, if it has one, change the copied workspace, and put its files in order.

    As of the copied ones, only the executable bit is kept, since the hook runs under the umask of whoever
    runs the tests; every mtime becomes `FIXED_MTIME`. Raises `UsageError` for whatever the hook raises: it
    is part of the input.
    """
    if scenario.prepare is None:
        return
    try:
        waiting = scenario.prepare(workspace)
        if isinstance(waiting, Awaitable):
            await waiting
        elif isinstance(waiting, Generator | AsyncGenerator):
            raise TypeError("it yields, so nothing in it ran; a hook is a function, not a fixture of pytest")
    except Exception as error:
        place = f"prepare_workspace of {scenario.name}"
        raise UsageError(f"{place} failed: {type(error).__name__}: {error}") from error
    for directory, folders, files in os.walk(workspace, topdown=False):
        for path in [os.path.join(directory, name) for name in [*files, *folders]]:
            if not os.path.islink(path):
                os.chmod(path, _fixed_mode(os.stat(path).st_mode))
            os.utime(path, (FIXED_MTIME, FIXED_MTIME), follow_symlinks=False)
    os.utime(workspace, (FIXED_MTIME, FIXED_MTIME))


def remove_run(run_dir: Path, workspace: Path) -> None:
    """Remove everything of a run, an authored workspace parent's part included."""
    with contextlib.suppress(OSError):
        remove_tree(workspace)
    remove_directory(run_dir)


def sweep_runs() -> None:
    """Remove what runs left whose command was killed: the first thing of every command that runs any."""
    with contextlib.suppress(UsageError):  # said of each run
        sweep(_temporary_base())


def scratch_directory() -> AbstractContextManager[Path]:
    """A directory for files between two runs. Raises `UsageError` when there is no place for one."""
    return scratch(_temporary_base())


def agent_environment(
    suite: Suite, scenario: Scenario, world: World, mode: str, environ: Mapping[str, str]
) -> dict[str, str]:
    """The whole environment of the agent. Reads keys, and a `.env`, in record mode only."""
    result = {name: value for name, value in environ.items() if name.startswith("COVERAGE_")}
    result |= _FIXED
    result["PATH"] = search_path(environ)
    result["HOME"] = str(world.home)
    if mode == "record":
        result |= recording_variables(suite, scenario, environ)
    result |= suite.settings.agent.env
    result |= scenario.settings.env
    if suite.settings.gateway is None:
        result[RUN_VARIABLE] = str(world.run_file)
    return result


def search_path(environ: Mapping[str, str]) -> str:
    """PATH with the runner's own environment first, activated or not."""
    own = os.path.dirname(os.path.abspath(sys.executable))
    rest = [part for part in environ.get("PATH", os.defpath).split(os.pathsep) if part and part != own]
    return os.pathsep.join([own, *rest])


def recording_variables(suite: Suite, scenario: Scenario, environ: Mapping[str, str]) -> dict[str, str]:
    """What `[agent] record_env` names: from the environment, else from `.env` beside the live config."""
    known = known_variables(suite, scenario, environ)
    return {name: known[name] for name in suite.settings.agent.record_env if name in known}


def known_variables(suite: Suite, scenario: Scenario, environ: Mapping[str, str]) -> dict[str, str]:
    """All that a recording may look up: the environment, and what `.env` adds to it."""
    configured = suite.settings.agent.config or scenario.settings.config
    dotenv = suite.live_config(scenario).with_name(".env") if configured else suite.dir / ".env"
    try:
        stored = parse_dotenv(dotenv.read_text(encoding="utf-8"))
    except FileNotFoundError:
        stored = {}
    return {**stored, **environ}


def parse_dotenv(text: str) -> dict[str, str]:
    """`NAME=value` lines; `export`, comments and one pair of quotes are understood, nothing is expanded."""
    result = {}
    for line in text.split("\n"):
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        name, value = name.strip(), value.strip()
        if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            continue
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        result[name] = value
    return result


def write_run_file(
    suite: Suite, world: World, mode: str, *, fixtures: list[Path], override: Path | None
) -> None:
    """Tell the agent where it is: the JSON file that `ONETAKE_RUN` names."""
    document: dict[str, Any] = {
        "mode": mode,
        "fixtures": [str(path) for path in fixtures],
        "override": None if override is None else str(override),
        "roots": world.roots,
        "nonce": world.nonce,
        "mint": [{"pattern": rule.pattern, "as": rule.as_} for rule in suite.settings.normalize.mint],
        "sessionsRoot": str(world.sessions),
        "requests": str(world.requests),
        "violations": str(world.violations),
        "pace": False,
    }
    if suite.settings.gateway is not None:
        document["mask"] = [(rule.pattern, rule.with_) for rule in suite.settings.normalize.log.mask]
    world.run_file.write_bytes(msgspec.json.encode(document))


def agent_command(suite: Suite, config: Path, path: str) -> list[str]:
    """The command of suite.toml with `{config}` and `{suite}` filled in and its program found on `path`.

    `onetake` always means the onetake that runs here: its console script when there is one beside the running
    interpreter, else `python -m onetake`. Raises `UsageError` when the program is not found.
    """
    places = {"{config}": str(config), "{suite}": str(suite.dir)}
    parts = list(suite.settings.agent.command)
    for place, path_there in places.items():
        parts = [part.replace(place, path_there) for part in parts]
    program, *arguments = parts
    own = os.path.dirname(os.path.abspath(sys.executable))
    if program == "onetake":
        script = os.path.join(own, "onetake")
        if os.access(script, os.X_OK):
            return [script, *arguments]
        return [sys.executable, "-m", "onetake", *arguments]
    if "/" in program:
        return [str((suite.dir / program).resolve() if not os.path.isabs(program) else program), *arguments]
    found = find_program(program, path)
    if found is None:
        raise UsageError(f"{suite.path}: [agent] command: `{program}` is not on PATH")
    return [found, *arguments]


def find_program(name: str, path: str) -> str | None:
    """The executable file of this name on a search path."""
    for directory in path.split(os.pathsep):
        candidate = os.path.join(directory or ".", name)
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    return None
