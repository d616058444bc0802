"""Normalization rules that are proposed to the owner of a suite: applied on trial, and written as TOML.

A rule is only ever shown. It must be ready to paste, so it is written for the suite.toml at hand: as tables
of their own where TOML lets them follow what is there, else as members of the lists that are there.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence

import msgspec

from onetake.snapshot.suites.settings import MaskRule, MintRule, Normalize
from onetake.snapshot.suites.suite import Suite


class Rule(msgspec.Struct, frozen=True):
    """One rule of a `[normalize]` table."""

    kind: str
    """`mint`, `mask` or `drop`."""
    surface: str
    """What it normalizes; empty for `mint`, which holds for the whole run."""
    pattern: str
    """A regular expression; for `drop` a dotted path."""
    text: str = ""
    """`as` of a mint rule, `with` of a mask."""

    @property
    def table(self) -> str:
        """The list in suite.toml that holds it."""
        return f"normalize.{self.surface}.{self.kind}" if self.surface else f"normalize.{self.kind}"

    def fields(self) -> list[str]:
        """Its TOML, a line per field."""
        return [f"pattern = {_string(self.pattern)}", f"{self._second} = {_string(self.text)}"]

    @property
    def _second(self) -> str:
        return "as" if self.kind == "mint" else "with"


def with_rule(suite: Suite, rule: Rule) -> Suite:
    """The suite with one rule more."""
    normalize = suite.settings.normalize
    if rule.kind == "mint":
        minted = [*normalize.mint, MintRule(rule.pattern, rule.text)]
        return _with(suite, msgspec.structs.replace(normalize, mint=minted))
    rules = getattr(normalize, rule.surface)
    if rule.kind == "drop":
        rules = msgspec.structs.replace(rules, drop=[*rules.drop, rule.pattern])
    else:
        rules = msgspec.structs.replace(rules, mask=[*rules.mask, MaskRule(rule.pattern, rule.text)])
    return _with(suite, msgspec.structs.replace(normalize, **{rule.surface: rules}))


def _with(suite: Suite, normalize: Normalize) -> Suite:
    settings = msgspec.structs.replace(suite.settings, normalize=normalize)
    return msgspec.structs.replace(suite, settings=settings)


def as_toml(rules: Sequence[Rule], settings: str) -> str:
    """The rules as TOML to append to `settings`, the text of a suite.toml; else to put into its lists."""
    tables = _tables(rules)
    try:
        tomllib.loads(f"{settings}\n{tables}")
    except tomllib.TOMLDecodeError:
        return "\n".join(_member(rule) for rule in rules)
    return tables


def _tables(rules: Sequence[Rule]) -> str:
    parts = ["\n".join([f"[[{rule.table}]]", *rule.fields()]) for rule in rules if rule.kind != "drop"]
    dropped: dict[str, list[str]] = {}
    for rule in rules:
        if rule.kind == "drop":
            dropped.setdefault(rule.table.removesuffix(".drop"), []).append(_string(rule.pattern))
    parts += [f"[{table}]\ndrop = [{', '.join(paths)}]" for table, paths in dropped.items()]
    return "\n\n".join(parts)


def _member(rule: Rule) -> str:
    table, _, name = rule.table.rpartition(".")
    member = _string(rule.pattern) if rule.kind == "drop" else "{ " + ", ".join(rule.fields()) + " }"
    return f"# into the list `{name}` of [{table}]\n{member},"


def _string(text: str) -> str:
    """A TOML string: literal where that is possible, because patterns are full of backslashes."""
    if "'" not in text and text.isprintable():
        return f"'{text}'" if "\\" in text or '"' in text else f'"{text}"'
    escaped = "".join(_ESCAPES.get(c, c if c.isprintable() else f"\\u{ord(c):04x}") for c in text)
    return f'"{escaped}"'


_ESCAPES = {"\\": "\\\\", '"': '\\"', "\t": "\\t", "\n": "\\n"}
