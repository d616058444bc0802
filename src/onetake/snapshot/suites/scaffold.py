"""A new scenario, and a new suite around it: what `onetake new` writes.

A scenario is a folder with a script and an entry in suite.toml. The entry is appended as text, so that
comments, order and line ends of the file stay as their owner wrote them; what would come of it is decoded
before anything is written. The folder is made first and the entry last: whoever is interrupted in between
has a folder that `check` reports, and never a suite that cannot be loaded.
"""

from __future__ import annotations

import os
import re
import shutil
import tomllib
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from onetake import jsontext
from onetake.errors import UsageError
from onetake.snapshot.drive.registry import driver_class
from onetake.snapshot.guard.static import boots_composition
from onetake.snapshot.modes.write import locked
from onetake.snapshot.suites import ops
from onetake.snapshot.suites.select import command
from onetake.snapshot.suites.suite import (
    NAME_PATTERN,
    SCRIPT_FILE,
    SUITE_FILE,
    load_suite,
    lower_names,
    require_name,
)

if TYPE_CHECKING:
    from onetake.app.composition import Row

PLACEHOLDER = "Say hello."
"""The prompt of a script for which none was given."""
_BARE = re.compile(r"[A-Za-z0-9_-]+")


class Made(msgspec.Struct, kw_only=True):
    """What was written."""

    files: list[Path] = []
    """New files, and suite.toml where it got an entry."""
    notes: list[str] = []
    """What the user did not ask for in so many words."""
    next: str = ""
    """The command to run now."""


COMMANDS = {
    "acp": ["onetake", "acp", "--config", "{config}"],
    "headless": ["onetake", "run", "--config", "{config}", "{prompt}"],
    "command": ["python", "agent.py", "{prompt}"],
}
"""By driver: how a new suite starts its agent."""


def new_scenario(
    path: Path,
    name: str,
    *,
    prompts: Sequence[str] = (),
    pin: bool = False,
    config: Path | None = None,
    driver: str | None = None,
) -> Made:
    """Write the skeleton of the scenario `name` in the suite at `path` (suite.toml or its folder).

    A suite that does not exist yet is made for the live composition `config`; in one that does, `config` is
    the scenario's own. `driver` (default `acp`) is that of a new suite. The first scenario of a suite that
    has no pin becomes one. Raises `UsageError`, and then nothing was written.
    """
    file = path if path.suffix == ".toml" else path / SUITE_FILE
    if file.is_symlink():
        file = file.resolve()  # the suite is where its file is, and the link stays one
    if file.name != SUITE_FILE:
        raise UsageError(f"{path}: a suite is a file called {SUITE_FILE}, or the folder that holds it")
    if not NAME_PATTERN.fullmatch(name):
        raise UsageError(
            f"{name!r}: a scenario is named with letters, digits, `.`, `_` and `-`, a letter or digit first"
        )
    made = Made()
    with ExitStack() as undo:
        if not file.exists():
            if config is None:
                raise UsageError(
                    f"{file}: does not exist. To begin a suite there, name the composition of your agent: "
                    f"onetake new {path} {name} --config agent.yml"
                )
            _begin_suite(file, config, driver or "acp", made, undo)
            config = None
        elif driver is not None and load_suite(file).settings.suite.driver != driver:
            raise UsageError(f"{file}: the suite has its driver already; begin another one for {driver!r}")
        _add(file, name, list(prompts), pin, config, made, undo)
        undo.pop_all()  # done: nothing is to be undone
    suite = load_suite(file)
    made.next = command("record", suite, name)
    return made


def _add(
    file: Path, name: str, prompts: list[str], pin: bool, config: Path | None, made: Made, undo: ExitStack
) -> None:
    """Add the scenario to a suite that exists."""
    with locked(file.parent):
        suite = load_suite(file)
        if name in suite.scenarios:
            raise UsageError(f"{file}: [scenarios.{name}] is there already; choose another name")
        require_name(file, name, lower_names(suite.scenarios))
        if not pin and not any(scenario.settings.pins_header for scenario in suite.scenarios.values()):
            pin = True
            made.notes.append("the suite had no pin, so this scenario holds its prompt and tool schemas")
        settings = ["pins_header = true"] * pin
        if config is not None:
            _require_file(config)
            if boots_composition(suite):
                _provide_overlay(config, made, undo)
            settings.append(f"config = {_quoted(_relative(config, file.parent))}")
        steps = _steps(suite.settings.suite.driver, prompts or [PLACEHOLDER], file.parent / name)
        new = _appended(file, name, settings)
        folder = file.parent / name
        try:
            folder.mkdir()
        except FileExistsError:
            raise UsageError(
                f"{folder}: is there already, and {SUITE_FILE} does not name it; add [scenarios.{name}] to "
                f"{file}, or remove it"
            ) from None
        undo.callback(shutil.rmtree, folder, ignore_errors=True)
        if not prompts:
            made.notes.append(f"the script says {PLACEHOLDER!r}: write your own prompt into it")
        (folder / SCRIPT_FILE).write_bytes(_script(steps))
        _replace(file, new)
        made.files += [folder / SCRIPT_FILE, *([] if file in made.files else [file])]


def _steps(driver: str, prompts: Sequence[str], folder: Path) -> list[Any]:
    """The ops of the script, as the driver of the suite wants them. Raises `UsageError`."""
    talks = driver_class(driver)
    steps = [*talks.opening, *({"op": "prompt", "text": text} for text in prompts)]
    talks.check(msgspec.convert({"steps": steps}, ops.Script), str(folder / SCRIPT_FILE))
    return steps


def _appended(file: Path, name: str, settings: Sequence[str]) -> bytes:
    """suite.toml with the entry at its end. Raises `UsageError` when the file is not laid out for that."""
    old = file.read_bytes()
    newline = "\r\n" if b"\r\n" in old else "\n"
    key = name if _BARE.fullmatch(name) else _quoted(name)
    lines = [f"[scenarios.{key}]", *settings]
    gap = "" if not old.strip() else newline if old.endswith(b"\n") else 2 * newline
    new = old + (gap + newline.join(lines) + newline).encode()
    before = tomllib.loads(old.decode())
    try:
        after = tomllib.loads(new.decode())
    except ValueError as error:
        raise UsageError(
            f"{file}: `scenarios` is not written as [scenarios.NAME] tables, so no entry can be appended "
            f"({error}); add {name!r} to it by hand, with its folder and {SCRIPT_FILE}"
        ) from error
    after["scenarios"].pop(name)
    if not before.get("scenarios"):
        before.pop("scenarios", None)
        after.pop("scenarios")
    assert before == after, "an appended table changes nothing before it"
    return new


def _begin_suite(file: Path, config: Path, driver: str, made: Made, undo: ExitStack) -> None:
    """Write a suite.toml without scenarios, and the overlay that replay boots when it is missing."""
    from onetake.app.composition import named_variables
    from onetake.snapshot.guard.overlay import ADAPTERS

    adapters = _provide_overlay(config, made, undo)
    own = [row.id for row in adapters if row.use not in ADAPTERS]
    folders = [folder for folder in (file.parent, *file.parent.parents) if not folder.exists()]
    file.parent.mkdir(parents=True, exist_ok=True)
    for folder in reversed(folders):
        undo.callback(folder.rmdir)
    variables = list(dict.fromkeys(name for row in adapters for name in named_variables(row.config)))
    _create(file, _suite(_relative(config, file.parent), driver, variables, own))
    undo.callback(file.unlink)
    made.files.append(file)


def _provide_overlay(config: Path, made: Made, undo: ExitStack) -> list[Row]:
    """Write the overlay of a composition unless it is there; the adapters. Raises `UsageError`."""
    from onetake.app.composition import load_uninterpolated
    from onetake.snapshot.guard.overlay import REPLAY, has_catalogue

    _require_file(config)
    rows = load_uninterpolated(config).rows
    adapters = [row for row in rows if has_catalogue(row) and row.use != REPLAY and not row.disabled]
    if not adapters:
        raise UsageError(
            f"{config}: no row reaches a model (use: openai-chat, or a plugin with `id` and `models`), so "
            "there is nothing to record"
        )
    if not any(row.use == "session-store" for row in rows):
        made.notes.append(
            f"{config.name} has no row `use: session-store`, which writes the log to be recorded"
        )
    overlay = config.with_name(f"{config.stem}.snapshot{config.suffix}")
    if not overlay.exists():
        _create(overlay, _overlay(config, [row.id for row in adapters], [row.id for row in rows]))
        undo.callback(overlay.unlink)
        made.files.append(overlay)
        made.notes.append(f"{overlay.name} is what replay boots: the adapter off, the recording on")
    return adapters


def _suite(config: str, driver: str, variables: Sequence[str], adapters: Sequence[str] = ()) -> str:
    lines = [
        "[suite]",
        f"driver = {_quoted(driver)}",
        'surfaces = ["requests", "stdout", "log"]',
        "",
        "[agent]",
        f"command = [{', '.join(map(_quoted, COMMANDS[driver]))}]",
        f"config = {_quoted(config)}",
    ]
    if variables:
        lines += [
            "# What only a recording may see, from the environment or from .env beside the composition.",
            f"record_env = [{', '.join(map(_quoted, variables))}]",
        ]
    if adapters:
        lines += [
            "# Rows of your own plugins that reach a model; replay may switch off no other row.",
            f"adapters = [{', '.join(map(_quoted, adapters))}]",
        ]
    if driver == "acp":
        lines += ["", "[normalize.stdout]", 'drop = ["result.agentInfo.version"]   # new in each release']
    return "\n".join(lines) + "\n"


def _overlay(config: Path, adapters: Sequence[str], taken: Sequence[str]) -> str:
    """The overlay that replaces the adapters by the recording."""
    row = "replay" if "replay" not in taken else "onetake-replay"
    lines = [f"base: {_quoted(config.name)}", "patches:"]
    for adapter in adapters:
        lines += [f"  - id: {_quoted(adapter)}", "    disabled: true"]
    return "\n".join([*lines, "  - insert:", f"      - id: {row}", "        use: replay"]) + "\n"


def _script(steps: Sequence[Any]) -> bytes:
    """input.json as people like to edit it: a step per line."""
    lines = b",\n".join(b"  " + jsontext.dumps(step) for step in steps)
    return b'{"steps": [\n' + lines + b"\n]}\n"


def _quoted(text: str) -> str:
    """A string that TOML and YAML read alike: JSON's spelling, characters as they are."""
    return jsontext.dumps(text).decode()


def _relative(config: Path, folder: Path) -> str:
    return os.path.relpath(config.resolve(), folder.resolve())


def _require_file(config: Path) -> None:
    if not config.is_file():
        raise UsageError(f"{config}: does not exist; --config names the composition of your agent")


def _create(path: Path, text: str) -> None:
    with path.open("x", encoding="utf-8") as file:
        file.write(text)


def _replace(file: Path, data: bytes) -> None:
    """Give a file new bytes, whole or not at all; its mode stays."""
    draft = file.with_name(f".{file.name}.new")
    try:
        with draft.open("wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        shutil.copymode(file, draft)
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
