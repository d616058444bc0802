"""The dispatch table: help that teaches, errors that name the remedy, exit codes."""

from __future__ import annotations

import gc
import io
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from onetake import __version__, cli
from onetake.errors import AgentError, OnetakeError, UsageError

SOURCES = Path(__file__).parents[2] / "src"


def run_python(*arguments: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Run the interpreter with our sources."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    return subprocess.run([sys.executable, *arguments], capture_output=True, env=environment, **options)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Return a command named `fake` whose parts a test sets."""
    module = SimpleNamespace(HELP="Fake it.\n\n  onetake fake", run=lambda args: 0)
    module.add_arguments = lambda parser: parser.add_argument("--number", type=int, default=0)
    monkeypatch.setitem(cli.COMMANDS, "fake", ("fake_module", "fake it"))
    monkeypatch.setitem(sys.modules, "fake_module", module)  # type: ignore[arg-type]
    return module


def test_without_a_command_the_overview_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing was asked for, which is wrong usage; the overview says what can be."""
    assert cli.main([]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    for name, (_, summary) in cli.COMMANDS.items():
        assert name in err and summary in err


@pytest.mark.parametrize("word", ["-h", "--help", "help"])
def test_help_is_an_answer(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It goes to stdout and teaches with an example and the exit codes."""
    assert cli.main([word]) == 0
    out = capsys.readouterr().out
    assert "onetake replay examples/" in out and "exit codes" in out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """One line, one number."""
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"onetake {__version__}\n"


def test_an_unknown_command_is_refused_with_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    """The nearest name, or all of them."""
    assert cli.main(["reply"]) == 2
    assert "there is no command 'reply'; did you mean 'replay'?" in capsys.readouterr().err
    assert cli.main(["xyzzy"]) == 2
    assert "there is no command 'xyzzy'; there are replay, record" in capsys.readouterr().err


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help_that_teaches(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`--help` shows the description, and in it an example to copy."""
    assert cli.main([name, "--help"]) == 0
    out = capsys.readouterr().out
    assert f"usage: onetake {name}" in out
    assert "\n  onetake " in out


def test_arguments_and_exit_code_pass_through(command: SimpleNamespace) -> None:
    """The command also learns the name it was called by."""
    command.run = lambda args: args.number if args.command == "fake" else 99
    assert cli.main(["fake", "--number", "3"]) == 3


def test_wrong_arguments_are_exit_2(command: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    """argparse's own message, without its traceback; no abbreviations."""
    assert cli.main(["fake", "--number", "x"]) == 2
    assert cli.main(["fake", "--num", "1"]) == 2
    assert "onetake fake: error" in capsys.readouterr().err


def test_quick_goes_before_argparse(command: SimpleNamespace) -> None:
    """What it answers stands; None leaves it to argparse."""
    command.quick = lambda argv: 7 if argv == ["usual"] else None
    assert cli.main(["fake", "usual"]) == 7
    assert cli.main(["fake", "--number", "1"]) == 0


@pytest.mark.parametrize(
    ("error", "code"), [(OnetakeError("differs"), 1), (UsageError("wrong"), 2), (AgentError("died"), 3)]
)
def test_our_errors_are_one_line_and_an_exit_code(
    error: OnetakeError, code: int, command: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    """No traceback."""

    def fail(args: Any) -> int:
        raise error

    command.run = fail
    assert cli.main(["fake"]) == code
    assert capsys.readouterr().err == f"onetake: {error}\n"


def test_an_interrupt_is_quiet(command: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    """Ctrl-C ends with the exit code that shells use for it."""

    def interrupt(args: Any) -> int:
        raise KeyboardInterrupt

    command.run = interrupt
    assert cli.main(["fake"]) == 130
    assert capsys.readouterr().err == ""


def test_a_broken_pipe_is_quiet_but_no_success(
    command: SimpleNamespace, capfd: pytest.CaptureFixture[str]
) -> None:
    """Work may have been left undone, so the exit code is not 0."""

    def write_to_nobody(args: Any) -> int:
        raise BrokenPipeError

    command.run = write_to_nobody
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", io.StringIO())  # a stream without a descriptor is left alone
        assert cli.main(["fake"]) == 141
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("lines", [1, 5000])
def test_a_reader_that_leaves_is_not_an_error(lines: int, tmp_path: Path) -> None:
    """A whole process whose reader has gone says nothing on stderr, whatever is left in its buffers."""
    log = tmp_path / "session.jsonl"
    log.write_text('{"type":"session","id":"s"}\n' + '{"type":"x","data":"yyyyyyyyyyyy"}\n' * lines)
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    environment.pop("PYTHONUNBUFFERED", None)  # which would leave no buffers to be flushed
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "onetake", "log", "events", log],
            stdout=writer,
            stderr=subprocess.PIPE,
            env=environment,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_the_overview_imports_next_to_nothing() -> None:
    """Picking a command must not pay for the others, nor for argparse."""
    program = (
        "import sys; before = set(sys.modules); import onetake.cli as cli; cli.main(['--version']);"
        "heavy = {'argparse', 'asyncio', 'msgspec', 'httpx', 'h11', 'jsonschema_rs', 'yaml', 'json'};"
        "print(sorted(heavy & (set(sys.modules) - before)))"
    )
    done = run_python("-c", program, check=True)
    assert done.stdout.decode().splitlines() == [f"onetake {__version__}", "[]"]


def test_a_process_of_our_own_collects_little_garbage() -> None:
    """While it starts nothing is garbage, and at its exit everything is."""
    program = (
        "import atexit, gc, sys; from onetake.cli import main; sys.argv = ['onetake', '--version'];"
        "atexit.register(lambda: print(gc.get_freeze_count() > 0));"  # runs after what is registered later
        "main(); print(gc.isenabled(), gc.get_threshold()[0] > 700, gc.get_freeze_count())"
    )
    done = run_python("-c", program, check=True)
    assert done.stdout.decode().splitlines()[1:] == ["True True 0", "True"]


def test_a_caller_in_the_same_process_keeps_its_garbage_collector(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever passes the arguments is no process of ours."""
    before = gc.get_threshold()
    assert cli.main(["--version"]) == 0
    assert gc.get_threshold() == before
