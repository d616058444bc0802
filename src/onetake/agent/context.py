"""The app context: what plugins register with, and what sessions are made from.

One instance per running agent process. Rooms below find here what they need from rooms above (a tool that
starts a child session calls `create_session`), so that imports keep pointing downwards.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onetake.agent.agent import Agent, AgentConfig
from onetake.agent.prompt import PromptRegistry
from onetake.errors import UsageError
from onetake.model.registry import ProviderRegistry
from onetake.model.types import new_id
from onetake.runfile import RUN_VARIABLE, RunFile
from onetake.session.events import END_SEED, Event, make_header
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
        self._created = 0
        self.agents: dict[str, Agent] = {}
        """The open sessions in the order of their creation."""
        self.background: list[Callable[[], Awaitable[None]]] = []
        """What plugins do beside the sessions: each waits until it is done and the sessions were told."""
        self.surface_options: dict[str, Any] = {}
        """Options of the surfaces, by name, from the rows of the composition."""
        self.disabled_rows: list[tuple[str, Mapping[str, Any]]] = []
        """Place and config of the rows that the overlay switches off; replay answers for their models."""
        self.config_dir = config_dir
        """The folder of the composition file."""
        spill = run.roots.get("spill") if run is not None else None
        self.spill_root = Path(spill) if spill else state_dir(self.env) / "spill"

    async def create_session(
        self,
        cwd: Path,
        *,
        parent: Agent | None = None,
        seed: Sequence[Event] | None = None,
        preset: str | None = None,
        prompt: PromptRegistry | None = None,
        tools: ToolRegistry | None = None,
    ) -> Agent:
        """Start a session that works in `cwd`; with `parent` as its child, one level of delegation deeper.

        `seed` is the history that the session goes on from; its events become the first of its log. `preset`
        names what the session was made from, `prompt` and `tools` replace the app's.

        Raises UsageError when the composition has no `agent` row.
        """
        if self.agent_config is None:
            raise UsageError("the composition has no `agent` row: add one that names provider and model")
        header = make_header(
            new_id(),
            created_at=self._creation_time(),
            cwd=str(cwd),
            parent_session=parent.id if parent is not None else None,
            seed_length=len(seed) if seed is not None else None,
            origin="subagent" if parent is not None else None,
            delegation_depth=parent.depth + 1 if parent is not None else 0,
            agent_preset=preset,
        )
        log = SessionLog(header, seed or ())
        if seed is not None:
            log.append(END_SEED, {})
        agent = Agent(
            self,
            log,
            cwd=cwd,
            config=self.agent_config,
            writer=self._writer(log, cwd),
            prompt=prompt,
            tools=tools,
        )
        for target in ("next-step", "next-turn"):  # what the seed still owes is not this session's to answer
            agent.inbox.cancel(target)
        self.agents[agent.id] = agent
        return agent

    def _creation_time(self) -> int:
        """The time in milliseconds, later than that of any session before: it tells their order."""
        self._created = max(ms_now(), self._created + 1)
        return self._created

    def _writer(self, log: SessionLog, cwd: Path) -> SessionWriter | None:
        if self.store is None:
            return None
        from onetake.session.store import SessionStore, project_name

        store = self.store
        of_project = SessionStore(store.root, compression=store.compression, project=project_name(str(cwd)))
        return of_project.open(log)

    async def settled(self) -> None:
        """Wait until no session has work, and nothing is in the background that would give one some.

        Raises StoreError when a log could not be written.
        """
        while True:
            running = next((agent for agent in self.agents.values() if agent.status == "running"), None)
            if running is not None:
                await running.when_idle()
                continue
            for done in list(self.background):
                await done()
            if all(agent.status != "running" for agent in self.agents.values()):
                return

    async def close_session(self, session_id: str, reason: dict[str, Any] | None = None) -> None:
        """Close one session (see `Agent.close`) and the children that it has; an unknown one is ignored.

        All are closed even when one fails; the first failure is raised.
        """
        family: dict[str, Agent] = {}
        for agent in self.agents.values():  # in the order of creation, so parents come before their children
            if agent.id == session_id or agent.log.header.get("parentSession") in family:
                family[agent.id] = agent
        await self._close(list(family.values()), reason)

    async def close(self) -> None:
        """Close all sessions, the youngest first, so that children end before their parents.

        All are closed even when one fails; the first failure is raised.
        """
        await self._close(list(self.agents.values()))

    async def _close(self, agents: Sequence[Agent], reason: dict[str, Any] | None = None) -> None:
        for agent in agents:  # all at once: none may go on with what another one's end gives it
            agent.stop(reason)
        failures = []
        for agent in reversed(agents):
            self.agents.pop(agent.id, None)
            try:
                await agent.close()
            except Exception as error:
                failures.append(error)
        if failures:
            raise failures[0]
