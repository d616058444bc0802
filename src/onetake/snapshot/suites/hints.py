"""What to add to a message about a word that a settings file or a script should not have: the likely one.

Strict reading refuses what it does not know; this tells those who are refused what there is. Only used once
something is wrong, so it may be slow.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

import msgspec

HELP = "`onetake help suite` explains them"


def unknown_key_hint(value: Any, kind: Any) -> str:
    """For a value that does not decode as `kind` because of an unknown key: the end of the message, else
    empty."""
    found = _unknown(value, msgspec.inspect.type_info(kind))
    return _hint(*found, "keys") if found is not None else ""


def unknown_op_hint(value: Any, ops: Iterable[str]) -> str:
    """For a script with an op that nobody knows: the end of the message, else empty."""
    known = list(ops)
    steps = value.get("steps") if isinstance(value, dict) else None
    named = [step.get("op") for step in steps if isinstance(step, dict)] if isinstance(steps, list) else []
    wrong = next((name for name in named if isinstance(name, str) and name not in known), None)
    return _hint(wrong, known, "ops") if wrong is not None else ""


def _hint(word: str, known: list[str], what: str) -> str:
    near = difflib.get_close_matches(word, known, 1)
    listed = f"known {what}: {', '.join(known)}"
    return f"; did you mean `{near[0]}`? ({listed}; {HELP})" if near else f"; {listed} ({HELP})"


def _unknown(value: Any, kind: msgspec.inspect.Type) -> tuple[str, list[str]] | None:
    """The first unknown key in a value, and those that are known in its place."""
    match kind:
        case msgspec.inspect.StructType(fields=fields) if isinstance(value, dict):
            known = {field.encode_name: field.type for field in fields}
            for key in value:
                if key not in known and key != kind.tag_field:
                    return str(key), [*known]
            return next(
                (f for key, item in value.items() if key in known and (f := _unknown(item, known[key]))), None
            )
        case msgspec.inspect.DictType(value_type=inner) if isinstance(value, dict):
            return next((f for item in value.values() if (f := _unknown(item, inner))), None)
        case msgspec.inspect.ListType(item_type=inner) if isinstance(value, list):
            return next((f for item in value if (f := _unknown(item, inner))), None)
        case msgspec.inspect.UnionType(types=types):
            return next((f for one in types if _meant(value, one) and (f := _unknown(value, one))), None)
    return None


def _meant(value: Any, kind: msgspec.inspect.Type) -> bool:
    """Whether a value chooses this member of a union: by its tag, where members have one."""
    if not isinstance(kind, msgspec.inspect.StructType) or kind.tag_field is None:
        return True
    return isinstance(value, dict) and value.get(kind.tag_field) == kind.tag
