"""Suites in Python: from a table, loaded with a hook, sync, async; and the example of the documentation."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from unittest import SkipTest

import pytest

import onetake.snapshot
from onetake.errors import UsageError
from onetake.gateway.mock import MockModel
from onetake.snapshot import Suite
from onetake.snapshot.report import display
from tests.conftest import ROOT
from tests.snapshot.driving import FAKE_AGENT, LIVE, OPENING, OVERLAY, make_suite, prompts

AGENT = {"command": [sys.executable, str(FAKE_AGENT)], "config": "../agent.yml"}
EXPECTED = "stdout.expected.jsonl"


@pytest.fixture(autouse=True)
def no_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests choose their modes, and themselves run under xdist."""
    for name in ("ONETAKE_SNAPSHOT", "PYTEST_XDIST_WORKER"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def table(tmp_path: Path) -> Suite:
    """A suite built in Python, with two scenarios that nothing is written of yet."""
    (tmp_path / "agent.yml").write_text(LIVE)
    (tmp_path / "agent.snapshot.yml").write_text(OVERLAY)
    suite = Suite(tmp_path / "table", agent=AGENT, suite={"surfaces": ["stdout", "workspace"]})
    for name in ("one", "two"):
        suite.add(name, prompts(name), model_turn=False)
    return suite


def test_a_table_is_refreshed_replayed_and_turns_red(table: Suite) -> None:
    assert table.names == ["one", "two"]
    for name in table.names:
        outcome = table.run(name, "refresh")
        outcome.check()
        assert EXPECTED in outcome.verdict.written
        assert table.run(name).ok
    path = table.directory / "one" / EXPECTED
    path.write_bytes(path.read_bytes().replace(b"ONE", b"OTHER"))
    outcome = table.run("one")
    assert not outcome.ok
    with pytest.raises(AssertionError) as failure:
        outcome.check()
    text = str(failure.value)
    assert text == outcome.text
    assert "stdout: one/stdout.expected.jsonl" in text and "OTHER" in text
    shown = f"accept: ONETAKE_SNAPSHOT=refresh pytest   # the tests of one in {display(table.directory)}"
    assert shown in text.split("\n")
    assert outcome.artifacts is not None and (outcome.artifacts / "stdout.jsonl").is_file()
    table.run("two").check()


def test_the_variable_sets_the_mode(table: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONETAKE_SNAPSHOT", "refresh")
    assert table.run("one").verdict.written
    assert table.run("one", "replay").ok


def test_the_whole_suite(table: Suite) -> None:
    """A replay of everything sees what concerns the suite as a whole."""
    table.run_all("refresh").check()
    whole = table.run_all(jobs=2)
    assert whole.ok and [outcome.name for outcome in whole] == ["one", "two"]
    whole.check()
    (table.directory / "forgotten").mkdir()
    whole = table.run_all()
    assert not whole.ok
    with pytest.raises(AssertionError, match=r"the suite as a whole:\n.*forgotten") as failure:
        whole.check()
    assert "[orphan-folder]" in str(failure.value)


def test_what_was_never_written_is_red(table: Suite) -> None:
    """Without its folder a scenario is not run, and replay makes none."""
    outcomes = table.run_all()
    assert [outcome.name for outcome in outcomes] == table.names
    for outcome in (table.run("one"), *outcomes):
        assert [problem.guard for problem in outcome.verdict.problems] == ["missing-file"]
        assert f"`ONETAKE_SNAPSHOT=refresh pytest   # the tests of {outcome.name} in " in outcome.text
    assert not table.directory.exists()


def test_a_workspace_is_prepared_for_each_run(table: Suite, tmp_path: Path) -> None:
    """After the copy, before the agent; sync or async, with fixed times."""
    seen: list[Path] = []

    def prepare(workspace: Path) -> None:
        seen.append(workspace)
        (workspace / "deep").mkdir()
        (workspace / "deep" / "made.txt").write_text("made")
        (workspace / "deep" / "made.txt").chmod(0o660)  # as where the umask is another one

    async def prepare_later(workspace: Path) -> None:
        await asyncio.sleep(0)
        prepare(workspace)

    table.add("three", prompts("hello"), prepare_workspace=prepare, model_turn=False)
    table.run("three", "refresh").check()
    assert (table.directory / "three" / "workspace.expected.jsonl").read_text() == (
        '{"path":"./","mode":"0755"}\n{"path":"deep/","mode":"0755"}\n'
        '{"path":"deep/made.txt","mode":"0644","lines":["made"]}\n'
    )
    table.prepare("three", prepare_later)
    table.run("three").check()
    table.prepare("three", lambda workspace: None)
    outcome = table.run("three")
    assert [difference.surface for difference in outcome.verdict.differences] == ["workspace"]
    assert len(set(seen)) == 3 and not any(path.exists() for path in seen)


def test_prepared_files_have_fixed_times(table: Suite) -> None:
    from onetake.snapshot.drive.env import FIXED_MTIME, prepare_workspace

    folder = table.directory.parent
    table.add("three", prompts("hello"), prepare_workspace=lambda path: (path / "new").write_text(""))
    asyncio.run(prepare_workspace(table._suite.scenarios["three"], folder))
    assert {path.stat().st_mtime for path in (folder, folder / "new")} == {FIXED_MTIME}


def test_a_hook_that_fails_is_told(table: Suite) -> None:
    def prepare(workspace: Path) -> None:
        raise KeyError("no such desk")

    table.prepare("one", prepare)
    outcome = table.run("one", "refresh")
    assert "prepare_workspace of one failed: KeyError: 'no such desk'" in outcome.text
    assert outcome.exit_code == 2


def test_a_hook_that_yields_is_refused(table: Suite) -> None:
    """Calling it runs nothing of it."""

    def prepare(workspace: Path) -> Iterator[None]:
        (workspace / "made").touch()
        yield

    async def prepare_async(workspace: Path) -> AsyncIterator[None]:
        (workspace / "made").touch()
        yield

    for hook in (prepare, prepare_async):
        table.prepare("one", hook)
        assert "prepare_workspace of one failed: TypeError: it yields" in table.run("one", "refresh").text


def test_a_loaded_suite(tmp_path: Path) -> None:
    """Its file names the scenarios; a hook can be given to one of them."""
    make_suite(tmp_path, {"one": prompts("hello")}, suite='surfaces = ["stdout", "workspace"]')
    suite = Suite.load(tmp_path)
    suite.prepare("one", lambda workspace: (workspace / "made").write_text("made"))
    suite.run_all("refresh").check()
    assert "made" in (tmp_path / "one" / "workspace.expected.jsonl").read_text()
    suite.run("one").check()
    outcome = Suite.load(tmp_path / "suite.toml").run("one")
    assert "accept: onetake refresh" in outcome.text
    with pytest.raises(UsageError, match=r"the scenarios of a loaded suite are named in suite\.toml"):
        suite.add("two", prompts("hello"))


def test_inside_an_event_loop(table: Suite) -> None:
    async def run() -> None:
        (await table.run_async("one", "refresh")).check()
        (await table.run_all_async("refresh")).check()
        (await table.run_async("one")).check()
        with pytest.raises(UsageError, match="an event loop is running: await the method"):
            table.run("one")

    asyncio.run(run())
    with pytest.raises(UsageError) as outside:
        table.run("one", "rerecord")
    assert outside.value.__context__ is None, "no traceback says that there is no event loop"


def test_a_scenario_that_cannot_run_here_is_skipped(table: Suite) -> None:
    table.add("three", prompts("hello"), model_turn=False, needs=["no-such-program"])
    outcome = table.run("three", "refresh")
    assert outcome.ok and outcome.text == ""
    with pytest.raises(SkipTest, match="needs no-such-program"):
        outcome.check()


def test_a_suite_of_which_nothing_ran_is_skipped(table: Suite) -> None:
    suite = Suite(table.directory, agent=AGENT, suite={"surfaces": ["stdout"]})
    suite.add("one", prompts("one"), model_turn=False, needs=["no-such-program"])
    with pytest.raises(SkipTest, match="one: needs no-such-program"):
        suite.run_all("refresh").check()


def test_a_broken_overlay_skips_nothing(table: Suite) -> None:
    """Nobody else says that it is broken when one scenario runs by itself."""
    agent = {**AGENT, "command": [*AGENT["command"], "onetake"]}
    suite = Suite(table.directory, agent=agent, suite={"surfaces": ["stdout"]})
    suite.add("one", prompts("one"), model_turn=False)
    suite.run_all("refresh").check()
    (suite.directory.parent / "agent.snapshot.yml").unlink()
    outcome = suite.run("one")
    assert not outcome.ok and not outcome.skipped
    with pytest.raises(AssertionError, match=r"agent\.snapshot\.yml: cannot read the composition"):
        outcome.check()


def test_a_pin_that_was_never_written_hinders_no_other(table: Suite) -> None:
    table.add("pin", prompts("hello"), model_turn=False, pins_header=True)
    table.run("one", "refresh").check()
    table.run("one").check()
    assert not (table.directory / "pin").exists()


def test_a_dry_run_leaves_no_folder(table: Suite) -> None:
    outcome = table.run("one", "refresh", dry_run=True)
    assert outcome.ok and EXPECTED in outcome.verdict.written
    assert table.run_all("refresh", dry_run=True).ok
    assert not table.directory.exists()
    for run in (lambda: table.run("one", dry_run=True), lambda: table.run_all(dry_run=True)):
        with pytest.raises(UsageError, match="dry_run: replay never writes"):
            run()


def test_no_job_is_no_run(table: Suite) -> None:
    """It would wait forever for its turn."""
    with pytest.raises(UsageError, match="jobs=0: at least one scenario has to run at a time"):
        table.run_all("refresh", jobs=0)


def test_what_a_killed_run_left_is_finished_first(table: Suite) -> None:
    table.run("one", "refresh").check()
    pending = table.directory / "one" / ".pending"
    pending.mkdir()
    (pending / EXPECTED).write_text("half")
    table.run("one").check()
    assert not pending.exists()


@pytest.mark.parametrize(
    ("variables", "mode", "message"),
    [
        ({"CI": "1"}, "refresh", "refresh is refused because CI is set"),
        ({"CI": "1", "ONETAKE_SNAPSHOT": "record"}, None, "record is refused because CI is set"),
        ({"PYTEST_XDIST_WORKER": "gw0"}, "refresh", "one scenario at a time: run it without -n"),
        ({"ONETAKE_SNAPSHOT": "recrod"}, None, "ONETAKE_SNAPSHOT: 'recrod' is not a mode"),
        ({}, "recrod", "mode: 'recrod' is not a mode"),
    ],
)
def test_modes_that_are_refused(
    table: Suite, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], mode: str | None, message: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for run in (lambda: table.run("one", mode), lambda: table.run_all(mode)):
        with pytest.raises(UsageError, match=re.escape(message)):
            run()
    assert not table.directory.exists()


@pytest.mark.parametrize(
    ("name", "steps", "settings", "message"),
    [
        ("one", OPENING, {}, "[scenarios.one]: there is a scenario of this name already"),
        ("a b", OPENING, {}, "[scenarios.a b]: a scenario is named with letters"),
        ("ONE", OPENING, {}, "[scenarios.ONE]: differs from 'one' in case only"),
        ("three", [], {}, "[scenarios.three]: `steps` is empty"),
        ("three", [{"op": "promt"}], {}, "known ops: initialize"),
        ("three", OPENING, {"pin_header": True}, "Object contains unknown field `pin_header`"),
    ],
)
def test_scenarios_that_are_refused(
    table: Suite, name: str, steps: list[dict[str, Any]], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        table.add(name, steps, **settings)
    assert table.names == ["one", "two"]


def test_suites_that_are_refused(table: Suite, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no scenario 'three'; known: one, two"):
        table.run("three")
    with pytest.raises(UsageError, match="unknown field `comand`"):
        Suite(tmp_path, agent={**AGENT, "comand": []})
    with pytest.raises(UsageError, match="no scenario is selected"):
        Suite(tmp_path, agent=AGENT).run_all()
    (tmp_path / "suite.toml").touch()
    with pytest.raises(UsageError, match=r"suite\.toml exists: use Suite\.load, or remove it"):
        Suite(tmp_path, agent=AGENT)


def test_the_package_loads_nothing_until_it_is_asked() -> None:
    program = "import sys, onetake.snapshot; print([n for n in sys.modules if n.startswith('onetake.')])"
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert out == "['onetake.snapshot']\n"
    with pytest.raises(AttributeError, match="has no attribute 'Sweet'"):
        onetake.snapshot.Sweet  # noqa: B018


def test_the_example_of_the_documentation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module in docs/python-api.md records, replays and turns red, as the text says."""
    text = (ROOT / "docs" / "python-api.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    folder = tmp_path / "agent"
    folder.mkdir()
    for name in ("agent.yml", "agent.snapshot.yml", "directory.py"):
        shutil.copy(ROOT / "examples" / "own-tool" / name, folder)
    (folder / "test_desks.py").write_text(code)
    script = json.loads((ROOT / "examples" / "own-tool" / "tests" / "mock-model.json").read_text())
    only_what_it_needs = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    for name, value in {"MODEL_KEY": "none", **only_what_it_needs}.items():
        monkeypatch.setenv(name, value)

    def run(*arguments: str, **environ: str) -> str:
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [*command, "--rootdir", str(folder), *arguments],
            cwd=folder,
            env={**os.environ, **environ},
            capture_output=True,
            text=True,
        )
        return done.stdout + done.stderr

    async def record() -> str:
        async with MockModel({"replies": script["replies"] * 2}) as model:
            return await asyncio.to_thread(run, MODEL_URL=model.base_url, ONETAKE_SNAPSHOT="record")

    assert "2 passed" in (out := asyncio.run(record())), out
    assert "note.txt" in (folder / "desks" / "night" / "workspace.expected.jsonl").read_text()
    assert "2 passed" in (out := run()), out
    tool = (folder / "directory.py").read_text()
    (folder / "directory.py").write_text(tool.replace("extension {", "ext. {"))
    out = run("-k", "night")
    assert "1 failed" in out and '+ "front: ext. 405"' in out, out
