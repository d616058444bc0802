"""The agents that are fuzzed here."""

from __future__ import annotations

import sys
from pathlib import Path

from onetake.testing.fuzz.client import Bounds
from onetake.testing.fuzz.target import MODEL_URL, Target

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "examples" / "acp-agent" / "agent.yml"
PATIENT = Bounds(answer=120, cancel=60, exit=60)
"""For agents that are to pass: a loaded machine is no finding."""


def broken(flaw: str) -> Target:
    """The small agent with that flaw; `none` is sound."""
    return Target([sys.executable, "-I", "-S", str(HERE / "broken_agent.py"), flaw, MODEL_URL])


def ours(config: Path) -> Target:
    """An agent of our own harness."""
    env = {
        "DEEPSEEK_BASE_URL": MODEL_URL,
        "DEEPSEEK_API_KEY": "none",
        "MODEL_URL": MODEL_URL,
        "MODEL_KEY": "none",
    }
    return Target([sys.executable, "-m", "onetake", "acp", "--config", str(config)], env)
