"""What holds for tokens: values of one run become names, and come back as values of another.

A fixture is compared byte for byte and replayed, so both directions matter: equal values must have equal
names and different values different ones, no text may be taken for a name that it is not, and what is put in
a fixture must come out of it as it was, however a model's stream cut it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from onetake.fixture.grammar import tokens_in
from onetake.testing.errors import InvariantViolation


class Tokens(Protocol):
    """The values of a run and their names, such as `onetake.fixture.tokens.TokenTable`."""

    @property
    def values(self) -> Mapping[str, str]:
        """The name of each value, braces included."""
        ...

    def tokenize(self, text: str) -> str:
        """A live text as it stands in a fixture."""
        ...

    def restore(self, text: str) -> str:
        """The live text behind a text of a fixture."""
        ...


TokenizeDeltas = Callable[[Sequence[str]], Sequence[str]]
"""The pieces of one stream as they stand in a fixture."""


def check_restored(subject: Tokens, text: str) -> None:
    """Restoring is the inverse of tokenizing, and doing both once more changes nothing."""
    written = subject.tokenize(text)
    back = subject.restore(written)
    if back != text:
        raise InvariantViolation(f"restored: expected {text!r}, came {back!r} out of {written!r}")
    again = subject.tokenize(back)
    if again != written:
        raise InvariantViolation(f"a fixed point: {written!r} became {again!r}")


def check_forges_nothing(subject: Tokens, text: str) -> None:
    """No text brings a name into a fixture that stands for nothing in the run."""
    known = set(subject.values.values())
    written = subject.tokenize(text)
    forged = [name for name in ("{{" + body + "}}" for body in tokens_in(written)) if name not in known]
    if forged:
        raise InvariantViolation(f"{text!r} is written as {written!r}, which names {forged}")


def check_injective(subject: Tokens, one: str, other: str) -> None:
    """Texts are written alike only if they are equal."""
    if (subject.tokenize(one) == subject.tokenize(other)) != (one == other):
        raise InvariantViolation(f"{one!r} and {other!r} are both written as {subject.tokenize(one)!r}")


def check_names(subject: Tokens) -> None:
    """Each value has a name of its own."""
    names = list(subject.values.values())
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise InvariantViolation(f"several values are called {twice}")


def check_deltas(subject: Tokens, tokenize_deltas: TokenizeDeltas, pieces: Sequence[str]) -> None:
    """However a stream cuts a text: as many pieces, which restore to it, with the names of the whole."""
    written = list(tokenize_deltas(pieces))
    if len(written) != len(pieces):
        raise InvariantViolation(f"{len(pieces)} pieces became {len(written)}")
    restored = [subject.restore(piece) for piece in written]
    if _joined(restored) != _joined(pieces):
        raise InvariantViolation(f"restored: expected {_joined(pieces)!r}, came {_joined(restored)!r}")
    if list(tokenize_deltas(restored)) != written:
        raise InvariantViolation(f"a fixed point: {written!r} is written as {tokenize_deltas(restored)!r}")
    whole = tokens_in(subject.tokenize(_joined(pieces)))
    named = [body for piece in written for body in tokens_in(piece)]
    if named != whole:
        raise InvariantViolation(f"names of the pieces: expected {whole}, came {named} in {written!r}")


def check_same_fixture(
    fixture_of: Callable[[Any], bytes], one: Any, other: Any, equal: Callable[[bytes, bytes], bool]
) -> None:
    """Two runs of the same behaviour, under other values, give the same fixture."""
    if not equal(fixture_of(one), fixture_of(other)):
        raise InvariantViolation(
            f"two runs that differ in ids only: {fixture_of(one)!r}, {fixture_of(other)!r}"
        )


def check_told_apart(fixture_of: Callable[[Any], bytes], one: Any, other: Any) -> None:
    """Two runs that differ in which id stands where give different fixtures."""
    if fixture_of(one) == fixture_of(other):
        raise InvariantViolation(f"two ids are swapped, and nobody sees it: {fixture_of(one)!r}")


def _joined(pieces: Sequence[str]) -> str:
    """The text of a stream; two surrogates that a cut had parted are one character again."""
    return "".join(pieces).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
