"""Every change of the agent turns the suite red, on the surface where it belongs."""

from __future__ import annotations

import json

import pytest

from tests.snapshot.lab import Lab, failures, red


def test_the_unchanged_agent_is_green(lab: Lab) -> None:
    """Nothing in the suite depends on the run."""
    before = lab.files()
    for _ in range(2):
        outcomes = lab.replay()
        assert red(outcomes) == {}, failures(outcomes)
    assert lab.changed_since(before) == set()


def test_one_word_of_the_prompt(lab: Lab) -> None:
    """It is red in every scenario that sends it, for one cause, and one file accepts it."""
    lab.edit("agent.yml", "careful engineer", "cautious engineer")
    outcomes = lab.replay()
    assert red(outcomes) == {name: {"pins"} for name in ("hello", "tools", "echo", "fails")}
    found = [d for outcome in outcomes.values() for d in outcome.verdict.differences]
    assert {d.file for d in found} == {"hello/system-prompt.expected.md"}
    assert len({d.cause for d in found}) == 1
    assert all("- You are a careful engineer." in d.message for d in found), failures(outcomes)
    assert all(d.accept.endswith("-k hello") for d in found)
    before = lab.files()
    assert red(lab.refresh()) == {}
    assert lab.changed_since(before) == {"hello/system-prompt.expected.md"}
    assert red(lab.replay()) == {}


@pytest.mark.parametrize(
    ("kind", "expected", "message"),
    [
        (
            "renamed_field",
            {"hello": {"stdout"}, "tools": {"stdout"}, "echo": {"stdout"}},
            "params.update.content",
        ),
        ("dropped_reasoning", {"hello": {"requests"}}, "kept"),
        ("reordered_results", {"tools": {"log"}}, "call_b"),
        ("lost_event", {n: {"log"} for n in ("hello", "tools", "echo", "fails")}, "request/context"),
        ("injected", {n: {"requests"} for n in ("hello", "tools", "echo", "fails")}, "psst"),
    ],
)
def test_a_fault_differs_on_its_surface(
    lab: Lab, kind: str, expected: dict[str, set[str]], message: str
) -> None:
    """A programming error shows where it acts, and nowhere else."""
    lab.break_agent(kind)
    outcomes = lab.replay()
    assert red(outcomes) == expected, failures(outcomes)
    assert message in failures(outcomes)


def test_a_stray_print(lab: Lab) -> None:
    """What stands between frames on stdout is a problem that no refresh accepts."""
    lab.break_agent("stray_print")
    before = lab.files()
    for outcomes in (lab.replay("hello"), lab.refresh("hello")):
        assert red(outcomes)["hello"] == {"stray-output"}
        assert "stdout line 1 is no JSON-RPC frame: 'debug: a frame follows'" in failures(outcomes)
    assert lab.changed_since(before) == set()


def test_a_print_before_the_agent_takes_over_stdout(lab: Lab) -> None:
    """A launcher that greets is stray output too."""
    lab.edit(
        "snapshots/suite.toml",
        '["onetake", "acp", "--config", "{config}"]',
        """["sh", "-c", "echo Welcome; exec onetake acp --config {config}"]""",
    )
    outcomes = lab.replay("hello")
    assert red(outcomes)["hello"] == {"stray-output"}, failures(outcomes)
    assert "'Welcome'" in failures(outcomes)


def test_a_print_in_a_plugin(lab: Lab) -> None:
    """Clients are spared a `print` (it goes to stderr there), the suite is not."""
    lab.break_agent("plain_print")
    outcomes = lab.replay("hello")
    assert red(outcomes)["hello"] == {"stray-output"}, failures(outcomes)
    assert "'debug: a turn begins'" in failures(outcomes)


def test_an_exhausted_script(lab: Lab) -> None:
    """One prompt more than was recorded asks the model once too often."""
    script = json.loads((lab.snapshots / "hello/input.json").read_text())
    script["steps"].append({"op": "prompt", "text": "Once more."})
    (lab.snapshots / "hello/input.json").write_text(json.dumps(script))
    before = lab.files()
    outcomes = lab.replay("hello")
    assert "extra-call" in red(outcomes)["hello"]
    assert "call 3" in failures(outcomes)
    assert "extra-call" in red(lab.refresh("hello"))["hello"]
    assert lab.changed_since(before) == set(), "a violation blocks every write"


def test_an_exhausted_script_where_an_error_is_expected(lab: Lab) -> None:
    """A violation cannot pass for the error that a script waits for."""
    script = json.loads((lab.snapshots / "hello/input.json").read_text())
    script["steps"].append({"op": "promptExpectError", "text": "Once more."})
    (lab.snapshots / "hello/input.json").write_text(json.dumps(script))
    outcomes = lab.replay("hello")
    assert "extra-call" in red(outcomes)["hello"]
    assert "drive" not in red(outcomes)["hello"], "the error itself was as the script said"
    assert "extra-call" in red(lab.refresh("hello"))["hello"]


def test_a_call_that_is_not_made(lab: Lab) -> None:
    """One prompt less leaves a recorded call over."""
    script = json.loads((lab.snapshots / "hello/input.json").read_text())
    script["steps"].pop()
    (lab.snapshots / "hello/input.json").write_text(json.dumps(script))
    outcomes = lab.replay("hello")
    assert red(outcomes)["hello"] >= {"leftover"}
    assert "2 model calls are recorded, and the agent made 1" in failures(outcomes)


def test_a_tool_that_is_gone(lab: Lab) -> None:
    """A call of an unknown tool is a problem, also for refresh, which would bless it."""
    lab.break_agent("lost_tool")
    for outcomes in (lab.replay("tools"), lab.refresh("tools")):
        assert "unknown-tool" in red(outcomes)["tools"], failures(outcomes)
        assert "the agent lacks: bash" in failures(outcomes)


def test_an_agent_that_does_not_start(lab: Lab) -> None:
    """It is red with exit code 3, and says what the agent said."""
    lab.break_agent("crash")
    outcomes = lab.replay("hello")
    assert outcomes["hello"].exit_code == 3
    assert "the agent fell over" in failures(outcomes)


def test_a_plugin_that_is_no_plugin(lab: Lab) -> None:
    """A row that resolves to the wrong kind of object stops the agent, and the message names the row."""
    lab.edit("agent.yml", "faults:fault", "json:loads")
    outcomes = lab.replay("hello")
    assert outcomes["hello"].exit_code == 3
    assert "row 'fault'" in failures(outcomes) and "wrong kind of object" in failures(outcomes)
