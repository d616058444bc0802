"""The search for rules over runs that are made up: no agent is started."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onetake.session.jsonl import read_log
from onetake.snapshot.drive.harvest import Harvest
from onetake.snapshot.findings import Advice
from onetake.snapshot.render.pins import Pins
from onetake.snapshot.render.render import render
from onetake.snapshot.suites.suite import Suite
from onetake.snapshot.volatile.proposal import Rule, with_rule
from onetake.snapshot.volatile.volatile import MAX_RULES, explain
from tests.snapshot.driving import OPENING, make_suite

Value = Callable[[], str]
MakeRun = Callable[[str, Value], dict[str, Any]]
"""(what the model repeats, a source of fresh values) -> `results`, `said`, `frames`, `requests`, `events`."""


def harvest(folder: Path, results: list[str], said: str = "Done.", **more: Any) -> Harvest:
    """A run in which `bash` gave these results, and then the model said something."""
    events: list[dict[str, Any]] = [{"type": "turn/start", "data": {"turn": 1}}]
    for number, text in enumerate(results):
        call = {"turn": 1, "step": number, "callId": f"c{number}", "name": "bash", "arguments": "{}"}
        content = [
            {"type": "tool-result", "toolCallId": f"c{number}", "content": [{"type": "text", "text": text}]}
        ]
        message = {"source": {"kind": "tool", "callId": f"c{number}"}, "content": content, "role": "user"}
        events += [
            {"type": "tool/call", "data": call},
            {"type": "tool/result", "data": {"turn": 1, "step": number, "message": message}},
        ]
    events += more.get("events", [])
    for piece in (said[:3], said[3:]):
        chunk = {"type": "text-delta", "index": 0, "text": piece}
        events.append({"type": "assistant/chunk", "data": {"turn": 1, "step": 9, "chunk": chunk}})
    header = {"type": "session", "version": 0, "id": "s", "createdAt": 0, "delegationDepth": 0}
    rows = [{**event, "seq": seq, "time": 0} for seq, event in enumerate(events)]
    raw = "".join(json.dumps(row) + "\n" for row in [header, *rows])
    return Harvest(
        scenario="one",
        mode="replay",
        frames=[
            json.dumps({"jsonrpc": "2.0", "method": "m", "params": frame}).encode()
            for frame in more.get("frames", [])
        ],
        sessions=[read_log(raw.encode(), "log")],
        bindings={"s": 0},
        requests=[
            {"session": "s", "call": 1, "purpose": "main", "messages": [m]} for m in more.get("requests", [])
        ],
        violations=more.get("violations", []),
        run_dir=folder,
        workspace=folder,
    )


class Bench:
    """A live run, its replay, and an agent that can be run again."""

    def __init__(
        self, folder: Path, make: MakeRun, *, settings: str = "", surfaces: str = '["stdout", "log"]'
    ) -> None:
        self.suite = make_suite(
            folder,
            {"one": OPENING},
            suite=f"surfaces = {surfaces}",
            tables={"one": settings or "timeout_s = 9"},
        )
        self.folder = folder
        self.make = make
        self.pins = Pins()
        self.trials: list[Suite] = []
        self.numbers = itertools.count(0xF4AF, 0x1B2D)

    def value(self) -> str:
        """A value that no run had before."""
        return f"{next(self.numbers) % 0x10000:04x}"

    def run(self, echo: str = "") -> Harvest:
        """One run: the model repeats `echo`, or (when that is empty) the run's own first value."""
        values: list[str] = []

        def value() -> str:
            values.append(self.value())
            return values[-1]

        own = self.make("{echo}", value)
        echoed = echo or (values[0] if values else "")
        return harvest(self.folder, **json.loads(json.dumps(own).replace("{echo}", echoed)))

    def advice(self) -> Advice | None:
        """What `explain` says; replays repeat the live value unless it is minted."""
        self.numbers = itertools.count(0xF4AF, 0x1B2D)
        live, recorded = self.run(), "f4af"

        async def trial(suite: Suite, scenario: object, folder: Path) -> Harvest:
            assert (folder / "session.jsonl").is_file()
            self.trials.append(suite)
            return self.run("" if suite.settings.normalize.mint else recorded)

        runs = [live, self.run(recorded)]
        return asyncio.run(explain(runs, self.suite.scenarios["one"], self.suite, self.pins, {}, trial))


def test_an_identity_and_noise_side_by_side(tmp_path: Path) -> None:
    """One rule each; a value that shows on two surfaces is told once."""

    def make(echo: str, value: Value) -> dict[str, Any]:
        results = [f"job {value()} queued", f"took {int(value(), 16)} ms"]
        return {"results": results, "said": f"job {echo} waits", "frames": [{"text": results[1]}]}

    bench = Bench(tmp_path, make)
    advice = bench.advice()
    assert advice is not None
    assert [line for line in advice.rules.split("\n") if line.startswith("[[")] == [
        "[[normalize.mint]]",
        "[[normalize.log.mask]]",
        "[[normalize.stdout.mask]]",
    ]
    assert advice.text.count("prints a value that changes") == 2
    assert "session.jsonl, line 6: `bash`, turn 1, step 1, and on stdout" in advice.text
    assert "these rules" in advice.text
    assert len(bench.trials) == 3, "a third run, and two replays under the mint rule"


def test_a_value_that_results_repeat_is_an_identity(tmp_path: Path) -> None:
    """Even when the model does not."""

    def make(echo: str, value: Value) -> dict[str, Any]:
        own = value()
        return {"results": [f"job {own} queued", f"job {own} done"]}

    advice = Bench(tmp_path, make).advice()
    assert advice is not None and advice.rules.startswith("[[normalize.mint]]")
    assert "results repeat it, so it is an identity to keep" in advice.text


def test_a_number_is_dropped_where_it_is(tmp_path: Path) -> None:
    """A mask replaces text only; a list index is any index."""

    def make(echo: str, value: Value) -> dict[str, Any]:
        return {"results": [], "frames": [{"at": [{"ms": int(value(), 16)}]}]}

    advice = Bench(tmp_path, make).advice()
    assert advice is not None
    assert advice.rules == '[normalize.stdout]\ndrop = ["params.at.*.ms"]'
    assert "this frame prints a value" in advice.text and "line 1 (m) at params.at.0.ms" in advice.text


def test_an_event_of_its_own_and_a_request(tmp_path: Path) -> None:
    """What is no tool result is masked where it shows."""

    def make(echo: str, value: Value) -> dict[str, Any]:
        return {"results": [], "events": [{"type": "note", "data": {"t": f"run {value()}"}}]}

    advice = Bench(tmp_path / "a", make).advice()
    assert advice is not None and advice.rules.startswith("[[normalize.log.mask]]")
    assert "this `note` event prints" in advice.text and "at data.t" in advice.text

    def injected(echo: str, value: Value) -> dict[str, Any]:
        return {"results": [], "requests": [{"role": "user", "content": f"run {value()}"}]}

    advice = Bench(tmp_path / "b", injected, surfaces='["requests"]').advice()
    assert advice is not None and advice.rules.startswith("[[normalize.requests.mask]]")
    assert "this request prints" in advice.text


def shuffled(echo: str, value: Value) -> dict[str, Any]:
    """The same lines, beginning elsewhere."""
    lines = ["one 1", "two 2", "three 3"]
    start = int(value(), 16) % 3
    return {"results": ["\n".join(lines[start:] + lines[:start])]}


def reworded(echo: str, value: Value) -> dict[str, Any]:
    """Another text each time."""
    return {"results": [" ".join("abcdefghij"[int(c)] for c in str(int(value(), 16)))]}


def lost(echo: str, value: Value) -> dict[str, Any]:
    """An event that is there in the live run only."""
    return {"results": [], "events": [{"type": "note", "data": {}}] * (value() == "f4af")}


@pytest.mark.parametrize(
    ("make", "what", "reason"),
    [
        (shuffled, "this tool result", "the same lines come in another order: let the tool sort them"),
        (reworded, "this tool result", "fence what varies"),
        (lost, "this `note` event", "fence what varies"),
    ],
)
def test_what_no_rule_covers(tmp_path: Path, make: MakeRun, what: str, reason: str) -> None:
    """It is said, with the place."""
    advice = Bench(tmp_path, make).advice()
    assert advice is not None and advice.rules == ""
    assert f"no rule covers what differs in {what}" in advice.text
    assert reason in advice.text


def test_a_prompt_that_changes(tmp_path: Path) -> None:
    """No rule covers a prompt: it must hold still."""

    def make(echo: str, value: Value) -> dict[str, Any]:
        header = {"config": {}, "system": f"You are careful.\nThis is run {value()}."}
        return {"results": [], "events": [{"type": "request/header", "data": {"header": header}}]}

    bench = Bench(tmp_path, make, settings="pins_header = true")
    bench.pins = Pins((), ["one"])
    advice = bench.advice()
    assert advice is not None and advice.rules == ""
    assert "no rule covers what differs in this prompt or schema" in advice.text
    assert "one/system-prompt.expected.md, line 2" in advice.text
    assert "keep dates, versions and host names out of it" in advice.text


def test_a_mint_rule_under_which_nothing_replays_is_given_up(tmp_path: Path) -> None:
    """Then the value is masked."""

    def make(echo: str, value: Value) -> dict[str, Any]:
        return {"results": [f"job {value()} queued"], "said": f"job {echo} waits"}

    bench = Bench(tmp_path, make)
    run = bench.run

    def broken(echo: str = "") -> Harvest:
        result = run(echo)
        if not echo and bench.trials:
            result.violations = [{"kind": "unknown-token", "message": "no value"}]
        return result

    bench.run = broken  # type: ignore[method-assign]
    advice = bench.advice()
    assert advice is not None and advice.rules.startswith("[[normalize.log.mask]]")


def test_more_values_than_rules_can_explain(tmp_path: Path) -> None:
    """What was found is told, and that it is not all."""

    def make(echo: str, value: Value) -> dict[str, Any]:
        names = [chr(ord("a") + number) * 5 for number in range(MAX_RULES + 3)]
        return {"results": [f"{name} {value()}" for name in names]}

    advice = Bench(tmp_path, make).advice()
    assert advice is not None and advice.rules == ""
    assert advice.text.count("prints a value that changes") == MAX_RULES
    assert "no rule covers what differs" in advice.text


def test_short_values_are_not_minted(tmp_path: Path) -> None:
    """`7` occurs by chance everywhere."""

    def make(echo: str, value: Value) -> dict[str, Any]:
        return {"results": [f"slot {int(value(), 16) % 7}"], "said": "slot 4, slot 2, slot 0, 1 3 5 6"}

    advice = Bench(tmp_path, make).advice()
    assert advice is not None and "mint" not in advice.rules


def test_runs_that_agree_by_now_have_no_advice(tmp_path: Path) -> None:
    """And a run that cannot be repeated has none either."""
    bench = Bench(tmp_path, lambda echo, value: {"results": ["steady"]})
    assert bench.advice() is None
    bench.make = lambda echo, value: {
        "results": ["steady"],
        "violations": [{"kind": "extra-call", "message": "m"}],
    }
    assert bench.advice() is None


STABLE = "3e25dc34-48e0-4738-8401-1a8d181d37e5"


def test_a_mask_that_would_hide_what_holds_still_is_not_proposed(tmp_path: Path) -> None:
    """The text around the value makes it narrower; where that does not help, there is no rule."""

    def make(echo: str, value: Value) -> dict[str, Any]:
        return {"results": [f"run {STABLE[:-4]}{value()} ended", f"the ticket is {STABLE}"]}

    advice = Bench(tmp_path / "a", make).advice()
    assert advice is not None and "pattern = 'run [0-9a-f]{8}" in advice.rules

    def bare(echo: str, value: Value) -> dict[str, Any]:
        return {"results": [f"{value()}x{value()}", "2passed1x"]}

    advice = Bench(tmp_path / "b", bare).advice()
    assert advice is not None and advice.rules == ""
    assert "no rule covers what differs in this tool result" in advice.text


def test_a_mask_does_not_take_the_ids_of_a_run_for_values(tmp_path: Path) -> None:
    """A tool prints a UUID, and messages have such ids, too."""

    def make(echo: str, value: Value) -> dict[str, Any]:
        said = {"id": f"{STABLE[:-4]}{value()}", "role": "user", "content": []}
        return {
            "results": [f"run {STABLE[:-4]}{value()} ended"],
            "events": [{"type": "user/message", "data": said}],
        }

    bench = Bench(tmp_path, make)
    advice = bench.advice()
    assert advice is not None and advice.rules.count("[[") == 1
    suite = with_rule(bench.suite, Rule("mask", "log", f"[0-9a-f-]{{{len(STABLE)}}}", "UUID"))
    log = render(bench.run(), suite.scenarios["one"], suite, bench.pins, {}).files["session.jsonl"]
    assert b'"id":"{{msg:1.1}}"' in log and b"run UUID ended" in log
