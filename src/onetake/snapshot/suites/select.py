"""Choose scenarios by name: `-k EXPR`, as pytest understands it (substrings, `and`, `or`, `not`,
parentheses)."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from onetake.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from onetake.snapshot.suites.suite import Suite

Predicate = Callable[[str], bool]

_MAX_DEPTH = 50
_TOKEN = re.compile(r"\s*(\(|\)|[^\s()]+)")


def parse_expression(text: str) -> Predicate:
    """A predicate over names. Raises `UsageError` with the place of the fault. Case does not matter."""
    return _Parser(text).parse()


def expression_for(chosen: Sequence[str], names: Iterable[str]) -> str:
    """A short expression that selects these of `names` and no other, ready for a shell."""
    lower = {name: name.lower() for name in chosen}
    terms = [n for n in chosen if not any(o != n and lower[o] in lower[n] for o in chosen)]
    others = [name for name in names if name not in lower]
    longer = [other for other in others if any(lower[term] in other.lower() for term in terms)]
    either = " or ".join(terms)
    if longer and len(terms) > 1:
        either = f"({either})"
    expression = " and ".join([either, *(f"not {other}" for other in longer)])
    return f"'{expression}'" if " " in expression else expression


def _shown(folder: Path) -> str:
    """A folder as seen from here, unless its whole path is shorter."""
    path = os.path.relpath(folder)
    return path if len(path) <= len(str(folder)) else str(folder)


def command(mode: str, suite: Suite, *scenarios: str) -> str:
    """The command that runs these scenarios (none: the whole suite), and no other, in a mode.

    Only the tests that hold a suite in Python can run it.
    """
    if suite.in_code:
        which = f"the tests of {', '.join(scenarios)}" if scenarios else "all tests"
        return f"ONETAKE_SNAPSHOT={mode} pytest   # {which} in {_shown(suite.dir)}"
    shown = _shown(suite.dir)
    chosen = f" -k {expression_for(scenarios, suite.scenarios)}" if scenarios else ""
    return f"onetake {mode} {shown}{chosen}"


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: Sequence[str] = _TOKEN.findall(text)
        self._next = 0
        self._depth = 0

    def parse(self) -> Predicate:
        if not self._tokens:
            raise UsageError("-k: the expression is empty")
        result = self._or()
        if self._next < len(self._tokens):
            raise self._fault(f"unexpected {self._tokens[self._next]!r}")
        return result

    def _or(self) -> Predicate:
        terms = [self._and()]
        while self._accept("or"):
            terms.append(self._and())
        return lambda name: any(term(name) for term in terms)

    def _and(self) -> Predicate:
        terms = [self._not()]
        while self._accept("and"):
            terms.append(self._not())
        return lambda name: all(term(name) for term in terms)

    def _not(self) -> Predicate:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise UsageError(f"-k: the expression is nested more than {_MAX_DEPTH} deep")
        try:
            return self._operand()
        finally:
            self._depth -= 1

    def _operand(self) -> Predicate:
        if self._accept("not"):
            term = self._not()
            return lambda name: not term(name)
        if self._accept("("):
            inner = self._or()
            if not self._accept(")"):
                raise self._fault("a `)` is missing")
            return inner
        if self._next == len(self._tokens) or self._tokens[self._next] in (")", "and", "or"):
            raise self._fault("a name is missing")
        word = self._tokens[self._next].lower()
        self._next += 1
        return lambda name: word in name.lower()

    def _accept(self, token: str) -> bool:
        if self._next < len(self._tokens) and self._tokens[self._next] == token:
            self._next += 1
            return True
        return False

    def _fault(self, message: str) -> UsageError:
        before = " ".join(self._tokens[: self._next])
        return UsageError(
            f"-k {self._text!r}: {message} after {before!r}" if before else f"-k {self._text!r}: {message}"
        )
