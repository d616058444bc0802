"""The world of a run: generated roots, the copied workspace, the environment, the command."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from pathlib import Path

import pytest

from onetake.errors import UsageError
from onetake.snapshot.drive import env
from onetake.snapshot.drive.env import (
    FIXED_MTIME,
    RUN_DIR_LENGTH,
    agent_command,
    agent_environment,
    make_world,
    parse_dotenv,
    recording_variables,
    remove_run,
    remove_tree,
)
from onetake.snapshot.suites.suite import Suite
from tests.snapshot.driving import OPENING, drive, drive_steps, make_suite, prompts, said


def one(folder: Path, **options: str) -> Suite:
    return make_suite(folder, {"one": OPENING}, **options)  # type: ignore[arg-type]


def test_roots_have_one_spelling_one_length_and_no_run_shares_them(tmp_path: Path) -> None:
    suite = make_suite(tmp_path, {"one": OPENING, "Another_Name.2": OPENING})
    worlds = [make_world(suite, scenario) for scenario in suite.scenarios.values() for _ in range(3)]
    try:
        for world in worlds:
            assert len(str(world.run_dir)) == RUN_DIR_LENGTH
            for root in world.roots.values():
                assert re.fullmatch("[a-z0-9/-]+", root)
                assert os.path.realpath(root) == root
                assert root.count(world.nonce) == 1
        for name in ("cwd", "home", "spill"):
            assert len({world.roots[name] for world in worlds}) == len(worlds)
            assert len({len(world.roots[name]) for world in worlds}) == 1
        keys = [str(world.run_dir).rpartition(world.nonce)[2] for world in worlds]
        assert keys[0] == keys[1] == keys[2] != keys[3]
    finally:
        for world in worlds:
            remove_run(world.run_dir, world.cwd)
    assert not any(world.run_dir.exists() for world in worlds)


def test_a_temporary_directory_with_other_spellings_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = tmp_path / "With_Capitals"
    odd.mkdir()
    monkeypatch.setenv("TMPDIR", str(odd))
    world = make_world(suite := one(tmp_path), suite.scenarios["one"])
    remove_run(world.run_dir, world.cwd)
    assert not str(world.run_dir).startswith(str(odd))


def test_a_short_plain_temporary_directory_is_used_through_its_links(
    own_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = own_tmp / "A_Link"
    (own_tmp / "real").mkdir()
    link.symlink_to("real")
    monkeypatch.setenv("TMPDIR", str(link))
    assert env._temporary_base() == own_tmp / "real"


def test_without_a_usable_temporary_directory_the_run_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env, "RUN_DIR_LENGTH", 10)
    with pytest.raises(UsageError, match="set TMPDIR to a short plain path"):
        env._temporary_base()


def test_an_authored_workspace_parent_is_used_and_left_clean(tmp_path: Path) -> None:
    (tmp_path / "parent").mkdir()
    suite = make_suite(
        tmp_path / "suite",
        {"one": prompts("look")},
        tables={"one": 'model_turn = false\nworkspace_parent = "../parent"'},
    )
    (tmp_path / "suite" / "one" / "workspace").mkdir()
    (tmp_path / "suite" / "one" / "workspace" / "a").write_text("a")
    harvest = drive(suite)
    assert harvest.error is None
    assert Path(harvest.roots["cwd"]).parent == (tmp_path / "parent").resolve()
    assert harvest.nonce in harvest.roots["cwd"]
    assert json.loads(said(harvest)).keys() == {"a"}
    harvest.discard()
    assert not list((tmp_path / "parent").iterdir())


def test_an_authored_workspace_parent_must_exist(tmp_path: Path) -> None:
    suite = make_suite(tmp_path, {"one": OPENING}, tables={"one": 'workspace_parent = "gone"'})
    with pytest.raises(UsageError, match=r"\[scenarios.one\] workspace_parent: .*/gone is not a directory"):
        make_world(suite, suite.scenarios["one"])


def test_a_workspace_is_copied_with_fixed_times_and_plain_modes(tmp_path: Path) -> None:
    suite = make_suite(tmp_path, {"one": prompts("look")})
    source = tmp_path / "one" / "workspace"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "run.sh").write_text("#!/bin/sh\n")
    (source / "deep" / "run.sh").chmod(0o500)
    (source / "read-only").write_bytes(b"\x00\r\n")
    (source / "read-only").chmod(0o444)
    (source / "link").symlink_to("deep/run.sh")
    (source / "deep").chmod(0o555)
    harvest = drive(suite)
    (source / "deep").chmod(0o755)
    found = json.loads(said(harvest))
    assert (harvest.workspace / "read-only").read_bytes() == b"\x00\r\n"
    harvest.discard()
    assert found["deep"] == [oct(stat.S_IFDIR | 0o755), FIXED_MTIME, None]
    assert found["deep/run.sh"] == [oct(stat.S_IFREG | 0o755), FIXED_MTIME, None]
    assert found["read-only"] == [oct(stat.S_IFREG | 0o644), FIXED_MTIME, None]
    assert found["link"][1:] == [FIXED_MTIME, "deep/run.sh"]


def test_what_is_no_file_cannot_be_copied(tmp_path: Path) -> None:
    suite = one(tmp_path)
    (tmp_path / "one" / "workspace").mkdir()
    os.mkfifo(tmp_path / "one" / "workspace" / "pipe")
    with pytest.raises(UsageError, match="workspace/pipe: only files, folders and links"):
        make_world(suite, suite.scenarios["one"])


def test_trees_without_permissions_are_removed(tmp_path: Path) -> None:
    (tmp_path / "tree" / "inner").mkdir(parents=True)
    (tmp_path / "tree" / "inner" / "file").touch()
    (tmp_path / "tree" / "outside").symlink_to(tmp_path)
    (tmp_path / "tree" / "inner").chmod(0)
    remove_tree(tmp_path / "tree")
    remove_tree(tmp_path / "tree")
    assert not (tmp_path / "tree").exists() and tmp_path.exists()


def test_the_agent_sees_an_allow_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    suite = make_suite(
        tmp_path,
        {"one": prompts("environment")},
        agent='env = { EXTRA = "suite", BOTH = "suite" }\nrecord_env = ["SOME_API_KEY"]',
        tables={"one": 'model_turn = false\nenv = { BOTH = "scenario" }'},
    )
    (tmp_path / ".env").write_text("SOME_API_KEY=from-dotenv\n")
    secrets = {
        "SOME_API_KEY": "k",
        "OPENAI_API_KEY": "k",
        "PYTHONHASHSEED": "0",
        "HOME": "/root",
        "LANG": "de",
    }
    harvest = drive(suite, COVERAGE_EXTRA="yes", **secrets)
    facts = json.loads(said(harvest))
    seen = {name: value for name, value in facts["env"].items() if not name.startswith(("COVERAGE_", "LC_"))}
    path = seen.pop("PATH").split(os.pathsep)
    harvest.discard()
    assert facts["env"]["COVERAGE_EXTRA"] == "yes"
    assert path[0] == os.path.dirname(os.path.abspath(sys.executable))
    assert path.count(path[0]) == 1
    assert seen == {
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "HOME": harvest.roots["home"],
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "EXTRA": "suite",
        "BOTH": "scenario",
        "ONETAKE_RUN": str(harvest.run_dir / "run.json"),
    }
    assert facts["umask"] == 0o022
    assert facts["cwd"] == harvest.roots["cwd"]
    assert facts["mode"] == "replay"


def test_the_agent_is_told_where_it_is(tmp_path: Path) -> None:
    mint = "[normalize]\nmint = [{ pattern = 'commit ([0-9a-f]+)', as = 'commit' }]"
    suite = make_suite(tmp_path, {"one": prompts("environment")}, extra=mint)
    harvest = drive(suite)
    run = json.loads(said(harvest))["run"]
    harvest.discard()
    assert run == {
        "mode": "replay",
        "fixtures": [str((tmp_path / "one" / "session.jsonl").resolve())],
        "override": None,
        "roots": harvest.roots,
        "nonce": harvest.nonce,
        "mint": [{"pattern": "commit ([0-9a-f]+)", "as": "commit"}],
        "sessionsRoot": str(harvest.run_dir / "logs"),
        "requests": str(harvest.run_dir / "requests.jsonl"),
        "violations": str(harvest.run_dir / "violations.jsonl"),
        "pace": False,
    }


def test_the_run_file_is_what_the_agent_reads(tmp_path: Path) -> None:
    from onetake.runfile import load_run

    harvest = drive_steps(tmp_path, OPENING)
    run = load_run({"ONETAKE_RUN": str(harvest.run_dir / "run.json")})
    harvest.discard()
    assert run is not None
    assert (run.mode, run.roots, run.nonce) == ("replay", harvest.roots, harvest.nonce)


@pytest.mark.parametrize("mode", ["replay", "refresh", "record"])
def test_keys_reach_a_recording_only(tmp_path: Path, mode: str) -> None:
    suite = one(tmp_path, agent='record_env = ["FROM_FILE", "FROM_BOTH", "MISSING"]')
    (tmp_path / ".env").write_text("FROM_FILE=file\nFROM_BOTH=file\nUNNAMED=file\n")
    scenario = suite.scenarios["one"]
    world = make_world(suite, scenario)
    seen = agent_environment(suite, scenario, world, mode, {"FROM_BOTH": "environment", "OTHER_KEY": "x"})
    remove_run(world.run_dir, world.cwd)
    keys = {
        name: value
        for name, value in seen.items()
        if name.startswith(("FROM", "MISSING", "UNNAMED", "OTHER"))
    }
    assert keys == ({"FROM_FILE": "file", "FROM_BOTH": "environment"} if mode == "record" else {})


def test_a_recording_needs_no_dotenv(tmp_path: Path) -> None:
    suite = one(tmp_path, agent='record_env = ["KEY"]')
    assert recording_variables(suite, suite.scenarios["one"], {"KEY": "k"}) == {"KEY": "k"}


def test_dotenv_lines() -> None:
    text = "\n".join(
        [
            "# note",
            "",
            "A=1",
            "export B = two words ",
            "C='q \"x\"'",
            'D="#not a comment"',
            "E=",
            "no line",
            "1F=x",
            "G=a=b",
        ]
    )
    assert parse_dotenv(text) == {
        "A": "1",
        "B": "two words",
        "C": 'q "x"',
        "D": "#not a comment",
        "E": "",
        "G": "a=b",
    }


def test_onetake_is_the_onetake_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = one(tmp_path, command=["onetake", "acp", "--config", "{config}"])  # type: ignore[arg-type]
    config = tmp_path / "agent.yml"
    bin_dir = tmp_path / "venv" / "bin"
    bin_dir.mkdir(parents=True)
    python = bin_dir / "python3"
    monkeypatch.setattr(sys, "executable", str(python))
    arguments = ["acp", "--config", str(config)]
    assert agent_command(suite, config, "/nowhere") == [str(python), "-m", "onetake", *arguments]
    (bin_dir / "onetake").write_text("#!/bin/sh\n")
    (bin_dir / "onetake").chmod(0o755)
    assert agent_command(suite, config, "/nowhere") == [str(bin_dir / "onetake"), *arguments]


def test_other_programs_are_found_on_path_or_beside_the_suite(tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("#!/bin/sh\n")
    (tmp_path / "tool").chmod(0o755)
    (tmp_path / "plain").touch()
    config = tmp_path / "agent.yml"

    def command(program: str, path: str = "") -> list[str]:
        return agent_command(one(tmp_path, command=[program, "{config}x"]), config, path)  # type: ignore[arg-type]

    assert command("tool", f"/nowhere:{tmp_path}") == [str(tmp_path / "tool"), f"{config}x"]
    assert command("./tool")[0] == str((tmp_path / "tool").resolve())
    assert command("/bin/sh")[0] == "/bin/sh"
    with pytest.raises(UsageError, match=r"\[agent\] command: `plain` is not on PATH"):
        command("plain", str(tmp_path))
