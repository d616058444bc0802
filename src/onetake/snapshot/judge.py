"""Replay's verdict: what a run left behind against what is committed. See `record` and `refresh` for the other modes.

How the runner calls the judging side (all it needs to know):

    pins = load_pins(suite)                                  # pins.py: the committed sidecars
    static_problems(suite)                                   # guards.py: without any process
    judge(harvest, scenario, suite, pins) -> Verdict         # here: replay, writes nothing
    await record_scenario(run_once, scenario, suite)         # record.py: live run, two replays, write
    await refresh_scenario(run_once, scenario, suite)        # refresh.py: one keyless run, write
    write_order(suite, scenarios)                            # pins.py: pins first, else the suite's order
    suite_problems(suite, verdicts)                          # guards.py: only after a full run
    recover(directory)                                       # write.py: first thing of every command

`run_once(mode, scenario, fixture_dir)` is an async callable that drives the agent once and returns its `Harvest`;
`fixture_dir` is where `session*.jsonl` is read from (input.json, workspace/ and replay.override.json are always read
from the scenario's own folder).
"""

from __future__ import annotations
