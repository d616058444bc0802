"""`onetake check` looks at whatever is a log or a suite in a repository, and starts nothing."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from onetake.cli import main
from onetake.errors import UsageError
from onetake.snapshot.suites.repository import check_paths, is_session_log, repository_files
from tests.snapshot.lab import Lab, failures, red

LOG = b'{"type":"session","version":0,"id":"{{sessionId}}","createdAt":0,"delegationDepth":0}\n'
BROKEN = LOG.replace(b'"createdAt":0', b'"createdAt":7')


def git(folder: Path, *arguments: str) -> None:
    """Run git there, whatever the user's configuration."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, env=environ)


def check(capsys: pytest.CaptureFixture[str], *paths: Path) -> tuple[int, str]:
    """The command's exit code and output."""
    code = main(["check", *map(str, paths)])
    return code, capsys.readouterr().out


def test_a_healthy_suite(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing to say but what was looked at."""
    code, out = check(capsys, lab.folder)
    assert (code, out) == (0, "check: 1 suite, 5 session logs: no problems\n")


def test_a_broken_suite(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    """Place, guard and remedy; the highest exit code wins."""
    (lab.snapshots / "hello/session.jsonl").unlink()
    code, out = check(capsys, lab.folder)
    assert code == 2
    assert f"{lab.snapshots}/hello/session.jsonl: the file is not committed [missing-file]" in out
    assert "remedy: write it with `onetake record" in out and "1 problem\n" in out


def test_no_process_is_started_but_git(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check is safe to run anywhere."""
    started: list[object] = []
    real = subprocess.run

    def run(command: list[str], **options: object) -> object:
        started.append(command[0])
        return real(command, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "run", run)
    check_paths([lab.folder])
    assert set(started) <= {"git"}


def test_what_a_killed_command_left_is_finished_first(lab: Lab) -> None:
    """A check is a command too."""
    (lab.snapshots / "hello/.pending").mkdir()
    (lab.snapshots / "hello/.pending/session.jsonl").write_bytes(b"half")
    assert check_paths([lab.folder]) == []
    assert not (lab.snapshots / "hello/.pending").exists()


def test_logs_are_found_by_their_header(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Anywhere, under any name that ends in .jsonl."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data/taken.jsonl").write_bytes(BROKEN)
    (tmp_path / "data/other.jsonl").write_bytes(b'{"type":"event"}\n')
    (tmp_path / "data/fine.jsonl").write_bytes(LOG)
    (tmp_path / "data/secret.jsonl").write_bytes(
        LOG + b'{"type":"x","data":{"t":"sk-4bcdefghijklmnopqrstuvwx"}}\n'
    )
    code, out = check(capsys, tmp_path)
    assert code == 2
    assert "taken.jsonl: line 1: createdAt is 7, and a fixture has 0 [unscrubbed-header]" in out
    assert "secret.jsonl: holds a secret" in out and "3 session logs" in out
    assert "fine.jsonl" not in out and "other.jsonl" not in out


def test_a_parent_and_its_children_share_their_tokens(tmp_path: Path) -> None:
    """Logs of one folder are one scenario when they are named like one."""
    child = LOG.replace(b"{{sessionId}}", b"{{sessionId:1}}").replace(
        b'"createdAt":0', b'"createdAt":0,"parentSession":"{{sessionId}}"'
    )
    (tmp_path / "session.jsonl").write_bytes(LOG)
    (tmp_path / "session.1.jsonl").write_bytes(child)
    assert check_paths([tmp_path]) == []


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (LOG, True),
        (LOG.rstrip(b"\n"), True),
        (b"", False),
        (b'{"type":"session"}\n', False),
        (b'{"type":"session", broken\n', False),
        (b'["session"]\n', False),
    ],
)
def test_what_begins_with_a_header(tmp_path: Path, content: bytes, expected: bool) -> None:
    """A first line that is one, whole, with or without its newline."""
    (tmp_path / "x.jsonl").write_bytes(content)
    assert is_session_log(tmp_path / "x.jsonl") is expected
    assert not is_session_log(tmp_path / "missing.jsonl")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("x.jsonl", lambda log: b"\xef\xbb\xbf" + log),
        ("x.jsonl", lambda log: log.decode().encode("utf-16")),
        ("x.jsonl", lambda log: b"\n \n" + log),
        ("x.jsonl", lambda log: log.replace(b"\n", b"\r")),
        ("x.jsonl", lambda log: log.replace(b"\n", b"\r\n")),
        ("X.JSONL", lambda log: log.replace(b'"createdAt":0', b'"createdAt":5')),
    ],
)
def test_a_log_in_disarray_is_seen(tmp_path: Path, name: str, change: Callable[[bytes], bytes]) -> None:
    """An editor's or a tool's mistake must be found, not make the log invisible."""
    (tmp_path / name).write_bytes(change(LOG + b'{"type":"x","data":{}}\n' * 4000))
    found = check_paths([tmp_path])
    assert found.logs == 1 and [problem.guard for problem in found]
    assert all("onetake migrate" in problem.remedy for problem in found)


def test_a_log_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    """It was a log once."""
    (tmp_path / "x.jsonl").write_bytes(LOG + b"broken\n")
    assert [problem.guard for problem in check_paths([tmp_path])] == ["unreadable"]


def test_a_suite_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    """And the others are still checked."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a/suite.toml").write_text("[agent]\nconfig = 5\n")
    (tmp_path / "x.jsonl").write_bytes(BROKEN)
    assert sorted(problem.guard for problem in check_paths([tmp_path])) == ["unreadable", "unscrubbed-header"]


def test_git_ignored_paths_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not tracked yet is not."""
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitignore").write_text("ignored/\n")
    for name in ("ignored/a.jsonl", "tracked/b.jsonl", "new/c.jsonl", "tracked/gone.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(BROKEN)
    git(tmp_path, "add", "tracked")
    (tmp_path / "tracked/gone.jsonl").unlink()
    names = {file.name for file in repository_files(tmp_path)}
    assert names == {".gitignore", "b.jsonl", "c.jsonl"}
    assert {file.name for file in repository_files(tmp_path / "new")} == {"c.jsonl"}
    monkeypatch.setenv("GIT_DIR", ".git")  # as in a hook
    assert {file.name for file in repository_files(tmp_path / "tracked")} == {"b.jsonl"}


def test_a_file_of_a_suite_that_git_ignores_is_not_committed(lab: Lab) -> None:
    """It is there on this machine only: a replay elsewhere would lack a fixture, or a file to work on."""
    git(lab.folder, "init", "-q")
    (lab.folder / ".gitignore").write_text("session.jsonl\n*.log\n")
    seed = lab.snapshots / "tools/workspace"
    seed.mkdir()
    for name in ("kept.log", "lost.log", "new.txt"):
        (seed / name).write_text("x")
    git(lab.folder, "add", "-f", "snapshots/tools/workspace/kept.log", "snapshots/hello/session.jsonl")
    problems = check_paths([lab.folder])
    assert {problem.guard for problem in problems} == {"missing-file"}
    files = {str(Path(str(problem.file)).relative_to(lab.snapshots)) for problem in problems}
    assert files == {
        *(f"{name}/session.jsonl" for name in ("echo", "fails", "opened", "tools")),
        "tools/workspace/lost.log",
    }
    assert "git add -f" in problems[0].remedy
    (lab.folder / ".gitignore").write_text("snapshots\n")
    assert check_paths([lab.snapshots / "suite.toml"]) == [], "a suite that is ignored as a whole was meant"


def test_a_repository_without_any_suite(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of another tool, say: its logs are found by what they are, git-ignored and excluded ones are not."""
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitignore").write_text("build/\n")
    (tmp_path / "pyproject.toml").write_text('[tool.onetake]\nexclude = ["vendor/**", "*.live.jsonl"]\n')
    names = ("build/a.jsonl", "vendor/x/b.jsonl", "data/c.live.jsonl", "data/d.jsonl", "logs/e.jsonl")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(LOG if name == names[-1] else BROKEN)
    (tmp_path / "suite.toml").write_text("[project]\n")  # somebody else's
    (tmp_path / "data/headless.jsonl").write_bytes(LOG.rstrip(b"\n"))
    code, out = check(capsys, tmp_path)
    assert code == 2 and "check: 0 suites, 3 session logs: 2 problems" in out
    assert "data/d.jsonl: line 1: createdAt is 7" in out and "data/headless.jsonl: ends with" in out
    assert not any(name in out for name in names[:3])


def test_without_git_folders_of_tools_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No repository, or no git at all."""
    for name in (".venv/a.jsonl", "node_modules/b.jsonl", "data/c.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(LOG)
    assert [file.name for file in repository_files(tmp_path)] == ["c.jsonl"]
    monkeypatch.setenv("PATH", str(tmp_path))
    assert [file.name for file in repository_files(tmp_path)] == ["c.jsonl"]


def test_excluded_patterns_are_left_out(tmp_path: Path) -> None:
    """Files and whole folders, relative to pyproject.toml, from wherever the check starts."""
    (tmp_path / "pyproject.toml").write_text('[tool.onetake]\nexclude = ["old", "data/*.raw.jsonl"]\n')
    for name in ("old/deep/a.jsonl", "data/b.raw.jsonl", "data/c.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(BROKEN)
    assert [Path(str(problem.file)).name for problem in check_paths([tmp_path])] == ["c.jsonl"]
    assert [Path(str(problem.file)).name for problem in check_paths([tmp_path / "data"])] == ["c.jsonl"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tool.onetake]\nexclude = 5\n", "expected a list"),
        ("[tool.onetake]\nexlude = ['x']\n", "has one key, `exclude`"),
        ("[tool]\nonetake = 3\n", "has one key, `exclude`"),
        ("[tool", "pyproject.toml: "),
    ],
)
def test_malformed_settings_are_an_error(tmp_path: Path, text: str, message: str) -> None:
    """A pattern that is not understood would check too much or too little."""
    (tmp_path / "pyproject.toml").write_text(text)
    (tmp_path / "a.jsonl").write_bytes(LOG)
    with pytest.raises(UsageError, match=message):
        check_paths([tmp_path])


def test_a_pyproject_of_somebody_else_is_passed_by(tmp_path: Path) -> None:
    """The nearest one with our table counts."""
    (tmp_path / "pyproject.toml").write_text('[tool.onetake]\nexclude = ["sub/x.jsonl"]\n')
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/pyproject.toml").write_text("[project]\n")
    (tmp_path / "sub/x.jsonl").write_bytes(BROKEN)
    (tmp_path / "sub/y.jsonl").write_bytes(LOG)
    assert check_paths([tmp_path / "sub"]) == []
    (tmp_path / "sub/pyproject.toml").write_text("tool = 3\n")
    assert check_paths([tmp_path / "sub"]) == []


def test_nothing_to_check_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """So that a wrong path is not green."""
    assert main(["check", str(tmp_path)]) == 2
    assert "nothing was checked" in capsys.readouterr().err
    assert main(["check", str(tmp_path / "missing")]) == 2


def test_single_files_can_be_named(tmp_path: Path) -> None:
    """A log by itself."""
    (tmp_path / "a.jsonl").write_bytes(BROKEN)
    assert [problem.guard for problem in check_paths([tmp_path / "a.jsonl"])] == ["unscrubbed-header"]


@pytest.mark.parametrize("path", ["tools", "tools/session.jsonl"])
def test_a_folder_or_a_log_of_a_scenario_is_checked_as_such(lab: Lab, path: str) -> None:
    """With the rules of its suite, its other files, and no other scenario."""
    lab.edit("snapshots/tools/session.jsonl", "Run both commands.", "Run commit {{commit:1}}.")
    suite = lab.snapshots / "suite.toml"
    rule = "\n[[normalize.mint]]\npattern = 'commit ([0-9a-f]+)'\nas = 'commit'\n"
    suite.write_text(suite.read_text() + rule)
    for name in ("tools", "hello"):
        (lab.snapshots / name / "orphan.txt").touch()
    problems = check_paths([lab.snapshots / path])
    assert [(problem.guard, problem.scenario) for problem in problems] == [("orphan-file", "tools")]


def test_what_is_named_twice_is_checked_once(tmp_path: Path) -> None:
    """A folder and a file in it, as hooks name them."""
    (tmp_path / "a.jsonl").write_bytes(BROKEN)
    assert len(check_paths([tmp_path, tmp_path / "a.jsonl"])) == 1


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    """Nobody may ever write to it."""
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "a.jsonl").write_bytes(LOG)
    assert [file.name for file in repository_files(tmp_path)] == ["a.jsonl"]


def test_what_tools_and_editors_leave_in_a_suite_is_nobodys_fixture(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    """Hidden files, backups, and what git ignores there: green, unless a run reads it."""
    git(lab.folder, "init", "-q")
    (lab.folder / ".gitignore").write_text("*.log\nbuild/\n")
    hello = lab.snapshots / "hello"
    for name in (".DS_Store", "input.json~", "debug.log", ".pytest_cache/README.md", "build/out"):
        (hello / name).parent.mkdir(exist_ok=True)
        (hello / name).write_text("x")
    (lab.snapshots / "build").mkdir()
    code, out = check(capsys, lab.folder)
    assert code == 0, out
    outcomes = lab.replay("hello")
    assert red(outcomes) == {}, failures(outcomes)
    (hello / "debug.txt").write_text("x")
    (lab.snapshots / "extra").mkdir()
    code, out = check(capsys, lab.folder)
    assert code == 2 and out.count("[orphan-file]") == out.count("[orphan-folder]") == 1
    assert "debug.txt: nothing compares or reads this file" in out and "let git ignore it" in out
