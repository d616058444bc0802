"""`onetake new`: a scenario, or a suite around it, that the next command can record at once."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from onetake.app.composition import named_variables
from onetake.cli import main
from onetake.errors import UsageError
from onetake.snapshot.drive.registry import DRIVERS
from onetake.snapshot.report import display
from onetake.snapshot.suites import scaffold
from onetake.snapshot.suites.scaffold import new_scenario
from onetake.snapshot.suites.suite import load_suite
from tests.snapshot.lab import AGENT, FAULTS, Lab, failures, red

SUITE = """\
# Ours.
[agent]
command = ["true"]   # any will do
config = "agent.yml"

[scenarios.one]
pins_header = true
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """The folder of a suite with one scenario, which is a pin."""
    folder = tmp_path / "snapshots"
    (folder / "one").mkdir(parents=True)
    (folder / "one/input.json").write_text('{"steps": [{"op": "initialize"}]}')
    (folder / "suite.toml").write_text(SUITE)
    return folder


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below, hidden ones too."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_an_entry_is_appended_and_everything_else_stays(
    suite: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Comments and order are the owner's; the command says what to run next."""
    assert main(["new", str(suite), "two", "--prompt", "First.", "--prompt", "Then «that»."]) == 0
    assert (suite / "suite.toml").read_text() == SUITE + "\n[scenarios.two]\n"
    steps = json.loads((suite / "two/input.json").read_text())["steps"]
    assert [step.get("text") for step in steps] == [None, None, "First.", "Then «that»."]
    out = capsys.readouterr().out
    assert (
        f"wrote {display(suite / 'two/input.json')}" in out
        and f"wrote {display(suite / 'suite.toml')}" in out
    )
    assert out.endswith("/snapshots -k two\n") and "next: onetake record " in out
    assert set(tree(suite)) == {"suite.toml", "one/input.json", "two/input.json"}


def test_a_pin_is_asked_for_or_needed(suite: Path) -> None:
    """The first pin comes by itself, because a suite without one is red."""
    assert new_scenario(suite, "two").notes == ["the script says 'Say hello.': write your own prompt into it"]
    new_scenario(suite, "three", pin=True)
    pins = {name: s.settings.pins_header for name, s in load_suite(suite).scenarios.items()}
    assert pins == {"one": True, "two": False, "three": True}
    (suite / "suite.toml").write_text(SUITE.replace("pins_header = true\n", ""))
    made = new_scenario(suite, "four", prompts=["Hi."])
    assert made.notes == ["the suite had no pin, so this scenario holds its prompt and tool schemas"]
    assert load_suite(suite).scenarios["four"].settings.pins_header


def test_the_next_command_selects_this_scenario_only(suite: Path) -> None:
    """Another name may hold this one."""
    new_scenario(suite, "one.more")
    assert new_scenario(suite, "more").next.endswith("-k 'more and not one.more'")


def test_a_name_of_another_case_is_refused(suite: Path) -> None:
    """The next command could not choose it."""
    before = tree(suite)
    with pytest.raises(UsageError, match=r"\[scenarios.ONE\]: differs from 'one' in case only"):
        new_scenario(suite, "ONE")
    assert tree(suite) == before


def test_a_linked_suite_is_extended_where_it_lies(suite: Path) -> None:
    """The folder would be missing there, and the link be replaced by a copy."""
    link = suite.parent / "link/suite.toml"
    link.parent.mkdir()
    link.symlink_to(suite / "suite.toml")
    new_scenario(link.parent, "two")
    assert link.is_symlink() and list(load_suite(suite).scenarios) == ["one", "two"]
    assert list(link.parent.iterdir()) == [link]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (SUITE.rstrip("\n"), SUITE + "\n[scenarios.two]\n"),
        (SUITE.replace("\n", "\r\n"), (SUITE + "\n[scenarios.two]\n").replace("\n", "\r\n")),
    ],
)
def test_line_ends_stay_as_they_are(suite: Path, before: str, after: str) -> None:
    """Windows' too, and a file without a last one gets it."""
    (suite / "suite.toml").write_bytes(before.encode())
    new_scenario(suite, "two")
    assert (suite / "suite.toml").read_bytes() == after.encode()


def test_a_dotted_name_is_quoted(suite: Path) -> None:
    """A dot would make a table of it."""
    new_scenario(suite, "a.b")
    assert '[scenarios."a.b"]' in (suite / "suite.toml").read_text()
    assert "a.b" in load_suite(suite).scenarios


def test_the_mode_of_the_file_stays(suite: Path) -> None:
    """It is replaced, and looks as before."""
    (suite / "suite.toml").chmod(0o640)
    new_scenario(suite, "two")
    assert (suite / "suite.toml").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("one", r"\[scenarios.one\] is there already"),
        ("stray", "is there already, and suite.toml does not name it"),
        ("../up", "is named with letters"),
        (".hidden", "is named with letters"),
        ("", "is named with letters"),
    ],
)
def test_a_name_that_cannot_be_used(suite: Path, name: str, message: str) -> None:
    """Nothing is overwritten, and nothing is written."""
    (suite / "stray").mkdir()
    before = tree(suite)
    with pytest.raises(UsageError, match=message):
        new_scenario(suite, name)
    assert tree(suite) == before


def test_a_suite_that_cannot_take_an_entry(suite: Path) -> None:
    """An inline table ends where it stands; the message says what is left to do."""
    text = SUITE[: SUITE.index("[scenarios")]
    (suite / "suite.toml").write_text("scenarios = {one = {pins_header = true}}\n" + text)
    with pytest.raises(UsageError, match="add 'two' to it by hand"):
        new_scenario(suite, "two")
    assert not (suite / "two").exists()


def test_a_failed_write_leaves_nothing(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder goes when the entry cannot be written."""
    before = tree(suite)

    def full(*arguments: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("onetake.snapshot.suites.scaffold.os.fsync", full)
    with pytest.raises(OSError, match="no space"):
        new_scenario(suite, "two")
    assert tree(suite) == before and not (suite / "two").exists()


def test_another_composition(suite: Path, tmp_path: Path) -> None:
    """It is named relative to the suite, and must exist."""
    (tmp_path / "other.yml").write_text("[]")
    new_scenario(suite, "two", config=tmp_path / "other.yml")
    assert load_suite(suite).scenarios["two"].settings.config == "../other.yml"
    with pytest.raises(UsageError, match="--config names the composition"):
        new_scenario(suite, "three", config=tmp_path / "missing.yml")


def test_a_composition_of_its_own_gets_its_overlay(tmp_path: Path, suite: Path) -> None:
    """Replay boots one for each composition; where the agent is another program, nobody knows its format."""
    (suite / "suite.toml").write_text(SUITE.replace('"true"', '"onetake", "acp", "--config", "{config}"'))
    (tmp_path / "other.yml").write_text(AGENT)
    made = new_scenario(suite, "two", config=tmp_path / "other.yml", prompts=["Hi."])
    assert made.files[0] == tmp_path / "other.snapshot.yml"
    assert made.notes == ["other.snapshot.yml is what replay boots: the adapter off, the recording on"]
    assert "disabled: true" in made.files[0].read_text()
    assert new_scenario(suite, "three", config=tmp_path / "other.yml", prompts=["Hi."]).notes == []


def test_an_agent_that_would_keep_no_log_is_noted(tmp_path: Path) -> None:
    """Recording it would be refused, for want of a log."""
    rows = AGENT.replace("session-store", "bash")
    assert rows != AGENT
    (tmp_path / "agent.yml").write_text(rows)
    notes = new_scenario(tmp_path / "new", "hello", config=tmp_path / "agent.yml").notes
    assert notes[0] == "agent.yml has no row `use: session-store`, which writes the log to be recorded"


def test_a_suite_that_is_not_there(tmp_path: Path) -> None:
    """The message holds the command that begins one."""
    with pytest.raises(UsageError, match=r"onetake new .*/new hello --config agent.yml"):
        new_scenario(tmp_path / "new", "hello")
    with pytest.raises(UsageError, match=r"is a file called suite\.toml"):
        new_scenario(tmp_path / "suites.toml", "hello")
    assert tree(tmp_path) == {}


def test_a_new_suite_can_be_recorded_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Settings, overlay and script are what record needs, and the result is green."""
    folder = tmp_path / "agent"
    folder.mkdir()
    (folder / "agent.yml").write_text(AGENT)
    (folder / "faults.py").write_text(FAULTS)
    config = folder / "agent.yml"
    prompt = ["--prompt", "Say hello."]
    assert main(["new", str(folder / "snapshots"), "hello", "--config", str(config), *prompt]) == 0
    assert "agent.snapshot.yml is what replay boots" in capsys.readouterr().out
    settings = load_suite(folder / "snapshots").settings
    assert settings.agent.config == "../agent.yml" and settings.agent.record_env == ["LAB_BASE_URL"]
    assert settings.normalize.stdout.drop == ["result.agentInfo.version"], "a release is no regression"
    lab = Lab(folder)
    outcomes = lab.record()
    assert red(outcomes) == {}, failures(outcomes)
    assert red(lab.replay()) == {}


def test_a_headless_suite(tmp_path: Path) -> None:
    """It has one prompt and no handshake; what its driver refuses is not written."""
    (tmp_path / "agent.yml").write_text(AGENT)
    new_scenario(
        tmp_path / "runs", "hello", config=tmp_path / "agent.yml", driver="headless", prompts=["Hi."]
    )
    suite = load_suite(tmp_path / "runs")
    assert suite.settings.suite.driver == "headless" and not suite.settings.normalize.stdout.drop
    assert suite.settings.agent.command == ["onetake", "run", "--config", "{config}", "{prompt}"]
    script = json.loads((tmp_path / "runs/hello/input.json").read_text())
    assert script == {"steps": [{"op": "prompt", "text": "Hi."}]}
    before = tree(tmp_path)
    with pytest.raises(UsageError, match="prompt"):
        new_scenario(tmp_path / "runs", "two", prompts=["One.", "Two."])
    with pytest.raises(UsageError, match="begin another one for 'acp'"):
        new_scenario(tmp_path / "runs", "two", driver="acp")
    assert tree(tmp_path) == before


def test_every_driver_has_a_command() -> None:
    """So that a suite can be begun for each."""
    assert set(scaffold.COMMANDS) == set(DRIVERS)


def test_an_overlay_that_is_there_stays(tmp_path: Path) -> None:
    """It is somebody's; a row called `replay` gets no second one of its name."""
    (tmp_path / "agent.yml").write_text(AGENT.replace("id: shell", "id: replay"))
    new_scenario(tmp_path / "a", "hello", config=tmp_path / "agent.yml")
    text = (tmp_path / "agent.snapshot.yml").read_text()
    assert "id: onetake-replay" in text
    (tmp_path / "agent.snapshot.yml").write_text("# mine\n" + text)
    new_scenario(tmp_path / "b", "hello", config=tmp_path / "agent.yml")
    assert (tmp_path / "agent.snapshot.yml").read_text() == "# mine\n" + text


def test_an_agent_without_a_model(tmp_path: Path) -> None:
    """There would be nothing to replace."""
    (tmp_path / "agent.yml").write_text("- {id: acp, use: acp}\n")
    with pytest.raises(UsageError, match="no row reaches a model"):
        new_scenario(tmp_path / "deep/er", "hello", config=tmp_path / "agent.yml")
    with pytest.raises(UsageError, match="does not exist"):
        new_scenario(tmp_path / "deep/er", "hello", config=tmp_path / "other.yml")
    assert set(tree(tmp_path)) == {"agent.yml"}


def test_a_suite_that_was_not_finished_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it or nothing, folders included."""
    (tmp_path / "agent.yml").write_text(AGENT)

    def broken(*arguments: object) -> bytes:
        raise OSError("no space left on device")

    monkeypatch.setattr(scaffold, "_script", broken)
    with pytest.raises(OSError, match="no space"):
        new_scenario(tmp_path / "deep/er", "hello", config=tmp_path / "agent.yml")
    assert {path.name for path in tmp_path.iterdir()} == {"agent.yml"}


def test_variables_of_the_adapter_only() -> None:
    """Keys and addresses that a recording needs, each once."""
    config = {"base_url": "${URL:-http://x}/${URL}", "api_key_env": "KEY", "headers": [{"a": "${B}"}]}
    text = scaffold._suite("a.yml", "acp", list(named_variables(config)))
    assert tomllib.loads(text)["agent"]["record_env"] == ["URL", "KEY", "B"]
    assert "record_env" not in scaffold._suite("a.yml", "acp", [])
