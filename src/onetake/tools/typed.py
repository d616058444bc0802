"""Tool parameters declared as a class, so that a handler gets typed arguments instead of a dictionary.

Any class that msgspec can decode will do (a `msgspec.Struct`, a dataclass, a `TypedDict`); descriptions stand
in `Annotated[..., msgspec.Meta(description=...)]`. The schema that the model sees is derived from the class.
It is plain: references are replaced by what they refer to, because not every provider follows them, and class
names and docstrings, which are written for programmers, are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from onetake.model.types import Json
from onetake.tools.schema import Schema, SpecError

Arguments = TypeVar("Arguments")

_REF = "#/$defs/"
_KEYWORDS_WITH_VALUES = ("default", "enum", "const", "examples")
"""Keywords whose content is values, not schemas: nothing in there is a reference."""


def schema_of(cls: type[Any]) -> Schema:
    """Derive the JSON Schema of a class that declares a tool's parameters.

    Unknown arguments are refused at every level, as with specs, unless a mapping type admits them. Raises
    `SpecError` for a class that msgspec cannot decode, that does not describe an object, or that contains
    itself.
    """
    try:
        (root,), definitions = msgspec.json.schema_components([cls], ref_template=_REF + "{name}")
    except (TypeError, NameError) as error:
        raise SpecError(f"{getattr(cls, '__name__', cls)!s}: {error}") from None
    schema: Schema = _inlined(root, definitions, ())
    if schema.get("type") != "object" or "properties" not in schema:
        raise SpecError(f"{cls.__name__}: the parameters of a tool must be a class with fields")
    return schema


def converter(cls: type[Arguments]) -> Callable[[dict[str, Json]], Arguments]:
    """Return what turns checked arguments into an instance of the class; ValueError names the place."""

    def convert(arguments: dict[str, Json]) -> Arguments:
        return msgspec.convert(arguments, cls)

    return convert


def _inlined(schema: Any, definitions: dict[str, Any], inside: tuple[str, ...]) -> Any:
    """Return a schema without references, titles and the docstrings of classes."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(_REF)
        if name in inside:
            raise SpecError(f"{name}: contains itself; a tool's parameters must end somewhere")
        outer = {key: value for key, value in schema.items() if key != "$ref"}
        target = {key: value for key, value in definitions[name].items() if key != "description"}
        return _inlined(target, definitions, (*inside, name)) | outer
    plain: Schema = {}
    for key, value in schema.items():
        if key in ("title", "discriminator"):
            continue
        if key == "properties":
            plain[key] = {name: _inlined(each, definitions, inside) for name, each in value.items()}
        elif key in _KEYWORDS_WITH_VALUES or not isinstance(value, (dict, list)):
            plain[key] = value
        elif isinstance(value, dict):
            plain[key] = _inlined(value, definitions, inside)
        else:
            plain[key] = [_inlined(e, definitions, inside) if isinstance(e, dict) else e for e in value]
    if "properties" in plain:
        plain.setdefault("additionalProperties", False)
    return plain
