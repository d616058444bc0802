"""A model endpoint for code within this process: recorded once, answered from the recording ever after.

    from onetake.snapshot import recorded_model

    with recorded_model("recordings/sky", upstream={"openai": "https://api.openai.com"}) as model:
        client = OpenAI(base_url=model.openai, api_key=...)

The mode is that of every snapshot (`ONETAKE_SNAPSHOT`, by default replay). Leaving the block judges what was
asked: a request that differs from the recorded one, one more or one less, is an `AssertionError` that names
the place, also where the code under test swallowed it. A recording is the session logs that the requests
amount to, one `session.N.jsonl` a conversation. It is not verified by itself, since only you can run your
code again: run the test once more.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onetake import jsontext
from onetake.errors import UsageError
from onetake.snapshot.drive.behind import FORMATS

if TYPE_CHECKING:
    from onetake.runfile import RunFile

Mint = Sequence[tuple[str, str]]


class Model:
    """Where the recorded model is asked."""

    def __init__(self, base_url: str) -> None:
        self.openai = f"{base_url}/v1"
        """The base URL of chat completions and Responses."""
        self.anthropic = base_url
        """The base URL of Messages."""


@contextmanager
def recorded_model(
    folder: str | os.PathLike[str],
    *,
    upstream: Mapping[str, str] | None = None,
    key_env: Mapping[str, str] | None = None,
    script: Any = None,
    mint: Mint = (),
    models: Sequence[str] = (),
    mode: str | None = None,
) -> Iterator[Model]:
    """Serve a model endpoint while the block runs, and judge what was asked when it ends.

    `folder` holds the recording. To record, `upstream` names the endpoints (`openai`, `anthropic`) and
    `key_env` the variables with their keys; without a key that of the client is passed on. `script` (of
    `onetake mock-model`) answers in place of an endpoint. `mint` holds rules as (pattern, name) for values
    that change from run to run. Raises `AssertionError` for what is red, `UsageError` for wrong input, and
    for a mode that writes when `CI` is set.
    """
    from onetake.snapshot.mode import mode_from, parse_mode, refuse_in_ci

    chosen = mode_from(os.environ) if mode is None else parse_mode(mode, origin="mode")
    refuse_in_ci(chosen, os.environ)
    place = Path(folder)
    fixtures = [] if chosen == "record" else _fixtures(place)
    if chosen != "record" and not fixtures:
        raise UsageError(f"{place}: holds no recording; make one with ONETAKE_SNAPSHOT=record")
    with tempfile.TemporaryDirectory(prefix="onetake-") as scratch:
        run_file = _run_file(chosen, fixtures, Path(scratch), mint)
        served = _Served(run_file, _source(run_file, script, upstream, key_env), tuple(models))
        with served as model:
            yield model
        _judge(served, run_file, place, fixtures, mint)


class _Served:
    """The endpoint, in a thread of its own: the code under test may well block this one."""

    def __init__(self, run_file: RunFile, source: Any, models: tuple[str, ...]) -> None:
        self._run_file = run_file
        self._make_source = source
        self._models = models
        self._up = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="onetake gateway")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._down: asyncio.Event | None = None
        self._base_url = ""
        self._error: BaseException | None = None

    def __enter__(self) -> Model:
        self._thread.start()
        self._up.wait()
        if self._error is not None:
            raise self._error
        return Model(self._base_url)

    def __exit__(self, *raised: object) -> None:
        assert self._loop is not None and self._down is not None
        self._loop.call_soon_threadsafe(self._down.set)
        self._thread.join()
        if self._error is not None:
            raise self._error

    async def _serve(self) -> None:
        from onetake.gateway.run import Run
        from onetake.gateway.server import Gateway

        self._loop, self._down = asyncio.get_running_loop(), asyncio.Event()

        try:
            run = Run(self._run_file, self._make_source, models=self._models)
            self.source = run.source
            async with Gateway() as gateway:
                self._base_url = gateway.open(run)
                self._up.set()
                await self._down.wait()
                await gateway.close(self._base_url)
        except BaseException as error:
            self._error = error
        finally:
            self._up.set()


def _fixtures(place: Path) -> list[Path]:
    from onetake.snapshot.drive.execute import fixture_files

    return fixture_files(place)


def _run_file(mode: str, fixtures: list[Path], scratch: Path, mint: Mint) -> RunFile:
    from onetake.runfile import MintRule, RunFile

    return RunFile(
        mode=mode,
        fixtures=[str(path) for path in fixtures],
        mint=[MintRule(pattern, name) for pattern, name in mint],
        sessions_root=str(scratch / "sessions"),
        violations=str(scratch / "violations.jsonl"),
    )


def _source(
    run_file: RunFile, script: Any, upstream: Mapping[str, str] | None, key_env: Mapping[str, str] | None
) -> Any:
    if run_file.mode != "record":
        from onetake.gateway.run import recording

        return recording(run_file)
    if script is not None:
        from onetake.gateway.script import parse_script
        from onetake.gateway.scripted import Scripted

        parsed = parse_script(script, "the script")
        return lambda conversations: Scripted(parsed)
    from onetake.gateway.upstream import Endpoint, Upstream

    endpoints: dict[str, Endpoint] = {}
    for name, url in (upstream or {}).items():
        if name not in FORMATS:
            raise UsageError(f"upstream: {name!r} is none of {', '.join(FORMATS)}")
        variable = (key_env or {}).get(name)
        key = None if variable is None else os.environ.get(variable)
        if variable is not None and not key:
            raise UsageError(f"key_env: the variable {variable} is not set")
        endpoints |= dict.fromkeys(FORMATS[name], Endpoint(url, key))
    if not endpoints:
        raise UsageError("to record, name the endpoint: upstream={'openai': 'https://...'}")
    return lambda conversations: Upstream(endpoints)


def _judge(served: _Served, run_file: RunFile, place: Path, fixtures: list[Path], mint: Mint) -> None:
    """Say what is red; write what record and refresh write."""
    red = [violation["message"] for violation in _violations(Path(run_file.violations))]
    red += served.source.cut
    files = _rendered(served, run_file, mint)
    if run_file.mode == "replay":
        red += [*_leftovers(served), *_differences(files, fixtures)]
    if red:
        raise AssertionError(
            "\n".join([f"{place}: what was asked of the model is not what was recorded:", *red])
        )
    if run_file.mode != "replay":
        _write(place, files, fixtures)
    for loss in served.source.losses:
        warnings.warn(f"{place}: {loss}", stacklevel=4)


def _violations(path: Path) -> list[dict[str, Any]]:
    return [jsontext.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


def _rendered(served: _Served, run_file: RunFile, mint: Mint) -> dict[str, bytes]:
    """The recording that this run amounts to, by file name."""
    from onetake.fixture.projection import project
    from onetake.fixture.tokens import LogView, TokenTable
    from onetake.session.store import SessionStore, read_file
    from onetake.snapshot.drive.execute import fixture_name

    paths = SessionStore(Path(run_file.sessions_root), project="sessions").logs()
    logs = sorted((read_file(path) for path in paths), key=lambda log: log.header["createdAt"])
    bound = served.source.bindings or {log.id: n for n, log in enumerate(logs)}
    views = [LogView(bound[log.id], log.header, log.events) for log in logs]
    table = TokenTable.build(run_file.roots, views, mint=mint)
    return {
        fixture_name(view.index): project(view.header, view.events, table, lambda kind, value: value)
        for view in views
    }


def _leftovers(served: _Served) -> list[str]:
    """Recorded calls that nobody made."""
    from onetake.snapshot.drive.execute import fixture_name

    found = []
    for index, calls in enumerate(served.source.recorded):
        made = sum(call.used for call in calls)
        if made < len(calls):
            found.append(f"{fixture_name(index)}: {len(calls)} model calls are recorded, {made} were made")
    return found


def _differences(files: Mapping[str, bytes], fixtures: list[Path]) -> list[str]:
    from onetake.snapshot.diff.compare import compare

    found = []
    for path in fixtures:
        if path.name in files:
            comparison = compare(path.read_bytes(), files[path.name], path.name)
            if comparison is not None:
                found.append(f"{path.name}: {comparison.message}\n{comparison.diff}")
    return found


def _write(place: Path, files: Mapping[str, bytes], fixtures: list[Path]) -> None:
    from onetake.fixture.gaps import same_fixture
    from onetake.snapshot.guard.secrets import find_secrets
    from onetake.snapshot.modes.write import write_files

    secrets = find_secrets(files, os.environ)
    if secrets:
        told = "\n".join(f"{secret.file}: {secret.text()}" for secret in secrets)
        raise AssertionError(f"{place}: a secret would be written; nothing was:\n{told}")
    before = {path.name: path.read_bytes() for path in _fixtures(place)}
    new: dict[str, bytes | None] = {name: None for name in before if name not in files}
    for name, data in files.items():
        same = name in before and same_fixture(before[name], data)
        new[name] = before[name] if same else data
    place.mkdir(parents=True, exist_ok=True)
    write_files(place, new)
