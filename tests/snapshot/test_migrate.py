"""`onetake migrate` rewrites whole scenarios, and the result replays as before."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from onetake.cli import main
from onetake.session.events import REQUEST_HEADER
from onetake.session.frames import compress
from onetake.session.jsonl import encode_log, read_log
from onetake.snapshot.modes import migrate
from onetake.snapshot.report import display
from onetake.snapshot.suites.repository import check_paths
from tests.snapshot.lab import Lab, red

RAW = "3e25dc34-48e0-4738-8401-1a8d181d37e5"


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """The command's exit code and all its output."""
    code = main(["migrate", *map(str, arguments)])
    out = capsys.readouterr()
    return code, out.out + out.err


def age(path: Path) -> None:
    """Give a fixture an old layout: full envelopes, not packed, a creation time, raw ids."""
    log = read_log(path.read_bytes(), path.name)
    raw = encode_log(log.header | {"createdAt": 17}, log.events, packed=False)
    raw = raw.replace(b'"id":"{{msg:0.1}}"', b'"id":"%s"' % RAW.encode())
    path.write_bytes(raw.replace(b'"{{system:hello}}"', b'"{{system}}"').replace(b"\n", b"\r\n"))


def test_old_layouts_are_rewritten_and_replay_as_before(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    """Every file gets its bytes back; a second migration changes nothing."""
    before = lab.files()
    for name in ("hello", "tools", "echo"):
        age(lab.snapshots / name / "session.jsonl")
    requests = lab.snapshots / "tools/requests.expected.jsonl"
    requests.write_bytes(requests.read_bytes().replace(b"{{system:hello}}", b"{{system}}").rstrip(b"\n"))
    schemas = lab.snapshots / "hello/tool-schemas.expected.json"
    schemas.write_text(json.dumps(json.loads(schemas.read_text())))
    prompt = lab.snapshots / "hello/system-prompt.expected.md"
    prompt.write_bytes(prompt.read_bytes().replace(b"\n", b"\r\n"))
    assert check_paths([lab.folder])
    aged = lab.files()

    code, out = run(capsys, lab.folder, "--dry-run")
    assert code == 0 and lab.files() == aged
    assert (
        f"would change {display(lab.snapshots / 'hello/session.jsonl')}: CRLF line ends became LF; removed "
        in out
    )
    assert "createdAt became 0; packed" in out and "named 1 pin; " in out and "values became tokens" in out
    assert "differs" in out and out.endswith("migrate: 5 scenarios, 6 files would change\n")

    code, out = run(capsys, lab.snapshots)
    assert code == 0 and lab.files() == before
    assert f"changed {display(schemas)}: rewrote the sidecar" in out and "6 files changed\n" in out
    assert run(capsys, lab.snapshots) == (0, "migrate: 5 scenarios, 0 files changed\n")
    assert red(lab.replay("hello or tools")) == {}


def test_what_the_examples_hold_is_canonical(capsys: pytest.CaptureFixture[str]) -> None:
    """So there is nothing to migrate in this repository."""
    examples = Path(__file__).parents[2] / "examples"
    code, out = run(capsys, examples, "--dry-run")
    assert code == 0 and out.endswith(", 0 files would change\n")


def live_header(lab: Lab, path: Path) -> None:
    """Put the pins' texts into the headers of a fixture, as a store has them."""
    log = read_log(path.read_bytes(), path.name)
    prompt = (lab.snapshots / "hello/system-prompt.expected.md").read_text().removesuffix("\n")
    schemas = json.loads((lab.snapshots / "hello/tool-schemas.expected.json").read_text())
    for event in log.events:
        if event["type"] == REQUEST_HEADER:
            event["data"]["header"] |= {"system": prompt, "tools": schemas}
    path.write_bytes(encode_log(log.header, log.events, project=True))


def test_raw_prompts_name_the_pin_that_holds_them(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    """And a pin writes its sidecars from them."""
    before = lab.files()
    for name in ("hello", "tools"):
        live_header(lab, lab.snapshots / name / "session.jsonl")
    for file in ("system-prompt.expected.md", "tool-schemas.expected.json"):
        (lab.snapshots / "hello" / file).rename(lab.snapshots / "hello" / file.replace(".exp", ".3.exp"))
    code, out = run(capsys, lab.snapshots)
    assert code == 0, out
    assert lab.files() == before
    assert "system-prompt.3.expected.md: no header names it any more" in out
    assert "system-prompt.expected.md: holds what stood in the headers" in out


def test_a_raw_prompt_that_no_pin_holds_is_refused(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    """With the scenario to make a pin, and without touching any of its files."""
    path = lab.snapshots / "tools/session.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"{{system:hello}}"', b'"Be bold."'))
    before = lab.files()
    code, out = run(capsys, lab.snapshots)
    assert code == 1 and lab.files() == before
    assert "tools: holds a system prompt in full that no pin has" in out
    assert "pins_header = true in [scenarios.tools]" in out
    assert "migrate: 5 scenarios, 1 failed, 0 files changed" in out
    lab.edit("snapshots/suite.toml", "[scenarios.tools]", "[scenarios.tools]\npins_header = true")
    assert run(capsys, lab.snapshots)[0] == 0
    assert (lab.snapshots / "tools/system-prompt.expected.md").read_text() == "Be bold.\n"
    text = path.read_text()
    assert '"system":"{{system:tools}}","tools":"{{tools:hello}}"' in text


def test_unnamed_tokens_of_two_pins(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    """A pin means itself; anybody else is left to refresh, which compares the texts."""
    lab.edit("snapshots/suite.toml", "[scenarios.tools]", "[scenarios.tools]\npins_header = true")
    (lab.snapshots / "tools/system-prompt.expected.md").write_text("Be bold.\n")
    for name in ("tools", "echo"):
        path = lab.snapshots / name / "session.jsonl"
        path.write_bytes(path.read_bytes().replace(b"{{system:hello}}", b"{{system}}"))
    code, _ = run(capsys, lab.snapshots)
    assert code == 0
    assert '"{{system:tools}}"' in (lab.snapshots / "tools/session.jsonl").read_text()
    assert '"{{system}}"' in (lab.snapshots / "echo/session.jsonl").read_text()
    assert red(lab.refresh("echo")) == {}
    assert '"{{system:hello}}"' in (lab.snapshots / "echo/session.jsonl").read_text()


def test_a_prompt_with_line_ends_of_its_own_keeps_them(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    """Only a file that has no other ones was checked out so."""
    prompt = lab.snapshots / "hello/system-prompt.expected.md"
    prompt.write_bytes(b"One\r\ntwo.\n")
    assert run(capsys, lab.snapshots) == (0, "migrate: 5 scenarios, 0 files changed\n")


@pytest.mark.parametrize("path", ["tools/session.jsonl", "tools"])
def test_a_log_or_a_folder_means_its_scenario(
    lab: Lab, capsys: pytest.CaptureFixture[str], path: str
) -> None:
    """With the pins and rules of its suite."""
    for name in ("hello", "tools"):
        age(lab.snapshots / name / "session.jsonl")
    code, out = run(capsys, lab.snapshots / path)
    assert code == 0 and out.endswith("migrate: 1 scenario, 1 file changed\n")
    assert '"{{system:hello}}"' in (lab.snapshots / "tools/session.jsonl").read_text()


def test_logs_that_belong_to_no_suite(lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder without suites is searched for logs; `check` names the command, and is content afterwards."""
    data = tmp_path / "data"
    data.mkdir()
    for name in ("session.jsonl", "taken.jsonl"):
        shutil.copy(lab.snapshots / "tools/session.jsonl", data / name)
        age(data / name)
    (data / "stdout.expected.jsonl").write_bytes(b'{"a": "%s"}\r\n' % RAW.encode())
    (data / "notes.jsonl").write_bytes(b"{}\r\n")
    remedies = [problem.remedy for problem in check_paths([data])]
    assert f"rewrite it with `onetake migrate {data}/taken.jsonl`" in "\n".join(remedies)
    code, out = run(capsys, data / "taken.jsonl")
    assert code == 0 and f"changed {display(data / 'taken.jsonl')}" in out and "1 file changed" in out
    code, out = run(capsys, data)
    assert code == 0 and "migrate: 2 scenarios, 2 files changed" in out
    assert check_paths([data]) == []
    assert (data / "stdout.expected.jsonl").read_bytes() == b'{"a":"{{msg:0.1}}"}\n'
    assert (data / "notes.jsonl").read_bytes() == b"{}\r\n"
    live_header(lab, data / "taken.jsonl")
    code, out = run(capsys, data / "taken.jsonl")
    assert code == 1 and "move the log into a scenario of a suite" in out


def test_nothing_to_migrate_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong path is no success."""
    (tmp_path / "x.jsonl").write_text("{}\n")
    (tmp_path / "session.jsonl.zstd").write_bytes(compress(b"{}\n"))
    for path, message in (
        (tmp_path, "neither a suite.toml nor a session log is here"),
        (tmp_path / "x.jsonl", "does not begin with a session header"),
        (tmp_path / "missing", "does not exist"),
        (tmp_path / "session.jsonl.zstd", "session.jsonl.zstd` writes it as JSONL"),
    ):
        code, out = run(capsys, path)
        assert code == 2 and message in out


def test_a_file_that_cannot_be_read_stops_its_scenario_only(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of its files or none; the others are migrated."""
    for name in ("hello", "tools"):
        age(lab.snapshots / name / "session.jsonl")
    (lab.snapshots / "tools/stdout.expected.jsonl").write_text("no json\n")
    old = (lab.snapshots / "tools/session.jsonl").read_bytes()
    code, out = run(capsys, lab.snapshots)
    assert code == 2 and "tools/stdout.expected.jsonl, line 1: " in out and "[unreadable]" in out
    assert (lab.snapshots / "tools/session.jsonl").read_bytes() == old
    assert b"\r" not in (lab.snapshots / "hello/session.jsonl").read_bytes()


def test_a_secret_is_not_written_again(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    """A migration writes files, and looks at them as every writer does."""
    age(lab.snapshots / "tools/session.jsonl")
    lab.edit("snapshots/tools/session.jsonl", "Run both commands.", "Say sk-4bcdefghijklmnopqrstuvwx.")
    code, out = run(capsys, lab.snapshots)
    assert code == 2 and "tools/session.jsonl: holds a secret" in out and "mnopqrstuvwx" not in out


def test_ci_may_look_but_not_write(
    lab: Lab, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that rewrites its own fixtures cannot fail."""
    monkeypatch.setenv("CI", "true")
    code, out = run(capsys, lab.snapshots)
    assert code == 2 and "migrate is refused because CI is set" in out
    assert run(capsys, lab.snapshots, "--dry-run")[0] == 0


@pytest.mark.parametrize("fault", ["meaning", "again", "layout"])
def test_a_bug_writes_nothing(
    lab: Lab, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """What a migration does is checked before it is written, and the bug is named as one."""
    age(lab.snapshots / "tools/session.jsonl")
    before = lab.files()
    real = migrate.Migration.migrate

    def broken(self: migrate.Migration, pin: Any) -> Any:
        done = real(self, pin)
        for item in done:
            if fault == "meaning":
                raise migrate.MeaningChanged("it would change")
            if fault == "layout":
                item.data = item.data.replace(b"{{msg:0.1}}", b"raw")
            else:
                item.data += b'{"type":"again","data":1}\n'
        return done

    monkeypatch.setattr(migrate.Migration, "migrate", broken)
    code, out = run(capsys, lab.snapshots)
    assert code == 1 and "[internal]" in out and lab.files() == before
    assert fault == "meaning" or "please report this bug" in out


def test_a_kill_leaves_all_or_nothing(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are written as record and refresh write them: what was committed is finished by the next run."""
    for name in ("session.jsonl", "stdout.expected.jsonl"):
        path = lab.snapshots / "tools" / name
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    before = lab.files()

    class Killed(BaseException):
        pass

    def killed(directory: Path) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("onetake.snapshot.modes.write._roll_forward", killed)
        with pytest.raises(Killed):
            migrate.migrate_suite(lab.suite)
    assert {name: data for name, data in lab.files().items() if ".pending" not in name} == before
    results = migrate.migrate_suite(lab.suite)
    assert [result.changes for result in results] == [[]] * 5, "the next command finished the write first"
    assert check_paths([lab.folder]) == []


def test_suites_of_the_corpus(
    shared_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], nightly: bool
) -> None:
    """Scenarios that another tool keeps, some with several texts: clean afterwards, and idempotent."""
    for suite in ("acp-agent", "headless-agent", "kit") if nightly else ("headless-agent", "kit"):
        folder = tmp_path / suite
        source = shared_dir / "dsh-corpus" / suite
        shutil.copytree(source, folder, copy_function=shutil.copyfile, symlinks=True)
        for path in [folder, *folder.rglob("*")]:
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)
        text = '[suite]\nsurfaces = ["log"]\n[agent]\ncommand = ["agent"]\nconfig = "agent.yml"\n'
        for scenario in sorted(folder.iterdir()):
            if not (scenario / "session.jsonl").is_file():
                shutil.rmtree(scenario)
                continue
            pin = any("expected" in p.name and p.name.startswith("system-") for p in scenario.iterdir())
            pin = pin or suite == "headless-agent"
            text += f"[scenarios.{scenario.name}]\npins_header = {str(pin).lower()}\n"
            (scenario / "input.json").write_text('{"steps": [{"op": "initialize"}]}')
        (folder / "suite.toml").write_text(text)
        code, out = run(capsys, folder)
        assert code == 0, out
        assert run(capsys, folder)[1].endswith(" 0 files changed\n")
        wrong = {"non-canonical", "not-fixed-point", "unscrubbed-header", "unreadable"}
        assert [problem.text() for problem in check_paths([folder]) if problem.guard in wrong] == []
