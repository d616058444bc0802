"""Translations and checks of tool parameters with bugs."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from onetake.testing.invariants import schema as holds
from onetake.testing.strategies import schemas as draws
from onetake.tools.arguments import BadArguments, check
from onetake.tools.schema import SpecError, compile_spec
from tests.faults.fault import Fault


def open_inside(spec: Any) -> Any:
    """Closes the outermost object only."""
    return opened(compile_spec(spec), 0)


def opened(schema: Any, depth: int) -> Any:
    if isinstance(schema, list):
        return [opened(each, depth) for each in schema]
    if not isinstance(schema, dict):
        return schema
    inside = depth + (schema.get("type") == "object")
    kept = {key: value for key, value in schema.items() if not (depth and key == "additionalProperties")}
    return {key: opened(value, inside) for key, value in kept.items()}


def loses_nested_required(spec: Any) -> Any:
    """Requires names at the top only."""
    schema = compile_spec(spec)
    return {**schema, "properties": {key: unrequired(each) for key, each in schema["properties"].items()}}


def unrequired(schema: Any) -> Any:
    if isinstance(schema, list):
        return [unrequired(each) for each in schema]
    if isinstance(schema, dict):
        return {key: unrequired(value) for key, value in schema.items() if key != "required"}
    return schema


def takes_true_for_one(value: Any, schema: Any) -> bool:
    """Judges what a store that has no booleans gave back."""
    return bool(Draft202012Validator(schema).is_valid(as_numbers(value)))


def as_numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: as_numbers(each) for key, each in value.items()}
    if isinstance(value, list):
        return [as_numbers(each) for each in value]
    return int(value) if isinstance(value, bool) else value


def says_no_place(value: Any, schema: Any) -> str | None:
    """Refuses without saying where."""
    try:
        check(value, schema)
    except BadArguments:
        return "the arguments are not valid"
    return None


def takes_extras(value: Any, schema: Any) -> str | None:
    """Drops names that it does not know."""
    known = schema.get("properties", {})
    if schema.get("additionalProperties") is False and isinstance(value, dict):
        value = {name: each for name, each in value.items() if name in known}
    try:
        check(value, schema)
    except BadArguments as error:
        return str(error)
    return None


def writes_into_the_spec(spec: Any) -> Any:
    """Fills in what a spec leaves out, in the spec of the caller."""
    schema = compile_spec(spec)
    spec.setdefault("required", [])
    return schema


@given(draws.loose_specs() | draws.damaged_specs() | draws.values())
def conversion(spec: Any) -> None:
    holds.check_conversion(writes_into_the_spec, spec, SpecError)


def required(convert: Any) -> Any:
    @given(draws.loose_specs())
    def prove(spec: Any) -> None:
        holds.check_required(convert, spec)

    return prove


def refuses(refuse: Any) -> Any:
    @given(st.data(), draws.specs())
    def prove(data: st.DataObject, spec: Any) -> None:
        holds.check_refuses(compile_spec, refuse, spec, data.draw(draws.violations(spec)))

    return prove


@given(st.data(), draws.specs())
def meaning(data: st.DataObject, spec: Any) -> None:
    holds.check_meaning(compile_spec, takes_true_for_one, spec, data.draw(draws.satisfying(spec)))


FAULTS = [
    Fault("open-inside", "objects within the parameters admit anything", required(open_inside)),
    Fault("nested-required", "only the outermost names are required", required(loses_nested_required)),
    Fault("true-is-one", "a boolean is taken for a number", meaning),
    Fault("no-place", "a refusal does not say what to mend", refuses(says_no_place)),
    Fault("drops-extras", "a misspelt name is dropped without a word", refuses(takes_extras)),
    Fault("writes-into-the-spec", "a tool's spec changes when its schema is made", conversion),
]
