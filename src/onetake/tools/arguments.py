"""From the raw text that a model wrote to arguments that a handler can trust.

Everything a model may send must end in checked arguments or in a message that tells it what to mend: text
that is not JSON, values of the wrong type, megabytes of anything, nesting without end, halves of surrogate
pairs. The messages are our own and depend only on schema and value, because they are logged and compared in
snapshots: a new version of the validator must not change them.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from onetake import jsontext
from onetake.model.types import Json
from onetake.tools.schema import Schema

if TYPE_CHECKING:
    from jsonschema_rs import Draft202012Validator, ValidationError

_DEEPEST = 100
_SHOWN_ERRORS = 5
_COLLECTED_ERRORS = 50
_SHOWN_CHARACTERS = 200
_DEFINITIONS = ("$defs", "definitions")
"""Where schemas of others keep what their parts refer to."""


class BadArguments(ValueError):
    """The arguments cannot be used; the text says where and why, for the model."""


class BadSchema(ValueError):
    """The tool's own schema is not valid, so that no arguments can be checked."""


def parse(raw: str) -> Json:
    """Decode the raw arguments of a call; empty text means no arguments. Raises `BadArguments`.

    The result holds plain Python numbers: an integer may be of any size, a float is finite.
    """
    if not isinstance(raw, str):
        raise BadArguments(f"the arguments are not text but {type(raw).__name__}")
    try:
        return _plain(jsontext.loads(raw), 0) if raw.strip() else {}
    except (
        jsontext.JsonError
    ) as error:  # its wording may change with the Python version, so it is not passed on
        if "nested" in error.reason:
            raise _too_deep() from None
        raise BadArguments("the arguments are not valid JSON") from None


def check(value: Json, schema: Schema) -> dict[str, Json]:
    """Validate arguments, and return them completed: with defaults, and whole numbers as int where that is
    the type.

    Raises `BadArguments` with the first few violations, each with its path, and `BadSchema`.
    """
    try:
        errors = list(islice(_validator(jsontext.dumps(schema)).iter_errors(value), _COLLECTED_ERRORS))
    except UnicodeEncodeError:
        raise BadArguments("a property name holds half of a surrogate pair") from None
    if errors:
        said = sorted({_explain(error, schema) for error in errors})
        more = f"; and {len(said) - _SHOWN_ERRORS} more" if len(said) > _SHOWN_ERRORS else ""
        raise BadArguments("; ".join(said[:_SHOWN_ERRORS]) + more)
    completed = _completed(value, schema, {key: schema[key] for key in _DEFINITIONS if key in schema})
    if not isinstance(completed, dict):  # a schema that was not made by us may admit this
        raise BadArguments(f"the arguments must be an object, not {_kind(value)}")
    return completed


@lru_cache(maxsize=256)
def _validator(schema: bytes) -> Draft202012Validator:
    """Return the validator of a schema given as JSON text; it never fetches what a schema refers to."""
    from jsonschema_rs import Draft202012Validator  # costs too much to load before a tool is called

    try:
        return Draft202012Validator(schema.decode(), offline=True)
    except ValueError as error:
        raise BadSchema(str(error).partition("\n")[0]) from None


def _too_deep() -> BadArguments:
    return BadArguments(f"the arguments are nested deeper than {_DEEPEST} levels")


def _plain(value: Json, depth: int) -> Json:
    if depth > _DEEPEST:
        raise _too_deep()
    if isinstance(value, dict):
        return {key: _plain(each, depth + 1) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each, depth + 1) for each in value]
    if isinstance(value, float):
        if value - value != 0:
            raise BadArguments("a number is out of range")
        return float(value)
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _completed(value: Json, schema: Any, definitions: Schema) -> Json:
    if not isinstance(schema, dict):
        return value
    for keyword in ("oneOf", "anyOf"):
        fitting = (option for option in schema.get(keyword, ()) if _fits(value, option, definitions))
        value = _completed(value, next(fitting, None), definitions)
    if isinstance(value, float) and value.is_integer() and schema.get("type") == "integer":
        return int(value)
    if isinstance(value, list):
        leading = schema.get("prefixItems", [])
        rest = schema.get("items")
        parts = [leading[i] if i < len(leading) else rest for i in range(len(value))]
        return [_completed(each, part, definitions) for each, part in zip(value, parts, strict=True)]
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        # With patterns, only the validator knows which names are additional.
        extra = None if "patternProperties" in schema else schema.get("additionalProperties")
        whole = {
            name: _completed(each, properties.get(name, extra), definitions) for name, each in value.items()
        }
        for name, each in properties.items():
            if name not in whole and isinstance(each, dict) and "default" in each:
                whole[name] = _completed(jsontext.clone(each["default"]), each, definitions)
        return whole
    return value


def _fits(value: Json, option: Any, definitions: Schema) -> bool:
    """Whether an alternative fits, judged by itself; one that refers to elsewhere in its schema cannot be."""
    alone = {**definitions, **option} if isinstance(option, dict) else option
    try:
        return _validator(jsontext.dumps(alone)).is_valid(value)
    except BadSchema:
        return False


# Messages ---------------------------------------------------------------------------------------------------


def _explain(error: ValidationError, schema: Any) -> str:
    path, keyword, detail = list(error.instance_path), error.kind.name, error.kind.value
    if keyword == "required":
        return f"{_place([*path, detail])} is missing"
    if keyword == "additionalProperties":
        names = ", ".join(_json(name) for name in sorted(detail)[:_SHOWN_ERRORS])
        known = _known_names(schema, list(error.schema_path)[:-1])
        where = f" in {_place(path)}" if path else ""
        return f"unknown property {names}{where}" + (f" (known: {known})" if known else "")
    return f"{_place(path)} {_reason(keyword, detail, error.instance)}"


def _reason(keyword: str, detail: Any, instance: Json) -> str:
    if keyword == "type":
        return f"must be {' or '.join(sorted(_names(detail)))}, not {_kind(instance)}"
    if keyword == "enum":
        return f"must be one of {_json(detail)}"
    if keyword == "const":
        return f"must be {_json(detail)}"
    if keyword in ("oneOf", "anyOf"):
        return _reason_of_choice(detail, instance)
    return f"breaks the rule {keyword} {_json(detail)}"


def _reason_of_choice(options: list[list[ValidationError]], instance: Json) -> str:
    if not all(options):
        return "fits more than one of the alternatives"
    firsts = [errors[0] for errors in options]
    if all(each.kind.name == "type" for each in firsts):
        return _reason("type", [name for each in firsts for name in _names(each.kind.value)], instance)
    return "fits none of the alternatives: " + " or ".join(
        f"{_place(list(each.instance_path))} {_reason(each.kind.name, each.kind.value, each.instance)}"
        for each in firsts
    )


def _known_names(schema: Any, path: list[str | int]) -> str:
    for part in path:
        schema = schema[part]
    return _short(", ".join(schema.get("properties", {})))


def _place(path: list[str | int]) -> str:
    place = ""
    for part in path:
        place += f"[{part}]" if isinstance(part, int) else f".{part}" if place else part
    return _short(place) or "the whole"


def _names(types: str | list[str]) -> list[str]:
    return [types] if isinstance(types, str) else types


def _kind(value: Json) -> str:
    if value is None:
        return "null"
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return kinds[type(value)]


def _json(value: Any) -> str:
    return _short(jsontext.dumps(value).decode())


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."
