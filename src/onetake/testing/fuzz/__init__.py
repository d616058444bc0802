"""The fuzzer behind `onetake fuzz`: random scripts against any ACP agent, whose model is a scripted one.

Bugs of agents live in interleavings: a cancel while a tool runs, an answer after the answer, a session that
hears what another one was told. `fuzz` draws scripts of prompts, cancels, permissions and restarts, with
model answers that are malformed, break off or hang, watches what every client relies on (`CHECKS`), and
shrinks what breaks it. Importing this package needs Hypothesis.
"""

from onetake.testing.fuzz.campaign import Found, Plan, Report, fuzz, run_again
from onetake.testing.fuzz.client import Bounds
from onetake.testing.fuzz.judge import CHECKS, Finding
from onetake.testing.fuzz.steps import Case
from onetake.testing.fuzz.target import Target

__all__ = ["CHECKS", "Bounds", "Case", "Finding", "Found", "Plan", "Report", "Target", "fuzz", "run_again"]
