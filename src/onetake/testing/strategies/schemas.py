"""Specs of tool parameters, and arguments that satisfy them or miss by one thing.

Uniform values teach nothing about a validator: almost none fits, and those that do not are wrong everywhere.
`satisfying` builds values from the spec, and `violations` breaks exactly one place of such a value by as
little as possible (`true` for 1, a missing name, an unknown one) and says which.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from hypothesis import strategies as st

from onetake.model.types import Json
from onetake.testing.invariants.schema import Spec, Violation, admits, identity

_NAMES = ["a", "b", "path", "type", "$ref", "default"]
_STRINGS = ["", "a", "b", "1", "true", "é"]
_ODD = [None, True, False, 0, 1, 1.5, "", "a", "1", [], {}, [None], {"a": 1}]
_PLAIN = ["string", "number", "integer", "boolean", "boolean", "null"]
_APART = ["string", "number", "boolean", "null", "array", "object"]
"""Kinds of which no value has two, so that exactly one alternative can fit."""
_NESTED = 2
"""Levels of specs inside the parameters themselves."""


def values() -> st.SearchStrategy[Json]:
    """Draw small JSON values which are easily taken for each other: 1, 1.0, true and "1"."""
    plain = st.sampled_from([None, True, False, 0, 1, -2, 0.0, 1.0, 1.5, *_STRINGS])
    return st.recursive(
        plain,
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_NAMES), inner, max_size=3)
        ),
        max_leaves=5,
    )


def specs() -> st.SearchStrategy[Spec]:
    """Draw the parameters of a tool; every spec admits something, and at most one alternative at a time."""
    return _objects(_NESTED, overlapping=False)


def loose_specs() -> st.SearchStrategy[Spec]:
    """Draw the parameters of a tool whose alternatives may overlap, so that nothing may fit at all."""
    return _objects(_NESTED, overlapping=True)


@st.composite
def damaged_specs(draw: st.DrawFn) -> Any:
    """Draw a spec with one thing in it, at any depth, replaced by any JSON value."""

    def damaged(value: Any) -> Any:
        if isinstance(value, dict) and value and draw(st.booleans()):
            key = draw(st.sampled_from(sorted(value)))
            return {**value, key: damaged(value[key])}
        return draw(values())

    return damaged(draw(loose_specs()))


@st.composite
def _objects(draw: st.DrawFn, depth: int, overlapping: bool) -> Spec:
    properties: dict[str, Spec] = {}
    for name in draw(st.lists(st.sampled_from(_NAMES), max_size=3, unique=True)):
        each = draw(_any_spec(depth, overlapping))
        if draw(st.integers(0, 3)) == 3:
            default = draw(values() if overlapping else satisfying(each))
            if admits(each, default):
                each["default"] = default
        properties[name] = each
    spec: Spec = {"type": "object", "properties": properties}
    eligible = [name for name, each in properties.items() if "default" not in each]
    if eligible:
        spec["required"] = draw(st.lists(st.sampled_from(eligible), unique=True))
    extra = draw(st.sampled_from([None, False, True, "spec"]))
    if extra is not None:
        spec["additionalProperties"] = draw(_any_spec(0, overlapping)) if extra == "spec" else extra
    return spec


@st.composite
def _any_spec(draw: st.DrawFn, depth: int, overlapping: bool) -> Spec:
    flat, nesting = [*_PLAIN, "json", "enum", "const"], ["object", "array", "object", "oneOf"]
    kind = draw(st.sampled_from(nesting if depth and draw(st.booleans()) else flat))
    if kind != "oneOf":
        return draw(_spec_of(kind, depth, overlapping))
    if overlapping:
        return {"oneOf": draw(st.lists(_any_spec(depth - 1, overlapping), min_size=1, max_size=3))}
    apart = draw(st.lists(st.sampled_from(_APART), min_size=1, max_size=3, unique=True))
    return {"oneOf": [draw(_spec_of(each, depth - 1, overlapping)) for each in apart]}


@st.composite
def _spec_of(draw: st.DrawFn, kind: str, depth: int, overlapping: bool) -> Spec:
    if kind == "object":
        return draw(_objects(max(depth - 1, 0), overlapping))
    if kind == "array":
        return {"type": "array", "items": draw(_any_spec(max(depth - 1, 0), overlapping))}
    if kind == "enum":
        return {"enum": draw(st.lists(values(), min_size=1, max_size=3, unique_by=identity))}
    if kind == "const":
        return {"const": draw(values())}
    spec: Spec = {"type": kind}
    if kind == "string" and draw(st.booleans()):
        spec |= {"enum": draw(st.lists(st.sampled_from(_STRINGS), min_size=1, max_size=2, unique=True))}
        spec |= {"description": "one of a few"}
    if kind == "integer" and draw(st.booleans()):
        spec["const"] = draw(st.integers(0, 1))
    return spec


@st.composite
def satisfying(draw: st.DrawFn, spec: Spec) -> Json:
    """Draw a value that the spec admits. Alternatives that overlap, or that nothing fits, cost examples."""
    if "oneOf" in spec:
        chosen = draw(st.sampled_from(spec["oneOf"]))
        return draw(satisfying(chosen).filter(lambda value: admits(spec, value)))
    if "const" in spec or "enum" in spec:
        choices = [spec["const"]] if "const" in spec else spec["enum"]
        return draw(st.sampled_from(choices).filter(lambda value: admits(spec, value)))
    kind = spec.get("type", "json")
    if kind == "array":
        return draw(st.lists(satisfying(spec.get("items", {"type": "json"})), max_size=3))
    if kind == "object":
        return draw(_satisfying_objects(spec))
    return draw(
        {
            "string": st.sampled_from(_STRINGS),
            "number": st.sampled_from([0, 1, 1.0, 1.5, -2]),
            "integer": st.sampled_from([0, 1, 1.0, -2]),
            "boolean": st.booleans(),
            "null": st.none(),
            "json": values(),
        }[kind]
    )


@st.composite
def _satisfying_objects(draw: st.DrawFn, spec: Spec) -> dict[str, Json]:
    properties, extra = spec.get("properties", {}), spec.get("additionalProperties", False)
    value: dict[str, Json] = {}
    for name, each in properties.items():
        if name in spec.get("required", []) or draw(st.booleans()):
            value[name] = draw(satisfying(each))
    if extra is not False:
        for name in draw(
            st.lists(st.sampled_from([n for n in [*_NAMES, "z"] if n not in properties]), max_size=2)
        ):
            value[name] = draw(values() if extra is True else satisfying(extra))
    return value


class _Place(NamedTuple):
    """Something that may be broken in a value that satisfies its spec."""

    path: tuple[str | int, ...]
    kind: str
    instead: tuple[Json, ...] = ()
    """For `value` and `unknown`: what may be put there."""


@st.composite
def violations(draw: st.DrawFn, spec: Spec) -> Violation:
    """Draw a value in which exactly one thing violates the spec, and the place of it."""
    value = draw(satisfying(spec))
    places = list(_places(spec, value, ()))
    kind = draw(st.sampled_from([*dict.fromkeys(place.kind for place in places)]))
    path, _, instead = draw(st.sampled_from([place for place in places if place.kind == kind]))
    return Violation(_changed(value, path, [draw(st.sampled_from(instead))] if instead else []), path, kind)


def _places(spec: Spec, value: Json, path: tuple[str | int, ...]) -> Iterator[_Place]:
    """Find all that may be broken, outermost first: in parameters that is always something."""
    kind = spec.get("type") if "enum" not in spec and "const" not in spec else None
    # An object for an object would be wrong inside rather than here, and so would a list for a list.
    inside: tuple[type, ...] = {"object": (dict,), "array": (list,)}.get(kind or "", ())
    wrong = tuple(
        each for each in (*_near(value), *_ODD) if not admits(spec, each) and not isinstance(each, inside)
    )
    if wrong:
        yield _Place(path, "value", wrong)
    if kind == "array":
        for at, each in enumerate(value):
            yield from _places(spec.get("items", {"type": "json"}), each, (*path, at))
    if kind == "object":
        properties, extra = spec.get("properties", {}), spec.get("additionalProperties", False)
        for name in spec.get("required", ()):
            yield _Place((*path, name), "missing")
        if extra is False:
            yield _Place(
                (*path, next(n for n in [*_NAMES, "z"] if n not in properties)), "unknown", (1, None)
            )
        for name, each in value.items():
            inner = properties.get(name, extra)
            if inner is not True:
                yield from _places(inner, each, (*path, name))


def _near(value: Json) -> list[Json]:
    """Values that a careless judge takes for this one."""
    if isinstance(value, bool):
        return [int(value), float(value), json.dumps(value)]
    if isinstance(value, (int, float)):
        return [bool(value), str(value), value + 1, value + 0.5]
    if isinstance(value, str):
        return [f"{value} ", value.upper(), value[:-1], [value]]
    if isinstance(value, list):
        changed = [[near, *value[1:]] for near in _near(value[0])] if value else []
        return [*changed, [*value, None], value[:-1], dict.fromkeys(map(str, range(len(value))))]
    if isinstance(value, dict):
        first = next(iter(value), None)
        others = [{**value, first: near} for near in _near(value[first])] if first is not None else []
        return [*others, {**value, "z": None}, {k: v for k, v in value.items() if k != first}, [*value]]
    return [False, 0, "", "null", [], {}]


def _changed(value: Any, path: tuple[str | int, ...], instead: list[Json]) -> Json:
    """Return a copy of a value with something else at a path, or without what is there."""
    if not path:
        return instead[0]
    head, rest = path[0], path[1:]
    copy = value.copy()
    if rest or instead:
        copy[head] = _changed(value[head] if rest else None, rest, instead)
    else:
        del copy[head]
    return copy
