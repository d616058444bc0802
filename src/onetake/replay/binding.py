"""Which recorded session answers a live one? Decided by lineage, never by what was said.

The first top-level session is the primary one, fixture 0. A child belongs to the call that spawned it: its
bound parent, the turn, step and id of the call, and its place among the children of that call. Children are
numbered depth-first in that order. It does not matter in which order concurrent children happened to start,
nor what anyone told them, so a changed prompt is a difference to look at and not a session that nobody
knows. Further top-level sessions, and children whose log does not record a spawning call, go by order of
creation.

One pure function, used by the agent (to serve the right script) and by the runner (to compare the right
logs).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onetake.fixture.lineage import SessionFacts, Spawn


def bind(sessions: Sequence[SessionFacts], recorded: Sequence[SessionFacts] | None = None) -> dict[str, int]:
    """The fixture index of each session, by id; `sessions` come in order of creation, oldest first.

    Without `recorded` sessions are numbered as a new recording would be. With it (the facts of session.jsonl,
    session.1.jsonl, ... in that order) each gets the index of the recorded session that stands in the same
    place; one without such a place gets an index beyond: `len(recorded)` and up.
    """
    order = list(_depth_first(sessions))
    if recorded is None:
        return {session.id: index for index, session in enumerate(order)}
    bound = _match(sessions, recorded)
    unbound = [session.id for session in order if session.id not in bound]
    return bound | {session: len(recorded) + place for place, session in enumerate(unbound)}


def _match(sessions: Sequence[SessionFacts], recorded: Sequence[SessionFacts]) -> dict[str, int]:
    """Walk the two forests side by side, from the roots down."""
    index_of = {facts.id: index for index, facts in enumerate(recorded)}
    live_below, recorded_below = _children(sessions), _children(recorded)
    bound: dict[str, int] = {}
    pending: list[tuple[str | None, str | None]] = [(None, None)]
    while pending:
        live_parent, recorded_parent = pending.pop()
        there = recorded_below.get(recorded_parent, [])
        for live, match in _pair(live_below.get(live_parent, []), there):
            bound[live.id] = index_of[match.id]
            pending.append((live.id, match.id))
    return bound


def _pair(
    live: Sequence[SessionFacts], recorded: Sequence[SessionFacts]
) -> Iterator[tuple[SessionFacts, SessionFacts]]:
    """Pair the children of one parent: by the spawning call; else by its id; without a call, by creation."""
    free = list(recorded)
    moved: list[SessionFacts] = []
    for session in live:
        match = next((other for other in free if other.spawn == session.spawn), None)
        if match is None:
            moved.append(session)
            continue
        free.remove(match)
        yield session, match
    for session in moved:
        # The harness may have moved the call to another turn or step; its id and the child's place remain.
        same = [other for other in free if _same_call(session, other)]
        # A foreign log does not record the call of a child: those go by creation.
        foreign = [other for other in free if other.parent is not None and other.spawn is None]
        match = same[0] if len(same) == 1 else foreign[0] if foreign else None
        if match is not None:
            free.remove(match)
            yield session, match


def _same_call(one: SessionFacts, other: SessionFacts) -> bool:
    if one.spawn is None or other.spawn is None:
        return False
    return (one.spawn.call_id, one.spawn.ordinal) == (other.spawn.call_id, other.spawn.ordinal)


def _children(sessions: Sequence[SessionFacts]) -> dict[str | None, list[SessionFacts]]:
    """Sessions by parent, siblings in the order of their numbers; who has no known parent is top-level."""
    known = {session.id for session in sessions}
    below: dict[str | None, list[SessionFacts]] = {}
    for session in sessions:
        parent = session.parent if session.parent in known else None
        below.setdefault(parent, []).append(session)
    for parent, siblings in below.items():
        if parent is not None:
            spawned = sorted((s for s in siblings if s.spawn is not None), key=_spawn)
            below[parent] = spawned + [s for s in siblings if s.spawn is None]
    return below


def _spawn(session: SessionFacts) -> Spawn:
    assert session.spawn is not None
    return session.spawn


def _depth_first(sessions: Sequence[SessionFacts]) -> Iterator[SessionFacts]:
    below = _children(sessions)
    stack = list(reversed(below.get(None, [])))
    while stack:
        session = stack.pop()
        yield session
        stack.extend(reversed(below.get(session.id, [])))
