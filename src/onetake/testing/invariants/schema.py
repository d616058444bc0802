"""What holds for the parameter language of tools: its translation, and the judgement of arguments.

`admits` says what a spec means, straight from the language and without any JSON Schema in between. A
translation is right when every judge of the translated schema says the same. A subject that refuses arguments
must also say where they are wrong, because a model mends only what it is told: a `Violation` is a value with
one such place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from onetake.model.types import Json
from onetake.testing.errors import InvariantViolation

Spec = dict[str, Any]
Schema = dict[str, Any]
Convert = Callable[[Any], Schema]
"""Translates a spec, such as `onetake.tools.schema.compile_spec`."""
Judge = Callable[[Json, Schema], bool]
"""Tells whether a value fits a schema."""
Refuse = Callable[[Json, Schema], str | None]
"""Tells why arguments are refused, with the place; None: they are not."""


class Violation(NamedTuple):
    """Arguments with exactly one thing wrong."""

    value: Json
    """The arguments."""
    path: tuple[str | int, ...]
    """Where: names and places in lists, from the outside in; of what is missing or unknown, its own path."""
    kind: str
    """`value` (there is another than the spec admits), `missing`, or `unknown`."""


def admits(spec: Spec, value: Json) -> bool:
    """Tell whether a spec admits a JSON value: the language's meaning, spelled out."""
    if "oneOf" in spec:
        return [admits(each, value) for each in spec["oneOf"]].count(True) == 1
    if "enum" in spec and all(identity(value) != identity(each) for each in spec["enum"]):
        return False
    if "const" in spec and identity(value) != identity(spec["const"]):
        return False
    match spec.get("type", "json"):
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "null":
            return value is None
        case "number":
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case "integer":
            return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value // 1
        case "array":
            return isinstance(value, list) and all(admits(spec.get("items", {}), each) for each in value)
        case "object":
            return isinstance(value, dict) and _admits_object(spec, value)
        case _:
            return True


def _admits_object(spec: Spec, value: dict[str, Json]) -> bool:
    properties, extra = spec.get("properties", {}), spec.get("additionalProperties", False)
    if set(spec.get("required", [])) - set(value):
        return False
    for name, each in value.items():
        if name in properties:
            if not admits(properties[name], each):
                return False
        elif extra is False or (extra is not True and not admits(extra, each)):
            return False
    return True


def identity(value: Json) -> str:
    """A text that is the same for values which JSON Schema takes for the same: 1 and 1.0, but not true."""
    if isinstance(value, float) and value.is_integer():
        return json.dumps(int(value))
    if isinstance(value, list):
        return f"[{','.join(map(identity, value))}]"
    if isinstance(value, dict):
        members = (f"{json.dumps(name)}:{identity(value[name])}" for name in sorted(value))
        return f"{{{','.join(members)}}}"
    return json.dumps(value)


def check_conversion(
    convert: Convert, spec: Any, refusal: type[Exception], where: str = "parameters"
) -> None:
    """Translation is total: a schema, the same each time, or the documented refusal, which names a place.

    The spec, a JSON value, is as it was before.
    """
    before = json.dumps(spec)
    _check_translated(convert, spec, refusal, where)
    after = json.dumps(spec)
    if after != before:
        raise InvariantViolation(f"a spec is only read: {before} became {after}")


def _check_translated(convert: Convert, spec: Any, refusal: type[Exception], where: str) -> None:
    try:
        schema = convert(spec)
    except refusal as error:
        if not str(error).startswith(where):
            raise InvariantViolation(
                f"a refused spec names its place: expected {where}..., came {str(error)!r} for {spec!r}"
            ) from error
        return
    except Exception as error:
        raise InvariantViolation(
            f"every spec is translated or refused: came {type(error).__name__}: {error} for {spec!r}"
        ) from error
    first, again = json.dumps(schema), json.dumps(convert(json.loads(json.dumps(spec))))
    if first != again:
        raise InvariantViolation(f"the same spec is the same schema: {first} and then {again} for {spec!r}")


def check_required(convert: Convert, spec: Spec) -> None:
    """Objects have the properties, the required names and the openness of their spec, at every level."""
    _check_required(spec, convert(spec), "parameters")


def _check_required(spec: Spec, schema: Any, where: str) -> None:
    for n, each in enumerate(spec.get("oneOf", ())):
        _check_required(each, schema["oneOf"][n], f"{where}.oneOf[{n}]")
    if spec.get("type") == "array" and "items" in spec:
        _check_required(spec["items"], schema["items"], f"{where}.items")
    if spec.get("type") != "object":
        return
    extra = spec.get("additionalProperties", False)
    properties: dict[str, Spec] = spec.get("properties", {})
    expected = (
        list(properties),
        list(spec.get("required", [])),
        extra if isinstance(extra, bool) else "a spec",
    )
    closed = schema.get("additionalProperties", True)
    came = (
        list(schema.get("properties", {})),
        schema.get("required", []),
        closed if isinstance(closed, bool) else "a spec",
    )
    if came != expected:
        raise InvariantViolation(
            f"{where} says of an object what its spec says (properties, required, additionalProperties):"
            f" expected {expected}, came {came}"
        )
    for name, each in properties.items():
        _check_required(each, schema["properties"][name], f"{where}.properties.{name}")
    if not isinstance(extra, bool):
        _check_required(extra, closed, f"{where}.additionalProperties")


def check_meaning(convert: Convert, judge: Judge, spec: Spec, value: Json) -> None:
    """A judge of the translated schema admits what the spec admits, and nothing else."""
    schema = convert(spec)
    expected, came = admits(spec, value), judge(value, schema)
    if came != expected:
        raise InvariantViolation(
            f"the schema means what its spec means: of {value!r} the spec says {expected}, the judge {came};"
            f" spec {spec!r}, schema {schema!r}"
        )


def check_accepts(convert: Convert, refuse: Refuse, spec: Spec, value: Json) -> None:
    """Arguments that satisfy the spec are not refused."""
    said = refuse(value, convert(spec))
    if said is not None:
        raise InvariantViolation(
            f"what satisfies a spec is accepted: {said!r} was said of {value!r}, spec {spec!r}"
        )


def check_refuses(convert: Convert, refuse: Refuse, spec: Spec, violation: Violation) -> None:
    """Arguments with one thing wrong are refused, and what is said names the place."""
    said = refuse(violation.value, convert(spec))
    if said is None:
        raise InvariantViolation(
            f"what violates a spec is refused: {violation.value!r} was accepted, although"
            f" {place_of(violation.path)!r} ({violation.kind}) is wrong; spec {spec!r}"
        )
    if not _names(said, violation):
        raise InvariantViolation(
            f"a refusal names the place: expected {place_of(violation.path)!r} ({violation.kind}),"
            f" came {said!r} of {violation.value!r}, spec {spec!r}"
        )


def place_of(path: tuple[str | int, ...]) -> str:
    """Write a path as people do: `files[0].name`; nothing for the whole."""
    place = ""
    for part in path:
        place += f"[{part}]" if isinstance(part, int) else f".{part}" if place else part
    return place


def _names(said: str, violation: Violation) -> bool:
    """Whether a text names the place; of an unknown property, its name as JSON and the object around it."""
    path = violation.path
    if violation.kind == "unknown":
        if json.dumps(path[-1], ensure_ascii=False) not in said:
            return False
        path = path[:-1]
    place = re.escape(place_of(path))
    return not place or re.search(rf"(?<![\w$.\]]){place}(?![\w$.\[])", said) is not None
