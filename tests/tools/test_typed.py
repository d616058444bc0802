"""Parameters declared as a class."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pytest
from msgspec import UNSET, Meta, UnsetType

from onetake.tools.schema import SpecError
from onetake.tools.typed import converter, schema_of


class Colour(enum.Enum):
    """For programmers."""

    RED = "red"


class Point(msgspec.Struct):
    """For programmers."""

    x: int = 0


class Arguments(msgspec.Struct, rename="camel"):
    """For programmers."""

    file_name: Annotated[str, Meta(description="Which file.")]
    mode: Literal["b", "a"] = "b"
    limit: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    points: list[Point] = []
    colour: Colour = Colour.RED
    extra: dict[str, int] = {}
    at: Annotated[Point | None, Meta(description="Where.")] = None


def test_the_schema_is_plain_and_closed() -> None:
    point = {
        "type": "object",
        "properties": {"x": {"type": "integer", "default": 0}},
        "required": [],
        "additionalProperties": False,
    }
    assert schema_of(Arguments) == {
        "type": "object",
        "properties": {
            "fileName": {"type": "string", "description": "Which file."},
            "mode": {"enum": ["a", "b"], "default": "b"},
            "limit": {"type": "integer", "minimum": 1},
            "points": {"type": "array", "items": point, "default": []},
            "colour": {"enum": ["red"], "default": "red"},
            "extra": {"type": "object", "additionalProperties": {"type": "integer"}, "default": {}},
            "at": {"anyOf": [point, {"type": "null"}], "description": "Where.", "default": None},
        },
        "required": ["fileName"],
        "additionalProperties": False,
    }


def test_arguments_become_an_instance() -> None:
    got = converter(Arguments)({"fileName": "f", "points": [{"x": 3}]})
    assert got == Arguments("f", points=[Point(3)])


def test_conversion_names_the_place() -> None:
    with pytest.raises(ValueError, match=r"\$\.points\[0\]\.x"):
        converter(Arguments)({"fileName": "f", "points": [{"x": "3"}]})


@dataclass
class Plain:
    """For programmers."""

    pair: tuple[int, str]
    nested: Annotated[Point, Meta(description="Kept.")]


class Typed(TypedDict):
    """For programmers."""

    title: str


def test_dataclasses_and_typed_dicts_will_do() -> None:
    schema = schema_of(Plain)
    assert schema["properties"]["pair"]["prefixItems"] == [{"type": "integer"}, {"type": "string"}]
    assert schema["properties"]["nested"]["description"] == "Kept."
    assert schema_of(Typed)["properties"] == {"title": {"type": "string"}}


class Circle(msgspec.Struct, tag=True):
    radius: int


class Square(msgspec.Struct, tag=True):
    side: int


class Drawing(msgspec.Struct):
    shape: Circle | Square


def test_unions_are_inlined_without_hints_that_only_some_readers_know() -> None:
    shape = schema_of(Drawing)["properties"]["shape"]
    assert list(shape) == ["anyOf"]
    assert [each["properties"]["type"]["enum"] for each in shape["anyOf"]] == [["Circle"], ["Square"]]


class Referring(msgspec.Struct):
    ref: Annotated[dict[str, Any], Meta(examples=[{"$ref": "kept"}])] = msgspec.field(
        default_factory=lambda: {"$ref": "kept"}, name="$ref"
    )


def test_values_and_names_that_look_like_references_are_kept() -> None:
    assert schema_of(Referring)["properties"]["$ref"]["examples"] == [{"$ref": "kept"}]


class Tree(msgspec.Struct):
    children: list[Tree] = []


class Unresolvable(msgspec.Struct):
    value: Missing  # type: ignore[name-defined]  # noqa: F821


class Undecodable(msgspec.Struct):
    value: type


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (Tree, "Tree: contains itself"),
        (Unresolvable, "Unresolvable: name 'Missing' is not defined"),
        (Undecodable, "Undecodable: "),
        (int, "int: the parameters of a tool must be a class with fields"),
        (dict, "dict: the parameters of a tool must be a class with fields"),
    ],
)
def test_a_class_that_makes_no_parameters_is_refused(cls: type[Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        schema_of(cls)
