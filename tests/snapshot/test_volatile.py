"""Values that change from run to run are found by record, named, and covered by a rule that was tried."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from onetake.snapshot.findings import Advice
from onetake.snapshot.report import Reporter, as_json, failure_text
from tests.snapshot.lab import USAGE, Lab, command, failures, red

RANDOM = "$(head -c4 /dev/urandom | od -An -tx1 | tr -d ' \\n' | tr a-f 0-5)f7"
"""A new value in every run, which looks like an id in each of them."""


def replies(*turns: list[str] | str) -> list[dict[str, Any]]:
    """The scripted model of the scenario `tools`: commands, or a text, per step."""
    result = []
    for number, turn in enumerate(turns):
        if isinstance(turn, str):
            said: dict[str, Any] = {"text": turn, "deltaChars": 3}
        else:
            said = {"toolCalls": [command(f"call_{number}_{at}", text) for at, text in enumerate(turn)]}
        result.append({"match": "Run both", "reply": {**said, "usage": USAGE}})
    return result


def advised(lab: Lab, model: list[dict[str, Any]]) -> Advice:
    """Record; it must be refused with advice, and write nothing."""
    before = lab.files()
    outcomes = lab.record("tools", replies=model)
    assert not outcomes["tools"].verdict.ok
    assert lab.changed_since(before) == set()
    advice = outcomes["tools"].verdict.advice
    assert advice is not None, failures(outcomes)
    return advice


def paste(lab: Lab, advice: Advice) -> None:
    """Do as the message says."""
    assert advice.rules, advice.text
    with (lab.snapshots / "suite.toml").open("a") as file:
        file.write(f"\n{advice.rules}\n")


def test_a_random_id_that_the_model_uses_is_minted(lab: Lab) -> None:
    """The tool prints it, the model repeats it and hands it to another tool: it keeps its identity."""
    model = replies(
        [f"id={RANDOM}; touch $id.job; echo job $id queued"],
        ["ls {{fromRequest:job ([0-9a-f]{10}) queued}}.job"],
        "Job {{fromRequest:job ([0-9a-f]{10}) queued}} is there.",
    )
    advice = advised(lab, model)
    assert advice.rules == "[[normalize.mint]]\npattern = 'job ([0-9a-f]{10})\\b'\nas = \"job\""
    first = advice.text.split("\n")[0]
    assert first.startswith("this tool result prints a value that changes from run to run: `")
    assert first.count("`") == 6, "the values of three runs"
    assert "tools/session.jsonl, line " in advice.text and ": `bash`, turn 1, step 1" in advice.text
    assert "the model repeats it, so it is an identity to keep" in advice.text
    paste(lab, advice)
    assert red(lab.record("tools", replies=model)) == {}
    assert "Job {{job:1}} is there." in (lab.snapshots / "tools/stdout.expected.jsonl").read_text()
    assert red(lab.replay("tools")) == {}
    lab.edit("snapshots/tools/session.jsonl", "job {{job:1}} queued", "job {{job:1}} waiting")
    assert red(lab.replay("tools")) == {"tools": {"log"}}, "a really changed result is still red"


def test_a_trial_that_fails_widens_the_pattern(lab: Lab, tmp_path: Path) -> None:
    """Three ids of figures only, by chance: the next has letters, and the rule must hold for it."""
    ids = tmp_path / "ids"
    ids.write_text(
        "".join(f"{value}\n" for value in ["1234", "5678", "9012", *(f"{n:02x}e7" for n in range(40))])
    )
    model = replies(
        [f"id=$(head -n 1 {ids}); sed -i.bak 1d {ids}; touch $id.job; echo job $id queued"],
        ["ls {{fromRequest:job ([0-9a-f]{4}) queued}}.job"],
        "Job {{fromRequest:job ([0-9a-f]{4}) queued}} is there.",
    )
    advice = advised(lab, model)
    assert advice.rules == "[[normalize.mint]]\npattern = 'job ([0-9a-f]{4})\\b'\nas = \"job\""
    paste(lab, advice)
    assert red(lab.record("tools", replies=model)) == {}


def test_a_timestamp_is_masked_where_it_shows(lab: Lab) -> None:
    """Noise needs no identity."""
    model = replies(["date +%Y-%m-%dT%H:%M:%S.%N; echo done"], "It ran.")
    advice = advised(lab, model)
    assert "[[normalize.log.mask]]" in advice.rules and 'with = "TIME"' in advice.rules
    assert "mint" not in advice.rules
    paste(lab, advice)
    assert red(lab.record("tools", replies=model)) == {}
    assert '"TIME\\ndone\\n"' in (lab.snapshots / "tools/session.jsonl").read_text()
    lab.edit("snapshots/tools/session.jsonl", "TIME\\ndone", "TIME\\nfailed")
    assert red(lab.replay("tools")) == {"tools": {"log"}}


def test_a_time_that_the_model_needs_is_minted_after_all(lab: Lab) -> None:
    """A mask would leave the model with a file name of yesterday."""
    model = replies(
        ["f=backup-$(date +%s%N).tar; touch $f; echo wrote $f"],
        ["ls {{fromRequest:wrote (backup-[0-9]+.tar)}}"],
        "Done.",
    )
    advice = advised(lab, model)
    assert "[[normalize.mint]]" in advice.rules and "mask" not in advice.rules
    paste(lab, advice)
    assert red(lab.record("tools", replies=model)) == {}


def test_the_command_prints_the_advice(lab: Lab) -> None:
    """After the difference, and in the report for machines."""

    outcomes = lab.record("tools", replies=replies(["echo now $(date +%s%N)"], "It ran."))
    stream = io.StringIO()
    Reporter(stream, "record", 1, environ={}, dry_run=False).summary(list(outcomes.values()), 0.0)
    text = stream.getvalue()
    assert "the live run (-) and its replay (+) disagree" in text
    assert "this tool result prints a value that changes from run to run: `" in text
    assert "    [[normalize.log.mask]]\n" in text
    assert "nothing was written" in text and "accept:" not in text
    assert as_json(list(outcomes.values()), "record", 0.0)["outcomes"][0]["advice"]["rules"]
    assert "[[normalize.log.mask]]" in failure_text(outcomes["tools"])
