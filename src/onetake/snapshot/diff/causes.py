"""Failures of many scenarios, grouped by what caused them.

One edited line of a prompt makes every scenario red. Thirty reports of it hide what else is wrong; one report
that names thirty scenarios, and one command that accepts it, do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from onetake.snapshot.findings import Verdict
from onetake.snapshot.suites.select import command
from onetake.snapshot.suites.suite import Suite


def alike(verdicts: Iterable[Verdict]) -> list[list[Verdict]]:
    """The red verdicts of one suite in groups that differ in the same changes and no other.

    A verdict that fails in a way of its own is a group of one. The order is that of the verdicts.
    """
    groups: dict[object, list[Verdict]] = {}
    for number, verdict in enumerate(verdicts):
        if not verdict.ok:
            key = _key(verdict)
            groups.setdefault(number if key is None else key, []).append(verdict)
    return list(groups.values())


def _key(verdict: Verdict) -> tuple[object, ...] | None:
    """Equal for equal failures; None for a failure whose cause is not known."""
    if verdict.advice is not None or not all(difference.cause for difference in verdict.differences):
        return None
    return (
        tuple((difference.surface, difference.cause) for difference in verdict.differences),
        tuple((problem.guard, problem.message, problem.surface) for problem in verdict.problems),
    )


def accepting(suite: Suite, group: Sequence[Verdict], *, everything: bool = False) -> list[str]:
    """The commands that accept the differences of a group: as few as possible.

    `everything` says that nothing else of the suite is red, so that no scenario needs to be named.
    """
    each = [[d.accept for d in verdict.differences if d.accept] for verdict in group]
    shared = [accept for accept in dict.fromkeys(each[0]) if all(accept in own for own in each)]
    own = [
        verdict.scenario for verdict, accepts in zip(group, each, strict=True) if set(accepts) - set(shared)
    ]
    if not own:
        return shared
    return [*shared, command("refresh", suite, *([] if everything and not shared else own))]
