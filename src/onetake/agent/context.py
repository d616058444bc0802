"""The app context: what plugins register with, and what sessions are made from.

One instance per running agent process. Rooms below find here what they need from rooms above (a tool that
starts a child session calls `create_session`), so that imports keep pointing downwards.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onetake.agent.agent import Agent, AgentConfig
from onetake.agent.prompt import PromptRegistry
from onetake.agent.run import RUN_VARIABLE, RunFile
from onetake.errors import UsageError
from onetake.model.registry import ProviderRegistry
from onetake.model.types import new_id
from onetake.session.events import make_header
from onetake.session.log import SessionLog, ms_now
from onetake.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from onetake.session.store import SessionStore
    from onetake.session.writer import SessionWriter


def state_dir(environ: Mapping[str, str]) -> Path:
    """Where onetake keeps what it writes for itself: `onetake` in `$XDG_STATE_HOME` or `~/.local/state`."""
    base = environ.get("XDG_STATE_HOME")
    if base and os.path.isabs(base):
        return Path(base) / "onetake"
    return Path(environ.get("HOME") or "~").expanduser() / ".local" / "state" / "onetake"


class AppContext:
    """Everything that a composed agent consists of."""

    def __init__(
        self, *, config_dir: Path, environ: Mapping[str, str] | None = None, run: RunFile | None = None
    ) -> None:
        self.providers = ProviderRegistry()
        self.tools = ToolRegistry()
        self.prompt = PromptRegistry()
        self.run = run
        self.env: Mapping[str, str] = os.environ if environ is None else environ
        self.tool_env: dict[str, str] = {k: v for k, v in self.env.items() if k != RUN_VARIABLE}
        """The environment of tools: ours without the variable that runner and agent share."""
        self.store: SessionStore | None = None
        """Set by the `session-store` plugin; without one, logs live in memory only."""
        self.agent_config: AgentConfig | None = None
        """Set by the `agent` plugin: how sessions call their model."""
        self.agents: dict[str, Agent] = {}
        """The open sessions in the order of their creation."""
        self.surface_options: dict[str, Any] = {}
        """Options of the surfaces, by name, from the rows of the composition."""
        self.disabled_rows: list[tuple[str, Mapping[str, Any]]] = []
        """Place and config of the rows that are switched off; replay answers for their models."""
        self.config_dir = config_dir
        """The folder of the composition file."""
        spill = run.roots.get("spill") if run is not None else None
        self.spill_root = Path(spill) if spill else state_dir(self.env) / "spill"

    async def create_session(self, cwd: Path, *, parent: Agent | None = None) -> Agent:
        """Start a session that works in `cwd`; with `parent` as its child, one level of delegation deeper.

        Raises UsageError when the composition has no `agent` row.
        """
        if self.agent_config is None:
            raise UsageError("the composition has no `agent` row: add one that names provider and model")
        header = make_header(
            new_id(),
            created_at=ms_now(),
            cwd=str(cwd),
            parent_session=parent.id if parent is not None else None,
            delegation_depth=parent.log.header["delegationDepth"] + 1 if parent is not None else 0,
        )
        log = SessionLog(header)
        agent = Agent(self, log, cwd=cwd, config=self.agent_config, writer=self._writer(log, cwd))
        self.agents[agent.id] = agent
        return agent

    def _writer(self, log: SessionLog, cwd: Path) -> SessionWriter | None:
        if self.store is None:
            return None
        from onetake.session.store import SessionStore, project_name

        store = self.store
        of_project = SessionStore(store.root, compression=store.compression, project=project_name(str(cwd)))
        return of_project.open(log)

    async def close_session(self, session_id: str) -> None:
        """Close one session (see `Agent.close`); an unknown one is ignored."""
        agent = self.agents.pop(session_id, None)
        if agent is not None:
            await agent.close()

    async def close(self) -> None:
        """Close all sessions, the youngest first, so that children end before their parents.

        All are closed even when one fails; the first failure is raised.
        """
        failures = []
        for session_id in reversed(list(self.agents)):
            try:
                await self.close_session(session_id)
            except Exception as error:
                failures.append(error)
        if failures:
            raise failures[0]
