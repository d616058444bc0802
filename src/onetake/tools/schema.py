"""The language in which tools describe their parameters, and its translation into JSON Schema.

A spec is plain data, so that it can stand in code as well as in a file. It is smaller than JSON Schema on
purpose: what can be said has one spelling, is understood by every provider, and a slip (a misspelled key, a
required name that no property has, a default of the wrong type) is reported when the tool is built, with its
place.

A spec is a dictionary with one of these, and optionally `description` and `default`:

- `{"type": "string" | "number" | "integer" | "boolean" | "null"}`
- `{"type": "object", "properties"?: {name: spec}, "required"?: [name], "additionalProperties"?: bool |
  spec}`; unlike in JSON Schema nothing is additional unless the spec says so
- `{"type": "array", "items"?: spec}`
- `{"type": "json"}`: any JSON value
- `{"oneOf": [spec, ...]}`: exactly one of them fits
- `{"enum": [value, ...]}` or `{"const": value}`, alone or narrowing any `type`

A property with a default may be left out, so it cannot be required as well.
"""

from __future__ import annotations

from typing import Any, NoReturn

from onetake.errors import UsageError
from onetake.jsontext import clone
from onetake.model.types import Json

Spec = dict[str, Any]
Schema = dict[str, Any]

_SCALARS = ("string", "number", "integer", "boolean", "null")
_TYPES = (*_SCALARS, "object", "array", "json")
_EVERYWHERE = {"type", "description", "default", "enum", "const"}
_EXTRA_KEYS = {"object": {"properties", "required", "additionalProperties"}, "array": {"items"}}
_DEEPEST = 64
"""Levels of nesting that a spec may have; far beyond use, it catches a spec that contains itself."""


class SpecError(UsageError):
    """A parameter spec makes no sense; the text names the place in it."""


def compile_spec(spec: Spec, where: str = "parameters") -> Schema:
    """Translate the spec of a tool's parameters into JSON Schema (draft 2020-12), keys in a fixed order.

    Total: every spec is either translated or refused with `SpecError`, which names the place, starting with
    `where`. The result shares nothing with the spec. A tool's parameters must be an object.
    """
    schema = _compile(spec, where, 1)
    if schema.get("type") != "object":
        _refuse(where, "the parameters of a tool must be of type object")
    return schema


def _compile(spec: Any, where: str, depth: int) -> Schema:
    if not isinstance(spec, dict):
        _refuse(where, f"a spec is a dictionary, not {_kind(spec)}")
    if depth > _DEEPEST:
        _refuse(where, f"nested deeper than {_DEEPEST} levels")
    schema = _compile_one_of(spec, where, depth) if "oneOf" in spec else _compile_typed(spec, where, depth)
    if "description" in spec:
        if not isinstance(spec["description"], str):
            _refuse(f"{where}.description", f"must be a string, not {_kind(spec['description'])}")
        schema["description"] = spec["description"]
    if "default" in spec:
        schema["default"] = _fitting(spec["default"], schema, f"{where}.default")
    return schema


def _compile_one_of(spec: Spec, where: str, depth: int) -> Schema:
    _check_keys(spec, {"oneOf", "description", "default"}, where)
    options = spec["oneOf"]
    if not isinstance(options, list) or not options:
        _refuse(f"{where}.oneOf", "must be a list of at least one spec")
    return {"oneOf": [_compile(each, f"{where}.oneOf[{i}]", depth + 1) for i, each in enumerate(options)]}


def _compile_typed(spec: Spec, where: str, depth: int) -> Schema:
    type_ = spec.get("type")
    if type_ is None and not ("enum" in spec or "const" in spec):
        _refuse(where, "needs a `type`, `oneOf`, `enum` or `const`")
    if type_ is not None and (not isinstance(type_, str) or type_ not in _TYPES):
        _refuse(f"{where}.type", f"{type_!r} is none of {', '.join(_TYPES)}")
    _check_keys(spec, _EVERYWHERE | _EXTRA_KEYS.get(type_ or "", set()), where)
    schema: Schema = {} if type_ in (None, "json") else {"type": type_}
    if type_ == "object":
        schema |= _compile_object(spec, where, depth)
    elif type_ == "array":
        schema["items"] = _compile(spec.get("items", {"type": "json"}), f"{where}.items", depth + 1)
    unnarrowed = dict(schema)
    if "enum" in spec:
        schema["enum"] = _compile_enum(spec["enum"], unnarrowed, f"{where}.enum")
    if "const" in spec:
        schema["const"] = _fitting(spec["const"], unnarrowed, f"{where}.const")
    return schema


def _compile_object(spec: Spec, where: str, depth: int) -> Schema:
    properties = spec.get("properties", {})
    if not isinstance(properties, dict) or not all(isinstance(name, str) for name in properties):
        _refuse(f"{where}.properties", "must be a dictionary of specs by name")
    compiled = {
        name: _compile(each, f"{where}.properties.{name}", depth + 1) for name, each in properties.items()
    }
    required = spec.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        _refuse(f"{where}.required", "must be a list of property names")
    for name in required:
        if name not in compiled:
            _refuse(f"{where}.required", f"there is no property {name!r}")
        if "default" in compiled[name]:
            _refuse(f"{where}.properties.{name}", "has a default, so it cannot be required")
    if len(set(required)) != len(required):
        _refuse(f"{where}.required", "names a property twice")
    extra = spec.get("additionalProperties", False)
    if not isinstance(extra, bool):
        extra = _compile(extra, f"{where}.additionalProperties", depth + 1)
    return {"properties": compiled, "required": list(required), "additionalProperties": extra}


def _compile_enum(values: Any, schema: Schema, where: str) -> list[Json]:
    if not isinstance(values, list) or not values:
        _refuse(where, "must be a list of at least one value")
    fitting = [_fitting(value, schema, f"{where}[{i}]") for i, value in enumerate(values)]
    for i, value in enumerate(fitting):
        if any(_same(value, earlier) for earlier in fitting[:i]):
            _refuse(f"{where}[{i}]", f"{value!r} is there twice")
    return fitting


def _check_keys(spec: Spec, known: set[str], where: str) -> None:
    for key in spec:
        if key not in known:
            _refuse(where, f"{key!r} means nothing here; known are {', '.join(sorted(known))}")


def _fitting(value: Any, schema: Schema, where: str) -> Json:
    """Return a copy of a value that the spec itself gives, after checking that the schema admits it."""
    if not _is_json(value, 0):
        _refuse(where, f"{_kind(value)} is not a JSON value")
    if not conforms(value, schema):
        _refuse(where, f"{value!r} is not what the spec admits")
    return clone(value)


def conforms(value: Json, schema: Schema) -> bool:
    """Tell whether a JSON value fits a compiled schema.

    Serves the values in specs, so that building a tool need not load the validator that checks calls; the
    property tests hold the two against each other.
    """
    if "oneOf" in schema:
        return sum(conforms(value, each) for each in schema["oneOf"]) == 1
    if "type" in schema and not _is_type(value, schema["type"]):
        return False
    if "const" in schema and not _same(value, schema["const"]):
        return False
    if "enum" in schema and not any(_same(value, each) for each in schema["enum"]):
        return False
    if isinstance(value, list) and "items" in schema:
        return all(conforms(each, schema["items"]) for each in value)
    if isinstance(value, dict) and "properties" in schema:
        return _conforms_object(value, schema)
    return True


def _conforms_object(value: dict[str, Json], schema: Schema) -> bool:
    if any(name not in value for name in schema["required"]):
        return False
    extra = schema["additionalProperties"]
    for name, each in value.items():
        inner = schema["properties"].get(name, extra)
        if inner is False or (inner is not True and not conforms(each, inner)):
            return False
    return True


def _is_type(value: Json, type_: str) -> bool:
    if isinstance(value, bool):
        return type_ == "boolean"
    if type_ == "integer":
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if type_ == "number":
        return isinstance(value, (int, float))
    if value is None:
        return type_ == "null"
    return (type_, type(value)) in (("string", str), ("array", list), ("object", dict))


def _same(one: Json, other: Json) -> bool:
    """JSON Schema's equality: 1 is 1.0, but neither is true."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return bool(one == other)


def _is_json(value: Any, depth: int) -> bool:
    if depth > _DEEPEST:
        return False
    if isinstance(value, dict):
        return all(type(key) is str and _is_json(each, depth + 1) for key, each in value.items())
    if isinstance(value, list):
        return all(_is_json(each, depth + 1) for each in value)
    if isinstance(value, float):
        return value - value == 0  # neither infinite nor NaN
    return value is None or isinstance(value, (str, int))


def _kind(value: Any) -> str:
    return "null" if value is None else type(value).__name__


def _refuse(where: str, why: str) -> NoReturn:
    raise SpecError(f"{where}: {why}")
