"""Tokens, echoes and projections with bugs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from onetake.fixture import grammar, tokens
from onetake.fixture.gaps import same_fixture
from onetake.fixture.tokens import TokenTable
from onetake.testing.invariants import tokens as holds
from onetake.testing.strategies.echoes import cut, cuts
from tests.faults.fault import Fault
from tests.fixture.test_properties import HOSTILE, SPEECH, TABLE, fixture_of, quoting, run


class Variant:
    """The table of the properties, with a fault."""

    values: Mapping[str, str] = TABLE.values

    def tokenize(self, text: str) -> str:
        return TABLE.tokenize(text)

    def restore(self, text: str) -> str:
        return TABLE.restore(text)


class EscapesOnce(Variant):
    """Takes what has a backslash for escaped."""

    def tokenize(self, text: str) -> str:
        lexeme = re.compile(r"\{\{(" + grammar.BODY + r")\}\}")
        with patch.object(tokens, "escape", lambda literal: lexeme.sub(r"{{\\\1}}", literal)):
            return TABLE._tokenize(text)


@given(HOSTILE)
def escapes_once(text: str) -> None:
    holds.check_restored(EscapesOnce(), text)


class ReplacesOnly(Variant):
    """Puts names in and escapes nothing."""

    def tokenize(self, text: str) -> str:
        with patch.object(tokens, "escape", lambda literal: literal):
            return TABLE._tokenize(text)


@given(HOSTILE)
def forges_names(text: str) -> None:
    holds.check_forges_nothing(ReplacesOnly(), text)


def delta_by_delta(pieces: Sequence[str]) -> list[str]:
    return [TABLE.tokenize(piece) for piece in pieces]


@given(HOSTILE, cuts())
def looks_into_single_deltas(text: str, places: list[int]) -> None:
    holds.check_deltas(TABLE, delta_by_delta, cut(text, places))


class Alphabetical(TokenTable):
    """Names ids in the order of the alphabet and not of the log."""

    def _learn(self, counter: Any, event: Any, rules: Any) -> None:
        super()._learn(counter, event, rules)
        names = sorted(body for body in self._bodies.values() if body.startswith("msg:"))
        ids = sorted(value for value, body in self._bodies.items() if body.startswith("msg:"))
        for value, body in zip(ids, names, strict=True):
            self._bodies[value] = body


def fixture_by(table: type[TokenTable], made: Any) -> bytes:
    with patch("tests.fixture.test_properties.TokenTable", table):
        return fixture_of(*made)


@given(SPEECH, st.permutations(range(101, 112)))
def names_by_value(speech: Any, ids: list[int]) -> None:
    one, other = run(speech, list(range(201, 212))), run(speech, ids)
    holds.check_same_fixture(lambda made: fixture_by(Alphabetical, made), one, other, same_fixture)


class Masking(TokenTable):
    """Gives every id of a kind one name."""

    def _add(self, value: str, body: str) -> None:
        super()._add(value, "msg:1.1" if body.startswith("msg:") else body)


@given(SPEECH, st.integers(0, 2**32))
def masks_ids(speech: Any, seed: int) -> None:
    holds.check_told_apart(lambda made: fixture_by(Masking, made), *quoting(speech, seed))


FAULTS = [
    Fault("escapes-once", "text that is escaped already is not escaped again", escapes_once),
    Fault("forges-names", "a text that looks like a name becomes one", forges_names),
    Fault("single-deltas", "a value that is cut by a stream is not found", looks_into_single_deltas),
    Fault("names-by-value", "ids are named in the order of their values", names_by_value),
    Fault("masks-ids", "all ids of a kind get one name, so swapped ones look alike", masks_ids),
]
