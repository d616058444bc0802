"""Calls of every kind, and what models are told about the bad ones."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Meta

from onetake.errors import UsageError
from onetake.tools.execution import execute
from onetake.tools.registry import (
    Tool,
    ToolContext,
    ToolRegistry,
    ToolResult,
    define_tool,
    error_result,
    text_result,
)
from onetake.tools.schema import SpecError

CONTEXT = ToolContext(
    session_id="s", call_id="c", turn=1, step=1, cwd=Path("/w"), spill_dir=Path("/s"), env={}
)
SPEC = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer", "default": 3},
        "pick": {"enum": ["a", 1]},
        "flag": {"const": True},
        "maybe": {"oneOf": [{"type": "string"}, {"type": "null"}]},
        "either": {"oneOf": [{"type": "number"}, {"type": "integer"}]},
        "shape": {
            "oneOf": [
                {
                    "type": "object",
                    "properties": {
                        "r": {"type": "integer"},
                        "unit": {"type": "string", "default": "mm"},
                    },
                    "required": ["r"],
                },
                {"const": "none"},
            ]
        },
        "list": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"k": {"type": "string"}, "n": {"type": "integer", "default": 1}},
                "required": ["k"],
            },
        },
        "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        "any": {"type": "json"},
    },
    "required": ["text"],
}


def run(raw: Any, *, spec: Any = SPEC, handler: Any = None, name: str = "tool") -> tuple[ToolResult, Any]:
    """Execute one call; return its result and what the handler was given."""
    given: list[Any] = []

    async def keep(arguments: Any, ctx: ToolContext) -> str:
        given.append(arguments)
        assert ctx is CONTEXT
        return "fine"

    registry = ToolRegistry()
    registry.register(define_tool("tool", "does things", spec, handler or keep))
    result = asyncio.run(execute(registry, name, raw, CONTEXT))
    return result, given[0] if given else None


def refused(raw: Any, code: str = "INVALID_ARGUMENTS", **more: Any) -> str:
    """The text of the error result of a call that must not reach the handler."""
    result, given = run(raw, **more)
    assert given is None
    assert result.is_error
    assert result.error is not None and result.error["code"] == code
    (block,) = result.content
    return str(block["text"])


def test_defaults_are_filled_in() -> None:
    result, given = run('{"text":"x"}')
    assert (result.content, result.is_error) == ([{"type": "text", "text": "fine"}], False)
    assert given == {"text": "x", "count": 3}


def test_defaults_are_filled_in_everywhere() -> None:
    _, given = run('{"text":"x","count":5,"list":[{"k":"a"},{"k":"b","n":2}],"shape":{"r":1}}')
    assert given["count"] == 5
    assert given["list"] == [{"k": "a", "n": 1}, {"k": "b", "n": 2}]
    assert given["shape"] == {"r": 1, "unit": "mm"}


def test_a_default_is_never_shared_between_calls() -> None:
    spec = {"type": "object", "properties": {"l": {"type": "array", "default": []}}}
    given = []

    async def change(arguments: Any, ctx: ToolContext) -> str:
        given.append(list(arguments["l"]))
        arguments["l"].append(1)
        return "x"

    registry = ToolRegistry()
    registry.register(define_tool("tool", "", spec, change))
    for _ in range(2):
        asyncio.run(execute(registry, "tool", "{}", CONTEXT))
    assert given == [[], []]


def test_a_default_is_completed_with_the_defaults_inside_it() -> None:
    inner = {"type": "object", "properties": {"b": {"type": "integer", "default": 1}}}
    spec = {"type": "object", "properties": {"a": {**inner, "default": {}}}}
    assert run("{}", spec=spec)[1] == {"a": {"b": 1}}


def test_whole_numbers_are_integers_where_that_is_the_type() -> None:
    _, given = run('{"text":"x","count":2.0,"map":{"a":1e2},"any":2.0,"list":[{"k":"a","n":4.0}]}')
    assert [given["count"], given["map"]["a"], given["list"][0]["n"]] == [2, 100, 4]
    assert all(type(n) is int for n in (given["count"], given["map"]["a"], given["list"][0]["n"]))
    assert type(given["any"]) is float


def test_big_integers_arrive_whole() -> None:
    assert run('{"text":"x","count":123456789012345678901234567890}')[1]["count"] == (
        123456789012345678901234567890
    )


def test_no_text_means_no_arguments() -> None:
    assert run("", spec={"type": "object"})[1] == {}
    assert run(" \n", spec={"type": "object"})[1] == {}


def test_half_of_a_surrogate_pair_in_a_value_reaches_the_handler() -> None:
    assert run('{"text":"\\ud800"}')[1]["text"] == "\ud800"


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ("{", "the arguments are not valid JSON"),
        ("{'text': 1}", "the arguments are not valid JSON"),
        ('{"text":"x","count":NaN}', "the arguments are not valid JSON"),
        ("\ud800", "the arguments are not valid JSON"),
        ("[]", "the whole must be object, not array"),
        ("null", "the whole must be object, not null"),
        ("7", "the whole must be object, not integer"),
        ("{}", "text is missing"),
        ('{"text":1}', "text must be string, not integer"),
        ('{"text":"x","count":1.5}', "count must be integer, not number"),
        ('{"text":"x","count":true}', "count must be integer, not boolean"),
        ('{"text":"x","count":1E400}', "a number is out of range"),
        ('{"text":"x","pick":"b"}', 'pick must be one of ["a",1]'),
        ('{"text":"x","flag":1}', "flag must be true"),
        ('{"text":"x","maybe":1}', "maybe must be null or string, not integer"),
        ('{"text":"x","either":1}', "either fits more than one of the alternatives"),
        (
            '{"text":"x","shape":{"r":"1"}}',
            "shape fits none of the alternatives: "
            'shape.r must be integer, not string or shape must be "none"',
        ),
        ('{"text":"x","list":[{"k":"a"},{}]}', "list[1].k is missing"),
        ('{"text":"x","map":{"a":"b"}}', "map.a must be integer, not string"),
        (
            '{"text":"x","list":[{"k":"a","z":1}]}',
            'unknown property "z" in list[0] (known: k, n)',
        ),
        ('{"text":"x","\\ud800":1}', "a property name holds half of a surrogate pair"),
        (None, "the arguments are not text but NoneType"),
        ({}, "the arguments are not text but dict"),
    ],
)
def test_bad_arguments_are_explained(raw: Any, message: str) -> None:
    assert refused(raw) == f"Error: invalid arguments for tool: {message}"


def test_unknown_properties_are_named_with_the_known_ones() -> None:
    text = refused('{"text":"x","cout":1,"a":2}')
    assert 'unknown property "a", "cout" (known: text, count, pick,' in text
    assert refused('{"x":1}', spec={"type": "object"}).endswith('unknown property "x"')


def test_only_the_first_few_violations_are_shown() -> None:
    text = refused(json.dumps({"text": "x", "list": [{}] * 200}))
    assert text.count("is missing") == 5
    assert text.endswith("; and 45 more")


@pytest.mark.parametrize(
    "raw",
    [
        '{"text":' + "[" * 150 + "]" * 150 + "}",
        '{"text":' + "[" * 200 + "]" * 200 + "}",
        "[" * 100_000,
        '{"a":' * 5_000 + "1" + "}" * 5_000,
    ],
)
def test_endless_nesting_is_refused(raw: str) -> None:
    assert "the arguments are nested deeper than 100 levels" in refused(raw)


def test_megabytes_do_not_come_back_in_messages() -> None:
    huge = "y" * 10_000_000
    for raw in (
        json.dumps({huge: 1}),
        json.dumps({"text": [huge]}),
        json.dumps({"text": "x", "pick": huge}),
        json.dumps({"text": "x", "map": {huge: huge}}),
        json.dumps({"text": "x", "list": {huge: huge}}),
        huge,
    ):
        assert len(refused(raw)) < 1500
    assert len(refused("{}", code="UNKNOWN_TOOL", name=huge)) < 300


def test_megabytes_that_are_allowed_pass() -> None:
    assert len(run(json.dumps({"text": "y" * 10_000_000}))[1]["text"]) == 10_000_000


def test_an_unknown_tool_names_the_known_ones() -> None:
    text = refused("{}", code="UNKNOWN_TOOL", name="bsh")
    assert text == "Error: there is no tool 'bsh'; the tools are: tool"
    nothing = asyncio.run(execute(ToolRegistry(), "x", "{}", CONTEXT))
    assert nothing.content[0]["text"].endswith("the tools are: none")


def test_an_exception_of_the_handler_is_a_result() -> None:
    async def broken(arguments: Any, ctx: ToolContext) -> str:
        raise KeyError("lost")

    result, _ = run('{"text":"x"}', handler=broken)
    assert result == error_result("Error: tool failed: 'lost'", name="KeyError", code="TOOL_ERROR")


def test_an_exception_without_words_is_named() -> None:
    async def broken(arguments: Any, ctx: ToolContext) -> str:
        raise TimeoutError

    result, _ = run('{"text":"x"}', handler=broken)
    assert result.content[0]["text"] == "Error: tool failed: TimeoutError"


def test_a_long_exception_is_cut() -> None:
    async def broken(arguments: Any, ctx: ToolContext) -> str:
        raise RuntimeError("z" * 1_000_000)

    assert len(run('{"text":"x"}', handler=broken)[0].content[0]["text"]) < 2100


def test_an_answer_of_the_wrong_type_is_an_error() -> None:
    async def odd(arguments: Any, ctx: ToolContext) -> Any:
        return {"text": "no"}

    result, _ = run('{"text":"x"}', handler=odd)
    assert result.content[0]["text"] == "Error: tool failed: it answered with dict, not a result"


def test_a_result_passes_as_it_is() -> None:
    answer = ToolResult(content=[], is_error=True, meta={"k": 1})

    async def exact(arguments: Any, ctx: ToolContext) -> ToolResult:
        return answer

    assert run('{"text":"x"}', handler=exact)[0] is answer


def test_cancellation_by_the_caller_passes_through() -> None:
    async def slow(arguments: Any, ctx: ToolContext) -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)
        return "not reached"

    with pytest.raises(asyncio.CancelledError):
        run('{"text":"x"}', handler=slow)


def test_a_handler_that_cancels_itself_gives_an_error() -> None:
    async def confused(arguments: Any, ctx: ToolContext) -> str:
        part = asyncio.ensure_future(asyncio.sleep(60))
        part.cancel()
        await part
        return "not reached"

    result, _ = run('{"text":"x"}', handler=confused)
    assert result.error == {"name": "CancelledError", "code": "TOOL_ERROR"}
    text = result.content[0]["text"]
    assert text == "Error: tool failed: it was cancelled from inside, by nobody who uses it"


class Typed(msgspec.Struct):
    when: Annotated[str, Meta(min_length=2)]
    ratio: float = 0.5
    size: int = 1
    key: bytes = b""


def test_a_class_gives_typed_arguments() -> None:
    result, given = run('{"when":"now","size":2.0}', spec=Typed)
    assert not result.is_error
    assert given == Typed("now", size=2)


def test_rules_beyond_the_type_are_named() -> None:
    assert refused('{"when":"n"}', spec=Typed).endswith("when breaks the rule minLength 2")


def test_what_only_the_class_can_refuse_is_bad_arguments_too() -> None:
    assert "Invalid base64" in refused('{"when":"now","key":"%%%"}', spec=Typed)


class Maybe(msgspec.Struct):
    at: Typed | None = None
    pair: tuple[int, Typed] | None = None


def test_alternatives_of_a_class_are_completed_too() -> None:
    _, given = run('{"at":{"when":"now","size":3.0},"pair":[1.0,{"when":"xx"}]}', spec=Maybe)
    assert given == Maybe(at=Typed("now", size=3), pair=(1, Typed("xx")))


def foreign(schema: Any) -> ToolRegistry:
    """A registry with a tool whose schema was not made by us."""

    async def handler(arguments: Any, ctx: ToolContext) -> str:
        return json.dumps(arguments)

    registry = ToolRegistry()
    registry.register(Tool(name="foreign", description="", parameters=schema, handler=handler))
    return registry


def test_an_invalid_schema_is_the_fault_of_the_tool() -> None:
    result = asyncio.run(execute(foreign({"type": "strng"}), "foreign", "{}", CONTEXT))
    assert result.error == {"name": "BadSchema", "code": "TOOL_ERROR"}
    assert result.content[0]["text"].startswith("Error: foreign failed: its parameter schema is invalid: ")


def test_a_schema_never_fetches_anything(tmp_path: Path) -> None:
    elsewhere = tmp_path / "schema.json"
    elsewhere.write_text("{}")
    result = asyncio.run(execute(foreign({"$ref": elsewhere.as_uri()}), "foreign", "{}", CONTEXT))
    assert result.error == {"name": "BadSchema", "code": "TOOL_ERROR"}


def test_arguments_are_an_object_even_where_a_foreign_schema_admits_more() -> None:
    result = asyncio.run(execute(foreign({}), "foreign", "[1]", CONTEXT))
    assert result.content[0]["text"].endswith("the arguments must be an object, not array")


def test_boolean_subschemas_of_a_foreign_schema_are_understood() -> None:
    schema = {"properties": {"a": True, "l": {"prefixItems": [True]}}, "anyOf": [True]}
    result = asyncio.run(execute(foreign(schema), "foreign", '{"a":1.0,"l":[1.0]}', CONTEXT))
    assert result == text_result('{"a": 1.0, "l": [1.0]}')


def completed(schema: Any, raw: str) -> Any:
    """What a tool with this foreign schema is given."""
    return json.loads(asyncio.run(execute(foreign(schema), "foreign", raw, CONTEXT)).content[0]["text"])


def test_alternatives_that_refer_to_definitions_are_judged_with_them() -> None:
    inner = {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}, "d": {"default": 7}}}
    schema = {
        "type": "object",
        "properties": {"p": {"anyOf": [{"$ref": "#/$defs/n"}, inner]}},
        "$defs": {"n": {"type": "integer"}},
    }
    assert completed(schema, '{"p": 1}') == {"p": 1}
    assert completed(schema, '{"p": {"n": 1}}') == {"p": {"n": 1, "d": 7}}


def test_an_alternative_that_refers_to_a_place_in_its_schema_is_no_fault_of_the_tool() -> None:
    elsewhere = {"$ref": "#/properties/a"}
    schema = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"oneOf": [elsewhere]}}}
    assert completed(schema, '{"b": "x"}') == {"b": "x"}


def test_names_that_match_a_pattern_are_not_completed_as_additional_ones() -> None:
    extra = {"type": "object", "properties": {"d": {"default": 1}}}
    schema = {
        "type": "object",
        "patternProperties": {"^x": {"maxProperties": 0}},
        "additionalProperties": extra,
    }
    assert completed(schema, '{"xa": {}}') == {"xa": {}}
    assert completed({"type": "object", "additionalProperties": extra}, '{"xa": {}}') == {"xa": {"d": 1}}


def test_numbers_beyond_all_range_are_refused() -> None:
    result = asyncio.run(execute(foreign({"type": "object"}), "foreign", '{"n": 1e999}', CONTEXT))
    assert result.content[0]["text"].endswith("a number is out of range")


def test_the_registry_lists_tools_in_the_order_of_registration() -> None:
    async def handler(arguments: Any, ctx: ToolContext) -> str:
        return ""

    registry = ToolRegistry()
    undo = [
        registry.register(define_tool(name, name.upper(), {"type": "object"}, handler)) for name in ("z", "a")
    ]
    assert registry.names() == ["z", "a"]
    assert list(registry.specs()[0]) == ["name", "description", "parameters"]
    assert [spec["description"] for spec in registry.specs()] == ["Z", "A"]
    assert registry.get("q") is None
    with pytest.raises(UsageError, match="tool 'z' is registered twice"):
        registry.register(define_tool("z", "", {"type": "object"}, handler))
    undo[0]()
    undo[0]()
    assert registry.names() == ["a"]


def test_a_bad_spec_names_the_tool() -> None:
    async def handler(arguments: Any, ctx: ToolContext) -> str:
        return ""

    with pytest.raises(SpecError, match=r"tool 'bad': parameters\.properties\.x\.type: 'y' is none of"):
        define_tool("bad", "", {"type": "object", "properties": {"x": {"type": "y"}}}, handler)
    with pytest.raises(SpecError, match="tool 'bad': int: the parameters"):
        define_tool("bad", "", int, handler)
