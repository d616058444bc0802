"""What holds for every spec and every call, judged by an independent validator."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from onetake.testing.invariants import schema as holds
from onetake.testing.invariants.schema import Spec, admits
from onetake.testing.strategies import schemas as draws
from onetake.tools.arguments import BadArguments, check
from onetake.tools.execution import execute
from onetake.tools.registry import ToolContext, ToolRegistry, ToolResult, define_tool
from onetake.tools.schema import SpecError, compile_spec, conforms

CONTEXT = ToolContext(session_id="s", call_id="c", turn=1, step=1, cwd=Path("."), spill_dir=Path("."), env={})


def independent(value: Any, schema: dict[str, Any]) -> bool:
    """What a validator says that is not ours."""
    return bool(Draft202012Validator(schema).is_valid(value))


def refusal(value: Any, schema: dict[str, Any]) -> str | None:
    """What a model is told of its arguments; None: they are fine."""
    try:
        check(value, schema)
    except BadArguments as error:
        return str(error)
    return None


@given(draws.loose_specs() | draws.damaged_specs() | draws.values())
def test_every_spec_is_translated_or_refused_with_a_place(spec: Any) -> None:
    holds.check_conversion(compile_spec, spec, SpecError)


@given(draws.loose_specs())
def test_every_level_of_a_schema_requires_what_its_spec_requires(spec: Spec) -> None:
    holds.check_required(compile_spec, spec)
    Draft202012Validator.check_schema(compile_spec(spec))


@given(draws.loose_specs(), draws.values())
def test_a_schema_means_what_its_spec_means(spec: Spec, value: Any) -> None:
    holds.check_meaning(compile_spec, independent, spec, value)
    holds.check_meaning(compile_spec, conforms, spec, value)


@given(draws.loose_specs(), st.dictionaries(st.sampled_from(["a", "b", "path", "z"]), draws.values()))
def test_our_check_of_arguments_agrees_with_the_independent_validator(spec: Spec, value: Any) -> None:
    assert (refusal(value, compile_spec(spec)) is None) == independent(value, compile_spec(spec))


@given(st.data(), draws.specs())
def test_arguments_that_satisfy_a_spec_are_taken_and_completed(data: st.DataObject, spec: Spec) -> None:
    value = data.draw(draws.satisfying(spec))
    holds.check_meaning(compile_spec, independent, spec, value)
    holds.check_accepts(compile_spec, refusal, spec, value)
    completed = check(value, compile_spec(spec))
    assert completed.keys() >= value.keys()
    assert admits(spec, completed)
    assert check(completed, compile_spec(spec)) == completed


@given(st.data(), draws.specs())
def test_arguments_with_one_thing_wrong_are_refused_with_its_place(data: st.DataObject, spec: Spec) -> None:
    violation = data.draw(draws.violations(spec))
    holds.check_meaning(compile_spec, independent, spec, violation.value)
    holds.check_refuses(compile_spec, refusal, spec, violation)


@given(st.data(), draws.specs())
def test_the_independent_validator_finds_one_thing_wrong_in_a_narrow_violation(
    data: st.DataObject, spec: Spec
) -> None:
    violation = data.draw(draws.violations(spec))
    errors = list(Draft202012Validator(compile_spec(spec)).iter_errors(violation.value))
    outer = violation.path if violation.kind == "value" else violation.path[:-1]
    assert {tuple(error.absolute_path) for error in errors} == {outer}


@given(
    draws.loose_specs(),
    st.text() | draws.values().map(json.dumps) | st.text(alphabet='{}[]",:ae1.-\\ud80 ', max_size=30),
)
def test_a_call_always_comes_to_one_result(spec: Spec, raw: str) -> None:
    async def handler(arguments: Any, ctx: ToolContext) -> str:
        if '"oneOf"' not in json.dumps(spec):  # there, a default can make a second alternative fit
            assert admits(spec, arguments)
        return "fine"

    registry = ToolRegistry()
    registry.register(define_tool("t", "", spec, handler))
    result = asyncio.run(execute(registry, "t", raw, CONTEXT))
    assert isinstance(result, ToolResult)
    if result.is_error:
        assert result.error == {"name": "InvalidArgumentsError", "code": "INVALID_ARGUMENTS"}
    else:
        assert result.content == [{"type": "text", "text": "fine"}]
