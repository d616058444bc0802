"""Reading compositions: rows, overlays and variables, and the errors that name file, row, key and remedy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from onetake.app.composition import Row, fill_where_set, load_composition, named_variables
from onetake.errors import UsageError

BASE = """\
- id: one
  use: alpha
  config: {a: 1, b: [x, y]}
- id: two
  use: beta
- id: three
  use: gamma
  disabled: true
"""


def write(folder: Path, **files: str) -> Path:
    """Write files given by stem; returns the path of the last one."""
    for stem, content in files.items():
        path = folder / f"{stem}.yml"
        path.write_text(content, encoding="utf-8")
    return path


def rows(path: Path, environ: Mapping[str, str] | None = None) -> list[Row]:
    return load_composition(path, environ or {}).rows


def shown(path: Path, environ: Mapping[str, str] | None = None) -> list[tuple[str, str, Any, bool]]:
    return [(row.id, row.use, row.config, row.disabled) for row in rows(path, environ)]


def refused(path: Path, environ: Mapping[str, str] | None = None) -> str:
    with pytest.raises(UsageError) as caught:
        load_composition(path, environ or {})
    return str(caught.value)


def overlay(folder: Path, patches: str, base: str = BASE) -> Path:
    indented = "".join(f"  {line}\n" for line in patches.strip("\n").split("\n"))
    return write(folder, agent=base, top=f"base: agent.yml\npatches:\n{indented}")


def test_rows_come_in_order_with_their_config(tmp_path: Path) -> None:
    path = write(tmp_path, agent=BASE)
    assert shown(path) == [
        ("one", "alpha", {"a": 1, "b": ["x", "y"]}, False),
        ("two", "beta", {}, False),
        ("three", "gamma", {}, True),
    ]
    composition = load_composition(path, {})
    assert [row.id for row in composition.active()] == ["one", "two"]
    assert composition.files == [path]


def test_an_overlay_replaces_configs_disables_and_inserts(tmp_path: Path) -> None:
    patches = """\
- {id: one, config: {c: 3}}
- {id: two, disabled: true}
- {id: three, disabled: false, config: {d: 4}}
- insert: [{id: last, use: delta}]
- {insert: [{id: first, use: delta}], before: one}
- insert:
    - {id: x, use: delta}
    - {id: y, use: delta}
  after: one
"""
    path = overlay(tmp_path, patches)
    assert shown(path) == [
        ("first", "delta", {}, False),
        ("one", "alpha", {"c": 3}, False),
        ("x", "delta", {}, False),
        ("y", "delta", {}, False),
        ("two", "beta", {}, True),
        ("three", "gamma", {"d": 4}, False),
        ("last", "delta", {}, False),
    ]
    assert [file.name for file in load_composition(path, {}).files] == ["top.yml", "agent.yml"]
    assert [row.file.name for row in rows(path)][:2] == ["top.yml", "agent.yml"]


def test_patches_apply_in_order_so_later_ones_see_earlier_rows(tmp_path: Path) -> None:
    path = overlay(tmp_path, "- insert: [{id: new, use: d}]\n- {id: new, config: {a: 1}}")
    assert shown(path)[-1] == ("new", "d", {"a": 1}, False)


def test_an_overlay_of_an_overlay(tmp_path: Path) -> None:
    overlay(tmp_path, "- {id: two, disabled: true}")
    path = write(tmp_path, upper="base: top.yml\npatches:\n  - {id: one, disabled: true}\n")
    assert [row.disabled for row in rows(path)] == [True, True, True]
    assert shown(write(tmp_path, bare="base: top.yml\n")) == shown(tmp_path / "top.yml")


def test_a_base_is_relative_to_its_overlay(tmp_path: Path) -> None:
    write(tmp_path, agent=BASE)
    inner = tmp_path / "inner"
    inner.mkdir()
    assert len(rows(write(inner, top="base: ../agent.yml\n"))) == 3


def test_variables_and_defaults(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        agent="""\
- id: one
  use: ${PLUGIN}
  config:
    set: a-${WORD}-b-${WORD}
    fallback: ${NONE:-http://x:80/}
    empty_counts_as_unset: ${EMPTY:-d}
    empty_default: "[${NONE:-}]"
    empty: "[${EMPTY}]"
    plain: $HOME $$ $${WORD} {cwd}
    deep: [{key: "${WORD}"}]
    ${WORD}: keys are not variables
    number: 5
""",
    )
    (row,) = rows(path, {"PLUGIN": "p", "WORD": "w: [", "EMPTY": ""})
    assert row.use == "p" and row.interpolated
    assert row.config == {
        "set": "a-w: [-b-w: [",
        "fallback": "http://x:80/",
        "empty_counts_as_unset": "d",
        "empty_default": "[]",
        "empty": "[]",
        "plain": "$HOME $$ ${WORD} {cwd}",
        "deep": [{"key": "w: ["}],
        "${WORD}": "keys are not variables",
        "number": 5,
    }


def test_a_row_that_is_off_needs_none_of_its_variables(tmp_path: Path) -> None:
    base = "- {id: one, use: alpha, config: {key: '${MISSING}'}}\n"
    assert "one" in refused(write(tmp_path, agent=base))
    (row,) = rows(overlay(tmp_path, "- {id: one, disabled: true}", base))
    assert row.config == {"key": "${MISSING}"} and not row.interpolated


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "{f}: expected a list of rows, or an overlay with `base:` and `patches:`, got nothing"),
        ("x: 1", "{f}: expected a list of rows, or an overlay with `base:` and `patches:`, got a mapping"),
        ("- text", "{f}: row 1: expected a row with `id` and `use`, got 'text'"),
        ("- {use: a}", "{f}: row 1: `id` is missing"),
        ("- {id: '', use: a}", "{f}: row 1: id: expected a non-empty text, got ''"),
        ("- {id: 5, use: a}", "{f}: row 1: id: expected a non-empty text, got 5"),
        ("- {id: one}", "{f}: row 'one': `use` is missing"),
        ("- {id: one, use: [a]}", "{f}: row 'one': use: expected a non-empty text, got a list"),
        ("- {id: one, use: a, confg: {}}", "{f}: row 'one': unknown key 'confg'; did you mean 'config'?"),
        (
            "- {id: one, use: a, zzz: 1}",
            "{f}: row 'one': unknown key 'zzz'; there is 'config', 'disabled', 'id', 'use'",
        ),
        (
            "- {id: one, use: a, config: [1]}",
            "{f}: row 'one': config: expected a mapping with text keys, got a list",
        ),
        (
            "- {id: one, use: a, config: {1: 2}}",
            "{f}: row 'one': config: expected a mapping with text keys, got a mapping",
        ),
        ("- {id: one, use: a, disabled: 1}", "{f}: row 'one': disabled: expected true or false, got 1"),
        (
            "- {id: one, use: a}\n- {id: one, use: b}",
            "{f}: row 'one': id: another row has this id already; give one of them another id",
        ),
        (
            "- {id: one, use: a, config: {x: [1, '${NO}']}}",
            "{f}: row 'one': config.x[1]: the variable NO is not set; set it, or write ${NO:-default}",
        ),
        (
            "- {id: one, use: '${NO}'}",
            "{f}: row 'one': use: the variable NO is not set; set it, or write ${NO:-default}",
        ),
        (
            "- {id: one, use: a, config: {x: '${not valid}'}}",
            "{f}: row 'one': config.x: `${` begins no variable; "
            "write ${NAME}, ${NAME:-default}, or $${ for text",
        ),
    ],
)
def test_a_malformed_composition_is_refused_in_place(tmp_path: Path, content: str, message: str) -> None:
    path = write(tmp_path, agent=content)
    assert refused(path) == message.replace("{f}", str(path))


@pytest.mark.parametrize(
    ("patches", "message"),
    [
        ("- text", "{f}: patch 1: expected a mapping with `id` or `insert`, got 'text'"),
        ("- {disabled: true}", "{f}: patch 1: `id` is missing"),
        ("- {id: onee, disabled: true}", "{f}: patch 1: id: the base has no row 'onee'; did you mean 'one'?"),
        (
            "- {id: zzzz, disabled: true}",
            "{f}: patch 1: id: the base has no row 'zzzz'; there is 'one', 'three', 'two'",
        ),
        ("- {id: one}", "{f}: patch 1: row 'one': nothing to change; add `config:` or `disabled:`"),
        ("- {id: one, use: b}", "{f}: patch 1: unknown key 'use'; there is 'config', 'disabled', 'id'"),
        ("- {id: one, disable: true}", "{f}: patch 1: unknown key 'disable'; did you mean 'disabled'?"),
        ("- {insert: {id: x, use: y}}", "{f}: patch 1: insert: expected a list of rows, got a mapping"),
        ("- {insert: [], befor: one}", "{f}: patch 1: unknown key 'befor'; did you mean 'before'?"),
        ("- {insert: [], before: one, after: two}", "{f}: patch 1: say `before` or `after`, not both"),
        ("- {insert: [], after: on}", "{f}: patch 1: after: the base has no row 'on'; did you mean 'one'?"),
        (
            "- {insert: [{id: one, use: x}]}",
            "{f}: row 'one': id: another row has this id already; give one of them another id",
        ),
        ("- {insert: [{id: x}]}", "{f}: row 'x': `use` is missing"),
    ],
)
def test_a_malformed_patch_is_refused_with_its_place(tmp_path: Path, patches: str, message: str) -> None:
    path = overlay(tmp_path, patches)
    assert refused(path) == message.replace("{f}", str(path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("base: agent.yml\npatchs: []", "{f}: unknown key 'patchs'; did you mean 'patches'?"),
        ("base: 5", "{f}: base: expected a non-empty text, got 5"),
        ("base: agent.yml\npatches: {}", "{f}: patches: expected a list, got a mapping"),
    ],
)
def test_a_malformed_overlay_is_refused(tmp_path: Path, content: str, message: str) -> None:
    path = write(tmp_path, agent=BASE, top=content)
    assert refused(path) == message.replace("{f}", str(path))


def test_overlays_in_a_circle_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, a="base: b.yml\n", b="base: a.yml\n")
    assert "the overlay is its own base" in refused(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "none.yml"
    assert refused(path) == f"{path}: cannot read the composition: No such file or directory"
    assert "none.yml: cannot read" in refused(write(tmp_path, top="base: none.yml"))


def test_yaml_errors_name_the_line(tmp_path: Path) -> None:
    path = write(tmp_path, agent="- id: one\n  use: a\n - x: [")
    place = "line 3, column 2: while parsing a block collection: did not find expected '-' indicator"
    assert refused(path) == f"{path}: not valid YAML: {place}"
    message = refused(write(tmp_path, agent="- id: \0"))
    assert "at position 6" in message and "\n" not in message and "byte string" not in message
    assert "not valid YAML" in refused(write(tmp_path, agent="- !!python/object:os.system {}"))


def test_a_key_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    message = refused(write(tmp_path, agent="- id: one\n  use: a\n  use: b\n"))
    assert "the key 'use' is there twice" in message and "line 3" in message
    message = refused(write(tmp_path, agent="- id: one\n  use: a\n  config:\n    x: 1\n    x: 2\n"))
    assert "the key 'x' is there twice" in message


def test_merge_keys_still_work(tmp_path: Path) -> None:
    content = """\
- id: one
  use: a
  config: &c {x: 1, y: 2}
- id: two
  use: a
  config:
    <<: *c
    y: 3
"""
    assert rows(write(tmp_path, agent=content))[1].config == {"x": 1, "y": 3}


def test_words_and_dates_are_texts_and_only_true_and_false_are_not(tmp_path: Path) -> None:
    content = (
        "- {id: off, use: on, config: {a: yes, b: no, c: 2024-01-01, d: true, e: FALSE, f: null, g: 0x10}}"
    )
    (row,) = rows(write(tmp_path, agent=content))
    assert (row.id, row.use) == ("off", "on")
    assert row.config == {"a": "yes", "b": "no", "c": "2024-01-01", "d": True, "e": False, "f": None, "g": 16}


def test_a_row_that_is_off_gets_the_variables_that_are_there() -> None:
    models = ["${B:-m}", {"id": "${C:-x}y"}, 7]
    config = {"id": "${A}", "models": models, "base_url": "${GONE}", "text": "$${A} ${"}
    assert fill_where_set(config, {"A": "deep", "C": "z"}) == {
        "id": "deep",
        "models": ["m", {"id": "zy"}, 7],
        "base_url": "${GONE}",
        "text": "${A} ${",
    }


def test_the_variables_that_a_config_names_and_those_it_cannot_do_without() -> None:
    config = {
        "base_url": "${URL:-http://x}/${HOST} $${TEXT} ${",
        "api_key_env": "KEY",
        "proxy_env": "PROXY",
        "token_env": "${PREFIX:-A}_TOKEN",
        "headers": [{"a": "${URL}"}, 7],
    }
    assert named_variables(config) == {
        "URL": True,
        "HOST": True,
        "KEY": True,
        "PROXY": False,
        "PREFIX": False,
    }
