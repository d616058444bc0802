"""An agent behind the gateway: what a run of it has besides a process, namely its model endpoint.

Our own agent replays by itself; for any other the runner serves the endpoint that its model calls go to, and
writes the log that its requests amount to where our own agent would have written its own. Where the agent has
its endpoint from is its own affair: `{{gateway.openai}}`, `{{gateway.anthropic}}`, `{{cwd}}` and `{{home}}`
stand for the places in its command, its environment and the files of its HOME.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onetake.errors import UsageError
from onetake.fixture.grammar import pin_of
from onetake.snapshot.drive.env import World, known_variables
from onetake.snapshot.suites.settings import GatewayTable
from onetake.snapshot.suites.suite import Scenario, Suite

if TYPE_CHECKING:
    from onetake.gateway.exchange import Source

FORMATS = {"openai": ("openai-chat", "openai-responses"), "anthropic": ("anthropic-messages",)}
"""By the name of an endpoint in suite.toml: the formats that it speaks."""
_TEMPLATE = re.compile(r"\{\{([a-z.]+)\}\}")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class Behind:
    """The gateway as one run sees it."""

    def __init__(self, world: World, base_url: str, source: Source) -> None:
        self._source = source
        self.places = {
            "cwd": str(world.cwd),
            "home": str(world.home),
            "gateway.openai": f"{base_url}/v1",
            "gateway.anthropic": base_url,
        }
        """What a template may name."""

    def filled(self, text: str) -> str:
        """A text with its templates filled in; other text in braces stays as it is."""
        return _TEMPLATE.sub(lambda match: self.places.get(match[1], match[0]), text)

    def fill_home(self, home: Path) -> None:
        """Fill in the templates in the files of the agent's HOME."""
        for directory, _, files in os.walk(home):
            for name in files:
                path = Path(directory, name)
                data = path.read_bytes()
                if b"{{" in data and b"\0" not in data:
                    path.write_bytes(
                        self.filled(data.decode("utf-8", "surrogateescape")).encode(
                            "utf-8", "surrogateescape"
                        )
                    )

    @property
    def bindings(self) -> dict[str, int]:
        """The recorded session of each conversation; empty where there was no recording."""
        return self._source.bindings

    @property
    def losses(self) -> list[str]:
        """What a recording cannot give back of what the endpoint sent."""
        return list(self._source.losses)

    @property
    def cut(self) -> list[str]:
        """Answers that the endpoint cut short."""
        return list(self._source.cut)


@asynccontextmanager
async def behind_gateway(
    suite: Suite, scenario: Scenario, world: World, mode: str, fixture_dir: Path, environ: Mapping[str, str]
) -> AsyncGenerator[Behind | None, None]:
    """Serve the agent's model calls while the context is entered; None for an agent that needs no gateway.

    The run file is written by then. Raises `UsageError` for what cannot be served.
    """
    table = suite.settings.gateway
    if table is None:
        yield None
        return
    from onetake.gateway.run import Run, recording
    from onetake.gateway.server import any_gateway
    from onetake.runfile import load_run
    from onetake.snapshot.drive.env import RUN_VARIABLE

    run_file = load_run({RUN_VARIABLE: str(world.run_file)})
    assert run_file is not None, "its variable names it"
    source: Any
    if mode != "record":
        source = recording(run_file, _pins(suite, scenario, fixture_dir))
    elif table.script is not None:
        source = _scripted(suite, table.script)
    else:
        source = _upstream(suite, scenario, table, environ)
    run = Run(run_file, source, models=tuple(table.models))
    async with any_gateway() as gateway:
        base_url = gateway.open(run)
        try:
            yield Behind(world, base_url, run.source)
        finally:
            await gateway.close(base_url)


def _pins(suite: Suite, scenario: Scenario, fixture_dir: Path) -> Any:
    """The text behind a header's token: of the scenario's own sidecars beside its fixtures, else of a pin."""
    from onetake.snapshot.render.pins import load_pins, read_sidecar, sidecar_file

    committed = load_pins(suite, lenient=True)

    def text(kind: str, value: Any) -> Any:
        body = pin_of(value)
        if body is None:
            return value
        name = committed.full_name(value)[2:-2].partition(":")[2]
        owner, _, number = name.rpartition(".")
        place = (owner, int(number)) if owner and number.isdigit() and owner == scenario.name else (name, 0)
        path = fixture_dir / sidecar_file(kind, place[1])
        if place[0] == scenario.name and path.is_file():
            return read_sidecar(kind, path.read_bytes(), path.name)
        pin = committed.named(kind, name)
        return value if pin is None else pin.value

    return text


def _scripted(suite: Suite, name: str) -> Any:
    from onetake.gateway.script import load_script
    from onetake.gateway.scripted import Scripted

    path = suite.dir / name
    try:
        script = load_script(path.read_bytes(), str(path))
    except OSError as error:
        raise UsageError(f"{path}: [gateway] script: {error.strerror}") from error
    return lambda conversations: Scripted(script)


def _upstream(suite: Suite, scenario: Scenario, table: GatewayTable, environ: Mapping[str, str]) -> Any:
    from onetake.gateway.upstream import Endpoint, Upstream

    known = known_variables(suite, scenario, environ)
    endpoints: dict[str, Endpoint] = {}
    for name, url in table.upstream.items():
        key = table.key_env.get(name)
        if key is not None and not known.get(key, "").strip():
            raise UsageError(f"{suite.path}: [gateway] key_env: the variable {key} is not set")
        endpoint = Endpoint(_interpolated(url, known, suite), known[key] if key is not None else None)
        endpoints |= dict.fromkeys(FORMATS[name], endpoint)
    return lambda conversations: Upstream(endpoints)


def _interpolated(url: str, known: Mapping[str, str], suite: Suite) -> str:
    def value(match: re.Match[str]) -> str:
        if match[1] not in known:
            raise UsageError(f"{suite.path}: [gateway] upstream: the variable {match[1]} is not set")
        return known[match[1]]

    return _VARIABLE.sub(value, url)
