"""What an agent is made of, read from YAML: rows, and overlays that change the rows of another file.

A composition file is a list of rows:

    - id: shell              # unique in the file; overlays and errors name the row by it
      use: bash              # a built-in plugin, an entry point, or package.module:attribute
      config: {...}          # optional; its shape is the plugin's
      disabled: true         # optional; the row is kept for overlays but not booted

An overlay names its base (relative to itself; a base may be an overlay) and patches that apply in order:

    base: agent.yml
    patches:
      - {id: shell, config: {...}}          # replaces the whole config of that row
      - {id: deepseek, disabled: true}
      - insert: [{id: ..., use: ...}]       # at the end, or:
        before: shell                       # `before` or `after` a row

`${VAR}` and `${VAR:-default}` in `use` and in the strings of a config stand for environment variables (the
default also counts for an empty one); `$${` is a plain `${`. A row that is not booted needs none of its
variables. Values are put in after parsing, so a variable never changes the structure of the file.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from onetake.errors import UsageError

_VARIABLE = re.compile(r"\$(?:\$\{|\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|\{)")
_ROW_KEYS = ("id", "use", "config", "disabled")
_OVERLAY_KEYS = ("base", "patches")
_PATCH_KEYS = ("id", "config", "disabled")
_INSERT_KEYS = ("insert", "before", "after")


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One plugin of a composition."""

    id: str
    use: str
    config: dict[str, Any] = {}
    disabled: bool = False
    file: Path
    """The file that holds the row (an inserted row: the overlay)."""
    switched_off_in: Path | None = None
    """The overlay that disabled a row of its base; None when no overlay did."""
    interpolated: bool = False
    """Whether a variable was put in somewhere: its text may then stand for a number or a truth value."""

    @property
    def place(self) -> str:
        """How errors name the row."""
        return f"{self.file}: row {self.id!r}"


class Composition(msgspec.Struct, frozen=True):
    """The rows that a file stands for, overlays applied and variables put in."""

    path: Path
    """The file that was asked for."""
    rows: list[Row]
    """All rows in boot order, disabled ones included."""
    files: list[Path]
    """Every file that was read: the file itself, then its bases."""

    def active(self) -> list[Row]:
        """The rows that boot."""
        return [row for row in self.rows if not row.disabled]


def load_composition(path: Path, environ: Mapping[str, str]) -> Composition:
    """Read a composition or an overlay. Raises UsageError naming file, row, key and remedy."""
    files: list[Path] = []
    rows = _load_rows(path, files)
    return Composition(path, [row if row.disabled else _interpolated(row, environ) for row in rows], files)


def load_uninterpolated(path: Path) -> Composition:
    """Like `load_composition`, with every `${VAR}` as it is written: to look at files, not to boot them."""
    files: list[Path] = []
    return Composition(path, _load_rows(path, files), files)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of an error message about an unknown word: the nearest known one, or all that there are."""
    import difflib

    names = sorted(known)
    near = difflib.get_close_matches(word, names, 1)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"there is {', '.join(map(repr, names))}" if names else "there is none"


# -- files ---------------------------------------------------------------------------------------------------


def _load_rows(path: Path, files: list[Path]) -> list[Row]:
    if any(path.resolve() == seen.resolve() for seen in files):
        raise UsageError(f"{path}: the overlay is its own base ({' -> '.join(map(str, [*files, path]))})")
    files.append(path)
    content = _parse(path)
    if isinstance(content, list):
        rows = [_row(item, path, f"row {number}") for number, item in enumerate(content, 1)]
        _check_unique(rows)
        return rows
    if isinstance(content, dict) and "base" in content:
        return _load_overlay(path, content, files)
    raise UsageError(
        f"{path}: expected a list of rows, or an overlay with `base:` and `patches:`, got {_kind(content)}"
    )


def _parse(path: Path) -> Any:
    import yaml

    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot read the composition: {error.strerror}") from error
    try:
        return yaml.load(raw, Loader=_loader())
    except yaml.YAMLError as error:
        raise UsageError(f"{path}: not valid YAML: {_yaml_fault(error)}") from error


def _yaml_fault(error: Any) -> str:
    """What a YAMLError says, in one line, without the name of a file that PyYAML does not know."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return " ".join(str(error).replace('in "<byte string>", ', "at ").split())
    context = f"{error.context}: " if error.context else ""
    return f"line {mark.line + 1}, column {mark.column + 1}: {context}{error.problem}"


def _loader() -> Any:
    """The safe C loader (PyYAML lacks it only when built without libyaml), made stricter.

    Keys may not repeat, `on`, `off`, `yes` and `no` are texts as in YAML 1.2, and so are dates.
    """
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class StrictLoader(base):  # type: ignore[misc]
        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
            seen: set[Hashable] = set()
            for key_node, _ in node.value:
                if key_node.tag == "tag:yaml.org,2002:merge":
                    continue
                key = self.construct_object(key_node, deep=True)
                if isinstance(key, Hashable) and key in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key!r} is there twice", key_node.start_mark
                    )
                seen.add(key)
            mapping: dict[Hashable, Any] = super().construct_mapping(node, deep)
            return mapping

    boolean = "tag:yaml.org,2002:bool"
    StrictLoader.yaml_implicit_resolvers = {
        first: [rule for rule in rules if rule[0] not in (boolean, "tag:yaml.org,2002:timestamp")]
        for first, rules in base.yaml_implicit_resolvers.items()
    }
    StrictLoader.add_implicit_resolver(
        boolean, re.compile("^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
    )
    return StrictLoader


# -- rows and patches ----------------------------------------------------------------------------------------


def _row(item: Any, path: Path, position: str) -> Row:
    place = f"{path}: {position}"
    if not isinstance(item, dict):
        raise UsageError(f"{place}: expected a row with `id` and `use`, got {_kind(item)}")
    if isinstance(item.get("id"), str) and item["id"]:
        place = f"{path}: row {item['id']!r}"
    _check_keys(item, _ROW_KEYS, place)
    for key in ("id", "use"):
        _expect_text(item, key, place)
    return Row(
        id=item["id"],
        use=item["use"],
        config=_config(item, place),
        disabled=_flag(item, place),
        file=path,
    )


def _load_overlay(path: Path, content: dict[Any, Any], files: list[Path]) -> list[Row]:
    _check_keys(content, _OVERLAY_KEYS, str(path))
    _expect_text(content, "base", str(path))
    patches = content.get("patches")
    if patches is None:
        patches = []
    if not isinstance(patches, list):
        raise UsageError(f"{path}: patches: expected a list, got {_kind(patches)}")
    rows = _load_rows(path.parent / content["base"], files)
    for number, patch in enumerate(patches, 1):
        place = f"{path}: patch {number}"
        if not isinstance(patch, dict):
            raise UsageError(f"{place}: expected a mapping with `id` or `insert`, got {_kind(patch)}")
        rows = _insert(rows, patch, path, place) if "insert" in patch else _change(rows, patch, path, place)
    _check_unique(rows)
    return rows


def _change(rows: list[Row], patch: dict[Any, Any], path: Path, place: str) -> list[Row]:
    _check_keys(patch, _PATCH_KEYS, place)
    _expect_text(patch, "id", place)
    at = _find(rows, patch["id"], place, "id")
    if len(patch) == 1:
        raise UsageError(f"{place}: row {patch['id']!r}: nothing to change; add `config:` or `disabled:`")
    row = rows[at]
    if "config" in patch:
        row = msgspec.structs.replace(row, config=_config(patch, place))
    if "disabled" in patch:
        off = _flag(patch, place)
        by = row.switched_off_in if row.disabled else path
        row = msgspec.structs.replace(row, disabled=off, switched_off_in=by if off else None)
    return [*rows[:at], row, *rows[at + 1 :]]


def _insert(rows: list[Row], patch: dict[Any, Any], path: Path, place: str) -> list[Row]:
    _check_keys(patch, _INSERT_KEYS, place)
    inserted = patch["insert"]
    if not isinstance(inserted, list):
        raise UsageError(f"{place}: insert: expected a list of rows, got {_kind(inserted)}")
    if "before" in patch and "after" in patch:
        raise UsageError(f"{place}: say `before` or `after`, not both")
    at = len(rows)
    for key, offset in (("before", 0), ("after", 1)):
        if key in patch:
            _expect_text(patch, key, place)
            at = _find(rows, patch[key], place, key) + offset
    new = [_row(item, path, f"patch row {number}") for number, item in enumerate(inserted, 1)]
    return [*rows[:at], *new, *rows[at:]]


def _find(rows: list[Row], row_id: str, place: str, key: str) -> int:
    for at, row in enumerate(rows):
        if row.id == row_id:
            return at
    hint = did_you_mean(row_id, [row.id for row in rows])
    raise UsageError(f"{place}: {key}: the base has no row {row_id!r}; {hint}")


def _check_unique(rows: list[Row]) -> None:
    seen: set[str] = set()
    for row in rows:
        if row.id in seen:
            raise UsageError(f"{row.place}: id: another row has this id already; give one of them another id")
        seen.add(row.id)


def _check_keys(item: dict[Any, Any], known: tuple[str, ...], place: str) -> None:
    for key in item:
        if key not in known:
            raise UsageError(f"{place}: unknown key {key!r}; {did_you_mean(str(key), known)}")


def _expect_text(item: dict[Any, Any], key: str, place: str) -> None:
    if key not in item:
        raise UsageError(f"{place}: `{key}` is missing")
    if not isinstance(item[key], str) or not item[key]:
        raise UsageError(f"{place}: {key}: expected a non-empty text, got {_kind(item[key])}")


def _config(item: dict[Any, Any], place: str) -> dict[str, Any]:
    config = item.get("config")
    if config is None:
        return {}
    if not isinstance(config, dict) or not all(isinstance(key, str) for key in config):
        raise UsageError(f"{place}: config: expected a mapping with text keys, got {_kind(config)}")
    return config


def _flag(item: dict[Any, Any], place: str) -> bool:
    value = item.get("disabled", False)
    if not isinstance(value, bool):
        raise UsageError(f"{place}: disabled: expected true or false, got {_kind(value)}")
    return value


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return repr(value)


# -- variables -----------------------------------------------------------------------------------------------


def _interpolated(row: Row, environ: Mapping[str, str]) -> Row:
    use = _fill(row.use, environ, f"{row.place}: use")
    config = _fill(row.config, environ, f"{row.place}: config")
    changed = use != row.use or config != row.config
    return msgspec.structs.replace(row, use=use, config=config, interpolated=changed)


def fill_where_set(value: Any, environ: Mapping[str, str]) -> Any:
    """The config of a switched-off row with those variables put in that are there; others stay as text."""
    if isinstance(value, str):

        def put_in(match: re.Match[str]) -> str:
            name, default = match.groups()
            if name is None:
                return "${"
            given = environ.get(name)
            return match[0] if given is None and default is None else given or default or ""

        return _VARIABLE.sub(put_in, value) if "$" in value else value
    if isinstance(value, list):
        return [fill_where_set(item, environ) for item in value]
    if isinstance(value, dict):
        return {key: fill_where_set(item, environ) for key, item in value.items()}
    return value


def named_variables(config: Any) -> dict[str, bool]:
    """The environment variables that a row's config names, in order, and whether it cannot do without them.

    `${NAME}` and `api_key_env: NAME` cannot; `${NAME:-default}` can, and so may a reader of another `*_env`.
    """
    found: dict[str, bool] = {}
    for name, needed in _variables_in(config, ""):
        found[name] = needed or found.get(name, False)
    return found


def _variables_in(value: Any, key: str) -> Iterator[tuple[str, bool]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _variables_in(item, str(name))
    elif isinstance(value, list):
        for item in value:
            yield from _variables_in(item, "")
    elif isinstance(value, str) and key.endswith("_env") and "$" not in value:
        yield value, key == "api_key_env"
    elif isinstance(value, str):
        yield from (
            (name, default is None)
            for name, default in (match.groups() for match in _VARIABLE.finditer(value))
            if name
        )


def _fill(value: Any, environ: Mapping[str, str], place: str) -> Any:
    if isinstance(value, str):
        return _VARIABLE.sub(lambda match: _value(match, environ, place), value) if "$" in value else value
    if isinstance(value, list):
        return [_fill(item, environ, f"{place}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, dict):
        return {key: _fill(item, environ, f"{place}.{key}") for key, item in value.items()}
    return value


def _value(match: re.Match[str], environ: Mapping[str, str], place: str) -> str:
    name, default = match.groups()
    if name is None:
        if match[0] == "$${":
            return "${"
        _refuse(f"{place}: `${{` begins no variable; write ${{NAME}}, ${{NAME:-default}}, or $${{ for text")
    value = environ.get(name)
    if default is not None:
        return value or default
    if value is None:
        _refuse(f"{place}: the variable {name} is not set; set it, or write ${{{name}:-default}}")
    return value


def _refuse(message: str) -> NoReturn:
    raise UsageError(message)
