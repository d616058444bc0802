"""What holds for every spec and every call, judged by an independent validator."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from onetake.tools.arguments import BadArguments, check
from onetake.tools.execution import execute
from onetake.tools.registry import ToolContext, ToolRegistry, ToolResult, define_tool
from onetake.tools.schema import SpecError, compile_spec, conforms

NAME = st.sampled_from(["a", "b", "c", "type", "$ref", "default"])
SCALAR = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([0.0, 1.0, 1.5, -2.0])
    | st.sampled_from(["", "a", "b"])
)
VALUE = st.recursive(
    SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAME, inner, max_size=3), max_leaves=8
)


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    @st.composite
    def build(draw: st.DrawFn) -> dict[str, Any]:
        properties = draw(st.dictionaries(NAME, inner, max_size=3))
        eligible = [name for name, spec in properties.items() if "default" not in spec]
        required = draw(st.lists(st.sampled_from(eligible), unique=True)) if eligible else []
        extra = draw(st.booleans() | inner)
        return {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": extra,
        }

    return build()


def with_default(specs: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Specs, some of them with a default that fits."""

    @st.composite
    def build(draw: st.DrawFn) -> dict[str, Any]:
        spec = draw(specs)
        default = draw(VALUE)
        try:
            compile_spec({"type": "object", "properties": {"p": {**spec, "default": default}}})
        except SpecError:
            return spec
        return {**spec, "default": default}

    return build()


LEAF = st.one_of(
    st.sampled_from(["string", "number", "integer", "boolean", "null", "json", "array"]).map(
        lambda kind: {"type": kind}
    ),
    st.lists(VALUE, min_size=1, max_size=1).map(lambda values: {"enum": values}),
    VALUE.map(lambda value: {"const": value}),
    st.just({"type": "string", "enum": ["a", "b"], "description": "one letter"}),
)
SPEC = with_default(
    st.recursive(
        LEAF,
        lambda inner: st.one_of(
            inner.map(lambda spec: {"type": "array", "items": spec}),
            st.lists(inner, min_size=1, max_size=3).map(lambda specs: {"oneOf": specs}),
            objects(with_default(inner)),
        ),
        max_leaves=6,
    )
)
PARAMETERS = objects(SPEC)
CONTEXT = ToolContext(session_id="s", call_id="c", turn=1, step=1, cwd=Path("."), spill_dir=Path("."), env={})


def is_unambiguous(spec: dict[str, Any]) -> bool:
    """Whether no default can make a second alternative fit: then completed arguments are valid arguments."""
    return '"oneOf"' not in json.dumps(spec)


@given(PARAMETERS)
def test_compiled_schemas_are_valid_and_deterministic(spec: dict[str, Any]) -> None:
    schema = compile_spec(spec)
    Draft202012Validator.check_schema(schema)
    assert json.dumps(schema) == json.dumps(compile_spec(json.loads(json.dumps(spec))))


@given(PARAMETERS, st.dictionaries(NAME, VALUE, max_size=4))
def test_checking_agrees_with_an_independent_validator(spec: dict[str, Any], value: dict[str, Any]) -> None:
    schema = compile_spec(spec)
    validator = Draft202012Validator(schema)
    fits = validator.is_valid(value)
    assert conforms(value, schema) == fits
    try:
        completed = check(value, schema)
    except BadArguments as error:
        assert not fits
        assert str(error)
    else:
        assert fits
        assert completed.keys() >= value.keys()
        if is_unambiguous(spec):
            assert check(completed, schema) == completed


@given(SPEC, VALUE)
def test_values_in_specs_are_judged_as_the_validator_would(spec: dict[str, Any], value: Any) -> None:
    schema = compile_spec({"type": "object", "properties": {"p": spec}})["properties"]["p"]
    assert conforms(value, schema) == Draft202012Validator(schema).is_valid(value)


@given(PARAMETERS, st.data())
def test_whatever_is_given_as_spec_compiles_or_is_refused_with_a_place(
    spec: dict[str, Any], data: st.DataObject
) -> None:
    def damage(value: Any) -> Any:
        if isinstance(value, dict) and value and data.draw(st.booleans()):
            key = data.draw(st.sampled_from(sorted(value)))
            return {**value, key: damage(value[key])}
        return data.draw(VALUE)

    try:
        Draft202012Validator.check_schema(compile_spec(damage(spec)))
    except SpecError as error:
        assert str(error).startswith("parameters")


@given(PARAMETERS, st.text() | VALUE.map(json.dumps) | st.text(alphabet='{}[]",:ae1.-\\ud80 ', max_size=30))
def test_a_call_always_comes_to_one_result(spec: dict[str, Any], raw: str) -> None:
    async def handler(arguments: Any, ctx: ToolContext) -> str:
        if is_unambiguous(spec):
            assert Draft202012Validator(compile_spec(spec)).is_valid(arguments)
        return "fine"

    registry = ToolRegistry()
    registry.register(define_tool("t", "", spec, handler))
    result = asyncio.run(execute(registry, "t", raw, CONTEXT))
    assert isinstance(result, ToolResult)
    if result.is_error:
        assert result.error == {"name": "InvalidArgumentsError", "code": "INVALID_ARGUMENTS"}
    else:
        assert result.content == [{"type": "text", "text": "fine"}]
