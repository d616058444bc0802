"""From a row to a plugin that can be started: find the object, check that it is one, type its config.

A plugin is a function with two parameters, decorated with `contextlib.asynccontextmanager`: the app context
and its config, a `msgspec.Struct` that forbids unknown fields. Modules beside the composition file can be
named too: its folder is put at the front of `sys.path`, as Python does for the folder of a script. What is
imported is the source as it is now (`onetake.app.source`).
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec

from onetake.app.builtin import BUILTIN, ENTRY_POINT_GROUP
from onetake.app.composition import Composition, Row, did_you_mean
from onetake.app.source import trust_no_timestamps
from onetake.errors import UsageError

_KIND = (
    "a plugin is a function `async def plugin(ctx, config: Config) -> AsyncIterator[None]` decorated with "
    "contextlib.asynccontextmanager, whose Config is a msgspec.Struct with forbid_unknown_fields=True"
)


class Plugin(msgspec.Struct, frozen=True):
    """A row, resolved."""

    row: Row
    start: Callable[[Any, Any], AbstractAsyncContextManager[None]]
    """Called with the app context and `config`, gives the context manager to enter."""
    config: msgspec.Struct
    target: str
    """`module:attribute` of the object that `use` stands for."""


def resolve(composition: Composition) -> list[Plugin]:
    """Resolve the rows that boot, in order. Raises UsageError naming file, row and key."""
    for folder in reversed(list(dict.fromkeys(str(file.resolve().parent) for file in composition.files))):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    trust_no_timestamps()
    return [_resolve(row) for row in composition.active()]


def _resolve(row: Row) -> Plugin:
    target = _target(row)
    start = _import(row, target)
    config_type = _config_type(row, target, start)
    try:
        config = msgspec.convert(row.config, config_type, strict=not row.interpolated)
    except msgspec.ValidationError as error:
        raise UsageError(f"{row.place}: config: {_explain(error, row, config_type)}") from error
    function = inspect.unwrap(start)
    return Plugin(row, start, config, f"{function.__module__}:{function.__qualname__}")


def _target(row: Row) -> str:
    if ":" in row.use:
        return row.use
    if row.use in BUILTIN:
        return BUILTIN[row.use]
    installed = dict(_entry_points())
    if row.use in installed:
        return installed[row.use]
    hint = did_you_mean(row.use, [*BUILTIN, *installed])
    raise UsageError(
        f"{row.place}: use: there is no plugin {row.use!r}; {hint} "
        "(a plugin of your own is named package.module:attribute)"
    )


def _entry_points() -> Iterator[tuple[str, str]]:
    """The installed plugins; looked up only for a name that is not built in, because it costs tens of ms."""
    from importlib.metadata import entry_points

    for point in entry_points(group=ENTRY_POINT_GROUP):
        yield point.name, point.value


def _import(row: Row, target: str) -> Any:
    module_name, _, attribute = target.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # a script without a main guard would end us with its code
        what = f"{type(error).__name__}: {error}"
        lacks = isinstance(error, ModuleNotFoundError)
        remedy = f"install it, or put it beside {row.file.name}" if lacks else "mend what it runs on import"
        raise UsageError(f"{row.place}: use: cannot import {module_name!r} ({what}); {remedy}") from error
    for name in attribute.split("."):
        try:
            found = getattr(found, name)
        except AttributeError as error:
            names = [known for known in vars(found) if not known.startswith("_")]
            hint = did_you_mean(name, names)
            raise UsageError(f"{row.place}: use: {target!r}: no attribute {name!r}; {hint}") from error
    return found


def _config_type(row: Row, target: str, start: Any) -> type[msgspec.Struct]:
    function = inspect.unwrap(start) if callable(start) else None
    if function is start or not inspect.isasyncgenfunction(function):
        raise UsageError(f"{row.place}: use: {target!r} is the wrong kind of object; {_KIND}")
    parameters = list(inspect.signature(function, follow_wrapped=False).parameters)
    annotation = function.__annotations__.get(parameters[1]) if len(parameters) == 2 else None
    if isinstance(annotation, str):
        try:
            annotation = eval(annotation, function.__globals__)
        except NameError as error:
            raise UsageError(
                f"{row.place}: use: {target!r}: its config type cannot be found at run time ({error}); "
                "import it outside TYPE_CHECKING"
            ) from error
    if not (isinstance(annotation, type) and issubclass(annotation, msgspec.Struct)):
        raise UsageError(f"{row.place}: use: {target!r} does not say what config it takes; {_KIND}")
    if not annotation.__struct_config__.forbid_unknown_fields:
        raise UsageError(
            f"{row.place}: use: {target!r}: {annotation.__name__} would swallow misspelt keys; {_KIND}"
        )
    return annotation


def _explain(error: msgspec.ValidationError, row: Row, config_type: type[msgspec.Struct]) -> str:
    """msgspec's message, with the nearest key where a key of the config itself is unknown."""
    fields = [field.encode_name for field in msgspec.structs.fields(config_type)]
    unknown = next((key for key in row.config if key not in fields), None)
    text = str(error)
    if unknown is not None and "unknown field" in text:
        return f"unknown key {unknown!r}; {did_you_mean(unknown, fields)}"
    return text
