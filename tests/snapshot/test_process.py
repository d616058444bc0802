"""One process: its lines, its end, its stdin, and what it left, without any protocol."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from onetake.errors import AgentError
from onetake.snapshot.drive.process import AgentProcess
from onetake.snapshot.drive.strays import kill_strays
from tests.snapshot.driving import alive, processes_in

Work = Callable[[AgentProcess, list[bytes]], Awaitable[None]]


def run(folder: Path, code: str, work: Work) -> list[bytes]:
    """Start Python code as an agent, do the work, end it; the lines that it wrote."""
    lines: list[bytes] = []

    async def main() -> None:
        environment = {"PATH": os.environ["PATH"]}
        command = [sys.executable, "-c", code]
        process = AgentProcess.start(
            command, env=environment, cwd=folder, stderr=folder / "stderr", on_line=lines.append
        )
        try:
            await work(process, lines)
        finally:
            await process.end()

    asyncio.run(main())
    return lines


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


@pytest.fixture(params=["pidfd", "poll"])
def watched(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to notice the end of a process: macOS has no pidfd."""
    if request.param == "poll":
        monkeypatch.delattr(os, "pidfd_open")


@pytest.mark.usefixtures("watched")
def test_lines_end_at_newlines_only_and_the_rest_is_kept(tmp_path: Path) -> None:
    async def work(process: AgentProcess, lines: list[bytes]) -> None:
        assert await process.exited == 5
        assert process.partial == b"half"
        assert await process.end() == 5

    code = r"import os; os.write(1, b'a\rb\n\n\xe2\x80\xa8\x85 c\nhalf'); os._exit(5)"
    assert run(tmp_path, code, work) == [b"a\rb", b"", b"\xe2\x80\xa8\x85 c"]


@pytest.mark.usefixtures("watched")
def test_a_grandchild_that_holds_the_pipe_does_not_delay_the_end(tmp_path: Path) -> None:
    async def work(process: AgentProcess, lines: list[bytes]) -> None:
        assert await process.exited == 0
        assert process.left_running == (["sleep 300"] if os.path.isdir("/proc") else [])

    code = "import subprocess; subprocess.Popen(['sleep', '300'], cwd='.'); print('done', flush=True)"
    assert run(tmp_path, code, work) == [b"done"]
    assert not processes_in(tmp_path)


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize(
    ("child", "end"),
    [
        ("['sleep', '0.1']", ""),  # it ends soon after the agent
        ("['sleep', '300']", "; os.kill(os.getpid(), 9)"),  # an agent that is killed can end nothing
        ("['sleep', '300']", "; child.kill()"),  # it has ended, and nobody has waited for it
    ],
)
def test_what_ends_by_itself_or_could_not_be_ended_is_not_left_running(
    tmp_path: Path, child: str, end: str
) -> None:
    async def work(process: AgentProcess, lines: list[bytes]) -> None:
        await process.exited
        assert process.left_running == []

    run(tmp_path, f"import os, subprocess; child = subprocess.Popen({child}){end}", work)


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="what is left in a group is found in /proc")
def test_what_was_left_in_the_group_is_over_when_the_run_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here no signal to the group ends anybody in time, so each is ended and waited for by itself."""
    monkeypatch.setattr(os, "killpg", lambda group, number: None)

    async def work(process: AgentProcess, lines: list[bytes]) -> None:
        await process.exited
        assert not alive(int(lines[0]))

    code = "child = subprocess.Popen(['sleep', '300']); print(child.pid, flush=True); os.kill(os.getpid(), 9)"
    run(tmp_path, f"import os, subprocess; {code}", work)


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="what is left in a group is found in /proc")
def test_ending_does_not_wait_for_what_is_left_running(tmp_path: Path) -> None:
    """A cancelled runner kills the group while the group is still given its time."""

    async def work(process: AgentProcess, lines: list[bytes]) -> None:
        await until(lambda: b") Z " in Path(f"/proc/{process.pid}/stat").read_bytes())
        assert not process.exited.done()
        await process.end()
        assert process.left_running == []

    run(tmp_path, "import subprocess; subprocess.Popen(['sleep', '300'])", work)


def test_a_grandchild_in_a_session_of_its_own_is_found_by_its_folder(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()

    async def work(process: AgentProcess, lines: list[bytes]) -> None:
        await process.exited

    run(
        tmp_path,
        "import subprocess; subprocess.Popen(['sleep', '300'], cwd='work', start_new_session=True)",
        work,
    )
    assert len(processes_in(tmp_path / "work") + processes_in(tmp_path)) >= 1
    assert kill_strays(tmp_path / "wor") == 0
    assert kill_strays(tmp_path / "work") == 1


def test_stdin_is_written_without_blocking_and_closed_after_the_last_byte(tmp_path: Path) -> None:
    async def work(process: AgentProcess, lines: list[bytes]) -> None:
        for _ in range(4):
            process.send(b"x" * 300_000)
        process.close_stdin()
        process.send(b"too late")
        assert await process.exited == 0

    code = "import sys, time; time.sleep(0.2); print(len(sys.stdin.buffer.read()))"
    assert run(tmp_path, code, work) == [b"1200000"]


def test_an_agent_that_closes_its_stdin_is_no_error(tmp_path: Path) -> None:
    async def work(process: AgentProcess, lines: list[bytes]) -> None:
        await until(lambda: bool(lines))
        process.send(b"anybody there?\n" * 100_000)
        process.send(b"hello?\n")
        process.close_stdin()
        process.signal(signal.SIGTERM)
        assert await process.exited == -signal.SIGTERM
        process.signal(signal.SIGTERM)

    run(tmp_path, "import os, time; os.close(0); print('closed', flush=True); time.sleep(60)", work)


def test_an_agent_may_close_stdout_and_live_on(tmp_path: Path) -> None:
    async def work(process: AgentProcess, lines: list[bytes]) -> None:
        await until(lambda: bool(lines))
        process.close_stdin()
        assert await process.exited == 0

    code = "import os, sys; os.write(1, b'bye\\n'); os.close(1); sys.stdin.read(); os._exit(0)"
    assert run(tmp_path, code, work) == [b"bye"]


def test_stderr_is_appended(tmp_path: Path) -> None:
    async def work(process: AgentProcess, lines: list[bytes]) -> None:
        await process.exited

    for _ in range(2):
        run(tmp_path, "import sys; sys.stderr.write('oh\\n')", work)
    assert (tmp_path / "stderr").read_text() == "oh\noh\n"


def test_what_cannot_be_started(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(AgentError, match="the agent could not be started: /no/such: No such file"):
            AgentProcess.start(["/no/such"], env={}, cwd=tmp_path, stderr=tmp_path / "e", on_line=print)

    asyncio.run(main())
