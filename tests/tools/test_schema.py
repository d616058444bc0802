"""The parameter language: what each form compiles to, and how each slip is reported."""

from __future__ import annotations

from typing import Any

import pytest

from onetake.errors import UsageError
from onetake.tools.schema import SpecError, compile_spec


def compiled(spec: dict[str, Any]) -> Any:
    """The JSON Schema of one property."""
    whole = compile_spec({"type": "object", "properties": {"p": spec}})
    return whole["properties"]["p"]


@pytest.mark.parametrize("kind", ["string", "number", "integer", "boolean", "null"])
def test_scalars(kind: str) -> None:
    assert compiled({"type": kind, "description": "what for"}) == {"type": kind, "description": "what for"}


def test_json_admits_anything() -> None:
    assert compiled({"type": "json"}) == {}


def test_an_object_is_closed_unless_it_says_otherwise() -> None:
    assert compiled({"type": "object"}) == {
        "type": "object",
        "properties": {},
        "required": [],
        "additionalProperties": False,
    }
    assert compiled({"type": "object", "additionalProperties": True})["additionalProperties"] is True
    inner = compiled({"type": "object", "additionalProperties": {"type": "integer"}})
    assert inner["additionalProperties"] == {"type": "integer"}


def test_an_array_has_items_of_any_kind_by_default() -> None:
    assert compiled({"type": "array"}) == {"type": "array", "items": {}}
    assert compiled({"type": "array", "items": {"type": "null"}})["items"] == {"type": "null"}


def test_one_of() -> None:
    spec = {"oneOf": [{"type": "string"}, {"type": "null"}], "description": "maybe", "default": None}
    assert compiled(spec) == {
        "oneOf": [{"type": "string"}, {"type": "null"}],
        "description": "maybe",
        "default": None,
    }


def test_enum_and_const_stand_alone_or_narrow_a_type() -> None:
    assert compiled({"enum": ["a", 1, None]}) == {"enum": ["a", 1, None]}
    assert compiled({"const": {"x": [1.5]}}) == {"const": {"x": [1.5]}}
    assert compiled({"type": "string", "enum": ["a", "b"], "default": "a"}) == {
        "type": "string",
        "enum": ["a", "b"],
        "default": "a",
    }


def test_keys_come_in_a_fixed_order_whatever_the_order_of_the_spec() -> None:
    spec = {
        "additionalProperties": True,
        "description": "d",
        "required": ["b"],
        "properties": {"b": {"description": "x", "type": "string"}, "a": {"default": 1, "type": "integer"}},
        "type": "object",
    }
    schema = compile_spec(spec)
    assert list(schema) == ["type", "properties", "required", "additionalProperties", "description"]
    assert list(schema["properties"]) == ["b", "a"]
    assert list(schema["properties"]["a"]) == ["type", "default"]


def test_the_schema_shares_nothing_with_the_spec() -> None:
    default: dict[str, Any] = {"deep": [1]}
    spec = {"type": "json", "default": default}
    schema = compiled(spec)
    default["deep"].append(2)
    assert schema["default"] == {"deep": [1]}


OBJECT = {"type": "object"}
LOOP: dict[str, Any] = {"type": "array"}
LOOP["items"] = LOOP


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("string", "parameters.properties.p: a spec is a dictionary, not str"),
        (None, "parameters.properties.p: a spec is a dictionary, not null"),
        ({}, "p: needs a `type`, `oneOf`, `enum` or `const`"),
        ({"type": "strng"}, "p.type: 'strng' is none of string, number"),
        ({"type": ["string"]}, r"p.type: \['string'\] is none of"),
        (
            {"type": "string", "properties": {}},
            "p: 'properties' means nothing here; known are const, default",
        ),
        ({"type": "string", "descripton": "x"}, "p: 'descripton' means nothing here"),
        ({"oneOf": [{"type": "null"}], "type": "null"}, "p: 'type' means nothing here; known are default"),
        ({"oneOf": []}, "p.oneOf: must be a list of at least one spec"),
        ({"oneOf": [{"type": "null"}, {"type": 4}]}, r"p.oneOf\[1\].type: 4 is none of"),
        ({"type": "string", "description": 4}, "p.description: must be a string, not int"),
        ({"type": "string", "default": 4}, "p.default: 4 is not what the spec admits"),
        ({"type": "integer", "default": True}, "p.default: True is not what the spec admits"),
        ({"type": "json", "default": (1,)}, "p.default: tuple is not a JSON value"),
        ({"type": "json", "default": float("nan")}, "p.default: float is not a JSON value"),
        ({"type": "json", "default": LOOP}, "p.default: dict is not a JSON value"),
        ({"enum": []}, "p.enum: must be a list of at least one value"),
        ({"enum": "ab"}, "p.enum: must be a list of at least one value"),
        ({"type": "string", "enum": ["a", 1]}, r"p.enum\[1\]: 1 is not what the spec admits"),
        ({"enum": [1, 1.0]}, r"p.enum\[1\]: 1.0 is there twice"),
        ({"type": "boolean", "const": 0}, "p.const: 0 is not what the spec admits"),
        ({**OBJECT, "properties": []}, "p.properties: must be a dictionary of specs by name"),
        ({**OBJECT, "properties": {1: {}}}, "p.properties: must be a dictionary of specs by name"),
        ({**OBJECT, "properties": {"q": 3}}, "p.properties.q: a spec is a dictionary, not int"),
        ({**OBJECT, "required": "q"}, "p.required: must be a list of property names"),
        ({**OBJECT, "required": ["q"]}, "p.required: there is no property 'q'"),
        (
            {**OBJECT, "properties": {"q": {"type": "null"}}, "required": ["q", "q"]},
            "p.required: names a property twice",
        ),
        (
            {**OBJECT, "properties": {"q": {"type": "null", "default": None}}, "required": ["q"]},
            "p.properties.q: has a default, so it cannot be required",
        ),
        ({**OBJECT, "additionalProperties": "no"}, "p.additionalProperties: a spec is a dictionary, not str"),
        ({"type": "array", "items": {"type": "x"}}, "p.items.type: 'x' is none of"),
        (LOOP, "nested deeper than 64 levels"),
    ],
)
def test_a_slip_is_reported_with_its_place(spec: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        compiled(spec)
    assert isinstance(caught.value, UsageError)


def test_parameters_must_be_an_object() -> None:
    with pytest.raises(SpecError, match="parameters: the parameters of a tool must be of type object"):
        compile_spec({"type": "string"})


def test_true_is_not_one() -> None:
    assert compiled({"enum": [1, True, 0, False]}) == {"enum": [1, True, 0, False]}
    assert compiled({"enum": [{"a": [1]}, {"a": [True]}, {"b": [1]}, {"a": []}]})["enum"][1] == {"a": [True]}


@pytest.mark.parametrize(
    ("spec", "admitted", "refused"),
    [
        ({"const": {"a": 1}}, {"a": 1.0}, {"a": True}),
        ({"enum": [0, "a"]}, "a", False),
        ({"oneOf": [{"type": "number"}, {"type": "integer"}]}, 1.5, 1),
    ],
)
def test_a_default_is_judged_by_all_that_its_spec_says(spec: Any, admitted: Any, refused: Any) -> None:
    assert compiled({**spec, "default": admitted})["default"] == admitted
    with pytest.raises(SpecError, match=r"p\.default: .* is not what the spec admits"):
        inner = {"type": "object", "properties": {"q": spec}}
        compiled({**inner, "default": {"q": refused}})
