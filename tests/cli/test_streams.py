"""Standard streams that are closed, full, narrow or abandoned change no verdict and show no traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.snapshot.driving import make_suite, prompts

WORD = "h\u00e9llo\u2028you"


def suite(folder: Path, expected: str) -> Path:
    """A suite of one scenario whose agent says `WORD` in capitals; it differs unless that is expected."""
    make_suite(folder, {"one": prompts(WORD)}, suite='surfaces = ["stdout"]')
    frames = [
        {
            "id": 1,
            "result": {"protocolVersion": 1, "agentCapabilities": {"loadSession": True}, "asked": None},
        },
        {"id": 2, "result": {"sessionId": "{{sessionId}}"}},
        {
            "method": "session/update",
            "params": {
                "sessionId": "{{sessionId}}",
                "update": {
                    "sessionUpdate": "agent_message_chunk",
                    "content": {"type": "text", "text": expected},
                },
            },
        },
        {"id": 3, "result": {"stopReason": "end_turn"}},
    ]
    lines = [
        json.dumps({"jsonrpc": "2.0", **frame}, ensure_ascii=False, separators=(",", ":")) for frame in frames
    ]
    (folder / "one" / "stdout.expected.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def shell(command: str, folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a shell command, in which `onetake` is our sources and `$S` the suite."""
    script = f'onetake() {{ "{sys.executable}" -m onetake "$@"; }}\nset -o pipefail\n{command}'
    environment = {
        **os.environ,
        "S": str(folder),
        "PYTHONPATH": str(Path(__file__).parents[2] / "src"),
        **environ,
    }
    for name in ("CI", "ONETAKE_SNAPSHOT", "PYTHONUNBUFFERED"):  # users buffer; see the test below
        environment.pop(name, None)
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment)
    assert "Traceback" not in done.stderr + done.stdout
    return done


@pytest.mark.parametrize(
    ("command", "code", "error"),
    [
        ("onetake replay $S | true", 141, ""),
        ("onetake replay $S > /dev/full", 2, "onetake: stdout: No space left on device\n"),
        ("onetake replay $S > /dev/full 2>&1", 2, ""),
        (
            "onetake --help > /dev/full",
            2,
            "onetake: the system refuses: [Errno 28] No space left on device\n",
        ),
        ("onetake replay $S >&-", 1, ""),
        ("onetake replay $S >&- 2>&- <&-", 1, ""),
    ],
)
def test_stdout_that_takes_nothing(tmp_path: Path, command: str, code: int, error: str) -> None:
    done = shell(command, suite(tmp_path, "another"))
    assert (done.returncode, done.stderr) == (code, error)


def test_stdout_that_takes_nothing_and_is_not_buffered(tmp_path: Path) -> None:
    """The other way to fail: at once and not at the end."""
    folder = suite(tmp_path, "another")
    done = shell("PYTHONUNBUFFERED=1 onetake replay $S > /dev/full", folder)
    assert (done.returncode, done.stderr) == (2, "onetake: stdout: No space left on device\n")


def test_a_run_is_carried_through_and_reported_without_a_reader(tmp_path: Path) -> None:
    """The verdict is in the report, whatever became of stdout."""
    folder = suite(tmp_path / "suite", "another")
    report = tmp_path / "report.json"
    assert shell(f"onetake replay $S --report {report} | true", folder).returncode == 141
    assert json.loads(report.read_text())["counts"] == {"passed": 0, "failed": 1, "skipped": 0}


def test_a_narrow_locale_escapes_what_it_cannot_say(tmp_path: Path) -> None:
    folder = suite(tmp_path, "another")
    done = shell("onetake replay $S", folder, LC_ALL="C", PYTHONCOERCECLOCALE="0", PYTHONUTF8="0")
    assert (done.returncode, done.stderr) == (1, "")
    assert r'+ "H\xc9LLO\u2028YOU"' in done.stdout
    assert "replay: 1 failed" in done.stdout


@pytest.mark.parametrize(
    ("target", "message"),
    [("missing/report.json", "No such file or directory"), ("", "Is a directory")],
)
def test_a_report_that_cannot_be_written_is_refused_before_the_run(
    tmp_path: Path, target: str, message: str
) -> None:
    path = tmp_path / target
    done = shell(f"onetake replay $S --report {path}", suite(tmp_path / "suite", "another"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"onetake: --report {path}: {message}\n"


def test_a_full_disk_loses_the_report_but_not_what_is_printed(tmp_path: Path) -> None:
    done = shell("onetake replay $S --report /dev/full", suite(tmp_path, "another"))
    assert done.returncode == 2
    assert done.stderr == "onetake: --report /dev/full: No space left on device\n"
    assert "replay: 1 failed" in done.stdout


def test_the_suite_of_these_tests_can_be_green(tmp_path: Path) -> None:
    """Else the others would prove little."""
    assert shell("onetake replay $S", suite(tmp_path, WORD.upper())).returncode == 0
