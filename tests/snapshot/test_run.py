"""Whole commands over the fake agent: red and green, exit codes, reports, artifacts, interruption."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from onetake import cli
from onetake.snapshot import attempt
from onetake.snapshot.suites.suite import load_suite
from tests.snapshot.driving import FAKE_AGENT, OPENING, make_suite, processes_in, prompts

STDOUT_ONLY = 'surfaces = ["stdout"]'
ONETAKE = [sys.executable, "-m", "onetake"]


@pytest.fixture(autouse=True)
def no_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the environment of these tests decides what they find."""
    for name in ("CI", "ONETAKE_SNAPSHOT", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


def write_suite(folder: Path, *names: str, text: str = "hello", **options: Any) -> Path:
    """A suite whose expected files are committed, so that it replays green."""
    make_suite(folder, {name: prompts(text) for name in names}, suite=STDOUT_ONLY, **options)
    assert cli.main(["refresh", str(folder)]) == 0
    return folder


def break_expected(folder: Path, name: str) -> None:
    """Let the agent of a scenario differ from what is committed."""
    path = folder / name / "stdout.expected.jsonl"
    path.write_bytes(path.read_bytes().replace(b"HELLO", b"GOODBYE"))


def test_green(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_suite(tmp_path, "one", "two")
    capsys.readouterr()
    assert cli.main(["replay", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    lines = out.strip().split("\n")
    assert sorted(line.split()[-3] for line in lines[:2]) == ["one", "two"]
    assert lines[0].startswith("[1/2] ok ")
    assert lines[-1].startswith("replay: 2 passed in ")
    assert not list(tmp_path.glob("**/.onetake"))


def test_red_names_surface_file_difference_artifacts_and_the_accepting_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_suite(tmp_path, "one", "one-more", "two")
    break_expected(tmp_path, "one")
    capsys.readouterr()
    assert cli.main(["replay", str(tmp_path), "--report", str(tmp_path / "report.json")]) == 1
    out = capsys.readouterr().out
    assert "FAILED  one  " in out
    assert "ok      one-more  " in out
    title, rest = out.split("=== ")[1].split(" ===\n")
    assert title.endswith("suite.toml: one")
    assert rest.startswith("one: stdout: one/stdout.expected.jsonl\n")
    assert "GOODBYE" in rest and "HELLO" in rest
    kept = tmp_path / ".onetake" / "failed" / "one"
    assert f"kept: {kept}" in rest or f"kept: {os.path.relpath(kept)}" in rest
    assert "accept: onetake refresh " in rest and "-k 'one and not one-more'" in rest
    assert rest.strip().split("\n")[-1].startswith("replay: 2 passed, 1 failed in ")
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["mode"], report["exitCode"]) == ("replay", 1)
    assert report["counts"] == {"passed": 2, "failed": 1, "skipped": 0}
    first = report["outcomes"][0]
    assert (first["scenario"], first["status"], first["exitCode"]) == ("one", "FAILED", 1)
    assert [difference["surface"] for difference in first["differences"]] == ["stdout"]


def test_red_shows_the_last_lines_that_the_agent_wrote_to_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ten of them; the whole is among the artifacts."""
    write_suite(tmp_path, "one", text="warn HELLO")
    assert cli.main(["replay", str(tmp_path)]) == 0
    assert "warning" not in capsys.readouterr().out
    break_expected(tmp_path, "one")
    assert cli.main(["replay", str(tmp_path)]) == 1
    shown = capsys.readouterr().out.split("the agent's last stderr:\n")[1]
    assert shown.startswith("    warning 3\n    warning 4\n") and "    warning 12\nkept: " in shown
    assert "warning 1\n" in (tmp_path / ".onetake/failed/one/stderr.txt").read_text()


def test_artifacts_hold_what_is_needed_and_go_away_when_green(tmp_path: Path) -> None:
    write_suite(tmp_path, "one", text="hello")
    (tmp_path / "one" / "workspace").mkdir()
    (tmp_path / "one" / "workspace" / "seed").write_text("seed")
    break_expected(tmp_path, "one")
    assert cli.main(["replay", str(tmp_path)]) == 1
    kept = tmp_path / ".onetake" / "failed" / "one"
    assert (kept / "workspace" / "seed").read_text() == "seed"
    assert [json.loads(line)["type"] for line in (kept / "session.jsonl").read_text().splitlines()][
        -1
    ] == "turn/end"
    assert len((kept / "stdout.jsonl").read_text().splitlines()) == 4
    assert json.loads((kept / "requests.jsonl").read_text())["call"] == 1
    assert (kept / "stderr.txt").read_text() == ""
    assert "GOODBYE" in (kept / "failure.txt").read_text()
    assert list((kept / "store").glob("*/*/session.jsonl"))
    assert (tmp_path / ".onetake" / ".gitignore").read_text() == "*\n"
    (tmp_path / ".onetake" / ".gitignore").write_text("")  # as a full disk left it
    assert cli.main(["replay", str(tmp_path)]) == 1
    assert (tmp_path / ".onetake" / ".gitignore").read_text() == "*\n"
    assert cli.main(["refresh", str(tmp_path)]) == 0
    assert cli.main(["replay", str(tmp_path)]) == 0
    assert not kept.exists()


def test_artifacts_of_runs_at_the_same_time_do_not_mix(tmp_path: Path) -> None:
    """Each fails in its own way; what stays is whole and from one of them."""
    import threading

    from onetake.snapshot import artifacts
    from onetake.snapshot.drive.harvest import Harvest

    suite = make_suite(tmp_path, {"one": OPENING})
    scenario = suite.scenarios["one"]

    def keep_often(name: str) -> None:
        for number in range(30):
            run_dir = tmp_path / f"{name}{number}"
            workspace = run_dir / "work"
            (run_dir / "logs").mkdir(parents=True)
            workspace.mkdir()
            for file in ("work/file", "logs/file", "stderr.txt", "requests.jsonl"):
                (run_dir / file).write_text(name)
            harvest = Harvest(
                scenario="one", mode="replay", run_dir=run_dir, workspace=workspace, frames=[name.encode()]
            )
            if number % 5 == 4:
                artifacts.clear(suite, scenario)
            artifacts.keep(harvest, suite, scenario, name)

    threads = [threading.Thread(target=keep_often, args=(name,)) for name in ("red", "blue")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = artifacts.artifacts_dir(suite, scenario)
    files = {
        str(path.relative_to(kept)): path.read_text().strip() for path in kept.rglob("*") if path.is_file()
    }
    assert files.keys() == {
        "failure.txt",
        "requests.jsonl",
        "stderr.txt",
        "stdout.jsonl",
        "store/file",
        "workspace/file",
    }
    assert len(set(files.values())) == 1


def test_artifacts_that_cannot_be_kept_hide_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_suite(tmp_path, "one", "two")
    break_expected(tmp_path, "one")
    (tmp_path / ".onetake").write_text("in the way")
    assert cli.main(["replay", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "one: stdout: one/stdout.expected.jsonl" in out and "GOODBYE" in out
    assert f"could not keep what one left: [Errno 17] File exists: '{tmp_path}/.onetake'" in out
    assert "kept: " not in out
    assert "replay: 1 passed, 1 failed in " in out


def test_git_sees_no_artifacts(tmp_path: Path) -> None:
    """Without an entry of the user's: the folder ignores itself."""
    write_suite(tmp_path, "one")
    for arguments in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True)
    break_expected(tmp_path, "one")
    assert cli.main(["replay", str(tmp_path)]) == 1
    status = subprocess.run(["git", "status", "--short"], cwd=tmp_path, capture_output=True, text=True)
    assert (tmp_path / ".onetake" / "failed" / "one" / "failure.txt").exists()
    assert ".onetake" not in status.stdout and "suite.toml" in status.stdout


def test_artifacts_may_be_on_another_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_suite(tmp_path, "one")
    break_expected(tmp_path, "one")

    rename = os.rename

    def refuse(source: Any, target: Any) -> None:
        if ".onetake" not in Path(target).parts or not os.path.exists(source):
            return rename(source, target)
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr("onetake.snapshot.artifacts.os.rename", refuse)
    monkeypatch.setattr("shutil.os.rename", refuse)
    assert cli.main(["replay", str(tmp_path)]) == 1
    assert (tmp_path / ".onetake" / "failed" / "one" / "stderr.txt").exists()


def test_the_highest_exit_code_wins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_suite(tmp_path, "differs", "dies", "fine")
    break_expected(tmp_path, "differs")
    (tmp_path / "dies" / "input.json").write_text(json.dumps({"steps": prompts("die")}))
    assert cli.main(["replay", str(tmp_path)]) == 3
    out = capsys.readouterr().out
    assert "    the last words" in out
    assert "replay: 1 passed, 2 failed in " in out


@pytest.mark.parametrize(
    ("fake", "code", "message"),
    [
        ("dies-at-start", 3, "cannot find my configuration"),
        ("bad-exit", 3, "the agent exited with code 7 after the end of its input"),
        ("ignores-eof", 1, "timed out after 2 s awaiting the agent to exit after the end of its input"),
        ("half-line", 1, "stdout ended in the middle of a line"),
    ],
)
def test_agents_that_misbehave(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], fake: str, code: int, message: str
) -> None:
    write_suite(tmp_path, "one")
    toml = (tmp_path / "suite.toml").read_text()
    toml = toml.replace("[agent]", f'timeout_s = 2\n[agent]\nenv = {{ FAKE = "{fake}" }}')
    (tmp_path / "suite.toml").write_text(toml)
    assert cli.main(["replay", str(tmp_path)]) == code
    out = capsys.readouterr().out
    assert message in out
    assert "[drive]" in out


def test_stray_output_is_red_on_the_transcript(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_suite(tmp_path, "one")
    (tmp_path / "one" / "input.json").write_text(json.dumps({"steps": prompts("print")}))
    assert cli.main(["replay", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "a stray print" in out
    assert "[stray-output]" in out


def test_selection(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_suite(tmp_path / "a", "one", "two")
    write_suite(tmp_path / "b", "one", "three")
    capsys.readouterr()
    assert cli.main(["replay", str(tmp_path), "-k", "one or three", "--jobs", "1"]) == 0
    out = capsys.readouterr().out
    assert [line.split()[2] for line in out.strip().split("\n")[:3]] == ["one", "one", "three"]
    assert "3 passed" in out


@pytest.mark.parametrize(("arguments", "jobs"), [([], 7), (["--jobs", "1"], 1)])
def test_jobs_where_the_system_does_not_say_which_cpus_are_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], jobs: int
) -> None:
    """macOS, for one."""
    make_suite(tmp_path, {"one": OPENING})
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    asked = []

    async def run(selections: Any, mode: str, jobs: int, *rest: Any) -> list[Any]:
        asked.append(jobs)
        return []

    monkeypatch.setattr("onetake.cli.suite._run", run)
    cli.main(["replay", str(tmp_path), *arguments])
    assert asked == [jobs]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-k", "nothing"], "no scenario is selected by -k 'nothing'; known: one"),
        (["-k", "one and"], "a name is missing"),
        (["--jobs", "0"], "--jobs 0: at least one scenario has to run at a time"),
        (["--mode", "recrod"], "--mode: 'recrod' is not a mode"),
        (["--dry-run"], "--dry-run: replay never writes"),
    ],
)
def test_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    make_suite(tmp_path, {"one": OPENING})
    assert cli.main(["replay", str(tmp_path), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_no_suite_and_no_scenario_are_failures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["replay"]) == 2
    assert "no suite.toml here or below; `onetake new` begins a suite" in capsys.readouterr().err
    make_suite(tmp_path, {})
    assert cli.main(["replay"]) == 2
    assert "no scenario is selected: no suite names one" in capsys.readouterr().err


@pytest.mark.parametrize("mode", ["record", "refresh"])
def test_ci_refuses_to_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    make_suite(tmp_path, {"one": OPENING})
    monkeypatch.setenv("CI", "1")
    assert cli.main([mode, str(tmp_path)]) == 2
    assert f"{mode} is refused because CI is set" in capsys.readouterr().err


def test_a_typo_in_the_variable_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_suite(tmp_path, {"one": OPENING})
    monkeypatch.setenv("ONETAKE_SNAPSHOT", "refersh")
    assert cli.main(["replay", str(tmp_path)]) == 2
    assert (
        "ONETAKE_SNAPSHOT: 'refersh' is not a mode; use one of: replay, record, refresh"
        in capsys.readouterr().err
    )


def test_the_mode_option_replaces_the_mode_of_the_command(tmp_path: Path) -> None:
    make_suite(tmp_path, {"one": prompts("hello")}, suite=STDOUT_ONLY)
    assert cli.main(["replay", str(tmp_path), "--mode", "refresh"]) == 0
    assert (tmp_path / "one" / "stdout.expected.jsonl").exists()


def test_refresh_says_what_it_wrote_and_the_second_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_suite(tmp_path, "one", "two")
    break_expected(tmp_path, "one")
    before = (tmp_path / "one" / "stdout.expected.jsonl").read_bytes()
    capsys.readouterr()
    assert cli.main(["refresh", str(tmp_path), "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "would change one/stdout.expected.jsonl" in out
    assert "refresh: 2 passed, 1 file would change in " in out
    assert (tmp_path / "one" / "stdout.expected.jsonl").read_bytes() == before
    assert cli.main(["refresh", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "[1/2] written one  " in out
    assert "stdout.expected.jsonl" in out
    assert "refresh: 2 passed, 1 file changed in " in out
    assert cli.main(["refresh", str(tmp_path)]) == 0
    assert "refresh: 2 passed, 0 files changed in " in capsys.readouterr().out


def test_an_authored_scenario_is_skipped_by_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_suite(tmp_path, {"one": OPENING})
    assert cli.main(["record", str(tmp_path)]) == 2
    out = capsys.readouterr().out
    assert "skipped one  0.00 s  authored, never re-recorded" in out
    assert "record: 1 skipped, 0 files changed, so nothing ran in " in out


def test_a_missing_program_skips_here_and_fails_in_ci(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_suite(tmp_path, "one", "two")
    toml = (
        (tmp_path / "suite.toml")
        .read_text()
        .replace("[scenarios.'two']", "needs = ['no-such']\n[scenarios.'two']")
    )
    (tmp_path / "suite.toml").write_text(toml)
    assert cli.main(["replay", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "skipped one  0.00 s  needs no-such, which is not on PATH" in out
    assert "replay: 1 passed, 1 skipped in " in out
    monkeypatch.setenv("CI", "1")
    assert cli.main(["replay", str(tmp_path)]) == 2
    assert "needs no-such: a CI machine must have it, or nothing is tested [input]" in capsys.readouterr().out


def test_a_missing_fixture_is_malformed_input_and_the_rest_still_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_suite(tmp_path, "one", "two")
    (tmp_path / "one" / "session.jsonl").unlink()
    assert cli.main(["replay", str(tmp_path)]) == 2
    out = capsys.readouterr().out
    assert "one: one/session.jsonl" in out or "one/log: one/session.jsonl" in out
    assert "[missing-file]" in out
    assert "replay: 1 passed, 1 failed in " in out


def test_a_broken_overlay_starts_no_agent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_suite(tmp_path, "one", command=[sys.executable, str(FAKE_AGENT), "onetake"])
    (tmp_path / "agent.snapshot.yml").write_text(
        "base: agent.yml\npatches:\n  - {id: model, disabled: true}\n"
    )
    capsys.readouterr()
    assert cli.main(["replay", str(tmp_path)]) == 2
    out = capsys.readouterr().out
    assert "skipped one  0.00 s  the suite itself is broken, see below" in out
    assert "suite.toml: the suite as a whole ===" in out
    assert "[plugin]" in out
    assert "replay: 1 skipped, suite-wide problems in " in out
    assert cli.main(["refresh", str(tmp_path)]) == 2
    assert "[plugin]" in capsys.readouterr().out


def test_an_orphan_folder_is_red(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_suite(tmp_path, "one")
    (tmp_path / "forgotten").mkdir()
    assert cli.main(["replay", str(tmp_path)]) == 2
    assert "forgotten: the folder is no scenario of this suite" in capsys.readouterr().out


def test_a_rule_that_never_matches_is_red_after_a_full_run_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rule = "[normalize.stdout]\nmask = [{ pattern = 'pid [0-9]+', with = 'pid N' }]"
    write_suite(tmp_path, "one", "two")
    settings = tmp_path / "suite.toml"
    settings.write_text(f"{settings.read_text()}\n{rule}\n")
    for mode in ("replay", "refresh"):
        assert cli.main([mode, str(tmp_path)]) == 1
        assert "[unused-rule]" in capsys.readouterr().out
    (tmp_path / "forgotten").mkdir()
    for mode in ("replay", "refresh"):
        assert cli.main([mode, str(tmp_path)]) == 2
        assert "[orphan-folder]" in capsys.readouterr().out
    (tmp_path / "forgotten").rmdir()
    assert cli.main(["replay", str(tmp_path), "-k", "one"]) == 0
    assert cli.main(["refresh", str(tmp_path), "-k", "one"]) == 0


def test_differences_with_one_cause_are_shown_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_suite(tmp_path, "one", "two", "three")
    for name in ("one", "two", "three"):
        break_expected(tmp_path, name)
    assert cli.main(["replay", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert out.count("=== ") == 1 and "suite.toml: 3 scenarios differ only by this ===\n" in out
    assert "scenarios: one, two, three\n" in out
    assert "one: stdout: one/stdout.expected.jsonl, and 2 more like it\n" in out
    accept = [line for line in out.split("\n") if line.startswith("accept: ")]
    assert len(accept) == 1 and accept[0].startswith("accept: onetake refresh ") and " -k " not in accept[0]


def test_a_bug_of_the_runner_is_red_and_hides_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_suite(tmp_path, "one", "two")
    real = attempt.execute

    async def broken(suite: Any, scenario: Any, *rest: Any) -> Any:
        if scenario.name == "one":
            raise ZeroDivisionError("oh no")
        return await real(suite, scenario, *rest)

    monkeypatch.setattr(attempt, "execute", broken)
    assert cli.main(["replay", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "the runner itself failed, which is a bug in onetake" in out
    assert "ZeroDivisionError: oh no" in out
    assert "[internal]" in out
    assert "replay: 1 passed, 1 failed in " in out


def test_what_a_killed_command_left_is_finished_first(tmp_path: Path) -> None:
    write_suite(tmp_path, "one")
    pending = tmp_path / "one" / ".pending"
    pending.mkdir()
    (pending / "stdout.expected.jsonl").write_text("half")
    assert cli.main(["replay", str(tmp_path)]) == 0
    assert not pending.exists()


def test_colours_are_for_terminals_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    from onetake.snapshot.attempt import Outcome
    from onetake.snapshot.findings import Verdict
    from onetake.snapshot.report import Reporter

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    suite = make_suite(tmp_path, {"one": OPENING})
    outcome = Outcome(suite=suite, name="one", verdict=Verdict(scenario="one"))
    for environ, coloured in (({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)):
        stream = Terminal()
        Reporter(stream, "replay", 1, environ=environ, dry_run=False).finished(outcome)
        assert ("\x1b[32mok" in stream.getvalue()) is coloured


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_runner_ends_its_agents(tmp_path: Path, own_tmp: Path, number: signal.Signals) -> None:
    make_suite(tmp_path, {name: prompts("orphan", "hang") for name in ("one", "two")}, suite=STDOUT_ONLY)
    for name in ("one", "two"):
        (tmp_path / name / "stdout.expected.jsonl").touch()
    runner = subprocess.Popen(
        [*ONETAKE, "replay", str(tmp_path), "--jobs", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while sum(b"about to hang" in path.read_bytes() for path in own_tmp.glob("*/stderr.txt")) < 2:
            assert runner.poll() is None
            time.sleep(0.02)
        assert len(processes_in(own_tmp)) == 4
        runner.send_signal(number)
        out, err = runner.communicate(timeout=60)
    finally:
        runner.kill()
    assert runner.returncode == 130, out + err
    assert "interrupted: every agent was ended" in err
    assert not list(own_tmp.iterdir())
    assert not processes_in(own_tmp)


def test_a_replay_is_the_same_whichever_order_scenarios_end_in(tmp_path: Path) -> None:
    write_suite(tmp_path, "slow", "fast")
    suite = load_suite(tmp_path)
    from onetake.snapshot.run import run_all, select

    for jobs in (1, 2):
        outcomes = asyncio.run(
            run_all(
                select([suite], None), "replay", jobs=jobs, dry_run=False, on_outcome=lambda outcome: None
            )
        )
        assert [outcome.name for outcome in outcomes] == ["slow", "fast"]
