"""Pins in full: several of them, headers that change, children, and one edited word in a large suite."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from onetake.session.events import REQUEST_HEADER
from onetake.session.jsonl import read_log
from onetake.snapshot.drive.harvest import Harvest
from onetake.snapshot.guard.guards import static_problems
from onetake.snapshot.modes.judge import judge
from onetake.snapshot.render.pins import Pin, Pins
from onetake.snapshot.render.render import render
from onetake.snapshot.render.unpinned import unpinned_problem
from onetake.snapshot.suites.suite import Suite
from tests.fixture.logs import event, log, uid
from tests.snapshot.lab import AGENT, OPENING, OVERLAY, USAGE, Lab, failures, red
from tests.snapshot.test_surfaces import make_suite

MOODS = '''\
"""A tool that changes the agent's prompt and its tools while a turn runs."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec

from onetake.agent.context import AppContext
from onetake.tools.registry import ToolContext, define_tool


class Mood(msgspec.Struct):
    """What to be, and which tool to have."""

    mood: str = ""
    tool: str = ""


class Nothing(msgspec.Struct):
    """No arguments."""


class Config(msgspec.Struct, forbid_unknown_fields=True):
    """No settings."""


@asynccontextmanager
async def plugin(ctx: AppContext, config: Config) -> AsyncIterator[None]:
    undo: list[Callable[[], None]] = []

    async def nothing(arguments: Nothing, call: ToolContext) -> str:
        return "nothing"

    async def shift(arguments: Mood, call: ToolContext) -> str:
        while undo:
            undo.pop()()
        if arguments.mood:
            undo.append(ctx.prompt.register("mood", f"You are {arguments.mood} now."))
        if arguments.tool:
            undo.append(ctx.tools.register(define_tool(arguments.tool, "Do nothing.", Nothing, nothing)))
        return "shifted"

    ctx.tools.register(define_tool("shift", "Change.", Mood, shift))
    yield
'''
PLUGIN = "- {id: moods, use: moods:plugin}\n"
SUITE = """\
[agent]
command = ["onetake", "acp", "--config", "{config}"]
config = "../agent.yml"
record_env = ["LAB_BASE_URL"]

[scenarios.plain]
pins_header = true

[scenarios.shifts]
pins_header = true

[scenarios.follows]

[scenarios.twice]
pins_header = true
"""


def shift(number: int, **what: str) -> dict[str, Any]:
    """A reply that calls the tool."""
    return {"toolCalls": [{"id": f"call_{number}", "name": "shift", "arguments": what}], "usage": USAGE}


def replies() -> list[dict[str, Any]]:
    """What the scripted model says in each scenario."""
    steps = {
        "plain": [],
        "shifts": [shift(1, mood="merry")],
        "follows": [shift(1, mood="merry")],
        "twice": [
            shift(1, mood="merry", tool="one"),
            shift(2, mood="sad", tool="one"),
            shift(3, mood="sad", tool="two"),
            shift(4),
        ],
    }
    return [
        {"match": f"Do {name}", "reply": reply}
        for name, calls in steps.items()
        for reply in [*calls, {"text": "Done.", "usage": USAGE}]
    ]


@pytest.fixture(scope="module")
def recorded_moods(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A suite of an agent whose headers change. Read only."""
    folder = tmp_path_factory.mktemp("moods") / "agent"
    snapshots = folder / "snapshots"
    (folder / "agent.yml").parent.mkdir(parents=True)
    (folder / "agent.yml").write_text(AGENT[: AGENT.index("- id: fault")] + PLUGIN)
    (folder / "agent.snapshot.yml").write_text(OVERLAY)
    (folder / "moods.py").write_text(MOODS)
    for name in ("plain", "shifts", "follows", "twice"):
        (snapshots / name).mkdir(parents=True)
        script = {"steps": [*OPENING, {"op": "prompt", "text": f"Do {name}."}]}
        (snapshots / name / "input.json").write_text(json.dumps(script))
    (snapshots / "suite.toml").write_text(SUITE)
    before = os.environ.pop("CI", None)
    try:
        outcomes = Lab(folder).record(replies=replies())
    finally:
        if before is not None:
            os.environ["CI"] = before
    assert red(outcomes) == {}, failures(outcomes)
    return folder


@pytest.fixture
def moods(recorded_moods: Path, tmp_path: Path) -> Lab:
    """A copy to break."""
    shutil.copytree(recorded_moods, tmp_path / "agent")
    return Lab(tmp_path / "agent")


def headers(lab: Lab, scenario: str) -> list[tuple[str, str, str]]:
    """The headers of a fixture: reason, prompt and schemas."""
    path = lab.snapshots / scenario / "session.jsonl"
    found = [e["data"] for e in read_log(path.read_bytes(), scenario).events if e["type"] == REQUEST_HEADER]
    return [
        (
            data["reason"],
            data["header"]["system"].strip("{}").removeprefix("system:"),
            data["header"]["tools"].strip("{}").removeprefix("tools:"),
        )
        for data in found
    ]


def sidecars(lab: Lab) -> set[str]:
    """Every committed prompt and set of schemas."""
    return {name for name in lab.files() if "system-prompt" in name or "tool-schemas" in name}


def test_a_header_that_changes_in_the_middle_names_another_text(moods: Lab) -> None:
    """Prompts and schemas independently; a text that comes back is named as before; each is kept once."""
    assert headers(moods, "plain") == [("initial", "plain", "plain")]
    assert headers(moods, "shifts") == [("initial", "plain", "plain"), ("change", "shifts", "plain")]
    assert headers(moods, "follows") == headers(moods, "shifts"), "another scenario names the pin's texts"
    assert headers(moods, "twice") == [
        ("initial", "plain", "plain"),
        ("change", "shifts", "twice"),
        ("change", "twice", "twice"),
        ("change", "twice", "twice.1"),
        ("change", "plain", "plain"),
    ]
    assert sidecars(moods) == {
        "plain/system-prompt.expected.md",
        "plain/tool-schemas.expected.json",
        "shifts/system-prompt.expected.md",
        "twice/system-prompt.expected.md",
        "twice/tool-schemas.expected.json",
        "twice/tool-schemas.1.expected.json",
    }
    merry = (moods.snapshots / "shifts/system-prompt.expected.md").read_text()
    assert merry.endswith("\n\nYou are merry now.\n")
    assert static_problems(moods.suite) == []


def test_every_live_header_equals_the_sidecar_that_it_names(moods: Lab) -> None:
    """Also a numbered one, and also of a scenario that keeps none itself."""
    moods.edit("snapshots/shifts/system-prompt.expected.md", "merry", "jolly")
    moods.edit("snapshots/twice/tool-schemas.1.expected.json", "Do nothing.", "Do something.")
    outcomes = moods.replay()
    assert {name: found for name, found in red(outcomes).items() if name is not None} == {
        "shifts": {"pins"},
        "follows": {"pins"},
        "twice": {"pins", "log", "requests"},
    }
    (difference,) = outcomes["follows"].verdict.differences
    assert difference.file == "shifts/system-prompt.expected.md"
    assert "- You are jolly now." in difference.message and "+ You are merry now." in difference.message
    assert "(if only follows is meant to send another system prompt: pins_header = true" in difference.message
    assert difference.accept.endswith("-k shifts")
    numbered = [d.file for d in outcomes["twice"].verdict.differences if d.surface == "pins"]
    assert "twice/tool-schemas.1.expected.json" in numbered


def test_one_word_of_a_shared_part_is_one_line_in_each_text_that_has_it(moods: Lab) -> None:
    """Every distinct text is one file; no fixture, request or other file changes."""
    moods.edit("agent.yml", "careful", "cautious")
    before = moods.files()
    outcomes = moods.refresh()
    assert red(outcomes) == {}, failures(outcomes)
    prompts = {name for name in sidecars(moods) if name.endswith(".md")}
    assert moods.changed_since(before) == prompts and len(prompts) == 3
    assert red(moods.replay()) == {}


def test_a_write_says_what_it_did_to_the_pins_of_others(moods: Lab) -> None:
    """Each scenario for itself is as it should be; the suite is not, and the write must not end green."""
    moods.edit("moods.py", "mood} now", "mood} now{' and sad' if arguments.mood == 'merry' else ''}")
    twice = moods.snapshots / "twice/system-prompt.expected.md"
    twice.write_text(twice.read_text().replace("sad now", "merry now and sad"))
    outcomes = moods.refresh("shifts")
    assert red(outcomes) == {None: {"duplicate-sidecar"}}, failures(outcomes)
    assert "twice: twice/system-prompt.expected.md: holds the same text as shifts/" in failures(outcomes)
    assert red(moods.refresh("plain")) == {}, "it was so before"
    assert red(moods.refresh("follows or twice")) == {} == red(moods.replay())
    moods.edit("snapshots/follows/session.jsonl", "{{tools:plain}}", "{{tools:twice.1}}")
    moods.edit("moods.py", "if arguments.tool:", "if arguments.tool == 'one':")
    outcomes = moods.refresh("twice")
    assert red(outcomes) == {None: {"unknown-pin"}}, failures(outcomes)
    assert "follows/session.jsonl: the header names the pin {{tools:twice.1}}" in failures(outcomes)
    assert red(moods.refresh()) == {} == red(moods.replay())


def test_a_text_that_an_earlier_pin_takes_over_moves_there(moods: Lab) -> None:
    """Names follow: nothing is committed twice, and nothing is left behind."""
    moods.edit("snapshots/suite.toml", "[scenarios.shifts]\npins_header = true\n", "[scenarios.shifts]\n")
    (moods.snapshots / "shifts/system-prompt.expected.md").unlink()
    outcomes = moods.refresh("twice")
    assert red(outcomes) == {}, failures(outcomes)
    assert [system for _, system, _ in headers(moods, "twice")] == [
        "plain",
        "twice",
        "twice.1",
        "twice.1",
        "plain",
    ]
    outcomes = moods.refresh()
    assert red(outcomes) == {}, failures(outcomes)
    assert headers(moods, "follows")[1] == ("change", "twice", "plain")
    assert red(moods.replay()) == {} and static_problems(moods.suite) == []


def test_a_sidecar_that_cannot_be_read_is_written_anew(moods: Lab) -> None:
    """Refresh mends what a merge conflict left, which replay refuses to compare with."""
    path = moods.snapshots / "plain/tool-schemas.expected.json"
    whole = path.read_bytes()
    path.write_bytes(b"<<<<<<< ours\n")
    assert {problem.guard for problem in static_problems(moods.suite)} >= {"unreadable"}
    assert red(moods.refresh("plain")) == {}
    assert path.read_bytes() == whole


# Sessions ---------------------------------------------------------------------------------------------------


def harvest_of(folder: Path, *sessions: list[tuple[str, str]]) -> Harvest:
    """A harvest of sessions with these headers (reason, prompt); later ones are children of the first."""
    from onetake.session.jsonl import encode_log

    logs = []
    for number, headed in enumerate(sessions):
        head: dict[str, Any] = {"type": "session", "version": 0, "id": uid(number + 1), "createdAt": 5}
        if number:
            head["parentSession"] = uid(1)
        events = log(
            *(
                event(
                    REQUEST_HEADER,
                    {"header": {"config": {}, "system": text, "tools": [number]}, "reason": reason},
                )
                for reason, text in headed
            )
        )
        logs.append(read_log(encode_log(head, events), f"{number}"))
    bindings = {session.id: number for number, session in enumerate(logs)}
    return Harvest(
        scenario="a", mode="replay", run_dir=folder, workspace=folder, sessions=logs, bindings=bindings
    )


def named(files: dict[str, bytes], name: str) -> list[str]:
    """The prompts that the headers of a rendered fixture name."""
    return [e["data"]["header"]["system"] for e in read_log(files[name], name).events]


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    """A pin and another scenario, log only."""
    return make_suite(tmp_path, {"a": "pins_header = true", "b": ""}, '[suite]\nsurfaces = ["log"]')


def test_a_resumed_session_and_children_have_headers_of_their_own(suite: Suite, tmp_path: Path) -> None:
    """Each names its text; further distinct ones are numbered in the order of sessions and headers."""
    harvest = harvest_of(
        tmp_path,
        [("initial", "Parent."), ("resume", "Parent."), ("change", "Later.")],
        [("initial", "Child."), ("resume", "Later.")],
        [("initial", "Child.")],
    )
    rendered = render(harvest, suite.scenarios["a"], suite, Pins([], ["a"]), {})
    assert rendered.unpinned == [] and rendered.problems == []
    assert named(rendered.files, "session.jsonl") == ["{{system:a}}", "{{system:a}}", "{{system:a.1}}"]
    assert named(rendered.files, "session.1.jsonl") == ["{{system:a.2}}", "{{system:a.1}}"]
    assert named(rendered.files, "session.2.jsonl") == ["{{system:a.2}}"]
    texts = {name: data for name, data in rendered.files.items() if name.startswith("system")}
    assert texts == {
        "system-prompt.expected.md": b"Parent.\n",
        "system-prompt.1.expected.md": b"Later.\n",
        "system-prompt.2.expected.md": b"Child.\n",
    }
    schemas = [name for name in rendered.files if name.startswith("tool-")]
    assert len(schemas) == 3, "one for each session, whatever their prompts"


def test_a_child_whose_header_no_pin_holds_is_red(suite: Suite, tmp_path: Path) -> None:
    """The message names its fixture, and the scenario to make a pin."""
    pins = Pins([Pin("a", 0, "system", "Parent."), *(Pin("a", n, "tools", [n]) for n in (0, 1))], ["a"])
    harvest = harvest_of(tmp_path, [("initial", "Parent.")], [("initial", "Child.")])
    verdict = judge(harvest, suite.scenarios["b"], suite, pins)
    assert {problem.guard for problem in verdict.problems} == set()
    (difference,) = [d for d in verdict.differences if d.surface == "pins"]
    assert "- Parent.\n+ Child." in difference.message.replace("    ", "")
    rendered = render(harvest, suite.scenarios["b"], suite, pins, {})
    problem = unpinned_problem(rendered.unpinned[0], suite.scenarios["b"], suite)
    assert problem.file == "b/session.1.jsonl" and problem.guard == "unpinned-header"
    assert "make it a pin too: pins_header = true in [scenarios.b]" in problem.remedy
    alone = judge(harvest, suite.scenarios["b"], suite, Pins())
    assert {p.guard for p in alone.problems} == {"unpinned-header"}


def test_a_second_text_whose_name_another_scenario_has_is_not_written(tmp_path: Path) -> None:
    """`a.1` cannot be both."""
    tables = {"a": "pins_header = true", "a.1": "pins_header = true"}
    suite = make_suite(tmp_path, tables, '[suite]\nsurfaces = ["log"]')
    harvest = harvest_of(tmp_path, [("initial", "One."), ("change", "Two.")])
    rendered = render(harvest, suite.scenarios["a"], suite, Pins([], ["a", "a.1"]), {})
    assert [problem.guard for problem in rendered.problems] == ["pin-clash"]
    assert "{{system:a.1}} would name this text and the first one" in rendered.problems[0].message


# A large suite ----------------------------------------------------------------------------------------------


def test_one_word_in_the_prompt_of_a_large_suite(lab: Lab, nightly: bool) -> None:
    """Exactly one file differs after refresh, by one line; the next refresh changes nothing."""
    others = [f"turn-{number:02}" for number in range(1, 30 if nightly else 8)]
    text = (lab.snapshots / "suite.toml").read_text()
    tables = "".join(f"[scenarios.{name}]\n\n" for name in others)
    (lab.snapshots / "suite.toml").write_text(text[: text.index("[scenarios.tools]")] + tables)
    for name in ("tools", "echo", "fails", "opened"):
        shutil.rmtree(lab.snapshots / name)
    for name in others:
        shutil.copytree(lab.snapshots / "hello", lab.snapshots / name)
        for file in ("system-prompt.expected.md", "tool-schemas.expected.json"):
            (lab.snapshots / name / file).unlink()
    before = lab.files()
    lab.edit("agent.yml", "careful engineer", "cautious engineer")
    outcomes = lab.refresh()
    assert red(outcomes) == {}, failures(outcomes)
    assert len(outcomes) == len(others) + 1
    changed = "hello/system-prompt.expected.md"
    assert lab.changed_since(before) == {changed}
    old, new = before[changed].split(b"\n"), lab.files()[changed].split(b"\n")
    assert len(old) == len(new) and sum(one != other for one, other in zip(old, new, strict=True)) == 1

    before = lab.files()
    outcomes = lab.refresh()
    assert lab.changed_since(before) == set()
    assert all(outcome.verdict.written == [] for outcome in outcomes.values())

    lab.break_agent("renamed_field")
    outcomes = lab.refresh("turn-03")
    assert set(outcomes) == {"turn-03"} and red(outcomes) == {}
    assert lab.changed_since(before) == {"turn-03/stdout.expected.jsonl"}
